/* prelude.h: what all generated kernels share. This text stands at the top of every generated file,
 * behind those of davit/types.h and davit/kernel.h; LANES is the number of f32 in a vector.
 *
 * Threads  Pure functions of their arguments.
 * Memory   Nothing is allocated; workspaces are outputs of the node.
 */
#include <math.h>
#include <string.h>

typedef float Vector __attribute__((vector_size(LANES * 4)));
typedef int32_t Mask __attribute__((vector_size(LANES * 4)));
/* The same at any address of a float. */
typedef float VectorAt __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

static inline Vector load(const float* from) {
  return *(const VectorAt*)from;
}
static inline void store(float* to, Vector value) {
  *(VectorAt*)to = value;
}

static inline const float* input_at(const DvtContext* ctx, uint32_t index) {
  return (const float*)dvt_input(ctx, index)->data;
}
static inline float* output_at(const DvtContext* ctx, uint32_t index) {
  return (float*)dvt_output(ctx, index)->data;
}

/* ---- Checks -------------------------------------------------------------------------------- */

typedef struct Operand {
  uint8_t dtype, rank;
  int64_t dims[DVT_MAX_RANK];
} Operand;

static inline void refuse(char* reason, size_t size, const char* text) {
  if (reason == NULL || size == 0) return;
  const size_t length = strlen(text) < size ? strlen(text) : size - 1;
  memcpy(reason, text, length);
  reason[length] = '\0';
}

/* A kernel is made for one shape of each operand. */
static inline int is_operand(const DvtTensor* tensor, const Operand* operand) {
  return tensor != NULL && tensor->dtype == operand->dtype && tensor->rank == operand->rank &&
         memcmp(tensor->dims, operand->dims, sizeof operand->dims) == 0;
}

static inline DvtCode check_operands(const DvtContext* ctx, const Operand* operands,
                                     uint32_t inputs, uint32_t outputs, char* reason, size_t size) {
  if (ctx->input_count != inputs || ctx->output_count != outputs) {
    refuse(reason, size, "a generated kernel with another number of operands");
    return DVT_INVALID_IMAGE;
  }
  for (uint32_t i = 0; i < inputs + outputs; ++i) {
    const DvtCell* cell = ctx->cells[i];
    if (is_operand(cell == NULL ? NULL : cell->tensor, &operands[i])) continue;
    refuse(reason, size, "a generated kernel with an operand of another shape or type");
    return DVT_INVALID_IMAGE;
  }
  return DVT_OK;
}

/* In a graph with dynamic shapes: this kernel's are not. */
static inline DvtCode infer_operands(const DvtContext* ctx, const Operand* operands,
                                     uint32_t inputs, uint32_t outputs, DvtTensor* tensors,
                                     char* reason, size_t size) {
  for (uint32_t i = 0; i < inputs; ++i) {
    const DvtCell* cell = i < ctx->input_count ? dvt_input(ctx, i) : NULL;
    if (is_operand(cell == NULL ? NULL : cell->tensor, &operands[i])) continue;
    refuse(reason, size, "a generated kernel with an operand of another shape or type");
    return DVT_INVALID_ARGUMENT;
  }
  for (uint32_t i = 0; i < outputs && i < ctx->output_count; ++i) {
    const DvtCode code =
        dvt_set_shape(&tensors[i], operands[inputs + i].rank, operands[inputs + i].dims);
    if (code != DVT_OK) return code;
  }
  return DVT_OK;
}

/* ---- Functions of steps --------------------------------------------------------------------
 * Without branches, so that loops over them become vectors. NaN stays NaN. */

static inline float step_min(float a, float b) {
  return a != a ? a : b != b ? b : a < b ? a : b;
}
static inline float step_max(float a, float b) {
  return a != a ? a : b != b ? b : a > b ? a : b;
}
static inline float step_clip(float y, float low, float high) {
  y = y < low ? low : y;
  return y > high ? high : y;
}

/* Cephes expf: 2^n * p(r), |r| <= ln 2 / 2; relative error below 2^-22. What would be denormal is
 * 0. */
static inline float step_exp(float x) {
  float y = x > -87.3365447f ? x : -87.3365447f; /* Also of NaN. */
  y = y > 88.7228394f ? 88.7228394f : y;
  float n = __builtin_rintf(y * 1.44269504088896341f);
  n = n > 127.0f ? 127.0f : n;
  float r = y - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const int32_t exponent = ((int32_t)n + 127) << 23;
  float power;
  memcpy(&power, &exponent, sizeof power);
  float result = p * power;
  result = x > 88.7228394f ? __builtin_inff() : result;
  result = x < -87.3365447f ? 0.0f : result;
  return x != x ? x : result;
}

static inline float step_sigmoid(float x) {
  return 1.0f / (1.0f + step_exp(-x));
}

/* Rational of degree 13 over 6 on [-7.9, 7.9], as in Eigen (generic_fast_tanh_float). */
static inline float step_tanh(float x) {
  float y = x > 7.90531110763549805f ? 7.90531110763549805f : x;
  y = y < -7.90531110763549805f ? -7.90531110763549805f : y;
  const float s = y * y;
  float p = -2.76076847742355e-16f;
  p = p * s + 2.00018790482477e-13f;
  p = p * s + -8.60467152213735e-11f;
  p = p * s + 5.12229709037114e-08f;
  p = p * s + 1.48572235717979e-05f;
  p = p * s + 6.37261928875436e-04f;
  p = p * s + 4.89352455891786e-03f;
  float q = 1.19825839466702e-06f;
  q = q * s + 1.18534705686654e-04f;
  q = q * s + 2.26843463243900e-03f;
  q = q * s + 4.89352518554385e-03f;
  const float result = y * p / q;
  return x != x ? x : result;
}

/* Rational of degree 13 over 8 on [-4, 4], as in Eigen (generic_fast_erf_float). */
static inline float step_erf(float x) {
  float y = x > 4.0f ? 4.0f : x;
  y = y < -4.0f ? -4.0f : y;
  const float s = y * y;
  float p = -2.72614225801306e-10f;
  p = p * s + 2.77068142495902e-08f;
  p = p * s + -2.10102402082508e-06f;
  p = p * s + -5.69250639462346e-05f;
  p = p * s + -7.34990630326855e-04f;
  p = p * s + -2.95459980854025e-03f;
  p = p * s + -1.60960333262415e-02f;
  float q = -1.45660718464996e-05f;
  q = q * s + -2.13374055278905e-04f;
  q = q * s + -1.68282697438203e-03f;
  q = q * s + -7.37332916720468e-03f;
  q = q * s + -1.42647390514189e-02f;
  const float result = y * p / q;
  return x != x ? x : result;
}

static inline float step_gelu(float x) {
  return 0.5f * x * (1.0f + step_erf(x * 0.70710678118654752f));
}
static inline float step_gelu_tanh(float x) {
  const float inner = 0.79788456080286536f * (x + 0.044715f * x * x * x);
  return 0.5f * x * (1.0f + step_tanh(inner));
}
static inline float step_hard_sigmoid(float x, float alpha, float beta) {
  return step_clip(alpha * x + beta, 0.0f, 1.0f);
}
static inline float step_hard_swish(float x) {
  return x * step_hard_sigmoid(x, 1.0f / 6.0f, 0.5f);
}

/* ---- Pools and rows -------------------------------------------------------------------------- */

/* NaN when one of them is. */
static inline float pool_max(float a, float b) {
  return ((b > a) | (b != b)) ? b : a;
}
static inline Vector pool_max_vector(Vector a, Vector b) {
  const Mask is_b = (b > a) | (b != b);
  return (Vector)((is_b & (Mask)b) | (~is_b & (Mask)a));
}

static inline float row_sum(const float* x, int64_t count) {
  Vector lanes = {0};
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) lanes += load(x + i);
  float sums[LANES];
  store(sums, lanes);
  for (int64_t half = LANES / 2; half > 0; half /= 2) {
    for (int64_t j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  for (; i < count; ++i) sums[0] += x[i];
  return sums[0];
}

/* Of what is not NaN; the lowest value when nothing is. */
static inline float row_max(const float* x, int64_t count) {
  float most[LANES];
  for (int64_t j = 0; j < LANES; ++j) most[j] = -__builtin_inff();
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) {
    for (int64_t j = 0; j < LANES; ++j) most[j] = x[i + j] > most[j] ? x[i + j] : most[j];
  }
  for (; i < count; ++i) most[0] = x[i] > most[0] ? x[i] : most[0];
  for (int64_t j = 1; j < LANES; ++j) most[0] = most[j] > most[0] ? most[j] : most[0];
  return most[0];
}

/* ---- Planes of convolutions ------------------------------------------------------------------
 * A line of a plane: every `stride`-th float in [begin, end), which the input has; else 0. */

static inline __attribute__((always_inline)) void fill_line(const float* from, float* to,
                                                            int64_t begin, int64_t end,
                                                            int64_t width, int64_t stride) {
  for (int64_t x = 0; x < begin; ++x) to[x] = 0.0f;
  if (stride == 1) {
    memcpy(to + begin, from, (size_t)(end - begin) * sizeof(float));
  } else {
    for (int64_t x = begin; x < end; ++x) to[x] = from[(x - begin) * stride];
  }
  for (int64_t x = end; x < width; ++x) to[x] = 0.0f;
}

/* ---- Winograd's F(4, 3) ----------------------------------------------------------------------
 * Points 0, +-a, +-b and infinity; all constants are exact floats. */

static const float winograd_a = 0.625f;
static const float winograd_b = 1.5f;

static inline void winograd_input_line(const Vector* d, Vector* v) {
  const float a2 = winograd_a * winograd_a;
  const float b2 = winograd_b * winograd_b;
  const Vector even_a = d[4] - b2 * d[2];
  const Vector odd_a = winograd_a * (d[3] - b2 * d[1]);
  const Vector even_b = d[4] - a2 * d[2];
  const Vector odd_b = winograd_b * (d[3] - a2 * d[1]);
  v[0] = d[4] - (a2 + b2) * d[2] + a2 * b2 * d[0];
  v[1] = even_a + odd_a;
  v[2] = even_a - odd_a;
  v[3] = even_b + odd_b;
  v[4] = even_b - odd_b;
  v[5] = d[5] - (a2 + b2) * d[3] + a2 * b2 * d[1];
}

/* 6x6 positions of LANES channels, lines `step` apart, to 36 places `plane` apart. */
static inline void winograd_input(const float* x, int64_t step, float* to, int64_t plane) {
  Vector half[6][6];
  for (int j = 0; j < 6; ++j) {
    Vector d[6];
    Vector v[6];
    for (int i = 0; i < 6; ++i) d[i] = load(x + i * step + j * LANES);
    winograd_input_line(d, v);
    for (int i = 0; i < 6; ++i) half[i][j] = v[i];
  }
  for (int i = 0; i < 6; ++i) {
    Vector v[6];
    winograd_input_line(half[i], v);
    for (int j = 0; j < 6; ++j) store(to + (i * 6 + j) * plane, v[j]);
  }
}

static inline void winograd_output_line(const Vector* m, Vector* y) {
  const float a2 = winograd_a * winograd_a;
  const float b2 = winograd_b * winograd_b;
  const Vector even_a = m[1] + m[2];
  const Vector odd_a = winograd_a * (m[1] - m[2]);
  const Vector even_b = m[3] + m[4];
  const Vector odd_b = winograd_b * (m[3] - m[4]);
  y[0] = m[0] + even_a + even_b;
  y[1] = odd_a + odd_b;
  y[2] = a2 * even_a + b2 * even_b;
  y[3] = m[5] + a2 * odd_a + b2 * odd_b;
}

/* 36 places `plane` apart to 4x4 positions of LANES channels, lines `step` apart. The result is 0
 * where all positions are finite, else NaN. */
static inline Vector winograd_output(const float* sums, int64_t plane, float* to, int64_t step) {
  Vector half[4][6];
  for (int j = 0; j < 6; ++j) {
    Vector m[6];
    Vector y[4];
    for (int i = 0; i < 6; ++i) m[i] = load(sums + (i * 6 + j) * plane);
    winograd_output_line(m, y);
    for (int i = 0; i < 4; ++i) half[i][j] = y[i];
  }
  Vector check = {0};
  for (int i = 0; i < 4; ++i) {
    Vector y[4];
    winograd_output_line(half[i], y);
    for (int j = 0; j < 4; ++j) store(to + i * step + j * LANES, y[j]);
    check += y[0] * 0.0f + y[1] * 0.0f + (y[2] * 0.0f + y[3] * 0.0f);
  }
  return check;
}

static inline int is_zero(Vector value) {
  float sum = 0.0f;
  for (int i = 0; i < LANES; ++i) sum += value[i];
  return sum == 0.0f;
}
