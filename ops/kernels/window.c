#include "ops/kernels/window.h"

#include <inttypes.h>

static bool within(int64_t value, int64_t low) {
  return value >= low && value <= DVT_WINDOW_LIMIT;
}

/* False when the product of the extents leaves no room for further factors. */
static bool volume_fits(const int64_t extents[DVT_SPATIAL_MAX]) {
  int64_t volume = extents[0] * extents[1];
  return !__builtin_mul_overflow(volume, extents[2], &volume) && volume <= DVT_VOLUME_LIMIT;
}

int64_t dvt_window_out(int64_t in, int64_t kernel, int64_t stride, int64_t dilation, int64_t pad,
                       int64_t pad_end, bool ceil_mode) {
  if (!within(in, 0) || !within(kernel, 1) || !within(stride, 1) || !within(dilation, 1) ||
      !within(pad, 0) || !within(pad_end, 0)) {
    return -1;
  }
  const int64_t slack = in + pad + pad_end - ((kernel - 1) * dilation + 1);
  if (slack < 0) return -1;
  if (!ceil_mode) return slack / stride + 1;
  const int64_t out = (slack + stride - 1) / stride + 1;
  return (out - 1) * stride >= in + pad ? out - 1 : out;
}

void dvt_window_pads(const DvtWindowAttributes* attributes, uint32_t dim, int64_t in,
                     int64_t kernel, int64_t* begin, int64_t* end) {
  *begin = attributes->pads_begin[dim];
  *end = attributes->pads_end[dim];
  if (*begin != DVT_PAD_SAME_UPPER && *begin != DVT_PAD_SAME_LOWER) return;
  const bool upper = *begin == DVT_PAD_SAME_UPPER;
  const int64_t stride = attributes->strides[dim];
  const int64_t dilation = attributes->dilations[dim];
  *begin = *end = 0;
  if (!within(in, 1) || !within(kernel, 1) || !within(stride, 1) || !within(dilation, 1)) return;
  const int64_t total = (in - 1) / stride * stride + (kernel - 1) * dilation + 1 -
                        in; /* Below 2^63: see the limit. */
  if (total <= 0) return;
  *begin = upper ? total / 2 : total - total / 2;
  *end = total - *begin;
}

DvtCode dvt_window_infer(uint32_t spatial, const DvtWindowAttributes* attributes, const int64_t* in,
                         const int64_t* kernel, bool ceil_mode, int64_t* out, char* reason,
                         size_t size) {
  for (uint32_t i = 0; i < spatial; ++i) {
    int64_t begin = 0;
    int64_t end = 0;
    dvt_window_pads(attributes, i, in[i], kernel[i], &begin, &end);
    out[i] = dvt_window_out(in[i], kernel[i], attributes->strides[i], attributes->dilations[i],
                            begin, end, ceil_mode);
    if (out[i] >= 0) continue;
    return dvt_refuse(reason, size,
                      "spatial dim %u: a window of %" PRId64 " does not fit into %" PRId64
                      " and pads %" PRId64 ", %" PRId64,
                      i, kernel[i], in[i], begin, end);
  }
  return DVT_OK;
}

DvtCode dvt_window_init(DvtWindow* window, uint32_t spatial, const DvtWindowAttributes* attributes,
                        const int64_t* in, const int64_t* kernel, const int64_t* out,
                        bool ceil_mode, char* reason, size_t size) {
  const uint32_t leading = DVT_SPATIAL_MAX - spatial;
  *window = (DvtWindow){{0}, {0}, {0}, {0}, {0}, {0}, {0}};
  for (uint32_t i = 0; i < DVT_SPATIAL_MAX; ++i) {
    const bool used = i >= leading;
    const uint32_t from = used ? i - leading : 0;
    window->in[i] = used ? in[from] : 1;
    window->kernel[i] = used ? kernel[from] : 1;
    window->out[i] = used ? out[from] : 1;
    window->stride[i] = used ? attributes->strides[from] : 1;
    window->dilation[i] = used ? attributes->dilations[from] : 1;
    if (used) {
      dvt_window_pads(attributes, from, in[from], kernel[from], &window->pad[i],
                      &window->pad_end[i]);
    }
    const int64_t expected =
        dvt_window_out(window->in[i], window->kernel[i], window->stride[i], window->dilation[i],
                       window->pad[i], window->pad_end[i], ceil_mode);
    if (expected < 0 || expected != window->out[i]) {
      return dvt_refuse(reason, size,
                        "spatial dim %u: input %" PRId64 ", kernel %" PRId64 ", stride %" PRId64
                        ", dilation %" PRId64 " and pads %" PRId64 ", %" PRId64
                        " do not give output %" PRId64,
                        from, window->in[i], window->kernel[i], window->stride[i],
                        window->dilation[i], window->pad[i], window->pad_end[i], window->out[i]);
    }
  }
  if (!volume_fits(window->in) || !volume_fits(window->kernel) || !volume_fits(window->out)) {
    return dvt_refuse(reason, size, "spatial dims are too large");
  }
  return DVT_OK;
}
