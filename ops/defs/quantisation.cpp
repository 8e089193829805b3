// Linear quantisation: QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear.
#include "ops/kernels/quantisation.h"

#include <array>

#include "base/dtype.hpp"
#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"

namespace davit::ops {
namespace {

// Opset 10 has one scale; 13 adds `axis`, 21 `block_size`.
DvtQuantizeAttributes record_of(const NodeView& node) {
  return {.axis = node.opset() >= 13 ? node.attribute_int("axis", 1) : 0,
          .block_size = node.opset() >= 21 ? node.attribute_int("block_size", 0) : 0};
}

bool differ(ir::Dim a, ir::Dim b) {
  return a.is_known() && b.is_known() && !(a == b);
}

// The shape that scale must have for x, with an axis of its own.
Result<ir::Shape> expected_scale(const NodeView& node, const ir::Shape& x) {
  const DvtQuantizeAttributes record = record_of(node);
  auto axis = require_axis(node, record.axis, x.size());
  if (!axis.ok()) return std::move(axis.status());
  const ir::Dim extent = x[static_cast<size_t>(*axis)];
  if (record.block_size == 0) return ir::Shape{extent};
  ir::Shape shape = x;
  shape[static_cast<size_t>(*axis)] =
      extent.is_known() ? ir::Dim(extent.extent() / record.block_size +
                                  (extent.extent() % record.block_size != 0 ? 1 : 0))
                        : ir::Dim();
  return shape;
}

Status check_scale(const NodeView& node) {
  const int64_t block = record_of(node).block_size;
  if (block < 0) {
    return mismatch(node, "attribute block_size is out of range", "0 or more",
                    std::to_string(block));
  }
  const ir::Shape* x = node.input_shape(0);
  const ir::Shape* scale = node.input_shape(1);
  if (x == nullptr || scale == nullptr) return {};
  const bool may_be_one =
      scale->empty() || (scale->size() == 1 && !differ((*scale)[0], ir::Dim(1)));
  if (block == 0 && may_be_one) return {};
  if (node.opset() < 13) {
    return mismatch(node, "scale must be a scalar before opset 13", "[]", shape_text(node, *scale));
  }
  auto expected = expected_scale(node, *x);
  if (!expected.ok()) return std::move(expected.status());
  bool fits = scale->size() == expected->size();
  for (size_t i = 0; fits && i < scale->size(); ++i) fits = !differ((*scale)[i], (*expected)[i]);
  if (fits) return {};
  return mismatch(node, "scale does not fit x", shape_text(node, *expected),
                  shape_text(node, *scale));
}

Status check_quantised(const NodeView& node, DvtDType dtype, const char* what) {
  float low = 0;
  float high = 0;
  if (dtype == DVT_DTYPE_NONE || dvt_quantised_range(dtype, &low, &high)) return {};
  ErrorDetail detail = node.module().error_at(node.id(), DVT_UNSUPPORTED, DVT_STAGE_INFER,
                                              std::string(what) + " has no quantised type");
  detail.expected = "u8, i8, u16 or i16";
  detail.got = dtype_name(dtype);
  return Status(std::move(detail));
}

Status infer_quantize(const NodeView& node, std::span<InferredOutput> outputs) {
  Status status = check_scale(node);
  if (!status.ok()) return status;
  const auto stated = node.opset() >= 21 ? node.attribute_int("output_dtype", 0) : 0;
  if (stated < 0 || stated > UINT8_MAX) {
    return mismatch(node, "attribute output_dtype is no element type", "u8, i8, u16 or i16",
                    std::to_string(stated));
  }
  DvtDType dtype = stated != 0 ? static_cast<DvtDType>(stated) : DvtDType{DVT_U8};
  if (node.has_input(2)) {
    const DvtDType zero = node.input_dtype(2);
    if (stated != 0 && zero != DVT_DTYPE_NONE && zero != dtype) {
      return mismatch(node, "output_dtype and zero_point differ", std::string(dtype_name(dtype)),
                      std::string(dtype_name(zero)));
    }
    dtype = zero;
  }
  status = check_quantised(node, dtype, "the output");
  if (!status.ok()) return status;
  outputs[0].dtype = dtype;
  if (const ir::Shape* shape = node.input_shape(0)) outputs[0].shape = *shape;
  return {};
}

Status infer_dequantize(const NodeView& node, std::span<InferredOutput> outputs) {
  Status status = check_scale(node);
  if (status.ok() && node.has_input(2)) status = same_dtype(node, 0, 2);
  if (!status.ok()) return status;
  outputs[0].dtype = node.input_dtype(1);
  if (const ir::Shape* shape = node.input_shape(0)) outputs[0].shape = *shape;
  return {};
}

Status infer_dynamic(const NodeView& node, std::span<InferredOutput> outputs) {
  static constexpr std::array kTypes = {DvtDType{DVT_U8}, DvtDType{DVT_F32}, DvtDType{DVT_U8}};
  for (size_t i = 0; i < outputs.size(); ++i) {
    outputs[i].dtype = kTypes[i];
    if (i > 0) outputs[i].shape = ir::Shape();
  }
  if (const ir::Shape* shape = node.input_shape(0)) outputs[0].shape = *shape;
  return {};
}

Result<Recipe> recipe_linear(const NodeView& node) {
  auto kernel = require_kernel(node, node.module().op(node.id()), node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  const DvtDType scale = node.input_dtype(1);
  if (scale != DVT_F32 && scale != DVT_F16 && scale != DVT_BF16) {
    return mismatch(node, "scale has a type that Davit does not quantise by", "f32, f16 or bf16",
                    std::string(dtype_name(scale)), DVT_STAGE_LOWER);
  }
  return plain_recipe(node, *kernel, attribute_bytes(record_of(node)));
}

Result<Recipe> recipe_dynamic(const NodeView& node) {
  auto kernel = require_kernel(node, "DynamicQuantizeLinear", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  return plain_recipe(node, *kernel);
}

// In hundredths of a pass: a division, a rounding, an addition and a conversion; a conversion, a
// subtraction and a product; and the range first.
DvtTaskCost cost_quantize(const NodeView& node) {
  return vector_cost(node, element_count(node.input_extents(0)), 800);
}
DvtTaskCost cost_dequantize(const NodeView& node) {
  return vector_cost(node, element_count(node.input_extents(0)), 500);
}
DvtTaskCost cost_dynamic(const NodeView& node) {
  return vector_cost(node, element_count(node.input_extents(0)), 1200);
}

constexpr OperatorDefinition quantize(int64_t since, int64_t until) {
  return {"", "QuantizeLinear", since,         until,        2, 3, 1,
          1,  infer_quantize,   recipe_linear, cost_quantize};
}
constexpr OperatorDefinition dequantize(int64_t since, int64_t until) {
  return {"", "DequantizeLinear", since,         until,          2, 3, 1,
          1,  infer_dequantize,   recipe_linear, cost_dequantize};
}

constexpr std::array kOperators = {
    quantize(10, 12),
    quantize(13, 20),
    quantize(21, INT64_MAX),
    dequantize(10, 12),
    dequantize(13, 20),
    dequantize(21, INT64_MAX),
    OperatorDefinition{"", "DynamicQuantizeLinear", 11, INT64_MAX, 1, 1, 3, 3, infer_dynamic,
                       recipe_dynamic, cost_dynamic},
};

}  // namespace

std::span<const OperatorDefinition> quantisation_operators() {
  return kOperators;
}

}  // namespace davit::ops
