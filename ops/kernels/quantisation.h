/* quantisation.h: attribute records of the linear quantisation kernels, and the arithmetic they
 * share.
 *
 *   kernel                     inputs                                  outputs
 *   QuantizeLinear.<t>         x, scale, zero_point (optional)         y: u8, i8, u16 or i16
 *   DequantizeLinear.<q>       x, scale, zero_point (optional)         y: the dtype of scale
 *   DynamicQuantizeLinear.f32  x                                       y u8, scale f32 [],
 *                                                                      zero_point u8 []
 *
 * <t> is f32, f16, bf16 or i32; <q> is i8, u8, i16, u16 or i32; scale is f32, f16 or bf16. scale
 * has one element, or one for each index of `axis`, or with block_size one for each `block_size` of
 * them: then it has x's shape but for ceil(extent / block_size) along `axis`. zero_point has the
 * shape of scale, and the dtype of the quantised side; absent is zero.
 *
 *   quantise    saturate(nearest_even(x / scale) + zero_point); the quotient is a float
 *   dequantise  (x - zero_point) * scale; the difference is exact, then rounded to a float
 *
 * NaN quantises to the zero point, as 0 does; so does x / 0 where x is 0. Infinities saturate.
 *
 * Threads  Pure functions of their arguments.
 * Trust    As davit/kernel.h. Any values of scale and zero_point are safe.
 * Memory   Nothing is allocated.
 */
#pragma once

#include "davit/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DvtQuantizeAttributes {
  int64_t axis;       /* Negative counts from the end. Unused where scale has one element. */
  int64_t block_size; /* Elements along axis that share one of scale; 0: not in blocks. */
} DvtQuantizeAttributes;

/* The range of a quantised dtype; false for any other. */
static inline bool dvt_quantised_range(DvtDType dtype, float* low, float* high) {
  switch (dtype) {
    case DVT_U8:
      *low = 0.0f;
      *high = UINT8_MAX;
      return true;
    case DVT_I8:
      *low = INT8_MIN;
      *high = INT8_MAX;
      return true;
    case DVT_U16:
      *low = 0.0f;
      *high = UINT16_MAX;
      return true;
    case DVT_I16:
      *low = INT16_MIN;
      *high = INT16_MAX;
      return true;
    default:
      return false;
  }
}

/* nearest_even(value) + zero, brought into [low, high], which hold 0 + zero. NaN counts as 0. */
static inline int32_t dvt_quantise(float value, float zero, float low, float high) {
  /* Adding 1.5 * 2^23 leaves no bits behind the point: the FPU rounds, without a call. The
   * differences are whole numbers below 2^18, so all of this is exact. */
  const float shift = 0x1.8p23f;
  value = value < low - zero ? low - zero : value;
  value = value > high - zero ? high - zero : value;
  value = value != value ? 0.0f : value;
  return (int32_t)((value + shift) - shift + zero);
}

#ifdef __cplusplus
} /* extern "C" */
#endif
