// run_shares.hpp: what the time of a predicted run went into.
//
// Every moment of the run belongs to one share: of the task that runs then and started first, its
// head or its body by the pipe that takes longest; or of nothing, when no task runs.
//
// Threads  Pure functions.
// Memory   Results own their data.
#pragma once

#include <string>
#include <vector>

#include "davit/npu.h"

namespace davit::cli {

struct Share {
  std::string name;    // "cube", "heads of kernels", ...
  std::string advice;  // What would make it smaller.
  int64_t ps = 0;
};

// The records of a run, in the order in which they start.
std::vector<DvtNpuTask> tasks_of(const DvtNpu* npu, const DvtNpuRun& run);

// Longest first; they add up to the time of the run exactly. `gap_ps`: what the device leaves
// between tasks.
std::vector<Share> shares_of(const std::vector<DvtNpuTask>& tasks, const DvtNpuRun& run,
                             int64_t gap_ps);

// The parameter ts.task_gap.
int64_t task_gap_ps(const DvtNpu* npu);

// A parameter of the model in its unit; 0 when the set has none of that name.
double npu_parameter(const DvtNpu* npu, const char* key);

}  // namespace davit::cli
