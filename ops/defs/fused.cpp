// Operators that only passes make: products with pointwise steps behind them, attention, and
// operators of ai.onnx that the model's opset may lack.
#include "ops/defs/fused.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"
#include "ops/defs/matrix.hpp"
#include "ops/kernels/attention.h"
#include "ops/kernels/fused.h"

namespace davit::ops {
namespace {

constexpr uint32_t kVariadic = UINT32_MAX;

// By DvtStepKind.
constexpr std::array<std::string_view, DVT_STEP_KINDS> kStepNames = {
    "Add",  "Sub",         "SubFrom",   "Mul",  "Div",       "Min",     "Max",  "Relu",
    "Clip", "HardSigmoid", "LeakyRelu", "Elu",  "HardSwish", "Sigmoid", "Tanh", "Erf",
    "Exp",  "Neg",         "Abs",       "Sqrt", "Softplus",  "Gelu"};

// The definition that an operator of ai.onnx has under kFusedOpset.
const OperatorDefinition& standard(std::span<const OperatorDefinition> family,
                                   std::string_view name) {
  return *std::find_if(family.begin(), family.end(), [name](const OperatorDefinition& each) {
    return each.name == name && each.since_version <= kFusedOpset &&
           each.until_version >= kFusedOpset;
  });
}

const OperatorDefinition& product_of(const NodeView& node) {
  const std::string_view name = node.module().op(node.id()).substr(std::strlen("Fused"));
  const auto family = name.starts_with("Conv") ? convolution_operators() : matrix_operators();
  return standard(family, name);
}

uint32_t product_inputs(const NodeView& node) {
  return node.module().op(node.id()) == "FusedMatMul" ? 2 : 3;
}

// The steps of a node, checked as far as they can be without shapes.
Result<DvtSteps> read_steps(const NodeView& node) {
  const ir::AttributeValue* names = node.module().attribute(node.id(), "steps");
  const auto* steps = names == nullptr ? nullptr : std::get_if<std::vector<std::string>>(names);
  const std::vector<int64_t> operands = node.attribute_ints("step_operands");
  const ir::TensorData* numbers = node.attribute_tensor("step_numbers");
  if (steps == nullptr || steps->empty() || steps->size() > DVT_STEPS_MAX ||
      operands.size() != steps->size() || numbers == nullptr || numbers->dtype != DVT_F64 ||
      numbers->element_count() != 2 * steps->size() || !numbers->bytes) {
    return node.error(DVT_INVALID_ARGUMENT,
                      "attributes steps, step_operands and step_numbers of "
                      "one length, 1 to " +
                          std::to_string(DVT_STEPS_MAX) + ", are needed");
  }
  DvtSteps record{};
  record.count = int64_t(steps->size());
  for (size_t k = 0; k < steps->size(); ++k) {
    const auto kind = step_kind((*steps)[k]);
    if (!kind) return node.error(DVT_INVALID_ARGUMENT, "there is no step '" + (*steps)[k] + "'");
    record.kind[k] = *kind;
    record.operand[k] = operands[k];
    record.alpha[k] = numbers->as<double>()[2 * k];
    record.beta[k] = numbers->as<double>()[2 * k + 1];
    if (*kind >= DVT_STEP_UNARY) continue;
    const bool is_input = operands[k] >= int64_t(product_inputs(node)) &&
                          operands[k] < int64_t(node.input_count()) &&
                          node.has_input(uint32_t(operands[k]));
    const bool is_value =
        operands[k] <= DVT_STEP_BEFORE && DVT_STEP_BEFORE - operands[k] <= int64_t(k);
    if (is_input || is_value) continue;
    return mismatch(node, "step " + std::to_string(k) + " has no operand",
                    "an input from " + std::to_string(product_inputs(node)) + ", or a step before",
                    std::to_string(operands[k]));
  }
  return record;
}

Status infer_fused(const NodeView& node, std::span<InferredOutput> outputs) {
  auto steps = read_steps(node);
  if (!steps.ok()) return std::move(steps.status());
  Status status = product_of(node).infer(node, outputs);
  if (!status.ok() || !outputs[0].shape) return status;
  for (uint32_t i = product_inputs(node); i < node.input_count(); ++i) {
    if (!node.has_input(i)) continue;
    status = same_dtype(node, 0, i);
    if (!status.ok()) return status;
    const ir::Shape* shape = node.input_shape(i);
    if (shape == nullptr) continue;
    const auto joined = broadcast(*outputs[0].shape, *shape);
    bool fits = joined && joined->size() == outputs[0].shape->size();
    for (size_t d = 0; fits && d < joined->size(); ++d) {
      const ir::Dim dim = (*outputs[0].shape)[d];
      fits = !dim.is_known() || !(*joined)[d].is_known() || dim == (*joined)[d];
    }
    if (!fits) {
      return mismatch(node, "input " + std::to_string(i) + " does not broadcast to the product",
                      shape_text(node, *outputs[0].shape), shape_text(node, *shape));
    }
  }
  return status;
}

// The record of the product, then that of the steps.
Result<Recipe> recipe_fused(const NodeView& node) {
  auto steps = read_steps(node);
  if (!steps.ok()) return std::move(steps.status());
  Result<Recipe> recipe = product_of(node).recipe(node);
  if (!recipe.ok()) return recipe;
  auto kernel = require_kernel(node, node.module().op(node.id()), node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  recipe->kernel = *kernel;
  const std::vector<std::byte> bytes = attribute_bytes(*steps);
  recipe->attributes.insert(recipe->attributes.end(), bytes.begin(), bytes.end());
  return recipe;
}

// The cube writes its result through the steps: they cost the traffic of their operands.
DvtTaskCost cost_fused(const NodeView& node) {
  return product_of(node).cost(node);
}

// ---- Attention ----------------------------------------------------------------------------------

std::optional<int64_t> scaling_of(const NodeView& node) {
  constexpr std::array<std::string_view, 3> kNames = {"none", "multiply", "divide"};
  const std::string name = node.attribute_string("scaling", "none");
  const auto* at = std::find(kNames.begin(), kNames.end(), name);
  if (at == kNames.end()) return std::nullopt;
  return at - kNames.begin();
}

Status infer_attention(const NodeView& node, std::span<InferredOutput> outputs) {
  for (uint32_t i = 1; i < node.input_count(); ++i) {
    if (Status status = same_dtype(node, 0, i); !status.ok()) return status;
  }
  if (!scaling_of(node)) {
    return mismatch(node, "attribute scaling is not known", "none, multiply or divide",
                    node.attribute_string("scaling", "none"));
  }
  outputs[0].dtype = node.input_dtype(0);
  std::optional<ir::Shape> scores;
  Status status = infer_product(node, 0, 1, scores);
  const ir::Shape* q = node.input_shape(0);
  const ir::Shape* v = node.input_shape(2);
  if (!status.ok() || !scores || v == nullptr) return status;
  if (q->size() < 2 || v->size() != q->size() || scores->size() != q->size()) {
    return mismatch(node, "Q, K and V must have the same rank", shape_text(node, *q),
                    shape_text(node, *v));
  }
  const ir::Shape* mask = node.has_input(3) ? node.input_shape(3) : nullptr;
  if (node.has_input(3)) scores = mask == nullptr ? std::nullopt : broadcast(*scores, *mask);
  if (node.has_input(3) && mask == nullptr) return {};
  if (!scores || scores->size() != q->size()) {
    return mismatch(node, "the mask does not broadcast with the scores", shape_text(node, *q),
                    shape_text(node, *mask));
  }
  // The batch axes of V, with those of the scores.
  ir::Shape rows = *v;
  rows[rows.size() - 2] = ir::Dim(1);
  rows.back() = ir::Dim(1);
  ir::Shape left = *scores;
  left.back() = v->back();
  outputs[0].shape = broadcast(left, rows);
  if (outputs[0].shape) return {};
  return mismatch(node, "the batch axes of Q, K and V do not broadcast", shape_text(node, *q),
                  shape_text(node, *v));
}

Result<Recipe> recipe_attention(const NodeView& node) {
  auto kernel = require_kernel(node, "Attention", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  const DvtAttentionAttributes record = {.scaling = *scaling_of(node),
                                         .scale = node.attribute_float("scale", 1.0F)};
  Recipe recipe = plain_recipe(node, *kernel, attribute_bytes(record));
  const auto y = node.output_extents(0);
  const auto v = node.input_extents(2);
  // With dynamic shapes the kernel's infer() says how much.
  const uint64_t bytes = y && v && y->size() > 1 && v->size() > 1
                             ? dvt_attention_workspace_bytes(
                                   node.input_dtype(0), (*y)[y->size() - 2], (*v)[v->size() - 2])
                             : 0;
  recipe.workspace_bytes = {bytes};
  return recipe;
}

// Both products; what lies between them is no traffic.
DvtTaskCost cost_attention(const NodeView& node) {
  DvtTaskCost cost = product_cost(node, 0, 1);
  cost.k += static_cast<uint64_t>(node.input_extents(2)->back());
  return cost;
}

// ---- Table --------------------------------------------------------------------------------------

constexpr OperatorDefinition fused(std::string_view name) {
  return {kFusedDomain, name,         1,         INT64_MAX, 2, kVariadic, 1, 1,
          infer_fused,  recipe_fused, cost_fused};
}

OperatorDefinition renamed(const OperatorDefinition& definition) {
  OperatorDefinition copy = definition;
  copy.domain = kFusedDomain;
  copy.since_version = 1;
  copy.until_version = INT64_MAX;
  return copy;
}

}  // namespace

std::optional<int64_t> step_kind(std::string_view name) {
  const auto* at = std::find(kStepNames.begin(), kStepNames.end(), name);
  if (at == kStepNames.end()) return std::nullopt;
  return at - kStepNames.begin();
}

std::span<const OperatorDefinition> fused_operators() {
  // Never destroyed, so that threads may outlive main().
  static const auto* const all = new std::vector<OperatorDefinition>{
      fused("FusedConv"),
      fused("FusedConvTranspose"),
      fused("FusedGemm"),
      fused("FusedMatMul"),
      OperatorDefinition{kFusedDomain, "Attention", 1, INT64_MAX, 3, 4, 1, 1, infer_attention,
                         recipe_attention, cost_attention},
      renamed(standard(activation_operators(), "Gelu")),
      renamed(standard(group_normalisation_operators(), "LayerNormalization"))};
  return *all;
}

}  // namespace davit::ops
