#include "ops/kernels/pad.h"

#include "ops/kernels/movement.h"
#include "ops/kernels/strided.h"

/* How one axis of the output maps to the input: output index i is input index i - before, where
 * that lies in the part [low, high) that cropping leaves; elsewhere the mode decides. */
typedef struct Axis {
  int64_t before, low, high;
} Axis;

/* What is put before and after each axis. */
typedef struct Amounts {
  int64_t before[DVT_MAX_RANK], after[DVT_MAX_RANK];
} Amounts;

static Axis axis_of(const Amounts* amounts, uint32_t d, int64_t extent) {
  const int64_t before = amounts->before[d];
  const int64_t after = amounts->after[d];
  return (Axis){.before = before,
                .low = before < 0 ? -before : 0,
                .high = after < 0 ? extent + after : extent};
}

/* Amounts that are inputs: two per axis that input 3 names, or of all axes. */
static DvtCode read_amounts(const DvtContext* ctx, uint32_t rank, Amounts* amounts, char* reason,
                            size_t size) {
  int64_t pads[2 * DVT_MAX_RANK];
  int64_t axes[DVT_MAX_RANK];
  uint32_t count = 0;
  uint32_t axis_count = rank;
  for (uint32_t i = 0; i < rank; ++i) axes[i] = i;
  DvtCode code = dvt_read_integers(ctx, 2, "pads", pads, 2 * DVT_MAX_RANK, &count, reason, size);
  if (code == DVT_OK && dvt_has_input(ctx, 3)) {
    code = dvt_read_integers(ctx, 3, "axes", axes, DVT_MAX_RANK, &axis_count, reason, size);
  }
  uint32_t mask = 0;
  if (code == DVT_OK) code = dvt_axes_mask(axes, axis_count, rank, &mask, reason, size);
  if (code != DVT_OK) return code;
  if (count != 2 * axis_count) {
    return dvt_refuse(reason, size, "pads: expected %u values, got %u", 2 * axis_count, count);
  }
  for (uint32_t i = 0; i < axis_count; ++i) {
    const int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];
    amounts->before[axis] = pads[i];
    amounts->after[axis] = pads[axis_count + i];
  }
  return DVT_OK;
}

static DvtCode describe(const DvtContext* ctx, Amounts* amounts, char* reason, size_t size) {
  const DvtPadAttributes* attributes = ctx->attributes;
  const uint32_t rank = dvt_input_tensor(ctx, 0)->rank;
  *amounts = (Amounts){{0}, {0}};
  if (attributes->rank == DVT_LIST_INPUT) return read_amounts(ctx, rank, amounts, reason, size);
  if (attributes->rank != rank) {
    return dvt_refuse(reason, size, "pads of %lld axes for an input of rank %u",
                      (long long)attributes->rank, rank);
  }
  memcpy(amounts->before, attributes->before, sizeof amounts->before);
  memcpy(amounts->after, attributes->after, sizeof amounts->after);
  return DVT_OK;
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
  if (dvt_has_parameters(ctx, DVT_PAD_PARAMETERS)) {
    const DvtCode code = dvt_pad_check(ctx, NULL, 0);
    if (code != DVT_OK) return code;
  }
  const DvtPadAttributes* attributes = ctx->attributes;
  const DvtTensor* input = dvt_input_tensor(ctx, 0);
  const DvtTensor* output = dvt_output_tensor(ctx, 0);
  if (output->bytes == 0) return DVT_OK;
  Amounts amounts;
  const DvtCode code = describe(ctx, &amounts, NULL, 0);
  if (code != DVT_OK) return code;
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
  for (uint32_t d = 0; d < output->rank; ++d) axes[d] = axis_of(&amounts, d, input->dims[d]);
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
      const char* from = dvt_input_data(ctx, 0);
      if (offset > 0) from += (size_t)offset * pad.size; /* An empty input has no address. */
      pad_row(&pad, &axes[last], from, to, count);
    }
    for (uint32_t d = last; d > 0 && ++index[d - 1] == output->dims[d - 1]; --d) index[d - 1] = 0;
  }
  return DVT_OK;
}

DvtCode dvt_pad_infer(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 1, 4, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  Amounts amounts;
  if (code == DVT_OK) code = describe(ctx, &amounts, reason, size);
  if (code != DVT_OK) return code;
  const DvtPadAttributes* attributes = ctx->attributes;
  const DvtTensor* input = dvt_input_tensor(ctx, 0);
  int64_t dims[DVT_MAX_RANK] = {0};
  bool repeats_nothing = false;
  for (uint32_t d = 0; d < input->rank; ++d) {
    const int64_t extent = input->dims[d];
    const int64_t before = amounts.before[d];
    const int64_t after = amounts.after[d];
    /* A side crops at most all there is. */
    if (before < -extent || after < -extent || __builtin_add_overflow(extent, before, &dims[d]) ||
        __builtin_add_overflow(dims[d], after, &dims[d]) || dims[d] < 0) {
      return dvt_refuse(reason, size, "axis %u: pads %lld and %lld do not fit extent %lld", d,
                        (long long)before, (long long)after, (long long)extent);
    }
    const Axis axis = axis_of(&amounts, d, extent);
    repeats_nothing = repeats_nothing || axis.low >= axis.high;
  }
  code = dvt_infer_shape(&outputs[0], input->rank, dims, "output 0", reason, size);
  if (code == DVT_OK && attributes->mode != DVT_PAD_CONSTANT && repeats_nothing &&
      outputs[0].bytes > 0) {
    return dvt_refuse(reason, size, "an axis has no element to repeat");
  }
  return code;
}

DvtCode dvt_pad_check(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) code = dvt_check_counts(ctx, 1, 4, 1, 1, reason, size);
  if (code != DVT_OK) return code;
  const DvtPadAttributes* attributes = ctx->attributes;
  const DvtTensor* input = dvt_input_tensor(ctx, 0);
  code = dvt_check_dtype(dvt_output_tensor(ctx, 0), input->dtype, "output 0", reason, size);
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
  if (dvt_lacks_parameters(ctx, DVT_PAD_PARAMETERS)) return DVT_OK;
  return dvt_check_inferred(ctx, dvt_pad_infer, 0, reason, size);
}
