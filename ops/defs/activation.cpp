// Activations that are not in elementwise.cpp: Celu, Gelu, Mish, Shrink, ThresholdedRelu.
#include "ops/kernels/activation.h"

#include <array>

#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"

namespace davit::ops {
namespace {

Status infer_same(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
  if (const ir::Shape* shape = node.input_shape(0)) outputs[0].shape = *shape;
  return {};
}

Status infer_gelu(const NodeView& node, std::span<InferredOutput> outputs) {
  const std::string approximate = node.attribute_string("approximate", "none");
  if (approximate != "none" && approximate != "tanh") {
    return mismatch(node, "attribute approximate is not known", "none or tanh", approximate);
  }
  return infer_same(node, outputs);
}

Result<Recipe> kernel_recipe(const NodeView& node, std::vector<std::byte> attributes) {
  auto kernel = require_kernel(node, node.module().op(node.id()), node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  return plain_recipe(node, *kernel, std::move(attributes));
}

Result<Recipe> recipe_alpha(const NodeView& node) {
  return kernel_recipe(
      node, attribute_bytes(DvtAlphaAttributes{.alpha = node.attribute_float("alpha", 1.0F)}));
}
Result<Recipe> recipe_mish(const NodeView& node) {
  return kernel_recipe(node, {});
}
Result<Recipe> recipe_gelu(const NodeView& node) {
  const bool approximate = node.attribute_string("approximate", "none") == "tanh";
  return kernel_recipe(node,
                       attribute_bytes(DvtGeluAttributes{.approximate = approximate ? 1 : 0}));
}
Result<Recipe> recipe_shrink(const NodeView& node) {
  return kernel_recipe(
      node, attribute_bytes(DvtShrinkAttributes{.lambda = node.attribute_float("lambd", 0.5F),
                                                .bias = node.attribute_float("bias", 0.0F)}));
}

// In hundredths of a pass; see elementwise.cpp.
template <uint32_t kF32, uint32_t kF16>
DvtTaskCost cost(const NodeView& node) {
  const bool is_half = dvt_dtype_size(node.input_dtype(0)) == 2;
  return vector_cost(node, element_count(node.output_extents(0)), is_half ? kF16 : kF32);
}

constexpr std::array kOperators = {
    OperatorDefinition{"", "Celu", 12, INT64_MAX, 1, 1, 1, 1, infer_same, recipe_alpha,
                       cost<1000, 1200>},
    OperatorDefinition{"", "Gelu", 20, INT64_MAX, 1, 1, 1, 1, infer_gelu, recipe_gelu,
                       cost<2600, 2800>},
    OperatorDefinition{"", "Mish", 18, INT64_MAX, 1, 1, 1, 1, infer_same, recipe_mish,
                       cost<1700, 2300>},
    OperatorDefinition{"", "Shrink", 9, INT64_MAX, 1, 1, 1, 1, infer_same, recipe_shrink,
                       cost<1000, 1000>},
    OperatorDefinition{"", "ThresholdedRelu", 10, INT64_MAX, 1, 1, 1, 1, infer_same, recipe_alpha,
                       cost<400, 400>},
};

}  // namespace

std::span<const OperatorDefinition> activation_operators() {
  return kOperators;
}

}  // namespace davit::ops
