#include "ops/kernels/normalisation.h"

#include <inttypes.h>

#include "ops/kernels/element.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/shape.h"

/* ---- BatchNormalization ---------------------------------------------------------------------- */

enum { SCALE = 1, BIAS = 2, MEAN = 3, VARIANCE = 4 };

/* X is `groups` times `parameters` times `repeat` elements; each parameter serves `repeat`. */
typedef struct BatchNorm {
  int64_t groups, parameters, repeat;
} BatchNorm;

static DvtCode describe_batch_norm(const DvtContext* ctx, BatchNorm* norm, char* reason,
                                   size_t size) {
  const DvtBatchNormAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  if (x->rank < 1) return dvt_refuse(reason, size, "X must not be a scalar");
  const int64_t elements = dvt_tensor_elements(x);
  int64_t parameters = x->rank > 1 ? x->dims[1] : 1;
  if (attributes->spatial == 0) parameters = x->dims[0] > 0 ? elements / x->dims[0] : 0;
  for (uint32_t i = SCALE; i <= VARIANCE; ++i) {
    const DvtTensor* tensor = dvt_input_tensor(ctx, i);
    if (!dvt_dtype_is_float(tensor->dtype) || dvt_tensor_elements(tensor) < parameters) {
      return dvt_refuse(reason, size, "input %u: expected %" PRId64 " numbers, got %" PRId64 " %s",
                        i, parameters, dvt_tensor_elements(tensor), dvt_dtype_text(tensor->dtype));
    }
  }
  const int64_t groups = x->dims[0];
  const bool empty = elements == 0 || groups == 0 || parameters == 0;
  *norm = (BatchNorm){.groups = groups,
                      .parameters = parameters,
                      .repeat = empty ? 0 : elements / groups / parameters};
  return DVT_OK;
}

/* A parameter; its dtype need not be X's. */
static double parameter(const DvtContext* ctx, uint32_t input, int64_t index) {
  return dvt_load_real(dvt_input_data(ctx, input), dvt_input_tensor(ctx, input)->dtype, index);
}

DVT_INLINE DvtCode run_batch_norm(const DvtContext* ctx, DvtDType dtype) {
  if (dvt_output_tensor(ctx, 0)->bytes == 0) return DVT_OK;
  BatchNorm norm;
  const DvtCode code = describe_batch_norm(ctx, &norm, NULL, 0);
  if (code != DVT_OK) return code;
  const double epsilon = ((const DvtBatchNormAttributes*)ctx->attributes)->epsilon;
  const void* x = dvt_input_data(ctx, 0);
  void* y = dvt_output_data(ctx, 0);
  int64_t at = 0;
  for (int64_t n = 0; n < norm.groups; ++n) {
    for (int64_t c = 0; c < norm.parameters; ++c) {
      const double factor = parameter(ctx, SCALE, c) / sqrt(parameter(ctx, VARIANCE, c) + epsilon);
      const double bias = parameter(ctx, BIAS, c);
      const double mean = parameter(ctx, MEAN, c);
      for (const int64_t end = at + norm.repeat; at < end; ++at) {
        const double value = (dvt_load_real(x, dtype, at) - mean) * factor + bias;
        dvt_store_real(y, dtype, at, value);
      }
    }
  }
  return DVT_OK;
}

static DvtCode check_batch_norm(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 5, 5, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) code = dvt_check_dtype(dvt_input_tensor(ctx, 0), dtype, "X", reason, size);
  if (code == DVT_OK) code = dvt_check_dtype(dvt_output_tensor(ctx, 0), dtype, "Y", reason, size);
  if (code == DVT_OK) code = dvt_check_inferred(ctx, dvt_infer_same, 0, reason, size);
  BatchNorm norm;
  if (code == DVT_OK) code = describe_batch_norm(ctx, &norm, reason, size);
  return code;
}

/* ---- Softmax --------------------------------------------------------------------------------- */

/* One row of `count` elements, `step` apart. */
DVT_INLINE void softmax_row(const void* x, void* y, int64_t at, int64_t count, int64_t step,
                            bool log_of, DvtDType dtype) {
  double maximum = -INFINITY;
  for (int64_t i = 0; i < count; ++i) {
    const double value = dvt_load_real(x, dtype, at + i * step);
    if (value > maximum) maximum = value;
  }
  double sum = 0.0;
  for (int64_t i = 0; i < count; ++i) {
    sum += exp(dvt_load_real(x, dtype, at + i * step) - maximum);
  }
  const double log_sum = log_of ? log(sum) : 0.0;
  for (int64_t i = 0; i < count; ++i) {
    const double shifted = dvt_load_real(x, dtype, at + i * step) - maximum;
    dvt_store_real(y, dtype, at + i * step, log_of ? shifted - log_sum : exp(shifted) / sum);
  }
}

DVT_INLINE DvtCode run_softmax(const DvtContext* ctx, DvtDType dtype) {
  const DvtTensor* tensor = dvt_input_tensor(ctx, 0);
  if (tensor->bytes == 0) return DVT_OK;
  const DvtSoftmaxAttributes* attributes = ctx->attributes;
  const int64_t begin_dim =
      attributes->axis < 0 ? attributes->axis + tensor->rank : attributes->axis;
  int64_t axis = 1;
  int64_t inner = 1;
  for (int64_t i = begin_dim; i < tensor->rank; ++i) {
    const bool inside = i == begin_dim || attributes->flatten != 0;
    *(inside ? &axis : &inner) *= tensor->dims[i];
  }
  const int64_t elements = dvt_tensor_elements(tensor);
  const void* x = dvt_input_data(ctx, 0);
  void* y = dvt_output_data(ctx, 0);
  for (int64_t begin = 0; begin < elements; begin += axis * inner) {
    for (int64_t i = 0; i < inner; ++i) {
      softmax_row(x, y, begin + i, axis, inner, attributes->log != 0, dtype);
    }
  }
  return DVT_OK;
}

static DvtCode check_softmax(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 1, 1, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) code = dvt_check_dtype(dvt_input_tensor(ctx, 0), dtype, "X", reason, size);
  if (code == DVT_OK) code = dvt_check_dtype(dvt_output_tensor(ctx, 0), dtype, "Y", reason, size);
  if (code == DVT_OK) code = dvt_check_inferred(ctx, dvt_infer_same, 0, reason, size);
  if (code != DVT_OK) return code;
  const DvtSoftmaxAttributes* attributes = ctx->attributes;
  uint32_t axis = 0;
  return dvt_normalise_axis(attributes->axis, dvt_input_tensor(ctx, 0)->rank, &axis, reason, size);
}

/* ---- Table ----------------------------------------------------------------------------------- */

DVT_TYPED_KERNEL(batch_norm, f32, DVT_F32)
DVT_TYPED_KERNEL(batch_norm, f64, DVT_F64)
DVT_TYPED_KERNEL(batch_norm, f16, DVT_F16)
DVT_TYPED_KERNEL(batch_norm, bf16, DVT_BF16)
DVT_TYPED_KERNEL(softmax, f32, DVT_F32)
DVT_TYPED_KERNEL(softmax, f64, DVT_F64)
DVT_TYPED_KERNEL(softmax, f16, DVT_F16)
DVT_TYPED_KERNEL(softmax, bf16, DVT_BF16)

static const DvtAttribute batch_norm_attributes[] = {
    {"epsilon", offsetof(DvtBatchNormAttributes, epsilon), 1, 'f'},
    {"spatial", offsetof(DvtBatchNormAttributes, spatial), 1, 'i'},
};
static const DvtAttribute softmax_attributes[] = {
    {"axis", offsetof(DvtSoftmaxAttributes, axis), 1, 'i'},
    {"flatten", offsetof(DvtSoftmaxAttributes, flatten), 1, 'i'},
    {"log", offsetof(DvtSoftmaxAttributes, log), 1, 'i'},
};

#define NORM_KERNEL(kernel_name, family, suffix, inputs, record)                                \
  {                                                                                             \
    .name = kernel_name "." #suffix, .abi_version = DVT_KERNEL_ABI_VERSION,                     \
    .flags = DVT_KERNEL_PURE | DVT_KERNEL_IN_PLACE | DVT_KERNEL_DEVICE, .input_min = (inputs),  \
    .input_max = (inputs), .output_min = 1, .output_max = 1, .attribute_bytes = sizeof(record), \
    .attribute_count = sizeof family##_attributes / sizeof(DvtAttribute),                       \
    .attributes = family##_attributes, .run = run_##family##_##suffix,                          \
    .check = check_##family##_##suffix, .infer = dvt_infer_same                                 \
  }

DvtKernelTable dvt_kernels_normalisation(void) {
  static const DvtKernel kernels[] = {
      NORM_KERNEL("BatchNormalization", batch_norm, f32, 5, DvtBatchNormAttributes),
      NORM_KERNEL("BatchNormalization", batch_norm, f64, 5, DvtBatchNormAttributes),
      NORM_KERNEL("BatchNormalization", batch_norm, f16, 5, DvtBatchNormAttributes),
      NORM_KERNEL("BatchNormalization", batch_norm, bf16, 5, DvtBatchNormAttributes),
      NORM_KERNEL("Softmax", softmax, f32, 1, DvtSoftmaxAttributes),
      NORM_KERNEL("Softmax", softmax, f64, 1, DvtSoftmaxAttributes),
      NORM_KERNEL("Softmax", softmax, f16, 1, DvtSoftmaxAttributes),
      NORM_KERNEL("Softmax", softmax, bf16, 1, DvtSoftmaxAttributes),
  };
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
