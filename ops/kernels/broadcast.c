#include "ops/kernels/broadcast.h"

#include "ops/kernels/common.h"

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

DvtCode dvt_check_broadcast(const DvtContext* ctx, int64_t axis, char* reason, size_t size) {
  const DvtTensor* output = dvt_output_tensor(ctx, 0);
  char expected[DVT_SHAPE_TEXT];
  char got[DVT_SHAPE_TEXT];
  for (uint32_t i = 0; i < ctx->input_count; ++i) {
    if (!dvt_has_input(ctx, i)) return dvt_refuse(reason, size, "input %u is absent", i);
    const DvtTensor* input = dvt_input_tensor(ctx, i);
    const bool placed = axis < 0 || axis <= (int64_t)output->rank - input->rank;
    if (input->rank > output->rank || (i == 1 && !placed)) {
      return dvt_refuse(reason, size, "input %u: shape %s at axis %lld exceeds the output's %s", i,
                        dvt_shape_text(input, got), (long long)axis,
                        dvt_shape_text(output, expected));
    }
  }
  for (uint32_t d = 0; d < output->rank; ++d) {
    int64_t extent = 1;
    for (uint32_t i = 0; i < ctx->input_count; ++i) {
      const DvtTensor* input = dvt_input_tensor(ctx, i);
      const int64_t own = extent_along(output, input, trailing_axes(output, input, i, axis), d);
      if (own == 1) continue;
      if (own != output->dims[d]) {
        return dvt_refuse(reason, size, "input %u: shape %s does not broadcast to the output's %s",
                          i, dvt_shape_text(input, got), dvt_shape_text(output, expected));
      }
      extent = own;
    }
    if (extent != output->dims[d]) {
      return dvt_refuse(reason, size, "output 0: axis %u: expected extent %lld, got shape %s", d,
                        (long long)extent, dvt_shape_text(output, got));
    }
  }
  return DVT_OK;
}

/* True when axis `inner` continues axis `outer` for every input: they can be one axis. */
static bool mergeable(const DvtSpace* space, uint32_t count, uint32_t outer, uint32_t inner) {
  for (uint32_t i = 0; i < count; ++i) {
    if (space->strides[i][outer] != space->strides[i][inner] * space->dims[inner]) return false;
  }
  return true;
}

static void merge_axes(DvtSpace* space, uint32_t count) {
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

void dvt_broadcast_space(const DvtTensor* output, const DvtTensor* const* inputs, uint32_t count,
                         int64_t axis, DvtSpace* space) {
  space->rank = 0;
  if (output->bytes == 0) {
    space->dims[space->rank++] = 0;
    return;
  }
  int64_t strides[DVT_MAP_INPUTS][DVT_MAX_RANK];
  int64_t trailing[DVT_MAP_INPUTS];
  for (uint32_t i = 0; i < count; ++i) {
    dvt_row_major_strides(inputs[i], strides[i]);
    trailing[i] = trailing_axes(output, inputs[i], i, axis);
  }
  for (uint32_t d = 0; d < output->rank; ++d) {
    if (output->dims[d] == 1) continue;
    for (uint32_t i = 0; i < count; ++i) {
      const int64_t own = (int64_t)d + trailing[i] + inputs[i]->rank - output->rank;
      const bool repeats = extent_along(output, inputs[i], trailing[i], d) == 1;
      space->strides[i][space->rank] = repeats ? 0 : strides[i][own];
    }
    space->dims[space->rank++] = output->dims[d];
  }
  if (space->rank == 0) { /* One element. */
    space->dims[space->rank++] = 1;
    for (uint32_t i = 0; i < count; ++i) space->strides[i][0] = 1;
  }
  merge_axes(space, count);
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

void dvt_map_run(const DvtMap* map, const DvtSpace* space) {
  const uint32_t last = space->rank - 1;
  const int64_t count = space->dims[last];
  if (count == 0) return;
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
