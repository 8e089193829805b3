/* element.h: elements of any dtype as one C type, for the simple paths of kernels.
 *
 * A simple path computes in double and rounds where the arithmetic of its dtype rounds, so that one
 * source serves all of them. For f32 that is exact: rounding the double sum or product of two
 * floats to float gives the same bits as float arithmetic, because 53 >= 2 * 24 + 2 (Figueroa,
 * 1995).
 *
 * Every function here takes `dtype` as a constant at its call sites; inlining leaves one load.
 *
 * Threads  Pure functions.
 * Trust    `data` holds more than `index` elements of `dtype`; callers' check() saw to it.
 * Memory   Nothing is allocated.
 */
#pragma once

#include <math.h>

#include "ops/kernels/common.h"

#define DVT_INLINE static inline __attribute__((always_inline))

/* The two functions of a kernel for one dtype, from its family's typed ones: run_<family>_<suffix>
 * and check_<family>_<suffix>. */
#define DVT_TYPED_KERNEL(family, suffix, dtype)                                                \
  static DvtCode run_##family##_##suffix(void* ctx) {                                          \
    return run_##family(ctx, dtype);                                                           \
  }                                                                                            \
  static DvtCode check_##family##_##suffix(const DvtContext* ctx, char* reason, size_t size) { \
    return check_##family(ctx, dtype, reason, size);                                           \
  }

DVT_INLINE bool dvt_dtype_is_half(DvtDType dtype) {
  return dtype == DVT_F16 || dtype == DVT_BF16;
}
DVT_INLINE bool dvt_dtype_is_float(DvtDType dtype) {
  return dtype == DVT_F32 || dtype == DVT_F64 || dvt_dtype_is_half(dtype);
}

/* The element as a double; exact for all but i64 and u64 beyond 2^53. */
DVT_INLINE double dvt_load_real(const void* data, DvtDType dtype, int64_t index) {
  switch (dtype) {
    case DVT_F32:
      return (double)((const float*)data)[index];
    case DVT_F64:
      return ((const double*)data)[index];
    case DVT_F16:
      return (double)dvt_f32_from_f16(((const uint16_t*)data)[index]);
    case DVT_BF16:
      return (double)dvt_f32_from_bf16(((const uint16_t*)data)[index]);
    case DVT_U8:
    case DVT_BOOL:
      return (double)((const uint8_t*)data)[index];
    case DVT_I8:
      return (double)((const int8_t*)data)[index];
    case DVT_U16:
      return (double)((const uint16_t*)data)[index];
    case DVT_I16:
      return (double)((const int16_t*)data)[index];
    case DVT_U32:
      return (double)((const uint32_t*)data)[index];
    case DVT_I32:
      return (double)((const int32_t*)data)[index];
    case DVT_U64:
      return (double)((const uint64_t*)data)[index];
    case DVT_I64:
      return (double)((const int64_t*)data)[index];
    default:
      return 0.0;
  }
}

/* `value` rounded to nearest even within [low, high]; NaN becomes 0. `high` may be a power of two
 * that is one above the largest integer, and then stands for "that and more". */
DVT_INLINE double dvt_clamp_rounded(double value, double low, double high) {
  const double rounded = nearbyint(value);
  if (rounded >= high) return high;
  if (rounded >= low) return rounded;
  return value != value ? 0.0 : low;
}

/* Stores `value`, rounded once to nearest even; integers saturate. For halves `value` must already
 * be a float's value (dvt_round_real), or it would round twice. */
DVT_INLINE void dvt_store_real(void* data, DvtDType dtype, int64_t index, double value) {
  switch (dtype) {
    case DVT_F32:
      ((float*)data)[index] = (float)value;
      return;
    case DVT_F64:
      ((double*)data)[index] = value;
      return;
    case DVT_F16:
      ((uint16_t*)data)[index] = dvt_f16_from_f32((float)value);
      return;
    case DVT_BF16:
      ((uint16_t*)data)[index] = dvt_bf16_from_f32((float)value);
      return;
    case DVT_BOOL:
      ((uint8_t*)data)[index] = value != 0.0;
      return;
    case DVT_U8:
      ((uint8_t*)data)[index] = (uint8_t)dvt_clamp_rounded(value, 0.0, UINT8_MAX);
      return;
    case DVT_I8:
      ((int8_t*)data)[index] = (int8_t)dvt_clamp_rounded(value, INT8_MIN, INT8_MAX);
      return;
    case DVT_U16:
      ((uint16_t*)data)[index] = (uint16_t)dvt_clamp_rounded(value, 0.0, UINT16_MAX);
      return;
    case DVT_I16:
      ((int16_t*)data)[index] = (int16_t)dvt_clamp_rounded(value, INT16_MIN, INT16_MAX);
      return;
    case DVT_U32:
      ((uint32_t*)data)[index] = (uint32_t)dvt_clamp_rounded(value, 0.0, UINT32_MAX);
      return;
    case DVT_I32:
      ((int32_t*)data)[index] = (int32_t)dvt_clamp_rounded(value, INT32_MIN, INT32_MAX);
      return;
    case DVT_U64: {
      const double clamped = dvt_clamp_rounded(value, 0.0, 0x1p64);
      ((uint64_t*)data)[index] = clamped >= 0x1p64 ? UINT64_MAX : (uint64_t)clamped;
      return;
    }
    case DVT_I64: {
      const double clamped = dvt_clamp_rounded(value, -0x1p63, 0x1p63);
      ((int64_t*)data)[index] = clamped >= 0x1p63 ? INT64_MAX : (int64_t)clamped;
      return;
    }
    default:
      return;
  }
}

/* Rounds an intermediate result to the type that `dtype` computes in: float for f32 and halves. */
DVT_INLINE double dvt_round_real(double value, DvtDType dtype) {
  return dtype == DVT_F64 ? value : (double)(float)value;
}

/* Rounds a running sum. Sums of f32 are kept in double and rounded once at the end, which costs
 * little and keeps long reductions accurate; halves accumulate in float. */
DVT_INLINE double dvt_round_sum(double value, DvtDType dtype) {
  return dvt_dtype_is_half(dtype) ? (double)(float)value : value;
}

/* An integer element, extended to 64 bits by its own signedness. Arithmetic on it wraps, as two's
 * complement does, and its low bits are right for either signedness. */
DVT_INLINE uint64_t dvt_load_integer(const void* data, DvtDType dtype, int64_t index) {
  switch (dtype) {
    case DVT_U8:
    case DVT_BOOL:
      return ((const uint8_t*)data)[index];
    case DVT_I8:
      return (uint64_t)(int64_t)((const int8_t*)data)[index];
    case DVT_U16:
      return ((const uint16_t*)data)[index];
    case DVT_I16:
      return (uint64_t)(int64_t)((const int16_t*)data)[index];
    case DVT_U32:
      return ((const uint32_t*)data)[index];
    case DVT_I32:
      return (uint64_t)(int64_t)((const int32_t*)data)[index];
    case DVT_U64:
    case DVT_I64:
      return ((const uint64_t*)data)[index];
    default:
      return 0;
  }
}

/* Stores the low bits. */
DVT_INLINE void dvt_store_integer(void* data, DvtDType dtype, int64_t index, uint64_t value) {
  switch (dvt_dtype_size(dtype)) {
    case 1:
      ((uint8_t*)data)[index] = (uint8_t)value;
      return;
    case 2:
      ((uint16_t*)data)[index] = (uint16_t)value;
      return;
    case 4:
      ((uint32_t*)data)[index] = (uint32_t)value;
      return;
    case 8:
      ((uint64_t*)data)[index] = value;
      return;
    default:
      return;
  }
}

/* True for the integer dtypes that hold negative numbers. */
DVT_INLINE bool dvt_dtype_is_signed(DvtDType dtype) {
  return dtype == DVT_I8 || dtype == DVT_I16 || dtype == DVT_I32 || dtype == DVT_I64;
}
