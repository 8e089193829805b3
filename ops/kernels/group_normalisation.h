/* group_normalisation.h: attribute records of the normalisations that compute their own statistics.
 *
 *   kernel                           inputs                        outputs
 *   LayerNormalization.<t>           X, scale, bias?               Y, like X; then those of mean
 * and (broadcast to X)              1/deviation that `outputs` names GroupNormalization.<t> X
 * [N,C,...], scale, bias      Y, like X MeanVarianceNormalization.<t>    X Y, like X
 *
 * <t> is f32, f64, f16 or bf16: the dtype of X and Y; scale and bias have the same, mean and
 * deviation are any float type. With `groups` 0, GroupNormalization has one group per channel: it
 * is then InstanceNormalization. Its scale and bias are [C], or [groups] with `per_group`.
 *
 * Numbers  In double, rounded once (halves: to float, then to half). A sum has eight parts, part i
 * of the elements i, i + 8, ..., each ascending, which are then added in order. The variance is the
 * mean of (x - mean)^2. Y = (x - mean) / sqrt(variance + epsilon) * scale + bias;
 *          MeanVarianceNormalization divides by sqrt(variance) + epsilon.
 *
 * Threads  Pure functions of their context.
 * Trust    As davit/kernel.h.
 * Memory   Nothing is allocated. Y may be X's memory.
 */
#pragma once

#include "davit/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DvtLayerNormAttributes {
  int64_t axis; /* The first normalised one; may be negative. */
  double epsilon;
  int64_t
      outputs; /* Bit i: the operator's output i (Y, mean, 1/deviation) is there; bit 0 is set. */
} DvtLayerNormAttributes;

typedef struct DvtGroupNormAttributes {
  int64_t groups; /* 0: as many as channels. */
  double epsilon;
  int64_t per_group;
} DvtGroupNormAttributes;

typedef struct DvtMeanVarianceAttributes {
  int64_t axes[DVT_MAX_RANK]; /* The first `axis_count` count; may be negative. */
  int64_t axis_count;
  double epsilon;
} DvtMeanVarianceAttributes;

#ifdef __cplusplus
} /* extern "C" */
#endif
