#include "cli/numbers.hpp"

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

#include "ops/kernels/common.h"

namespace davit::cli {
namespace {

template <class T>
T load_as(const std::byte* from) {
  T value{};
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class T>
void store_as(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof(T));
}

// Calls visit(T{}) with the integer type of `dtype`; false for any other dtype.
template <class Visit>
bool visit_integer(DvtDType dtype, Visit visit) {
  switch (dtype) {
    case DVT_U8:
    case DVT_BOOL:
      visit(uint8_t{});
      return true;
    case DVT_I8:
      visit(int8_t{});
      return true;
    case DVT_U16:
      visit(uint16_t{});
      return true;
    case DVT_I16:
      visit(int16_t{});
      return true;
    case DVT_U32:
      visit(uint32_t{});
      return true;
    case DVT_I32:
      visit(int32_t{});
      return true;
    case DVT_U64:
      visit(uint64_t{});
      return true;
    case DVT_I64:
      visit(int64_t{});
      return true;
    default:
      return false;
  }
}

template <class T>
std::optional<T> parse_whole(std::string_view text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || text.empty()) return std::nullopt;
  return value;
}

// Text after text up to each `separator`, all parsed by `parse`.
template <class T, class Parse>
std::optional<std::vector<T>> parse_list(std::string_view text, char separator, Parse parse) {
  std::vector<T> values;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    const std::optional<T> value = parse(text.substr(begin, end - begin));
    if (!value) return std::nullopt;
    values.push_back(*value);
    begin = end + 1;
  }
  return values;
}

}  // namespace

bool is_floating(DvtDType dtype) {
  return dtype == DVT_F32 || dtype == DVT_F64 || dtype == DVT_F16 || dtype == DVT_BF16;
}

double load_element(DvtDType dtype, const std::byte* from) {
  switch (dtype) {
    case DVT_F32:
      return load_as<float>(from);
    case DVT_F64:
      return load_as<double>(from);
    case DVT_F16:
      return dvt_f32_from_f16(load_as<uint16_t>(from));
    case DVT_BF16:
      return dvt_f32_from_bf16(load_as<uint16_t>(from));
    default:
      break;
  }
  double value = 0;
  visit_integer(dtype, [&]<class T>(T) { value = static_cast<double>(load_as<T>(from)); });
  return value;
}

void store_element(double value, DvtDType dtype, std::byte* to) {
  switch (dtype) {
    case DVT_F32:
      return store_as(static_cast<float>(value), to);
    case DVT_F64:
      return store_as(value, to);
    case DVT_F16:
      return store_as(dvt_f16_from_f32(static_cast<float>(value)), to);
    case DVT_BF16:
      return store_as(dvt_bf16_from_f32(static_cast<float>(value)), to);
    default:
      break;
  }
  visit_integer(dtype, [&]<class T>(T) { store_as(static_cast<T>(value), to); });
}

double integer_difference(DvtDType dtype, const std::byte* a, const std::byte* b) {
  double difference = 0;
  visit_integer(dtype, [&]<class T>(T) {
    const T left = load_as<T>(a);
    const T right = load_as<T>(b);
    // The distance of two integers fits their unsigned type.
    using Unsigned = std::make_unsigned_t<T>;
    const auto distance = static_cast<Unsigned>(
        left > right ? static_cast<Unsigned>(left) - static_cast<Unsigned>(right)
                     : static_cast<Unsigned>(right) - static_cast<Unsigned>(left));
    difference = static_cast<double>(distance);
  });
  return difference;
}

bool parse_element(std::string_view text, DvtDType dtype, std::byte* to) {
  if (dtype == DVT_STRING) {
    if (text.size() > DVT_STRING_MAX) return false;
    DvtString string{};
    string.length = static_cast<uint16_t>(text.size());
    text.copy(string.text, text.size());
    std::memcpy(to, &string, sizeof string);
    return true;
  }
  if (is_floating(dtype)) {
    const auto value = parse_real(text);
    if (value) store_element(*value, dtype, to);
    return value.has_value();
  }
  if (dtype == DVT_BOOL) {
    const bool one = text == "1" || text == "true";
    if (one || text == "0" || text == "false") {
      store_as<uint8_t>(one ? 1 : 0, to);
      return true;
    }
    return false;
  }
  bool parsed = false;
  visit_integer(dtype, [&]<class T>(T) {
    const auto value = parse_whole<T>(text);
    if (value) store_as(*value, to);
    parsed = value.has_value();
  });
  return parsed;
}

std::optional<int64_t> parse_integer(std::string_view text) {
  return parse_whole<int64_t>(text);
}

std::optional<uint64_t> parse_unsigned(std::string_view text) {
  return parse_whole<uint64_t>(text);
}

std::optional<double> parse_real(std::string_view text) {
  return parse_whole<double>(text);
}

std::optional<std::vector<int64_t>> parse_dims(std::string_view text) {
  auto dims = parse_list<int64_t>(text, 'x', parse_integer);
  if (!dims || dims->size() > DVT_MAX_RANK) return std::nullopt;
  for (const int64_t dim : *dims) {
    if (dim < 0) return std::nullopt;
  }
  return dims;
}

std::optional<std::vector<int64_t>> parse_integers(std::string_view text) {
  return parse_list<int64_t>(text, ',', parse_integer);
}

std::optional<std::vector<double>> parse_reals(std::string_view text) {
  return parse_list<double>(text, ',', parse_real);
}

}  // namespace davit::cli
