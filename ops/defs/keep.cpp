// Operators whose output shapes depend on data: NonZero, Compress, Unique, NonMaxSuppression. What
// a model declares of such shapes is not known to be true before they run.
#include "ops/kernels/keep.h"

#include <algorithm>
#include <array>

#include "base/checked.hpp"
#include "base/dtype.hpp"
#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"

namespace davit::ops {
namespace {

Status check_type(const NodeView& node) {
  if (is_number(node.input_dtype(0))) return {};
  return node.error(DVT_UNSUPPORTED, "no kernel for this element type", DVT_STAGE_LOWER);
}

// ---- NonZero ----------------------------------------------------------------------------------

Status infer_non_zero(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = DVT_I64;
  const ir::Shape* shape = node.input_shape(0);
  const auto rank = shape == nullptr
                        ? ir::Dim()
                        : ir::Dim(std::max<int64_t>(static_cast<int64_t>(shape->size()), 1));
  outputs[0].shape = ir::Shape{rank, ir::Dim()};
  return {};
}

Result<Recipe> recipe_non_zero(const NodeView& node) {
  Status status = check_type(node);
  if (!status.ok()) return status;
  return plain_recipe(node, find_kernel("NonZero"));
}

// ---- Compress, Unique -------------------------------------------------------------------------

// Input 0 with any number of slices along the axis, or flat without an axis.
Status infer_kept(const NodeView& node, InferredOutput& output) {
  output.dtype = node.input_dtype(0);
  if (!node.has_attribute("axis")) {
    output.shape = ir::Shape(1);
    return {};
  }
  const ir::Shape* shape = node.input_shape(0);
  if (shape == nullptr) return {};
  auto axis = require_axis(node, node.attribute_int("axis", 0), shape->size());
  if (!axis.ok()) return std::move(axis.status());
  output.shape = *shape;
  (*output.shape)[static_cast<size_t>(*axis)] = ir::Dim();
  return {};
}

Status infer_compress(const NodeView& node, std::span<InferredOutput> outputs) {
  const DvtDType condition = node.input_dtype(1);
  if (condition != DVT_DTYPE_NONE && condition != DVT_BOOL) {
    return mismatch(node, "the condition must be boolean", "bool",
                    std::string(dtype_name(condition)));
  }
  const ir::Shape* shape = node.input_shape(1);
  if (shape != nullptr && shape->size() != 1) {
    return mismatch(node, "the condition must have one axis", "rank 1", shape_text(node, *shape));
  }
  return infer_kept(node, outputs[0]);
}

std::vector<std::byte> keep_bytes(const NodeView& node) {
  return attribute_bytes(DvtKeepAttributes{.axis = node.attribute_int("axis", 0),
                                           .flat = node.has_attribute("axis") ? 0 : 1,
                                           .sorted = node.attribute_int("sorted", 1) != 0 ? 1 : 0});
}

Result<Recipe> recipe_compress(const NodeView& node) {
  Status status = check_type(node);
  if (!status.ok()) return status;
  return plain_recipe(node, find_kernel("Compress"), keep_bytes(node));
}

Status infer_unique(const NodeView& node, std::span<InferredOutput> outputs) {
  for (size_t i = 1; i < outputs.size(); ++i) {
    outputs[i].dtype = DVT_I64;
    outputs[i].shape = ir::Shape(1);
  }
  return infer_kept(node, outputs[0]);
}

Result<Recipe> recipe_unique(const NodeView& node) {
  Status status = check_type(node);
  if (!status.ok()) return status;
  Recipe recipe = plain_recipe(node, find_kernel("Unique"), keep_bytes(node));
  recipe.outputs.resize(4, ir::kNone);
  uint64_t items = 0;
  if (const auto extents = node.input_extents(0)) {
    items = element_count(extents);
    if (node.has_attribute("axis")) {
      const auto axis =
          normalise_axis(node.attribute_int("axis", 0), static_cast<int64_t>(extents->size()));
      items = static_cast<uint64_t>((*extents)[static_cast<size_t>(axis.value_or(0))]);
    }
  }
  recipe.workspace_bytes = {
      std::max<uint64_t>(checked_mul(items, uint64_t{3 * sizeof(int64_t)}).value_or(1), 1)};
  return recipe;
}

// ---- NonMaxSuppression ------------------------------------------------------------------------

Status infer_nms(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = DVT_I64;
  outputs[0].shape = ir::Shape{ir::Dim(), ir::Dim(3)};
  const ir::Shape* boxes = node.input_shape(0);
  const ir::Shape* scores = node.input_shape(1);
  for (const ir::Shape* shape : {boxes, scores}) {
    if (shape == nullptr || shape->size() == 3) continue;
    return mismatch(node, "boxes and scores must have three axes", "rank 3",
                    shape_text(node, *shape));
  }
  if (boxes == nullptr || scores == nullptr) return {};
  const auto differ = [](ir::Dim a, ir::Dim b) {
    return a.is_known() && b.is_known() && !(a == b);
  };
  if (differ((*boxes)[0], (*scores)[0]) || differ((*boxes)[1], (*scores)[2]) ||
      differ((*boxes)[2], ir::Dim(4))) {
    return mismatch(node, "boxes and scores do not belong together", shape_text(node, *boxes),
                    shape_text(node, *scores));
  }
  return {};
}

Result<Recipe> recipe_nms(const NodeView& node) {
  const DvtNmsAttributes record{.center_point_box =
                                    node.attribute_int("center_point_box", 0) != 0 ? 1 : 0};
  Recipe recipe = plain_recipe(node, find_kernel("NonMaxSuppression"), attribute_bytes(record));
  uint64_t boxes = 0;
  if (const auto extents = node.input_extents(1)) boxes = static_cast<uint64_t>((*extents)[2]);
  recipe.workspace_bytes = {
      std::max<uint64_t>(checked_mul(boxes, uint64_t{sizeof(int64_t)}).value_or(1), 1)};
  return recipe;
}

DvtTaskCost cost_kept(const NodeView& node) {
  return vector_cost(node, element_count(node.input_extents(0)), 400);
}

constexpr std::array kOperators = {
    OperatorDefinition{"", "NonZero", 9, INT64_MAX, 1, 1, 1, 1, infer_non_zero, recipe_non_zero,
                       cost_kept},
    OperatorDefinition{"", "Compress", 9, INT64_MAX, 2, 2, 1, 1, infer_compress, recipe_compress,
                       cost_kept},
    OperatorDefinition{"", "Unique", 11, INT64_MAX, 1, 1, 1, 4, infer_unique, recipe_unique,
                       cost_kept},
    OperatorDefinition{"", "NonMaxSuppression", 10, INT64_MAX, 2, 5, 1, 1, infer_nms, recipe_nms,
                       cost_kept},
};

}  // namespace

std::span<const OperatorDefinition> keep_operators() {
  return kOperators;
}

}  // namespace davit::ops
