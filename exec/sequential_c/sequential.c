#include "exec/sequential_c/sequential.h"

#include <stdbool.h>

/* The one loop. `traced` is a constant at both call sites, so that each exported function is
 * compiled to a loop of its own and the plain one holds nothing of tracing. */
static inline size_t run(const DvtStep* steps, size_t count, bool traced, const DvtStepTrace* trace,
                         int32_t* code) {
  for (size_t i = 0; i < count; ++i) {
    if (traced) trace->begin(trace->user, i);
    const int32_t status = steps[i].fn(steps[i].ctx);
    if (traced) trace->end(trace->user, i, status);
    if (status != 0) {
      *code = status;
      return i;
    }
  }
  *code = 0;
  return count;
}

size_t dvt_sequential_run(const DvtStep* steps, size_t count, int32_t* code) {
  return run(steps, count, false, NULL, code);
}

size_t dvt_sequential_run_traced(const DvtStep* steps, size_t count, const DvtStepTrace* trace,
                                 int32_t* code) {
  return run(steps, count, true, trace, code);
}
