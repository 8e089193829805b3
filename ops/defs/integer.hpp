// integer.hpp: what the operators on 8-bit integers with zero points share.
//
// Threads  Pure functions of their arguments.
// Trust    As ops/definition.hpp: types are the model's; unknown ones pass.
#pragma once

#include <string>

#include "base/dtype.hpp"
#include "ops/defs/common.hpp"

namespace davit::ops {

// Input `index` has to be u8 or i8.
inline Status check_quantised(const NodeView& node, uint32_t index) {
  const DvtDType dtype = node.input_dtype(index);
  if (dtype == DVT_U8 || dtype == DVT_I8 || dtype == DVT_DTYPE_NONE) return {};
  return mismatch(node, "input " + std::to_string(index) + " must be quantised", "u8 or i8",
                  std::string(dtype_name(dtype)));
}

// Zero point `zero`, if there, has the dtype of input `of`.
inline Status check_zero(const NodeView& node, uint32_t of, uint32_t zero) {
  return node.has_input(zero) ? same_dtype(node, of, zero) : Status();
}

// Inputs 0 and 1 with zero points 2 and 3: ConvInteger, MatMulInteger.
inline Status check_integer_operands(const NodeView& node) {
  Status status = check_quantised(node, 0);
  if (status.ok()) status = check_quantised(node, 1);
  if (status.ok()) status = check_zero(node, 0, 2);
  if (status.ok()) status = check_zero(node, 1, 3);
  return status;
}

// Inputs 0 and 3 with zero points 2 and 5, and 7, the output's: QLinearConv, QLinearMatMul.
inline Status check_linear_operands(const NodeView& node) {
  Status status;
  for (const uint32_t index : {0U, 3U, 7U}) {
    if (status.ok()) status = check_quantised(node, index);
  }
  if (status.ok()) status = check_zero(node, 0, 2);
  if (status.ok()) status = check_zero(node, 3, 5);
  return status;
}

}  // namespace davit::ops
