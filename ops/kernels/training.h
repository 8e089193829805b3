/* training.h: attribute record of Adagrad, Adam and Momentum, one step of an optimiser.
 *
 *   kernel         inputs                                        outputs
 *   Adagrad.<t>    R, T, X1 ... Xn, G1 ... Gn, H1 ... Hn          X1 ... Xn, H1 ... Hn
 *   Adam.<t>       R, T, X ..., G ..., V ..., H ...               X ..., V ..., H ...
 *   Momentum.<t>   R, T, X ..., G ..., V ...                      X ..., V ...
 *
 * R is the rate, f32 or f64, T the number of updates so far, i64, both of one element; X, G and the
 * states of one index have one shape. <t> is f32 or f64, the dtype of X, G and the states.
 *
 * Numbers  In double, every result rounded once, by the formulas of the standard.
 *
 * Threads  Pure functions of their context.
 * Trust    As davit/kernel.h.
 * Memory   Nothing is allocated.
 */
#pragma once

#include "davit/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DvtTrainingAttributes {
  double norm_coefficient, norm_coefficient_post; /* The latter of Adam. */
  double epsilon;                                 /* Of Adagrad and Adam. */
  double decay_factor;                            /* Of Adagrad. */
  double alpha, beta;                             /* Of Adam and Momentum. */
  int64_t nesterov;                               /* Of Momentum. */
} DvtTrainingAttributes;

#ifdef __cplusplus
} /* extern "C" */
#endif
