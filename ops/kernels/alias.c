/* alias.c: kernels whose output is the bytes of their input. Only their shape functions do
 * anything. */
#include "ops/kernels/alias.h"

#include <inttypes.h>

#include "ops/kernels/kernels.h"

enum { PARAMETERS = 1u << 1 }; /* Input 1 is read on the host. */

static DvtCode run_alias(void* ctx) {
  (void)ctx;
  return DVT_OK;
}

/* Product of the dims in [begin, end), or -1 when it is too large. */
static int64_t product_of(const int64_t* dims, uint32_t begin, uint32_t end) {
  int64_t product = 1;
  bool overflow = false;
  for (uint32_t i = begin; i < end; ++i) {
    if (dims[i] == 0) return 0;
    overflow = overflow || __builtin_mul_overflow(product, dims[i], &product);
  }
  return overflow ? -1 : product;
}

/* ---- Reshape --------------------------------------------------------------------------------- */

/* The extent for the -1 at `hole`. A 0 that copied an axis cancels it, whatever its extent. */
static DvtCode fill_hole(const DvtTensor* x, uint32_t rank, int64_t* dims, uint32_t hole,
                         uint32_t copied, char* reason, size_t size) {
  int64_t rest[DVT_MAX_RANK];
  int64_t given[DVT_MAX_RANK];
  uint32_t rest_count = 0;
  uint32_t given_count = 0;
  for (uint32_t i = 0; i < x->rank; ++i) {
    if ((copied >> i & 1u) == 0) rest[rest_count++] = x->dims[i];
  }
  for (uint32_t i = 0; i < rank; ++i) {
    if (i != hole && (copied >> i & 1u) == 0) given[given_count++] = dims[i];
  }
  const int64_t elements = product_of(rest, 0, rest_count);
  const int64_t divisor = product_of(given, 0, given_count);
  if (divisor <= 0 || elements < 0 || elements % divisor != 0) {
    char text[DVT_SHAPE_TEXT];
    return dvt_refuse(reason, size, "shape: -1 has no solution for an input of shape %s",
                      dvt_shape_text(x, text));
  }
  dims[hole] = elements / divisor;
  return DVT_OK;
}

static DvtCode infer_reshape(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_any_inputs(ctx, 1, 2, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtReshapeAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  int64_t dims[DVT_MAX_RANK] = {0};
  int32_t rank = 0;
  code = dvt_read_list(ctx, &attributes->shape, 1, "shape", dims, &rank, reason, size);
  if (code != DVT_OK) return code;
  if (rank < 0) return dvt_refuse(reason, size, "shape is missing");
  uint32_t copied = 0;
  int32_t hole = -1;
  for (int32_t i = 0; i < rank; ++i) {
    if (dims[i] == -1) {
      if (hole >= 0) return dvt_refuse(reason, size, "shape has more than one -1");
      hole = i;
    } else if (dims[i] == 0 && attributes->allow_zero == 0) {
      if (i >= x->rank) return dvt_refuse(reason, size, "shape: the 0 at %d has no axis", i);
      dims[i] = x->dims[i];
      copied |= 1u << i;
    }
  }
  if (hole >= 0) {
    code = fill_hole(x, (uint32_t)rank, dims, (uint32_t)hole, copied, reason, size);
  }
  if (code == DVT_OK) {
    code = dvt_infer_shape(&outputs[0], (uint32_t)rank, dims, "output 0", reason, size);
  }
  if (code != DVT_OK || outputs[0].bytes == x->bytes) return code;
  char from[DVT_SHAPE_TEXT];
  char to[DVT_SHAPE_TEXT];
  return dvt_refuse(reason, size, "shape %s cannot become %s: another number of elements",
                    dvt_shape_text(x, from), dvt_shape_text(&outputs[0], to));
}

/* ---- Flatten, Squeeze, Unsqueeze ------------------------------------------------------------- */

static DvtCode infer_flatten(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_any_inputs(ctx, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  const int64_t axis = ((const DvtFlattenAttributes*)ctx->attributes)->axis;
  const int64_t rank = x->rank;
  if (axis < -rank || axis > rank) {
    return dvt_refuse(reason, size, "axis: expected -%d to %d, got %" PRId64, (int)rank, (int)rank,
                      axis);
  }
  const uint32_t cut = (uint32_t)(axis < 0 ? axis + rank : axis);
  const int64_t dims[] = {product_of(x->dims, 0, cut), product_of(x->dims, cut, x->rank)};
  return dvt_infer_shape(&outputs[0], 2, dims, "output 0", reason, size);
}

/* Reads the axes of a tensor of `rank` axes; *given is false when there are none. `added` counts
 * them towards the rank. */
static DvtCode read_axes(const DvtContext* ctx, bool added, uint32_t* mask, int32_t* count,
                         char* reason, size_t size) {
  DvtCode code = dvt_check_any_inputs(ctx, 1, 2, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtAxesAttributes* attributes = ctx->attributes;
  int64_t axes[DVT_MAX_RANK];
  code = dvt_read_list(ctx, &attributes->axes, 1, "axes", axes, count, reason, size);
  if (code != DVT_OK || *count < 0) return code;
  const uint32_t rank = dvt_input_tensor(ctx, 0)->rank + (added ? (uint32_t)*count : 0u);
  return dvt_axes_mask(axes, (uint32_t)*count, rank, mask, reason, size);
}

static DvtCode infer_squeeze(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  uint32_t mask = 0;
  int32_t count = 0;
  const DvtCode code = read_axes(ctx, false, &mask, &count, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  int64_t dims[DVT_MAX_RANK];
  uint32_t rank = 0;
  for (uint32_t i = 0; i < x->rank; ++i) {
    const bool goes = count < 0 ? x->dims[i] == 1 : (mask >> i & 1u) != 0;
    if (!goes) {
      dims[rank++] = x->dims[i];
    } else if (x->dims[i] != 1) {
      return dvt_refuse(reason, size, "axis %u of extent %" PRId64 " cannot be squeezed", i,
                        x->dims[i]);
    }
  }
  return dvt_infer_shape(&outputs[0], rank, dims, "output 0", reason, size);
}

static DvtCode infer_unsqueeze(const DvtContext* ctx, DvtTensor* outputs, char* reason,
                               size_t size) {
  uint32_t mask = 0;
  int32_t count = 0;
  const DvtCode code = read_axes(ctx, true, &mask, &count, reason, size);
  if (code != DVT_OK) return code;
  if (count < 0) return dvt_refuse(reason, size, "axes are missing");
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  const uint32_t rank = x->rank + (uint32_t)count;
  int64_t dims[2 * DVT_MAX_RANK];
  uint32_t next = 0;
  for (uint32_t i = 0; i < rank; ++i) dims[i] = (mask >> i & 1u) != 0 ? 1 : x->dims[next++];
  return dvt_infer_shape(&outputs[0], rank, dims, "output 0", reason, size);
}

/* ---- Checks and table ------------------------------------------------------------------------ */

static DvtCode check_alias(const DvtContext* ctx, uint32_t input_max, DvtKernelInferFn infer,
                           char* reason, size_t size) {
  DvtCode code = dvt_check_any_counts(ctx, 1, input_max, 1, 1, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  const DvtTensor* y = dvt_output_tensor(ctx, 0);
  code = dvt_check_dtype(y, x->dtype, "output 0", reason, size);
  if (code != DVT_OK) return code;
  if (x->bytes != y->bytes) {
    return dvt_refuse(reason, size, "output 0: expected %" PRIu64 " bytes, got %" PRIu64, x->bytes,
                      y->bytes);
  }
  if (dvt_lacks_parameters(ctx, PARAMETERS)) return dvt_check_attributes(ctx, reason, size);
  return dvt_check_inferred(ctx, infer, 0, reason, size);
}

static DvtCode check_identity(const DvtContext* ctx, char* reason, size_t size) {
  return check_alias(ctx, 1, dvt_infer_same, reason, size);
}
static DvtCode check_reshape(const DvtContext* ctx, char* reason, size_t size) {
  return check_alias(ctx, 2, infer_reshape, reason, size);
}
static DvtCode check_flatten(const DvtContext* ctx, char* reason, size_t size) {
  return check_alias(ctx, 1, infer_flatten, reason, size);
}
static DvtCode check_squeeze(const DvtContext* ctx, char* reason, size_t size) {
  return check_alias(ctx, 2, infer_squeeze, reason, size);
}
static DvtCode check_unsqueeze(const DvtContext* ctx, char* reason, size_t size) {
  return check_alias(ctx, 2, infer_unsqueeze, reason, size);
}

static const DvtAttribute reshape_attributes[] = {
    {"allow_zero", offsetof(DvtReshapeAttributes, allow_zero), 1, 'i'},
    {"shape_count", offsetof(DvtReshapeAttributes, shape.count), 1, 'i'},
    {"shape", offsetof(DvtReshapeAttributes, shape.values), DVT_MAX_RANK, 'i'}};
static const DvtAttribute flatten_attributes[] = {{"axis", 0, 1, 'i'}};
static const DvtAttribute axes_attributes[] = {
    {"axes_count", offsetof(DvtAxesAttributes, axes.count), 1, 'i'},
    {"axes", offsetof(DvtAxesAttributes, axes.values), DVT_MAX_RANK, 'i'}};

#define DVT_ALIAS                                                                   \
  .abi_version = DVT_KERNEL_ABI_VERSION,                                            \
  .flags = DVT_KERNEL_PURE | DVT_KERNEL_ALIAS | DVT_KERNEL_STRINGS, .input_min = 1, \
  .output_min = 1, .output_max = 1, .run = run_alias
#define DVT_RECORD(type, table)                                                           \
  .attribute_bytes = sizeof(type), .attribute_count = sizeof(table) / sizeof((table)[0]), \
  .attributes = (table)

static const DvtKernel kernels[] = {
    {.name = "Identity",
     DVT_ALIAS,
     .input_max = 1,
     .check = check_identity,
     .infer = dvt_infer_same},
    {.name = "Reshape",
     DVT_ALIAS,
     DVT_RECORD(DvtReshapeAttributes, reshape_attributes),
     .input_max = 2,
     .check = check_reshape,
     .infer = infer_reshape,
     .host_inputs = PARAMETERS},
    {.name = "Flatten",
     DVT_ALIAS,
     DVT_RECORD(DvtFlattenAttributes, flatten_attributes),
     .input_max = 1,
     .check = check_flatten,
     .infer = infer_flatten},
    {.name = "Squeeze",
     DVT_ALIAS,
     DVT_RECORD(DvtAxesAttributes, axes_attributes),
     .input_max = 2,
     .check = check_squeeze,
     .infer = infer_squeeze,
     .host_inputs = PARAMETERS},
    {.name = "Unsqueeze",
     DVT_ALIAS,
     DVT_RECORD(DvtAxesAttributes, axes_attributes),
     .input_max = 2,
     .check = check_unsqueeze,
     .infer = infer_unsqueeze,
     .host_inputs = PARAMETERS},
};

DvtKernelTable dvt_kernels_alias(void) {
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
