/* fourier.c: DFT and STFT. */
#include <inttypes.h>

#include "ops/kernels/element.h"
#include "ops/kernels/fft.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/signal.h"

static DvtCode check_length(int64_t length, char* reason, size_t size) {
  if (length >= 1 && length <= DVT_FFT_MAX) return DVT_OK;
  return dvt_refuse(reason, size, "transform length %" PRId64 ": expected 1 to %" PRId64, length,
                    DVT_FFT_MAX);
}

static int64_t bins_of(int64_t length, bool onesided) {
  return onesided ? length / 2 + 1 : length;
}

/* The transform's own, and one frame. */
static uint64_t workspace_bytes(int64_t length) {
  return (uint64_t)(dvt_fft_workspace_doubles(length) + 2 * length) * sizeof(double);
}

/* The last axis holds one or two parts; two only if `onesided` is not asked for. */
static DvtCode check_parts(const DvtTensor* x, bool onesided, char* reason, size_t size) {
  const int64_t parts = x->rank < 2 ? 0 : x->dims[x->rank - 1];
  if (parts != 1 && parts != 2) {
    return dvt_refuse(reason, size, "the last axis of X must hold 1 or 2 parts of each number");
  }
  if (!onesided || parts == 1) return DVT_OK;
  return dvt_refuse(reason, size, "a onesided transform of complex numbers");
}

/* ---- DFT ------------------------------------------------------------------------------------- */

enum { X = 0, LENGTH = 1, AXIS = 2 };
#define DFT_PARAMETERS ((1u << LENGTH) | (1u << AXIS))

typedef struct Dft {
  uint32_t axis;
  int64_t length;
} Dft;

static DvtCode describe_dft(const DvtContext* ctx, Dft* dft, char* reason, size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 1, 3, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtDftAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, X);
  int64_t axis = attributes->axis;
  if (dvt_has_input(ctx, AXIS)) code = dvt_read_integer(ctx, AXIS, "axis", &axis, reason, size);
  if (code == DVT_OK) code = dvt_normalise_axis(axis, x->rank, &dft->axis, reason, size);
  if (code == DVT_OK) code = check_parts(x, attributes->onesided != 0, reason, size);
  if (code != DVT_OK) return code;
  if (dft->axis + 1 == x->rank)
    return dvt_refuse(reason, size, "axis: the last one holds the parts");
  if (attributes->onesided != 0 && attributes->inverse != 0) {
    return dvt_refuse(reason, size, "an inverse transform cannot be onesided");
  }
  dft->length = attributes->length == 0 ? x->dims[dft->axis] : attributes->length;
  if (attributes->length == DVT_LIST_INPUT) {
    code = dvt_read_integer(ctx, LENGTH, "dft_length", &dft->length, reason, size);
  }
  return code == DVT_OK ? check_length(dft->length, reason, size) : code;
}

static DvtCode infer_dft(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  Dft dft;
  DvtCode code = describe_dft(ctx, &dft, reason, size);
  if (code != DVT_OK) return code;
  const DvtDftAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, X);
  int64_t dims[DVT_MAX_RANK];
  for (uint32_t i = 0; i < x->rank; ++i) dims[i] = x->dims[i];
  dims[dft.axis] = bins_of(dft.length, attributes->onesided != 0);
  dims[x->rank - 1] = 2;
  code = dvt_infer_shape(&outputs[0], x->rank, dims, "Y", reason, size);
  if (code != DVT_OK) return code;
  return dvt_infer_scratch(&outputs[1], workspace_bytes(dft.length), reason, size);
}

static DvtCode check_dft(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 1, 3, 2, 2, reason, size);
  if (code == DVT_OK) code = dvt_check_dtypes(ctx, 1, 1, dtype, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK || dvt_lacks_parameters(ctx, DFT_PARAMETERS)) return code;
  return dvt_check_inferred(ctx, infer_dft, 1, reason, size);
}

/* Numbers [0, count) of a signal whose numbers are `step` apart, zeros behind, times a window. */
DVT_INLINE void load_frame(const void* x, int64_t at, int64_t step, int64_t parts, int64_t count,
                           int64_t length, const void* window, double* frame, DvtDType dtype) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t from = (at + i * step) * parts;
    const double factor = window == NULL ? 1.0 : dvt_load_real(window, dtype, i);
    frame[2 * i] = dvt_load_real(x, dtype, from) * factor;
    frame[2 * i + 1] = parts == 1 ? 0.0 : dvt_load_real(x, dtype, from + 1) * factor;
  }
  for (int64_t i = 2 * count; i < 2 * length; ++i) frame[i] = 0.0;
}

DVT_INLINE DvtCode run_dft(const DvtContext* ctx, DvtDType dtype) {
  if (dvt_has_parameters(ctx, DFT_PARAMETERS)) {
    const DvtCode code = check_dft(ctx, dtype, NULL, 0);
    if (code != DVT_OK) return code;
  }
  Dft dft;
  const DvtCode code = describe_dft(ctx, &dft, NULL, 0);
  const DvtTensor* y = dvt_output_tensor(ctx, 0);
  if (code != DVT_OK || y->bytes == 0) return code;
  const DvtDftAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, X);
  double* workspace = dvt_output_data(ctx, 1);
  double* frame = workspace + dvt_fft_workspace_doubles(dft.length);
  const DvtFft fft = dvt_fft_prepare(dft.length, workspace);
  const int64_t extent = x->dims[dft.axis];
  const int64_t bins = y->dims[dft.axis];
  int64_t inner = 1;
  for (uint32_t i = dft.axis + 1; i + 1 < x->rank; ++i) inner *= x->dims[i];
  const int64_t rows = dvt_tensor_elements(y) / 2 / bins;
  const double scale = attributes->inverse != 0 ? 1.0 / (double)dft.length : 1.0;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t outer = row / inner;
    load_frame(dvt_input_data(ctx, X), outer * extent * inner + row % inner, inner,
               x->dims[x->rank - 1], extent < dft.length ? extent : dft.length, dft.length, NULL,
               frame, dtype);
    dvt_fft_run(&fft, frame, attributes->inverse != 0);
    for (int64_t k = 0; k < 2 * bins; ++k) {
      const int64_t at = ((outer * bins + k / 2) * inner + row % inner) * 2 + k % 2;
      dvt_store_real(dvt_output_data(ctx, 0), dtype, at, frame[k] * scale);
    }
  }
  return DVT_OK;
}

/* ---- STFT ------------------------------------------------------------------------------------ */

enum { STEP = 1, WINDOW = 2, FRAME_LENGTH = 3 };
#define STFT_PARAMETERS ((1u << STEP) | (1u << FRAME_LENGTH))

typedef struct Stft {
  int64_t step, length, frames;
} Stft;

static DvtCode describe_stft(const DvtContext* ctx, Stft* stft, char* reason, size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 1, 4, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtStftAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, X);
  if (x->rank != 3) return dvt_refuse(reason, size, "rank %u of X: expected 3", x->rank);
  code = check_parts(x, attributes->onesided != 0, reason, size);
  *stft = (Stft){.step = attributes->step, .length = attributes->length};
  if (code == DVT_OK && attributes->step == DVT_LIST_INPUT) {
    code = dvt_read_integer(ctx, STEP, "frame_step", &stft->step, reason, size);
  }
  if (code == DVT_OK && attributes->length == DVT_LIST_INPUT) {
    code = dvt_read_integer(ctx, FRAME_LENGTH, "frame_length", &stft->length, reason, size);
  }
  if (code != DVT_OK) return code;
  if (dvt_has_input(ctx, WINDOW)) {
    const DvtTensor* window = dvt_input_tensor(ctx, WINDOW);
    if (stft->length == 0 && window->rank == 1) stft->length = window->dims[0];
    code = dvt_check_dtype(window, x->dtype, "window", reason, size);
    if (code == DVT_OK) code = dvt_check_shape(window, 1, &stft->length, "window", reason, size);
  }
  if (code == DVT_OK) code = check_length(stft->length, reason, size);
  if (code != DVT_OK) return code;
  if (stft->step < 1 || stft->length > x->dims[1]) {
    return dvt_refuse(reason, size,
                      "frames of %" PRId64 " at steps of %" PRId64 " in a signal of %" PRId64,
                      stft->length, stft->step, x->dims[1]);
  }
  stft->frames = (x->dims[1] - stft->length) / stft->step + 1;
  return DVT_OK;
}

static DvtCode infer_stft(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  Stft stft;
  DvtCode code = describe_stft(ctx, &stft, reason, size);
  if (code != DVT_OK) return code;
  const DvtStftAttributes* attributes = ctx->attributes;
  const int64_t dims[4] = {dvt_input_tensor(ctx, X)->dims[0], stft.frames,
                           bins_of(stft.length, attributes->onesided != 0), 2};
  code = dvt_infer_shape(&outputs[0], 4, dims, "Y", reason, size);
  if (code != DVT_OK) return code;
  return dvt_infer_scratch(&outputs[1], workspace_bytes(stft.length), reason, size);
}

static DvtCode check_stft(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 1, 4, 2, 2, reason, size);
  if (code == DVT_OK) code = dvt_check_dtypes(ctx, 1, 1, dtype, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK || dvt_lacks_parameters(ctx, STFT_PARAMETERS)) return code;
  return dvt_check_inferred(ctx, infer_stft, 1, reason, size);
}

DVT_INLINE DvtCode run_stft(const DvtContext* ctx, DvtDType dtype) {
  if (dvt_has_parameters(ctx, STFT_PARAMETERS)) {
    const DvtCode code = check_stft(ctx, dtype, NULL, 0);
    if (code != DVT_OK) return code;
  }
  Stft stft;
  const DvtCode code = describe_stft(ctx, &stft, NULL, 0);
  const DvtTensor* y = dvt_output_tensor(ctx, 0);
  if (code != DVT_OK || y->bytes == 0) return code;
  const DvtTensor* x = dvt_input_tensor(ctx, X);
  const void* window = dvt_has_input(ctx, WINDOW) ? dvt_input_data(ctx, WINDOW) : NULL;
  double* workspace = dvt_output_data(ctx, 1);
  double* frame = workspace + dvt_fft_workspace_doubles(stft.length);
  const DvtFft fft = dvt_fft_prepare(stft.length, workspace);
  for (int64_t row = 0; row < y->dims[0] * stft.frames; ++row) {
    const int64_t at = row / stft.frames * x->dims[1] + row % stft.frames * stft.step;
    load_frame(dvt_input_data(ctx, X), at, 1, x->dims[2], stft.length, stft.length, window, frame,
               dtype);
    dvt_fft_run(&fft, frame, false);
    for (int64_t k = 0; k < 2 * y->dims[2]; ++k) {
      dvt_store_real(dvt_output_data(ctx, 0), dtype, row * 2 * y->dims[2] + k, frame[k]);
    }
  }
  return DVT_OK;
}

/* ---- Table ----------------------------------------------------------------------------------- */

DVT_TYPED_KERNEL(dft, f32, DVT_F32)
DVT_TYPED_KERNEL(dft, f64, DVT_F64)
DVT_TYPED_KERNEL(dft, f16, DVT_F16)
DVT_TYPED_KERNEL(dft, bf16, DVT_BF16)
DVT_TYPED_KERNEL(stft, f32, DVT_F32)
DVT_TYPED_KERNEL(stft, f64, DVT_F64)
DVT_TYPED_KERNEL(stft, f16, DVT_F16)
DVT_TYPED_KERNEL(stft, bf16, DVT_BF16)

static const DvtAttribute dft_attributes[] = {
    {"axis", offsetof(DvtDftAttributes, axis), 1, 'i'},
    {"length", offsetof(DvtDftAttributes, length), 1, 'i'},
    {"inverse", offsetof(DvtDftAttributes, inverse), 1, 'i'},
    {"onesided", offsetof(DvtDftAttributes, onesided), 1, 'i'},
};
static const DvtAttribute stft_attributes[] = {
    {"step", offsetof(DvtStftAttributes, step), 1, 'i'},
    {"length", offsetof(DvtStftAttributes, length), 1, 'i'},
    {"onesided", offsetof(DvtStftAttributes, onesided), 1, 'i'},
};

#define FOURIER_KERNEL(kernel_name, family, suffix, inputs, host, record)                \
  {                                                                                      \
    .name = kernel_name "." #suffix, .abi_version = DVT_KERNEL_ABI_VERSION,              \
    .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE, .input_min = 1, .input_max = (inputs), \
    .output_min = 2, .output_max = 2, .attribute_bytes = sizeof(record),                 \
    .attribute_count = sizeof family##_attributes / sizeof(DvtAttribute),                \
    .attributes = family##_attributes, .run = run_##family##_##suffix,                   \
    .check = check_##family##_##suffix, .infer = infer_##family, .host_inputs = (host)   \
  }
#define DFT(suffix) FOURIER_KERNEL("DFT", dft, suffix, 3, DFT_PARAMETERS, DvtDftAttributes)
#define STFT(suffix) FOURIER_KERNEL("STFT", stft, suffix, 4, STFT_PARAMETERS, DvtStftAttributes)

DvtKernelTable dvt_kernels_fourier(void) {
  static const DvtKernel kernels[] = {DFT(f32),  DFT(f64),  DFT(f16),  DFT(bf16),
                                      STFT(f32), STFT(f64), STFT(f16), STFT(bf16)};
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
