// RoiAlign and MaxRoiPool.
#include "ops/kernels/regions.h"

#include <array>

#include "base/checked.hpp"
#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"

namespace davit::ops {
namespace {

// [R,C,height,width] for rois of `columns` numbers.
Status infer_regions(const NodeView& node, int64_t columns, int64_t height, int64_t width,
                     std::span<InferredOutput> outputs) {
  if (Status status = same_dtype(node, 0, 1); !status.ok()) return status;
  outputs[0].dtype = node.input_dtype(0);
  if (height < 1 || width < 1) {
    return mismatch(node, "the output size is out of range", "at least 1 x 1",
                    std::to_string(height) + " x " + std::to_string(width));
  }
  const ir::Shape* x = node.input_shape(0);
  const ir::Shape* rois = node.input_shape(1);
  if (x != nullptr && x->size() != 4) {
    return mismatch(node, "X must have rank 4", "[N,C,H,W]", shape_text(node, *x));
  }
  if (rois != nullptr &&
      (rois->size() != 2 || ((*rois)[1].is_known() && (*rois)[1].extent() != columns))) {
    return mismatch(node, "the regions have the wrong shape", "[R," + std::to_string(columns) + "]",
                    shape_text(node, *rois));
  }
  outputs[0].shape = ir::Shape{rois == nullptr ? ir::Dim() : (*rois)[0],
                               x == nullptr ? ir::Dim() : (*x)[1], ir::Dim(height), ir::Dim(width)};
  return check_elements(node, *outputs[0].shape);
}

// ---- RoiAlign ---------------------------------------------------------------------------------

// Opset 10 had no such attribute, and coordinates were not shifted.
bool is_half_pixel(const NodeView& node) {
  return node.opset() >= 16 &&
         node.attribute_string("coordinate_transformation_mode", "half_pixel") == "half_pixel";
}

Status infer_roi_align(const NodeView& node, std::span<InferredOutput> outputs) {
  const std::string transform =
      node.attribute_string("coordinate_transformation_mode", "half_pixel");
  const std::string mode = node.attribute_string("mode", "avg");
  const int64_t ratio = node.attribute_int("sampling_ratio", 0);
  if (node.opset() >= 16 && transform != "half_pixel" && transform != "output_half_pixel") {
    return mismatch(node, "attribute coordinate_transformation_mode has an unknown value",
                    "half_pixel or output_half_pixel", transform);
  }
  if (mode != "avg" && mode != "max") {
    return mismatch(node, "attribute mode has an unknown value", "avg or max", mode);
  }
  if (ratio < 0 || ratio > DVT_SAMPLING_RATIO_MAX) {
    return mismatch(node, "attribute sampling_ratio is out of range", "0 to 1024",
                    std::to_string(ratio));
  }
  const DvtDType batch = node.input_dtype(2);
  if (batch != DVT_DTYPE_NONE && batch != DVT_I64) {
    return node.error(DVT_INVALID_ARGUMENT, "batch_indices must be of type i64");
  }
  return infer_regions(node, 4, node.attribute_int("output_height", 1),
                       node.attribute_int("output_width", 1), outputs);
}

Result<Recipe> recipe_roi_align(const NodeView& node) {
  auto kernel = require_kernel(node, "RoiAlign", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  const DvtRoiAlignAttributes attributes = {
      .height = node.attribute_int("output_height", 1),
      .width = node.attribute_int("output_width", 1),
      .sampling_ratio = node.attribute_int("sampling_ratio", 0),
      .maximum = node.attribute_string("mode", "avg") == "max" ? 1 : 0,
      .half_pixel = is_half_pixel(node) ? 1 : 0,
      .scale = node.attribute_float("spatial_scale", 1.0F)};
  return plain_recipe(node, *kernel, attribute_bytes(attributes));
}

// Four multiplications and additions a point.
DvtTaskCost cost_roi_align(const NodeView& node) {
  const auto ratio = static_cast<uint64_t>(node.attribute_int("sampling_ratio", 0));
  const uint64_t points = ratio == 0 ? 4 : ratio * ratio;
  const uint64_t outputs = element_count(node.output_extents(0));
  return vector_cost(node, checked_mul(outputs, points).value_or(UINT64_MAX), 800);
}

// ---- MaxRoiPool -------------------------------------------------------------------------------

Status infer_roi_pool(const NodeView& node, std::span<InferredOutput> outputs) {
  const std::vector<int64_t> shape = node.attribute_ints("pooled_shape");
  if (shape.size() != 2) {
    return mismatch(node, "attribute pooled_shape is missing or has the wrong length", "2 values",
                    std::to_string(shape.size()) + " values");
  }
  return infer_regions(node, 5, shape[0], shape[1], outputs);
}

Result<Recipe> recipe_roi_pool(const NodeView& node) {
  auto kernel = require_kernel(node, "MaxRoiPool", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  const std::vector<int64_t> shape = node.attribute_ints("pooled_shape");
  const DvtRoiPoolAttributes attributes = {
      .height = shape[0], .width = shape[1], .scale = node.attribute_float("spatial_scale", 1.0F)};
  return plain_recipe(node, *kernel, attribute_bytes(attributes));
}

DvtTaskCost cost_roi_pool(const NodeView& node) {
  return vector_cost(node, element_count(node.output_extents(0)), 400);
}

constexpr OperatorDefinition roi_align(int64_t since, int64_t until) {
  return {
      "", "RoiAlign", since, until, 3, 3, 1, 1, infer_roi_align, recipe_roi_align, cost_roi_align};
}

constexpr std::array kOperators = {
    roi_align(10, 15),
    roi_align(16, INT64_MAX),
    OperatorDefinition{"", "MaxRoiPool", 1, INT64_MAX, 2, 2, 1, 1, infer_roi_pool, recipe_roi_pool,
                       cost_roi_pool},
};

}  // namespace

std::span<const OperatorDefinition> regions_operators() {
  return kOperators;
}

}  // namespace davit::ops
