#include "ops/kernels/bitwise.h"

#include "ops/kernels/broadcast.h"
#include "ops/kernels/element.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/shape.h"

/* By element size: signs do not matter to bits. */
typedef struct BitLoops {
  DvtLoop and, or, xor, not, left, right;
} BitLoops;

#define DVT_PASTE(a, b) a##_##b
#define DVT_PASTE_EXPANDED(a, b) DVT_PASTE(a, b)
#define DVT_FN(name) DVT_PASTE_EXPANDED(name, DVT_BITS)

#define DVT_BITS 8
#define T uint8_t
#include "ops/kernels/bitwise_loops.inc"

#define DVT_BITS 16
#define T uint16_t
#include "ops/kernels/bitwise_loops.inc"

#define DVT_BITS 32
#define T uint32_t
#include "ops/kernels/bitwise_loops.inc"

#define DVT_BITS 64
#define T uint64_t
#include "ops/kernels/bitwise_loops.inc"

static const BitLoops* loops_of(const DvtContext* ctx) {
  switch (dvt_dtype_size(dvt_input_tensor(ctx, 0)->dtype)) {
    case 1:
      return &loops_8;
    case 2:
      return &loops_16;
    case 4:
      return &loops_32;
    default:
      return &loops_64;
  }
}

static DvtCode run_map(const DvtContext* ctx, DvtLoop loop) {
  DvtMap map = {.loop = loop, .input_count = ctx->input_count, .output = dvt_map_output(ctx)};
  for (uint32_t i = 0; i < ctx->input_count; ++i) map.inputs[i] = dvt_map_input(ctx, i);
  return dvt_map_run(&map, -1);
}

static DvtCode run_and(void* ctx) {
  return run_map(ctx, loops_of(ctx)->and);
}
static DvtCode run_or(void* ctx) {
  return run_map(ctx, loops_of(ctx)->or);
}
static DvtCode run_xor(void* ctx) {
  return run_map(ctx, loops_of(ctx)->xor);
}
static DvtCode run_not(void* ctx) {
  return run_map(ctx, loops_of(ctx)->not );
}
static DvtCode run_shift(void* context) {
  const DvtContext* ctx = context;
  const DvtBitShiftAttributes* attributes = ctx->attributes;
  const BitLoops* loops = loops_of(ctx);
  return run_map(ctx, attributes->right != 0 ? loops->right : loops->left);
}

/* ---- Checks ---------------------------------------------------------------------------------- */

static bool is_unsigned(DvtDType dtype) {
  return dtype == DVT_U8 || dtype == DVT_U16 || dtype == DVT_U32 || dtype == DVT_U64;
}

static DvtCode check_integers(const DvtContext* ctx, uint32_t inputs, bool any_sign, char* reason,
                              size_t size) {
  DvtCode code = dvt_check_counts(ctx, inputs, inputs, 1, 1, reason, size);
  if (code != DVT_OK) return code;
  const DvtDType dtype = dvt_input_tensor(ctx, 0)->dtype;
  if (!is_unsigned(dtype) && !(any_sign && dvt_dtype_is_signed(dtype))) {
    return dvt_refuse(reason, size, "input 0: expected %s integer, got %s",
                      any_sign ? "an" : "an unsigned", dvt_dtype_text(dtype));
  }
  for (uint32_t i = 1; code == DVT_OK && i < inputs; ++i) {
    code = dvt_check_dtype(dvt_input_tensor(ctx, i), dtype, "input 1", reason, size);
  }
  if (code == DVT_OK) {
    code = dvt_check_dtype(dvt_output_tensor(ctx, 0), dtype, "output 0", reason, size);
  }
  return code == DVT_OK ? dvt_check_inferred(ctx, dvt_infer_broadcast, 0, reason, size) : code;
}

static DvtCode check_binary(const DvtContext* ctx, char* reason, size_t size) {
  return check_integers(ctx, 2, true, reason, size);
}
static DvtCode check_unary(const DvtContext* ctx, char* reason, size_t size) {
  return check_integers(ctx, 1, true, reason, size);
}
static DvtCode check_shift(const DvtContext* ctx, char* reason, size_t size) {
  const DvtCode code = dvt_check_attributes(ctx, reason, size);
  return code == DVT_OK ? check_integers(ctx, 2, false, reason, size) : code;
}

static const DvtAttribute shift_attributes[] = {
    {"right", offsetof(DvtBitShiftAttributes, right), 1, 'i'}};

#define BITWISE_KERNEL(kernel_name, inputs, run_fn, check_fn)                                    \
  .name = (kernel_name), .abi_version = DVT_KERNEL_ABI_VERSION,                                  \
  .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE | DVT_KERNEL_IN_PLACE, .input_min = (inputs),     \
  .input_max = (inputs), .output_min = 1, .output_max = 1, .run = (run_fn), .check = (check_fn), \
  .infer = dvt_infer_broadcast

DvtKernelTable dvt_kernels_bitwise(void) {
  static const DvtKernel kernels[] = {
      {BITWISE_KERNEL("BitwiseAnd", 2, run_and, check_binary)},
      {BITWISE_KERNEL("BitwiseOr", 2, run_or, check_binary)},
      {BITWISE_KERNEL("BitwiseXor", 2, run_xor, check_binary)},
      {BITWISE_KERNEL("BitwiseNot", 1, run_not, check_unary)},
      {BITWISE_KERNEL("BitShift", 2, run_shift, check_shift),
       .attribute_bytes = sizeof(DvtBitShiftAttributes), .attribute_count = 1,
       .attributes = shift_attributes},
  };
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
