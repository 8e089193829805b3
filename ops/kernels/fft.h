/* fft.h: the discrete Fourier transform of any length, in double.
 *
 *   X[k] = sum over i of x[i] * e^(-2 pi I i k / n)   (e^(+...) for the inverse, without 1 / n)
 *
 * A power of two is transformed in place, radix 2; any other length as a convolution of chirps
 * (Bluestein, 1970) with transforms of a power of two. Either way the work grows as n log n.
 *
 * Threads  Pure functions of their arguments.
 * Trust    1 <= n <= DVT_FFT_MAX.
 * Memory   The workspace is the caller's: dvt_fft_workspace_doubles() of them. dvt_fft_prepare()
 * fills it for one length; dvt_fft_run() needs it unchanged, and uses some of it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DVT_FFT_MAX (INT64_C(1) << 30)

typedef struct DvtFft {
  int64_t n;
  int64_t size;           /* The power of two that is transformed; n if n is one. */
  const double* roots;    /* [size / 2] complex: e^(-2 pi I k / size). */
  const double* chirp;    /* [n] complex: e^(-pi I k^2 / n); not for powers of two ... */
  const double* spectrum; /* ... nor this: [size] complex, that of the chirp's conjugate. */
  double* work;           /* [size] complex. */
} DvtFft;

int64_t dvt_fft_workspace_doubles(int64_t n);
DvtFft dvt_fft_prepare(int64_t n, double* workspace);
/* Transforms n interleaved complex numbers in place. */
void dvt_fft_run(const DvtFft* fft, double* data, bool inverse);

#ifdef __cplusplus
} /* extern "C" */
#endif
