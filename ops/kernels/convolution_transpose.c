/* ConvTranspose: the gradient of a convolution that maps Y to X. Each input position spreads over
 * the window it would have come from. */
#include <inttypes.h>

#include "ops/kernels/convolution.h"
#include "ops/kernels/element.h"
#include "ops/kernels/gemm.h"

uint64_t dvt_conv_transpose_workspace_bytes(int64_t rows) {
  uint64_t bytes = 0;
  if (rows < 0 ||
      __builtin_mul_overflow((uint64_t)rows, DVT_GEMM_BLOCK_N * sizeof(float), &bytes) ||
      bytes > UINT64_MAX - DVT_GEMM_WORKSPACE_BYTES) {
    return 0;
  }
  return bytes + DVT_GEMM_WORKSPACE_BYTES;
}

int64_t dvt_conv_transpose_out(const DvtConvTransposeAttributes* attributes, uint32_t dim,
                               int64_t in, int64_t kernel, int64_t* pad, int64_t* pad_end) {
  const DvtWindowAttributes* window = &attributes->window;
  const int64_t stride = window->strides[dim];
  const int64_t dilation = window->dilations[dim];
  const int64_t extra = attributes->output_padding[dim];
  const int64_t stated = attributes->output_shape[dim];
  *pad = window->pads_begin[dim];
  *pad_end = window->pads_end[dim];
  const int64_t at_least_0[] = {in, *pad, *pad_end, extra, stated};
  const int64_t at_least_1[] = {kernel, stride, dilation};
  for (uint32_t i = 0; i < 5; ++i) {
    if (at_least_0[i] < 0 || at_least_0[i] > DVT_WINDOW_LIMIT) return -1;
  }
  for (uint32_t i = 0; i < 3; ++i) {
    if (at_least_1[i] < 1 || at_least_1[i] > DVT_WINDOW_LIMIT) return -1;
  }
  const int64_t full = stride * (in - 1) + extra + (kernel - 1) * dilation + 1;
  int64_t out = full - *pad - *pad_end;
  if (stated > 0 || window->auto_pad != DVT_PADS_STATED) {
    out = stated > 0 ? stated : in * stride;
    dvt_split_pads(window->auto_pad, full - out, pad, pad_end);
  }
  const bool fits = out >= 0 && out <= DVT_WINDOW_LIMIT && *pad <= DVT_WINDOW_LIMIT &&
                    *pad_end <= DVT_WINDOW_LIMIT;
  return fits ? out : -1;
}

/* `in` is Y's extent, `out` X's. */
static DvtCode describe_window(DvtWindow* window, uint32_t spatial,
                               const DvtConvTransposeAttributes* attributes, const int64_t* x,
                               const int64_t* kernel, char* reason, size_t size) {
  const uint32_t leading = DVT_SPATIAL_MAX - spatial;
  int64_t volumes[3] = {1, 1, 1};
  for (uint32_t i = 0; i < DVT_SPATIAL_MAX; ++i) {
    const bool used = i >= leading;
    const uint32_t from = used ? i - leading : 0;
    window->out[i] = used ? x[from] : 1;
    window->kernel[i] = used ? kernel[from] : 1;
    window->stride[i] = used ? attributes->window.strides[from] : 1;
    window->dilation[i] = used ? attributes->window.dilations[from] : 1;
    window->pad[i] = window->pad_end[i] = 0;
    window->in[i] = used ? dvt_conv_transpose_out(attributes, from, x[from], kernel[from],
                                                  &window->pad[i], &window->pad_end[i])
                         : 1;
    const int64_t extents[3] = {window->in[i], window->out[i], window->kernel[i]};
    bool fits = window->in[i] >= 0;
    for (int v = 0; fits && v < 3; ++v) {
      fits = !__builtin_mul_overflow(volumes[v], extents[v], &volumes[v]) &&
             volumes[v] <= DVT_VOLUME_LIMIT;
    }
    if (!fits) {
      return dvt_refuse(reason, size,
                        "spatial dim %u: input %" PRId64 ", kernel %" PRId64 ", stride %" PRId64
                        " and dilation %" PRId64 " give no output in range",
                        from, window->out[i], window->kernel[i], window->stride[i],
                        window->dilation[i]);
    }
  }
  return DVT_OK;
}

static DvtCode describe(const DvtContext* ctx, DvtConv* conv, char* reason, size_t size) {
  const DvtConvTransposeAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  const DvtTensor* w = dvt_input_tensor(ctx, 1);
  if (x->rank < 3 || x->rank > 2 + DVT_SPATIAL_MAX || w->rank != x->rank) {
    return dvt_refuse(reason, size, "ranks %u and %u of X and W: expected equal, 3 to 5", x->rank,
                      w->rank);
  }
  const int64_t group = attributes->group;
  int64_t channels = 0;
  if (group < 1 || x->dims[1] % group != 0 || w->dims[0] != x->dims[1] ||
      __builtin_mul_overflow(group, w->dims[1], &channels)) {
    return dvt_refuse(reason, size, "group %" PRId64 " does not match the channels of X and W",
                      group);
  }
  *conv = (DvtConv){.batch = x->dims[0],
                    .group = group,
                    .in_channels = x->dims[1] / group,
                    .out_channels = w->dims[1]};
  return describe_window(&conv->window, x->rank - 2U, attributes, x->dims + 2, w->dims + 2, reason,
                         size);
}

DvtCode dvt_conv_transpose_infer(const DvtContext* ctx, DvtTensor* outputs, char* reason,
                                 size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 2, 3, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  DvtConv conv = {0};
  if (code == DVT_OK) code = describe(ctx, &conv, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  int64_t dims[2 + DVT_SPATIAL_MAX] = {x->dims[0], conv.group * conv.out_channels};
  for (uint32_t i = 2; i < x->rank; ++i) {
    dims[i] = conv.window.in[DVT_SPATIAL_MAX + i - x->rank];
  }
  code = dvt_infer_shape(&outputs[0], x->rank, dims, "output 0", reason, size);
  if (code != DVT_OK || ctx->output_count < 2) return code;
  uint64_t bytes = 1; /* Y is empty, or all bias. */
  int64_t rows = 0;
  if (outputs[0].bytes > 0 && dvt_input_tensor(ctx, 1)->bytes > 0) {
    bytes = __builtin_mul_overflow(conv.out_channels, dvt_volume(conv.window.kernel), &rows)
                ? 0
                : dvt_conv_transpose_workspace_bytes(rows);
  }
  if (bytes == 0) return dvt_refuse(reason, size, "W is too large");
  return dvt_infer_scratch(&outputs[1], bytes, reason, size);
}

/* Input positions [begin, end) of one dim whose windows span output `o`. With dilation not all of
 * them have a tap there; tap_of() tells. */
typedef struct Sources {
  int64_t begin, end;
} Sources;
static Sources sources_of(const DvtWindow* window, int dim, int64_t o) {
  const int64_t stride = window->stride[dim];
  const int64_t reach = (window->kernel[dim] - 1) * window->dilation[dim];
  const int64_t top = o + window->pad[dim]; /* position * stride <= top ... */
  const int64_t bottom = top - reach;       /* ... and >= bottom. */
  const int64_t begin = bottom > 0 ? (bottom + stride - 1) / stride : 0;
  const int64_t limit = top / stride + 1;
  const int64_t end = limit < window->out[dim] ? limit : window->out[dim];
  return (Sources){.begin = begin < end ? begin : end, .end = end};
}

/* The tap by which input `position` reaches output `o` along `dim`, or -1. */
static int64_t tap_of(const DvtWindow* window, int dim, int64_t o, int64_t position) {
  const int64_t distance = o + window->pad[dim] - position * window->stride[dim];
  return distance % window->dilation[dim] == 0 ? distance / window->dilation[dim] : -1;
}

/* Sum over the channels of X * W for one input position and tap. */
DVT_INLINE double sum_channels(const DvtConv* conv, const void* x, int64_t x0, const void* w,
                               int64_t w0, DvtDType dtype) {
  const int64_t x_step = dvt_volume(conv->window.out);
  const int64_t w_step = conv->out_channels * dvt_volume(conv->window.kernel);
  double sum = 0.0;
  for (int64_t c = 0; c < conv->in_channels; ++c) {
    const double product = dvt_round_real(
        dvt_load_real(x, dtype, x0 + c * x_step) * dvt_load_real(w, dtype, w0 + c * w_step), dtype);
    sum = dvt_round_real(sum + product, dtype);
  }
  return sum;
}

/* One element of Y without its bias. x0: the group's first channel of X; w0: the filter. */
DVT_INLINE double gather(const DvtConv* conv, const void* x, int64_t x0, const void* w, int64_t w0,
                         const int64_t o[DVT_SPATIAL_MAX], DvtDType dtype) {
  const DvtWindow* window = &conv->window;
  const Sources depth = sources_of(window, 0, o[0]);
  const Sources height = sources_of(window, 1, o[1]);
  const Sources width = sources_of(window, 2, o[2]);
  double sum = 0.0;
  for (int64_t d = depth.begin; d < depth.end; ++d) {
    const int64_t kd = tap_of(window, 0, o[0], d);
    if (kd < 0) continue;
    for (int64_t h = height.begin; h < height.end; ++h) {
      const int64_t kh = tap_of(window, 1, o[1], h);
      if (kh < 0) continue;
      for (int64_t i = width.begin; i < width.end; ++i) {
        const int64_t ki = tap_of(window, 2, o[2], i);
        if (ki < 0) continue;
        const int64_t x_at = x0 + (d * window->out[1] + h) * window->out[2] + i;
        const int64_t w_at = w0 + (kd * window->kernel[1] + kh) * window->kernel[2] + ki;
        sum = dvt_round_real(sum + sum_channels(conv, x, x_at, w, w_at, dtype), dtype);
      }
    }
  }
  return sum;
}

DVT_INLINE void transpose_simple(const DvtConv* conv, const void* x, const void* w,
                                 const void* bias, void* y, DvtDType dtype) {
  const DvtWindow* window = &conv->window;
  const int64_t x_group = conv->in_channels * dvt_volume(window->out);
  const int64_t w_filter = dvt_volume(window->kernel);
  const int64_t w_group = conv->in_channels * conv->out_channels * w_filter;
  int64_t at = 0;
  for (int64_t n = 0; n < conv->batch; ++n) {
    for (int64_t m = 0; m < conv->group * conv->out_channels; ++m) {
      const int64_t g = m / conv->out_channels;
      const int64_t x0 = (n * conv->group + g) * x_group;
      const int64_t w0 = g * w_group + m % conv->out_channels * w_filter;
      int64_t o[DVT_SPATIAL_MAX];
      for (o[0] = 0; o[0] < window->in[0]; ++o[0]) {
        for (o[1] = 0; o[1] < window->in[1]; ++o[1]) {
          for (o[2] = 0; o[2] < window->in[2]; ++o[2]) {
            double sum = gather(conv, x, x0, w, w0, o, dtype);
            if (bias != NULL) sum = dvt_round_real(sum + dvt_load_real(bias, dtype, m), dtype);
            dvt_store_real(y, dtype, at++, sum);
          }
        }
      }
    }
  }
}

/* ---- The blocked f32 path: a product per block of input positions, spread over Y --------------
 */

/* A block of X: `channels` rows, `plane` elements apart. */
typedef struct Plain {
  const float* x;
  int64_t plane;
} Plain;

static void pack_plain(const void* source, int64_t k0, int64_t rows, int64_t j0, int64_t columns,
                       float* panels) {
  const Plain* plain = source;
  for (int64_t j = 0; j < columns; j += DVT_GEMM_PANEL) {
    const int64_t width = columns - j < DVT_GEMM_PANEL ? columns - j : DVT_GEMM_PANEL;
    for (int64_t k = 0; k < rows; ++k) {
      float* to = panels + j * rows + k * DVT_GEMM_PANEL;
      memset(to, 0, DVT_GEMM_PANEL * sizeof(float));
      memcpy(to, plain->x + (k0 + k) * plain->plane + j0 + j, (size_t)width * sizeof(float));
    }
  }
}

/* Adds one row of products, that of tap `k`, to the channel `y`. */
static void spread_row(const DvtWindow* window, const int64_t k[DVT_SPATIAL_MAX],
                       const float* products, int64_t j0, int64_t columns, float* y) {
  int64_t i = j0 % window->out[2];
  int64_t h = j0 / window->out[2] % window->out[1];
  int64_t d = j0 / (window->out[2] * window->out[1]);
  for (int64_t j = 0; j < columns; ++j) {
    const int64_t od = d * window->stride[0] - window->pad[0] + k[0] * window->dilation[0];
    const int64_t oh = h * window->stride[1] - window->pad[1] + k[1] * window->dilation[1];
    const int64_t oi = i * window->stride[2] - window->pad[2] + k[2] * window->dilation[2];
    if (od >= 0 && od < window->in[0] && oh >= 0 && oh < window->in[1] && oi >= 0 &&
        oi < window->in[2]) {
      y[(od * window->in[1] + oh) * window->in[2] + oi] += products[j];
    }
    if (++i == window->out[2]) {
      i = 0;
      if (++h == window->out[1]) {
        h = 0;
        ++d;
      }
    }
  }
}

/* Taps descend, so that each element of Y meets its input positions in ascending order. */
static void spread(const DvtConv* conv, const float* products, int64_t j0, int64_t columns,
                   float* y) {
  const DvtWindow* window = &conv->window;
  const int64_t taps = dvt_volume(window->kernel);
  for (int64_t m = 0; m < conv->out_channels; ++m) {
    for (int64_t tap = taps; tap-- > 0;) {
      const int64_t k[DVT_SPATIAL_MAX] = {tap / (window->kernel[2] * window->kernel[1]),
                                          tap / window->kernel[2] % window->kernel[1],
                                          tap % window->kernel[2]};
      spread_row(window, k, products + (m * taps + tap) * DVT_GEMM_BLOCK_N, j0, columns,
                 y + m * dvt_volume(window->in));
    }
  }
}

static void transpose_f32(const DvtConv* conv, const float* x, const float* w, const float* bias,
                          float* y, float* workspace) {
  const int64_t positions = dvt_volume(conv->window.out);
  const int64_t y_volume = dvt_volume(conv->window.in);
  const int64_t rows = conv->out_channels * dvt_volume(conv->window.kernel);
  float* products = workspace + DVT_GEMM_WORKSPACE_BYTES / sizeof(float);
  for (int64_t n = 0; n < conv->batch; ++n) {
    for (int64_t g = 0; g < conv->group; ++g) {
      const int64_t y_group = (n * conv->group + g) * conv->out_channels * y_volume;
      float* to = y + y_group;
      memset(to, 0, (size_t)(conv->out_channels * y_volume) * sizeof(float));
      for (int64_t j = 0; j < positions; j += DVT_GEMM_BLOCK_N) {
        const Plain plain = {.x = x + (n * conv->group + g) * conv->in_channels * positions + j,
                             .plane = positions};
        const int64_t left = positions - j;
        const DvtGemm gemm = {.m = rows,
                              .n = left < DVT_GEMM_BLOCK_N ? left : DVT_GEMM_BLOCK_N,
                              .k = conv->in_channels,
                              .a = w + g * conv->in_channels * rows,
                              .a_row = 1,
                              .a_column = rows,
                              .pack = pack_plain,
                              .source = &plain,
                              .c = products,
                              .c_row = DVT_GEMM_BLOCK_N};
        dvt_gemm_f32(&gemm, workspace);
        spread(conv, products, j, gemm.n, to);
      }
      for (int64_t m = 0; bias != NULL && m < conv->out_channels; ++m) {
        const float value = bias[g * conv->out_channels + m];
        for (int64_t i = 0; i < y_volume; ++i) to[m * y_volume + i] += value;
      }
    }
  }
}

DVT_INLINE DvtCode run_typed(const DvtContext* ctx, DvtDType dtype) {
  if (dvt_output_tensor(ctx, 0)->bytes == 0) return DVT_OK;
  DvtConv conv = {0};
  const DvtCode code = describe(ctx, &conv, NULL, 0);
  if (code != DVT_OK) return code;
  const void* x = dvt_input_data(ctx, 0);
  const void* w = dvt_input_data(ctx, 1);
  const void* bias = dvt_has_input(ctx, 2) ? dvt_input_data(ctx, 2) : NULL;
  void* y = dvt_output_data(ctx, 0);
  if (dvt_input_tensor(ctx, 0)->bytes == 0 || dvt_input_tensor(ctx, 1)->bytes == 0) {
    dvt_conv_fill_bias(ctx, dtype);
  } else if (dtype == DVT_F32 && dvt_has_output(ctx, 1)) {
    transpose_f32(&conv, x, w, bias, y, dvt_output_data(ctx, 1));
  } else {
    transpose_simple(&conv, x, w, bias, y, dtype);
  }
  return DVT_OK;
}

DvtCode dvt_conv_transpose_run(const DvtContext* ctx, DvtDType dtype) {
  switch (dtype) {
    case DVT_F32:
      return run_typed(ctx, DVT_F32);
    case DVT_F64:
      return run_typed(ctx, DVT_F64);
    case DVT_F16:
      return run_typed(ctx, DVT_F16);
    default:
      return run_typed(ctx, DVT_BF16);
  }
}

DvtCode dvt_conv_transpose_check(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  return dvt_conv_check(ctx, dtype, dvt_conv_transpose_infer, reason, size);
}
