/* rearrange.h: attribute records of kernels that move blocks.
 *
 *   DepthToSpace      x [N,C,H,W] -> y [N,C/b2,H*b,W*b]     b2 = b * b
 *   SpaceToDepth      x [N,C,H,W] -> y [N,C*b2,H/b,W/b]
 *   ReverseSequence   x, lengths i64 -> y                   the first elements of each sequence
 *
 * One kernel serves every dtype.
 *
 * Threads  Types only.
 * Trust    As davit/kernel.h; lengths are judged by run().
 * Memory   Records lie in the image.
 */
#pragma once

#include "davit/kernel.h"

typedef struct DvtBlockAttributes { /* DepthToSpace, SpaceToDepth. */
  int64_t block;                    /* 1 to 2^15. */
  int64_t column_first;             /* DepthToSpace: 1 for the mode CRD, 0 for DCR. */
} DvtBlockAttributes;

typedef struct DvtReverseAttributes {
  int64_t batch_axis, time_axis; /* 0 and 1 in either order. */
} DvtReverseAttributes;
