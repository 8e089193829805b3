/* integer_convolution.h: convolutions of quantised operands.
 *
 *   kernel            inputs                                          output
 *   ConvInteger.<q>   X, W, x_zero (optional), w_zero (optional)      Y i32
 *   QLinearConv.<q>   X, x_scale, x_zero, W, w_scale, w_zero,         Y u8 or i8
 *                     y_scale, y_zero, B i32 [M] (optional)
 *
 * <q> is u8 or i8, the dtype of X; W has either. X is [N,C,in...], W [M,C/group,kernel...], with
 * one to three spatial dims. Zero points have the dtype of what they belong to, scales are f32, f16
 * or bf16. All have one element, those of W also one for each of its M filters.
 *
 *   ConvInteger  sum over c, then kernel positions, of (X - x_zero) * (W - w_zero), where pads
 * count as x_zero; it wraps as two's complement does QLinearConv  that sum and B, rounded to f32,
 * times x_scale * w_scale / y_scale (each operation rounded to f32), quantised as quantisation.h
 * says
 *
 * The attribute record is DvtConvAttributes.
 *
 * Threads  Pure functions of their context.
 * Trust    As davit/kernel.h. Any values of scales and zero points are safe.
 * Memory   About 2 KiB of stack; nothing is allocated.
 */
#pragma once

#include "ops/kernels/convolution.h"
