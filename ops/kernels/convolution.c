#include "ops/kernels/convolution.h"

#include <inttypes.h>

#include "ops/kernels/element.h"
#include "ops/kernels/gemm.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/shape.h"

uint64_t dvt_conv_workspace_bytes(void) {
  return DVT_GEMM_WORKSPACE_BYTES;
}

DvtCode dvt_conv_check_bias(const DvtContext* ctx, int64_t channels, DvtDType dtype, char* reason,
                            size_t size) {
  if (!dvt_has_input(ctx, 2)) return DVT_OK;
  const DvtCode code = dvt_check_dtype(dvt_input_tensor(ctx, 2), dtype, "bias", reason, size);
  if (code != DVT_OK) return code;
  return dvt_check_shape(dvt_input_tensor(ctx, 2), 1, &channels, "bias", reason, size);
}

DvtCode dvt_conv_check_workspace(const DvtContext* ctx, uint64_t bytes, char* reason, size_t size) {
  if (!dvt_has_output(ctx, 1)) return DVT_OK;
  const uint64_t got = dvt_output_tensor(ctx, 1)->bytes;
  if (got >= bytes) return DVT_OK;
  return dvt_refuse(reason, size, "workspace: expected %" PRIu64 " bytes, got %" PRIu64, bytes,
                    got);
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

/* Reads the geometry of a context and refuses what does not fit together. */
static DvtCode describe(const DvtContext* ctx, DvtConv* conv, char* reason, size_t size) {
  const DvtConvAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  const DvtTensor* w = dvt_input_tensor(ctx, 1);
  const DvtTensor* y = dvt_output_tensor(ctx, 0);
  if (x->rank < 3 || x->rank > 2 + DVT_SPATIAL_MAX || w->rank != x->rank || y->rank != x->rank) {
    return dvt_refuse(reason, size, "ranks %u, %u and %u of X, W and Y: expected equal, 3 to 5",
                      x->rank, w->rank, y->rank);
  }
  const int64_t group = attributes->group;
  if (group < 1 || w->dims[0] % group != 0 || x->dims[1] % group != 0 ||
      x->dims[1] / group != w->dims[1]) {
    return dvt_refuse(reason, size,
                      "group %" PRId64 " does not divide %" PRId64 " channels into %" PRId64
                      " and %" PRId64 " outputs",
                      group, x->dims[1], w->dims[1], w->dims[0]);
  }
  if (y->dims[0] != x->dims[0] || y->dims[1] != w->dims[0]) {
    return dvt_refuse(reason, size, "Y: batch or channels differ from those of X and W");
  }
  *conv = (DvtConv){.batch = x->dims[0],
                    .group = group,
                    .in_channels = w->dims[1],
                    .out_channels = w->dims[0] / group};
  return dvt_window_init(&conv->window, x->rank - 2U, &attributes->window, x->dims + 2, w->dims + 2,
                         y->dims + 2, false, reason, size);
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
  if (dvt_input_tensor(ctx, 0)->bytes == 0 || dvt_input_tensor(ctx, 1)->bytes == 0) {
    dvt_conv_fill_bias(ctx, dtype);
  } else if (dtype == DVT_F32 && dvt_has_output(ctx, 1)) {
    dvt_conv_f32(&conv, x, w, bias, y, dvt_output_data(ctx, 1));
  } else {
    conv_simple(&conv, x, w, bias, y, dtype);
  }
  return DVT_OK;
}

DvtCode dvt_conv_check_ranks(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 2, 3, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const uint32_t rank = dvt_input_tensor(ctx, 0)->rank;
  if (rank >= 3 && rank <= 2 + DVT_SPATIAL_MAX && dvt_input_tensor(ctx, 1)->rank == rank) {
    return DVT_OK;
  }
  return dvt_refuse(reason, size, "ranks %u and %u of X and W: expected equal, 3 to 5", rank,
                    dvt_input_tensor(ctx, 1)->rank);
}

static DvtCode infer_conv(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_conv_check_ranks(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtConvAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  const DvtTensor* w = dvt_input_tensor(ctx, 1);
  int64_t dims[2 + DVT_SPATIAL_MAX] = {x->dims[0], w->dims[0]};
  code = dvt_window_infer(x->rank - 2U, &attributes->window, x->dims + 2, w->dims + 2, false,
                          dims + 2, reason, size);
  if (code == DVT_OK) code = dvt_infer_shape(&outputs[0], x->rank, dims, "Y", reason, size);
  if (code == DVT_OK && ctx->output_count > 1) {
    code = dvt_infer_scratch(&outputs[1], dvt_conv_workspace_bytes(), reason, size);
  }
  return code;
}

/* Each output element is a sum over the filter. */
static void cost_conv(const DvtContext* ctx, DvtTaskCost* cost) {
  const DvtConvAttributes* attributes = ctx->attributes;
  const DvtTensor* w = dvt_input_tensor(ctx, 1);
  const DvtTensor* y = dvt_output_tensor(ctx, 0);
  cost->kind = DVT_TASK_CONV;
  cost->batch = (uint64_t)attributes->group;
  cost->m = (uint64_t)y->dims[0];
  cost->n = (uint64_t)(w->dims[0] / attributes->group);
  cost->k = (uint64_t)w->dims[1];
  for (uint32_t i = 2; i < y->rank; ++i) {
    cost->m *= (uint64_t)y->dims[i];
    cost->k *= (uint64_t)w->dims[i];
  }
}

static void cost_transpose(const DvtContext* ctx, DvtTaskCost* cost) {
  const DvtConvAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  const DvtTensor* w = dvt_input_tensor(ctx, 1);
  cost->kind = DVT_TASK_CONV;
  cost->batch = (uint64_t)attributes->group;
  cost->m = (uint64_t)x->dims[0];
  cost->n = (uint64_t)w->dims[1];
  cost->k = (uint64_t)(x->dims[1] / attributes->group);
  for (uint32_t i = 2; i < x->rank; ++i) {
    cost->m *= (uint64_t)x->dims[i];
    cost->n *= (uint64_t)w->dims[i];
  }
}

static DvtCode check_conv(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 2, 3, 1, 2, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) code = dvt_check_dtype(dvt_input_tensor(ctx, 0), dtype, "X", reason, size);
  if (code == DVT_OK) code = dvt_check_dtype(dvt_input_tensor(ctx, 1), dtype, "W", reason, size);
  if (code == DVT_OK) code = dvt_check_dtype(dvt_output_tensor(ctx, 0), dtype, "Y", reason, size);
  DvtConv conv;
  if (code == DVT_OK) code = describe(ctx, &conv, reason, size);
  const int64_t channels = code == DVT_OK ? dvt_output_tensor(ctx, 0)->dims[1] : 0;
  if (code == DVT_OK) code = dvt_conv_check_bias(ctx, channels, dtype, reason, size);
  if (code == DVT_OK) {
    code = dvt_conv_check_workspace(ctx, dvt_conv_workspace_bytes(), reason, size);
  }
  return code;
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

static const DvtAttribute conv_attributes[] = {
    {"group", offsetof(DvtConvAttributes, group), 1, 'i'},
    {"strides", offsetof(DvtConvAttributes, window.strides), DVT_SPATIAL_MAX, 'i'},
    {"dilations", offsetof(DvtConvAttributes, window.dilations), DVT_SPATIAL_MAX, 'i'},
    {"pads_begin", offsetof(DvtConvAttributes, window.pads_begin), DVT_SPATIAL_MAX, 'i'},
    {"pads_end", offsetof(DvtConvAttributes, window.pads_end), DVT_SPATIAL_MAX, 'i'},
};

#define CONV_KERNEL(kernel_name, family_suffix, infer_function, cost_function)                     \
  {                                                                                                \
    .name = (kernel_name), .abi_version = DVT_KERNEL_ABI_VERSION,                                  \
    .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE, .input_min = 2, .input_max = 3, .output_min = 1, \
    .output_max = 2, .attribute_bytes = sizeof(DvtConvAttributes),                                 \
    .attribute_count = sizeof conv_attributes / sizeof conv_attributes[0],                         \
    .attributes = conv_attributes, .run = run_##family_suffix, .check = check_##family_suffix,     \
    .infer = (infer_function), .cost = (cost_function)                                             \
  }

DvtKernelTable dvt_kernels_convolution(void) {
  static const DvtKernel kernels[] = {
      CONV_KERNEL("Conv.f32", conv_f32, infer_conv, cost_conv),
      CONV_KERNEL("Conv.f64", conv_f64, infer_conv, cost_conv),
      CONV_KERNEL("Conv.f16", conv_f16, infer_conv, cost_conv),
      CONV_KERNEL("Conv.bf16", conv_bf16, infer_conv, cost_conv),
      CONV_KERNEL("ConvTranspose.f32", transpose_f32, dvt_conv_transpose_infer, cost_transpose),
      CONV_KERNEL("ConvTranspose.f64", transpose_f64, dvt_conv_transpose_infer, cost_transpose),
      CONV_KERNEL("ConvTranspose.f16", transpose_f16, dvt_conv_transpose_infer, cost_transpose),
      CONV_KERNEL("ConvTranspose.bf16", transpose_bf16, dvt_conv_transpose_infer, cost_transpose),
  };
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
