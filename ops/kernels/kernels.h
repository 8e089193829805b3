/* kernels.h: the reference kernels, one table per family. Portable C11, no dependencies but libm.
 *
 * Each family's file defines its table; table.c joins them into dvt_cpu_kernels(). The attribute
 * records are declared in <family>.h beside the kernels, for the definitions in ops/defs.
 *
 * Threads  Pure functions of their context.
 * Trust    Each kernel's check() refuses what its run() could not survive (see davit/kernel.h).
 * Order    Every reduction has a fixed order, so that results are the same bits on every run and
 *          target. Contraction of a*b+c into one instruction is off (-ffp-contract=off).
 */
#pragma once

#include "davit/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One line a family, sorted. */
/* clang-format off */
DvtKernelTable dvt_kernels_activation(void); /* Celu Gelu Mish ... */
DvtKernelTable dvt_kernels_alias(void); /* Identity Reshape Flatten Squeeze Unsqueeze */
DvtKernelTable dvt_kernels_attention(void); /* Attention */
DvtKernelTable dvt_kernels_bitwise(void); /* BitShift BitwiseAnd ... */
DvtKernelTable dvt_kernels_channel_normalisation(void); /* LRN LpNormalization Hardmax ... */
DvtKernelTable dvt_kernels_convolution(void); /* Conv ConvTranspose */
DvtKernelTable dvt_kernels_cumulative(void); /* CumSum Trilu */
DvtKernelTable dvt_kernels_deformable(void); /* DeformConv */
DvtKernelTable dvt_kernels_determinant(void); /* Det */
DvtKernelTable dvt_kernels_einsum(void); /* Einsum */
DvtKernelTable dvt_kernels_elementwise(void); /* Add Equal Relu HardSigmoid Sqrt Clip Cast ... */
DvtKernelTable dvt_kernels_fill(void); /* Fill Shape Size */
DvtKernelTable dvt_kernels_fourier(void); /* DFT STFT */
DvtKernelTable dvt_kernels_gather(void); /* Gather GatherElements GatherND */
DvtKernelTable dvt_kernels_fused(void); /* FusedConv FusedMatMul ... */
DvtKernelTable dvt_kernels_generate(void); /* EyeLike */
DvtKernelTable dvt_kernels_group_normalisation(void); /* LayerNormalization GroupNormalization ... */
DvtKernelTable dvt_kernels_integer_convolution(void); /* ConvInteger QLinearConv */
DvtKernelTable dvt_kernels_integer_matrix(void); /* MatMulInteger QLinearMatMul */
DvtKernelTable dvt_kernels_keep(void); /* NonZero Compress Unique NonMaxSuppression */
DvtKernelTable dvt_kernels_lp_pooling(void); /* LpPool GlobalLpPool */
DvtKernelTable dvt_kernels_matrix(void); /* MatMul Gemm */
DvtKernelTable dvt_kernels_movement(void); /* Copy Concat Split Transpose Slice Pad Expand Tile */
DvtKernelTable dvt_kernels_normalisation(void); /* BatchNormalization Softmax */
DvtKernelTable dvt_kernels_pooling(void); /* MaxPool AveragePool GlobalAveragePool */
DvtKernelTable dvt_kernels_quantisation(void); /* QuantizeLinear ... */
DvtKernelTable dvt_kernels_random(void); /* Random Bernoulli Multinomial Dropout */
DvtKernelTable dvt_kernels_range(void); /* Range */
DvtKernelTable dvt_kernels_rearrange(void); /* DepthToSpace SpaceToDepth ReverseSequence */
DvtKernelTable dvt_kernels_recurrent(void); /* LSTM GRU RNN */
DvtKernelTable dvt_kernels_reduction(void); /* ReduceMean ... */
DvtKernelTable dvt_kernels_regions(void); /* RoiAlign MaxRoiPool */
DvtKernelTable dvt_kernels_resize(void); /* Resize */
DvtKernelTable dvt_kernels_sampling(void); /* GridSample AffineGrid */
DvtKernelTable dvt_kernels_scatter(void); /* ScatterElements ScatterND */
DvtKernelTable dvt_kernels_selection(void); /* ArgMax ArgMin TopK OneHot */
DvtKernelTable dvt_kernels_signal(void); /* CosineWindow MelWeightMatrix */
DvtKernelTable dvt_kernels_strings(void); /* StringNormalizer CastToString CastFromString */
DvtKernelTable dvt_kernels_tfidf(void); /* TfIdfVectorizer */
DvtKernelTable dvt_kernels_training(void); /* Adagrad Adam Momentum */
DvtKernelTable dvt_kernels_unpooling(void); /* MaxUnpool */
/* clang-format on */

#ifdef __cplusplus
}
#endif
