#include "ops/kernels/fused.h"

#include <inttypes.h>

#include "ops/kernels/activation.h"
#include "ops/kernels/element.h"
#include "ops/kernels/elementwise.h"
#include "ops/kernels/elementwise_loops.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/shape.h"

/* ---- The product ------------------------------------------------------------------------------
 * Runs as the kernel it would be alone, on a context with the first inputs and all outputs. */

enum { PRODUCT_CELLS = 5 }; /* Three inputs, Y, scratch. */

typedef struct ProductContext {
  _Alignas(8) char bytes[sizeof(DvtContext) + PRODUCT_CELLS * sizeof(DvtCell*)];
} ProductContext;

/* What kind of product a fused kernel begins with. */
typedef struct Family {
  const char* name;    /* "Conv." */
  uint32_t inputs;     /* Of the product, optional ones included. */
  size_t steps_offset; /* Of the DvtSteps in the record. */
  DvtKernelTable (*table)(void);
} Family;

static const DvtSteps* steps_of(const DvtContext* ctx, const Family* family) {
  return (const DvtSteps*)((const char*)ctx->attributes + family->steps_offset);
}

static const DvtKernel* product_kernel(const Family* family, DvtDType dtype) {
  const DvtKernelTable table = family->table();
  const size_t length = strlen(family->name);
  for (size_t i = 0; i < table.count; ++i) {
    const char* name = table.kernels[i].name;
    if (strncmp(name, family->name, length) == 0 &&
        strcmp(name + length, dvt_dtype_text(dtype)) == 0) {
      return &table.kernels[i];
    }
  }
  return NULL;
}

static const DvtContext* product_context(const DvtContext* ctx, const Family* family,
                                         ProductContext* storage) {
  DvtContext* product = (DvtContext*)storage->bytes;
  *product = *ctx;
  product->input_count =
      (uint16_t)(ctx->input_count < family->inputs ? ctx->input_count : family->inputs);
  /* A missing C is no input: some products take two at most when it is absent. */
  while (product->input_count > 2 && dvt_input(ctx, product->input_count - 1U) == NULL) {
    --product->input_count;
  }
  product->output_count = (uint16_t)(ctx->output_count < 2 ? ctx->output_count : 2);
  DvtCell** cells = (DvtCell**)(void*)(storage->bytes + offsetof(DvtContext, cells));
  for (uint32_t i = 0; i < product->input_count; ++i) cells[i] = dvt_input(ctx, i);
  for (uint32_t i = 0; i < product->output_count; ++i) {
    cells[product->input_count + i] = dvt_output(ctx, i);
  }
  return product;
}

/* ---- The steps ---------------------------------------------------------------------------------
 */

enum { CHUNK = DVT_BLOCK, SAVED_MAX = 2 };

typedef struct Chunk {
  _Alignas(64) char bytes[CHUNK * sizeof(double)];
} Chunk;

/* Y as rows: operands are contiguous along a row or repeat one element. */
typedef struct Rows {
  uint32_t axes; /* Of Y that count rows. */
  int64_t row;   /* Elements of one. */
  bool contiguous[DVT_STEPS_MAX];
  int64_t stride[DVT_STEPS_MAX][DVT_MAX_RANK]; /* Of operand k along Y's axes, in elements. */
} Rows;

static bool has_input_operand(const DvtSteps* steps, int64_t k) {
  return steps->kind[k] < DVT_STEP_UNARY && steps->operand[k] >= 0;
}

/* The operand's extent along axis `axis` of Y. */
static int64_t extent_along(const DvtTensor* operand, const DvtTensor* y, uint32_t axis) {
  const uint32_t missing = (uint32_t)y->rank - operand->rank;
  return axis < missing ? 1 : operand->dims[axis - missing];
}

static void describe_rows(const DvtContext* ctx, const DvtSteps* steps, Rows* rows) {
  const DvtTensor* y = dvt_output_tensor(ctx, 0);
  *rows = (Rows){.axes = y->rank, .row = 1};
  bool decided[DVT_STEPS_MAX] = {false};
  for (; rows->axes > 0; --rows->axes) {
    const uint32_t axis = rows->axes - 1;
    bool fits = true;
    for (int64_t k = 0; k < steps->count; ++k) {
      if (!has_input_operand(steps, k) || y->dims[axis] == 1) continue;
      const bool whole =
          extent_along(dvt_input_tensor(ctx, (uint32_t)steps->operand[k]), y, axis) != 1;
      fits = fits && (!decided[k] || rows->contiguous[k] == whole);
    }
    if (!fits) break;
    for (int64_t k = 0; k < steps->count; ++k) {
      if (!has_input_operand(steps, k) || y->dims[axis] == 1) continue;
      decided[k] = true;
      rows->contiguous[k] =
          extent_along(dvt_input_tensor(ctx, (uint32_t)steps->operand[k]), y, axis) != 1;
    }
    rows->row *= y->dims[axis];
  }
  for (int64_t k = 0; k < steps->count; ++k) {
    if (!has_input_operand(steps, k)) continue;
    const DvtTensor* operand = dvt_input_tensor(ctx, (uint32_t)steps->operand[k]);
    int64_t stride = 1;
    for (uint32_t axis = y->rank; axis-- > 0;) {
      const int64_t extent = extent_along(operand, y, axis);
      rows->stride[k][axis] = extent == 1 ? 0 : stride;
      stride *= extent;
    }
  }
}

static DvtLoop binary_loop(const DvtNumericLoops* loops, int64_t kind) {
  switch (kind) {
    case DVT_STEP_ADD:
      return loops->add;
    case DVT_STEP_SUB:
    case DVT_STEP_SUB_FROM:
      return loops->sub;
    case DVT_STEP_MUL:
      return loops->mul;
    case DVT_STEP_DIV:
      return loops->div;
    case DVT_STEP_MIN:
      return loops->min;
    default:
      return loops->max;
  }
}

static DvtLoop unary_loop(DvtDType dtype, int64_t kind, bool by_tanh) {
  const DvtNumericLoops* numeric = dvt_numeric_loops(dtype);
  const DvtFloatLoops* loops = dvt_float_loops(dtype);
  switch (kind) {
    case DVT_STEP_RELU:
      return numeric->relu;
    case DVT_STEP_CLIP:
      return numeric->clip;
    case DVT_STEP_HARD_SIGMOID:
      return loops->hard_sigmoid;
    case DVT_STEP_LEAKY_RELU:
      return loops->leaky_relu;
    case DVT_STEP_ELU:
      return loops->elu;
    case DVT_STEP_HARD_SWISH:
      return loops->hard_swish;
    case DVT_STEP_SIGMOID:
      return loops->sigmoid;
    case DVT_STEP_TANH:
      return loops->tanh;
    case DVT_STEP_ERF:
      return loops->erf;
    case DVT_STEP_EXP:
      return loops->exp;
    case DVT_STEP_NEG:
      return numeric->neg;
    case DVT_STEP_ABS:
      return numeric->abs;
    case DVT_STEP_SQRT:
      return loops->sqrt;
    case DVT_STEP_SOFTPLUS:
      return loops->softplus;
    default:
      return dvt_gelu_loop(dtype, by_tanh);
  }
}

/* Steps of one run. */
typedef struct Epilogue {
  const DvtContext* ctx;
  const DvtSteps* steps;
  Rows rows;
  DvtDType dtype;
  uint32_t size, loop_size;     /* Bytes per element in memory, and as loops see it. */
  DvtConvertLoop widen, narrow; /* Between them; NULL when they are the same. */
  int64_t saved[SAVED_MAX];     /* Steps before which y is kept, or -1. */
} Epilogue;

static int64_t saved_slot(const Epilogue* epilogue, int64_t step) {
  return epilogue->saved[0] == step ? 0 : 1;
}

/* `count` times the number in the loops' type. */
static void fill_number(const Epilogue* epilogue, double number, char* to, int64_t count) {
  if (epilogue->dtype == DVT_F64) {
    for (int64_t i = 0; i < count; ++i) ((double*)(void*)to)[i] = number;
  } else {
    for (int64_t i = 0; i < count; ++i) ((float*)(void*)to)[i] = (float)number;
  }
}

/* Operand of step `k` for elements [begin, begin + count) of the row at `row_offset`; may use
 * `room`. */
static const void* operand_chunk(const Epilogue* epilogue, int64_t k, int64_t row_offset,
                                 int64_t begin, int64_t count, const Chunk saved[SAVED_MAX],
                                 Chunk* room) {
  const int64_t operand = epilogue->steps->operand[k];
  if (operand <= DVT_STEP_BEFORE) {
    return saved[saved_slot(epilogue, DVT_STEP_BEFORE - operand)].bytes;
  }
  const char* data = dvt_input_data(epilogue->ctx, (uint32_t)operand);
  const bool contiguous = epilogue->rows.contiguous[k];
  data += (size_t)(row_offset + (contiguous ? begin : 0)) * epilogue->size;
  if (contiguous && epilogue->widen == NULL) return data;
  if (contiguous) {
    epilogue->widen(data, room->bytes, count);
    return room->bytes;
  }
  double number;
  if (epilogue->widen != NULL) {
    float single;
    epilogue->widen(data, &single, 1);
    number = (double)single;
  } else {
    number = dvt_load_real(data, epilogue->dtype, 0);
  }
  fill_number(epilogue, number, room->bytes, count);
  return room->bytes;
}

static void run_unary_step(const Epilogue* epilogue, int64_t k, char* y, int64_t count) {
  const DvtSteps* steps = epilogue->steps;
  const DvtActivationAttributes activation = {.alpha = steps->alpha[k], .beta = steps->beta[k]};
  _Alignas(8) char bounds[2 * sizeof(double)];
  const void* parameters = &activation;
  if (steps->kind[k] == DVT_STEP_CLIP) {
    fill_number(epilogue, steps->alpha[k], bounds, 1);
    fill_number(epilogue, steps->beta[k], bounds + epilogue->loop_size, 1);
    parameters = bounds;
  }
  const void* inputs[] = {y};
  unary_loop(epilogue->dtype, steps->kind[k], steps->alpha[k] != 0.0)(inputs, y, count, parameters);
}

/* All steps on `count` elements in the loops' type. `row_offset[k]` is where operand k's row
 * begins.
 */
static void run_chunk(const Epilogue* epilogue, const int64_t row_offset[DVT_STEPS_MAX],
                      int64_t begin, int64_t count, char* y) {
  Chunk saved[SAVED_MAX];
  Chunk room;
  const DvtSteps* steps = epilogue->steps;
  const size_t bytes = (size_t)count * epilogue->loop_size;
  for (int64_t k = 0; k < steps->count; ++k) {
    for (int slot = 0; slot < SAVED_MAX; ++slot) {
      if (epilogue->saved[slot] == k) memcpy(saved[slot].bytes, y, bytes);
    }
    if (steps->kind[k] >= DVT_STEP_UNARY) {
      run_unary_step(epilogue, k, y, count);
    } else {
      const void* operand = operand_chunk(epilogue, k, row_offset[k], begin, count, saved, &room);
      const DvtLoop loop = binary_loop(dvt_numeric_loops(epilogue->dtype), steps->kind[k]);
      if (steps->kind[k] == DVT_STEP_SUB_FROM) {
        /* Loops may write over their first input only. */
        const void* inputs[] = {operand, y};
        Chunk difference;
        loop(inputs, difference.bytes, count, NULL);
        memcpy(y, difference.bytes, bytes);
      } else {
        const void* inputs[] = {y, operand};
        loop(inputs, y, count, NULL);
      }
    }
    if (epilogue->narrow != NULL) { /* Each operator would have rounded its result. */
      uint16_t rounded[CHUNK];
      epilogue->narrow(y, rounded, count);
      epilogue->widen(rounded, y, count);
    }
  }
}

static void run_row(const Epilogue* epilogue, const int64_t row_offset[DVT_STEPS_MAX], char* y) {
  for (int64_t begin = 0; begin < epilogue->rows.row; begin += CHUNK) {
    const int64_t left = epilogue->rows.row - begin;
    const int64_t count = left < CHUNK ? left : CHUNK;
    char* at = y + (size_t)begin * epilogue->size;
    if (epilogue->widen == NULL) {
      run_chunk(epilogue, row_offset, begin, count, at);
      continue;
    }
    Chunk wide;
    epilogue->widen(at, wide.bytes, count);
    run_chunk(epilogue, row_offset, begin, count, wide.bytes);
    epilogue->narrow(wide.bytes, at, count);
  }
}

static void run_steps(const DvtContext* ctx, const DvtSteps* steps, DvtDType dtype) {
  Epilogue epilogue = {.ctx = ctx,
                       .steps = steps,
                       .dtype = dtype,
                       .size = dvt_dtype_size(dtype),
                       .loop_size = dtype == DVT_F64 ? sizeof(double) : sizeof(float),
                       .widen = dvt_half_to_f32_loop(dtype),
                       .narrow = dvt_f32_to_half_loop(dtype),
                       .saved = {-1, -1}};
  for (int64_t k = 0; k < steps->count; ++k) {
    if (steps->kind[k] >= DVT_STEP_UNARY || steps->operand[k] > DVT_STEP_BEFORE) continue;
    const int64_t step = DVT_STEP_BEFORE - steps->operand[k];
    if (epilogue.saved[0] == step || epilogue.saved[1] == step) continue;
    epilogue.saved[epilogue.saved[0] < 0 ? 0 : 1] = step;
  }
  describe_rows(ctx, steps, &epilogue.rows);
  const DvtTensor* y = dvt_output_tensor(ctx, 0);
  const int64_t elements = dvt_tensor_elements(y);
  int64_t index[DVT_MAX_RANK] = {0};
  int64_t row_offset[DVT_STEPS_MAX] = {0};
  for (int64_t at = 0; at < elements; at += epilogue.rows.row) {
    run_row(&epilogue, row_offset, (char*)dvt_output_data(ctx, 0) + (size_t)at * epilogue.size);
    for (uint32_t axis = epilogue.rows.axes; axis-- > 0;) {
      for (int64_t k = 0; k < steps->count; ++k) row_offset[k] += epilogue.rows.stride[k][axis];
      if (++index[axis] < y->dims[axis]) break;
      for (int64_t k = 0; k < steps->count; ++k) {
        row_offset[k] -= epilogue.rows.stride[k][axis] * y->dims[axis];
      }
      index[axis] = 0;
    }
  }
}

/* ---- Whole kernels -----------------------------------------------------------------------------
 */

static DvtCode run_fused(const DvtContext* ctx, const Family* family, DvtDType dtype) {
  if (dvt_output_tensor(ctx, 0)->bytes == 0) return DVT_OK;
  ProductContext storage;
  const DvtContext* product = product_context(ctx, family, &storage);
  const DvtCode code = product_kernel(family, dtype)->run((void*)product);
  if (code == DVT_OK) run_steps(ctx, steps_of(ctx, family), dtype);
  return code;
}

static DvtCode check_operand(const DvtContext* ctx, const Family* family, const DvtSteps* steps,
                             int64_t k, DvtDType dtype, char* reason, size_t size) {
  const int64_t operand = steps->operand[k];
  if (operand < 0) {
    if (operand >= DVT_STEP_BEFORE - k && operand <= DVT_STEP_BEFORE) return DVT_OK;
    return dvt_refuse(reason, size, "step %" PRId64 ": operand %" PRId64 " is no step before it", k,
                      operand);
  }
  if (operand < (int64_t)family->inputs || operand >= ctx->input_count ||
      dvt_input(ctx, (uint32_t)operand) == NULL) {
    return dvt_refuse(reason, size, "step %" PRId64 ": there is no operand %" PRId64, k, operand);
  }
  const DvtTensor* tensor = dvt_input_tensor(ctx, (uint32_t)operand);
  const DvtTensor* y = dvt_output_tensor(ctx, 0);
  const DvtCode code = dvt_check_dtype(tensor, dtype, "operands", reason, size);
  if (code != DVT_OK) return code;
  bool fits = tensor->rank <= y->rank;
  for (uint32_t axis = 0; fits && axis < y->rank; ++axis) {
    const int64_t extent = extent_along(tensor, y, axis);
    fits = extent == 1 || extent == y->dims[axis];
  }
  if (fits) return DVT_OK;
  return dvt_refuse(reason, size, "step %" PRId64 ": operand %" PRId64 " does not broadcast to Y",
                    k, operand);
}

static DvtCode check_steps(const DvtContext* ctx, const Family* family, DvtDType dtype,
                           char* reason, size_t size) {
  const DvtSteps* steps = steps_of(ctx, family);
  if (steps->count < 0 || steps->count > DVT_STEPS_MAX) {
    return dvt_refuse(reason, size, "%" PRId64 " steps: expected 0 to %d", steps->count,
                      DVT_STEPS_MAX);
  }
  int64_t saved[DVT_STEPS_MAX] = {0};
  int64_t saved_count = 0;
  for (int64_t k = 0; k < steps->count; ++k) {
    if (steps->kind[k] < 0 || steps->kind[k] >= DVT_STEP_KINDS) {
      return dvt_refuse(reason, size, "step %" PRId64 ": there is no kind %" PRId64, k,
                        steps->kind[k]);
    }
    if (steps->kind[k] >= DVT_STEP_UNARY) continue;
    const DvtCode code = check_operand(ctx, family, steps, k, dtype, reason, size);
    if (code != DVT_OK) return code;
    if (steps->operand[k] <= DVT_STEP_BEFORE) saved[DVT_STEP_BEFORE - steps->operand[k]] = 1;
  }
  for (int64_t k = 0; k < steps->count; ++k) saved_count += saved[k];
  if (saved_count <= SAVED_MAX) return DVT_OK;
  return dvt_refuse(reason, size, "%" PRId64 " values to keep: expected at most %d", saved_count,
                    SAVED_MAX);
}

static DvtCode check_fused(const DvtContext* ctx, const Family* family, DvtDType dtype,
                           char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 2, family->inputs + DVT_STEPS_MAX, 1, 2, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  ProductContext storage;
  const DvtContext* product = product_context(ctx, family, &storage);
  code = product_kernel(family, dtype)->check(product, reason, size);
  return code == DVT_OK ? check_steps(ctx, family, dtype, reason, size) : code;
}

static DvtCode infer_fused(const DvtContext* ctx, const Family* family, DvtTensor* outputs,
                           char* reason, size_t size) {
  const DvtCode code = dvt_check_inputs(ctx, 2, family->inputs + DVT_STEPS_MAX, reason, size);
  if (code != DVT_OK) return code;
  ProductContext storage;
  const DvtContext* product = product_context(ctx, family, &storage);
  return product_kernel(family, DVT_F32)->infer(product, outputs, reason, size);
}

/* The product's, on the cube; its result meets the steps on the way out. */
static void cost_fused(const DvtContext* ctx, const Family* family, DvtTaskCost* cost) {
  ProductContext storage;
  const DvtContext* product = product_context(ctx, family, &storage);
  product_kernel(family, DVT_F32)->cost(product, cost);
}

static const Family conv_family = {"Conv.", 3, offsetof(DvtFusedConvAttributes, steps),
                                   dvt_kernels_convolution};
static const Family transpose_family = {
    "ConvTranspose.", 3, offsetof(DvtFusedConvTransposeAttributes, steps), dvt_kernels_convolution};
static const Family matmul_family = {"MatMul.", 2, offsetof(DvtFusedMatMulAttributes, steps),
                                     dvt_kernels_matrix};
static const Family gemm_family = {"Gemm.", 3, offsetof(DvtFusedGemmAttributes, steps),
                                   dvt_kernels_matrix};

/* ---- Table -------------------------------------------------------------------------------------
 */

#define FUSED_FAMILY(family)                                                                   \
  static DvtCode run_fused_##family(const DvtContext* ctx, DvtDType dtype) {                   \
    return run_fused(ctx, &family##_family, dtype);                                            \
  }                                                                                            \
  static DvtCode check_fused_##family(const DvtContext* ctx, DvtDType dtype, char* reason,     \
                                      size_t size) {                                           \
    return check_fused(ctx, &family##_family, dtype, reason, size);                            \
  }                                                                                            \
  static DvtCode infer_fused_##family(const DvtContext* ctx, DvtTensor* outputs, char* reason, \
                                      size_t size) {                                           \
    return infer_fused(ctx, &family##_family, outputs, reason, size);                          \
  }                                                                                            \
  static void cost_fused_##family(const DvtContext* ctx, DvtTaskCost* cost) {                  \
    cost_fused(ctx, &family##_family, cost);                                                   \
  }                                                                                            \
  DVT_TYPED_KERNEL(fused_##family, f32, DVT_F32)                                               \
  DVT_TYPED_KERNEL(fused_##family, f64, DVT_F64)                                               \
  DVT_TYPED_KERNEL(fused_##family, f16, DVT_F16)                                               \
  DVT_TYPED_KERNEL(fused_##family, bf16, DVT_BF16)

FUSED_FAMILY(conv)
FUSED_FAMILY(transpose)
FUSED_FAMILY(matmul)
FUSED_FAMILY(gemm)

#define STEP_ATTRIBUTES(record)                                              \
  {"step_count", offsetof(record, steps.count), 1, 'i'},                     \
      {"step_kind", offsetof(record, steps.kind), DVT_STEPS_MAX, 'i'},       \
      {"step_operand", offsetof(record, steps.operand), DVT_STEPS_MAX, 'i'}, \
      {"step_alpha", offsetof(record, steps.alpha), DVT_STEPS_MAX, 'f'},     \
      {"step_beta", offsetof(record, steps.beta), DVT_STEPS_MAX, 'f'},

#define WINDOW_ATTRIBUTES(record)                                                        \
  {"group", offsetof(record, product.group), 1, 'i'},                                    \
      {"strides", offsetof(record, product.window.strides), DVT_SPATIAL_MAX, 'i'},       \
      {"dilations", offsetof(record, product.window.dilations), DVT_SPATIAL_MAX, 'i'},   \
      {"pads_begin", offsetof(record, product.window.pads_begin), DVT_SPATIAL_MAX, 'i'}, \
      {"pads_end", offsetof(record, product.window.pads_end), DVT_SPATIAL_MAX, 'i'},     \
      {"auto_pad", offsetof(record, product.window.auto_pad), 1, 'i'},

static const DvtAttribute conv_attributes[] = {WINDOW_ATTRIBUTES(DvtFusedConvAttributes)
                                                   STEP_ATTRIBUTES(DvtFusedConvAttributes)};
static const DvtAttribute transpose_attributes[] = {
    WINDOW_ATTRIBUTES(DvtFusedConvTransposeAttributes){
        "output_padding", offsetof(DvtFusedConvTransposeAttributes, product.output_padding),
        DVT_SPATIAL_MAX, 'i'},
    {"output_shape", offsetof(DvtFusedConvTransposeAttributes, product.output_shape),
     DVT_SPATIAL_MAX, 'i'},
    STEP_ATTRIBUTES(DvtFusedConvTransposeAttributes)};
static const DvtAttribute matmul_attributes[] = {STEP_ATTRIBUTES(DvtFusedMatMulAttributes)};
static const DvtAttribute gemm_attributes[] = {
    {"alpha", offsetof(DvtFusedGemmAttributes, product.alpha), 1, 'f'},
    {"beta", offsetof(DvtFusedGemmAttributes, product.beta), 1, 'f'},
    {"transpose_a", offsetof(DvtFusedGemmAttributes, product.transpose_a), 1, 'i'},
    {"transpose_b", offsetof(DvtFusedGemmAttributes, product.transpose_b), 1, 'i'},
    STEP_ATTRIBUTES(DvtFusedGemmAttributes)};

#define FUSED_KERNEL(kernel_name, family, suffix, list, record)                                   \
  {                                                                                               \
    .name = kernel_name "." #suffix, .abi_version = DVT_KERNEL_ABI_VERSION,                       \
    .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE, .input_min = 2, .input_max = 3 + DVT_STEPS_MAX, \
    .output_min = 1, .output_max = 2, .attribute_bytes = sizeof(record),                          \
    .attribute_count = sizeof list / sizeof list[0], .attributes = list,                          \
    .run = run_fused_##family##_##suffix, .check = check_fused_##family##_##suffix,               \
    .infer = infer_fused_##family, .cost = cost_fused_##family                                    \
  }
#define FUSED_KERNELS(kernel_name, family, list, record)    \
  FUSED_KERNEL(kernel_name, family, f32, list, record),     \
      FUSED_KERNEL(kernel_name, family, f64, list, record), \
      FUSED_KERNEL(kernel_name, family, f16, list, record), \
      FUSED_KERNEL(kernel_name, family, bf16, list, record)

DvtKernelTable dvt_kernels_fused(void) {
  static const DvtKernel kernels[] = {
      FUSED_KERNELS("FusedConv", conv, conv_attributes, DvtFusedConvAttributes),
      FUSED_KERNELS("FusedConvTranspose", transpose, transpose_attributes,
                    DvtFusedConvTransposeAttributes),
      FUSED_KERNELS("FusedMatMul", matmul, matmul_attributes, DvtFusedMatMulAttributes),
      FUSED_KERNELS("FusedGemm", gemm, gemm_attributes, DvtFusedGemmAttributes),
  };
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
