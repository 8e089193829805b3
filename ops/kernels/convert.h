/* convert.h: conversion of elements between dtypes.
 *
 * A conversion goes through the widest dtype of the source's kind, exactly: floats through f64,
 * signed integers through i64, unsigned ones and bool through u64. So 13 widening and 39 narrowing
 * loops make all 169 pairs. The rules of narrowing, which are those of the Cast operator:
 *
 *   to bool         0 and -0 are false, all else, NaN too, is true
 *   to integer      from float: towards zero, saturating; NaN gives 0
 *                   from integer: modulo 2^bits
 *   to float        to nearest, ties to even; too large gives infinity; NaN stays NaN
 *
 * Threads  Pure functions of their arguments.
 * Trust    Dtypes have a size (dvt_check_counts); counts lie inside both buffers.
 * Memory   Nothing is allocated. Source and destination do not overlap.
 */
#pragma once

#include "davit/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef void (*DvtConvertLoop)(const void* from, void* to, int64_t count);

/* DVT_F64, DVT_I64 or DVT_U64; DVT_DTYPE_NONE for a dtype without a size. */
DvtDType dvt_wide_dtype(DvtDType dtype);
/* From `dtype` to its wide dtype; never NULL for a dtype with a size. */
DvtConvertLoop dvt_widen_loop(DvtDType dtype);
/* From a wide dtype to any dtype with a size; never NULL for such a pair. */
DvtConvertLoop dvt_narrow_loop(DvtDType wide, DvtDType dtype);
/* From an integer dtype or bool to i64, for exponents of Pow; NULL for any other dtype. A u64 that
 * i64 cannot hold becomes one of 2^62 or more that is equal modulo 2^62, which gives an integer
 * base the same power modulo 2^64. */
DvtConvertLoop dvt_exponent_loop(DvtDType dtype);
/* Between f16 or bf16 and f32; NULL for any other dtype. */
DvtConvertLoop dvt_half_to_f32_loop(DvtDType dtype);
DvtConvertLoop dvt_f32_to_half_loop(DvtDType dtype);

/* Double to integer as above. */
static inline double dvt_clamp_f64(double value, double low, double high) {
  value = value < low ? low : value;
  value = value > high ? high : value;
  return value != value ? 0.0 : value;
}
static inline int64_t dvt_i64_from_f64(double value) {
  /* 2^63 is a double, INT64_MAX is not. */
  if (value >= 0x1p63) return INT64_MAX;
  return (int64_t)dvt_clamp_f64(value, -0x1p63, 0x1p63);
}
static inline uint64_t dvt_u64_from_f64(double value) {
  if (value >= 0x1p64) return UINT64_MAX;
  return (uint64_t)dvt_clamp_f64(value, 0.0, 0x1p64);
}

#ifdef __cplusplus
} /* extern "C" */
#endif
