#include "ops/kernels/regions.h"

#include <inttypes.h>

#include "ops/kernels/element.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/shape.h"

enum { X = 0, ROIS = 1, BATCH = 2 };
enum { CHANNELS = 16 }; /* That share the work of finding a point. */
#define COORDINATE_LIMIT 1e9

/* Y for X and `columns` numbers per region. */
static DvtCode infer_regions(const DvtContext* ctx, DvtTensor* output, int64_t columns,
                             int64_t height, int64_t width, char* reason, size_t size) {
  const DvtTensor* x = dvt_input_tensor(ctx, X);
  const DvtTensor* rois = dvt_input_tensor(ctx, ROIS);
  if (x->rank != 4) return dvt_refuse(reason, size, "rank %u of X: expected 4", x->rank);
  if (rois->rank != 2 || rois->dims[1] != columns) {
    return dvt_refuse(reason, size, "rois: expected rows of %" PRId64 " numbers", columns);
  }
  if (height < 1 || width < 1) {
    return dvt_refuse(reason, size, "output size %" PRId64 " x %" PRId64 ": expected 1 or more",
                      height, width);
  }
  const int64_t dims[4] = {rois->dims[0], x->dims[1], height, width};
  return dvt_infer_shape(output, 4, dims, "Y", reason, size);
}

/* Coordinate `index` of a region; false when nobody can mean that. */
DVT_INLINE bool read_coordinates(const void* rois, int64_t at, double corners[4], DvtDType dtype) {
  for (int i = 0; i < 4; ++i) {
    corners[i] = dvt_load_real(rois, dtype, at + i);
    if (!(fabs(corners[i]) <= COORDINATE_LIMIT)) return false;
  }
  return true;
}

/* ---- RoiAlign -------------------------------------------------------------------------------- */

static DvtCode infer_roi_align(const DvtContext* ctx, DvtTensor* outputs, char* reason,
                               size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 3, 3, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtRoiAlignAttributes* attributes = ctx->attributes;
  if (attributes->sampling_ratio < 0 || attributes->sampling_ratio > DVT_SAMPLING_RATIO_MAX) {
    return dvt_refuse(reason, size, "sampling_ratio: expected 0 to %" PRId64 ", got %" PRId64,
                      DVT_SAMPLING_RATIO_MAX, attributes->sampling_ratio);
  }
  if (!(fabs(attributes->scale) <= COORDINATE_LIMIT)) {
    return dvt_refuse(reason, size, "spatial_scale %g is out of range", attributes->scale);
  }
  code = infer_regions(ctx, outputs, 4, attributes->height, attributes->width, reason, size);
  const DvtTensor* batch = dvt_input_tensor(ctx, BATCH);
  if (code == DVT_OK) code = dvt_check_dtype(batch, DVT_I64, "batch_indices", reason, size);
  if (code != DVT_OK) return code;
  return dvt_check_shape(batch, 1, &dvt_input_tensor(ctx, ROIS)->dims[0], "batch_indices", reason,
                         size);
}

/* One axis of a bin: `points` grid points from `start`, `step` apart; those in [first, last) are
 * where the image is. */
typedef struct Grid {
  double start, step;
  double points;
  int64_t first, last;
} Grid;

static Grid grid_of(double start, double bin, int64_t sampling_ratio, int64_t extent) {
  Grid grid = {.points = sampling_ratio > 0 ? (double)sampling_ratio : ceil(bin)};
  if (!(grid.points >= 1.0)) return grid;
  grid.step = bin / grid.points;
  grid.start = start + 0.5 * grid.step;
  grid.last = (int64_t)grid.points; /* Coordinates and scale are bounded. */
  if (grid.step > 0.0) {
    /* One more on each side for rounding; value_at() judges each point. */
    const double first = floor((-1.0 - grid.start) / grid.step) - 1.0;
    const double last = ceil(((double)extent - grid.start) / grid.step) + 2.0;
    if (first > 0.0) grid.first = first < grid.points ? (int64_t)first : grid.last;
    if (last < grid.points) grid.last = last > 0.0 ? (int64_t)last : 0;
  }
  return grid;
}

/* Where a coordinate lies between pixels; false outside the image. */
typedef struct Between {
  int64_t low, high;
  double part; /* Of the higher one. */
} Between;
static bool between_of(double at, int64_t extent, Between* between) {
  if (!(at >= -1.0 && at <= (double)extent)) return false;
  const double inside = at > 0.0 ? at : 0.0;
  const int64_t low = (int64_t)inside;
  if (low >= extent - 1) {
    *between = (Between){.low = extent - 1, .high = extent - 1, .part = 0.0};
  } else {
    *between = (Between){.low = low, .high = low + 1, .part = inside - (double)low};
  }
  return true;
}

/* Joins the values of one point into `results` of `count` channels, `plane` elements apart. */
DVT_INLINE void join_point(const void* x, int64_t x0, int64_t plane, int64_t width,
                           const Between* v, const Between* h, bool maximum, bool first,
                           int64_t count, double* results, DvtDType dtype) {
  const double w00 = (1.0 - v->part) * (1.0 - h->part);
  const double w01 = (1.0 - v->part) * h->part;
  const double w10 = v->part * (1.0 - h->part);
  const double w11 = v->part * h->part;
  for (int64_t c = 0; c < count; ++c) {
    const int64_t at = x0 + c * plane;
    const double value = w00 * dvt_load_real(x, dtype, at + v->low * width + h->low) +
                         w01 * dvt_load_real(x, dtype, at + v->low * width + h->high) +
                         w10 * dvt_load_real(x, dtype, at + v->high * width + h->low) +
                         w11 * dvt_load_real(x, dtype, at + v->high * width + h->high);
    if (!maximum) {
      results[c] += value;
    } else if (first || value > results[c] || value != value) {
      results[c] = value;
    }
  }
}

/* One bin of `count` channels from x0. */
DVT_INLINE void align_bin(const DvtTensor* tensor, const void* x, int64_t x0, const Grid* rows,
                          const Grid* columns, bool maximum, int64_t count, double* results,
                          DvtDType dtype) {
  const int64_t height = tensor->dims[2];
  const int64_t width = tensor->dims[3];
  for (int64_t c = 0; c < count; ++c) results[c] = 0.0;
  int64_t inside = 0;
  for (int64_t i = rows->first; i < rows->last; ++i) {
    Between v;
    if (!between_of(rows->start + (double)i * rows->step, height, &v)) continue;
    for (int64_t j = columns->first; j < columns->last; ++j) {
      Between h;
      if (!between_of(columns->start + (double)j * columns->step, width, &h)) continue;
      join_point(x, x0, height * width, width, &v, &h, maximum, inside == 0, count, results, dtype);
      ++inside;
    }
  }
  const double points = rows->points * columns->points;
  for (int64_t c = 0; c < count; ++c) {
    if (!maximum) {
      results[c] = points >= 1.0 ? results[c] / points : 0.0;
    } else if ((double)inside < points && inside > 0 && results[c] < 0.0) {
      results[c] = 0.0; /* A point outside the image is a 0. */
    }
  }
}

DVT_INLINE DvtCode run_roi_align(const DvtContext* ctx, DvtDType dtype) {
  const DvtTensor* tensor = dvt_input_tensor(ctx, X);
  const DvtRoiAlignAttributes* attributes = ctx->attributes;
  const int64_t* batch = dvt_input_data(ctx, BATCH);
  void* y = dvt_output_data(ctx, 0);
  const int64_t bins = attributes->height * attributes->width;
  const int64_t channels = tensor->dims[1];
  if (dvt_output_tensor(ctx, 0)->bytes == 0) return DVT_OK;
  if (tensor->bytes == 0) { /* No image, or one without pixels. */
    memset(y, 0, dvt_output_tensor(ctx, 0)->bytes);
    return DVT_OK;
  }
  for (int64_t r = 0; r < dvt_input_tensor(ctx, ROIS)->dims[0]; ++r) {
    double corners[4];
    if (batch[r] < 0 || batch[r] >= tensor->dims[0] ||
        !read_coordinates(dvt_input_data(ctx, ROIS), 4 * r, corners, dtype)) {
      return DVT_INVALID_ARGUMENT;
    }
    const double shift = attributes->half_pixel != 0 ? 0.5 : 0.0;
    for (int i = 0; i < 4; ++i) corners[i] = corners[i] * attributes->scale - shift;
    double extent[2] = {corners[3] - corners[1], corners[2] - corners[0]};
    for (int i = 0; i < 2 && attributes->half_pixel == 0; ++i) {
      if (extent[i] < 1.0) extent[i] = 1.0;
    }
    const double bin_height = extent[0] / (double)attributes->height;
    const double bin_width = extent[1] / (double)attributes->width;
    for (int64_t bin = 0; bin < bins; ++bin) {
      const double i = (double)(bin / attributes->width);
      const double j = (double)(bin % attributes->width);
      const Grid rows = grid_of(corners[1] + i * bin_height, bin_height, attributes->sampling_ratio,
                                tensor->dims[2]);
      const Grid columns = grid_of(corners[0] + j * bin_width, bin_width,
                                   attributes->sampling_ratio, tensor->dims[3]);
      for (int64_t c = 0; c < channels; c += CHANNELS) {
        const int64_t count = channels - c < CHANNELS ? channels - c : CHANNELS;
        double results[CHANNELS];
        const int64_t x0 = (batch[r] * channels + c) * tensor->dims[2] * tensor->dims[3];
        align_bin(tensor, dvt_input_data(ctx, X), x0, &rows, &columns, attributes->maximum != 0,
                  count, results, dtype);
        for (int64_t k = 0; k < count; ++k) {
          dvt_store_real(y, dtype, (r * channels + c + k) * bins + bin, results[k]);
        }
      }
    }
  }
  return DVT_OK;
}

static DvtCode check_roi_align(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 3, 3, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_dtypes(ctx, 3, 1, dtype, reason, size);
  return code == DVT_OK ? dvt_check_inferred(ctx, infer_roi_align, 0, reason, size) : code;
}

/* ---- MaxRoiPool ------------------------------------------------------------------------------ */

static DvtCode infer_roi_pool(const DvtContext* ctx, DvtTensor* outputs, char* reason,
                              size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 2, 2, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtRoiPoolAttributes* attributes = ctx->attributes;
  if (!(fabs(attributes->scale) <= COORDINATE_LIMIT)) {
    return dvt_refuse(reason, size, "spatial_scale %g is out of range", attributes->scale);
  }
  return infer_regions(ctx, outputs, 5, attributes->height, attributes->width, reason, size);
}

/* Pixels [begin, end) of bin `index` of `bins` along one axis. */
typedef struct Span {
  int64_t begin, end;
} Span;
static Span span_of(double low, double high, int64_t index, int64_t bins, int64_t extent) {
  const double start = round(low);
  const double length = round(high) - start + 1.0;
  const double bin = (length < 1.0 ? 1.0 : length) / (double)bins;
  const double begin = floor((double)index * bin) + start;
  const double end = ceil((double)(index + 1) * bin) + start;
  const double limit = (double)extent;
  return (Span){.begin = (int64_t)(begin < 0.0     ? 0.0
                                   : begin > limit ? limit
                                                   : begin),
                .end = (int64_t)(end < 0.0     ? 0.0
                                 : end > limit ? limit
                                               : end)};
}

DVT_INLINE double pool_bin(const void* x, int64_t x0, int64_t width, Span rows, Span columns,
                           DvtDType dtype) {
  double best = 0.0;
  bool first = true;
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    for (int64_t j = columns.begin; j < columns.end; ++j) {
      const double value = dvt_load_real(x, dtype, x0 + i * width + j);
      if (first || value > best || value != value) best = value;
      if (best != best) return best;
      first = false;
    }
  }
  return best;
}

DVT_INLINE DvtCode run_roi_pool(const DvtContext* ctx, DvtDType dtype) {
  const DvtTensor* tensor = dvt_input_tensor(ctx, X);
  const DvtRoiPoolAttributes* attributes = ctx->attributes;
  const void* rois = dvt_input_data(ctx, ROIS);
  if (dvt_output_tensor(ctx, 0)->bytes == 0) return DVT_OK;
  const int64_t channels = tensor->dims[1];
  /* An empty X may have extents whose product is out of range: its bins are empty. */
  const int64_t height = tensor->bytes == 0 ? 0 : tensor->dims[2];
  const int64_t width = tensor->bytes == 0 ? 0 : tensor->dims[3];
  int64_t y_at = 0;
  for (int64_t r = 0; r < dvt_input_tensor(ctx, ROIS)->dims[0]; ++r) {
    double corners[4];
    const double image = dvt_load_real(rois, dtype, 5 * r);
    if (!(image >= 0.0 && image < (double)tensor->dims[0] && image == floor(image)) ||
        !read_coordinates(rois, 5 * r + 1, corners, dtype)) {
      return DVT_INVALID_ARGUMENT;
    }
    for (int i = 0; i < 4; ++i) corners[i] *= attributes->scale;
    for (int64_t c = 0; c < channels; ++c) {
      const int64_t plane = (int64_t)image * channels + c;
      for (int64_t i = 0; i < attributes->height; ++i) {
        const Span rows = span_of(corners[1], corners[3], i, attributes->height, height);
        for (int64_t j = 0; j < attributes->width; ++j) {
          const Span columns = span_of(corners[0], corners[2], j, attributes->width, width);
          const double best =
              pool_bin(dvt_input_data(ctx, X), plane * height * width, width, rows, columns, dtype);
          dvt_store_real(dvt_output_data(ctx, 0), dtype, y_at++, best);
        }
      }
    }
  }
  return DVT_OK;
}

static DvtCode check_roi_pool(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 2, 2, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_dtypes(ctx, 3, 1, dtype, reason, size);
  return code == DVT_OK ? dvt_check_inferred(ctx, infer_roi_pool, 0, reason, size) : code;
}

/* ---- Table ----------------------------------------------------------------------------------- */

DVT_TYPED_KERNEL(roi_align, f32, DVT_F32)
DVT_TYPED_KERNEL(roi_align, f64, DVT_F64)
DVT_TYPED_KERNEL(roi_align, f16, DVT_F16)
DVT_TYPED_KERNEL(roi_pool, f32, DVT_F32)
DVT_TYPED_KERNEL(roi_pool, f64, DVT_F64)
DVT_TYPED_KERNEL(roi_pool, f16, DVT_F16)

static const DvtAttribute roi_align_attributes[] = {
    {"height", offsetof(DvtRoiAlignAttributes, height), 1, 'i'},
    {"width", offsetof(DvtRoiAlignAttributes, width), 1, 'i'},
    {"sampling_ratio", offsetof(DvtRoiAlignAttributes, sampling_ratio), 1, 'i'},
    {"maximum", offsetof(DvtRoiAlignAttributes, maximum), 1, 'i'},
    {"half_pixel", offsetof(DvtRoiAlignAttributes, half_pixel), 1, 'i'},
    {"scale", offsetof(DvtRoiAlignAttributes, scale), 1, 'f'},
};
static const DvtAttribute roi_pool_attributes[] = {
    {"height", offsetof(DvtRoiPoolAttributes, height), 1, 'i'},
    {"width", offsetof(DvtRoiPoolAttributes, width), 1, 'i'},
    {"scale", offsetof(DvtRoiPoolAttributes, scale), 1, 'f'},
};

#define ROI_KERNEL(kernel_name, family, suffix, inputs, record)                                 \
  {                                                                                             \
    .name = kernel_name "." #suffix, .abi_version = DVT_KERNEL_ABI_VERSION,                     \
    .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE, .input_min = (inputs), .input_max = (inputs), \
    .output_min = 1, .output_max = 1, .attribute_bytes = sizeof(record),                        \
    .attribute_count = sizeof family##_attributes / sizeof(DvtAttribute),                       \
    .attributes = family##_attributes, .run = run_##family##_##suffix,                          \
    .check = check_##family##_##suffix, .infer = infer_##family                                 \
  }

DvtKernelTable dvt_kernels_regions(void) {
  static const DvtKernel kernels[] = {
      ROI_KERNEL("RoiAlign", roi_align, f32, 3, DvtRoiAlignAttributes),
      ROI_KERNEL("RoiAlign", roi_align, f64, 3, DvtRoiAlignAttributes),
      ROI_KERNEL("RoiAlign", roi_align, f16, 3, DvtRoiAlignAttributes),
      ROI_KERNEL("MaxRoiPool", roi_pool, f32, 2, DvtRoiPoolAttributes),
      ROI_KERNEL("MaxRoiPool", roi_pool, f64, 2, DvtRoiPoolAttributes),
      ROI_KERNEL("MaxRoiPool", roi_pool, f16, 2, DvtRoiPoolAttributes),
  };
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
