// ConvInteger and QLinearConv.
#include "ops/kernels/integer_convolution.h"

#include <array>

#include "base/dtype.hpp"
#include "ops/defs/common.hpp"
#include "ops/defs/convolution.hpp"
#include "ops/defs/families.hpp"
#include "ops/defs/integer.hpp"

namespace davit::ops {
namespace {

constexpr ConvInputs kInteger = {.x = 0, .w = 1, .b = ir::kNone};
constexpr ConvInputs kLinear = {.x = 0, .w = 3, .b = 8};

Status infer_integer(const NodeView& node, std::span<InferredOutput> outputs) {
  if (Status status = check_integer_operands(node); !status.ok()) return status;
  outputs[0].dtype = DVT_I32;
  return infer_convolution(node, kInteger, outputs[0].shape);
}

Status infer_linear(const NodeView& node, std::span<InferredOutput> outputs) {
  Status status = check_linear_operands(node);
  if (!status.ok()) return status;
  const DvtDType bias = node.input_dtype(8);
  if (bias != DVT_DTYPE_NONE && bias != DVT_I32) {
    return mismatch(node, "B must be of 32-bit integers", "i32", std::string(dtype_name(bias)));
  }
  outputs[0].dtype = node.input_dtype(7);
  return infer_convolution(node, kLinear, outputs[0].shape);
}

Result<Recipe> recipe_of(const NodeView& node, ConvInputs inputs) {
  auto kernel = require_kernel(node, node.module().op(node.id()), node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  auto record = convolution_record(node, inputs);
  if (!record.ok()) return std::move(record.status());
  return plain_recipe(node, *kernel, attribute_bytes(*record));
}
Result<Recipe> recipe_integer(const NodeView& node) {
  return recipe_of(node, kInteger);
}
Result<Recipe> recipe_linear(const NodeView& node) {
  return recipe_of(node, kLinear);
}

DvtTaskCost cost_integer(const NodeView& node) {
  return convolution_cost(node, kInteger);
}
DvtTaskCost cost_linear(const NodeView& node) {
  return convolution_cost(node, kLinear);
}

constexpr std::array kOperators = {
    OperatorDefinition{"", "ConvInteger", 10, INT64_MAX, 2, 4, 1, 1, infer_integer, recipe_integer,
                       cost_integer},
    OperatorDefinition{"", "QLinearConv", 10, INT64_MAX, 8, 9, 1, 1, infer_linear, recipe_linear,
                       cost_linear},
};

}  // namespace

std::span<const OperatorDefinition> integer_convolution_operators() {
  return kOperators;
}

}  // namespace davit::ops
