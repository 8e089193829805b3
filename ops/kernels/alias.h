/* alias.h: attribute records of the kernels that only change dims (DVT_KERNEL_ALIAS).
 *
 *   Identity    x -> y
 *   Reshape     x, shape? -> y    0 copies x's extent unless allow_zero, one -1 is what remains
 *   Flatten     x -> y            two axes, cut before `axis`
 *   Squeeze     x, axes? -> y     without axes those of extent 1 go
 *   Unsqueeze   x, axes? -> y     axes of y
 *
 * Any dtype; y's bytes are x's. Shape and axes are inputs when the record says DVT_LIST_INPUT.
 *
 * Threads  Types only.
 * Trust    Values are checked by each kernel's infer() and check().
 * Memory   Records lie in the image.
 */
#pragma once

#include "ops/kernels/shape.h"

typedef struct DvtReshapeAttributes {
  int64_t allow_zero;
  DvtIntegerList shape;
} DvtReshapeAttributes;

typedef struct DvtFlattenAttributes {
  int64_t axis; /* In [-rank, rank]. */
} DvtFlattenAttributes;

typedef struct DvtAxesAttributes { /* Squeeze, Unsqueeze. */
  DvtIntegerList axes;
} DvtAxesAttributes;
