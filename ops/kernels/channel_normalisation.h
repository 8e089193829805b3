/* channel_normalisation.h: attribute records of LRN, LpNormalization, Hardmax and the training mode
 * of BatchNormalization.
 *
 *   kernel                            inputs                         outputs
 *   LRN.<t>                           X [N,C,...]                    Y, like X
 *   LpNormalization.<t>               X                              Y, like X
 *   Hardmax.<t>                       X                              Y, like X
 *   BatchNormalizationTraining.<t>    X [N,C,...], scale, bias,      Y, like X, then those of
 * running mean, variance: [C] each, or   mean and variance, batch mean and X's shape without N if
 * not     variance that `outputs` names spatial
 *
 * <t> is f32, f64, f16 or bf16, the dtype of X and Y. The parameters and statistics of
 * BatchNormalizationTraining may be of any of the four.
 *
 * Numbers  In double, rounded once (halves: to float, then to half); sums ascend.
 *          LRN: x / (bias + alpha / size * sum of squares over the channels around it)^beta.
 *          LpNormalization: x / norm; 0 where the norm is 0.
 *          Hardmax: 1 for the first of the largest along the axis, 0 for the others; the first NaN
 *          counts as the largest.
 *          BatchNormalizationTraining: with mean and variance (mean of (x - mean)^2) of the batch;
 *          running = old * momentum + batch * (1 - momentum).
 *
 * Threads  Pure functions of their context.
 * Trust    As davit/kernel.h.
 * Memory   Nothing is allocated. LpNormalization, Hardmax and BatchNormalizationTraining: Y may be
 * X's memory.
 */
#pragma once

#include "davit/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DvtLrnAttributes {
  double alpha, beta, bias;
  int64_t size;
} DvtLrnAttributes;

typedef struct DvtLpNormAttributes {
  int64_t axis; /* May be negative. */
  int64_t p;    /* 1 or 2. */
} DvtLpNormAttributes;

typedef struct DvtHardmaxAttributes {
  int64_t axis;     /* May be negative. */
  int64_t flattens; /* 1: the axis and all behind it are one. */
} DvtHardmaxAttributes;

typedef struct DvtBatchTrainingAttributes {
  double epsilon, momentum;
  int64_t spatial;
  int64_t outputs; /* Bit i: the operator's output i is there; bit 0 is set. */
} DvtBatchTrainingAttributes;

#ifdef __cplusplus
} /* extern "C" */
#endif
