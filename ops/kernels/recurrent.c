#include "ops/kernels/recurrent.h"

#include <inttypes.h>
#include <math.h>

#include "ops/kernels/element.h"
#include "ops/kernels/gemm.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/shape.h"

enum { LSTM_GATES = 4, GRU_GATES = 3, RNN_GATES = 1 };
#define HIDDEN_LIMIT (INT64_C(1) << 40)
enum {
  CHUNK_ROWS = 256
}; /* Rows of X that are multiplied at a time: enough to pay for packing W. */

/* ---- The workspace --------------------------------------------------------------------------- */

/* Room for a * b * c elements at the end of the plan, or false on overflow. */
static bool reserve(DvtRecurrentPlan* plan, uint64_t* offset, int64_t a, int64_t b, int64_t c,
                    int64_t element_bytes) {
  uint64_t bytes = (uint64_t)a;
  *offset = plan->bytes;
  return !__builtin_mul_overflow(bytes, (uint64_t)b, &bytes) &&
         !__builtin_mul_overflow(bytes, (uint64_t)c, &bytes) &&
         !__builtin_mul_overflow(bytes, (uint64_t)element_bytes, &bytes) && bytes <= INT64_MAX &&
         !__builtin_add_overflow(plan->bytes, (bytes + 63) / 64 * 64, &plan->bytes) &&
         plan->bytes <= INT64_MAX;
}

bool dvt_recurrent_plan(const DvtRecurrence* recurrence, DvtDType dtype, DvtRecurrentPlan* plan) {
  const int64_t n = recurrence->batch;
  const int64_t h = recurrence->hidden;
  const int64_t g = recurrence->gates;
  const int64_t real = dtype == DVT_F64 ? 8 : 4;
  *plan = (DvtRecurrentPlan){.chunk = n < CHUNK_ROWS && n > 0 ? CHUNK_ROWS / n : 1};
  if (plan->chunk > recurrence->steps) plan->chunk = recurrence->steps;
  const bool fits =
      reserve(plan, &plan->rows, plan->chunk, n, recurrence->inputs, real) &&
      reserve(plan, &plan->projected, plan->chunk, n, g * h, real) &&
      reserve(plan, &plan->gates, n, g, h, real) && reserve(plan, &plan->hidden, n, h, 1, real) &&
      reserve(plan, &plan->cell, n, h, 1, real) && reserve(plan, &plan->reset, n, h, 1, real) &&
      reserve(plan, &plan->bias, 2, g, h, real) && reserve(plan, &plan->peephole, 3, h, 1, real);
  if (!fits) return false;
  if (dtype == DVT_F16 && (!reserve(plan, &plan->w, g * h, recurrence->inputs, 1, real) ||
                           !reserve(plan, &plan->r, g * h, h, 1, real))) {
    return false;
  }
  if (dtype == DVT_F64) return true;
  /* Each gate may end in a panel that is not full. */
  return reserve(plan, &plan->panels, g * (h + DVT_GEMM_PANEL), h, 1, real) &&
         reserve(plan, &plan->gemm, DVT_GEMM_WORKSPACE_BYTES, 1, 1, 1);
}

/* ---- Geometry -------------------------------------------------------------------------------- */

static DvtCode check_functions(const DvtRecurrence* recurrence, char* reason, size_t size) {
  const DvtRecurrentAttributes* attributes = recurrence->attributes;
  for (int64_t i = 0; i < recurrence->functions * recurrence->directions; ++i) {
    if (attributes->functions[i] >= 0 && attributes->functions[i] < DVT_RECURRENT_FUNCTION_COUNT) {
      continue;
    }
    return dvt_refuse(reason, size, "activation %" PRId64 " is unknown: %" PRId64, i,
                      attributes->functions[i]);
  }
  if (attributes->clips == 0 || attributes->clip > 0.0) return DVT_OK;
  return dvt_refuse(reason, size, "clip: expected a positive number, got %g", attributes->clip);
}

/* The inputs behind R, all optional. */
static DvtCode check_optional(const DvtContext* ctx, const DvtRecurrence* recurrence, char* reason,
                              size_t size) {
  const int64_t d = recurrence->directions;
  const int64_t n = recurrence->batch;
  const int64_t h = recurrence->hidden;
  const bool batch_first = recurrence->attributes->layout != 0;
  const int64_t state[3] = {batch_first ? n : d, batch_first ? d : n, h};
  const int64_t bias[2] = {d, 2 * recurrence->gates * h};
  const int64_t peephole[2] = {d, 3 * h};
  const struct {
    const char* name;
    uint32_t rank;
    const int64_t* dims;
  } expected[] = {
      [DVT_RECURRENT_B] = {"B", 2, bias},
      [DVT_RECURRENT_LENGTHS] = {"sequence_lens", 1, &n},
      [DVT_RECURRENT_H0] = {"initial_h", 3, state},
      [DVT_RECURRENT_C0] = {"initial_c", 3, state},
      [DVT_RECURRENT_P] = {"P", 2, peephole},
  };
  const DvtDType dtype = dvt_input_tensor(ctx, DVT_RECURRENT_X)->dtype;
  for (uint32_t i = DVT_RECURRENT_B; i < ctx->input_count; ++i) {
    if (!dvt_has_input(ctx, i)) continue;
    const DvtTensor* tensor = dvt_input_tensor(ctx, i);
    const DvtDType type = i == DVT_RECURRENT_LENGTHS ? (DvtDType)DVT_I32 : dtype;
    DvtCode code = dvt_check_dtype(tensor, type, expected[i].name, reason, size);
    if (code == DVT_OK) {
      code = dvt_check_shape(tensor, expected[i].rank, expected[i].dims, expected[i].name, reason,
                             size);
    }
    if (code != DVT_OK) return code;
  }
  return DVT_OK;
}

/* Reads inputs and attributes; everything but the outputs is judged here. */
static DvtCode describe(const DvtContext* ctx, int64_t gates, DvtRecurrence* recurrence,
                        DvtRecurrentPlan* plan, char* reason, size_t size) {
  const uint32_t input_max = gates == LSTM_GATES ? DVT_RECURRENT_P + 1 : DVT_RECURRENT_H0 + 1;
  DvtCode code = dvt_check_inputs(ctx, 3, input_max, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtRecurrentAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, DVT_RECURRENT_X);
  const DvtTensor* r = dvt_input_tensor(ctx, DVT_RECURRENT_R);
  if (x->rank != 3 || r->rank != 3) return dvt_refuse(reason, size, "X and R must have rank 3");
  if (attributes->direction < 0 || attributes->direction > DVT_RECURRENT_BIDIRECTIONAL) {
    return dvt_refuse(reason, size, "direction: expected 0 to 2, got %" PRId64,
                      attributes->direction);
  }
  const bool batch_first = attributes->layout != 0;
  *recurrence =
      (DvtRecurrence){.steps = x->dims[batch_first ? 1 : 0],
                      .batch = x->dims[batch_first ? 0 : 1],
                      .inputs = x->dims[2],
                      .hidden = r->dims[2],
                      .directions = attributes->direction == DVT_RECURRENT_BIDIRECTIONAL ? 2 : 1,
                      .gates = gates,
                      .functions = gates == LSTM_GATES  ? 3
                                   : gates == GRU_GATES ? 2
                                                        : 1,
                      .attributes = attributes};
  code = check_functions(recurrence, reason, size);
  if (code != DVT_OK) return code;
  /* The bounds keep arithmetic on rows of gates, and steps that touch nothing, out of run(). */
  if (recurrence->hidden < 1 || recurrence->hidden > HIDDEN_LIMIT || recurrence->inputs < 1) {
    return dvt_refuse(reason, size, "%" PRId64 " inputs or %" PRId64 " hidden units: out of range",
                      recurrence->inputs, recurrence->hidden);
  }
  if (!dvt_recurrent_plan(recurrence, x->dtype, plan)) {
    return dvt_refuse(reason, size, "X and R are too large");
  }
  const int64_t w_dims[3] = {recurrence->directions, gates * recurrence->hidden, x->dims[2]};
  const int64_t r_dims[3] = {recurrence->directions, gates * recurrence->hidden, r->dims[2]};
  const DvtTensor* w = dvt_input_tensor(ctx, DVT_RECURRENT_W);
  code = dvt_check_shape(w, 3, w_dims, "W", reason, size);
  if (code == DVT_OK) code = dvt_check_shape(r, 3, r_dims, "R", reason, size);
  if (code == DVT_OK) code = dvt_check_dtype(w, x->dtype, "W", reason, size);
  if (code == DVT_OK) code = dvt_check_dtype(r, x->dtype, "R", reason, size);
  return code == DVT_OK ? check_optional(ctx, recurrence, reason, size) : code;
}

static DvtCode infer_outputs(const DvtContext* ctx, int64_t gates, DvtTensor* outputs, char* reason,
                             size_t size) {
  DvtRecurrence recurrence;
  DvtRecurrentPlan plan;
  DvtCode code = describe(ctx, gates, &recurrence, &plan, reason, size);
  if (code != DVT_OK) return code;
  const int64_t d = recurrence.directions;
  const int64_t n = recurrence.batch;
  const bool batch_first = recurrence.attributes->layout != 0;
  const int64_t state[3] = {batch_first ? n : d, batch_first ? d : n, recurrence.hidden};
  const int64_t sequence[4] = {batch_first ? n : recurrence.steps,
                               batch_first ? recurrence.steps : d, batch_first ? d : n,
                               recurrence.hidden};
  const int64_t known = gates == LSTM_GATES ? 7 : 3;
  const int64_t named = recurrence.attributes->outputs;
  uint32_t count = 0;
  for (int i = 0; i < 3; ++i) count += (uint32_t)(named >> i & 1);
  if ((named & ~known) != 0 || ctx->output_count != count + 1) {
    return dvt_refuse(reason, size, "outputs %" PRId64 " and a workspace are not %u outputs", named,
                      ctx->output_count);
  }
  uint32_t at = 0;
  if ((named & 1) != 0) {
    code = dvt_infer_shape(&outputs[at++], 4, sequence, "Y", reason, size);
  }
  for (int64_t rest = named >> 1; rest != 0 && code == DVT_OK; rest &= rest - 1) {
    code = dvt_infer_shape(&outputs[at++], 3, state, "Y_h and Y_c", reason, size);
  }
  return code == DVT_OK ? dvt_infer_scratch(&outputs[at], plan.bytes, reason, size) : code;
}

static DvtCode infer_lstm(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  return infer_outputs(ctx, LSTM_GATES, outputs, reason, size);
}
static DvtCode infer_gru(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  return infer_outputs(ctx, GRU_GATES, outputs, reason, size);
}
static DvtCode infer_rnn(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  return infer_outputs(ctx, RNN_GATES, outputs, reason, size);
}

static DvtCode check_outputs(const DvtContext* ctx, DvtKernelInferFn infer, DvtDType dtype,
                             char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 3, UINT16_MAX, 1, 4, reason, size);
  if (code == DVT_OK) code = dvt_check_dtype(dvt_input_tensor(ctx, 0), dtype, "X", reason, size);
  for (uint32_t i = 0; code == DVT_OK && i < ctx->output_count; ++i) {
    if (!dvt_has_output(ctx, i)) return dvt_refuse(reason, size, "output %u is absent", i);
    if (i + 1 == ctx->output_count) break;
    code = dvt_check_dtype(dvt_output_tensor(ctx, i), dtype, "outputs", reason, size);
  }
  return code == DVT_OK ? dvt_check_inferred(ctx, infer, 1, reason, size) : code;
}

static DvtCode check_lstm(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  return check_outputs(ctx, infer_lstm, dtype, reason, size);
}
static DvtCode check_gru(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  return check_outputs(ctx, infer_gru, dtype, reason, size);
}
static DvtCode check_rnn(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  return check_outputs(ctx, infer_rnn, dtype, reason, size);
}

static DvtCode run(const DvtContext* ctx, int64_t gates, DvtDType dtype) {
  DvtRecurrence recurrence;
  DvtRecurrentPlan plan;
  const DvtCode code = describe(ctx, gates, &recurrence, &plan, NULL, 0);
  if (code != DVT_OK) return code;
  if (dvt_has_input(ctx, DVT_RECURRENT_LENGTHS)) {
    const int32_t* lengths = dvt_input_data(ctx, DVT_RECURRENT_LENGTHS);
    for (int64_t i = 0; i < recurrence.batch; ++i) {
      if (lengths[i] < 0 || lengths[i] > recurrence.steps) return DVT_INVALID_ARGUMENT;
    }
  }
  return dtype == DVT_F64 ? dvt_recurrent_run_f64(ctx, &recurrence, &plan)
                          : dvt_recurrent_run_f32(ctx, &recurrence, &plan);
}

static DvtCode run_lstm(const DvtContext* ctx, DvtDType dtype) {
  return run(ctx, LSTM_GATES, dtype);
}
static DvtCode run_gru(const DvtContext* ctx, DvtDType dtype) {
  return run(ctx, GRU_GATES, dtype);
}
static DvtCode run_rnn(const DvtContext* ctx, DvtDType dtype) {
  return run(ctx, RNN_GATES, dtype);
}

/* One product of [N, I + H] by [I + H, G * H] per step and direction. */
static void cost(const DvtContext* ctx, struct DvtTaskCost* cost) {
  const DvtTensor* x = dvt_input_tensor(ctx, DVT_RECURRENT_X);
  const DvtTensor* r = dvt_input_tensor(ctx, DVT_RECURRENT_R);
  const DvtRecurrentAttributes* attributes = ctx->attributes;
  const bool batch_first = attributes->layout != 0;
  *cost = (DvtTaskCost){.kind = x->dtype == DVT_F64 ? DVT_TASK_AICPU : DVT_TASK_MATMUL,
                        .dtype = x->dtype,
                        .batch = (uint64_t)(r->dims[0] * x->dims[batch_first ? 1 : 0]),
                        .m = (uint64_t)x->dims[batch_first ? 0 : 1],
                        .n = (uint64_t)r->dims[1],
                        .k = (uint64_t)(x->dims[2] + r->dims[2])};
  for (uint32_t i = 0; i < ctx->input_count; ++i) {
    if (dvt_has_input(ctx, i)) cost->read_bytes += dvt_input_tensor(ctx, i)->bytes;
  }
  for (uint32_t i = 0; i + 1 < ctx->output_count; ++i) {
    cost->write_bytes += dvt_output_tensor(ctx, i)->bytes;
  }
}

/* ---- Table ----------------------------------------------------------------------------------- */

DVT_TYPED_KERNEL(lstm, f32, DVT_F32)
DVT_TYPED_KERNEL(lstm, f64, DVT_F64)
DVT_TYPED_KERNEL(lstm, f16, DVT_F16)
DVT_TYPED_KERNEL(gru, f32, DVT_F32)
DVT_TYPED_KERNEL(gru, f64, DVT_F64)
DVT_TYPED_KERNEL(gru, f16, DVT_F16)
DVT_TYPED_KERNEL(rnn, f32, DVT_F32)
DVT_TYPED_KERNEL(rnn, f64, DVT_F64)
DVT_TYPED_KERNEL(rnn, f16, DVT_F16)

static const DvtAttribute recurrent_attributes[] = {
    {"direction", offsetof(DvtRecurrentAttributes, direction), 1, 'i'},
    {"layout", offsetof(DvtRecurrentAttributes, layout), 1, 'i'},
    {"input_forget", offsetof(DvtRecurrentAttributes, input_forget), 1, 'i'},
    {"linear_before_reset", offsetof(DvtRecurrentAttributes, linear_before_reset), 1, 'i'},
    {"outputs", offsetof(DvtRecurrentAttributes, outputs), 1, 'i'},
    {"clips", offsetof(DvtRecurrentAttributes, clips), 1, 'i'},
    {"clip", offsetof(DvtRecurrentAttributes, clip), 1, 'f'},
    {"functions", offsetof(DvtRecurrentAttributes, functions), DVT_RECURRENT_FUNCTION_MAX, 'i'},
    {"alpha", offsetof(DvtRecurrentAttributes, alpha), DVT_RECURRENT_FUNCTION_MAX, 'f'},
    {"beta", offsetof(DvtRecurrentAttributes, beta), DVT_RECURRENT_FUNCTION_MAX, 'f'},
};

#define RECURRENT_KERNEL(kernel_name, family, suffix, inputs, outputs)                           \
  {                                                                                              \
    .name = kernel_name "." #suffix, .abi_version = DVT_KERNEL_ABI_VERSION,                      \
    .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE, .input_min = 3, .input_max = (inputs),         \
    .output_min = 1, .output_max = (outputs), .attribute_bytes = sizeof(DvtRecurrentAttributes), \
    .attribute_count = sizeof recurrent_attributes / sizeof(DvtAttribute),                       \
    .attributes = recurrent_attributes, .run = run_##family##_##suffix,                          \
    .check = check_##family##_##suffix, .infer = infer_##family, .cost = cost                    \
  }

DvtKernelTable dvt_kernels_recurrent(void) {
  static const DvtKernel kernels[] = {
      RECURRENT_KERNEL("LSTM", lstm, f32, 8, 4), RECURRENT_KERNEL("LSTM", lstm, f64, 8, 4),
      RECURRENT_KERNEL("LSTM", lstm, f16, 8, 4), RECURRENT_KERNEL("GRU", gru, f32, 6, 3),
      RECURRENT_KERNEL("GRU", gru, f64, 6, 3),   RECURRENT_KERNEL("GRU", gru, f16, 6, 3),
      RECURRENT_KERNEL("RNN", rnn, f32, 6, 3),   RECURRENT_KERNEL("RNN", rnn, f64, 6, 3),
      RECURRENT_KERNEL("RNN", rnn, f16, 6, 3),
  };
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
