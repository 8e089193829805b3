// size_classes.hpp: which sizes are free, as a bitmap of size classes.
//
// A class is a short floating-point number: 32 classes for every doubling, so that sizes of one
// class differ by at most 3 %. Sizes below 64 units have a class of their own.
//
//   units 0 1 2 ... 63 | 64-65 66-67 ... 126-127 | 128-131 ... | ... 2^32-1
//   class 0 1 2 ... 63 |  64    65   ...   95    |   96    ... | ... 895
//
// Threads  Those of the allocator.
// Memory   120 bytes, no allocation.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace davit::alloc {

inline constexpr uint32_t kSizeClasses = 896;

[[nodiscard]] constexpr uint32_t size_class(uint32_t units) {
  if (units < 32) return units;
  const uint32_t exponent = 31 - static_cast<uint32_t>(std::countl_zero(units));
  return ((exponent - 4) << 5) + ((units >> (exponent - 5)) & 31);
}
static_assert(size_class(31) == 31 && size_class(32) == 32 && size_class(63) == 63);
static_assert(size_class(64) == 64 && size_class(65) == 64 && size_class(127) == 95);
static_assert(size_class(UINT32_MAX) == kSizeClasses - 1);

// A set of classes; finding the next one takes two words at most.
class ClassSet {
 public:
  void insert(uint32_t size_class) {
    words_[size_class / 64] |= uint64_t{1} << (size_class % 64);
    summary_ |= 1U << (size_class / 64);
  }
  void erase(uint32_t size_class) {
    uint64_t& word = words_[size_class / 64];
    word &= ~(uint64_t{1} << (size_class % 64));
    if (word == 0) summary_ &= ~(1U << (size_class / 64));
  }
  [[nodiscard]] bool contains(uint32_t size_class) const {
    return (words_[size_class / 64] >> (size_class % 64) & 1) != 0;
  }
  // The smallest member from `size_class` on, or kSizeClasses.
  [[nodiscard]] uint32_t first_from(uint32_t size_class) const {
    if (size_class >= kSizeClasses) return kSizeClasses;
    const uint32_t index = size_class / 64;
    const uint64_t here = words_[index] & (~uint64_t{0} << (size_class % 64));
    if (here != 0) return index * 64 + static_cast<uint32_t>(std::countr_zero(here));
    const uint32_t above = summary_ & (~1U << index);
    if (above == 0) return kSizeClasses;
    const auto next = static_cast<uint32_t>(std::countr_zero(above));
    return next * 64 + static_cast<uint32_t>(std::countr_zero(words_[next]));
  }

 private:
  std::array<uint64_t, kSizeClasses / 64> words_{};
  uint32_t summary_ = 0;  // Bit i: words_[i] is not 0.
};

}  // namespace davit::alloc
