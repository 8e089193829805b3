// LRN, LpNormalization, Hardmax, and BatchNormalization in training mode.
#include "ops/kernels/channel_normalisation.h"

#include <array>

#include "ops/defs/batch_training.hpp"
#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"
#include "ops/defs/scratch.hpp"

namespace davit::ops {
namespace {

Status infer_same(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
  if (const ir::Shape* x = node.input_shape(0)) outputs[0].shape = *x;
  return {};
}

// ---- LRN --------------------------------------------------------------------------------------

Status infer_lrn(const NodeView& node, std::span<InferredOutput> outputs) {
  const int64_t size = node.attribute_int("size", 0);
  if (size < 1 || size > INT32_MAX) {
    return mismatch(node, "attribute size is missing or out of range", "at least 1",
                    std::to_string(size));
  }
  const ir::Shape* x = node.input_shape(0);
  if (x != nullptr && x->size() < 2) {
    return mismatch(node, "X must have a batch and a channel axis", "rank 2 or more",
                    shape_text(node, *x));
  }
  return infer_same(node, outputs);
}

Result<Recipe> recipe_lrn(const NodeView& node) {
  auto kernel = require_kernel(node, "LRN", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  const DvtLrnAttributes attributes = {.alpha = node.attribute_float("alpha", 1e-4F),
                                       .beta = node.attribute_float("beta", 0.75F),
                                       .bias = node.attribute_float("bias", 1.0F),
                                       .size = node.attribute_int("size", 0)};
  return plain_recipe(node, *kernel, attribute_bytes(attributes));
}

// Squares and sums of `size` channels, power (logarithm, exponential: six), multiply.
DvtTaskCost cost_lrn(const NodeView& node) {
  const auto size = static_cast<uint64_t>(node.attribute_int("size", 1));
  return vector_cost(node, element_count(node.input_extents(0)), 200 * size + 700);
}

// ---- LpNormalization --------------------------------------------------------------------------

Status infer_lp_norm(const NodeView& node, std::span<InferredOutput> outputs) {
  const int64_t p = node.attribute_int("p", 2);
  if (p != 1 && p != 2) {
    return mismatch(node, "attribute p is out of range", "1 or 2", std::to_string(p));
  }
  if (const ir::Shape* x = node.input_shape(0)) {
    auto axis = require_axis(node, node.attribute_int("axis", -1), x->size());
    if (!axis.ok()) return std::move(axis.status());
  }
  return infer_same(node, outputs);
}

Result<Recipe> recipe_lp_norm(const NodeView& node) {
  auto kernel = require_kernel(node, "LpNormalization", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  const DvtLpNormAttributes attributes = {.axis = node.attribute_int("axis", -1),
                                          .p = node.attribute_int("p", 2)};
  return plain_recipe(node, *kernel, attribute_bytes(attributes));
}

// Square, sum, divide.
DvtTaskCost cost_lp_norm(const NodeView& node) {
  return vector_cost(node, element_count(node.input_extents(0)), 300);
}

// ---- Hardmax ----------------------------------------------------------------------------------

// Before opset 13 the axis and all axes behind it are one, and the default is 1.
bool flattens(const NodeView& node) {
  return node.opset() < 13;
}

int64_t hardmax_axis(const NodeView& node) {
  return node.attribute_int("axis", flattens(node) ? 1 : -1);
}

Status infer_hardmax(const NodeView& node, std::span<InferredOutput> outputs) {
  if (const ir::Shape* x = node.input_shape(0)) {
    auto axis = require_axis(node, hardmax_axis(node), x->size());
    if (!axis.ok()) return std::move(axis.status());
  }
  return infer_same(node, outputs);
}

Result<Recipe> recipe_hardmax(const NodeView& node) {
  auto kernel = require_kernel(node, "Hardmax", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  const DvtHardmaxAttributes attributes = {.axis = hardmax_axis(node),
                                           .flattens = flattens(node) ? 1 : 0};
  return plain_recipe(node, *kernel, attribute_bytes(attributes));
}

// Maximum, compare.
DvtTaskCost cost_hardmax(const NodeView& node) {
  return vector_cost(node, element_count(node.input_extents(0)), 200);
}

constexpr OperatorDefinition hardmax(int64_t since, int64_t until) {
  return {"", "Hardmax", since, until, 1, 1, 1, 1, infer_hardmax, recipe_hardmax, cost_hardmax};
}

constexpr std::array kOperators = {
    OperatorDefinition{"", "LRN", 1, 12, 1, 1, 1, 1, infer_lrn, recipe_lrn, cost_lrn},
    OperatorDefinition{"", "LRN", 13, INT64_MAX, 1, 1, 1, 1, infer_lrn, recipe_lrn, cost_lrn},
    OperatorDefinition{"", "LpNormalization", 1, INT64_MAX, 1, 1, 1, 1, infer_lp_norm,
                       recipe_lp_norm, cost_lp_norm},
    hardmax(1, 10),
    hardmax(11, 12),
    hardmax(13, INT64_MAX),
};

}  // namespace

void infer_batch_training(const NodeView& node, const std::optional<ir::Shape>& parameters,
                          std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
  if (const ir::Shape* x = node.input_shape(0)) outputs[0].shape = *x;
  for (size_t i = 1; i < outputs.size(); ++i) {
    outputs[i].dtype = node.input_dtype(3);
    outputs[i].shape = parameters;
  }
}

Result<Recipe> recipe_batch_training(const NodeView& node, bool spatial) {
  auto kernel = require_kernel(node, "BatchNormalizationTraining", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  const DvtBatchTrainingAttributes attributes = {.epsilon = node.attribute_float("epsilon", 1e-5F),
                                                 .momentum = node.attribute_float("momentum", 0.9F),
                                                 .spatial = spatial ? 1 : 0,
                                                 .outputs = present_outputs(node)};
  Recipe recipe = plain_recipe(node, *kernel, attribute_bytes(attributes));
  std::erase(recipe.outputs, ir::kNone);
  return recipe;
}

std::span<const OperatorDefinition> channel_normalisation_operators() {
  return kOperators;
}

}  // namespace davit::ops
