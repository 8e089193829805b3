// remove_identities: nodes whose result is their input.
#include <algorithm>

#include "ir/passes/passes.hpp"
#include "ir/passes/rewrite.hpp"

namespace davit::passes {
namespace {

using ir::kNoValue;
using ir::NodeId;
using ir::ValueId;

bool all_equal(const std::optional<std::vector<int64_t>>& values, int64_t wanted) {
  return values && std::all_of(values->begin(), values->end(),
                               [wanted](int64_t value) { return value == wanted; });
}

// A parameter that is an attribute in old opsets and an input in new ones.
std::optional<std::vector<int64_t>> parameter(const ops::NodeView& view, std::string_view attribute,
                                              uint32_t input) {
  if (view.has_attribute(attribute)) return view.attribute_ints(attribute);
  return view.input_i64(input);
}

bool infers_only(const ops::NodeView& view) {
  if (view.has_output(1)) return false;
  if (view.opset() < 7) return view.attribute_int("is_test", 0) != 0;
  if (view.opset() < 12 || !view.has_input(2)) return true;
  return uniform_constant(view.module(), operand(view.module(), view.id(), 2)) == 0.0;
}

bool is_identity_permutation(const ops::NodeView& view) {
  const ir::Shape* shape = view.input_shape(0);
  const std::vector<int64_t> perm = view.attribute_ints("perm");
  if (perm.empty()) return shape != nullptr && shape->size() <= 1;
  for (size_t i = 0; i < perm.size(); ++i) {
    if (perm[i] != int64_t(i)) return false;
  }
  return true;
}

// Every result of a Split, in order, along the axis they were cut.
ValueId rejoined(const ir::Module& module, NodeId concat) {
  const auto inputs = module.inputs(concat);
  const NodeId split = inputs[0] == kNoValue ? ir::kNoNode : module.producer(inputs[0]);
  if (split == ir::kNoNode || !is_op(module, split, "Split")) return kNoValue;
  const auto parts = module.outputs(split);
  const ir::Shape* shape = module.shape(inputs[0]);
  if (shape == nullptr || !std::equal(parts.begin(), parts.end(), inputs.begin(), inputs.end())) {
    return kNoValue;
  }
  const auto rank = int64_t(shape->size());
  const auto axis_of = [&](NodeId node) {
    return ops::normalise_axis(ops::NodeView(module, node).attribute_int("axis", 0), rank);
  };
  return axis_of(split) && axis_of(split) == axis_of(concat) ? module.inputs(split)[0] : kNoValue;
}

// What output 0 is equal to, or kNoValue.
ValueId original(const ir::Module& module, NodeId node) {
  const ops::NodeView view(module, node);
  const ValueId input = operand(module, node, 0);
  if (input == kNoValue || !view.has_output(0)) return kNoValue;
  const auto is = [&](std::string_view op) { return is_op(module, node, op); };
  const auto keeps_type = [&] { return same_type(module, input, module.outputs(node)[0]); };
  const auto when = [&](bool condition) { return condition ? input : kNoValue; };
  if (is("Identity")) return input;
  if (is("Dropout")) return when(infers_only(view));
  if (is("Cast") || is("CastLike")) {
    return when(view.input_dtype(0) != DVT_DTYPE_NONE &&
                view.input_dtype(0) == view.output_dtype(0));
  }
  if (is("Transpose")) return when(is_identity_permutation(view));
  if (is("Reshape") || is("Flatten") || is("Squeeze") || is("Unsqueeze") || is("Expand")) {
    return when(keeps_type());
  }
  if (is("Tile")) return when(view.opset() >= 6 && all_equal(view.input_i64(1), 1));
  if (is("Pad")) return when(all_equal(parameter(view, "pads", 1), 0));
  if (is("Slice")) {
    // Extents alone do not tell: a step of -1 keeps them.
    const bool forwards = !view.has_input(4) || all_equal(view.input_i64(4), 1);
    return when(forwards && keeps_type());
  }
  if (is("Sum") || is("Mean") || is("Max") || is("Min")) return when(view.input_count() == 1);
  if (is("Split")) return when(module.outputs(node).size() == 1 && keeps_type());
  if (is("Concat")) return view.input_count() == 1 ? input : rejoined(module, node);
  return kNoValue;
}

}  // namespace

Result<uint32_t> remove_identities(ir::Module& module, Refusals& /*refusals*/) {
  Rewriter rewriter(module);
  uint32_t changes = 0;
  for (const NodeId node : live_nodes(module)) {
    if (rewriter.is_struck(node)) continue;
    const ValueId source = original(module, node);
    if (source == kNoValue || !rewriter.replace(module.outputs(node)[0], source)) continue;
    rewriter.strike_unneeded(node);
    ++changes;
  }
  if (Status status = rewriter.finish(); !status.ok()) return status;
  return changes;
}

}  // namespace davit::passes
