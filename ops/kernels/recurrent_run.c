/* recurrent_run.c: the layers of LSTM, GRU and RNN in f32 (f16 too) and f64.
 *
 * The f32 products take one of three ways with the same bits, as each element is one sum in
 * ascending order: many rows go through the blocks of gemm.h; R, which every step multiplies by few
 * rows, is packed once; and when there are few rows in all, weights are read in place. */
#include <math.h>

#include "ops/kernels/float_math.h"
#include "ops/kernels/gemm.h"
#include "ops/kernels/recurrent.h"

#define DVT_PASTE(a, b) a##_##b
#define DVT_PASTE_EXPANDED(a, b) DVT_PASTE(a, b)
#define DVT_FN(name) DVT_PASTE_EXPANDED(DVT_SUFFIX, name)

/* Weights W [n,k]; a product is rows [m,k] times W^T. */
typedef struct f32_Matrix {
  int64_t n, k;
  const float* weights;
  const float* panels; /* W^T as gemm.h lays out one block, or NULL. */
  float* workspace;
} f32_Matrix;
typedef struct f64_Matrix {
  int64_t n, k;
  const double* weights;
} f64_Matrix;

/* ---- Operands -------------------------------------------------------------------------------- */

static void f32_load(const void* data, DvtDType dtype, int64_t at, int64_t count, float* to) {
  if (dtype == DVT_F32) {
    if (count > 0) memcpy(to, (const float*)data + at, (size_t)count * sizeof(float));
    return;
  }
  const uint16_t* from = (const uint16_t*)data + at;
  for (int64_t i = 0; i < count; ++i) to[i] = dvt_f32_from_f16(from[i]);
}
/* Zeros when `from` is NULL. */
static void f32_store(void* data, DvtDType dtype, int64_t at, int64_t count, const float* from) {
  char* to = (char*)data + at * dvt_dtype_size(dtype);
  if (from == NULL) {
    memset(to, 0, (size_t)count * dvt_dtype_size(dtype));
  } else if (dtype == DVT_F32) {
    memcpy(to, from, (size_t)count * sizeof(float));
  } else {
    for (int64_t i = 0; i < count; ++i) ((uint16_t*)to)[i] = dvt_f16_from_f32(from[i]);
  }
}
static void f64_load(const void* data, DvtDType dtype, int64_t at, int64_t count, double* to) {
  (void)dtype;
  if (count > 0) memcpy(to, (const double*)data + at, (size_t)count * sizeof(double));
}
static void f64_store(void* data, DvtDType dtype, int64_t at, int64_t count, const double* from) {
  (void)dtype;
  double* to = (double*)data + at;
  if (from == NULL) {
    memset(to, 0, (size_t)count * sizeof(double));
  } else {
    memcpy(to, from, (size_t)count * sizeof(double));
  }
}

/* ---- Products -------------------------------------------------------------------------------- */

typedef float Four __attribute__((vector_size(16)));

static inline Four load_four(const float* from) {
  Four four;
  memcpy(&four, from, sizeof four);
  return four;
}

/* Four rows of four become four columns. */
static inline void transpose_four(const float* from, int64_t row, Four columns[4]) {
  const Four r0 = load_four(from);
  const Four r1 = load_four(from + row);
  const Four r2 = load_four(from + 2 * row);
  const Four r3 = load_four(from + 3 * row);
  const Four low01 = __builtin_shufflevector(r0, r1, 0, 4, 1, 5);
  const Four low23 = __builtin_shufflevector(r2, r3, 0, 4, 1, 5);
  const Four high01 = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
  const Four high23 = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
  columns[0] = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
  columns[1] = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
  columns[2] = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
  columns[3] = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
}

/* y = W a, for one row a. */
static void multiply_in_place(const f32_Matrix* matrix, const float* a, float* y) {
  enum { ROWS = 16 };
  const int64_t k = matrix->k;
  const int64_t whole = k - k % 4;
  int64_t j = 0;
  for (; j + ROWS <= matrix->n; j += ROWS) {
    const float* w = matrix->weights + j * k;
    Four sums[ROWS / 4] = {{0}};
    for (int64_t c = 0; c < whole; c += 4) {
      for (int g = 0; g < ROWS / 4; ++g) {
        Four columns[4];
        transpose_four(w + 4 * g * k + c, k, columns);
        for (int i = 0; i < 4; ++i) sums[g] += columns[i] * a[c + i]; /* Ascending. */
      }
    }
    memcpy(y + j, sums, sizeof sums);
    for (int64_t c = whole; c < k; ++c) {
      for (int i = 0; i < ROWS; ++i) y[j + i] += w[i * k + c] * a[c];
    }
  }
  for (; j < matrix->n; ++j) {
    float sum = 0.0f;
    for (int64_t c = 0; c < k; ++c) sum += matrix->weights[j * k + c] * a[c];
    y[j] = sum;
  }
}

/* y = W a, for one row a and packed weights. */
static void multiply_packed(const f32_Matrix* matrix, const float* a, float* y) {
  enum { FOURS = DVT_GEMM_PANEL / 4 };
  const int64_t k = matrix->k;
  for (int64_t j = 0; j < matrix->n; j += 2 * DVT_GEMM_PANEL) {
    const float* left = matrix->panels + j * k;
    const bool pair = j + DVT_GEMM_PANEL < matrix->n;
    const float* right = pair ? left + DVT_GEMM_PANEL * k : left;
    Four sums[2][FOURS] = {{{0}}};
    for (int64_t c = 0; c < k; ++c) {
      for (int v = 0; v < FOURS; ++v) {
        sums[0][v] += a[c] * load_four(left + c * DVT_GEMM_PANEL + 4 * v);
        sums[1][v] += a[c] * load_four(right + c * DVT_GEMM_PANEL + 4 * v);
      }
    }
    const int64_t rest = matrix->n - j;
    const int64_t width = rest < 2 * DVT_GEMM_PANEL ? rest : 2 * DVT_GEMM_PANEL;
    memcpy(y + j, sums, (size_t)width * sizeof(float));
  }
}

/* Columns of W^T, rows of W, as panels. */
static void pack_transposed(const void* source, int64_t k0, int64_t rows, int64_t j0,
                            int64_t columns, float* panels) {
  const f32_Matrix* matrix = source;
  for (int64_t j = 0; j < columns; j += 4) {
    float* panel = panels + j / DVT_GEMM_PANEL * DVT_GEMM_PANEL * rows + j % DVT_GEMM_PANEL;
    const float* from = matrix->weights + (j0 + j) * matrix->k + k0;
    const int64_t lanes = columns - j < 4 ? columns - j : 4;
    int64_t k = 0;
    for (; lanes == 4 && k + 4 <= rows; k += 4) {
      Four column[4];
      transpose_four(from + k, matrix->k, column);
      for (int i = 0; i < 4; ++i)
        memcpy(panel + (k + i) * DVT_GEMM_PANEL, &column[i], sizeof(Four));
    }
    for (; k < rows; ++k) {
      for (int64_t i = 0; i < lanes; ++i) panel[k * DVT_GEMM_PANEL + i] = from[i * matrix->k + k];
    }
  }
  /* Zeros beyond the last column. */
  const int64_t last = columns / DVT_GEMM_PANEL * DVT_GEMM_PANEL;
  for (int64_t k = 0; last < columns && k < rows; ++k) {
    float* row = panels + last * rows + k * DVT_GEMM_PANEL;
    for (int64_t i = columns - last; i < DVT_GEMM_PANEL; ++i) row[i] = 0.0f;
  }
}

/* y[i * y_row + j] for the m rows of a. */
static void f32_product(const f32_Matrix* matrix, const float* a, int64_t m, float* y,
                        int64_t y_row) {
  enum { FEW_ROWS = 4 };
  const DvtGemm gemm = {.m = m,
                        .n = matrix->n,
                        .k = matrix->k,
                        .a = a,
                        .a_row = matrix->k,
                        .a_column = 1,
                        .pack = pack_transposed,
                        .source = matrix,
                        .c = y,
                        .c_row = y_row};
  if (m >= FEW_ROWS && matrix->panels != NULL) {
    dvt_gemm_block()(&gemm, 0, matrix->k, 0, matrix->n, matrix->panels);
  } else if (m >= FEW_ROWS) {
    dvt_gemm_f32(&gemm, matrix->workspace);
  } else {
    for (int64_t i = 0; i < m; ++i) {
      if (matrix->panels != NULL) {
        multiply_packed(matrix, a + i * matrix->k, y + i * y_row);
      } else {
        multiply_in_place(matrix, a + i * matrix->k, y + i * y_row);
      }
    }
  }
}

static void f64_product(const f64_Matrix* matrix, const double* a, int64_t m, double* y,
                        int64_t y_row) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < matrix->n; ++j) {
      double sum = 0.0;
      for (int64_t k = 0; k < matrix->k; ++k) {
        sum += a[i * matrix->k + k] * matrix->weights[j * matrix->k + k];
      }
      y[i * y_row + j] = sum;
    }
  }
}

/* ---- The layers ------------------------------------------------------------------------------ */

#define DVT_SUFFIX f32
#define T float
#define DVT_MATH(name) name##f
#define DVT_SIGMOID(x) dvt_sigmoid_f32(x)
#define DVT_TANH(x) dvt_tanh_f32(x)
#include "ops/kernels/recurrent_layer.inc"
#undef DVT_SUFFIX
#undef T
#undef DVT_MATH
#undef DVT_SIGMOID
#undef DVT_TANH

#define DVT_SUFFIX f64
#define T double
#define DVT_MATH(name) name
#define DVT_SIGMOID(x) (1.0 / (1.0 + exp(-(x))))
#define DVT_TANH(x) tanh(x)
#include "ops/kernels/recurrent_layer.inc"

/* ---- Weights --------------------------------------------------------------------------------- */

enum { PACK_ROWS = 16 }; /* As many rows must R multiply before packing it pays. */

/* Packs `matrix` at `panels`; returns the end of the panels. */
static float* pack_whole(f32_Matrix* matrix, float* panels) {
  pack_transposed(matrix, 0, matrix->k, 0, matrix->n, panels);
  matrix->panels = panels;
  return panels + (matrix->n + DVT_GEMM_PANEL - 1) / DVT_GEMM_PANEL * DVT_GEMM_PANEL * matrix->k;
}

/* The weights of direction `d`, [rows, columns]; widened at `copy` if they are halves. */
static const float* weights_of(const DvtContext* ctx, uint32_t input, DvtDType dtype, int64_t d,
                               int64_t elements, char* copy) {
  const void* data = dvt_input_data(ctx, input);
  if (dtype == DVT_F32) return (const float*)data + d * elements;
  f32_load(data, dtype, d * elements, elements, (float*)copy);
  return (const float*)copy;
}

static void f32_bind_weights(f32_Layer* layer, const DvtContext* ctx, const DvtRecurrentPlan* plan,
                             DvtDType dtype, int64_t d, char* workspace) {
  const DvtRecurrence* shape = layer->shape;
  const int64_t h = shape->hidden;
  const int64_t width = shape->gates * h;
  const float* w =
      weights_of(ctx, DVT_RECURRENT_W, dtype, d, width * shape->inputs, workspace + plan->w);
  const float* r = weights_of(ctx, DVT_RECURRENT_R, dtype, d, width * h, workspace + plan->r);
  float* gemm = (float*)(workspace + plan->gemm);
  const int64_t n = shape->gates == 3 ? 2 * h : width;
  layer->w = (f32_Matrix){.n = width, .k = shape->inputs, .weights = w, .workspace = gemm};
  layer->r = (f32_Matrix){.n = n, .k = h, .weights = r, .workspace = gemm};
  layer->r_hidden = (f32_Matrix){.n = width - n, .k = h, .weights = r + n * h, .workspace = gemm};
  if (shape->steps * shape->batch < PACK_ROWS) return;
  float* end = pack_whole(&layer->r, (float*)(workspace + plan->panels));
  if (shape->gates == 3) pack_whole(&layer->r_hidden, end);
}

static void f64_bind_weights(f64_Layer* layer, const DvtContext* ctx, const DvtRecurrentPlan* plan,
                             DvtDType dtype, int64_t d, char* workspace) {
  (void)plan;
  (void)dtype;
  (void)workspace;
  const DvtRecurrence* shape = layer->shape;
  const int64_t h = shape->hidden;
  const int64_t width = shape->gates * h;
  const double* w = dvt_input_data(ctx, DVT_RECURRENT_W);
  const double* r = (const double*)dvt_input_data(ctx, DVT_RECURRENT_R) + d * width * h;
  const int64_t n = shape->gates == 3 ? 2 * h : width;
  layer->w = (f64_Matrix){.n = width, .k = shape->inputs, .weights = w + d * width * shape->inputs};
  layer->r = (f64_Matrix){.n = n, .k = h, .weights = r};
  layer->r_hidden = (f64_Matrix){.n = width - n, .k = h, .weights = r + n * h};
}

DvtCode dvt_recurrent_run_f32(const DvtContext* ctx, const DvtRecurrence* recurrence,
                              const DvtRecurrentPlan* plan) {
  return f32_run(ctx, recurrence, plan);
}
DvtCode dvt_recurrent_run_f64(const DvtContext* ctx, const DvtRecurrence* recurrence,
                              const DvtRecurrentPlan* plan) {
  return f64_run(ctx, recurrence, plan);
}
