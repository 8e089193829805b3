/* float_math.h: exp, sigmoid and tanh of floats in operations that compilers vectorise.
 *
 * Errors are at most 2 units in the last place of exp, 3 of the others. NaN stays NaN. The same
 * source rounds the same everywhere, so that results do not depend on the vector width, or on the C
 * library.
 *
 * Threads  Pure functions.
 * Trust    Any float is valid.
 * Memory   Nothing is allocated.
 */
#pragma once

#include "ops/kernels/common.h"

/* e^x for |x| up to 87; beyond it, that of the bound. */
static inline float dvt_exp_bounded(float x) {
  const float below = x > 87.0f ? 87.0f : x;
  const float bounded = below < -87.0f ? -87.0f : below;
  /* x = n log 2 + r, |r| <= log(2) / 2. Adding 1.5 * 2^23 rounds to a whole n, in the low bits. */
  const float shifted = bounded * 1.44269504f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  const float r = (bounded - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f; /* (e^r - 1 - r) / r^2, minimax (Cephes). */
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float e_r = (p * r * r + r) + 1.0f;
  const uint32_t exponent = dvt_f32_bits(shifted) - dvt_f32_bits(12582912.0f) + 127u;
  return e_r * dvt_f32_from_bits(exponent << 23);
}

static inline float dvt_sigmoid_f32(float x) {
  return 1.0f / (1.0f + dvt_exp_bounded(-x));
}

static inline float dvt_tanh_f32(float x) {
  const float magnitude = dvt_f32_from_bits(dvt_f32_bits(x) & 0x7fffffffu);
  const float z = x * x;
  float p = -5.70498872745e-3f; /* (tanh x - x) / x^3 for |x| < 0.625, minimax (Cephes). */
  p = p * z + 2.06390887954e-2f;
  p = p * z + -5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z + -3.33332819422e-1f;
  const float small = p * z * x + x;
  const float large = 1.0f - 2.0f / (dvt_exp_bounded(2.0f * magnitude) + 1.0f);
  const float signed_large =
      dvt_f32_from_bits(dvt_f32_bits(large) | (dvt_f32_bits(x) & 0x80000000u));
  return magnitude < 0.625f ? small : signed_large;
}
