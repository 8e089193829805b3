// Conversions between element types, and Cast.
#include "ops/kernels/convert.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>

#include "ops/kernels/common.h"
#include "tests/ops/half.hpp"
#include "tests/ops/harness.hpp"

using namespace davit;
using namespace davit::test;

namespace {

constexpr std::array<DvtDType, 13> kDtypes = {DVT_F32, DVT_F64, DVT_F16, DVT_BF16, DVT_I8,
                                              DVT_I16, DVT_I32, DVT_I64, DVT_U8,   DVT_U16,
                                              DVT_U32, DVT_U64, DVT_BOOL};

// An element's exact value: every dtype fits long double on this target.
static_assert(std::numeric_limits<long double>::digits >= 64);

long double value_of(DvtDType dtype, const std::byte* at) {
  const auto load = [at](auto zero) {
    std::memcpy(&zero, at, sizeof zero);
    return static_cast<long double>(zero);
  };
  switch (dtype) {
    case DVT_F32:
      return load(float{});
    case DVT_F64:
      return load(double{});
    case DVT_I8:
      return load(int8_t{});
    case DVT_I16:
      return load(int16_t{});
    case DVT_I32:
      return load(int32_t{});
    case DVT_I64:
      return load(int64_t{});
    case DVT_U8:
      return load(uint8_t{});
    case DVT_U16:
      return load(uint16_t{});
    case DVT_U32:
      return load(uint32_t{});
    case DVT_U64:
      return load(uint64_t{});
    case DVT_BOOL:
      return *at != std::byte{0} ? 1 : 0;
    default: {
      uint16_t bits = 0;
      std::memcpy(&bits, at, sizeof bits);
      return half_value(dtype, bits);
    }
  }
}

bool is_float(DvtDType dtype) {
  return dvt_wide_dtype(dtype) == DVT_F64;
}

struct Range {
  long double low, high;
};
Range range_of(DvtDType dtype) {
  const int bits = int(dvt_dtype_size(dtype)) * 8;
  const bool is_signed = dvt_wide_dtype(dtype) == DVT_I64;
  return {.low = is_signed ? -std::ldexp(1.0L, bits - 1) : 0.0L,
          .high = std::ldexp(1.0L, is_signed ? bits - 1 : bits) - 1};
}

// 16-bit results of an exact value: the search in doubles needs one that decides the same way.
double sticky(long double value) {
  const double nearest = static_cast<double>(value);
  if (nearest == value || value != value) return nearest;
  // Between two doubles nothing is a tie of a 16-bit float, so a step towards the value decides.
  return std::nextafter(nearest, value > nearest ? HUGE_VAL : -HUGE_VAL);
}

// What Cast must give, by the rules in convert.h.
long double expected_of(DvtDType from, DvtDType to, long double value, const Nearest& f16,
                        const Nearest& bf16) {
  switch (to) {
    case DVT_BOOL:
      return value != 0 ? 1 : 0;
    case DVT_F32:
      return static_cast<float>(value);
    case DVT_F64:
      return static_cast<double>(value);
    case DVT_F16:
      return f16(sticky(value));
    case DVT_BF16:
      return bf16(sticky(value));
    default:
      break;
  }
  const Range range = range_of(to);
  if (is_float(from)) {
    if (value != value) return 0;
    return std::clamp(std::trunc(value), range.low, range.high);
  }
  const long double modulus = std::ldexp(1.0L, int(dvt_dtype_size(to)) * 8);
  long double rest = std::fmod(value, modulus);
  if (rest < range.low) rest += modulus;
  if (rest > range.high) rest -= modulus;
  return rest;
}

// Bit patterns at the edges of every type, and random ones.
Operand hard_values(Random& random, DvtDType dtype) {
  const int64_t count = 3000;
  Operand operand(dtype, {count});
  const size_t size = dvt_dtype_size(dtype);
  for (int64_t i = 0; i < count; ++i) {
    uint64_t bits = (uint64_t(random.engine()()) << 32) | random.engine()();
    if (i % 3 == 1) bits = uint64_t{1} << (bits % (8 * size));
    if (i % 3 == 2) bits = (bits % 7) - 3;
    if (i % 5 == 4 && is_float(dtype)) {
      // Near powers of two, and halves between integers.
      const double value = std::ldexp(double(random.integer(1, 9)), int(random.integer(-4, 64)));
      const double shifted = random.chance(0.5) ? -value + 0.5 : value - 0.5;
      if (dtype == DVT_F64) std::memcpy(&bits, &shifted, sizeof bits);
      const auto narrow = static_cast<float>(shifted);
      if (dtype == DVT_F32) std::memcpy(&bits, &narrow, sizeof narrow);
    }
    if (i % 5 == 3 && size == 8 && !is_float(dtype)) {
      // Nine significant bits, a tie for bf16, and a little more than f64 can hold.
      bits = (uint64_t(2 * random.integer(128, 255) + 1) << 54) + uint64_t(random.integer(0, 1));
    }
    if (dtype == DVT_BOOL) bits &= 1;
    std::memcpy(&operand.bytes[size_t(i) * size], &bits, size);
  }
  return operand;
}

}  // namespace

TEST_CASE("16-bit floats: every value survives f32, and narrowing rounds to nearest even") {
  const Nearest f16(DVT_F16);
  const Nearest bf16(DVT_BF16);
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = uint16_t(bits);
    const float a = dvt_f32_from_f16(half);
    const float b = dvt_f32_from_bf16(half);
    const double exact_a = half_value(DVT_F16, half);
    const double exact_b = half_value(DVT_BF16, half);
    REQUIRE((a == exact_a || (a != a && exact_a != exact_a)));
    REQUIRE((b == exact_b || (b != b && exact_b != exact_b)));
    REQUIRE((a != a ? dvt_f32_from_f16(dvt_f16_from_f32(a)) != 0 : dvt_f16_from_f32(a) == half));
    REQUIRE((b != b ? (dvt_bf16_from_f32(b) & 0x7fc0) == 0x7fc0 : dvt_bf16_from_f32(b) == half));
  }
  Random random(1);
  for (int i = 0; i < 200000; ++i) {
    uint32_t bits = uint32_t(random.engine()());
    if (i % 2 == 0) bits = (bits & 0x807fffffU) | (uint32_t(random.integer(96, 145)) << 23);
    if (i % 4 == 0) bits &= 0xfffff000U;  // Ties are likely.
    const float value = dvt_f32_from_bits(bits);
    if (value != value) continue;
    REQUIRE(half_value(DVT_F16, dvt_f16_from_f32(value)) == f16(value));
    REQUIRE(half_value(DVT_BF16, dvt_bf16_from_f32(value)) == bf16(value));
  }
}

TEST_CASE("Cast: all pairs of types follow the rules") {
  const Nearest f16(DVT_F16);
  const Nearest bf16(DVT_BF16);
  Random random(2);
  for (const DvtDType from : kDtypes) {
    const Operand input = hard_values(random, from);
    for (const DvtDType to : kDtypes) {
      INFO(std::string(dtype_name(from)), " to ", std::string(dtype_name(to)));
      std::vector<Operand> outputs = {Operand(to, {input.tensor.dims[0]})};
      run_kernel("Cast", {input}, outputs);
      for (size_t i = 0; i < size_t(input.tensor.dims[0]); ++i) {
        const long double value = value_of(from, &input.bytes[i * dvt_dtype_size(from)]);
        const long double got = value_of(to, &outputs[0].bytes[i * dvt_dtype_size(to)]);
        const long double expected = expected_of(from, to, value, f16, bf16);
        REQUIRE_MESSAGE((got == expected || (got != got && expected != expected)), double(value),
                        " gives ", double(got), ", not ", double(expected));
      }
    }
  }
}

TEST_CASE("Cast makes booleans 0 or 1, and handles empty tensors and scalars") {
  std::vector<Operand> outputs = {Operand(DVT_BOOL, {3})};
  run_kernel("Cast", {Operand(DVT_BOOL, {3}, std::vector<uint8_t>{0, 1, 255})}, outputs);
  CHECK(outputs[0].as<uint8_t>() == std::vector<uint8_t>{0, 1, 1});
  std::vector<Operand> empty = {Operand(DVT_F16, {2, 0})};
  run_kernel("Cast", {Operand(DVT_I64, {2, 0})}, empty);
  std::vector<Operand> scalar = {Operand(DVT_I32, {})};
  run_kernel("Cast", {Operand(DVT_F64, {}, std::vector<double>{-1e300})}, scalar);
  CHECK(scalar[0].as<int32_t>() == std::vector<int32_t>{INT32_MIN});
}
