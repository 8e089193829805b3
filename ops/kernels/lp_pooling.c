#include "ops/kernels/lp_pooling.h"

#include "ops/kernels/element.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/shape.h"

static DvtCode check_p(double p, char* reason, size_t size) {
  if (p > 0.0 && p < HUGE_VAL) return DVT_OK;
  return dvt_refuse(reason, size, "p: expected a positive number, got %g", p);
}

/* |x|^p, and the root of such a sum. */
static inline double power_of(double x, double p) {
  if (p == 2.0) return x * x;
  return p == 1.0 ? fabs(x) : pow(fabs(x), p);
}
static inline double root_of(double sum, double p) {
  if (p == 2.0) return sqrt(sum);
  return p == 1.0 ? sum : pow(sum, 1.0 / p);
}

/* ---- LpPool ---------------------------------------------------------------------------------- */

static DvtCode window_of(const DvtContext* ctx, DvtWindow* window, char* reason, size_t size) {
  const DvtLpPoolAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  if (x->rank < 3 || x->rank > 2 + DVT_SPATIAL_MAX) {
    return dvt_refuse(reason, size, "rank %u of X: expected 3 to 5", x->rank);
  }
  return dvt_window_init(window, x->rank - 2U, &attributes->window, x->dims + 2, attributes->kernel,
                         attributes->ceil_mode != 0, reason, size);
}

static DvtCode infer_lp_pool(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtLpPoolAttributes* attributes = ctx->attributes;
  DvtWindow window;
  code = check_p(attributes->p, reason, size);
  if (code == DVT_OK) code = window_of(ctx, &window, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  return dvt_window_infer(&window, x->rank, x->dims[0], x->dims[1], &outputs[0], reason, size);
}

/* The norm of one window. */
DVT_INLINE double norm_of(const DvtWindow* window, const void* x, int64_t x0, const DvtTaps taps[3],
                          double p, DvtDType dtype) {
  double sum = 0.0;
  for (int64_t kd = taps[0].begin; kd < taps[0].end; ++kd) {
    const int64_t d = taps[0].start + kd * window->dilation[0];
    for (int64_t kh = taps[1].begin; kh < taps[1].end; ++kh) {
      const int64_t h = taps[1].start + kh * window->dilation[1];
      const int64_t row = x0 + (d * window->in[1] + h) * window->in[2];
      for (int64_t kw = taps[2].begin; kw < taps[2].end; ++kw) {
        const int64_t at = row + taps[2].start + kw * window->dilation[2];
        sum += power_of(dvt_load_real(x, dtype, at), p);
      }
    }
  }
  return root_of(sum, p);
}

DVT_INLINE DvtCode run_lp_pool(const DvtContext* ctx, DvtDType dtype) {
  if (dvt_output_tensor(ctx, 0)->bytes == 0) return DVT_OK;
  DvtWindow window;
  const DvtCode code = window_of(ctx, &window, NULL, 0);
  if (code != DVT_OK) return code;
  const DvtLpPoolAttributes* attributes = ctx->attributes;
  const DvtTensor* tensor = dvt_input_tensor(ctx, 0);
  const void* x = dvt_input_data(ctx, 0);
  void* y = dvt_output_data(ctx, 0);
  const int64_t volume = dvt_volume(window.in);
  int64_t y_at = 0;
  for (int64_t plane = 0; plane < tensor->dims[0] * tensor->dims[1]; ++plane) {
    DvtTaps taps[3];
    for (int64_t d = 0; d < window.out[0]; ++d) {
      taps[0] = dvt_window_taps(&window, 0, d);
      for (int64_t h = 0; h < window.out[1]; ++h) {
        taps[1] = dvt_window_taps(&window, 1, h);
        for (int64_t w = 0; w < window.out[2]; ++w) {
          taps[2] = dvt_window_taps(&window, 2, w);
          const double norm = norm_of(&window, x, plane * volume, taps, attributes->p, dtype);
          dvt_store_real(y, dtype, y_at++, norm);
        }
      }
    }
  }
  return DVT_OK;
}

static DvtCode check_lp_pool(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 1, 1, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_dtypes(ctx, 1, 1, dtype, reason, size);
  return code == DVT_OK ? dvt_check_inferred(ctx, infer_lp_pool, 0, reason, size) : code;
}

/* ---- GlobalLpPool ---------------------------------------------------------------------------- */

static DvtCode infer_global(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtGlobalLpPoolAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  if (x->rank < 3) return dvt_refuse(reason, size, "rank %u of X: expected 3 or more", x->rank);
  int64_t dims[DVT_MAX_RANK];
  for (uint32_t i = 0; i < x->rank; ++i) dims[i] = i < 2 ? x->dims[i] : 1;
  code = check_p(attributes->p, reason, size);
  return code == DVT_OK ? dvt_infer_shape(&outputs[0], x->rank, dims, "Y", reason, size) : code;
}

DVT_INLINE DvtCode run_global(const DvtContext* ctx, DvtDType dtype) {
  const DvtGlobalLpPoolAttributes* attributes = ctx->attributes;
  const int64_t planes = dvt_tensor_elements(dvt_output_tensor(ctx, 0));
  if (planes == 0) return DVT_OK;
  const int64_t volume = dvt_tensor_elements(dvt_input_tensor(ctx, 0)) / planes;
  const void* x = dvt_input_data(ctx, 0);
  for (int64_t plane = 0; plane < planes; ++plane) {
    double sum = 0.0;
    for (int64_t i = plane * volume; i < (plane + 1) * volume; ++i) {
      sum += power_of(dvt_load_real(x, dtype, i), attributes->p);
    }
    dvt_store_real(dvt_output_data(ctx, 0), dtype, plane, root_of(sum, attributes->p));
  }
  return DVT_OK;
}

static DvtCode check_global(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 1, 1, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_dtypes(ctx, 1, 1, dtype, reason, size);
  return code == DVT_OK ? dvt_check_inferred(ctx, infer_global, 0, reason, size) : code;
}

/* ---- Table ----------------------------------------------------------------------------------- */

DVT_TYPED_KERNEL(lp_pool, f32, DVT_F32)
DVT_TYPED_KERNEL(lp_pool, f64, DVT_F64)
DVT_TYPED_KERNEL(lp_pool, f16, DVT_F16)
DVT_TYPED_KERNEL(lp_pool, bf16, DVT_BF16)
DVT_TYPED_KERNEL(global, f32, DVT_F32)
DVT_TYPED_KERNEL(global, f64, DVT_F64)
DVT_TYPED_KERNEL(global, f16, DVT_F16)
DVT_TYPED_KERNEL(global, bf16, DVT_BF16)

static const DvtAttribute lp_pool_attributes[] = {
    {"kernel", offsetof(DvtLpPoolAttributes, kernel), DVT_SPATIAL_MAX, 'i'},
    {"strides", offsetof(DvtLpPoolAttributes, window.strides), DVT_SPATIAL_MAX, 'i'},
    {"dilations", offsetof(DvtLpPoolAttributes, window.dilations), DVT_SPATIAL_MAX, 'i'},
    {"pads_begin", offsetof(DvtLpPoolAttributes, window.pads_begin), DVT_SPATIAL_MAX, 'i'},
    {"pads_end", offsetof(DvtLpPoolAttributes, window.pads_end), DVT_SPATIAL_MAX, 'i'},
    {"auto_pad", offsetof(DvtLpPoolAttributes, window.auto_pad), 1, 'i'},
    {"ceil_mode", offsetof(DvtLpPoolAttributes, ceil_mode), 1, 'i'},
    {"p", offsetof(DvtLpPoolAttributes, p), 1, 'f'},
};
static const DvtAttribute global_attributes[] = {
    {"p", offsetof(DvtGlobalLpPoolAttributes, p), 1, 'f'},
};

#define LP_KERNEL(kernel_name, family, suffix, record)                                             \
  {                                                                                                \
    .name = kernel_name "." #suffix, .abi_version = DVT_KERNEL_ABI_VERSION,                        \
    .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE, .input_min = 1, .input_max = 1, .output_min = 1, \
    .output_max = 1, .attribute_bytes = sizeof(record),                                            \
    .attribute_count = sizeof family##_attributes / sizeof(DvtAttribute),                          \
    .attributes = family##_attributes, .run = run_##family##_##suffix,                             \
    .check = check_##family##_##suffix, .infer = infer_##family                                    \
  }

DvtKernelTable dvt_kernels_lp_pooling(void) {
  static const DvtKernel kernels[] = {
      LP_KERNEL("LpPool", lp_pool, f32, DvtLpPoolAttributes),
      LP_KERNEL("LpPool", lp_pool, f64, DvtLpPoolAttributes),
      LP_KERNEL("LpPool", lp_pool, f16, DvtLpPoolAttributes),
      LP_KERNEL("LpPool", lp_pool, bf16, DvtLpPoolAttributes),
      LP_KERNEL("GlobalLpPool", global, f32, DvtGlobalLpPoolAttributes),
      LP_KERNEL("GlobalLpPool", global, f64, DvtGlobalLpPoolAttributes),
      LP_KERNEL("GlobalLpPool", global, f16, DvtGlobalLpPoolAttributes),
      LP_KERNEL("GlobalLpPool", global, bf16, DvtGlobalLpPoolAttributes),
  };
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
