/* slice.h: the Slice kernel, a row of movement.c's table.
 *
 * Threads  Pure functions of their context.
 * Trust    As davit/kernel.h.
 * Memory   Nothing is allocated.
 */
#pragma once

#include "davit/kernel.h"

enum { DVT_SLICE_PARAMETERS = 0x1e }; /* Inputs 1 to 4. */

DvtCode dvt_slice_run(void* context);
DvtCode dvt_slice_check(const DvtContext* ctx, char* reason, size_t size);
DvtCode dvt_slice_infer(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size);
