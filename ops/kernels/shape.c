#include "ops/kernels/shape.h"

#include <inttypes.h>
#include <stdio.h>

DvtCode dvt_infer_shape(DvtTensor* output, uint32_t rank, const int64_t* dims, const char* what,
                        char* reason, size_t size) {
  if (dvt_set_shape(output, rank, dims) == DVT_OK) return DVT_OK;
  if (rank > DVT_MAX_RANK) {
    return dvt_refuse(reason, size, "%s: %u axes, at most %d are supported", what, rank,
                      DVT_MAX_RANK);
  }
  char text[DVT_SHAPE_TEXT];
  return dvt_refuse(reason, size, "%s: %s is not the shape of a tensor", what,
                    dvt_dims_text(rank, dims, text));
}

DvtCode dvt_infer_scratch(DvtTensor* output, uint64_t bytes, char* reason, size_t size) {
  const int64_t dims[] = {bytes <= INT64_MAX ? (int64_t)bytes : -1};
  return dvt_infer_shape(output, 1, dims, "workspace", reason, size);
}

DvtCode dvt_infer_same(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  const DvtCode code = dvt_check_any_inputs(ctx, 1, UINT16_MAX, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* input = dvt_input_tensor(ctx, 0);
  for (uint32_t i = 0; i < ctx->output_count; ++i) {
    const DvtCode fits =
        dvt_infer_shape(&outputs[i], input->rank, input->dims, "outputs", reason, size);
    if (fits != DVT_OK) return fits;
  }
  return DVT_OK;
}

bool dvt_broadcast_dims(uint32_t* rank, int64_t dims[DVT_MAX_RANK], uint32_t more_rank,
                        const int64_t* more) {
  int64_t joined[DVT_MAX_RANK];
  const uint32_t joined_rank = *rank > more_rank ? *rank : more_rank;
  if (joined_rank > DVT_MAX_RANK) return false;
  for (uint32_t i = 0; i < joined_rank; ++i) { /* From the last axis. */
    const int64_t a = i < *rank ? dims[*rank - 1 - i] : 1;
    const int64_t b = i < more_rank ? more[more_rank - 1 - i] : 1;
    if (a != b && a != 1 && b != 1) return false;
    joined[joined_rank - 1 - i] = a == 1 ? b : a;
  }
  memcpy(dims, joined, joined_rank * sizeof dims[0]);
  *rank = joined_rank;
  return true;
}

DvtCode dvt_infer_broadcast(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  const DvtCode code =
      dvt_check_inputs(ctx, ctx->input_count > 0 ? ctx->input_count : 1, UINT16_MAX, reason, size);
  if (code != DVT_OK) return code;
  uint32_t rank = 0;
  int64_t dims[DVT_MAX_RANK] = {0};
  for (uint32_t i = 0; i < ctx->input_count; ++i) {
    const DvtTensor* input = dvt_input_tensor(ctx, i);
    if (dvt_broadcast_dims(&rank, dims, input->rank, input->dims)) continue;
    char so_far[DVT_SHAPE_TEXT];
    char more[DVT_SHAPE_TEXT];
    return dvt_refuse(reason, size, "input %u: shape %s does not broadcast with %s", i,
                      dvt_shape_text(input, more), dvt_dims_text(rank, dims, so_far));
  }
  return dvt_infer_shape(&outputs[0], rank, dims, "output 0", reason, size);
}

DvtCode dvt_normalise_axis(int64_t axis, uint32_t rank, uint32_t* normal, char* reason,
                           size_t size) {
  const int64_t signed_rank = rank;
  if (axis < -signed_rank || axis >= signed_rank) {
    return dvt_refuse(reason, size, "axis: expected -%u to %d, got %" PRId64, rank, (int)rank - 1,
                      axis);
  }
  *normal = (uint32_t)(axis < 0 ? axis + signed_rank : axis);
  return DVT_OK;
}

DvtCode dvt_axes_mask(const int64_t* axes, uint32_t count, uint32_t rank, uint32_t* mask,
                      char* reason, size_t size) {
  *mask = 0;
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t axis = 0;
    const DvtCode code = dvt_normalise_axis(axes[i], rank, &axis, reason, size);
    if (code != DVT_OK) return code;
    if ((*mask >> axis & 1u) != 0) return dvt_refuse(reason, size, "axis %u is named twice", axis);
    *mask |= 1u << axis;
  }
  return DVT_OK;
}

bool dvt_has_data(const DvtContext* ctx, uint32_t index) {
  return dvt_has_input(ctx, index) &&
         (dvt_input_data(ctx, index) != NULL || dvt_input_tensor(ctx, index)->bytes == 0);
}

DvtCode dvt_read_integers(const DvtContext* ctx, uint32_t index, const char* what, int64_t* values,
                          uint32_t limit, uint32_t* count, char* reason, size_t size) {
  if (!dvt_has_input(ctx, index)) return dvt_refuse(reason, size, "%s: input is absent", what);
  const DvtTensor* tensor = dvt_input_tensor(ctx, index);
  if (tensor->dtype != DVT_I64 && tensor->dtype != DVT_I32) {
    return dvt_refuse(reason, size, "%s: expected dtype i32 or i64, got %s", what,
                      dvt_dtype_text(tensor->dtype));
  }
  const int64_t elements = dvt_tensor_elements(tensor);
  if (tensor->rank > 1 || elements > limit) {
    char text[DVT_SHAPE_TEXT];
    return dvt_refuse(reason, size, "%s: expected one axis of at most %u elements, got shape %s",
                      what, limit, dvt_shape_text(tensor, text));
  }
  if (!dvt_has_data(ctx, index)) {
    return dvt_refuse(reason, size, "%s: the values are not known", what);
  }
  const void* data = dvt_input_data(ctx, index);
  for (int64_t i = 0; i < elements; ++i) {
    values[i] = tensor->dtype == DVT_I32 ? ((const int32_t*)data)[i] : ((const int64_t*)data)[i];
  }
  *count = (uint32_t)elements;
  return DVT_OK;
}

DvtCode dvt_read_integer(const DvtContext* ctx, uint32_t index, const char* what, int64_t* value,
                         char* reason, size_t size) {
  uint32_t count = 0;
  const DvtCode code = dvt_read_integers(ctx, index, what, value, 1, &count, reason, size);
  if (code != DVT_OK || count == 1) return code;
  return dvt_refuse(reason, size, "%s: expected one element, got none", what);
}

DvtCode dvt_read_list(const DvtContext* ctx, const DvtIntegerList* list, uint32_t index,
                      const char* what, int64_t values[DVT_MAX_RANK], int32_t* count, char* reason,
                      size_t size) {
  *count = -1;
  if (list->count == DVT_LIST_NONE) return DVT_OK;
  if (list->count == DVT_LIST_INPUT) {
    uint32_t read = 0;
    const DvtCode code =
        dvt_read_integers(ctx, index, what, values, DVT_MAX_RANK, &read, reason, size);
    if (code == DVT_OK) *count = (int32_t)read;
    return code;
  }
  if (list->count < 0 || list->count > DVT_MAX_RANK) {
    return dvt_refuse(reason, size, "%s: expected at most %d values, got %" PRId64, what,
                      DVT_MAX_RANK, list->count);
  }
  memcpy(values, list->values, (size_t)list->count * sizeof values[0]);
  *count = (int32_t)list->count;
  return DVT_OK;
}

DvtCode dvt_check_inferred(const DvtContext* ctx, DvtKernelInferFn infer, uint32_t scratch,
                           char* reason, size_t size) {
  if (ctx->output_count > DVT_INFERRED_MAX) {
    return dvt_refuse(reason, size, "expected at most %d outputs, got %u", DVT_INFERRED_MAX,
                      ctx->output_count);
  }
  DvtTensor inferred[DVT_INFERRED_MAX] = {{0}};
  for (uint32_t i = 0; i < ctx->output_count; ++i) {
    if (dvt_has_output(ctx, i)) inferred[i].dtype = dvt_output_tensor(ctx, i)->dtype;
  }
  const DvtCode code = infer(ctx, inferred, reason, size);
  if (code != DVT_OK) return code;
  for (uint32_t i = 0; i < ctx->output_count; ++i) {
    if (!dvt_has_output(ctx, i)) continue;
    const DvtTensor* got = dvt_output_tensor(ctx, i);
    if (i + scratch >= ctx->output_count) {
      if (got->bytes >= inferred[i].bytes) continue;
      return dvt_refuse(reason, size, "workspace: expected %" PRIu64 " bytes, got %" PRIu64,
                        inferred[i].bytes, got->bytes);
    }
    char what[24];
    (void)snprintf(what, sizeof what, "output %u", i);
    const DvtCode same = dvt_check_same_shape(&inferred[i], got, what, reason, size);
    if (same != DVT_OK) return same;
  }
  return DVT_OK;
}
