/* generate.h: attribute records of kernels whose elements come from a rule.
 *
 *   EyeLike   x -> y    ones on diagonal k of a matrix of x's shape, zeros elsewhere; any dtype
 *
 * Threads  Types only.
 * Trust    As davit/kernel.h.
 * Memory   Records lie in the image.
 */
#pragma once

#include "davit/kernel.h"

typedef struct DvtEyeAttributes {
  int64_t k;    /* The diagonal: above the main one if positive. */
  int64_t bits; /* One, in y's dtype, low bytes. */
} DvtEyeAttributes;
