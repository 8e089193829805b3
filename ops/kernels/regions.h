/* regions.h: attribute records of RoiAlign and MaxRoiPool.
 *
 *   kernel           inputs                                       output
 *   RoiAlign.<t>     X [N,C,H,W], rois [R,4], batch i64 [R]       Y [R,C,height,width]
 *   MaxRoiPool.<t>   X [N,C,H,W], rois [R,5]                      Y [R,C,height,width]
 *
 * <t> is f32, f64 or f16. A region is x1, y1, x2, y2, for MaxRoiPool behind the number of its
 * image.
 *
 * RoiAlign    Each bin has grid points whose values are interpolated linearly; outside [-1, extent]
 * they are 0. The result is their mean, or their maximum, or 0 when there are none. Without
 *             sampling_ratio a bin has ceil(extent of the bin) points along each axis.
 * MaxRoiPool  Corners are rounded, halves away from zero, and included; a bin without pixels gives
 * 0. Numbers     In double, rounded once (f16: to float, then to half); sums ascend.
 *
 * Threads  Pure functions of their context.
 * Trust    As davit/kernel.h. run() refuses image numbers outside [0, N) and coordinates beyond
 * 1e9. Memory   Nothing is allocated.
 */
#pragma once

#include "davit/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DVT_SAMPLING_RATIO_MAX INT64_C(1024)

typedef struct DvtRoiAlignAttributes {
  int64_t height, width;
  int64_t sampling_ratio; /* 0: by the size of the bin; at most DVT_SAMPLING_RATIO_MAX. */
  int64_t maximum;        /* 1: maximum; 0: mean. */
  int64_t half_pixel;     /* 1: coordinates are shifted by half a pixel. */
  double scale;
} DvtRoiAlignAttributes;

typedef struct DvtRoiPoolAttributes {
  int64_t height, width;
  double scale;
} DvtRoiPoolAttributes;

#ifdef __cplusplus
} /* extern "C" */
#endif
