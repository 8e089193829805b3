#include "ops/kernels/attention.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "ops/kernels/element.h"
#include "ops/kernels/elementwise_loops.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/matrix.h"
#include "ops/kernels/normalisation.h"
#include "ops/kernels/shape.h"

enum { Q = 0, K = 1, V = 2, MASK = 3, CELLS_MAX = 4 };

/* A kernel call on operands of this file's own. */
typedef struct Call {
  _Alignas(8) char context[sizeof(DvtContext) + CELLS_MAX * sizeof(DvtCell*)];
  DvtCell cells[CELLS_MAX];
} Call;

static DvtCode call(DvtKernelTable table, const char* base, DvtDType dtype, const void* attributes,
                    uint16_t inputs, uint16_t outputs, Call* operands) {
  DvtContext* ctx = (DvtContext*)(void*)operands->context;
  *ctx = (DvtContext){.attributes = attributes,
                      .input_count = inputs,
                      .output_count = outputs,
                      .stream = DVT_NO_INDEX,
                      .device_kernel = DVT_NO_INDEX};
  DvtCell** cells = (DvtCell**)(void*)(operands->context + offsetof(DvtContext, cells));
  for (uint32_t i = 0; i < (uint32_t)inputs + outputs; ++i) cells[i] = &operands->cells[i];
  const size_t length = strlen(base);
  for (size_t i = 0; i < table.count; ++i) {
    const char* name = table.kernels[i].name;
    if (strncmp(name, base, length) == 0 && strcmp(name + length, dvt_dtype_text(dtype)) == 0) {
      return table.kernels[i].run(ctx);
    }
  }
  return DVT_INTERNAL;
}

static DvtTensor matrix(DvtDType dtype, int64_t rows, int64_t columns) {
  DvtTensor tensor = {.dtype = dtype, .rank = 2, .dims = {rows, columns}};
  tensor.bytes = (uint64_t)rows * (uint64_t)columns * dvt_dtype_size(dtype);
  return tensor;
}

/* Batch axes of Q, K, V and the mask broadcast, and so do the mask's last two and the scores. */
typedef struct Extents {
  uint32_t axes; /* Of the batch. */
  int64_t batch[DVT_MAX_RANK];
  int64_t batches;
  int64_t product_m, product_n; /* Of Q K ... */
  int64_t m, n;                 /* ... and with the mask. */
  int64_t d, e;
} Extents;

/* What both broadcast to; -1: they do not. */
static int64_t spread(int64_t a, int64_t b) {
  if (a == b || b == 1) return a;
  return a == 1 ? b : -1;
}

/* Extent of an axis that is counted from the last one, 0. */
static int64_t axis_from_end(const DvtTensor* tensor, uint32_t axis) {
  return axis < tensor->rank ? tensor->dims[tensor->rank - 1 - axis] : 1;
}

/* Precondition: ranks of at least 2, and a mask of no higher rank. False: no broadcast. */
static bool extents_of(const DvtContext* ctx, Extents* extents) {
  const DvtTensor* q = dvt_input_tensor(ctx, Q);
  const DvtTensor* k = dvt_input_tensor(ctx, K);
  const DvtTensor* v = dvt_input_tensor(ctx, V);
  const DvtTensor* mask = dvt_has_input(ctx, MASK) ? dvt_input_tensor(ctx, MASK) : NULL;
  *extents = (Extents){.axes = q->rank - 2U,
                       .batches = 1,
                       .product_m = axis_from_end(q, 1),
                       .product_n = axis_from_end(k, 0),
                       .d = axis_from_end(q, 0),
                       .e = axis_from_end(v, 0)};
  bool fits = true;
  for (uint32_t i = 0; i < extents->axes; ++i) {
    const uint32_t axis = q->rank - 1U - i;
    int64_t extent = spread(q->dims[i], k->dims[i]);
    if (extent >= 0) extent = spread(extent, v->dims[i]);
    if (extent >= 0 && mask != NULL) extent = spread(extent, axis_from_end(mask, axis));
    fits = fits && extent >= 0;
    extents->batch[i] = extent;
    fits = fits && !__builtin_mul_overflow(extents->batches, extent, &extents->batches);
  }
  extents->m = spread(extents->product_m, mask == NULL ? 1 : axis_from_end(mask, 1));
  extents->n = spread(extents->product_n, mask == NULL ? 1 : axis_from_end(mask, 0));
  return fits && extents->m >= 0 && extents->n >= 0;
}

/* Where an operand has its matrix for a batch, counted in matrices. */
static int64_t matrix_at(const Extents* extents, const DvtTensor* tensor, int64_t batch) {
  int64_t at = 0;
  int64_t stride = 1;
  for (uint32_t i = extents->axes; i-- > 0;) { /* From the innermost batch axis outwards. */
    const int64_t own = axis_from_end(tensor, extents->axes + 1 - i);
    if (own != 1) at += batch % extents->batch[i] * stride;
    batch /= extents->batch[i];
    stride *= own;
  }
  return at;
}

uint64_t dvt_attention_workspace_bytes(DvtDType dtype, int64_t m, int64_t n) {
  uint64_t bytes = 0;
  if (__builtin_mul_overflow((uint64_t)m, (uint64_t)n, &bytes) ||
      __builtin_mul_overflow(bytes, (uint64_t)dvt_dtype_size(dtype), &bytes) ||
      bytes > (uint64_t)INT64_MAX / 2) {
    return 0;
  }
  return bytes + (dtype == DVT_F32 ? dvt_matrix_workspace_bytes() : 0);
}

/* y = a * b, with MatMul's kernel. */
static DvtCode multiply(DvtDType dtype, void* a, const DvtTensor* a_tensor, void* b,
                        const DvtTensor* b_tensor, void* y, const DvtTensor* y_tensor,
                        void* scratch) {
  const DvtTensor scratch_tensor = {.dtype = DVT_U8,
                                    .rank = 1,
                                    .dims = {(int64_t)dvt_matrix_workspace_bytes()},
                                    .bytes = dvt_matrix_workspace_bytes()};
  Call operands = {.cells = {{.data = a, .tensor = a_tensor},
                             {.data = b, .tensor = b_tensor},
                             {.data = y, .tensor = y_tensor},
                             {.data = scratch, .tensor = &scratch_tensor}}};
  return call(dvt_kernels_matrix(), "MatMul.", dtype, NULL, 2, dtype == DVT_F32 ? 2 : 1, &operands);
}

static DvtOperand operand_of(DvtDType dtype, void* data, const DvtTensor* tensor, bool is_output) {
  const bool is_half = dvt_dtype_is_half(dtype);
  return (DvtOperand){
      .data = data,
      .tensor = tensor,
      .size = dvt_dtype_size(dtype),
      .loop_size = is_half ? (uint32_t)sizeof(float) : dvt_dtype_size(dtype),
      .convert = is_output ? dvt_f32_to_half_loop(dtype) : dvt_half_to_f32_loop(dtype)};
}

/* scores = loop(scores, other). */
static void combine(DvtDType dtype, DvtLoop loop, void* scores, const DvtTensor* scores_tensor,
                    void* other, const DvtTensor* other_tensor) {
  const DvtMap map = {.loop = loop,
                      .input_count = 2,
                      .inputs = {operand_of(dtype, scores, scores_tensor, false),
                                 operand_of(dtype, other, other_tensor, false)},
                      .output = operand_of(dtype, scores, scores_tensor, true)};
  (void)dvt_map_run(&map, -1);
}

/* The mask's part for a batch, as a matrix that broadcasts to the scores. */
static char* mask_of(const DvtContext* ctx, const Extents* extents, int64_t batch,
                     DvtTensor* part) {
  const DvtTensor* mask = dvt_input_tensor(ctx, MASK);
  *part = matrix(mask->dtype, axis_from_end(mask, 1), axis_from_end(mask, 0));
  return (char*)dvt_input(ctx, MASK)->data + (size_t)matrix_at(extents, mask, batch) * part->bytes;
}

/* Scores that the mask has more of: rows and columns are repeated, the last first, in place. */
static void repeat_scores(const Extents* extents, char* scores, size_t size) {
  if (extents->m == extents->product_m && extents->n == extents->product_n) return;
  for (int64_t i = extents->m; i-- > 0;) {
    for (int64_t j = extents->n; j-- > 0;) {
      const int64_t row = extents->product_m == 1 ? 0 : i;
      const int64_t column = extents->product_n == 1 ? 0 : j;
      memmove(scores + (size_t)(i * extents->n + j) * size,
              scores + (size_t)(row * extents->product_n + column) * size, size);
    }
  }
}

static void finish_scores(const DvtContext* ctx, DvtDType dtype, const Extents* extents,
                          int64_t batch, char* scores, const DvtTensor* tensor) {
  repeat_scores(extents, scores, dvt_dtype_size(dtype));
  const DvtAttentionAttributes* attributes = ctx->attributes;
  const DvtNumericLoops* loops = dvt_numeric_loops(dtype);
  if (attributes->scaling != DVT_ATTENTION_PLAIN) {
    _Alignas(8) char number[sizeof(double)];
    dvt_narrow_loop(DVT_F64, dtype)(&attributes->scale, number, 1);
    const DvtTensor scalar = {.dtype = dtype, .rank = 0, .bytes = dvt_dtype_size(dtype)};
    combine(dtype, attributes->scaling == DVT_ATTENTION_DIVIDE ? loops->div : loops->mul, scores,
            tensor, number, &scalar);
  }
  if (dvt_has_input(ctx, MASK)) {
    DvtTensor part;
    char* mask = mask_of(ctx, extents, batch, &part);
    combine(dtype, loops->add, scores, tensor, mask, &part);
  }
}

static char* operand_at(const DvtContext* ctx, const Extents* extents, uint32_t input,
                        int64_t batch, const DvtTensor* part) {
  const int64_t at = matrix_at(extents, dvt_input_tensor(ctx, input), batch);
  return (char*)dvt_input(ctx, input)->data + (size_t)at * part->bytes;
}

static DvtCode run_attention(const DvtContext* ctx, DvtDType dtype) {
  if (dvt_output_tensor(ctx, 0)->bytes == 0) return DVT_OK;
  Extents extents;
  (void)extents_of(ctx, &extents);
  const DvtTensor q = matrix(dtype, extents.product_m, extents.d);
  const DvtTensor k = matrix(dtype, extents.d, extents.product_n);
  const DvtTensor v = matrix(dtype, extents.n, extents.e);
  const DvtTensor y = matrix(dtype, extents.m, extents.e);
  const DvtTensor product = matrix(dtype, extents.product_m, extents.product_n);
  const DvtTensor scores_tensor = matrix(dtype, extents.m, extents.n);
  char* scratch = dvt_output_data(ctx, 1);
  char* scores = scratch + (dtype == DVT_F32 ? dvt_matrix_workspace_bytes() : 0);
  const DvtSoftmaxAttributes softmax = {.axis = 1, .flatten = 0, .log = 0};
  DvtCode code = DVT_OK;
  for (int64_t batch = 0; code == DVT_OK && batch < extents.batches; ++batch) {
    char* y_data = (char*)dvt_output_data(ctx, 0) + (size_t)batch * y.bytes;
    code = multiply(dtype, operand_at(ctx, &extents, Q, batch, &q), &q,
                    operand_at(ctx, &extents, K, batch, &k), &k, scores, &product, scratch);
    if (code != DVT_OK) break;
    finish_scores(ctx, dtype, &extents, batch, scores, &scores_tensor);
    Call operands = {.cells = {{.data = scores, .tensor = &scores_tensor},
                               {.data = scores, .tensor = &scores_tensor}}};
    code = call(dvt_kernels_normalisation(), "Softmax.", dtype, &softmax, 1, 1, &operands);
    if (code == DVT_OK) {
      code = multiply(dtype, scores, &scores_tensor, operand_at(ctx, &extents, V, batch, &v), &v,
                      y_data, &y, scratch);
    }
  }
  return code;
}

static DvtCode check_operands(const DvtContext* ctx, Extents* extents, char* reason, size_t size) {
  const DvtTensor* q = dvt_input_tensor(ctx, Q);
  const DvtTensor* k = dvt_input_tensor(ctx, K);
  const DvtTensor* v = dvt_input_tensor(ctx, V);
  if (q->rank < 2 || k->rank != q->rank || v->rank != q->rank) {
    return dvt_refuse(reason, size, "ranks %u, %u and %u of Q, K and V: expected equal, 2 at least",
                      q->rank, k->rank, v->rank);
  }
  if (dvt_has_input(ctx, MASK) && dvt_input_tensor(ctx, MASK)->rank > q->rank) {
    return dvt_refuse(reason, size, "the mask has a higher rank than the scores");
  }
  if (!extents_of(ctx, extents)) {
    return dvt_refuse(reason, size, "Q, K, V and the mask do not broadcast to each other");
  }
  if (axis_from_end(k, 1) != extents->d || axis_from_end(v, 1) != extents->n) {
    return dvt_refuse(reason, size, "Q, K and V do not multiply");
  }
  return DVT_OK;
}

static DvtCode infer_attention(const DvtContext* ctx, DvtTensor* outputs, char* reason,
                               size_t size) {
  Extents extents;
  DvtCode code = dvt_check_inputs(ctx, 3, 4, reason, size);
  if (code == DVT_OK) code = check_operands(ctx, &extents, reason, size);
  if (code != DVT_OK) return code;
  int64_t dims[DVT_MAX_RANK];
  for (uint32_t i = 0; i < extents.axes; ++i) dims[i] = extents.batch[i];
  dims[extents.axes] = extents.m;
  dims[extents.axes + 1] = extents.e;
  code = dvt_infer_shape(&outputs[0], extents.axes + 2, dims, "Y", reason, size);
  if (code != DVT_OK || ctx->output_count < 2) return code;
  const uint64_t bytes =
      dvt_attention_workspace_bytes(dvt_input_tensor(ctx, Q)->dtype, extents.m, extents.n);
  if (bytes == 0 && extents.m != 0 && extents.n != 0) {
    return dvt_refuse(reason, size, "the scores do not fit into memory");
  }
  return dvt_infer_scratch(&outputs[1], bytes, reason, size);
}

/* Two products; what lies between them stays close to the cores. */
static void cost_attention(const DvtContext* ctx, DvtTaskCost* cost) {
  Extents extents;
  (void)extents_of(ctx, &extents);
  cost->kind = DVT_TASK_MATMUL;
  cost->batch = (uint64_t)extents.batches;
  cost->m = (uint64_t)extents.m;
  cost->n = (uint64_t)extents.n;
  cost->k = (uint64_t)(extents.d + extents.e);
}

static DvtCode check_attention(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 3, 4, 2, 2, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  for (uint32_t i = 0; code == DVT_OK && i < ctx->input_count; ++i) {
    if (dvt_has_input(ctx, i)) {
      code = dvt_check_dtype(dvt_input_tensor(ctx, i), dtype, "inputs", reason, size);
    }
  }
  if (code == DVT_OK) code = dvt_check_dtype(dvt_output_tensor(ctx, 0), dtype, "Y", reason, size);
  if (code != DVT_OK) return code;
  const int64_t scaling = ((const DvtAttentionAttributes*)ctx->attributes)->scaling;
  if (scaling < DVT_ATTENTION_PLAIN || scaling > DVT_ATTENTION_DIVIDE) {
    return dvt_refuse(reason, size, "there is no scaling %" PRId64, scaling);
  }
  return dvt_check_inferred(ctx, infer_attention, 1, reason, size);
}

DVT_TYPED_KERNEL(attention, f32, DVT_F32)
DVT_TYPED_KERNEL(attention, f64, DVT_F64)
DVT_TYPED_KERNEL(attention, f16, DVT_F16)
DVT_TYPED_KERNEL(attention, bf16, DVT_BF16)

static const DvtAttribute attention_attributes[] = {
    {"scaling", offsetof(DvtAttentionAttributes, scaling), 1, 'i'},
    {"scale", offsetof(DvtAttentionAttributes, scale), 1, 'f'},
};

#define ATTENTION_KERNEL(suffix)                                                                   \
  {                                                                                                \
    .name = "Attention." #suffix, .abi_version = DVT_KERNEL_ABI_VERSION,                           \
    .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE, .input_min = 3, .input_max = 4, .output_min = 2, \
    .output_max = 2, .attribute_bytes = sizeof(DvtAttentionAttributes), .attribute_count = 2,      \
    .attributes = attention_attributes, .run = run_attention_##suffix,                             \
    .check = check_attention_##suffix, .infer = infer_attention, .cost = cost_attention            \
  }

DvtKernelTable dvt_kernels_attention(void) {
  static const DvtKernel kernels[] = {ATTENTION_KERNEL(f32), ATTENTION_KERNEL(f64),
                                      ATTENTION_KERNEL(f16), ATTENTION_KERNEL(bf16)};
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
