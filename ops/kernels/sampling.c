#include "ops/kernels/sampling.h"

#include <inttypes.h>

#include "ops/kernels/element.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/shape.h"

enum { SPATIAL_MAX = 3, TAPS_MAX = 4 };

/* ---- GridSample ------------------------------------------------------------------------------ */

enum { X = 0, GRID = 1 };

static DvtCode infer_grid_sample(const DvtContext* ctx, DvtTensor* outputs, char* reason,
                                 size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 2, 2, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtGridSampleAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, X);
  const DvtTensor* grid = dvt_input_tensor(ctx, GRID);
  if (attributes->mode < 0 || attributes->mode > DVT_SAMPLE_CUBIC || attributes->padding < 0 ||
      attributes->padding > DVT_SAMPLE_REFLECTION) {
    return dvt_refuse(reason, size, "mode %" PRId64 " or padding %" PRId64 " is unknown",
                      attributes->mode, attributes->padding);
  }
  if (!dvt_dtype_is_float(grid->dtype)) return dvt_refuse(reason, size, "the grid is no float");
  if (x->rank < 3 || x->rank > 2 + SPATIAL_MAX || grid->rank != x->rank ||
      grid->dims[x->rank - 1] != x->rank - 2 || grid->dims[0] != x->dims[0]) {
    char x_text[DVT_SHAPE_TEXT];
    char grid_text[DVT_SHAPE_TEXT];
    return dvt_refuse(reason, size, "X %s and grid %s do not belong together",
                      dvt_shape_text(x, x_text), dvt_shape_text(grid, grid_text));
  }
  int64_t dims[2 + SPATIAL_MAX] = {x->dims[0], x->dims[1]};
  for (uint32_t i = 2; i < x->rank; ++i) dims[i] = grid->dims[i - 1];
  return dvt_infer_shape(&outputs[0], x->rank, dims, "Y", reason, size);
}

/* Folds `at` into [low, high] as mirrors there would. */
static double reflect(double at, double low, double high) {
  const double range = high - low;
  if (!(range > 0.0)) return low;
  const double distance = fmod(fabs(at - low), 2.0 * range);
  return distance > range ? low + (2.0 * range - distance) : low + distance;
}

/* The taps along one axis: where (-1: a zero), and how much. */
typedef struct Taps {
  int count;
  int64_t at[TAPS_MAX];
  double weight[TAPS_MAX];
} Taps;

/* The pixel at whole place `at`, moved inside by the padding. */
static int64_t pixel_at(double at, int64_t extent, const DvtGridSampleAttributes* attributes) {
  const double last = (double)(extent - 1);
  if (at >= 0.0 && at <= last) return (int64_t)at;
  if (attributes->padding == DVT_SAMPLE_ZEROS) return -1;
  if (attributes->padding == DVT_SAMPLE_BORDER) return at < 0.0 ? 0 : extent - 1;
  const double edge = attributes->align_corners != 0 ? 0.0 : 0.5;
  const double folded = reflect(at, -edge, last + edge);
  return folded <= 0.0 ? 0 : folded >= last ? extent - 1 : (int64_t)folded;
}

static void cubic_weights(double part, double weight[TAPS_MAX]) {
  const double a = -0.75;
  for (int i = 0; i < TAPS_MAX; ++i) {
    const double d = fabs(part - (double)(i - 1));
    weight[i] = d <= 1.0 ? ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0
                         : ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a;
  }
}

/* False for a NaN coordinate. */
static bool taps_of(double coordinate, int64_t extent, const DvtGridSampleAttributes* attributes,
                    Taps* taps) {
  const double length = (double)extent;
  const double edge = attributes->align_corners != 0 ? 0.0 : 0.5;
  double at = attributes->align_corners != 0 ? (coordinate + 1.0) / 2.0 * (length - 1.0)
                                             : ((coordinate + 1.0) * length - 1.0) / 2.0;
  if (attributes->mode == DVT_SAMPLE_NEAREST) at = nearbyint(at);
  if (at < -edge || at > length - 1.0 + edge) {
    if (attributes->padding == DVT_SAMPLE_BORDER) {
      at = at < 0.0 ? 0.0 : length - 1.0;
    } else if (attributes->padding == DVT_SAMPLE_REFLECTION) {
      at = reflect(at, -edge, length - 1.0 + edge);
    } else { /* So far outside that all taps are zeros is as good as infinitely far. */
      at = at < -8.0 ? -8.0 : at > length + 8.0 ? length + 8.0 : at;
    }
  }
  if (at != at) return false;
  const double low = floor(at);
  taps->count = attributes->mode == DVT_SAMPLE_NEAREST  ? 1
                : attributes->mode == DVT_SAMPLE_LINEAR ? 2
                                                        : TAPS_MAX;
  const double first = attributes->mode == DVT_SAMPLE_NEAREST  ? at
                       : attributes->mode == DVT_SAMPLE_LINEAR ? low
                                                               : low - 1.0;
  for (int i = 0; i < taps->count; ++i) taps->at[i] = pixel_at(first + i, extent, attributes);
  if (attributes->mode == DVT_SAMPLE_CUBIC) {
    cubic_weights(at - low, taps->weight);
  } else {
    taps->weight[0] = attributes->mode == DVT_SAMPLE_NEAREST ? 1.0 : 1.0 - (at - low);
    taps->weight[1] = at - low;
  }
  return true;
}

/* The three axes of one place; axes that are not there have one tap of weight 1. */
DVT_INLINE double interpolate(const void* x, int64_t x0, const int64_t extents[SPATIAL_MAX],
                              const Taps taps[SPATIAL_MAX], DvtDType dtype) {
  double depth_sum = 0.0;
  for (int d = 0; d < taps[0].count; ++d) {
    double height_sum = 0.0;
    for (int h = 0; h < taps[1].count; ++h) {
      double sum = 0.0;
      for (int w = 0; w < taps[2].count; ++w) {
        if (taps[0].at[d] < 0 || taps[1].at[h] < 0 || taps[2].at[w] < 0) continue;
        const int64_t at =
            (taps[0].at[d] * extents[1] + taps[1].at[h]) * extents[2] + taps[2].at[w];
        sum += taps[2].weight[w] * dvt_load_real(x, dtype, x0 + at);
      }
      height_sum += taps[1].weight[h] * sum;
    }
    depth_sum += taps[0].weight[d] * height_sum;
  }
  return depth_sum;
}

DVT_INLINE DvtCode run_grid_sample(const DvtContext* ctx, DvtDType dtype) {
  const DvtTensor* x = dvt_input_tensor(ctx, X);
  const DvtTensor* grid = dvt_input_tensor(ctx, GRID);
  const DvtTensor* y = dvt_output_tensor(ctx, 0);
  if (y->bytes == 0) return DVT_OK;
  if (x->bytes == 0) { /* Images without pixels. */
    memset(dvt_output_data(ctx, 0), 0, y->bytes);
    return DVT_OK;
  }
  const uint32_t spatial = x->rank - 2U;
  const uint32_t leading = SPATIAL_MAX - spatial;
  int64_t extents[SPATIAL_MAX] = {1, 1, 1};
  for (uint32_t i = 0; i < spatial; ++i) extents[leading + i] = x->dims[i + 2];
  Taps taps[SPATIAL_MAX] = {{1, {0}, {1.0}}, {1, {0}, {1.0}}, {1, {0}, {1.0}}};
  const int64_t channels = x->dims[1];
  const int64_t volume = extents[0] * extents[1] * extents[2];
  const int64_t places = dvt_tensor_elements(y) / x->dims[0] / channels;
  for (int64_t n = 0; n < x->dims[0]; ++n) {
    for (int64_t place = 0; place < places; ++place) {
      bool known = true;
      for (uint32_t i = 0; i < spatial; ++i) { /* The grid has x first. */
        const double coordinate = dvt_load_real(dvt_input_data(ctx, GRID), grid->dtype,
                                                (n * places + place) * spatial + spatial - 1 - i);
        known =
            taps_of(coordinate, extents[leading + i], ctx->attributes, &taps[leading + i]) && known;
      }
      for (int64_t c = 0; c < channels; ++c) {
        const int64_t plane = n * channels + c;
        const double value =
            known ? interpolate(dvt_input_data(ctx, X), plane * volume, extents, taps, dtype)
                  : (double)NAN;
        dvt_store_real(dvt_output_data(ctx, 0), dtype, plane * places + place, value);
      }
    }
  }
  return DVT_OK;
}

static DvtCode check_grid_sample(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 2, 2, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_dtypes(ctx, 1, 1, dtype, reason, size);
  return code == DVT_OK ? dvt_check_inferred(ctx, infer_grid_sample, 0, reason, size) : code;
}

/* ---- AffineGrid ------------------------------------------------------------------------------ */

enum { THETA = 0, SIZE = 1 };

/* The spatial dims that theta has. */
static DvtCode check_theta(const DvtContext* ctx, uint32_t* spatial, char* reason, size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 1, 2, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* theta = dvt_input_tensor(ctx, THETA);
  if (theta->rank != 3 || (theta->dims[1] != 2 && theta->dims[1] != 3) ||
      theta->dims[2] != theta->dims[1] + 1) {
    return dvt_refuse(reason, size, "theta: expected shape [N,2,3] or [N,3,4]");
  }
  *spatial = (uint32_t)theta->dims[1];
  return DVT_OK;
}

static DvtCode read_size(const DvtContext* ctx, uint32_t spatial, int64_t* dims, char* reason,
                         size_t size) {
  const DvtAffineGridAttributes* attributes = ctx->attributes;
  uint32_t count = 0;
  if (dvt_has_input(ctx, SIZE)) {
    const DvtCode code =
        dvt_read_integers(ctx, SIZE, "size", dims, DVT_AFFINE_RANK_MAX, &count, reason, size);
    if (code != DVT_OK) return code;
  } else if (attributes->size_count == (int64_t)spatial + 2) {
    count = spatial + 2;
    memcpy(dims, attributes->size, count * sizeof dims[0]);
  }
  if (count == spatial + 2 && dims[0] == dvt_input_tensor(ctx, THETA)->dims[0]) return DVT_OK;
  return dvt_refuse(reason, size, "size: expected %u elements that begin with theta's %" PRId64,
                    spatial + 2, dvt_input_tensor(ctx, THETA)->dims[0]);
}

static DvtCode infer_affine_grid(const DvtContext* ctx, DvtTensor* outputs, char* reason,
                                 size_t size) {
  uint32_t spatial = 0;
  int64_t dims[DVT_AFFINE_RANK_MAX];
  DvtCode code = check_theta(ctx, &spatial, reason, size);
  if (code == DVT_OK) code = read_size(ctx, spatial, dims, reason, size);
  if (code != DVT_OK) return code;
  for (uint32_t i = 0; i < spatial; ++i) dims[i + 1] = dims[i + 2]; /* Without the channels. */
  dims[spatial + 1] = spatial;
  return dvt_infer_shape(&outputs[0], spatial + 2, dims, "grid", reason, size);
}

/* The coordinate of element `index` of `extent`. */
static double coordinate_of(int64_t index, int64_t extent, bool align_corners) {
  if (!align_corners) return (2.0 * (double)index + 1.0) / (double)extent - 1.0;
  return extent == 1 ? 0.0 : 2.0 * (double)index / (double)(extent - 1) - 1.0;
}

DVT_INLINE DvtCode run_affine_grid(const DvtContext* ctx, DvtDType dtype) {
  const DvtAffineGridAttributes* attributes = ctx->attributes;
  const DvtTensor* y = dvt_output_tensor(ctx, 0);
  uint32_t spatial = 0;
  int64_t dims[DVT_AFFINE_RANK_MAX];
  DvtCode code = check_theta(ctx, &spatial, NULL, 0);
  if (code == DVT_OK) code = read_size(ctx, spatial, dims, NULL, 0);
  for (uint32_t i = 0; code == DVT_OK && i < spatial; ++i) {
    if (dims[i + 2] != y->dims[i + 1]) code = DVT_INVALID_ARGUMENT;
  }
  if (code != DVT_OK || y->bytes == 0) return code;
  const void* theta = dvt_input_data(ctx, THETA);
  const int64_t places = dvt_tensor_elements(y) / y->dims[0] / spatial;
  for (int64_t place = 0; place < y->dims[0] * places; ++place) {
    double coordinates[SPATIAL_MAX + 1];
    int64_t rest = place % places;
    for (uint32_t i = 0; i < spatial; ++i) { /* x, the last axis, first. */
      const int64_t extent = y->dims[spatial - i];
      coordinates[i] = coordinate_of(rest % extent, extent, attributes->align_corners != 0);
      rest /= extent;
    }
    coordinates[spatial] = 1.0;
    for (uint32_t i = 0; i < spatial; ++i) {
      double sum = 0.0;
      const int64_t row = (place / places * spatial + i) * (spatial + 1);
      for (uint32_t k = 0; k <= spatial; ++k) {
        sum += dvt_load_real(theta, dtype, row + k) * coordinates[k];
      }
      dvt_store_real(dvt_output_data(ctx, 0), dtype, place * spatial + i, sum);
    }
  }
  return DVT_OK;
}

static DvtCode check_affine_grid(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 1, 2, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_dtypes(ctx, 1, 1, dtype, reason, size);
  if (code != DVT_OK) return code;
  if (!dvt_has_input(ctx, SIZE) || dvt_has_data(ctx, SIZE)) {
    return dvt_check_inferred(ctx, infer_affine_grid, 0, reason, size);
  }
  uint32_t spatial = 0; /* run() compares the grid with the size asked for. */
  code = check_theta(ctx, &spatial, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* y = dvt_output_tensor(ctx, 0);
  if (y->rank == spatial + 2 && y->dims[spatial + 1] == spatial &&
      y->dims[0] == dvt_input_tensor(ctx, THETA)->dims[0]) {
    return DVT_OK;
  }
  return dvt_refuse(reason, size, "the grid does not belong to theta");
}

/* ---- Table ----------------------------------------------------------------------------------- */

DVT_TYPED_KERNEL(grid_sample, f32, DVT_F32)
DVT_TYPED_KERNEL(grid_sample, f64, DVT_F64)
DVT_TYPED_KERNEL(grid_sample, f16, DVT_F16)
DVT_TYPED_KERNEL(grid_sample, bf16, DVT_BF16)
DVT_TYPED_KERNEL(affine_grid, f32, DVT_F32)
DVT_TYPED_KERNEL(affine_grid, f64, DVT_F64)
DVT_TYPED_KERNEL(affine_grid, f16, DVT_F16)
DVT_TYPED_KERNEL(affine_grid, bf16, DVT_BF16)

static const DvtAttribute grid_sample_attributes[] = {
    {"mode", offsetof(DvtGridSampleAttributes, mode), 1, 'i'},
    {"padding", offsetof(DvtGridSampleAttributes, padding), 1, 'i'},
    {"align_corners", offsetof(DvtGridSampleAttributes, align_corners), 1, 'i'},
};
static const DvtAttribute affine_grid_attributes[] = {
    {"align_corners", offsetof(DvtAffineGridAttributes, align_corners), 1, 'i'},
    {"size", offsetof(DvtAffineGridAttributes, size), DVT_AFFINE_RANK_MAX, 'i'},
    {"size_count", offsetof(DvtAffineGridAttributes, size_count), 1, 'i'},
};

#define SAMPLE_KERNEL(kernel_name, family, suffix, inputs_min, host, record)                 \
  {                                                                                          \
    .name = kernel_name "." #suffix, .abi_version = DVT_KERNEL_ABI_VERSION,                  \
    .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE, .input_min = (inputs_min), .input_max = 2, \
    .output_min = 1, .output_max = 1, .attribute_bytes = sizeof(record),                     \
    .attribute_count = sizeof family##_attributes / sizeof(DvtAttribute),                    \
    .attributes = family##_attributes, .run = run_##family##_##suffix,                       \
    .check = check_##family##_##suffix, .infer = infer_##family, .host_inputs = (host)       \
  }
#define GRID_SAMPLE(suffix) \
  SAMPLE_KERNEL("GridSample", grid_sample, suffix, 2, 0, DvtGridSampleAttributes)
#define AFFINE_GRID(suffix) \
  SAMPLE_KERNEL("AffineGrid", affine_grid, suffix, 1, 1u << SIZE, DvtAffineGridAttributes)

DvtKernelTable dvt_kernels_sampling(void) {
  static const DvtKernel kernels[] = {
      GRID_SAMPLE(f32), GRID_SAMPLE(f64), GRID_SAMPLE(f16), GRID_SAMPLE(bf16),
      AFFINE_GRID(f32), AFFINE_GRID(f64), AFFINE_GRID(f16), AFFINE_GRID(bf16),
  };
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
