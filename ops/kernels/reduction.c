#include "ops/kernels/reduction.h"

#include <inttypes.h>

#include "ops/kernels/element.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/shape.h"

/* Dims with their strides in X, outermost first. Neighbours that are walked as one are merged. */
typedef struct Walk {
  uint32_t rank;
  int64_t dims[DVT_MAX_RANK];
  int64_t strides[DVT_MAX_RANK];
  int64_t count;
} Walk;

typedef struct Reduction {
  Walk kept, reduced;
} Reduction;

static void append(Walk* walk, int64_t dim, int64_t stride) {
  walk->count *= dim;
  if (dim == 1) return;
  if (walk->rank > 0 && walk->strides[walk->rank - 1] == dim * stride) {
    walk->dims[walk->rank - 1] *= dim;
    walk->strides[walk->rank - 1] = stride;
    return;
  }
  walk->dims[walk->rank] = dim;
  walk->strides[walk->rank++] = stride;
}

enum { AXES = 1, PARAMETERS = 1 << AXES };

/* Those of input AXES. */
static DvtCode read_axes(const DvtContext* ctx, int64_t* axes, char* reason, size_t size) {
  const uint32_t rank = dvt_input_tensor(ctx, 0)->rank;
  int64_t values[DVT_MAX_RANK];
  uint32_t count = 0;
  uint32_t mask = 0;
  DvtCode code = dvt_read_integers(ctx, AXES, "axes", values, DVT_MAX_RANK, &count, reason, size);
  if (code == DVT_OK) code = dvt_axes_mask(values, count, rank, &mask, reason, size);
  *axes = mask;
  if (count == 0 && ((const DvtReduceAttributes*)ctx->attributes)->axes < 0) {
    *axes = (INT64_C(1) << rank) - 1;
  }
  return code;
}

/* Precondition: read_axes() did not refuse them, where they are an input. */
static int64_t axes_of(const DvtContext* ctx) {
  const DvtReduceAttributes* attributes = ctx->attributes;
  const uint32_t rank = dvt_input_tensor(ctx, 0)->rank;
  int64_t axes = attributes->axes;
  if (dvt_has_input(ctx, AXES)) {
    (void)read_axes(ctx, &axes, NULL, 0);
    return axes;
  }
  if (axes < 0) axes &= (INT64_C(1) << rank) - 1;
  for (uint32_t i = 0; i < rank; ++i) {
    if ((attributes->axes_from_end >> i & 1) != 0) axes |= INT64_C(1) << (rank - 1 - i);
  }
  return axes;
}

/* Only for an X that is not empty. */
static Reduction describe(const DvtContext* ctx) {
  const int64_t axes = axes_of(ctx);
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  int64_t strides[DVT_MAX_RANK];
  dvt_row_major_strides(x, strides);
  Reduction reduction = {.kept = {.count = 1}, .reduced = {.count = 1}};
  for (uint32_t i = 0; i < x->rank; ++i) {
    append((axes >> i & 1) != 0 ? &reduction.reduced : &reduction.kept, x->dims[i], strides[i]);
  }
  return reduction;
}

/* The offset of the next element in row-major order, given the indices of the current one. */
static int64_t advance(const Walk* walk, int64_t index[DVT_MAX_RANK], int64_t offset) {
  int64_t next = offset;
  for (uint32_t i = walk->rank; i > 0; --i) {
    next += walk->strides[i - 1];
    if (++index[i - 1] < walk->dims[i - 1]) return next;
    next -= walk->strides[i - 1] * walk->dims[i - 1];
    index[i - 1] = 0;
  }
  return next;
}

/* ---- Floats ---------------------------------------------------------------------------------- */

DVT_INLINE double start_real(int64_t op) {
  switch (op) {
    case DVT_REDUCE_MAX:
      return -INFINITY;
    case DVT_REDUCE_MIN:
      return INFINITY;
    case DVT_REDUCE_PROD:
      return 1.0;
    default:
      return 0.0;
  }
}

/* `shift` is the maximum, for LogSumExp. */
DVT_INLINE double fold_real(int64_t op, double sum, double value, double shift, DvtDType dtype) {
  switch (op) {
    case DVT_REDUCE_MAX:
      return value > sum || value != value ? value : sum;
    case DVT_REDUCE_MIN:
      return value < sum || value != value ? value : sum;
    case DVT_REDUCE_PROD:
      return dvt_round_sum(sum * value, dtype);
    case DVT_REDUCE_SUM_SQUARE:
    case DVT_REDUCE_L2:
      return dvt_round_sum(sum + dvt_round_sum(value * value, dtype), dtype);
    case DVT_REDUCE_L1:
      return dvt_round_sum(sum + fabs(value), dtype);
    case DVT_REDUCE_LOG_SUM_EXP:
      return dvt_round_sum(sum + dvt_round_sum(exp(value - shift), dtype), dtype);
    default:
      return dvt_round_sum(sum + value, dtype);
  }
}

DVT_INLINE double finish_real(int64_t op, double sum, int64_t count, double shift, DvtDType dtype) {
  switch (op) {
    case DVT_REDUCE_MEAN:
      return dvt_round_sum(sum / (double)count, dtype);
    case DVT_REDUCE_L2:
      return dvt_round_sum(sqrt(sum), dtype);
    case DVT_REDUCE_LOG_SUM:
      return dvt_round_sum(log(sum), dtype);
    case DVT_REDUCE_LOG_SUM_EXP:
      return dvt_round_sum(log(sum) + shift, dtype);
    default:
      return sum;
  }
}

/* Folds the elements that begin at `base`, innermost run by run. */
DVT_INLINE double reduce_real(const Walk* walk, int64_t op, const void* x, int64_t base,
                              double shift, DvtDType dtype) {
  Walk outer = *walk;
  int64_t run = 1;
  int64_t step = 1;
  if (outer.rank > 0) {
    run = outer.dims[--outer.rank];
    step = outer.strides[outer.rank];
  }
  double sum = start_real(op);
  int64_t index[DVT_MAX_RANK] = {0};
  int64_t offset = base;
  for (int64_t done = 0; done < walk->count; done += run) {
    for (int64_t i = 0; i < run; ++i) {
      sum = fold_real(op, sum, dvt_load_real(x, dtype, offset + i * step), shift, dtype);
    }
    offset = advance(&outer, index, offset);
  }
  return sum;
}

DVT_INLINE double reduce_one_real(const Walk* walk, int64_t op, const void* x, int64_t base,
                                  DvtDType dtype) {
  double shift = 0.0;
  if (op == DVT_REDUCE_LOG_SUM_EXP) {
    shift = reduce_real(walk, DVT_REDUCE_MAX, x, base, 0.0, dtype);
    if (isinf(shift)) shift = 0.0; /* inf - inf would make NaN of a sum that is 0 or inf. */
  }
  const double sum = reduce_real(walk, op, x, base, shift, dtype);
  return finish_real(op, sum, walk->count, shift, dtype);
}

/* ---- Integers -------------------------------------------------------------------------------- */

/* The smallest (or largest) value of the type, extended to 64 bits. */
DVT_INLINE uint64_t extreme(bool smallest, DvtDType dtype) {
  const uint32_t bits = 8 * dvt_dtype_size(dtype);
  if (!dvt_dtype_is_signed(dtype)) return smallest ? 0 : UINT64_MAX >> (64 - bits);
  const uint64_t largest = (UINT64_C(1) << (bits - 1)) - 1;
  return smallest ? ~largest : largest;
}

DVT_INLINE bool less(uint64_t a, uint64_t b, DvtDType dtype) {
  return dvt_dtype_is_signed(dtype) ? (int64_t)a < (int64_t)b : a < b;
}

DVT_INLINE uint64_t fold_integer(int64_t op, uint64_t sum, uint64_t value, DvtDType dtype) {
  switch (op) {
    case DVT_REDUCE_MAX:
      return less(sum, value, dtype) ? value : sum;
    case DVT_REDUCE_MIN:
      return less(value, sum, dtype) ? value : sum;
    case DVT_REDUCE_PROD:
      return sum * value;
    case DVT_REDUCE_SUM_SQUARE:
      return sum + value * value;
    case DVT_REDUCE_L1:
      return sum + (less(value, 0, dtype) ? 0 - value : value);
    default:
      return sum + value;
  }
}

DVT_INLINE uint64_t reduce_one_integer(const Walk* walk, int64_t op, const void* x, int64_t base,
                                       DvtDType dtype) {
  uint64_t sum = op == DVT_REDUCE_PROD ? 1 : 0;
  if (op == DVT_REDUCE_MAX || op == DVT_REDUCE_MIN) sum = extreme(op == DVT_REDUCE_MAX, dtype);
  int64_t index[DVT_MAX_RANK] = {0};
  int64_t offset = base;
  for (int64_t i = 0; i < walk->count; ++i) {
    sum = fold_integer(op, sum, dvt_load_integer(x, dtype, offset), dtype);
    offset = advance(walk, index, offset);
  }
  if (op != DVT_REDUCE_MEAN || walk->count == 0) return sum;
  return dvt_dtype_is_signed(dtype) ? (uint64_t)((int64_t)sum / walk->count)
                                    : sum / (uint64_t)walk->count;
}

/* ---- Run and check --------------------------------------------------------------------------- */

/* Inlined with a constant dtype where speed matters; one copy serves the others. */
static void reduce_at(const Walk* walk, int64_t op, const void* x, int64_t base, void* y,
                      int64_t at, DvtDType dtype) {
  if (dtype == DVT_F32) {
    dvt_store_real(y, DVT_F32, at, reduce_one_real(walk, op, x, base, DVT_F32));
  } else if (dvt_dtype_is_float(dtype)) {
    dvt_store_real(y, dtype, at, reduce_one_real(walk, op, x, base, dtype));
  } else {
    dvt_store_integer(y, dtype, at, reduce_one_integer(walk, op, x, base, dtype));
  }
}

static DvtCode infer_reduce(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 1, 2, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  int64_t axes = 0;
  if (code == DVT_OK && dvt_has_input(ctx, AXES)) code = read_axes(ctx, &axes, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  axes = axes_of(ctx);
  const bool keep = ((const DvtReduceAttributes*)ctx->attributes)->keep_dims != 0;
  int64_t dims[DVT_MAX_RANK];
  uint32_t rank = 0;
  for (uint32_t i = 0; i < x->rank; ++i) {
    const bool reduced = (axes >> i & 1) != 0;
    if (!reduced || keep) dims[rank++] = reduced ? 1 : x->dims[i];
  }
  return dvt_infer_shape(&outputs[0], rank, dims, "Y", reason, size);
}

static DvtCode check_reduce(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 1, 2, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) code = dvt_check_dtype(dvt_input_tensor(ctx, 0), dtype, "X", reason, size);
  if (code == DVT_OK) code = dvt_check_dtype(dvt_output_tensor(ctx, 0), dtype, "Y", reason, size);
  if (code != DVT_OK) return code;
  const DvtReduceAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  const int64_t op_count = dvt_dtype_is_float(dtype) ? DVT_REDUCE_OP_COUNT : DVT_REDUCE_L2;
  if (attributes->op < 0 || attributes->op >= op_count) {
    return dvt_refuse(reason, size, "operation %" PRId64 " is unknown for %s", attributes->op,
                      dvt_dtype_text(dtype));
  }
  if (dvt_lacks_parameters(ctx, PARAMETERS)) return DVT_OK;
  if (dvt_has_input(ctx, AXES)) return dvt_check_inferred(ctx, infer_reduce, 0, reason, size);
  const int64_t axes = axes_of(ctx);
  if (axes >> x->rank != 0 || attributes->axes_from_end < 0 ||
      attributes->axes_from_end >> x->rank != 0) {
    return dvt_refuse(reason, size, "axes 0x%" PRIx64 " are not within rank %u", axes, x->rank);
  }
  int64_t kept = 1;
  bool empty = false;
  for (uint32_t i = 0; i < x->rank; ++i) {
    if ((axes >> i & 1) != 0) continue;
    empty = empty || x->dims[i] == 0;
    if (__builtin_mul_overflow(kept, x->dims[i] == 0 ? 1 : x->dims[i], &kept)) kept = INT64_MAX;
  }
  const int64_t outputs = dvt_tensor_elements(dvt_output_tensor(ctx, 0));
  if (outputs == (empty ? 0 : kept)) return DVT_OK;
  return dvt_refuse(reason, size, "Y: expected %" PRId64 " elements, got %" PRId64,
                    empty ? 0 : kept, outputs);
}

static DvtCode run_reduce(const DvtContext* ctx, DvtDType dtype) {
  if (dvt_has_parameters(ctx, PARAMETERS)) {
    const DvtCode code = check_reduce(ctx, dtype, NULL, 0);
    if (code != DVT_OK) return code;
  }
  if (dvt_output_tensor(ctx, 0)->bytes == 0) return DVT_OK;
  const int64_t op = ((const DvtReduceAttributes*)ctx->attributes)->op;
  const void* x = dvt_input_data(ctx, 0);
  void* y = dvt_output_data(ctx, 0);
  const int64_t outputs = dvt_tensor_elements(dvt_output_tensor(ctx, 0));
  const bool empty = dvt_input_tensor(ctx, 0)->bytes == 0;
  const Reduction reduction = empty ? (Reduction){0} : describe(ctx);
  int64_t index[DVT_MAX_RANK] = {0};
  int64_t base = 0;
  for (int64_t i = 0; i < outputs; ++i) {
    reduce_at(&reduction.reduced, op, x, base, y, i, dtype);
    base = advance(&reduction.kept, index, base);
  }
  return DVT_OK;
}

DVT_TYPED_KERNEL(reduce, f32, DVT_F32)
DVT_TYPED_KERNEL(reduce, f64, DVT_F64)
DVT_TYPED_KERNEL(reduce, f16, DVT_F16)
DVT_TYPED_KERNEL(reduce, bf16, DVT_BF16)
DVT_TYPED_KERNEL(reduce, i8, DVT_I8)
DVT_TYPED_KERNEL(reduce, u8, DVT_U8)
DVT_TYPED_KERNEL(reduce, i32, DVT_I32)
DVT_TYPED_KERNEL(reduce, u32, DVT_U32)
DVT_TYPED_KERNEL(reduce, i64, DVT_I64)
DVT_TYPED_KERNEL(reduce, u64, DVT_U64)

static const DvtAttribute reduce_attributes[] = {
    {"op", offsetof(DvtReduceAttributes, op), 1, 'i'},
    {"axes", offsetof(DvtReduceAttributes, axes), 1, 'i'},
    {"axes_from_end", offsetof(DvtReduceAttributes, axes_from_end), 1, 'i'},
    {"keep_dims", offsetof(DvtReduceAttributes, keep_dims), 1, 'i'},
};

#define REDUCE_KERNEL(suffix)                                                                      \
  {                                                                                                \
    .name = "Reduce." #suffix, .abi_version = DVT_KERNEL_ABI_VERSION,                              \
    .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE, .input_min = 1, .input_max = 2, .output_min = 1, \
    .output_max = 1, .attribute_bytes = sizeof(DvtReduceAttributes),                               \
    .attribute_count = sizeof reduce_attributes / sizeof reduce_attributes[0],                     \
    .attributes = reduce_attributes, .run = run_reduce_##suffix, .check = check_reduce_##suffix,   \
    .infer = infer_reduce, .host_inputs = PARAMETERS                                               \
  }

DvtKernelTable dvt_kernels_reduction(void) {
  static const DvtKernel kernels[] = {
      REDUCE_KERNEL(f32), REDUCE_KERNEL(f64), REDUCE_KERNEL(f16), REDUCE_KERNEL(bf16),
      REDUCE_KERNEL(i8),  REDUCE_KERNEL(u8),  REDUCE_KERNEL(i32), REDUCE_KERNEL(u32),
      REDUCE_KERNEL(i64), REDUCE_KERNEL(u64),
  };
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
