/* convolution.h: attribute records of Conv and ConvTranspose, and what their files share.
 *
 *   kernel              inputs                            outputs
 *   Conv.<t>            X [N,C,in...]                     Y [N,M,out...]
 *                       W [M,C/group,kernel...]           workspace (optional, f32 only): u8,
 *                       B [M] (optional)                  dvt_conv_workspace_bytes() long
 *   ConvTranspose.<t>   X [N,C,in...]                     as Conv
 *                       W [C,M/group,kernel...]
 *                       B [M] (optional)
 *
 * The extents of ConvTranspose's Y: stride * (in - 1) + (kernel - 1) * dilation + 1 - pads_begin -
 * pads_end. pads_end may be negative: it carries what output_padding adds.
 *
 * <t> is f32, f64, f16 or bf16; one to three spatial dims. Without a workspace the simple path
 * runs, with the same bits.
 *
 * Order  Conv: Y is the sum over c, then kernel positions, ascending, of X * W, with zeros where
 *        the window leaves the input, and then B. ConvTranspose: for each input position that
 *        reaches Y, ascending, the sum over c ascending of X * W; the sum of those; then B.
 *
 * Threads  Pure functions of their context.
 * Trust    As davit/kernel.h.
 * Memory   The workspace's contents mean nothing before and after a run.
 */
#pragma once

#include "ops/kernels/window.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DvtConvAttributes {
  int64_t group;
  DvtWindowAttributes window;
} DvtConvAttributes;

typedef struct DvtConv {
  int64_t batch, group;
  int64_t in_channels, out_channels; /* Per group. */
  DvtWindow window;                  /* From Y's view; for ConvTranspose `in` is Y, `out` is X. */
} DvtConv;

/* Size of the workspace that selects the blocked f32 path. ConvTranspose: `rows` is M / group times
 * the kernel's volume; 0 when that is absurdly large. */
uint64_t dvt_conv_workspace_bytes(void);
uint64_t dvt_conv_transpose_workspace_bytes(int64_t rows);

/* Inside ops/kernels: the blocked paths, and what convolution.c's table points at. */
void dvt_conv_f32(const DvtConv* conv, const float* x, const float* w, const float* bias, float* y,
                  float* workspace);
/* Y when X or W is empty: sums of nothing, and the bias. Y is not empty. */
void dvt_conv_fill_bias(const DvtContext* ctx, DvtDType dtype);
DvtCode dvt_conv_transpose_run(const DvtContext* ctx, DvtDType dtype);
DvtCode dvt_conv_transpose_check(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size);
DvtCode dvt_conv_check_bias(const DvtContext* ctx, int64_t channels, DvtDType dtype, char* reason,
                            size_t size);
DvtCode dvt_conv_transpose_infer(const DvtContext* ctx, DvtTensor* outputs, char* reason,
                                 size_t size);
/* X and W of a convolution, for infer(): present, of equal rank 3 to 5. */
DvtCode dvt_conv_check_ranks(const DvtContext* ctx, char* reason, size_t size);
/* A workspace, when there is one, is at least `bytes` long. */
DvtCode dvt_conv_check_workspace(const DvtContext* ctx, uint64_t bytes, char* reason, size_t size);

#ifdef __cplusplus
} /* extern "C" */
#endif
