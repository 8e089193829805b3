/* reduction.h: the attribute record of Reduce, which serves the Reduce* operators and global pools.
 *
 *   kernel       inputs                      output
 *   Reduce.<t>   X [d0,...], axes?           Y: X's dims, those of `axes` gone or one
 *
 * <t> is any dtype but bool and the 16-bit integers. Whether the reduced dims stay matters to
 * infer() only: Y has the elements, in the same order.
 *
 * Order      Elements in row-major order of the reduced dims. f32 is summed in double and rounded
 *            once, halves in float; integers wrap, as two's complement does.
 * Empty      A reduction of no elements gives 0 (sums, L1, L2), 1 (product), the lowest or highest
 *            value (max, min) or NaN (mean of floats; 0 of integers).
 * NaN        Max and min of anything with a NaN is NaN.
 * Mean       of integers truncates towards zero.
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

enum DvtReduceOp {
  DVT_REDUCE_SUM = 0,
  DVT_REDUCE_MEAN = 1,
  DVT_REDUCE_MAX = 2,
  DVT_REDUCE_MIN = 3,
  DVT_REDUCE_PROD = 4,
  DVT_REDUCE_SUM_SQUARE = 5,
  DVT_REDUCE_L1 = 6,
  DVT_REDUCE_L2 = 7, /* And above it: not for integers. */
  DVT_REDUCE_LOG_SUM = 8,
  DVT_REDUCE_LOG_SUM_EXP = 9,
  DVT_REDUCE_OP_COUNT = 10,
};

typedef struct DvtReduceAttributes {
  int64_t op;   /* DvtReduceOp. */
  int64_t axes; /* Bit i: dim i is reduced. Negative: bits beyond X's rank mean nothing. With the
                   input axes: 0 when an empty list means none, -1 when it means all. */
  int64_t axes_from_end; /* Bit i: dim rank - 1 - i is reduced, too. For an X of unknown rank. */
  int64_t keep_dims;     /* 1: reduced dims stay, with extent one. */
} DvtReduceAttributes;

#ifdef __cplusplus
} /* extern "C" */
#endif
