/* matrix.h: attribute records and workspaces of MatMul and Gemm.
 *
 *   kernel       inputs                          outputs
 *   MatMul.<t>   A [batch...,M,K]                Y [batch...,M,N]
 *                B [batch...,K,N]                workspace (optional, f32 only): u8,
 *                                                dvt_matrix_workspace_bytes() long
 *   Gemm.<t>     A [M,K] or [K,M], B [K,N] or    Y [M,N]
 *                [N,K], C (optional), broadcasts workspace as MatMul
 *                to [M,N]
 *
 * MatMul follows numpy: batch dims broadcast; a 1-D A is a row, a 1-D B a column, and its dim of
 * one is missing from Y. <t> is f32, f64, f16, bf16, i32, i64, u32 or u64. Without a workspace the
 * simple path runs, with the same bits.
 *
 * Order  Products are summed in ascending k. Gemm: Y = alpha * sum + beta * C, each operation
 *        rounded; factors of one are not multiplied. Integers wrap, as two's complement does.
 *
 * Threads  Pure functions of their context.
 * Trust    As davit/kernel.h.
 * Memory   The workspace's contents mean nothing before and after a run.
 */
#pragma once

#include "davit/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DvtGemmAttributes {
  double alpha, beta; /* Whole numbers for integer dtypes. */
  int64_t transpose_a, transpose_b;
} DvtGemmAttributes;

uint64_t dvt_matrix_workspace_bytes(void);

#ifdef __cplusplus
} /* extern "C" */
#endif
