// DepthToSpace, SpaceToDepth and ReverseSequence.
#include "ops/kernels/rearrange.h"

#include <array>

#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"

namespace davit::ops {
namespace {

// ---- DepthToSpace, SpaceToDepth ---------------------------------------------------------------

constexpr int64_t kBlockLimit = 1 << 15;  // The kernel's.

Result<ir::Shape> image_shape(const NodeView& node) {
  const int64_t block = node.attribute_int("blocksize", 0);
  if (block < 1 || block > kBlockLimit) {
    return mismatch(node, "attribute blocksize is out of range",
                    "1 to " + std::to_string(kBlockLimit), std::to_string(block));
  }
  const ir::Shape* shape = node.input_shape(0);
  if (shape == nullptr) return ir::Shape(4);
  if (shape->size() == 4) return *shape;
  return mismatch(node, "the input must be images", "rank 4", shape_text(node, *shape));
}

// A dim times or divided by a factor; nullopt when it does not divide or is too large.
std::optional<ir::Dim> scaled(ir::Dim dim, int64_t factor, bool divide) {
  if (factor == 1) return dim;
  if (!dim.is_known()) return ir::Dim();
  if (divide) {
    if (dim.extent() % factor != 0) return std::nullopt;
    return ir::Dim(dim.extent() / factor);
  }
  int64_t product = 0;
  if (__builtin_mul_overflow(dim.extent(), factor, &product)) return std::nullopt;
  return ir::Dim(product);
}

Status infer_blocks(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
  const bool to_space = node.module().op(node.id()) == "DepthToSpace";
  auto shape = image_shape(node);
  if (!shape.ok()) return std::move(shape.status());
  const int64_t block = node.attribute_int("blocksize", 0);
  const auto channels = scaled((*shape)[1], block * block, to_space);
  const auto rows = scaled((*shape)[2], block, !to_space);
  const auto columns = scaled((*shape)[3], block, !to_space);
  if (!channels || !rows || !columns) {
    return mismatch(node, "the input does not divide into blocks",
                    "multiples of " + std::to_string(to_space ? block * block : block),
                    shape_text(node, *shape));
  }
  outputs[0].shape = ir::Shape{(*shape)[0], *channels, *rows, *columns};
  return check_elements(node, *outputs[0].shape);
}

Result<Recipe> recipe_blocks(const NodeView& node) {
  const std::string_view name = node.module().op(node.id());
  const std::string mode = node.opset() >= 11 && name == "DepthToSpace"
                               ? node.attribute_string("mode", "DCR")
                               : std::string("DCR");
  if (mode != "DCR" && mode != "CRD") {
    return mismatch(node, "attribute mode has an unknown value", "DCR or CRD", mode,
                    DVT_STAGE_LOWER);
  }
  return plain_recipe(
      node, find_kernel(name),
      attribute_bytes(DvtBlockAttributes{.block = node.attribute_int("blocksize", 0),
                                         .column_first = mode == "CRD" ? 1 : 0}));
}

// ---- ReverseSequence --------------------------------------------------------------------------

Status infer_reverse(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
  const int64_t batch = node.attribute_int("batch_axis", 1);
  const int64_t time = node.attribute_int("time_axis", 0);
  if (batch < 0 || batch > 1 || time < 0 || time > 1 || batch == time) {
    return mismatch(node, "batch_axis and time_axis must be 0 and 1", "0 and 1",
                    std::to_string(batch) + " and " + std::to_string(time));
  }
  const ir::Shape* shape = node.input_shape(0);
  const ir::Shape* lengths = node.input_shape(1);
  if (shape == nullptr) return {};
  if (shape->size() < 2) {
    return mismatch(node, "the input has too few axes", "rank 2 or more", shape_text(node, *shape));
  }
  const ir::Dim batches = (*shape)[static_cast<size_t>(batch)];
  if (lengths != nullptr &&
      (lengths->size() != 1 ||
       (batches.is_known() && (*lengths)[0].is_known() && !(batches == (*lengths)[0])))) {
    return mismatch(node, "there must be one length per batch", shape_text(node, {batches}),
                    shape_text(node, *lengths));
  }
  outputs[0].shape = *shape;
  return {};
}

Result<Recipe> recipe_reverse(const NodeView& node) {
  return plain_recipe(
      node, find_kernel("ReverseSequence"),
      attribute_bytes(DvtReverseAttributes{.batch_axis = node.attribute_int("batch_axis", 1),
                                           .time_axis = node.attribute_int("time_axis", 0)}));
}

// ---- Table ------------------------------------------------------------------------------------

constexpr OperatorDefinition blocks(std::string_view name) {
  return {"", name, 1, INT64_MAX, 1, 1, 1, 1, infer_blocks, recipe_blocks, move_cost};
}

constexpr std::array kOperators = {
    blocks("DepthToSpace"),
    blocks("SpaceToDepth"),
    OperatorDefinition{"", "ReverseSequence", 10, INT64_MAX, 2, 2, 1, 1, infer_reverse,
                       recipe_reverse, move_cost},
};

}  // namespace

std::span<const OperatorDefinition> rearrange_operators() {
  return kOperators;
}

}  // namespace davit::ops
