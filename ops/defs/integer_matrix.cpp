// MatMulInteger and QLinearMatMul.
#include "ops/kernels/integer_matrix.h"

#include <array>

#include "base/dtype.hpp"
#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"
#include "ops/defs/matrix.hpp"

namespace davit::ops {
namespace {

// Inputs `index` has to be a quantised matrix, or a type that is not known yet.
Status check_quantised(const NodeView& node, uint32_t index) {
  const DvtDType dtype = node.input_dtype(index);
  if (dtype == DVT_U8 || dtype == DVT_I8 || dtype == DVT_DTYPE_NONE) return {};
  return mismatch(node, "input " + std::to_string(index) + " must be quantised", "u8 or i8",
                  std::string(dtype_name(dtype)));
}

// Zero point `zero`, if there, has the dtype of input `of`.
Status check_zero(const NodeView& node, uint32_t of, uint32_t zero) {
  return node.has_input(zero) ? same_dtype(node, of, zero) : Status();
}

Status infer_integer(const NodeView& node, std::span<InferredOutput> outputs) {
  Status status = check_quantised(node, 0);
  if (status.ok()) status = check_quantised(node, 1);
  if (status.ok()) status = check_zero(node, 0, 2);
  if (status.ok()) status = check_zero(node, 1, 3);
  if (!status.ok()) return status;
  outputs[0].dtype = DVT_I32;
  return infer_product(node, 0, 1, outputs[0].shape);
}

Status infer_linear(const NodeView& node, std::span<InferredOutput> outputs) {
  Status status = all_present(node);
  for (const uint32_t index : {0U, 3U, 7U}) {
    if (status.ok()) status = check_quantised(node, index);
  }
  if (status.ok()) status = check_zero(node, 0, 2);
  if (status.ok()) status = check_zero(node, 3, 5);
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
