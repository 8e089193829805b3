/* activation.h: attribute records of the activations that are not in elementwise.h.
 *
 *   kernel                y =
 *   Celu.<t>              x < 0 ? alpha * (exp(x / alpha) - 1) : x
 *   ThresholdedRelu.<t>   x > alpha ? x : 0
 *   Mish.<t>              x * tanh(log(1 + exp(x)))
 *   Gelu.<t>              x * (1 + erf(x / sqrt(2))) / 2, or its approximation by tanh
 *   Shrink.<n>            x < -lambda ? x + bias : x > lambda ? x - bias : 0
 *
 * <t> is f32, f64, f16 or bf16; <n> also any integer: then Shrink is computed in f64, cut towards
 * zero, and saturates. NaN gives NaN.
 *
 * Threads  Types only.
 * Trust    Any attribute values are safe.
 * Memory   Records lie in the image.
 */
#pragma once

#include "ops/kernels/broadcast.h"

/* Celu, ThresholdedRelu. */
typedef struct DvtAlphaAttributes {
  double alpha;
} DvtAlphaAttributes;

typedef struct DvtGeluAttributes {
  int64_t approximate; /* 0: by erf; else by tanh. */
} DvtGeluAttributes;

/* The loop of Gelu for a float dtype. */
DvtLoop dvt_gelu_loop(DvtDType dtype, bool by_tanh);

typedef struct DvtShrinkAttributes {
  double lambda, bias;
} DvtShrinkAttributes;
