/* elementwise.h: attribute records of the pointwise kernels (DvtKernel.attributes).
 *
 * Kernels are named "<Operator>.<dtype>", the dtype of input 0: "Add.f32". All broadcast as numpy
 * does. 16-bit floats are computed in f32 and rounded to nearest even. Rules for hard cases:
 *
 *   integers      overflow wraps; x / 0 and x mod 0 are 0; so MIN / -1 is MIN, and nothing traps
 *   integer Pow   by squaring, modulo 2^bits; 0 to a negative power is 0, other bases truncate
 *   NaN           Relu, Clip, Min, Max and Sign return NaN when any operand is NaN
 *   Clip          min first, then max: where min > max the result is max
 *
 * Threads  Types only.
 * Trust    Any attribute values are safe.
 * Memory   Records lie in the image.
 */
#pragma once

#include "davit/kernel.h"

/* Binary kernels (Add, Equal, And, ...). */
typedef struct DvtBinaryAttributes {
  int64_t axis; /* Output axis of input 1's first axis (opset 6), or -1: align last axes. */
} DvtBinaryAttributes;

/* Clip: bounds where inputs 1 (min) and 2 (max) are absent. */
typedef struct DvtClipAttributes {
  double min, max;
} DvtClipAttributes;

/* HardSigmoid (alpha, beta), LeakyRelu and Elu (alpha), Selu (alpha, gamma as beta). */
typedef struct DvtActivationAttributes {
  double alpha, beta;
} DvtActivationAttributes;

/* IsInf. */
typedef struct DvtIsInfAttributes {
  int64_t detect_negative, detect_positive;
} DvtIsInfAttributes;
