/* selection.c: ArgMax, ArgMin, TopK and OneHot. Those whose shapes depend on data are in keep.c. */
#include "ops/kernels/selection.h"

#include "ops/kernels/kernels.h"
#include "ops/kernels/order.h"
#include "ops/kernels/shape.h"

/* x as lines along an axis: element i of line l lies at first(l) + i * step. */
typedef struct Lines {
  int64_t count, length, step;
} Lines;

/* Only for an x that is not empty. */
static Lines lines_of(const DvtTensor* x, int64_t stated_axis) {
  const uint32_t axis = (uint32_t)(stated_axis < 0 ? stated_axis + x->rank : stated_axis);
  Lines lines = {
      .count = dvt_tensor_elements(x) / x->dims[axis], .length = x->dims[axis], .step = 1};
  for (uint32_t d = axis + 1; d < x->rank; ++d) lines.step *= x->dims[d];
  return lines;
}
static int64_t first_of(const Lines* lines, int64_t line, int64_t length) {
  return line / lines->step * (lines->step * length) + line % lines->step;
}

/* ---- ArgMax, ArgMin -------------------------------------------------------------------------- */

static DvtCode infer_arg(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtArgAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  uint32_t axis = 0;
  code = dvt_normalise_axis(attributes->axis, x->rank, &axis, reason, size);
  if (code != DVT_OK) return code;
  int64_t dims[DVT_MAX_RANK];
  uint32_t rank = 0;
  for (uint32_t d = 0; d < x->rank; ++d) {
    if (d != axis) dims[rank++] = x->dims[d];
    if (d == axis && attributes->keep_dims != 0) dims[rank++] = 1;
  }
  code = dvt_infer_shape(&outputs[0], rank, dims, "output 0", reason, size);
  if (code != DVT_OK || outputs[0].bytes == 0 || x->dims[axis] > 0) return code;
  return dvt_refuse(reason, size, "axis %u has no elements to choose from", axis);
}

static DvtCode check_arg(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 1, 1, 1, 1, reason, size);
  if (code == DVT_OK) {
    code = dvt_check_dtype(dvt_output_tensor(ctx, 0), DVT_I64, "output 0", reason, size);
  }
  return code == DVT_OK ? dvt_check_inferred(ctx, infer_arg, 0, reason, size) : code;
}

static DvtCode run_arg(const DvtContext* ctx, int sign) {
  const DvtArgAttributes* attributes = ctx->attributes;
  const DvtTensor* tensor = dvt_input_tensor(ctx, 0);
  if (dvt_output_tensor(ctx, 0)->bytes == 0) return DVT_OK;
  const Lines lines = lines_of(tensor, attributes->axis);
  const void* x = dvt_input_data(ctx, 0);
  int64_t* y = dvt_output_data(ctx, 0);
  for (int64_t line = 0; line < lines.count; ++line) {
    const int64_t first = first_of(&lines, line, lines.length);
    int64_t best = 0;
    for (int64_t i = 1; i < lines.length; ++i) {
      const int64_t at = first + i * lines.step;
      const int64_t best_at = first + best * lines.step;
      int order = sign * dvt_compare_elements(x, tensor->dtype, at, best_at);
      if (sign < 0 && dvt_dtype_is_float(tensor->dtype)) {
        /* NaN wins minima, too. */
        const double value = dvt_load_real(x, tensor->dtype, at);
        const double held = dvt_load_real(x, tensor->dtype, best_at);
        if (value != value || held != held) order = (value != value) - (held != held);
      }
      if (order > 0 || (order == 0 && attributes->select_last != 0)) best = i;
    }
    y[line] = best;
  }
  return DVT_OK;
}
static DvtCode run_arg_max(void* ctx) {
  return run_arg(ctx, 1);
}
static DvtCode run_arg_min(void* ctx) {
  return run_arg(ctx, -1);
}

/* ---- TopK ------------------------------------------------------------------------------------ */

enum { TOP_K_PARAMETERS = 1u << 1 };

enum { TOP_VALUES = 0, TOP_INDICES = 1, TOP_WORKSPACE = 2, TOP_OUTPUTS = 3 };

/* The axis, and how many of its elements to take. */
static DvtCode describe_top_k(const DvtContext* ctx, uint32_t* axis, int64_t* k, char* reason,
                              size_t size) {
  const DvtTopKAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  DvtCode code = dvt_normalise_axis(attributes->axis, x->rank, axis, reason, size);
  *k = attributes->k;
  if (code == DVT_OK && attributes->k_is_input != 0) {
    code = dvt_read_integer(ctx, 1, "k", k, reason, size);
  }
  if (code != DVT_OK || (*k >= 0 && *k <= x->dims[*axis])) return code;
  return dvt_refuse(reason, size, "k: expected 0 to %lld, got %lld", (long long)x->dims[*axis],
                    (long long)*k);
}

static DvtCode infer_top_k(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 1, 2, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  if (ctx->output_count != TOP_OUTPUTS) {
    return dvt_refuse(reason, size, "expected %d outputs, got %u", TOP_OUTPUTS, ctx->output_count);
  }
  uint32_t axis = 0;
  int64_t k = 0;
  code = describe_top_k(ctx, &axis, &k, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  int64_t dims[DVT_MAX_RANK];
  memcpy(dims, x->dims, sizeof dims);
  dims[axis] = k;
  for (uint32_t i = TOP_VALUES; code == DVT_OK && i <= TOP_INDICES; ++i) {
    code = dvt_infer_shape(&outputs[i], x->rank, dims, "outputs", reason, size);
  }
  const uint64_t bytes = x->bytes > 0 ? (uint64_t)x->dims[axis] * sizeof(int64_t) : 0;
  return code == DVT_OK ? dvt_infer_scratch(&outputs[TOP_WORKSPACE], bytes, reason, size) : code;
}

/* Values or indices may be absent. */
static DvtCode check_top_k(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 1, 2, 0, TOP_OUTPUTS, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  if (!dvt_has_output(ctx, TOP_WORKSPACE)) return dvt_refuse(reason, size, "no workspace");
  if (dvt_has_output(ctx, TOP_VALUES)) {
    code = dvt_check_dtype(dvt_output_tensor(ctx, TOP_VALUES), dvt_input_tensor(ctx, 0)->dtype,
                           "output 0", reason, size);
  }
  if (code == DVT_OK && dvt_has_output(ctx, TOP_INDICES)) {
    code = dvt_check_dtype(dvt_output_tensor(ctx, TOP_INDICES), DVT_I64, "output 1", reason, size);
  }
  if (code != DVT_OK || dvt_lacks_parameters(ctx, TOP_K_PARAMETERS)) return code;
  return dvt_check_inferred(ctx, infer_top_k, 1, reason, size);
}

typedef struct Line {
  const void* x;
  DvtDType dtype;
  int64_t first, step;
  int sign; /* 1: the largest come first. */
} Line;

static bool before(const void* context, int64_t a, int64_t b) {
  const Line* line = context;
  const int order =
      line->sign * dvt_compare_elements(line->x, line->dtype, line->first + a * line->step,
                                        line->first + b * line->step);
  return order > 0 || (order == 0 && a < b);
}

static DvtCode run_top_k(void* context) {
  const DvtContext* ctx = context;
  if (dvt_has_parameters(ctx, TOP_K_PARAMETERS)) {
    const DvtCode fits = check_top_k(ctx, NULL, 0);
    if (fits != DVT_OK) return fits;
  }
  uint32_t axis = 0;
  int64_t k = 0;
  const DvtCode code = describe_top_k(ctx, &axis, &k, NULL, 0);
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  if (code != DVT_OK || x->bytes == 0 || k == 0) return code;
  const Lines lines = lines_of(x, axis);
  const uint32_t size = dvt_dtype_size(x->dtype);
  char* values = dvt_has_output(ctx, TOP_VALUES) ? dvt_output_data(ctx, TOP_VALUES) : NULL;
  int64_t* indices = dvt_has_output(ctx, TOP_INDICES) ? dvt_output_data(ctx, TOP_INDICES) : NULL;
  const int64_t largest = ((const DvtTopKAttributes*)ctx->attributes)->largest;
  Line line = {.x = dvt_input_data(ctx, 0),
               .dtype = x->dtype,
               .step = lines.step,
               .sign = largest != 0 ? 1 : -1};
  for (int64_t l = 0; l < lines.count; ++l) {
    line.first = first_of(&lines, l, lines.length);
    DvtHeap heap = {.indices = dvt_output_data(ctx, TOP_WORKSPACE),
                    .count = lines.length,
                    .before = before,
                    .context = &line};
    for (int64_t i = 0; i < lines.length; ++i) heap.indices[i] = i;
    dvt_heap_build(&heap);
    for (int64_t i = 0; i < k; ++i) {
      const int64_t index = dvt_heap_pop(&heap);
      const int64_t to = first_of(&lines, l, k) + i * lines.step;
      if (indices != NULL) indices[to] = index;
      if (values == NULL) continue;
      memcpy(values + (size_t)to * size,
             (const char*)line.x + (size_t)(line.first + index * lines.step) * size, size);
    }
  }
  return DVT_OK;
}

/* ---- OneHot ---------------------------------------------------------------------------------- */

enum { INDICES = 0, DEPTH = 1, VALUES = 2, ONE_HOT_PARAMETERS = 1u << DEPTH };

/* Any number as an integer: floats are truncated, and what has no integer is INT64_MAX. */
static int64_t integer_at(const DvtCell* cell, int64_t at) {
  const DvtDType dtype = cell->tensor->dtype;
  if (!dvt_dtype_is_float(dtype)) {
    const uint64_t value = dvt_load_integer(cell->data, dtype, at);
    return dtype == DVT_U64 && value > INT64_MAX ? INT64_MAX : (int64_t)value;
  }
  const double value = dvt_load_real(cell->data, dtype, at);
  return value >= -0x1p63 && value < 0x1p63 ? (int64_t)value : INT64_MAX;
}

static DvtCode infer_one_hot(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 3, 3, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtOneHotAttributes* attributes = ctx->attributes;
  const DvtTensor* indices = dvt_input_tensor(ctx, INDICES);
  uint32_t axis = 0;
  code = dvt_normalise_axis(attributes->axis, indices->rank + 1u, &axis, reason, size);
  if (code != DVT_OK) return code;
  int64_t depth = attributes->depth;
  if (attributes->depth_is_input != 0) {
    if (dvt_tensor_elements(dvt_input_tensor(ctx, DEPTH)) != 1 || !dvt_has_data(ctx, DEPTH)) {
      return dvt_refuse(reason, size, "depth: expected one element with a value");
    }
    depth = integer_at(dvt_input(ctx, DEPTH), 0);
  }
  int64_t dims[DVT_MAX_RANK + 1];
  for (uint32_t d = 0; d <= indices->rank; ++d) {
    dims[d] = d == axis ? depth : indices->dims[d < axis ? d : d - 1];
  }
  return dvt_infer_shape(&outputs[0], indices->rank + 1u, dims, "output 0", reason, size);
}

static DvtCode check_one_hot(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 3, 3, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* values = dvt_input_tensor(ctx, VALUES);
  code = dvt_check_dtype(dvt_output_tensor(ctx, 0), values->dtype, "output 0", reason, size);
  if (code == DVT_OK && dvt_tensor_elements(values) != 2) {
    return dvt_refuse(reason, size, "values: expected two elements, got %lld",
                      (long long)dvt_tensor_elements(values));
  }
  if (code != DVT_OK || dvt_lacks_parameters(ctx, ONE_HOT_PARAMETERS)) return code;
  return dvt_check_inferred(ctx, infer_one_hot, 0, reason, size);
}

static DvtCode run_one_hot(void* context) {
  const DvtContext* ctx = context;
  const DvtCode code = check_one_hot(ctx, NULL, 0);
  if (code != DVT_OK) return code;
  const DvtTensor* y = dvt_output_tensor(ctx, 0);
  if (y->bytes == 0) return DVT_OK;
  const Lines lines = lines_of(y, ((const DvtOneHotAttributes*)ctx->attributes)->axis);
  const uint32_t size = dvt_dtype_size(y->dtype);
  const char* values = dvt_input_data(ctx, VALUES);
  char* to = dvt_output_data(ctx, 0);
  for (int64_t i = 0; i < dvt_tensor_elements(y); ++i) memcpy(to + (size_t)i * size, values, size);
  for (int64_t line = 0; line < lines.count; ++line) {
    int64_t index = integer_at(dvt_input(ctx, INDICES), line);
    if (index < 0) index += lines.length;
    if (index < 0 || index >= lines.length) continue;
    const int64_t at = first_of(&lines, line, lines.length) + index * lines.step;
    memcpy(to + (size_t)at * size, values + size, size);
  }
  return DVT_OK;
}

/* ---- Table ----------------------------------------------------------------------------------- */

static const DvtAttribute arg_attributes[] = {
    {"axis", offsetof(DvtArgAttributes, axis), 1, 'i'},
    {"keep_dims", offsetof(DvtArgAttributes, keep_dims), 1, 'i'},
    {"select_last", offsetof(DvtArgAttributes, select_last), 1, 'i'}};
static const DvtAttribute top_k_attributes[] = {
    {"axis", offsetof(DvtTopKAttributes, axis), 1, 'i'},
    {"k", offsetof(DvtTopKAttributes, k), 1, 'i'},
    {"k_is_input", offsetof(DvtTopKAttributes, k_is_input), 1, 'i'},
    {"largest", offsetof(DvtTopKAttributes, largest), 1, 'i'}};
static const DvtAttribute one_hot_attributes[] = {
    {"axis", offsetof(DvtOneHotAttributes, axis), 1, 'i'},
    {"depth", offsetof(DvtOneHotAttributes, depth), 1, 'i'},
    {"depth_is_input", offsetof(DvtOneHotAttributes, depth_is_input), 1, 'i'}};

/* Members shared by all rows, and an attribute record's. */
#define DVT_SELECT \
  .abi_version = DVT_KERNEL_ABI_VERSION, .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE
#define DVT_RECORD(type, table)                                                           \
  .attribute_bytes = sizeof(type), .attribute_count = sizeof(table) / sizeof((table)[0]), \
  .attributes = (table)
#define DVT_ARG                                                                             \
  DVT_SELECT, DVT_RECORD(DvtArgAttributes, arg_attributes),                                 \
      .input_min = 1, .input_max = 1, .output_min = 1, .output_max = 1, .check = check_arg, \
      .infer = infer_arg

static const DvtKernel kernels[] = {
    {.name = "ArgMax", DVT_ARG, .run = run_arg_max},
    {.name = "ArgMin", DVT_ARG, .run = run_arg_min},
    {.name = "TopK",
     DVT_SELECT,
     DVT_RECORD(DvtTopKAttributes, top_k_attributes),
     .input_min = 1,
     .input_max = 2,
     .output_min = TOP_OUTPUTS,
     .output_max = TOP_OUTPUTS,
     .run = run_top_k,
     .check = check_top_k,
     .infer = infer_top_k,
     .host_inputs = TOP_K_PARAMETERS},
    {.name = "OneHot",
     DVT_SELECT,
     DVT_RECORD(DvtOneHotAttributes, one_hot_attributes),
     .input_min = 3,
     .input_max = 3,
     .output_min = 1,
     .output_max = 1,
     .run = run_one_hot,
     .check = check_one_hot,
     .infer = infer_one_hot,
     .host_inputs = ONE_HOT_PARAMETERS},
};

DvtKernelTable dvt_kernels_selection(void) {
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
