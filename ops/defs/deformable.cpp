// DeformConv.
#include "ops/kernels/deformable.h"

#include <array>

#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"
#include "ops/defs/scratch.hpp"
#include "ops/defs/window.hpp"

namespace davit::ops {
namespace {

// The window for W's extents, or for kernel_shape; unknown extents are 1, which changes neither
// strides nor pads.
Result<Window> read_deform(const NodeView& node, size_t spatial) {
  std::vector<int64_t> kernel = node.attribute_ints("kernel_shape");
  if (!kernel.empty() && kernel.size() != spatial) {
    return mismatch(node, "kernel_shape has the wrong length", std::to_string(spatial) + " values",
                    std::to_string(kernel.size()) + " values");
  }
  if (kernel.empty()) kernel.assign(spatial, 1);
  const ir::Shape* w = node.input_shape(1);
  for (size_t i = 0; w != nullptr && i < spatial; ++i) {
    if ((*w)[i + 2].is_known()) kernel[i] = (*w)[i + 2].extent();
  }
  return read_window(node, std::move(kernel));
}

bool is_kernel_known(const NodeView& node) {
  const ir::Shape* w = node.input_shape(1);
  return node.has_attribute("kernel_shape") ||
         (w != nullptr && ir::static_extents({w->begin() + 2, w->end()}));
}

Result<size_t> spatial_rank(const NodeView& node) {
  const ir::Shape* x = node.input_shape(0);
  const ir::Shape* w = node.input_shape(1);
  for (const ir::Shape* shape : {x, w}) {
    if (shape == nullptr) continue;
    if (Status status = check_spatial_rank(node, shape->size()); !status.ok()) return status;
  }
  if (x != nullptr && w != nullptr && x->size() != w->size()) {
    return mismatch(node, "X and W must have the same rank", shape_text(node, *x),
                    shape_text(node, *w));
  }
  if (x != nullptr) return x->size() - 2;
  if (w != nullptr) return w->size() - 2;
  return size_t{0};  // Not known.
}

Status infer_deform(const NodeView& node, std::span<InferredOutput> outputs) {
  for (const uint32_t input : {1U, 2U, 3U, 4U}) {
    if (Status status = same_dtype(node, 0, input); !status.ok()) return status;
  }
  outputs[0].dtype = node.input_dtype(0);
  for (const char* name : {"group", "offset_group"}) {
    if (node.attribute_int(name, 1) >= 1) continue;
    return mismatch(node, std::string("attribute ") + name + " is out of range", "at least 1",
                    std::to_string(node.attribute_int(name, 1)));
  }
  auto spatial = spatial_rank(node);
  if (!spatial.ok()) return std::move(spatial.status());
  if (*spatial == 0) return {};
  auto window = read_deform(node, *spatial);
  if (!window.ok()) return std::move(window.status());
  const ir::Shape* x = node.input_shape(0);
  const ir::Shape* w = node.input_shape(1);
  ir::Shape shape(*spatial + 2);
  if (x != nullptr) shape[0] = (*x)[0];
  if (w != nullptr) shape[1] = (*w)[0];
  for (size_t i = 0; i < *spatial && is_kernel_known(node); ++i) {
    auto out = window_output(node, *window, i, x == nullptr ? ir::Dim() : (*x)[i + 2]);
    if (!out.ok()) return std::move(out.status());
    shape[i + 2] = *out;
  }
  outputs[0].shape = std::move(shape);
  return {};
}

Result<Recipe> recipe_deform(const NodeView& node) {
  auto kernel = require_kernel(node, "DeformConv", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  auto spatial = spatial_rank(node);
  if (!spatial.ok()) return std::move(spatial.status());
  if (*spatial == 0) {
    return node.error(DVT_UNSUPPORTED, "the ranks of X and W are not known", DVT_STAGE_LOWER);
  }
  auto window = read_deform(node, *spatial);
  if (!window.ok()) return std::move(window.status());
  const DvtDeformConvAttributes attributes = {.group = node.attribute_int("group", 1),
                                              .offset_group = node.attribute_int("offset_group", 1),
                                              .window = window_attributes(*window)};
  Recipe recipe = plain_recipe(node, *kernel, attribute_bytes(attributes));
  if (Status status = add_workspaces(node, recipe); !status.ok()) return status;
  return recipe;
}

constexpr std::array kOperators = {
    OperatorDefinition{"", "DeformConv", 19, INT64_MAX, 3, 5, 1, 1, infer_deform, recipe_deform,
                       cost_of_kernel},
};

}  // namespace

std::span<const OperatorDefinition> deformable_operators() {
  return kOperators;
}

}  // namespace davit::ops
