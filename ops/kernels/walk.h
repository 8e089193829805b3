/* walk.h: steps through some axes of a tensor in row-major order.
 *
 * Threads  Pure functions of their arguments.
 * Trust    Dims and strides are those of a checked tensor: offsets cannot overflow.
 * Memory   The caller's.
 */
#pragma once

#include "ops/kernels/common.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DvtWalk {
  uint32_t rank;
  int64_t dims[DVT_MAX_RANK];
  int64_t strides[DVT_MAX_RANK];
  int64_t index[DVT_MAX_RANK];
  int64_t at; /* The offset of the current element. */
} DvtWalk;

/* Starts at offset 0 of the axes whose bit in `mask` is set. */
static inline void dvt_walk_begin(DvtWalk* walk, const DvtTensor* tensor, uint32_t mask) {
  int64_t strides[DVT_MAX_RANK];
  dvt_row_major_strides(tensor, strides);
  *walk = (DvtWalk){.rank = 0};
  for (uint32_t i = 0; i < tensor->rank; ++i) {
    if ((mask >> i & 1u) == 0) continue;
    walk->dims[walk->rank] = tensor->dims[i];
    walk->strides[walk->rank++] = strides[i];
  }
}

/* On to the next element; after the last one, back to the first. */
static inline void dvt_walk_next(DvtWalk* walk) {
  for (uint32_t i = walk->rank; i > 0; --i) {
    walk->at += walk->strides[i - 1];
    if (++walk->index[i - 1] < walk->dims[i - 1]) return;
    walk->at -= walk->strides[i - 1] * walk->dims[i - 1];
    walk->index[i - 1] = 0;
  }
}

/* How many elements there are. The tensor must not be empty, or the product could overflow. */
static inline int64_t dvt_walk_count(const DvtWalk* walk) {
  int64_t count = 1;
  for (uint32_t i = 0; i < walk->rank; ++i) count *= walk->dims[i];
  return count;
}

#ifdef __cplusplus
} /* extern "C" */
#endif
