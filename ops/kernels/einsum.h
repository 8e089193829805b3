/* einsum.h: attribute record of Einsum.
 *
 *   kernel       inputs                          outputs
 *   Einsum.<t>   one or more operands            Y
 *                                                workspace (optional, f32 only): u8,
 *                                                dvt_einsum_workspace_bytes() long
 *
 * <t> is f32, f64, f16, bf16 or any integer. An operand's axes are the symbols of its term; an
 * ellipsis is as many axes as are left, and ellipses align at their last axis. Axes of one symbol
 * have the same extent, or 1, which repeats. Symbols that are not in the output are summed over.
 *
 * Order  Products from the first operand to the last; sums over the symbols that are summed, in the
 *        order of their first appearance, the last one fastest. f32 and halves round each product
 * and sum to f32; integers wrap, as two's complement does. Two operands of f32 may go through the
 *        blocks of gemm.h, with the same bits.
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

enum {
  DVT_EINSUM_OPERANDS = 16,
  DVT_EINSUM_TERM = DVT_MAX_RANK + 1, /* Axes and an ellipsis. */
  DVT_EINSUM_SYMBOLS = 52,            /* 0 to 25: a to z; 26 to 51: A to Z. */
  DVT_EINSUM_ELLIPSIS = -1,
};

typedef struct DvtEinsumAttributes {
  int64_t operands;
  int64_t lengths[DVT_EINSUM_OPERANDS];
  int64_t terms[DVT_EINSUM_OPERANDS * DVT_EINSUM_TERM]; /* DVT_EINSUM_TERM places each. */
  int64_t output_length;
  int64_t output[DVT_EINSUM_TERM];
} DvtEinsumAttributes;

uint64_t dvt_einsum_workspace_bytes(void);

#ifdef __cplusplus
} /* extern "C" */
#endif
