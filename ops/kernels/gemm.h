/* gemm.h: the one blocked f32 matrix product that Conv, MatMul and Gemm share.
 *
 *   C[i,j] = sum over k of A[i,k] * B[k,j]  (+ bias[i])
 *
 * Each element of C has one accumulator that starts at +0 and takes its products in ascending k,
 * each product and sum rounded to float; the bias comes last. Blocking only decides when this
 * happens, never in which order, so any implementation that keeps the order gives the same bits.
 *
 * B is not read in place: the caller's `pack` lays out one block of it at a time as panels of
 * DVT_GEMM_PANEL columns, which is where a convolution unfolds its input and a transposed B turns:
 *
 *   panel 0                          panel 1
 *   | k=0: 16 columns | k=1: ... |   | k=0: next 16 columns | ... |   zeros beyond the last column
 *
 * Threads  Pure functions of their arguments.
 * Trust    Callers have checked every extent; strides are in elements and must not leave A and C.
 * Memory   `workspace` is the caller's, DVT_GEMM_WORKSPACE_BYTES long, aligned to a float.
 */
#pragma once

#include "davit/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  DVT_GEMM_PANEL = 16,    /* Columns of a packed panel: the width of the register block. */
  DVT_GEMM_BLOCK_K = 256, /* Rows of a packed block: a panel of 16 KiB stays in the L1 cache ... */
  DVT_GEMM_BLOCK_N = 256, /* ... and all panels of a block, 256 KiB, in the L2 cache. */
  DVT_GEMM_WORKSPACE_BYTES = DVT_GEMM_BLOCK_K * DVT_GEMM_BLOCK_N * 4,
};

/* Writes B[k0..k0+rows) x [j0..j0+columns) as panels of `rows` x DVT_GEMM_PANEL floats. */
typedef void (*DvtGemmPackFn)(const void* source, int64_t k0, int64_t rows, int64_t j0,
                              int64_t columns, float* panels);

/* A B in memory: B[k,j] = b[k * row + j * column]. `source` of dvt_gemm_pack_strided(). */
typedef struct DvtGemmOperand {
  const float* b;
  int64_t row, column;
} DvtGemmOperand;
void dvt_gemm_pack_strided(const void* source, int64_t k0, int64_t rows, int64_t j0,
                           int64_t columns, float* panels);

typedef struct DvtGemm {
  int64_t m, n, k;
  const float* a;
  int64_t a_row, a_column; /* A[i,k] = a[i * a_row + k * a_column]. */
  DvtGemmPackFn pack;
  const void* source; /* Handed to pack(). */
  const float* bias;  /* One per row of C, or NULL. */
  float* c;           /* C[i,j] = c[i * c_row + j]. */
  int64_t c_row;
} DvtGemm;

void dvt_gemm_f32(const DvtGemm* gemm, float* workspace);

/* One packed block: adds rows k0.. of B, in `panels`, to columns j0.. of all of C. Starts the sums
 * when k0 is 0 and adds the bias when the block holds the last row. One implementation per vector
 * width, all with the same bits (gemm_block.h). */
typedef void (*DvtGemmBlockFn)(const DvtGemm* gemm, int64_t k0, int64_t rows, int64_t j0,
                               int64_t columns, const float* panels);
void dvt_gemm_block_generic(const DvtGemm* gemm, int64_t k0, int64_t rows, int64_t j0,
                            int64_t columns, const float* panels);
void dvt_gemm_block_avx2(const DvtGemm* gemm, int64_t k0, int64_t rows, int64_t j0, int64_t columns,
                         const float* panels);
void dvt_gemm_block_avx512(const DvtGemm* gemm, int64_t k0, int64_t rows, int64_t j0,
                           int64_t columns, const float* panels);

/* The widest one that this build has and this processor runs. */
DvtGemmBlockFn dvt_gemm_block(void);

#ifdef __cplusplus
} /* extern "C" */
#endif
