#include "ops/kernels/elementwise_special.h"

#include "ops/kernels/common.h"
#include "ops/kernels/elementwise.h"
#include "ops/kernels/elementwise_loops.h"
#include "ops/kernels/shape.h"

/* ---- Binary operators -------------------------------------------------------------------------
 */

DvtCode dvt_infer_binary(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  const DvtCode code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtBinaryAttributes* attributes = ctx->attributes;
  return dvt_infer_placed(ctx, attributes->axis, outputs, reason, size);
}

DvtCode dvt_infer_prelu(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  const DvtCode code = dvt_infer_binary(ctx, outputs, reason, size);
  if (code != DVT_OK) return code;
  return dvt_check_same_shape(dvt_input_tensor(ctx, 0), &outputs[0], "x and slope together", reason,
                              size);
}

/* ---- Pow ------------------------------------------------------------------------------------- */

DvtCode dvt_run_pow(void* context) {
  const DvtContext* ctx = context;
  const DvtBinaryAttributes* attributes = ctx->attributes;
  const DvtNumericLoops* loops = dvt_numeric_loops(dvt_input_tensor(ctx, 0)->dtype);
  DvtOperand exponent = dvt_map_input(ctx, 1);
  const DvtConvertLoop to_i64 = dvt_exponent_loop(exponent.tensor->dtype);
  exponent.convert = to_i64 != NULL ? to_i64 : dvt_widen_loop(exponent.tensor->dtype);
  exponent.loop_size = sizeof(double);
  const DvtMap map = {.loop = to_i64 != NULL ? loops->pow_i64 : loops->pow_f64,
                      .input_count = 2,
                      .inputs = {dvt_map_input(ctx, 0), exponent},
                      .output = dvt_map_output(ctx)};
  return dvt_map_run(&map, attributes->axis);
}

DvtCode dvt_check_pow(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) code = dvt_check_counts(ctx, 2, 2, 1, 1, reason, size);
  if (code == DVT_OK) {
    code = dvt_check_dtype(dvt_input_tensor(ctx, 0), dtype, "input 0", reason, size);
  }
  if (code == DVT_OK) {
    code = dvt_check_dtype(dvt_output_tensor(ctx, 0), dtype, "output 0", reason, size);
  }
  if (code != DVT_OK) return code;
  if (dvt_input_tensor(ctx, 1)->dtype == DVT_BOOL) {
    return dvt_refuse(reason, size, "input 1: expected a number, got bool");
  }
  return dvt_check_inferred(ctx, dvt_infer_binary, 0, reason, size);
}

/* ---- Clip ------------------------------------------------------------------------------------ */

DvtCode dvt_run_clip(void* context) {
  const DvtContext* ctx = context;
  const DvtClipAttributes* attributes = ctx->attributes;
  const double defaults[2] = {attributes->min, attributes->max};
  const DvtOperand input = dvt_map_input(ctx, 0);
  const DvtDType dtype = input.convert != NULL ? DVT_F32 : input.tensor->dtype;
  const DvtConvertLoop from_f64 = dvt_narrow_loop(DVT_F64, dtype);
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
  const DvtMap map = {.loop = dvt_numeric_loops(input.tensor->dtype)->clip,
                      .parameters = bounds,
                      .input_count = 1,
                      .inputs = {input},
                      .output = dvt_map_output(ctx)};
  return dvt_map_run(&map, -1);
}

DvtCode dvt_check_clip(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) code = dvt_check_counts(ctx, 1, 3, 1, 1, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* output = dvt_output_tensor(ctx, 0);
  code = dvt_check_dtype(output, dtype, "output 0", reason, size);
  if (code == DVT_OK) code = dvt_check_inferred(ctx, dvt_infer_same, 0, reason, size);
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

/* ---- Where ----------------------------------------------------------------------------------- */

DvtCode dvt_run_where(void* context) {
  const DvtContext* ctx = context;
  DvtMap map = {.input_count = 3, .output = dvt_map_output(ctx)};
  /* Elements are picked, not computed with: no operand is converted. */
  DvtOperand* operands[] = {&map.inputs[0], &map.inputs[1], &map.inputs[2], &map.output};
  for (uint32_t i = 0; i < 4; ++i) {
    if (i < 3) *operands[i] = dvt_map_input(ctx, i);
    operands[i]->loop_size = operands[i]->size;
    operands[i]->convert = NULL;
  }
  map.loop = dvt_where_loop(map.output.size);
  return dvt_map_run(&map, -1);
}

DvtCode dvt_check_where(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 3, 3, 1, 1, reason, size);
  if (code != DVT_OK) return code;
  const DvtDType dtype = dvt_output_tensor(ctx, 0)->dtype;
  code = dvt_check_dtype(dvt_input_tensor(ctx, 0), DVT_BOOL, "input 0", reason, size);
  for (uint32_t i = 1; code == DVT_OK && i < 3; ++i) {
    code = dvt_check_dtype(dvt_input_tensor(ctx, i), dtype, "inputs 1 and 2", reason, size);
  }
  return code == DVT_OK ? dvt_check_inferred(ctx, dvt_infer_broadcast, 0, reason, size) : code;
}

/* ---- Cast ------------------------------------------------------------------------------------ */

DvtCode dvt_run_cast(void* context) {
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

DvtCode dvt_check_cast(const DvtContext* ctx, char* reason, size_t size) {
  const DvtCode code = dvt_check_counts(ctx, 1, 1, 1, 1, reason, size);
  if (code != DVT_OK) return code;
  return dvt_check_inferred(ctx, dvt_infer_same, 0, reason, size);
}
