/* attention.h: softmax(Q K * scale + mask) V in one kernel.
 *
 *   kernel          inputs                       outputs
 *   Attention.<t>   Q [batch..., M, D]           Y [batch..., M, E]
 *                   K [batch..., D, N]           workspace: u8,
 *                   V [batch..., N, E]             dvt_attention_workspace_bytes() long
 *                   mask (optional): of a rank
 *                   no higher; broadcasts with
 *                   [batch..., M, N]
 *
 * The batch axes of all four broadcast, as they do from operator to operator; where the mask has
 * more rows or columns than Q K, that is repeated.
 *
 * <t> is f32, f64, f16 or bf16. K comes with its last axes exchanged already. Every intermediate is
 * rounded to <t>, as by MatMul, Mul or Div, Add, Softmax and MatMul one after the other: the bits
 * are theirs. Only one M x N matrix of them is in memory at a time.
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

enum { DVT_ATTENTION_PLAIN = 0, DVT_ATTENTION_MULTIPLY = 1, DVT_ATTENTION_DIVIDE = 2 };

typedef struct DvtAttentionAttributes {
  int64_t scaling; /* What happens to Q K: DVT_ATTENTION_*, ... */
  double scale;    /* ... by this. */
} DvtAttentionAttributes;

/* The workspace of a product of m rows and n columns; 0 when that is absurdly large. */
uint64_t dvt_attention_workspace_bytes(DvtDType dtype, int64_t m, int64_t n);

#ifdef __cplusplus
} /* extern "C" */
#endif
