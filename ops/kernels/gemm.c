#include "ops/kernels/gemm.h"

#include <string.h>

DvtGemmBlockFn dvt_gemm_block(void) {
#if defined(DVT_HAVE_AVX_BLOCKS)
  if (__builtin_cpu_supports("avx512f")) return dvt_gemm_block_avx512;
  if (__builtin_cpu_supports("avx2")) return dvt_gemm_block_avx2;
#endif
  return dvt_gemm_block_generic;
}

/* C = bias, when there is nothing to sum. */
static void fill_bias(const DvtGemm* gemm) {
  for (int64_t i = 0; i < gemm->m; ++i) {
    float* row = gemm->c + i * gemm->c_row;
    const float value = 0.0f + (gemm->bias == NULL ? 0.0f : gemm->bias[i]);
    for (int64_t j = 0; j < gemm->n; ++j) row[j] = value;
  }
}

void dvt_gemm_pack_strided(const void* source, int64_t k0, int64_t rows, int64_t j0,
                           int64_t columns, float* panels) {
  const DvtGemmOperand* operand = source;
  for (int64_t j = 0; j < columns; j += DVT_GEMM_PANEL) {
    const int64_t width = columns - j < DVT_GEMM_PANEL ? columns - j : DVT_GEMM_PANEL;
    for (int64_t k = 0; k < rows; ++k) {
      const float* from = operand->b + (k0 + k) * operand->row + (j0 + j) * operand->column;
      float* to = panels + j * rows + k * DVT_GEMM_PANEL;
      memset(to, 0, DVT_GEMM_PANEL * sizeof(float));
      if (operand->column == 1) {
        memcpy(to, from, (size_t)width * sizeof(float));
      } else {
        for (int64_t lane = 0; lane < width; ++lane) to[lane] = from[lane * operand->column];
      }
    }
  }
}

void dvt_gemm_f32(const DvtGemm* gemm, float* workspace) {
  if (gemm->k == 0) {
    fill_bias(gemm);
    return;
  }
  const DvtGemmBlockFn block = dvt_gemm_block();
  for (int64_t j = 0; j < gemm->n; j += DVT_GEMM_BLOCK_N) {
    const int64_t columns = gemm->n - j < DVT_GEMM_BLOCK_N ? gemm->n - j : DVT_GEMM_BLOCK_N;
    for (int64_t k = 0; k < gemm->k; k += DVT_GEMM_BLOCK_K) {
      const int64_t rows = gemm->k - k < DVT_GEMM_BLOCK_K ? gemm->k - k : DVT_GEMM_BLOCK_K;
      gemm->pack(gemm->source, k, rows, j, columns, workspace);
      block(gemm, k, rows, j, columns, workspace);
    }
  }
}
