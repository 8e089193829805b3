// planner.hpp: the static memory plan: which bytes of one arena each value has while it lives.
//
// Time runs in node steps. A value lives in [lower, upper): from the node that writes it to the
// last one that reads it. Two values may share bytes only when they never live together.
//
// Threads  Pure functions.
// Trust    Sizes come from models: sums are checked, so an absurd model is an error, not a wrap.
// Memory   Results own their data. Work is bounded by PlanOptions::work_max, counted in steps of
//          the search rather than in time, so that the same input always gives the same plan.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.hpp"

namespace davit::lowering {

struct Interval {
  uint64_t lower = 0;
  uint64_t upper = 0;  // > lower.
  uint64_t size = 0;   // Bytes; 0 is fine and takes no room.
};

struct PlanOptions {
  uint64_t alignment = 64;         // Of every offset and of the arena's size; a power of two.
  uint64_t work_max = 20'000'000;  // Steps of each heuristic's search; under a second.
};

struct Plan {
  std::vector<uint64_t> offsets;  // One per interval.
  uint64_t arena_bytes = 0;
  uint64_t lower_bound_bytes = 0;  // See lower_bound().
  std::string_view heuristic;      // The one that won, for reports.
};

// The most bytes that live together at any time, each size rounded up to `alignment`: no plan with
// aligned offsets and an aligned arena can be smaller. An error when the sum does not fit 63 bits.
Result<uint64_t> lower_bound(std::span<const Interval> intervals, uint64_t alignment);

// Runs the heuristics of lowering/packing.hpp from the cheapest to the dearest until one reaches
// the lower bound, skips those whose work is used up, and returns the smallest plan. It has passed
// check_plan().
Result<Plan> plan_memory(std::span<const Interval> intervals, const PlanOptions& options = {});

// The independent checker (its own code path: a sweep over time with the live values in a map):
// proves that offsets are aligned, that values end within the arena, and that no two values that
// live together share a byte. The error names the two.
Status check_plan(std::span<const Interval> intervals, std::span<const uint64_t> offsets,
                  uint64_t arena_bytes, uint64_t alignment);

}  // namespace davit::lowering
