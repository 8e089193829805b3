#include "ops/kernels/deformable.h"

#include <inttypes.h>

#include "ops/kernels/element.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/shape.h"

enum { X = 0, W = 1, OFFSET = 2, B = 3, MASK = 4 };

typedef struct Geometry {
  uint32_t spatial;
  int64_t batch, channels, filters, group, offset_group;
  int64_t taps;   /* Product of the kernel's extents. */
  int64_t places; /* Product of the output's. */
  int64_t out[DVT_SPATIAL_MAX];
  DvtWindow window;
} Geometry;

static DvtCode check_operand(const DvtContext* ctx, uint32_t input, const Geometry* g,
                             int64_t channels, const char* what, char* reason, size_t size) {
  if (!dvt_has_input(ctx, input)) return DVT_OK;
  int64_t dims[2 + DVT_SPATIAL_MAX] = {g->batch, channels};
  for (uint32_t i = 0; i < g->spatial; ++i) dims[i + 2] = g->out[i];
  return dvt_check_shape(dvt_input_tensor(ctx, input), g->spatial + 2, dims, what, reason, size);
}

static DvtCode check_groups(const DvtContext* ctx, const Geometry* g, char* reason, size_t size) {
  const DvtTensor* w = dvt_input_tensor(ctx, W);
  if (g->group < 1 || g->offset_group < 1 || g->filters % g->group != 0 ||
      g->channels % g->group != 0 || g->channels / g->group != w->dims[1] ||
      g->channels % g->offset_group != 0) {
    return dvt_refuse(reason, size,
                      "group %" PRId64 " and offset_group %" PRId64 " do not divide %" PRId64
                      " channels into %" PRId64 " and %" PRId64 " filters",
                      g->group, g->offset_group, g->channels, w->dims[1], g->filters);
  }
  return DVT_OK;
}

/* Judges all inputs. */
static DvtCode describe(const DvtContext* ctx, Geometry* g, char* reason, size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 3, 5, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtDeformConvAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, X);
  const DvtTensor* w = dvt_input_tensor(ctx, W);
  if (x->rank < 3 || x->rank > 2 + DVT_SPATIAL_MAX || w->rank != x->rank) {
    return dvt_refuse(reason, size, "ranks %u and %u of X and W: expected equal, 3 to 5", x->rank,
                      w->rank);
  }
  *g = (Geometry){.spatial = x->rank - 2U,
                  .batch = x->dims[0],
                  .channels = x->dims[1],
                  .filters = w->dims[0],
                  .group = attributes->group,
                  .offset_group = attributes->offset_group};
  code = check_groups(ctx, g, reason, size);
  if (code == DVT_OK) {
    code = dvt_window_init(&g->window, g->spatial, &attributes->window, x->dims + 2, w->dims + 2,
                           false, reason, size);
  }
  if (code != DVT_OK) return code;
  for (uint32_t i = 0; i < g->spatial; ++i) {
    g->out[i] = g->window.out[DVT_SPATIAL_MAX - g->spatial + i];
  }
  g->taps = dvt_volume(g->window.kernel);
  g->places = dvt_volume(g->window.out);
  int64_t moves = 0;
  if (__builtin_mul_overflow(g->offset_group, g->taps * g->spatial, &moves)) {
    return dvt_refuse(reason, size, "offset_group %" PRId64 " is too large", g->offset_group);
  }
  code = check_operand(ctx, OFFSET, g, moves, "offset", reason, size);
  if (code == DVT_OK) {
    code = check_operand(ctx, MASK, g, g->offset_group * g->taps, "mask", reason, size);
  }
  if (code != DVT_OK || !dvt_has_input(ctx, B)) return code;
  return dvt_check_shape(dvt_input_tensor(ctx, B), 1, &g->filters, "B", reason, size);
}

static DvtCode infer_deform(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  Geometry g;
  DvtCode code = describe(ctx, &g, reason, size);
  if (code != DVT_OK) return code;
  int64_t dims[2 + DVT_SPATIAL_MAX] = {g.batch, g.filters};
  for (uint32_t i = 0; i < g.spatial; ++i) dims[i + 2] = g.out[i];
  code = dvt_infer_shape(&outputs[0], g.spatial + 2, dims, "Y", reason, size);
  int64_t bytes = 0;
  if (__builtin_mul_overflow(g.channels, g.taps * (int64_t)sizeof(double), &bytes)) {
    return dvt_refuse(reason, size, "the workspace is too large");
  }
  return code == DVT_OK ? dvt_infer_scratch(&outputs[1], (uint64_t)bytes, reason, size) : code;
}

/* The corners around a place along one axis. */
typedef struct Corners {
  int64_t at[2]; /* -1: outside. */
  double weight[2];
} Corners;

static Corners corners_of(double place, int64_t extent) {
  Corners corners = {.at = {-1, -1}};
  if (!(place > -1.0 && place < (double)extent)) return corners; /* NaN too. */
  const double low = floor(place);
  for (int i = 0; i < 2; ++i) {
    const int64_t at = (int64_t)low + i;
    corners.at[i] = at >= 0 && at < extent ? at : -1;
    corners.weight[i] = i == 0 ? 1.0 - (place - low) : place - low;
  }
  return corners;
}

DVT_INLINE double interpolate(const DvtWindow* window, const void* x, int64_t x0,
                              const Corners corners[DVT_SPATIAL_MAX], DvtDType dtype) {
  double sum = 0.0;
  for (int i = 0; i < 8; ++i) {
    const int bits[DVT_SPATIAL_MAX] = {i >> 2, i >> 1 & 1, i & 1};
    double weight = 1.0;
    int64_t at = 0;
    bool inside = true;
    for (int s = 0; s < DVT_SPATIAL_MAX; ++s) {
      const int64_t position = corners[s].at[bits[s]];
      inside = inside && position >= 0;
      weight *= corners[s].weight[bits[s]];
      at = at * window->in[s] + position;
    }
    if (inside && weight != 0.0) sum += weight * dvt_load_real(x, dtype, x0 + at);
  }
  return sum;
}

/* What all taps see at one place of the output: [C, taps]. */
DVT_INLINE void see(const DvtContext* ctx, const Geometry* g, int64_t n, int64_t place,
                    double* seen, DvtDType dtype) {
  const DvtWindow* window = &g->window;
  const int64_t o[DVT_SPATIAL_MAX] = {place / (window->out[1] * window->out[2]),
                                      place / window->out[2] % window->out[1],
                                      place % window->out[2]};
  const int64_t per_group = g->channels / g->offset_group;
  const int64_t volume = dvt_volume(window->in);
  const void* mask = dvt_has_input(ctx, MASK) ? dvt_input_data(ctx, MASK) : NULL;
  for (int64_t item = 0; item < g->offset_group * g->taps; ++item) {
    const int64_t tap = item % g->taps;
    const int64_t k[DVT_SPATIAL_MAX] = {tap / (window->kernel[1] * window->kernel[2]),
                                        tap / window->kernel[2] % window->kernel[1],
                                        tap % window->kernel[2]};
    Corners corners[DVT_SPATIAL_MAX];
    for (int s = 0; s < DVT_SPATIAL_MAX; ++s) {
      double at = (double)(o[s] * window->stride[s] - window->pad[s] + k[s] * window->dilation[s]);
      const int64_t axis = s - (DVT_SPATIAL_MAX - (int64_t)g->spatial);
      if (axis >= 0) {
        const int64_t channel = (n * g->offset_group * g->taps + item) * g->spatial + axis;
        at += dvt_load_real(dvt_input_data(ctx, OFFSET), dtype, channel * g->places + place);
      }
      corners[s] = corners_of(at, window->in[s]);
    }
    double factor = 1.0;
    if (mask != NULL) {
      const int64_t channel = n * g->offset_group * g->taps + item;
      factor = dvt_load_real(mask, dtype, channel * g->places + place);
    }
    const int64_t first = item / g->taps * per_group;
    for (int64_t c = first; c < first + per_group; ++c) {
      const int64_t x0 = (n * g->channels + c) * volume;
      seen[c * g->taps + tap] =
          factor * interpolate(window, dvt_input_data(ctx, X), x0, corners, dtype);
    }
  }
}

DVT_INLINE DvtCode run_deform(const DvtContext* ctx, DvtDType dtype) {
  if (dvt_output_tensor(ctx, 0)->bytes == 0) return DVT_OK;
  Geometry g;
  const DvtCode code = describe(ctx, &g, NULL, 0);
  if (code != DVT_OK) return code;
  double* seen = dvt_output_data(ctx, 1);
  const int64_t row = g.channels / g.group * g.taps;
  for (int64_t n = 0; n < g.batch; ++n) {
    for (int64_t place = 0; place < g.places; ++place) {
      see(ctx, &g, n, place, seen, dtype);
      for (int64_t m = 0; m < g.filters; ++m) {
        const double* values = seen + m / (g.filters / g.group) * row;
        double sum = 0.0;
        for (int64_t i = 0; i < row; ++i) {
          sum += values[i] * dvt_load_real(dvt_input_data(ctx, W), dtype, m * row + i);
        }
        if (dvt_has_input(ctx, B)) sum += dvt_load_real(dvt_input_data(ctx, B), dtype, m);
        dvt_store_real(dvt_output_data(ctx, 0), dtype, (n * g.filters + m) * g.places + place, sum);
      }
    }
  }
  return DVT_OK;
}

static DvtCode check_deform(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 3, 5, 2, 2, reason, size);
  if (code == DVT_OK) code = dvt_check_dtypes(ctx, 31, 1, dtype, reason, size);
  return code == DVT_OK ? dvt_check_inferred(ctx, infer_deform, 1, reason, size) : code;
}

/* As a convolution of the same shape. */
static void cost_deform(const DvtContext* ctx, struct DvtTaskCost* cost) {
  const DvtTensor* w = dvt_input_tensor(ctx, W);
  const DvtTensor* y = dvt_output_tensor(ctx, 0);
  const DvtDeformConvAttributes* attributes = ctx->attributes;
  const int64_t filters = w->dims[0];
  *cost = (DvtTaskCost){.kind = DVT_TASK_CONV,
                        .dtype = y->dtype,
                        .batch = (uint64_t)attributes->group,
                        .m = filters == 0 ? 0 : (uint64_t)(dvt_tensor_elements(y) / filters),
                        .n = (uint64_t)(filters / attributes->group),
                        .k = filters == 0 ? 0 : (uint64_t)(dvt_tensor_elements(w) / filters),
                        .write_bytes = y->bytes};
  for (uint32_t i = 0; i < ctx->input_count; ++i) {
    if (dvt_has_input(ctx, i)) cost->read_bytes += dvt_input_tensor(ctx, i)->bytes;
  }
}

DVT_TYPED_KERNEL(deform, f32, DVT_F32)
DVT_TYPED_KERNEL(deform, f64, DVT_F64)
DVT_TYPED_KERNEL(deform, f16, DVT_F16)
DVT_TYPED_KERNEL(deform, bf16, DVT_BF16)

static const DvtAttribute deform_attributes[] = {
    {"group", offsetof(DvtDeformConvAttributes, group), 1, 'i'},
    {"offset_group", offsetof(DvtDeformConvAttributes, offset_group), 1, 'i'},
    {"strides", offsetof(DvtDeformConvAttributes, window.strides), DVT_SPATIAL_MAX, 'i'},
    {"dilations", offsetof(DvtDeformConvAttributes, window.dilations), DVT_SPATIAL_MAX, 'i'},
    {"pads_begin", offsetof(DvtDeformConvAttributes, window.pads_begin), DVT_SPATIAL_MAX, 'i'},
    {"pads_end", offsetof(DvtDeformConvAttributes, window.pads_end), DVT_SPATIAL_MAX, 'i'},
    {"auto_pad", offsetof(DvtDeformConvAttributes, window.auto_pad), 1, 'i'},
};

#define DEFORM_KERNEL(suffix)                                                                      \
  {                                                                                                \
    .name = "DeformConv." #suffix, .abi_version = DVT_KERNEL_ABI_VERSION,                          \
    .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE, .input_min = 3, .input_max = 5, .output_min = 2, \
    .output_max = 2, .attribute_bytes = sizeof(DvtDeformConvAttributes),                           \
    .attribute_count = sizeof deform_attributes / sizeof(DvtAttribute),                            \
    .attributes = deform_attributes, .run = run_deform_##suffix, .check = check_deform_##suffix,   \
    .infer = infer_deform, .cost = cost_deform                                                     \
  }

DvtKernelTable dvt_kernels_deformable(void) {
  static const DvtKernel kernels[] = {DEFORM_KERNEL(f32), DEFORM_KERNEL(f64), DEFORM_KERNEL(f16),
                                      DEFORM_KERNEL(bf16)};
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
