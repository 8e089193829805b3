/* gather.c: kernels that pick elements by index. One kernel serves every dtype. */
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

static DvtCode check_indices(const DvtContext* ctx, uint32_t index, char* reason, size_t size) {
  const DvtDType dtype = dvt_input_tensor(ctx, index)->dtype;
  if (dtype == DVT_I32 || dtype == DVT_I64) return DVT_OK;
  return dvt_refuse(reason, size, "input %u: expected dtype i32 or i64, got %s", index,
                    dvt_dtype_text(dtype));
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
  const int32_t* narrow = dvt_input_data(ctx, 1);
  const int64_t* wide = dvt_input_data(ctx, 1);
  for (int64_t o = 0; o < outer; ++o) {
    const char* from = (const char*)dvt_input_data(ctx, 0) + (size_t)(o * extent) * row;
    for (int64_t i = 0; i < count; ++i) {
      int64_t index = indices->dtype == DVT_I32 ? narrow[i] : wide[i];
      if (index < 0) index += extent;
      if (index < 0 || index >= extent) return DVT_INVALID_ARGUMENT;
      if (row == 0) continue;
      memcpy(to, from + (size_t)index * row, row);
      to += row;
    }
  }
  return DVT_OK;
}

static DvtCode infer_gather(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 2, 2, reason, size);
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
  DvtCode code = dvt_check_counts(ctx, 2, 2, 1, 1, reason, size);
  if (code == DVT_OK) {
    code = dvt_check_dtype(dvt_output_tensor(ctx, 0), dvt_input_tensor(ctx, 0)->dtype, "output 0",
                           reason, size);
  }
  if (code == DVT_OK) code = check_indices(ctx, 1, reason, size);
  return code == DVT_OK ? dvt_check_inferred(ctx, infer_gather, 0, reason, size) : code;
}

/* ---- Table ----------------------------------------------------------------------------------- */

static const DvtAttribute axis_attributes[] = {{"axis", 0, 1, 'i'}};

static const DvtKernel kernels[] = {
    {.name = "Gather",
     .abi_version = DVT_KERNEL_ABI_VERSION,
     .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE,
     .input_min = 2,
     .input_max = 2,
     .output_min = 1,
     .output_max = 1,
     .attribute_bytes = sizeof(DvtAxisAttributes),
     .attribute_count = 1,
     .attributes = axis_attributes,
     .run = run_gather,
     .check = check_gather,
     .infer = infer_gather},
};

DvtKernelTable dvt_kernels_gather(void) {
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
