// assemble_image: TEXT to IMAGE, with Davit's own kernels.
#include <cstdio>
#include <fstream>
#include <sstream>

#include "lowering/image/image_model.hpp"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::ostringstream text;
  text << std::ifstream(argv[1]).rdbuf();
  const auto model = davit::image::assemble_text(text.str(), {});
  if (!model.ok()) {
    std::fprintf(stderr, "%s: %s\n", argv[1], model.status().to_string().c_str());
    return 1;
  }
  const auto bytes = davit::image::write_image(*model);
  if (!bytes.ok()) {
    std::fprintf(stderr, "%s: %s\n", argv[1], bytes.status().to_string().c_str());
    return 1;
  }
  return davit::image::write_file_atomically(argv[2], *bytes).ok() ? 0 : 1;
}
