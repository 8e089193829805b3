// embed_image: assembles an image from its text form and writes it as a C array, at build time.
// usage: embed_image TEXT OUTPUT.c NAME
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "kernels.h"
#include "lowering/image/image_model.hpp"

namespace {

int fail(const std::string& why) {
  std::fprintf(stderr, "embed_image: %s\n", why.c_str());
  return 1;
}

// Page aligned, as constants want to be.
std::string array_text(const std::string& name, std::span<const std::byte> bytes) {
  std::string text = "#include <stddef.h>\n_Alignas(4096) const unsigned char " + name + "[] = {";
  for (size_t i = 0; i < bytes.size(); ++i) {
    text += (i % 24 == 0 ? "\n" : "") + std::to_string(std::to_integer<int>(bytes[i])) + ",";
  }
  return text + "\n};\nconst size_t " + name + "_size = sizeof " + name + ";\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return fail("usage: embed_image TEXT OUTPUT.c NAME");
  std::ifstream input(argv[1]);
  std::ostringstream text;
  if (!(text << input.rdbuf())) return fail(std::string("cannot read ") + argv[1]);

  const DvtKernelTable tables[] = {acme_kernels()};
  const auto model = davit::image::assemble_text(text.str(), tables);
  if (!model.ok()) return fail(argv[1] + (": " + model.status().to_string()));
  const auto bytes = davit::image::write_image(*model, tables);
  if (!bytes.ok()) return fail(argv[1] + (": " + bytes.status().to_string()));

  std::ofstream output(argv[2]);
  output << array_text(argv[3], *bytes);
  return output.flush() ? 0 : fail(std::string("cannot write ") + argv[2]);
}
