/* Range: start, limit, delta -> start + i * delta for i in [0, max(ceil((limit - start) / delta),
 * 0)).
 *
 *   kernel      inputs                                     output
 *   Range.<t>   start, limit, delta: one element of <t>,   y [n] of <t>
 *               read on the host
 *
 * <t> is f32, f64, i16, i32 or i64. Floats: the count is worked out in double, each element in <t>.
 * Integers: exact; elements cannot overflow, since they lie between start and limit.
 *
 * Threads, trust, memory  As kernels.h. run() works the count out again, and refuses one that is
 * not the output's: data is anybody's.
 */
#include <math.h>

#include "ops/kernels/element.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/shape.h"

static DvtCode check_scalars(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  static const char* const names[] = {"start", "limit", "delta"};
  DvtCode code = dvt_check_inputs(ctx, 3, 3, reason, size);
  for (uint32_t i = 0; i < 3 && code == DVT_OK; ++i) {
    const DvtTensor* tensor = dvt_input_tensor(ctx, i);
    code = dvt_check_dtype(tensor, dtype, names[i], reason, size);
    if (code == DVT_OK && tensor->bytes != dvt_dtype_size(dtype)) {
      code = dvt_refuse(reason, size, "%s: expected one element", names[i]);
    }
  }
  return code;
}

/* The number of elements, or -1: delta is zero, a value is not finite, or there are too many. */
static int64_t count_reals(double start, double limit, double delta) {
  const double count = ceil((limit - start) / delta);
  if (delta == 0.0 || !isfinite(start) || !isfinite(limit) || !isfinite(delta)) return -1;
  if (count >= 0x1p53) return -1;
  return count > 0.0 ? (int64_t)count : 0;
}

static int64_t count_integers(int64_t start, int64_t limit, int64_t delta) {
  if (delta == 0) return -1;
  if (delta > 0 ? start >= limit : start <= limit) return 0;
  const uint64_t span =
      delta > 0 ? (uint64_t)limit - (uint64_t)start : (uint64_t)start - (uint64_t)limit;
  const uint64_t step = delta > 0 ? (uint64_t)delta : -(uint64_t)delta;
  const uint64_t count = span / step + (span % step != 0);
  return count <= INT64_MAX ? (int64_t)count : -1;
}

static int64_t count_elements(const DvtContext* ctx, DvtDType dtype) {
  const void* data[3];
  for (uint32_t i = 0; i < 3; ++i) data[i] = dvt_input_data(ctx, i);
  if (dvt_dtype_is_float(dtype)) {
    return count_reals(dvt_load_real(data[0], dtype, 0), dvt_load_real(data[1], dtype, 0),
                       dvt_load_real(data[2], dtype, 0));
  }
  return count_integers(dvt_load_integer(data[0], dtype, 0), dvt_load_integer(data[1], dtype, 0),
                        dvt_load_integer(data[2], dtype, 0));
}

static DvtCode infer_range(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  const DvtTensor* start =
      ctx->input_count > 0 && dvt_has_input(ctx, 0) ? dvt_input_tensor(ctx, 0) : NULL;
  if (start == NULL) return dvt_refuse(reason, size, "start is missing");
  const DvtCode code = check_scalars(ctx, start->dtype, reason, size);
  if (code != DVT_OK) return code;
  for (uint32_t i = 0; i < 3; ++i) {
    if (!dvt_has_data(ctx, i)) return dvt_refuse(reason, size, "input %u has no data", i);
  }
  const int64_t count = count_elements(ctx, start->dtype);
  if (count < 0) {
    return dvt_refuse(reason, size,
                      "delta is zero, a value is not finite, or the range is endless");
  }
  return dvt_infer_shape(&outputs[0], 1, &count, "output 0", reason, size);
}

static DvtCode check_range(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 3, 3, 1, 1, reason, size);
  if (code == DVT_OK) code = check_scalars(ctx, dtype, reason, size);
  if (code == DVT_OK) code = dvt_check_dtype(dvt_output_tensor(ctx, 0), dtype, "y", reason, size);
  if (code != DVT_OK) return code;
  for (uint32_t i = 0; i < 3; ++i) {
    if (!dvt_has_data(ctx, i)) return DVT_OK; /* Static shapes: run() compares. */
  }
  return dvt_check_inferred(ctx, infer_range, 0, reason, size);
}

DVT_INLINE DvtCode run_range(const DvtContext* ctx, DvtDType dtype) {
  const int64_t count = dvt_tensor_elements(dvt_output_tensor(ctx, 0));
  if (count_elements(ctx, dtype) != count) return DVT_INVALID_ARGUMENT;
  void* y = dvt_output_data(ctx, 0);
  if (dvt_dtype_is_float(dtype)) {
    const double start = dvt_load_real(dvt_input_data(ctx, 0), dtype, 0);
    const double delta = dvt_load_real(dvt_input_data(ctx, 2), dtype, 0);
    for (int64_t i = 0; i < count; ++i) {
      const double offset = dvt_round_real(dvt_round_real((double)i, dtype) * delta, dtype);
      dvt_store_real(y, dtype, i, dvt_round_real(start + offset, dtype));
    }
    return DVT_OK;
  }
  const uint64_t start = (uint64_t)dvt_load_integer(dvt_input_data(ctx, 0), dtype, 0);
  const uint64_t delta = (uint64_t)dvt_load_integer(dvt_input_data(ctx, 2), dtype, 0);
  for (int64_t i = 0; i < count; ++i) {
    dvt_store_integer(y, dtype, i, (int64_t)(start + (uint64_t)i * delta));
  }
  return DVT_OK;
}

DVT_TYPED_KERNEL(range, f32, DVT_F32)
DVT_TYPED_KERNEL(range, f64, DVT_F64)
DVT_TYPED_KERNEL(range, i16, DVT_I16)
DVT_TYPED_KERNEL(range, i32, DVT_I32)
DVT_TYPED_KERNEL(range, i64, DVT_I64)

#define RANGE_KERNEL(suffix)                                                                       \
  {                                                                                                \
    .name = "Range." #suffix, .abi_version = DVT_KERNEL_ABI_VERSION,                               \
    .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE, .input_min = 3, .input_max = 3, .output_min = 1, \
    .output_max = 1, .run = run_range_##suffix, .check = check_range_##suffix,                     \
    .infer = infer_range, .host_inputs = 7                                                         \
  }

DvtKernelTable dvt_kernels_range(void) {
  static const DvtKernel kernels[] = {
      RANGE_KERNEL(f32), RANGE_KERNEL(f64), RANGE_KERNEL(i16), RANGE_KERNEL(i32), RANGE_KERNEL(i64),
  };
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
