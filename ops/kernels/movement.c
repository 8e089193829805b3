/* movement.c: kernels that move elements and never look at them. One kernel serves every dtype.
 * Slice and Pad are in files of their own. */
#include "ops/kernels/movement.h"

#include "ops/kernels/common.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/pad.h"
#include "ops/kernels/slice.h"
#include "ops/kernels/strided.h"

static int64_t product(const DvtTensor* tensor, uint32_t begin, uint32_t end) {
  int64_t result = 1;
  for (uint32_t d = begin; d < end; ++d) result *= tensor->dims[d];
  return result;
}

/* Counts and one dtype everywhere: what most kernels here start from. */
static DvtCode check_uniform(const DvtContext* ctx, uint32_t input_min, uint32_t input_max,
                             uint32_t output_max, char* reason, size_t size) {
  DvtCode code = dvt_check_any_counts(ctx, input_min, input_max, 1, output_max, reason, size);
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

static DvtCode infer_concat(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_any_inputs(ctx, ctx->input_count > 0 ? ctx->input_count : 1, UINT16_MAX,
                                      reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* first = dvt_input_tensor(ctx, 0);
  const DvtAxisAttributes* attributes = ctx->attributes;
  uint32_t axis = 0;
  code = dvt_normalise_axis(attributes->axis, first->rank, &axis, reason, size);
  if (code != DVT_OK) return code;
  int64_t dims[DVT_MAX_RANK];
  memcpy(dims, first->dims, sizeof dims);
  for (uint32_t i = 1; i < ctx->input_count; ++i) {
    const DvtTensor* part = dvt_input_tensor(ctx, i);
    bool fits = part->rank == first->rank;
    for (uint32_t d = 0; fits && d < first->rank; ++d) {
      fits = d == axis ? !__builtin_add_overflow(dims[d], part->dims[d], &dims[d])
                       : part->dims[d] == dims[d];
    }
    if (fits) continue;
    char first_text[DVT_SHAPE_TEXT];
    char part_text[DVT_SHAPE_TEXT];
    return dvt_refuse(reason, size, "input %u: shape %s does not fit %s along axis %u", i,
                      dvt_shape_text(part, part_text), dvt_shape_text(first, first_text), axis);
  }
  return dvt_infer_shape(&outputs[0], first->rank, dims, "output 0", reason, size);
}

static DvtCode check_concat(const DvtContext* ctx, char* reason, size_t size) {
  const DvtCode code = check_uniform(ctx, 1, UINT16_MAX, 1, reason, size);
  return code == DVT_OK ? dvt_check_inferred(ctx, infer_concat, 0, reason, size) : code;
}

enum { SPLIT_PARAMETERS = 1u << 1 };

/* The extents of the outputs along the axis. */
typedef struct Parts {
  uint32_t axis;
  uint32_t count;
  const void* sizes; /* Stated ones, i32 or i64; NULL: equal parts. */
  bool narrow;       /* They are i32. */
  int64_t equal;
} Parts;

static int64_t part_size(const Parts* parts, uint32_t index, int64_t whole) {
  if (parts->sizes != NULL) {
    return parts->narrow ? ((const int32_t*)parts->sizes)[index]
                         : ((const int64_t*)parts->sizes)[index];
  }
  const int64_t left = whole - parts->equal * (int64_t)index;
  return left < parts->equal ? left : parts->equal;
}

/* Sizes that are stated, by record or input 1. */
static DvtCode stated_sizes(const DvtContext* ctx, Parts* parts, char* reason, size_t size) {
  const DvtSplitAttributes* attributes = ctx->attributes;
  int64_t count = attributes->count;
  parts->sizes = attributes->sizes;
  if (count == DVT_LIST_INPUT) {
    if (!dvt_has_input(ctx, 1) || !dvt_has_data(ctx, 1)) {
      return dvt_refuse(reason, size, "sizes: the values are not known");
    }
    const DvtTensor* sizes = dvt_input_tensor(ctx, 1);
    if ((sizes->dtype != DVT_I64 && sizes->dtype != DVT_I32) || sizes->rank > 1) {
      return dvt_refuse(reason, size, "sizes: expected one axis of i32 or i64");
    }
    parts->sizes = dvt_input_data(ctx, 1);
    parts->narrow = sizes->dtype == DVT_I32;
    count = dvt_tensor_elements(sizes);
  } else if (count < 0 || count > DVT_SPLIT_MAX) {
    return dvt_refuse(reason, size, "sizes: unknown count %lld", (long long)count);
  }
  if (count == parts->count) return DVT_OK;
  return dvt_refuse(reason, size, "sizes: expected %u, got %lld", parts->count, (long long)count);
}

static DvtCode describe_parts(const DvtContext* ctx, Parts* parts, char* reason, size_t size) {
  const DvtSplitAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  *parts = (Parts){.count = ctx->output_count};
  DvtCode code = dvt_normalise_axis(attributes->axis, x->rank, &parts->axis, reason, size);
  if (code != DVT_OK) return code;
  if (parts->count == 0) return dvt_refuse(reason, size, "there is no output");
  const int64_t extent = x->dims[parts->axis];
  if (attributes->count != DVT_SPLIT_EQUAL && attributes->count != DVT_SPLIT_RAGGED) {
    code = stated_sizes(ctx, parts, reason, size);
    int64_t left = extent;
    for (uint32_t i = 0; code == DVT_OK && i < parts->count; ++i) {
      const int64_t part = part_size(parts, i, extent);
      if (part < 0 || part > left) break;
      left -= part;
      if (i + 1 == parts->count && left == 0) return DVT_OK;
    }
    if (code != DVT_OK) return code;
    return dvt_refuse(reason, size, "sizes do not add up to the extent %lld of axis %u",
                      (long long)extent, parts->axis);
  }
  parts->equal = extent / parts->count + (extent % parts->count != 0 ? 1 : 0);
  const int64_t last = extent - parts->equal * (parts->count - 1);
  if (last >= 0 && (last == parts->equal || attributes->count == DVT_SPLIT_RAGGED)) return DVT_OK;
  return dvt_refuse(reason, size, "axis %u: extent %lld does not divide into %u parts", parts->axis,
                    (long long)extent, parts->count);
}

static DvtCode infer_split(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_any_inputs(ctx, 1, 2, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  if (((const DvtSplitAttributes*)ctx->attributes)->count == DVT_SPLIT_ANY) {
    return dvt_refuse(reason, size, "sizes are not stated");
  }
  Parts parts;
  code = describe_parts(ctx, &parts, reason, size);
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  int64_t dims[DVT_MAX_RANK];
  memcpy(dims, x->dims, sizeof dims);
  for (uint32_t i = 0; code == DVT_OK && i < parts.count; ++i) {
    dims[parts.axis] = part_size(&parts, i, x->dims[parts.axis]);
    code = dvt_infer_shape(&outputs[i], x->rank, dims, "outputs", reason, size);
  }
  return code;
}

/* That the outputs are parts of x, and the right ones when sizes are known. */
static DvtCode check_split(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) code = dvt_check_any_counts(ctx, 1, 2, 1, UINT16_MAX, reason, size);
  if (code != DVT_OK) return code;
  const DvtSplitAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  const bool known =
      attributes->count != DVT_SPLIT_ANY && !dvt_lacks_parameters(ctx, SPLIT_PARAMETERS);
  Parts parts = {0};
  code = known ? describe_parts(ctx, &parts, reason, size)
               : dvt_normalise_axis(attributes->axis, x->rank, &parts.axis, reason, size);
  int64_t dims[DVT_MAX_RANK];
  memcpy(dims, x->dims, sizeof dims);
  int64_t left = code == DVT_OK ? x->dims[parts.axis] : 0;
  for (uint32_t i = 0; code == DVT_OK && i < ctx->output_count; ++i) {
    if (!dvt_has_output(ctx, i)) return dvt_refuse(reason, size, "output %u is absent", i);
    const DvtTensor* part = dvt_output_tensor(ctx, i);
    dims[parts.axis] = known ? part_size(&parts, i, x->dims[parts.axis]) : part->dims[parts.axis];
    code = dvt_check_dtype(part, x->dtype, "outputs", reason, size);
    if (code == DVT_OK) code = dvt_check_shape(part, x->rank, dims, "outputs", reason, size);
    if (code != DVT_OK) return code;
    if (dims[parts.axis] > left) {
      left = -1;
      break;
    }
    left -= dims[parts.axis];
  }
  if (code != DVT_OK || left == 0) return code;
  return dvt_refuse(reason, size, "the outputs do not add up to the extent %lld of axis %u",
                    (long long)x->dims[parts.axis], parts.axis);
}

/* `whole` is all parts of its size one behind the other along `axis`. */
static DvtCode run_parts(const DvtContext* ctx, bool concat, int64_t stated_axis) {
  const DvtCell* whole = concat ? dvt_output(ctx, 0) : dvt_input(ctx, 0);
  const DvtTensor* tensor = whole->tensor;
  if (tensor->bytes == 0) return DVT_OK;
  const uint32_t axis =
      (uint32_t)(stated_axis < 0 ? stated_axis + (int64_t)tensor->rank : stated_axis);
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
static DvtCode run_concat(void* context) {
  const DvtContext* ctx = context;
  return run_parts(ctx, true, ((const DvtAxisAttributes*)ctx->attributes)->axis);
}
static DvtCode run_split(void* context) {
  const DvtContext* ctx = context;
  if (dvt_has_parameters(ctx, SPLIT_PARAMETERS)) {
    const DvtCode code = check_split(ctx, NULL, 0);
    if (code != DVT_OK) return code;
  }
  return run_parts(ctx, false, ((const DvtSplitAttributes*)ctx->attributes)->axis);
}

/* ---- Views: Transpose, Expand, Tile ---------------------------------------------------------- */

/* Copies a view of input 0 to the output, which is not empty. */
static DvtCode copy_view(const DvtContext* ctx, const DvtView* view) {
  dvt_strided_copy(view, dvt_dtype_size(dvt_output_tensor(ctx, 0)->dtype), dvt_output_data(ctx, 0));
  return DVT_OK;
}

static DvtCode infer_transpose(const DvtContext* ctx, DvtTensor* outputs, char* reason,
                               size_t size) {
  DvtCode code = dvt_check_any_inputs(ctx, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
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
  return dvt_infer_shape(&outputs[0], input->rank, dims, "output 0", reason, size);
}

static DvtCode check_transpose(const DvtContext* ctx, char* reason, size_t size) {
  const DvtCode code = check_uniform(ctx, 1, 1, 1, reason, size);
  return code == DVT_OK ? dvt_check_inferred(ctx, infer_transpose, 0, reason, size) : code;
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

enum { VIEW_PARAMETERS = 1u << 1 }; /* Expand, Tile. */

static DvtCode infer_expand(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_any_inputs(ctx, 1, 2, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtExpandAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  int64_t dims[DVT_MAX_RANK] = {0};
  int32_t count = 0;
  code = dvt_read_list(ctx, &attributes->shape, 1, "shape", dims, &count, reason, size);
  if (code != DVT_OK) return code;
  if (count < 0) return dvt_refuse(reason, size, "shape is missing");
  uint32_t rank = (uint32_t)count;
  if (dvt_broadcast_dims(&rank, dims, x->rank, x->dims)) {
    return dvt_infer_shape(&outputs[0], rank, dims, "output 0", reason, size);
  }
  char from[DVT_SHAPE_TEXT];
  char to[DVT_SHAPE_TEXT];
  return dvt_refuse(reason, size, "shape %s does not broadcast to %s", dvt_shape_text(x, from),
                    dvt_dims_text(rank, dims, to));
}

static DvtCode infer_tile(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_any_inputs(ctx, 1, 2, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtTileAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  int64_t dims[DVT_MAX_RANK] = {0};
  int32_t count = 0;
  code = dvt_read_list(ctx, &attributes->repeats, 1, "repeats", dims, &count, reason, size);
  if (code != DVT_OK) return code;
  if (count != x->rank) {
    return dvt_refuse(reason, size, "repeats: expected %u values, got %d", x->rank, count);
  }
  for (uint32_t d = 0; d < x->rank; ++d) {
    if (dims[d] >= 0 && !__builtin_mul_overflow(dims[d], x->dims[d], &dims[d])) continue;
    return dvt_refuse(reason, size, "repeats: value %u is out of range", d);
  }
  return dvt_infer_shape(&outputs[0], x->rank, dims, "output 0", reason, size);
}

static DvtCode check_view(const DvtContext* ctx, DvtKernelInferFn infer, char* reason,
                          size_t size) {
  DvtCode code = dvt_check_any_counts(ctx, 1, 2, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) {
    code = dvt_check_dtype(dvt_output_tensor(ctx, 0), dvt_input_tensor(ctx, 0)->dtype, "output 0",
                           reason, size);
  }
  if (code != DVT_OK || dvt_lacks_parameters(ctx, VIEW_PARAMETERS)) return code;
  return dvt_check_inferred(ctx, infer, 0, reason, size);
}
static DvtCode check_expand(const DvtContext* ctx, char* reason, size_t size) {
  return check_view(ctx, infer_expand, reason, size);
}
static DvtCode check_tile(const DvtContext* ctx, char* reason, size_t size) {
  return check_view(ctx, infer_tile, reason, size);
}

/* Expand is Tile whose repeated axes have extent 1. */
static DvtCode run_repeat(const DvtContext* ctx, DvtKernelCheckFn check) {
  if (dvt_has_parameters(ctx, VIEW_PARAMETERS)) {
    const DvtCode code = check(ctx, NULL, 0);
    if (code != DVT_OK) return code;
  }
  const DvtTensor* input = dvt_input_tensor(ctx, 0);
  const DvtTensor* output = dvt_output_tensor(ctx, 0);
  if (output->bytes == 0) return DVT_OK;
  int64_t strides[DVT_MAX_RANK];
  dvt_row_major_strides(input, strides);
  DvtView view = {.data = dvt_input_data(ctx, 0)};
  const uint32_t missing = (uint32_t)output->rank - input->rank; /* Axes that only y has. */
  for (uint32_t d = 0; d < output->rank; ++d) {
    const int64_t extent = d < missing ? 1 : input->dims[d - missing];
    dvt_view_add_axis(&view, output->dims[d] / extent, 0);
    dvt_view_add_axis(&view, extent, d < missing ? 0 : strides[d - missing]);
  }
  return copy_view(ctx, &view);
}
static DvtCode run_expand(void* ctx) {
  return run_repeat(ctx, check_expand);
}
static DvtCode run_tile(void* ctx) {
  return run_repeat(ctx, check_tile);
}

/* ---- Table ----------------------------------------------------------------------------------- */

static const DvtAttribute axis_attributes[] = {{"axis", 0, 1, 'i'}};
static const DvtAttribute split_attributes[] = {
    {"axis", offsetof(DvtSplitAttributes, axis), 1, 'i'},
    {"count", offsetof(DvtSplitAttributes, count), 1, 'i'},
    {"sizes", offsetof(DvtSplitAttributes, sizes), DVT_SPLIT_MAX, 'i'}};
static const DvtAttribute transpose_attributes[] = {{"perm", 0, DVT_MAX_RANK, 'i'}};
static const DvtAttribute slice_attributes[] = {
    {"starts_count", offsetof(DvtSliceAttributes, starts.count), 1, 'i'},
    {"starts", offsetof(DvtSliceAttributes, starts.values), DVT_MAX_RANK, 'i'},
    {"ends_count", offsetof(DvtSliceAttributes, ends.count), 1, 'i'},
    {"ends", offsetof(DvtSliceAttributes, ends.values), DVT_MAX_RANK, 'i'},
    {"axes_count", offsetof(DvtSliceAttributes, axes.count), 1, 'i'},
    {"axes", offsetof(DvtSliceAttributes, axes.values), DVT_MAX_RANK, 'i'},
    {"steps_count", offsetof(DvtSliceAttributes, steps.count), 1, 'i'},
    {"steps", offsetof(DvtSliceAttributes, steps.values), DVT_MAX_RANK, 'i'}};
static const DvtAttribute pad_attributes[] = {
    {"mode", offsetof(DvtPadAttributes, mode), 1, 'i'},
    {"bits", offsetof(DvtPadAttributes, bits), 1, 'i'},
    {"rank", offsetof(DvtPadAttributes, rank), 1, 'i'},
    {"before", offsetof(DvtPadAttributes, before), DVT_MAX_RANK, 'i'},
    {"after", offsetof(DvtPadAttributes, after), DVT_MAX_RANK, 'i'}};
static const DvtAttribute expand_attributes[] = {
    {"shape_count", offsetof(DvtExpandAttributes, shape.count), 1, 'i'},
    {"shape", offsetof(DvtExpandAttributes, shape.values), DVT_MAX_RANK, 'i'}};
static const DvtAttribute tile_attributes[] = {
    {"repeats_count", offsetof(DvtTileAttributes, repeats.count), 1, 'i'},
    {"repeats", offsetof(DvtTileAttributes, repeats.values), DVT_MAX_RANK, 'i'}};

/* Members shared by all rows but Copy's, and an attribute record's. */
#define DVT_MOVE(more)                                                                          \
  .abi_version = DVT_KERNEL_ABI_VERSION, .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE | (more), \
  .input_min = 1, .output_min = 1
#define DVT_RECORD(type, table)                                                           \
  .attribute_bytes = sizeof(type), .attribute_count = sizeof(table) / sizeof((table)[0]), \
  .attributes = (table)

static const DvtKernel kernels[] = {
    {.name = "Copy",
     .abi_version = DVT_KERNEL_ABI_VERSION,
     .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE | DVT_KERNEL_IN_PLACE | DVT_KERNEL_STRINGS,
     .input_min = 1,
     .input_max = 1,
     .output_min = 1,
     .output_max = 1,
     .run = run_copy,
     .check = check_copy,
     .infer = dvt_infer_same},
    {.name = "Concat",
     DVT_MOVE(DVT_KERNEL_STRINGS),
     DVT_RECORD(DvtAxisAttributes, axis_attributes),
     .input_max = UINT16_MAX,
     .output_max = 1,
     .run = run_concat,
     .check = check_concat,
     .infer = infer_concat},
    {.name = "Split",
     DVT_MOVE(DVT_KERNEL_STRINGS),
     DVT_RECORD(DvtSplitAttributes, split_attributes),
     .input_max = 2,
     .output_max = UINT16_MAX,
     .run = run_split,
     .check = check_split,
     .infer = infer_split,
     .host_inputs = SPLIT_PARAMETERS},
    {.name = "Transpose",
     DVT_MOVE(DVT_KERNEL_STRINGS),
     DVT_RECORD(DvtTransposeAttributes, transpose_attributes),
     .input_max = 1,
     .output_max = 1,
     .run = run_transpose,
     .check = check_transpose,
     .infer = infer_transpose},
    {.name = "Slice",
     DVT_MOVE(DVT_KERNEL_STRINGS),
     DVT_RECORD(DvtSliceAttributes, slice_attributes),
     .input_max = 5,
     .output_max = 1,
     .run = dvt_slice_run,
     .check = dvt_slice_check,
     .infer = dvt_slice_infer,
     .host_inputs = DVT_SLICE_PARAMETERS},
    {.name = "Pad",
     DVT_MOVE(0),
     DVT_RECORD(DvtPadAttributes, pad_attributes),
     .input_max = 4,
     .output_max = 1,
     .run = dvt_pad_run,
     .check = dvt_pad_check,
     .infer = dvt_pad_infer,
     .host_inputs = DVT_PAD_PARAMETERS},
    {.name = "Expand",
     DVT_MOVE(DVT_KERNEL_STRINGS),
     DVT_RECORD(DvtExpandAttributes, expand_attributes),
     .input_max = 2,
     .output_max = 1,
     .run = run_expand,
     .check = check_expand,
     .infer = infer_expand,
     .host_inputs = VIEW_PARAMETERS},
    {.name = "Tile",
     DVT_MOVE(DVT_KERNEL_STRINGS),
     DVT_RECORD(DvtTileAttributes, tile_attributes),
     .input_max = 2,
     .output_max = 1,
     .run = run_tile,
     .check = check_tile,
     .infer = infer_tile,
     .host_inputs = VIEW_PARAMETERS},
};

DvtKernelTable dvt_kernels_movement(void) {
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
