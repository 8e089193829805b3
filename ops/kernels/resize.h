/* resize.h: the attribute record of Resize (and Upsample), and the tap tables behind it.
 *
 *   kernel       inputs                            outputs
 *   Resize.<t>   X [d0,...], roi?, scales?, sizes?   Y of the same rank
 *                                                    workspace: u8, dvt_resize_workspace_bytes()
 *
 * <t> is any numeric dtype, or bool for nearest. Every dim may be resized. Output element o of a
 * dim lies at a position of the input that the coordinate mode defines; Y is the sum over the
 * positions' neighbours (taps) of weight times X, the last dim innermost, in double and rounded
 * once: integers to nearest even, saturated. Neighbours outside X repeat its edge.
 *
 * The scale of a dim is numerator / denominator: output and input extents when those were given,
 * so that positions come from one correctly rounded division and ties are ties.
 *
 * Threads  Pure functions of their arguments.
 * Trust    As davit/kernel.h. Positions and neighbours are clamped to X whatever the attributes
 * say. Memory   The workspace holds the tables of one run; its contents mean nothing before and
 * after.
 */
#pragma once

#include <stdbool.h>

#include "davit/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

enum DvtResizeMode { DVT_RESIZE_NEAREST = 0, DVT_RESIZE_LINEAR = 1, DVT_RESIZE_CUBIC = 2 };

enum DvtResizeCoordinates {
  DVT_RESIZE_HALF_PIXEL = 0,
  DVT_RESIZE_PYTORCH_HALF_PIXEL = 1,
  DVT_RESIZE_ALIGN_CORNERS = 2,
  DVT_RESIZE_ASYMMETRIC = 3,
  DVT_RESIZE_TF_CROP = 4,
  DVT_RESIZE_TF_HALF_PIXEL_FOR_NN = 5,
  DVT_RESIZE_HALF_PIXEL_SYMMETRIC = 6,
  DVT_RESIZE_COORDINATES_COUNT = 7,
};

enum DvtResizeNearest {
  DVT_RESIZE_ROUND_PREFER_FLOOR = 0,
  DVT_RESIZE_ROUND_PREFER_CEIL = 1,
  DVT_RESIZE_FLOOR = 2,
  DVT_RESIZE_CEIL = 3,
  DVT_RESIZE_CEIL_WHEN_SHRINKING = 4, /* Resize 10 and Upsample: ceil when shrinking, else floor. */
  DVT_RESIZE_NEAREST_COUNT = 5,
};

typedef struct DvtResizeAttributes {
  int64_t mode;         /* DvtResizeMode. */
  int64_t coordinates;  /* DvtResizeCoordinates. */
  int64_t nearest_mode; /* DvtResizeNearest. */
  int64_t antialias;    /* Linear and cubic: widen the filter when shrinking. */
  int64_t exclude_outside;
  double cubic_a;
  double extrapolation_value; /* Of elements that DVT_RESIZE_TF_CROP finds outside X. */
  double numerator[DVT_MAX_RANK];
  double denominator[DVT_MAX_RANK];
  double roi_start[DVT_MAX_RANK];
  double roi_end[DVT_MAX_RANK];
} DvtResizeAttributes;

/* A dim whose extents were not known when the record was made: `denominator` says where the scale
 * comes from, `numerator` is it. */
#define DVT_RESIZE_BY_SCALE 0.0   /* Output extent = input extent * numerator, rounded down. */
#define DVT_RESIZE_TO_SIZE (-1.0) /* Output extent = numerator. */
/* One scale for all such dims: the smallest (largest) of numerator / input extent; output extents
 * are rounded to the nearest. */
#define DVT_RESIZE_NOT_LARGER (-2.0)
#define DVT_RESIZE_NOT_SMALLER (-3.0)

/* A list that is an input: where the record would have a value of such a dim, `numerator` (scales,
 * sizes) or `roi_start` and `roi_end`, it has the dim's place in the list. A scale is then without
 * the region's span. */

/* `attributes` with the scales of such dims worked out for X, and Y's extents. False when an extent
 * is out of range. May be in place. */
bool dvt_resize_resolve(const DvtResizeAttributes* attributes, const DvtTensor* x,
                        DvtResizeAttributes* resolved, int64_t out[DVT_MAX_RANK]);

/* One neighbour of an output element along one dim. */
typedef struct DvtTap {
  int64_t index; /* Within X's extent; -1 in all taps of an element outside X. */
  double weight;
} DvtTap;
static_assert(sizeof(DvtTap) == 16, "tables are arrays of these");

/* Taps of each output element of dim `dim` whose extents are `in` and `out`; 0 when the attributes
 * are unusable (a scale that is not positive, a filter wider than 2^24). */
int64_t dvt_resize_taps(const DvtResizeAttributes* attributes, uint32_t dim, int64_t in,
                        int64_t out);

/* Fills out * dvt_resize_taps() taps. */
void dvt_resize_fill(const DvtResizeAttributes* attributes, uint32_t dim, int64_t in, int64_t out,
                     DvtTap* taps);

/* The workspace that run() needs for tensors of these extents, or 0: unusable or absurdly large. */
uint64_t dvt_resize_workspace_bytes(const DvtResizeAttributes* attributes, uint32_t rank,
                                    const int64_t* in, const int64_t* out);

#ifdef __cplusplus
} /* extern "C" */
#endif
