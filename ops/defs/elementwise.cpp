// Pointwise operators. ONNX widened their element types over the versions and changed how they
// broadcast: opsets before 7 (8 for Min, Max, Sum, Mean) have the attributes `broadcast` and
// `axis`, or no broadcasting at all. A definition takes the widest set of element types of any
// version, because a valid model of an older version never uses the others.
#include "ops/kernels/elementwise.h"

#include <algorithm>
#include <array>
#include <cfloat>

#include "base/dtype.hpp"
#include "ir/foreign_types.hpp"
#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"

namespace davit::ops {
namespace {

constexpr int64_t kCurrent = INT64_MAX;
constexpr uint32_t kVariadic = UINT32_MAX;

std::string_view op_name(const NodeView& node) {
  return node.module().op(node.id());
}

// ---- Inference --------------------------------------------------------------------------------

Status infer_same(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
  if (const ir::Shape* shape = node.input_shape(0)) outputs[0].shape = *shape;
  return {};
}

Status infer_predicate(const NodeView& node, std::span<InferredOutput> outputs) {
  Status status = infer_same(node, outputs);
  outputs[0].dtype = DVT_BOOL;
  return status;
}

// The broadcast shape of inputs [0, count), left unset while any rank is unknown.
Status infer_broadcast(const NodeView& node, uint32_t count, InferredOutput& output) {
  std::optional<ir::Shape> shape;
  for (uint32_t i = 0; i < count; ++i) {
    const ir::Shape* input = node.input_shape(i);
    if (input == nullptr) return {};
    if (!shape) {
      shape = *input;
      continue;
    }
    auto joined = broadcast(*shape, *input);
    if (!joined) {
      return mismatch(node, "input " + std::to_string(i) + " does not broadcast to the others",
                      shape_text(node, *shape), shape_text(node, *input));
    }
    shape = std::move(joined);
  }
  output.shape = std::move(shape);
  return {};
}

Status infer_binary(const NodeView& node, std::span<InferredOutput> outputs) {
  Status status = same_dtype(node, 0, 1);
  if (!status.ok()) return status;
  const DvtDType first = node.input_dtype(0);
  outputs[0].dtype = first != DVT_DTYPE_NONE ? first : node.input_dtype(1);
  return infer_broadcast(node, 2, outputs[0]);
}

Status infer_comparison(const NodeView& node, std::span<InferredOutput> outputs) {
  Status status = infer_binary(node, outputs);
  outputs[0].dtype = DVT_BOOL;
  return status;
}

// Where input 1's first axis lies in input 0 (opset 6), or -1 for the last axes.
int64_t placed_axis(const NodeView& node) {
  if (node.attribute_int("broadcast", 0) == 0 || !node.has_attribute("axis")) return -1;
  const ir::Shape* shape = node.input_shape(0);
  const int64_t axis = node.attribute_int("axis", -1);
  const int64_t rank = shape == nullptr ? 0 : static_cast<int64_t>(shape->size());
  return axis < 0 ? axis + rank : axis;
}

// Opset 6: input 1 is as large as input 0, or a contiguous part of its axes under `broadcast`.
Status check_placed_shape(const NodeView& node) {
  const ir::Shape* a = node.input_shape(0);
  const ir::Shape* b = node.input_shape(1);
  if (a == nullptr || b == nullptr) return {};
  const bool broadcasts = node.attribute_int("broadcast", 0) != 0;
  const auto rank_a = static_cast<int64_t>(a->size());
  const auto rank_b = static_cast<int64_t>(b->size());
  const int64_t axis = placed_axis(node);
  const int64_t first = axis < 0 ? rank_a - rank_b : axis;
  const bool explicit_axis_ok = axis >= 0 || !broadcasts || !node.has_attribute("axis");
  bool fits = explicit_axis_ok && first >= 0 && first + rank_b <= rank_a &&
              (broadcasts || rank_a == rank_b);
  for (int64_t i = 0; fits && i < rank_b; ++i) {
    const ir::Dim x = (*a)[static_cast<size_t>(first + i)];
    const ir::Dim y = (*b)[static_cast<size_t>(i)];
    if (!x.is_known() || !y.is_known()) continue;
    fits = x.extent() == y.extent() || (broadcasts && y.extent() == 1);
  }
  if (fits) return {};
  return mismatch(
      node,
      "input 1 does not fit input 0 under broadcast=" + std::to_string(broadcasts) +
          (node.has_attribute("axis") ? ", axis=" + std::to_string(node.attribute_int("axis", -1))
                                      : std::string()),
      shape_text(node, *a), shape_text(node, *b));
}

Status infer_binary_6(const NodeView& node, std::span<InferredOutput> outputs) {
  Status status = same_dtype(node, 0, 1);
  if (status.ok()) status = check_placed_shape(node);
  if (!status.ok()) return status;
  return infer_same(node, outputs);
}

Status infer_comparison_6(const NodeView& node, std::span<InferredOutput> outputs) {
  Status status = infer_binary_6(node, outputs);
  outputs[0].dtype = DVT_BOOL;
  return status;
}

// Opset 12 lets the exponent have a type of its own.
Status infer_pow(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
  return infer_broadcast(node, 2, outputs[0]);
}

Status infer_mod(const NodeView& node, std::span<InferredOutput> outputs) {
  Status status = infer_binary(node, outputs);
  const DvtDType dtype = outputs[0].dtype;
  const bool is_float =
      dtype == DVT_F32 || dtype == DVT_F64 || dtype == DVT_F16 || dtype == DVT_BF16;
  if (status.ok() && is_float && node.attribute_int("fmod", 0) == 0) {
    return mismatch(node, "attribute fmod must be set for floats", "1", "0");
  }
  return status;
}

Status infer_prelu(const NodeView& node, std::span<InferredOutput> outputs) {
  Status status = infer_binary(node, outputs);
  if (status.ok()) status = infer_same(node, outputs);
  return status;
}

// Opset 6: the slope has one element, or one per channel (axis 1).
Status infer_prelu_6(const NodeView& node, std::span<InferredOutput> outputs) {
  Status status = same_dtype(node, 0, 1);
  if (!status.ok()) return status;
  const ir::Shape* slope = node.input_shape(1);
  const ir::Shape* shape = node.input_shape(0);
  if (slope != nullptr && shape != nullptr && slope->size() == 1 && (*slope)[0].is_known() &&
      (*slope)[0].extent() != 1) {
    const bool fits = shape->size() > 1 && (!(*shape)[1].is_known() || (*shape)[1] == (*slope)[0]);
    if (!fits) {
      return mismatch(node, "the slope must have one element per channel", shape_text(node, *shape),
                      shape_text(node, *slope));
    }
  }
  return infer_same(node, outputs);
}

Status infer_variadic(const NodeView& node, std::span<InferredOutput> outputs) {
  Status present = all_present(node);
  if (!present.ok()) return present;
  for (uint32_t i = 1; i < node.input_count(); ++i) {
    Status status = same_dtype(node, 0, i);
    if (!status.ok()) return status;
  }
  outputs[0].dtype = node.input_dtype(0);
  return infer_broadcast(node, node.input_count(), outputs[0]);
}

Status infer_variadic_6(const NodeView& node, std::span<InferredOutput> outputs) {
  const ir::Shape* first = node.input_shape(0);
  for (uint32_t i = 1; i < node.input_count(); ++i) {
    const ir::Shape* other = node.input_shape(i);
    if (first == nullptr || other == nullptr) continue;
    const auto a = ir::static_extents(*first);
    const auto b = ir::static_extents(*other);
    if (first->size() != other->size() || (a && b && *a != *b)) {
      return mismatch(node, "all inputs must have one shape before opset 8",
                      shape_text(node, *first), shape_text(node, *other));
    }
  }
  return infer_variadic(node, outputs);
}

Status infer_clip(const NodeView& node, std::span<InferredOutput> outputs) {
  for (uint32_t i = 1; i < node.input_count(); ++i) {
    Status status = same_dtype(node, 0, i);
    if (!status.ok()) return status;
    const auto extents = node.input_extents(i);
    if (extents && element_count(extents) != 1) {
      return mismatch(node, i == 1 ? "min must be a scalar" : "max must be a scalar", "[]",
                      shape_text(node, *node.input_shape(i)));
    }
  }
  return infer_same(node, outputs);
}

Status infer_where(const NodeView& node, std::span<InferredOutput> outputs) {
  Status status = same_dtype(node, 1, 2);
  if (!status.ok()) return status;
  const DvtDType condition = node.input_dtype(0);
  if (condition != DVT_BOOL && condition != DVT_DTYPE_NONE) {
    return mismatch(node, "the condition must be boolean", "bool",
                    std::string(dtype_name(condition)));
  }
  const DvtDType yes = node.input_dtype(1);
  outputs[0].dtype = yes != DVT_DTYPE_NONE ? yes : node.input_dtype(2);
  return infer_broadcast(node, 3, outputs[0]);
}

Status infer_cast(const NodeView& node, std::span<InferredOutput> outputs) {
  const int64_t to = node.attribute_int("to", 0);
  if (to <= 0 || to > UINT8_MAX || dvt_dtype_size(static_cast<DvtDType>(to)) == 0) {
    ErrorDetail detail = node.module().error_at(node.id(), DVT_UNSUPPORTED, DVT_STAGE_INFER,
                                                "attribute `to` is not an element type that "
                                                "Davit can cast to");
    detail.expected = "a number, bool, string, f16 or bf16";
    const char* name = ir::foreign_type_name(to);
    detail.got = name != nullptr ? std::string(name) : std::to_string(to);
    return Status(std::move(detail));
  }
  Status status = infer_same(node, outputs);
  outputs[0].dtype = static_cast<DvtDType>(to);
  return status;
}

Status infer_cast_like(const NodeView& node, std::span<InferredOutput> outputs) {
  Status status = infer_same(node, outputs);
  outputs[0].dtype = node.input_dtype(1);
  return status;
}

// ---- Recipes ----------------------------------------------------------------------------------

Result<Recipe> kernel_recipe(const NodeView& node, std::string_view base,
                             std::vector<std::byte> attributes) {
  auto kernel = require_kernel(node, base, node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  return plain_recipe(node, *kernel, std::move(attributes));
}

Result<Recipe> recipe_plain(const NodeView& node) {
  return kernel_recipe(node, op_name(node), {});
}

Result<Recipe> recipe_binary(const NodeView& node) {
  return kernel_recipe(node, op_name(node), attribute_bytes(DvtBinaryAttributes{.axis = -1}));
}

Result<Recipe> recipe_binary_6(const NodeView& node) {
  if (node.attribute_int("axis", 0) < 0) {
    auto rank = require_rank(node, 0);
    if (!rank.ok()) return std::move(rank.status());
  }
  return kernel_recipe(node, op_name(node),
                       attribute_bytes(DvtBinaryAttributes{.axis = placed_axis(node)}));
}

Result<Recipe> recipe_mod(const NodeView& node) {
  return kernel_recipe(node, node.attribute_int("fmod", 0) != 0 ? "FMod" : "Mod",
                       attribute_bytes(DvtBinaryAttributes{.axis = -1}));
}

Result<Recipe> recipe_prelu_6(const NodeView& node) {
  auto rank = require_rank(node, 0);
  if (!rank.ok()) return std::move(rank.status());
  auto slope_rank = require_rank(node, 1);
  if (!slope_rank.ok()) return std::move(slope_rank.status());
  const bool per_channel = *slope_rank == 1 && *rank > 1;
  return kernel_recipe(node, "PRelu",
                       attribute_bytes(DvtBinaryAttributes{.axis = per_channel ? 1 : -1}));
}

Result<Recipe> recipe_activation(const NodeView& node) {
  struct Defaults {
    std::string_view op, beta_name;
    float alpha, beta;
  };
  static constexpr std::array kDefaults = {
      Defaults{"HardSigmoid", "beta", 0.2F, 0.5F},
      Defaults{"LeakyRelu", "", 0.01F, 0.0F},
      Defaults{"Elu", "", 1.0F, 0.0F},
      Defaults{"Selu", "gamma", 1.67326319217681884765625F, 1.05070102214813232421875F},
  };
  DvtActivationAttributes record{};
  for (const Defaults& defaults : kDefaults) {
    if (defaults.op != op_name(node)) continue;
    record.alpha = node.attribute_float("alpha", defaults.alpha);
    record.beta = node.attribute_float(defaults.beta_name, defaults.beta);
  }
  return kernel_recipe(node, op_name(node), attribute_bytes(record));
}

Result<Recipe> recipe_is_inf(const NodeView& node) {
  return kernel_recipe(node, "IsInf",
                       attribute_bytes(DvtIsInfAttributes{
                           .detect_negative = node.attribute_int("detect_negative", 1),
                           .detect_positive = node.attribute_int("detect_positive", 1)}));
}

// The standard's default bounds: the type's lowest and highest finite values. Integers saturate.
DvtClipAttributes default_bounds(DvtDType dtype) {
  double limit = DBL_MAX;
  if (dtype == DVT_F32) limit = FLT_MAX;
  if (dtype == DVT_F16) limit = 65504.0;
  if (dtype == DVT_BF16) limit = 0x1.FEp127;
  return {.min = -limit, .max = limit};
}

Result<Recipe> recipe_clip_6(const NodeView& node) {
  DvtClipAttributes record = default_bounds(node.input_dtype(0));
  if (node.has_attribute("min")) record.min = node.attribute_float("min", 0);
  if (node.has_attribute("max")) record.max = node.attribute_float("max", 0);
  return kernel_recipe(node, "Clip", attribute_bytes(record));
}

Result<Recipe> recipe_clip(const NodeView& node) {
  return kernel_recipe(node, "Clip", attribute_bytes(default_bounds(node.input_dtype(0))));
}

Result<Recipe> recipe_where(const NodeView& node) {
  return plain_recipe(node, find_kernel("Where"));
}

// A cast to the own type is a view.
Result<Recipe> recipe_cast(const NodeView& node) {
  if (node.input_dtype(0) == node.output_dtype(0)) return alias_recipe(node);
  if (dvt_dtype_size(node.input_dtype(0)) == 0 || dvt_dtype_size(node.output_dtype(0)) == 0) {
    return node.error(DVT_UNSUPPORTED,
                      "cannot cast " + std::string(dtype_name(node.input_dtype(0))) + " to " +
                          std::string(dtype_name(node.output_dtype(0))),
                      DVT_STAGE_LOWER);
  }
  const std::string_view kernel = node.input_dtype(0) == DVT_STRING    ? "CastFromString"
                                  : node.output_dtype(0) == DVT_STRING ? "CastToString"
                                                                       : "Cast";
  Recipe recipe = plain_recipe(node, find_kernel(kernel));
  recipe.inputs.resize(1);  // CastLike's second input only names a type.
  return recipe;
}

// ---- Cost -------------------------------------------------------------------------------------

// Passes over the vector unit in hundredths: one-source instructions take 1 cycle a repeat,
// two-source ones 2; f32 exp, ln and sqrt 2 and div 4; f16 all of these 4. Compound operators add
// up the instructions of their usual kernels.
struct Passes {
  std::string_view op;
  uint32_t f32, f16;
};
constexpr std::array kPasses = {
    Passes{"Abs", 100, 100},
    Passes{"Acos", 1200, 1600},
    Passes{"Acosh", 900, 1300},
    Passes{"Add", 200, 200},
    Passes{"And", 200, 200},
    Passes{"Asin", 1200, 1600},
    Passes{"Asinh", 900, 1300},
    Passes{"Atan", 1400, 1600},
    Passes{"Atanh", 900, 1300},
    Passes{"Cast", 100, 100},
    Passes{"CastLike", 100, 100},
    Passes{"Ceil", 100, 100},
    Passes{"Clip", 200, 200},
    Passes{"Cos", 1200, 1200},
    Passes{"Cosh", 700, 1100},
    Passes{"Div", 400, 400},
    Passes{"Elu", 600, 800},
    Passes{"Equal", 200, 200},
    Passes{"Erf", 2000, 2200},
    Passes{"Exp", 200, 400},
    Passes{"Floor", 100, 100},
    Passes{"Greater", 200, 200},
    Passes{"GreaterOrEqual", 200, 200},
    Passes{"HardSigmoid", 400, 400},
    Passes{"HardSwish", 600, 600},
    Passes{"IsInf", 200, 200},
    Passes{"IsNaN", 200, 200},
    Passes{"LeakyRelu", 300, 300},
    Passes{"Less", 200, 200},
    Passes{"LessOrEqual", 200, 200},
    Passes{"Log", 200, 400},
    Passes{"Max", 200, 200},
    Passes{"Mean", 200, 200},
    Passes{"Min", 200, 200},
    Passes{"Mod", 900, 900},
    Passes{"Mul", 200, 200},
    Passes{"Neg", 100, 100},
    Passes{"Not", 100, 100},
    Passes{"Or", 200, 200},
    Passes{"PRelu", 600, 600},
    Passes{"Pow", 600, 1000},
    Passes{"Reciprocal", 100, 100},
    Passes{"Relu", 100, 100},
    Passes{"Round", 100, 100},
    Passes{"Selu", 700, 900},
    Passes{"Sigmoid", 500, 700},
    Passes{"Sign", 400, 400},
    Passes{"Sin", 1200, 1200},
    Passes{"Sinh", 700, 1100},
    Passes{"Softplus", 700, 1100},
    Passes{"Softsign", 600, 600},
    Passes{"Sqrt", 200, 400},
    Passes{"Sub", 200, 200},
    Passes{"Sum", 200, 200},
    Passes{"Tan", 2800, 2800},
    Passes{"Tanh", 800, 1000},
    Passes{"Where", 200, 200},
    Passes{"Xor", 400, 400},
};

DvtTaskCost cost_pointwise(const NodeView& node) {
  const auto* at = std::lower_bound(kPasses.begin(), kPasses.end(), op_name(node),
                                    [](const Passes& p, std::string_view op) { return p.op < op; });
  if (at == kPasses.end() || at->op != op_name(node)) return vector_cost(node, 0, 0);
  const bool is_half = dvt_dtype_size(node.input_dtype(0)) == 2;
  uint64_t passes = is_half ? at->f16 : at->f32;
  // Variadic operators do one step per further input.
  if (node.input_count() > 2 && op_name(node) != "Where" && op_name(node) != "Clip") {
    passes *= node.input_count() - 1;
  }
  return vector_cost(node, element_count(node.output_extents(0)), passes);
}

// ---- Table ------------------------------------------------------------------------------------

using Infer = Status (*)(const NodeView&, std::span<InferredOutput>);
using MakeRecipe = Result<Recipe> (*)(const NodeView&);

constexpr OperatorDefinition define(std::string_view name, int64_t since, int64_t until,
                                    uint32_t input_min, uint32_t input_max, Infer infer,
                                    MakeRecipe recipe) {
  return {"", name, since, until, input_min, input_max, 1, 1, infer, recipe, cost_pointwise};
}
constexpr OperatorDefinition unary(std::string_view name, int64_t since) {
  return define(name, since, kCurrent, 1, 1, infer_same, recipe_plain);
}
constexpr OperatorDefinition activation(std::string_view name) {
  return define(name, 6, kCurrent, 1, 1, infer_same, recipe_activation);
}
constexpr OperatorDefinition binary(std::string_view name) {
  return define(name, 7, kCurrent, 2, 2, infer_binary, recipe_binary);
}
constexpr OperatorDefinition binary_6(std::string_view name, int64_t since) {
  return define(name, since, 6, 2, 2, infer_binary_6, recipe_binary_6);
}
constexpr OperatorDefinition comparison(std::string_view name, int64_t since) {
  return define(name, since, kCurrent, 2, 2, infer_comparison, recipe_binary);
}
constexpr OperatorDefinition comparison_6(std::string_view name) {
  return define(name, 1, 6, 2, 2, infer_comparison_6, recipe_binary_6);
}
constexpr OperatorDefinition variadic(std::string_view name) {
  return define(name, 8, kCurrent, 1, kVariadic, infer_variadic, recipe_plain);
}
constexpr OperatorDefinition variadic_6(std::string_view name) {
  return define(name, 6, 7, 1, kVariadic, infer_variadic_6, recipe_plain);
}

constexpr std::array kOperators = {
    binary_6("Add", 6),
    binary("Add"),
    binary_6("Sub", 6),
    binary("Sub"),
    binary_6("Mul", 6),
    binary("Mul"),
    binary_6("Div", 6),
    binary("Div"),
    binary_6("And", 1),
    binary("And"),
    binary_6("Or", 1),
    binary("Or"),
    binary_6("Xor", 1),
    binary("Xor"),
    binary_6("Pow", 1),
    define("Pow", 7, 11, 2, 2, infer_binary, recipe_binary),
    define("Pow", 12, kCurrent, 2, 2, infer_pow, recipe_binary),
    comparison_6("Equal"),
    comparison("Equal", 7),
    comparison_6("Greater"),
    comparison("Greater", 7),
    comparison_6("Less"),
    comparison("Less", 7),
    comparison("GreaterOrEqual", 12),
    comparison("LessOrEqual", 12),
    variadic_6("Min"),
    variadic("Min"),
    variadic_6("Max"),
    variadic("Max"),
    variadic_6("Sum"),
    variadic("Sum"),
    variadic_6("Mean"),
    variadic("Mean"),
    define("Mod", 10, kCurrent, 2, 2, infer_mod, recipe_mod),
    define("PRelu", 6, 6, 2, 2, infer_prelu_6, recipe_prelu_6),
    define("PRelu", 7, kCurrent, 2, 2, infer_prelu, recipe_binary),
    define("Clip", 6, 10, 1, 1, infer_clip, recipe_clip_6),
    define("Clip", 11, kCurrent, 1, 3, infer_clip, recipe_clip),
    define("Cast", 6, kCurrent, 1, 1, infer_cast, recipe_cast),
    define("CastLike", 15, kCurrent, 2, 2, infer_cast_like, recipe_cast),
    define("Where", 9, kCurrent, 3, 3, infer_where, recipe_where),
    define("IsNaN", 9, kCurrent, 1, 1, infer_predicate, recipe_plain),
    define("IsInf", 10, kCurrent, 1, 1, infer_predicate, recipe_is_inf),
    activation("HardSigmoid"),
    activation("LeakyRelu"),
    activation("Elu"),
    activation("Selu"),
    unary("Relu", 6),
    unary("Sigmoid", 6),
    unary("Sqrt", 6),
    unary("Exp", 6),
    unary("Log", 6),
    unary("Tanh", 6),
    unary("Neg", 6),
    unary("Abs", 6),
    unary("Floor", 6),
    unary("Ceil", 6),
    unary("Reciprocal", 6),
    unary("Softplus", 1),
    unary("Softsign", 1),
    unary("Not", 1),
    unary("Sin", 7),
    unary("Cos", 7),
    unary("Tan", 7),
    unary("Asin", 7),
    unary("Acos", 7),
    unary("Atan", 7),
    unary("Sinh", 9),
    unary("Cosh", 9),
    unary("Asinh", 9),
    unary("Acosh", 9),
    unary("Atanh", 9),
    unary("Erf", 9),
    unary("Sign", 9),
    unary("Round", 11),
    unary("HardSwish", 14),
};

}  // namespace

std::span<const OperatorDefinition> elementwise_operators() {
  return kOperators;
}

}  // namespace davit::ops
