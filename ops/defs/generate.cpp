// EyeLike: tensors made by a rule.
#include "ops/kernels/generate.h"

#include <array>

#include "base/dtype.hpp"
#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"
#include "ops/kernels/convert.h"

namespace davit::ops {
namespace {

Status infer_eye(const NodeView& node, std::span<InferredOutput> outputs) {
  const int64_t dtype = node.attribute_int("dtype", node.input_dtype(0));
  if (node.has_attribute("dtype") &&
      (dtype <= 0 || dtype > UINT8_MAX || !is_number(static_cast<DvtDType>(dtype)))) {
    return mismatch(node, "attribute dtype is not a type of numbers", "a number or bool",
                    std::to_string(dtype));
  }
  outputs[0].dtype = static_cast<DvtDType>(dtype);
  const ir::Shape* shape = node.input_shape(0);
  if (shape != nullptr && shape->size() != 2) {
    return mismatch(node, "the input must be a matrix", "rank 2", shape_text(node, *shape));
  }
  outputs[0].shape = shape != nullptr ? *shape : ir::Shape(2);
  return {};
}

Result<Recipe> recipe_eye(const NodeView& node) {
  DvtEyeAttributes record{.k = node.attribute_int("k", 0), .bits = 0};
  const double one = 1.0;
  const DvtConvertLoop convert = dvt_narrow_loop(DVT_F64, node.output_dtype(0));
  if (convert == nullptr) {
    return node.error(DVT_UNSUPPORTED, "no kernel for this element type", DVT_STAGE_LOWER);
  }
  convert(&one, &record.bits, 1);
  return plain_recipe(node, find_kernel("EyeLike"), attribute_bytes(record));
}

DvtTaskCost cost_made(const NodeView& node) {
  DvtTaskCost cost = move_cost(node);
  cost.read_bytes = 0;
  return cost;
}

constexpr std::array kOperators = {
    OperatorDefinition{"", "EyeLike", 9, INT64_MAX, 1, 1, 1, 1, infer_eye, recipe_eye, cost_made},
};

}  // namespace

std::span<const OperatorDefinition> generate_operators() {
  return kOperators;
}

}  // namespace davit::ops
