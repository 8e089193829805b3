/* elementwise.c: the pointwise kernels: what they run, their checks and their table. The arithmetic
 * is in elementwise_loops.c, the walk over broadcasting operands in broadcast.c, and the kernels
 * that fit no pattern in elementwise_special.c. */
#include "ops/kernels/elementwise.h"

#include "ops/kernels/common.h"
#include "ops/kernels/elementwise_loops.h"
#include "ops/kernels/elementwise_special.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/shape.h"

static DvtCode run_unary(const DvtContext* ctx, DvtLoop loop, const void* parameters) {
  const DvtMap map = {.loop = loop,
                      .parameters = parameters,
                      .input_count = 1,
                      .inputs = {dvt_map_input(ctx, 0)},
                      .output = dvt_map_output(ctx)};
  return dvt_map_run(&map, -1);
}

static DvtCode run_binary(const DvtContext* ctx, DvtLoop loop) {
  const DvtBinaryAttributes* attributes = ctx->attributes;
  const DvtMap map = {.loop = loop,
                      .input_count = 2,
                      .inputs = {dvt_map_input(ctx, 0), dvt_map_input(ctx, 1)},
                      .output = dvt_map_output(ctx)};
  return dvt_map_run(&map, attributes->axis);
}

/* out = loop(... loop(loop(input 0, input 1), input 2) ..., last input). */
static DvtCode run_variadic(const DvtContext* ctx, DvtLoop loop) {
  const DvtTensor* output = dvt_output_tensor(ctx, 0);
  if (ctx->input_count == 1) {
    if (output->bytes > 0 && dvt_output_data(ctx, 0) != dvt_input_data(ctx, 0)) {
      memcpy(dvt_output_data(ctx, 0), dvt_input_data(ctx, 0), output->bytes);
    }
    return DVT_OK;
  }
  DvtMap map = {.loop = loop,
                .input_count = 2,
                .inputs = {dvt_map_input(ctx, 0)},
                .output = dvt_map_output(ctx)};
  for (uint32_t i = 1; i < ctx->input_count; ++i) {
    map.inputs[1] = dvt_map_input(ctx, i);
    (void)dvt_map_run(&map, -1);
    /* The partial result has the dtype of the inputs. */
    map.inputs[0].data = map.output.data;
    map.inputs[0].tensor = output;
  }
  return DVT_OK;
}

static const DvtNumericLoops* numeric(const DvtContext* ctx) {
  return dvt_numeric_loops(dvt_input_tensor(ctx, 0)->dtype);
}
static const DvtFloatLoops* floating(const DvtContext* ctx) {
  return dvt_float_loops(dvt_input_tensor(ctx, 0)->dtype);
}

/* ---- One run function per operator ----------------------------------------------------------- */

static DvtCode run_add(void* ctx) {
  return run_binary(ctx, numeric(ctx)->add);
}
static DvtCode run_sub(void* ctx) {
  return run_binary(ctx, numeric(ctx)->sub);
}
static DvtCode run_mul(void* ctx) {
  return run_binary(ctx, numeric(ctx)->mul);
}
static DvtCode run_div(void* ctx) {
  return run_binary(ctx, numeric(ctx)->div);
}
static DvtCode run_mod(void* ctx) {
  return run_binary(ctx, numeric(ctx)->mod);
}
static DvtCode run_fmod(void* ctx) {
  return run_binary(ctx, numeric(ctx)->fmod);
}
static DvtCode run_prelu(void* ctx) {
  return run_binary(ctx, numeric(ctx)->prelu);
}
static DvtCode run_equal(void* ctx) {
  return run_binary(ctx, numeric(ctx)->equal);
}
static DvtCode run_greater(void* ctx) {
  return run_binary(ctx, numeric(ctx)->greater);
}
static DvtCode run_less(void* ctx) {
  return run_binary(ctx, numeric(ctx)->less);
}
static DvtCode run_greater_or_equal(void* ctx) {
  return run_binary(ctx, numeric(ctx)->greater_or_equal);
}
static DvtCode run_less_or_equal(void* ctx) {
  return run_binary(ctx, numeric(ctx)->less_or_equal);
}
static DvtCode run_min(void* ctx) {
  return run_variadic(ctx, numeric(ctx)->min);
}
static DvtCode run_max(void* ctx) {
  return run_variadic(ctx, numeric(ctx)->max);
}
static DvtCode run_sum(void* ctx) {
  return run_variadic(ctx, numeric(ctx)->add);
}
static DvtCode run_relu(void* ctx) {
  return run_unary(ctx, numeric(ctx)->relu, NULL);
}
static DvtCode run_neg(void* ctx) {
  return run_unary(ctx, numeric(ctx)->neg, NULL);
}
static DvtCode run_abs(void* ctx) {
  return run_unary(ctx, numeric(ctx)->abs, NULL);
}
static DvtCode run_sign(void* ctx) {
  return run_unary(ctx, numeric(ctx)->sign, NULL);
}
static DvtCode run_sqrt(void* ctx) {
  return run_unary(ctx, floating(ctx)->sqrt, NULL);
}
static DvtCode run_exp(void* ctx) {
  return run_unary(ctx, floating(ctx)->exp, NULL);
}
static DvtCode run_log(void* ctx) {
  return run_unary(ctx, floating(ctx)->log, NULL);
}
static DvtCode run_sin(void* ctx) {
  return run_unary(ctx, floating(ctx)->sin, NULL);
}
static DvtCode run_cos(void* ctx) {
  return run_unary(ctx, floating(ctx)->cos, NULL);
}
static DvtCode run_tan(void* ctx) {
  return run_unary(ctx, floating(ctx)->tan, NULL);
}
static DvtCode run_asin(void* ctx) {
  return run_unary(ctx, floating(ctx)->asin, NULL);
}
static DvtCode run_acos(void* ctx) {
  return run_unary(ctx, floating(ctx)->acos, NULL);
}
static DvtCode run_atan(void* ctx) {
  return run_unary(ctx, floating(ctx)->atan, NULL);
}
static DvtCode run_sinh(void* ctx) {
  return run_unary(ctx, floating(ctx)->sinh, NULL);
}
static DvtCode run_cosh(void* ctx) {
  return run_unary(ctx, floating(ctx)->cosh, NULL);
}
static DvtCode run_tanh(void* ctx) {
  return run_unary(ctx, floating(ctx)->tanh, NULL);
}
static DvtCode run_asinh(void* ctx) {
  return run_unary(ctx, floating(ctx)->asinh, NULL);
}
static DvtCode run_acosh(void* ctx) {
  return run_unary(ctx, floating(ctx)->acosh, NULL);
}
static DvtCode run_atanh(void* ctx) {
  return run_unary(ctx, floating(ctx)->atanh, NULL);
}
static DvtCode run_erf(void* ctx) {
  return run_unary(ctx, floating(ctx)->erf, NULL);
}
static DvtCode run_sigmoid(void* ctx) {
  return run_unary(ctx, floating(ctx)->sigmoid, NULL);
}
static DvtCode run_softplus(void* ctx) {
  return run_unary(ctx, floating(ctx)->softplus, NULL);
}
static DvtCode run_softsign(void* ctx) {
  return run_unary(ctx, floating(ctx)->softsign, NULL);
}
static DvtCode run_hard_swish(void* ctx) {
  return run_unary(ctx, floating(ctx)->hard_swish, NULL);
}
static DvtCode run_reciprocal(void* ctx) {
  return run_unary(ctx, floating(ctx)->reciprocal, NULL);
}
static DvtCode run_floor(void* ctx) {
  return run_unary(ctx, floating(ctx)->floor, NULL);
}
static DvtCode run_ceil(void* ctx) {
  return run_unary(ctx, floating(ctx)->ceil, NULL);
}
static DvtCode run_round(void* ctx) {
  return run_unary(ctx, floating(ctx)->round, NULL);
}
static DvtCode run_is_nan(void* ctx) {
  return run_unary(ctx, floating(ctx)->is_nan, NULL);
}
static DvtCode run_not(void* ctx) {
  return run_unary(ctx, dvt_loop_not, NULL);
}
static DvtCode run_and(void* ctx) {
  return run_binary(ctx, dvt_loop_and);
}
static DvtCode run_or(void* ctx) {
  return run_binary(ctx, dvt_loop_or);
}
static DvtCode run_xor(void* ctx) {
  return run_binary(ctx, dvt_loop_xor);
}
static DvtCode run_equal_bool(void* ctx) {
  return run_binary(ctx, dvt_loop_equal_bool);
}

static DvtCode run_hard_sigmoid(void* context) {
  const DvtContext* ctx = context;
  return run_unary(ctx, floating(ctx)->hard_sigmoid, ctx->attributes);
}
static DvtCode run_leaky_relu(void* context) {
  const DvtContext* ctx = context;
  return run_unary(ctx, floating(ctx)->leaky_relu, ctx->attributes);
}
static DvtCode run_elu(void* context) {
  const DvtContext* ctx = context;
  return run_unary(ctx, floating(ctx)->elu, ctx->attributes);
}
static DvtCode run_selu(void* context) {
  const DvtContext* ctx = context;
  return run_unary(ctx, floating(ctx)->selu, ctx->attributes);
}
static DvtCode run_is_inf(void* context) {
  const DvtContext* ctx = context;
  return run_unary(ctx, floating(ctx)->is_inf, ctx->attributes);
}

static DvtCode run_mean(void* context) {
  const DvtContext* ctx = context;
  (void)run_sum(context);
  const double count = ctx->input_count;
  DvtOperand sum = dvt_map_input(ctx, 0);
  sum.data = dvt_output_data(ctx, 0);
  sum.tensor = dvt_output_tensor(ctx, 0);
  const DvtMap map = {.loop = floating(ctx)->divide_by,
                      .parameters = &count,
                      .input_count = 1,
                      .inputs = {sum},
                      .output = dvt_map_output(ctx)};
  return dvt_map_run(&map, -1);
}

/* ---- Checks ---------------------------------------------------------------------------------- */

/* Counts, dtypes and broadcasting. Inputs and output may differ in dtype, as comparisons do. */
static DvtCode check_map(const DvtContext* ctx, uint32_t input_min, uint32_t input_max,
                         DvtDType dtype, DvtDType output_dtype, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, input_min, input_max, 1, 1, reason, size);
  for (uint32_t i = 0; code == DVT_OK && i < ctx->input_count; ++i) {
    if (!dvt_has_input(ctx, i)) return dvt_refuse(reason, size, "input %u is absent", i);
    code = dvt_check_dtype(dvt_input_tensor(ctx, i), dtype, "inputs", reason, size);
  }
  if (code == DVT_OK) {
    code = dvt_check_dtype(dvt_output_tensor(ctx, 0), output_dtype, "output 0", reason, size);
  }
  return code == DVT_OK ? dvt_check_inferred(ctx, dvt_infer_broadcast, 0, reason, size) : code;
}

static DvtCode check_placed(const DvtContext* ctx, DvtDType dtype, DvtDType output,
                            DvtKernelInferFn infer, char* reason, size_t size) {
  DvtCode code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) code = dvt_check_counts(ctx, 2, 2, 1, 1, reason, size);
  if (code == DVT_OK) {
    code = dvt_check_dtype(dvt_input_tensor(ctx, 0), dtype, "input 0", reason, size);
  }
  if (code == DVT_OK) {
    code = dvt_check_dtype(dvt_input_tensor(ctx, 1), dtype, "input 1", reason, size);
  }
  if (code == DVT_OK) {
    code = dvt_check_dtype(dvt_output_tensor(ctx, 0), output, "output 0", reason, size);
  }
  return code == DVT_OK ? dvt_check_inferred(ctx, infer, 0, reason, size) : code;
}

/* ---- Tables ---------------------------------------------------------------------------------- */

static const DvtAttribute binary_attributes[] = {
    {"axis", offsetof(DvtBinaryAttributes, axis), 1, 'i'}};
static const DvtAttribute clip_attributes[] = {{"min", offsetof(DvtClipAttributes, min), 1, 'f'},
                                               {"max", offsetof(DvtClipAttributes, max), 1, 'f'}};
static const DvtAttribute activation_attributes[] = {
    {"alpha", offsetof(DvtActivationAttributes, alpha), 1, 'f'},
    {"beta", offsetof(DvtActivationAttributes, beta), 1, 'f'}};
static const DvtAttribute is_inf_attributes[] = {
    {"detect_negative", offsetof(DvtIsInfAttributes, detect_negative), 1, 'i'},
    {"detect_positive", offsetof(DvtIsInfAttributes, detect_positive), 1, 'i'}};

/* Members shared by the rows of one kind. */
#define DVT_COMMON                                                                     \
  .abi_version = DVT_KERNEL_ABI_VERSION, .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE, \
  .output_min = 1, .output_max = 1
#define DVT_COMMON_IN_PLACE                                                            \
  .abi_version = DVT_KERNEL_ABI_VERSION,                                               \
  .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE | DVT_KERNEL_IN_PLACE, .output_min = 1, \
  .output_max = 1
#define DVT_UNARY DVT_COMMON_IN_PLACE, .input_min = 1, .input_max = 1, .infer = dvt_infer_same
#define DVT_PREDICATE DVT_COMMON, .input_min = 1, .input_max = 1, .infer = dvt_infer_same
#define DVT_VARIADIC \
  DVT_COMMON_IN_PLACE, .input_min = 1, .input_max = UINT16_MAX, .infer = dvt_infer_broadcast
#define DVT_BINARY_RECORD                                                         \
  .input_min = 2, .input_max = 2, .attribute_bytes = sizeof(DvtBinaryAttributes), \
  .attribute_count = 1, .attributes = binary_attributes
#define DVT_BINARY DVT_COMMON_IN_PLACE, DVT_BINARY_RECORD, .infer = dvt_infer_binary
#define DVT_COMPARISON DVT_COMMON, DVT_BINARY_RECORD, .infer = dvt_infer_binary
#define DVT_ACTIVATION                                                                 \
  DVT_UNARY, .attribute_bytes = sizeof(DvtActivationAttributes), .attribute_count = 2, \
             .attributes = activation_attributes

#define DVT_PASTE(a, b) a##_##b
#define DVT_PASTE_EXPANDED(a, b) DVT_PASTE(a, b)
#define DVT_FN(name) DVT_PASTE_EXPANDED(name, DVT_SUFFIX)
#define DVT_QUOTE(text) #text
#define DVT_QUOTE_EXPANDED(text) DVT_QUOTE(text)
#define DVT_NAME(operator) operator"." DVT_QUOTE_EXPANDED(DVT_SUFFIX)

#define DVT_SUFFIX f32
#define DVT_DTYPE DVT_F32
#define DVT_FLOAT 1
#include "ops/kernels/elementwise_checks.inc"

#define DVT_SUFFIX f64
#define DVT_DTYPE DVT_F64
#define DVT_FLOAT 1
#include "ops/kernels/elementwise_checks.inc"

#define DVT_SUFFIX f16
#define DVT_DTYPE DVT_F16
#define DVT_FLOAT 1
#include "ops/kernels/elementwise_checks.inc"

#define DVT_SUFFIX bf16
#define DVT_DTYPE DVT_BF16
#define DVT_FLOAT 1
#include "ops/kernels/elementwise_checks.inc"

#define DVT_SUFFIX i8
#define DVT_DTYPE DVT_I8
#define DVT_FLOAT 0
#include "ops/kernels/elementwise_checks.inc"

#define DVT_SUFFIX i16
#define DVT_DTYPE DVT_I16
#define DVT_FLOAT 0
#include "ops/kernels/elementwise_checks.inc"

#define DVT_SUFFIX i32
#define DVT_DTYPE DVT_I32
#define DVT_FLOAT 0
#include "ops/kernels/elementwise_checks.inc"

#define DVT_SUFFIX i64
#define DVT_DTYPE DVT_I64
#define DVT_FLOAT 0
#include "ops/kernels/elementwise_checks.inc"

#define DVT_SUFFIX u8
#define DVT_DTYPE DVT_U8
#define DVT_FLOAT 0
#include "ops/kernels/elementwise_checks.inc"

#define DVT_SUFFIX u16
#define DVT_DTYPE DVT_U16
#define DVT_FLOAT 0
#include "ops/kernels/elementwise_checks.inc"

#define DVT_SUFFIX u32
#define DVT_DTYPE DVT_U32
#define DVT_FLOAT 0
#include "ops/kernels/elementwise_checks.inc"

#define DVT_SUFFIX u64
#define DVT_DTYPE DVT_U64
#define DVT_FLOAT 0
#include "ops/kernels/elementwise_checks.inc"

static DvtCode check_unary_bool(const DvtContext* ctx, char* reason, size_t size) {
  return check_map(ctx, 1, 1, DVT_BOOL, DVT_BOOL, reason, size);
}
static DvtCode check_binary_bool(const DvtContext* ctx, char* reason, size_t size) {
  return check_placed(ctx, DVT_BOOL, DVT_BOOL, dvt_infer_binary, reason, size);
}

static const DvtKernel kernels[] = {
#define DVT_SUFFIX f32
#define DVT_FLOAT 1
#define DVT_SIGNED 1
#include "ops/kernels/elementwise_rows.inc"

#define DVT_SUFFIX f64
#define DVT_FLOAT 1
#define DVT_SIGNED 1
#include "ops/kernels/elementwise_rows.inc"

#define DVT_SUFFIX f16
#define DVT_FLOAT 1
#define DVT_SIGNED 1
#include "ops/kernels/elementwise_rows.inc"

#define DVT_SUFFIX bf16
#define DVT_FLOAT 1
#define DVT_SIGNED 1
#include "ops/kernels/elementwise_rows.inc"

#define DVT_SUFFIX i8
#define DVT_FLOAT 0
#define DVT_SIGNED 1
#include "ops/kernels/elementwise_rows.inc"

#define DVT_SUFFIX i16
#define DVT_FLOAT 0
#define DVT_SIGNED 1
#include "ops/kernels/elementwise_rows.inc"

#define DVT_SUFFIX i32
#define DVT_FLOAT 0
#define DVT_SIGNED 1
#include "ops/kernels/elementwise_rows.inc"

#define DVT_SUFFIX i64
#define DVT_FLOAT 0
#define DVT_SIGNED 1
#include "ops/kernels/elementwise_rows.inc"

#define DVT_SUFFIX u8
#define DVT_FLOAT 0
#define DVT_SIGNED 0
#include "ops/kernels/elementwise_rows.inc"

#define DVT_SUFFIX u16
#define DVT_FLOAT 0
#define DVT_SIGNED 0
#include "ops/kernels/elementwise_rows.inc"

#define DVT_SUFFIX u32
#define DVT_FLOAT 0
#define DVT_SIGNED 0
#include "ops/kernels/elementwise_rows.inc"

#define DVT_SUFFIX u64
#define DVT_FLOAT 0
#define DVT_SIGNED 0
#include "ops/kernels/elementwise_rows.inc"

    {.name = "And.bool", DVT_BINARY, .run = run_and, .check = check_binary_bool},
    {.name = "Or.bool", DVT_BINARY, .run = run_or, .check = check_binary_bool},
    {.name = "Xor.bool", DVT_BINARY, .run = run_xor, .check = check_binary_bool},
    {.name = "Equal.bool", DVT_BINARY, .run = run_equal_bool, .check = check_binary_bool},
    {.name = "Not.bool", DVT_UNARY, .run = run_not, .check = check_unary_bool},
    {.name = "Where",
     DVT_COMMON,
     .input_min = 3,
     .input_max = 3,
     .infer = dvt_infer_broadcast,
     .run = dvt_run_where,
     .check = dvt_check_where},
    {.name = "Cast",
     DVT_COMMON,
     .input_min = 1,
     .input_max = 1,
     .infer = dvt_infer_same,
     .run = dvt_run_cast,
     .check = dvt_check_cast},
};

DvtKernelTable dvt_kernels_elementwise(void) {
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
