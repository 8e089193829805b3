/* fill.h: attribute records of the kernels whose output does not come from a tensor's elements.
 *
 *   Fill    shape? -> y   every element is `bits`
 *   Shape   x -> y        the dims [start, end) of x as i64
 *   Size    x -> y        the number of x's elements as an i64 scalar
 *
 * Threads  Types only.
 * Trust    Values are checked by each kernel's infer() and check().
 * Memory   Records lie in the image.
 */
#pragma once

#include "ops/kernels/shape.h"

typedef struct DvtFillAttributes {
  int64_t bits; /* The element in its dtype, low bytes. */
  DvtIntegerList shape;
} DvtFillAttributes;

/* Negative ones count from the end; both are clamped to [0, rank]. */
typedef struct DvtShapeAttributes {
  int64_t start, end;
} DvtShapeAttributes;
