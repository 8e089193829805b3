/* integer_matrix.h: matrix products of quantised operands.
 *
 *   kernel                inputs                                        output
 *   MatMulInteger.<q>     A, B, a_zero (optional), b_zero (optional)    Y i32
 *   QLinearMatMul.<q>     A, a_scale, a_zero, B, b_scale, b_zero,       Y u8 or i8
 *                         y_scale, y_zero
 *
 * <q> is u8 or i8, the dtype of A; B has either. Shapes go together as MatMul's do. Zero points
 * have the dtype of what they belong to; scales are f32, f16 or bf16. Both have one element; or one
 * for each row of A, column of B or row of Y; or one for each of those in each matrix of a batch:
 * then the dim that they do not have is 1.
 *
 *   MatMulInteger  sum over k of (A - a_zero) * (B - b_zero), which wraps as two's complement does
 *   QLinearMatMul  that sum, rounded to f32, times a_scale * b_scale / y_scale (each operation
 *                  rounded to f32), quantised as quantisation.h says
 *
 * Threads  Pure functions of their context.
 * Trust    As davit/kernel.h. Any values of scales and zero points are safe.
 * Memory   About 2 KiB of stack; nothing is allocated.
 */
#pragma once

#include "davit/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Inside ops/kernels: accumulator[i] += factor * (values[i * step] - zero) over 8-bit integers,
 * modulo 2^32. */
void dvt_accumulate_bytes(uint32_t* accumulator, const void* values, DvtDType dtype, int64_t step,
                          uint32_t zero, uint32_t factor, int64_t count);

#ifdef __cplusplus
} /* extern "C" */
#endif
