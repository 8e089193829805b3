// Writes the seeds of the image fuzzer: each text in a folder as it is, and as an image.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "lowering/image/image_model.hpp"
#include "tests/image/support.hpp"

namespace fs = std::filesystem;

namespace {

// The image of a text, beside it.
bool write_seed(const fs::path& text_path) {
  std::ifstream stream(text_path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const auto tables = davit::test::tables();
  const auto model = davit::image::assemble_text(text, tables);
  if (!model.ok()) {
    std::fprintf(stderr, "%s: %s\n", text_path.c_str(), model.status().to_string().c_str());
    return false;
  }
  const auto bytes = davit::image::write_image(*model, tables);
  if (!bytes.ok()) {
    std::fprintf(stderr, "%s: %s\n", text_path.c_str(), bytes.status().to_string().c_str());
    return false;
  }
  const fs::path image_path = fs::path(text_path).replace_extension(".davit");
  return davit::image::write_file_atomically(image_path, *bytes).ok();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: image_corpus FOLDER\n");
    return 2;
  }
  bool good = true;
  for (const auto& entry : fs::directory_iterator(argv[1])) {
    if (entry.path().extension() == ".txt") good = write_seed(entry.path()) && good;
  }
  return good ? 0 : 1;
}
