#include "ops/kernels/attention.h"

#include <inttypes.h>

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

typedef struct Extents {
  int64_t batch, m, d, n, e;
} Extents;

static Extents extents_of(const DvtContext* ctx) {
  const DvtTensor* q = dvt_input_tensor(ctx, Q);
  const DvtTensor* k = dvt_input_tensor(ctx, K);
  const DvtTensor* v = dvt_input_tensor(ctx, V);
  Extents extents = {.batch = 1,
                     .m = q->dims[q->rank - 2],
                     .d = q->dims[q->rank - 1],
                     .n = k->dims[k->rank - 1],
                     .e = v->dims[v->rank - 1]};
  for (uint32_t i = 0; i + 2 < q->rank; ++i) extents.batch *= q->dims[i];
  return extents;
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
static char* mask_of(const DvtContext* ctx, int64_t batch, DvtTensor* part) {
  const DvtTensor* mask = dvt_input_tensor(ctx, MASK);
  const DvtTensor* q = dvt_input_tensor(ctx, Q);
  *part = matrix(mask->dtype, mask->rank > 1 ? mask->dims[mask->rank - 2] : 1,
                 mask->rank > 0 ? mask->dims[mask->rank - 1] : 1);
  int64_t offset = 0;
  int64_t stride = part->dims[0] * part->dims[1];
  for (uint32_t i = 0; i + 2 < q->rank; ++i) { /* From the innermost batch axis outwards. */
    const int64_t extent = q->dims[q->rank - 3 - i];
    const int64_t own = i + 2 < mask->rank ? mask->dims[mask->rank - 3 - i] : 1;
    if (own != 1) offset += batch % extent * stride;
    batch /= extent;
    stride *= own;
  }
  return (char*)dvt_input(ctx, MASK)->data + (size_t)offset * dvt_dtype_size(mask->dtype);
}

static void finish_scores(const DvtContext* ctx, DvtDType dtype, int64_t batch, void* scores,
                          const DvtTensor* tensor) {
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
    char* mask = mask_of(ctx, batch, &part);
    combine(dtype, loops->add, scores, tensor, mask, &part);
  }
}

static DvtCode run_attention(const DvtContext* ctx, DvtDType dtype) {
  if (dvt_output_tensor(ctx, 0)->bytes == 0) return DVT_OK;
  const Extents extents = extents_of(ctx);
  const size_t size = dvt_dtype_size(dtype);
  const DvtTensor q = matrix(dtype, extents.m, extents.d);
  const DvtTensor k = matrix(dtype, extents.d, extents.n);
  const DvtTensor v = matrix(dtype, extents.n, extents.e);
  const DvtTensor y = matrix(dtype, extents.m, extents.e);
  const DvtTensor scores_tensor = matrix(dtype, extents.m, extents.n);
  char* scratch = dvt_output_data(ctx, 1);
  char* scores = scratch + (dtype == DVT_F32 ? dvt_matrix_workspace_bytes() : 0);
  const DvtSoftmaxAttributes softmax = {.axis = 1, .flatten = 0, .log = 0};
  DvtCode code = DVT_OK;
  for (int64_t batch = 0; code == DVT_OK && batch < extents.batch; ++batch) {
    char* q_data = (char*)dvt_input(ctx, Q)->data + (size_t)(batch * extents.m * extents.d) * size;
    char* k_data = (char*)dvt_input(ctx, K)->data + (size_t)(batch * extents.d * extents.n) * size;
    char* v_data = (char*)dvt_input(ctx, V)->data + (size_t)(batch * extents.n * extents.e) * size;
    char* y_data = (char*)dvt_output_data(ctx, 0) + (size_t)(batch * extents.m * extents.e) * size;
    code = multiply(dtype, q_data, &q, k_data, &k, scores, &scores_tensor, scratch);
    if (code != DVT_OK) break;
    finish_scores(ctx, dtype, batch, scores, &scores_tensor);
    Call operands = {.cells = {{.data = scores, .tensor = &scores_tensor},
                               {.data = scores, .tensor = &scores_tensor}}};
    code = call(dvt_kernels_normalisation(), "Softmax.", dtype, &softmax, 1, 1, &operands);
    if (code == DVT_OK) {
      code = multiply(dtype, scores, &scores_tensor, v_data, &v, y_data, &y, scratch);
    }
  }
  return code;
}

static DvtCode check_operands(const DvtContext* ctx, char* reason, size_t size) {
  const DvtTensor* q = dvt_input_tensor(ctx, Q);
  const DvtTensor* k = dvt_input_tensor(ctx, K);
  const DvtTensor* v = dvt_input_tensor(ctx, V);
  if (q->rank < 2 || k->rank != q->rank || v->rank != q->rank) {
    return dvt_refuse(reason, size, "ranks %u, %u and %u of Q, K and V: expected equal, 2 at least",
                      q->rank, k->rank, v->rank);
  }
  for (uint32_t i = 0; i + 2 < q->rank; ++i) {
    if (k->dims[i] == q->dims[i] && v->dims[i] == q->dims[i]) continue;
    return dvt_refuse(reason, size, "batch axis %u of Q, K and V differs", i);
  }
  const Extents extents = extents_of(ctx);
  if (k->dims[k->rank - 2] != extents.d || v->dims[v->rank - 2] != extents.n) {
    return dvt_refuse(reason, size, "Q, K and V do not multiply");
  }
  if (!dvt_has_input(ctx, MASK)) return DVT_OK;
  const DvtTensor* mask = dvt_input_tensor(ctx, MASK);
  bool fits = mask->rank <= q->rank;
  for (uint32_t i = 0; fits && i < mask->rank; ++i) {
    const uint32_t axis = q->rank - mask->rank + i;
    const int64_t extent = axis == q->rank - 1U ? extents.n : q->dims[axis];
    fits = mask->dims[i] == 1 || mask->dims[i] == extent;
  }
  return fits ? DVT_OK : dvt_refuse(reason, size, "the mask does not broadcast to the scores");
}

static DvtCode infer_attention(const DvtContext* ctx, DvtTensor* outputs, char* reason,
                               size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 3, 4, reason, size);
  if (code == DVT_OK) code = check_operands(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* q = dvt_input_tensor(ctx, Q);
  const Extents extents = extents_of(ctx);
  int64_t dims[DVT_MAX_RANK];
  for (uint32_t i = 0; i < q->rank; ++i) dims[i] = q->dims[i];
  dims[q->rank - 1] = extents.e;
  code = dvt_infer_shape(&outputs[0], q->rank, dims, "Y", reason, size);
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
  const Extents extents = extents_of(ctx);
  cost->kind = DVT_TASK_MATMUL;
  cost->batch = (uint64_t)extents.batch;
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
