#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>

#include "base/checked.hpp"
#include "ir/module.hpp"

namespace davit::ir {
namespace {

template <class T>
std::optional<std::vector<int64_t>> widen(const TensorData& data) {
  const std::span<const T> elements = data.as<T>();
  std::vector<int64_t> out;
  out.reserve(elements.size());
  for (const T element : elements) {
    if constexpr (std::is_same_v<T, uint64_t>) {
      if (element > uint64_t(std::numeric_limits<int64_t>::max())) return std::nullopt;
    }
    out.push_back(static_cast<int64_t>(element));
  }
  return out;
}

}  // namespace

std::optional<std::vector<int64_t>> static_extents(const Shape& shape) {
  std::vector<int64_t> extents;
  extents.reserve(shape.size());
  for (const Dim dim : shape) {
    if (!dim.is_known()) return std::nullopt;
    extents.push_back(dim.extent());
  }
  return extents;
}

uint64_t TensorData::element_count() const {
  return checked_elements(dims).value_or(0);
}

std::optional<std::vector<int64_t>> TensorData::to_i64() const {
  switch (dtype) {
    case DVT_U8:
      return widen<uint8_t>(*this);
    case DVT_I8:
      return widen<int8_t>(*this);
    case DVT_U16:
      return widen<uint16_t>(*this);
    case DVT_I16:
      return widen<int16_t>(*this);
    case DVT_U32:
      return widen<uint32_t>(*this);
    case DVT_I32:
      return widen<int32_t>(*this);
    case DVT_U64:
      return widen<uint64_t>(*this);
    case DVT_I64:
      return widen<int64_t>(*this);
    default:
      return std::nullopt;
  }
}

TensorData make_tensor(DvtDType dtype, std::vector<int64_t> dims, std::vector<std::byte> bytes) {
  TensorData data;
  data.dtype = dtype;
  data.dims = std::move(dims);
  assert(bytes.size() == data.element_count() * dvt_dtype_size(dtype));
  data.bytes = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  return data;
}

std::optional<TensorData> make_string_tensor(std::vector<int64_t> dims,
                                             std::span<const std::string> strings) {
  std::vector<DvtString> elements(strings.size(), DvtString{});
  for (size_t i = 0; i < strings.size(); ++i) {
    if (strings[i].size() > DVT_STRING_MAX) return std::nullopt;
    elements[i].length = uint16_t(strings[i].size());
    strings[i].copy(elements[i].text, strings[i].size());
  }
  const auto* begin = reinterpret_cast<const std::byte*>(elements.data());
  return make_tensor(DVT_STRING, std::move(dims),
                     {begin, begin + elements.size() * sizeof(DvtString)});
}

std::vector<std::string> strings_of(const TensorData& data) {
  std::vector<std::string> strings;
  for (const DvtString& element : data.as<DvtString>()) {
    strings.emplace_back(element.text, std::min<size_t>(element.length, DVT_STRING_MAX));
  }
  return strings;
}

TensorData make_i64_tensor(std::vector<int64_t> dims, const std::vector<int64_t>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(int64_t));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return make_tensor(DVT_I64, std::move(dims), std::move(bytes));
}

}  // namespace davit::ir
