// merge_transposes and move_transposes.
#include <algorithm>

#include "ir/passes/passes.hpp"
#include "ir/passes/pointwise.hpp"
#include "ir/passes/rewrite.hpp"

namespace davit::passes {
namespace {

using ir::kNoNode;
using ir::kNoValue;
using ir::NodeId;
using ir::ValueId;
using Permutation = std::vector<int64_t>;

bool is_transpose(const ir::Module& module, NodeId node) {
  return node != kNoNode && is_op(module, node, "Transpose");
}

// The permutation of a Transpose whose rank is known; empty for everything else.
Permutation known_permutation(const ir::Module& module, NodeId node) {
  if (!is_transpose(module, node)) return {};
  const ir::Shape* shape = module.shape(operand(module, node, 0));
  if (shape == nullptr || shape->empty()) return {};
  return permutation_of(module, node, shape->size());
}

// ---- merge_transposes --------------------------------------------------------------------------

// Transpose(Transpose(x)) is one Transpose of x, or x.
bool merge_pair(Rewriter& rewriter, NodeId node) {
  ir::Module& module = rewriter.module();
  const Permutation outer = known_permutation(module, node);
  const ValueId between = operand(module, node, 0);
  const NodeId first = between == kNoValue ? kNoNode : module.producer(between);
  if (outer.empty() || first == kNoNode || rewriter.has_control_edges(first)) return false;
  const Permutation inner = known_permutation(module, first);
  if (inner.empty()) return false;
  const Permutation both = permuted(inner, outer);
  const ValueId source = operand(module, first, 0);
  if (is_identity(both) && rewriter.replace(module.outputs(node)[0], source)) {
    rewriter.strike(node);
  } else {
    module.set_input(node, 0, source);
    module.set_attribute(node, "perm", both);
  }
  if (!module.has_uses(between) && !module.is_graph_output(between)) {
    rewriter.strike_unneeded(first);
  }
  return true;
}

// Gemm turns its matrices itself.
bool merge_into_gemm(Rewriter& rewriter, NodeId gemm) {
  ir::Module& module = rewriter.module();
  bool changed = false;
  for (const uint32_t index : {0U, 1U}) {
    const ValueId turned = operand(module, gemm, index);
    const NodeId transpose = turned == kNoValue ? kNoNode : module.producer(turned);
    if (known_permutation(module, transpose) != Permutation{1, 0} ||
        rewriter.has_control_edges(transpose)) {
      continue;
    }
    const char* attribute = index == 0 ? "transA" : "transB";
    const int64_t was = ops::NodeView(module, gemm).attribute_int(attribute, 0);
    module.set_attribute(gemm, attribute, int64_t(was == 0 ? 1 : 0));
    module.set_input(gemm, index, operand(module, transpose, 0));
    if (!module.has_uses(turned) && !module.is_graph_output(turned)) {
      rewriter.strike_unneeded(transpose);
    }
    changed = true;
  }
  return changed;
}

// ---- move_transposes ---------------------------------------------------------------------------

// What a pointwise node or a Concat asks of a Transpose that is to be moved behind it.
struct Passage {
  bool is_open = false;
  uint32_t joined = 0;  // Other operands that are results of the same permutation.
};

bool is_concat(const ir::Module& module, NodeId node) {
  return is_op(module, node, "Concat");
}

// Whether a Transpose of this permutation can pass `node`, coming in as `value`.
Passage passage(const Rewriter& rewriter, NodeId node, ValueId value, const Permutation& perm) {
  const ir::Module& module = rewriter.module();
  const bool joins = is_concat(module, node);
  const ir::Shape* result =
      module.outputs(node)[0] == kNoValue ? nullptr : module.shape(module.outputs(node)[0]);
  if (rewriter.has_control_edges(node) || rewriter.is_struck(node) ||
      (!joins && !is_pointwise(module, node)) || result == nullptr ||
      result->size() != perm.size()) {
    return {};
  }
  Passage out{.is_open = true};
  for (const ValueId other : module.inputs(node)) {
    if (other == kNoValue || other == value) continue;
    const NodeId producer = module.producer(other);
    if (producer != kNoNode && known_permutation(module, producer) == perm &&
        !rewriter.has_control_edges(producer)) {
      out.joined += uint32_t(only_reader(module, other) == node);
      continue;
    }
    const ir::TensorData* data = module.constant(other);
    if (data == nullptr || data->bytes == nullptr || dvt_dtype_size(data->dtype) == 0 ||
        data->dims.size() > perm.size() || (joins && data->dims.size() != perm.size())) {
      return {};
    }
  }
  return out;
}

// Whether moving the Transpose on past `node` and what follows makes Transposes fewer.
bool gains(const Rewriter& rewriter, NodeId node, ValueId value, const Permutation& perm) {
  const ir::Module& module = rewriter.module();
  for (;;) {
    const Passage here = passage(rewriter, node, value, perm);
    if (!here.is_open) return false;
    if (here.joined > 0) return true;
    value = module.outputs(node)[0];
    const NodeId next = only_reader(module, value);
    if (next == kNoNode || module.node_graph(next) != module.node_graph(node)) return false;
    if (!known_permutation(module, next).empty() && !rewriter.has_control_edges(next)) return true;
    node = next;
  }
}

// Operands of `node` from before the Transposes; constants turned back.
void turn_operands(Rewriter& rewriter, NodeId node, const Permutation& perm) {
  ir::Module& module = rewriter.module();
  const Permutation back = inverse(perm);
  for (uint32_t i = 0; i < module.inputs(node).size(); ++i) {
    const ValueId value = module.inputs(node)[i];
    if (value == kNoValue) continue;
    const NodeId producer = module.producer(value);
    if (producer != kNoNode) {
      module.set_input(node, i, operand(module, producer, 0));
      if (!module.has_uses(value) && !module.is_graph_output(value)) rewriter.strike(producer);
      continue;
    }
    const ir::TensorData& data = *module.constant(value);
    if (data.element_count() == 1 && !is_concat(module, node)) continue;
    module.set_input(node, i,
                     rewriter.add_constant(module.node_graph(node), module.value_name(value),
                                           permuted_data(data, back)));
  }
}

// Transpose -> node becomes node -> Transpose.
void move_behind(Rewriter& rewriter, NodeId transpose, NodeId node, const Permutation& perm) {
  ir::Module& module = rewriter.module();
  const std::string name = module.local_name(transpose);
  const ValueId result = module.outputs(node)[0];
  const ir::Shape shape = permuted(*module.shape(result), inverse(perm));
  if (is_concat(module, node)) {
    const int64_t axis = *ops::normalise_axis(ops::NodeView(module, node).attribute_int("axis", 0),
                                              int64_t(perm.size()));
    module.set_attribute(node, "axis", perm[size_t(axis)]);
  }
  turn_operands(rewriter, node, perm);
  const ValueId computed = rewriter.add_value(module.node_graph(node), module.value_name(result),
                                              module.dtype(result), shape);
  module.set_output(node, 0, computed);
  rewriter.add_node(module.node_graph(node), {.op = "Transpose",
                                              .name = name,
                                              .inputs = {computed},
                                              .outputs = {result},
                                              .attributes = {{"perm", perm}}});
}

}  // namespace

Result<uint32_t> merge_transposes(ir::Module& module, Refusals& /*refusals*/) {
  Rewriter rewriter(module);
  uint32_t changes = 0;
  for (const NodeId node : live_nodes(module)) {
    if (rewriter.is_struck(node) || rewriter.has_control_edges(node)) continue;
    if (is_transpose(module, node)) changes += uint32_t(merge_pair(rewriter, node));
    if (is_op(module, node, "Gemm")) changes += uint32_t(merge_into_gemm(rewriter, node));
  }
  if (Status status = rewriter.finish(); !status.ok()) return status;
  return changes;
}

Result<uint32_t> move_transposes(ir::Module& module, Refusals& /*refusals*/) {
  Rewriter rewriter(module);
  uint32_t changes = 0;
  for (const NodeId node : live_nodes(module)) {
    if (rewriter.is_struck(node) || rewriter.has_control_edges(node)) continue;
    const Permutation perm = known_permutation(module, node);
    if (perm.empty() || is_identity(perm)) continue;
    const ValueId turned = module.outputs(node)[0];
    const NodeId reader = only_reader(module, turned);
    if (reader == kNoNode || module.node_graph(reader) != module.node_graph(node) ||
        !gains(rewriter, reader, turned, perm)) {
      continue;
    }
    move_behind(rewriter, node, reader, perm);
    ++changes;
  }
  if (Status status = rewriter.finish(); !status.ok()) return status;
  return changes;
}

}  // namespace davit::passes
