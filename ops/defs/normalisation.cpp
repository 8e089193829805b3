// BatchNormalization (inference), Softmax and LogSoftmax.
#include "ops/kernels/normalisation.h"

#include <array>

#include "ops/defs/batch_training.hpp"
#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"

namespace davit::ops {
namespace {

// ---- BatchNormalization -----------------------------------------------------------------------

// Before opset 14 training shows in the number of outputs alone.
bool is_training(const NodeView& node) {
  if (node.opset() >= 14) return node.attribute_int("training_mode", 0) != 0;
  return node.output_count() > 1;
}

bool is_spatial(const NodeView& node) {
  return node.opset() >= 9 || node.attribute_int("spatial", 1) != 0;
}

// The shape that scale, bias, mean and variance must have; nullopt while X is unknown.
std::optional<ir::Shape> parameter_shape(const NodeView& node) {
  const ir::Shape* x = node.input_shape(0);
  if (x == nullptr) return std::nullopt;
  if (!is_spatial(node)) return ir::Shape(x->begin() + 1, x->end());
  return ir::Shape{x->size() > 1 ? (*x)[1] : ir::Dim(1)};
}

Status infer_batch_norm(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
  const ir::Shape* x = node.input_shape(0);
  if (x == nullptr) {
    if (is_training(node)) infer_batch_training(node, std::nullopt, outputs);
    return {};
  }
  if (x->empty()) return node.error(DVT_INVALID_ARGUMENT, "X must not be a scalar");
  outputs[0].shape = *x;
  const ir::Shape expected = *parameter_shape(node);
  for (uint32_t i = 1; i < 5; ++i) {
    const ir::Shape* shape = node.input_shape(i);
    if (shape == nullptr) continue;
    bool fits = shape->size() == expected.size();
    for (size_t d = 0; fits && d < expected.size(); ++d) {
      fits = !(*shape)[d].is_known() || !expected[d].is_known() || (*shape)[d] == expected[d];
    }
    if (fits) continue;
    return mismatch(node, "input " + std::to_string(i) + " has the wrong shape",
                    shape_text(node, expected), shape_text(node, *shape));
  }
  if (is_training(node)) infer_batch_training(node, expected, outputs);
  return {};
}

Result<Recipe> recipe_batch_norm(const NodeView& node) {
  if (is_training(node)) return recipe_batch_training(node, is_spatial(node));
  auto kernel = require_kernel(node, "BatchNormalization", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  const DvtBatchNormAttributes attributes = {.epsilon = node.attribute_float("epsilon", 1e-5F),
                                             .spatial = is_spatial(node) ? 1 : 0};
  Recipe recipe = plain_recipe(node, *kernel, attribute_bytes(attributes));
  recipe.outputs = {0};
  return recipe;
}

DvtTaskCost cost_batch_norm(const NodeView& node) {
  return vector_cost(node, element_count(node.input_extents(0)), 200);  // Multiply, add.
}

// ---- Softmax ----------------------------------------------------------------------------------

// Before opset 13 the axis and all dims behind it are one, and the default is 1.
bool flattens(const NodeView& node) {
  return node.opset() < 13;
}

int64_t stated_axis(const NodeView& node) {
  return node.attribute_int("axis", flattens(node) ? 1 : -1);
}

Status infer_softmax(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
  const ir::Shape* x = node.input_shape(0);
  if (x == nullptr) return {};
  const auto rank = static_cast<int64_t>(x->size());
  if (!normalise_axis(stated_axis(node), rank)) {
    return mismatch(node, "attribute axis is out of range",
                    "[-" + std::to_string(rank) + ", " + std::to_string(rank) + ")",
                    std::to_string(stated_axis(node)));
  }
  outputs[0].shape = *x;
  return {};
}

Result<Recipe> recipe_softmax_kind(const NodeView& node, bool log) {
  auto kernel = require_kernel(node, "Softmax", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  const DvtSoftmaxAttributes attributes = {
      .axis = stated_axis(node), .flatten = flattens(node) ? 1 : 0, .log = log ? 1 : 0};
  return plain_recipe(node, *kernel, attribute_bytes(attributes));
}
Result<Recipe> recipe_softmax(const NodeView& node) {
  return recipe_softmax_kind(node, false);
}
Result<Recipe> recipe_log_softmax(const NodeView& node) {
  return recipe_softmax_kind(node, true);
}

// Maximum, subtract, exponential (two), sum, divide.
DvtTaskCost cost_softmax(const NodeView& node) {
  return vector_cost(node, element_count(node.input_extents(0)), 600);
}

constexpr OperatorDefinition batch_norm(int64_t since, int64_t until, uint32_t output_max) {
  return {"",
          "BatchNormalization",
          since,
          until,
          5,
          5,
          1,
          output_max,
          infer_batch_norm,
          recipe_batch_norm,
          cost_batch_norm};
}
constexpr OperatorDefinition softmax(int64_t since, int64_t until) {
  return {"", "Softmax", since, until, 1, 1, 1, 1, infer_softmax, recipe_softmax, cost_softmax};
}
constexpr OperatorDefinition log_softmax(int64_t since, int64_t until) {
  return {"",          "LogSoftmax", since, until, 1, 1, 1, 1, infer_softmax, recipe_log_softmax,
          cost_softmax};
}

constexpr std::array kOperators = {
    batch_norm(6, 6, 5),   batch_norm(7, 8, 5),          batch_norm(9, 13, 5),
    batch_norm(14, 14, 3), batch_norm(15, INT64_MAX, 3), softmax(1, 10),
    softmax(11, 12),       softmax(13, INT64_MAX),       log_softmax(1, 10),
    log_softmax(11, 12),   log_softmax(13, INT64_MAX),
};

}  // namespace

std::span<const OperatorDefinition> normalisation_operators() {
  return kOperators;
}

}  // namespace davit::ops
