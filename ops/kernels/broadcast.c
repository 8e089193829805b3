#include "ops/kernels/broadcast.h"

#include "ops/kernels/common.h"
#include "ops/kernels/shape.h"

/* The iteration space: the output's shape with adjacent axes merged where every operand allows. */
typedef struct Space {
  uint32_t rank; /* At least 1. */
  int64_t dims[DVT_MAX_RANK];
  int64_t strides[DVT_MAP_INPUTS][DVT_MAX_RANK]; /* Elements; 0 along repeated axes. The last axis
                                                    has stride 0 or 1. */
} Space;

/* Axes of the output to the right of the input's last axis. */
static int64_t trailing_axes(const DvtTensor* output, const DvtTensor* input, uint32_t index,
                             int64_t axis) {
  return index == 1 && axis >= 0 ? (int64_t)output->rank - axis - input->rank : 0;
}

/* Extent of `input` along the output's axis, 1 where it has none. */
static int64_t extent_along(const DvtTensor* output, const DvtTensor* input, int64_t trailing,
                            uint32_t output_axis) {
  const int64_t own = (int64_t)output_axis + trailing + input->rank - output->rank;
  return own < 0 || own >= input->rank ? 1 : input->dims[own];
}

DvtCode dvt_infer_placed(const DvtContext* ctx, int64_t axis, DvtTensor* output, char* reason,
                         size_t size) {
  if (axis == -1) return dvt_infer_broadcast(ctx, output, reason, size);
  const DvtCode code = dvt_check_inputs(ctx, 2, 2, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* whole = dvt_input_tensor(ctx, 0);
  const DvtTensor* part = dvt_input_tensor(ctx, 1);
  bool fits = axis >= 0 && axis <= (int64_t)whole->rank - part->rank;
  for (uint32_t i = 0; fits && i < part->rank; ++i) {
    fits = part->dims[i] == 1 || part->dims[i] == whole->dims[axis + i];
  }
  if (fits) return dvt_infer_shape(output, whole->rank, whole->dims, "output 0", reason, size);
  char whole_text[DVT_SHAPE_TEXT];
  char part_text[DVT_SHAPE_TEXT];
  return dvt_refuse(reason, size, "input 1: shape %s at axis %lld does not broadcast to %s",
                    dvt_shape_text(part, part_text), (long long)axis,
                    dvt_shape_text(whole, whole_text));
}

/* True when axis `inner` continues axis `outer` for every input: they can be one axis. */
static bool mergeable(const Space* space, uint32_t count, uint32_t outer, uint32_t inner) {
  for (uint32_t i = 0; i < count; ++i) {
    if (space->strides[i][outer] != space->strides[i][inner] * space->dims[inner]) return false;
  }
  return true;
}

static void merge_axes(Space* space, uint32_t count) {
  uint32_t last = 0;
  for (uint32_t d = 1; d < space->rank; ++d) {
    const bool merge = mergeable(space, count, last, d);
    if (merge) {
      space->dims[last] *= space->dims[d];
    } else {
      space->dims[++last] = space->dims[d];
    }
    for (uint32_t i = 0; i < count; ++i) space->strides[i][last] = space->strides[i][d];
  }
  space->rank = last + 1;
}

/* The space of a map whose output is not empty. */
static void broadcast_space(const DvtMap* map, int64_t axis, Space* space) {
  const DvtTensor* output = map->output.tensor;
  space->rank = 0;
  int64_t strides[DVT_MAP_INPUTS][DVT_MAX_RANK];
  int64_t trailing[DVT_MAP_INPUTS];
  for (uint32_t i = 0; i < map->input_count; ++i) {
    dvt_row_major_strides(map->inputs[i].tensor, strides[i]);
    trailing[i] = trailing_axes(output, map->inputs[i].tensor, i, axis);
  }
  for (uint32_t d = 0; d < output->rank; ++d) {
    if (output->dims[d] == 1) continue;
    for (uint32_t i = 0; i < map->input_count; ++i) {
      const DvtTensor* input = map->inputs[i].tensor;
      const int64_t own = (int64_t)d + trailing[i] + input->rank - output->rank;
      const bool repeats = extent_along(output, input, trailing[i], d) == 1;
      space->strides[i][space->rank] = repeats ? 0 : strides[i][own];
    }
    space->dims[space->rank++] = output->dims[d];
  }
  merge_axes(space, map->input_count);
}

/* Repeats the element at `block` until it fills `count` elements. */
static void fill_block(char* block, size_t element_size, int64_t count) {
  size_t filled = element_size;
  const size_t total = element_size * (size_t)count;
  while (filled < total) {
    const size_t more = filled < total - filled ? filled : total - filled;
    memcpy(block + filled, block, more);
    filled += more;
  }
}

typedef struct Blocks {
  _Alignas(64) char inputs[DVT_MAP_INPUTS][DVT_BLOCK * 8];
  _Alignas(64) char output[DVT_BLOCK * 8];
} Blocks;

static void run_row(const DvtMap* map, const char* const* rows, const int64_t* strides, char* out,
                    int64_t count, Blocks* blocks) {
  const void* inputs[DVT_MAP_INPUTS];
  bool whole = map->output.convert == NULL;
  for (uint32_t i = 0; i < map->input_count; ++i) {
    const DvtOperand* input = &map->inputs[i];
    if (strides[i] == 0) {
      if (input->convert != NULL) {
        input->convert(rows[i], blocks->inputs[i], 1);
      } else {
        memcpy(blocks->inputs[i], rows[i], input->size);
      }
      fill_block(blocks->inputs[i], input->loop_size, count < DVT_BLOCK ? count : DVT_BLOCK);
    }
    whole = whole && strides[i] != 0 && input->convert == NULL;
    inputs[i] = strides[i] == 0 || input->convert != NULL ? blocks->inputs[i] : rows[i];
  }
  if (whole) {
    map->loop(inputs, out, count, map->parameters);
    return;
  }
  for (int64_t at = 0; at < count; at += DVT_BLOCK) {
    const int64_t block = count - at < DVT_BLOCK ? count - at : DVT_BLOCK;
    for (uint32_t i = 0; i < map->input_count; ++i) {
      if (strides[i] == 0) continue;
      const DvtOperand* input = &map->inputs[i];
      const char* from = rows[i] + (size_t)at * input->size;
      if (input->convert != NULL) {
        input->convert(from, blocks->inputs[i], block);
      } else {
        inputs[i] = from;
      }
    }
    char* to = out + (size_t)at * map->output.size;
    map->loop(inputs, map->output.convert != NULL ? blocks->output : to, block, map->parameters);
    if (map->output.convert != NULL) map->output.convert(blocks->output, to, block);
  }
}

static void run_space(const DvtMap* map, const Space* space) {
  const uint32_t last = space->rank - 1;
  const int64_t count = space->dims[last];
  Blocks blocks;
  const char* rows[DVT_MAP_INPUTS];
  int64_t row_strides[DVT_MAP_INPUTS];
  for (uint32_t i = 0; i < map->input_count; ++i) {
    rows[i] = map->inputs[i].data;
    row_strides[i] = space->strides[i][last];
  }
  char* out = map->output.data;
  int64_t index[DVT_MAX_RANK] = {0};
  for (;;) {
    run_row(map, rows, row_strides, out, count, &blocks);
    out += (size_t)count * map->output.size;
    /* Odometer over the outer axes. */
    uint32_t d = last;
    while (d > 0) {
      --d;
      const bool wraps = ++index[d] == space->dims[d];
      const int64_t steps = wraps ? 1 - space->dims[d] : 1;
      for (uint32_t i = 0; i < map->input_count; ++i) {
        rows[i] += steps * space->strides[i][d] * (int64_t)map->inputs[i].size;
      }
      if (!wraps) break;
      index[d] = 0;
      if (d == 0) return;
    }
    if (last == 0) return;
  }
}

DvtCode dvt_map_run(const DvtMap* map, int64_t axis) {
  const int64_t elements = dvt_tensor_elements(map->output.tensor);
  if (elements == 0) return DVT_OK;
  Space space = {.rank = 1, .dims = {elements}};
  bool dense = true;
  for (uint32_t i = 0; i < map->input_count; ++i) {
    /* As many elements as the output and broadcastable: the same order of elements. */
    dense = dense && dvt_tensor_elements(map->inputs[i].tensor) == elements;
    space.strides[i][0] = 1;
  }
  if (!dense) broadcast_space(map, axis, &space);
  run_space(map, &space);
  return DVT_OK;
}

static DvtOperand operand(const DvtCell* cell, DvtConvertLoop convert) {
  const uint32_t size = dvt_dtype_size(cell->tensor->dtype);
  return (DvtOperand){.data = cell->data,
                      .tensor = cell->tensor,
                      .size = size,
                      .loop_size = convert != NULL ? (uint32_t)sizeof(float) : size,
                      .convert = convert};
}

DvtOperand dvt_map_input(const DvtContext* ctx, uint32_t index) {
  return operand(dvt_input(ctx, index), dvt_half_to_f32_loop(dvt_input_tensor(ctx, index)->dtype));
}

DvtOperand dvt_map_output(const DvtContext* ctx) {
  return operand(dvt_output(ctx, 0), dvt_f32_to_half_loop(dvt_output_tensor(ctx, 0)->dtype));
}
