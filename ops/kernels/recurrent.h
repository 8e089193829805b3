/* recurrent.h: attribute records of LSTM, GRU and RNN, and what their files share.
 *
 *   kernel     inputs                                    outputs
 *   LSTM.<t>   X, W, R, B?, lengths?, H0?, C0?, P?       those of Y, Y_h, Y_c that `outputs` names,
 *   GRU.<t>    X, W, R, B?, lengths?, H0?                in this order, then a workspace: u8,
 *   RNN.<t>    X, W, R, B?, lengths?, H0?                dvt_recurrent_plan() bytes long
 *
 *   X   [T,N,I]      W  [D,G*H,I]   B  [D,2*G*H]   lengths [N], i32   Y       [T,D,N,H]
 *                    R  [D,G*H,H]   P  [D,3*H]     H0, C0  [D,N,H]    Y_h,Y_c [D,N,H]
 *   with layout 1:   X  [N,T,I]                    H0, C0  [N,D,H]    Y       [N,T,D,H], Y_h
 * [N,D,H]
 *
 * T steps, N sequences, I inputs, H hidden units, D directions, G gates: LSTM iofc, GRU zrh, RNN i.
 * <t> is f32, f64 or f16. Optional operands are marked ?.
 *
 * Numbers  f16 computes in f32 throughout and rounds only what it returns. A gate is
 *          (x W^T + h R^T) + (Wb + Rb), each product summed in ascending order from +0; peepholes
 * are added to that, then it is clipped, then the activation. The argument of the LSTM's h is not
 * clipped. With input_forget the forget gate is 1 - input gate. Lengths  Step t of sequence n runs
 * while t < lengths[n]; reverse directions begin at the sequence's own end. Y is 0 beyond it; Y_h
 * and Y_c are the states after its last step.
 *
 * Threads  Pure functions of their context.
 * Trust    As davit/kernel.h. run() refuses lengths that are not within [0, T].
 * Memory   The workspace's contents mean nothing before and after a run.
 */
#pragma once

#include "ops/kernels/common.h"

#ifdef __cplusplus
extern "C" {
#endif

enum DvtRecurrentDirection {
  DVT_RECURRENT_FORWARD = 0,
  DVT_RECURRENT_REVERSE = 1,
  DVT_RECURRENT_BIDIRECTIONAL = 2,
};

enum DvtRecurrentFunction {
  DVT_RECURRENT_SIGMOID = 0,
  DVT_RECURRENT_TANH = 1,
  DVT_RECURRENT_RELU = 2,
  DVT_RECURRENT_AFFINE = 3,
  DVT_RECURRENT_LEAKY_RELU = 4,
  DVT_RECURRENT_THRESHOLDED_RELU = 5,
  DVT_RECURRENT_SCALED_TANH = 6,
  DVT_RECURRENT_HARD_SIGMOID = 7,
  DVT_RECURRENT_ELU = 8,
  DVT_RECURRENT_SOFTSIGN = 9,
  DVT_RECURRENT_SOFTPLUS = 10,
  DVT_RECURRENT_FUNCTION_COUNT = 11,
};

enum { DVT_RECURRENT_FUNCTION_MAX = 6 }; /* LSTM: f, g, h of two directions. */

typedef struct DvtRecurrentAttributes {
  int64_t direction; /* DvtRecurrentDirection. */
  int64_t layout;    /* 1: sequences before steps. */
  int64_t input_forget, linear_before_reset;
  int64_t outputs; /* Bit i: the operator's output i is there. */
  int64_t clips;   /* 1: `clip` counts. */
  double clip;
  int64_t functions[DVT_RECURRENT_FUNCTION_MAX]; /* Those of one direction, then the other's. */
  double alpha[DVT_RECURRENT_FUNCTION_MAX];
  double beta[DVT_RECURRENT_FUNCTION_MAX];
} DvtRecurrentAttributes;

/* ---- Inside ops/kernels ---------------------------------------------------------------------- */

enum DvtRecurrentInput {
  DVT_RECURRENT_X = 0,
  DVT_RECURRENT_W = 1,
  DVT_RECURRENT_R = 2,
  DVT_RECURRENT_B = 3,
  DVT_RECURRENT_LENGTHS = 4,
  DVT_RECURRENT_H0 = 5,
  DVT_RECURRENT_C0 = 6,
  DVT_RECURRENT_P = 7,
};

typedef struct DvtRecurrence {
  int64_t steps, batch, inputs, hidden;
  int64_t directions;
  int64_t gates;     /* 4: LSTM; 3: GRU; 1: RNN. */
  int64_t functions; /* Per direction: 3, 2 or 1. */
  const DvtRecurrentAttributes* attributes;
} DvtRecurrence;

/* Parts of the workspace, in bytes from its start. */
typedef struct DvtRecurrentPlan {
  int64_t chunk;                /* Steps whose inputs are multiplied at a time. */
  uint64_t rows;                /* X of a chunk: [chunk, N, I]. */
  uint64_t projected;           /* Its product with W: [chunk, N, G * H]. */
  uint64_t gates;               /* [N, G * H]. */
  uint64_t hidden, cell, reset; /* [N, H] each. */
  uint64_t bias, peephole;      /* [2 * G * H], [3 * H]. */
  uint64_t w, r;                /* Widened weights; f16 only. */
  uint64_t panels;              /* R, packed, and what dvt_gemm_f32() needs; not for f64. */
  uint64_t gemm;
  uint64_t bytes;
} DvtRecurrentPlan;

/* False when the workspace would be absurdly large. */
bool dvt_recurrent_plan(const DvtRecurrence* recurrence, DvtDType dtype, DvtRecurrentPlan* plan);

/* Runs a context that check() has passed; f16 runs as f32. */
DvtCode dvt_recurrent_run_f32(const DvtContext* ctx, const DvtRecurrence* recurrence,
                              const DvtRecurrentPlan* plan);
DvtCode dvt_recurrent_run_f64(const DvtContext* ctx, const DvtRecurrence* recurrence,
                              const DvtRecurrentPlan* plan);

#ifdef __cplusplus
} /* extern "C" */
#endif
