/* movement.h: attribute records of the kernels that move elements (DvtKernel.attributes).
 *
 * One kernel serves every dtype: its operands must agree.
 *
 *   Copy       x -> y                       same bytes, any shape
 *   Concat     x... -> y
 *   Split      x, sizes? -> y...
 *   Transpose  x -> y                       y's axis i is x's axis perm[i]
 *   Slice      x, starts?, ends?, axes?, steps? -> y
 *   Pad        x, value?, pads?, axes? -> y what lies before and after x; negative amounts crop
 *   Expand     x, shape? -> y               y's shape is what x and shape broadcast to
 *   Tile       x, repeats? -> y
 *
 * Parameters are inputs where the record says DVT_LIST_INPUT. An axis in [-rank, rank) counts from
 * the end when negative.
 *
 * Threads  Types only.
 * Trust    Values are checked by each kernel's infer(), check(), and run() when they are inputs.
 * Memory   Records lie in the image.
 */
#pragma once

#include "ops/kernels/shape.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Concat, Gather. */
typedef struct DvtAxisAttributes {
  int64_t axis;
} DvtAxisAttributes;

enum { DVT_SPLIT_MAX = 64 }; /* Parts whose sizes a record can hold. */
enum {
  DVT_SPLIT_EQUAL = -3,  /* Counts of sizes, beside those of DvtIntegerList: equal parts ... */
  DVT_SPLIT_RAGGED = -4, /* ... of which the last may be smaller ... */
  DVT_SPLIT_ANY = -5,    /* ... or whatever the outputs are; they are static. */
};
typedef struct DvtSplitAttributes {
  int64_t axis;
  int64_t count; /* Of the sizes, or DVT_LIST_INPUT, DVT_SPLIT_EQUAL ... */
  int64_t sizes[DVT_SPLIT_MAX];
} DvtSplitAttributes;

typedef struct DvtTransposeAttributes {
  int64_t perm[DVT_MAX_RANK]; /* The first `rank` count. */
} DvtTransposeAttributes;

/* Lists that are inputs are so together. Without axes they speak of the first ones. */
typedef struct DvtSliceAttributes {
  DvtIntegerList starts, ends; /* As numpy's, clamped to the extents. */
  DvtIntegerList axes;         /* Or DVT_LIST_NONE. */
  DvtIntegerList steps;        /* Or DVT_LIST_NONE: all 1. Not 0. */
} DvtSliceAttributes;

/* x[start : end : step] along an axis of `extent` elements: where it begins and how many. */
void dvt_slice_axis(int64_t extent, int64_t start, int64_t end, int64_t step, int64_t* first,
                    int64_t* count);

enum DvtPadMode {
  DVT_PAD_CONSTANT = 0,
  DVT_PAD_REFLECT = 1, /* Mirrors at the first and last element without repeating them. */
  DVT_PAD_EDGE = 2,
  DVT_PAD_WRAP = 3,
};

typedef struct DvtPadAttributes {
  int64_t mode; /* DvtPadMode. */
  int64_t bits; /* The value in its dtype, low bytes; for an absent input 1. */
  int64_t rank; /* Of before and after, or DVT_LIST_INPUT. */
  int64_t before[DVT_MAX_RANK];
  int64_t after[DVT_MAX_RANK];
} DvtPadAttributes;

typedef struct DvtExpandAttributes {
  DvtIntegerList shape;
} DvtExpandAttributes;

typedef struct DvtTileAttributes {
  DvtIntegerList repeats; /* One per axis. */
} DvtTileAttributes;

#ifdef __cplusplus
} /* extern "C" */
#endif
