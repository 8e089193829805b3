#include "ops/kernels/index.h"

#include <inttypes.h>

DvtCode dvt_index_check_dtype(const DvtContext* ctx, uint32_t index, char* reason, size_t size) {
  const DvtDType dtype = dvt_input_tensor(ctx, index)->dtype;
  if (dtype == DVT_I32 || dtype == DVT_I64) return DVT_OK;
  return dvt_refuse(reason, size, "input %u: expected dtype i32 or i64, got %s", index,
                    dvt_dtype_text(dtype));
}

static DvtCode refuse_shapes(const DvtTensor* x, const DvtTensor* indices, char* reason,
                             size_t size) {
  char x_text[DVT_SHAPE_TEXT];
  char indices_text[DVT_SHAPE_TEXT];
  return dvt_refuse(reason, size, "indices of shape %s do not fit an input of shape %s",
                    dvt_shape_text(indices, indices_text), dvt_shape_text(x, x_text));
}

DvtCode dvt_index_check_elements(const DvtTensor* x, const DvtTensor* indices, uint32_t axis,
                                 char* reason, size_t size) {
  bool fits = indices->rank == x->rank;
  for (uint32_t d = 0; fits && d < x->rank; ++d) {
    fits = d == axis || indices->dims[d] <= x->dims[d];
  }
  return fits ? DVT_OK : refuse_shapes(x, indices, reason, size);
}

DvtCode dvt_index_check_tuples(const DvtTensor* x, const DvtTensor* indices, int64_t batch,
                               char* reason, size_t size) {
  if (indices->rank == 0 || batch < 0 || batch >= indices->rank || batch >= x->rank) {
    return dvt_refuse(reason, size, "batch_dims %" PRId64 " for ranks %u and %u", batch, x->rank,
                      indices->rank);
  }
  const int64_t length = indices->dims[indices->rank - 1];
  bool fits = length >= 1 && length <= x->rank - batch;
  for (uint32_t d = 0; fits && d < batch; ++d) fits = indices->dims[d] == x->dims[d];
  return fits ? DVT_OK : refuse_shapes(x, indices, reason, size);
}

void dvt_index_walk_init(DvtIndexWalk* walk, const DvtCell* indices, const DvtTensor* x,
                         uint32_t axis) {
  *walk = (DvtIndexWalk){.indices = indices,
                         .count = dvt_tensor_elements(indices->tensor),
                         .axis = axis,
                         .extent = x->dims[axis]};
  dvt_row_major_strides(x, walk->strides);
}

int64_t dvt_index_walk_next(DvtIndexWalk* walk, int64_t i) {
  const DvtTensor* shape = walk->indices->tensor;
  const int64_t index = dvt_index_at(walk->indices, i, walk->extent);
  int64_t offset = index * walk->strides[walk->axis];
  for (uint32_t d = 0; d < shape->rank; ++d) {
    if (d != walk->axis) offset += walk->at[d] * walk->strides[d];
  }
  for (uint32_t d = shape->rank; d > 0 && ++walk->at[d - 1] == shape->dims[d - 1]; --d) {
    walk->at[d - 1] = 0;
  }
  return index < 0 ? -1 : offset;
}

void dvt_tuples_init(DvtTuples* tuples, const DvtCell* indices, const DvtTensor* x,
                     uint32_t batch) {
  const DvtTensor* shape = indices->tensor;
  const int64_t length = shape->dims[shape->rank - 1];
  *tuples = (DvtTuples){.indices = indices,
                        .length = length,
                        .count = dvt_tensor_elements(shape) / length,
                        .per_batch = 1};
  int64_t strides[DVT_MAX_RANK];
  dvt_row_major_strides(x, strides); /* All 0 when x is empty: then slices are, or no index fits. */
  for (int64_t e = 0; e < length; ++e) {
    tuples->extents[e] = x->dims[batch + e];
    tuples->strides[e] = strides[batch + e];
  }
  if (batch > 0) tuples->batch_stride = strides[batch - 1];
  if (x->bytes > 0) tuples->slice = strides[batch + length - 1];
  if (tuples->count == 0) return; /* Else no product of some of its dims can overflow. */
  for (uint32_t d = batch; d + 1 < shape->rank; ++d) tuples->per_batch *= shape->dims[d];
}

int64_t dvt_tuples_offset(const DvtTuples* tuples, int64_t i) {
  int64_t offset = i / tuples->per_batch * tuples->batch_stride;
  for (int64_t e = 0; e < tuples->length; ++e) {
    const int64_t index = dvt_index_at(tuples->indices, i * tuples->length + e, tuples->extents[e]);
    if (index < 0) return -1;
    offset += index * tuples->strides[e];
  }
  return offset;
}
