#include "ops/kernels/convert.h"

#include "ops/kernels/common.h"

enum { DTYPE_LIMIT = DVT_BF16 + 1 };

/* f64 to f32 towards zero, with the last bit set if anything was cut off ("round to odd"). A second
 * rounding to f16 or bf16 then gives what one rounding from f64 would have. */
static float f32_to_odd(double value) {
  const float nearest = (float)value;
  if ((double)nearest == value || value != value) return nearest;
  uint32_t bits = dvt_f32_bits(nearest);
  const double magnitude = value < 0 ? -value : value;
  if ((double)dvt_f32_from_bits(bits & 0x7fffffffu) > magnitude) bits -= 1;
  return dvt_f32_from_bits(bits | 1u);
}
static uint16_t f16_from_f64(double value) {
  return dvt_f16_from_f32(f32_to_odd(value));
}
static uint16_t bf16_from_f64(double value) {
  return dvt_bf16_from_f32(f32_to_odd(value));
}

/* To double exactly but for a sticky bit, for the same reason. */
static double f64_to_odd_from_u64(uint64_t value) {
  const bool cut = (value >> 53) != 0 && (value & 0x7ffu) != 0;
  return (double)(cut ? (value & ~(uint64_t)0x7ffu) | 0x800u : value);
}
static double f64_to_odd_from_i64(int64_t value) {
  const uint64_t magnitude = value < 0 ? 0u - (uint64_t)value : (uint64_t)value;
  const double wide = f64_to_odd_from_u64(magnitude);
  return value < 0 ? -wide : wide;
}

/* convert_loop.inc defines DVT_NAME: DVT_TO[i] = DVT_EXPRESSION(DVT_FROM[i]). */

/* Widening. */
#define DVT_NAME f32_widen
#define DVT_FROM float
#define DVT_TO double
#define DVT_EXPRESSION(x) (x)
#include "ops/kernels/convert_loop.inc"

#define DVT_NAME f64_widen
#define DVT_FROM double
#define DVT_TO double
#define DVT_EXPRESSION(x) (x)
#include "ops/kernels/convert_loop.inc"

#define DVT_NAME f16_widen
#define DVT_FROM uint16_t
#define DVT_TO double
#define DVT_EXPRESSION(x) dvt_f32_from_f16(x)
#include "ops/kernels/convert_loop.inc"

#define DVT_NAME bf16_widen
#define DVT_FROM uint16_t
#define DVT_TO double
#define DVT_EXPRESSION(x) dvt_f32_from_bf16(x)
#include "ops/kernels/convert_loop.inc"

#define DVT_NAME i8_widen
#define DVT_FROM int8_t
#define DVT_TO int64_t
#define DVT_EXPRESSION(x) (x)
#include "ops/kernels/convert_loop.inc"

#define DVT_NAME i16_widen
#define DVT_FROM int16_t
#define DVT_TO int64_t
#define DVT_EXPRESSION(x) (x)
#include "ops/kernels/convert_loop.inc"

#define DVT_NAME i32_widen
#define DVT_FROM int32_t
#define DVT_TO int64_t
#define DVT_EXPRESSION(x) (x)
#include "ops/kernels/convert_loop.inc"

/* Serves i64 and u64: the bits stay. */
#define DVT_NAME u64_widen
#define DVT_FROM uint64_t
#define DVT_TO uint64_t
#define DVT_EXPRESSION(x) (x)
#include "ops/kernels/convert_loop.inc"

#define DVT_NAME u8_widen
#define DVT_FROM uint8_t
#define DVT_TO uint64_t
#define DVT_EXPRESSION(x) (x)
#include "ops/kernels/convert_loop.inc"

#define DVT_NAME u16_widen
#define DVT_FROM uint16_t
#define DVT_TO uint64_t
#define DVT_EXPRESSION(x) (x)
#include "ops/kernels/convert_loop.inc"

#define DVT_NAME u32_widen
#define DVT_FROM uint32_t
#define DVT_TO uint64_t
#define DVT_EXPRESSION(x) (x)
#include "ops/kernels/convert_loop.inc"

#define DVT_NAME bool_widen
#define DVT_FROM uint8_t
#define DVT_TO uint64_t
#define DVT_EXPRESSION(x) ((x) != 0)
#include "ops/kernels/convert_loop.inc"

#define DVT_NAME u64_to_exponent
#define DVT_FROM uint64_t
#define DVT_TO int64_t
#define DVT_EXPRESSION(x) ((x) > INT64_MAX ? ((x)&0x3fffffffffffffffu) | 0x4000000000000000u : (x))
#include "ops/kernels/convert_loop.inc"

/* Narrowing: the same thirteen destinations from each wide dtype. */
#define DVT_WIDE f64
#define DVT_FROM_TYPE double
#define DVT_SIGNED(x, low, high) dvt_clamp_f64(x, low, high)
#define DVT_UNSIGNED(x, high) dvt_clamp_f64(x, 0.0, high)
#define DVT_I64(x) dvt_i64_from_f64(x)
#define DVT_U64(x) dvt_u64_from_f64(x)
#define DVT_ODD_F64(x) (x)
#include "ops/kernels/convert_narrow.inc"

#define DVT_WIDE i64
#define DVT_FROM_TYPE int64_t
#define DVT_SIGNED(x, low, high) (x)
#define DVT_UNSIGNED(x, high) (x)
#define DVT_I64(x) (x)
#define DVT_U64(x) (uint64_t)(x)
#define DVT_ODD_F64(x) f64_to_odd_from_i64(x)
#include "ops/kernels/convert_narrow.inc"

#define DVT_WIDE u64
#define DVT_FROM_TYPE uint64_t
#define DVT_SIGNED(x, low, high) (x)
#define DVT_UNSIGNED(x, high) (x)
#define DVT_I64(x) (int64_t)(x)
#define DVT_U64(x) (x)
#define DVT_ODD_F64(x) f64_to_odd_from_u64(x)
#include "ops/kernels/convert_narrow.inc"

/* Between f32 and the 16-bit floats. */
#define DVT_NAME f16_to_f32
#define DVT_FROM uint16_t
#define DVT_TO float
#define DVT_EXPRESSION(x) dvt_f32_from_f16(x)
#include "ops/kernels/convert_loop.inc"

#define DVT_NAME bf16_to_f32
#define DVT_FROM uint16_t
#define DVT_TO float
#define DVT_EXPRESSION(x) dvt_f32_from_bf16(x)
#include "ops/kernels/convert_loop.inc"

#define DVT_NAME f32_to_f16
#define DVT_FROM float
#define DVT_TO uint16_t
#define DVT_EXPRESSION(x) dvt_f16_from_f32(x)
#include "ops/kernels/convert_loop.inc"

#define DVT_NAME f32_to_bf16
#define DVT_FROM float
#define DVT_TO uint16_t
#define DVT_EXPRESSION(x) dvt_bf16_from_f32(x)
#include "ops/kernels/convert_loop.inc"

DvtDType dvt_wide_dtype(DvtDType dtype) {
  switch (dtype) {
    case DVT_F32:
    case DVT_F64:
    case DVT_F16:
    case DVT_BF16:
      return DVT_F64;
    case DVT_I8:
    case DVT_I16:
    case DVT_I32:
    case DVT_I64:
      return DVT_I64;
    case DVT_U8:
    case DVT_U16:
    case DVT_U32:
    case DVT_U64:
    case DVT_BOOL:
      return DVT_U64;
    default:
      return DVT_DTYPE_NONE;
  }
}

DvtConvertLoop dvt_widen_loop(DvtDType dtype) {
  static const DvtConvertLoop loops[DTYPE_LIMIT] = {
      [DVT_F32] = f32_widen,   [DVT_F64] = f64_widen, [DVT_F16] = f16_widen,
      [DVT_BF16] = bf16_widen, [DVT_I8] = i8_widen,   [DVT_I16] = i16_widen,
      [DVT_I32] = i32_widen,   [DVT_I64] = u64_widen, [DVT_U8] = u8_widen,
      [DVT_U16] = u16_widen,   [DVT_U32] = u32_widen, [DVT_U64] = u64_widen,
      [DVT_BOOL] = bool_widen,
  };
  return dtype < DTYPE_LIMIT ? loops[dtype] : NULL;
}

DvtConvertLoop dvt_narrow_loop(DvtDType wide, DvtDType dtype) {
  if (dtype >= DTYPE_LIMIT) return NULL;
  switch (wide) {
    case DVT_F64:
      return narrow_f64[dtype];
    case DVT_I64:
      return narrow_i64[dtype];
    case DVT_U64:
      return narrow_u64[dtype];
    default:
      return NULL;
  }
}

DvtConvertLoop dvt_exponent_loop(DvtDType dtype) {
  /* Widening an unsigned type of up to 32 bits gives the same bits as an i64. */
  if (dtype == DVT_U64) return u64_to_exponent;
  const DvtDType wide = dvt_wide_dtype(dtype);
  return wide == DVT_I64 || wide == DVT_U64 ? dvt_widen_loop(dtype) : NULL;
}

DvtConvertLoop dvt_half_to_f32_loop(DvtDType dtype) {
  return dtype == DVT_F16 ? f16_to_f32 : dtype == DVT_BF16 ? bf16_to_f32 : NULL;
}

DvtConvertLoop dvt_f32_to_half_loop(DvtDType dtype) {
  return dtype == DVT_F16 ? f32_to_f16 : dtype == DVT_BF16 ? f32_to_bf16 : NULL;
}
