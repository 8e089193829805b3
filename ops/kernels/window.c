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

bool dvt_window_in_bounds(int64_t in, int64_t kernel, int64_t stride, int64_t dilation, int64_t pad,
                          int64_t pad_end) {
  return within(in, 0) && within(kernel, 1) && within(stride, 1) && within(dilation, 1) &&
         within(pad, 0) && within(pad_end, 0);
}

int64_t dvt_window_out(int64_t in, int64_t kernel, int64_t stride, int64_t dilation, int64_t pad,
                       int64_t pad_end, bool ceil_mode) {
  if (!dvt_window_in_bounds(in, kernel, stride, dilation, pad, pad_end)) return -1;
  const int64_t slack = in + pad + pad_end - ((kernel - 1) * dilation + 1);
  if (slack < 0) return -1;
  if (!ceil_mode) return slack / stride + 1;
  const int64_t out = (slack + stride - 1) / stride + 1;
  return (out - 1) * stride >= in + pad ? out - 1 : out;
}

void dvt_split_pads(int64_t auto_pad, int64_t total, int64_t* begin, int64_t* end) {
  const int64_t pads = total > 0 ? total : 0;
  const int64_t less = pads / 2;
  *begin = auto_pad == DVT_PADS_SAME_UPPER ? less : pads - less;
  *end = pads - *begin;
}

void dvt_same_pads(int64_t auto_pad, int64_t in, int64_t kernel, int64_t stride, int64_t dilation,
                   int64_t* begin, int64_t* end) {
  const int64_t out = in == 0 ? 0 : (in - 1) / stride + 1;
  const int64_t reach = (kernel - 1) * dilation + 1;
  dvt_split_pads(auto_pad, (out - 1) * stride + reach - in, begin, end);
}

DvtCode dvt_window_init(DvtWindow* window, uint32_t spatial, const DvtWindowAttributes* attributes,
                        const int64_t* in, const int64_t* kernel, bool ceil_mode, char* reason,
                        size_t size) {
  const uint32_t leading = DVT_SPATIAL_MAX - spatial;
  if (attributes->auto_pad < DVT_PADS_STATED || attributes->auto_pad > DVT_PADS_SAME_LOWER) {
    return dvt_refuse(reason, size, "auto_pad %" PRId64 " is unknown", attributes->auto_pad);
  }
  *window = (DvtWindow){{0}, {0}, {0}, {0}, {0}, {0}, {0}};
  for (uint32_t i = 0; i < DVT_SPATIAL_MAX; ++i) {
    const bool used = i >= leading;
    const uint32_t from = used ? i - leading : 0;
    window->in[i] = used ? in[from] : 1;
    window->kernel[i] = used ? kernel[from] : 1;
    window->stride[i] = used ? attributes->strides[from] : 1;
    window->dilation[i] = used ? attributes->dilations[from] : 1;
    window->pad[i] = used ? attributes->pads_begin[from] : 0;
    window->pad_end[i] = used ? attributes->pads_end[from] : 0;
    if (used && attributes->auto_pad != DVT_PADS_STATED && within(window->in[i], 0) &&
        within(window->kernel[i], 1) && within(window->stride[i], 1) &&
        within(window->dilation[i], 1)) {
      dvt_same_pads(attributes->auto_pad, window->in[i], window->kernel[i], window->stride[i],
                    window->dilation[i], &window->pad[i], &window->pad_end[i]);
    }
    window->out[i] =
        dvt_window_out(window->in[i], window->kernel[i], window->stride[i], window->dilation[i],
                       window->pad[i], window->pad_end[i], ceil_mode);
    if (window->out[i] < 0) {
      const bool in_bounds =
          dvt_window_in_bounds(window->in[i], window->kernel[i], window->stride[i],
                               window->dilation[i], window->pad[i], window->pad_end[i]);
      return dvt_refuse(
          reason, size,
          "spatial dim %u: input %" PRId64 ", kernel %" PRId64 ", stride %" PRId64
          ", dilation %" PRId64 " and pads %" PRId64 ", %" PRId64 "%s",
          from, window->in[i], window->kernel[i], window->stride[i], window->dilation[i],
          window->pad[i], window->pad_end[i],
          in_bounds ? " give no output" : ": one of them is out of bounds, or above 2^31 - 1");
    }
  }
  if (!volume_fits(window->in) || !volume_fits(window->kernel) || !volume_fits(window->out)) {
    return dvt_refuse(reason, size, "spatial dims are too large");
  }
  return DVT_OK;
}

DvtCode dvt_window_infer(const DvtWindow* window, uint32_t rank, int64_t batch, int64_t channels,
                         DvtTensor* output, char* reason, size_t size) {
  int64_t dims[2 + DVT_SPATIAL_MAX] = {batch, channels};
  const uint32_t spatial = rank - 2;
  for (uint32_t i = 0; i < spatial; ++i) {
    dims[2 + i] = window->out[DVT_SPATIAL_MAX - spatial + i];
  }
  return dvt_infer_shape(output, rank, dims, "output 0", reason, size);
}
