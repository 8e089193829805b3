// half.hpp: 16-bit floats written down from their definition, slowly and independently.
//
// Threads  Nothing is shared.
// Trust    Test data only.
// Memory   Nearest holds a table of 32768 entries.
#pragma once

#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>

#include "davit/types.h"

namespace davit::test {

// The value of a 16-bit float, from its definition.
inline double half_value(DvtDType dtype, uint16_t bits) {
  const int mantissa_bits = dtype == DVT_F16 ? 10 : 7;
  const int exponent_bits = 15 - mantissa_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  double value = 0;
  if (exponent == (1 << exponent_bits) - 1) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, 1 - bias - mantissa_bits);
  } else {
    value = std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

// The nearest 16-bit float, ties to even, by search among all of them.
class Nearest {
 public:
  explicit Nearest(DvtDType dtype) : dtype_(dtype) {
    for (uint32_t bits = 0; bits < 0x8000; ++bits) {
      const double value = half_value(dtype, uint16_t(bits));
      if (value == value) order_[value] = uint16_t(bits);
    }
  }
  [[nodiscard]] double operator()(double value) const {
    if (value != value) return value;
    const double magnitude = std::fabs(value);
    const auto above = order_.lower_bound(magnitude);
    if (above->first == magnitude || above == order_.begin())
      return std::copysign(above->first, value);
    const auto below = std::prev(above);
    double high = above->first;
    // Infinity stands where the next power of two would be.
    if (high == std::numeric_limits<double>::infinity())
      high = dtype_ == DVT_F16 ? 65536.0 : 0x1p128;
    const double middle = below->first + (high - below->first) / 2;
    const bool up = magnitude > middle || (magnitude == middle && (below->second & 1) != 0);
    return std::copysign(up ? above->first : below->first, value);
  }

 private:
  DvtDType dtype_;
  std::map<double, uint16_t> order_;
};

}  // namespace davit::test
