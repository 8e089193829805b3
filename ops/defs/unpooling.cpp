// MaxUnpool.
#include "ops/kernels/unpooling.h"

#include <algorithm>
#include <array>

#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"
#include "ops/defs/window.hpp"

namespace davit::ops {
namespace {

Result<Window> read_unpool(const NodeView& node) {
  auto kernel = node.attribute_ints("kernel_shape");
  if (kernel.empty() || kernel.size() > DVT_SPATIAL_MAX) {
    return mismatch(node, "attribute kernel_shape is missing or has the wrong length",
                    "1 to 3 values", std::to_string(kernel.size()) + " values");
  }
  return read_window(node, std::move(kernel));
}

// The extent that the pool had.
Result<ir::Dim> frame_extent(const NodeView& node, const Window& window, size_t dim, ir::Dim in) {
  if (!in.is_known() || in.extent() > DVT_WINDOW_LIMIT) return ir::Dim();
  if (in.extent() == 0) return ir::Dim(0);
  const int64_t extent = (in.extent() - 1) * window.strides[dim] + window.kernel[dim] -
                         window.pads_begin[dim] - window.pads_end[dim];
  if (extent >= 0) return ir::Dim(extent);
  return mismatch(node, "spatial dim " + std::to_string(dim) + " of the output is negative",
                  "0 or more", std::to_string(extent));
}

Status infer_unpool(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
  auto window = read_unpool(node);
  if (!window.ok()) return std::move(window.status());
  const DvtDType indices = node.input_dtype(1);
  if (indices != DVT_DTYPE_NONE && indices != DVT_I64) {
    return node.error(DVT_INVALID_ARGUMENT, "the indices must be of type i64");
  }
  const size_t rank = window->spatial() + 2;
  for (const uint32_t input : {0U, 1U}) {
    const ir::Shape* shape = node.input_shape(input);
    if (shape == nullptr || shape->size() == rank) continue;
    return mismatch(node, "kernel_shape does not match the rank of input " + std::to_string(input),
                    "rank " + std::to_string(rank), shape_text(node, *shape));
  }
  ir::Shape shape(rank);
  if (const auto stated = node.input_i64(2)) {
    const bool valid = stated->size() == rank &&
                       std::ranges::all_of(*stated, [](int64_t dim) { return dim >= 0; });
    if (!valid) {
      return mismatch(node, "input 2 (output_shape) has the wrong length or a negative value",
                      std::to_string(rank) + " values", std::to_string(stated->size()) + " values");
    }
    for (size_t i = 0; i < rank; ++i) shape[i] = ir::Dim((*stated)[i]);
  } else if (const ir::Shape* x = node.input_shape(0); x != nullptr && !node.has_input(2)) {
    shape[0] = (*x)[0];
    shape[1] = (*x)[1];
    for (size_t i = 2; i < rank; ++i) {
      auto extent = frame_extent(node, *window, i - 2, (*x)[i]);
      if (!extent.ok()) return std::move(extent.status());
      shape[i] = *extent;
    }
  }
  outputs[0].shape = std::move(shape);
  return check_elements(node, *outputs[0].shape);
}

Result<Recipe> recipe_unpool(const NodeView& node) {
  auto kernel = require_kernel(node, "MaxUnpool", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  auto window = read_unpool(node);
  if (!window.ok()) return std::move(window.status());
  DvtUnpoolAttributes attributes{};
  for (size_t i = 0; i < DVT_SPATIAL_MAX; ++i) {
    const bool used = i < window->spatial();
    attributes.kernel[i] = used ? window->kernel[i] : 1;
    attributes.strides[i] = used ? window->strides[i] : 1;
    attributes.pads_begin[i] = used ? window->pads_begin[i] : 0;
    attributes.pads_end[i] = used ? window->pads_end[i] : 0;
  }
  const auto shape = node.input_i64(2);
  if (shape) {
    attributes.shape_count = static_cast<int64_t>(shape->size());
    std::ranges::copy(*shape, attributes.shape);
  }
  Recipe recipe = plain_recipe(node, *kernel, attribute_bytes(attributes));
  if (shape) recipe.inputs.resize(2);
  return recipe;
}

constexpr std::array kOperators = {
    OperatorDefinition{"", "MaxUnpool", 9, 10, 2, 3, 1, 1, infer_unpool, recipe_unpool, move_cost},
    OperatorDefinition{"", "MaxUnpool", 11, INT64_MAX, 2, 3, 1, 1, infer_unpool, recipe_unpool,
                       move_cost},
};

}  // namespace

std::span<const OperatorDefinition> unpooling_operators() {
  return kOperators;
}

}  // namespace davit::ops
