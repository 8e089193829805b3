#include "ops/kernels/cumulative.h"

#include "ops/kernels/element.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/shape.h"

enum { PARAMETERS = 1u << 1 };

/* Counts, attributes, one dtype, one shape. */
static DvtCode check_same(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 1, 2, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) {
    code = dvt_check_dtype(dvt_output_tensor(ctx, 0), dvt_input_tensor(ctx, 0)->dtype, "output 0",
                           reason, size);
  }
  return code == DVT_OK ? dvt_check_inferred(ctx, dvt_infer_same, 0, reason, size) : code;
}

/* ---- CumSum ---------------------------------------------------------------------------------- */

static DvtCode axis_of(const DvtContext* ctx, uint32_t* axis, char* reason, size_t size) {
  const DvtCumSumAttributes* attributes = ctx->attributes;
  int64_t stated = attributes->axis;
  if (attributes->axis_is_input != 0) {
    const DvtCode code = dvt_read_integer(ctx, 1, "axis", &stated, reason, size);
    if (code != DVT_OK) return code;
  }
  return dvt_normalise_axis(stated, dvt_input_tensor(ctx, 0)->rank, axis, reason, size);
}

static DvtCode check_cum_sum(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code = check_same(ctx, reason, size);
  if (code == DVT_OK) {
    code = dvt_check_dtype(dvt_input_tensor(ctx, 0), dtype, "input 0", reason, size);
  }
  uint32_t axis = 0;
  if (code != DVT_OK || dvt_lacks_parameters(ctx, PARAMETERS)) return code;
  return axis_of(ctx, &axis, reason, size);
}

/* One line of `count` elements, `step` apart from `at` on. */
DVT_INLINE void sum_line(const DvtCumSumAttributes* attributes, const void* x, void* y, int64_t at,
                         int64_t count, int64_t step, DvtDType dtype) {
  double real = 0.0;
  uint64_t integer = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t here = at + (attributes->reverse != 0 ? count - 1 - i : i) * step;
    if (dvt_dtype_is_float(dtype)) {
      const double next = dvt_round_sum(real + dvt_load_real(x, dtype, here), dtype);
      dvt_store_real(y, dtype, here, attributes->exclusive != 0 ? real : next);
      real = next;
    } else {
      const uint64_t next = integer + dvt_load_integer(x, dtype, here);
      dvt_store_integer(y, dtype, here, attributes->exclusive != 0 ? integer : next);
      integer = next;
    }
  }
}

DVT_INLINE DvtCode run_cum_sum(const DvtContext* ctx, DvtDType dtype) {
  uint32_t axis = 0;
  const DvtCode code = axis_of(ctx, &axis, NULL, 0);
  if (code != DVT_OK) return code;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  if (x->bytes == 0) return DVT_OK;
  int64_t step = 1;
  for (uint32_t d = axis + 1; d < x->rank; ++d) step *= x->dims[d];
  const int64_t block = step * x->dims[axis];
  const int64_t elements = dvt_tensor_elements(x);
  for (int64_t begin = 0; begin < elements; begin += block) {
    for (int64_t i = 0; i < step; ++i) {
      sum_line(ctx->attributes, dvt_input_data(ctx, 0), dvt_output_data(ctx, 0), begin + i,
               x->dims[axis], step, dtype);
    }
  }
  return DVT_OK;
}

/* ---- Trilu ----------------------------------------------------------------------------------- */

static DvtCode diagonal_of(const DvtContext* ctx, int64_t* k, char* reason, size_t size) {
  const DvtTriluAttributes* attributes = ctx->attributes;
  *k = attributes->k;
  return attributes->k_is_input == 0 ? DVT_OK : dvt_read_integer(ctx, 1, "k", k, reason, size);
}

static DvtCode check_trilu(const DvtContext* ctx, char* reason, size_t size) {
  const DvtCode code = check_same(ctx, reason, size);
  if (code != DVT_OK) return code;
  if (dvt_input_tensor(ctx, 0)->rank < 2) {
    return dvt_refuse(reason, size, "input 0: expected rank 2 or more, got %u",
                      dvt_input_tensor(ctx, 0)->rank);
  }
  int64_t k = 0;
  return dvt_lacks_parameters(ctx, PARAMETERS) ? DVT_OK : diagonal_of(ctx, &k, reason, size);
}

/* Copies [begin, end) of a row and zeroes the rest. x and y may be the same memory. */
static void keep_part(const char* x, char* y, int64_t columns, int64_t begin, int64_t end,
                      size_t size) {
  if (x != y)
    memcpy(y + (size_t)begin * size, x + (size_t)begin * size, (size_t)(end - begin) * size);
  memset(y, 0, (size_t)begin * size);
  memset(y + (size_t)end * size, 0, (size_t)(columns - end) * size);
}

static int64_t clamp(int64_t value, int64_t low, int64_t high) {
  return value < low ? low : value > high ? high : value;
}

static DvtCode run_trilu(void* context) {
  const DvtContext* ctx = context;
  int64_t k = 0;
  const DvtCode code = diagonal_of(ctx, &k, NULL, 0);
  if (code != DVT_OK) return code;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  if (x->bytes == 0) return DVT_OK;
  const int64_t rows = x->dims[x->rank - 2];
  const int64_t columns = x->dims[x->rank - 1];
  const bool upper = ((const DvtTriluAttributes*)ctx->attributes)->upper != 0;
  const int64_t shift = clamp(k, -rows, columns); /* Beyond these nothing changes. */
  const size_t size = dvt_dtype_size(x->dtype);
  const char* from = dvt_input_data(ctx, 0);
  char* to = dvt_output_data(ctx, 0);
  const size_t row_bytes = (size_t)columns * size;
  for (size_t at = 0, row = 0; at < x->bytes; at += row_bytes, ++row) {
    const int64_t i = (int64_t)(row % (size_t)rows);
    const int64_t diagonal = clamp(i + shift, 0, columns);
    const int64_t behind = clamp(i + shift + 1, 0, columns);
    keep_part(from + at, to + at, columns, upper ? diagonal : 0, upper ? columns : behind, size);
  }
  return DVT_OK;
}

/* ---- Table ----------------------------------------------------------------------------------- */

DVT_TYPED_KERNEL(cum_sum, f32, DVT_F32)
DVT_TYPED_KERNEL(cum_sum, f64, DVT_F64)
DVT_TYPED_KERNEL(cum_sum, f16, DVT_F16)
DVT_TYPED_KERNEL(cum_sum, bf16, DVT_BF16)
DVT_TYPED_KERNEL(cum_sum, i32, DVT_I32)
DVT_TYPED_KERNEL(cum_sum, i64, DVT_I64)
DVT_TYPED_KERNEL(cum_sum, u32, DVT_U32)
DVT_TYPED_KERNEL(cum_sum, u64, DVT_U64)

static const DvtAttribute cum_sum_attributes[] = {
    {"axis", offsetof(DvtCumSumAttributes, axis), 1, 'i'},
    {"axis_is_input", offsetof(DvtCumSumAttributes, axis_is_input), 1, 'i'},
    {"exclusive", offsetof(DvtCumSumAttributes, exclusive), 1, 'i'},
    {"reverse", offsetof(DvtCumSumAttributes, reverse), 1, 'i'}};
static const DvtAttribute trilu_attributes[] = {
    {"upper", offsetof(DvtTriluAttributes, upper), 1, 'i'},
    {"k", offsetof(DvtTriluAttributes, k), 1, 'i'},
    {"k_is_input", offsetof(DvtTriluAttributes, k_is_input), 1, 'i'}};

#define CUMULATIVE(record, table)                                                      \
  .abi_version = DVT_KERNEL_ABI_VERSION,                                               \
  .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE | DVT_KERNEL_IN_PLACE, .input_min = 1,  \
  .input_max = 2, .output_min = 1, .output_max = 1, .attribute_bytes = sizeof(record), \
  .attribute_count = sizeof(table) / sizeof((table)[0]), .attributes = (table),        \
  .infer = dvt_infer_same, .host_inputs = PARAMETERS
#define CUM_SUM(suffix)                                                             \
  {                                                                                 \
    .name = "CumSum." #suffix, CUMULATIVE(DvtCumSumAttributes, cum_sum_attributes), \
    .run = run_cum_sum_##suffix, .check = check_cum_sum_##suffix                    \
  }

static const DvtKernel kernels[] = {
    CUM_SUM(f32),
    CUM_SUM(f64),
    CUM_SUM(f16),
    CUM_SUM(bf16),
    CUM_SUM(i32),
    CUM_SUM(i64),
    CUM_SUM(u32),
    CUM_SUM(u64),
    {.name = "Trilu",
     CUMULATIVE(DvtTriluAttributes, trilu_attributes),
     .run = run_trilu,
     .check = check_trilu},
};

DvtKernelTable dvt_kernels_cumulative(void) {
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
