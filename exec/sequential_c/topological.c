#include "exec/sequential_c/topological.h"

#include <stdbool.h>

/* One per step; see topological.h. */
typedef struct Join {
  uint32_t epoch;
  uint32_t left;
} Join;
static_assert(sizeof(Join) == 8, "packed in memory as an array");

/*   memory   count x Join | count x uint32_t: ready steps | count x uint32_t: roots   */
static Join* joins(const DvtTopology* topology) {
  return (Join*)topology->memory;
}
static uint32_t* ready_steps(const DvtTopology* topology) {
  return (uint32_t*)(joins(topology) + topology->count);
}

uint64_t dvt_topology_bytes(uint32_t count) {
  return (uint64_t)count * (sizeof(Join) + 2 * sizeof(uint32_t));
}

void dvt_topology_init(DvtTopology* topology) {
  uint32_t* roots = ready_steps(topology) + topology->count;
  topology->root_count = 0;
  for (uint32_t i = 0; i < topology->count; ++i) {
    joins(topology)[i] = (Join){0, 0};
    if (topology->indegree[i] == 0) roots[topology->root_count++] = i;
  }
  topology->roots = roots;
  topology->epoch = 0;
}

/* The steps that may run. */
typedef struct Ready {
  uint32_t* steps;
  uint32_t count;
  const int32_t* priority; /* NULL: a stack. */
} Ready;

static bool before(const Ready* ready, uint32_t a, uint32_t b) {
  const int32_t pa = ready->priority[a];
  const int32_t pb = ready->priority[b];
  return pa != pb ? pa < pb : a < b;
}

static inline void push(Ready* ready, uint32_t step, bool heap) {
  uint32_t at = ready->count++;
  while (heap && at > 0) {
    const uint32_t parent = (at - 1) / 2;
    if (!before(ready, step, ready->steps[parent])) break;
    ready->steps[at] = ready->steps[parent];
    at = parent;
  }
  ready->steps[at] = step;
}

static inline uint32_t pop(Ready* ready, bool heap) {
  const uint32_t last = ready->steps[--ready->count];
  if (!heap || ready->count == 0) return last;
  const uint32_t first = ready->steps[0];
  uint32_t at = 0;
  for (;;) {
    uint32_t child = 2 * at + 1;
    if (child >= ready->count) break;
    if (child + 1 < ready->count && before(ready, ready->steps[child + 1], ready->steps[child])) {
      ++child;
    }
    if (!before(ready, ready->steps[child], last)) break;
    ready->steps[at] = ready->steps[child];
    at = child;
  }
  ready->steps[at] = last;
  return first;
}

/* After 2^32 - 1 runs the epochs begin anew, and every entry with them. */
static uint32_t next_epoch(DvtTopology* topology) {
  if (++topology->epoch != 0) return topology->epoch;
  for (uint32_t i = 0; i < topology->count; ++i) joins(topology)[i].epoch = 0;
  return topology->epoch = 1;
}

/* The one loop. `heap` and `traced` are constants at each call. */
static inline uint32_t run(DvtTopology* topology, bool heap, bool traced, const DvtStepTrace* trace,
                           int32_t* code) {
  const uint32_t epoch = next_epoch(topology);
  Join* join = joins(topology);
  Ready ready = {ready_steps(topology), 0, heap ? topology->priority : NULL};
  /* From behind, so that a stack gives them in the stored order. */
  for (uint32_t i = topology->root_count; i > 0; --i) push(&ready, topology->roots[i - 1], heap);
  while (ready.count > 0) {
    const uint32_t step = pop(&ready, heap);
    if (traced) trace->begin(trace->user, step);
    const int32_t status = topology->steps[step].fn(topology->steps[step].ctx);
    if (traced) trace->end(trace->user, step, status);
    if (status != 0) {
      *code = status;
      return step;
    }
    for (uint32_t at = topology->succ_off[step + 1]; at > topology->succ_off[step]; --at) {
      const uint32_t next = topology->succ[at - 1];
      if (join[next].epoch != epoch) join[next] = (Join){epoch, topology->indegree[next]};
      if (--join[next].left == 0) push(&ready, next, heap);
    }
  }
  *code = 0;
  return topology->count;
}

uint32_t dvt_topological_run(DvtTopology* topology, int32_t* code) {
  return run(topology, false, false, NULL, code);
}

uint32_t dvt_priority_run(DvtTopology* topology, int32_t* code) {
  if (topology->priority == NULL) return run(topology, false, false, NULL, code);
  return run(topology, true, false, NULL, code);
}

uint32_t dvt_topological_run_traced(DvtTopology* topology, int by_priority,
                                    const DvtStepTrace* trace, int32_t* code) {
  if (by_priority != 0 && topology->priority != NULL) return run(topology, true, true, trace, code);
  return run(topology, false, true, trace, code);
}
