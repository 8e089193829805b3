// Any bytes through the ONNX importer, and what it accepts through text form and passes: a module
// or an error, never a crash, a hang or a large allocation.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "ir/onnx/import.hpp"
#include "ir/passes/passes.hpp"
#include "ir/text.hpp"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  davit::Result<davit::ir::Module> module =
      davit::onnx_import::import_onnx_bytes(std::as_bytes(std::span(data, size)));
  if (!module.ok()) {
    require(!module.status().to_string().empty());
    return 0;
  }
  const std::string text = davit::ir::print_text(*module);
  const davit::Result<davit::ir::Module> back = davit::ir::parse_text(text);
  require(back.ok() && davit::ir::print_text(*back) == text);

  const davit::Result<davit::passes::SimplifyReport> report = davit::passes::simplify(*module);
  require(report.ok() || report.status().code() != DVT_INTERNAL);
  return 0;
}
