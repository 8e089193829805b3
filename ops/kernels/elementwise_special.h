/* elementwise_special.h: pointwise kernels that fit no pattern: Pow, Clip, Where, Cast.
 *
 * Threads  Pure functions of their context.
 * Trust    Each dvt_check_* refuses whatever its dvt_run_* could not survive.
 * Memory   Nothing is allocated.
 */
#pragma once

#include "davit/kernel.h"

/* infer() of the binary kernels, whose record is a DvtBinaryAttributes. The slope of PRelu must
 * broadcast to x. */
DvtCode dvt_infer_binary(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size);
DvtCode dvt_infer_prelu(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size);

/* The exponent may have any numeric dtype; `dtype` is that of the base and the output. */
DvtCode dvt_run_pow(void* context);
DvtCode dvt_check_pow(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size);

/* Bounds come from inputs 1 and 2, or from the attributes where those are absent. */
DvtCode dvt_run_clip(void* context);
DvtCode dvt_check_clip(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size);

DvtCode dvt_run_where(void* context);
DvtCode dvt_check_where(const DvtContext* ctx, char* reason, size_t size);

/* Between any two dtypes that have a size, by the rules of convert.h. */
DvtCode dvt_run_cast(void* context);
DvtCode dvt_check_cast(const DvtContext* ctx, char* reason, size_t size);
