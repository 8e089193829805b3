#include "tests/ops/values.hpp"

#include <algorithm>
#include <cmath>

#include "ops/kernels/common.h"

namespace davit::test {
namespace {

template <class T>
void put(void* data, int64_t index, double value) {
  static_cast<T*>(data)[index] = static_cast<T>(value);
}
template <class T>
double get(const void* data, int64_t index) {
  return static_cast<double>(static_cast<const T*>(data)[index]);
}

double read_element(DvtDType dtype, const void* data, int64_t index) {
  switch (dtype) {
    case DVT_F32:
      return get<float>(data, index);
    case DVT_F64:
      return get<double>(data, index);
    case DVT_F16:
      return dvt_f32_from_f16(static_cast<const uint16_t*>(data)[index]);
    case DVT_BF16:
      return dvt_f32_from_bf16(static_cast<const uint16_t*>(data)[index]);
    case DVT_I8:
      return get<int8_t>(data, index);
    case DVT_I16:
      return get<int16_t>(data, index);
    case DVT_U16:
      return get<uint16_t>(data, index);
    case DVT_I32:
      return get<int32_t>(data, index);
    case DVT_U32:
      return get<uint32_t>(data, index);
    case DVT_I64:
      return get<int64_t>(data, index);
    case DVT_U64:
      return get<uint64_t>(data, index);
    default:
      return get<uint8_t>(data, index);
  }
}

void write_element(DvtDType dtype, void* data, int64_t index, double value) {
  switch (dtype) {
    case DVT_F32:
      return put<float>(data, index, value);
    case DVT_F64:
      return put<double>(data, index, value);
    case DVT_F16:
      static_cast<uint16_t*>(data)[index] = dvt_f16_from_f32(static_cast<float>(value));
      return;
    case DVT_BF16:
      static_cast<uint16_t*>(data)[index] = dvt_bf16_from_f32(static_cast<float>(value));
      return;
    case DVT_I8:
      return put<int8_t>(data, index, value);
    case DVT_I16:
      return put<int16_t>(data, index, value);
    case DVT_U16:
      return put<uint16_t>(data, index, value);
    case DVT_I32:
      return put<int32_t>(data, index, value);
    case DVT_U32:
      return put<uint32_t>(data, index, value);
    case DVT_I64:
      return put<int64_t>(data, index, value);
    case DVT_U64:
      return put<uint64_t>(data, index, value);
    default:
      return put<uint8_t>(data, index, value);
  }
}

}  // namespace

ir::TensorData make_data(DvtDType dtype, Dims dims, const Values& values) {
  std::vector<std::byte> bytes(values.size() * dvt_dtype_size(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    write_element(dtype, bytes.data(), static_cast<int64_t>(i), values[i]);
  }
  return ir::make_tensor(dtype, std::move(dims), std::move(bytes));
}

Values to_values(const ir::TensorData& data) {
  Values values(data.element_count());
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = read_element(data.dtype, data.bytes->data(), static_cast<int64_t>(i));
  }
  return values;
}

int64_t Source::between(int64_t low, int64_t high) {
  return low + static_cast<int64_t>(engine_() % static_cast<uint64_t>(high - low + 1));
}

ir::TensorData Source::tensor(DvtDType dtype, Dims dims) {
  const bool real = dtype == DVT_F32 || dtype == DVT_F64 || dtype == DVT_F16 || dtype == DVT_BF16;
  const bool negative =
      real || dtype == DVT_I8 || dtype == DVT_I16 || dtype == DVT_I32 || dtype == DVT_I64;
  Values values(product(dims));
  for (double& value : values) {
    value = real ? static_cast<double>(between(-64, 64)) / 16.0
                 : static_cast<double>(between(negative ? -100 : 0, 100));
  }
  return make_data(dtype, std::move(dims), values);
}

ir::TensorData Source::rough_tensor(Dims dims) {
  std::uniform_real_distribution<double> uniform(-1.0, 1.0);
  Values values(product(dims));
  for (double& value : values) value = uniform(engine_);
  return make_data(DVT_F32, std::move(dims), values);
}

Values Source::bytes(DvtDType dtype, size_t count) {
  Values values(count);
  const int64_t low = dtype == DVT_U8 ? 0 : -128;
  for (double& value : values) value = double(between(low, low + 255));
  return values;
}

ir::TensorData call_kernel(const char* name, const void* attributes,
                           const std::vector<ir::TensorData>& inputs, DvtDType dtype,
                           const Dims& dims, uint64_t workspace) {
  std::vector<Operand> operands;
  for (const ir::TensorData& input : inputs) {
    operands.emplace_back(input.dtype, input.dims, *input.bytes);
  }
  std::vector<Operand> outputs = {Operand(dtype, dims)};
  if (workspace > 0) outputs.emplace_back(DVT_U8, Dims{static_cast<int64_t>(workspace)});
  for (Operand& output : outputs)
    std::fill(output.bytes.begin(), output.bytes.end(), std::byte{0xAB});
  run_kernel(name, std::move(operands), outputs, attributes);
  return ir::make_tensor(dtype, dims, std::move(outputs[0].bytes));
}

Result<ops::Recipe> recipe_of(OneNode& node) {
  Status status = node.infer();
  if (!status.ok()) return status;
  return node.definition->recipe(node.view());
}

DvtTaskCost cost_of(OneNode& node) {
  const Status status = node.infer();
  REQUIRE_MESSAGE(status.ok(), status.to_string());
  return node.definition->cost(node.view());
}

double excess_error(const Values& expected, const Values& got, double relative, double absolute) {
  if (expected.size() != got.size()) return std::numeric_limits<double>::infinity();
  double worst = -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < expected.size(); ++i) {
    const double e = expected[i];
    const double g = got[i];
    if ((std::isnan(e) && std::isnan(g)) || e == g) continue;
    const double error = std::fabs(e - g) - absolute - relative * std::fabs(e);
    worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
  }
  return worst;
}

double tolerance(DvtDType dtype, int64_t steps) {
  const double single = std::ldexp(1.0, -24) * static_cast<double>(steps + 2);
  switch (dtype) {
    case DVT_F64:
      return std::ldexp(1.0, -53) * static_cast<double>(steps + 2);
    case DVT_F16:
      return std::ldexp(1.0, -11) + single;
    case DVT_BF16:
      return std::ldexp(1.0, -8) + single;
    default:
      return single;
  }
}

}  // namespace davit::test
