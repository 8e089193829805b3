// random.hpp: a small generator whose numbers are the same everywhere (splitmix64).
//
// Threads  A value.
// Memory   Eight bytes.
#pragma once

#include <cstdint>

namespace davit::npu {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }
  // 0 <= result < limit; limit > 0. The bias of the remainder does not matter here.
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>((next() >> 32) % limit); }

 private:
  uint64_t state_;
};

}  // namespace davit::npu
