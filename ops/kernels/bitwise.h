/* bitwise.h: attribute record of BitShift, and the bitwise kernels.
 *
 *   kernel                              inputs     output   dtypes
 *   BitwiseAnd BitwiseOr BitwiseXor     a, b       y        any integer, the same for all
 *   BitwiseNot                          x          y        any integer
 *   BitShift                            x, by      y        unsigned integers
 *
 * Operands broadcast as numpy does. Shifting by as many bits as there are, or more, gives 0.
 *
 * Threads  Types only.
 * Trust    Any attribute value is safe.
 * Memory   Records lie in the image.
 */
#pragma once

#include "davit/kernel.h"

typedef struct DvtBitShiftAttributes {
  int64_t right; /* 0: to the left, which multiplies. */
} DvtBitShiftAttributes;
