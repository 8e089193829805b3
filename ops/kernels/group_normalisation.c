#include "ops/kernels/group_normalisation.h"

#include <inttypes.h>

#include "ops/kernels/element.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/shape.h"
#include "ops/kernels/walk.h"

enum { X = 0, SCALE = 1, BIAS = 2 };
enum { LANES = 8 };

typedef struct Statistics {
  double mean, variance;
} Statistics;

static double sum_lanes(const double lanes[LANES]) {
  double sum = 0.0;
  for (int i = 0; i < LANES; ++i) sum += lanes[i];
  return sum;
}

/* Of `count` elements from `at`. */
DVT_INLINE Statistics statistics_of(const void* x, int64_t at, int64_t count, DvtDType dtype) {
  double lanes[LANES] = {0};
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) {
    for (int l = 0; l < LANES; ++l) lanes[l] += dvt_load_real(x, dtype, at + i + l);
  }
  for (int l = 0; i + l < count; ++l) lanes[l] += dvt_load_real(x, dtype, at + i + l);
  const double mean = sum_lanes(lanes) / (double)count;
  for (int l = 0; l < LANES; ++l) lanes[l] = 0.0;
  for (i = 0; i + LANES <= count; i += LANES) {
    for (int l = 0; l < LANES; ++l) {
      const double distance = dvt_load_real(x, dtype, at + i + l) - mean;
      lanes[l] += distance * distance;
    }
  }
  for (int l = 0; i + l < count; ++l) {
    const double distance = dvt_load_real(x, dtype, at + i + l) - mean;
    lanes[l] += distance * distance;
  }
  return (Statistics){.mean = mean, .variance = sum_lanes(lanes) / (double)count};
}

static DvtCode check_epsilon(double epsilon, char* reason, size_t size) {
  if (epsilon >= 0.0) return DVT_OK;
  return dvt_refuse(reason, size, "epsilon: expected 0 or more, got %g", epsilon);
}

static DvtCode infer_y(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  const DvtTensor* x = dvt_input_tensor(ctx, X);
  return dvt_infer_shape(&outputs[0], x->rank, x->dims, "Y", reason, size);
}

/* ---- LayerNormalization ---------------------------------------------------------------------- */

/* True when the parameter has one element for each normalised one, or its strides are given. */
static bool parameter_steps(const DvtTensor* x, const DvtTensor* parameter, uint32_t axis,
                            int64_t steps[DVT_MAX_RANK]) {
  int64_t strides[DVT_MAX_RANK];
  dvt_row_major_strides(parameter, strides);
  bool plain = true;
  for (uint32_t i = 0; i < x->rank; ++i) {
    const int64_t own = (int64_t)i - (x->rank - parameter->rank);
    const int64_t dim = own < 0 ? 1 : parameter->dims[own];
    steps[i] = dim == 1 ? 0 : strides[own];
    plain = plain && dim == (i < axis ? 1 : x->dims[i]);
  }
  return plain;
}

static DvtCode check_parameter(const DvtContext* ctx, uint32_t input, char* reason, size_t size) {
  if (!dvt_has_input(ctx, input)) return DVT_OK;
  const DvtTensor* x = dvt_input_tensor(ctx, X);
  const DvtTensor* parameter = dvt_input_tensor(ctx, input);
  bool fits = parameter->rank <= x->rank;
  for (uint32_t i = 0; fits && i < parameter->rank; ++i) {
    const int64_t dim = parameter->dims[parameter->rank - 1 - i];
    fits = dim == 1 || dim == x->dims[x->rank - 1 - i];
  }
  if (fits) return DVT_OK;
  char expected[DVT_SHAPE_TEXT];
  char got[DVT_SHAPE_TEXT];
  return dvt_refuse(reason, size, "input %u: shape %s does not broadcast to X's %s", input,
                    dvt_shape_text(parameter, got), dvt_shape_text(x, expected));
}

static DvtCode infer_layer_norm(const DvtContext* ctx, DvtTensor* outputs, char* reason,
                                size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 2, 3, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtLayerNormAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, X);
  uint32_t axis = 0;
  code = dvt_normalise_axis(attributes->axis, x->rank, &axis, reason, size);
  if (code == DVT_OK) code = check_epsilon(attributes->epsilon, reason, size);
  if (code == DVT_OK) code = check_parameter(ctx, SCALE, reason, size);
  if (code == DVT_OK) code = check_parameter(ctx, BIAS, reason, size);
  if (code != DVT_OK) return code;
  const int64_t named = attributes->outputs;
  const uint32_t count = 1 + (uint32_t)(named >> 1 & 1) + (uint32_t)(named >> 2 & 1);
  if ((named & 1) == 0 || (named & ~INT64_C(7)) != 0 || ctx->output_count != count) {
    return dvt_refuse(reason, size, "outputs %" PRId64 " are not %u", named, ctx->output_count);
  }
  code = infer_y(ctx, outputs, reason, size);
  int64_t dims[DVT_MAX_RANK];
  for (uint32_t i = 0; i < x->rank; ++i) dims[i] = i < axis ? x->dims[i] : 1;
  for (uint32_t i = 1; code == DVT_OK && i < count; ++i) {
    code = dvt_infer_shape(&outputs[i], x->rank, dims, "mean and deviation", reason, size);
  }
  return code;
}

/* How one parameter follows X: one element per normalised element, or any broadcast. */
typedef struct Parameter {
  const void* data; /* Or NULL. */
  bool plain;
  int64_t steps[DVT_MAX_RANK];
} Parameter;

static Parameter parameter_of(const DvtContext* ctx, uint32_t input, uint32_t axis) {
  Parameter parameter = {.data = NULL};
  if (!dvt_has_input(ctx, input)) return parameter;
  parameter.data = dvt_input_data(ctx, input);
  parameter.plain = parameter_steps(dvt_input_tensor(ctx, X), dvt_input_tensor(ctx, input), axis,
                                    parameter.steps);
  return parameter;
}

/* Where the parameter of X's element `at` is, for one that is not plain. */
static int64_t parameter_at(const Parameter* parameter, const DvtTensor* x, int64_t at) {
  int64_t offset = 0;
  for (uint32_t i = x->rank; i > 0; --i) {
    offset += at % x->dims[i - 1] * parameter->steps[i - 1];
    at /= x->dims[i - 1];
  }
  return offset;
}

DVT_INLINE void normalise_row(const DvtTensor* tensor, const void* x, void* y, int64_t at,
                              int64_t count, double mean, double factor, const Parameter* scale,
                              const Parameter* bias, DvtDType dtype) {
  if (scale->plain && (bias->data == NULL || bias->plain)) {
    for (int64_t i = 0; i < count; ++i) {
      double value = (dvt_load_real(x, dtype, at + i) - mean) * factor;
      value *= dvt_load_real(scale->data, dtype, i);
      if (bias->data != NULL) value += dvt_load_real(bias->data, dtype, i);
      dvt_store_real(y, dtype, at + i, value);
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    double value = (dvt_load_real(x, dtype, at + i) - mean) * factor;
    value *= dvt_load_real(scale->data, dtype, parameter_at(scale, tensor, at + i));
    if (bias->data != NULL) {
      value += dvt_load_real(bias->data, dtype, parameter_at(bias, tensor, at + i));
    }
    dvt_store_real(y, dtype, at + i, value);
  }
}

DVT_INLINE DvtCode run_layer_norm(const DvtContext* ctx, DvtDType dtype) {
  const DvtTensor* tensor = dvt_input_tensor(ctx, X);
  const DvtLayerNormAttributes* attributes = ctx->attributes;
  uint32_t axis = 0;
  const DvtCode code = dvt_normalise_axis(attributes->axis, tensor->rank, &axis, NULL, 0);
  if (code != DVT_OK) return code;
  const DvtCell* mean_cell = (attributes->outputs & 2) != 0 ? dvt_output(ctx, 1) : NULL;
  const uint32_t last = ctx->output_count - 1U;
  const DvtCell* factor_cell = (attributes->outputs & 4) != 0 ? dvt_output(ctx, last) : NULL;
  const bool writes = mean_cell != NULL || factor_cell != NULL;
  if (tensor->bytes == 0 && !writes) return DVT_OK;
  int64_t rows = 1; /* No overflow: elements of X, or of the statistics. */
  int64_t count = 1;
  for (uint32_t i = 0; i < axis; ++i) rows *= tensor->dims[i];
  if (tensor->bytes != 0) count = dvt_tensor_elements(tensor) / rows;
  const Parameter scale = parameter_of(ctx, SCALE, axis);
  const Parameter bias = parameter_of(ctx, BIAS, axis);
  for (int64_t row = 0; row < rows; ++row) {
    const Statistics of = tensor->bytes == 0
                              ? (Statistics){NAN, NAN}
                              : statistics_of(dvt_input_data(ctx, X), row * count, count, dtype);
    const double factor = 1.0 / sqrt(of.variance + attributes->epsilon);
    if (tensor->bytes != 0) {
      normalise_row(tensor, dvt_input_data(ctx, X), dvt_output_data(ctx, 0), row * count, count,
                    of.mean, factor, &scale, &bias, dtype);
    }
    if (mean_cell != NULL) dvt_store_real(mean_cell->data, mean_cell->tensor->dtype, row, of.mean);
    if (factor_cell != NULL) {
      dvt_store_real(factor_cell->data, factor_cell->tensor->dtype, row, factor);
    }
  }
  return DVT_OK;
}

static DvtCode check_layer_norm(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 2, 3, 1, 3, reason, size);
  if (code == DVT_OK) code = dvt_check_dtypes(ctx, 7, 1, dtype, reason, size);
  for (uint32_t i = 1; code == DVT_OK && i < ctx->output_count; ++i) {
    if (!dvt_has_output(ctx, i) || !dvt_dtype_is_float(dvt_output_tensor(ctx, i)->dtype)) {
      return dvt_refuse(reason, size, "output %u is absent or no float", i);
    }
  }
  return code == DVT_OK ? dvt_check_inferred(ctx, infer_layer_norm, 0, reason, size) : code;
}

/* ---- GroupNormalization ---------------------------------------------------------------------- */

/* X as [batch, groups, channels per group, volume]. */
typedef struct Groups {
  int64_t batch, groups, channels, volume;
} Groups;

static DvtCode describe_groups(const DvtContext* ctx, Groups* groups, char* reason, size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 3, 3, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtGroupNormAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, X);
  if (x->rank < 2) return dvt_refuse(reason, size, "X must have a batch and a channel axis");
  const int64_t channels = x->dims[1];
  const int64_t count = attributes->groups == 0 ? channels : attributes->groups;
  if (count < 0 || (count > 0 && channels % count != 0) || (count == 0 && channels != 0)) {
    return dvt_refuse(reason, size, "%" PRId64 " groups do not divide %" PRId64 " channels", count,
                      channels);
  }
  const int64_t parameters = attributes->per_group != 0 ? count : channels;
  code = dvt_check_shape(dvt_input_tensor(ctx, SCALE), 1, &parameters, "scale", reason, size);
  if (code == DVT_OK) {
    code = dvt_check_shape(dvt_input_tensor(ctx, BIAS), 1, &parameters, "bias", reason, size);
  }
  *groups = (Groups){.batch = x->dims[0], .groups = count};
  if (x->bytes != 0) {
    groups->channels = channels / count;
    groups->volume = dvt_tensor_elements(x) / x->dims[0] / channels;
  }
  return code == DVT_OK ? check_epsilon(attributes->epsilon, reason, size) : code;
}

static DvtCode infer_group_norm(const DvtContext* ctx, DvtTensor* outputs, char* reason,
                                size_t size) {
  Groups groups;
  const DvtCode code = describe_groups(ctx, &groups, reason, size);
  return code == DVT_OK ? infer_y(ctx, outputs, reason, size) : code;
}

DVT_INLINE DvtCode run_group_norm(const DvtContext* ctx, DvtDType dtype) {
  if (dvt_input_tensor(ctx, X)->bytes == 0) return DVT_OK;
  Groups groups;
  const DvtCode code = describe_groups(ctx, &groups, NULL, 0);
  if (code != DVT_OK) return code;
  const DvtGroupNormAttributes* attributes = ctx->attributes;
  const void* x = dvt_input_data(ctx, X);
  const void* scale = dvt_input_data(ctx, SCALE);
  const void* bias = dvt_input_data(ctx, BIAS);
  void* y = dvt_output_data(ctx, 0);
  const int64_t count = groups.channels * groups.volume;
  for (int64_t g = 0; g < groups.batch * groups.groups; ++g) {
    const Statistics of = statistics_of(x, g * count, count, dtype);
    const double inverse = 1.0 / sqrt(of.variance + attributes->epsilon);
    for (int64_t c = 0; c < groups.channels; ++c) {
      const int64_t group = g % groups.groups;
      const int64_t parameter = attributes->per_group != 0 ? group : group * groups.channels + c;
      const double factor = inverse * dvt_load_real(scale, dtype, parameter);
      const double shift = dvt_load_real(bias, dtype, parameter);
      const int64_t at = g * count + c * groups.volume;
      for (int64_t i = at; i < at + groups.volume; ++i) {
        dvt_store_real(y, dtype, i, (dvt_load_real(x, dtype, i) - of.mean) * factor + shift);
      }
    }
  }
  return DVT_OK;
}

static DvtCode check_group_norm(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 3, 3, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_dtypes(ctx, 7, 1, dtype, reason, size);
  return code == DVT_OK ? dvt_check_inferred(ctx, infer_group_norm, 0, reason, size) : code;
}

/* ---- MeanVarianceNormalization --------------------------------------------------------------- */

static DvtCode reduced_axes(const DvtContext* ctx, uint32_t* mask, char* reason, size_t size) {
  const DvtMeanVarianceAttributes* attributes = ctx->attributes;
  if (attributes->axis_count < 0 || attributes->axis_count > DVT_MAX_RANK) {
    return dvt_refuse(reason, size, "%" PRId64 " axes: expected 0 to %d", attributes->axis_count,
                      DVT_MAX_RANK);
  }
  return dvt_axes_mask(attributes->axes, (uint32_t)attributes->axis_count,
                       dvt_input_tensor(ctx, X)->rank, mask, reason, size);
}

static DvtCode infer_mean_variance(const DvtContext* ctx, DvtTensor* outputs, char* reason,
                                   size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  uint32_t mask = 0;
  if (code == DVT_OK) code = reduced_axes(ctx, &mask, reason, size);
  if (code != DVT_OK) return code;
  const DvtMeanVarianceAttributes* attributes = ctx->attributes;
  code = check_epsilon(attributes->epsilon, reason, size);
  return code == DVT_OK ? infer_y(ctx, outputs, reason, size) : code;
}

DVT_INLINE DvtCode run_mean_variance(const DvtContext* ctx, DvtDType dtype) {
  const DvtTensor* tensor = dvt_input_tensor(ctx, X);
  if (tensor->bytes == 0) return DVT_OK;
  uint32_t mask = 0;
  const DvtCode code = reduced_axes(ctx, &mask, NULL, 0);
  if (code != DVT_OK) return code;
  const DvtMeanVarianceAttributes* attributes = ctx->attributes;
  const void* x = dvt_input_data(ctx, X);
  void* y = dvt_output_data(ctx, 0);
  DvtWalk kept;
  DvtWalk reduced;
  dvt_walk_begin(&kept, tensor, ~mask);
  dvt_walk_begin(&reduced, tensor, mask);
  const int64_t count = dvt_walk_count(&reduced);
  for (int64_t row = dvt_walk_count(&kept); row > 0; --row, dvt_walk_next(&kept)) {
    double lanes[LANES] = {0};
    for (int64_t i = 0; i < count; ++i, dvt_walk_next(&reduced)) {
      lanes[i % LANES] += dvt_load_real(x, dtype, kept.at + reduced.at);
    }
    const double mean = sum_lanes(lanes) / (double)count;
    for (int l = 0; l < LANES; ++l) lanes[l] = 0.0;
    for (int64_t i = 0; i < count; ++i, dvt_walk_next(&reduced)) {
      const double distance = dvt_load_real(x, dtype, kept.at + reduced.at) - mean;
      lanes[i % LANES] += distance * distance;
    }
    const double deviation = sqrt(sum_lanes(lanes) / (double)count) + attributes->epsilon;
    for (int64_t i = 0; i < count; ++i, dvt_walk_next(&reduced)) {
      const int64_t at = kept.at + reduced.at;
      dvt_store_real(y, dtype, at, (dvt_load_real(x, dtype, at) - mean) / deviation);
    }
  }
  return DVT_OK;
}

static DvtCode check_mean_variance(const DvtContext* ctx, DvtDType dtype, char* reason,
                                   size_t size) {
  DvtCode code = dvt_check_counts(ctx, 1, 1, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_dtypes(ctx, 1, 1, dtype, reason, size);
  return code == DVT_OK ? dvt_check_inferred(ctx, infer_mean_variance, 0, reason, size) : code;
}

/* ---- Table ----------------------------------------------------------------------------------- */

DVT_TYPED_KERNEL(layer_norm, f32, DVT_F32)
DVT_TYPED_KERNEL(layer_norm, f64, DVT_F64)
DVT_TYPED_KERNEL(layer_norm, f16, DVT_F16)
DVT_TYPED_KERNEL(layer_norm, bf16, DVT_BF16)
DVT_TYPED_KERNEL(group_norm, f32, DVT_F32)
DVT_TYPED_KERNEL(group_norm, f64, DVT_F64)
DVT_TYPED_KERNEL(group_norm, f16, DVT_F16)
DVT_TYPED_KERNEL(group_norm, bf16, DVT_BF16)
DVT_TYPED_KERNEL(mean_variance, f32, DVT_F32)
DVT_TYPED_KERNEL(mean_variance, f64, DVT_F64)
DVT_TYPED_KERNEL(mean_variance, f16, DVT_F16)
DVT_TYPED_KERNEL(mean_variance, bf16, DVT_BF16)

static const DvtAttribute layer_norm_attributes[] = {
    {"axis", offsetof(DvtLayerNormAttributes, axis), 1, 'i'},
    {"epsilon", offsetof(DvtLayerNormAttributes, epsilon), 1, 'f'},
    {"outputs", offsetof(DvtLayerNormAttributes, outputs), 1, 'i'},
};
static const DvtAttribute group_norm_attributes[] = {
    {"groups", offsetof(DvtGroupNormAttributes, groups), 1, 'i'},
    {"epsilon", offsetof(DvtGroupNormAttributes, epsilon), 1, 'f'},
    {"per_group", offsetof(DvtGroupNormAttributes, per_group), 1, 'i'},
};
static const DvtAttribute mean_variance_attributes[] = {
    {"axes", offsetof(DvtMeanVarianceAttributes, axes), DVT_MAX_RANK, 'i'},
    {"axis_count", offsetof(DvtMeanVarianceAttributes, axis_count), 1, 'i'},
    {"epsilon", offsetof(DvtMeanVarianceAttributes, epsilon), 1, 'f'},
};

#define NORM_KERNEL(kernel_name, family, suffix, inputs_min, inputs_max, outputs, record)          \
  {                                                                                                \
    .name = kernel_name "." #suffix, .abi_version = DVT_KERNEL_ABI_VERSION,                        \
    .flags = DVT_KERNEL_PURE | DVT_KERNEL_IN_PLACE | DVT_KERNEL_DEVICE, .input_min = (inputs_min), \
    .input_max = (inputs_max), .output_min = 1, .output_max = (outputs),                           \
    .attribute_bytes = sizeof(record),                                                             \
    .attribute_count = sizeof family##_attributes / sizeof(DvtAttribute),                          \
    .attributes = family##_attributes, .run = run_##family##_##suffix,                             \
    .check = check_##family##_##suffix, .infer = infer_##family                                    \
  }
#define LAYER_NORM(suffix) \
  NORM_KERNEL("LayerNormalization", layer_norm, suffix, 2, 3, 3, DvtLayerNormAttributes)
#define GROUP_NORM(suffix) \
  NORM_KERNEL("GroupNormalization", group_norm, suffix, 3, 3, 1, DvtGroupNormAttributes)
#define MEAN_VARIANCE(suffix)                                              \
  NORM_KERNEL("MeanVarianceNormalization", mean_variance, suffix, 1, 1, 1, \
              DvtMeanVarianceAttributes)

DvtKernelTable dvt_kernels_group_normalisation(void) {
  static const DvtKernel kernels[] = {
      LAYER_NORM(f32),    LAYER_NORM(f64),    LAYER_NORM(f16),    LAYER_NORM(bf16),
      GROUP_NORM(f32),    GROUP_NORM(f64),    GROUP_NORM(f16),    GROUP_NORM(bf16),
      MEAN_VARIANCE(f32), MEAN_VARIANCE(f64), MEAN_VARIANCE(f16), MEAN_VARIANCE(bf16),
  };
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
