/* window.h: the geometry that convolution and pooling share, for one to three spatial dims.
 *
 * Spatial dims are right-aligned to three: a 2-D image is one slice deep. Along each dim, output
 * element o looks at input positions o * stride - pad + tap * dilation for tap in [0, kernel).
 *
 * Threads  Pure functions.
 * Trust    dvt_window_init() judges values from untrusted files. When it returns DVT_OK, positions
 *          of all outputs and taps can be computed in int64_t without overflow.
 * Memory   Nothing is allocated.
 */
#pragma once

#include "ops/kernels/shape.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DVT_SPATIAL_MAX = 3 };

/* Extents, strides, dilations and pads may not exceed this, so that the product of any two fits an
 * int64_t with room to spare. */
#define DVT_WINDOW_LIMIT INT64_C(0x7fffffff)
/* Nor may the product of the extents of one tensor exceed this. */
#define DVT_VOLUME_LIMIT (INT64_C(1) << 48)

enum DvtAutoPad {
  DVT_PADS_STATED = 0,
  DVT_PADS_SAME_UPPER = 1, /* As many as give ceil(in / stride) outputs, the odd one behind ... */
  DVT_PADS_SAME_LOWER = 2, /* ... or in front. */
};

/* As kernels carry them: the first `spatial` entries count, the others are ignored. */
typedef struct DvtWindowAttributes {
  int64_t strides[DVT_SPATIAL_MAX];
  int64_t dilations[DVT_SPATIAL_MAX];
  int64_t pads_begin[DVT_SPATIAL_MAX];
  int64_t pads_end[DVT_SPATIAL_MAX];
  int64_t auto_pad; /* DvtAutoPad. Pads count only if stated. */
} DvtWindowAttributes;

typedef struct DvtWindow {
  int64_t in[DVT_SPATIAL_MAX];
  int64_t kernel[DVT_SPATIAL_MAX];
  int64_t out[DVT_SPATIAL_MAX];
  int64_t stride[DVT_SPATIAL_MAX];
  int64_t dilation[DVT_SPATIAL_MAX];
  int64_t pad[DVT_SPATIAL_MAX];     /* Before the first element ... */
  int64_t pad_end[DVT_SPATIAL_MAX]; /* ... and after the last. */
} DvtWindow;

/* Splits what has to be added along one dim, nothing if negative. */
void dvt_split_pads(int64_t auto_pad, int64_t total, int64_t* begin, int64_t* end);

/* The pads of DVT_PADS_SAME_*. Extents, stride and dilation are in bounds. */
void dvt_same_pads(int64_t auto_pad, int64_t in, int64_t kernel, int64_t stride, int64_t dilation,
                   int64_t* begin, int64_t* end);

/* Whether all of these are numbers that a window is worked out with: at most DVT_WINDOW_LIMIT. */
bool dvt_window_in_bounds(int64_t in, int64_t kernel, int64_t stride, int64_t dilation, int64_t pad,
                          int64_t pad_end);

/* The output extent of one dim, or -1 when the window does not fit or a value is out of bounds.
 * In ceil mode the last window may hang over the end, but must begin inside input or front pad. */
int64_t dvt_window_out(int64_t in, int64_t kernel, int64_t stride, int64_t dilation, int64_t pad,
                       int64_t pad_end, bool ceil_mode);

/* Fills `window` from `spatial` (1 to 3) extents of input and kernel, and refuses what gives no
 * output. `reason` may be NULL, as in run(), where this cannot fail after check(). */
DvtCode dvt_window_init(DvtWindow* window, uint32_t spatial, const DvtWindowAttributes* attributes,
                        const int64_t* in, const int64_t* kernel, bool ceil_mode, char* reason,
                        size_t size);

/* The shape [batch, channels, out...] of a window over a tensor of `rank` axes. */
DvtCode dvt_window_infer(const DvtWindow* window, uint32_t rank, int64_t batch, int64_t channels,
                         DvtTensor* output, char* reason, size_t size);

/* Product of the three extents; dvt_window_init() saw to it that it is at most 2^48. */
static inline int64_t dvt_volume(const int64_t extents[DVT_SPATIAL_MAX]) {
  return extents[0] * extents[1] * extents[2];
}

/* The taps [begin, end) of output `o` along `dim` that lie inside the input. */
typedef struct DvtTaps {
  int64_t start; /* Input position of tap 0; may lie outside. */
  int64_t begin, end;
} DvtTaps;
static inline DvtTaps dvt_window_taps(const DvtWindow* window, int dim, int64_t o) {
  const int64_t dilation = window->dilation[dim];
  const int64_t start = o * window->stride[dim] - window->pad[dim];
  const int64_t first = start < 0 ? (-start + dilation - 1) / dilation : 0;
  const int64_t room = window->in[dim] - start; /* Positions from start to the end. */
  const int64_t last = room > 0 ? (room + dilation - 1) / dilation : 0;
  const int64_t end = last < window->kernel[dim] ? last : window->kernel[dim];
  return (DvtTaps){.start = start, .begin = first < end ? first : end, .end = end};
}

#ifdef __cplusplus
} /* extern "C" */
#endif
