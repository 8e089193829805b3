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

typedef struct DvtConvTransposeAttributes {
  int64_t group;
  DvtWindowAttributes window;
  int64_t output_padding[DVT_SPATIAL_MAX];
  int64_t output_shape[DVT_SPATIAL_MAX]; /* Of Y; 0: not stated. Pads follow from it. */
} DvtConvTransposeAttributes;

/* Extent of Y along spatial dim `dim` of ConvTranspose, and its pads; -1 when it is out of range.
 */
int64_t dvt_conv_transpose_out(const DvtConvTransposeAttributes* attributes, uint32_t dim,
                               int64_t in, int64_t kernel, int64_t* pad, int64_t* pad_end);

typedef struct DvtConv {
  int64_t batch, group;
  int64_t in_channels, out_channels; /* Per group. */
  DvtWindow window;                  /* For ConvTranspose `in` is Y, `out` is X. */
} DvtConv;

/* Size of the workspace that selects the blocked f32 path. ConvTranspose: `rows` is M / group times
 * the kernel's volume; 0 when that is absurdly large. */
uint64_t dvt_conv_workspace_bytes(void);
uint64_t dvt_conv_transpose_workspace_bytes(int64_t rows);

/* Inside ops/kernels: the geometry of Conv; refuses what does not fit together. */
DvtCode dvt_conv_describe(const DvtConvAttributes* attributes, const DvtTensor* x,
                          const DvtTensor* w, DvtConv* conv, char* reason, size_t size);

/* Inside ops/kernels: the blocked paths, and what convolution.c's table points at. */
void dvt_conv_f32(const DvtConv* conv, const float* x, const float* w, const float* bias, float* y,
                  float* workspace);
/* Y when X or W is empty: sums of nothing, and the bias. Y is not empty. */
void dvt_conv_fill_bias(const DvtContext* ctx, DvtDType dtype);
DvtCode dvt_conv_transpose_run(const DvtContext* ctx, DvtDType dtype);
DvtCode dvt_conv_transpose_check(const DvtContext* ctx, DvtDType dtype, char* reason, size_t size);
DvtCode dvt_conv_transpose_infer(const DvtContext* ctx, DvtTensor* outputs, char* reason,
                                 size_t size);
/* Counts, attributes, dtypes, outputs as `infer` gives them, and the bias. */
DvtCode dvt_conv_check(const DvtContext* ctx, DvtDType dtype, DvtKernelInferFn infer, char* reason,
                       size_t size);

#ifdef __cplusplus
} /* extern "C" */
#endif
