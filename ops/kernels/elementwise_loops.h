/* elementwise_loops.h: the inner loops of the pointwise kernels, by element type.
 *
 * f16 and bf16 have none of their own: they run those of f32 (broadcast.h converts).
 *
 * Threads  Pure functions of their arguments.
 * Trust    Operands hold `count` elements.
 * Memory   Nothing is allocated.
 */
#pragma once

#include "ops/kernels/broadcast.h"

/* Loops over numbers. Inputs have the element type; so has the output, but for comparisons. */
typedef struct DvtNumericLoops {
  DvtLoop add, sub, mul, div, min, max, mod, fmod, prelu;
  DvtLoop pow_f64, pow_i64;                                      /* Input 1 is f64 or i64. */
  DvtLoop equal, greater, less, greater_or_equal, less_or_equal; /* Output bool. */
  DvtLoop relu, neg, abs, sign;
  DvtLoop clip; /* Parameters: two elements, min and max. */
} DvtNumericLoops;

/* Loops over f32 or f64. */
typedef struct DvtFloatLoops {
  DvtLoop sqrt, exp, log, sin, cos, tan, asin, acos, atan, sinh, cosh, tanh, asinh, acosh, atanh;
  DvtLoop erf, sigmoid, softplus, softsign, hard_swish, reciprocal, floor, ceil, round;
  DvtLoop hard_sigmoid, leaky_relu, elu, selu; /* Parameters: DvtActivationAttributes. */
  DvtLoop is_inf;                              /* Parameters: DvtIsInfAttributes. Output bool. */
  DvtLoop is_nan;                              /* Output bool. */
  DvtLoop divide_by;                           /* Parameters: a double. */
} DvtFloatLoops;

/* Those of the type a dtype is computed in; NULL for bool and unsized dtypes. */
const DvtNumericLoops* dvt_numeric_loops(DvtDType dtype);
/* Likewise; NULL for all but floats. */
const DvtFloatLoops* dvt_float_loops(DvtDType dtype);

/* Loops over bool (0 or 1, any other byte counts as 1). */
extern const DvtLoop dvt_loop_and, dvt_loop_or, dvt_loop_xor, dvt_loop_not, dvt_loop_equal_bool;

/* Where: input 0 bool, inputs 1 and 2 of `size` 1, 2, 4 or 8 bytes. */
DvtLoop dvt_where_loop(uint32_t size);
