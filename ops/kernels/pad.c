#include "ops/kernels/pad.h"

#include "ops/kernels/common.h"
#include "ops/kernels/movement.h"
#include "ops/kernels/strided.h"

/* How one axis of the output maps to the input: output index i is input index i - before, where
 * that lies in the part [low, high) that cropping leaves; elsewhere the mode decides. */
typedef struct Axis {
  int64_t before, low, high;
} Axis;

static Axis axis_of(const DvtContext* ctx, uint32_t d) {
  const DvtPadAttributes* attributes = ctx->attributes;
  const int64_t extent = dvt_input_tensor(ctx, 0)->dims[d];
  const int64_t before = attributes->before[d];
  const int64_t after = dvt_output_tensor(ctx, 0)->dims[d] - extent - before;
  return (Axis){.before = before,
                .low = before < 0 ? -before : 0,
                .high = after < 0 ? extent + after : extent};
}

static int64_t positive_modulo(int64_t value, int64_t divisor) {
  assert(divisor > 0); /* dvt_pad_check() refuses an axis without an element to repeat. */
  const int64_t rest = value % divisor;
  return rest < 0 ? rest + divisor : rest;
}

/* Input index for the output's, or -1 for the constant. */
static int64_t source_index(const Axis* axis, int64_t mode, int64_t output_index) {
  const int64_t index = output_index - axis->before;
  if (index >= axis->low && index < axis->high) return index;
  const int64_t extent = axis->high - axis->low;
  switch (mode) {
    case DVT_PAD_REFLECT: {
      if (extent == 1) return axis->low;
      const int64_t period = 2 * (extent - 1);
      const int64_t phase = positive_modulo(index - axis->low, period);
      return axis->low + (phase < extent ? phase : period - phase);
    }
    case DVT_PAD_EDGE:
      return index < axis->low ? axis->low : axis->high - 1;
    case DVT_PAD_WRAP:
      return axis->low + positive_modulo(index - axis->low, extent);
    default:
      return -1;
  }
}

typedef struct Pad {
  int64_t mode;
  uint32_t size; /* Bytes per element. */
  char value[sizeof(uint64_t)];
} Pad;

/* The elements [begin, end) of an output row, one by one. `from` is the input row. */
static void pad_elements(const Pad* pad, const Axis* axis, const char* from, char* to,
                         int64_t begin, int64_t end) {
  if (pad->mode == DVT_PAD_CONSTANT) {
    if (begin < end) {
      dvt_fill(to + (size_t)begin * pad->size, pad->value, pad->size, (uint64_t)(end - begin));
    }
    return;
  }
  for (int64_t i = begin; i < end; ++i) {
    const int64_t index = source_index(axis, pad->mode, i);
    memcpy(to + (size_t)i * pad->size, from + (size_t)index * pad->size, pad->size);
  }
}

/* One output row of `count` elements from the input row `from`. */
static void pad_row(const Pad* pad, const Axis* axis, const char* from, char* to, int64_t count) {
  /* The middle [begin, end) is the input as it is. */
  const int64_t begin = axis->low + axis->before;
  const int64_t end = axis->high + axis->before;
  pad_elements(pad, axis, from, to, 0, begin);
  if (begin < end) {
    memcpy(to + (size_t)begin * pad->size, from + (size_t)(begin - axis->before) * pad->size,
           (size_t)(end - begin) * pad->size);
  }
  pad_elements(pad, axis, from, to, end, count);
}

DvtCode dvt_pad_run(void* context) {
  const DvtContext* ctx = context;
  const DvtPadAttributes* attributes = ctx->attributes;
  const DvtTensor* input = dvt_input_tensor(ctx, 0);
  const DvtTensor* output = dvt_output_tensor(ctx, 0);
  if (output->bytes == 0) return DVT_OK;
  Pad pad = {.mode = attributes->mode, .size = dvt_dtype_size(output->dtype)};
  if (dvt_has_input(ctx, 1)) {
    memcpy(pad.value, dvt_input_data(ctx, 1), pad.size);
  } else {
    dvt_element_from_bits(attributes->bits, pad.size, pad.value);
  }
  if (output->rank == 0) {
    memcpy(dvt_output_data(ctx, 0), dvt_input_data(ctx, 0), pad.size);
    return DVT_OK;
  }
  Axis axes[DVT_MAX_RANK];
  for (uint32_t d = 0; d < output->rank; ++d) axes[d] = axis_of(ctx, d);
  int64_t strides[DVT_MAX_RANK];
  dvt_row_major_strides(input, strides);
  const uint32_t last = (uint32_t)output->rank - 1;
  const int64_t count = output->dims[last];
  const size_t row_bytes = (size_t)count * pad.size;
  int64_t index[DVT_MAX_RANK] = {0};
  char* to = dvt_output_data(ctx, 0);
  const char* end = to + output->bytes;
  for (; to != end; to += row_bytes) {
    int64_t offset = 0;
    bool constant = false;
    for (uint32_t d = 0; d < last; ++d) {
      const int64_t from = source_index(&axes[d], pad.mode, index[d]);
      constant = constant || from < 0;
      offset += from * strides[d];
    }
    if (constant) {
      dvt_fill(to, pad.value, pad.size, (uint64_t)count);
    } else {
      const char* from = (const char*)dvt_input_data(ctx, 0) + (size_t)offset * pad.size;
      pad_row(&pad, &axes[last], from, to, count);
    }
    for (uint32_t d = last; d > 0 && ++index[d - 1] == output->dims[d - 1]; --d) index[d - 1] = 0;
  }
  return DVT_OK;
}

DvtCode dvt_pad_check(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) code = dvt_check_counts(ctx, 1, 2, 1, 1, reason, size);
  if (code != DVT_OK) return code;
  const DvtPadAttributes* attributes = ctx->attributes;
  const DvtTensor* input = dvt_input_tensor(ctx, 0);
  const DvtTensor* output = dvt_output_tensor(ctx, 0);
  code = dvt_check_dtype(output, input->dtype, "output 0", reason, size);
  if (code == DVT_OK && dvt_has_input(ctx, 1)) {
    code = dvt_check_dtype(dvt_input_tensor(ctx, 1), input->dtype, "input 1", reason, size);
    if (code == DVT_OK && dvt_tensor_elements(dvt_input_tensor(ctx, 1)) != 1) {
      return dvt_refuse(reason, size, "input 1: expected one element, got %lld",
                        (long long)dvt_tensor_elements(dvt_input_tensor(ctx, 1)));
    }
  }
  if (code != DVT_OK) return code;
  if (attributes->mode < DVT_PAD_CONSTANT || attributes->mode > DVT_PAD_WRAP) {
    return dvt_refuse(reason, size, "mode: expected 0 to %d, got %lld", DVT_PAD_WRAP,
                      (long long)attributes->mode);
  }
  if (input->rank != output->rank) {
    return dvt_refuse(reason, size, "output 0: expected rank %u, got %u", input->rank,
                      output->rank);
  }
  for (uint32_t d = 0; d < input->rank; ++d) {
    const int64_t from = input->dims[d];
    const int64_t to = output->dims[d];
    const int64_t before = attributes->before[d];
    /* No side crops more than there is or adds more than the output has: what goes after is
     * to - from - before, so the same limits hold for it. */
    if (before < -from || before > to) {
      return dvt_refuse(reason, size, "axis %u: %lld before cannot turn extent %lld into %lld", d,
                        (long long)before, (long long)from, (long long)to);
    }
    const Axis axis = axis_of(ctx, d);
    if (attributes->mode != DVT_PAD_CONSTANT && output->bytes > 0 && axis.low >= axis.high) {
      return dvt_refuse(reason, size, "axis %u has no element to repeat", d);
    }
  }
  return DVT_OK;
}
