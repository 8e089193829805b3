#include "kernels.h"

#include <stdbool.h>
#include <stdio.h>

typedef struct {
  int64_t window;
} AverageAttributes;
typedef struct {
  double level;
} AboveAttributes;

static DvtCode run_average(void* context) {
  const DvtContext* ctx = context;
  const AverageAttributes* attributes = ctx->attributes;
  const float* in = dvt_input(ctx, 0)->data;
  float* out = dvt_output(ctx, 0)->data;
  const int64_t count = dvt_input(ctx, 0)->tensor->dims[0];
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    sum += in[i];
    if (i >= attributes->window) sum -= in[i - attributes->window];
    out[i] = sum / (float)(i < attributes->window ? i + 1 : attributes->window);
  }
  return DVT_OK;
}

static DvtCode run_above(void* context) {
  const DvtContext* ctx = context;
  const AboveAttributes* attributes = ctx->attributes;
  const float* in = dvt_input(ctx, 0)->data;
  bool* out = dvt_output(ctx, 0)->data;
  const int64_t count = dvt_input(ctx, 0)->tensor->dims[0];
  for (int64_t i = 0; i < count; ++i) out[i] = in[i] > attributes->level;
  return DVT_OK;
}

static DvtCode run_rising(void* context) {
  const DvtContext* ctx = context;
  const bool* in = dvt_input(ctx, 0)->data;
  int64_t* out = dvt_output(ctx, 0)->data;
  const int64_t count = dvt_input(ctx, 0)->tensor->dims[0];
  *out = 0;
  for (int64_t i = 0; i < count; ++i) *out += in[i] && (i == 0 || !in[i - 1]);
  return DVT_OK;
}

/* Runs once, when the image is opened: refuses whatever the run above could not survive. */
static DvtCode check(const DvtContext* ctx, DvtDType in, DvtDType out, bool scalar, char* reason,
                     size_t size) {
  const DvtTensor* from = ctx->cells[0] != NULL ? ctx->cells[0]->tensor : NULL;
  const DvtTensor* to = ctx->cells[1] != NULL ? ctx->cells[1]->tensor : NULL;
  if (from == NULL || to == NULL || from->dtype != in || to->dtype != out || from->rank != 1 ||
      to->rank != 1 || to->dims[0] != (scalar ? 1 : from->dims[0])) {
    snprintf(reason, size, "the operands have other types or shapes than this kernel takes");
    return DVT_INVALID_ARGUMENT;
  }
  return DVT_OK;
}

static DvtCode check_average(const DvtContext* ctx, char* reason, size_t size) {
  const AverageAttributes* attributes = ctx->attributes;
  if (attributes->window < 1) {
    snprintf(reason, size, "window %lld is below 1", (long long)attributes->window);
    return DVT_INVALID_ARGUMENT;
  }
  return check(ctx, DVT_F32, DVT_F32, false, reason, size);
}
static DvtCode check_above(const DvtContext* ctx, char* reason, size_t size) {
  return check(ctx, DVT_F32, DVT_BOOL, false, reason, size);
}
static DvtCode check_rising(const DvtContext* ctx, char* reason, size_t size) {
  return check(ctx, DVT_BOOL, DVT_I64, true, reason, size);
}

static const DvtAttribute window = {"window", offsetof(AverageAttributes, window), 1, 'i'};
static const DvtAttribute level = {"level", offsetof(AboveAttributes, level), 1, 'f'};

static const DvtKernel kernels[] = {
    {.name = "acme.MovingAverage",
     .abi_version = DVT_KERNEL_ABI_VERSION,
     .flags = DVT_KERNEL_PURE,
     .input_min = 1,
     .input_max = 1,
     .output_min = 1,
     .output_max = 1,
     .attribute_bytes = sizeof(AverageAttributes),
     .attribute_count = 1,
     .attributes = &window,
     .run = run_average,
     .check = check_average},
    {.name = "acme.Above",
     .abi_version = DVT_KERNEL_ABI_VERSION,
     .flags = DVT_KERNEL_PURE,
     .input_min = 1,
     .input_max = 1,
     .output_min = 1,
     .output_max = 1,
     .attribute_bytes = sizeof(AboveAttributes),
     .attribute_count = 1,
     .attributes = &level,
     .run = run_above,
     .check = check_above},
    {.name = "acme.Rising",
     .abi_version = DVT_KERNEL_ABI_VERSION,
     .flags = DVT_KERNEL_PURE,
     .input_min = 1,
     .input_max = 1,
     .output_min = 1,
     .output_max = 1,
     .run = run_rising,
     .check = check_rising},
};

DvtKernelTable acme_kernels(void) {
  return (DvtKernelTable){kernels, sizeof kernels / sizeof kernels[0]};
}
