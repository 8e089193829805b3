/* index.h: what gathering and scattering kernels share: indices i32 or i64, of which negative ones
 * count from the end.
 *
 *   Gather          x, indices -> y            along an axis; indices of any shape
 *   GatherElements  x, indices -> y            one element of x per index, along an axis
 *   GatherND        x, indices -> y            the last axis of indices holds tuples
 *   ScatterElements x, indices, updates -> y   x with one element per index updated
 *   ScatterND       x, indices, updates -> y   x with one slice per tuple updated
 *
 * One kernel serves every dtype. An index outside x stops the run.
 *
 * Scatter  Updates are applied in the order of indices. DVT_SCATTER_NONE replaces: the last of
 *          equal indices wins. Floats are rounded after each step, integers wrap; NaN stays in
 *          minimum and maximum.
 *
 * Threads  Pure functions of their arguments.
 * Trust    The checks judge tensors from anywhere; indices are judged one by one as they are used.
 * Memory   Nothing is allocated.
 */
#pragma once

#include "ops/kernels/shape.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DvtGatherNdAttributes {
  int64_t batch_dims; /* Leading axes that x and indices share. */
} DvtGatherNdAttributes;

enum DvtScatter {
  DVT_SCATTER_NONE = 0,
  DVT_SCATTER_ADD = 1,
  DVT_SCATTER_MUL = 2,
  DVT_SCATTER_MAX = 3,
  DVT_SCATTER_MIN = 4,
  DVT_SCATTER_COUNT = 5,
};
typedef struct DvtScatterAttributes {
  int64_t axis; /* In [-rank, rank). ScatterElements only. */
  int64_t reduction;
} DvtScatterAttributes;

/* Input `index` is i32 or i64. */
DvtCode dvt_index_check_dtype(const DvtContext* ctx, uint32_t index, char* reason, size_t size);

/* Indices of one element each: x's rank, and nowhere but along the axis longer than x. */
DvtCode dvt_index_check_elements(const DvtTensor* x, const DvtTensor* indices, uint32_t axis,
                                 char* reason, size_t size);

/* Indices of tuples: the last axis has 1 to rank - batch entries, the first `batch` axes are x's.
 */
DvtCode dvt_index_check_tuples(const DvtTensor* x, const DvtTensor* indices, int64_t batch,
                               char* reason, size_t size);

/* Element `at` of the indices as one in [0, extent), or -1. */
static inline int64_t dvt_index_at(const DvtCell* indices, int64_t at, int64_t extent) {
  const int64_t stated = indices->tensor->dtype == DVT_I32 ? ((const int32_t*)indices->data)[at]
                                                           : ((const int64_t*)indices->data)[at];
  const int64_t index = stated < 0 ? stated + extent : stated;
  return index < extent && index >= 0 ? index : -1;
}

/* Walks indices of one element each in row-major order. */
typedef struct DvtIndexWalk {
  const DvtCell* indices;
  int64_t count;
  uint32_t axis;
  int64_t extent; /* Of x along the axis. */
  int64_t strides[DVT_MAX_RANK];
  int64_t at[DVT_MAX_RANK];
} DvtIndexWalk;
void dvt_index_walk_init(DvtIndexWalk* walk, const DvtCell* indices, const DvtTensor* x,
                         uint32_t axis);
/* The offset in x of index `i`, one more than the last; -1 when it lies outside. */
int64_t dvt_index_walk_next(DvtIndexWalk* walk, int64_t i);

/* Tuples and the slices of x that they name. */
typedef struct DvtTuples {
  const DvtCell* indices;
  int64_t count;     /* Tuples, ... */
  int64_t length;    /* ... entries of each, ... */
  int64_t per_batch; /* ... and tuples per batch of x. */
  int64_t slice;     /* Elements of a slice. */
  int64_t batch_stride;
  int64_t extents[DVT_MAX_RANK];
  int64_t strides[DVT_MAX_RANK];
} DvtTuples;
void dvt_tuples_init(DvtTuples* tuples, const DvtCell* indices, const DvtTensor* x, uint32_t batch);
/* The offset in x of the slice of tuple `i`; -1 when an entry lies outside. */
int64_t dvt_tuples_offset(const DvtTuples* tuples, int64_t i);

#ifdef __cplusplus
} /* extern "C" */
#endif
