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
