/* signal.c: MelWeightMatrix and the cosine windows. */
#include "ops/kernels/signal.h"

#include <inttypes.h>

#include "ops/kernels/element.h"
#include "ops/kernels/kernels.h"

#define PI 3.14159265358979323846

/* A number that is neither bool nor a string. */
static DvtCode check_number(const DvtTensor* tensor, const char* what, char* reason, size_t size) {
  if (tensor->dtype != DVT_BOOL) return DVT_OK;
  return dvt_refuse(reason, size, "%s: expected a number, got bool", what);
}

/* ---- Cosine windows -------------------------------------------------------------------------- */

enum { WINDOW_PARAMETERS = 1u << 0 };

static DvtCode infer_window(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 0, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtCosineWindowAttributes* attributes = ctx->attributes;
  int64_t length = attributes->size;
  if (length == DVT_LIST_INPUT) code = dvt_read_integer(ctx, 0, "size", &length, reason, size);
  return code == DVT_OK ? dvt_infer_shape(&outputs[0], 1, &length, "Y", reason, size) : code;
}

static DvtCode check_window(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 0, 1, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) code = check_number(dvt_output_tensor(ctx, 0), "Y", reason, size);
  if (code != DVT_OK || dvt_lacks_parameters(ctx, WINDOW_PARAMETERS)) return code;
  return dvt_check_inferred(ctx, infer_window, 0, reason, size);
}

static DvtCode run_window(void* context) {
  const DvtContext* ctx = context;
  if (dvt_has_parameters(ctx, WINDOW_PARAMETERS)) {
    const DvtCode code = check_window(ctx, NULL, 0);
    if (code != DVT_OK) return code;
  }
  const DvtCosineWindowAttributes* attributes = ctx->attributes;
  const DvtTensor* y = dvt_output_tensor(ctx, 0);
  const int64_t count = dvt_tensor_elements(y);
  const double period = (double)(attributes->periodic != 0 ? count : count - 1);
  for (int64_t k = 0; k < count; ++k) {
    const double angle = 2.0 * PI * (double)k / period;
    const double value =
        count == 1 && attributes->periodic == 0
            ? 1.0
            : attributes->a - attributes->b * cos(angle) + attributes->c * cos(2.0 * angle);
    dvt_store_real(dvt_output_data(ctx, 0), y->dtype, k,
                   dvt_dtype_is_float(y->dtype) ? value : trunc(value));
  }
  return DVT_OK;
}

/* ---- MelWeightMatrix ------------------------------------------------------------------------- */

enum { BINS = 0, LENGTH = 1, RATE = 2, LOW = 3, HIGH = 4, MEL_PARAMETERS = 31 };
#define MEL_LIMIT (INT64_C(1) << 31) /* So that sums of sizes stay far from overflow. */

static DvtCode read_sizes(const DvtContext* ctx, int64_t sizes[3], char* reason, size_t size) {
  static const char* const names[] = {"num_mel_bins", "dft_length", "sample_rate"};
  for (uint32_t i = BINS; i <= RATE; ++i) {
    const DvtCode code = dvt_read_integer(ctx, i, names[i], &sizes[i], reason, size);
    if (code != DVT_OK) return code;
    const int64_t low = i == RATE ? 1 : 0;
    if (sizes[i] < low || sizes[i] > MEL_LIMIT) {
      return dvt_refuse(reason, size, "%s: %" PRId64 " is out of range", names[i], sizes[i]);
    }
  }
  return DVT_OK;
}

static DvtCode infer_mel(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 5, 5, reason, size);
  int64_t sizes[3];
  if (code == DVT_OK) code = read_sizes(ctx, sizes, reason, size);
  if (code != DVT_OK) return code;
  const int64_t dims[2] = {sizes[LENGTH] / 2 + 1, sizes[BINS]};
  return dvt_infer_shape(&outputs[0], 2, dims, "Y", reason, size);
}

static DvtCode check_mel(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 5, 5, 1, 1, reason, size);
  if (code == DVT_OK) code = check_number(dvt_output_tensor(ctx, 0), "Y", reason, size);
  for (uint32_t i = LOW; code == DVT_OK && i <= HIGH; ++i) {
    const DvtTensor* edge = dvt_input_tensor(ctx, i);
    if (dvt_dtype_is_float(edge->dtype) && dvt_tensor_elements(edge) == 1) continue;
    return dvt_refuse(reason, size, "input %u: expected one float", i);
  }
  if (code != DVT_OK || dvt_lacks_parameters(ctx, MEL_PARAMETERS)) return code;
  return dvt_check_inferred(ctx, infer_mel, 0, reason, size);
}

/* The spectrum's bin of point `i` between the edges. */
static double bin_of(double low_mel, double step, int64_t i, const int64_t sizes[3]) {
  const double hertz = 700.0 * (pow(10.0, ((double)i * step + low_mel) / 2595.0) - 1.0);
  return floor((double)(sizes[LENGTH] + 1) * hertz / (double)sizes[RATE]);
}

/* Column `column`: a triangle from `lower` over 1 at `centre` to `higher`. */
static void write_triangle(const DvtContext* ctx, int64_t column, double lower, double centre,
                           double higher) {
  const DvtTensor* y = dvt_output_tensor(ctx, 0);
  for (int64_t j = 0; j < y->dims[0]; ++j) {
    const double at = (double)j;
    double value = 0.0;
    if (at >= lower && at <= centre) {
      value = centre == lower ? 1.0 : (at - lower) / (centre - lower);
    }
    if (at >= centre && at < higher) value = (higher - at) / (higher - centre);
    dvt_store_real(dvt_output_data(ctx, 0), y->dtype, j * y->dims[1] + column,
                   dvt_dtype_is_float(y->dtype) ? value : trunc(value));
  }
}

static DvtCode run_mel(void* context) {
  const DvtContext* ctx = context;
  DvtCode code = check_mel(ctx, NULL, 0);
  int64_t sizes[3];
  if (code == DVT_OK) code = read_sizes(ctx, sizes, NULL, 0);
  if (code != DVT_OK) return code;
  double mels[2];
  for (uint32_t i = 0; i < 2; ++i) {
    const double hertz =
        dvt_load_real(dvt_input_data(ctx, LOW + i), dvt_input_tensor(ctx, LOW + i)->dtype, 0);
    mels[i] = 2595.0 * log10(1.0 + hertz / 700.0);
    if (!(fabs(mels[i]) < HUGE_VAL)) return DVT_INVALID_ARGUMENT;
  }
  const double step = (mels[1] - mels[0]) / (double)(sizes[BINS] + 2);
  for (int64_t i = 0; i < sizes[BINS]; ++i) {
    write_triangle(ctx, i, bin_of(mels[0], step, i, sizes), bin_of(mels[0], step, i + 1, sizes),
                   bin_of(mels[0], step, i + 2, sizes));
  }
  return DVT_OK;
}

/* ---- Table ----------------------------------------------------------------------------------- */

static const DvtAttribute window_attributes[] = {
    {"a", offsetof(DvtCosineWindowAttributes, a), 1, 'f'},
    {"b", offsetof(DvtCosineWindowAttributes, b), 1, 'f'},
    {"c", offsetof(DvtCosineWindowAttributes, c), 1, 'f'},
    {"periodic", offsetof(DvtCosineWindowAttributes, periodic), 1, 'i'},
    {"size", offsetof(DvtCosineWindowAttributes, size), 1, 'i'},
};

DvtKernelTable dvt_kernels_signal(void) {
  static const DvtKernel kernels[] = {
      {.name = "CosineWindow",
       .abi_version = DVT_KERNEL_ABI_VERSION,
       .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE,
       .input_max = 1,
       .output_min = 1,
       .output_max = 1,
       .attribute_bytes = sizeof(DvtCosineWindowAttributes),
       .attribute_count = sizeof window_attributes / sizeof(DvtAttribute),
       .attributes = window_attributes,
       .run = run_window,
       .check = check_window,
       .infer = infer_window,
       .host_inputs = WINDOW_PARAMETERS},
      {.name = "MelWeightMatrix",
       .abi_version = DVT_KERNEL_ABI_VERSION,
       .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE,
       .input_min = 5,
       .input_max = 5,
       .output_min = 1,
       .output_max = 1,
       .run = run_mel,
       .check = check_mel,
       .infer = infer_mel,
       .host_inputs = MEL_PARAMETERS},
  };
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
