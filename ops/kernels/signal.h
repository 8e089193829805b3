/* signal.h: attribute records of DFT, STFT, MelWeightMatrix and the cosine windows.
 *
 *   kernel                inputs                                        outputs
 *   DFT.<t>               X [...,1 or 2], length?, axis?                Y [...,2], workspace
 *   STFT.<t>              X [B,L,1 or 2], step?, window? [n], length?   Y [B,frames,bins,2],
 * workspace MelWeightMatrix       bins, length, rate (i32 or i64),              Y [length / 2 + 1,
 * bins] low, high (floats): scalars CosineWindow          size? (i32 or i64 scalar) Y [size]
 *
 * <t> is f32, f64, f16 or bf16; the last axis of X is the real and the imaginary part. Y of the
 * last two is of any number type. Parameters are inputs where the record says DVT_LIST_INPUT. A
 * transform has floor(n / 2) + 1 bins if onesided, else n. The workspaces are u8; infer() has their
 * sizes.
 *
 * Numbers  In double, rounded once (halves: to float, then to half; the integers of MelWeightMatrix
 * and CosineWindow towards zero). The inverse divides by n. Windows: a - b cos(2 pi k / N) + c
 * cos(4 pi k / N), N the size, or size - 1 if symmetric; the only element of a symmetric one is 1.
 * Bins of MelWeightMatrix beyond the spectrum are left out.
 *
 * Threads  Pure functions of their context.
 * Trust    As davit/kernel.h.
 * Memory   The workspaces' contents mean nothing before and after a run.
 */
#pragma once

#include "ops/kernels/shape.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DvtDftAttributes {
  int64_t axis;   /* May be negative; ignored with input 2. */
  int64_t length; /* Of the transform; 0: the axis's; DVT_LIST_INPUT: input 1. */
  int64_t inverse;
  int64_t onesided; /* For real, forward transforms only. */
} DvtDftAttributes;

typedef struct DvtStftAttributes {
  int64_t step;   /* Or DVT_LIST_INPUT. */
  int64_t length; /* Of a frame; 0: the window's; or DVT_LIST_INPUT. */
  int64_t onesided;
} DvtStftAttributes;

typedef struct DvtCosineWindowAttributes {
  double a, b, c;
  int64_t periodic;
  int64_t size; /* Or DVT_LIST_INPUT. */
} DvtCosineWindowAttributes;

#ifdef __cplusplus
} /* extern "C" */
#endif
