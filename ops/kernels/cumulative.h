/* cumulative.h: attribute records of kernels that run along an axis.
 *
 *   CumSum.<t>   x, axis? -> y    sums of the elements up to each
 *   Trilu        x, k? -> y       the upper or lower triangle of each matrix, zeros elsewhere
 *
 * <t> is f32, f64, f16, bf16, i32, i64, u32 or u64; Trilu takes any dtype. `axis` and `k` are
 * inputs of one element, i32 or i64, where the record says so.
 *
 * Order  Sums ascend along the axis, or descend with `reverse`; f32 in double, halves in float,
 * each rounded once per element written; integers wrap.
 *
 * Threads  Types only.
 * Trust    As davit/kernel.h; parameters that are inputs are judged by run() once more.
 * Memory   Records lie in the image.
 */
#pragma once

#include "davit/kernel.h"

typedef struct DvtCumSumAttributes {
  int64_t axis;          /* In [-rank, rank). */
  int64_t axis_is_input; /* 1: it is input 1. */
  int64_t exclusive;     /* 1: the element itself is left out. */
  int64_t reverse;
} DvtCumSumAttributes;

typedef struct DvtTriluAttributes {
  int64_t upper; /* 1: what is on and above diagonal k stays, 0: on and below. */
  int64_t k;
  int64_t k_is_input; /* 1: it is input 1. */
} DvtTriluAttributes;
