/* elementwise.c: the pointwise kernels: operands, checks and the table. The arithmetic is in
 * elementwise_loops.c, the walk over broadcasting operands in broadcast.c. */
#include "ops/kernels/elementwise.h"

#include "ops/kernels/common.h"
#include "ops/kernels/elementwise_loops.h"
#include "ops/kernels/kernels.h"

/* ---- Operands -------------------------------------------------------------------------------- */

static DvtOperand input_operand(const DvtContext* ctx, uint32_t index) {
  const DvtDType dtype = dvt_input_tensor(ctx, index)->dtype;
  const DvtConvertLoop widen = dvt_half_to_f32_loop(dtype);
  const uint32_t size = dvt_dtype_size(dtype);
  return (DvtOperand){.data = dvt_input(ctx, index)->data,
                      .size = size,
                      .loop_size = widen != NULL ? (uint32_t)sizeof(float) : size,
                      .convert = widen};
}

static DvtOperand output_operand(const DvtContext* ctx) {
  const DvtDType dtype = dvt_output_tensor(ctx, 0)->dtype;
  const DvtConvertLoop narrow = dvt_f32_to_half_loop(dtype);
  const uint32_t size = dvt_dtype_size(dtype);
  return (DvtOperand){.data = dvt_output_data(ctx, 0),
                      .size = size,
                      .loop_size = narrow != NULL ? (uint32_t)sizeof(float) : size,
                      .convert = narrow};
}

/* Runs the map over the output's elements. `tensors` are those of the map's inputs. */
static DvtCode run_over(const DvtContext* ctx, const DvtMap* map, const DvtTensor* const* tensors,
                        int64_t axis) {
  const DvtTensor* output = dvt_output_tensor(ctx, 0);
  const int64_t elements = dvt_tensor_elements(output);
  DvtSpace space = {.rank = 1, .dims = {elements}};
  bool same = true;
  for (uint32_t i = 0; i < map->input_count; ++i) {
    /* As many elements as the output and broadcastable: the same order of elements. */
    same = same && dvt_tensor_elements(tensors[i]) == elements;
    space.strides[i][0] = 1;
  }
  if (!same) dvt_broadcast_space(output, tensors, map->input_count, axis, &space);
  dvt_map_run(map, &space);
  return DVT_OK;
}

static DvtCode run_unary(const DvtContext* ctx, DvtLoop loop, const void* parameters) {
  const DvtMap map = {.loop = loop,
                      .parameters = parameters,
                      .input_count = 1,
                      .inputs = {input_operand(ctx, 0)},
                      .output = output_operand(ctx)};
  const DvtTensor* tensors[] = {dvt_input_tensor(ctx, 0)};
  return run_over(ctx, &map, tensors, -1);
}

static DvtCode run_binary(const DvtContext* ctx, DvtLoop loop) {
  const DvtBinaryAttributes* attributes = ctx->attributes;
  const DvtMap map = {.loop = loop,
                      .input_count = 2,
                      .inputs = {input_operand(ctx, 0), input_operand(ctx, 1)},
                      .output = output_operand(ctx)};
  const DvtTensor* tensors[] = {dvt_input_tensor(ctx, 0), dvt_input_tensor(ctx, 1)};
  return run_over(ctx, &map, tensors, attributes->axis);
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
                .inputs = {input_operand(ctx, 0)},
                .output = output_operand(ctx)};
  const DvtTensor* tensors[] = {dvt_input_tensor(ctx, 0), NULL};
  for (uint32_t i = 1; i < ctx->input_count; ++i) {
    map.inputs[1] = input_operand(ctx, i);
    tensors[1] = dvt_input_tensor(ctx, i);
    (void)run_over(ctx, &map, tensors, -1);
    map.inputs[0].data = map.output.data; /* The partial result has the dtype of the inputs. */
    tensors[0] = output;
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
  DvtMap map = {.loop = floating(ctx)->divide_by,
                .parameters = &count,
                .input_count = 1,
                .inputs = {input_operand(ctx, 0)},
                .output = output_operand(ctx)};
  map.inputs[0].data = map.output.data;
  const DvtTensor* tensors[] = {dvt_output_tensor(ctx, 0)};
  return run_over(ctx, &map, tensors, -1);
}

static DvtCode run_clip(void* context) {
  const DvtContext* ctx = context;
  const DvtClipAttributes* attributes = ctx->attributes;
  const double defaults[2] = {attributes->min, attributes->max};
  const DvtOperand input = input_operand(ctx, 0);
  const DvtDType dtype = dvt_input_tensor(ctx, 0)->dtype;
  const DvtConvertLoop from_f64 = dvt_narrow_loop(DVT_F64, input.convert != NULL ? DVT_F32 : dtype);
  _Alignas(8) char bounds[2 * sizeof(uint64_t)];
  for (uint32_t i = 0; i < 2; ++i) {
    char* bound = bounds + (size_t)i * input.loop_size;
    if (!dvt_has_input(ctx, i + 1)) {
      from_f64(&defaults[i], bound, 1);
    } else if (input.convert != NULL) {
      input.convert(dvt_input_data(ctx, i + 1), bound, 1);
    } else {
      memcpy(bound, dvt_input_data(ctx, i + 1), input.size);
    }
  }
  return run_unary(ctx, numeric(ctx)->clip, bounds);
}

/* The exponent may have any numeric dtype: it is brought to f64 or i64 on the way in. */
static DvtCode run_pow(void* context) {
  const DvtContext* ctx = context;
  const DvtBinaryAttributes* attributes = ctx->attributes;
  const DvtTensor* tensors[] = {dvt_input_tensor(ctx, 0), dvt_input_tensor(ctx, 1)};
  const DvtDType dtype = tensors[1]->dtype;
  const DvtConvertLoop to_i64 = dvt_exponent_loop(dtype);
  const DvtMap map = {.loop = to_i64 != NULL ? numeric(ctx)->pow_i64 : numeric(ctx)->pow_f64,
                      .input_count = 2,
                      .inputs = {input_operand(ctx, 0),
                                 {.data = dvt_input(ctx, 1)->data,
                                  .size = dvt_dtype_size(dtype),
                                  .loop_size = sizeof(double),
                                  .convert = to_i64 != NULL ? to_i64 : dvt_widen_loop(dtype)}},
                      .output = output_operand(ctx)};
  return run_over(ctx, &map, tensors, attributes->axis);
}

static DvtCode run_where(void* context) {
  const DvtContext* ctx = context;
  const uint32_t size = dvt_dtype_size(dvt_output_tensor(ctx, 0)->dtype);
  DvtMap map = {.loop = dvt_where_loop(size),
                .input_count = 3,
                .output = {.data = dvt_output_data(ctx, 0), .size = size, .loop_size = size}};
  const DvtTensor* tensors[3];
  for (uint32_t i = 0; i < 3; ++i) {
    const uint32_t bytes = i == 0 ? 1 : size;
    map.inputs[i] =
        (DvtOperand){.data = dvt_input(ctx, i)->data, .size = bytes, .loop_size = bytes};
    tensors[i] = dvt_input_tensor(ctx, i);
  }
  return run_over(ctx, &map, tensors, -1);
}

static DvtCode run_cast(void* context) {
  const DvtContext* ctx = context;
  const DvtTensor* from = dvt_input_tensor(ctx, 0);
  const DvtTensor* to = dvt_output_tensor(ctx, 0);
  const char* source = dvt_input_data(ctx, 0);
  char* target = dvt_output_data(ctx, 0);
  const int64_t elements = dvt_tensor_elements(to);
  if (elements == 0) return DVT_OK;
  if (from->dtype == to->dtype && from->dtype != DVT_BOOL) {
    memcpy(target, source, to->bytes);
    return DVT_OK;
  }
  const DvtDType wide = dvt_wide_dtype(from->dtype);
  const DvtConvertLoop widen = dvt_widen_loop(from->dtype);
  const DvtConvertLoop narrow = dvt_narrow_loop(wide, to->dtype);
  const size_t source_size = dvt_dtype_size(from->dtype);
  const size_t target_size = dvt_dtype_size(to->dtype);
  _Alignas(64) char block[DVT_BLOCK * sizeof(double)];
  for (int64_t at = 0; at < elements; at += DVT_BLOCK) {
    const int64_t count = elements - at < DVT_BLOCK ? elements - at : DVT_BLOCK;
    widen(source + (size_t)at * source_size, block, count);
    narrow(block, target + (size_t)at * target_size, count);
  }
  return DVT_OK;
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
  return code == DVT_OK ? dvt_check_broadcast(ctx, -1, reason, size) : code;
}

static DvtCode check_placed(const DvtContext* ctx, DvtDType first, DvtDType output, bool any_second,
                            char* reason, size_t size) {
  DvtCode code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) code = dvt_check_counts(ctx, 2, 2, 1, 1, reason, size);
  if (code == DVT_OK) {
    code = dvt_check_dtype(dvt_input_tensor(ctx, 0), first, "input 0", reason, size);
  }
  if (code == DVT_OK && !any_second) {
    code = dvt_check_dtype(dvt_input_tensor(ctx, 1), first, "input 1", reason, size);
  }
  if (code == DVT_OK) {
    code = dvt_check_dtype(dvt_output_tensor(ctx, 0), output, "output 0", reason, size);
  }
  if (code != DVT_OK) return code;
  const DvtBinaryAttributes* attributes = ctx->attributes;
  if (attributes->axis < -1 || attributes->axis > DVT_MAX_RANK) {
    return dvt_refuse(reason, size, "axis: expected -1 to %d, got %lld", DVT_MAX_RANK,
                      (long long)attributes->axis);
  }
  return dvt_check_broadcast(ctx, attributes->axis, reason, size);
}

static DvtCode check_pow_of(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  const DvtCode code = check_placed(ctx, dtype, dtype, true, reason, size);
  if (code != DVT_OK) return code;
  if (dvt_input_tensor(ctx, 1)->dtype != DVT_BOOL) return DVT_OK;
  return dvt_refuse(reason, size, "input 1: expected a number, got bool");
}

static DvtCode check_clip_of(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) code = dvt_check_counts(ctx, 1, 3, 1, 1, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* output = dvt_output_tensor(ctx, 0);
  code = dvt_check_same_shape(dvt_input_tensor(ctx, 0), output, "output 0", reason, size);
  if (code == DVT_OK) code = dvt_check_dtype(output, dtype, "output 0", reason, size);
  for (uint32_t i = 0; code == DVT_OK && i < ctx->input_count; ++i) {
    if (!dvt_has_input(ctx, i)) continue;
    const DvtTensor* input = dvt_input_tensor(ctx, i);
    code = dvt_check_dtype(input, dtype, "inputs", reason, size);
    if (code == DVT_OK && i > 0 && dvt_tensor_elements(input) != 1) {
      return dvt_refuse(reason, size, "input %u: expected one element, got %lld", i,
                        (long long)dvt_tensor_elements(input));
    }
  }
  return code;
}

static DvtCode check_where(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 3, 3, 1, 1, reason, size);
  if (code != DVT_OK) return code;
  const DvtDType dtype = dvt_output_tensor(ctx, 0)->dtype;
  code = dvt_check_dtype(dvt_input_tensor(ctx, 0), DVT_BOOL, "input 0", reason, size);
  for (uint32_t i = 1; code == DVT_OK && i < 3; ++i) {
    code = dvt_check_dtype(dvt_input_tensor(ctx, i), dtype, "inputs 1 and 2", reason, size);
  }
  return code == DVT_OK ? dvt_check_broadcast(ctx, -1, reason, size) : code;
}

static DvtCode check_cast(const DvtContext* ctx, char* reason, size_t size) {
  const DvtCode code = dvt_check_counts(ctx, 1, 1, 1, 1, reason, size);
  if (code != DVT_OK) return code;
  return dvt_check_same_shape(dvt_input_tensor(ctx, 0), dvt_output_tensor(ctx, 0), "output 0",
                              reason, size);
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
#define DVT_UNARY DVT_COMMON_IN_PLACE, .input_min = 1, .input_max = 1
#define DVT_PREDICATE DVT_COMMON, .input_min = 1, .input_max = 1
#define DVT_VARIADIC DVT_COMMON_IN_PLACE, .input_min = 1, .input_max = UINT16_MAX
#define DVT_BINARY_RECORD                                                         \
  .input_min = 2, .input_max = 2, .attribute_bytes = sizeof(DvtBinaryAttributes), \
  .attribute_count = 1, .attributes = binary_attributes
#define DVT_BINARY DVT_COMMON_IN_PLACE, DVT_BINARY_RECORD
#define DVT_COMPARISON DVT_COMMON, DVT_BINARY_RECORD
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
  return check_placed(ctx, DVT_BOOL, DVT_BOOL, false, reason, size);
}

DvtKernelTable dvt_kernels_elementwise(void) {
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
       .run = run_where,
       .check = check_where},
      {.name = "Cast",
       DVT_COMMON,
       .input_min = 1,
       .input_max = 1,
       .run = run_cast,
       .check = check_cast},
  };
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
