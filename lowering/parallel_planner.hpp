// parallel_planner.hpp: the static memory plan of a graph that several workers run by a schedule.
//
// Time is no line here. Two values may share bytes only when all nodes that touch the one have
// certainly run before the first that touches the other, by the order of the schedule
// (run_order.hpp): then no interleaving that the schedule allows has both alive. That also holds
// for the order of the image, which is one of them.
//
// Threads  Pure functions.
// Trust    As memory_plan/planner.hpp. exec/verify_schedule.cpp proves the result again, from the
// image alone. Memory   Results own their data. Time grows with the square of the number of values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lowering/memory_plan/planner.hpp"
#include "lowering/schedule/run_order.hpp"

namespace davit::lowering {

// More than these are planned for one worker only: a few seconds at most.
inline constexpr size_t kParallelValuesMax = 16384;

// Nodes that touch a value.
using Accesses = std::vector<uint32_t>;

// `intervals` in the order of the image give sizes and the lower bound. One entry of `accesses`
// each.
Result<Plan> plan_parallel_memory(std::span<const Interval> intervals,
                                  std::span<const Accesses> accesses,
                                  const schedule::RunOrder& order, const PlanOptions& options = {});

}  // namespace davit::lowering
