#include "ops/kernels/common.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

DvtCode dvt_refuse(char* reason, size_t size, const char* format, ...) {
  if (reason != NULL && size > 0) {
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(reason, size, format, arguments);
    va_end(arguments);
  }
  return DVT_INVALID_ARGUMENT;
}

const char* dvt_dtype_text(DvtDType dtype) {
  static const char* const names[] = {
      [DVT_F32] = "f32",   [DVT_U8] = "u8",     [DVT_I8] = "i8",   [DVT_U16] = "u16",
      [DVT_I16] = "i16",   [DVT_I32] = "i32",   [DVT_I64] = "i64", [DVT_STRING] = "string",
      [DVT_BOOL] = "bool", [DVT_F16] = "f16",   [DVT_F64] = "f64", [DVT_U32] = "u32",
      [DVT_U64] = "u64",   [DVT_BF16] = "bf16",
  };
  if (dtype >= sizeof names / sizeof names[0] || names[dtype] == NULL) return "?";
  return names[dtype];
}

const char* dvt_dims_text(uint32_t rank, const int64_t* dims, char text[DVT_SHAPE_TEXT]) {
  /* Eight numbers of 20 characters, commas and brackets always fit. */
  static_assert(DVT_SHAPE_TEXT > DVT_MAX_RANK * 21 + 2, "text buffer");
  int length = snprintf(text, DVT_SHAPE_TEXT, "[");
  for (uint32_t i = 0; i < rank; ++i) {
    length += snprintf(text + length, DVT_SHAPE_TEXT - (size_t)length, i ? ",%" PRId64 : "%" PRId64,
                       dims[i]);
  }
  (void)snprintf(text + length, DVT_SHAPE_TEXT - (size_t)length, "]");
  return text;
}

const char* dvt_shape_text(const DvtTensor* tensor, char text[DVT_SHAPE_TEXT]) {
  return dvt_dims_text(tensor->rank < DVT_MAX_RANK ? tensor->rank : DVT_MAX_RANK, tensor->dims,
                       text);
}

static DvtCode check_present(const DvtCell* cell, uint32_t index, bool required, bool strings,
                             const char* what, char* reason, size_t size) {
  if (cell == NULL) {
    return required ? dvt_refuse(reason, size, "%s %u is absent", what, index) : DVT_OK;
  }
  if (cell->tensor == NULL) return dvt_refuse(reason, size, "%s %u has no tensor", what, index);
  if (dvt_dtype_size(cell->tensor->dtype) == 0 || (cell->tensor->dtype == DVT_STRING && !strings)) {
    return dvt_refuse(reason, size, "%s %u has dtype %s, which the kernel does not take", what,
                      index, dvt_dtype_text(cell->tensor->dtype));
  }
  return DVT_OK;
}

static DvtCode check_inputs(const DvtContext* ctx, uint32_t input_min, uint32_t input_max,
                            bool strings, char* reason, size_t size) {
  if (ctx->input_count < input_min || ctx->input_count > input_max) {
    return dvt_refuse(reason, size, "expected %u to %u inputs, got %u", input_min, input_max,
                      ctx->input_count);
  }
  for (uint32_t i = 0; i < ctx->input_count; ++i) {
    const DvtCode code =
        check_present(dvt_input(ctx, i), i, i < input_min, strings, "input", reason, size);
    if (code != DVT_OK) return code;
  }
  return DVT_OK;
}

static DvtCode check_counts(const DvtContext* ctx, uint32_t input_min, uint32_t input_max,
                            uint32_t output_min, uint32_t output_max, bool strings, char* reason,
                            size_t size) {
  const DvtCode inputs = check_inputs(ctx, input_min, input_max, strings, reason, size);
  if (inputs != DVT_OK) return inputs;
  if (ctx->output_count < output_min || ctx->output_count > output_max) {
    return dvt_refuse(reason, size, "expected %u to %u outputs, got %u", output_min, output_max,
                      ctx->output_count);
  }
  for (uint32_t i = 0; i < ctx->output_count; ++i) {
    const DvtCode code =
        check_present(dvt_output(ctx, i), i, i < output_min, strings, "output", reason, size);
    if (code != DVT_OK) return code;
  }
  return DVT_OK;
}

DvtCode dvt_check_inputs(const DvtContext* ctx, uint32_t input_min, uint32_t input_max,
                         char* reason, size_t size) {
  return check_inputs(ctx, input_min, input_max, false, reason, size);
}
DvtCode dvt_check_any_inputs(const DvtContext* ctx, uint32_t input_min, uint32_t input_max,
                             char* reason, size_t size) {
  return check_inputs(ctx, input_min, input_max, true, reason, size);
}
DvtCode dvt_check_counts(const DvtContext* ctx, uint32_t input_min, uint32_t input_max,
                         uint32_t output_min, uint32_t output_max, char* reason, size_t size) {
  return check_counts(ctx, input_min, input_max, output_min, output_max, false, reason, size);
}
DvtCode dvt_check_any_counts(const DvtContext* ctx, uint32_t input_min, uint32_t input_max,
                             uint32_t output_min, uint32_t output_max, char* reason, size_t size) {
  return check_counts(ctx, input_min, input_max, output_min, output_max, true, reason, size);
}

DvtCode dvt_check_attributes(const DvtContext* ctx, char* reason, size_t size) {
  if (ctx->attributes != NULL) return DVT_OK;
  return dvt_refuse(reason, size, "the attribute record is absent");
}

DvtCode dvt_check_dtype(const DvtTensor* tensor, DvtDType dtype, const char* what, char* reason,
                        size_t size) {
  if (tensor->dtype == dtype) return DVT_OK;
  return dvt_refuse(reason, size, "%s: expected dtype %s, got %s", what, dvt_dtype_text(dtype),
                    dvt_dtype_text(tensor->dtype));
}

DvtCode dvt_check_dtypes(const DvtContext* ctx, uint32_t inputs, uint32_t outputs, DvtDType dtype,
                         char* reason, size_t size) {
  char what[24];
  for (uint32_t i = 0; i < ctx->input_count + (uint32_t)ctx->output_count; ++i) {
    const bool is_input = i < ctx->input_count;
    const uint32_t index = is_input ? i : i - ctx->input_count;
    if (index >= 32 || ((is_input ? inputs : outputs) >> index & 1u) == 0) continue;
    const DvtCell* cell = is_input ? dvt_input(ctx, index) : dvt_output(ctx, index);
    if (cell == NULL) continue;
    (void)snprintf(what, sizeof what, is_input ? "input %u" : "output %u", index);
    const DvtCode code = dvt_check_dtype(cell->tensor, dtype, what, reason, size);
    if (code != DVT_OK) return code;
  }
  return DVT_OK;
}

DvtCode dvt_check_shape(const DvtTensor* tensor, uint32_t rank, const int64_t* dims,
                        const char* what, char* reason, size_t size) {
  if (tensor->rank == rank && memcmp(tensor->dims, dims, rank * sizeof dims[0]) == 0) return DVT_OK;
  char expected[DVT_SHAPE_TEXT];
  char got[DVT_SHAPE_TEXT];
  return dvt_refuse(reason, size, "%s: expected shape %s, got %s", what,
                    dvt_dims_text(rank, dims, expected), dvt_shape_text(tensor, got));
}

DvtCode dvt_check_same_shape(const DvtTensor* expected, const DvtTensor* got, const char* what,
                             char* reason, size_t size) {
  return dvt_check_shape(got, expected->rank, expected->dims, what, reason, size);
}

void dvt_row_major_strides(const DvtTensor* tensor, int64_t strides[DVT_MAX_RANK]) {
  int64_t stride = tensor->bytes == 0 ? 0 : 1;
  for (uint32_t i = DVT_MAX_RANK; i > 0; --i) {
    const bool inside = i <= tensor->rank;
    strides[i - 1] = inside ? stride : 0;
    if (inside) stride *= tensor->dims[i - 1];
  }
}
