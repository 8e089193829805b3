#include "ops/kernels/pooling.h"

#include "ops/kernels/element.h"
#include "ops/kernels/kernels.h"

static DvtCode describe(const DvtContext* ctx, DvtWindow* window, char* reason, size_t size) {
  const DvtPoolAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  if (x->rank < 3 || x->rank > 2 + DVT_SPATIAL_MAX) {
    return dvt_refuse(reason, size, "rank %u of X: expected 3 to 5", x->rank);
  }
  return dvt_window_init(window, x->rank - 2U, &attributes->window, x->dims + 2, attributes->kernel,
                         attributes->ceil_mode != 0, reason, size);
}

static DvtCode infer_pool(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  DvtWindow window;
  if (code == DVT_OK) code = describe(ctx, &window, reason, size);
  const DvtTensor* x = code == DVT_OK ? dvt_input_tensor(ctx, 0) : NULL;
  for (uint32_t i = 0; code == DVT_OK && i < ctx->output_count; ++i) {
    code = dvt_window_infer(&window, x->rank, x->dims[0], x->dims[1], &outputs[i], reason, size);
  }
  return code;
}

static DvtCode check_pool(const DvtContext* ctx, uint32_t output_max, DvtDType dtype, char* reason,
                          size_t size) {
  DvtCode code = dvt_check_counts(ctx, 1, 1, 1, output_max, reason, size);
  if (code == DVT_OK) code = dvt_check_dtype(dvt_input_tensor(ctx, 0), dtype, "X", reason, size);
  if (code == DVT_OK) code = dvt_check_dtype(dvt_output_tensor(ctx, 0), dtype, "Y", reason, size);
  return code == DVT_OK ? dvt_check_inferred(ctx, infer_pool, 0, reason, size) : code;
}

/* The window of one output: its taps along each dim. */
typedef struct Taps {
  DvtTaps d, h, w;
} Taps;

/* The value that any element of the type beats. */
DVT_INLINE double lowest(DvtDType dtype) {
  if (dtype == DVT_U8) return 0.0;
  return dtype == DVT_I8 ? (double)INT8_MIN : (double)-INFINITY;
}

/* Maximum of one window; `best` receives its position within the channel. */
DVT_INLINE double max_of(const DvtWindow* window, const void* x, int64_t x0, const Taps* taps,
                         int64_t* best, DvtDType dtype) {
  double maximum = lowest(dtype);
  *best = -1;
  for (int64_t kd = taps->d.begin; kd < taps->d.end; ++kd) {
    const int64_t d = taps->d.start + kd * window->dilation[0];
    for (int64_t kh = taps->h.begin; kh < taps->h.end; ++kh) {
      const int64_t h = taps->h.start + kh * window->dilation[1];
      const int64_t row = (d * window->in[1] + h) * window->in[2];
      for (int64_t kw = taps->w.begin; kw < taps->w.end; ++kw) {
        const int64_t at = row + taps->w.start + kw * window->dilation[2];
        const double value = dvt_load_real(x, dtype, x0 + at);
        const bool first = *best < 0;
        const bool beats = value > maximum || (value != value && maximum == maximum);
        if (first || beats) {
          maximum = value;
          *best = at;
        }
      }
    }
  }
  return maximum;
}

/* The flat index of position `at` of a channel that begins at x0. */
static int64_t index_of(const DvtWindow* window, int64_t x0, int64_t at, bool column_major) {
  if (at < 0) return 0;
  if (!column_major) return x0 + at;
  const int64_t w = at % window->in[2];
  const int64_t h = at / window->in[2] % window->in[1];
  const int64_t d = at / (window->in[2] * window->in[1]);
  return x0 + (w * window->in[1] + h) * window->in[0] + d;
}

/* Outputs along the last dim [begin, end) whose windows have tap `tap` inside the input. */
static void outputs_of_tap(const DvtWindow* window, int64_t tap, int64_t* begin, int64_t* end) {
  const int64_t stride = window->stride[2];
  const int64_t shift = tap * window->dilation[2] - window->pad[2]; /* Input of output 0. */
  const int64_t last = window->in[2] > shift ? (window->in[2] - shift + stride - 1) / stride : 0;
  const int64_t first = shift < 0 ? (-shift + stride - 1) / stride : 0;
  *end = last < window->out[2] ? last : window->out[2];
  *begin = first < *end ? first : *end;
}

/* y[i] = the larger of y[i] and x[i * stride]; of NaN and a number, NaN; of equals, y[i]. */
DVT_INLINE void max_row(const float* x, int64_t stride, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float value = x[i * stride];
    const float kept = y[i];
    /* Without branches: loops over this become vectors. */
    const float larger = value > kept ? value : kept;
    const float either = value != value ? value : larger;
    y[i] = kept != kept ? kept : either;
  }
}

/* All windows of a row of Y at once, tap by tap: the same maxima as max_of() finds. */
static void max_pool_rows(const DvtWindow* window, const float* x, float* y) {
  const int64_t width = window->out[2];
  for (int64_t d = 0; d < window->out[0]; ++d) {
    const DvtTaps deep = dvt_window_taps(window, 0, d);
    for (int64_t h = 0; h < window->out[1]; ++h, y += width) {
      const DvtTaps high = dvt_window_taps(window, 1, h);
      for (int64_t w = 0; w < width; ++w) y[w] = -INFINITY;
      for (int64_t kd = deep.begin; kd < deep.end; ++kd) {
        for (int64_t kh = high.begin; kh < high.end; ++kh) {
          const float* row = x + ((deep.start + kd * window->dilation[0]) * window->in[1] +
                                  high.start + kh * window->dilation[1]) *
                                     window->in[2];
          for (int64_t kw = 0; kw < window->kernel[2]; ++kw) {
            int64_t begin = 0;
            int64_t end = 0;
            outputs_of_tap(window, kw, &begin, &end);
            const int64_t stride = window->stride[2];
            const float* from = row + begin * stride + kw * window->dilation[2] - window->pad[2];
            if (stride == 1) {
              max_row(from, 1, y + begin, end - begin);
            } else if (stride == 2) {
              max_row(from, 2, y + begin, end - begin);
            } else {
              max_row(from, stride, y + begin, end - begin);
            }
          }
        }
      }
    }
  }
}

DVT_INLINE DvtCode run_max_pool(const DvtContext* ctx, DvtDType dtype) {
  if (dvt_output_tensor(ctx, 0)->bytes == 0) return DVT_OK;
  DvtWindow window;
  const DvtCode code = describe(ctx, &window, NULL, 0);
  if (code != DVT_OK) return code;
  if (dtype == DVT_F32 && !dvt_has_output(ctx, 1)) {
    const DvtTensor* x = dvt_input_tensor(ctx, 0);
    for (int64_t plane = 0; plane < x->dims[0] * x->dims[1]; ++plane) {
      max_pool_rows(&window, (const float*)dvt_input_data(ctx, 0) + plane * dvt_volume(window.in),
                    (float*)dvt_output_data(ctx, 0) + plane * dvt_volume(window.out));
    }
    return DVT_OK;
  }
  const DvtPoolAttributes* attributes = ctx->attributes;
  const DvtTensor* tensor = dvt_input_tensor(ctx, 0);
  const void* x = dvt_input_data(ctx, 0);
  void* y = dvt_output_data(ctx, 0);
  int64_t* indices = dvt_has_output(ctx, 1) ? dvt_output_data(ctx, 1) : NULL;
  const int64_t planes = tensor->dims[0] * tensor->dims[1];
  const int64_t volume = dvt_volume(window.in);
  int64_t y_at = 0;
  for (int64_t plane = 0; plane < planes; ++plane) {
    for (int64_t d = 0; d < window.out[0]; ++d) {
      Taps taps = {.d = dvt_window_taps(&window, 0, d)};
      for (int64_t h = 0; h < window.out[1]; ++h) {
        taps.h = dvt_window_taps(&window, 1, h);
        for (int64_t w = 0; w < window.out[2]; ++w, ++y_at) {
          taps.w = dvt_window_taps(&window, 2, w);
          int64_t best = 0;
          const double maximum = max_of(&window, x, plane * volume, &taps, &best, dtype);
          dvt_store_real(y, dtype, y_at, maximum);
          if (indices != NULL) {
            indices[y_at] = index_of(&window, plane * volume, best, attributes->storage_order != 0);
          }
        }
      }
    }
  }
  return DVT_OK;
}

static DvtCode check_max_pool(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  const DvtCode code = check_pool(ctx, 2, dtype, reason, size);
  if (code != DVT_OK || !dvt_has_output(ctx, 1)) return code;
  return dvt_check_dtype(dvt_output_tensor(ctx, 1), DVT_I64, "indices", reason, size);
}

DVT_INLINE double sum_of(const DvtWindow* window, const void* x, int64_t x0, const Taps* taps,
                         DvtDType dtype) {
  double sum = 0.0;
  for (int64_t kd = taps->d.begin; kd < taps->d.end; ++kd) {
    const int64_t d = taps->d.start + kd * window->dilation[0];
    for (int64_t kh = taps->h.begin; kh < taps->h.end; ++kh) {
      const int64_t h = taps->h.start + kh * window->dilation[1];
      const int64_t row = x0 + (d * window->in[1] + h) * window->in[2];
      for (int64_t kw = taps->w.begin; kw < taps->w.end; ++kw) {
        const int64_t at = row + taps->w.start + kw * window->dilation[2];
        sum = dvt_round_sum(sum + dvt_load_real(x, dtype, at), dtype);
      }
    }
  }
  return sum;
}

/* How many taps of `dim` count: those inside the input, or inside input and pads. */
static int64_t counted(const DvtWindow* window, int dim, const DvtTaps* taps, bool with_pads) {
  if (!with_pads) return taps->end - taps->begin;
  const int64_t dilation = window->dilation[dim];
  const int64_t room = window->in[dim] + window->pad_end[dim] - taps->start;
  const int64_t fit = room > 0 ? (room + dilation - 1) / dilation : 0;
  return fit < window->kernel[dim] ? fit : window->kernel[dim];
}

DVT_INLINE DvtCode run_average_pool(const DvtContext* ctx, DvtDType dtype) {
  if (dvt_output_tensor(ctx, 0)->bytes == 0) return DVT_OK;
  DvtWindow window;
  const DvtCode code = describe(ctx, &window, NULL, 0);
  if (code != DVT_OK) return code;
  const DvtPoolAttributes* attributes = ctx->attributes;
  const bool with_pads = attributes->count_include_pad != 0;
  const DvtTensor* tensor = dvt_input_tensor(ctx, 0);
  const void* x = dvt_input_data(ctx, 0);
  void* y = dvt_output_data(ctx, 0);
  const int64_t planes = tensor->dims[0] * tensor->dims[1];
  const int64_t volume = dvt_volume(window.in);
  int64_t y_at = 0;
  for (int64_t plane = 0; plane < planes; ++plane) {
    for (int64_t d = 0; d < window.out[0]; ++d) {
      Taps taps = {.d = dvt_window_taps(&window, 0, d)};
      for (int64_t h = 0; h < window.out[1]; ++h) {
        taps.h = dvt_window_taps(&window, 1, h);
        const double rows = (double)counted(&window, 0, &taps.d, with_pads) *
                            (double)counted(&window, 1, &taps.h, with_pads);
        for (int64_t w = 0; w < window.out[2]; ++w, ++y_at) {
          taps.w = dvt_window_taps(&window, 2, w);
          const double count = rows * (double)counted(&window, 2, &taps.w, with_pads);
          const double sum = sum_of(&window, x, plane * volume, &taps, dtype);
          dvt_store_real(y, dtype, y_at, count > 0.0 ? dvt_round_sum(sum / count, dtype) : 0.0);
        }
      }
    }
  }
  return DVT_OK;
}

static DvtCode check_average_pool(const DvtContext* ctx, DvtDType dtype, char* reason,
                                  size_t size) {
  return check_pool(ctx, 1, dtype, reason, size);
}

DVT_TYPED_KERNEL(max_pool, f32, DVT_F32)
DVT_TYPED_KERNEL(max_pool, f64, DVT_F64)
DVT_TYPED_KERNEL(max_pool, f16, DVT_F16)
DVT_TYPED_KERNEL(max_pool, bf16, DVT_BF16)
DVT_TYPED_KERNEL(max_pool, u8, DVT_U8)
DVT_TYPED_KERNEL(max_pool, i8, DVT_I8)
DVT_TYPED_KERNEL(average_pool, f32, DVT_F32)
DVT_TYPED_KERNEL(average_pool, f64, DVT_F64)
DVT_TYPED_KERNEL(average_pool, f16, DVT_F16)
DVT_TYPED_KERNEL(average_pool, bf16, DVT_BF16)

static const DvtAttribute pool_attributes[] = {
    {"kernel", offsetof(DvtPoolAttributes, kernel), DVT_SPATIAL_MAX, 'i'},
    {"strides", offsetof(DvtPoolAttributes, window.strides), DVT_SPATIAL_MAX, 'i'},
    {"dilations", offsetof(DvtPoolAttributes, window.dilations), DVT_SPATIAL_MAX, 'i'},
    {"pads_begin", offsetof(DvtPoolAttributes, window.pads_begin), DVT_SPATIAL_MAX, 'i'},
    {"pads_end", offsetof(DvtPoolAttributes, window.pads_end), DVT_SPATIAL_MAX, 'i'},
    {"auto_pad", offsetof(DvtPoolAttributes, window.auto_pad), 1, 'i'},
    {"ceil_mode", offsetof(DvtPoolAttributes, ceil_mode), 1, 'i'},
    {"count_include_pad", offsetof(DvtPoolAttributes, count_include_pad), 1, 'i'},
    {"storage_order", offsetof(DvtPoolAttributes, storage_order), 1, 'i'},
};

#define POOL_KERNEL(kernel_name, family_suffix, outputs)                                           \
  {                                                                                                \
    .name = (kernel_name), .abi_version = DVT_KERNEL_ABI_VERSION,                                  \
    .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE, .input_min = 1, .input_max = 1, .output_min = 1, \
    .output_max = (outputs), .attribute_bytes = sizeof(DvtPoolAttributes),                         \
    .attribute_count = sizeof pool_attributes / sizeof pool_attributes[0],                         \
    .attributes = pool_attributes, .run = run_##family_suffix, .check = check_##family_suffix,     \
    .infer = infer_pool                                                                            \
  }

DvtKernelTable dvt_kernels_pooling(void) {
  static const DvtKernel kernels[] = {
      POOL_KERNEL("MaxPool.f32", max_pool_f32, 2),
      POOL_KERNEL("MaxPool.f64", max_pool_f64, 2),
      POOL_KERNEL("MaxPool.f16", max_pool_f16, 2),
      POOL_KERNEL("MaxPool.bf16", max_pool_bf16, 2),
      POOL_KERNEL("MaxPool.u8", max_pool_u8, 2),
      POOL_KERNEL("MaxPool.i8", max_pool_i8, 2),
      POOL_KERNEL("AveragePool.f32", average_pool_f32, 1),
      POOL_KERNEL("AveragePool.f64", average_pool_f64, 1),
      POOL_KERNEL("AveragePool.f16", average_pool_f16, 1),
      POOL_KERNEL("AveragePool.bf16", average_pool_bf16, 1),
  };
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
