#define DVT_VECTOR_BYTES 32
#include "ops/kernels/gemm_block.h"

void dvt_gemm_block_avx2(const DvtGemm* gemm, int64_t k0, int64_t rows, int64_t j0, int64_t columns,
                         const float* panels) {
  block(gemm, k0, rows, j0, columns, panels);
}
