#include "lowering/image/text_common.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>

#include "davit/davit.h"
#include "exec/dynamic.h"
#include "exec/runtime.h"

namespace davit::image {
namespace {

constexpr CostField kCostFields[] = {
    {"block_dim", offsetof(DvtTaskCost, block_dim), 4},
    {"batch", offsetof(DvtTaskCost, batch), 8},
    {"m", offsetof(DvtTaskCost, m), 8},
    {"n", offsetof(DvtTaskCost, n), 8},
    {"k", offsetof(DvtTaskCost, k), 8},
    {"vector_elements", offsetof(DvtTaskCost, vector_elements), 8},
    {"vector_passes_x100", offsetof(DvtTaskCost, vector_passes_x100), 8},
    {"read_bytes", offsetof(DvtTaskCost, read_bytes), 8},
    {"write_bytes", offsetof(DvtTaskCost, write_bytes), 8},
};
constexpr std::string_view kTaskKinds[] = {"none", "matmul", "conv", "vector", "move", "aicpu"};
static_assert(std::size(kTaskKinds) == DVT_TASK_AICPU + 1);
constexpr std::string_view kLanes[] = {"normal", "memory", "launch"};
static_assert(std::size(kLanes) == DVT_KERNEL_LANE_LAUNCH + 1);

template <class T>
std::string number_to_text(T number) {
  char text[64];
  const auto result = std::to_chars(text, text + sizeof text, number);
  return {text, result.ptr};
}

std::string bits_to_text(const std::byte* bytes, size_t size) {
  uint64_t bits = 0;
  std::memcpy(&bits, bytes, size);
  char text[20];
  const auto result = std::to_chars(text, text + sizeof text, bits, 16);
  return "0x" + std::string(text, result.ptr);
}

bool bits_from_text(std::string_view text, size_t size, std::byte* bytes) {
  uint64_t bits = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data() + 2, end, bits, 16);
  if (result.ec != std::errc() || result.ptr != end) return false;
  if (size < 8 && bits >> (8 * size) != 0) return false;
  std::memcpy(bytes, &bits, size);
  return true;
}

template <class T>
std::string load_to_text(const std::byte* bytes) {
  T number;
  std::memcpy(&number, bytes, sizeof number);
  if constexpr (std::is_floating_point_v<T>) {
    // A NaN has a payload, which decimal notation would lose.
    if (std::isnan(number)) return bits_to_text(bytes, sizeof number);
  }
  return number_to_text(number);
}

template <class T>
bool store_from_text(std::string_view text, std::byte* bytes) {
  T number{};
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  if (result.ec != std::errc() || result.ptr != end) return false;
  std::memcpy(bytes, &number, sizeof number);
  return true;
}

bool is_float(DvtDType dtype) {
  return dtype == DVT_F32 || dtype == DVT_F64 || dtype == DVT_F16 || dtype == DVT_BF16;
}

}  // namespace

std::span<const CostField> cost_fields() {
  return kCostFields;
}
std::span<const std::string_view> task_kind_names() {
  return kTaskKinds;
}
std::span<const std::string_view> lane_names() {
  return kLanes;
}

std::string element_to_text(DvtDType dtype, const std::byte* bytes) {
  switch (dtype) {
    case DVT_F32:
      return load_to_text<float>(bytes);
    case DVT_F64:
      return load_to_text<double>(bytes);
    case DVT_I8:
      return load_to_text<int8_t>(bytes);
    case DVT_I16:
      return load_to_text<int16_t>(bytes);
    case DVT_I32:
      return load_to_text<int32_t>(bytes);
    case DVT_I64:
      return load_to_text<int64_t>(bytes);
    case DVT_U8:
    case DVT_BOOL:
      return load_to_text<uint8_t>(bytes);
    case DVT_U16:
      return load_to_text<uint16_t>(bytes);
    case DVT_U32:
      return load_to_text<uint32_t>(bytes);
    case DVT_U64:
      return load_to_text<uint64_t>(bytes);
    default:  // Half floats: their bits.
      return bits_to_text(bytes, dvt_dtype_size(dtype));
  }
}

bool element_from_text(DvtDType dtype, std::string_view text, std::byte* bytes) {
  if (text.starts_with("0x") && is_float(dtype)) {
    return bits_from_text(text, dvt_dtype_size(dtype), bytes);
  }
  switch (dtype) {
    case DVT_STRING:  // In hexadecimal only, as a whole.
      return false;
    case DVT_F32:
      return store_from_text<float>(text, bytes);
    case DVT_F64:
      return store_from_text<double>(text, bytes);
    case DVT_I8:
      return store_from_text<int8_t>(text, bytes);
    case DVT_I16:
      return store_from_text<int16_t>(text, bytes);
    case DVT_I32:
      return store_from_text<int32_t>(text, bytes);
    case DVT_I64:
      return store_from_text<int64_t>(text, bytes);
    case DVT_U8:
    case DVT_BOOL:
      return store_from_text<uint8_t>(text, bytes);
    case DVT_U16:
      return store_from_text<uint16_t>(text, bytes);
    case DVT_U32:
      return store_from_text<uint32_t>(text, bytes);
    case DVT_U64:
      return store_from_text<uint64_t>(text, bytes);
    default:
      return false;
  }
}

std::string bytes_to_hex(std::span<const std::byte> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    out += kDigits[std::to_integer<unsigned>(byte) >> 4];
    out += kDigits[std::to_integer<unsigned>(byte) & 15U];
  }
  return out;
}

KernelFinder::KernelFinder(std::span<const DvtKernelTable> tables) {
  const auto add = [&](const DvtKernelTable& table) {
    for (size_t i = 0; i < table.count; ++i) {
      kernels_.try_emplace(table.kernels[i].name, &table.kernels[i]);
    }
  };
  for (const DvtKernelTable& table : tables) add(table);
  add(dvt_cpu_kernels());
  add(dvt_device_kernels());
  add(dvt_dynamic_kernels());
}

const DvtKernel* KernelFinder::find(std::string_view name) const {
  const auto found = kernels_.find(name);
  return found == kernels_.end() ? nullptr : found->second;
}

std::vector<uint32_t> kernels_in_order_of_use(const ImageModel& model) {
  std::vector<uint32_t> order;
  std::vector<bool> seen(model.kernels.size(), false);
  const auto use = [&](uint32_t kernel) {
    if (kernel >= seen.size() || seen[kernel]) return;
    seen[kernel] = true;
    order.push_back(kernel);
  };
  for (const Graph& graph : model.graphs) {
    for (const Node& node : graph.nodes) {
      use(node.kernel);
      use(node.device_kernel);
    }
  }
  return order;
}

uint64_t constants_end(const ImageModel& model) {
  uint64_t end = 0;
  for (const Value& value : model.values) {
    if (value.kind != ValueKind::kConstant || value.tensor.bytes == 0) continue;
    end = std::max(end, value.offset + value.tensor.bytes);
  }
  return end;
}

}  // namespace davit::image
