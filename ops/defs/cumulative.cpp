// CumSum and Trilu.
#include "ops/kernels/cumulative.h"

#include <array>

#include "base/dtype.hpp"
#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"

namespace davit::ops {
namespace {

Status infer_like_input(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
  if (const ir::Shape* shape = node.input_shape(0)) outputs[0].shape = *shape;
  return {};
}

// A parameter of one element: an integer input, i32 or i64.
Status check_parameter(const NodeView& node, uint32_t index, std::string_view name) {
  const DvtDType dtype = node.input_dtype(index);
  if (dtype != DVT_DTYPE_NONE && dtype != DVT_I32 && dtype != DVT_I64) {
    return mismatch(node, std::string(name) + " must be an integer", "i32 or i64",
                    std::string(dtype_name(dtype)));
  }
  const auto extents = node.input_extents(index);
  if (!extents || element_count(extents) == 1) return {};
  return mismatch(node, std::string(name) + " must have one element", "[]",
                  shape_text(node, *node.input_shape(index)));
}

// ---- CumSum -----------------------------------------------------------------------------------

Status infer_cum_sum(const NodeView& node, std::span<InferredOutput> outputs) {
  Status status = check_parameter(node, 1, "axis");
  const ir::Shape* shape = node.input_shape(0);
  const auto axis = node.input_i64(1);
  if (status.ok() && axis && shape != nullptr) {
    auto normal = require_axis(node, (*axis)[0], shape->size());
    if (!normal.ok()) return std::move(normal.status());
  }
  if (!status.ok()) return status;
  return infer_like_input(node, outputs);
}

Result<Recipe> recipe_cum_sum(const NodeView& node) {
  auto kernel = require_kernel(node, "CumSum", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  const auto axis = node.input_i64(1);
  const DvtCumSumAttributes record{.axis = axis ? (*axis)[0] : 0,
                                   .axis_is_input = axis ? 0 : 1,
                                   .exclusive = node.attribute_int("exclusive", 0) != 0 ? 1 : 0,
                                   .reverse = node.attribute_int("reverse", 0) != 0 ? 1 : 0};
  Recipe recipe = plain_recipe(node, *kernel, attribute_bytes(record));
  if (axis) recipe.inputs = {0};
  return recipe;
}

DvtTaskCost cost_cum_sum(const NodeView& node) {
  return vector_cost(node, element_count(node.input_extents(0)), 200);
}

// ---- Trilu ------------------------------------------------------------------------------------

Status infer_trilu(const NodeView& node, std::span<InferredOutput> outputs) {
  if (node.has_input(1)) {
    Status status = check_parameter(node, 1, "k");
    if (!status.ok()) return status;
  }
  const ir::Shape* shape = node.input_shape(0);
  if (shape != nullptr && shape->size() < 2) {
    return mismatch(node, "the input must be a matrix, or several", "rank 2 or more",
                    shape_text(node, *shape));
  }
  return infer_like_input(node, outputs);
}

Result<Recipe> recipe_trilu(const NodeView& node) {
  const auto k = node.has_input(1) ? node.input_i64(1) : std::vector<int64_t>{0};
  const DvtTriluAttributes record{.upper = node.attribute_int("upper", 1) != 0 ? 1 : 0,
                                  .k = k ? (*k)[0] : 0,
                                  .k_is_input = k ? 0 : 1};
  Recipe recipe = plain_recipe(node, find_kernel("Trilu"), attribute_bytes(record));
  if (k) recipe.inputs = {0};
  return recipe;
}

constexpr std::array kOperators = {
    OperatorDefinition{"", "CumSum", 11, INT64_MAX, 2, 2, 1, 1, infer_cum_sum, recipe_cum_sum,
                       cost_cum_sum},
    OperatorDefinition{"", "Trilu", 14, INT64_MAX, 1, 2, 1, 1, infer_trilu, recipe_trilu,
                       move_cost},
};

}  // namespace

std::span<const OperatorDefinition> cumulative_operators() {
  return kOperators;
}

}  // namespace davit::ops
