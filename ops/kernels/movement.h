/* movement.h: attribute records of the kernels that move elements (DvtKernel.attributes).
 *
 * One kernel serves every dtype: its operands must agree. Per-axis arrays have DVT_MAX_RANK
 * entries, of which the first `rank` count.
 *
 *   Copy       x -> y                same bytes, any shape
 *   Concat     x... -> y
 *   Split      x -> y...             part sizes are those of the outputs
 *   Transpose  x -> y                y's axis i is x's axis perm[i]
 *   Slice      x -> y                y[i] = x[start + i * step] along each axis
 *   Pad        x, value? -> y        what lies before and after x; negative amounts crop
 *   Expand     x -> y                y's shape is what x broadcasts to
 *   Tile       x -> y                repeats follow from the shapes
 *   Gather     x, indices -> y       indices i32 or i64, negative ones count from the end
 *   Fill       -> y                  every element is `bits`
 *   Shape      x -> y                the dims [start, end) of x as i64
 *
 * Threads  Types only.
 * Trust    Values are checked by each kernel's check(); Gather's indices by its run().
 * Memory   Records lie in the image.
 */
#pragma once

#include "davit/kernel.h"

/* Concat, Split, Gather. */
typedef struct DvtAxisAttributes {
  int64_t axis; /* In [0, rank). */
} DvtAxisAttributes;

typedef struct DvtTransposeAttributes {
  int64_t perm[DVT_MAX_RANK];
} DvtTransposeAttributes;

typedef struct DvtSliceAttributes {
  int64_t starts[DVT_MAX_RANK]; /* In [0, extent). */
  int64_t steps[DVT_MAX_RANK];  /* Not 0. */
} DvtSliceAttributes;

enum DvtPadMode {
  DVT_PAD_CONSTANT = 0,
  DVT_PAD_REFLECT = 1, /* Mirrors at the first and last element without repeating them. */
  DVT_PAD_EDGE = 2,
  DVT_PAD_WRAP = 3,
};

typedef struct DvtPadAttributes {
  int64_t mode;                 /* DvtPadMode. */
  int64_t bits;                 /* The value in its dtype, low bytes; for an absent input 1. */
  int64_t before[DVT_MAX_RANK]; /* What goes after follows from the shapes. */
} DvtPadAttributes;

typedef struct DvtFillAttributes {
  int64_t bits; /* The element in its dtype, low bytes. */
} DvtFillAttributes;

typedef struct DvtShapeAttributes {
  int64_t start, end; /* 0 <= start <= end <= rank. */
} DvtShapeAttributes;
