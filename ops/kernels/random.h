/* random.h: attribute records of the random kernels.
 *
 *   kernel         inputs                          outputs
 *   Random.<t>     like? (any dtype)               Y, with the record's shape or that of `like`
 *   Bernoulli      probabilities (float)           Y, like the input (any number or bool)
 *   Multinomial    log probabilities [B,C]         Y [B,samples], i32 or i64; workspace: u8, C
 * doubles Dropout.<t>    X, ratio?, training? (bool)     Y, like X; mask, like X (bool or X's
 * dtype), if `outputs` names it
 *
 * <t> is f32, f64, f16 or bf16.
 *
 * Every number is a function of the seed and its place alone (SplitMix64 of both), so that results
 * are the same on every run, every target and with any number of threads. No kernel has state: the
 * next run draws the same numbers.
 *
 * Threads  Pure functions of their context.
 * Trust    As davit/kernel.h. run() refuses ratios outside [0, 1).
 * Memory   The workspace's contents mean nothing before and after a run. Dropout: Y may be X's
 * memory.
 */
#pragma once

#include "ops/kernels/shape.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DvtRandomAttributes {
  int64_t seed;
  int64_t normal; /* 1: mean and deviation; 0: uniform in [low, high). */
  double low_or_mean, high_or_deviation;
  DvtIntegerList shape; /* DVT_LIST_NONE: that of input 0. */
} DvtRandomAttributes;

typedef struct DvtBernoulliAttributes {
  int64_t seed;
} DvtBernoulliAttributes;

typedef struct DvtMultinomialAttributes {
  int64_t seed;
  int64_t samples;
} DvtMultinomialAttributes;

typedef struct DvtDropoutAttributes {
  int64_t seed;
  double ratio;     /* Without input 1. */
  int64_t training; /* Without input 2. */
  int64_t outputs;  /* Bit i: the operator's output i is there; bit 0 is set. */
} DvtDropoutAttributes;

#ifdef __cplusplus
} /* extern "C" */
#endif
