/* normalisation.h: attribute records of BatchNormalization and Softmax.
 *
 *   kernel                   inputs                              outputs
 *   BatchNormalization.<t>   X [N,C,...], then scale, bias,      Y, like X
 *                            mean and variance: [C] each, or
 *                            X's shape without N if not spatial
 *   Softmax.<t>              X                                   Y, like X
 *
 * <t> is f32, f64, f16 or bf16, the dtype of X and Y. The parameters of BatchNormalization may be
 * of any of the four.
 *
 * BatchNormalization   factor = scale / sqrt(variance + epsilon) and Y = (X - mean) * factor +
 * bias, in double, rounded once (for halves: to float, then to half). Softmax              Along
 * `axis` of [outer, axis, inner]: exp(X - max) / sum, the sum ascending. With `log`: (X - max) -
 * log(sum). In double, rounded once likewise.
 *
 * Threads  Pure functions of their context.
 * Trust    As davit/kernel.h.
 * Memory   Nothing is allocated. Y may be X's memory.
 */
#pragma once

#include "davit/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DvtBatchNormAttributes {
  double epsilon;
  int64_t spatial; /* 1: one parameter per channel; 0: one per element of an image. */
} DvtBatchNormAttributes;

typedef struct DvtSoftmaxAttributes {
  int64_t axis;    /* In [-rank, rank). */
  int64_t flatten; /* 1: the dims behind the axis belong to it. */
  int64_t log;
} DvtSoftmaxAttributes;

#ifdef __cplusplus
} /* extern "C" */
#endif
