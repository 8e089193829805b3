#include "ir/passes/pointwise.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "ir/passes/rewrite.hpp"

namespace davit::passes {
namespace {

using ir::kNoValue;
using ir::NodeId;
using ir::ValueId;

// Sorted.
constexpr std::array<std::string_view, 44> kOfOne = {
    "Abs",         "Acos",       "Acosh",    "Asin",
    "Asinh",       "Atan",       "Atanh",    "BitwiseNot",
    "Cast",        "CastLike",   "Ceil",     "Celu",
    "Clip",        "Cos",        "Cosh",     "Elu",
    "Erf",         "Exp",        "Floor",    "Gelu",
    "HardSigmoid", "HardSwish",  "IsInf",    "IsNaN",
    "LeakyRelu",   "Log",        "Mish",     "Neg",
    "Not",         "Reciprocal", "Relu",     "Round",
    "Selu",        "Shrink",     "Sigmoid",  "Sign",
    "Sin",         "Sinh",       "Softplus", "Softsign",
    "Sqrt",        "Tan",        "Tanh",     "ThresholdedRelu"};
constexpr std::array<std::string_view, 22> kOfSeveral = {
    "Add",       "And",         "BitwiseAnd",
    "BitwiseOr", "BitwiseXor",  "Div",
    "Equal",     "Greater",     "GreaterOrEqual",
    "Less",      "LessOrEqual", "Max",
    "Mean",      "Min",         "Mod",
    "Mul",       "Or",          "Pow",
    "Sub",       "Sum",         "Where",
    "Xor"};
static_assert(std::is_sorted(kOfOne.begin(), kOfOne.end()));
static_assert(std::is_sorted(kOfSeveral.begin(), kOfSeveral.end()));

bool is_unit_constant(const ir::Module& module, ValueId value) {
  const ir::TensorData* data = module.constant(value);
  return data != nullptr && data->element_count() == 1;
}

}  // namespace

bool is_pointwise(const ir::Module& module, NodeId node) {
  const std::string_view op = module.op(node);
  if (!is_op(module, node, op) || module.outputs(node).size() != 1 ||
      module.outputs(node)[0] == kNoValue || operand(module, node, 0) == kNoValue) {
    return false;
  }
  if (std::binary_search(kOfOne.begin(), kOfOne.end(), op)) return true;
  // Before opset 7 (8 for some) attributes say how operands broadcast, if they do.
  return std::binary_search(kOfSeveral.begin(), kOfSeveral.end(), op) &&
         module.opset_version(node) >= 8;
}

bool is_pointwise_of_one(const ir::Module& module, NodeId node) {
  if (!is_pointwise(module, node)) return false;
  ValueId tensor = kNoValue;
  for (const ValueId value : module.inputs(node)) {
    if (value == kNoValue || value == tensor || is_unit_constant(module, value)) continue;
    if (tensor != kNoValue) return false;
    tensor = value;
  }
  return tensor != kNoValue;
}

bool has_unit_operands_up_to(const ir::Module& module, NodeId node, const ir::Shape* shape) {
  const auto inputs = module.inputs(node);
  return shape != nullptr && std::all_of(inputs.begin(), inputs.end(), [&](ValueId value) {
           return value == kNoValue || !is_unit_constant(module, value) ||
                  module.constant(value)->dims.size() <= shape->size();
         });
}

void replace_operand(ir::Module& module, NodeId node, ValueId from, ValueId to) {
  for (uint32_t i = 0; i < module.inputs(node).size(); ++i) {
    if (module.inputs(node)[i] == from) module.set_input(node, i, to);
  }
}

std::vector<int64_t> permutation_of(const ir::Module& module, NodeId transpose, size_t rank) {
  const ir::AttributeValue* perm = module.attribute(transpose, "perm");
  if (const auto* axes = perm == nullptr ? nullptr : std::get_if<std::vector<int64_t>>(perm)) {
    return *axes;
  }
  std::vector<int64_t> reversed;
  for (size_t axis = rank; axis-- > 0;) reversed.push_back(int64_t(axis));
  return reversed;
}

std::vector<int64_t> inverse(const std::vector<int64_t>& permutation) {
  std::vector<int64_t> out(permutation.size());
  for (size_t i = 0; i < permutation.size(); ++i) out[size_t(permutation[i])] = int64_t(i);
  return out;
}

bool is_identity(const std::vector<int64_t>& permutation) {
  return std::is_sorted(permutation.begin(), permutation.end());
}

ir::TensorData permuted_data(const ir::TensorData& data, const std::vector<int64_t>& permutation) {
  std::vector<int64_t> dims(permutation.size() - data.dims.size(), 1);
  dims.insert(dims.end(), data.dims.begin(), data.dims.end());
  std::vector<uint64_t> strides(dims.size(), 1);
  for (size_t axis = dims.size(); axis-- > 1;) {
    strides[axis - 1] = strides[axis] * uint64_t(dims[axis]);
  }
  const std::vector<int64_t> new_dims = permuted(dims, permutation);
  const std::vector<uint64_t> steps = permuted(strides, permutation);
  const size_t size = dvt_dtype_size(data.dtype);
  std::vector<std::byte> bytes(data.bytes->size());
  std::vector<int64_t> index(dims.size(), 0);
  uint64_t from = 0;
  for (size_t to = 0; to < bytes.size(); to += size) {
    std::memcpy(bytes.data() + to, data.bytes->data() + from * size, size);
    for (size_t axis = dims.size(); axis-- > 0;) {
      from += steps[axis];
      if (++index[axis] < new_dims[axis]) break;
      from -= steps[axis] * uint64_t(new_dims[axis]);
      index[axis] = 0;
    }
  }
  return ir::make_tensor(data.dtype, new_dims, std::move(bytes));
}

}  // namespace davit::passes
