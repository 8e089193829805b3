#include "ops/kernels/tfidf.h"

#include <inttypes.h>

#include "ops/kernels/kernels.h"
#include "ops/kernels/shape.h"

enum { X = 0, POOL = 1, STARTS = 2, PLACES = 3, WEIGHTS = 4 };

static DvtCode infer_tfidf(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 4, 5, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtTfIdfAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, X);
  if (x->rank != 1 && x->rank != 2) return dvt_refuse(reason, size, "rank %u of X", x->rank);
  const int64_t dims[2] = {x->rank == 2 ? x->dims[0] : attributes->width, attributes->width};
  return dvt_infer_shape(&outputs[0], x->rank, dims, "Y", reason, size);
}

/* The tables' values belong together: n-grams of whole length, and a place in Y for each. */
static DvtCode check_tables(const DvtContext* ctx, char* reason, size_t size) {
  const DvtTfIdfAttributes* attributes = ctx->attributes;
  const int64_t numbers = dvt_tensor_elements(dvt_input_tensor(ctx, POOL));
  const int64_t lengths = dvt_tensor_elements(dvt_input_tensor(ctx, STARTS));
  const int64_t* starts = dvt_input_data(ctx, STARTS);
  const int64_t* places = dvt_input_data(ctx, PLACES);
  int64_t grams = 0;
  for (int64_t n = 1; n <= lengths; ++n) {
    const int64_t end = n < lengths ? starts[n] : numbers;
    if (starts[n - 1] < 0 || starts[n - 1] > end || end > numbers ||
        (end - starts[n - 1]) % n != 0) {
      return dvt_refuse(reason, size, "the pool has no whole %" PRId64 "-grams", n);
    }
    grams += (end - starts[n - 1]) / n;
  }
  if (grams != dvt_tensor_elements(dvt_input_tensor(ctx, PLACES)) ||
      (lengths > 0 && starts[0] != 0)) {
    return dvt_refuse(reason, size, "%" PRId64 " n-grams and %" PRId64 " places", grams,
                      dvt_tensor_elements(dvt_input_tensor(ctx, PLACES)));
  }
  for (int64_t i = 0; i < grams; ++i) {
    if (places[i] >= 0 && places[i] < attributes->width) continue;
    return dvt_refuse(reason, size, "place %" PRId64 " is not within %" PRId64, places[i],
                      attributes->width);
  }
  return DVT_OK;
}

static DvtCode check_tfidf(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 4, 5, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtDType x = dvt_input_tensor(ctx, X)->dtype;
  if (x != DVT_I32 && x != DVT_I64) return dvt_refuse(reason, size, "X: expected i32 or i64");
  code = dvt_check_dtypes(ctx, 1u << POOL | 1u << STARTS | 1u << PLACES, 0, DVT_I64, reason, size);
  if (code == DVT_OK) code = dvt_check_dtypes(ctx, 1u << WEIGHTS, 1, DVT_F32, reason, size);
  for (uint32_t i = POOL; code == DVT_OK && i < ctx->input_count; ++i) {
    if (dvt_has_input(ctx, i) && dvt_input_tensor(ctx, i)->rank != 1) {
      code = dvt_refuse(reason, size, "input %u: expected rank 1", i);
    }
  }
  if (code == DVT_OK && dvt_has_input(ctx, WEIGHTS)) {
    code = dvt_check_same_shape(dvt_input_tensor(ctx, PLACES), dvt_input_tensor(ctx, WEIGHTS),
                                "weights", reason, size);
  }
  const DvtTfIdfAttributes* attributes = ctx->attributes;
  if (code == DVT_OK &&
      (attributes->mode < 0 || attributes->mode > DVT_TFIDF_TFIDF || attributes->min_length < 1 ||
       attributes->max_length < attributes->min_length || attributes->max_skip < 0)) {
    code = dvt_refuse(reason, size, "mode, lengths or skips are out of range");
  }
  return code == DVT_OK ? dvt_check_inferred(ctx, infer_tfidf, 0, reason, size) : code;
}

/* One row of X. */
typedef struct Row {
  const void* x;
  bool wide; /* i64, not i32. */
  int64_t begin, count;
} Row;

static inline int64_t number_at(const Row* row, int64_t index) {
  return row->wide ? ((const int64_t*)row->x)[row->begin + index]
                   : ((const int32_t*)row->x)[row->begin + index];
}

/* How often the n-gram occurs, at distances of 1 to `skips` + 1. */
static int64_t occurrences(const Row* row, const int64_t* gram, int64_t n, int64_t skips) {
  int64_t found = 0;
  for (int64_t skip = 0; skip <= skips; ++skip) {
    const int64_t distance = skip + 1;
    if (n > 1 && distance > (row->count - 1) / (n - 1)) break; /* It would leave the row. */
    const int64_t reach = (n - 1) * distance;
    for (int64_t i = 0; i + reach < row->count; ++i) {
      int64_t k = 0;
      while (k < n && number_at(row, i + k * distance) == gram[k]) ++k;
      found += k == n ? 1 : 0;
    }
    if (n == 1) break;
  }
  return found;
}

static void count_row(const DvtContext* ctx, const Row* row, float* y) {
  const DvtTfIdfAttributes* attributes = ctx->attributes;
  const int64_t numbers = dvt_tensor_elements(dvt_input_tensor(ctx, POOL));
  const int64_t lengths = dvt_tensor_elements(dvt_input_tensor(ctx, STARTS));
  const int64_t* pool = dvt_input_data(ctx, POOL);
  const int64_t* starts = dvt_input_data(ctx, STARTS);
  const int64_t* places = dvt_input_data(ctx, PLACES);
  const float* weights = dvt_has_input(ctx, WEIGHTS) ? dvt_input_data(ctx, WEIGHTS) : NULL;
  int64_t gram = 0;
  for (int64_t n = 1; n <= lengths; ++n) {
    const int64_t end = n < lengths ? starts[n] : numbers;
    for (int64_t at = starts[n - 1]; at < end; at += n, ++gram) {
      if (n < attributes->min_length || n > attributes->max_length || n > row->count) continue;
      const int64_t found = occurrences(row, pool + at, n, attributes->max_skip);
      if (found == 0) continue;
      const float weight = weights == NULL ? 1.0f : weights[gram];
      y[places[gram]] += attributes->mode == DVT_TFIDF_TF    ? (float)found
                         : attributes->mode == DVT_TFIDF_IDF ? weight
                                                             : (float)found * weight;
    }
  }
}

static DvtCode run_tfidf(void* context) {
  const DvtContext* ctx = context;
  const DvtCode code = check_tables(ctx, NULL, 0);
  if (code != DVT_OK) return code;
  const DvtTfIdfAttributes* attributes = ctx->attributes;
  const DvtTensor* x = dvt_input_tensor(ctx, X);
  const DvtTensor* y = dvt_output_tensor(ctx, 0);
  if (y->bytes == 0) return DVT_OK;
  memset(dvt_output_data(ctx, 0), 0, y->bytes);
  const int64_t count = x->dims[x->rank - 1];
  for (int64_t r = 0; r < dvt_tensor_elements(y) / attributes->width; ++r) {
    const Row row = {.x = dvt_input_data(ctx, X),
                     .wide = x->dtype == DVT_I64,
                     .begin = r * count,
                     .count = count};
    count_row(ctx, &row, (float*)dvt_output_data(ctx, 0) + r * attributes->width);
  }
  return DVT_OK;
}

static const DvtAttribute tfidf_attributes[] = {
    {"mode", offsetof(DvtTfIdfAttributes, mode), 1, 'i'},
    {"min_length", offsetof(DvtTfIdfAttributes, min_length), 1, 'i'},
    {"max_length", offsetof(DvtTfIdfAttributes, max_length), 1, 'i'},
    {"max_skip", offsetof(DvtTfIdfAttributes, max_skip), 1, 'i'},
    {"width", offsetof(DvtTfIdfAttributes, width), 1, 'i'},
};

DvtKernelTable dvt_kernels_tfidf(void) {
  static const DvtKernel kernels[] = {
      {.name = "TfIdfVectorizer",
       .abi_version = DVT_KERNEL_ABI_VERSION,
       .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE,
       .input_min = 4,
       .input_max = 5,
       .output_min = 1,
       .output_max = 1,
       .attribute_bytes = sizeof(DvtTfIdfAttributes),
       .attribute_count = sizeof tfidf_attributes / sizeof(DvtAttribute),
       .attributes = tfidf_attributes,
       .run = run_tfidf,
       .check = check_tfidf,
       .infer = infer_tfidf},
  };
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
