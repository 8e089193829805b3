#include "ops/kernels/integer_matrix.h"

#include <inttypes.h>

#include "ops/kernels/element.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/quantisation.h"
#include "ops/kernels/shape.h"

enum { BLOCK = 512 };

/* Which input is which. */
typedef struct Roles {
  uint32_t a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero;
} Roles;
static const Roles integer_roles = {.a = 0, .b = 1, .a_zero = 2, .b_zero = 3};
static const Roles linear_roles = {.a = 0,
                                   .a_scale = 1,
                                   .a_zero = 2,
                                   .b = 3,
                                   .b_scale = 4,
                                   .b_zero = 5,
                                   .y_scale = 6,
                                   .y_zero = 7};

/* ---- Shapes ---------------------------------------------------------------------------------- */

typedef struct Product {
  int64_t m, n, k;
  uint32_t rank; /* Of the batch dims. */
  int64_t batch[DVT_MAX_RANK];
  int64_t a_step[DVT_MAX_RANK], b_step[DVT_MAX_RANK]; /* In matrices; 0 where one repeats. */
} Product;

/* Steps through the batch dims of an operand, in matrices. */
static void batch_steps(const DvtTensor* operand, const Product* product, int64_t* steps) {
  const uint32_t own = operand->rank > 2 ? operand->rank - 2U : 0;
  int64_t step = 1;
  for (uint32_t i = 0; i < product->rank; ++i) { /* From the innermost. */
    const uint32_t d = product->rank - 1 - i;
    const int64_t dim = i < own ? operand->dims[own - 1 - i] : 1;
    steps[d] = dim == 1 ? 0 : step;
    if (operand->bytes > 0) step *= dim;
  }
}

static DvtCode describe(const DvtContext* ctx, const Roles* roles, Product* product, char* reason,
                        size_t size) {
  const DvtTensor* a = dvt_input_tensor(ctx, roles->a);
  const DvtTensor* b = dvt_input_tensor(ctx, roles->b);
  if (a->rank == 0 || b->rank == 0) return dvt_refuse(reason, size, "A and B must not be scalars");
  *product = (Product){.m = a->rank > 1 ? a->dims[a->rank - 2] : 1,
                       .n = b->rank > 1 ? b->dims[b->rank - 1] : 1,
                       .k = a->dims[a->rank - 1]};
  const int64_t b_rows = b->rank > 1 ? b->dims[b->rank - 2] : b->dims[0];
  if (product->k != b_rows) {
    return dvt_refuse(reason, size, "A has %" PRId64 " columns, B has %" PRId64 " rows", product->k,
                      b_rows);
  }
  const uint32_t a_batch = a->rank > 2 ? a->rank - 2U : 0;
  const uint32_t b_batch = b->rank > 2 ? b->rank - 2U : 0;
  if (!dvt_broadcast_dims(&product->rank, product->batch, a_batch, a->dims) ||
      !dvt_broadcast_dims(&product->rank, product->batch, b_batch, b->dims)) {
    char a_text[DVT_SHAPE_TEXT];
    char b_text[DVT_SHAPE_TEXT];
    return dvt_refuse(reason, size, "the batch dims of A %s and B %s do not broadcast",
                      dvt_shape_text(a, a_text), dvt_shape_text(b, b_text));
  }
  batch_steps(a, product, product->a_step);
  batch_steps(b, product, product->b_step);
  return DVT_OK;
}

static DvtCode infer_product(const DvtContext* ctx, const Roles* roles, DvtTensor* outputs,
                             char* reason, size_t size) {
  Product product;
  const DvtCode code = describe(ctx, roles, &product, reason, size);
  if (code != DVT_OK) return code;
  int64_t dims[DVT_MAX_RANK];
  uint32_t rank = product.rank;
  memcpy(dims, product.batch, sizeof dims);
  if (dvt_input_tensor(ctx, roles->a)->rank > 1) dims[rank++] = product.m;
  if (dvt_input_tensor(ctx, roles->b)->rank > 1) dims[rank++] = product.n;
  return dvt_infer_shape(&outputs[0], rank, dims, "output 0", reason, size);
}

static DvtCode infer_integer(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  const DvtCode code = dvt_check_inputs(ctx, 2, 4, reason, size);
  return code == DVT_OK ? infer_product(ctx, &integer_roles, outputs, reason, size) : code;
}
static DvtCode infer_linear(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  const DvtCode code = dvt_check_inputs(ctx, 8, 8, reason, size);
  return code == DVT_OK ? infer_product(ctx, &linear_roles, outputs, reason, size) : code;
}

static void cost_product(const DvtContext* ctx, const Roles* roles, DvtTaskCost* cost) {
  Product product;
  if (describe(ctx, roles, &product, NULL, 0) != DVT_OK) return; /* check() has seen that it is. */
  const DvtTensor* y = dvt_output_tensor(ctx, 0);
  const int64_t tile = product.m == 0 || product.n == 0 ? 0 : product.m * product.n;
  *cost = (DvtTaskCost){.kind = DVT_TASK_MATMUL,
                        .dtype = dvt_input_tensor(ctx, roles->a)->dtype,
                        .batch = tile == 0 ? 0 : (uint64_t)(dvt_tensor_elements(y) / tile),
                        .m = (uint64_t)product.m,
                        .n = (uint64_t)product.n,
                        .k = (uint64_t)product.k,
                        .write_bytes = y->bytes};
  for (uint32_t i = 0; i < ctx->input_count; ++i) {
    if (dvt_has_input(ctx, i)) cost->read_bytes += dvt_input_tensor(ctx, i)->bytes;
  }
}
static void cost_integer(const DvtContext* ctx, DvtTaskCost* cost) {
  cost_product(ctx, &integer_roles, cost);
}
static void cost_linear(const DvtContext* ctx, DvtTaskCost* cost) {
  cost_product(ctx, &linear_roles, cost);
}

/* ---- Scales and zero points ------------------------------------------------------------------ */

/* Element (matrix, row or column) is at matrix * batch + index * step. */
typedef struct Parameter {
  const void* data; /* NULL: zero. */
  DvtDType dtype;
  int64_t batch, step;
} Parameter;

/* The layout of a parameter of `of`: one element, or one for each index of its axis `kept` and none
 * along `dropped`, both counted from the end. A vector has one. */
static DvtCode read_parameter(const DvtContext* ctx, uint32_t index, const DvtTensor* of,
                              uint32_t kept, uint32_t dropped, const char* what,
                              Parameter* parameter, char* reason, size_t size) {
  *parameter = (Parameter){.data = NULL};
  if (!dvt_has_input(ctx, index)) return DVT_OK;
  const DvtTensor* tensor = dvt_input_tensor(ctx, index);
  parameter->data = dvt_input_data(ctx, index);
  parameter->dtype = tensor->dtype;
  if (dvt_tensor_elements(tensor) == 1) return DVT_OK;
  if (of->rank < 2) return dvt_check_shape(tensor, 0, of->dims, what, reason, size);
  const int64_t extent = of->dims[of->rank - kept];
  parameter->step = 1;
  if (tensor->rank == 1 && tensor->dims[0] == extent) return DVT_OK;
  parameter->batch = extent;
  int64_t dims[DVT_MAX_RANK];
  memcpy(dims, of->dims, sizeof dims);
  dims[of->rank - dropped] = 1;
  return dvt_check_shape(tensor, of->rank, dims, what, reason, size);
}

typedef struct Parameters {
  Parameter a_scale, a_zero, b_scale, b_zero, y_scale, y_zero;
} Parameters;

static DvtCode read_zeros(const DvtContext* ctx, const Roles* roles, Parameters* parameters,
                          char* reason, size_t size) {
  DvtCode code = read_parameter(ctx, roles->a_zero, dvt_input_tensor(ctx, roles->a), 2, 1,
                                "zero point of A", &parameters->a_zero, reason, size);
  if (code == DVT_OK) {
    code = read_parameter(ctx, roles->b_zero, dvt_input_tensor(ctx, roles->b), 1, 2,
                          "zero point of B", &parameters->b_zero, reason, size);
  }
  return code;
}

/* Y has rows of its own when neither A nor B is a vector. */
static DvtCode read_linear(const DvtContext* ctx, Parameters* parameters, char* reason,
                           size_t size) {
  const Roles* roles = &linear_roles;
  const DvtTensor* a = dvt_input_tensor(ctx, roles->a);
  const DvtTensor* b = dvt_input_tensor(ctx, roles->b);
  DvtTensor y = *dvt_output_tensor(ctx, 0);
  if (a->rank == 1 || b->rank == 1) y.rank = 0;
  DvtCode code = read_zeros(ctx, roles, parameters, reason, size);
  if (code == DVT_OK) {
    code = read_parameter(ctx, roles->a_scale, a, 2, 1, "scale of A", &parameters->a_scale, reason,
                          size);
  }
  if (code == DVT_OK) {
    code = read_parameter(ctx, roles->b_scale, b, 1, 2, "scale of B", &parameters->b_scale, reason,
                          size);
  }
  if (code == DVT_OK) {
    code = read_parameter(ctx, roles->y_scale, &y, 2, 1, "scale of Y", &parameters->y_scale, reason,
                          size);
  }
  if (code == DVT_OK) {
    code = read_parameter(ctx, roles->y_zero, &y, 2, 1, "zero point of Y", &parameters->y_zero,
                          reason, size);
  }
  return code;
}

static double parameter_at(const Parameter* parameter, int64_t matrix, int64_t index) {
  if (parameter->data == NULL) return 0.0;
  return dvt_load_real(parameter->data, parameter->dtype,
                       matrix * parameter->batch + index * parameter->step);
}

/* ---- Products -------------------------------------------------------------------------------- */

void dvt_accumulate_bytes(uint32_t* accumulator, const void* values, DvtDType dtype, int64_t step,
                          uint32_t zero, uint32_t factor, int64_t count) {
  const uint8_t* as_u8 = values;
  const int8_t* as_i8 = values;
  if (dtype == DVT_U8 && step == 1) {
    for (int64_t i = 0; i < count; ++i) accumulator[i] += factor * (as_u8[i] - zero);
  } else if (dtype == DVT_U8) {
    for (int64_t i = 0; i < count; ++i) accumulator[i] += factor * (as_u8[i * step] - zero);
  } else if (step == 1) {
    for (int64_t i = 0; i < count; ++i) accumulator[i] += factor * ((uint32_t)as_i8[i] - zero);
  } else {
    for (int64_t i = 0; i < count; ++i) {
      accumulator[i] += factor * ((uint32_t)as_i8[i * step] - zero);
    }
  }
}

/* One matrix of the batch. */
typedef struct Position {
  int64_t a, b, y; /* Its index in each operand. */
} Position;

/* Columns [j0, j0 + count) of row i of the product, modulo 2^32. */
static void product_row(const DvtContext* ctx, const Roles* roles, const Product* product,
                        const Parameters* parameters, Position at, int64_t i, int64_t j0,
                        int64_t count, uint32_t* sums) {
  const DvtDType a_dtype = dvt_input_tensor(ctx, roles->a)->dtype;
  const DvtDType b_dtype = dvt_input_tensor(ctx, roles->b)->dtype;
  const void* a = dvt_input_data(ctx, roles->a);
  const char* b = dvt_input_data(ctx, roles->b);
  const int64_t b_row = at.b * product->k * product->n + j0;
  const int64_t a_row = (at.a * product->m + i) * product->k;
  const uint32_t zero = (uint32_t)(int32_t)parameter_at(&parameters->a_zero, at.a, i);
  memset(sums, 0, (size_t)count * sizeof *sums);
  uint32_t total = 0;
  for (int64_t k = 0; k < product->k; ++k) {
    const uint32_t factor = (uint32_t)dvt_load_integer(a, a_dtype, a_row + k) - zero;
    total += factor;
    dvt_accumulate_bytes(sums, b + b_row + k * product->n, b_dtype, 1, 0, factor, count);
  }
  /* B's zero points are the same all the way down a column. */
  if (parameters->b_zero.data == NULL) return;
  for (int64_t j = 0; j < count; ++j) {
    sums[j] -= total * (uint32_t)(int32_t)parameter_at(&parameters->b_zero, at.b, j0 + j);
  }
}

static void store_linear(const DvtContext* ctx, const Product* product,
                         const Parameters* parameters, Position at, int64_t i, int64_t j0,
                         int64_t count, const uint32_t* sums) {
  const DvtTensor* y = dvt_output_tensor(ctx, 0);
  uint8_t* to = (uint8_t*)dvt_output_data(ctx, 0) + (at.y * product->m + i) * product->n + j0;
  float low = 0.0f;
  float high = 0.0f;
  (void)dvt_quantised_range(y->dtype, &low, &high);
  const float a_scale = (float)parameter_at(&parameters->a_scale, at.a, i);
  const float y_scale = (float)parameter_at(&parameters->y_scale, at.y, i);
  const float zero = (float)parameter_at(&parameters->y_zero, at.y, i);
  for (int64_t j = 0; j < count; ++j) {
    const float b_scale = (float)parameter_at(&parameters->b_scale, at.b, j0 + j);
    const float value = (float)(int32_t)sums[j] * (a_scale * b_scale / y_scale);
    to[j] = (uint8_t)dvt_quantise(value, zero, low, high);
  }
}

static void multiply(const DvtContext* ctx, const Roles* roles, const Product* product,
                     const Parameters* parameters, Position at) {
  uint32_t sums[BLOCK];
  const bool linear = roles == &linear_roles;
  for (int64_t i = 0; i < product->m; ++i) {
    for (int64_t j0 = 0; j0 < product->n; j0 += BLOCK) {
      const int64_t count = product->n - j0 < BLOCK ? product->n - j0 : BLOCK;
      product_row(ctx, roles, product, parameters, at, i, j0, count, sums);
      if (linear) {
        store_linear(ctx, product, parameters, at, i, j0, count, sums);
      } else {
        int32_t* y = dvt_output_data(ctx, 0);
        memcpy(y + (at.y * product->m + i) * product->n + j0, sums, (size_t)count * sizeof *sums);
      }
    }
  }
}

static DvtCode run_product(const DvtContext* ctx, const Roles* roles) {
  if (dvt_output_tensor(ctx, 0)->bytes == 0) return DVT_OK;
  Product product;
  Parameters parameters = {0};
  DvtCode code = describe(ctx, roles, &product, NULL, 0);
  if (code == DVT_OK && roles == &linear_roles) {
    code = read_linear(ctx, &parameters, NULL, 0);
  } else if (code == DVT_OK) {
    code = read_zeros(ctx, roles, &parameters, NULL, 0);
  }
  if (code != DVT_OK) return code;
  Position at = {0};
  int64_t index[DVT_MAX_RANK] = {0};
  for (;;) {
    multiply(ctx, roles, &product, &parameters, at);
    at.y += 1;
    uint32_t d = product.rank; /* Odometer over the batch dims. */
    for (; d > 0; --d) {
      const bool wraps = ++index[d - 1] == product.batch[d - 1];
      const int64_t steps = wraps ? 1 - product.batch[d - 1] : 1;
      at.a += steps * product.a_step[d - 1];
      at.b += steps * product.b_step[d - 1];
      if (!wraps) break;
      index[d - 1] = 0;
    }
    if (d == 0) return DVT_OK;
  }
}

/* ---- Checks ---------------------------------------------------------------------------------- */

static bool is_byte(DvtDType dtype) {
  return dtype == DVT_U8 || dtype == DVT_I8;
}

/* A has `dtype`, B either, and zero points that of what they belong to. */
static DvtCode check_dtypes(const DvtContext* ctx, const Roles* roles, DvtDType dtype, char* reason,
                            size_t size) {
  DvtCode code = dvt_check_dtype(dvt_input_tensor(ctx, roles->a), dtype, "A", reason, size);
  if (code != DVT_OK) return code;
  const DvtDType b = dvt_input_tensor(ctx, roles->b)->dtype;
  if (!is_byte(b)) {
    return dvt_refuse(reason, size, "B: expected dtype u8 or i8, got %s", dvt_dtype_text(b));
  }
  if (dvt_has_input(ctx, roles->a_zero)) {
    code = dvt_check_dtype(dvt_input_tensor(ctx, roles->a_zero), dtype, "zero point of A", reason,
                           size);
  }
  if (code == DVT_OK && dvt_has_input(ctx, roles->b_zero)) {
    code =
        dvt_check_dtype(dvt_input_tensor(ctx, roles->b_zero), b, "zero point of B", reason, size);
  }
  return code;
}

static DvtCode check_integer(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 2, 4, 1, 1, reason, size);
  if (code == DVT_OK) code = check_dtypes(ctx, &integer_roles, dtype, reason, size);
  if (code == DVT_OK) code = dvt_check_dtype(dvt_output_tensor(ctx, 0), DVT_I32, "Y", reason, size);
  if (code == DVT_OK) code = dvt_check_inferred(ctx, infer_integer, 0, reason, size);
  Parameters parameters;
  return code == DVT_OK ? read_zeros(ctx, &integer_roles, &parameters, reason, size) : code;
}

static DvtCode check_scale(const DvtContext* ctx, uint32_t index, char* reason, size_t size) {
  const DvtDType dtype = dvt_input_tensor(ctx, index)->dtype;
  if (dtype == DVT_F32 || dvt_dtype_is_half(dtype)) return DVT_OK;
  return dvt_refuse(reason, size, "scales: expected dtype f32, f16 or bf16, got %s",
                    dvt_dtype_text(dtype));
}

static DvtCode check_linear(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  const Roles* roles = &linear_roles;
  DvtCode code = dvt_check_counts(ctx, 8, 8, 1, 1, reason, size);
  if (code == DVT_OK) code = check_dtypes(ctx, roles, dtype, reason, size);
  if (code == DVT_OK) code = check_scale(ctx, roles->a_scale, reason, size);
  if (code == DVT_OK) code = check_scale(ctx, roles->b_scale, reason, size);
  if (code == DVT_OK) code = check_scale(ctx, roles->y_scale, reason, size);
  if (code != DVT_OK) return code;
  const DvtDType y = dvt_output_tensor(ctx, 0)->dtype;
  if (!is_byte(y)) {
    return dvt_refuse(reason, size, "Y: expected dtype u8 or i8, got %s", dvt_dtype_text(y));
  }
  code = dvt_check_dtype(dvt_input_tensor(ctx, roles->y_zero), y, "zero point of Y", reason, size);
  if (code == DVT_OK) code = dvt_check_inferred(ctx, infer_linear, 0, reason, size);
  Parameters parameters;
  return code == DVT_OK ? read_linear(ctx, &parameters, reason, size) : code;
}

/* ---- Table ----------------------------------------------------------------------------------- */

static DvtCode run_integer(const DvtContext* ctx, DvtDType dtype) {
  (void)dtype;
  return run_product(ctx, &integer_roles);
}
static DvtCode run_linear(const DvtContext* ctx, DvtDType dtype) {
  (void)dtype;
  return run_product(ctx, &linear_roles);
}

DVT_TYPED_KERNEL(integer, u8, DVT_U8)
DVT_TYPED_KERNEL(integer, i8, DVT_I8)
DVT_TYPED_KERNEL(linear, u8, DVT_U8)
DVT_TYPED_KERNEL(linear, i8, DVT_I8)

#define PRODUCT_KERNEL(kernel_name, inputs_min, inputs_max, family, suffix)                      \
  {                                                                                              \
    .name = (kernel_name), .abi_version = DVT_KERNEL_ABI_VERSION,                                \
    .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE, .input_min = (inputs_min),                     \
    .input_max = (inputs_max), .output_min = 1, .output_max = 1, .run = run_##family##_##suffix, \
    .check = check_##family##_##suffix, .infer = infer_##family, .cost = cost_##family           \
  }

DvtKernelTable dvt_kernels_integer_matrix(void) {
  static const DvtKernel kernels[] = {
      PRODUCT_KERNEL("MatMulInteger.u8", 2, 4, integer, u8),
      PRODUCT_KERNEL("MatMulInteger.i8", 2, 4, integer, i8),
      PRODUCT_KERNEL("QLinearMatMul.u8", 8, 8, linear, u8),
      PRODUCT_KERNEL("QLinearMatMul.i8", 8, 8, linear, i8),
  };
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
