/* order.h: the order of elements, and a heap of indices: what kernels that rank share.
 *
 * NaN is above everything and equal to itself; -0 equals 0. A heap pops indices in the order that
 * `before` gives, which must be strict and total: equal elements by their index.
 *
 * Threads  Pure functions of their arguments.
 * Trust    Indices are within what `before` can read.
 * Memory   The heap lies in the caller's array.
 */
#pragma once

#include "ops/kernels/element.h"

/* Below 0, 0 or above 0 as element i of `a` is less than, equal to or greater than element j. */
static inline int dvt_compare_elements(const void* a, DvtDType dtype, int64_t i, int64_t j) {
  if (dvt_dtype_is_float(dtype)) {
    const double x = dvt_load_real(a, dtype, i);
    const double y = dvt_load_real(a, dtype, j);
    if (x != x || y != y) return (x != x) - (y != y);
    return (x > y) - (x < y);
  }
  const uint64_t x = dvt_load_integer(a, dtype, i);
  const uint64_t y = dvt_load_integer(a, dtype, j);
  if (dvt_dtype_is_signed(dtype)) return ((int64_t)x > (int64_t)y) - ((int64_t)x < (int64_t)y);
  return (x > y) - (x < y);
}

/* True when index a comes before index b. */
typedef bool (*DvtBefore)(const void* context, int64_t a, int64_t b);

typedef struct DvtHeap {
  int64_t* indices;
  int64_t count;
  DvtBefore before;
  const void* context;
} DvtHeap;

static inline void dvt_heap_sift(DvtHeap* heap, int64_t at) {
  const int64_t moved = heap->indices[at];
  for (int64_t child = 2 * at + 1; child < heap->count; child = 2 * at + 1) {
    if (child + 1 < heap->count &&
        heap->before(heap->context, heap->indices[child + 1], heap->indices[child])) {
      ++child;
    }
    if (!heap->before(heap->context, heap->indices[child], moved)) break;
    heap->indices[at] = heap->indices[child];
    at = child;
  }
  heap->indices[at] = moved;
}

/* Makes a heap of heap->indices[0, count). */
static inline void dvt_heap_build(DvtHeap* heap) {
  for (int64_t i = heap->count / 2; i > 0; --i) dvt_heap_sift(heap, i - 1);
}

/* The first of what is left. Precondition: something is. */
static inline int64_t dvt_heap_pop(DvtHeap* heap) {
  const int64_t first = heap->indices[0];
  heap->indices[0] = heap->indices[--heap->count];
  if (heap->count > 0) dvt_heap_sift(heap, 0);
  return first;
}

/* Puts heap->indices in order, the last first: pops go to the end that the heap leaves free. */
static inline void dvt_heap_sort_backwards(DvtHeap* heap) {
  dvt_heap_build(heap);
  while (heap->count > 0) {
    const int64_t first = dvt_heap_pop(heap);
    heap->indices[heap->count] = first;
  }
}
