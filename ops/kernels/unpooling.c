#include "ops/kernels/unpooling.h"

#include <inttypes.h>

#include "ops/kernels/element.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/shape.h"

enum { X = 0, INDICES = 1, SHAPE = 2 };

/* The shape of the pool's input; judges everything but the values of the inputs. */
static DvtCode describe_frame(const DvtContext* ctx, DvtTensor* frame, char* reason, size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 2, 3, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtUnpoolAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, X);
  const DvtTensor* indices = dvt_input_tensor(ctx, INDICES);
  if (x->rank < 3 || x->rank > 2 + DVT_SPATIAL_MAX) {
    return dvt_refuse(reason, size, "rank %u of X: expected 3 to 5", x->rank);
  }
  code = dvt_check_dtype(indices, DVT_I64, "indices", reason, size);
  if (code == DVT_OK) code = dvt_check_same_shape(x, indices, "indices", reason, size);
  if (code != DVT_OK) return code;
  int64_t dims[2 + DVT_SPATIAL_MAX] = {x->dims[0], x->dims[1]};
  for (uint32_t i = 0; i < x->rank - 2U; ++i) {
    const int64_t values[5] = {x->dims[i + 2], attributes->kernel[i], attributes->strides[i],
                               attributes->pads_begin[i], attributes->pads_end[i]};
    for (int v = 0; v < 5; ++v) {
      const int64_t low = v == 1 || v == 2 ? 1 : 0;
      if (values[v] >= low && values[v] <= DVT_WINDOW_LIMIT) continue;
      return dvt_refuse(reason, size, "spatial dim %u: %" PRId64 " is out of bounds", i, values[v]);
    }
    dims[i + 2] = (values[0] - 1) * values[2] + values[1] - values[3] - values[4];
    if (values[0] == 0) dims[i + 2] = 0;
  }
  *frame = (DvtTensor){.dtype = x->dtype};
  return dvt_infer_shape(frame, x->rank, dims, "the pool's input", reason, size);
}

/* What was asked for Y; count 0: nothing. */
static DvtCode read_shape(const DvtContext* ctx, int64_t dims[DVT_MAX_RANK], uint32_t* count,
                          char* reason, size_t size) {
  const DvtUnpoolAttributes* attributes = ctx->attributes;
  const uint32_t rank = dvt_input_tensor(ctx, X)->rank;
  *count = 0;
  if (dvt_has_input(ctx, SHAPE)) {
    const DvtCode code =
        dvt_read_integers(ctx, SHAPE, "output_shape", dims, DVT_MAX_RANK, count, reason, size);
    if (code != DVT_OK) return code;
  } else if (attributes->shape_count == 0) {
    return DVT_OK;
  } else if (attributes->shape_count == rank) {
    memcpy(dims, attributes->shape, rank * sizeof dims[0]);
    *count = rank;
  }
  if (*count == rank) return DVT_OK;
  return dvt_refuse(reason, size, "output_shape: expected %u elements", rank);
}

static DvtCode infer_unpool(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtTensor frame;
  DvtCode code = describe_frame(ctx, &frame, reason, size);
  int64_t dims[DVT_MAX_RANK];
  uint32_t count = 0;
  if (code == DVT_OK) code = read_shape(ctx, dims, &count, reason, size);
  if (code != DVT_OK) return code;
  return dvt_infer_shape(&outputs[0], frame.rank, count == 0 ? frame.dims : dims, "Y", reason,
                         size);
}

/* The place in Y of a place in the frame, or -1. */
static int64_t place_in(const DvtTensor* y, const DvtTensor* frame, int64_t place) {
  int64_t at = 0;
  int64_t stride = 1;
  for (uint32_t i = frame->rank; i > 0; --i) {
    const int64_t position = place % frame->dims[i - 1];
    if (position >= y->dims[i - 1]) return -1;
    at += position * stride;
    stride *= y->dims[i - 1];
    place /= frame->dims[i - 1];
  }
  return at;
}

static DvtCode run_unpool(const DvtContext* ctx, DvtDType dtype) {
  DvtTensor frame;
  DvtCode code = describe_frame(ctx, &frame, NULL, 0);
  const DvtTensor* y = dvt_output_tensor(ctx, 0);
  int64_t dims[DVT_MAX_RANK];
  uint32_t count = 0;
  if (code == DVT_OK) code = read_shape(ctx, dims, &count, NULL, 0);
  if (code == DVT_OK && count > 0) code = dvt_check_shape(y, count, dims, "Y", NULL, 0);
  if (code != DVT_OK) return code;
  const uint32_t element = dvt_dtype_size(dtype);
  const char* x = dvt_input_data(ctx, X);
  const int64_t* indices = dvt_input_data(ctx, INDICES);
  char* to = dvt_output_data(ctx, 0);
  if (y->bytes != 0) memset(to, 0, y->bytes);
  const int64_t places = dvt_tensor_elements(&frame);
  for (int64_t i = 0; i < dvt_tensor_elements(dvt_input_tensor(ctx, X)); ++i) {
    if (indices[i] < 0 || indices[i] >= places) return DVT_INVALID_ARGUMENT;
    const int64_t at = y->bytes == 0 ? -1 : place_in(y, &frame, indices[i]);
    if (at < 0) return DVT_INVALID_ARGUMENT;
    memcpy(to + at * element, x + i * element, element);
  }
  return DVT_OK;
}

static DvtCode check_unpool(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 2, 3, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_dtypes(ctx, 1, 1, dtype, reason, size);
  if (code != DVT_OK) return code;
  if (!dvt_has_input(ctx, SHAPE) || dvt_has_data(ctx, SHAPE)) {
    return dvt_check_inferred(ctx, infer_unpool, 0, reason, size);
  }
  DvtTensor frame; /* run() compares Y with the shape asked for. */
  code = describe_frame(ctx, &frame, reason, size);
  if (code != DVT_OK || dvt_output_tensor(ctx, 0)->rank == frame.rank) return code;
  return dvt_refuse(reason, size, "rank %u of Y: expected that of X",
                    dvt_output_tensor(ctx, 0)->rank);
}

DVT_TYPED_KERNEL(unpool, f32, DVT_F32)
DVT_TYPED_KERNEL(unpool, f64, DVT_F64)
DVT_TYPED_KERNEL(unpool, f16, DVT_F16)
DVT_TYPED_KERNEL(unpool, bf16, DVT_BF16)

static const DvtAttribute unpool_attributes[] = {
    {"kernel", offsetof(DvtUnpoolAttributes, kernel), DVT_SPATIAL_MAX, 'i'},
    {"strides", offsetof(DvtUnpoolAttributes, strides), DVT_SPATIAL_MAX, 'i'},
    {"pads_begin", offsetof(DvtUnpoolAttributes, pads_begin), DVT_SPATIAL_MAX, 'i'},
    {"pads_end", offsetof(DvtUnpoolAttributes, pads_end), DVT_SPATIAL_MAX, 'i'},
    {"shape", offsetof(DvtUnpoolAttributes, shape), 2 + DVT_SPATIAL_MAX, 'i'},
    {"shape_count", offsetof(DvtUnpoolAttributes, shape_count), 1, 'i'},
};

#define UNPOOL_KERNEL(suffix)                                                                      \
  {                                                                                                \
    .name = "MaxUnpool." #suffix, .abi_version = DVT_KERNEL_ABI_VERSION,                           \
    .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE, .input_min = 2, .input_max = 3, .output_min = 1, \
    .output_max = 1, .attribute_bytes = sizeof(DvtUnpoolAttributes),                               \
    .attribute_count = sizeof unpool_attributes / sizeof(DvtAttribute),                            \
    .attributes = unpool_attributes, .run = run_unpool_##suffix, .check = check_unpool_##suffix,   \
    .infer = infer_unpool, .host_inputs = 1u << SHAPE                                              \
  }

DvtKernelTable dvt_kernels_unpooling(void) {
  static const DvtKernel kernels[] = {UNPOOL_KERNEL(f32), UNPOOL_KERNEL(f64), UNPOOL_KERNEL(f16),
                                      UNPOOL_KERNEL(bf16)};
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
