/* Unique: the distinct items of x, which are its elements or its slices along an axis. */
#include "ops/kernels/keep.h"
#include "ops/kernels/order.h"
#include "ops/kernels/shape.h"

enum { Y = 0, FIRST = 1, INVERSE = 2, COUNTS = 3, WORKSPACE = 4, OUTPUTS = 5 };

/* Item i consists of `outer` runs of `inner` elements: run r begins at (r * items + i) * inner. */
typedef struct Items {
  const void* x;
  DvtDType dtype;
  uint32_t axis; /* DVT_MAX_RANK: x is flat. */
  int64_t count, outer, inner;
} Items;

static DvtCode describe(const DvtContext* ctx, Items* items, char* reason, size_t size) {
  const DvtKeepAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  *items = (Items){.dtype = x->dtype,
                   .axis = DVT_MAX_RANK,
                   .count = dvt_tensor_elements(x),
                   .outer = 1,
                   .inner = 1};
  if (attributes->flat != 0) return DVT_OK;
  const DvtCode code = dvt_normalise_axis(attributes->axis, x->rank, &items->axis, reason, size);
  if (code != DVT_OK) return code;
  items->count = x->dims[items->axis];
  items->outer = items->inner = 0; /* Slices of nothing, if x is empty: they are all equal. */
  if (x->bytes == 0) return DVT_OK;
  items->outer = items->inner = 1;
  for (uint32_t d = 0; d < items->axis; ++d) items->outer *= x->dims[d];
  for (uint32_t d = items->axis + 1; d < x->rank; ++d) items->inner *= x->dims[d];
  return DVT_OK;
}

static int compare(const Items* items, int64_t a, int64_t b) {
  for (int64_t r = 0; r < items->outer; ++r) {
    for (int64_t i = 0; i < items->inner; ++i) {
      const int order =
          dvt_compare_elements(items->x, items->dtype, (r * items->count + a) * items->inner + i,
                               (r * items->count + b) * items->inner + i);
      if (order != 0) return order;
    }
  }
  return 0;
}

static bool before(const void* context, int64_t a, int64_t b) {
  const int order = compare(context, a, b);
  return order < 0 || (order == 0 && a < b);
}

static uint32_t shape_of(const DvtContext* ctx, const Items* items, int64_t kept,
                         int64_t dims[DVT_MAX_RANK]) {
  if (items->axis == DVT_MAX_RANK) {
    dims[0] = kept;
    return 1;
  }
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  memcpy(dims, x->dims, DVT_MAX_RANK * sizeof dims[0]);
  dims[items->axis] = kept;
  return x->rank;
}

DvtCode dvt_unique_infer(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  Items items;
  if (code == DVT_OK) code = describe(ctx, &items, reason, size);
  if (code != DVT_OK) return code;
  if (ctx->output_count != OUTPUTS) {
    return dvt_refuse(reason, size, "expected %d outputs, got %u", OUTPUTS, ctx->output_count);
  }
  int64_t dims[DVT_MAX_RANK];
  const uint32_t rank = shape_of(ctx, &items, items.count, dims);
  code = dvt_infer_shape(&outputs[Y], rank, dims, "output 0", reason, size);
  for (uint32_t i = FIRST; code == DVT_OK && i <= COUNTS; ++i) {
    code = dvt_infer_shape(&outputs[i], 1, &items.count, "outputs", reason, size);
  }
  uint64_t bytes = 0;
  if (__builtin_mul_overflow((uint64_t)items.count, 3 * sizeof(int64_t), &bytes)) {
    return dvt_refuse(reason, size, "input 0 has too many items");
  }
  return code == DVT_OK ? dvt_infer_scratch(&outputs[WORKSPACE], bytes, reason, size) : code;
}

DvtCode dvt_unique_check(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 1, 1, 1, OUTPUTS, reason, size);
  if (code != DVT_OK) return code;
  if (!dvt_has_output(ctx, WORKSPACE)) return dvt_refuse(reason, size, "no workspace");
  code = dvt_check_dtype(dvt_output_tensor(ctx, Y), dvt_input_tensor(ctx, 0)->dtype, "output 0",
                         reason, size);
  for (uint32_t i = FIRST; code == DVT_OK && i <= COUNTS; ++i) {
    if (!dvt_has_output(ctx, i)) continue;
    code = dvt_check_dtype(dvt_output_tensor(ctx, i), DVT_I64, "outputs 1 to 3", reason, size);
  }
  return code == DVT_OK ? dvt_check_inferred(ctx, dvt_unique_infer, 1, reason, size) : code;
}

/* order[] sorted; group[i] becomes the number of item i's group in ascending order, and first[g]
 * the first item of group g. Returns how many groups there are. */
static int64_t group_items(const Items* items, int64_t* order, int64_t* group, int64_t* first) {
  DvtHeap heap = {.indices = order, .count = items->count, .before = before, .context = items};
  for (int64_t i = 0; i < items->count; ++i) order[i] = i;
  dvt_heap_build(&heap);
  int64_t groups = 0;
  int64_t last = -1;
  while (heap.count > 0) {
    const int64_t item = dvt_heap_pop(&heap);
    if (last < 0 || compare(items, last, item) != 0) first[groups++] = item;
    group[item] = groups - 1;
    last = item;
  }
  return groups;
}

/* Renumbers groups by their first items, ascending. `position` is room for one number per group. */
static void order_by_appearance(const Items* items, int64_t* group, int64_t* first,
                                int64_t* position) {
  int64_t next = 0;
  for (int64_t i = 0; i < items->count; ++i) {
    if (first[group[i]] == i) position[group[i]] = next++;
  }
  for (int64_t i = 0; i < items->count; ++i) group[i] = position[group[i]];
  for (int64_t i = items->count; i > 0; --i) first[group[i - 1]] = i - 1;
}

static void copy_items(const DvtContext* ctx, const Items* items, int64_t groups,
                       const int64_t* first) {
  const size_t run = (size_t)items->inner * dvt_dtype_size(items->dtype);
  char* to = dvt_output_data(ctx, Y);
  for (int64_t r = 0; r < items->outer && run > 0; ++r) {
    for (int64_t g = 0; g < groups; ++g, to += run) {
      memcpy(to, (const char*)items->x + (size_t)(r * items->count + first[g]) * run, run);
    }
  }
}

DvtCode dvt_unique_run(void* context) {
  const DvtContext* ctx = context;
  Items items;
  DvtCode code = describe(ctx, &items, NULL, 0);
  if (code != DVT_OK) return code;
  items.x = dvt_input_data(ctx, 0);
  int64_t* order = dvt_output_data(ctx, WORKSPACE);
  /* Without items there may be no workspace. */
  int64_t* group = items.count > 0 ? order + items.count : order;
  int64_t* first = items.count > 0 ? group + items.count : order;
  const int64_t groups = group_items(&items, order, group, first);
  if (((const DvtKeepAttributes*)ctx->attributes)->sorted == 0) {
    order_by_appearance(&items, group, first, order);
  }
  copy_items(ctx, &items, groups, first);
  int64_t dims[DVT_MAX_RANK];
  const uint32_t rank = shape_of(ctx, &items, groups, dims);
  code = dvt_set_shape(dvt_output_shape(ctx, Y), rank, dims);
  if (code == DVT_OK && dvt_has_output(ctx, FIRST)) {
    if (groups > 0) memcpy(dvt_output_data(ctx, FIRST), first, (size_t)groups * sizeof first[0]);
    code = dvt_set_shape(dvt_output_shape(ctx, FIRST), 1, &groups);
  }
  if (dvt_has_output(ctx, INVERSE) && items.count > 0) {
    memcpy(dvt_output_data(ctx, INVERSE), group, (size_t)items.count * sizeof group[0]);
  }
  if (code == DVT_OK && dvt_has_output(ctx, COUNTS)) {
    int64_t* counts = dvt_output_data(ctx, COUNTS);
    for (int64_t g = 0; g < groups; ++g) counts[g] = 0;
    for (int64_t i = 0; i < items.count; ++i) ++counts[group[i]];
    code = dvt_set_shape(dvt_output_shape(ctx, COUNTS), 1, &groups);
  }
  return code;
}
