#include "ops/kernels/resize.h"

#include <inttypes.h>

#include "ops/kernels/element.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/shape.h"

/* The workspace: one table of taps per dim, then the neighbours of one output row along all dims
 * but the last: offsets in X and the product of their weights. */
typedef struct Tables {
  int64_t count[DVT_MAX_RANK]; /* Taps per element. */
  DvtTap* taps[DVT_MAX_RANK];
  DvtTap* rows;
} Tables;

/* Taps of all tables together, or 0 when that is out of range. Fills tables->count. */
static uint64_t measure(const DvtResizeAttributes* attributes, uint32_t rank, const int64_t* in,
                        const int64_t* out, Tables* tables) {
  uint64_t rows = 1;
  uint64_t total = 0;
  for (uint32_t i = 0; i < rank; ++i) {
    tables->count[i] = dvt_resize_taps(attributes, i, in[i], out[i]);
    const uint64_t count = (uint64_t)tables->count[i];
    uint64_t table = 0;
    if (count == 0 || __builtin_mul_overflow(count, (uint64_t)out[i], &table) ||
        __builtin_add_overflow(total, table, &total) ||
        (i + 1 < rank && __builtin_mul_overflow(rows, count, &rows))) {
      return 0;
    }
  }
  return __builtin_add_overflow(total, rows, &total) || total > INT64_MAX / sizeof(DvtTap) - 1
             ? 0
             : total;
}

uint64_t dvt_resize_workspace_bytes(const DvtResizeAttributes* attributes, uint32_t rank,
                                    const int64_t* in, const int64_t* out) {
  Tables tables;
  return measure(attributes, rank, in, out, &tables) * sizeof(DvtTap);
}

static Tables fill_tables(const DvtContext* ctx, const DvtResizeAttributes* attributes) {
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  const DvtTensor* y = dvt_output_tensor(ctx, 0);
  Tables tables = {0};
  (void)measure(attributes, x->rank, x->dims, y->dims, &tables);
  DvtTap* next = dvt_output_data(ctx, 1);
  for (uint32_t i = 0; i < x->rank; ++i) {
    tables.taps[i] = next;
    dvt_resize_fill(attributes, i, x->dims[i], y->dims[i], next);
    next += y->dims[i] * tables.count[i];
  }
  tables.rows = next;
  return tables;
}

/* Multiplies out the taps of the dims before the last, the outermost varying slowest. Returns how
 * many there are, or 0 when the row lies outside X. */
static int64_t combine_rows(const Tables* tables, uint32_t outer,
                            const int64_t strides[DVT_MAX_RANK],
                            const int64_t index[DVT_MAX_RANK]) {
  DvtTap* rows = tables->rows;
  rows[0] = (DvtTap){.index = 0, .weight = 1.0};
  int64_t count = 1;
  for (uint32_t i = 0; i < outer; ++i) {
    const DvtTap* taps = tables->taps[i] + index[i] * tables->count[i];
    if (taps[0].index < 0) return 0;
    /* From the back, so that a combination is read before it is overwritten. */
    for (int64_t r = count - 1; r >= 0; --r) {
      const DvtTap row = rows[r];
      for (int64_t t = tables->count[i] - 1; t >= 0; --t) {
        rows[r * tables->count[i] + t] = (DvtTap){.index = row.index + taps[t].index * strides[i],
                                                  .weight = row.weight * taps[t].weight};
      }
    }
    count *= tables->count[i];
  }
  return count;
}

/* One element: for each row its taps along the last dim, then the rows by their weights. */
DVT_INLINE double interpolate(const DvtTap* rows, int64_t row_count, const DvtTap* taps,
                              int64_t tap_count, const void* x, DvtDType dtype) {
  double sum = 0.0;
  for (int64_t r = 0; r < row_count; ++r) {
    double along = 0.0;
    for (int64_t t = 0; t < tap_count; ++t) {
      along += taps[t].weight * dvt_load_real(x, dtype, rows[r].index + taps[t].index);
    }
    sum += rows[r].weight * along;
  }
  return sum;
}

/* One output row, of `width` elements from y_at on. */
typedef struct Row {
  const Tables* tables;
  uint32_t last;     /* The dim it runs along. */
  int64_t row_count; /* Of tables->rows; 0 when all of it lies outside X. */
  int64_t y_at, width;
  double extrapolation;
} Row;

/* The taps of element `o` along the row, or NULL when it lies outside X. */
static inline const DvtTap* taps_at(const Row* row, int64_t o) {
  const DvtTap* taps = row->tables->taps[row->last] + o * row->tables->count[row->last];
  return row->row_count == 0 || taps[0].index < 0 ? NULL : taps;
}

DVT_INLINE void interpolate_row(const Row* row, const void* x, void* y, DvtDType dtype) {
  const int64_t count = row->tables->count[row->last];
  for (int64_t o = 0; o < row->width; ++o) {
    const DvtTap* taps = taps_at(row, o);
    const double value =
        taps == NULL ? row->extrapolation
                     : interpolate(row->tables->rows, row->row_count, taps, count, x, dtype);
    dvt_store_real(y, dtype, row->y_at + o, dvt_round_sum(value, dtype));
  }
}

/* Nearest copies: arithmetic would lose low bits of 64-bit integers, and the sign of zero. */
DVT_INLINE void copy_row(const Row* row, const void* x, void* y, DvtDType dtype, size_t size) {
  const int64_t from = row->row_count == 0 ? 0 : row->tables->rows[0].index;
  for (int64_t o = 0; o < row->width; ++o) {
    const DvtTap* tap = taps_at(row, o);
    if (tap == NULL) {
      dvt_store_real(y, dtype, row->y_at + o, row->extrapolation);
    } else {
      memcpy((char*)y + (size_t)(row->y_at + o) * size,
             (const char*)x + (size_t)(from + tap->index) * size, size);
    }
  }
}

static void resize_row(const Row* row, const void* x, void* y, bool nearest, DvtDType dtype) {
  if (!nearest) {
    if (dtype == DVT_F32) {
      interpolate_row(row, x, y, DVT_F32); /* Inlined with a constant: worth its code. */
    } else {
      interpolate_row(row, x, y, dtype);
    }
    return;
  }
  switch (dvt_dtype_size(dtype)) {
    case 1:
      copy_row(row, x, y, dtype, 1);
      return;
    case 2:
      copy_row(row, x, y, dtype, 2);
      return;
    case 4:
      copy_row(row, x, y, dtype, 4);
      return;
    default:
      copy_row(row, x, y, dtype, 8);
      return;
  }
}

/* ---- Parameters that are inputs -------------------------------------------------------------- */

enum { ROI = 1, SCALES = 2, SIZES = 3, PARAMETERS = 1 << ROI | 1 << SCALES | 1 << SIZES };

/* The values of a list, which has to have `count` of them. */
static DvtCode read_list(const DvtContext* ctx, uint32_t index, uint32_t count, double* values,
                         char* reason, size_t size) {
  static const char* const names[] = {"", "roi", "scales", "sizes"};
  const DvtCell* list = dvt_input(ctx, index);
  if (list->tensor->rank != 1 || list->tensor->dims[0] != count || !dvt_has_data(ctx, index)) {
    return dvt_refuse(reason, size, "%s: expected %u values that are known", names[index], count);
  }
  if (index == SIZES) {
    int64_t sizes[DVT_MAX_RANK];
    uint32_t read = 0;
    const DvtCode code =
        dvt_read_integers(ctx, index, names[index], sizes, DVT_MAX_RANK, &read, reason, size);
    for (uint32_t i = 0; code == DVT_OK && i < read; ++i) values[i] = (double)sizes[i];
    return code;
  }
  if (!dvt_dtype_is_float(list->tensor->dtype)) {
    return dvt_refuse(reason, size, "%s: expected floats, got %s", names[index],
                      dvt_dtype_text(list->tensor->dtype));
  }
  for (uint32_t i = 0; i < count; ++i) {
    values[i] = dvt_load_real(list->data, list->tensor->dtype, i);
    const bool good = index == ROI ? isfinite(values[i]) : values[i] > 0.0 && isfinite(values[i]);
    if (!good) return dvt_refuse(reason, size, "%s: a value is out of range", names[index]);
  }
  return DVT_OK;
}

/* The element of a list at a place that the record has. */
static bool pick(const double* values, uint32_t count, double place, double* value) {
  if (!(place >= 0.0) || !(place < (double)count)) return false;
  *value = values[(uint32_t)place];
  return true;
}

/* The attribute record, with what the inputs say in the place of where they say it. */
static DvtCode read_record(const DvtContext* ctx, DvtResizeAttributes* record, char* reason,
                           size_t size) {
  *record = *(const DvtResizeAttributes*)ctx->attributes;
  if (!dvt_has_parameters(ctx, PARAMETERS)) return DVT_OK;
  const uint32_t rank = dvt_input_tensor(ctx, 0)->rank;
  uint32_t count = 0;
  for (uint32_t d = 0; d < rank; ++d) count += record->denominator[d] > 0.0 ? 0u : 1u;
  double roi[2 * DVT_MAX_RANK] = {0};
  double wanted[DVT_MAX_RANK] = {0};
  const bool has_roi = dvt_has_input(ctx, ROI);
  const bool has_list = dvt_has_input(ctx, SCALES) || dvt_has_input(ctx, SIZES);
  DvtCode code = has_roi ? read_list(ctx, ROI, 2 * count, roi, reason, size) : DVT_OK;
  for (uint32_t i = SCALES; code == DVT_OK && i <= SIZES; ++i) {
    if (dvt_has_input(ctx, i)) code = read_list(ctx, i, count, wanted, reason, size);
  }
  if (code != DVT_OK) return code;
  for (uint32_t d = 0; d < rank; ++d) {
    if (record->denominator[d] > 0.0) continue;
    const double place = record->roi_start[d];
    const bool good =
        (!has_roi || (pick(roi, count, place, &record->roi_start[d]) &&
                      pick(roi + count, count, place, &record->roi_end[d]))) &&
        (!has_list || pick(wanted, count, record->numerator[d], &record->numerator[d]));
    if (!good) return dvt_refuse(reason, size, "the record names a place outside a list");
    if (record->denominator[d] == DVT_RESIZE_BY_SCALE) {
      record->numerator[d] *= record->roi_end[d] - record->roi_start[d];
    }
  }
  return DVT_OK;
}

static DvtCode check_resize(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size);

static DvtCode run_resize(const DvtContext* ctx, DvtDType dtype) {
  if (dvt_has_parameters(ctx, PARAMETERS)) {
    const DvtCode code = check_resize(ctx, dtype, NULL, 0);
    if (code != DVT_OK) return code;
  }
  const DvtTensor* y = dvt_output_tensor(ctx, 0);
  if (y->bytes == 0) return DVT_OK;
  DvtResizeAttributes resolved;
  const DvtResizeAttributes* attributes = &resolved;
  int64_t extents[DVT_MAX_RANK];
  if (read_record(ctx, &resolved, NULL, 0) != DVT_OK ||
      !dvt_resize_resolve(&resolved, dvt_input_tensor(ctx, 0), &resolved, extents)) {
    return DVT_INVALID_ARGUMENT;
  }
  const Tables tables = fill_tables(ctx, attributes);
  int64_t strides[DVT_MAX_RANK];
  dvt_row_major_strides(dvt_input_tensor(ctx, 0), strides);
  const uint32_t last = y->rank - 1U;
  const int64_t elements = dvt_tensor_elements(y);
  Row row = {.tables = &tables,
             .last = last,
             .width = y->dims[last],
             .extrapolation = dvt_round_real(attributes->extrapolation_value, dtype)};
  int64_t index[DVT_MAX_RANK] = {0};
  for (; row.y_at < elements; row.y_at += row.width) {
    row.row_count = combine_rows(&tables, last, strides, index);
    resize_row(&row, dvt_input_data(ctx, 0), dvt_output_data(ctx, 0),
               attributes->mode == DVT_RESIZE_NEAREST, dtype);
    for (uint32_t i = last; i > 0 && ++index[i - 1] == y->dims[i - 1]; --i) index[i - 1] = 0;
  }
  return DVT_OK;
}

static DvtCode check_modes(const DvtResizeAttributes* attributes, DvtDType dtype, char* reason,
                           size_t size) {
  if (attributes->mode < DVT_RESIZE_NEAREST || attributes->mode > DVT_RESIZE_CUBIC) {
    return dvt_refuse(reason, size, "mode %" PRId64 " is unknown", attributes->mode);
  }
  if (attributes->coordinates < 0 || attributes->coordinates >= DVT_RESIZE_COORDINATES_COUNT) {
    return dvt_refuse(reason, size, "coordinates %" PRId64 " are unknown", attributes->coordinates);
  }
  if (attributes->nearest_mode < 0 || attributes->nearest_mode >= DVT_RESIZE_NEAREST_COUNT) {
    return dvt_refuse(reason, size, "nearest_mode %" PRId64 " is unknown",
                      attributes->nearest_mode);
  }
  if (dtype == DVT_BOOL && attributes->mode != DVT_RESIZE_NEAREST) {
    return dvt_refuse(reason, size, "bool cannot be interpolated");
  }
  return DVT_OK;
}

static DvtCode infer_resize(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtResizeAttributes resolved;
  DvtCode code = dvt_check_inputs(ctx, 1, 4, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) code = read_record(ctx, &resolved, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  int64_t out[DVT_MAX_RANK];
  if (!dvt_resize_resolve(&resolved, x, &resolved, out)) {
    return dvt_refuse(reason, size, "an extent of Y is out of range, or X is empty and Y is not");
  }
  code = dvt_infer_shape(&outputs[0], x->rank, out, "Y", reason, size);
  if (code != DVT_OK || ctx->output_count < 2) return code;
  const uint64_t bytes = dvt_resize_workspace_bytes(&resolved, x->rank, x->dims, out);
  if (bytes == 0 && outputs[0].bytes > 0) {
    return dvt_refuse(reason, size, "a scale is out of range");
  }
  return dvt_infer_scratch(&outputs[1], bytes, reason, size);
}

static DvtCode check_resize(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 1, 4, 2, 2, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) code = dvt_check_dtype(dvt_input_tensor(ctx, 0), dtype, "X", reason, size);
  if (code == DVT_OK) code = dvt_check_dtype(dvt_output_tensor(ctx, 0), dtype, "Y", reason, size);
  if (code == DVT_OK) code = check_modes(ctx->attributes, dtype, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  const DvtTensor* y = dvt_output_tensor(ctx, 0);
  if (x->rank == 0 || x->rank != y->rank) {
    return dvt_refuse(reason, size, "ranks %u and %u of X and Y: expected equal, 1 or more",
                      x->rank, y->rank);
  }
  if (dvt_lacks_parameters(ctx, PARAMETERS)) return DVT_OK;
  if (y->bytes == 0 && !dvt_has_parameters(ctx, PARAMETERS)) return DVT_OK;
  if (y->bytes != 0 && x->bytes == 0) return dvt_refuse(reason, size, "X is empty and Y is not");
  DvtResizeAttributes resolved;
  int64_t out[DVT_MAX_RANK];
  code = read_record(ctx, &resolved, reason, size);
  if (code != DVT_OK) return code;
  if (!dvt_resize_resolve(&resolved, x, &resolved, out)) {
    return dvt_refuse(reason, size, "a scale is out of range");
  }
  if (dvt_has_parameters(ctx, PARAMETERS)) {
    code = dvt_check_shape(y, x->rank, out, "Y", reason, size);
    if (code != DVT_OK || y->bytes == 0) return code;
  }
  const uint64_t expected = dvt_resize_workspace_bytes(&resolved, x->rank, x->dims, y->dims);
  if (expected == 0) return dvt_refuse(reason, size, "a scale is out of range");
  const uint64_t got = dvt_output_tensor(ctx, 1)->bytes;
  if (got >= expected) return DVT_OK;
  return dvt_refuse(reason, size, "workspace: expected %" PRIu64 " bytes, got %" PRIu64, expected,
                    got);
}

DVT_TYPED_KERNEL(resize, f32, DVT_F32)
DVT_TYPED_KERNEL(resize, f64, DVT_F64)
DVT_TYPED_KERNEL(resize, f16, DVT_F16)
DVT_TYPED_KERNEL(resize, bf16, DVT_BF16)
DVT_TYPED_KERNEL(resize, i8, DVT_I8)
DVT_TYPED_KERNEL(resize, u8, DVT_U8)
DVT_TYPED_KERNEL(resize, i16, DVT_I16)
DVT_TYPED_KERNEL(resize, u16, DVT_U16)
DVT_TYPED_KERNEL(resize, i32, DVT_I32)
DVT_TYPED_KERNEL(resize, u32, DVT_U32)
DVT_TYPED_KERNEL(resize, i64, DVT_I64)
DVT_TYPED_KERNEL(resize, u64, DVT_U64)
DVT_TYPED_KERNEL(resize, bool, DVT_BOOL)

static const DvtAttribute resize_attributes[] = {
    {"mode", offsetof(DvtResizeAttributes, mode), 1, 'i'},
    {"coordinates", offsetof(DvtResizeAttributes, coordinates), 1, 'i'},
    {"nearest_mode", offsetof(DvtResizeAttributes, nearest_mode), 1, 'i'},
    {"antialias", offsetof(DvtResizeAttributes, antialias), 1, 'i'},
    {"exclude_outside", offsetof(DvtResizeAttributes, exclude_outside), 1, 'i'},
    {"cubic_a", offsetof(DvtResizeAttributes, cubic_a), 1, 'f'},
    {"extrapolation_value", offsetof(DvtResizeAttributes, extrapolation_value), 1, 'f'},
    {"numerator", offsetof(DvtResizeAttributes, numerator), DVT_MAX_RANK, 'f'},
    {"denominator", offsetof(DvtResizeAttributes, denominator), DVT_MAX_RANK, 'f'},
    {"roi_start", offsetof(DvtResizeAttributes, roi_start), DVT_MAX_RANK, 'f'},
    {"roi_end", offsetof(DvtResizeAttributes, roi_end), DVT_MAX_RANK, 'f'},
};

#define RESIZE_KERNEL(suffix)                                                                      \
  {                                                                                                \
    .name = "Resize." #suffix, .abi_version = DVT_KERNEL_ABI_VERSION,                              \
    .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE, .input_min = 1, .input_max = 4, .output_min = 2, \
    .output_max = 2, .attribute_bytes = sizeof(DvtResizeAttributes),                               \
    .attribute_count = sizeof resize_attributes / sizeof resize_attributes[0],                     \
    .attributes = resize_attributes, .run = run_resize_##suffix, .check = check_resize_##suffix,   \
    .infer = infer_resize, .host_inputs = PARAMETERS                                               \
  }

DvtKernelTable dvt_kernels_resize(void) {
  static const DvtKernel kernels[] = {
      RESIZE_KERNEL(f32),  RESIZE_KERNEL(f64), RESIZE_KERNEL(f16), RESIZE_KERNEL(bf16),
      RESIZE_KERNEL(i8),   RESIZE_KERNEL(u8),  RESIZE_KERNEL(i16), RESIZE_KERNEL(u16),
      RESIZE_KERNEL(i32),  RESIZE_KERNEL(u32), RESIZE_KERNEL(i64), RESIZE_KERNEL(u64),
      RESIZE_KERNEL(bool),
  };
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
