#include "ops/kernels/einsum.h"

#include <inttypes.h>

#include "ops/kernels/cost.h"
#include "ops/kernels/element.h"
#include "ops/kernels/gemm.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/shape.h"

/* Symbols of the record, then one for each axis of an ellipsis, from its last. */
enum { SYMBOL_COUNT = DVT_EINSUM_SYMBOLS + DVT_MAX_RANK };

uint64_t dvt_einsum_workspace_bytes(void) {
  return DVT_GEMM_WORKSPACE_BYTES;
}

/* ---- The iteration space --------------------------------------------------------------------- */

/* One loop: over a symbol, or several that step alike. */
typedef struct Loop {
  int64_t extent;
  int64_t steps[DVT_EINSUM_OPERANDS]; /* In elements of each operand. */
  int64_t y_step;
} Loop;

typedef struct Space {
  int operands;
  int outer; /* Loops [0, outer) are the output's axes ... */
  int count; /* ... and [outer, count) are summed over. */
  Loop loops[SYMBOL_COUNT];
} Space;

/* The symbol of each axis of a term, for a tensor of `rank` axes. */
static DvtCode expand_term(const int64_t* term, int64_t length, uint32_t rank, int ellipsis_rank,
                           int symbols[DVT_MAX_RANK], char* reason, size_t size) {
  uint32_t axis = 0;
  for (int64_t i = 0; i < length; ++i) {
    if (term[i] != DVT_EINSUM_ELLIPSIS) {
      if (axis < rank) symbols[axis] = (int)term[i];
      ++axis;
      continue;
    }
    for (int k = ellipsis_rank; k > 0; --k, ++axis) {
      if (axis < rank) symbols[axis] = DVT_EINSUM_SYMBOLS + k - 1;
    }
  }
  if (axis == rank) return DVT_OK;
  return dvt_refuse(reason, size, "a term of %u axes for an operand of %u", axis, rank);
}

/* Whether the entries of a term are symbols, with at most one ellipsis. */
static bool is_term(const int64_t* term, int64_t length, int* ellipses) {
  *ellipses = 0;
  if (length < 0 || length > DVT_EINSUM_TERM) return false;
  for (int64_t i = 0; i < length; ++i) {
    if (term[i] < DVT_EINSUM_ELLIPSIS || term[i] >= DVT_EINSUM_SYMBOLS) return false;
    *ellipses += term[i] == DVT_EINSUM_ELLIPSIS ? 1 : 0;
  }
  return *ellipses <= 1;
}

static DvtCode check_terms(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 1, DVT_EINSUM_OPERANDS, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtEinsumAttributes* attributes = ctx->attributes;
  if (attributes->operands != ctx->input_count) {
    return dvt_refuse(reason, size, "%" PRId64 " terms for %u operands", attributes->operands,
                      ctx->input_count);
  }
  int ellipses = 0;
  for (uint32_t i = 0; i < ctx->input_count; ++i) {
    if (!dvt_has_input(ctx, i)) return dvt_refuse(reason, size, "input %u is absent", i);
    if (!is_term(attributes->terms + i * DVT_EINSUM_TERM, attributes->lengths[i], &ellipses)) {
      return dvt_refuse(reason, size, "term %u is not one", i);
    }
  }
  if (is_term(attributes->output, attributes->output_length, &ellipses)) return DVT_OK;
  return dvt_refuse(reason, size, "the output's term is not one");
}

static int ellipsis_rank(const int64_t* term, int64_t length, uint32_t rank) {
  for (int64_t i = 0; i < length; ++i) {
    if (term[i] == DVT_EINSUM_ELLIPSIS) return (int)rank - (int)(length - 1);
  }
  return 0;
}

/* What the terms say about each symbol, in the order of their first appearance. */
typedef struct Symbols {
  Loop loops[SYMBOL_COUNT];
  int order[SYMBOL_COUNT];
  int count;
  int ellipsis; /* Axes of the longest one. */
} Symbols;

/* Joins operand `i`. `loops` of symbols that did not appear have extent 0 and operand steps 0. */
static DvtCode join_operand(const DvtContext* ctx, uint32_t i, Symbols* symbols,
                            bool seen[SYMBOL_COUNT], char* reason, size_t size) {
  const DvtEinsumAttributes* attributes = ctx->attributes;
  const DvtTensor* tensor = dvt_input_tensor(ctx, i);
  const int64_t* term = attributes->terms + (size_t)i * DVT_EINSUM_TERM;
  const int ellipsis = ellipsis_rank(term, attributes->lengths[i], tensor->rank);
  int axes[DVT_MAX_RANK] = {0};
  const DvtCode code = expand_term(term, attributes->lengths[i], tensor->rank,
                                   ellipsis < 0 ? 0 : ellipsis, axes, reason, size);
  if (code != DVT_OK) return code;
  if (ellipsis > symbols->ellipsis) symbols->ellipsis = ellipsis;
  int64_t strides[DVT_MAX_RANK];
  dvt_row_major_strides(tensor, strides);
  for (uint32_t axis = 0; axis < tensor->rank; ++axis) {
    Loop* loop = &symbols->loops[axes[axis]];
    const int64_t extent = tensor->dims[axis];
    if (!seen[axes[axis]]) {
      seen[axes[axis]] = true;
      symbols->order[symbols->count++] = axes[axis];
      loop->extent = extent;
    } else if (loop->extent == 1) {
      loop->extent = extent;
    } else if (extent != 1 && extent != loop->extent) {
      return dvt_refuse(reason, size, "input %u: axis %u has %" PRId64 " elements, not %" PRId64, i,
                        axis, extent, loop->extent);
    }
    if (extent != 1) loop->steps[i] += strides[axis];
  }
  return DVT_OK;
}

/* The loops of all symbols, and the shape of the output. */
static DvtCode describe(const DvtContext* ctx, Space* space, uint32_t* rank,
                        int64_t dims[DVT_MAX_RANK], char* reason, size_t size) {
  DvtCode code = check_terms(ctx, reason, size);
  Symbols symbols = {.count = 0};
  bool seen[SYMBOL_COUNT] = {false};
  for (uint32_t i = 0; code == DVT_OK && i < ctx->input_count; ++i) {
    code = join_operand(ctx, i, &symbols, seen, reason, size);
  }
  if (code != DVT_OK) return code;
  const DvtEinsumAttributes* attributes = ctx->attributes;
  *space = (Space){.operands = ctx->input_count};
  bool in_output[SYMBOL_COUNT] = {false};
  *rank = 0;
  for (int64_t i = 0; i < attributes->output_length; ++i) {
    const bool is_ellipsis = attributes->output[i] == DVT_EINSUM_ELLIPSIS;
    const int repeat = is_ellipsis ? symbols.ellipsis : 1;
    for (int k = repeat; k > 0; --k) {
      const int symbol = is_ellipsis ? DVT_EINSUM_SYMBOLS + k - 1 : (int)attributes->output[i];
      if (*rank == DVT_MAX_RANK || !seen[symbol] || in_output[symbol]) {
        return dvt_refuse(reason, size, "the output's term repeats a symbol, or has another");
      }
      in_output[symbol] = true;
      dims[(*rank)++] = symbols.loops[symbol].extent;
      space->loops[space->count++] = symbols.loops[symbol];
    }
  }
  space->outer = space->count;
  for (int i = 0; i < symbols.count; ++i) {
    if (!in_output[symbols.order[i]])
      space->loops[space->count++] = symbols.loops[symbols.order[i]];
  }
  return DVT_OK;
}

/* Sets the steps of Y, and refuses spaces that nobody could walk through. */
static DvtCode finish_space(Space* space, char* reason, size_t size) {
  int64_t points = 1;
  for (int i = space->count; i > 0; --i) {
    Loop* loop = &space->loops[i - 1];
    if (loop->extent == 0) return DVT_OK;
    if (i <= space->outer) {
      loop->y_step = 1;
      for (int k = i; k < space->outer; ++k) loop->y_step *= space->loops[k].extent;
    }
    if (__builtin_mul_overflow(points, loop->extent, &points)) {
      return dvt_refuse(reason, size, "the operands span too many products");
    }
  }
  return DVT_OK;
}

static DvtCode infer_einsum(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  Space space;
  uint32_t rank = 0;
  int64_t dims[DVT_MAX_RANK];
  DvtCode code = describe(ctx, &space, &rank, dims, reason, size);
  if (code == DVT_OK) code = dvt_infer_shape(&outputs[0], rank, dims, "Y", reason, size);
  if (code == DVT_OK) code = finish_space(&space, reason, size);
  if (code != DVT_OK || ctx->output_count < 2) return code;
  return dvt_infer_scratch(&outputs[1], dvt_einsum_workspace_bytes(), reason, size);
}

/* ---- Any operands ---------------------------------------------------------------------------- */

/* Steps through the loops [begin, end); false after the last point. */
static bool step(const Space* space, int begin, int end, int64_t* index, int64_t* at) {
  for (int i = end; i > begin; --i) {
    const Loop* loop = &space->loops[i - 1];
    for (int k = 0; k < space->operands; ++k) at[k] += loop->steps[k];
    if (++index[i - 1] < loop->extent) return true;
    for (int k = 0; k < space->operands; ++k) at[k] -= loop->steps[k] * loop->extent;
    index[i - 1] = 0;
  }
  return false;
}

DVT_INLINE double product_real(const DvtContext* ctx, const Space* space, const int64_t* at,
                               DvtDType dtype) {
  double product = dvt_load_real(dvt_input_data(ctx, 0), dtype, at[0]);
  for (int k = 1; k < space->operands; ++k) {
    const double factor = dvt_load_real(dvt_input_data(ctx, (uint32_t)k), dtype, at[k]);
    product = dvt_round_real(product * factor, dtype);
  }
  return product;
}

DVT_INLINE uint64_t product_integer(const DvtContext* ctx, const Space* space, const int64_t* at,
                                    DvtDType dtype) {
  uint64_t product = dvt_load_integer(dvt_input_data(ctx, 0), dtype, at[0]);
  for (int k = 1; k < space->operands; ++k) {
    product *= dvt_load_integer(dvt_input_data(ctx, (uint32_t)k), dtype, at[k]);
  }
  return product;
}

DVT_INLINE void sum_all(const DvtContext* ctx, const Space* space, DvtDType dtype) {
  int64_t index[SYMBOL_COUNT] = {0};
  int64_t at[DVT_EINSUM_OPERANDS] = {0};
  void* y = dvt_output_data(ctx, 0);
  for (int64_t y_at = 0;; ++y_at) {
    if (dvt_dtype_is_float(dtype)) {
      double sum = 0.0;
      do {
        sum = dvt_round_real(sum + product_real(ctx, space, at, dtype), dtype);
      } while (step(space, space->outer, space->count, index, at));
      dvt_store_real(y, dtype, y_at, sum);
    } else {
      uint64_t sum = 0;
      do {
        sum += product_integer(ctx, space, at, dtype);
      } while (step(space, space->outer, space->count, index, at));
      dvt_store_integer(y, dtype, y_at, sum);
    }
    if (!step(space, 0, space->outer, index, at)) return;
  }
}

/* ---- Two operands as matrix products --------------------------------------------------------- */

/* Loops joined into one where every operand and Y step alike; extent 1 where there are none. */
typedef struct Group {
  Loop loop;
  bool any, whole;
} Group;

/* Appends a faster loop. A loop that does not continue the group leaves `whole` false. */
static void extend(Group* group, const Loop* loop) {
  if (!group->any) {
    *group = (Group){.loop = *loop, .any = true, .whole = true};
    return;
  }
  const bool continues = group->loop.steps[0] == loop->steps[0] * loop->extent &&
                         group->loop.steps[1] == loop->steps[1] * loop->extent &&
                         group->loop.y_step == loop->y_step * loop->extent;
  group->whole = group->whole && continues;
  const int64_t extent = group->loop.extent * loop->extent;
  group->loop = *loop;
  group->loop.extent = extent;
}

typedef struct Product {
  Space batch; /* Loops outside the product: both operands and Y step, or a part does not join. */
  Loop m, n, k;
} Product;

/* The space of two operands as batches of products; false when it is none. */
static bool as_product(const Space* space, Product* product) {
  const Loop one = {.extent = 1};
  Group m = {.loop = one, .whole = true};
  Group n = m;
  Group k = m;
  product->batch = (Space){.operands = 2};
  for (int i = 0; i < space->count; ++i) {
    const Loop* loop = &space->loops[i];
    if (loop->extent == 1) continue;
    const bool in_a = loop->steps[0] != 0;
    const bool in_b = loop->steps[1] != 0;
    Group* group = i >= space->outer ? &k : in_a && !in_b ? &m : in_b && !in_a ? &n : NULL;
    if (i >= space->outer && !(in_a && in_b)) return false; /* A sum over one operand. */
    if (group == NULL) {
      product->batch.loops[product->batch.count++] = *loop;
      continue;
    }
    const Group before = *group;
    extend(group, loop);
    if (group->whole) continue;
    if (group == &k) return false;
    product->batch.loops[product->batch.count++] = before.loop; /* The slower ones are batches. */
    *group = (Group){.loop = *loop, .any = true, .whole = true};
  }
  product->batch.outer = product->batch.count;
  product->m = m.loop;
  product->n = n.loop;
  product->k = k.loop;
  return true;
}

static void run_products(const DvtContext* ctx, const Product* product) {
  const bool swapped = product->n.y_step != 1 && product->n.extent != 1; /* Y's rows are B's. */
  const Loop* rows = swapped ? &product->n : &product->m;
  const Loop* columns = swapped ? &product->m : &product->n;
  const uint32_t a = swapped ? 1 : 0;
  const uint32_t b = 1 - a;
  int64_t index[SYMBOL_COUNT] = {0};
  int64_t at[DVT_EINSUM_OPERANDS] = {0};
  do {
    int64_t y_at = 0;
    for (int i = 0; i < product->batch.count; ++i) {
      y_at += index[i] * product->batch.loops[i].y_step;
    }
    const DvtGemmOperand source = {.b = (const float*)dvt_input_data(ctx, b) + at[b],
                                   .row = product->k.steps[b],
                                   .column = columns->steps[b]};
    const DvtGemm gemm = {.m = rows->extent,
                          .n = columns->extent,
                          .k = product->k.extent,
                          .a = (const float*)dvt_input_data(ctx, a) + at[a],
                          .a_row = rows->steps[a],
                          .a_column = product->k.steps[a],
                          .pack = dvt_gemm_pack_strided,
                          .source = &source,
                          .c = (float*)dvt_output_data(ctx, 0) + y_at,
                          .c_row = rows->y_step};
    dvt_gemm_f32(&gemm, dvt_output_data(ctx, 1));
  } while (step(&product->batch, 0, product->batch.count, index, at));
}

/* Whether gemm.h can write Y: its columns are one apart. */
static bool is_writable(const Product* product) {
  return product->n.y_step == 1 || product->n.extent == 1 || product->m.y_step == 1 ||
         product->m.extent == 1;
}

/* ---- Kernels --------------------------------------------------------------------------------- */

static void sum_any(const DvtContext* ctx, const Space* space, DvtDType dtype) {
  switch (dtype) { /* One copy for all integers: they are rare. */
    case DVT_F32:
      sum_all(ctx, space, DVT_F32);
      return;
    case DVT_F64:
      sum_all(ctx, space, DVT_F64);
      return;
    case DVT_F16:
      sum_all(ctx, space, DVT_F16);
      return;
    case DVT_BF16:
      sum_all(ctx, space, DVT_BF16);
      return;
    default:
      sum_all(ctx, space, dtype);
      return;
  }
}

static DvtCode run_einsum(const DvtContext* ctx, DvtDType dtype) {
  const DvtTensor* y = dvt_output_tensor(ctx, 0);
  if (y->bytes == 0) return DVT_OK;
  Space space;
  uint32_t rank = 0;
  int64_t dims[DVT_MAX_RANK];
  DvtCode code = describe(ctx, &space, &rank, dims, NULL, 0);
  if (code == DVT_OK) code = finish_space(&space, NULL, 0);
  if (code != DVT_OK) return code;
  for (int i = space.outer; i < space.count; ++i) {
    if (space.loops[i].extent != 0) continue;
    memset(dvt_output_data(ctx, 0), 0, y->bytes); /* Sums of nothing. */
    return DVT_OK;
  }
  Product product;
  if (dtype == DVT_F32 && dvt_has_output(ctx, 1) && space.operands == 2 &&
      as_product(&space, &product) && is_writable(&product)) {
    run_products(ctx, &product);
  } else {
    sum_any(ctx, &space, dtype);
  }
  return DVT_OK;
}

static DvtCode check_einsum(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code =
      dvt_check_counts(ctx, 1, DVT_EINSUM_OPERANDS, 1, dtype == DVT_F32 ? 2 : 1, reason, size);
  if (code == DVT_OK) code = dvt_check_dtypes(ctx, ~0u, 1, dtype, reason, size);
  if (code != DVT_OK) return code;
  return dvt_check_inferred(ctx, infer_einsum, ctx->output_count - 1U, reason, size);
}

/* All points of the space, or the product that it is. */
static void cost_einsum(const DvtContext* ctx, DvtTaskCost* cost) {
  dvt_cost_traffic(ctx, 1, cost);
  Space space;
  uint32_t rank = 0;
  int64_t dims[DVT_MAX_RANK];
  DvtCode code = describe(ctx, &space, &rank, dims, NULL, 0);
  if (code == DVT_OK) code = finish_space(&space, NULL, 0);
  if (code != DVT_OK) return;
  Product product;
  const bool cube = cost->dtype == DVT_F32 || dvt_dtype_is_half(cost->dtype);
  uint64_t points = 1;
  for (int i = 0; i < space.count; ++i) points *= (uint64_t)space.loops[i].extent;
  if (cube && space.operands == 2 && as_product(&space, &product)) {
    cost->kind = DVT_TASK_MATMUL;
    cost->batch = 1;
    for (int i = 0; i < product.batch.count; ++i) {
      cost->batch *= (uint64_t)product.batch.loops[i].extent;
    }
    cost->m = (uint64_t)product.m.extent;
    cost->n = (uint64_t)product.n.extent;
    cost->k = (uint64_t)product.k.extent;
    return;
  }
  cost->kind = dvt_dtype_size(cost->dtype) == 8 ? DVT_TASK_AICPU : DVT_TASK_VECTOR;
  cost->vector_elements = points;
  cost->vector_passes_x100 = 100 * (uint64_t)space.operands;
}

DVT_TYPED_KERNEL(einsum, f32, DVT_F32)
DVT_TYPED_KERNEL(einsum, f64, DVT_F64)
DVT_TYPED_KERNEL(einsum, f16, DVT_F16)
DVT_TYPED_KERNEL(einsum, bf16, DVT_BF16)
DVT_TYPED_KERNEL(einsum, i8, DVT_I8)
DVT_TYPED_KERNEL(einsum, i16, DVT_I16)
DVT_TYPED_KERNEL(einsum, i32, DVT_I32)
DVT_TYPED_KERNEL(einsum, i64, DVT_I64)
DVT_TYPED_KERNEL(einsum, u8, DVT_U8)
DVT_TYPED_KERNEL(einsum, u16, DVT_U16)
DVT_TYPED_KERNEL(einsum, u32, DVT_U32)
DVT_TYPED_KERNEL(einsum, u64, DVT_U64)

static const DvtAttribute einsum_attributes[] = {
    {"operands", offsetof(DvtEinsumAttributes, operands), 1, 'i'},
    {"lengths", offsetof(DvtEinsumAttributes, lengths), DVT_EINSUM_OPERANDS, 'i'},
    {"terms", offsetof(DvtEinsumAttributes, terms), DVT_EINSUM_OPERANDS* DVT_EINSUM_TERM, 'i'},
    {"output_length", offsetof(DvtEinsumAttributes, output_length), 1, 'i'},
    {"output", offsetof(DvtEinsumAttributes, output), DVT_EINSUM_TERM, 'i'},
};

#define EINSUM_KERNEL(suffix, outputs)                                                           \
  {                                                                                              \
    .name = "Einsum." #suffix, .abi_version = DVT_KERNEL_ABI_VERSION,                            \
    .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE, .input_min = 1,                                \
    .input_max = DVT_EINSUM_OPERANDS, .output_min = 1, .output_max = (outputs),                  \
    .attribute_bytes = sizeof(DvtEinsumAttributes),                                              \
    .attribute_count = sizeof einsum_attributes / sizeof(DvtAttribute),                          \
    .attributes = einsum_attributes, .run = run_einsum_##suffix, .check = check_einsum_##suffix, \
    .infer = infer_einsum, .cost = cost_einsum                                                   \
  }

DvtKernelTable dvt_kernels_einsum(void) {
  static const DvtKernel kernels[] = {
      EINSUM_KERNEL(f32, 2), EINSUM_KERNEL(f64, 1), EINSUM_KERNEL(f16, 1), EINSUM_KERNEL(bf16, 1),
      EINSUM_KERNEL(i8, 1),  EINSUM_KERNEL(i16, 1), EINSUM_KERNEL(i32, 1), EINSUM_KERNEL(i64, 1),
      EINSUM_KERNEL(u8, 1),  EINSUM_KERNEL(u16, 1), EINSUM_KERNEL(u32, 1), EINSUM_KERNEL(u64, 1),
  };
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
