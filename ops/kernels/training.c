#include "ops/kernels/training.h"

#include "ops/kernels/element.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/shape.h"

enum { RATE = 0, COUNT = 1, FIRST = 2 };
enum { ADAGRAD_GROUPS = 3, ADAM_GROUPS = 4, MOMENTUM_GROUPS = 3 }; /* X, G and the states. */

/* The tensors of each group; all inputs are judged. */
static DvtCode count_tensors(const DvtContext* ctx, uint32_t groups, uint32_t* count, char* reason,
                             size_t size) {
  DvtCode code = dvt_check_inputs(ctx, FIRST + groups, UINT16_MAX, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  *count = (ctx->input_count - (uint32_t)FIRST) / groups;
  if (ctx->input_count != FIRST + groups * *count || ctx->output_count != (groups - 1) * *count) {
    return dvt_refuse(reason, size, "%u inputs and %u outputs are not groups of %u",
                      ctx->input_count, ctx->output_count, groups);
  }
  const DvtTensor* rate = dvt_input_tensor(ctx, RATE);
  if ((rate->dtype != DVT_F32 && rate->dtype != DVT_F64) || dvt_tensor_elements(rate) != 1 ||
      dvt_input_tensor(ctx, COUNT)->dtype != DVT_I64 ||
      dvt_tensor_elements(dvt_input_tensor(ctx, COUNT)) != 1) {
    return dvt_refuse(reason, size, "expected one float R and one i64 T");
  }
  for (uint32_t i = FIRST; i < ctx->input_count; ++i) {
    if (!dvt_has_input(ctx, i)) return dvt_refuse(reason, size, "input %u is absent", i);
    const DvtTensor* x = dvt_input_tensor(ctx, FIRST + (i - FIRST) % *count);
    code = dvt_check_same_shape(x, dvt_input_tensor(ctx, i), "G and states", reason, size);
    if (code != DVT_OK) return code;
  }
  return DVT_OK;
}

static DvtCode infer_groups(const DvtContext* ctx, uint32_t groups, DvtTensor* outputs,
                            char* reason, size_t size) {
  uint32_t count = 0;
  DvtCode code = count_tensors(ctx, groups, &count, reason, size);
  for (uint32_t i = 0; code == DVT_OK && i < ctx->output_count; ++i) {
    const DvtTensor* x = dvt_input_tensor(ctx, FIRST + i % count);
    code = dvt_infer_shape(&outputs[i], x->rank, x->dims, "outputs", reason, size);
  }
  return code;
}

/* There may be more outputs than dvt_check_inferred() takes. */
static DvtCode check_groups(const DvtContext* ctx, uint32_t groups, DvtDType dtype, char* reason,
                            size_t size) {
  DvtCode code = dvt_check_counts(ctx, FIRST + groups, UINT16_MAX, 0, UINT16_MAX, reason, size);
  uint32_t count = 0;
  if (code == DVT_OK) code = count_tensors(ctx, groups, &count, reason, size);
  for (uint32_t i = FIRST; code == DVT_OK && i < ctx->input_count; ++i) {
    code = dvt_check_dtype(dvt_input_tensor(ctx, i), dtype, "X, G and states", reason, size);
  }
  for (uint32_t i = 0; code == DVT_OK && i < ctx->output_count; ++i) {
    if (!dvt_has_output(ctx, i)) continue; /* Nobody asked for it. */
    const DvtTensor* y = dvt_output_tensor(ctx, i);
    code = dvt_check_dtype(y, dtype, "outputs", reason, size);
    if (code != DVT_OK) break;
    const DvtTensor* x = dvt_input_tensor(ctx, FIRST + i % count);
    code = dvt_check_same_shape(x, y, "outputs", reason, size);
  }
  return code;
}

/* One tensor's operands. */
typedef struct Update {
  const DvtTrainingAttributes* attributes;
  double rate;   /* R, corrected by T. */
  double weight; /* Of a new gradient in Momentum's state. */
  int64_t elements;
  const void* x;
  const void* g;
  const void* states[2];
  void* new_x;
  void* new_states[2];
} Update;

/* Outputs that nobody asked for are NULL. */
DVT_INLINE void store(void* to, DvtDType dtype, int64_t i, double value) {
  if (to != NULL) dvt_store_real(to, dtype, i, value);
}

DVT_INLINE double regularised(const Update* u, int64_t i, DvtDType dtype) {
  return u->attributes->norm_coefficient * dvt_load_real(u->x, dtype, i) +
         dvt_load_real(u->g, dtype, i);
}

DVT_INLINE void adagrad(const Update* u, DvtDType dtype) {
  for (int64_t i = 0; i < u->elements; ++i) {
    const double gradient = regularised(u, i, dtype);
    const double state = dvt_load_real(u->states[0], dtype, i) + gradient * gradient;
    const double x = dvt_load_real(u->x, dtype, i);
    store(u->new_states[0], dtype, i, state);
    store(u->new_x, dtype, i, x - u->rate * gradient / (sqrt(state) + u->attributes->epsilon));
  }
}

DVT_INLINE void adam(const Update* u, DvtDType dtype) {
  const DvtTrainingAttributes* a = u->attributes;
  for (int64_t i = 0; i < u->elements; ++i) {
    const double gradient = regularised(u, i, dtype);
    const double v = a->alpha * dvt_load_real(u->states[0], dtype, i) + (1.0 - a->alpha) * gradient;
    const double h =
        a->beta * dvt_load_real(u->states[1], dtype, i) + (1.0 - a->beta) * gradient * gradient;
    const double x = dvt_load_real(u->x, dtype, i) - u->rate * v / (sqrt(h) + a->epsilon);
    store(u->new_states[0], dtype, i, v);
    store(u->new_states[1], dtype, i, h);
    store(u->new_x, dtype, i, (1.0 - a->norm_coefficient_post) * x);
  }
}

DVT_INLINE void momentum(const Update* u, DvtDType dtype) {
  const DvtTrainingAttributes* a = u->attributes;
  for (int64_t i = 0; i < u->elements; ++i) {
    const double gradient = regularised(u, i, dtype);
    const double v = a->alpha * dvt_load_real(u->states[0], dtype, i) + u->weight * gradient;
    const double step = a->nesterov != 0 ? gradient + a->alpha * v : v;
    const double x = dvt_load_real(u->x, dtype, i);
    store(u->new_states[0], dtype, i, v);
    store(u->new_x, dtype, i, x - u->rate * step);
  }
}

static void* output_of(const DvtContext* ctx, uint32_t index) {
  return dvt_has_output(ctx, index) ? dvt_output_data(ctx, index) : NULL;
}

/* Tensor `index` of `count`. */
static Update update_of(const DvtContext* ctx, uint32_t groups, uint32_t index, uint32_t count) {
  Update u = {.attributes = ctx->attributes,
              .elements = dvt_tensor_elements(dvt_input_tensor(ctx, FIRST + index)),
              .x = dvt_input_data(ctx, FIRST + index),
              .g = dvt_input_data(ctx, FIRST + count + index),
              .new_x = output_of(ctx, index)};
  for (uint32_t s = 0; s + 2 < groups; ++s) {
    u.states[s] = dvt_input_data(ctx, FIRST + (s + 2) * count + index);
    u.new_states[s] = output_of(ctx, (s + 1) * count + index);
  }
  return u;
}

static double rate_of(const DvtContext* ctx) {
  return dvt_load_real(dvt_input_data(ctx, RATE), dvt_input_tensor(ctx, RATE)->dtype, 0);
}
static double updates_of(const DvtContext* ctx) {
  return (double)*(const int64_t*)dvt_input_data(ctx, COUNT);
}

DVT_INLINE DvtCode run_adagrad(const DvtContext* ctx, DvtDType dtype) {
  const DvtTrainingAttributes* attributes = ctx->attributes;
  const uint32_t count = (ctx->input_count - (uint32_t)FIRST) / ADAGRAD_GROUPS;
  for (uint32_t i = 0; i < count; ++i) {
    Update u = update_of(ctx, ADAGRAD_GROUPS, i, count);
    u.rate = rate_of(ctx) / (1.0 + updates_of(ctx) * attributes->decay_factor);
    adagrad(&u, dtype);
  }
  return DVT_OK;
}
DVT_INLINE DvtCode run_adam(const DvtContext* ctx, DvtDType dtype) {
  const DvtTrainingAttributes* attributes = ctx->attributes;
  const uint32_t count = (ctx->input_count - (uint32_t)FIRST) / ADAM_GROUPS;
  const double updates = updates_of(ctx);
  for (uint32_t i = 0; i < count; ++i) {
    Update u = update_of(ctx, ADAM_GROUPS, i, count);
    u.rate = rate_of(ctx);
    if (updates > 0.0) { /* States begin at 0 and are too small at first. */
      u.rate *=
          sqrt(1.0 - pow(attributes->beta, updates)) / (1.0 - pow(attributes->alpha, updates));
    }
    adam(&u, dtype);
  }
  return DVT_OK;
}
DVT_INLINE DvtCode run_momentum(const DvtContext* ctx, DvtDType dtype) {
  const DvtTrainingAttributes* attributes = ctx->attributes;
  const uint32_t count = (ctx->input_count - (uint32_t)FIRST) / MOMENTUM_GROUPS;
  for (uint32_t i = 0; i < count; ++i) {
    Update u = update_of(ctx, MOMENTUM_GROUPS, i, count);
    u.rate = rate_of(ctx);
    u.weight = updates_of(ctx) > 0.0 ? attributes->beta : 1.0;
    momentum(&u, dtype);
  }
  return DVT_OK;
}

static DvtCode infer_three(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  return infer_groups(ctx, ADAGRAD_GROUPS, outputs, reason, size);
}
static DvtCode infer_four(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  return infer_groups(ctx, ADAM_GROUPS, outputs, reason, size);
}
static DvtCode check_adagrad(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  return check_groups(ctx, ADAGRAD_GROUPS, dtype, reason, size);
}
static DvtCode check_adam(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  return check_groups(ctx, ADAM_GROUPS, dtype, reason, size);
}
static DvtCode check_momentum(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  return check_groups(ctx, MOMENTUM_GROUPS, dtype, reason, size);
}

/* ---- Table ----------------------------------------------------------------------------------- */

DVT_TYPED_KERNEL(adagrad, f32, DVT_F32)
DVT_TYPED_KERNEL(adagrad, f64, DVT_F64)
DVT_TYPED_KERNEL(adam, f32, DVT_F32)
DVT_TYPED_KERNEL(adam, f64, DVT_F64)
DVT_TYPED_KERNEL(momentum, f32, DVT_F32)
DVT_TYPED_KERNEL(momentum, f64, DVT_F64)

static const DvtAttribute training_attributes[] = {
    {"norm_coefficient", offsetof(DvtTrainingAttributes, norm_coefficient), 1, 'f'},
    {"norm_coefficient_post", offsetof(DvtTrainingAttributes, norm_coefficient_post), 1, 'f'},
    {"epsilon", offsetof(DvtTrainingAttributes, epsilon), 1, 'f'},
    {"decay_factor", offsetof(DvtTrainingAttributes, decay_factor), 1, 'f'},
    {"alpha", offsetof(DvtTrainingAttributes, alpha), 1, 'f'},
    {"beta", offsetof(DvtTrainingAttributes, beta), 1, 'f'},
    {"nesterov", offsetof(DvtTrainingAttributes, nesterov), 1, 'i'},
};

#define TRAINING_KERNEL(kernel_name, family, suffix, groups, infer_fn)           \
  {                                                                              \
    .name = kernel_name "." #suffix, .abi_version = DVT_KERNEL_ABI_VERSION,      \
    .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE, .input_min = FIRST + (groups), \
    .input_max = UINT16_MAX, .output_min = (groups)-1, .output_max = UINT16_MAX, \
    .attribute_bytes = sizeof(DvtTrainingAttributes),                            \
    .attribute_count = sizeof training_attributes / sizeof(DvtAttribute),        \
    .attributes = training_attributes, .run = run_##family##_##suffix,           \
    .check = check_##family##_##suffix, .infer = (infer_fn)                      \
  }

DvtKernelTable dvt_kernels_training(void) {
  static const DvtKernel kernels[] = {
      TRAINING_KERNEL("Adagrad", adagrad, f32, ADAGRAD_GROUPS, infer_three),
      TRAINING_KERNEL("Adagrad", adagrad, f64, ADAGRAD_GROUPS, infer_three),
      TRAINING_KERNEL("Adam", adam, f32, ADAM_GROUPS, infer_four),
      TRAINING_KERNEL("Adam", adam, f64, ADAM_GROUPS, infer_four),
      TRAINING_KERNEL("Momentum", momentum, f32, MOMENTUM_GROUPS, infer_three),
      TRAINING_KERNEL("Momentum", momentum, f64, MOMENTUM_GROUPS, infer_three),
  };
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
