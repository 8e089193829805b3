// generate.hpp: nodes of a graph for which kernels are generated, and the code of these.
//
// Threads  One thread a module.
// Trust    The module has passed inference. The code is what the system's compiler makes of our
//          text; nothing of the model gets into that text but numbers.
// Memory   The result owns the kernels' records; the graph's operators refer to them by name.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "codegen/toolchain.hpp"
#include "davit/kernel.h"
#include "ir/module.hpp"

namespace davit::codegen {

struct Options {
  std::vector<std::string> isas;  // As isa_named(), one at least.
  ToolchainOptions toolchain;
  // Sums of the products themselves in every kernel: no convolution by Winograd's way.
  bool plain_sums = false;
};

class Generated {
 public:
  std::vector<std::byte> code;
  uint32_t nodes = 0;
  // Path of the node, and why no kernel is generated for it.
  std::vector<std::pair<std::string, std::string>> refusals;
  size_t files = 0, cached_files = 0;
  std::string cache_problem;  // As BuiltCode.

  // The kernels as the compiler knows them: their records, but nothing that could run.
  [[nodiscard]] DvtKernelTable kernels() const { return {records_.data(), records_.size()}; }
  [[nodiscard]] size_t kernel_count() const { return records_.size(); }

 private:
  friend Result<std::unique_ptr<Generated>> generate(std::span<ir::Module* const>, const Options&);
  std::vector<std::string> names_;
  std::vector<DvtKernel> records_;
};

// Replaces what recognise() knows in the main graphs by operators davit::Generated<kind>; the
// weights of products are packed. Modules have what is equal in common.
Result<std::unique_ptr<Generated>> generate(std::span<ir::Module* const> modules,
                                            const Options& options);

}  // namespace davit::codegen
