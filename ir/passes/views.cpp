// merge_views and move_views: operators that only change dims.
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

// A Transpose that moves only axes of extent 1 moves no element.
bool moves_nothing(const ir::Module& module, NodeId node) {
  const auto extents = static_shape(module, operand(module, node, 0));
  if (!extents) return false;
  int64_t last = -1;
  for (const int64_t axis : permutation_of(module, node, extents->size())) {
    if ((*extents)[size_t(axis)] == 1) continue;
    if (axis < last) return false;
    last = axis;
  }
  return true;
}

bool is_view(const ir::Module& module, NodeId node) {
  return is_op(module, node, "Reshape") || is_op(module, node, "Flatten") ||
         is_op(module, node, "Squeeze") || is_op(module, node, "Unsqueeze") ||
         (is_op(module, node, "Transpose") && moves_nothing(module, node));
}

// The target of a Reshape that gives this shape whatever it starts from.
std::optional<std::vector<int64_t>> target_for(const ir::Shape* shape) {
  if (shape == nullptr) return std::nullopt;
  std::vector<int64_t> target;
  bool is_open = false;
  for (const ir::Dim dim : *shape) {
    // 0 would copy a dim of the input.
    if (dim == ir::Dim(0) || (!dim.is_known() && is_open)) return std::nullopt;
    is_open = is_open || !dim.is_known();
    target.push_back(dim.is_known() ? dim.extent() : -1);
  }
  return target;
}

// True when a Reshape can read another tensor of as many elements instead.
bool stands_alone(const ir::Module& module, NodeId node) {
  if (!is_op(module, node, "Reshape")) return false;
  const ops::NodeView view(module, node);
  const auto target = view.input_i64(1);
  return target && std::find(target->begin(), target->end(), 0) == target->end();
}

// The view reads `source`, of as many elements as what it read before.
bool read_from(Rewriter& rewriter, NodeId node, ValueId source) {
  ir::Module& module = rewriter.module();
  if (stands_alone(module, node)) {
    module.set_input(node, 0, source);
    return true;
  }
  const ValueId result = module.outputs(node)[0];
  const auto target = target_for(module.shape(result));
  if (!target) return false;
  const ir::GraphId graph = module.node_graph(node);
  const ValueId shape =
      rewriter.add_constant(graph, std::string(module.value_name(result)) + ".shape",
                            ir::make_i64_tensor({int64_t(target->size())}, *target));
  rewriter.add_node(graph, {.op = "Reshape",
                            .name = module.local_name(node),
                            .inputs = {source, shape},
                            .outputs = {result}});
  rewriter.strike(node);
  return true;
}

// What a pointwise operator with this view as its only tensor leads to through others like it: true
// when that is another view.
bool meets_view(const ir::Module& module, NodeId view) {
  NodeId at = view;
  for (;;) {
    at = only_reader(module, module.outputs(at)[0]);
    if (at == kNoNode || module.node_graph(at) != module.node_graph(view)) return false;
    if (is_view(module, at)) return true;
    if (!is_pointwise_of_one(module, at)) return false;
  }
}

// Results that a fused operator could go on computing with.
bool is_product(const ir::Module& module, ValueId value) {
  const NodeId node = module.producer(value);
  return node != kNoNode && (is_op(module, node, "Conv") || is_op(module, node, "ConvTranspose") ||
                             is_op(module, node, "MatMul") || is_op(module, node, "Gemm"));
}

// view -> pointwise becomes pointwise -> view. False when dims of the view cannot be stated then.
bool swap(Rewriter& rewriter, NodeId view, NodeId pointwise) {
  ir::Module& module = rewriter.module();
  const ValueId source = operand(module, view, 0);
  const ValueId middle = module.outputs(view)[0];
  const ValueId result = module.outputs(pointwise)[0];
  const auto target = target_for(module.shape(middle));
  if (!target || !has_unit_operands_up_to(module, pointwise, module.shape(source))) return false;
  const ir::GraphId graph = module.node_graph(view);
  const ValueId shape =
      rewriter.add_constant(graph, std::string(module.value_name(middle)) + ".shape",
                            ir::make_i64_tensor({int64_t(target->size())}, *target));
  const ValueId computed = rewriter.add_value(graph, module.value_name(result),
                                              module.dtype(result), *module.shape(source));
  replace_operand(module, pointwise, middle, source);
  module.set_output(pointwise, 0, computed);
  rewriter.add_node(graph, {.op = "Reshape",
                            .name = module.local_name(view),
                            .inputs = {computed, shape},
                            .outputs = {result}});
  rewriter.strike(view);
  return true;
}

}  // namespace

Result<uint32_t> merge_views(ir::Module& module, Refusals& /*refusals*/) {
  Rewriter rewriter(module);
  uint32_t changes = 0;
  for (const NodeId node : live_nodes(module)) {
    if (rewriter.is_struck(node) || rewriter.has_control_edges(node) || !is_view(module, node)) {
      continue;
    }
    const ValueId between = operand(module, node, 0);
    const NodeId inner = module.producer(between);
    if (inner == kNoNode || !is_view(module, inner) || rewriter.has_control_edges(inner)) continue;
    if (!read_from(rewriter, node, operand(module, inner, 0))) continue;
    if (!module.has_uses(between) && !module.is_graph_output(between)) {
      rewriter.strike_unneeded(inner);
    }
    ++changes;
  }
  if (Status status = rewriter.finish(); !status.ok()) return status;
  return changes;
}

Result<uint32_t> move_views(ir::Module& module, Refusals& /*refusals*/) {
  Rewriter rewriter(module);
  uint32_t changes = 0;
  for (const NodeId node : live_nodes(module)) {
    if (rewriter.is_struck(node) || rewriter.has_control_edges(node) || !is_view(module, node)) {
      continue;
    }
    const ValueId source = operand(module, node, 0);
    const NodeId reader = only_reader(module, module.outputs(node)[0]);
    if (reader == kNoNode || module.node_graph(reader) != module.node_graph(node) ||
        rewriter.has_control_edges(reader) || !is_pointwise_of_one(module, reader) ||
        module.shape(source) == nullptr) {
      continue;
    }
    const bool gains = meets_view(module, node) ||
                       (is_product(module, source) && only_reader(module, source) == node);
    if (gains && swap(rewriter, node, reader)) ++changes;
  }
  if (Status status = rewriter.finish(); !status.ok()) return status;
  return changes;
}

}  // namespace davit::passes
