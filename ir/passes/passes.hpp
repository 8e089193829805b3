// passes.hpp: what happens to a module between import and lowering.
//
// Threads  A pass is the only user of its module while it runs.
// Trust    Modules come verified (ir/verify.hpp) and sorted, and leave so; run_pass() checks it
// after
//          every pass. Shapes and attributes are still the model's: inference refuses what breaks
//          an operator's rules, and folding is bounded in memory and work.
// Memory   Passes work in place. After an error the module is to be thrown away.
//
// Passes never change the names, dtypes or order of the main graph's inputs and outputs, but for
// outputs that are no tensors (expand_sequences()).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "davit/plugin.h"
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

// Makes tensors of the inputs that are sequences or optionals. `elements` says how many tensors
// each holds: the sequence x becomes the inputs x[0], x[1] ..., an optional tensor of 1 the input
// x, and kAbsent is an optional that is not there. An input left out is an error that names it.
inline constexpr int64_t kAbsent = -1;
Status bind_elements(ir::Module& module, const std::map<std::string, int64_t>& elements);

// DVT_UNSUPPORTED with every node, subgraphs included, whose operator has no definition under the
// model's opsets: "ai.onnx::Foo(13): a, b; com.x::Bar(1): c".
Status check_supported(const ir::Module& module);

// ---- Passes: each returns how many things it changed -----------------------------------------

// A rewrite whose pattern was found but that was not done, and why.
struct Refusal {
  std::string pass, node, reason;
};
using Refusals = std::vector<Refusal>;

// Dtypes and shapes of all values, and the data of small ones that shapes can depend on (results up
// to 4 KiB of nodes whose inputs are constant, and of Shape and Size). A declaration that
// contradicts what an operator yields is an error with both. Nodes without a definition are left
// alone. Returns the number of values about which more is known than before.
Result<uint32_t> infer_shapes(ir::Module& module);

// infer_shapes() leaves alone what contradicts itself inside a branch, since the branch may turn
// out never to be taken. After all passes, this reports it.
Status check_inference(ir::Module& module);

// Lists of any length that are attributes of a node become constant inputs, as its kernel takes
// them: the tables of TfIdfVectorizer. Returns the number of nodes.
Result<uint32_t> lift_tables(ir::Module& module, Refusals& refusals);

// A Scan becomes a Loop that takes its elements by their number; one of version 8, with a batch,
// two.
Result<uint32_t> lower_scans(ir::Module& module, Refusals& refusals);

// DVT_UNSUPPORTED with a Scan that is left, and the reason.
Status check_scans(const ir::Module& module, const Refusals& refusals);

// Sequences and optionals become the tensors they hold: what reads them reads those, a Loop that
// carries one and SequenceMap become copies of their bodies, and the main graph's outputs are the
// elements y[0], y[1] ... of a sequence y; an absent optional is no output. That needs lengths,
// positions, trip counts and conditions that are constant; what is not is refused, and reported by
// check_sequences(). Infers shapes while it works.
Result<uint32_t> expand_sequences(ir::Module& module, Refusals& refusals);

// An operator on sequences or optionals, which is for expand_sequences() and has no kernel.
bool is_sequence_operator(const ir::Module& module, ir::NodeId node);

// DVT_UNSUPPORTED with the operators on sequences and optionals that are left, and the reasons.
Status check_sequences(const ir::Module& module, const Refusals& refusals);

// infer_shapes(), and evaluates every node whose inputs are constant. Left to run time: results
// above 64 MiB or above 4 times the inputs plus 1 MiB, more than 2^30 multiplications, and nodes
// whose kernel fails. Returns the number of nodes that vanished.
Result<uint32_t> fold_constants(ir::Module& module);

// Erases nodes and constants on which no output of the main graph depends. Returns the number of
// nodes.
Result<uint32_t> remove_dead_nodes(ir::Module& module);

// Puts the branch of an If whose condition is constant in the place of the If.
Result<uint32_t> inline_branches(ir::Module& module, Refusals& refusals);

// Constants of one content become one, that of the outermost graph.
Result<uint32_t> merge_constants(ir::Module& module, Refusals& refusals);

// Nodes that compute the same from the same become one. Random operators stay.
Result<uint32_t> merge_equal_nodes(ir::Module& module, Refusals& refusals);

// Removes nodes whose result is their input: Identity, Dropout, and casts, views, slices, pads and
// the like that change nothing.
Result<uint32_t> remove_identities(ir::Module& module, Refusals& refusals);

// Cast(Cast(x)) becomes Cast(x) where the first loses nothing.
Result<uint32_t> merge_casts(ir::Module& module, Refusals& refusals);

// Views of views (Reshape, Flatten, Squeeze, Unsqueeze, Transposes that move no element) become one
// Reshape.
Result<uint32_t> merge_views(ir::Module& module, Refusals& refusals);

// Moves views behind pointwise operators where they meet another view, or free a product's result
// for fusion.
Result<uint32_t> move_views(ir::Module& module, Refusals& refusals);

// Transposes of Transposes become one, and those of a Gemm's matrices its attributes.
Result<uint32_t> merge_transposes(ir::Module& module, Refusals& refusals);

// Moves Transposes behind pointwise operators and Concat where that makes them fewer.
Result<uint32_t> move_transposes(ir::Module& module, Refusals& refusals);

// Identities of arithmetic that hold bit for bit (x * 1, but x + 0 only where x is never -0),
// powers of two and squares as products, Clip of Clip.
Result<uint32_t> simplify_arithmetic(ir::Module& module, Refusals& refusals);

// Weights of Conv, ConvTranspose and Gemm absorb a BatchNormalization. Not exact.
Result<uint32_t> fold_batch_norms(ir::Module& module, Refusals& refusals);

// Weights of Conv, ConvTranspose, Gemm and MatMul absorb constant factors and addends per channel.
// Not exact.
Result<uint32_t> fold_scales(ir::Module& module, Refusals& refusals);

// Conv, MaxPool and AveragePool absorb a Pad.
Result<uint32_t> fold_pads(ir::Module& module, Refusals& refusals);

// MatMul and an Add become a Gemm. In halves not exact: there is one rounding less.
Result<uint32_t> fuse_gemm(ir::Module& module, Refusals& refusals);

// The Gaussian error linear unit and LayerNormalization, written out, become one node.
Result<uint32_t> fuse_gelu(ir::Module& module, Refusals& refusals);
Result<uint32_t> fuse_layer_norm(ir::Module& module, Refusals& refusals);

// softmax(Q K * scale + mask) V becomes one node, with the same bits.
Result<uint32_t> fuse_attention(ir::Module& module, Refusals& refusals);

// Pointwise operators behind Conv, ConvTranspose, MatMul and Gemm become steps of a fused operator,
// with the same bits.
Result<uint32_t> fuse_epilogues(ir::Module& module, Refusals& refusals);

// What happens to a module at an optimisation level. A level includes those below it.
enum class Level : uint8_t {
  kRequired,   // -O0: what lowering needs. These passes cannot be disabled.
  kFold,       // -O1: folding, dead code, duplicates. Results keep their bits.
  kEliminate,  // -O2: nodes that need not be.
  kFuse,       // -O3: weights absorb constant arithmetic, which rounds elsewhere; fused operators.
};

struct Pass {
  std::string_view name;
  Result<uint32_t> (*run)(ir::Module& module, Refusals& refusals);
  Level level;
};

// In the order of a round of simplify().
std::span<const Pass> all_passes();

// What lowerings of static graphs do, in names and levels like those of passes: split_products
// (lowering/ split_products.hpp), view_parts, join_parts, work_in_place for the cpu
// (lowering/share_memory.hpp), move_to_init, fuse_copies and order_launches for ascend
// (lowering/lower.hpp).
struct LoweringPass {
  std::string_view name;
  Level level;
};
std::span<const LoweringPass> lowering_passes();

// Runs one pass and verifies the module; a broken one is DVT_INTERNAL and names the pass.
Result<uint32_t> run_pass(const Pass& pass, ir::Module& module, Refusals& refusals);

struct SimplifyReport {
  uint32_t folded_nodes = 0;
  uint32_t dead_nodes = 0;
  uint32_t rounds = 0;
  // Changes by pass, rewrites first, then in the order of all_passes(); without passes that changed
  // nothing.
  std::vector<std::pair<std::string, uint32_t>> changes;
  Refusals refusals;  // Of the last run of each pass.
};

// A rewrite from outside (plug-ins): see pattern.hpp.
class Pattern;
struct Rewrite {
  std::string name;
  bool is_late = false;  // After the passes of -O2 rather than before all optional ones.
  std::shared_ptr<const Pattern> pattern, replacement;
  DvtGraphPass run = nullptr;  // In place of both: a pass over the whole graph (graph_pass.cpp).
  std::string domain;          // Of the operators that the replacement brings, and its version.
  int64_t version = 1;
};

// `pattern` and `replacement` in the text form of pattern.hpp. Inputs of the replacement are inputs
// of the pattern by name, outputs by place. DVT_INVALID_ARGUMENT says which of the two is wrong.
Result<Rewrite> make_rewrite(std::string name, std::string_view pattern,
                             std::string_view replacement);

// As run_rewrite(), for one with `run`.
Result<uint32_t> run_graph_pass(const Rewrite& rewrite, ir::Module& module);

// Once over all nodes. Nodes that it makes are not looked at again.
Result<uint32_t> run_rewrite(const Rewrite& rewrite, ir::Module& module, Refusals& refusals);

struct SimplifyOptions {
  Level level = Level::kEliminate;
  // Passes to leave out, to run whatever the level, and, when there are any, to run in place of
  // those of the level. A name that is no optional pass is DVT_INVALID_ARGUMENT.
  std::vector<std::string> disabled, enabled, only;
  // Passes of their own names, at every level, unless they are disabled.
  std::vector<Rewrite> rewrites;
  // Called after every pass that ran, also one that changed nothing. An error ends simplify(),
  // which returns it. May be empty.
  std::function<Status(std::string_view pass, const ir::Module& module)> after_pass;
};

// Whether a pass of this name and level is to run.
bool is_enabled(std::string_view name, Level level, const SimplifyOptions& options);

// Dead nodes out, check_supported(), then the passes up to kEliminate until nothing changes, then
// all of them until nothing changes. A pass is not run again before another has changed something.
Result<SimplifyReport> simplify(ir::Module& module, const SimplifyOptions& options = {});

}  // namespace davit::passes
