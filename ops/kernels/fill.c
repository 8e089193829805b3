/* fill.c: kernels that make tensors of shapes and constants. */
#include "ops/kernels/fill.h"

#include "ops/kernels/kernels.h"
#include "ops/kernels/strided.h"

/* ---- Fill ------------------------------------------------------------------------------------ */

enum { FILL_PARAMETERS = 1u << 0 };

static DvtCode infer_fill(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 0, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtFillAttributes* attributes = ctx->attributes;
  int64_t dims[DVT_MAX_RANK] = {0};
  int32_t rank = 0;
  code = dvt_read_list(ctx, &attributes->shape, 0, "shape", dims, &rank, reason, size);
  if (code != DVT_OK) return code;
  if (rank < 0) return dvt_refuse(reason, size, "shape is missing");
  return dvt_infer_shape(&outputs[0], (uint32_t)rank, dims, "output 0", reason, size);
}

static DvtCode check_fill(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) code = dvt_check_counts(ctx, 0, 1, 1, 1, reason, size);
  if (code != DVT_OK || dvt_lacks_parameters(ctx, FILL_PARAMETERS)) return code;
  return dvt_check_inferred(ctx, infer_fill, 0, reason, size);
}

static DvtCode run_fill(void* context) {
  const DvtContext* ctx = context;
  if (dvt_has_parameters(ctx, FILL_PARAMETERS)) {
    const DvtCode code = check_fill(ctx, NULL, 0);
    if (code != DVT_OK) return code;
  }
  const DvtFillAttributes* attributes = ctx->attributes;
  const DvtTensor* output = dvt_output_tensor(ctx, 0);
  const uint32_t size = dvt_dtype_size(output->dtype);
  char element[sizeof(uint64_t)];
  dvt_element_from_bits(attributes->bits, size, element);
  dvt_fill(dvt_output_data(ctx, 0), element, size, (uint64_t)dvt_tensor_elements(output));
  return DVT_OK;
}

/* ---- Shape and Size -------------------------------------------------------------------------- */

/* The dims [*begin, *end) of x that the record asks for. */
static void dims_range(const DvtContext* ctx, int64_t* begin, int64_t* end) {
  const DvtShapeAttributes* attributes = ctx->attributes;
  const int64_t rank = dvt_input_tensor(ctx, 0)->rank;
  const int64_t start = attributes->start < 0 ? attributes->start + rank : attributes->start;
  const int64_t stop = attributes->end < 0 ? attributes->end + rank : attributes->end;
  *begin = start < 0 ? 0 : start > rank ? rank : start;
  *end = stop < *begin ? *begin : stop > rank ? rank : stop;
}

static DvtCode infer_shape(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_any_inputs(ctx, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  int64_t begin = 0;
  int64_t end = 0;
  dims_range(ctx, &begin, &end);
  const int64_t dims[] = {end - begin};
  return dvt_infer_shape(&outputs[0], 1, dims, "output 0", reason, size);
}

static DvtCode infer_size(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  const DvtCode code = dvt_check_any_inputs(ctx, 1, 1, reason, size);
  return code == DVT_OK ? dvt_infer_shape(&outputs[0], 0, NULL, "output 0", reason, size) : code;
}

static DvtCode check_dims(const DvtContext* ctx, DvtKernelInferFn infer, char* reason,
                          size_t size) {
  DvtCode code = dvt_check_any_counts(ctx, 1, 1, 1, 1, reason, size);
  if (code == DVT_OK) {
    code = dvt_check_dtype(dvt_output_tensor(ctx, 0), DVT_I64, "output 0", reason, size);
  }
  return code == DVT_OK ? dvt_check_inferred(ctx, infer, 0, reason, size) : code;
}
static DvtCode check_shape(const DvtContext* ctx, char* reason, size_t size) {
  return check_dims(ctx, infer_shape, reason, size);
}
static DvtCode check_size(const DvtContext* ctx, char* reason, size_t size) {
  return check_dims(ctx, infer_size, reason, size);
}

static DvtCode run_shape(void* context) {
  const DvtContext* ctx = context;
  int64_t begin = 0;
  int64_t end = 0;
  dims_range(ctx, &begin, &end);
  int64_t* out = dvt_output_data(ctx, 0);
  for (int64_t i = begin; i < end; ++i) *out++ = dvt_input_tensor(ctx, 0)->dims[i];
  return DVT_OK;
}

static DvtCode run_size(void* context) {
  const DvtContext* ctx = context;
  *(int64_t*)dvt_output_data(ctx, 0) = dvt_tensor_elements(dvt_input_tensor(ctx, 0));
  return DVT_OK;
}

/* ---- Table ----------------------------------------------------------------------------------- */

static const DvtAttribute fill_attributes[] = {
    {"bits", offsetof(DvtFillAttributes, bits), 1, 'i'},
    {"shape_count", offsetof(DvtFillAttributes, shape.count), 1, 'i'},
    {"shape", offsetof(DvtFillAttributes, shape.values), DVT_MAX_RANK, 'i'}};
static const DvtAttribute shape_attributes[] = {
    {"start", offsetof(DvtShapeAttributes, start), 1, 'i'},
    {"end", offsetof(DvtShapeAttributes, end), 1, 'i'}};

/* Members shared by all rows, and an attribute record's. */
#define DVT_MAKE(more)                                                                          \
  .abi_version = DVT_KERNEL_ABI_VERSION, .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE | (more), \
  .output_min = 1, .output_max = 1
#define DVT_RECORD(type, table)                                                           \
  .attribute_bytes = sizeof(type), .attribute_count = sizeof(table) / sizeof((table)[0]), \
  .attributes = (table)

static const DvtKernel kernels[] = {
    {.name = "Fill",
     DVT_MAKE(0),
     DVT_RECORD(DvtFillAttributes, fill_attributes),
     .input_max = 1,
     .run = run_fill,
     .check = check_fill,
     .infer = infer_fill,
     .host_inputs = FILL_PARAMETERS},
    {.name = "Shape",
     DVT_MAKE(DVT_KERNEL_SHAPE_ONLY | DVT_KERNEL_STRINGS),
     DVT_RECORD(DvtShapeAttributes, shape_attributes),
     .input_min = 1,
     .input_max = 1,
     .run = run_shape,
     .check = check_shape,
     .infer = infer_shape},
    {.name = "Size",
     DVT_MAKE(DVT_KERNEL_SHAPE_ONLY | DVT_KERNEL_STRINGS),
     .input_min = 1,
     .input_max = 1,
     .run = run_size,
     .check = check_size,
     .infer = infer_size},
};

DvtKernelTable dvt_kernels_fill(void) {
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
