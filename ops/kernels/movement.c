/* movement.c: kernels that move elements and never look at them. One kernel serves every dtype. */
#include "ops/kernels/common.h"
#include "ops/kernels/kernels.h"

static DvtCode run_copy(void* context) {
  const DvtContext* ctx = context;
  const void* from = dvt_input_data(ctx, 0);
  void* to = dvt_output_data(ctx, 0);
  const size_t bytes = dvt_output_tensor(ctx, 0)->bytes;
  if (bytes > 0 && from != to) memcpy(to, from, bytes);
  return DVT_OK;
}

/* A copy may change the shape: Reshape and its kin are copies when they cannot be views. */
static DvtCode check_copy(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 1, 1, 1, 1, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* from = dvt_input_tensor(ctx, 0);
  const DvtTensor* to = dvt_output_tensor(ctx, 0);
  code = dvt_check_dtype(to, from->dtype, "output 0", reason, size);
  if (code != DVT_OK) return code;
  if (from->bytes == to->bytes) return DVT_OK;
  return dvt_refuse(reason, size, "output 0: expected %llu bytes, got %llu",
                    (unsigned long long)from->bytes, (unsigned long long)to->bytes);
}

DvtKernelTable dvt_kernels_movement(void) {
  static const DvtKernel kernels[] = {
      {.name = "Copy",
       .abi_version = DVT_KERNEL_ABI_VERSION,
       .flags = DVT_KERNEL_PURE | DVT_KERNEL_IN_PLACE | DVT_KERNEL_DEVICE,
       .input_min = 1,
       .input_max = 1,
       .output_min = 1,
       .output_max = 1,
       .run = run_copy,
       .check = check_copy},
  };
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
