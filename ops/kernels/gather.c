/* gather.c: kernels that pick elements by index. One kernel serves every dtype. */
#include "ops/kernels/index.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/movement.h"

static int64_t product(const DvtTensor* tensor, uint32_t begin, uint32_t end) {
  int64_t result = 1;
  for (uint32_t d = begin; d < end; ++d) result *= tensor->dims[d];
  return result;
}

/* The axis of input 0 that the record names; check() saw that it is one. */
static uint32_t axis_of(const DvtContext* ctx) {
  const int64_t axis = ((const DvtAxisAttributes*)ctx->attributes)->axis;
  return (uint32_t)(axis < 0 ? axis + dvt_input_tensor(ctx, 0)->rank : axis);
}

/* Counts, dtypes and the shape that `infer` gives. */
static DvtCode check_gathered(const DvtContext* ctx, DvtKernelInferFn infer, char* reason,
                              size_t size) {
  DvtCode code = dvt_check_any_counts(ctx, 2, 2, 1, 1, reason, size);
  if (code == DVT_OK) {
    code = dvt_check_dtype(dvt_output_tensor(ctx, 0), dvt_input_tensor(ctx, 0)->dtype, "output 0",
                           reason, size);
  }
  if (code == DVT_OK) code = dvt_index_check_dtype(ctx, 1, reason, size);
  return code == DVT_OK ? dvt_check_inferred(ctx, infer, 0, reason, size) : code;
}

/* ---- Gather ---------------------------------------------------------------------------------- */

static DvtCode run_gather(void* context) {
  const DvtContext* ctx = context;
  const DvtTensor* input = dvt_input_tensor(ctx, 0);
  const DvtTensor* indices = dvt_input_tensor(ctx, 1);
  const uint32_t axis = axis_of(ctx);
  const int64_t extent = input->dims[axis];
  const int64_t count = dvt_tensor_elements(indices);
  char* to = dvt_output_data(ctx, 0);
  const bool empty = dvt_output_tensor(ctx, 0)->bytes == 0;
  const int64_t outer = empty ? 1 : product(input, 0, axis);
  const size_t row =
      empty ? 0 : (size_t)product(input, axis + 1, input->rank) * dvt_dtype_size(input->dtype);
  for (int64_t o = 0; o < outer; ++o) {
    const char* from = dvt_input_data(ctx, 0);
    if (row > 0) from += (size_t)(o * extent) * row;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t index = dvt_index_at(dvt_input(ctx, 1), i, extent);
      if (index < 0) return DVT_INVALID_ARGUMENT;
      if (row == 0) continue;
      memcpy(to, from + (size_t)index * row, row);
      to += row;
    }
  }
  return DVT_OK;
}

static DvtCode infer_gather(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_any_inputs(ctx, 2, 2, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* input = dvt_input_tensor(ctx, 0);
  const DvtTensor* indices = dvt_input_tensor(ctx, 1);
  uint32_t axis = 0;
  code = dvt_normalise_axis(((const DvtAxisAttributes*)ctx->attributes)->axis, input->rank, &axis,
                            reason, size);
  if (code != DVT_OK) return code;
  int64_t dims[2 * DVT_MAX_RANK];
  uint32_t rank = 0;
  for (uint32_t i = 0; i < axis; ++i) dims[rank++] = input->dims[i];
  for (uint32_t i = 0; i < indices->rank; ++i) dims[rank++] = indices->dims[i];
  for (uint32_t i = axis + 1; i < input->rank; ++i) dims[rank++] = input->dims[i];
  return dvt_infer_shape(&outputs[0], rank, dims, "output 0", reason, size);
}

static DvtCode check_gather(const DvtContext* ctx, char* reason, size_t size) {
  return check_gathered(ctx, infer_gather, reason, size);
}

/* ---- GatherElements -------------------------------------------------------------------------- */

static DvtCode infer_elements(const DvtContext* ctx, DvtTensor* outputs, char* reason,
                              size_t size) {
  DvtCode code = dvt_check_any_inputs(ctx, 2, 2, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* input = dvt_input_tensor(ctx, 0);
  const DvtTensor* indices = dvt_input_tensor(ctx, 1);
  uint32_t axis = 0;
  code = dvt_normalise_axis(((const DvtAxisAttributes*)ctx->attributes)->axis, input->rank, &axis,
                            reason, size);
  if (code == DVT_OK) code = dvt_index_check_elements(input, indices, axis, reason, size);
  if (code != DVT_OK) return code;
  return dvt_infer_shape(&outputs[0], indices->rank, indices->dims, "output 0", reason, size);
}

static DvtCode check_elements(const DvtContext* ctx, char* reason, size_t size) {
  return check_gathered(ctx, infer_elements, reason, size);
}

static DvtCode run_elements(void* context) {
  const DvtContext* ctx = context;
  const DvtTensor* input = dvt_input_tensor(ctx, 0);
  const uint32_t size = dvt_dtype_size(input->dtype);
  DvtIndexWalk walk;
  dvt_index_walk_init(&walk, dvt_input(ctx, 1), input, axis_of(ctx));
  const char* from = dvt_input_data(ctx, 0);
  char* to = dvt_output_data(ctx, 0);
  for (int64_t i = 0; i < walk.count; ++i) {
    const int64_t offset = dvt_index_walk_next(&walk, i);
    if (offset < 0) return DVT_INVALID_ARGUMENT;
    memcpy(to + (size_t)i * size, from + (size_t)offset * size, size);
  }
  return DVT_OK;
}

/* ---- GatherND -------------------------------------------------------------------------------- */

static DvtCode infer_nd(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_any_inputs(ctx, 2, 2, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* input = dvt_input_tensor(ctx, 0);
  const DvtTensor* indices = dvt_input_tensor(ctx, 1);
  const int64_t batch = ((const DvtGatherNdAttributes*)ctx->attributes)->batch_dims;
  code = dvt_index_check_tuples(input, indices, batch, reason, size);
  if (code != DVT_OK) return code;
  int64_t dims[2 * DVT_MAX_RANK];
  uint32_t rank = 0;
  for (uint32_t i = 0; i + 1 < indices->rank; ++i) dims[rank++] = indices->dims[i];
  for (uint32_t i = (uint32_t)(batch + indices->dims[indices->rank - 1]); i < input->rank; ++i) {
    dims[rank++] = input->dims[i];
  }
  return dvt_infer_shape(&outputs[0], rank, dims, "output 0", reason, size);
}

static DvtCode check_nd(const DvtContext* ctx, char* reason, size_t size) {
  return check_gathered(ctx, infer_nd, reason, size);
}

static DvtCode run_nd(void* context) {
  const DvtContext* ctx = context;
  const DvtTensor* input = dvt_input_tensor(ctx, 0);
  DvtTuples tuples;
  dvt_tuples_init(&tuples, dvt_input(ctx, 1), input,
                  (uint32_t)((const DvtGatherNdAttributes*)ctx->attributes)->batch_dims);
  const size_t slice = (size_t)tuples.slice * dvt_dtype_size(input->dtype);
  const char* from = dvt_input_data(ctx, 0);
  char* to = dvt_output_data(ctx, 0);
  for (int64_t i = 0; i < tuples.count; ++i) {
    const int64_t offset = dvt_tuples_offset(&tuples, i);
    if (offset < 0) return DVT_INVALID_ARGUMENT;
    if (slice == 0) continue;
    memcpy(to + (size_t)i * slice, from + (size_t)offset * dvt_dtype_size(input->dtype), slice);
  }
  return DVT_OK;
}

/* ---- Table ----------------------------------------------------------------------------------- */

static const DvtAttribute axis_attributes[] = {{"axis", 0, 1, 'i'}};
static const DvtAttribute nd_attributes[] = {{"batch_dims", 0, 1, 'i'}};

#define GATHER_KERNEL(kernel_name, record, table, suffix)                                \
  {                                                                                      \
    .name = (kernel_name), .abi_version = DVT_KERNEL_ABI_VERSION,                        \
    .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE | DVT_KERNEL_STRINGS, .input_min = 2,   \
    .input_max = 2, .output_min = 1, .output_max = 1, .attribute_bytes = sizeof(record), \
    .attribute_count = sizeof(table) / sizeof((table)[0]), .attributes = (table),        \
    .run = run_##suffix, .check = check_##suffix, .infer = infer_##suffix                \
  }

static const DvtKernel kernels[] = {
    GATHER_KERNEL("Gather", DvtAxisAttributes, axis_attributes, gather),
    GATHER_KERNEL("GatherElements", DvtAxisAttributes, axis_attributes, elements),
    GATHER_KERNEL("GatherND", DvtGatherNdAttributes, nd_attributes, nd),
};

DvtKernelTable dvt_kernels_gather(void) {
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
