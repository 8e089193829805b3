/* Where the elements of a resized dim come from, and with what weights. */
#include <math.h>
#include <stdbool.h>

#include "ops/kernels/resize.h"

enum { TAP_LIMIT = 1 << 24 };

typedef struct Axis {
  const DvtResizeAttributes* attributes;
  uint32_t dim;
  int64_t in, out;
  double scale;  /* numerator / denominator. */
  double length; /* in * scale: the output extent before it was made whole. */
} Axis;

static Axis describe(const DvtResizeAttributes* attributes, uint32_t dim, int64_t in, int64_t out) {
  const double numerator = attributes->numerator[dim];
  const double denominator = attributes->denominator[dim];
  return (Axis){.attributes = attributes,
                .dim = dim,
                .in = in,
                .out = out,
                .scale = numerator / denominator,
                .length = (double)in * numerator / denominator};
}

/* position / scale, in one rounding when numerator and denominator are extents. */
static double unscale(const Axis* axis, double position) {
  return position * axis->attributes->denominator[axis->dim] /
         axis->attributes->numerator[axis->dim];
}

/* The position of output element `o` in the input. */
static double position_of(const Axis* axis, int64_t o) {
  const double x = (double)o;
  const double last = (double)(axis->in - 1);
  switch (axis->attributes->coordinates) {
    case DVT_RESIZE_PYTORCH_HALF_PIXEL:
      return axis->length == 1.0 ? -0.5 : unscale(axis, x + 0.5) - 0.5;
    case DVT_RESIZE_ALIGN_CORNERS:
      return axis->length == 1.0 ? 0.0 : x * last / (axis->length - 1.0);
    case DVT_RESIZE_ASYMMETRIC:
      return unscale(axis, x);
    case DVT_RESIZE_TF_HALF_PIXEL_FOR_NN:
      return unscale(axis, x + 0.5);
    case DVT_RESIZE_TF_CROP: {
      const double start = axis->attributes->roi_start[axis->dim];
      const double span = axis->attributes->roi_end[axis->dim] - start;
      const double within =
          axis->length == 1.0 ? span * last / 2.0 : x * span * last / (axis->length - 1.0);
      return within + start * last;
    }
    case DVT_RESIZE_HALF_PIXEL_SYMMETRIC: {
      /* The centres of input and output coincide, though `length` was cut to `out`. */
      const double offset = (double)axis->in / 2.0 * (1.0 - (double)axis->out / axis->length);
      return offset + unscale(axis, x + 0.5) - 0.5;
    }
    default:
      return unscale(axis, x + 0.5) - 0.5;
  }
}

static int64_t clamp_index(int64_t index, int64_t in) {
  return index < 0 ? 0 : index >= in ? in - 1 : index;
}

/* Whole part, kept where int64_t can hold it and neighbours; NaN becomes 0. */
static int64_t whole(double floored) {
  const double limit = 0x1p52;
  if (!(floored > -limit)) return floored <= -limit ? -(INT64_C(1) << 52) : 0;
  return floored < limit ? (int64_t)floored : INT64_C(1) << 52;
}

static int64_t nearest_index(const Axis* axis, double position) {
  const double below = floor(position);
  const double fraction = position - below;
  bool up = false;
  switch (axis->attributes->nearest_mode) {
    case DVT_RESIZE_ROUND_PREFER_FLOOR:
      up = fraction > 0.5;
      break;
    case DVT_RESIZE_ROUND_PREFER_CEIL:
      up = fraction >= 0.5;
      break;
    case DVT_RESIZE_CEIL:
      up = fraction > 0.0;
      break;
    case DVT_RESIZE_CEIL_WHEN_SHRINKING:
      up = axis->scale < 1.0 && fraction > 0.0;
      break;
    default:
      break;
  }
  return clamp_index(whole(below) + (up ? 1 : 0), axis->in);
}

static double filter_scale(const Axis* axis) {
  return axis->attributes->antialias != 0 && axis->scale < 1.0 ? axis->scale : 1.0;
}

/* The interpolation filter at a distance from its centre, in elements of the output. */
static double filter(const DvtResizeAttributes* attributes, double distance) {
  const double x = fabs(distance);
  if (attributes->mode == DVT_RESIZE_LINEAR) return x < 1.0 ? 1.0 - x : 0.0;
  const double a = attributes->cubic_a;
  if (x <= 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
  if (x < 2.0) return ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a;
  return 0.0;
}

/* Taps left of (and at) the position; as many are right of it. */
static double half_width(const Axis* axis) {
  const double support = axis->attributes->mode == DVT_RESIZE_LINEAR ? 1.0 : 2.0;
  return -floor(-support / filter_scale(axis));
}

static bool keeps_every_element(const Axis* axis) {
  const DvtResizeAttributes* attributes = axis->attributes;
  if (axis->in != axis->out || axis->scale != 1.0) return false;
  if (attributes->coordinates == DVT_RESIZE_TF_CROP) {
    return attributes->roi_start[axis->dim] == 0.0 && attributes->roi_end[axis->dim] == 1.0;
  }
  return attributes->coordinates != DVT_RESIZE_TF_HALF_PIXEL_FOR_NN;
}

/* Output extent and scale of one dim of which the scale is known. When rounding to the nearest
 * extent reproduces the scale as a float, extents were meant. */
static bool resolve_scale(int64_t in, double factor, double* numerator, double* denominator,
                          int64_t* out) {
  const double product = (double)in * factor;
  if (!(product >= 0.0) || product >= 0x1p62) return false;
  const double nearest = nearbyint(product);
  const float ratio = (float)(nearest / (double)in);
  if (in > 0 && nearest > 0.0 && ratio == (float)factor) {
    *out = (int64_t)nearest;
    *numerator = nearest;
    *denominator = (double)in;
    return true;
  }
  *out = (int64_t)floor(product);
  *numerator = factor;
  *denominator = 1.0;
  return true;
}

static bool keeps_aspect(double denominator) {
  return denominator == DVT_RESIZE_NOT_LARGER || denominator == DVT_RESIZE_NOT_SMALLER;
}

/* The dim whose scale all that keep the aspect ratio share, or `rank` when there is none. */
static uint32_t common_dim(const DvtResizeAttributes* attributes, const DvtTensor* x) {
  uint32_t picked = x->rank;
  for (uint32_t i = 0; i < x->rank; ++i) {
    if (!keeps_aspect(attributes->denominator[i])) continue;
    if (picked == x->rank) {
      picked = i;
      continue;
    }
    const double scale = attributes->numerator[i] / (double)x->dims[i];
    const double best = attributes->numerator[picked] / (double)x->dims[picked];
    const bool larger = attributes->denominator[i] == DVT_RESIZE_NOT_LARGER;
    if (larger ? scale < best : scale > best) picked = i;
  }
  return picked;
}

bool dvt_resize_resolve(const DvtResizeAttributes* attributes, const DvtTensor* x,
                        DvtResizeAttributes* resolved, int64_t out[DVT_MAX_RANK]) {
  const uint32_t common = common_dim(attributes, x);
  const double common_size = common < x->rank ? attributes->numerator[common] : 0.0;
  *resolved = *attributes;
  for (uint32_t i = 0; i < x->rank; ++i) {
    const int64_t in = x->dims[i];
    double* numerator = &resolved->numerator[i];
    double* denominator = &resolved->denominator[i];
    if (*denominator == DVT_RESIZE_BY_SCALE) {
      if (!resolve_scale(in, *numerator, numerator, denominator, &out[i])) return false;
    } else if (keeps_aspect(*denominator)) {
      *numerator = common_size;
      *denominator = (double)x->dims[common];
      const double extent = floor((double)in * *numerator / *denominator + 0.5);
      if (!(extent >= 0.0) || extent >= 0x1p62) return false;
      out[i] = (int64_t)extent;
    } else if (*denominator == DVT_RESIZE_TO_SIZE) {
      if (!(*numerator >= 0.0) || *numerator >= 0x1p62) return false;
      out[i] = (int64_t)*numerator;
      *denominator = (double)in;
    } else {
      /* Extents that are equal, or a plain scale: floor is what the record was made with. */
      const double exact =
          *denominator == (double)in ? *numerator : floor((double)in * *numerator / *denominator);
      if (!(exact >= 0.0) || exact >= 0x1p62) return false;
      out[i] = (int64_t)exact;
    }
    if (in == 0 && out[i] > 0) return false;
    if (in == 0) *numerator = *denominator = 1.0;
  }
  return true;
}

int64_t dvt_resize_taps(const DvtResizeAttributes* attributes, uint32_t dim, int64_t in,
                        int64_t out) {
  const Axis axis = describe(attributes, dim, in, out);
  if (!(attributes->numerator[dim] > 0.0) || !(attributes->denominator[dim] > 0.0) ||
      !(axis.scale > 0.0) || !isfinite(axis.length)) {
    return 0;
  }
  if (attributes->mode == DVT_RESIZE_NEAREST || keeps_every_element(&axis)) return 1;
  const double width = 2.0 * half_width(&axis);
  return width <= TAP_LIMIT ? (int64_t)width : 0;
}

static void fill_interpolated(const Axis* axis, double position, int64_t count, DvtTap* taps) {
  const DvtResizeAttributes* attributes = axis->attributes;
  const double scale = filter_scale(axis);
  /* The last tap that is left of the position, so that a whole position has its own tap right of
   * it at distance 0. */
  const double left = ceil(position) - 1.0;
  const double fraction = position - left;
  const int64_t first = whole(left) - (count / 2 - 1);
  double sum = 0.0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t index = first + i;
    const bool outside = index < 0 || index >= axis->in;
    const double distance = ((double)(i - (count / 2 - 1)) - fraction) * scale;
    taps[i].index = clamp_index(index, axis->in);
    taps[i].weight =
        attributes->exclude_outside != 0 && outside ? 0.0 : filter(attributes, distance);
    sum += taps[i].weight;
  }
  const bool normalise = attributes->exclude_outside != 0 || scale < 1.0;
  for (int64_t i = 0; normalise && sum != 0.0 && i < count; ++i) taps[i].weight /= sum;
}

void dvt_resize_fill(const DvtResizeAttributes* attributes, uint32_t dim, int64_t in, int64_t out,
                     DvtTap* taps) {
  const Axis axis = describe(attributes, dim, in, out);
  const int64_t count = dvt_resize_taps(attributes, dim, in, out);
  const bool kept = keeps_every_element(&axis);
  for (int64_t o = 0; o < out; ++o) {
    DvtTap* to = taps + o * count;
    const double position = kept ? (double)o : position_of(&axis, o);
    const bool outside = attributes->coordinates == DVT_RESIZE_TF_CROP &&
                         !(position >= 0.0 && position <= (double)(in - 1));
    if (outside) {
      for (int64_t i = 0; i < count; ++i) to[i] = (DvtTap){.index = -1, .weight = 0.0};
    } else if (kept) {
      to[0] = (DvtTap){.index = o, .weight = 1.0};
    } else if (attributes->mode == DVT_RESIZE_NEAREST) {
      to[0] = (DvtTap){.index = nearest_index(&axis, position), .weight = 1.0};
    } else {
      fill_interpolated(&axis, position, count, to);
    }
  }
}
