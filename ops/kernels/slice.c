#include "ops/kernels/slice.h"

#include "ops/kernels/movement.h"
#include "ops/kernels/strided.h"

static int64_t clamp(int64_t value, int64_t low, int64_t high) {
  return value < low ? low : value > high ? high : value;
}

void dvt_slice_axis(int64_t extent, int64_t start, int64_t end, int64_t step, int64_t* first,
                    int64_t* count) {
  const bool forward = step > 0;
  const int64_t low = forward ? 0 : -1;
  const int64_t high = forward ? extent : extent - 1;
  const int64_t from = clamp(start < 0 ? start + extent : start, high < 0 ? high : 0, high);
  const int64_t to = clamp(end < 0 ? end + extent : end, low, high);
  const int64_t distance = forward ? to - from : from - to;
  const uint64_t stride = forward ? (uint64_t)step : UINT64_C(0) - (uint64_t)step;
  *first = from < 0 ? 0 : from;
  *count = distance <= 0 ? 0 : (int64_t)(((uint64_t)distance - 1) / stride + 1);
}

/* What is taken of each axis. */
typedef struct Axes {
  int64_t first[DVT_MAX_RANK];
  int64_t step[DVT_MAX_RANK];
  int64_t count[DVT_MAX_RANK];
} Axes;

typedef struct Lists {
  int64_t starts[DVT_MAX_RANK], ends[DVT_MAX_RANK], axes[DVT_MAX_RANK], steps[DVT_MAX_RANK];
  int32_t count; /* Of each. */
} Lists;

static DvtCode read_lists(const DvtContext* ctx, Lists* lists, char* reason, size_t size) {
  const DvtSliceAttributes* attributes = ctx->attributes;
  int32_t ends = 0;
  int32_t axes = 0;
  int32_t steps = 0;
  DvtCode code = dvt_read_list(ctx, &attributes->starts, 1, "starts", lists->starts, &lists->count,
                               reason, size);
  if (code == DVT_OK) {
    code = dvt_read_list(ctx, &attributes->ends, 2, "ends", lists->ends, &ends, reason, size);
  }
  if (code == DVT_OK) {
    code = dvt_read_list(ctx, &attributes->axes, 3, "axes", lists->axes, &axes, reason, size);
  }
  if (code == DVT_OK) {
    code = dvt_read_list(ctx, &attributes->steps, 4, "steps", lists->steps, &steps, reason, size);
  }
  if (code != DVT_OK) return code;
  const int32_t count = lists->count;
  if (count < 0 || ends != count || (axes >= 0 && axes != count) ||
      (steps >= 0 && steps != count)) {
    return dvt_refuse(reason, size, "starts, ends, axes and steps differ in length");
  }
  for (int32_t i = 0; i < count; ++i) {
    if (axes < 0) lists->axes[i] = i;
    if (steps < 0) lists->steps[i] = 1;
  }
  return DVT_OK;
}

static DvtCode describe(const DvtContext* ctx, Axes* axes, char* reason, size_t size) {
  Lists lists;
  DvtCode code = read_lists(ctx, &lists, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* x = dvt_input_tensor(ctx, 0);
  uint32_t mask = 0;
  code = dvt_axes_mask(lists.axes, (uint32_t)lists.count, x->rank, &mask, reason, size);
  if (code != DVT_OK) return code;
  for (uint32_t d = 0; d < x->rank; ++d) {
    axes->first[d] = 0;
    axes->step[d] = 1;
    axes->count[d] = x->dims[d];
  }
  for (int32_t i = 0; i < lists.count; ++i) {
    if (lists.steps[i] == 0) return dvt_refuse(reason, size, "steps: step %d is zero", i);
    const int64_t axis = lists.axes[i] < 0 ? lists.axes[i] + x->rank : lists.axes[i];
    axes->step[axis] = lists.steps[i];
    dvt_slice_axis(x->dims[axis], lists.starts[i], lists.ends[i], lists.steps[i],
                   &axes->first[axis], &axes->count[axis]);
  }
  return DVT_OK;
}

DvtCode dvt_slice_infer(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_any_inputs(ctx, 1, 5, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  Axes axes;
  if (code == DVT_OK) code = describe(ctx, &axes, reason, size);
  if (code != DVT_OK) return code;
  return dvt_infer_shape(&outputs[0], dvt_input_tensor(ctx, 0)->rank, axes.count, "output 0",
                         reason, size);
}

DvtCode dvt_slice_check(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_any_counts(ctx, 1, 5, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) {
    code = dvt_check_dtype(dvt_output_tensor(ctx, 0), dvt_input_tensor(ctx, 0)->dtype, "output 0",
                           reason, size);
  }
  if (code != DVT_OK || dvt_lacks_parameters(ctx, DVT_SLICE_PARAMETERS)) return code;
  return dvt_check_inferred(ctx, dvt_slice_infer, 0, reason, size);
}

DvtCode dvt_slice_run(void* context) {
  const DvtContext* ctx = context;
  if (dvt_has_parameters(ctx, DVT_SLICE_PARAMETERS)) {
    const DvtCode code = dvt_slice_check(ctx, NULL, 0);
    if (code != DVT_OK) return code;
  }
  const DvtTensor* output = dvt_output_tensor(ctx, 0);
  if (output->bytes == 0) return DVT_OK;
  Axes axes;
  const DvtCode code = describe(ctx, &axes, NULL, 0);
  if (code != DVT_OK) return code;
  int64_t strides[DVT_MAX_RANK];
  dvt_row_major_strides(dvt_input_tensor(ctx, 0), strides);
  DvtView view = {0};
  int64_t first = 0;
  for (uint32_t d = 0; d < output->rank; ++d) {
    first += axes.first[d] * strides[d];
    /* With more than one element, |step| is below the extent. */
    const int64_t step = output->dims[d] > 1 ? axes.step[d] : 1;
    dvt_view_add_axis(&view, output->dims[d], step * strides[d]);
  }
  const uint32_t element = dvt_dtype_size(output->dtype);
  view.data = (const char*)dvt_input_data(ctx, 0) + first * (int64_t)element;
  dvt_strided_copy(&view, element, dvt_output_data(ctx, 0));
  return DVT_OK;
}
