// LayerNormalization, GroupNormalization, InstanceNormalization and MeanVarianceNormalization.
#include "ops/kernels/group_normalisation.h"

#include <algorithm>
#include <array>

#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"
#include "ops/defs/scratch.hpp"

namespace davit::ops {
namespace {

bool differ(ir::Dim a, ir::Dim b) {
  return a.is_known() && b.is_known() && !(a == b);
}

// ---- LayerNormalization -----------------------------------------------------------------------

// Scale and bias broadcast to X.
Status check_broadcast(const NodeView& node, uint32_t input, const ir::Shape& x) {
  const ir::Shape* shape = node.input_shape(input);
  if (shape == nullptr) return {};
  bool fits = shape->size() <= x.size();
  for (size_t i = 1; fits && i <= shape->size(); ++i) {
    const ir::Dim dim = (*shape)[shape->size() - i];
    fits = dim == ir::Dim(1) || !differ(dim, x[x.size() - i]);
  }
  if (fits) return {};
  return mismatch(node, "input " + std::to_string(input) + " does not broadcast to X",
                  shape_text(node, x), shape_text(node, *shape));
}

Status infer_layer_norm(const NodeView& node, std::span<InferredOutput> outputs) {
  Status status = same_dtype(node, 0, 1);
  if (status.ok()) status = same_dtype(node, 0, 2);
  if (!status.ok()) return status;
  const int64_t stash = node.attribute_int("stash_type", DVT_F32);
  if (stash != DVT_F32 && stash != DVT_F64 && stash != DVT_F16 && stash != DVT_BF16) {
    return mismatch(node, "attribute stash_type is no float type", "1, 10, 11 or 16",
                    std::to_string(stash));
  }
  outputs[0].dtype = node.input_dtype(0);
  for (size_t i = 1; i < outputs.size(); ++i) outputs[i].dtype = static_cast<DvtDType>(stash);
  const ir::Shape* x = node.input_shape(0);
  if (x == nullptr) return {};
  auto axis = require_axis(node, node.attribute_int("axis", -1), x->size());
  if (!axis.ok()) return std::move(axis.status());
  for (const uint32_t input : {1U, 2U}) {
    if (Status fits = check_broadcast(node, input, *x); !fits.ok()) return fits;
  }
  outputs[0].shape = *x;
  ir::Shape statistics = *x;
  std::fill(statistics.begin() + *axis, statistics.end(), ir::Dim(1));
  for (size_t i = 1; i < outputs.size(); ++i) outputs[i].shape = statistics;
  return {};
}

Result<Recipe> recipe_layer_norm(const NodeView& node) {
  auto kernel = require_kernel(node, "LayerNormalization", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  const DvtLayerNormAttributes attributes = {.axis = node.attribute_int("axis", -1),
                                             .epsilon = node.attribute_float("epsilon", 1e-5F),
                                             .outputs = present_outputs(node)};
  Recipe recipe = plain_recipe(node, *kernel, attribute_bytes(attributes));
  std::erase(recipe.outputs, ir::kNone);
  return recipe;
}

// Mean, variance (two), subtract, multiply, scale, shift.
DvtTaskCost cost_norm(const NodeView& node) {
  return vector_cost(node, element_count(node.input_extents(0)), 700);
}

// ---- GroupNormalization, InstanceNormalization ------------------------------------------------

bool is_group(const NodeView& node) {
  return node.module().op(node.id()) == "GroupNormalization";
}

// Before opset 21 scale and bias were one per group.
bool is_per_group(const NodeView& node) {
  return is_group(node) && node.opset() < 21;
}

Status infer_group_norm(const NodeView& node, std::span<InferredOutput> outputs) {
  Status status = same_dtype(node, 0, 1);
  if (status.ok()) status = same_dtype(node, 0, 2);
  if (!status.ok()) return status;
  outputs[0].dtype = node.input_dtype(0);
  const int64_t groups = node.attribute_int("num_groups", 0);
  if (is_group(node) && groups < 1) {
    return mismatch(node, "attribute num_groups is out of range", "at least 1",
                    std::to_string(groups));
  }
  const ir::Shape* x = node.input_shape(0);
  if (x == nullptr) return {};
  if (x->size() < 2) {
    return mismatch(node, "X must have a batch and a channel axis", "rank 2 or more",
                    shape_text(node, *x));
  }
  const ir::Dim channels = (*x)[1];
  if (is_group(node) && channels.is_known() && channels.extent() % groups != 0) {
    return mismatch(node, "num_groups does not divide the channels",
                    "a divisor of " + std::to_string(channels.extent()), std::to_string(groups));
  }
  const ir::Dim parameters = is_per_group(node) ? ir::Dim(groups) : channels;
  for (const uint32_t input : {1U, 2U}) {
    const ir::Shape* shape = node.input_shape(input);
    if (shape == nullptr || (shape->size() == 1 && !differ((*shape)[0], parameters))) continue;
    return mismatch(node, "input " + std::to_string(input) + " has the wrong shape",
                    shape_text(node, {parameters}), shape_text(node, *shape));
  }
  outputs[0].shape = *x;
  return {};
}

Result<Recipe> recipe_group_norm(const NodeView& node) {
  auto kernel = require_kernel(node, "GroupNormalization", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  const DvtGroupNormAttributes attributes = {
      .groups = is_group(node) ? node.attribute_int("num_groups", 0) : 0,
      .epsilon = node.attribute_float("epsilon", 1e-5F),
      .per_group = is_per_group(node) ? 1 : 0};
  return plain_recipe(node, *kernel, attribute_bytes(attributes));
}

// ---- MeanVarianceNormalization ----------------------------------------------------------------

Status infer_mean_variance(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
  const std::vector<int64_t> axes = node.attribute_ints("axes", {0, 2, 3});
  if (axes.size() > DVT_MAX_RANK) {
    return mismatch(node, "attribute axes is too long", "at most 8 values",
                    std::to_string(axes.size()));
  }
  const ir::Shape* x = node.input_shape(0);
  if (x == nullptr) return {};
  std::vector<bool> named(x->size(), false);
  for (const int64_t stated : axes) {
    auto axis = require_axis(node, stated, x->size(), "axes");
    if (!axis.ok()) return std::move(axis.status());
    if (named[static_cast<size_t>(*axis)]) {
      return mismatch(node, "attribute axes names an axis twice", "different axes",
                      std::to_string(stated));
    }
    named[static_cast<size_t>(*axis)] = true;
  }
  outputs[0].shape = *x;
  return {};
}

Result<Recipe> recipe_mean_variance(const NodeView& node) {
  auto kernel = require_kernel(node, "MeanVarianceNormalization", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  const std::vector<int64_t> axes = node.attribute_ints("axes", {0, 2, 3});
  DvtMeanVarianceAttributes attributes = {.axis_count = static_cast<int64_t>(axes.size()),
                                          .epsilon = 1e-9};
  std::ranges::copy(axes, attributes.axes);
  return plain_recipe(node, *kernel, attribute_bytes(attributes));
}

constexpr OperatorDefinition group_norm(const char* name, int64_t since, int64_t until) {
  return {"", name, since, until, 3, 3, 1, 1, infer_group_norm, recipe_group_norm, cost_norm};
}
constexpr OperatorDefinition mean_variance(int64_t since, int64_t until) {
  return {"",
          "MeanVarianceNormalization",
          since,
          until,
          1,
          1,
          1,
          1,
          infer_mean_variance,
          recipe_mean_variance,
          cost_norm};
}

constexpr std::array kOperators = {
    OperatorDefinition{"", "LayerNormalization", 17, INT64_MAX, 2, 3, 1, 3, infer_layer_norm,
                       recipe_layer_norm, cost_norm},
    group_norm("GroupNormalization", 18, 20),
    group_norm("GroupNormalization", 21, INT64_MAX),
    group_norm("InstanceNormalization", 6, INT64_MAX),
    mean_variance(9, 12),
    mean_variance(13, INT64_MAX),
};

}  // namespace

std::span<const OperatorDefinition> group_normalisation_operators() {
  return kOperators;
}

}  // namespace davit::ops
