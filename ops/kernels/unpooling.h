/* unpooling.h: the attribute record of MaxUnpool.
 *
 *   kernel          inputs                                          output
 *   MaxUnpool.<t>   X [N,C,in...], I i64 like X, output shape?      Y
 *                   (i64 or i32, one element per axis of Y)
 *
 * <t> is f32, f64, f16 or bf16; one to three spatial dims. The pool's input was the frame
 * [N,C,frame...] with frame = (in - 1) * stride + kernel - pads. Each element of I is a place in
 * the frame, row-major; the element of X goes there, the last of several for one place. Y is the
 * frame, or, with an output shape (in the record, or as input 2), the frame at the origin of that
 * shape. All else is 0.
 *
 * Threads  Pure functions of their context.
 * Trust    As davit/kernel.h. run() refuses places outside the frame or Y.
 * Memory   Nothing is allocated.
 */
#pragma once

#include "ops/kernels/window.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DvtUnpoolAttributes {
  int64_t kernel[DVT_SPATIAL_MAX];
  int64_t strides[DVT_SPATIAL_MAX];
  int64_t pads_begin[DVT_SPATIAL_MAX];
  int64_t pads_end[DVT_SPATIAL_MAX];
  int64_t shape[2 + DVT_SPATIAL_MAX]; /* Of Y, when shape_count is not 0. */
  int64_t shape_count;
} DvtUnpoolAttributes;

#ifdef __cplusplus
} /* extern "C" */
#endif
