// MaxPool, AveragePool, and the global pools, which are reductions over the spatial dims.
#include "ops/kernels/pooling.h"

#include <array>

#include "base/checked.hpp"
#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"
#include "ops/defs/pooling.hpp"
#include "ops/defs/window.hpp"
#include "ops/kernels/reduction.h"

namespace davit::ops {

Result<Window> read_pool(const NodeView& node) {
  auto kernel = node.attribute_ints("kernel_shape");
  if (kernel.empty() || kernel.size() > DVT_SPATIAL_MAX) {
    return mismatch(node, "attribute kernel_shape is missing or has the wrong length",
                    "1 to 3 values", std::to_string(kernel.size()) + " values");
  }
  auto window = read_window(node, std::move(kernel));
  if (window.ok()) window->ceil_mode = node.attribute_int("ceil_mode", 0) != 0;
  return window;
}

Status infer_pool(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
  if (outputs.size() > 1) outputs[1].dtype = DVT_I64;
  auto window = read_pool(node);
  if (!window.ok()) return std::move(window.status());
  const ir::Shape* x = node.input_shape(0);
  ir::Shape shape(window->spatial() + 2);
  if (x != nullptr) {
    Status status = check_spatial_rank(node, x->size());
    if (!status.ok()) return status;
    if (x->size() != shape.size()) {
      return mismatch(node, "kernel_shape does not match the rank of X",
                      std::to_string(x->size() - 2) + " values",
                      std::to_string(window->spatial()) + " values");
    }
    shape[0] = (*x)[0];
    shape[1] = (*x)[1];
    for (size_t i = 0; i < window->spatial(); ++i) {
      auto out = window_output(node, *window, i, (*x)[i + 2]);
      if (!out.ok()) return std::move(out.status());
      shape[i + 2] = *out;
    }
  }
  if (outputs.size() > 1) outputs[1].shape = shape;
  outputs[0].shape = std::move(shape);
  return {};
}

DvtTaskCost cost_pool(const NodeView& node) {
  const auto taps = checked_elements(node.attribute_ints("kernel_shape")).value_or(1);
  const uint64_t outputs = element_count(node.output_extents(0));
  return vector_cost(node, checked_mul(outputs, taps).value_or(UINT64_MAX), 100);
}

Status infer_global_pool(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
  const ir::Shape* x = node.input_shape(0);
  if (x == nullptr) return {};
  if (x->size() < 3 || x->size() > DVT_MAX_RANK) {
    return mismatch(node, "X must have a batch, a channel and spatial dims", "rank 3 to 8",
                    "rank " + std::to_string(x->size()));
  }
  ir::Shape shape(x->size(), ir::Dim(1));
  shape[0] = (*x)[0];
  shape[1] = (*x)[1];
  outputs[0].shape = std::move(shape);
  return {};
}

DvtTaskCost cost_global_pool(const NodeView& node) {
  return vector_cost(node, element_count(node.input_extents(0)), 100);
}

namespace {

Result<Recipe> recipe_pool(const NodeView& node, std::string_view base) {
  auto kernel = require_kernel(node, base, node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  auto window = read_pool(node);
  if (!window.ok()) return std::move(window.status());
  DvtPoolAttributes attributes = {
      .kernel = {1, 1, 1},
      .window = window_attributes(*window),
      .ceil_mode = window->ceil_mode ? 1 : 0,
      .count_include_pad = node.attribute_int("count_include_pad", 0) != 0 ? 1 : 0,
      .storage_order = node.attribute_int("storage_order", 0) != 0 ? 1 : 0,
  };
  for (size_t i = 0; i < window->spatial(); ++i) attributes.kernel[i] = window->kernel[i];
  return plain_recipe(node, *kernel, attribute_bytes(attributes));
}
Result<Recipe> recipe_max_pool(const NodeView& node) {
  return recipe_pool(node, "MaxPool");
}
Result<Recipe> recipe_average_pool(const NodeView& node) {
  return recipe_pool(node, "AveragePool");
}

// ---- Global pools -----------------------------------------------------------------------------

Result<Recipe> recipe_global(const NodeView& node, DvtReduceOp op) {
  auto kernel = require_kernel(node, "Reduce", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  const ir::Shape* x = node.input_shape(0);
  const int64_t all = x == nullptr ? int64_t{-1} : (int64_t{1} << x->size()) - 1;
  const DvtReduceAttributes attributes = {
      .op = op, .axes = all & ~int64_t{3}, .axes_from_end = 0, .keep_dims = 1};
  return plain_recipe(node, *kernel, attribute_bytes(attributes));
}
Result<Recipe> recipe_global_average(const NodeView& node) {
  return recipe_global(node, DVT_REDUCE_MEAN);
}
Result<Recipe> recipe_global_max(const NodeView& node) {
  return recipe_global(node, DVT_REDUCE_MAX);
}

constexpr OperatorDefinition max_pool(int64_t since, int64_t until, uint32_t output_max) {
  return {"", "MaxPool", since, until, 1, 1, 1, output_max, infer_pool, recipe_max_pool, cost_pool};
}
constexpr OperatorDefinition average_pool(int64_t since, int64_t until) {
  return {"", "AveragePool", since, until, 1, 1, 1, 1, infer_pool, recipe_average_pool, cost_pool};
}

constexpr std::array kOperators = {
    max_pool(1, 7, 1),
    max_pool(8, 9, 2),
    max_pool(10, 10, 2),
    max_pool(11, 11, 2),
    max_pool(12, INT64_MAX, 2),
    average_pool(1, 6),
    average_pool(7, 9),
    average_pool(10, 10),
    average_pool(11, 18),
    average_pool(19, INT64_MAX),
    OperatorDefinition{"", "GlobalAveragePool", 1, INT64_MAX, 1, 1, 1, 1, infer_global_pool,
                       recipe_global_average, cost_global_pool},
    OperatorDefinition{"", "GlobalMaxPool", 1, INT64_MAX, 1, 1, 1, 1, infer_global_pool,
                       recipe_global_max, cost_global_pool},
};

}  // namespace

std::span<const OperatorDefinition> pooling_operators() {
  return kOperators;
}

}  // namespace davit::ops
