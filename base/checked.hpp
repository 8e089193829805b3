// checked.hpp: arithmetic on sizes and offsets that reports overflow instead of wrapping.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace davit {

[[nodiscard]] inline std::optional<uint64_t> checked_add(uint64_t a, uint64_t b) {
  uint64_t out = 0;
  if (__builtin_add_overflow(a, b, &out)) return std::nullopt;
  return out;
}

[[nodiscard]] inline std::optional<uint64_t> checked_mul(uint64_t a, uint64_t b) {
  uint64_t out = 0;
  if (__builtin_mul_overflow(a, b, &out)) return std::nullopt;
  return out;
}

// Rounds up to a power of two `alignment`.
[[nodiscard]] inline std::optional<uint64_t> checked_align(uint64_t value, uint64_t alignment) {
  const auto sum = checked_add(value, alignment - 1);
  if (!sum) return std::nullopt;
  return *sum & ~(alignment - 1);
}

// True when [offset, offset + size) lies in [0, limit).
[[nodiscard]] inline bool in_range(uint64_t offset, uint64_t size, uint64_t limit) {
  return offset <= limit && size <= limit - offset;
}

// Product of non-negative dims as an element count; nullopt when negative or above INT64_MAX.
[[nodiscard]] inline std::optional<uint64_t> checked_elements(std::span<const int64_t> dims) {
  bool empty = false;
  for (const int64_t dim : dims) {
    if (dim < 0) return std::nullopt;
    empty = empty || dim == 0;
  }
  if (empty) return 0;
  int64_t product = 1;
  for (const int64_t dim : dims) {
    if (__builtin_mul_overflow(product, dim, &product)) return std::nullopt;
  }
  return static_cast<uint64_t>(product);
}

}  // namespace davit
