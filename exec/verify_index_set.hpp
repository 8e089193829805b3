// verify_index_set.hpp: which values lie in memory now, in the order of their addresses.
//
// Threads  A value; one user at a time.
// Memory   Two bits for each integer at most, from the verifier's scratch; nothing after that.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "exec/verify_internal.hpp"

namespace davit::exec::verify {

// A set of integers below `size` with fast neighbours: 64-ary tree of bitmaps.
class IndexSet {
 public:
  IndexSet(uint32_t size, Scratch& scratch) : words_(&scratch) {
    size_t total = 0;
    size_t words = size;
    do {
      words = std::max<size_t>((words + 63) / 64, 1);
      level_begin_[levels_++] = static_cast<uint32_t>(total);
      total += words;
    } while (words > 1);
    words_.assign(total, 0);
  }

  [[nodiscard]] bool contains(uint32_t i) const { return (words_[i / 64] >> (i % 64) & 1) != 0; }

  void insert(uint32_t i) {
    for (uint32_t l = 0; l < levels_; ++l, i /= 64) {
      uint64_t& bits = word(l, i / 64);
      const bool known_above = bits != 0;
      bits |= uint64_t{1} << (i % 64);
      if (known_above) return;
    }
  }

  void erase(uint32_t i) {
    for (uint32_t l = 0; l < levels_; ++l, i /= 64) {
      uint64_t& bits = word(l, i / 64);
      bits &= ~(uint64_t{1} << (i % 64));
      if (bits != 0) return;
    }
  }

  // The largest member below i, or kNone.
  [[nodiscard]] uint32_t before(uint32_t i) const {
    for (uint32_t l = 0; l < levels_; ++l, i /= 64) {
      const uint64_t below = word(l, i / 64) & ((uint64_t{1} << (i % 64)) - 1);
      if (below == 0) continue;
      i = i / 64 * 64 + 63 - static_cast<uint32_t>(std::countl_zero(below));
      while (l-- > 0) i = i * 64 + 63 - static_cast<uint32_t>(std::countl_zero(word(l, i)));
      return i;
    }
    return kNone;
  }

  // The smallest member above i, or kNone.
  [[nodiscard]] uint32_t after(uint32_t i) const {
    for (uint32_t l = 0; l < levels_; ++l, i /= 64) {
      const uint64_t above = word(l, i / 64) & (~uint64_t{1} << (i % 64));
      if (above == 0) continue;
      i = i / 64 * 64 + static_cast<uint32_t>(std::countr_zero(above));
      while (l-- > 0) i = i * 64 + static_cast<uint32_t>(std::countr_zero(word(l, i)));
      return i;
    }
    return kNone;
  }

 private:
  // Level 0 has a bit per integer, each next level a bit per word of the one below.
  [[nodiscard]] uint64_t word(uint32_t level, uint32_t i) const {
    return words_[level_begin_[level] + i];
  }
  uint64_t& word(uint32_t level, uint32_t i) { return words_[level_begin_[level] + i]; }

  std::pmr::vector<uint64_t> words_;
  uint32_t level_begin_[6] = {};  // 64^6 > 2^32.
  uint32_t levels_ = 0;
};

}  // namespace davit::exec::verify
