#include "ops/kernels/convolution.h"

#include <inttypes.h>

#include "ops/kernels/cost.h"
#include "ops/kernels/element.h"
#include "ops/kernels/gemm.h"
#include "ops/kernels/kernels.h"

uint64_t dvt_conv_workspace_bytes(void) {
  return DVT_GEMM_WORKSPACE_BYTES;
}

DvtCode dvt_conv_check(const DvtContext* ctx, DvtDType dtype, DvtKernelInferFn infer, char* reason,
                       size_t size) {
  DvtCode code = dvt_check_counts(ctx, 2, 3, 1, 2, reason, size);
  if (code == DVT_OK) code = dvt_check_dtype(dvt_input_tensor(ctx, 0), dtype, "X", reason, size);
  if (code == DVT_OK) code = dvt_check_dtype(dvt_input_tensor(ctx, 1), dtype, "W", reason, size);
  if (code == DVT_OK) code = dvt_check_dtype(dvt_output_tensor(ctx, 0), dtype, "Y", reason, size);
  if (code == DVT_OK) code = dvt_check_inferred(ctx, infer, ctx->output_count - 1u, reason, size);
  if (code != DVT_OK || !dvt_has_input(ctx, 2)) return code;
  const DvtTensor* bias = dvt_input_tensor(ctx, 2);
  code = dvt_check_dtype(bias, dtype, "bias", reason, size);
  if (code != DVT_OK) return code;
  return dvt_check_shape(bias, 1, &dvt_output_tensor(ctx, 0)->dims[1], "bias", reason, size);
}

void dvt_conv_fill_bias(const DvtContext* ctx, DvtDType dtype) {
  const DvtTensor* y = dvt_output_tensor(ctx, 0);
  const int64_t channels = y->dims[1];
  const int64_t volume = dvt_tensor_elements(y) / (y->dims[0] * channels);
  const void* bias = dvt_has_input(ctx, 2) ? dvt_input_data(ctx, 2) : NULL;
  for (int64_t i = 0; i < dvt_tensor_elements(y); ++i) {
    const double value = bias == NULL ? 0.0 : dvt_load_real(bias, dtype, i / volume % channels);
    dvt_store_real(dvt_output_data(ctx, 0), dtype, i, 0.0 + value);
  }
}

DvtCode dvt_conv_describe(const DvtConvAttributes* attributes, const DvtTensor* x,
                          const DvtTensor* w, DvtConv* conv, char* reason, size_t size) {
  if (x->rank < 3 || x->rank > 2 + DVT_SPATIAL_MAX || w->rank != x->rank) {
    return dvt_refuse(reason, size, "ranks %u and %u of X and W: expected equal, 3 to 5", x->rank,
                      w->rank);
  }
  const int64_t group = attributes->group;
  if (group < 1 || w->dims[0] % group != 0 || x->dims[1] % group != 0 ||
      x->dims[1] / group != w->dims[1]) {
    return dvt_refuse(reason, size,
                      "group %" PRId64 " does not divide %" PRId64 " channels into %" PRId64
                      " and %" PRId64 " outputs",
                      group, x->dims[1], w->dims[1], w->dims[0]);
  }
  *conv = (DvtConv){.batch = x->dims[0],
                    .group = group,
                    .in_channels = w->dims[1],
                    .out_channels = w->dims[0] / group};
  return dvt_window_init(&conv->window, x->rank - 2U, &attributes->window, x->dims + 2, w->dims + 2,
                         false, reason, size);
}

static DvtCode describe(const DvtContext* ctx, DvtConv* conv, char* reason, size_t size) {
  return dvt_conv_describe(ctx->attributes, dvt_input_tensor(ctx, 0), dvt_input_tensor(ctx, 1),
                           conv, reason, size);
}

static DvtCode infer_conv(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 2, 3, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  DvtConv conv;
  if (code == DVT_OK) code = describe(ctx, &conv, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  code = dvt_window_infer(&conv.window, x->rank, x->dims[0], dvt_input_tensor(ctx, 1)->dims[0],
                          &outputs[0], reason, size);
  if (code != DVT_OK || ctx->output_count < 2) return code;
  return dvt_infer_scratch(&outputs[1], dvt_conv_workspace_bytes(), reason, size);
}

/* An implicit product: output pixels by filters, over the taps. */
static void cost_conv(const DvtContext* ctx, DvtTaskCost* cost) {
  const DvtTensor* w = dvt_input_tensor(ctx, 1);
  const DvtTensor* y = dvt_output_tensor(ctx, 0);
  dvt_cost_traffic(ctx, 1, cost);
  cost->kind = DVT_TASK_CONV;
  cost->batch = (uint64_t)((const DvtConvAttributes*)ctx->attributes)->group;
  cost->m = (uint64_t)y->dims[0] * dvt_cost_volume(y, 2, y->rank);
  cost->n = (uint64_t)w->dims[0] / cost->batch;
  cost->k = (uint64_t)w->dims[1] * dvt_cost_volume(w, 2, w->rank);
}

/* One output element, without its bias. `x` begins at the image and group, `w` at the filter. */
DVT_INLINE double convolve_at(const DvtConv* conv, const void* x, int64_t x0, const void* w,
                              int64_t w0, const int64_t position[DVT_SPATIAL_MAX], DvtDType dtype) {
  const DvtWindow* window = &conv->window;
  const int64_t in_volume = dvt_volume(window->in);
  double sum = 0.0;
  for (int64_t c = 0; c < conv->in_channels; ++c) {
    for (int64_t kd = 0; kd < window->kernel[0]; ++kd) {
      const int64_t d = position[0] + kd * window->dilation[0];
      for (int64_t kh = 0; kh < window->kernel[1]; ++kh) {
        const int64_t h = position[1] + kh * window->dilation[1];
        for (int64_t kw = 0; kw < window->kernel[2]; ++kw) {
          const int64_t i = position[2] + kw * window->dilation[2];
          const bool inside = d >= 0 && d < window->in[0] && h >= 0 && h < window->in[1] &&
                              i >= 0 && i < window->in[2];
          const int64_t at = x0 + c * in_volume + (d * window->in[1] + h) * window->in[2] + i;
          const double value = inside ? dvt_load_real(x, dtype, at) : 0.0;
          const double product = dvt_round_real(value * dvt_load_real(w, dtype, w0++), dtype);
          sum = dvt_round_real(sum + product, dtype);
        }
      }
    }
  }
  return sum;
}

DVT_INLINE void conv_simple(const DvtConv* conv, const void* x, const void* w, const void* bias,
                            void* y, DvtDType dtype) {
  const DvtWindow* window = &conv->window;
  const int64_t x_group = conv->in_channels * dvt_volume(window->in);
  const int64_t w_filter = conv->in_channels * dvt_volume(window->kernel);
  const int64_t channels = conv->group * conv->out_channels;
  int64_t at = 0;
  for (int64_t n = 0; n < conv->batch; ++n) {
    for (int64_t m = 0; m < channels; ++m) {
      const int64_t x0 = (n * conv->group + m / conv->out_channels) * x_group;
      for (int64_t d = 0; d < window->out[0]; ++d) {
        for (int64_t h = 0; h < window->out[1]; ++h) {
          for (int64_t i = 0; i < window->out[2]; ++i) {
            const int64_t position[DVT_SPATIAL_MAX] = {
                d * window->stride[0] - window->pad[0],
                h * window->stride[1] - window->pad[1],
                i * window->stride[2] - window->pad[2],
            };
            double sum = convolve_at(conv, x, x0, w, m * w_filter, position, dtype);
            if (bias != NULL) sum = dvt_round_real(sum + dvt_load_real(bias, dtype, m), dtype);
            dvt_store_real(y, dtype, at++, sum);
          }
        }
      }
    }
  }
}

DVT_INLINE DvtCode run_conv(const DvtContext* ctx, DvtDType dtype) {
  if (dvt_output_tensor(ctx, 0)->bytes == 0) return DVT_OK;
  DvtConv conv;
  const DvtCode code = describe(ctx, &conv, NULL, 0);
  if (code != DVT_OK) return code;
  const void* x = dvt_input_data(ctx, 0);
  const void* w = dvt_input_data(ctx, 1);
  const void* bias = dvt_has_input(ctx, 2) ? dvt_input_data(ctx, 2) : NULL;
  void* y = dvt_output_data(ctx, 0);
  /* Padding is zeros that are multiplied, also where there is nothing else. */
  static const double nothing = 0;
  if (dvt_input_tensor(ctx, 0)->bytes == 0) x = &nothing;
  if (dvt_input_tensor(ctx, 1)->bytes == 0) {
    dvt_conv_fill_bias(ctx, dtype);
  } else if (dtype == DVT_F32 && dvt_has_output(ctx, 1)) {
    dvt_conv_f32(&conv, x, w, bias, y, dvt_output_data(ctx, 1));
  } else {
    conv_simple(&conv, x, w, bias, y, dtype);
  }
  return DVT_OK;
}

static DvtCode check_conv(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  return dvt_conv_check(ctx, dtype, infer_conv, reason, size);
}

/* As the convolution that maps Y to X. */
static void cost_transpose(const DvtContext* ctx, DvtTaskCost* cost) {
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  const DvtTensor* w = dvt_input_tensor(ctx, 1);
  dvt_cost_traffic(ctx, 1, cost);
  cost->kind = DVT_TASK_CONV;
  cost->batch = (uint64_t)((const DvtConvTransposeAttributes*)ctx->attributes)->group;
  cost->m = (uint64_t)x->dims[0] * dvt_cost_volume(x, 2, x->rank);
  cost->n = (uint64_t)w->dims[1] * dvt_cost_volume(w, 2, w->rank);
  cost->k = (uint64_t)x->dims[1] / cost->batch;
}

DVT_INLINE DvtCode run_transpose(const DvtContext* ctx, DvtDType dtype) {
  return dvt_conv_transpose_run(ctx, dtype);
}
static DvtCode check_transpose(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  return dvt_conv_transpose_check(ctx, dtype, reason, size);
}

DVT_TYPED_KERNEL(conv, f32, DVT_F32)
DVT_TYPED_KERNEL(conv, f64, DVT_F64)
DVT_TYPED_KERNEL(conv, f16, DVT_F16)
DVT_TYPED_KERNEL(conv, bf16, DVT_BF16)
DVT_TYPED_KERNEL(transpose, f32, DVT_F32)
DVT_TYPED_KERNEL(transpose, f64, DVT_F64)
DVT_TYPED_KERNEL(transpose, f16, DVT_F16)
DVT_TYPED_KERNEL(transpose, bf16, DVT_BF16)

#define WINDOW_ATTRIBUTES(record)                                                \
  {"group", offsetof(record, group), 1, 'i'},                                    \
      {"strides", offsetof(record, window.strides), DVT_SPATIAL_MAX, 'i'},       \
      {"dilations", offsetof(record, window.dilations), DVT_SPATIAL_MAX, 'i'},   \
      {"pads_begin", offsetof(record, window.pads_begin), DVT_SPATIAL_MAX, 'i'}, \
      {"pads_end", offsetof(record, window.pads_end), DVT_SPATIAL_MAX, 'i'}, {   \
    "auto_pad", offsetof(record, window.auto_pad), 1, 'i'                        \
  }

static const DvtAttribute conv_attributes[] = {WINDOW_ATTRIBUTES(DvtConvAttributes)};
static const DvtAttribute transpose_attributes[] = {
    WINDOW_ATTRIBUTES(DvtConvTransposeAttributes),
    {"output_padding", offsetof(DvtConvTransposeAttributes, output_padding), DVT_SPATIAL_MAX, 'i'},
    {"output_shape", offsetof(DvtConvTransposeAttributes, output_shape), DVT_SPATIAL_MAX, 'i'},
};

#define CONV_KERNEL(kernel_name, family, suffix, record, infer_fn)                                 \
  {                                                                                                \
    .name = kernel_name "." #suffix, .abi_version = DVT_KERNEL_ABI_VERSION,                        \
    .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE, .input_min = 2, .input_max = 3, .output_min = 1, \
    .output_max = 2, .attribute_bytes = sizeof(record),                                            \
    .attribute_count = sizeof family##_attributes / sizeof family##_attributes[0],                 \
    .attributes = family##_attributes, .run = run_##family##_##suffix,                             \
    .check = check_##family##_##suffix, .infer = (infer_fn), .cost = cost_##family                 \
  }
#define CONV(suffix) CONV_KERNEL("Conv", conv, suffix, DvtConvAttributes, infer_conv)
#define CONV_TRANSPOSE(suffix)                                                \
  CONV_KERNEL("ConvTranspose", transpose, suffix, DvtConvTransposeAttributes, \
              dvt_conv_transpose_infer)

DvtKernelTable dvt_kernels_convolution(void) {
  static const DvtKernel kernels[] = {
      CONV(f32),           CONV(f64),           CONV(f16),           CONV(bf16),
      CONV_TRANSPOSE(f32), CONV_TRANSPOSE(f64), CONV_TRANSPOSE(f16), CONV_TRANSPOSE(bf16),
  };
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
