/* keep.c: NonZero and Compress, and the table of the family. */
#include "ops/kernels/keep.h"

#include "ops/kernels/element.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/shape.h"

/* ---- NonZero --------------------------------------------------------------------------------- */

static bool is_zero(const DvtCell* x, int64_t at) {
  const DvtDType dtype = x->tensor->dtype;
  return dvt_dtype_is_float(dtype) ? dvt_load_real(x->data, dtype, at) == 0.0
                                   : dvt_load_integer(x->data, dtype, at) == 0;
}

static uint32_t coordinates_of(const DvtTensor* x) {
  return x->rank > 0 ? x->rank : 1;
}

static DvtCode infer_non_zero(const DvtContext* ctx, DvtTensor* outputs, char* reason,
                              size_t size) {
  const DvtCode code = dvt_check_inputs(ctx, 1, 1, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  const int64_t dims[] = {coordinates_of(x), dvt_tensor_elements(x)};
  return dvt_infer_shape(&outputs[0], 2, dims, "output 0", reason, size);
}

static DvtCode check_non_zero(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 1, 1, 1, 1, reason, size);
  if (code == DVT_OK) {
    code = dvt_check_dtype(dvt_output_tensor(ctx, 0), DVT_I64, "output 0", reason, size);
  }
  return code == DVT_OK ? dvt_check_inferred(ctx, infer_non_zero, 0, reason, size) : code;
}

static DvtCode run_non_zero(void* context) {
  const DvtContext* ctx = context;
  const DvtCell* x = dvt_input(ctx, 0);
  const int64_t elements = dvt_tensor_elements(x->tensor);
  int64_t count = 0;
  for (int64_t i = 0; i < elements; ++i) count += is_zero(x, i) ? 0 : 1;
  int64_t* y = dvt_output_data(ctx, 0);
  int64_t index[DVT_MAX_RANK] = {0};
  int64_t column = 0;
  for (int64_t i = 0; i < elements; ++i) {
    if (!is_zero(x, i)) {
      for (uint32_t d = 0; d < coordinates_of(x->tensor); ++d) y[d * count + column] = index[d];
      ++column;
    }
    for (uint32_t d = x->tensor->rank; d > 0 && ++index[d - 1] == x->tensor->dims[d - 1]; --d) {
      index[d - 1] = 0;
    }
  }
  const int64_t dims[] = {coordinates_of(x->tensor), count};
  return dvt_set_shape(dvt_output_shape(ctx, 0), 2, dims);
}

/* ---- Compress -------------------------------------------------------------------------------- */

/* The axis along which to keep, or DVT_MAX_RANK for all of x. */
static DvtCode axis_of(const DvtContext* ctx, uint32_t* axis, char* reason, size_t size) {
  const DvtKeepAttributes* attributes = ctx->attributes;
  *axis = DVT_MAX_RANK;
  if (attributes->flat != 0) return DVT_OK;
  return dvt_normalise_axis(attributes->axis, dvt_input_tensor(ctx, 0)->rank, axis, reason, size);
}

/* y's shape when `kept` elements along the axis stay. */
static uint32_t kept_shape(const DvtTensor* x, uint32_t axis, int64_t kept,
                           int64_t dims[DVT_MAX_RANK]) {
  if (axis == DVT_MAX_RANK) {
    dims[0] = kept;
    return 1;
  }
  memcpy(dims, x->dims, DVT_MAX_RANK * sizeof dims[0]);
  dims[axis] = kept;
  return x->rank;
}

static DvtCode infer_compress(const DvtContext* ctx, DvtTensor* outputs, char* reason,
                              size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 2, 2, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  uint32_t axis = 0;
  if (code == DVT_OK) code = axis_of(ctx, &axis, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  const DvtTensor* condition = dvt_input_tensor(ctx, 1);
  const int64_t extent = axis == DVT_MAX_RANK ? dvt_tensor_elements(x) : x->dims[axis];
  if (condition->rank != 1 || condition->dims[0] > extent) {
    char text[DVT_SHAPE_TEXT];
    return dvt_refuse(reason, size, "condition: expected at most %lld on one axis, got shape %s",
                      (long long)extent, dvt_shape_text(condition, text));
  }
  int64_t dims[DVT_MAX_RANK];
  const uint32_t rank = kept_shape(x, axis, condition->dims[0], dims);
  return dvt_infer_shape(&outputs[0], rank, dims, "output 0", reason, size);
}

static DvtCode check_compress(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 2, 2, 1, 1, reason, size);
  if (code == DVT_OK) {
    code = dvt_check_dtype(dvt_input_tensor(ctx, 1), DVT_BOOL, "condition", reason, size);
  }
  if (code == DVT_OK) {
    code = dvt_check_dtype(dvt_output_tensor(ctx, 0), dvt_input_tensor(ctx, 0)->dtype, "output 0",
                           reason, size);
  }
  return code == DVT_OK ? dvt_check_inferred(ctx, infer_compress, 0, reason, size) : code;
}

static DvtCode run_compress(void* context) {
  const DvtContext* ctx = context;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  const uint8_t* condition = dvt_input_data(ctx, 1);
  const int64_t length = dvt_input_tensor(ctx, 1)->dims[0];
  uint32_t axis = 0;
  const DvtCode code = axis_of(ctx, &axis, NULL, 0);
  if (code != DVT_OK) return code;
  int64_t kept = 0;
  for (int64_t i = 0; i < length; ++i) kept += condition[i] != 0 ? 1 : 0;
  if (x->bytes > 0) {
    /* Outer blocks of `extent` rows; the flat case is one block of single elements. */
    size_t row = dvt_dtype_size(x->dtype);
    int64_t extent = dvt_tensor_elements(x);
    if (axis != DVT_MAX_RANK) {
      for (uint32_t d = axis + 1; d < x->rank; ++d) row *= (size_t)x->dims[d];
      extent = x->dims[axis];
    }
    const char* from = dvt_input_data(ctx, 0);
    char* to = dvt_output_data(ctx, 0);
    for (size_t at = 0; at < x->bytes; at += (size_t)extent * row) {
      for (int64_t i = 0; i < length; ++i) {
        if (condition[i] == 0) continue;
        memcpy(to, from + at + (size_t)i * row, row);
        to += row;
      }
    }
  }
  int64_t dims[DVT_MAX_RANK];
  const uint32_t rank = kept_shape(x, axis, kept, dims);
  return dvt_set_shape(dvt_output_shape(ctx, 0), rank, dims);
}

/* ---- Table ----------------------------------------------------------------------------------- */

static const DvtAttribute keep_attributes[] = {
    {"axis", offsetof(DvtKeepAttributes, axis), 1, 'i'},
    {"flat", offsetof(DvtKeepAttributes, flat), 1, 'i'},
    {"sorted", offsetof(DvtKeepAttributes, sorted), 1, 'i'}};
static const DvtAttribute nms_attributes[] = {
    {"center_point_box", offsetof(DvtNmsAttributes, center_point_box), 1, 'i'}};

/* Members shared by all rows, and an attribute record's. */
#define DVT_KEEP                         \
  .abi_version = DVT_KERNEL_ABI_VERSION, \
  .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE | DVT_KERNEL_SHAPES_OUTPUTS
#define DVT_RECORD(type, table)                                                           \
  .attribute_bytes = sizeof(type), .attribute_count = sizeof(table) / sizeof((table)[0]), \
  .attributes = (table)

static const DvtKernel kernels[] = {
    {.name = "NonZero",
     DVT_KEEP,
     .input_min = 1,
     .input_max = 1,
     .output_min = 1,
     .output_max = 1,
     .run = run_non_zero,
     .check = check_non_zero,
     .infer = infer_non_zero},
    {.name = "Compress",
     DVT_KEEP,
     DVT_RECORD(DvtKeepAttributes, keep_attributes),
     .input_min = 2,
     .input_max = 2,
     .output_min = 1,
     .output_max = 1,
     .run = run_compress,
     .check = check_compress,
     .infer = infer_compress},
    {.name = "Unique",
     DVT_KEEP,
     DVT_RECORD(DvtKeepAttributes, keep_attributes),
     .input_min = 1,
     .input_max = 1,
     .output_min = 5,
     .output_max = 5,
     .run = dvt_unique_run,
     .check = dvt_unique_check,
     .infer = dvt_unique_infer},
    {.name = "NonMaxSuppression",
     DVT_KEEP,
     DVT_RECORD(DvtNmsAttributes, nms_attributes),
     .input_min = 2,
     .input_max = 5,
     .output_min = 2,
     .output_max = 2,
     .run = dvt_nms_run,
     .check = dvt_nms_check,
     .infer = dvt_nms_infer,
     .host_inputs = DVT_NMS_PARAMETERS},
};

DvtKernelTable dvt_kernels_keep(void) {
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
