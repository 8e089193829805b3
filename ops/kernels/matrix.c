#include "ops/kernels/matrix.h"

#include <inttypes.h>

#include "ops/kernels/cost.h"
#include "ops/kernels/element.h"
#include "ops/kernels/gemm.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/shape.h"

uint64_t dvt_matrix_workspace_bytes(void) {
  return DVT_GEMM_WORKSPACE_BYTES;
}

/* One product, strides in elements. */
typedef struct Product {
  int64_t m, n, k;
  int64_t a_row, a_column;
  int64_t b_row, b_column;
} Product;

/* What Gemm does to each sum: alpha * sum + beta * C, C broadcast by strides of 0. */
typedef struct Epilogue {
  double alpha, beta;
  const void* c; /* Or NULL. */
  int64_t row, column;
} Epilogue;

DVT_INLINE double finish_real(const Epilogue* epilogue, double sum, int64_t i, int64_t j,
                              DvtDType dtype) {
  double value = sum;
  if (epilogue->alpha != 1.0) {
    value = dvt_round_real(dvt_round_real(epilogue->alpha, dtype) * value, dtype);
  }
  if (epilogue->c != NULL) {
    double addend = dvt_load_real(epilogue->c, dtype, i * epilogue->row + j * epilogue->column);
    if (epilogue->beta != 1.0) {
      addend = dvt_round_real(dvt_round_real(epilogue->beta, dtype) * addend, dtype);
    }
    value = dvt_round_real(value + addend, dtype);
  }
  return value;
}

DVT_INLINE uint64_t finish_integer(const Epilogue* epilogue, uint64_t sum, int64_t i, int64_t j,
                                   DvtDType dtype) {
  uint64_t value = sum * (uint64_t)(int64_t)epilogue->alpha;
  if (epilogue->c != NULL) {
    value += dvt_load_integer(epilogue->c, dtype, i * epilogue->row + j * epilogue->column) *
             (uint64_t)(int64_t)epilogue->beta;
  }
  return value;
}

/* Plain sums of products for any dtype; element (i, j) goes to y[y0 + i * n + j]. */
DVT_INLINE void multiply_simple(const Product* product, const void* a, int64_t a0, const void* b,
                                int64_t b0, const Epilogue* epilogue, void* y, int64_t y0,
                                DvtDType dtype) {
  for (int64_t i = 0; i < product->m; ++i) {
    for (int64_t j = 0; j < product->n; ++j) {
      const int64_t a_at = a0 + i * product->a_row;
      const int64_t b_at = b0 + j * product->b_column;
      const int64_t y_at = y0 + i * product->n + j;
      if (dvt_dtype_is_float(dtype)) {
        double sum = 0.0;
        for (int64_t k = 0; k < product->k; ++k) {
          const double x = dvt_load_real(a, dtype, a_at + k * product->a_column);
          const double w = dvt_load_real(b, dtype, b_at + k * product->b_row);
          sum = dvt_round_real(sum + dvt_round_real(x * w, dtype), dtype);
        }
        dvt_store_real(y, dtype, y_at, finish_real(epilogue, sum, i, j, dtype));
      } else {
        uint64_t sum = 0;
        for (int64_t k = 0; k < product->k; ++k) {
          sum += dvt_load_integer(a, dtype, a_at + k * product->a_column) *
                 dvt_load_integer(b, dtype, b_at + k * product->b_row);
        }
        dvt_store_integer(y, dtype, y_at, finish_integer(epilogue, sum, i, j, dtype));
      }
    }
  }
}

/* One copy per dtype, for MatMul and Gemm both. */
static void multiply_any(const Product* product, const void* a, int64_t a0, const void* b,
                         int64_t b0, const Epilogue* epilogue, void* y, int64_t y0,
                         DvtDType dtype) {
  switch (dtype) {
    case DVT_F32:
      multiply_simple(product, a, a0, b, b0, epilogue, y, y0, DVT_F32);
      return;
    case DVT_F64:
      multiply_simple(product, a, a0, b, b0, epilogue, y, y0, DVT_F64);
      return;
    case DVT_F16:
      multiply_simple(product, a, a0, b, b0, epilogue, y, y0, DVT_F16);
      return;
    case DVT_BF16:
      multiply_simple(product, a, a0, b, b0, epilogue, y, y0, DVT_BF16);
      return;
    default:
      multiply_simple(product, a, a0, b, b0, epilogue, y, y0, dtype);
      return;
  }
}

static void multiply_f32(const Product* product, const float* a, const float* b,
                         const Epilogue* epilogue, float* y, float* workspace) {
  const DvtGemmOperand operand = {.b = b, .row = product->b_row, .column = product->b_column};
  const DvtGemm gemm = {.m = product->m,
                        .n = product->n,
                        .k = product->k,
                        .a = a,
                        .a_row = product->a_row,
                        .a_column = product->a_column,
                        .pack = dvt_gemm_pack_strided,
                        .source = &operand,
                        .c = y,
                        .c_row = product->n};
  dvt_gemm_f32(&gemm, workspace);
  if (epilogue->c == NULL && epilogue->alpha == 1.0) return;
  for (int64_t i = 0; i < product->m; ++i) {
    for (int64_t j = 0; j < product->n; ++j) {
      float* at = y + i * product->n + j;
      *at = (float)finish_real(epilogue, (double)*at, i, j, DVT_F32);
    }
  }
}

/* Y, and the workspace if there is one. */
static DvtCode infer_product(const DvtContext* ctx, uint32_t rank, const int64_t* dims,
                             DvtTensor* outputs, char* reason, size_t size) {
  const DvtCode code = dvt_infer_shape(&outputs[0], rank, dims, "output 0", reason, size);
  if (code != DVT_OK || ctx->output_count < 2) return code;
  return dvt_infer_scratch(&outputs[1], dvt_matrix_workspace_bytes(), reason, size);
}

static DvtCode check_operands(const DvtContext* ctx, uint32_t input_max, DvtDType dtype,
                              DvtKernelInferFn infer, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 2, input_max, 1, 2, reason, size);
  if (code == DVT_OK) code = dvt_check_dtype(dvt_input_tensor(ctx, 0), dtype, "A", reason, size);
  if (code == DVT_OK) code = dvt_check_dtype(dvt_input_tensor(ctx, 1), dtype, "B", reason, size);
  if (code == DVT_OK) code = dvt_check_dtype(dvt_output_tensor(ctx, 0), dtype, "Y", reason, size);
  return code == DVT_OK ? dvt_check_inferred(ctx, infer, ctx->output_count - 1u, reason, size)
                        : code;
}

static void cost_product(const DvtContext* ctx, uint64_t batch, uint64_t m, uint64_t n, uint64_t k,
                         DvtTaskCost* cost) {
  dvt_cost_traffic(ctx, 1, cost);
  /* The cube unit knows neither integers nor doubles. */
  const bool on_cube = dvt_dtype_is_float(cost->dtype) && cost->dtype != DVT_F64;
  cost->kind = on_cube ? DVT_TASK_MATMUL : DVT_TASK_AICPU;
  cost->batch = batch;
  cost->m = m;
  cost->n = n;
  cost->k = k;
}

/* ---- MatMul ---------------------------------------------------------------------------------- */

/* A broadcast batch of products. Batch dims are right-aligned to DVT_MAX_RANK. */
typedef struct Batches {
  Product product;
  int64_t dims[DVT_MAX_RANK];
  int64_t a_step[DVT_MAX_RANK], b_step[DVT_MAX_RANK]; /* 0 where the operand repeats. */
  uint32_t y_rank;
  int64_t y_dims[DVT_MAX_RANK];
} Batches;

/* Refuses operands that do not multiply. */
static DvtCode describe_matmul(const DvtContext* ctx, Batches* batches, char* reason, size_t size) {
  const DvtTensor* a = dvt_input_tensor(ctx, 0);
  const DvtTensor* b = dvt_input_tensor(ctx, 1);
  if (a->rank == 0 || b->rank == 0) return dvt_refuse(reason, size, "A and B must not be scalars");
  const uint32_t a_batch = a->rank > 2 ? a->rank - 2U : 0;
  const uint32_t b_batch = b->rank > 2 ? b->rank - 2U : 0;
  const uint32_t batch = a_batch > b_batch ? a_batch : b_batch;
  const int64_t m = a->rank > 1 ? a->dims[a->rank - 2] : 1;
  const int64_t k = a->dims[a->rank - 1];
  const int64_t n = b->rank > 1 ? b->dims[b->rank - 1] : 1;
  const int64_t b_k = b->rank > 1 ? b->dims[b->rank - 2] : b->dims[0];
  if (k != b_k) {
    return dvt_refuse(reason, size, "A has %" PRId64 " columns, B has %" PRId64 " rows", k, b_k);
  }
  *batches = (Batches){
      .product = {.m = m, .n = n, .k = k, .a_row = k, .a_column = 1, .b_row = n, .b_column = 1}};
  int64_t a_step = a->bytes == 0 ? 0 : m * k;
  int64_t b_step = b->bytes == 0 ? 0 : k * n;
  for (uint32_t i = 0; i < DVT_MAX_RANK; ++i) batches->dims[i] = 1;
  for (uint32_t i = 0; i < batch; ++i) { /* From the innermost batch dim outwards. */
    const uint32_t at = DVT_MAX_RANK - 1 - i;
    const int64_t a_dim = i < a_batch ? a->dims[a_batch - 1 - i] : 1;
    const int64_t b_dim = i < b_batch ? b->dims[b_batch - 1 - i] : 1;
    if (a_dim != b_dim && a_dim != 1 && b_dim != 1) {
      return dvt_refuse(reason, size, "batch dims %" PRId64 " and %" PRId64 " do not broadcast",
                        a_dim, b_dim);
    }
    batches->dims[at] = a_dim == 1 ? b_dim : a_dim;
    batches->a_step[at] = a_dim == 1 ? 0 : a_step;
    batches->b_step[at] = b_dim == 1 ? 0 : b_step;
    a_step *= a_dim; /* No overflow: the tensor's elements, or 0. */
    b_step *= b_dim;
  }
  for (uint32_t i = DVT_MAX_RANK - batch; i < DVT_MAX_RANK; ++i) {
    batches->y_dims[batches->y_rank++] = batches->dims[i];
  }
  if (a->rank > 1) batches->y_dims[batches->y_rank++] = m;
  if (b->rank > 1) batches->y_dims[batches->y_rank++] = n;
  return DVT_OK;
}

static DvtCode infer_matmul(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 2, 2, reason, size);
  Batches batches;
  if (code == DVT_OK) code = describe_matmul(ctx, &batches, reason, size);
  if (code != DVT_OK) return code;
  return infer_product(ctx, batches.y_rank, batches.y_dims, outputs, reason, size);
}

static void cost_matmul(const DvtContext* ctx, DvtTaskCost* cost) {
  Batches batches;
  (void)describe_matmul(ctx, &batches, NULL, 0);
  const uint64_t m = (uint64_t)batches.product.m;
  const uint64_t n = (uint64_t)batches.product.n;
  const uint64_t elements = (uint64_t)dvt_tensor_elements(dvt_output_tensor(ctx, 0));
  uint64_t tile = 0;
  if (__builtin_mul_overflow(m, n, &tile)) tile = 0;
  cost_product(ctx, tile == 0 ? 0 : elements / tile, m, n, (uint64_t)batches.product.k, cost);
}

static DvtCode run_matmul(const DvtContext* ctx, DvtDType dtype) {
  if (dvt_output_tensor(ctx, 0)->bytes == 0) return DVT_OK;
  Batches batches;
  const DvtCode code = describe_matmul(ctx, &batches, NULL, 0);
  if (code != DVT_OK) return code;
  const void* a = dvt_input_data(ctx, 0);
  const void* b = dvt_input_data(ctx, 1);
  void* y = dvt_output_data(ctx, 0);
  const bool blocked = dtype == DVT_F32 && dvt_has_output(ctx, 1);
  const Epilogue none = {.alpha = 1.0};
  const int64_t step = batches.product.m * batches.product.n;
  const int64_t elements = dvt_tensor_elements(dvt_output_tensor(ctx, 0));
  int64_t index[DVT_MAX_RANK] = {0};
  for (int64_t y0 = 0; y0 < elements; y0 += step) {
    int64_t a0 = 0;
    int64_t b0 = 0;
    for (int i = 0; i < DVT_MAX_RANK; ++i) {
      a0 += index[i] * batches.a_step[i];
      b0 += index[i] * batches.b_step[i];
    }
    if (blocked) {
      /* An empty operand has no address. */
      const float* a_matrix = a0 > 0 ? (const float*)a + a0 : a;
      const float* b_matrix = b0 > 0 ? (const float*)b + b0 : b;
      multiply_f32(&batches.product, a_matrix, b_matrix, &none, (float*)y + y0,
                   dvt_output_data(ctx, 1));
    } else {
      multiply_any(&batches.product, a, a0, b, b0, &none, y, y0, dtype);
    }
    for (int i = DVT_MAX_RANK - 1; i >= 0 && ++index[i] == batches.dims[i]; --i) index[i] = 0;
  }
  return DVT_OK;
}

static DvtCode check_matmul(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  return check_operands(ctx, 2, dtype, infer_matmul, reason, size);
}

/* ---- Gemm ------------------------------------------------------------------------------------ */

static DvtCode describe_gemm(const DvtContext* ctx, Product* product, Epilogue* epilogue,
                             char* reason, size_t size) {
  const DvtGemmAttributes* attributes = ctx->attributes;
  const DvtTensor* a = dvt_input_tensor(ctx, 0);
  const DvtTensor* b = dvt_input_tensor(ctx, 1);
  if (a->rank != 2 || b->rank != 2) return dvt_refuse(reason, size, "A and B must have rank 2");
  const bool ta = attributes->transpose_a != 0;
  const bool tb = attributes->transpose_b != 0;
  const int64_t k = a->dims[ta ? 0 : 1];
  if (k != b->dims[tb ? 1 : 0]) {
    return dvt_refuse(reason, size, "A and B do not multiply: %" PRId64 " and %" PRId64, k,
                      b->dims[tb ? 1 : 0]);
  }
  *product = (Product){.m = a->dims[ta ? 1 : 0],
                       .n = b->dims[tb ? 0 : 1],
                       .k = k,
                       .a_row = ta ? 1 : a->dims[1],
                       .a_column = ta ? a->dims[1] : 1,
                       .b_row = tb ? 1 : b->dims[1],
                       .b_column = tb ? b->dims[1] : 1};
  *epilogue = (Epilogue){.alpha = attributes->alpha, .beta = attributes->beta};
  if (dvt_has_input(ctx, 2)) {
    const DvtTensor* c = dvt_input_tensor(ctx, 2);
    const int64_t columns = c->rank > 0 ? c->dims[c->rank - 1] : 1;
    const int64_t rows = c->rank > 1 ? c->dims[c->rank - 2] : 1;
    if (c->rank > 2 || (columns != 1 && columns != product->n) ||
        (rows != 1 && rows != product->m)) {
      return dvt_refuse(reason, size, "C does not broadcast to [%" PRId64 ",%" PRId64 "]",
                        product->m, product->n);
    }
    epilogue->c = dvt_input_data(ctx, 2);
    epilogue->row = rows == 1 ? 0 : columns;
    epilogue->column = columns == 1 ? 0 : 1;
  }
  return DVT_OK;
}

static DvtCode infer_gemm(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 2, 3, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  Product product = {0};
  Epilogue epilogue;
  if (code == DVT_OK) code = describe_gemm(ctx, &product, &epilogue, reason, size);
  if (code != DVT_OK) return code;
  const int64_t dims[] = {product.m, product.n};
  return infer_product(ctx, 2, dims, outputs, reason, size);
}

static void cost_gemm(const DvtContext* ctx, DvtTaskCost* cost) {
  Product product = {0};
  Epilogue epilogue;
  (void)describe_gemm(ctx, &product, &epilogue, NULL, 0);
  cost_product(ctx, 1, (uint64_t)product.m, (uint64_t)product.n, (uint64_t)product.k, cost);
}

static DvtCode run_gemm(const DvtContext* ctx, DvtDType dtype) {
  if (dvt_output_tensor(ctx, 0)->bytes == 0) return DVT_OK;
  Product product;
  Epilogue epilogue;
  const DvtCode code = describe_gemm(ctx, &product, &epilogue, NULL, 0);
  if (code != DVT_OK) return code;
  const void* a = dvt_input_data(ctx, 0);
  const void* b = dvt_input_data(ctx, 1);
  void* y = dvt_output_data(ctx, 0);
  if (dtype == DVT_F32 && dvt_has_output(ctx, 1)) {
    multiply_f32(&product, a, b, &epilogue, y, dvt_output_data(ctx, 1));
  } else {
    multiply_any(&product, a, 0, b, 0, &epilogue, y, 0, dtype);
  }
  return DVT_OK;
}

static DvtCode check_gemm(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  const DvtCode code = check_operands(ctx, 3, dtype, infer_gemm, reason, size);
  if (code != DVT_OK) return code;
  if (dvt_has_input(ctx, 2)) {
    const DvtCode same = dvt_check_dtype(dvt_input_tensor(ctx, 2), dtype, "C", reason, size);
    if (same != DVT_OK) return same;
  }
  const DvtGemmAttributes* attributes = ctx->attributes;
  const double limit = 0x1p53;
  const bool whole = fabs(attributes->alpha) <= limit && fabs(attributes->beta) <= limit &&
                     trunc(attributes->alpha) == attributes->alpha &&
                     trunc(attributes->beta) == attributes->beta;
  if (!dvt_dtype_is_float(dtype) && !whole) {
    return dvt_refuse(reason, size, "alpha %g and beta %g must be whole numbers for %s",
                      attributes->alpha, attributes->beta, dvt_dtype_text(dtype));
  }
  return DVT_OK;
}

/* ---- Table ----------------------------------------------------------------------------------- */

DVT_TYPED_KERNEL(matmul, f32, DVT_F32)
DVT_TYPED_KERNEL(matmul, f64, DVT_F64)
DVT_TYPED_KERNEL(matmul, f16, DVT_F16)
DVT_TYPED_KERNEL(matmul, bf16, DVT_BF16)
DVT_TYPED_KERNEL(matmul, i32, DVT_I32)
DVT_TYPED_KERNEL(matmul, i64, DVT_I64)
DVT_TYPED_KERNEL(matmul, u32, DVT_U32)
DVT_TYPED_KERNEL(matmul, u64, DVT_U64)
DVT_TYPED_KERNEL(gemm, f32, DVT_F32)
DVT_TYPED_KERNEL(gemm, f64, DVT_F64)
DVT_TYPED_KERNEL(gemm, f16, DVT_F16)
DVT_TYPED_KERNEL(gemm, bf16, DVT_BF16)
DVT_TYPED_KERNEL(gemm, i32, DVT_I32)
DVT_TYPED_KERNEL(gemm, i64, DVT_I64)
DVT_TYPED_KERNEL(gemm, u32, DVT_U32)
DVT_TYPED_KERNEL(gemm, u64, DVT_U64)

#define MATMUL_KERNEL(suffix)                                                                      \
  {                                                                                                \
    .name = "MatMul." #suffix, .abi_version = DVT_KERNEL_ABI_VERSION,                              \
    .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE, .input_min = 2, .input_max = 2, .output_min = 1, \
    .output_max = 2, .run = run_matmul_##suffix, .check = check_matmul_##suffix,                   \
    .infer = infer_matmul, .cost = cost_matmul                                                     \
  }

#define GEMM_KERNEL(suffix)                                                                        \
  {                                                                                                \
    .name = "Gemm." #suffix, .abi_version = DVT_KERNEL_ABI_VERSION,                                \
    .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE, .input_min = 2, .input_max = 3, .output_min = 1, \
    .output_max = 2, .attribute_bytes = sizeof(DvtGemmAttributes),                                 \
    .attribute_count = sizeof gemm_attributes / sizeof gemm_attributes[0],                         \
    .attributes = gemm_attributes, .run = run_gemm_##suffix, .check = check_gemm_##suffix,         \
    .infer = infer_gemm, .cost = cost_gemm                                                         \
  }

static const DvtAttribute gemm_attributes[] = {
    {"alpha", offsetof(DvtGemmAttributes, alpha), 1, 'f'},
    {"beta", offsetof(DvtGemmAttributes, beta), 1, 'f'},
    {"transpose_a", offsetof(DvtGemmAttributes, transpose_a), 1, 'i'},
    {"transpose_b", offsetof(DvtGemmAttributes, transpose_b), 1, 'i'},
};

DvtKernelTable dvt_kernels_matrix(void) {
  static const DvtKernel kernels[] = {
      MATMUL_KERNEL(f32), MATMUL_KERNEL(f64), MATMUL_KERNEL(f16), MATMUL_KERNEL(bf16),
      MATMUL_KERNEL(i32), MATMUL_KERNEL(i64), MATMUL_KERNEL(u32), MATMUL_KERNEL(u64),
      GEMM_KERNEL(f32),   GEMM_KERNEL(f64),   GEMM_KERNEL(f16),   GEMM_KERNEL(bf16),
      GEMM_KERNEL(i32),   GEMM_KERNEL(i64),   GEMM_KERNEL(u32),   GEMM_KERNEL(u64),
  };
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
