/* strided.h: copies a strided view into a dense tensor. Transpose, Slice, Expand and Tile are
 * views.
 *
 * Threads  Pure functions of their arguments.
 * Trust    Every element of the view lies inside the source; the target holds product(dims)
 *          elements. Callers' check() saw to both.
 * Memory   Nothing is allocated. Source and target do not overlap.
 */
#pragma once

#include "davit/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DVT_VIEW_MAX_RANK = 2 * DVT_MAX_RANK }; /* Tile has two axes for each of the tensor's. */

typedef struct DvtView {
  const void* data; /* The element at index 0 of every axis. */
  uint32_t rank;
  int64_t dims[DVT_VIEW_MAX_RANK];    /* All positive. */
  int64_t strides[DVT_VIEW_MAX_RANK]; /* Elements; may be zero or negative. */
} DvtView;

/* Appends an axis inside the others. An axis of extent 1 has no use for its stride. */
static inline void dvt_view_add_axis(DvtView* view, int64_t extent, int64_t stride) {
  view->dims[view->rank] = extent;
  view->strides[view->rank] = extent == 1 ? 0 : stride;
  view->rank += 1;
}

/* Writes the view's elements, each of `size` 1, 2, 4 or 8 bytes or a DvtString, densely in
 * row-major order. */
void dvt_strided_copy(const DvtView* view, uint32_t size, void* target);

/* Writes `count` copies of the element at `element`. */
void dvt_fill(void* target, const void* element, uint32_t size, uint64_t count);

#ifdef __cplusplus
} /* extern "C" */
#endif
