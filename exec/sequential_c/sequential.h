/* sequential.h: runs a list of steps in order. Freestanding C11, for hosts and device-side cores.
 *
 * Threads  A call touches its arguments only. Lists share nothing; run one list on one thread.
 * Trust    steps[] was built from a verified graph (exec/executor.cpp): fn is never NULL, and the
 *          order is topological. Nothing is checked again here.
 * Memory   The caller owns every pointer. Nothing here allocates or calls a library.
 * Oracle   Any other executor must give the results of this loop, bit for bit.
 */
#pragma once

#include <assert.h> /* static_assert in C11 */
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Runs one step: 0 to go on, any other code stops the list. The type of DvtKernelFn. */
typedef int32_t (*DvtStepFn)(void* ctx);

/* One step. Read-only during a run.
 *
 *   0    8     16
 *   | fn | ctx |
 */
typedef struct DvtStep {
  DvtStepFn fn;
  void* ctx;
} DvtStep;
static_assert(sizeof(DvtStep) == 2 * sizeof(void*), "four steps per 64-byte line");
static_assert(offsetof(DvtStep, ctx) == sizeof(void*), "see the drawing above");

/* Returned by a step that has not done anything yet and is to be called again later. Only to an
 * executor that expects it of this step (exec/mt_topo); any other takes it for a failure. */
#define DVT_STEP_SUSPENDED INT32_MIN

/* What a traced run calls around every step. Neither pointer may be NULL. */
typedef struct DvtStepTrace {
  void (*begin)(void* user, size_t step);
  void (*end)(void* user, size_t step, int32_t code);
  void* user;
} DvtStepTrace;

/* Asked before every step of a checked run: 0 to go on, any other code stops the list. */
typedef struct DvtStepCheck {
  int32_t (*go_on)(void* user);
  void* user;
} DvtStepCheck;

/* Runs steps[0..count) and stops at the first code that is not 0.
 * Returns the index of that step, or count; *code is its code, or 0. */
size_t dvt_sequential_run(const DvtStep* steps, size_t count, int32_t* code);

/* The same, asking before every step. When the answer is to stop, returns the step that has not
 * run. */
size_t dvt_sequential_run_checked(const DvtStep* steps, size_t count, const DvtStepCheck* check,
                                  int32_t* code);

/* The same with trace->begin() and trace->end() around every step, the failing one included.
 * `check` may be NULL. */
size_t dvt_sequential_run_traced(const DvtStep* steps, size_t count, const DvtStepTrace* trace,
                                 const DvtStepCheck* check, int32_t* code);

#ifdef __cplusplus
} /* extern "C" */
#endif
