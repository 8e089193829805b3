// Every model at hand goes through the importer: an error is allowed only where it is listed here.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "ir/onnx/import.hpp"
#include "ir/onnx/tensor_io.hpp"
#include "ir/verify.hpp"

namespace {

using davit::Result;
namespace fs = std::filesystem;
namespace ir = davit::ir;

std::vector<std::string> files_below(const fs::path& root, const std::string& extension) {
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root)) {
    if (entry.path().extension() == extension) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

TEST_CASE("models in DAVIT_MODELS_DIR are imported") {
  const char* folder = std::getenv("DAVIT_MODELS_DIR");
  if (folder == nullptr) {
    MESSAGE("SKIPPED: DAVIT_MODELS_DIR is not set");
    return;
  }
  const std::vector<std::string> files = files_below(folder, ".onnx");
  CHECK(!files.empty());
  for (const std::string& file : files) {
    CAPTURE(file);
    Result<ir::Module> module = davit::onnx_import::import_onnx_file(file);
    REQUIRE_MESSAGE(module.ok(), module.status().to_string());
    CHECK(ir::verify(*module).ok());
    CHECK(module->source_digest.size() == 32);
    CHECK(module->source_name == fs::path(file).filename().string());
  }
}

}  // namespace
