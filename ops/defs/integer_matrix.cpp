// MatMulInteger and QLinearMatMul.
#include "ops/kernels/integer_matrix.h"

#include <array>

#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"
#include "ops/defs/integer.hpp"
#include "ops/defs/matrix.hpp"

namespace davit::ops {
namespace {

Status infer_integer(const NodeView& node, std::span<InferredOutput> outputs) {
  if (Status status = check_integer_operands(node); !status.ok()) return status;
  outputs[0].dtype = DVT_I32;
  return infer_product(node, 0, 1, outputs[0].shape);
}

Status infer_linear(const NodeView& node, std::span<InferredOutput> outputs) {
  Status status = all_present(node);
  if (status.ok()) status = check_linear_operands(node);
  if (!status.ok()) return status;
  outputs[0].dtype = node.input_dtype(7);
  return infer_product(node, 0, 3, outputs[0].shape);
}

Result<Recipe> recipe(const NodeView& node) {
  auto kernel = require_kernel(node, node.module().op(node.id()), node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  return plain_recipe(node, *kernel);
}

DvtTaskCost cost_integer(const NodeView& node) {
  return product_cost(node, 0, 1);
}
DvtTaskCost cost_linear(const NodeView& node) {
  return product_cost(node, 0, 3);
}

constexpr std::array kOperators = {
    OperatorDefinition{"", "MatMulInteger", 10, INT64_MAX, 2, 4, 1, 1, infer_integer, recipe,
                       cost_integer},
    OperatorDefinition{"", "QLinearMatMul", 10, 20, 8, 8, 1, 1, infer_linear, recipe, cost_linear},
    OperatorDefinition{"", "QLinearMatMul", 21, INT64_MAX, 8, 8, 1, 1, infer_linear, recipe,
                       cost_linear},
};

}  // namespace

std::span<const OperatorDefinition> integer_matrix_operators() {
  return kOperators;
}

}  // namespace davit::ops
