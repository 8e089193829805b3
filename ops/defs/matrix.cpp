// MatMul and Gemm.
#include "ops/kernels/matrix.h"

#include <array>
#include <cmath>

#include "base/checked.hpp"
#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"
#include "ops/defs/matrix.hpp"

namespace davit::ops {
namespace {

bool is_integer(DvtDType dtype) {
  return dtype == DVT_I32 || dtype == DVT_I64 || dtype == DVT_U32 || dtype == DVT_U64;
}

Status infer_dtype(const NodeView& node, std::span<InferredOutput> outputs) {
  Status status = same_dtype(node, 0, 1);
  if (!status.ok()) return status;
  const DvtDType dtype = node.input_dtype(0);
  outputs[0].dtype = dtype != DVT_DTYPE_NONE ? dtype : node.input_dtype(1);
  return {};
}

bool differ(ir::Dim a, ir::Dim b) {
  return a.is_known() && b.is_known() && !(a == b);
}

}  // namespace

Status infer_product(const NodeView& node, uint32_t a_index, uint32_t b_index,
                     std::optional<ir::Shape>& shape) {
  const ir::Shape* a = node.input_shape(a_index);
  const ir::Shape* b = node.input_shape(b_index);
  if ((a != nullptr && a->empty()) || (b != nullptr && b->empty())) {
    return node.error(DVT_INVALID_ARGUMENT, "operands must not be scalars");
  }
  if (a == nullptr || b == nullptr) return {};
  const ir::Dim b_rows = b->size() == 1 ? (*b)[0] : (*b)[b->size() - 2];
  if (differ(a->back(), b_rows)) {
    return mismatch(node, "the columns of A and the rows of B must agree", shape_text(node, *a),
                    shape_text(node, *b));
  }
  const auto batch = [](const ir::Shape& operand) {
    return operand.size() > 2 ? ir::Shape(operand.begin(), operand.end() - 2) : ir::Shape();
  };
  shape = broadcast(batch(*a), batch(*b));
  if (!shape) {
    return mismatch(node, "the batch dims of A and B do not broadcast", shape_text(node, *a),
                    shape_text(node, *b));
  }
  if (a->size() > 1) shape->push_back((*a)[a->size() - 2]);
  if (b->size() > 1) shape->push_back(b->back());
  return {};
}

DvtTaskCost product_cost(const NodeView& node, uint32_t a_index, uint32_t b_index) {
  const auto a = *node.input_extents(a_index);
  const auto b = *node.input_extents(b_index);
  DvtTaskCost cost = move_cost(node);  // For its traffic.
  cost.kind = DVT_TASK_MATMUL;
  cost.m = a.size() > 1 ? static_cast<uint64_t>(a[a.size() - 2]) : 1;
  cost.n = b.size() > 1 ? static_cast<uint64_t>(b.back()) : 1;
  cost.k = static_cast<uint64_t>(a.back());
  const uint64_t tile = checked_mul(cost.m, cost.n).value_or(0);
  cost.batch = tile == 0 ? 0 : element_count(node.output_extents(0)) / tile;
  return cost;
}

namespace {

// ---- MatMul -----------------------------------------------------------------------------------

Status infer_matmul(const NodeView& node, std::span<InferredOutput> outputs) {
  Status status = infer_dtype(node, outputs);
  return status.ok() ? infer_product(node, 0, 1, outputs[0].shape) : std::move(status);
}

Result<Recipe> recipe_matmul(const NodeView& node) {
  auto kernel = require_kernel(node, "MatMul", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  Recipe recipe = plain_recipe(node, *kernel);
  if (node.input_dtype(0) == DVT_F32) recipe.workspace_bytes = {dvt_matrix_workspace_bytes()};
  return recipe;
}

// The cube has neither f64 nor wide integers.
DvtTaskCost on_unit(DvtTaskCost cost) {
  if (is_integer(cost.dtype) || cost.dtype == DVT_F64) cost.kind = DVT_TASK_AICPU;
  return cost;
}

DvtTaskCost cost_matmul(const NodeView& node) {
  return on_unit(product_cost(node, 0, 1));
}

// ---- Gemm -------------------------------------------------------------------------------------

// Whether C is an operand that broadcasts numpy's way. Before opset 7 it broadcasts when the
// attribute says so, and otherwise must have the output's shape.
Status check_addend(const NodeView& node, const ir::Shape& y) {
  const ir::Shape* c = node.input_shape(2);
  if (c == nullptr) return {};
  const bool may_broadcast = node.opset() >= 7 || node.attribute_int("broadcast", 0) != 0;
  const auto joined = broadcast(y, *c);
  bool fits = joined && c->size() <= 2 && (may_broadcast || c->size() == y.size());
  for (size_t i = 0; fits && i < y.size(); ++i) {
    fits = !differ((*joined)[i], y[i]);
    if (fits && !may_broadcast) fits = !differ((*c)[i], y[i]);
  }
  if (fits) return {};
  return mismatch(node, "C does not broadcast to the output", shape_text(node, y),
                  shape_text(node, *c));
}

Status infer_gemm(const NodeView& node, std::span<InferredOutput> outputs) {
  Status status = infer_dtype(node, outputs);
  if (status.ok() && node.has_input(2)) status = same_dtype(node, 0, 2);
  if (!status.ok()) return status;
  if (is_integer(outputs[0].dtype)) {
    const float alpha = node.attribute_float("alpha", 1.0F);
    const float beta = node.attribute_float("beta", 1.0F);
    if (std::trunc(alpha) != alpha || std::trunc(beta) != beta) {
      return node.error(DVT_UNSUPPORTED, "alpha and beta of an integer Gemm must be whole numbers");
    }
  }
  const ir::Shape* a = node.input_shape(0);
  const ir::Shape* b = node.input_shape(1);
  for (const ir::Shape* shape : {a, b}) {
    if (shape == nullptr || shape->size() == 2) continue;
    return mismatch(node, "A and B must have rank 2", "rank 2", shape_text(node, *shape));
  }
  if (a == nullptr || b == nullptr) return {};
  const size_t ta = node.attribute_int("transA", 0) != 0 ? 1 : 0;
  const size_t tb = node.attribute_int("transB", 0) != 0 ? 1 : 0;
  if (differ((*a)[1 - ta], (*b)[tb])) {
    return mismatch(node, "A and B do not multiply", shape_text(node, *a), shape_text(node, *b));
  }
  ir::Shape shape = {(*a)[ta], (*b)[1 - tb]};
  status = check_addend(node, shape);
  if (!status.ok()) return status;
  outputs[0].shape = std::move(shape);
  return {};
}

Result<Recipe> recipe_gemm(const NodeView& node) {
  auto kernel = require_kernel(node, "Gemm", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  const DvtGemmAttributes attributes = {
      .alpha = node.attribute_float("alpha", 1.0F),
      .beta = node.attribute_float("beta", 1.0F),
      .transpose_a = node.attribute_int("transA", 0) != 0 ? 1 : 0,
      .transpose_b = node.attribute_int("transB", 0) != 0 ? 1 : 0,
  };
  Recipe recipe = plain_recipe(node, *kernel, attribute_bytes(attributes));
  if (node.input_dtype(0) == DVT_F32) recipe.workspace_bytes = {dvt_matrix_workspace_bytes()};
  return recipe;
}

DvtTaskCost cost_gemm(const NodeView& node) {
  const auto a = *node.input_extents(0);
  const auto y = *node.output_extents(0);
  DvtTaskCost cost = move_cost(node);  // For its traffic.
  cost.kind = DVT_TASK_MATMUL;
  cost.batch = 1;
  cost.m = static_cast<uint64_t>(y[0]);
  cost.n = static_cast<uint64_t>(y[1]);
  cost.k = static_cast<uint64_t>(node.attribute_int("transA", 0) != 0 ? a[0] : a[1]);
  return on_unit(cost);
}

constexpr std::array kOperators = {
    OperatorDefinition{"", "MatMul", 1, 8, 2, 2, 1, 1, infer_matmul, recipe_matmul, cost_matmul},
    OperatorDefinition{"", "MatMul", 9, 12, 2, 2, 1, 1, infer_matmul, recipe_matmul, cost_matmul},
    OperatorDefinition{"", "MatMul", 13, INT64_MAX, 2, 2, 1, 1, infer_matmul, recipe_matmul,
                       cost_matmul},
    OperatorDefinition{"", "Gemm", 6, 6, 3, 3, 1, 1, infer_gemm, recipe_gemm, cost_gemm},
    OperatorDefinition{"", "Gemm", 7, 8, 3, 3, 1, 1, infer_gemm, recipe_gemm, cost_gemm},
    OperatorDefinition{"", "Gemm", 9, 10, 3, 3, 1, 1, infer_gemm, recipe_gemm, cost_gemm},
    OperatorDefinition{"", "Gemm", 11, 12, 2, 3, 1, 1, infer_gemm, recipe_gemm, cost_gemm},
    OperatorDefinition{"", "Gemm", 13, INT64_MAX, 2, 3, 1, 1, infer_gemm, recipe_gemm, cost_gemm},
};

}  // namespace

std::span<const OperatorDefinition> matrix_operators() {
  return kOperators;
}

}  // namespace davit::ops
