/* loop_nest.h: what a kernel does on an NPU, so that the Ascend model can tell how long it takes.
 *
 * For kernels that the model does not know: those of plug-ins (DvtPlugin.costs) and of hosts that
 * launch their own (dvt_npu_describe_kernel()). Either as the loop nest of the kernel, or as a
 * function that counts itself. Both get what the model gives its own: rounds over cores, overlap of
 * pipes, bandwidth of the chip that all tasks share.
 *
 *   for block in blocks                      spread over the cores
 *     for i in extents[0]
 *       load 4096 bytes          depth 1     -> MTE2, extents[0] times
 *       for j in extents[1]
 *         vector 256 elements    depth 2     -> VEC, extents[0] * extents[1] times
 *       store 4096 bytes         depth 1     -> MTE3
 *
 * Threads  Functions are called under the lock of an NPU, from any thread. They may not call it.
 * Trust    What they fill in is checked; absurd work is clamped as that of DvtTaskCost is.
 * Memory   Nothing is kept but the pointers that were registered.
 */
#pragma once

#include "davit/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Cores that a kernel runs on. Where cube and vector unit are one core, all mean that core. */
enum DvtCores {
  DVT_CORES_VECTOR = 0,
  DVT_CORES_CUBE = 1,
  /* A cube core and its two vector cores, which take half of each vector step. */
  DVT_CORES_MIX = 2,
};

enum DvtNestStepKind {
  DVT_NEST_LOAD = 0,       /* `amount` bytes from global memory, by MTE2: to L1 of cube cores (mixed
                              kernels too), else to the unified buffer. */
  DVT_NEST_STORE = 1,      /* `amount` bytes to global memory: by FIXP from L0C, else by MTE3. */
  DVT_NEST_LOAD_LEFT = 2,  /* `amount` bytes from L1 to L0A, by MTE1. */
  DVT_NEST_LOAD_RIGHT = 3, /* `amount` bytes from L1 to L0B, by MTE1. */
  DVT_NEST_CUBE = 4,       /* A product m x k by k x n in L0, by the cube. */
  DVT_NEST_VECTOR = 5,     /* `amount` elements pass the vector unit `passes_x100` / 100 times. */
};

typedef struct DvtNestStep {
  uint8_t kind;   /* DvtNestStepKind. */
  DvtDType dtype; /* Of CUBE (operands) and VECTOR. */
  uint16_t reserved;
  uint32_t depth;       /* It stands in the first `depth` loops. */
  uint64_t amount;      /* Each time. */
  uint64_t passes_x100; /* VECTOR: cycles of a repeat, in hundredths. */
  uint32_t m, n, k;     /* CUBE. */
  uint32_t reserved2;
} DvtNestStep;

enum { DVT_NEST_LOOPS_MAX = 8, DVT_NEST_STEPS_MAX = 32 };

typedef struct DvtLoopNest {
  uint32_t cores;      /* DvtCores. */
  uint32_t loop_count; /* Of `extents`, outermost first. */
  uint64_t blocks;     /* Independent instances of the nest; at least 1. */
  uint64_t extents[DVT_NEST_LOOPS_MAX];
  uint32_t step_count;
  /* 1: one buffer: a step waits for the one before it, so that no pipes overlap. 0: two or more. */
  uint32_t single_buffer;
  DvtNestStep steps[DVT_NEST_STEPS_MAX];
  /* Unique bytes, read and written; 0: what the steps load and store. The traffic at L2 is what the
   * steps load and store, that at HBM the unique bytes. */
  uint64_t unique_bytes;
  /* Nanoseconds before the first step; 0: that of the model's operators on these cores. */
  uint64_t head_ns;
} DvtLoopNest;

/* A number of the SoC by its key in the parameter file ("core.aic", "mte2.aiv"; docs/npu_model.md),
 * or -1 when there is no such key. `soc` is what the function was given. */
typedef double (*DvtSocValueFn)(const void* soc, const char* key);

/* For kernels that are no loop nest. Cycles are those of the busiest core. */
typedef struct DvtKernelPipes {
  uint32_t cores;     /* DvtCores. */
  uint32_t block_dim; /* Cores that are used; clamped to what there is. At least 1. */
  uint64_t mac, vec, mte1, mte2, mte3, fixp; /* Busy cycles of each pipe. */
  uint64_t hbm_bytes, l2_bytes;              /* Traffic. */
  uint32_t single_buffer;                    /* As above. */
  uint32_t reserved;
  uint64_t head_ns; /* As above. */
} DvtKernelPipes;

/* How long kernels of one operator type take. One of the two functions is given. `cost` is that of
 * the launch (all zero when it has none), `out` is zeroed. Another code than DVT_OK makes the
 * launch fail with it. Called once for each different cost; same cost, same answer. */
typedef struct DvtKernelTime {
  const char* op; /* "Swish": of launches of "acme::Swish(1)", "Swish.f32" and "Swish". */
  DvtCode (*nest)(void* data, const DvtTaskCost* cost, DvtLoopNest* out);
  DvtCode (*pipes)(void* data, const DvtTaskCost* cost, const void* soc, DvtSocValueFn value,
                   DvtKernelPipes* out);
  void* data; /* For both. */
} DvtKernelTime;

#ifdef __cplusplus
} /* extern "C" */
#endif
