#include "ops/kernels/activation.h"

#include "ops/kernels/broadcast.h"
#include "ops/kernels/element.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/shape.h"

typedef struct ActivationLoops {
  DvtLoop celu, thresholded, mish, gelu, gelu_tanh, shrink;
} ActivationLoops;

#define DVT_PASTE(a, b) a##_##b
#define DVT_PASTE_EXPANDED(a, b) DVT_PASTE(a, b)
#define DVT_FN(name) DVT_PASTE_EXPANDED(name, DVT_SUFFIX)

#define DVT_SUFFIX f32
#define T float
#define DVT_MATH(name) name##f
#include "ops/kernels/activation_loops.inc"

#define DVT_SUFFIX f64
#define T double
#define DVT_MATH(name) name
#include "ops/kernels/activation_loops.inc"

static const ActivationLoops* loops_of(DvtDType dtype) {
  return dtype == DVT_F64 ? &loops_f64 : &loops_f32;
}

static DvtCode run_map(const DvtContext* ctx, DvtLoop loop) {
  const DvtMap map = {.loop = loop,
                      .parameters = ctx->attributes,
                      .input_count = 1,
                      .inputs = {dvt_map_input(ctx, 0)},
                      .output = dvt_map_output(ctx)};
  return dvt_map_run(&map, -1);
}

static DvtCode run_celu(const DvtContext* ctx, DvtDType dtype) {
  return run_map(ctx, loops_of(dtype)->celu);
}
static DvtCode run_thresholded(const DvtContext* ctx, DvtDType dtype) {
  return run_map(ctx, loops_of(dtype)->thresholded);
}
static DvtCode run_mish(const DvtContext* ctx, DvtDType dtype) {
  return run_map(ctx, loops_of(dtype)->mish);
}
DvtLoop dvt_gelu_loop(DvtDType dtype, bool by_tanh) {
  return by_tanh ? loops_of(dtype)->gelu_tanh : loops_of(dtype)->gelu;
}

static DvtCode run_gelu(const DvtContext* ctx, DvtDType dtype) {
  const DvtGeluAttributes* attributes = ctx->attributes;
  return run_map(ctx, dvt_gelu_loop(dtype, attributes->approximate != 0));
}

DVT_INLINE DvtCode run_shrink(const DvtContext* ctx, DvtDType dtype) {
  if (dvt_dtype_is_float(dtype)) return run_map(ctx, loops_of(dtype)->shrink);
  const DvtShrinkAttributes* attributes = ctx->attributes;
  const int64_t count = dvt_tensor_elements(dvt_input_tensor(ctx, 0));
  for (int64_t i = 0; i < count; ++i) {
    const double x = dvt_load_real(dvt_input_data(ctx, 0), dtype, i);
    dvt_store_real(dvt_output_data(ctx, 0), dtype, i, trunc(shrink_of_f64(x, attributes)));
  }
  return DVT_OK;
}

static DvtCode check_plain(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 1, 1, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_dtype(dvt_input_tensor(ctx, 0), dtype, "x", reason, size);
  if (code == DVT_OK) code = dvt_check_dtype(dvt_output_tensor(ctx, 0), dtype, "y", reason, size);
  return code == DVT_OK ? dvt_check_inferred(ctx, dvt_infer_same, 0, reason, size) : code;
}
static DvtCode check_record(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  const DvtCode code = dvt_check_attributes(ctx, reason, size);
  return code == DVT_OK ? check_plain(ctx, dtype, reason, size) : code;
}
static DvtCode check_celu(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  return check_record(ctx, dtype, reason, size);
}
static DvtCode check_thresholded(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  return check_record(ctx, dtype, reason, size);
}
static DvtCode check_mish(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  return check_plain(ctx, dtype, reason, size);
}
static DvtCode check_gelu(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  return check_record(ctx, dtype, reason, size);
}
static DvtCode check_shrink(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  return check_record(ctx, dtype, reason, size);
}

DVT_TYPED_KERNEL(celu, f32, DVT_F32)
DVT_TYPED_KERNEL(celu, f64, DVT_F64)
DVT_TYPED_KERNEL(celu, f16, DVT_F16)
DVT_TYPED_KERNEL(celu, bf16, DVT_BF16)
DVT_TYPED_KERNEL(thresholded, f32, DVT_F32)
DVT_TYPED_KERNEL(thresholded, f64, DVT_F64)
DVT_TYPED_KERNEL(thresholded, f16, DVT_F16)
DVT_TYPED_KERNEL(thresholded, bf16, DVT_BF16)
DVT_TYPED_KERNEL(mish, f32, DVT_F32)
DVT_TYPED_KERNEL(mish, f64, DVT_F64)
DVT_TYPED_KERNEL(mish, f16, DVT_F16)
DVT_TYPED_KERNEL(mish, bf16, DVT_BF16)
DVT_TYPED_KERNEL(gelu, f32, DVT_F32)
DVT_TYPED_KERNEL(gelu, f64, DVT_F64)
DVT_TYPED_KERNEL(gelu, f16, DVT_F16)
DVT_TYPED_KERNEL(gelu, bf16, DVT_BF16)
DVT_TYPED_KERNEL(shrink, f32, DVT_F32)
DVT_TYPED_KERNEL(shrink, f64, DVT_F64)
DVT_TYPED_KERNEL(shrink, f16, DVT_F16)
DVT_TYPED_KERNEL(shrink, bf16, DVT_BF16)
DVT_TYPED_KERNEL(shrink, i8, DVT_I8)
DVT_TYPED_KERNEL(shrink, i16, DVT_I16)
DVT_TYPED_KERNEL(shrink, i32, DVT_I32)
DVT_TYPED_KERNEL(shrink, i64, DVT_I64)
DVT_TYPED_KERNEL(shrink, u8, DVT_U8)
DVT_TYPED_KERNEL(shrink, u16, DVT_U16)
DVT_TYPED_KERNEL(shrink, u32, DVT_U32)
DVT_TYPED_KERNEL(shrink, u64, DVT_U64)

static const DvtAttribute alpha_attributes[] = {
    {"alpha", offsetof(DvtAlphaAttributes, alpha), 1, 'f'}};
static const DvtAttribute gelu_attributes[] = {
    {"approximate", offsetof(DvtGeluAttributes, approximate), 1, 'i'}};
static const DvtAttribute shrink_attributes[] = {
    {"lambda", offsetof(DvtShrinkAttributes, lambda), 1, 'f'},
    {"bias", offsetof(DvtShrinkAttributes, bias), 1, 'f'}};

#define ACTIVATION_KERNEL(kernel_name, family_suffix)                                 \
  .name = (kernel_name), .abi_version = DVT_KERNEL_ABI_VERSION,                       \
  .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE | DVT_KERNEL_IN_PLACE, .input_min = 1, \
  .input_max = 1, .output_min = 1, .output_max = 1, .run = run_##family_suffix,       \
  .check = check_##family_suffix, .infer = dvt_infer_same
#define ALPHA_RECORD                                                   \
  .attribute_bytes = sizeof(DvtAlphaAttributes), .attribute_count = 1, \
  .attributes = alpha_attributes
#define GELU_RECORD \
  .attribute_bytes = sizeof(DvtGeluAttributes), .attribute_count = 1, .attributes = gelu_attributes
#define SHRINK_RECORD                                                   \
  .attribute_bytes = sizeof(DvtShrinkAttributes), .attribute_count = 2, \
  .attributes = shrink_attributes

DvtKernelTable dvt_kernels_activation(void) {
  static const DvtKernel kernels[] = {
      {ACTIVATION_KERNEL("Celu.f32", celu_f32), ALPHA_RECORD},
      {ACTIVATION_KERNEL("Celu.f64", celu_f64), ALPHA_RECORD},
      {ACTIVATION_KERNEL("Celu.f16", celu_f16), ALPHA_RECORD},
      {ACTIVATION_KERNEL("Celu.bf16", celu_bf16), ALPHA_RECORD},
      {ACTIVATION_KERNEL("ThresholdedRelu.f32", thresholded_f32), ALPHA_RECORD},
      {ACTIVATION_KERNEL("ThresholdedRelu.f64", thresholded_f64), ALPHA_RECORD},
      {ACTIVATION_KERNEL("ThresholdedRelu.f16", thresholded_f16), ALPHA_RECORD},
      {ACTIVATION_KERNEL("ThresholdedRelu.bf16", thresholded_bf16), ALPHA_RECORD},
      {ACTIVATION_KERNEL("Mish.f32", mish_f32)},
      {ACTIVATION_KERNEL("Mish.f64", mish_f64)},
      {ACTIVATION_KERNEL("Mish.f16", mish_f16)},
      {ACTIVATION_KERNEL("Mish.bf16", mish_bf16)},
      {ACTIVATION_KERNEL("Gelu.f32", gelu_f32), GELU_RECORD},
      {ACTIVATION_KERNEL("Gelu.f64", gelu_f64), GELU_RECORD},
      {ACTIVATION_KERNEL("Gelu.f16", gelu_f16), GELU_RECORD},
      {ACTIVATION_KERNEL("Gelu.bf16", gelu_bf16), GELU_RECORD},
      {ACTIVATION_KERNEL("Shrink.f32", shrink_f32), SHRINK_RECORD},
      {ACTIVATION_KERNEL("Shrink.f64", shrink_f64), SHRINK_RECORD},
      {ACTIVATION_KERNEL("Shrink.f16", shrink_f16), SHRINK_RECORD},
      {ACTIVATION_KERNEL("Shrink.bf16", shrink_bf16), SHRINK_RECORD},
      {ACTIVATION_KERNEL("Shrink.i8", shrink_i8), SHRINK_RECORD},
      {ACTIVATION_KERNEL("Shrink.i16", shrink_i16), SHRINK_RECORD},
      {ACTIVATION_KERNEL("Shrink.i32", shrink_i32), SHRINK_RECORD},
      {ACTIVATION_KERNEL("Shrink.i64", shrink_i64), SHRINK_RECORD},
      {ACTIVATION_KERNEL("Shrink.u8", shrink_u8), SHRINK_RECORD},
      {ACTIVATION_KERNEL("Shrink.u16", shrink_u16), SHRINK_RECORD},
      {ACTIVATION_KERNEL("Shrink.u32", shrink_u32), SHRINK_RECORD},
      {ACTIVATION_KERNEL("Shrink.u64", shrink_u64), SHRINK_RECORD},
  };
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
