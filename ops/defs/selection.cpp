// ArgMax, ArgMin, TopK and OneHot.
#include "ops/kernels/selection.h"

#include <algorithm>
#include <array>

#include "base/dtype.hpp"
#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"

namespace davit::ops {
namespace {

// ---- ArgMax, ArgMin ---------------------------------------------------------------------------

Status infer_arg(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = DVT_I64;
  const ir::Shape* shape = node.input_shape(0);
  if (shape == nullptr) return {};
  auto axis = require_axis(node, node.attribute_int("axis", 0), shape->size());
  if (!axis.ok()) return std::move(axis.status());
  ir::Shape output = *shape;
  if (node.attribute_int("keepdims", 1) != 0) {
    output[static_cast<size_t>(*axis)] = ir::Dim(1);
  } else {
    output.erase(output.begin() + *axis);
  }
  const ir::Dim along = (*shape)[static_cast<size_t>(*axis)];
  const auto extents = ir::static_extents(output);
  if (along == ir::Dim(0) && extents && element_count(extents) > 0) {
    return mismatch(node, "the axis has no elements to choose from", "1 or more", "0");
  }
  outputs[0].shape = std::move(output);
  return {};
}

Result<Recipe> recipe_arg(const NodeView& node) {
  const bool last = node.opset() >= 12 && node.attribute_int("select_last_index", 0) != 0;
  const DvtArgAttributes record{.axis = node.attribute_int("axis", 0),
                                .keep_dims = node.attribute_int("keepdims", 1) != 0 ? 1 : 0,
                                .select_last = last ? 1 : 0};
  if (!is_number(node.input_dtype(0))) {
    return node.error(DVT_UNSUPPORTED, "no kernel for this element type", DVT_STAGE_LOWER);
  }
  return plain_recipe(node, find_kernel(node.module().op(node.id())), attribute_bytes(record));
}

DvtTaskCost cost_ranked(const NodeView& node) {
  return vector_cost(node, element_count(node.input_extents(0)), 400);
}

// ---- TopK -------------------------------------------------------------------------------------

// How many to take; nullopt while it is an input that is not constant.
Result<std::optional<int64_t>> stated_k(const NodeView& node) {
  if (node.opset() < 10) {
    if (node.has_attribute("k")) return std::optional(node.attribute_int("k", 0));
    return node.error(DVT_INVALID_ARGUMENT, "attribute k is missing");
  }
  const auto extents = node.input_extents(1);
  if (extents && element_count(extents) != 1) {
    return mismatch(node, "k must have one element", "[1]", shape_text(node, *node.input_shape(1)));
  }
  const auto k = node.input_i64(1);
  return k ? std::optional((*k)[0]) : std::nullopt;
}

Status infer_top_k(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
  if (outputs.size() > 1) outputs[1].dtype = DVT_I64;
  auto k = stated_k(node);
  if (!k.ok()) return std::move(k.status());
  const ir::Shape* shape = node.input_shape(0);
  if (shape == nullptr) return {};
  auto axis = require_axis(node, node.attribute_int("axis", -1), shape->size());
  if (!axis.ok()) return std::move(axis.status());
  ir::Shape output = *shape;
  ir::Dim& along = output[static_cast<size_t>(*axis)];
  if (*k && (**k < 0 || (along.is_known() && **k > along.extent()))) {
    return mismatch(node, "k is out of range",
                    "0 to " + (along.is_known() ? std::to_string(along.extent()) : "the extent"),
                    std::to_string(**k));
  }
  along = *k ? ir::Dim(**k) : ir::Dim();
  if (outputs.size() > 1) outputs[1].shape = output;
  outputs[0].shape = std::move(output);
  return {};
}

Result<Recipe> recipe_top_k(const NodeView& node) {
  if (!is_number(node.input_dtype(0))) {
    return node.error(DVT_UNSUPPORTED, "no kernel for this element type", DVT_STAGE_LOWER);
  }
  auto k = stated_k(node);
  if (!k.ok()) return std::move(k.status());
  const bool largest = node.opset() < 11 || node.attribute_int("largest", 1) != 0;
  const DvtTopKAttributes record{.axis = node.attribute_int("axis", -1),
                                 .k = *k ? **k : 0,
                                 .k_is_input = *k ? 0 : 1,
                                 .largest = largest ? 1 : 0};
  Recipe recipe = plain_recipe(node, find_kernel("TopK"), attribute_bytes(record));
  recipe.outputs.resize(2, ir::kNone);
  if (*k) recipe.inputs = {0};
  uint64_t bytes = 0;
  if (const auto extents = node.input_extents(0); extents && element_count(extents) > 0) {
    const auto axis = normalise_axis(record.axis, static_cast<int64_t>(extents->size()));
    bytes = static_cast<uint64_t>((*extents)[static_cast<size_t>(axis.value_or(0))]) * 8;
  }
  recipe.workspace_bytes = {std::max<uint64_t>(bytes, 1)};
  return recipe;
}

// ---- OneHot -----------------------------------------------------------------------------------

// A constant depth: any number, truncated. nullopt when it is not constant.
std::optional<int64_t> stated_depth(const NodeView& node) {
  if (const auto depth = node.input_i64(1)) {
    return depth->empty() ? std::nullopt : std::optional((*depth)[0]);
  }
  const ir::TensorData* data = node.input_constant(1);
  if (data == nullptr || data->element_count() != 1) return std::nullopt;
  double value = -1.0;
  if (data->dtype == DVT_F32) value = data->as<float>()[0];
  if (data->dtype == DVT_F64) value = data->as<double>()[0];
  if (!(value >= 0.0 && value < 0x1p53)) return std::nullopt;
  return static_cast<int64_t>(value);
}

Status infer_one_hot(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(2);
  for (const auto& [index, count] : {std::pair<uint32_t, uint64_t>{1, 1}, {2, 2}}) {
    const auto extents = node.input_extents(index);
    if (!extents || element_count(extents) == count) continue;
    return mismatch(node, index == 1 ? "depth must be a scalar" : "values must be off and on",
                    std::to_string(count) + " elements",
                    shape_text(node, *node.input_shape(index)));
  }
  const ir::Shape* indices = node.input_shape(0);
  if (indices == nullptr) return {};
  auto axis = require_axis(node, node.attribute_int("axis", -1), indices->size() + 1);
  if (!axis.ok()) return std::move(axis.status());
  const auto depth = stated_depth(node);
  if (depth && *depth < 0) {
    return mismatch(node, "depth is negative", "0 or more", std::to_string(*depth));
  }
  ir::Shape output = *indices;
  output.insert(output.begin() + *axis, depth ? ir::Dim(*depth) : ir::Dim());
  Status status = check_elements(node, output);
  outputs[0].shape = std::move(output);
  return status;
}

Result<Recipe> recipe_one_hot(const NodeView& node) {
  for (uint32_t i = 0; i < 3; ++i) {
    if (is_number(node.input_dtype(i))) continue;
    return node.error(DVT_UNSUPPORTED,
                      "no kernel for the element type of input " + std::to_string(i),
                      DVT_STAGE_LOWER);
  }
  const auto depth = stated_depth(node);
  const DvtOneHotAttributes record{.axis = node.attribute_int("axis", -1),
                                   .depth = depth.value_or(0),
                                   .depth_is_input = depth ? 0 : 1};
  return plain_recipe(node, find_kernel("OneHot"), attribute_bytes(record));
}

constexpr OperatorDefinition arg(std::string_view name) {
  return {"", name, 1, INT64_MAX, 1, 1, 1, 1, infer_arg, recipe_arg, cost_ranked};
}

constexpr std::array kOperators = {
    arg("ArgMax"),
    arg("ArgMin"),
    OperatorDefinition{"", "TopK", 1, 9, 1, 1, 1, 2, infer_top_k, recipe_top_k, cost_ranked},
    OperatorDefinition{"", "TopK", 10, INT64_MAX, 2, 2, 1, 2, infer_top_k, recipe_top_k,
                       cost_ranked},
    OperatorDefinition{"", "OneHot", 9, INT64_MAX, 3, 3, 1, 1, infer_one_hot, recipe_one_hot,
                       move_cost},
};

}  // namespace

std::span<const OperatorDefinition> selection_operators() {
  return kOperators;
}

}  // namespace davit::ops
