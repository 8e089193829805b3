/* movement.c: kernels that move elements and never look at them. One kernel serves every dtype.
 * Pad, with its modes, is in pad.c. */
#include "ops/kernels/movement.h"

#include "ops/kernels/common.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/pad.h"
#include "ops/kernels/strided.h"

static int64_t product(const DvtTensor* tensor, uint32_t begin, uint32_t end) {
  int64_t result = 1;
  for (uint32_t d = begin; d < end; ++d) result *= tensor->dims[d];
  return result;
}

/* Attributes, counts and one dtype everywhere: what every kernel here starts from. */
static DvtCode check_uniform(const DvtContext* ctx, uint32_t input_min, uint32_t input_max,
                             uint32_t output_max, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, input_min, input_max, 1, output_max, reason, size);
  if (code != DVT_OK) return code;
  const DvtDType dtype = dvt_output_tensor(ctx, 0)->dtype;
  for (uint32_t i = 0; i < ctx->input_count; ++i) {
    if (!dvt_has_input(ctx, i)) return dvt_refuse(reason, size, "input %u is absent", i);
    code = dvt_check_dtype(dvt_input_tensor(ctx, i), dtype, "inputs", reason, size);
    if (code != DVT_OK) return code;
  }
  for (uint32_t i = 0; i < ctx->output_count; ++i) {
    if (!dvt_has_output(ctx, i)) return dvt_refuse(reason, size, "output %u is absent", i);
    code = dvt_check_dtype(dvt_output_tensor(ctx, i), dtype, "outputs", reason, size);
    if (code != DVT_OK) return code;
  }
  return DVT_OK;
}

static DvtCode check_axis(int64_t axis, uint32_t rank, char* reason, size_t size) {
  if (axis >= 0 && axis < rank) return DVT_OK;
  return dvt_refuse(reason, size, "axis: expected 0 to %d, got %lld", (int)rank - 1,
                    (long long)axis);
}

/* ---- Copy ------------------------------------------------------------------------------------ */

static DvtCode run_copy(void* context) {
  const DvtContext* ctx = context;
  const void* from = dvt_input_data(ctx, 0);
  void* to = dvt_output_data(ctx, 0);
  const size_t bytes = dvt_output_tensor(ctx, 0)->bytes;
  if (bytes > 0 && from != to) memcpy(to, from, bytes);
  return DVT_OK;
}

static DvtCode check_copy(const DvtContext* ctx, char* reason, size_t size) {
  const DvtCode code = check_uniform(ctx, 1, 1, 1, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* from = dvt_input_tensor(ctx, 0);
  const DvtTensor* to = dvt_output_tensor(ctx, 0);
  if (from->bytes == to->bytes) return DVT_OK;
  return dvt_refuse(reason, size, "output 0: expected %llu bytes, got %llu",
                    (unsigned long long)from->bytes, (unsigned long long)to->bytes);
}

/* ---- Concat and Split ------------------------------------------------------------------------ */

/* `whole` is cut along `axis` into parts; `part` has its rank and other dims. Adds its extent. */
static DvtCode check_part(const DvtTensor* whole, const DvtTensor* part, uint32_t axis,
                          int64_t* extent, char* reason, size_t size) {
  bool fits = part->rank == whole->rank;
  for (uint32_t d = 0; fits && d < whole->rank; ++d) {
    fits = d == axis ? part->dims[d] <= whole->dims[d] - *extent : part->dims[d] == whole->dims[d];
  }
  if (!fits) {
    char whole_text[DVT_SHAPE_TEXT];
    char part_text[DVT_SHAPE_TEXT];
    return dvt_refuse(reason, size, "shape %s is not a part of %s along axis %u",
                      dvt_shape_text(part, part_text), dvt_shape_text(whole, whole_text), axis);
  }
  *extent += part->dims[axis];
  return DVT_OK;
}

static DvtCode check_parts(const DvtContext* ctx, bool concat, char* reason, size_t size) {
  DvtCode code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) {
    code = check_uniform(ctx, 1, concat ? UINT16_MAX : 1, concat ? 1 : UINT16_MAX, reason, size);
  }
  if (code != DVT_OK) return code;
  const DvtTensor* whole = concat ? dvt_output_tensor(ctx, 0) : dvt_input_tensor(ctx, 0);
  const int64_t axis = ((const DvtAxisAttributes*)ctx->attributes)->axis;
  code = check_axis(axis, whole->rank, reason, size);
  const uint32_t count = concat ? ctx->input_count : ctx->output_count;
  int64_t extent = 0;
  for (uint32_t i = 0; code == DVT_OK && i < count; ++i) {
    const DvtTensor* part = concat ? dvt_input_tensor(ctx, i) : dvt_output_tensor(ctx, i);
    code = check_part(whole, part, (uint32_t)axis, &extent, reason, size);
  }
  if (code != DVT_OK || extent == whole->dims[axis]) return code;
  return dvt_refuse(reason, size, "axis %lld: the parts have %lld elements, the whole has %lld",
                    (long long)axis, (long long)extent, (long long)whole->dims[axis]);
}
static DvtCode check_concat(const DvtContext* ctx, char* reason, size_t size) {
  return check_parts(ctx, true, reason, size);
}
static DvtCode check_split(const DvtContext* ctx, char* reason, size_t size) {
  return check_parts(ctx, false, reason, size);
}

static DvtCode run_parts(const DvtContext* ctx, bool concat) {
  const DvtCell* whole = concat ? dvt_output(ctx, 0) : dvt_input(ctx, 0);
  const DvtTensor* tensor = whole->tensor;
  if (tensor->bytes == 0) return DVT_OK;
  const uint32_t axis = (uint32_t)((const DvtAxisAttributes*)ctx->attributes)->axis;
  const int64_t outer = product(tensor, 0, axis);
  const size_t whole_row = tensor->bytes / (size_t)outer;
  const uint32_t count = concat ? ctx->input_count : ctx->output_count;
  char* base = whole->data;
  for (uint32_t i = 0; i < count; ++i) {
    const DvtCell* part = concat ? dvt_input(ctx, i) : dvt_output(ctx, i);
    const size_t row = part->tensor->bytes / (size_t)outer;
    if (row == 0) continue;
    char* data = part->data;
    for (int64_t o = 0; o < outer; ++o) {
      char* in_whole = base + (size_t)o * whole_row;
      char* in_part = data + (size_t)o * row;
      memcpy(concat ? in_whole : in_part, concat ? in_part : in_whole, row);
    }
    base += row;
  }
  return DVT_OK;
}
static DvtCode run_concat(void* ctx) {
  return run_parts(ctx, true);
}
static DvtCode run_split(void* ctx) {
  return run_parts(ctx, false);
}

/* ---- Views: Transpose, Slice, Expand, Tile --------------------------------------------------- */

/* Copies a view of input 0 to the output, which is not empty. */
static DvtCode copy_view(const DvtContext* ctx, const DvtView* view) {
  dvt_strided_copy(view, dvt_dtype_size(dvt_output_tensor(ctx, 0)->dtype), dvt_output_data(ctx, 0));
  return DVT_OK;
}

static DvtCode run_transpose(void* context) {
  const DvtContext* ctx = context;
  const DvtTensor* output = dvt_output_tensor(ctx, 0);
  if (output->bytes == 0) return DVT_OK;
  const DvtTransposeAttributes* attributes = ctx->attributes;
  int64_t strides[DVT_MAX_RANK];
  dvt_row_major_strides(dvt_input_tensor(ctx, 0), strides);
  DvtView view = {.data = dvt_input_data(ctx, 0)};
  for (uint32_t d = 0; d < output->rank; ++d) {
    dvt_view_add_axis(&view, output->dims[d], strides[attributes->perm[d]]);
  }
  return copy_view(ctx, &view);
}

static DvtCode check_transpose(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) code = check_uniform(ctx, 1, 1, 1, reason, size);
  if (code != DVT_OK) return code;
  const DvtTransposeAttributes* attributes = ctx->attributes;
  const DvtTensor* input = dvt_input_tensor(ctx, 0);
  int64_t dims[DVT_MAX_RANK] = {0};
  uint32_t seen = 0;
  for (uint32_t d = 0; d < input->rank; ++d) {
    const int64_t from = attributes->perm[d];
    if (from < 0 || from >= input->rank || (seen >> from & 1u) != 0) {
      return dvt_refuse(reason, size, "perm[%u]: expected a permutation of %u axes, got %lld", d,
                        input->rank, (long long)from);
    }
    seen |= 1u << from;
    dims[d] = input->dims[from];
  }
  return dvt_check_shape(dvt_output_tensor(ctx, 0), input->rank, dims, "output 0", reason, size);
}

static DvtCode run_slice(void* context) {
  const DvtContext* ctx = context;
  const DvtTensor* output = dvt_output_tensor(ctx, 0);
  if (output->bytes == 0) return DVT_OK;
  const DvtSliceAttributes* attributes = ctx->attributes;
  int64_t strides[DVT_MAX_RANK];
  dvt_row_major_strides(dvt_input_tensor(ctx, 0), strides);
  DvtView view = {0};
  int64_t first = 0;
  for (uint32_t d = 0; d < output->rank; ++d) {
    first += attributes->starts[d] * strides[d];
    /* With more than one element, |step| is below the extent: see check_slice. */
    const int64_t step = output->dims[d] > 1 ? attributes->steps[d] : 1;
    dvt_view_add_axis(&view, output->dims[d], step * strides[d]);
  }
  const int64_t bytes = first * (int64_t)dvt_dtype_size(output->dtype);
  view.data = (const char*)dvt_input_data(ctx, 0) + bytes;
  return copy_view(ctx, &view);
}

static DvtCode check_slice(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) code = check_uniform(ctx, 1, 1, 1, reason, size);
  if (code != DVT_OK) return code;
  const DvtSliceAttributes* attributes = ctx->attributes;
  const DvtTensor* input = dvt_input_tensor(ctx, 0);
  const DvtTensor* output = dvt_output_tensor(ctx, 0);
  if (input->rank != output->rank) {
    return dvt_refuse(reason, size, "output 0: expected rank %u, got %u", input->rank,
                      output->rank);
  }
  if (output->bytes == 0) return DVT_OK;
  for (uint32_t d = 0; d < input->rank; ++d) {
    const int64_t start = attributes->starts[d];
    const int64_t count = output->dims[d];
    const int64_t step = attributes->steps[d];
    int64_t last = 0;
    const bool overflow = __builtin_mul_overflow(count - 1, step, &last) ||
                          __builtin_add_overflow(last, start, &last);
    const bool inside = start >= 0 && start < input->dims[d] && last >= 0 && last < input->dims[d];
    if (overflow || !inside || step == 0) {
      return dvt_refuse(
          reason, size, "axis %u: start %lld, step %lld, count %lld leave the extent %lld", d,
          (long long)start, (long long)step, (long long)count, (long long)input->dims[d]);
    }
  }
  return DVT_OK;
}

/* Extent and stride of the input along the output's axis d; 1 and 0 where it has none. */
static void aligned_axis(const DvtTensor* input, const int64_t* strides, const DvtTensor* output,
                         uint32_t d, int64_t* extent, int64_t* stride) {
  const uint32_t missing = (uint32_t)output->rank - input->rank;
  *extent = d < missing ? 1 : input->dims[d - missing];
  *stride = d < missing ? 0 : strides[d - missing];
}

/* Expand is Tile whose repeated axes have extent 1. */
static DvtCode run_tile(void* context) {
  const DvtContext* ctx = context;
  const DvtTensor* input = dvt_input_tensor(ctx, 0);
  const DvtTensor* output = dvt_output_tensor(ctx, 0);
  if (output->bytes == 0) return DVT_OK;
  int64_t strides[DVT_MAX_RANK];
  dvt_row_major_strides(input, strides);
  DvtView view = {.data = dvt_input_data(ctx, 0)};
  for (uint32_t d = 0; d < output->rank; ++d) {
    int64_t extent = 0;
    int64_t stride = 0;
    aligned_axis(input, strides, output, d, &extent, &stride);
    dvt_view_add_axis(&view, output->dims[d] / extent, 0);
    dvt_view_add_axis(&view, extent, stride);
  }
  return copy_view(ctx, &view);
}

static DvtCode check_tile_or_expand(const DvtContext* ctx, bool expand, char* reason, size_t size) {
  const DvtCode code = check_uniform(ctx, 1, 1, 1, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* input = dvt_input_tensor(ctx, 0);
  const DvtTensor* output = dvt_output_tensor(ctx, 0);
  bool fits = input->rank <= output->rank;
  const int64_t no_strides[DVT_MAX_RANK] = {0};
  for (uint32_t d = 0; fits && d < output->rank; ++d) {
    int64_t extent = 0;
    int64_t stride = 0;
    aligned_axis(input, no_strides, output, d, &extent, &stride);
    const int64_t target = output->dims[d];
    fits = extent == target || (expand ? extent == 1 : extent > 0 && target % extent == 0);
  }
  if (fits) return DVT_OK;
  char from[DVT_SHAPE_TEXT];
  char to[DVT_SHAPE_TEXT];
  return dvt_refuse(reason, size, "shape %s cannot be %s to %s", dvt_shape_text(input, from),
                    expand ? "expanded" : "tiled", dvt_shape_text(output, to));
}
static DvtCode check_expand(const DvtContext* ctx, char* reason, size_t size) {
  return check_tile_or_expand(ctx, true, reason, size);
}
static DvtCode check_tile(const DvtContext* ctx, char* reason, size_t size) {
  return check_tile_or_expand(ctx, false, reason, size);
}

/* ---- Gather ---------------------------------------------------------------------------------- */

static DvtCode run_gather(void* context) {
  const DvtContext* ctx = context;
  const DvtTensor* input = dvt_input_tensor(ctx, 0);
  const DvtTensor* indices = dvt_input_tensor(ctx, 1);
  const uint32_t axis = (uint32_t)((const DvtAxisAttributes*)ctx->attributes)->axis;
  const int64_t extent = input->dims[axis];
  const int64_t count = dvt_tensor_elements(indices);
  char* to = dvt_output_data(ctx, 0);
  const bool empty = dvt_output_tensor(ctx, 0)->bytes == 0;
  const int64_t outer = empty ? 1 : product(input, 0, axis);
  const size_t row =
      empty ? 0 : (size_t)product(input, axis + 1, input->rank) * dvt_dtype_size(input->dtype);
  const int32_t* narrow = dvt_input_data(ctx, 1);
  const int64_t* wide = dvt_input_data(ctx, 1);
  for (int64_t o = 0; o < outer; ++o) {
    const char* from = (const char*)dvt_input_data(ctx, 0) + (size_t)(o * extent) * row;
    for (int64_t i = 0; i < count; ++i) {
      int64_t index = indices->dtype == DVT_I32 ? narrow[i] : wide[i];
      if (index < 0) index += extent;
      if (index < 0 || index >= extent) return DVT_INVALID_ARGUMENT;
      if (row == 0) continue;
      memcpy(to, from + (size_t)index * row, row);
      to += row;
    }
  }
  return DVT_OK;
}

static DvtCode check_gather(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) code = dvt_check_counts(ctx, 2, 2, 1, 1, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* input = dvt_input_tensor(ctx, 0);
  const DvtTensor* indices = dvt_input_tensor(ctx, 1);
  const DvtTensor* output = dvt_output_tensor(ctx, 0);
  const int64_t axis = ((const DvtAxisAttributes*)ctx->attributes)->axis;
  code = dvt_check_dtype(output, input->dtype, "output 0", reason, size);
  if (code == DVT_OK) code = check_axis(axis, input->rank, reason, size);
  if (code != DVT_OK) return code;
  if (indices->dtype != DVT_I32 && indices->dtype != DVT_I64) {
    return dvt_refuse(reason, size, "input 1: expected dtype i32 or i64, got %s",
                      dvt_dtype_text(indices->dtype));
  }
  const uint32_t rank = (uint32_t)input->rank - 1 + indices->rank;
  if (rank > DVT_MAX_RANK) {
    return dvt_refuse(reason, size, "ranks %u and %u give more than %d axes", input->rank,
                      indices->rank, DVT_MAX_RANK);
  }
  int64_t dims[DVT_MAX_RANK] = {0};
  uint32_t d = 0;
  for (uint32_t i = 0; i < (uint32_t)axis; ++i) dims[d++] = input->dims[i];
  for (uint32_t i = 0; i < indices->rank; ++i) dims[d++] = indices->dims[i];
  for (uint32_t i = (uint32_t)axis + 1; i < input->rank; ++i) dims[d++] = input->dims[i];
  return dvt_check_shape(output, rank, dims, "output 0", reason, size);
}

/* ---- Fill and Shape -------------------------------------------------------------------------- */

static DvtCode run_fill(void* context) {
  const DvtContext* ctx = context;
  const DvtFillAttributes* attributes = ctx->attributes;
  const DvtTensor* output = dvt_output_tensor(ctx, 0);
  const uint32_t size = dvt_dtype_size(output->dtype);
  char element[sizeof(uint64_t)];
  dvt_element_from_bits(attributes->bits, size, element);
  dvt_fill(dvt_output_data(ctx, 0), element, size, (uint64_t)dvt_tensor_elements(output));
  return DVT_OK;
}

static DvtCode check_fill(const DvtContext* ctx, char* reason, size_t size) {
  const DvtCode code = dvt_check_attributes(ctx, reason, size);
  return code == DVT_OK ? dvt_check_counts(ctx, 0, 0, 1, 1, reason, size) : code;
}

static DvtCode run_shape(void* context) {
  const DvtContext* ctx = context;
  const DvtShapeAttributes* attributes = ctx->attributes;
  int64_t* out = dvt_output_data(ctx, 0);
  const int64_t* dims = dvt_input_tensor(ctx, 0)->dims;
  for (int64_t i = attributes->start; i < attributes->end; ++i) *out++ = dims[i];
  return DVT_OK;
}

static DvtCode check_shape_kernel(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) code = dvt_check_counts(ctx, 1, 1, 1, 1, reason, size);
  if (code != DVT_OK) return code;
  const DvtShapeAttributes* attributes = ctx->attributes;
  const DvtTensor* input = dvt_input_tensor(ctx, 0);
  if (attributes->start < 0 || attributes->start > attributes->end ||
      attributes->end > input->rank) {
    return dvt_refuse(reason, size,
                      "start and end: expected 0 <= start <= end <= %u, got %lld, "
                      "%lld",
                      input->rank, (long long)attributes->start, (long long)attributes->end);
  }
  const int64_t dims[] = {attributes->end - attributes->start};
  code = dvt_check_dtype(dvt_output_tensor(ctx, 0), DVT_I64, "output 0", reason, size);
  return code == DVT_OK
             ? dvt_check_shape(dvt_output_tensor(ctx, 0), 1, dims, "output 0", reason, size)
             : code;
}

/* ---- Table ----------------------------------------------------------------------------------- */

static const DvtAttribute axis_attributes[] = {{"axis", 0, 1, 'i'}};
static const DvtAttribute transpose_attributes[] = {{"perm", 0, DVT_MAX_RANK, 'i'}};
static const DvtAttribute slice_attributes[] = {
    {"starts", offsetof(DvtSliceAttributes, starts), DVT_MAX_RANK, 'i'},
    {"steps", offsetof(DvtSliceAttributes, steps), DVT_MAX_RANK, 'i'}};
static const DvtAttribute pad_attributes[] = {
    {"mode", offsetof(DvtPadAttributes, mode), 1, 'i'},
    {"bits", offsetof(DvtPadAttributes, bits), 1, 'i'},
    {"before", offsetof(DvtPadAttributes, before), DVT_MAX_RANK, 'i'}};
static const DvtAttribute fill_attributes[] = {{"bits", 0, 1, 'i'}};
static const DvtAttribute shape_attributes[] = {
    {"start", offsetof(DvtShapeAttributes, start), 1, 'i'},
    {"end", offsetof(DvtShapeAttributes, end), 1, 'i'}};

/* Members shared by all rows, and an attribute record's. */
#define DVT_MOVE .abi_version = DVT_KERNEL_ABI_VERSION, .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE
#define DVT_RECORD(type, table)                                                           \
  .attribute_bytes = sizeof(type), .attribute_count = sizeof(table) / sizeof((table)[0]), \
  .attributes = (table)

static const DvtKernel kernels[] = {
    {.name = "Copy",
     .abi_version = DVT_KERNEL_ABI_VERSION,
     .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE | DVT_KERNEL_IN_PLACE,
     .input_min = 1,
     .input_max = 1,
     .output_min = 1,
     .output_max = 1,
     .run = run_copy,
     .check = check_copy},
    {.name = "Concat",
     DVT_MOVE,
     DVT_RECORD(DvtAxisAttributes, axis_attributes),
     .input_min = 1,
     .input_max = UINT16_MAX,
     .output_min = 1,
     .output_max = 1,
     .run = run_concat,
     .check = check_concat},
    {.name = "Split",
     DVT_MOVE,
     DVT_RECORD(DvtAxisAttributes, axis_attributes),
     .input_min = 1,
     .input_max = 1,
     .output_min = 1,
     .output_max = UINT16_MAX,
     .run = run_split,
     .check = check_split},
    {.name = "Transpose",
     DVT_MOVE,
     DVT_RECORD(DvtTransposeAttributes, transpose_attributes),
     .input_min = 1,
     .input_max = 1,
     .output_min = 1,
     .output_max = 1,
     .run = run_transpose,
     .check = check_transpose},
    {.name = "Slice",
     DVT_MOVE,
     DVT_RECORD(DvtSliceAttributes, slice_attributes),
     .input_min = 1,
     .input_max = 1,
     .output_min = 1,
     .output_max = 1,
     .run = run_slice,
     .check = check_slice},
    {.name = "Pad",
     DVT_MOVE,
     DVT_RECORD(DvtPadAttributes, pad_attributes),
     .input_min = 1,
     .input_max = 2,
     .output_min = 1,
     .output_max = 1,
     .run = dvt_pad_run,
     .check = dvt_pad_check},
    {.name = "Expand",
     DVT_MOVE,
     .input_min = 1,
     .input_max = 1,
     .output_min = 1,
     .output_max = 1,
     .run = run_tile,
     .check = check_expand},
    {.name = "Tile",
     DVT_MOVE,
     .input_min = 1,
     .input_max = 1,
     .output_min = 1,
     .output_max = 1,
     .run = run_tile,
     .check = check_tile},
    {.name = "Gather",
     DVT_MOVE,
     DVT_RECORD(DvtAxisAttributes, axis_attributes),
     .input_min = 2,
     .input_max = 2,
     .output_min = 1,
     .output_max = 1,
     .run = run_gather,
     .check = check_gather},
    {.name = "Fill",
     DVT_MOVE,
     DVT_RECORD(DvtFillAttributes, fill_attributes),
     .output_min = 1,
     .output_max = 1,
     .run = run_fill,
     .check = check_fill},
    {.name = "Shape",
     DVT_MOVE,
     DVT_RECORD(DvtShapeAttributes, shape_attributes),
     .input_min = 1,
     .input_max = 1,
     .output_min = 1,
     .output_max = 1,
     .run = run_shape,
     .check = check_shape_kernel},
};

DvtKernelTable dvt_kernels_movement(void) {
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
