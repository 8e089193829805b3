// schedule_steps.hpp: the schedule of a static graph for the cpu, before it has memory.
//
// Threads  Pure functions.
// Trust    As lower.hpp: all shapes are static.
// Memory   Results own their data.
#pragma once

#include <cstdint>
#include <span>

#include "davit/kernel.h"
#include "ir/module.hpp"
#include "lowering/lower.hpp"
#include "lowering/prepare.hpp"
#include "lowering/schedule/planner.hpp"

namespace davit::lowering {

// Nanoseconds that Davit's own kernels take for a task, about.
double cpu_cost_ns(const DvtTaskCost& cost);

// Nodes are prepared.steps, then a copy into each port of `copied_outputs`. Costs are those of the
// request, one for each, or else modelled.
schedule::Plan schedule_steps(const ir::Module& module, const Prepared& prepared,
                              std::span<const uint32_t> copied_outputs,
                              const ScheduleRequest& request);

// The plan with nodes called by their place in its sequence.
schedule::Plan renumbered(schedule::Plan plan);

}  // namespace davit::lowering
