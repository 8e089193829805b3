#include "ops/kernels/channel_normalisation.h"

#include <inttypes.h>

#include "ops/kernels/element.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/shape.h"

/* The tensor as [outer, count, inner]. */
typedef struct View {
  int64_t outer, count, inner;
} View;

/* Precondition: the tensor is not empty, and axis < rank. */
static View view_of(const DvtTensor* tensor, uint32_t axis, bool flattens) {
  View view = {.outer = 1, .count = tensor->dims[axis], .inner = 1};
  for (uint32_t i = 0; i < axis; ++i) view.outer *= tensor->dims[i];
  for (uint32_t i = axis + 1; i < tensor->rank; ++i) view.inner *= tensor->dims[i];
  if (flattens) {
    view.count *= view.inner;
    view.inner = 1;
  }
  return view;
}

static DvtCode check_unary(const DvtContext* ctx, DvtKernelInferFn infer, DvtDType dtype,
                           char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 1, 1, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_dtypes(ctx, 1, 1, dtype, reason, size);
  return code == DVT_OK ? dvt_check_inferred(ctx, infer, 0, reason, size) : code;
}

static DvtCode infer_unary(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  const DvtCode code = dvt_check_inputs(ctx, 1, 1, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  return dvt_infer_shape(&outputs[0], x->rank, x->dims, "Y", reason, size);
}

/* ---- LRN ------------------------------------------------------------------------------------- */

static DvtCode infer_lrn(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) code = infer_unary(ctx, outputs, reason, size);
  if (code != DVT_OK) return code;
  const DvtLrnAttributes* attributes = ctx->attributes;
  if (dvt_input_tensor(ctx, 0)->rank < 2) {
    return dvt_refuse(reason, size, "X must have a batch and a channel axis");
  }
  if (attributes->size >= 1 && attributes->size <= INT32_MAX) return DVT_OK;
  return dvt_refuse(reason, size, "size: expected 1 or more, got %" PRId64, attributes->size);
}

DVT_INLINE DvtCode run_lrn(const DvtContext* ctx, DvtDType dtype) {
  const DvtTensor* tensor = dvt_input_tensor(ctx, 0);
  if (tensor->bytes == 0) return DVT_OK;
  const DvtLrnAttributes* attributes = ctx->attributes;
  const View view = view_of(tensor, 1, false);
  const int64_t before = (attributes->size - 1) / 2;
  const int64_t after = attributes->size - 1 - before;
  const double factor = attributes->alpha / (double)attributes->size;
  const void* x = dvt_input_data(ctx, 0);
  void* y = dvt_output_data(ctx, 0);
  for (int64_t n = 0; n < view.outer; ++n) {
    for (int64_t c = 0; c < view.count; ++c) {
      const int64_t begin = c > before ? c - before : 0;
      const int64_t end = c + after < view.count ? c + after + 1 : view.count;
      for (int64_t i = 0; i < view.inner; ++i) {
        const int64_t image = n * view.count * view.inner + i;
        double sum = 0.0;
        for (int64_t k = begin; k < end; ++k) {
          const double value = dvt_load_real(x, dtype, image + k * view.inner);
          sum += value * value;
        }
        const int64_t at = image + c * view.inner;
        const double base = attributes->bias + factor * sum;
        dvt_store_real(y, dtype, at, dvt_load_real(x, dtype, at) / pow(base, attributes->beta));
      }
    }
  }
  return DVT_OK;
}

static DvtCode check_lrn(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  return check_unary(ctx, infer_lrn, dtype, reason, size);
}

/* ---- LpNormalization ------------------------------------------------------------------------- */

static DvtCode infer_lp_norm(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) code = infer_unary(ctx, outputs, reason, size);
  if (code != DVT_OK) return code;
  const DvtLpNormAttributes* attributes = ctx->attributes;
  if (attributes->p != 1 && attributes->p != 2) {
    return dvt_refuse(reason, size, "p: expected 1 or 2, got %" PRId64, attributes->p);
  }
  uint32_t axis = 0;
  return dvt_normalise_axis(attributes->axis, dvt_input_tensor(ctx, 0)->rank, &axis, reason, size);
}

DVT_INLINE DvtCode run_lp_norm(const DvtContext* ctx, DvtDType dtype) {
  const DvtTensor* tensor = dvt_input_tensor(ctx, 0);
  if (tensor->bytes == 0) return DVT_OK;
  const DvtLpNormAttributes* attributes = ctx->attributes;
  uint32_t axis = 0;
  const DvtCode code = dvt_normalise_axis(attributes->axis, tensor->rank, &axis, NULL, 0);
  if (code != DVT_OK) return code;
  const View view = view_of(tensor, axis, false);
  const void* x = dvt_input_data(ctx, 0);
  void* y = dvt_output_data(ctx, 0);
  for (int64_t row = 0; row < view.outer * view.inner; ++row) {
    const int64_t begin = row / view.inner * view.count * view.inner + row % view.inner;
    double sum = 0.0;
    for (int64_t i = 0; i < view.count; ++i) {
      const double value = dvt_load_real(x, dtype, begin + i * view.inner);
      sum += attributes->p == 1 ? fabs(value) : value * value;
    }
    const double norm = attributes->p == 1 ? sum : sqrt(sum);
    for (int64_t i = 0; i < view.count; ++i) {
      const int64_t at = begin + i * view.inner;
      dvt_store_real(y, dtype, at, norm == 0.0 ? 0.0 : dvt_load_real(x, dtype, at) / norm);
    }
  }
  return DVT_OK;
}

static DvtCode check_lp_norm(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  return check_unary(ctx, infer_lp_norm, dtype, reason, size);
}

/* ---- Hardmax --------------------------------------------------------------------------------- */

static DvtCode infer_hardmax(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) code = infer_unary(ctx, outputs, reason, size);
  if (code != DVT_OK) return code;
  const DvtHardmaxAttributes* attributes = ctx->attributes;
  uint32_t axis = 0;
  return dvt_normalise_axis(attributes->axis, dvt_input_tensor(ctx, 0)->rank, &axis, reason, size);
}

DVT_INLINE DvtCode run_hardmax(const DvtContext* ctx, DvtDType dtype) {
  const DvtTensor* tensor = dvt_input_tensor(ctx, 0);
  if (tensor->bytes == 0) return DVT_OK;
  const DvtHardmaxAttributes* attributes = ctx->attributes;
  uint32_t axis = 0;
  const DvtCode code = dvt_normalise_axis(attributes->axis, tensor->rank, &axis, NULL, 0);
  if (code != DVT_OK) return code;
  const View view = view_of(tensor, axis, attributes->flattens != 0);
  const void* x = dvt_input_data(ctx, 0);
  void* y = dvt_output_data(ctx, 0);
  for (int64_t row = 0; row < view.outer * view.inner; ++row) {
    const int64_t begin = row / view.inner * view.count * view.inner + row % view.inner;
    int64_t best = 0;
    double largest = dvt_load_real(x, dtype, begin);
    for (int64_t i = 1; i < view.count && largest == largest; ++i) {
      const double value = dvt_load_real(x, dtype, begin + i * view.inner);
      if (value <= largest) continue;
      largest = value;
      best = i;
    }
    for (int64_t i = 0; i < view.count; ++i) {
      dvt_store_real(y, dtype, begin + i * view.inner, i == best ? 1.0 : 0.0);
    }
  }
  return DVT_OK;
}

static DvtCode check_hardmax(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  return check_unary(ctx, infer_hardmax, dtype, reason, size);
}

/* ---- BatchNormalizationTraining -------------------------------------------------------------- */

enum { SCALE = 1, BIAS = 2, MEAN = 3, VARIANCE = 4, OUTPUT_MAX = 5 };

/* The shape of parameters and statistics. */
static uint32_t parameter_dims(const DvtContext* ctx, int64_t dims[DVT_MAX_RANK]) {
  const DvtBatchTrainingAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  if (attributes->spatial != 0) {
    dims[0] = x->rank > 1 ? x->dims[1] : 1;
    return 1;
  }
  for (uint32_t i = 1; i < x->rank; ++i) dims[i - 1] = x->dims[i];
  return x->rank - 1U;
}

static DvtCode infer_batch_training(const DvtContext* ctx, DvtTensor* outputs, char* reason,
                                    size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 5, 5, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtBatchTrainingAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  if (x->rank < 1) return dvt_refuse(reason, size, "X must not be a scalar");
  int64_t dims[DVT_MAX_RANK];
  const uint32_t rank = parameter_dims(ctx, dims);
  for (uint32_t i = SCALE; i <= VARIANCE; ++i) {
    const DvtTensor* parameter = dvt_input_tensor(ctx, i);
    if (!dvt_dtype_is_float(parameter->dtype)) {
      return dvt_refuse(reason, size, "input %u: expected a float, got %s", i,
                        dvt_dtype_text(parameter->dtype));
    }
    code = dvt_check_shape(parameter, rank, dims, "parameters", reason, size);
    if (code != DVT_OK) return code;
  }
  const int64_t named = attributes->outputs;
  uint32_t count = 0;
  for (int i = 0; i < OUTPUT_MAX; ++i) count += (uint32_t)(named >> i & 1);
  if ((named & 1) == 0 || named < 0 || named >> OUTPUT_MAX != 0 || count != ctx->output_count) {
    return dvt_refuse(reason, size, "outputs %" PRId64 " are not %u", named, ctx->output_count);
  }
  code = dvt_infer_shape(&outputs[0], x->rank, x->dims, "Y", reason, size);
  for (uint32_t i = 1; code == DVT_OK && i < count; ++i) {
    code = dvt_infer_shape(&outputs[i], rank, dims, "statistics", reason, size);
  }
  return code;
}

/* X is `groups` times `parameters` times `repeat` elements. */
typedef struct Batch {
  int64_t groups, parameters, repeat;
} Batch;

/* Mean and variance of parameter `p`; NaN of nothing. */
DVT_INLINE void batch_statistics(const Batch* batch, const void* x, int64_t p, double of[2],
                                 DvtDType dtype) {
  const double count = (double)batch->groups * (double)batch->repeat;
  for (int pass = 0; pass < 2; ++pass) {
    double sum = 0.0;
    for (int64_t g = 0; g < batch->groups; ++g) {
      const int64_t at = (g * batch->parameters + p) * batch->repeat;
      for (int64_t i = at; i < at + batch->repeat; ++i) {
        const double value = dvt_load_real(x, dtype, i);
        sum += pass == 0 ? value : (value - of[0]) * (value - of[0]);
      }
    }
    of[pass] = sum / count;
  }
}

static void store_statistics(const DvtContext* ctx, int64_t p, const double of[2]) {
  const DvtBatchTrainingAttributes* attributes = ctx->attributes;
  uint32_t at = 1;
  for (int i = 1; i < OUTPUT_MAX; ++i) {
    if ((attributes->outputs >> i & 1) == 0) continue;
    const bool running = i <= 2;
    const DvtCell* cell = dvt_output(ctx, at++);
    double value = of[(i - 1) % 2];
    if (running) {
      const DvtCell* old = dvt_input(ctx, (uint32_t)(MEAN + i - 1));
      value = dvt_load_real(old->data, old->tensor->dtype, p) * attributes->momentum +
              value * (1.0 - attributes->momentum);
    }
    dvt_store_real(cell->data, cell->tensor->dtype, p, value);
  }
}

DVT_INLINE DvtCode run_batch_training(const DvtContext* ctx, DvtDType dtype) {
  const DvtTensor* tensor = dvt_input_tensor(ctx, 0);
  const DvtBatchTrainingAttributes* attributes = ctx->attributes;
  const DvtTensor* parameter = dvt_input_tensor(ctx, SCALE);
  Batch batch = {.parameters = dvt_tensor_elements(parameter)};
  if (tensor->bytes != 0) {
    batch.groups = tensor->dims[0];
    batch.repeat = dvt_tensor_elements(tensor) / batch.groups / batch.parameters;
  }
  const void* x = dvt_input_data(ctx, 0);
  void* y = dvt_output_data(ctx, 0);
  for (int64_t p = 0; p < batch.parameters; ++p) {
    double of[2];
    batch_statistics(&batch, x, p, of, dtype);
    store_statistics(ctx, p, of);
    const double scale = dvt_load_real(dvt_input_data(ctx, SCALE), parameter->dtype, p);
    const DvtDType bias_dtype = dvt_input_tensor(ctx, BIAS)->dtype;
    const double bias = dvt_load_real(dvt_input_data(ctx, BIAS), bias_dtype, p);
    const double factor = scale / sqrt(of[1] + attributes->epsilon);
    for (int64_t g = 0; g < batch.groups; ++g) {
      const int64_t at = (g * batch.parameters + p) * batch.repeat;
      for (int64_t i = at; i < at + batch.repeat; ++i) {
        dvt_store_real(y, dtype, i, (dvt_load_real(x, dtype, i) - of[0]) * factor + bias);
      }
    }
  }
  return DVT_OK;
}

static DvtCode check_batch_training(const DvtContext* ctx, DvtDType dtype, char* reason,
                                    size_t size) {
  DvtCode code = dvt_check_counts(ctx, 5, 5, 1, OUTPUT_MAX, reason, size);
  if (code == DVT_OK) code = dvt_check_dtypes(ctx, 1, 1, dtype, reason, size);
  for (uint32_t i = 1; code == DVT_OK && i < ctx->output_count; ++i) {
    if (!dvt_has_output(ctx, i) || !dvt_dtype_is_float(dvt_output_tensor(ctx, i)->dtype)) {
      return dvt_refuse(reason, size, "output %u is absent or no float", i);
    }
  }
  return code == DVT_OK ? dvt_check_inferred(ctx, infer_batch_training, 0, reason, size) : code;
}

/* ---- Table ----------------------------------------------------------------------------------- */

DVT_TYPED_KERNEL(lrn, f32, DVT_F32)
DVT_TYPED_KERNEL(lrn, f64, DVT_F64)
DVT_TYPED_KERNEL(lrn, f16, DVT_F16)
DVT_TYPED_KERNEL(lrn, bf16, DVT_BF16)
DVT_TYPED_KERNEL(lp_norm, f32, DVT_F32)
DVT_TYPED_KERNEL(lp_norm, f64, DVT_F64)
DVT_TYPED_KERNEL(lp_norm, f16, DVT_F16)
DVT_TYPED_KERNEL(lp_norm, bf16, DVT_BF16)
DVT_TYPED_KERNEL(hardmax, f32, DVT_F32)
DVT_TYPED_KERNEL(hardmax, f64, DVT_F64)
DVT_TYPED_KERNEL(hardmax, f16, DVT_F16)
DVT_TYPED_KERNEL(hardmax, bf16, DVT_BF16)
DVT_TYPED_KERNEL(batch_training, f32, DVT_F32)
DVT_TYPED_KERNEL(batch_training, f64, DVT_F64)
DVT_TYPED_KERNEL(batch_training, f16, DVT_F16)
DVT_TYPED_KERNEL(batch_training, bf16, DVT_BF16)

static const DvtAttribute lrn_attributes[] = {
    {"alpha", offsetof(DvtLrnAttributes, alpha), 1, 'f'},
    {"beta", offsetof(DvtLrnAttributes, beta), 1, 'f'},
    {"bias", offsetof(DvtLrnAttributes, bias), 1, 'f'},
    {"size", offsetof(DvtLrnAttributes, size), 1, 'i'},
};
static const DvtAttribute lp_norm_attributes[] = {
    {"axis", offsetof(DvtLpNormAttributes, axis), 1, 'i'},
    {"p", offsetof(DvtLpNormAttributes, p), 1, 'i'},
};
static const DvtAttribute hardmax_attributes[] = {
    {"axis", offsetof(DvtHardmaxAttributes, axis), 1, 'i'},
    {"flattens", offsetof(DvtHardmaxAttributes, flattens), 1, 'i'},
};
static const DvtAttribute batch_training_attributes[] = {
    {"epsilon", offsetof(DvtBatchTrainingAttributes, epsilon), 1, 'f'},
    {"momentum", offsetof(DvtBatchTrainingAttributes, momentum), 1, 'f'},
    {"spatial", offsetof(DvtBatchTrainingAttributes, spatial), 1, 'i'},
    {"outputs", offsetof(DvtBatchTrainingAttributes, outputs), 1, 'i'},
};

#define NORM_KERNEL(kernel_name, family, suffix, more_flags, inputs, outputs, record)   \
  {                                                                                     \
    .name = kernel_name "." #suffix, .abi_version = DVT_KERNEL_ABI_VERSION,             \
    .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE | (more_flags), .input_min = (inputs), \
    .input_max = (inputs), .output_min = 1, .output_max = (outputs),                    \
    .attribute_bytes = sizeof(record),                                                  \
    .attribute_count = sizeof family##_attributes / sizeof(DvtAttribute),               \
    .attributes = family##_attributes, .run = run_##family##_##suffix,                  \
    .check = check_##family##_##suffix, .infer = infer_##family                         \
  }
#define LRN(suffix) NORM_KERNEL("LRN", lrn, suffix, 0, 1, 1, DvtLrnAttributes)
#define LP_NORM(suffix) \
  NORM_KERNEL("LpNormalization", lp_norm, suffix, DVT_KERNEL_IN_PLACE, 1, 1, DvtLpNormAttributes)
#define HARDMAX(suffix) \
  NORM_KERNEL("Hardmax", hardmax, suffix, DVT_KERNEL_IN_PLACE, 1, 1, DvtHardmaxAttributes)
#define BATCH_TRAINING(suffix)                                                              \
  NORM_KERNEL("BatchNormalizationTraining", batch_training, suffix, DVT_KERNEL_IN_PLACE, 5, \
              OUTPUT_MAX, DvtBatchTrainingAttributes)

DvtKernelTable dvt_kernels_channel_normalisation(void) {
  static const DvtKernel kernels[] = {
      LRN(f32),
      LRN(f64),
      LRN(f16),
      LRN(bf16),
      LP_NORM(f32),
      LP_NORM(f64),
      LP_NORM(f16),
      LP_NORM(bf16),
      HARDMAX(f32),
      HARDMAX(f64),
      HARDMAX(f16),
      HARDMAX(bf16),
      BATCH_TRAINING(f32),
      BATCH_TRAINING(f64),
      BATCH_TRAINING(f16),
      BATCH_TRAINING(bf16),
  };
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
