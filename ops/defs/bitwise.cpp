// BitShift, BitwiseAnd, BitwiseNot, BitwiseOr, BitwiseXor.
#include "ops/kernels/bitwise.h"

#include <array>

#include "base/dtype.hpp"
#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"

namespace davit::ops {
namespace {

bool is_unsigned(DvtDType dtype) {
  return dtype == DVT_U8 || dtype == DVT_U16 || dtype == DVT_U32 || dtype == DVT_U64;
}
bool is_integer(DvtDType dtype) {
  return is_unsigned(dtype) || dtype == DVT_I8 || dtype == DVT_I16 || dtype == DVT_I32 ||
         dtype == DVT_I64;
}

Status infer_integers(const NodeView& node, InferredOutput& output) {
  const bool is_binary = node.input_count() == 2;
  Status status = is_binary ? same_dtype(node, 0, 1) : Status();
  if (!status.ok()) return status;
  const DvtDType first = node.input_dtype(0);
  output.dtype = first != DVT_DTYPE_NONE || !is_binary ? first : node.input_dtype(1);
  if (output.dtype != DVT_DTYPE_NONE && !is_integer(output.dtype)) {
    return mismatch(node, "operands must be integers", "an integer",
                    std::string(dtype_name(output.dtype)));
  }
  const ir::Shape* a = node.input_shape(0);
  if (!is_binary) {
    if (a != nullptr) output.shape = *a;
    return {};
  }
  const ir::Shape* b = node.input_shape(1);
  if (a == nullptr || b == nullptr) return {};
  output.shape = broadcast(*a, *b);
  if (output.shape) return {};
  return mismatch(node, "input 1 does not broadcast to input 0", shape_text(node, *a),
                  shape_text(node, *b));
}

Status infer_bitwise(const NodeView& node, std::span<InferredOutput> outputs) {
  return infer_integers(node, outputs[0]);
}

Status infer_shift(const NodeView& node, std::span<InferredOutput> outputs) {
  const std::string direction = node.attribute_string("direction", "");
  if (direction != "LEFT" && direction != "RIGHT") {
    return mismatch(node, "attribute direction is not known", "LEFT or RIGHT",
                    direction.empty() ? "none" : direction);
  }
  Status status = infer_integers(node, outputs[0]);
  const DvtDType dtype = outputs[0].dtype;
  if (status.ok() && dtype != DVT_DTYPE_NONE && !is_unsigned(dtype)) {
    return mismatch(node, "operands must be unsigned integers", "u8, u16, u32 or u64",
                    std::string(dtype_name(dtype)));
  }
  return status;
}

Result<Recipe> recipe_bitwise(const NodeView& node) {
  return plain_recipe(node, find_kernel(node.module().op(node.id())));
}

Result<Recipe> recipe_shift(const NodeView& node) {
  const bool right = node.attribute_string("direction", "") == "RIGHT";
  return plain_recipe(node, find_kernel("BitShift"),
                      attribute_bytes(DvtBitShiftAttributes{.right = right ? 1 : 0}));
}

// In hundredths of a pass; see elementwise.cpp.
DvtTaskCost cost_binary(const NodeView& node) {
  return vector_cost(node, element_count(node.output_extents(0)), 200);
}
DvtTaskCost cost_unary(const NodeView& node) {
  return vector_cost(node, element_count(node.output_extents(0)), 100);
}

constexpr OperatorDefinition binary(std::string_view name) {
  return {"", name, 18, INT64_MAX, 2, 2, 1, 1, infer_bitwise, recipe_bitwise, cost_binary};
}

constexpr std::array kOperators = {
    OperatorDefinition{"", "BitShift", 11, INT64_MAX, 2, 2, 1, 1, infer_shift, recipe_shift,
                       cost_binary},
    binary("BitwiseAnd"),
    binary("BitwiseOr"),
    binary("BitwiseXor"),
    OperatorDefinition{"", "BitwiseNot", 18, INT64_MAX, 1, 1, 1, 1, infer_bitwise, recipe_bitwise,
                       cost_unary},
};

}  // namespace

std::span<const OperatorDefinition> bitwise_operators() {
  return kOperators;
}

}  // namespace davit::ops
