#include "ops/kernels/fft.h"

#include <math.h>
#include <string.h>

#define PI 3.14159265358979323846

static bool is_power_of_two(int64_t n) {
  return (n & (n - 1)) == 0;
}

static int64_t size_for(int64_t n) {
  if (is_power_of_two(n)) return n;
  int64_t size = 1;
  while (size < 2 * n - 1) size *= 2;
  return size;
}

int64_t dvt_fft_workspace_doubles(int64_t n) {
  const int64_t size = size_for(n);
  return size == n ? size : size + 2 * n + 4 * size; /* Roots; chirp, spectrum, work. */
}

/* Radix 2, decimation in time. */
static void transform(int64_t size, const double* roots, double* data) {
  for (int64_t i = 1, j = 0; i < size; ++i) { /* Bit-reversed order. */
    int64_t bit = size / 2;
    for (; (j & bit) != 0; bit /= 2) j ^= bit;
    j ^= bit;
    if (i >= j) continue;
    for (int part = 0; part < 2; ++part) {
      const double other = data[2 * i + part];
      data[2 * i + part] = data[2 * j + part];
      data[2 * j + part] = other;
    }
  }
  for (int64_t half = 1; half < size; half *= 2) {
    const int64_t step = size / (2 * half);
    for (int64_t begin = 0; begin < size; begin += 2 * half) {
      for (int64_t k = 0; k < half; ++k) {
        double* low = data + 2 * (begin + k);
        double* high = low + 2 * half;
        const double real = roots[2 * k * step];
        const double imaginary = roots[2 * k * step + 1];
        const double x = high[0] * real - high[1] * imaginary;
        const double y = high[0] * imaginary + high[1] * real;
        high[0] = low[0] - x;
        high[1] = low[1] - y;
        low[0] += x;
        low[1] += y;
      }
    }
  }
}

static void conjugate(double* data, int64_t count) {
  for (int64_t i = 0; i < count; ++i) data[2 * i + 1] = -data[2 * i + 1];
}

DvtFft dvt_fft_prepare(int64_t n, double* workspace) {
  const int64_t size = size_for(n);
  double* roots = workspace;
  for (int64_t k = 0; k < size / 2; ++k) {
    const double angle = -2.0 * PI * (double)k / (double)size;
    roots[2 * k] = cos(angle);
    roots[2 * k + 1] = sin(angle);
  }
  if (size == n) return (DvtFft){.n = n, .size = n, .roots = roots};
  double* chirp = roots + size;
  double* spectrum = chirp + 2 * n;
  memset(spectrum, 0, (size_t)(2 * size) * sizeof(double));
  for (int64_t k = 0; k < n; ++k) {
    /* k^2 modulo 2 n, so that the angle stays small and exact. */
    const double angle = -PI * (double)(k * k % (2 * n)) / (double)n;
    chirp[2 * k] = cos(angle);
    chirp[2 * k + 1] = sin(angle);
    for (int side = 0; side < 2; ++side) { /* The conjugate, at k and -k. */
      const int64_t at = side == 0 || k == 0 ? k : size - k;
      spectrum[2 * at] = chirp[2 * k];
      spectrum[2 * at + 1] = -chirp[2 * k + 1];
    }
  }
  transform(size, roots, spectrum);
  return (DvtFft){.n = n,
                  .size = size,
                  .roots = roots,
                  .chirp = chirp,
                  .spectrum = spectrum,
                  .work = spectrum + 2 * size};
}

/* X[k] = chirp[k] * (x chirp convolved with the chirp's conjugate)[k]. */
static void bluestein(const DvtFft* fft, double* data) {
  double* work = fft->work;
  memset(work, 0, (size_t)(2 * fft->size) * sizeof(double));
  for (int64_t i = 0; i < fft->n; ++i) {
    const double real = fft->chirp[2 * i];
    const double imaginary = fft->chirp[2 * i + 1];
    work[2 * i] = data[2 * i] * real - data[2 * i + 1] * imaginary;
    work[2 * i + 1] = data[2 * i] * imaginary + data[2 * i + 1] * real;
  }
  transform(fft->size, fft->roots, work);
  for (int64_t i = 0; i < fft->size; ++i) {
    const double real =
        work[2 * i] * fft->spectrum[2 * i] - work[2 * i + 1] * fft->spectrum[2 * i + 1];
    const double imaginary =
        work[2 * i] * fft->spectrum[2 * i + 1] + work[2 * i + 1] * fft->spectrum[2 * i];
    work[2 * i] = real;
    work[2 * i + 1] = -imaginary; /* The inverse is the conjugate of the conjugate's transform. */
  }
  transform(fft->size, fft->roots, work);
  const double scale = 1.0 / (double)fft->size;
  for (int64_t i = 0; i < fft->n; ++i) {
    const double x = work[2 * i] * scale;
    const double y = -work[2 * i + 1] * scale;
    data[2 * i] = x * fft->chirp[2 * i] - y * fft->chirp[2 * i + 1];
    data[2 * i + 1] = x * fft->chirp[2 * i + 1] + y * fft->chirp[2 * i];
  }
}

void dvt_fft_run(const DvtFft* fft, double* data, bool inverse) {
  if (inverse) conjugate(data, fft->n);
  if (fft->size == fft->n) {
    transform(fft->n, fft->roots, data);
  } else {
    bluestein(fft, data);
  }
  if (inverse) conjugate(data, fft->n);
}
