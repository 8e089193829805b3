/* pad.h: the Pad kernel, a row of movement.c's table.
 *
 * Threads  Pure functions of their context.
 * Trust    dvt_pad_check() refuses whatever dvt_pad_run() could not survive.
 * Memory   Nothing is allocated.
 */
#pragma once

#include "davit/kernel.h"

enum { DVT_PAD_PARAMETERS = 0xc }; /* Inputs 2 and 3: pads, axes. */

DvtCode dvt_pad_run(void* context);
DvtCode dvt_pad_check(const DvtContext* ctx, char* reason, size_t size);
DvtCode dvt_pad_infer(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size);
