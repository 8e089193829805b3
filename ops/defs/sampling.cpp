// GridSample and AffineGrid.
#include "ops/kernels/sampling.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/checked.hpp"
#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"

namespace davit::ops {
namespace {

// ---- GridSample -------------------------------------------------------------------------------

// Before opset 20 the modes of two axes, since then those of any number.
std::optional<int64_t> sample_mode(const NodeView& node, const std::string& text) {
  const bool old = node.opset() < 20;
  if (text == (old ? "bilinear" : "linear")) return DVT_SAMPLE_LINEAR;
  if (text == "nearest") return DVT_SAMPLE_NEAREST;
  if (text == (old ? "bicubic" : "cubic")) return DVT_SAMPLE_CUBIC;
  return std::nullopt;
}

std::optional<int64_t> sample_padding(const std::string& text) {
  if (text == "zeros") return DVT_SAMPLE_ZEROS;
  if (text == "border") return DVT_SAMPLE_BORDER;
  if (text == "reflection") return DVT_SAMPLE_REFLECTION;
  return std::nullopt;
}

Result<DvtGridSampleAttributes> read_grid_sample(const NodeView& node) {
  const bool old = node.opset() < 20;
  const std::string mode = node.attribute_string("mode", old ? "bilinear" : "linear");
  const std::string padding = node.attribute_string("padding_mode", "zeros");
  const auto mode_id = sample_mode(node, mode);
  if (!mode_id) {
    return mismatch(node, "attribute mode has an unknown value",
                    old ? "bilinear, nearest or bicubic" : "linear, nearest or cubic", mode);
  }
  const auto padding_id = sample_padding(padding);
  if (!padding_id) {
    return mismatch(node, "attribute padding_mode has an unknown value",
                    "zeros, border or reflection", padding);
  }
  return DvtGridSampleAttributes{
      .mode = *mode_id,
      .padding = *padding_id,
      .align_corners = node.attribute_int("align_corners", 0) != 0 ? 1 : 0};
}

Status infer_grid_sample(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
  auto attributes = read_grid_sample(node);
  if (!attributes.ok()) return std::move(attributes.status());
  const ir::Shape* x = node.input_shape(0);
  const ir::Shape* grid = node.input_shape(1);
  for (const ir::Shape* shape : {x, grid}) {
    if (shape == nullptr || (shape->size() >= 3 && shape->size() <= 5)) continue;
    return mismatch(node, "X and grid must have 1 to 3 spatial dims", "rank 3 to 5",
                    shape_text(node, *shape));
  }
  if (x != nullptr && grid != nullptr) {
    const ir::Dim last = grid->back();
    const bool batch = !(*x)[0].is_known() || !(*grid)[0].is_known() || (*x)[0] == (*grid)[0];
    if (x->size() != grid->size() || !batch ||
        (last.is_known() && last.extent() != static_cast<int64_t>(x->size()) - 2)) {
      return mismatch(node, "the grid does not match X", shape_text(node, *x),
                      shape_text(node, *grid));
    }
  }
  if (x == nullptr && grid == nullptr) return {};
  ir::Shape shape(x != nullptr ? x->size() : grid->size());
  shape[0] = x != nullptr ? (*x)[0] : (*grid)[0];
  if (x != nullptr) shape[1] = (*x)[1];
  for (size_t i = 2; grid != nullptr && i < shape.size(); ++i) shape[i] = (*grid)[i - 1];
  outputs[0].shape = std::move(shape);
  return {};
}

Result<Recipe> recipe_grid_sample(const NodeView& node) {
  auto kernel = require_kernel(node, "GridSample", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  auto attributes = read_grid_sample(node);
  if (!attributes.ok()) return std::move(attributes.status());
  return plain_recipe(node, *kernel, attribute_bytes(*attributes));
}

// Two multiplications and additions a tap.
DvtTaskCost cost_grid_sample(const NodeView& node) {
  const auto attributes = read_grid_sample(node);
  const size_t spatial = node.input_extents(0)->size() - 2;
  uint64_t taps = 1;
  for (size_t i = 0; attributes.ok() && i < spatial; ++i) {
    taps *= attributes->mode == DVT_SAMPLE_NEAREST  ? 1
            : attributes->mode == DVT_SAMPLE_LINEAR ? 2
                                                    : 4;
  }
  const uint64_t elements = element_count(node.output_extents(0));
  return vector_cost(node, checked_mul(elements, taps).value_or(UINT64_MAX), 200);
}

// ---- AffineGrid -------------------------------------------------------------------------------

Status infer_affine_grid(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
  const ir::Shape* theta = node.input_shape(0);
  std::optional<int64_t> spatial;
  if (theta != nullptr && theta->size() == 3 && (*theta)[1].is_known()) {
    spatial = (*theta)[1].extent();
  }
  const bool fits =
      theta == nullptr || (theta->size() == 3 && (!spatial || *spatial == 2 || *spatial == 3));
  if (!fits || (spatial && (*theta)[2].is_known() && (*theta)[2].extent() != *spatial + 1)) {
    return mismatch(node, "theta has the wrong shape", "[N,2,3] or [N,3,4]",
                    shape_text(node, *theta));
  }
  const auto size = node.input_i64(1);
  if (size) {
    const bool valid = (size->size() == 4 || size->size() == 5) &&
                       (!spatial || *spatial + 2 == static_cast<int64_t>(size->size())) &&
                       std::ranges::all_of(*size, [](int64_t dim) { return dim >= 0; });
    if (!valid) {
      return mismatch(node, "input 1 (size) has the wrong length or a negative value",
                      "4 or 5 values, as many as theta has rows and two",
                      std::to_string(size->size()) + " values");
    }
    ir::Shape shape = {ir::Dim((*size)[0])};
    for (size_t i = 2; i < size->size(); ++i) shape.emplace_back((*size)[i]);
    shape.emplace_back(static_cast<int64_t>(size->size()) - 2);
    outputs[0].shape = std::move(shape);
    return check_elements(node, *outputs[0].shape);
  }
  if (!spatial) return {};
  ir::Shape shape(static_cast<size_t>(*spatial) + 2);
  shape[0] = (*theta)[0];
  shape.back() = ir::Dim(*spatial);
  outputs[0].shape = std::move(shape);
  return {};
}

Result<Recipe> recipe_affine_grid(const NodeView& node) {
  auto kernel = require_kernel(node, "AffineGrid", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  DvtAffineGridAttributes attributes = {.align_corners =
                                            node.attribute_int("align_corners", 0) != 0 ? 1 : 0};
  const auto size = node.input_i64(1);
  if (size) {
    attributes.size_count = static_cast<int64_t>(size->size());
    std::ranges::copy(*size, attributes.size);
  }
  Recipe recipe = plain_recipe(node, *kernel, attribute_bytes(attributes));
  if (size) recipe.inputs.resize(1);
  return recipe;
}

DvtTaskCost cost_affine_grid(const NodeView& node) {
  return vector_cost(node, element_count(node.output_extents(0)), 600);
}

constexpr OperatorDefinition grid_sample(int64_t since, int64_t until) {
  return {"",
          "GridSample",
          since,
          until,
          2,
          2,
          1,
          1,
          infer_grid_sample,
          recipe_grid_sample,
          cost_grid_sample};
}

constexpr std::array kOperators = {
    grid_sample(16, 19),
    grid_sample(20, INT64_MAX),
    OperatorDefinition{"", "AffineGrid", 20, INT64_MAX, 2, 2, 1, 1, infer_affine_grid,
                       recipe_affine_grid, cost_affine_grid},
};

}  // namespace

std::span<const OperatorDefinition> sampling_operators() {
  return kOperators;
}

}  // namespace davit::ops
