/* sampling.h: attribute records of GridSample and AffineGrid.
 *
 *   kernel            inputs                                     output
 *   GridSample.<t>    X [N,C,in...], grid [N,out...,S]           Y [N,C,out...]
 *   AffineGrid.<t>    theta [N,S,S+1], size? [N,C,out...]        grid [N,out...,S]
 *                     (i64 or i32)
 *
 * S spatial dims: 1 to 3 for GridSample, 2 or 3 for AffineGrid. <t> is f32, f64, f16 or bf16; the
 * grid of GridSample may be of any of the four. Coordinates of a grid begin with the last axis (x,
 * y, z).
 *
 * GridSample   -1 and 1 are the centres of the first and last pixel with align_corners, else their
 *              outer edges. A place outside is moved inside by the padding (border, reflection),
 * then interpolated along each axis; taps that are outside are moved likewise, or are 0 (zeros).
 *              Nearest rounds halves to even. Cubic has a = -0.75. A NaN coordinate gives NaN.
 * AffineGrid   theta times (x, y, z, 1); an axis of one element with align_corners is at 0.
 * Numbers      In double, rounded once (halves: to float, then to half); taps in row-major order.
 *
 * Threads  Pure functions of their context.
 * Trust    As davit/kernel.h.
 * Memory   Nothing is allocated.
 */
#pragma once

#include "davit/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

enum DvtSampleMode { DVT_SAMPLE_LINEAR = 0, DVT_SAMPLE_NEAREST = 1, DVT_SAMPLE_CUBIC = 2 };
enum DvtSamplePadding {
  DVT_SAMPLE_ZEROS = 0,
  DVT_SAMPLE_BORDER = 1,
  DVT_SAMPLE_REFLECTION = 2,
};

typedef struct DvtGridSampleAttributes {
  int64_t mode;    /* DvtSampleMode. */
  int64_t padding; /* DvtSamplePadding. */
  int64_t align_corners;
} DvtGridSampleAttributes;

enum { DVT_AFFINE_RANK_MAX = 5 };

typedef struct DvtAffineGridAttributes {
  int64_t align_corners;
  int64_t size[DVT_AFFINE_RANK_MAX]; /* When size_count is not 0: no input 1 then. */
  int64_t size_count;
} DvtAffineGridAttributes;

#ifdef __cplusplus
} /* extern "C" */
#endif
