// ai.onnx.preview.training: Adagrad, Adam and Momentum.
#include "ops/kernels/training.h"

#include <array>

#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"

namespace davit::ops {
namespace {

constexpr const char* kDomain = "ai.onnx.preview.training";

// X, G and the states.
uint32_t groups_of(const NodeView& node) {
  return node.module().op(node.id()) == "Adam" ? 4 : 3;
}

Status infer_training(const NodeView& node, std::span<InferredOutput> outputs) {
  const uint32_t groups = groups_of(node);
  const uint32_t tensors = node.input_count() - 2;
  Status status = all_present(node);
  if (!status.ok()) return status;
  if (tensors == 0 || tensors % groups != 0) {
    return mismatch(node, "the inputs behind R and T are not whole groups",
                    "a multiple of " + std::to_string(groups), std::to_string(tensors));
  }
  const uint32_t count = tensors / groups;
  if (outputs.size() != size_t{groups - 1} * count) {
    return mismatch(node, "wrong number of outputs", std::to_string((groups - 1) * count),
                    std::to_string(outputs.size()));
  }
  const DvtDType updates = node.input_dtype(1);
  if (updates != DVT_DTYPE_NONE && updates != DVT_I64) {
    return node.error(DVT_INVALID_ARGUMENT, "T must be of type i64");
  }
  for (uint32_t i = 2; i < node.input_count(); ++i) {
    status = same_dtype(node, 2, i);
    if (!status.ok()) return status;
    const ir::Shape* x = node.input_shape(2 + (i - 2) % count);
    const ir::Shape* other = node.input_shape(i);
    bool fits = x == nullptr || other == nullptr || x->size() == other->size();
    for (size_t d = 0; fits && x != nullptr && other != nullptr && d < x->size(); ++d) {
      fits = !(*x)[d].is_known() || !(*other)[d].is_known() || (*x)[d] == (*other)[d];
    }
    if (fits) continue;
    return mismatch(node, "input " + std::to_string(i) + " differs from its X",
                    shape_text(node, *x), shape_text(node, *other));
  }
  for (uint32_t i = 0; i < outputs.size(); ++i) {
    outputs[i].dtype = node.input_dtype(2);
    if (const ir::Shape* x = node.input_shape(2 + i % count)) outputs[i].shape = *x;
  }
  return {};
}

Result<Recipe> recipe_training(const NodeView& node) {
  const std::string_view op = node.module().op(node.id());
  auto kernel = require_kernel(node, op, node.input_dtype(2));
  if (!kernel.ok()) return std::move(kernel.status());
  const bool adam = op == "Adam";
  const std::string mode = node.attribute_string("mode", "standard");
  if (mode != "standard" && mode != "nesterov") {
    return mismatch(node, "attribute mode has an unknown value", "standard or nesterov", mode);
  }
  const DvtTrainingAttributes attributes = {
      .norm_coefficient = node.attribute_float("norm_coefficient", 0.0F),
      .norm_coefficient_post = node.attribute_float("norm_coefficient_post", 0.0F),
      .epsilon = node.attribute_float("epsilon", 1e-6F),
      .decay_factor = node.attribute_float("decay_factor", 0.0F),
      .alpha = node.attribute_float("alpha", adam ? 0.9F : 0.0F),
      .beta = node.attribute_float("beta", adam ? 0.999F : 0.0F),
      .nesterov = mode == "nesterov" ? 1 : 0};
  Recipe recipe = plain_recipe(node, *kernel, attribute_bytes(attributes));
  recipe.outputs.resize(node.module().outputs(node.id()).size(), ir::kNone);
  return recipe;
}

// About a dozen passes over each parameter.
DvtTaskCost cost_training(const NodeView& node) {
  uint64_t elements = 0;
  const uint32_t count = (node.input_count() - 2) / groups_of(node);
  for (uint32_t i = 0; i < count; ++i) elements += element_count(node.input_extents(2 + i));
  return vector_cost(node, elements, 1200);
}

constexpr OperatorDefinition training(const char* name, uint32_t groups) {
  return {kDomain,      name,       1,          INT64_MAX,      2 + groups,
          UINT32_MAX,   groups - 1, UINT32_MAX, infer_training, recipe_training,
          cost_training};
}

constexpr std::array kOperators = {training("Adagrad", 3), training("Adam", 4),
                                   training("Momentum", 3)};

}  // namespace

std::span<const OperatorDefinition> training_operators() {
  return kOperators;
}

}  // namespace davit::ops
