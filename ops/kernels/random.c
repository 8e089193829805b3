#include "ops/kernels/random.h"

#include <inttypes.h>

#include "ops/kernels/element.h"
#include "ops/kernels/kernels.h"

/* ---- The generator --------------------------------------------------------------------------- */

static inline uint64_t mix(uint64_t bits) { /* SplitMix64's output function. */
  bits = (bits ^ (bits >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  bits = (bits ^ (bits >> 27)) * UINT64_C(0x94d049bb133111eb);
  return bits ^ (bits >> 31);
}

/* Uniform in [0, 1), in steps of 2^-53. */
static inline double uniform(uint64_t seed, uint64_t place) {
  const uint64_t bits = mix(mix(seed) + (place + 1) * UINT64_C(0x9e3779b97f4a7c15));
  return (double)(bits >> 11) * 0x1p-53;
}

/* Normal with mean 0 and deviation 1 (Box and Muller, 1958): a pair of places shares two uniforms.
 */
static inline double normal(uint64_t seed, uint64_t place) {
  const double radius = sqrt(-2.0 * log(1.0 - uniform(seed, place & ~UINT64_C(1))));
  const double angle = 6.283185307179586 * uniform(seed, place | 1u);
  return radius * ((place & 1u) == 0 ? cos(angle) : sin(angle));
}

/* ---- Random ---------------------------------------------------------------------------------- */

static DvtCode infer_random(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 0, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtRandomAttributes* attributes = ctx->attributes;
  if (attributes->shape.count != DVT_LIST_NONE) {
    if (attributes->shape.count < 0 || attributes->shape.count > DVT_MAX_RANK) {
      return dvt_refuse(reason, size, "shape: %" PRId64 " axes", attributes->shape.count);
    }
    return dvt_infer_shape(&outputs[0], (uint32_t)attributes->shape.count, attributes->shape.values,
                           "Y", reason, size);
  }
  if (!dvt_has_input(ctx, 0)) return dvt_refuse(reason, size, "neither a shape nor an input");
  const DvtTensor* like = dvt_input_tensor(ctx, 0);
  return dvt_infer_shape(&outputs[0], like->rank, like->dims, "Y", reason, size);
}

static DvtCode check_random(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 0, 1, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_dtypes(ctx, 0, 1, dtype, reason, size);
  return code == DVT_OK ? dvt_check_inferred(ctx, infer_random, 0, reason, size) : code;
}

DVT_INLINE DvtCode run_random(const DvtContext* ctx, DvtDType dtype) {
  const DvtRandomAttributes* attributes = ctx->attributes;
  const uint64_t seed = (uint64_t)attributes->seed;
  const double a = attributes->low_or_mean;
  const double b = attributes->high_or_deviation;
  const int64_t count = dvt_tensor_elements(dvt_output_tensor(ctx, 0));
  for (int64_t i = 0; i < count; ++i) {
    const double value = attributes->normal != 0 ? a + b * normal(seed, (uint64_t)i)
                                                 : a + (b - a) * uniform(seed, (uint64_t)i);
    dvt_store_real(dvt_output_data(ctx, 0), dtype, i, value);
  }
  return DVT_OK;
}

/* ---- Bernoulli ------------------------------------------------------------------------------- */

static DvtCode check_bernoulli(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 1, 1, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK && !dvt_dtype_is_float(dvt_input_tensor(ctx, 0)->dtype)) {
    return dvt_refuse(reason, size, "input 0: expected a float, got %s",
                      dvt_dtype_text(dvt_input_tensor(ctx, 0)->dtype));
  }
  return code == DVT_OK ? dvt_check_inferred(ctx, dvt_infer_same, 0, reason, size) : code;
}

static DvtCode run_bernoulli(void* context) {
  const DvtContext* ctx = context;
  const DvtBernoulliAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  const DvtTensor* y = dvt_output_tensor(ctx, 0);
  for (int64_t i = 0; i < dvt_tensor_elements(x); ++i) {
    const double probability = dvt_load_real(dvt_input_data(ctx, 0), x->dtype, i);
    const bool drawn = uniform((uint64_t)attributes->seed, (uint64_t)i) < probability;
    dvt_store_real(dvt_output_data(ctx, 0), y->dtype, i, drawn ? 1.0 : 0.0);
  }
  return DVT_OK;
}

/* ---- Multinomial ----------------------------------------------------------------------------- */

static DvtCode infer_multinomial(const DvtContext* ctx, DvtTensor* outputs, char* reason,
                                 size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtMultinomialAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  if (x->rank != 2 || attributes->samples < 1 || (x->dims[1] == 0 && x->dims[0] != 0)) {
    return dvt_refuse(reason, size, "%" PRId64 " samples of an input of rank %u",
                      attributes->samples, x->rank);
  }
  const int64_t dims[2] = {x->dims[0], attributes->samples};
  uint64_t bytes = 0;
  if (__builtin_mul_overflow((uint64_t)x->dims[1], sizeof(double), &bytes)) {
    return dvt_refuse(reason, size, "the input is too large");
  }
  code = dvt_infer_shape(&outputs[0], 2, dims, "Y", reason, size);
  return code == DVT_OK ? dvt_infer_scratch(&outputs[1], bytes, reason, size) : code;
}

static DvtCode check_multinomial(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 1, 1, 2, 2, reason, size);
  if (code != DVT_OK) return code;
  const DvtDType y = dvt_output_tensor(ctx, 0)->dtype;
  if (!dvt_dtype_is_float(dvt_input_tensor(ctx, 0)->dtype) || (y != DVT_I32 && y != DVT_I64)) {
    return dvt_refuse(reason, size, "expected log probabilities as floats, and Y of i32 or i64");
  }
  return dvt_check_inferred(ctx, infer_multinomial, 1, reason, size);
}

/* Sums of the classes' probabilities so far, up to a factor. NaN counts as impossible. */
static void accumulate(const void* x, DvtDType dtype, int64_t at, int64_t classes, double* sums) {
  double largest = -INFINITY;
  for (int64_t c = 0; c < classes; ++c) {
    const double value = dvt_load_real(x, dtype, at + c);
    if (value > largest) largest = value;
  }
  double sum = 0.0;
  for (int64_t c = 0; c < classes; ++c) {
    const double weight = exp(dvt_load_real(x, dtype, at + c) - largest);
    sum += weight == weight ? weight : 0.0;
    sums[c] = sum;
  }
}

/* The first class whose sum is above `threshold`. */
static int64_t class_above(const double* sums, int64_t classes, double threshold) {
  int64_t low = 0;
  int64_t high = classes - 1;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (sums[middle] > threshold) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

static DvtCode run_multinomial(void* context) {
  const DvtContext* ctx = context;
  const DvtMultinomialAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  double* sums = dvt_output_data(ctx, 1);
  if (dvt_output_tensor(ctx, 0)->bytes == 0) return DVT_OK;
  for (int64_t row = 0; row < x->dims[0]; ++row) {
    accumulate(dvt_input_data(ctx, 0), x->dtype, row * x->dims[1], x->dims[1], sums);
    const double total = sums[x->dims[1] - 1];
    for (int64_t s = 0; s < attributes->samples; ++s) {
      const int64_t at = row * attributes->samples + s;
      const double drawn = uniform((uint64_t)attributes->seed, (uint64_t)at) * total;
      dvt_store_integer(dvt_output_data(ctx, 0), dvt_output_tensor(ctx, 0)->dtype, at,
                        (uint64_t)class_above(sums, x->dims[1], drawn));
    }
  }
  return DVT_OK;
}

/* ---- Dropout --------------------------------------------------------------------------------- */

enum { DATA = 0, RATIO = 1, TRAINING = 2 };

static DvtCode check_dropout(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 1, 3, 1, 2, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) code = dvt_check_dtypes(ctx, 1u << DATA, 1, dtype, reason, size);
  if (code == DVT_OK) code = dvt_check_dtypes(ctx, 1u << TRAINING, 0, DVT_BOOL, reason, size);
  if (code != DVT_OK) return code;
  for (uint32_t i = RATIO; i <= TRAINING; ++i) {
    if (!dvt_has_input(ctx, i)) continue;
    const DvtTensor* parameter = dvt_input_tensor(ctx, i);
    const bool typed = i == TRAINING || dvt_dtype_is_float(parameter->dtype);
    if (!typed || dvt_tensor_elements(parameter) != 1) {
      return dvt_refuse(reason, size, "input %u: expected one %s", i,
                        i == RATIO ? "float" : "bool");
    }
  }
  const DvtDropoutAttributes* attributes = ctx->attributes;
  const bool has_mask = ctx->output_count == 2;
  if (attributes->outputs != (has_mask ? 3 : 1) || (has_mask && !dvt_has_output(ctx, 1))) {
    return dvt_refuse(reason, size, "outputs %" PRId64 " are not %u", attributes->outputs,
                      ctx->output_count);
  }
  if (has_mask && dvt_output_tensor(ctx, 1)->dtype != DVT_BOOL) {
    code = dvt_check_dtypes(ctx, 0, 2, dtype, reason, size);
  }
  return code == DVT_OK ? dvt_check_inferred(ctx, dvt_infer_same, 0, reason, size) : code;
}

DVT_INLINE DvtCode run_dropout(const DvtContext* ctx, DvtDType dtype) {
  const DvtDropoutAttributes* attributes = ctx->attributes;
  double ratio = attributes->ratio;
  bool training = attributes->training != 0;
  if (dvt_has_input(ctx, RATIO)) {
    ratio = dvt_load_real(dvt_input_data(ctx, RATIO), dvt_input_tensor(ctx, RATIO)->dtype, 0);
  }
  if (dvt_has_input(ctx, TRAINING)) training = *(const uint8_t*)dvt_input_data(ctx, TRAINING) != 0;
  if (training && !(ratio >= 0.0 && ratio < 1.0)) return DVT_INVALID_ARGUMENT;
  const double scale = training ? 1.0 / (1.0 - ratio) : 1.0;
  const DvtCell* mask = ctx->output_count > 1 ? dvt_output(ctx, 1) : NULL;
  for (int64_t i = 0; i < dvt_tensor_elements(dvt_input_tensor(ctx, DATA)); ++i) {
    const bool kept = !training || uniform((uint64_t)attributes->seed, (uint64_t)i) >= ratio;
    const double value = dvt_load_real(dvt_input_data(ctx, DATA), dtype, i);
    dvt_store_real(dvt_output_data(ctx, 0), dtype, i, kept ? value * scale : 0.0);
    if (mask != NULL) dvt_store_real(mask->data, mask->tensor->dtype, i, kept ? 1.0 : 0.0);
  }
  return DVT_OK;
}

/* ---- Table ----------------------------------------------------------------------------------- */

DVT_TYPED_KERNEL(random, f32, DVT_F32)
DVT_TYPED_KERNEL(random, f64, DVT_F64)
DVT_TYPED_KERNEL(random, f16, DVT_F16)
DVT_TYPED_KERNEL(random, bf16, DVT_BF16)
DVT_TYPED_KERNEL(dropout, f32, DVT_F32)
DVT_TYPED_KERNEL(dropout, f64, DVT_F64)
DVT_TYPED_KERNEL(dropout, f16, DVT_F16)
DVT_TYPED_KERNEL(dropout, bf16, DVT_BF16)

static const DvtAttribute random_attributes[] = {
    {"seed", offsetof(DvtRandomAttributes, seed), 1, 'i'},
    {"normal", offsetof(DvtRandomAttributes, normal), 1, 'i'},
    {"low_or_mean", offsetof(DvtRandomAttributes, low_or_mean), 1, 'f'},
    {"high_or_deviation", offsetof(DvtRandomAttributes, high_or_deviation), 1, 'f'},
    {"shape_count", offsetof(DvtRandomAttributes, shape.count), 1, 'i'},
    {"shape", offsetof(DvtRandomAttributes, shape.values), DVT_MAX_RANK, 'i'},
};
static const DvtAttribute bernoulli_attributes[] = {
    {"seed", offsetof(DvtBernoulliAttributes, seed), 1, 'i'},
};
static const DvtAttribute multinomial_attributes[] = {
    {"seed", offsetof(DvtMultinomialAttributes, seed), 1, 'i'},
    {"samples", offsetof(DvtMultinomialAttributes, samples), 1, 'i'},
};
static const DvtAttribute dropout_attributes[] = {
    {"seed", offsetof(DvtDropoutAttributes, seed), 1, 'i'},
    {"ratio", offsetof(DvtDropoutAttributes, ratio), 1, 'f'},
    {"training", offsetof(DvtDropoutAttributes, training), 1, 'i'},
    {"outputs", offsetof(DvtDropoutAttributes, outputs), 1, 'i'},
};

#define RANDOM_KERNEL(kernel_name, more_flags, inputs_min, inputs_max, outputs_min, outputs_max, \
                      family, record, run_fn, check_fn, infer_fn)                                \
  {                                                                                              \
    .name = (kernel_name), .abi_version = DVT_KERNEL_ABI_VERSION,                                \
    .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE | (more_flags), .input_min = (inputs_min),      \
    .input_max = (inputs_max), .output_min = (outputs_min), .output_max = (outputs_max),         \
    .attribute_bytes = sizeof(record),                                                           \
    .attribute_count = sizeof family##_attributes / sizeof(DvtAttribute),                        \
    .attributes = family##_attributes, .run = (run_fn), .check = (check_fn), .infer = (infer_fn) \
  }
#define RANDOM(suffix)                                                         \
  RANDOM_KERNEL("Random." #suffix, 0, 0, 1, 1, 1, random, DvtRandomAttributes, \
                run_random_##suffix, check_random_##suffix, infer_random)
#define DROPOUT(suffix)                                                             \
  RANDOM_KERNEL("Dropout." #suffix, DVT_KERNEL_IN_PLACE, 1, 3, 1, 2, dropout,       \
                DvtDropoutAttributes, run_dropout_##suffix, check_dropout_##suffix, \
                dvt_infer_same)

DvtKernelTable dvt_kernels_random(void) {
  static const DvtKernel kernels[] = {
      RANDOM(f32),
      RANDOM(f64),
      RANDOM(f16),
      RANDOM(bf16),
      RANDOM_KERNEL("Bernoulli", 0, 1, 1, 1, 1, bernoulli, DvtBernoulliAttributes, run_bernoulli,
                    check_bernoulli, dvt_infer_same),
      RANDOM_KERNEL("Multinomial", 0, 1, 1, 2, 2, multinomial, DvtMultinomialAttributes,
                    run_multinomial, check_multinomial, infer_multinomial),
      DROPOUT(f32),
      DROPOUT(f64),
      DROPOUT(f16),
      DROPOUT(bf16),
  };
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
