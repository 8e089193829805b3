#include "tests/support/run_image.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "base/dtype.hpp"

namespace davit::testing {
namespace {

struct CloseImage {
  void operator()(DvtImage* image) const { dvt_image_close(image); }
};
struct DestroyExecutor {
  void operator()(DvtExecutor* executor) const { dvt_executor_destroy(executor); }
};

Status mismatch(std::string message) {
  return Status(DVT_INVALID_ARGUMENT, DVT_STAGE_NONE, std::move(message));
}

std::string shape_text(DvtDType dtype, std::span<const int64_t> dims) {
  std::string text(dtype_name(dtype));
  text += '[';
  for (size_t i = 0; i < dims.size(); ++i) text += (i ? "," : "") + std::to_string(dims[i]);
  return text + ']';
}

Status bind_inputs(DvtImage* image, DvtExecutor* executor, std::span<const NpyArray> inputs) {
  DvtError error{};
  for (uint32_t i = 0; i < inputs.size(); ++i) {
    DvtPortInfo info;
    if (dvt_image_input_info(image, i, &info, &error) != DVT_OK) return exec::status_of(error);
    DvtTensor tensor{};
    tensor.dtype = inputs[i].dtype;
    if (inputs[i].dims.size() > DVT_MAX_RANK) return mismatch("the data has more than 8 dims");
    tensor.rank = uint8_t(inputs[i].dims.size());
    std::ranges::copy(inputs[i].dims, tensor.dims);
    // A pointer even for empty data.
    static const uint64_t nothing = 0;
    const void* data =
        inputs[i].bytes.empty() ? &nothing : static_cast<const void*>(&inputs[i].bytes[0]);
    if (dvt_executor_bind_input_tensor(executor, i, &tensor, data, &error) != DVT_OK) {
      return exec::status_of(error);
    }
  }
  return {};
}

Result<std::vector<NpyArray>> bind_outputs(DvtImage* image, DvtExecutor* executor) {
  DvtError error{};
  std::vector<NpyArray> outputs(dvt_image_output_count(image));
  for (uint32_t i = 0; i < outputs.size(); ++i) {
    DvtPortInfo info;
    if (dvt_image_output_info(image, i, &info, &error) != DVT_OK) return exec::status_of(error);
    outputs[i].dtype = info.tensor.dtype;
    if ((info.tensor.flags & DVT_TENSOR_DYNAMIC) != 0) continue;  // See fetch_outputs().
    outputs[i].dims.assign(info.tensor.dims, info.tensor.dims + info.tensor.rank);
    // One spare byte, so that an empty output has an address of its own.
    outputs[i].bytes.resize(info.tensor.bytes + 1);
    if (dvt_executor_bind_output(executor, i, outputs[i].bytes.data(), info.tensor.bytes, &error) !=
        DVT_OK) {
      return exec::status_of(error);
    }
  }
  return outputs;
}

// Outputs whose size was not known before. They get the spare byte of the others.
Status fetch_outputs(DvtImage* image, DvtExecutor* executor, std::vector<NpyArray>& outputs) {
  DvtError error{};
  for (uint32_t i = 0; i < outputs.size(); ++i) {
    DvtPortInfo info;
    if (dvt_image_output_info(image, i, &info, &error) != DVT_OK) return exec::status_of(error);
    if ((info.tensor.flags & DVT_TENSOR_DYNAMIC) == 0) continue;
    DvtTensor tensor;
    const void* data = nullptr;
    if (dvt_executor_output_tensor(executor, i, &tensor, &data, &error) != DVT_OK) {
      return exec::status_of(error);
    }
    outputs[i].dims.assign(tensor.dims, tensor.dims + tensor.rank);
    outputs[i].bytes.assign(tensor.bytes + 1, std::byte{0xAB});
    if (tensor.bytes > 0) std::memcpy(outputs[i].bytes.data(), data, tensor.bytes);
  }
  return {};
}

float half_to_float(uint16_t half) {
  const int exponent = half >> 10 & 31;
  const float fraction = float(half & 1023);
  float value = 0;
  if (exponent == 31) {
    value = fraction == 0 ? std::numeric_limits<float>::infinity()
                          : std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(fraction, -24);
  } else {
    value = std::ldexp(fraction + 1024, exponent - 25);
  }
  return (half & 0x8000) != 0 ? -value : value;
}

template <class T>
T element(const NpyArray& array, size_t index) {
  T value;
  std::memcpy(&value, &array.bytes[index * sizeof(T)], sizeof(T));
  return value;
}

bool is_float(DvtDType dtype) {
  return dtype == DVT_F32 || dtype == DVT_F64 || dtype == DVT_F16 || dtype == DVT_BF16;
}

double float_element(const NpyArray& array, size_t index) {
  switch (array.dtype) {
    case DVT_F32:
      return element<float>(array, index);
    case DVT_F64:
      return element<double>(array, index);
    case DVT_F16:
      return half_to_float(element<uint16_t>(array, index));
    default: {  // bf16: the upper half of a float.
      const uint32_t bits = uint32_t(element<uint16_t>(array, index)) << 16;
      float value = 0;
      std::memcpy(&value, &bits, sizeof value);
      return value;
    }
  }
}

Status compare_floats(const NpyArray& expected, const NpyArray& got, const Tolerance& tolerance) {
  const size_t count = expected.bytes.size() / dvt_dtype_size(expected.dtype);
  double largest = 0;
  for (size_t i = 0; i < count; ++i) {
    const double value = std::fabs(float_element(expected, i));
    if (std::isfinite(value)) largest = std::max(largest, value);
  }
  const double allowed = tolerance.absolute + tolerance.relative_to_max * largest;
  size_t bad = 0, worst = 0;
  double worst_excess = -1;
  for (size_t i = 0; i < count; ++i) {
    const double a = float_element(expected, i);
    const double b = float_element(got, i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double difference = std::fabs(a - b);
    const double excess = difference - (allowed + tolerance.relative * std::fabs(a));
    if (excess <= 0) continue;  // False for NaN and infinities.
    ++bad;
    if (!(excess <= worst_excess)) {
      worst_excess = excess;
      worst = i;
    }
  }
  if (bad == 0) return {};
  return mismatch(std::to_string(bad) + " of " + std::to_string(count) +
                  " elements differ; the worst is element " + std::to_string(worst) +
                  ": expected " + std::to_string(float_element(expected, worst)) + ", got " +
                  std::to_string(float_element(got, worst)));
}

}  // namespace

AlignedBytes::AlignedBytes(std::span<const std::byte> bytes)
    : data_(std::aligned_alloc(4096, (bytes.size() + 4095) / 4096 * 4096)), size_(bytes.size()) {
  std::memcpy(data_.get(), bytes.data(), bytes.size());
}

Result<std::vector<NpyArray>> run_image(std::span<const std::byte> bytes,
                                        std::span<const NpyArray> inputs, const RunOn& on) {
  DvtError error{};
  const AlignedBytes memory(bytes);
  DvtImage* raw_image = nullptr;
  if (dvt_image_open_memory(memory.data(), memory.size(), nullptr, &raw_image, &error) != DVT_OK) {
    return exec::status_of(error);
  }
  const std::unique_ptr<DvtImage, CloseImage> image(raw_image);
  if (dvt_image_input_count(raw_image) != inputs.size()) {
    return mismatch("the image has " + std::to_string(dvt_image_input_count(raw_image)) +
                    " inputs, but there is data for " + std::to_string(inputs.size()));
  }
  DvtExecutorOptions options;
  dvt_executor_options_init(&options);
  options.device = on.device;
  options.device_memory = on.device_memory;
  options.pool = on.pool;
  options.schedule = on.pool == nullptr ? uint32_t{DVT_SCHEDULE_AUTO} : on.schedule;
  DvtExecutor* raw_executor = nullptr;
  if (dvt_executor_create(raw_image, &options, &raw_executor, &error) != DVT_OK) {
    return exec::status_of(error);
  }
  const std::unique_ptr<DvtExecutor, DestroyExecutor> executor(raw_executor);
  if (Status status = bind_inputs(raw_image, raw_executor, inputs); !status.ok()) return status;
  auto outputs = bind_outputs(raw_image, raw_executor);
  if (!outputs.ok()) return outputs;
  std::vector<std::vector<std::byte>> first;
  for (int run = 0; run < on.runs; ++run) {
    for (NpyArray& output : *outputs) std::ranges::fill(output.bytes, std::byte{0xAB});
    if (dvt_executor_run(raw_executor, &error) != DVT_OK) return exec::status_of(error);
    if (Status s = fetch_outputs(raw_image, raw_executor, *outputs); !s.ok()) return s;
    for (size_t i = 0; i < outputs->size(); ++i) {
      if (run == 0) first.push_back((*outputs)[i].bytes);
      if ((*outputs)[i].bytes != first[i]) {
        return mismatch("run " + std::to_string(run) + " gives other bits in output " +
                        std::to_string(i) + " than the first");
      }
    }
  }
  DvtScheduleInfo ran;
  dvt_executor_schedule(raw_executor, &ran);
  if (on.pool != nullptr && on.schedule != DVT_SCHEDULE_AUTO && ran.schedule != on.schedule) {
    return mismatch(std::string("another schedule ran: ") + ran.reason);
  }
  if (dvt_executor_unload(raw_executor, &error) != DVT_OK) return exec::status_of(error);
  for (NpyArray& output : *outputs) {
    if (output.bytes.back() != std::byte{0xAB}) return mismatch("wrote beyond an output's end");
    output.bytes.pop_back();
  }
  return outputs;
}

Status compare(const NpyArray& expected, const NpyArray& got, const Tolerance& tolerance) {
  if (expected.dtype != got.dtype || expected.dims != got.dims) {
    return mismatch("expected " + shape_text(expected.dtype, expected.dims) + ", got " +
                    shape_text(got.dtype, got.dims));
  }
  if (is_float(expected.dtype)) return compare_floats(expected, got, tolerance);
  if (expected.bytes == got.bytes) return {};
  const auto differ = std::ranges::mismatch(expected.bytes, got.bytes);
  const auto at = size_t(differ.in1 - expected.bytes.begin()) / dvt_dtype_size(expected.dtype);
  return mismatch("element " + std::to_string(at) + " differs");
}

}  // namespace davit::testing
