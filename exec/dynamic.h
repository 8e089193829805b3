/* dynamic.h: host nodes of graphs whose shapes are set at run time, and of control flow.
 *
 *   name        lane    in                            out                  attr
 *   InferShape  normal  dynamic and host inputs of    its dynamic outputs  target
 *                       another node, its target
 *   AllocHost   memory  -                             heap values          -
 *   FreeHost    memory  heap values                   -                    -
 *   ReferTo     normal  an alias kernel's             heap value           the alias kernel's
 *   BindOutput  memory  -                             dynamic output       output
 *   CopyShape   normal  any tensor                    dynamic value        -
 *   If          normal  condition, captures           results              -
 *   Loop        normal  trip count, condition,        see below            counts
 *                       states, captures
 *   SelectGear  memory  see below                     see below            -
 *
 * The device_kernel of a ReferTo names the alias kernel.
 *
 * A dynamic value has a descriptor of its own in the executor's arena. InferShape sets it: it
 * stands for the shape function of another node of its graph, the target, and asks that kernel's
 * infer() and check(). Only then may memory be allocated for the target's outputs, and the target
 * run. exec/verify_dynamic.cpp proves that every node with dynamic operands is such a target, and
 * that no value is used before it has its shape, its memory and its data, or after its memory is
 * freed.
 *
 * If runs bodies[0] when the condition is true, else bodies[1]. Each body writes the results.
 *
 * Loop, with S states and C collected outputs:
 *   in   trip or none, condition or none, S initial states, captures
 *   out  S final states, C collected results,
 *        iteration (i64), condition (bool), S states,     written before each iteration
 *        condition (bool), S next states, C results       written by the body
 * States and results are heap values. A next state, and a result, has memory of its own.
 *
 * SelectGear is the one node of Main in an image with gears: sets of shapes of the inputs, each of
 * which has a body of its own where all shapes are static. With I inputs and O outputs of the
 * image: in   the image's inputs; for each gear, a static value at each of these ports: its shape
 * there out  the image's outputs; for each gear, a static value at each of these ports, which its
 * body writes The executor chooses the gear that has the shapes which are bound, before the run.
 * Bodies of gears share the arena: one of them runs.
 *
 * Threads  Who waits for whom on several workers: exec/host_accesses.hpp. A node and its bodies are
 *          run once at a time.
 * Trust    See above; run() trusts what the verifier has proved.
 * Memory   Of heap values comes from DvtRuntime.memory (exec/value_memory.h).
 */
#pragma once

#include "exec/runtime.h"
#include "exec/sequential_c/sequential.h"

#ifdef __cplusplus
extern "C" {
#endif

DvtKernelTable dvt_dynamic_kernels(void);

/* Which of dvt_dynamic_kernels() a kernel is; DVT_HOST_OTHER for any other. */
typedef enum DvtHostNode {
  DVT_HOST_OTHER = 0,
  DVT_HOST_INFER_SHAPE,
  DVT_HOST_ALLOC,
  DVT_HOST_FREE,
  DVT_HOST_REFER_TO,
  DVT_HOST_BIND_OUTPUT,
  DVT_HOST_IF,
  DVT_HOST_LOOP,
  DVT_HOST_COPY_SHAPE,
  DVT_HOST_SELECT_GEAR,
} DvtHostNode;
DvtHostNode dvt_host_node(const DvtKernel* kernel);
DvtHostNode dvt_host_node_named(const char* name);

typedef struct DvtInferShapeAttributes {
  int64_t target; /* A later node of the same graph. */
} DvtInferShapeAttributes;

typedef struct DvtBindOutputAttributes {
  int64_t output; /* Index in the image's outputs. */
} DvtBindOutputAttributes;

typedef struct DvtLoopAttributes {
  int64_t states;    /* S */
  int64_t collected; /* C */
} DvtLoopAttributes;

/* Operands of a Loop, see above. */
enum { DVT_LOOP_TRIP = 0, DVT_LOOP_CONDITION = 1, DVT_LOOP_STATES = 2 };
static inline int64_t dvt_loop_outputs(const DvtLoopAttributes* loop) {
  return 3 * loop->states + 2 * loop->collected + 3;
}
/* First output that the Loop writes before each iteration, and the first that its body writes. */
static inline int64_t dvt_loop_parameters(const DvtLoopAttributes* loop) {
  return loop->states + loop->collected;
}
static inline int64_t dvt_loop_results(const DvtLoopAttributes* loop) {
  return dvt_loop_parameters(loop) + 2 + loop->states;
}

/* ---- What the executor keeps for such nodes; DvtContext.attributes of the node leads here ------
 */

enum { DVT_SHAPE_MEMO_WAYS = 4 };

/* An InferShape node. Remembers the last few input shapes and what followed from them.
 *
 *   memo: ways x | input_count x DvtShape | output_count x DvtTensor |
 */
typedef struct DvtShape {
  uint64_t rank;
  int64_t dims[DVT_MAX_RANK];
} DvtShape;

typedef struct DvtShapeNode {
  const DvtContext* target;
  const DvtKernel* kernel; /* Whose infer() and check() hold for the target. */
  DvtTensor* scratch;      /* [target->output_count], shared by the nodes of an executor. */
  unsigned char* memo;     /* NULL: the shapes depend on data too, nothing is remembered. */
  uint32_t memo_bytes;     /* Of one way. */
  uint32_t used, next;     /* Ways filled; the one to fill next. */
  uint32_t input_count, output_count; /* Dynamic ones of the target. */
  uint64_t hits, misses;
  /* Not NULL: the one dynamic output is this output of the image, and what the caller says of its
   * shape is trusted (DvtExecutorOptions.trust_output_shapes). */
  const DvtOutputSlot* trusted;
} DvtShapeNode;

/* A node with bodies. */
typedef struct DvtFlowNode {
  const void* attributes; /* The image's record. */
  uint32_t body_count;
  uint32_t gear;                /* Of a SelectGear: the body of this run. */
  const struct DvtBody* bodies; /* [body_count] */
  /* Of a Loop, [collected]. */
  uint64_t* capacity;
  const DvtTensor* declared; /* What the image knows of the collected results' shapes. */
} DvtFlowNode;

typedef struct DvtBody {
  const DvtStep* steps;
  uint32_t count;
  uint32_t graph; /* Index in the image, to name the node that fails. */
} DvtBody;

#ifdef __cplusplus
} /* extern "C" */
#endif
