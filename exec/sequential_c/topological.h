/* topological.h: runs a graph of steps as its edges allow, on one thread. Freestanding C11.
 *
 * For graphs whose stored order is not the order to run in: by priority, or as a stack, so that
 * what a step has just written is read while it is in the cache. Where the stored order is good
 * enough, the flat loop (sequential.h) is faster: nothing is counted there.
 *
 *   epoch    join[i] = {epoch, left}: how many predecessors of step i are still to run in this
 *            run. An entry of an older epoch counts as untouched, so that starting a run costs the
 *            roots only, also after one that failed.
 *   ready    a stack, or a binary heap by (priority, index): the smaller runs first.
 *
 * Threads  A call touches its arguments only; run one DvtTopology on one thread at a time.
 * Trust    The graph was verified (exec/verify_graph.cpp): acyclic, successors in range,
 * indegree[i] is the number of times that i occurs in succ. Memory   The caller owns everything;
 * dvt_topology_bytes() says how much a run needs. Oracle   Results are those of the flat loop, bit
 * for bit.
 */
#pragma once

#include "exec/sequential_c/sequential.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DvtTopology {
  const DvtStep* steps;
  uint32_t count;
  const uint32_t* succ_off; /* [count + 1] */
  const uint32_t* succ;
  const uint32_t* indegree; /* [count] */
  const int32_t* priority;  /* [count], or NULL: all equal. */
  const uint32_t* roots;    /* Steps of indegree 0 ... */
  uint32_t root_count;      /* ... found by dvt_topology_init(). */
  void* memory;             /* dvt_topology_bytes(count), aligned to 8. */
  uint32_t epoch;
} DvtTopology;

/* Bytes of `memory` for a graph of `count` steps. */
uint64_t dvt_topology_bytes(uint32_t count);

/* Finds the roots and clears the memory: once per graph. All fields but roots and epoch are set. */
void dvt_topology_init(DvtTopology* topology);

/* Runs every step once, after its predecessors; the last step made ready runs first. Stops at the
 * first code that is not 0: *code is that code, the result its step. Else *code is 0 and the result
 * is count. */
uint32_t dvt_topological_run(DvtTopology* topology, int32_t* code);

/* The same, but of the steps that are ready the one of the smallest (priority, index) runs. */
uint32_t dvt_priority_run(DvtTopology* topology, int32_t* code);

/* The same with trace->begin() and trace->end() around every step; `by_priority` chooses. */
uint32_t dvt_topological_run_traced(DvtTopology* topology, int by_priority,
                                    const DvtStepTrace* trace, int32_t* code);

#ifdef __cplusplus
} /* extern "C" */
#endif
