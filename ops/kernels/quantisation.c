#include "ops/kernels/quantisation.h"

#include <inttypes.h>

#include "ops/kernels/convert.h"
#include "ops/kernels/element.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/shape.h"

enum { BLOCK = 256 };

/* x as [outer, extent, inner], and what part of scale is whose. */
typedef struct Layout {
  int64_t outer, extent, inner;
  int64_t block;  /* Elements along extent that share a scale. */
  int64_t blocks; /* Along extent. */
  bool per_inner; /* scale also has the inner axes. */
} Layout;

static DvtCode describe_axis(const DvtContext* ctx, Layout* layout, uint32_t axis, char* reason,
                             size_t size) {
  const DvtQuantizeAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  const DvtTensor* scale = dvt_input_tensor(ctx, 1);
  const int64_t block = attributes->block_size;
  const int64_t extent = x->dims[axis];
  /* An empty tensor has no elements to scale, and its other dims may be anything. */
  *layout = (Layout){.outer = 1, .extent = extent, .inner = 1, .block = 1, .blocks = extent};
  for (uint32_t i = 0; x->bytes > 0 && i < x->rank; ++i) {
    if (i < axis) layout->outer *= x->dims[i];
    if (i > axis) layout->inner *= x->dims[i];
  }
  if (block == 0) return dvt_check_shape(scale, 1, &extent, "scale", reason, size);
  layout->block = block;
  layout->blocks = extent / block + (extent % block != 0);
  layout->per_inner = true;
  int64_t dims[DVT_MAX_RANK];
  for (uint32_t i = 0; i < x->rank; ++i) dims[i] = i == axis ? layout->blocks : x->dims[i];
  return dvt_check_shape(scale, x->rank, dims, "scale", reason, size);
}

static DvtCode describe(const DvtContext* ctx, Layout* layout, char* reason, size_t size) {
  const DvtQuantizeAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  const DvtTensor* scale = dvt_input_tensor(ctx, 1);
  if (attributes->block_size < 0) {
    return dvt_refuse(reason, size, "block_size: expected 0 or more, got %" PRId64,
                      attributes->block_size);
  }
  if (attributes->block_size == 0 && scale->rank <= 1 && dvt_tensor_elements(scale) == 1) {
    const int64_t elements = dvt_tensor_elements(x);
    *layout = (Layout){
        .outer = 1, .extent = 1, .inner = elements, .block = 1, .blocks = 1, .per_inner = false};
    return DVT_OK;
  }
  uint32_t axis = 0;
  const DvtCode code = dvt_normalise_axis(attributes->axis, x->rank, &axis, reason, size);
  return code == DVT_OK ? describe_axis(ctx, layout, axis, reason, size) : code;
}

static bool is_scale(DvtDType dtype) {
  return dtype == DVT_F32 || dtype == DVT_F16 || dtype == DVT_BF16;
}

static DvtCode infer_linear(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 2, 3, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  Layout layout;
  if (code == DVT_OK) code = describe(ctx, &layout, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  return dvt_infer_shape(&outputs[0], x->rank, x->dims, "output 0", reason, size);
}

static DvtCode check_linear(const DvtContext* ctx, DvtDType quantised, char* reason, size_t size) {
  const DvtTensor* scale = dvt_input_tensor(ctx, 1);
  if (!is_scale(scale->dtype)) {
    return dvt_refuse(reason, size, "scale: expected dtype f32, f16 or bf16, got %s",
                      dvt_dtype_text(scale->dtype));
  }
  if (dvt_has_input(ctx, 2)) {
    const DvtTensor* zero = dvt_input_tensor(ctx, 2);
    const DvtCode code = dvt_check_dtype(zero, quantised, "zero_point", reason, size);
    if (code != DVT_OK) return code;
    const bool single = dvt_tensor_elements(scale) == 1 && dvt_tensor_elements(zero) == 1;
    if (!single) {
      const DvtCode shape = dvt_check_same_shape(scale, zero, "zero_point", reason, size);
      if (shape != DVT_OK) return shape;
    }
  }
  return dvt_check_inferred(ctx, infer_linear, 0, reason, size);
}

/* ---- Segments -------------------------------------------------------------------------------- */

/* `count` elements of x and y from `at`, whose scales are at `scale`, `scale` + step, ... */
typedef struct Segment {
  int64_t at, count;
  int64_t scale, step;
} Segment;
typedef void (*SegmentFn)(const DvtContext* ctx, Segment segment);

static void each_segment(const DvtContext* ctx, SegmentFn fn) {
  if (dvt_input_tensor(ctx, 0)->bytes == 0) return;
  Layout layout;
  if (describe(ctx, &layout, NULL, 0) != DVT_OK) return; /* check() has seen that it is. */
  const int64_t row = layout.extent * layout.inner;
  for (int64_t o = 0; o < layout.outer; ++o) {
    const int64_t scales = layout.per_inner ? o * layout.blocks * layout.inner : 0;
    if (layout.inner == 1 && layout.block == 1) {
      fn(ctx, (Segment){o * row, row, scales, layout.extent > 1});
      continue;
    }
    const int64_t together = layout.inner == 1 ? layout.block : 1;
    for (int64_t d = 0; d < layout.extent; d += together) {
      const int64_t left = layout.extent - d;
      const int64_t block = d / layout.block;
      fn(ctx, (Segment){.at = o * row + d * layout.inner,
                        .count = (left < together ? left : together) * layout.inner,
                        .scale = scales + block * (layout.per_inner ? layout.inner : 1),
                        .step = layout.per_inner && layout.inner > 1});
    }
  }
}

/* Elements as floats (i32 rounds) and as doubles (exact), `dtype` a constant at each call. */
DVT_INLINE void each_float(const void* data, DvtDType dtype, int64_t from, int64_t step,
                           int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = (float)dvt_load_real(data, dtype, from + i * step);
}
DVT_INLINE void each_double(const void* data, DvtDType dtype, int64_t from, int64_t step,
                            int64_t count, double* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = dvt_load_real(data, dtype, from + i * step);
}

/* `count` elements, each `step` (0 or 1) after the last: scales and inputs of QuantizeLinear, and
 * zero points up to 16 bits. */
static void load_floats(const void* data, DvtDType dtype, int64_t from, int64_t step, int64_t count,
                        float* out) {
  switch (dtype) {
    case DVT_F32:
      each_float(data, DVT_F32, from, step, count, out);
      return;
    case DVT_F16:
      each_float(data, DVT_F16, from, step, count, out);
      return;
    case DVT_BF16:
      each_float(data, DVT_BF16, from, step, count, out);
      return;
    default:
      each_float(data, dtype, from, step, count, out);
      return;
  }
}

/* The same of a quantised dtype or i32. */
static void load_doubles(const void* data, DvtDType dtype, int64_t from, int64_t step,
                         int64_t count, double* out) {
  switch (dtype) {
    case DVT_U8:
      each_double(data, DVT_U8, from, step, count, out);
      return;
    case DVT_I8:
      each_double(data, DVT_I8, from, step, count, out);
      return;
    default:
      each_double(data, dtype, from, step, count, out);
      return;
  }
}

/* ---- QuantizeLinear -------------------------------------------------------------------------- */

static void store_quantised(const int32_t* values, void* data, DvtDType dtype, int64_t from,
                            int64_t count) {
  if (dvt_dtype_size(dtype) == 1) {
    uint8_t* out = (uint8_t*)data + from;
    for (int64_t i = 0; i < count; ++i) out[i] = (uint8_t)values[i];
  } else {
    uint16_t* out = (uint16_t*)data + from;
    for (int64_t i = 0; i < count; ++i) out[i] = (uint16_t)values[i];
  }
}

static void quantize_segment(const DvtContext* ctx, Segment segment) {
  const DvtDType quantised = dvt_output_tensor(ctx, 0)->dtype;
  const bool has_zero = dvt_has_input(ctx, 2);
  float low = 0.0f;
  float high = 0.0f;
  (void)dvt_quantised_range(quantised, &low, &high);
  float x[BLOCK];
  float scale[BLOCK];
  float zero[BLOCK] = {0};
  int32_t y[BLOCK];
  for (int64_t done = 0; done < segment.count; done += BLOCK) {
    const int64_t left = segment.count - done;
    const int64_t count = left < BLOCK ? left : BLOCK;
    const int64_t at = segment.scale + done * segment.step;
    load_floats(dvt_input_data(ctx, 0), dvt_input_tensor(ctx, 0)->dtype, segment.at + done, 1,
                count, x);
    if (done == 0 || segment.step != 0) {
      load_floats(dvt_input_data(ctx, 1), dvt_input_tensor(ctx, 1)->dtype, at, segment.step, count,
                  scale);
      if (has_zero) {
        load_floats(dvt_input_data(ctx, 2), quantised, at, segment.step, count, zero);
      }
    }
    for (int64_t i = 0; i < count; ++i) {
      y[i] = dvt_quantise(x[i] / scale[i], zero[i], low, high);
    }
    store_quantised(y, dvt_output_data(ctx, 0), quantised, segment.at + done, count);
  }
}

static DvtCode run_quantize(const DvtContext* ctx, DvtDType dtype) {
  (void)dtype;
  each_segment(ctx, quantize_segment);
  return DVT_OK;
}

static DvtCode check_quantize(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 2, 3, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) code = dvt_check_dtype(dvt_input_tensor(ctx, 0), dtype, "x", reason, size);
  if (code != DVT_OK) return code;
  const DvtDType quantised = dvt_output_tensor(ctx, 0)->dtype;
  float low = 0.0f;
  float high = 0.0f;
  if (!dvt_quantised_range(quantised, &low, &high)) {
    return dvt_refuse(reason, size, "output 0: expected dtype u8, i8, u16 or i16, got %s",
                      dvt_dtype_text(quantised));
  }
  return check_linear(ctx, quantised, reason, size);
}

/* ---- DequantizeLinear ------------------------------------------------------------------------ */

static void dequantize_segment(const DvtContext* ctx, Segment segment) {
  const DvtDType quantised = dvt_input_tensor(ctx, 0)->dtype;
  const DvtTensor* output = dvt_output_tensor(ctx, 0);
  const DvtConvertLoop narrow = dvt_f32_to_half_loop(output->dtype);
  const bool has_zero = dvt_has_input(ctx, 2);
  double x[BLOCK];
  double zero[BLOCK] = {0};
  float scale[BLOCK];
  float y[BLOCK];
  for (int64_t done = 0; done < segment.count; done += BLOCK) {
    const int64_t left = segment.count - done;
    const int64_t count = left < BLOCK ? left : BLOCK;
    const int64_t at = segment.scale + done * segment.step;
    load_doubles(dvt_input_data(ctx, 0), quantised, segment.at + done, 1, count, x);
    if (done == 0 || segment.step != 0) {
      load_floats(dvt_input_data(ctx, 1), output->dtype, at, segment.step, count, scale);
      if (has_zero) {
        load_doubles(dvt_input_data(ctx, 2), quantised, at, segment.step, count, zero);
      }
    }
    for (int64_t i = 0; i < count; ++i) y[i] = (float)(x[i] - zero[i]) * scale[i];
    char* to = (char*)dvt_output_data(ctx, 0) +
               (size_t)(segment.at + done) * dvt_dtype_size(output->dtype);
    if (narrow != NULL) {
      narrow(y, to, count);
    } else {
      memcpy(to, y, (size_t)count * sizeof y[0]);
    }
  }
}

static DvtCode run_dequantize(const DvtContext* ctx, DvtDType dtype) {
  (void)dtype;
  each_segment(ctx, dequantize_segment);
  return DVT_OK;
}

static DvtCode check_dequantize(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 2, 3, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) code = dvt_check_dtype(dvt_input_tensor(ctx, 0), dtype, "x", reason, size);
  if (code == DVT_OK) {
    code = dvt_check_dtype(dvt_output_tensor(ctx, 0), dvt_input_tensor(ctx, 1)->dtype, "output 0",
                           reason, size);
  }
  return code == DVT_OK ? check_linear(ctx, dtype, reason, size) : code;
}

/* ---- DynamicQuantizeLinear ------------------------------------------------------------------- */

static DvtCode infer_dynamic(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 1, 1, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  code = dvt_infer_shape(&outputs[0], x->rank, x->dims, "output 0", reason, size);
  for (uint32_t i = 1; code == DVT_OK && i < ctx->output_count; ++i) {
    code = dvt_infer_shape(&outputs[i], 0, x->dims, "outputs", reason, size);
  }
  return code;
}

static DvtCode check_dynamic(const DvtContext* ctx, char* reason, size_t size) {
  static const DvtDType dtypes[] = {DVT_U8, DVT_F32, DVT_U8};
  DvtCode code = dvt_check_counts(ctx, 1, 1, 3, 3, reason, size);
  if (code == DVT_OK) code = dvt_check_dtype(dvt_input_tensor(ctx, 0), DVT_F32, "x", reason, size);
  for (uint32_t i = 0; code == DVT_OK && i < 3; ++i) {
    code = dvt_check_dtype(dvt_output_tensor(ctx, i), dtypes[i], "outputs", reason, size);
  }
  return code == DVT_OK ? dvt_check_inferred(ctx, infer_dynamic, 0, reason, size) : code;
}

/* The range of x and 0, as the standard has it; a NaN in x makes the scale NaN. */
static DvtCode run_dynamic(void* context) {
  const DvtContext* ctx = context;
  const float* x = dvt_input_data(ctx, 0);
  uint8_t* y = dvt_output_data(ctx, 0);
  const int64_t count = dvt_tensor_elements(dvt_input_tensor(ctx, 0));
  float low = 0.0f;
  float high = 0.0f;
  for (int64_t i = 0; i < count; ++i) {
    low = x[i] < low || x[i] != x[i] ? x[i] : low;
    high = x[i] > high || x[i] != x[i] ? x[i] : high;
  }
  const float scale = (high - low) / 255.0f;
  const float zero = (float)dvt_quantise(0.0f - low / scale, 0.0f, 0.0f, 255.0f);
  for (int64_t i = 0; i < count; ++i) {
    y[i] = (uint8_t)dvt_quantise(x[i] / scale, zero, 0.0f, 255.0f);
  }
  *(float*)dvt_output_data(ctx, 1) = scale;
  *(uint8_t*)dvt_output_data(ctx, 2) = (uint8_t)zero;
  return DVT_OK;
}

/* ---- Table ----------------------------------------------------------------------------------- */

DVT_TYPED_KERNEL(quantize, f32, DVT_F32)
DVT_TYPED_KERNEL(quantize, f16, DVT_F16)
DVT_TYPED_KERNEL(quantize, bf16, DVT_BF16)
DVT_TYPED_KERNEL(quantize, i32, DVT_I32)
DVT_TYPED_KERNEL(dequantize, i8, DVT_I8)
DVT_TYPED_KERNEL(dequantize, u8, DVT_U8)
DVT_TYPED_KERNEL(dequantize, i16, DVT_I16)
DVT_TYPED_KERNEL(dequantize, u16, DVT_U16)
DVT_TYPED_KERNEL(dequantize, i32, DVT_I32)

static const DvtAttribute quantize_attributes[] = {
    {"axis", offsetof(DvtQuantizeAttributes, axis), 1, 'i'},
    {"block_size", offsetof(DvtQuantizeAttributes, block_size), 1, 'i'},
};

#define LINEAR_KERNEL(kernel_name, family_suffix)                                                  \
  {                                                                                                \
    .name = (kernel_name), .abi_version = DVT_KERNEL_ABI_VERSION,                                  \
    .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE, .input_min = 2, .input_max = 3, .output_min = 1, \
    .output_max = 1, .attribute_bytes = sizeof(DvtQuantizeAttributes), .attribute_count = 2,       \
    .attributes = quantize_attributes, .run = run_##family_suffix, .check = check_##family_suffix, \
    .infer = infer_linear                                                                          \
  }

DvtKernelTable dvt_kernels_quantisation(void) {
  static const DvtKernel kernels[] = {
      LINEAR_KERNEL("QuantizeLinear.f32", quantize_f32),
      LINEAR_KERNEL("QuantizeLinear.f16", quantize_f16),
      LINEAR_KERNEL("QuantizeLinear.bf16", quantize_bf16),
      LINEAR_KERNEL("QuantizeLinear.i32", quantize_i32),
      LINEAR_KERNEL("DequantizeLinear.i8", dequantize_i8),
      LINEAR_KERNEL("DequantizeLinear.u8", dequantize_u8),
      LINEAR_KERNEL("DequantizeLinear.i16", dequantize_i16),
      LINEAR_KERNEL("DequantizeLinear.u16", dequantize_u16),
      LINEAR_KERNEL("DequantizeLinear.i32", dequantize_i32),
      {
          .name = "DynamicQuantizeLinear.f32",
          .abi_version = DVT_KERNEL_ABI_VERSION,
          .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE,
          .input_min = 1,
          .input_max = 1,
          .output_min = 3,
          .output_max = 3,
          .run = run_dynamic,
          .check = check_dynamic,
          .infer = infer_dynamic,
      },
  };
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
