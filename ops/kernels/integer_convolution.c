#include "ops/kernels/integer_convolution.h"

#include <inttypes.h>

#include "ops/kernels/cost.h"
#include "ops/kernels/element.h"
#include "ops/kernels/integer_matrix.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/quantisation.h"
#include "ops/kernels/shape.h"

enum { BLOCK = 512 };

/* Which input is which; ABSENT where the operator has none such. */
typedef struct Roles {
  uint32_t x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias;
} Roles;
enum { ABSENT = UINT16_MAX };
static const Roles integer_roles = {.x = 0,
                                    .w = 1,
                                    .x_zero = 2,
                                    .w_zero = 3,
                                    .x_scale = ABSENT,
                                    .w_scale = ABSENT,
                                    .y_scale = ABSENT,
                                    .y_zero = ABSENT,
                                    .bias = ABSENT};
static const Roles linear_roles = {.x = 0,
                                   .x_scale = 1,
                                   .x_zero = 2,
                                   .w = 3,
                                   .w_scale = 4,
                                   .w_zero = 5,
                                   .y_scale = 6,
                                   .y_zero = 7,
                                   .bias = 8};

/* ---- Shapes ---------------------------------------------------------------------------------- */

static DvtCode describe(const DvtContext* ctx, const Roles* roles, DvtConv* conv, char* reason,
                        size_t size) {
  return dvt_conv_describe(ctx->attributes, dvt_input_tensor(ctx, roles->x),
                           dvt_input_tensor(ctx, roles->w), conv, reason, size);
}

static DvtCode infer_shape(const DvtContext* ctx, const Roles* roles, DvtTensor* outputs,
                           char* reason, size_t size) {
  DvtCode code = dvt_check_attributes(ctx, reason, size);
  DvtConv conv;
  if (code == DVT_OK) code = describe(ctx, roles, &conv, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* x = dvt_input_tensor(ctx, roles->x);
  const DvtTensor* w = dvt_input_tensor(ctx, roles->w);
  return dvt_window_infer(&conv.window, x->rank, x->dims[0], w->dims[0], &outputs[0], reason, size);
}

static DvtCode infer_integer(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  const DvtCode code = dvt_check_inputs(ctx, 2, 4, reason, size);
  return code == DVT_OK ? infer_shape(ctx, &integer_roles, outputs, reason, size) : code;
}
static DvtCode infer_linear(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  const DvtCode code = dvt_check_inputs(ctx, 8, 9, reason, size);
  return code == DVT_OK ? infer_shape(ctx, &linear_roles, outputs, reason, size) : code;
}

static void cost_of(const DvtContext* ctx, const Roles* roles, DvtTaskCost* cost) {
  const DvtTensor* w = dvt_input_tensor(ctx, roles->w);
  const DvtTensor* y = dvt_output_tensor(ctx, 0);
  dvt_cost_traffic(ctx, 1, cost);
  cost->kind = DVT_TASK_CONV;
  cost->batch = (uint64_t)((const DvtConvAttributes*)ctx->attributes)->group;
  cost->m = (uint64_t)y->dims[0] * dvt_cost_volume(y, 2, y->rank);
  cost->n = (uint64_t)w->dims[0] / cost->batch;
  cost->k = (uint64_t)w->dims[1] * dvt_cost_volume(w, 2, w->rank);
}
static void cost_integer(const DvtContext* ctx, DvtTaskCost* cost) {
  cost_of(ctx, &integer_roles, cost);
}
static void cost_linear(const DvtContext* ctx, DvtTaskCost* cost) {
  cost_of(ctx, &linear_roles, cost);
}

/* ---- Scales and zero points ------------------------------------------------------------------ */

/* That of filter m; `absent` when there is none. */
static double parameter_at(const DvtContext* ctx, uint32_t index, int64_t m, double absent) {
  if (!dvt_has_input(ctx, index)) return absent;
  const DvtTensor* tensor = dvt_input_tensor(ctx, index);
  return dvt_load_real(dvt_input_data(ctx, index), tensor->dtype,
                       dvt_tensor_elements(tensor) == 1 ? 0 : m);
}

/* One element, or one for each of `filters` (0: only one). */
static DvtCode check_parameter(const DvtContext* ctx, uint32_t index, int64_t filters,
                               const char* what, char* reason, size_t size) {
  if (!dvt_has_input(ctx, index)) return DVT_OK;
  const DvtTensor* tensor = dvt_input_tensor(ctx, index);
  if (dvt_tensor_elements(tensor) == 1 && tensor->rank <= 1) return DVT_OK;
  return dvt_check_shape(tensor, filters > 0 ? 1 : 0, &filters, what, reason, size);
}

/* ---- The sums -------------------------------------------------------------------------------- */

/* Where one row of outputs lies. */
typedef struct Row {
  int64_t n, m;        /* Image and filter. */
  int64_t depth, line; /* Of the output. */
  int64_t from, count; /* Its columns. */
} Row;

/* Adds one kernel position to the sums of a row. `at` is the index in X of its line's first
 * column. */
static void add_tap(const DvtContext* ctx, const Roles* roles, const DvtWindow* window, Row row,
                    int64_t at, int64_t kw, uint32_t factor, uint32_t x_zero, uint32_t* sums) {
  /* Columns of the row that look inside: first <= o * stride + shift < in. */
  const int64_t stride = window->stride[2];
  const int64_t shift = kw * window->dilation[2] - window->pad[2];
  int64_t first = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
  int64_t end = shift >= window->in[2] ? 0 : (window->in[2] - 1 - shift) / stride + 1;
  first = first < row.from ? row.from : first;
  end = end > row.from + row.count ? row.from + row.count : end;
  if (first >= end) return;
  const char* x = dvt_input_data(ctx, roles->x);
  dvt_accumulate_bytes(sums + (first - row.from), x + at + first * stride + shift,
                       dvt_input_tensor(ctx, roles->x)->dtype, stride, x_zero, factor, end - first);
}

static void sum_row(const DvtContext* ctx, const Roles* roles, const DvtConv* conv, Row row,
                    uint32_t* sums) {
  const DvtWindow* window = &conv->window;
  const DvtDType w_dtype = dvt_input_tensor(ctx, roles->w)->dtype;
  const void* w = dvt_input_data(ctx, roles->w);
  const uint32_t x_zero = (uint32_t)(int32_t)parameter_at(ctx, roles->x_zero, 0, 0.0);
  const uint32_t w_zero = (uint32_t)(int32_t)parameter_at(ctx, roles->w_zero, row.m, 0.0);
  const int64_t in_volume = dvt_volume(window->in);
  const int64_t group = row.m / conv->out_channels;
  int64_t w_at = row.m * conv->in_channels * dvt_volume(window->kernel);
  int64_t x_at = (row.n * conv->group + group) * conv->in_channels * in_volume;
  for (int64_t c = 0; c < conv->in_channels; ++c, x_at += in_volume) {
    for (int64_t kd = 0; kd < window->kernel[0]; ++kd) {
      const int64_t d = row.depth * window->stride[0] - window->pad[0] + kd * window->dilation[0];
      for (int64_t kh = 0; kh < window->kernel[1]; ++kh) {
        const int64_t h = row.line * window->stride[1] - window->pad[1] + kh * window->dilation[1];
        const bool inside = d >= 0 && d < window->in[0] && h >= 0 && h < window->in[1];
        const int64_t at = x_at + (d * window->in[1] + h) * window->in[2];
        for (int64_t kw = 0; inside && kw < window->kernel[2]; ++kw) {
          const uint32_t factor = (uint32_t)dvt_load_integer(w, w_dtype, w_at + kw) - w_zero;
          add_tap(ctx, roles, window, row, at, kw, factor, x_zero, sums);
        }
        w_at += window->kernel[2];
      }
    }
  }
}

static void store_linear(const DvtContext* ctx, Row row, int64_t at, const uint32_t* sums) {
  const Roles* roles = &linear_roles;
  uint8_t* y = (uint8_t*)dvt_output_data(ctx, 0) + at;
  float low = 0.0f;
  float high = 0.0f;
  (void)dvt_quantised_range(dvt_output_tensor(ctx, 0)->dtype, &low, &high);
  const float x_scale = (float)parameter_at(ctx, roles->x_scale, 0, 1.0);
  const float w_scale = (float)parameter_at(ctx, roles->w_scale, row.m, 1.0);
  const float y_scale = (float)parameter_at(ctx, roles->y_scale, 0, 1.0);
  const float zero = (float)parameter_at(ctx, roles->y_zero, 0, 0.0);
  const uint32_t bias = dvt_has_input(ctx, roles->bias)
                            ? (uint32_t)((const int32_t*)dvt_input_data(ctx, roles->bias))[row.m]
                            : 0;
  const float scale = x_scale * w_scale / y_scale;
  for (int64_t i = 0; i < row.count; ++i) {
    y[i] = (uint8_t)dvt_quantise((float)(int32_t)(sums[i] + bias) * scale, zero, low, high);
  }
}

static DvtCode run_conv(const DvtContext* ctx, const Roles* roles) {
  if (dvt_output_tensor(ctx, 0)->bytes == 0) return DVT_OK;
  DvtConv conv;
  const DvtCode code = describe(ctx, roles, &conv, NULL, 0);
  if (code != DVT_OK) return code;
  const int64_t* out = conv.window.out;
  uint32_t sums[BLOCK];
  Row row = {0};
  int64_t at = 0;
  for (row.n = 0; row.n < conv.batch; ++row.n) {
    for (row.m = 0; row.m < conv.group * conv.out_channels; ++row.m) {
      for (int64_t line = 0; line < out[0] * out[1]; ++line) {
        row.depth = line / out[1];
        row.line = line % out[1];
        for (row.from = 0; row.from < out[2]; row.from += BLOCK) {
          row.count = out[2] - row.from < BLOCK ? out[2] - row.from : BLOCK;
          memset(sums, 0, (size_t)row.count * sizeof sums[0]);
          sum_row(ctx, roles, &conv, row, sums);
          if (roles == &linear_roles) {
            store_linear(ctx, row, at, sums);
          } else {
            memcpy((int32_t*)dvt_output_data(ctx, 0) + at, sums,
                   (size_t)row.count * sizeof sums[0]);
          }
          at += row.count;
        }
      }
    }
  }
  return DVT_OK;
}

/* ---- Checks ---------------------------------------------------------------------------------- */

static bool is_byte(DvtDType dtype) {
  return dtype == DVT_U8 || dtype == DVT_I8;
}

static DvtCode check_operands(const DvtContext* ctx, const Roles* roles, DvtDType dtype,
                              char* reason, size_t size) {
  DvtCode code = dvt_check_dtype(dvt_input_tensor(ctx, roles->x), dtype, "X", reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* w = dvt_input_tensor(ctx, roles->w);
  if (!is_byte(w->dtype)) {
    return dvt_refuse(reason, size, "W: expected dtype u8 or i8, got %s", dvt_dtype_text(w->dtype));
  }
  if (dvt_has_input(ctx, roles->x_zero)) {
    code = dvt_check_dtype(dvt_input_tensor(ctx, roles->x_zero), dtype, "zero point of X", reason,
                           size);
  }
  if (code == DVT_OK && dvt_has_input(ctx, roles->w_zero)) {
    code = dvt_check_dtype(dvt_input_tensor(ctx, roles->w_zero), w->dtype, "zero point of W",
                           reason, size);
  }
  if (code == DVT_OK)
    code = check_parameter(ctx, roles->x_zero, 0, "zero point of X", reason, size);
  if (code != DVT_OK) return code;
  return check_parameter(ctx, roles->w_zero, w->rank > 0 ? w->dims[0] : 0, "zero point of W",
                         reason, size);
}

static DvtCode check_integer(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 2, 4, 1, 1, reason, size);
  if (code == DVT_OK) code = check_operands(ctx, &integer_roles, dtype, reason, size);
  if (code == DVT_OK) code = dvt_check_dtype(dvt_output_tensor(ctx, 0), DVT_I32, "Y", reason, size);
  return code == DVT_OK ? dvt_check_inferred(ctx, infer_integer, 0, reason, size) : code;
}

static DvtCode check_scale(const DvtContext* ctx, uint32_t index, int64_t filters, const char* what,
                           char* reason, size_t size) {
  const DvtDType dtype = dvt_input_tensor(ctx, index)->dtype;
  if (dtype != DVT_F32 && !dvt_dtype_is_half(dtype)) {
    return dvt_refuse(reason, size, "%s: expected dtype f32, f16 or bf16, got %s", what,
                      dvt_dtype_text(dtype));
  }
  return check_parameter(ctx, index, filters, what, reason, size);
}

static DvtCode check_linear(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  const Roles* roles = &linear_roles;
  DvtCode code = dvt_check_counts(ctx, 8, 9, 1, 1, reason, size);
  if (code == DVT_OK) code = check_operands(ctx, roles, dtype, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* w = dvt_input_tensor(ctx, roles->w);
  const int64_t filters = w->rank > 0 ? w->dims[0] : 0;
  code = check_scale(ctx, roles->x_scale, 0, "scale of X", reason, size);
  if (code == DVT_OK) {
    code = check_scale(ctx, roles->w_scale, filters, "scale of W", reason, size);
  }
  if (code == DVT_OK) code = check_scale(ctx, roles->y_scale, 0, "scale of Y", reason, size);
  if (code != DVT_OK) return code;
  const DvtDType y = dvt_output_tensor(ctx, 0)->dtype;
  if (!is_byte(y)) {
    return dvt_refuse(reason, size, "Y: expected dtype u8 or i8, got %s", dvt_dtype_text(y));
  }
  code = dvt_check_dtype(dvt_input_tensor(ctx, roles->y_zero), y, "zero point of Y", reason, size);
  if (code == DVT_OK)
    code = check_parameter(ctx, roles->y_zero, 0, "zero point of Y", reason, size);
  if (code == DVT_OK && dvt_has_input(ctx, roles->bias)) {
    const DvtTensor* bias = dvt_input_tensor(ctx, roles->bias);
    code = dvt_check_dtype(bias, DVT_I32, "B", reason, size);
    if (code == DVT_OK) code = dvt_check_shape(bias, 1, &filters, "B", reason, size);
  }
  return code == DVT_OK ? dvt_check_inferred(ctx, infer_linear, 0, reason, size) : code;
}

/* ---- Table ----------------------------------------------------------------------------------- */

static DvtCode run_integer(const DvtContext* ctx, DvtDType dtype) {
  (void)dtype;
  return run_conv(ctx, &integer_roles);
}
static DvtCode run_linear(const DvtContext* ctx, DvtDType dtype) {
  (void)dtype;
  return run_conv(ctx, &linear_roles);
}

DVT_TYPED_KERNEL(integer, u8, DVT_U8)
DVT_TYPED_KERNEL(integer, i8, DVT_I8)
DVT_TYPED_KERNEL(linear, u8, DVT_U8)
DVT_TYPED_KERNEL(linear, i8, DVT_I8)

static const DvtAttribute conv_attributes[] = {
    {"group", offsetof(DvtConvAttributes, group), 1, 'i'},
    {"strides", offsetof(DvtConvAttributes, window.strides), DVT_SPATIAL_MAX, 'i'},
    {"dilations", offsetof(DvtConvAttributes, window.dilations), DVT_SPATIAL_MAX, 'i'},
    {"pads_begin", offsetof(DvtConvAttributes, window.pads_begin), DVT_SPATIAL_MAX, 'i'},
    {"pads_end", offsetof(DvtConvAttributes, window.pads_end), DVT_SPATIAL_MAX, 'i'},
    {"auto_pad", offsetof(DvtConvAttributes, window.auto_pad), 1, 'i'},
};

#define CONV_KERNEL(kernel_name, inputs_min, inputs_max, family, suffix)               \
  {                                                                                    \
    .name = (kernel_name), .abi_version = DVT_KERNEL_ABI_VERSION,                      \
    .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE, .input_min = (inputs_min),           \
    .input_max = (inputs_max), .output_min = 1, .output_max = 1,                       \
    .attribute_bytes = sizeof(DvtConvAttributes),                                      \
    .attribute_count = sizeof conv_attributes / sizeof conv_attributes[0],             \
    .attributes = conv_attributes, .run = run_##family##_##suffix,                     \
    .check = check_##family##_##suffix, .infer = infer_##family, .cost = cost_##family \
  }

DvtKernelTable dvt_kernels_integer_convolution(void) {
  static const DvtKernel kernels[] = {
      CONV_KERNEL("ConvInteger.u8", 2, 4, integer, u8),
      CONV_KERNEL("ConvInteger.i8", 2, 4, integer, i8),
      CONV_KERNEL("QLinearConv.u8", 8, 9, linear, u8),
      CONV_KERNEL("QLinearConv.i8", 8, 9, linear, i8),
  };
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
