/* pooling.h: attribute records of MaxPool and AveragePool. (Global pools are reductions.)
 *
 *   kernel            input              outputs
 *   MaxPool.<t>       X [N,C,in...]      Y [N,C,out...], indices i64 like Y (optional)
 *   AveragePool.<t>   X [N,C,in...]      Y [N,C,out...]
 *
 * <t> is f32, f64, f16 or bf16, for MaxPool also u8 and i8; one to three spatial dims.
 *
 * MaxPool   The first of equal maxima wins. A NaN in the window is the result. A window without any
 *           input gives the lowest value of the type (-inf) and index 0. Indices count elements of
 *           X as a flat row-major tensor; with storage_order 1 the spatial part of the index is
 *           column-major.
 * Average   Sum in ascending order, divided by the number of elements inside X, or, with
 *           count_include_pad, inside X and its pads: what a window in ceil mode sees beyond the
 *           pads never counts. A window without any gives 0.
 *
 * Threads  Pure functions of their context.
 * Trust    As davit/kernel.h.
 * Memory   Nothing is allocated.
 */
#pragma once

#include "ops/kernels/window.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DvtPoolAttributes {
  int64_t kernel[DVT_SPATIAL_MAX];
  DvtWindowAttributes window;
  int64_t ceil_mode;
  int64_t count_include_pad; /* AveragePool only. */
  int64_t storage_order;     /* MaxPool's indices only. */
} DvtPoolAttributes;

#ifdef __cplusplus
} /* extern "C" */
#endif
