// RandomNormal, RandomUniform and their Like forms, Bernoulli, Multinomial and Dropout.
#include "ops/kernels/random.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>

#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"
#include "ops/defs/scratch.hpp"

namespace davit::ops {
namespace {

// The stated seed; else one of the node's name (FNV-1a), so that compiling again gives the same
// numbers and two nodes different ones.
int64_t seed_of(const NodeView& node) {
  if (node.has_attribute("seed")) {
    // A whole number of Dropout only.
    if (node.module().op(node.id()) == "Dropout") return node.attribute_int("seed", 0);
    return std::bit_cast<int32_t>(node.attribute_float("seed", 0.0F));
  }
  uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : node.module().node_path(node.id())) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  }
  return static_cast<int64_t>(hash);
}

// Attribute dtype, one of `allowed`.
Result<DvtDType> stated_dtype(const NodeView& node, DvtDType fallback,
                              std::initializer_list<DvtDType> allowed) {
  const int64_t stated = node.attribute_int("dtype", fallback);
  if (stated == DVT_DTYPE_NONE || std::ranges::find(allowed, stated) != allowed.end()) {
    return static_cast<DvtDType>(stated);
  }
  return mismatch(node, "attribute dtype is no type that this operator can give",
                  "a type of the standard's list", std::to_string(stated));
}

// ---- Random -----------------------------------------------------------------------------------

bool is_like(const NodeView& node) {
  return node.module().op(node.id()).ends_with("Like");
}

Status infer_random(const NodeView& node, std::span<InferredOutput> outputs) {
  const DvtDType fallback = is_like(node) ? node.input_dtype(0) : DvtDType{DVT_F32};
  auto dtype = stated_dtype(node, fallback, {DVT_F32, DVT_F64, DVT_F16, DVT_BF16});
  if (!dtype.ok()) return std::move(dtype.status());
  outputs[0].dtype = *dtype;
  if (is_like(node)) {
    if (const ir::Shape* like = node.input_shape(0)) outputs[0].shape = *like;
    return {};
  }
  const std::vector<int64_t> dims = node.attribute_ints("shape");
  if (dims.size() > DVT_MAX_RANK) return node.error(DVT_UNSUPPORTED, "more than 8 axes");
  ir::Shape shape;
  for (const int64_t dim : dims) {
    if (dim < 0) {
      return mismatch(node, "attribute shape has a negative extent", "0 or more",
                      std::to_string(dim));
    }
    shape.emplace_back(dim);
  }
  outputs[0].shape = std::move(shape);
  return check_elements(node, *outputs[0].shape);
}

Result<Recipe> recipe_random(const NodeView& node) {
  auto kernel = require_kernel(node, "Random", node.output_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  const bool normal = node.module().op(node.id()).starts_with("RandomNormal");
  DvtRandomAttributes attributes = {
      .seed = seed_of(node),
      .normal = normal ? 1 : 0,
      .low_or_mean = node.attribute_float(normal ? "mean" : "low", 0.0F),
      .high_or_deviation = node.attribute_float(normal ? "scale" : "high", 1.0F),
      .shape = {.count = DVT_LIST_NONE, .values = {}}};
  if (!is_like(node)) {
    auto shape = integer_list(node, node.attribute_ints("shape"), "shape");
    if (!shape.ok()) return std::move(shape.status());
    attributes.shape = *shape;
  }
  return plain_recipe(node, *kernel, attribute_bytes(attributes));
}

// A generator of integers, and a logarithm and a cosine for normal numbers.
DvtTaskCost cost_random(const NodeView& node) {
  return vector_cost(node, element_count(node.output_extents(0)), 2000);
}

// ---- Bernoulli, Multinomial -------------------------------------------------------------------

Status infer_bernoulli(const NodeView& node, std::span<InferredOutput> outputs) {
  auto dtype = stated_dtype(node, node.input_dtype(0),
                            {DVT_F32, DVT_F64, DVT_F16, DVT_BF16, DVT_U8, DVT_U16, DVT_U32, DVT_U64,
                             DVT_I8, DVT_I16, DVT_I32, DVT_I64, DVT_BOOL});
  if (!dtype.ok()) return std::move(dtype.status());
  outputs[0].dtype = *dtype;
  if (const ir::Shape* x = node.input_shape(0)) outputs[0].shape = *x;
  return {};
}

Result<Recipe> recipe_bernoulli(const NodeView& node) {
  const DvtBernoulliAttributes attributes = {.seed = seed_of(node)};
  return plain_recipe(node, find_kernel("Bernoulli"), attribute_bytes(attributes));
}

Status infer_multinomial(const NodeView& node, std::span<InferredOutput> outputs) {
  auto dtype = stated_dtype(node, DVT_I32, {DVT_I32, DVT_I64});
  if (!dtype.ok()) return std::move(dtype.status());
  outputs[0].dtype = *dtype;
  const int64_t samples = node.attribute_int("sample_size", 1);
  if (samples < 1) {
    return mismatch(node, "attribute sample_size is out of range", "at least 1",
                    std::to_string(samples));
  }
  const ir::Shape* x = node.input_shape(0);
  if (x != nullptr && x->size() != 2) {
    return mismatch(node, "the input must have rank 2", "[batch,classes]", shape_text(node, *x));
  }
  outputs[0].shape = ir::Shape{x == nullptr ? ir::Dim() : (*x)[0], ir::Dim(samples)};
  return check_elements(node, *outputs[0].shape);
}

Result<Recipe> recipe_multinomial(const NodeView& node) {
  const DvtMultinomialAttributes attributes = {.seed = seed_of(node),
                                               .samples = node.attribute_int("sample_size", 1)};
  Recipe recipe = plain_recipe(node, find_kernel("Multinomial"), attribute_bytes(attributes));
  if (Status status = add_workspaces(node, recipe); !status.ok()) return status;
  return recipe;
}

// ---- Dropout ----------------------------------------------------------------------------------

Status infer_dropout(const NodeView& node, std::span<InferredOutput> outputs) {
  for (InferredOutput& output : outputs) {
    output.dtype = node.input_dtype(0);
    if (const ir::Shape* x = node.input_shape(0)) output.shape = *x;
  }
  if (outputs.size() > 1 && node.opset() >= 10) outputs[1].dtype = DVT_BOOL;
  return {};
}

// nullopt: the input that says so is not constant.
std::optional<bool> is_training(const NodeView& node) {
  if (node.opset() < 7) return node.attribute_int("is_test", 0) == 0;
  if (node.opset() < 12 || !node.has_input(2)) return false;
  const ir::TensorData* training = node.input_constant(2);
  if (training == nullptr || training->bytes == nullptr || training->bytes->empty()) {
    return std::nullopt;
  }
  return (*training->bytes)[0] != std::byte{0};
}

Result<Recipe> recipe_dropout(const NodeView& node) {
  const std::optional<bool> training = is_training(node);
  if (training && !*training && !node.has_output(1)) return alias_recipe(node);
  auto kernel = require_kernel(node, "Dropout", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  const DvtDropoutAttributes attributes = {
      .seed = seed_of(node),
      .ratio = node.opset() < 12 ? node.attribute_float("ratio", 0.5F) : 0.5F,
      .training = training.value_or(false) ? 1 : 0,
      .outputs = present_outputs(node)};
  Recipe recipe = plain_recipe(node, *kernel, attribute_bytes(attributes));
  if (training && recipe.inputs.size() > 2) recipe.inputs.pop_back();
  return recipe;
}

DvtTaskCost cost_dropout(const NodeView& node) {
  const std::optional<bool> training = is_training(node);
  if (training && !*training && !node.has_output(1)) return no_cost(node);
  return vector_cost(node, element_count(node.input_extents(0)), 1200);
}

constexpr OperatorDefinition random(const char* name, uint32_t inputs) {
  return {"", name, 1, INT64_MAX, inputs, inputs, 1, 1, infer_random, recipe_random, cost_random};
}
constexpr OperatorDefinition dropout(int64_t since, int64_t until, uint32_t inputs) {
  return {"", "Dropout", since,         until,          1,           inputs,
          1,  2,         infer_dropout, recipe_dropout, cost_dropout};
}

constexpr std::array kOperators = {
    random("RandomNormal", 0),
    random("RandomUniform", 0),
    random("RandomNormalLike", 1),
    random("RandomUniformLike", 1),
    OperatorDefinition{"", "Bernoulli", 15, INT64_MAX, 1, 1, 1, 1, infer_bernoulli,
                       recipe_bernoulli, cost_random},
    OperatorDefinition{"", "Multinomial", 7, INT64_MAX, 1, 1, 1, 1, infer_multinomial,
                       recipe_multinomial, cost_random},
    dropout(6, 11, 1),
    dropout(12, INT64_MAX, 3),
};

}  // namespace

std::span<const OperatorDefinition> random_operators() {
  return kOperators;
}

}  // namespace davit::ops
