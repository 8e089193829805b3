/* lp_pooling.h: attribute records of LpPool and GlobalLpPool.
 *
 *   kernel             input          output
 *   LpPool.<t>         X [N,C,in...]  Y [N,C,out...]
 *   GlobalLpPool.<t>   X [N,C,in...]  Y [N,C,1...]
 *
 * <t> is f32, f64, f16 or bf16. LpPool: one to three spatial dims; GlobalLpPool: one or more.
 *
 * Numbers  (sum of |x|^p)^(1/p), pads counting as 0; in double, the sum ascending, rounded once
 * (halves: to float, then to half).
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

typedef struct DvtLpPoolAttributes {
  int64_t kernel[DVT_SPATIAL_MAX];
  DvtWindowAttributes window;
  int64_t ceil_mode;
  double p; /* Above 0. */
} DvtLpPoolAttributes;

typedef struct DvtGlobalLpPoolAttributes {
  double p; /* Above 0. */
} DvtGlobalLpPoolAttributes;

#ifdef __cplusplus
} /* extern "C" */
#endif
