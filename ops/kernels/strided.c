#include "ops/kernels/strided.h"

#include <stdbool.h>
#include <string.h>

/* The innermost work of a copy: a plane of `rows` times `columns` elements whose target rows are
 * target_stride elements apart and whose columns are dense. */
typedef struct Plane {
  int64_t rows, columns;
  int64_t row_stride, column_stride; /* Of the source, elements. */
  int64_t target_stride;
} Plane;

typedef void (*PlaneCopy)(const Plane* plane, const void* source, void* target);

#define DVT_SIZE 1
#define T uint8_t
#include "ops/kernels/strided_plane.inc"

#define DVT_SIZE 2
#define T uint16_t
#include "ops/kernels/strided_plane.inc"

#define DVT_SIZE 4
#define T uint32_t
#include "ops/kernels/strided_plane.inc"

#define DVT_SIZE 8
#define T uint64_t
#include "ops/kernels/strided_plane.inc"

#define DVT_SIZE string
#define T DvtString
#include "ops/kernels/strided_plane.inc"

/* Drops axes of extent 1 and merges neighbours that are one run in the source. */
static void simplify(const DvtView* view, DvtView* out) {
  *out = (DvtView){.data = view->data};
  for (uint32_t d = 0; d < view->rank; ++d) {
    if (view->dims[d] == 1) continue;
    const uint32_t last = out->rank - 1;
    if (out->rank > 0 && out->strides[last] == view->strides[d] * view->dims[d]) {
      out->dims[last] *= view->dims[d];
      out->strides[last] = view->strides[d];
    } else {
      dvt_view_add_axis(out, view->dims[d], view->strides[d]);
    }
  }
  if (out->rank == 0) {
    out->dims[0] = 1;
    out->strides[0] = 1;
    out->rank = 1;
  }
}

/* The axis that becomes a plane's rows: one that is dense in the source, so that neither side of a
 * transposition strides through memory; else the one next to the columns. `rank` > 1. */
static uint32_t choose_rows(const DvtView* view) {
  const uint32_t columns = view->rank - 1;
  if (view->strides[columns] != 1) {
    for (uint32_t d = 0; d < columns; ++d) {
      if (view->strides[d] == 1) return d;
    }
  }
  return columns - 1;
}

void dvt_strided_copy(const DvtView* full, uint32_t size, void* target) {
  DvtView view;
  simplify(full, &view);
  const PlaneCopy copy = size == 1   ? plane_copy_1
                         : size == 2 ? plane_copy_2
                         : size == 4 ? plane_copy_4
                         : size == 8 ? plane_copy_8
                                     : plane_copy_string;
  int64_t target_strides[DVT_VIEW_MAX_RANK];
  int64_t dense = 1;
  for (uint32_t d = view.rank; d > 0; --d) {
    target_strides[d - 1] = dense;
    dense *= view.dims[d - 1];
  }
  const uint32_t columns = view.rank - 1;
  Plane plane = {.rows = 1, .columns = view.dims[columns], .column_stride = view.strides[columns]};
  if (view.rank > 1) {
    const uint32_t rows = choose_rows(&view);
    plane.rows = view.dims[rows];
    plane.row_stride = view.strides[rows];
    plane.target_stride = target_strides[rows];
    /* The remaining axes keep their order. */
    for (uint32_t d = rows; d + 2 < view.rank; ++d) {
      view.dims[d] = view.dims[d + 1];
      view.strides[d] = view.strides[d + 1];
      target_strides[d] = target_strides[d + 1];
    }
  }
  const uint32_t outer = view.rank > 1 ? view.rank - 2 : 0;
  int64_t index[DVT_VIEW_MAX_RANK] = {0};
  const char* from = view.data;
  char* to = target;
  for (;;) {
    copy(&plane, from, to);
    uint32_t d = outer;
    while (d > 0) {
      --d;
      const bool wraps = ++index[d] == view.dims[d];
      const int64_t steps = wraps ? 1 - view.dims[d] : 1;
      from += steps * view.strides[d] * (int64_t)size;
      to += steps * target_strides[d] * (int64_t)size;
      if (!wraps) break;
      index[d] = 0;
      if (d == 0) return;
    }
    if (outer == 0) return;
  }
}

void dvt_fill(void* target, const void* element, uint32_t size, uint64_t count) {
  if (count == 0) return;
  char* bytes = target;
  const size_t total = (size_t)size * count;
  /* Doubling up to a block that stays in the first-level cache, then block by block. */
  enum { BLOCK = 4096 };
  memcpy(bytes, element, size);
  size_t filled = size;
  while (filled < total) {
    size_t more = filled < BLOCK ? filled : BLOCK;
    if (more > total - filled) more = total - filled;
    memcpy(bytes + filled, bytes, more);
    filled += more;
  }
}
