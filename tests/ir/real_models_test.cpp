// Every model at hand goes through importer, text form and passes. What Davit does not take must be
// refused as unsupported, never as broken.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "ir/onnx/import.hpp"
#include "ir/passes/passes.hpp"
#include "ir/text.hpp"
#include "ir/verify.hpp"

namespace {

using davit::Result;
namespace fs = std::filesystem;
namespace ir = davit::ir;

constexpr uintmax_t kTextBytesMax = 6U << 20U;  // Larger models take seconds as hex.

std::vector<std::string> models_below(const fs::path& root) {
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root)) {
    if (entry.path().extension() == ".onnx") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void check_text(const ir::Module& module) {
  const std::string text = ir::print_text(module);
  Result<ir::Module> back = ir::parse_text(text);
  REQUIRE_MESSAGE(back.ok(), back.status().to_string());
  CHECK(ir::print_text(*back) == text);
}

// Inputs and outputs of the main graph by name.
std::string signature(const ir::Module& module) {
  std::string text;
  for (const ir::ValueId value : module.graph_inputs(ir::kMainGraph)) {
    text.append(module.value_name(value)) += ", ";
  }
  text += "-> ";
  for (const ir::ValueId value : module.graph_outputs(ir::kMainGraph)) {
    text.append(module.value_name(value)) += ", ";
  }
  return text;
}

// True when the model is supported.
bool check_model(const std::string& file) {
  CAPTURE(file);
  Result<ir::Module> module = davit::onnx_import::import_onnx_file(file);
  if (!module.ok()) {
    CHECK_MESSAGE(module.status().code() == DVT_UNSUPPORTED, module.status().to_string());
    return false;
  }
  CHECK(ir::verify(*module).ok());
  CHECK(module->source_digest.size() == 32);
  CHECK(module->source_name == fs::path(file).filename().string());
  if (fs::file_size(file) <= kTextBytesMax) check_text(*module);

  const std::string before = signature(*module);
  const Result<davit::passes::SimplifyReport> report = davit::passes::simplify(*module);
  if (!report.ok()) {
    CHECK_MESSAGE(report.status().code() == DVT_UNSUPPORTED, report.status().to_string());
    return false;
  }
  CHECK(signature(*module) == before);
  return true;
}

TEST_CASE("models in DAVIT_MODELS_DIR") {
  const char* folder = std::getenv("DAVIT_MODELS_DIR");
  if (folder == nullptr || !fs::is_directory(folder)) {
    MESSAGE("SKIPPED: DAVIT_MODELS_DIR names no folder");
    return;
  }
  const std::vector<std::string> files = models_below(folder);
  CHECK(!files.empty());
  for (const std::string& file : files) check_model(file);
}

TEST_CASE("models of ONNX's own tests") {
  const char* folder = "/usr/share/libonnx-testdata/data";
  if (!fs::is_directory(folder)) {
    MESSAGE("SKIPPED: no ONNX test data (Debian: libonnx-testdata)");
    return;
  }
  size_t supported = 0;
  for (const std::string& file : models_below(folder)) supported += size_t(check_model(file));
  MESSAGE("supported: " << supported);
  CHECK(supported >= 600);
}

}  // namespace
