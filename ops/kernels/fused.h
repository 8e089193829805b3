/* fused.h: products whose results pass through pointwise steps before anybody else sees them.
 *
 *   kernel                   inputs                  outputs
 *   FusedConv.<t>            X, W, B (optional),     as Conv
 *                            operands
 *   FusedConvTranspose.<t>   as FusedConv            as ConvTranspose
 *   FusedMatMul.<t>          A, B, operands          as MatMul
 *   FusedGemm.<t>            A, B, C (optional),     as Gemm
 *                            operands
 *
 * <t> is f32, f64, f16 or bf16. The record is that of the product, followed by the steps. Step k
 * replaces each element y of the result by what its kind says:
 *
 *   Add  y + o    Sub  y - o    Mul  y * o    Div  y / o    Min, Max    SubFrom  o - y
 *   Relu, Clip (alpha to beta), HardSigmoid (alpha, beta), LeakyRelu (alpha), Elu (alpha),
 *   HardSwish, Sigmoid, Tanh, Erf, Exp, Neg, Abs, Sqrt, Softplus, Gelu (alpha != 0: by tanh)
 *
 * where o is an input of the kernel that broadcasts to Y, or y as it was before this or an earlier
 * step (so x * sigmoid(x) has two steps); of two such values at most. Every step rounds to <t>, as
 * the operator of its name does: the bits are those of the operators one after the other.
 *
 * Threads  Pure functions of their context.
 * Trust    As davit/kernel.h.
 * Memory   As the product's. About 24 KiB of stack.
 */
#pragma once

#include "ops/kernels/convolution.h"
#include "ops/kernels/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DVT_STEPS_MAX = 8 };

enum DvtStepKind {
  DVT_STEP_ADD,
  DVT_STEP_SUB,
  DVT_STEP_SUB_FROM,
  DVT_STEP_MUL,
  DVT_STEP_DIV,
  DVT_STEP_MIN,
  DVT_STEP_MAX,
  DVT_STEP_UNARY, /* The first of those below. */
  DVT_STEP_RELU = DVT_STEP_UNARY,
  DVT_STEP_CLIP,
  DVT_STEP_HARD_SIGMOID,
  DVT_STEP_LEAKY_RELU,
  DVT_STEP_ELU,
  DVT_STEP_HARD_SWISH,
  DVT_STEP_SIGMOID,
  DVT_STEP_TANH,
  DVT_STEP_ERF,
  DVT_STEP_EXP,
  DVT_STEP_NEG,
  DVT_STEP_ABS,
  DVT_STEP_SQRT,
  DVT_STEP_SOFTPLUS,
  DVT_STEP_GELU,
  DVT_STEP_KINDS,
};

/* As an operand, DVT_STEP_BEFORE - k is y as it was before step k. */
enum { DVT_STEP_BEFORE = -1 };

typedef struct DvtSteps {
  int64_t count;
  int64_t kind[DVT_STEPS_MAX];    /* DvtStepKind. */
  int64_t operand[DVT_STEPS_MAX]; /* An input of the kernel, or as above; unary steps ignore it. */
  double alpha[DVT_STEPS_MAX], beta[DVT_STEPS_MAX];
} DvtSteps;

typedef struct DvtFusedConvAttributes {
  DvtConvAttributes product;
  DvtSteps steps;
} DvtFusedConvAttributes;

typedef struct DvtFusedConvTransposeAttributes {
  DvtConvTransposeAttributes product;
  DvtSteps steps;
} DvtFusedConvTransposeAttributes;

typedef struct DvtFusedGemmAttributes {
  DvtGemmAttributes product;
  DvtSteps steps;
} DvtFusedGemmAttributes;

typedef struct DvtFusedMatMulAttributes {
  DvtSteps steps;
} DvtFusedMatMulAttributes;

#ifdef __cplusplus
} /* extern "C" */
#endif
