#include "ops/kernels/generate.h"

#include "ops/kernels/kernels.h"
#include "ops/kernels/shape.h"

/* ---- EyeLike --------------------------------------------------------------------------------- */

static DvtCode infer_eye(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  const DvtCode code = dvt_infer_same(ctx, outputs, reason, size);
  if (code != DVT_OK || dvt_input_tensor(ctx, 0)->rank == 2) return code;
  return dvt_refuse(reason, size, "input 0: expected rank 2, got %u",
                    dvt_input_tensor(ctx, 0)->rank);
}

static DvtCode check_eye(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 1, 1, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  return code == DVT_OK ? dvt_check_inferred(ctx, infer_eye, 0, reason, size) : code;
}

static DvtCode run_eye(void* context) {
  const DvtContext* ctx = context;
  const DvtEyeAttributes* attributes = ctx->attributes;
  const DvtTensor* y = dvt_output_tensor(ctx, 0);
  if (y->bytes == 0) return DVT_OK;
  const uint32_t size = dvt_dtype_size(y->dtype);
  char one[sizeof(uint64_t)];
  dvt_element_from_bits(attributes->bits, size, one);
  char* data = dvt_output_data(ctx, 0);
  memset(data, 0, y->bytes);
  const int64_t k = attributes->k;
  if (k >= y->dims[1] || k <= -y->dims[0]) return DVT_OK; /* Outside, and no sum below overflows. */
  for (int64_t row = k < 0 ? -k : 0; row < y->dims[0] && row + k < y->dims[1]; ++row) {
    memcpy(data + (size_t)(row * y->dims[1] + row + k) * size, one, size);
  }
  return DVT_OK;
}

/* ---- Table ----------------------------------------------------------------------------------- */

static const DvtAttribute eye_attributes[] = {{"k", offsetof(DvtEyeAttributes, k), 1, 'i'},
                                              {"bits", offsetof(DvtEyeAttributes, bits), 1, 'i'}};

static const DvtKernel kernels[] = {
    {.name = "EyeLike",
     .abi_version = DVT_KERNEL_ABI_VERSION,
     .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE | DVT_KERNEL_SHAPE_ONLY,
     .input_min = 1,
     .input_max = 1,
     .output_min = 1,
     .output_max = 1,
     .attribute_bytes = sizeof(DvtEyeAttributes),
     .attribute_count = sizeof eye_attributes / sizeof eye_attributes[0],
     .attributes = eye_attributes,
     .run = run_eye,
     .check = check_eye,
     .infer = infer_eye},
};

DvtKernelTable dvt_kernels_generate(void) {
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
