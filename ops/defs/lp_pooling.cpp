// LpPool and GlobalLpPool.
#include "ops/kernels/lp_pooling.h"

#include <array>
#include <cmath>

#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"
#include "ops/defs/pooling.hpp"

namespace davit::ops {
namespace {

// A float in the first version of both operators.
double read_p(const NodeView& node) {
  if (node.opset() < 2) return node.attribute_float("p", 2.0F);
  return static_cast<double>(node.attribute_int("p", 2));
}

Status check_p(const NodeView& node) {
  const double p = read_p(node);
  if (p > 0.0 && p < HUGE_VAL) return {};
  return mismatch(node, "attribute p is out of range", "a positive number", std::to_string(p));
}

Status infer_lp_pool(const NodeView& node, std::span<InferredOutput> outputs) {
  Status status = check_p(node);
  if (!status.ok()) return status;
  return infer_pool(node, outputs);
}

Result<Recipe> recipe_lp_pool(const NodeView& node) {
  auto kernel = require_kernel(node, "LpPool", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  auto window = read_pool(node);
  if (!window.ok()) return std::move(window.status());
  DvtLpPoolAttributes attributes = {.kernel = {1, 1, 1},
                                    .window = window_attributes(*window),
                                    .ceil_mode = window->ceil_mode ? 1 : 0,
                                    .p = read_p(node)};
  for (size_t i = 0; i < window->spatial(); ++i) attributes.kernel[i] = window->kernel[i];
  return plain_recipe(node, *kernel, attribute_bytes(attributes));
}

Status infer_global_lp_pool(const NodeView& node, std::span<InferredOutput> outputs) {
  Status status = check_p(node);
  if (!status.ok()) return status;
  return infer_global_pool(node, outputs);
}

Result<Recipe> recipe_global_lp_pool(const NodeView& node) {
  auto kernel = require_kernel(node, "GlobalLpPool", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  const DvtGlobalLpPoolAttributes attributes = {.p = read_p(node)};
  return plain_recipe(node, *kernel, attribute_bytes(attributes));
}

constexpr OperatorDefinition lp_pool(int64_t since, int64_t until) {
  return {"", "LpPool", since, until, 1, 1, 1, 1, infer_lp_pool, recipe_lp_pool, cost_pool};
}
constexpr OperatorDefinition global_lp_pool(int64_t since, int64_t until) {
  return {"",
          "GlobalLpPool",
          since,
          until,
          1,
          1,
          1,
          1,
          infer_global_lp_pool,
          recipe_global_lp_pool,
          cost_global_pool};
}

constexpr std::array kOperators = {
    lp_pool(1, 1),          lp_pool(2, 10),       lp_pool(11, 17),
    lp_pool(18, INT64_MAX), global_lp_pool(1, 1), global_lp_pool(2, INT64_MAX),
};

}  // namespace

std::span<const OperatorDefinition> lp_pooling_operators() {
  return kOperators;
}

}  // namespace davit::ops
