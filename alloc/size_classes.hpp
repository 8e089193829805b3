// size_classes.hpp: which sizes are free, as a bitmap of size classes.
//
// A class is a short floating-point number, of the size plus 4: two bits behind the leading one. So
// there are 4 classes for every doubling, and all fit into one word of 128 bits.
//
//   units 0 1 2 3 | 4-5 6-7 8-9 10-11 | 12-15 ... | ... 2^32-1
//   class 0 1 2 3 |  4   5   6    7   |   8   ... | ... 120
//
// Threads  Those of the allocator.
// Memory   16 bytes, no allocation.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace davit::alloc {

inline constexpr uint32_t kSizeClasses = 121;

// Read off a double, which is exact here: the exponent and the two bits behind it are its top ones.
// Looking for the leading one takes a slow instruction on many x86 processors.
[[nodiscard]] constexpr uint32_t size_class(uint32_t units) {
  const auto shifted = static_cast<double>(int64_t{units} + 4);
  return static_cast<uint32_t>(std::bit_cast<uint64_t>(shifted) >> 50) - 4 * (1023 + 2);
}
static_assert(std::numeric_limits<double>::is_iec559);
static_assert(size_class(0) == 0 && size_class(3) == 3);
static_assert(size_class(4) == 4 && size_class(5) == 4 && size_class(11) == 7);
static_assert(size_class(12) == 8 && size_class(15) == 8 && size_class(16) == 9);
static_assert(size_class(UINT32_MAX) == kSizeClasses - 1);

class ClassSet {
 public:
  static constexpr uint32_t kCapacity = 128;

  void insert(uint32_t member) { words_[member / 64] |= uint64_t{1} << (member % 64); }
  // Without a branch that nobody can predict.
  void erase_if(bool condition, uint32_t member) {
    words_[member / 64] &= ~(uint64_t{condition} << (member % 64));
  }
  [[nodiscard]] bool contains(uint32_t member) const {
    return (words_[member / 64] >> (member % 64) & 1) != 0;
  }
  // The smallest member above `member`, or kCapacity - 1. Precondition: member < kCapacity - 1.
  [[nodiscard]] uint32_t next_after(uint32_t member) const {
    const uint64_t part = words_[member / 64] >> (member % 64) & ~uint64_t{1};
    if (part != 0) return member + static_cast<uint32_t>(std::countr_zero(part));
    if (member >= 64 || words_[1] == 0) return kCapacity - 1;
    return 64 + static_cast<uint32_t>(std::countr_zero(words_[1]));
  }

 private:
  uint64_t words_[2] = {};
};

}  // namespace davit::alloc
