#include "ops/kernels/rearrange.h"

#include <inttypes.h>

#include "ops/kernels/kernels.h"
#include "ops/kernels/shape.h"
#include "ops/kernels/strided.h"

/* ---- DepthToSpace, SpaceToDepth -------------------------------------------------------------- */

enum { BLOCK_LIMIT = 1 << 15 };

static DvtCode infer_blocks(const DvtContext* ctx, bool to_space, DvtTensor* outputs, char* reason,
                            size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const int64_t block = ((const DvtBlockAttributes*)ctx->attributes)->block;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  if (block < 1 || block > BLOCK_LIMIT) {
    return dvt_refuse(reason, size, "block: expected 1 to %d, got %" PRId64, BLOCK_LIMIT, block);
  }
  const bool fits = x->rank == 4 && (to_space ? x->dims[1] % (block * block) == 0
                                              : x->dims[2] % block == 0 && x->dims[3] % block == 0);
  if (!fits) {
    char text[DVT_SHAPE_TEXT];
    return dvt_refuse(reason, size, "shape %s does not divide into blocks of %" PRId64,
                      dvt_shape_text(x, text), block);
  }
  int64_t dims[] = {x->dims[0], 0, 0, 0};
  bool overflow = false;
  if (to_space) {
    dims[1] = x->dims[1] / (block * block);
    overflow = __builtin_mul_overflow(x->dims[2], block, &dims[2]) ||
               __builtin_mul_overflow(x->dims[3], block, &dims[3]);
  } else {
    overflow = __builtin_mul_overflow(x->dims[1], block * block, &dims[1]);
    dims[2] = x->dims[2] / block;
    dims[3] = x->dims[3] / block;
  }
  if (overflow) return dvt_refuse(reason, size, "output 0 would be too large");
  return dvt_infer_shape(&outputs[0], 4, dims, "output 0", reason, size);
}
static DvtCode infer_depth_to_space(const DvtContext* ctx, DvtTensor* outputs, char* reason,
                                    size_t size) {
  return infer_blocks(ctx, true, outputs, reason, size);
}
static DvtCode infer_space_to_depth(const DvtContext* ctx, DvtTensor* outputs, char* reason,
                                    size_t size) {
  return infer_blocks(ctx, false, outputs, reason, size);
}

static DvtCode check_blocks(const DvtContext* ctx, DvtKernelInferFn infer, char* reason,
                            size_t size) {
  DvtCode code = dvt_check_counts(ctx, 1, 1, 1, 1, reason, size);
  if (code == DVT_OK) {
    code = dvt_check_dtype(dvt_output_tensor(ctx, 0), dvt_input_tensor(ctx, 0)->dtype, "output 0",
                           reason, size);
  }
  return code == DVT_OK ? dvt_check_inferred(ctx, infer, 0, reason, size) : code;
}
static DvtCode check_depth_to_space(const DvtContext* ctx, char* reason, size_t size) {
  return check_blocks(ctx, infer_depth_to_space, reason, size);
}
static DvtCode check_space_to_depth(const DvtContext* ctx, char* reason, size_t size) {
  return check_blocks(ctx, infer_space_to_depth, reason, size);
}

static DvtCode copy_view(const DvtContext* ctx, const DvtView* view) {
  dvt_strided_copy(view, dvt_dtype_size(dvt_output_tensor(ctx, 0)->dtype), dvt_output_data(ctx, 0));
  return DVT_OK;
}

static DvtCode run_depth_to_space(void* context) {
  const DvtContext* ctx = context;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  const DvtTensor* y = dvt_output_tensor(ctx, 0);
  if (y->bytes == 0) return DVT_OK;
  const DvtBlockAttributes* attributes = ctx->attributes;
  const int64_t b = attributes->block;
  const int64_t plane = x->dims[2] * x->dims[3];
  const bool column_first = attributes->column_first != 0;
  /* x's channels are [b, b, C'] or [C', b, b]. */
  const int64_t channel = column_first ? b * b * plane : plane;
  const int64_t across = column_first ? plane : y->dims[1] * plane;
  DvtView view = {.data = dvt_input_data(ctx, 0)};
  dvt_view_add_axis(&view, y->dims[0], x->dims[1] * plane);
  dvt_view_add_axis(&view, y->dims[1], channel);
  dvt_view_add_axis(&view, x->dims[2], x->dims[3]);
  dvt_view_add_axis(&view, b, b * across);
  dvt_view_add_axis(&view, x->dims[3], 1);
  dvt_view_add_axis(&view, b, across);
  return copy_view(ctx, &view);
}

static DvtCode run_space_to_depth(void* context) {
  const DvtContext* ctx = context;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  const DvtTensor* y = dvt_output_tensor(ctx, 0);
  if (y->bytes == 0) return DVT_OK;
  const int64_t b = ((const DvtBlockAttributes*)ctx->attributes)->block;
  const int64_t plane = x->dims[2] * x->dims[3];
  DvtView view = {.data = dvt_input_data(ctx, 0)};
  dvt_view_add_axis(&view, x->dims[0], x->dims[1] * plane);
  dvt_view_add_axis(&view, b, x->dims[3]);
  dvt_view_add_axis(&view, b, 1);
  dvt_view_add_axis(&view, x->dims[1], plane);
  dvt_view_add_axis(&view, y->dims[2], b * x->dims[3]);
  dvt_view_add_axis(&view, y->dims[3], b);
  return copy_view(ctx, &view);
}

/* ---- ReverseSequence ------------------------------------------------------------------------- */

static DvtCode infer_reverse(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 2, 2, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtReverseAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  const DvtTensor* lengths = dvt_input_tensor(ctx, 1);
  const int64_t batch = attributes->batch_axis;
  const int64_t time = attributes->time_axis;
  if (batch < 0 || batch > 1 || time < 0 || time > 1 || batch == time) {
    return dvt_refuse(reason, size,
                      "batch_axis %" PRId64 " and time_axis %" PRId64 ": expected 0 and 1", batch,
                      time);
  }
  if (x->rank < 2 || lengths->rank != 1 || lengths->dims[0] != x->dims[batch]) {
    char x_text[DVT_SHAPE_TEXT];
    char lengths_text[DVT_SHAPE_TEXT];
    return dvt_refuse(reason, size, "lengths of shape %s do not fit an input of shape %s",
                      dvt_shape_text(lengths, lengths_text), dvt_shape_text(x, x_text));
  }
  return dvt_infer_same(ctx, outputs, reason, size);
}

static DvtCode check_reverse(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 2, 2, 1, 1, reason, size);
  if (code == DVT_OK) {
    code = dvt_check_dtype(dvt_input_tensor(ctx, 1), DVT_I64, "input 1", reason, size);
  }
  if (code == DVT_OK) {
    code = dvt_check_dtype(dvt_output_tensor(ctx, 0), dvt_input_tensor(ctx, 0)->dtype, "output 0",
                           reason, size);
  }
  return code == DVT_OK ? dvt_check_inferred(ctx, infer_reverse, 0, reason, size) : code;
}

static DvtCode run_reverse(void* context) {
  const DvtContext* ctx = context;
  const DvtReverseAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  const int64_t* lengths = dvt_input_data(ctx, 1);
  const int64_t batches = x->dims[attributes->batch_axis];
  const int64_t times = x->dims[attributes->time_axis];
  for (int64_t b = 0; b < batches; ++b) {
    if (lengths[b] < 0 || lengths[b] > times) return DVT_INVALID_ARGUMENT;
  }
  if (x->bytes == 0) return DVT_OK;
  const size_t slice = x->bytes / (size_t)(batches * times);
  const size_t batch_step = slice * (size_t)(attributes->batch_axis == 0 ? times : 1);
  const size_t time_step = slice * (size_t)(attributes->batch_axis == 0 ? 1 : batches);
  const char* from = dvt_input_data(ctx, 0);
  char* to = dvt_output_data(ctx, 0);
  for (int64_t b = 0; b < batches; ++b) {
    for (int64_t t = 0; t < times; ++t) {
      const int64_t source = t < lengths[b] ? lengths[b] - 1 - t : t;
      memcpy(to + (size_t)b * batch_step + (size_t)t * time_step,
             from + (size_t)b * batch_step + (size_t)source * time_step, slice);
    }
  }
  return DVT_OK;
}

/* ---- Table ----------------------------------------------------------------------------------- */

static const DvtAttribute block_attributes[] = {
    {"block", offsetof(DvtBlockAttributes, block), 1, 'i'},
    {"column_first", offsetof(DvtBlockAttributes, column_first), 1, 'i'}};
static const DvtAttribute reverse_attributes[] = {
    {"batch_axis", offsetof(DvtReverseAttributes, batch_axis), 1, 'i'},
    {"time_axis", offsetof(DvtReverseAttributes, time_axis), 1, 'i'}};

/* Members shared by all rows, and an attribute record's. */
#define DVT_REARRANGE(inputs_min, inputs_max, outputs_max)                             \
  .abi_version = DVT_KERNEL_ABI_VERSION, .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE, \
  .input_min = (inputs_min), .input_max = (inputs_max), .output_min = 1,               \
  .output_max = (outputs_max)
#define DVT_RECORD(type, table)                                                           \
  .attribute_bytes = sizeof(type), .attribute_count = sizeof(table) / sizeof((table)[0]), \
  .attributes = (table)

static const DvtKernel kernels[] = {
    {.name = "DepthToSpace",
     DVT_REARRANGE(1, 1, 1),
     DVT_RECORD(DvtBlockAttributes, block_attributes),
     .run = run_depth_to_space,
     .check = check_depth_to_space,
     .infer = infer_depth_to_space},
    {.name = "SpaceToDepth",
     DVT_REARRANGE(1, 1, 1),
     DVT_RECORD(DvtBlockAttributes, block_attributes),
     .run = run_space_to_depth,
     .check = check_space_to_depth,
     .infer = infer_space_to_depth},
    {.name = "ReverseSequence",
     DVT_REARRANGE(2, 2, 1),
     DVT_RECORD(DvtReverseAttributes, reverse_attributes),
     .run = run_reverse,
     .check = check_reverse,
     .infer = infer_reverse},
};

DvtKernelTable dvt_kernels_rearrange(void) {
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
