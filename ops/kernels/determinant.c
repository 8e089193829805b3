#include "ops/kernels/determinant.h"

#include "ops/kernels/element.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/shape.h"

static DvtCode infer_det(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 1, 1, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  if (x->rank < 2 || x->dims[x->rank - 1] != x->dims[x->rank - 2]) {
    char text[DVT_SHAPE_TEXT];
    return dvt_refuse(reason, size, "X: expected square matrices, got %s", dvt_shape_text(x, text));
  }
  const uint64_t n = (uint64_t)x->dims[x->rank - 1];
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(n, n, &bytes) || __builtin_mul_overflow(bytes, 8, &bytes)) {
    return dvt_refuse(reason, size, "X is too large");
  }
  code = dvt_infer_shape(&outputs[0], x->rank - 2U, x->dims, "Y", reason, size);
  return code == DVT_OK ? dvt_infer_scratch(&outputs[1], bytes, reason, size) : code;
}

/* Destroys the n x n matrix. */
static double determinant(double* matrix, int64_t n) {
  double result = 1.0;
  for (int64_t column = 0; column < n; ++column) {
    int64_t pivot = column;
    for (int64_t i = column + 1; i < n; ++i) {
      if (fabs(matrix[i * n + column]) > fabs(matrix[pivot * n + column])) pivot = i;
    }
    const double value = matrix[pivot * n + column];
    result *= value;
    if (value == 0.0) return result;
    if (pivot != column) {
      result = -result;
      for (int64_t j = column; j < n; ++j) {
        const double other = matrix[pivot * n + j];
        matrix[pivot * n + j] = matrix[column * n + j];
        matrix[column * n + j] = other;
      }
    }
    for (int64_t i = column + 1; i < n; ++i) {
      const double factor = matrix[i * n + column] / value;
      for (int64_t j = column + 1; j < n; ++j) {
        matrix[i * n + j] -= factor * matrix[column * n + j];
      }
    }
  }
  return result;
}

DVT_INLINE DvtCode run_det(const DvtContext* ctx, DvtDType dtype) {
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  const int64_t n = x->dims[x->rank - 1];
  const int64_t count = dvt_tensor_elements(dvt_output_tensor(ctx, 0));
  double* matrix = dvt_output_data(ctx, 1);
  for (int64_t m = 0; m < count; ++m) {
    for (int64_t i = 0; i < n * n; ++i) {
      matrix[i] = dvt_load_real(dvt_input_data(ctx, 0), dtype, m * n * n + i);
    }
    dvt_store_real(dvt_output_data(ctx, 0), dtype, m, determinant(matrix, n));
  }
  return DVT_OK;
}

static DvtCode check_det(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 1, 1, 2, 2, reason, size);
  if (code == DVT_OK) code = dvt_check_dtypes(ctx, 1, 1, dtype, reason, size);
  return code == DVT_OK ? dvt_check_inferred(ctx, infer_det, 1, reason, size) : code;
}

DVT_TYPED_KERNEL(det, f32, DVT_F32)
DVT_TYPED_KERNEL(det, f64, DVT_F64)
DVT_TYPED_KERNEL(det, f16, DVT_F16)

#define DET_KERNEL(suffix)                                                                         \
  {                                                                                                \
    .name = "Det." #suffix, .abi_version = DVT_KERNEL_ABI_VERSION,                                 \
    .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE, .input_min = 1, .input_max = 1, .output_min = 2, \
    .output_max = 2, .run = run_det_##suffix, .check = check_det_##suffix, .infer = infer_det      \
  }

DvtKernelTable dvt_kernels_determinant(void) {
  static const DvtKernel kernels[] = {DET_KERNEL(f32), DET_KERNEL(f64), DET_KERNEL(f16)};
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
