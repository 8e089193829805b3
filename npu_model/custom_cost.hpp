// custom_cost.hpp: how long kernels take that describe themselves (davit/loop_nest.h).
//
// Threads  Pure functions, but for what the described kernel's own functions do.
// Trust    Descriptions are checked; the error names the operator and the member.
// Memory   Nothing is allocated but for errors.
#pragma once

#include <string_view>

#include "base/status.hpp"
#include "davit/loop_nest.h"
#include "npu_model/cost.hpp"
#include "npu_model/parameters.hpp"

namespace davit::npu {

// Precondition: one of the two functions is set. `cost` may be NULL.
Result<TaskTiming> described_timing(const Parameters& parameters, const DvtKernelTime& kernel,
                                    const DvtTaskCost* cost);

}  // namespace davit::npu
