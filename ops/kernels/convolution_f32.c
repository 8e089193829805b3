/* The blocked f32 convolution: an implicit matrix product whose B, the unfolded input, exists one
 * packed block at a time; and a direct loop for depthwise filters, whose product would have one
 * row. */
#include "ops/kernels/convolution.h"
#include "ops/kernels/element.h"
#include "ops/kernels/gemm.h"

/* What pack() unfolds: one image's channels of one group. */
typedef struct Unfold {
  const DvtWindow* window;
  const float* x;
} Unfold;

/* Writes the inputs that one kernel position sees for outputs [begin, end) of one output row. `row`
 * is the input row, NULL outside the input; `offset` the position that output 0 sees. */
static void unfold_row(const DvtWindow* window, const float* row, int64_t offset, int64_t begin,
                       int64_t end, float* to) {
  if (row == NULL) {
    for (int64_t o = begin; o < end; ++o) to[o - begin] = 0.0f;
    return;
  }
  const int64_t stride = window->stride[2];
  const int64_t in = window->in[2];
  /* Outputs [low, high) see the inside of the row. */
  int64_t low = offset < 0 ? (-offset + stride - 1) / stride : 0;
  int64_t high = offset < in ? (in - offset + stride - 1) / stride : 0;
  low = low < begin ? begin : low;
  low = low > end ? end : low;
  high = high > end ? end : high;
  high = high < low ? low : high;
  for (int64_t o = begin; o < low; ++o) to[o - begin] = 0.0f;
  if (stride == 1) {
    const size_t bytes = (size_t)(high - low) * sizeof(float);
    if (bytes > 0) memcpy(to + (low - begin), row + offset + low, bytes);
  } else {
    for (int64_t o = low; o < high; ++o) to[o - begin] = row[offset + o * stride];
  }
  for (int64_t o = high; o < end; ++o) to[o - begin] = 0.0f;
}

/* Row `k` of the unfolded input, columns [j0, j0 + columns), into `line`. */
static void unfold_line(const Unfold* unfold, int64_t k, int64_t j0, int64_t columns, float* line) {
  const DvtWindow* window = unfold->window;
  const int64_t kw = k % window->kernel[2];
  const int64_t kh = k / window->kernel[2] % window->kernel[1];
  const int64_t kd = k / (window->kernel[2] * window->kernel[1]) % window->kernel[0];
  const int64_t c = k / dvt_volume(window->kernel);
  const float* channel = unfold->x + c * dvt_volume(window->in);
  const int64_t offset = kw * window->dilation[2] - window->pad[2];
  int64_t ow = j0 % window->out[2];
  int64_t oh = j0 / window->out[2] % window->out[1];
  int64_t od = j0 / (window->out[2] * window->out[1]);
  for (int64_t done = 0; done < columns;) {
    const int64_t left = window->out[2] - ow;
    const int64_t take = left < columns - done ? left : columns - done;
    const int64_t d = od * window->stride[0] - window->pad[0] + kd * window->dilation[0];
    const int64_t h = oh * window->stride[1] - window->pad[1] + kh * window->dilation[1];
    const bool inside = d >= 0 && d < window->in[0] && h >= 0 && h < window->in[1];
    const float* row = inside ? channel + (d * window->in[1] + h) * window->in[2] : NULL;
    unfold_row(window, row, offset, ow, ow + take, line + done);
    done += take;
    ow = 0;
    if (++oh == window->out[1]) {
      oh = 0;
      ++od;
    }
  }
}

static void pack_unfolded(const void* source, int64_t k0, int64_t rows, int64_t j0, int64_t columns,
                          float* panels) {
  float line[DVT_GEMM_BLOCK_N];
  const int64_t padded = (columns + DVT_GEMM_PANEL - 1) / DVT_GEMM_PANEL * DVT_GEMM_PANEL;
  for (int64_t j = columns; j < padded; ++j) line[j] = 0.0f;
  for (int64_t k = 0; k < rows; ++k) {
    unfold_line(source, k0 + k, j0, columns, line);
    for (int64_t j = 0; j < padded; j += DVT_GEMM_PANEL) {
      memcpy(panels + j * rows + k * DVT_GEMM_PANEL, line + j, DVT_GEMM_PANEL * sizeof(float));
    }
  }
}

/* A 1x1 window that steps over every element sees the image as one row. */
static DvtWindow flatten_pointwise(const DvtWindow* window) {
  DvtWindow flat = *window;
  for (int i = 0; i < DVT_SPATIAL_MAX; ++i) {
    if (window->kernel[i] != 1 || window->in[i] != window->out[i] || window->pad[i] != 0) {
      return flat;
    }
  }
  flat.in[2] = flat.out[2] = dvt_volume(window->in);
  flat.in[0] = flat.in[1] = flat.out[0] = flat.out[1] = 1;
  flat.stride[2] = 1;
  return flat;
}

enum { STRETCH = 16 }; /* Outputs of a row that the direct loop sums at a time. */

/* sums[j] += row[offset + j * stride] * w, with zeros outside the row. */
static inline void add_tap(float* sums, int64_t count, const float* row, int64_t offset,
                           int64_t stride, int64_t in, float w) {
  const bool whole =
      count == STRETCH && row != NULL && offset >= 0 && offset + (STRETCH - 1) * stride < in;
  if (whole && stride == 1) {
    for (int j = 0; j < STRETCH; ++j) sums[j] += row[offset + j] * w;
  } else if (whole) {
    for (int j = 0; j < STRETCH; ++j) sums[j] += row[offset + j * stride] * w;
  } else {
    for (int64_t j = 0; j < count; ++j) {
      const int64_t at = offset + j * stride;
      const float value = row != NULL && at >= 0 && at < in ? row[at] : 0.0f;
      sums[j] += value * w;
    }
  }
}

/* One filter over one channel: outputs of row (od, oh). */
static void direct_row(const DvtWindow* window, const float* x, const float* w, float bias,
                       bool has_bias, int64_t od, int64_t oh, float* y) {
  const int64_t stride = window->stride[2];
  for (int64_t begin = 0; begin < window->out[2]; begin += STRETCH) {
    const int64_t left = window->out[2] - begin;
    const int64_t count = left < STRETCH ? left : STRETCH;
    float sums[STRETCH] = {0};
    const float* tap = w;
    for (int64_t kd = 0; kd < window->kernel[0]; ++kd) {
      const int64_t d = od * window->stride[0] - window->pad[0] + kd * window->dilation[0];
      for (int64_t kh = 0; kh < window->kernel[1]; ++kh) {
        const int64_t h = oh * window->stride[1] - window->pad[1] + kh * window->dilation[1];
        const bool inside = d >= 0 && d < window->in[0] && h >= 0 && h < window->in[1];
        const float* row = inside ? x + (d * window->in[1] + h) * window->in[2] : NULL;
        for (int64_t kw = 0; kw < window->kernel[2]; ++kw) {
          const int64_t offset = begin * stride - window->pad[2] + kw * window->dilation[2];
          add_tap(sums, count, row, offset, stride, window->in[2], *tap++);
        }
      }
    }
    for (int64_t j = 0; j < count; ++j) y[begin + j] = has_bias ? sums[j] + bias : sums[j];
  }
}

static void direct(const DvtWindow* window, const float* x, const float* w, const float* bias,
                   float* y) {
  for (int64_t d = 0; d < window->out[0]; ++d) {
    for (int64_t h = 0; h < window->out[1]; ++h) {
      direct_row(window, x, w, bias == NULL ? 0.0f : *bias, bias != NULL, d, h, y);
      y += window->out[2];
    }
  }
}

void dvt_conv_f32(const DvtConv* conv, const float* x, const float* w, const float* bias, float* y,
                  float* workspace) {
  const DvtWindow window = flatten_pointwise(&conv->window);
  const int64_t in_volume = dvt_volume(window.in);
  const int64_t out_volume = dvt_volume(window.out);
  const int64_t filter = conv->in_channels * dvt_volume(window.kernel);
  for (int64_t n = 0; n < conv->batch; ++n) {
    for (int64_t g = 0; g < conv->group; ++g) {
      const int64_t m0 = g * conv->out_channels;
      const float* from = x + (n * conv->group + g) * conv->in_channels * in_volume;
      float* to = y + (n * conv->group * conv->out_channels + m0) * out_volume;
      if (conv->in_channels == 1) {
        for (int64_t m = 0; m < conv->out_channels; ++m) {
          direct(&window, from, w + (m0 + m) * filter, bias == NULL ? NULL : bias + m0 + m,
                 to + m * out_volume);
        }
        continue;
      }
      const Unfold unfold = {.window = &window, .x = from};
      const DvtGemm gemm = {.m = conv->out_channels,
                            .n = out_volume,
                            .k = filter,
                            .a = w + m0 * filter,
                            .a_row = filter,
                            .a_column = 1,
                            .pack = pack_unfolded,
                            .source = &unfold,
                            .bias = bias == NULL ? NULL : bias + m0,
                            .c = to,
                            .c_row = out_volume};
      dvt_gemm_f32(&gemm, workspace);
    }
  }
}
