/* scatter.c: kernels that update what indices name. */
#include "ops/kernels/element.h"
#include "ops/kernels/index.h"
#include "ops/kernels/kernels.h"

enum { X = 0, INDICES = 1, UPDATES = 2 };

static const DvtScatterAttributes* attributes_of(const DvtContext* ctx) {
  return ctx->attributes;
}

/* ---- Updates --------------------------------------------------------------------------------- */

static double reduce_real(int64_t reduction, double old, double update, DvtDType dtype) {
  switch (reduction) {
    case DVT_SCATTER_ADD:
      return dvt_round_real(old + update, dtype);
    case DVT_SCATTER_MUL:
      return dvt_round_real(old * update, dtype);
    case DVT_SCATTER_MAX:
      return old > update || old != old ? old : update;
    default:
      return old < update || old != old ? old : update;
  }
}

static bool less(uint64_t a, uint64_t b, DvtDType dtype) {
  return dvt_dtype_is_signed(dtype) ? (int64_t)a < (int64_t)b : a < b;
}

static uint64_t reduce_integer(int64_t reduction, uint64_t old, uint64_t update, DvtDType dtype) {
  switch (reduction) {
    case DVT_SCATTER_ADD:
      return old + update;
    case DVT_SCATTER_MUL:
      return old * update;
    case DVT_SCATTER_MAX:
      return less(old, update, dtype) ? update : old;
    default:
      return less(update, old, dtype) ? update : old;
  }
}

/* y[to + i] and updates[from + i], for `count` elements. */
static void update(int64_t reduction, void* y, int64_t to, const void* updates, int64_t from,
                   int64_t count, DvtDType dtype) {
  if (reduction == DVT_SCATTER_NONE) {
    const size_t size = dvt_dtype_size(dtype);
    memcpy((char*)y + (size_t)to * size, (const char*)updates + (size_t)from * size,
           (size_t)count * size);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    if (dvt_dtype_is_float(dtype)) {
      const double value = reduce_real(reduction, dvt_load_real(y, dtype, to + i),
                                       dvt_load_real(updates, dtype, from + i), dtype);
      dvt_store_real(y, dtype, to + i, value);
    } else {
      const uint64_t value = reduce_integer(reduction, dvt_load_integer(y, dtype, to + i),
                                            dvt_load_integer(updates, dtype, from + i), dtype);
      dvt_store_integer(y, dtype, to + i, value);
    }
  }
}

static void copy_input(const DvtContext* ctx) {
  const DvtCell* x = dvt_input(ctx, X);
  const DvtCell* y = dvt_output(ctx, 0);
  if (x->tensor->bytes > 0 && x->data != y->data) memcpy(y->data, x->data, x->tensor->bytes);
}

/* ---- Checks ---------------------------------------------------------------------------------- */

static DvtCode infer_scatter(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  const DvtCode code = dvt_check_inputs(ctx, 3, 3, reason, size);
  return code == DVT_OK ? dvt_infer_same(ctx, outputs, reason, size) : code;
}

static DvtCode check_scatter(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 3, 3, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) code = dvt_index_check_dtype(ctx, INDICES, reason, size);
  if (code != DVT_OK) return code;
  const DvtDType dtype = dvt_input_tensor(ctx, X)->dtype;
  code = dvt_check_dtype(dvt_input_tensor(ctx, UPDATES), dtype, "input 2", reason, size);
  if (code == DVT_OK) {
    code = dvt_check_dtype(dvt_output_tensor(ctx, 0), dtype, "output 0", reason, size);
  }
  if (code != DVT_OK) return code;
  const int64_t reduction = attributes_of(ctx)->reduction;
  if (reduction < 0 || reduction >= DVT_SCATTER_COUNT ||
      (reduction != DVT_SCATTER_NONE && dtype == DVT_BOOL)) {
    return dvt_refuse(reason, size, "reduction %lld is unknown for %s", (long long)reduction,
                      dvt_dtype_text(dtype));
  }
  return dvt_check_inferred(ctx, infer_scatter, 0, reason, size);
}

/* ---- ScatterElements ------------------------------------------------------------------------- */

static DvtCode check_elements(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = check_scatter(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* x = dvt_input_tensor(ctx, X);
  const DvtTensor* indices = dvt_input_tensor(ctx, INDICES);
  uint32_t axis = 0;
  code = dvt_normalise_axis(attributes_of(ctx)->axis, x->rank, &axis, reason, size);
  if (code == DVT_OK) code = dvt_index_check_elements(x, indices, axis, reason, size);
  if (code != DVT_OK) return code;
  return dvt_check_same_shape(indices, dvt_input_tensor(ctx, UPDATES), "input 2", reason, size);
}

static DvtCode run_elements(void* context) {
  const DvtContext* ctx = context;
  copy_input(ctx);
  const DvtTensor* x = dvt_input_tensor(ctx, X);
  const int64_t axis = attributes_of(ctx)->axis;
  DvtIndexWalk walk;
  dvt_index_walk_init(&walk, dvt_input(ctx, INDICES), x,
                      (uint32_t)(axis < 0 ? axis + x->rank : axis));
  for (int64_t i = 0; i < walk.count; ++i) {
    const int64_t offset = dvt_index_walk_next(&walk, i);
    if (offset < 0) return DVT_INVALID_ARGUMENT;
    update(attributes_of(ctx)->reduction, dvt_output_data(ctx, 0), offset,
           dvt_input_data(ctx, UPDATES), i, 1, x->dtype);
  }
  return DVT_OK;
}

/* ---- ScatterND ------------------------------------------------------------------------------- */

static DvtCode check_nd(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = check_scatter(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* x = dvt_input_tensor(ctx, X);
  const DvtTensor* indices = dvt_input_tensor(ctx, INDICES);
  code = dvt_index_check_tuples(x, indices, 0, reason, size);
  if (code != DVT_OK) return code;
  int64_t dims[2 * DVT_MAX_RANK];
  uint32_t rank = 0;
  for (uint32_t d = 0; d + 1 < indices->rank; ++d) dims[rank++] = indices->dims[d];
  for (uint32_t d = (uint32_t)indices->dims[indices->rank - 1]; d < x->rank; ++d) {
    dims[rank++] = x->dims[d];
  }
  if (rank > DVT_MAX_RANK) {
    return dvt_refuse(reason, size, "updates would have %u axes", rank);
  }
  return dvt_check_shape(dvt_input_tensor(ctx, UPDATES), rank, dims, "input 2", reason, size);
}

static DvtCode run_nd(void* context) {
  const DvtContext* ctx = context;
  copy_input(ctx);
  const DvtTensor* x = dvt_input_tensor(ctx, X);
  DvtTuples tuples;
  dvt_tuples_init(&tuples, dvt_input(ctx, INDICES), x, 0);
  for (int64_t i = 0; i < tuples.count; ++i) {
    const int64_t offset = dvt_tuples_offset(&tuples, i);
    if (offset < 0) return DVT_INVALID_ARGUMENT;
    if (tuples.slice == 0) continue;
    update(attributes_of(ctx)->reduction, dvt_output_data(ctx, 0), offset,
           dvt_input_data(ctx, UPDATES), i * tuples.slice, tuples.slice, x->dtype);
  }
  return DVT_OK;
}

/* ---- Table ----------------------------------------------------------------------------------- */

static const DvtAttribute scatter_attributes[] = {
    {"axis", offsetof(DvtScatterAttributes, axis), 1, 'i'},
    {"reduction", offsetof(DvtScatterAttributes, reduction), 1, 'i'}};

#define SCATTER_KERNEL(kernel_name, suffix)                                             \
  {                                                                                     \
    .name = (kernel_name), .abi_version = DVT_KERNEL_ABI_VERSION,                       \
    .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE | DVT_KERNEL_IN_PLACE, .input_min = 3, \
    .input_max = 3, .output_min = 1, .output_max = 1,                                   \
    .attribute_bytes = sizeof(DvtScatterAttributes),                                    \
    .attribute_count = sizeof scatter_attributes / sizeof scatter_attributes[0],        \
    .attributes = scatter_attributes, .run = run_##suffix, .check = check_##suffix,     \
    .infer = infer_scatter                                                              \
  }

static const DvtKernel kernels[] = {
    SCATTER_KERNEL("ScatterElements", elements),
    SCATTER_KERNEL("ScatterND", nd),
};

DvtKernelTable dvt_kernels_scatter(void) {
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
