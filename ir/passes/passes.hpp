// passes.hpp: what happens to a module between import and lowering.
//
// Threads  A pass is the only user of its module while it runs.
// Trust    Modules come verified (ir/verify.hpp) and sorted, and leave so; run_pass() checks it
// after
//          every pass. Shapes and attributes are still the model's: inference refuses what breaks
//          an operator's rules, and folding is bounded in memory and work.
// Memory   Passes work in place. After an error the module is to be thrown away.
//
// Passes never change the names, dtypes or order of the main graph's inputs and outputs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "ir/module.hpp"

namespace davit::passes {

// ---- What the user fixes ---------------------------------------------------------------------

struct ShapeBindings {
  std::map<std::string, std::vector<int64_t>> shapes;  // Input name to extents.
  std::map<std::string, int64_t> symbols;              // Named dimension to extent.
};

// Replaces free dimensions of the inputs, and named ones everywhere. An extent may repeat a fixed
// dimension but not change it.
Status bind_shapes(ir::Module& module, const ShapeBindings& bindings);

// Turns inputs into constants; their dims bind free dimensions as bind_shapes() does.
Status freeze_inputs(ir::Module& module, const std::map<std::string, ir::TensorData>& data);

// DVT_UNSUPPORTED with every node, subgraphs included, whose operator has no definition under the
// model's opsets: "ai.onnx::Foo(13): a, b; com.x::Bar(1): c".
Status check_supported(const ir::Module& module);

// ---- Passes: each returns how many things it changed -----------------------------------------

// Dtypes and shapes of all values, and the data of small ones that shapes can depend on (results up
// to 4 KiB of nodes whose inputs are constant, and of Shape and Size). A declaration that
// contradicts what an operator yields is an error with both. Nodes without a definition are left
// alone. Returns the number of values about which more is known than before.
Result<uint32_t> infer_shapes(ir::Module& module);

// infer_shapes() leaves alone what contradicts itself inside a branch, since the branch may turn out
// never to be taken. After all passes, this reports it.
Status check_inference(ir::Module& module);

// infer_shapes(), and evaluates every node whose inputs are constant. Left to run time: results
// above 64 MiB or above 4 times the inputs plus 1 MiB, more than 2^30 multiplications, and nodes
// whose kernel fails. Returns the number of nodes that vanished.
Result<uint32_t> fold_constants(ir::Module& module);

// Erases nodes and constants on which no output of the main graph depends. Returns the number of
// nodes.
Result<uint32_t> remove_dead_nodes(ir::Module& module);

struct Pass {
  std::string_view name;
  Result<uint32_t> (*run)(ir::Module& module);
  bool required;  // Lowering needs it; it cannot be disabled.
};

// In the order of a round of simplify().
std::span<const Pass> all_passes();

// Runs one pass and verifies the module; a broken one is DVT_INTERNAL and names the pass.
Result<uint32_t> run_pass(const Pass& pass, ir::Module& module);

struct SimplifyReport {
  uint32_t folded_nodes = 0;
  uint32_t dead_nodes = 0;
  uint32_t rounds = 0;
};

struct SimplifyOptions {
  // Passes to leave out; a name that is no optional pass is DVT_INVALID_ARGUMENT.
  std::vector<std::string> disabled;
  // Called after every pass, also one that changed nothing. An error ends simplify(), which returns
  // it. May be empty.
  std::function<Status(std::string_view pass, const ir::Module& module)> after_pass;
};

// Dead nodes out, check_supported(), then all passes until nothing changes.
Result<SimplifyReport> simplify(ir::Module& module, const SimplifyOptions& options = {});

}  // namespace davit::passes
