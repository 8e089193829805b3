// planner.hpp: the static memory plan: which bytes of one arena each value has while it lives.
//
// Time runs in node steps. A value lives in [lower, upper): from the node that writes it to the
// last one that reads it. Two values may share bytes only when they never live together.
//
// Threads  Pure functions. plan_memory() may use threads of its own, and joins them.
// Trust    Sizes come from models: sums are checked, so an absurd model is an error, not a wrap.
// Memory   Results own their data. Work is bounded, and counted in steps rather than in time, so
//          that the same input gives the same plan on any machine, however busy.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "lowering/memory_plan/constraints.hpp"

namespace davit::lowering {

struct Interval {
  uint64_t lower = 0;
  uint64_t upper = 0;  // > lower.
  uint64_t size = 0;   // Bytes; 0 is fine and takes no room.
};

// Nominal: what the search does in a millisecond of one core of 2020. A budget in milliseconds is
// turned into steps by this factor alone.
inline constexpr uint64_t kSearchStepsPerMs = 500'000;

struct PlanOptions {
  uint64_t alignment = 64;        // Of every offset and of the arena's size; a power of two.
  uint64_t work_max = 6'000'000;  // Steps of the heuristics; about a second.
  // Steps of the search for something better than the heuristics found; 0 for none.
  uint64_t search_steps = 1000 * kSearchStepsPerMs;
  // A plan of at most this many bytes is good enough; 0 asks for the smallest there is.
  uint64_t capacity = 0;
  // That the heuristics may use, the caller with them; 0: one for each CPU. The plan does not
  // depend on it.
  uint32_t threads = 0;
  // Told of every better plan that the search finds, while it goes on. May be empty.
  std::function<void(uint64_t arena_bytes)> on_better;
};

struct Plan {
  std::vector<uint64_t> offsets;  // One per interval.
  uint64_t arena_bytes = 0;
  uint64_t lower_bound_bytes = 0;  // See lower_bound().
  // No plan is smaller: above lower_bound_bytes when the search has shown that.
  uint64_t proven_bound_bytes = 0;
  std::string_view method;  // The heuristic that won, or "search". For reports.
};

// The most bytes that live together at any time, each size rounded up to `alignment`: no plan with
// aligned offsets and an aligned arena can be smaller. An error when the sum does not fit 63 bits.
Result<uint64_t> lower_bound(std::span<const Interval> intervals, uint64_t alignment);

// Runs the heuristics of packing.hpp until one reaches the lower bound or the capacity, several at
// once in large problems (heuristics.hpp), leaving out those whose work is used up. If none does,
// searches (search.hpp) from the best of them. The plan returned has passed check_plan(). A plan
// that needs more than the capacity is no error.
Result<Plan> plan_memory(std::span<const Interval> intervals, const PlanOptions& options = {});

// The same under constraints (bodies.hpp). Plans are exact, as above, when what the constraints tie
// together has the shape of a single value; other shapes get the best of many first fits and of a
// search over their bounding boxes. Errors beyond those above: DVT_INVALID_ARGUMENT, naming values
// whose constraints contradict each other.
Result<Plan> plan_memory(std::span<const Interval> intervals, const Constraints& constraints,
                         const PlanOptions& options = {});

// The independent checker (its own code path: a sweep over time with the live values in a map):
// proves that offsets are aligned, that values end within the arena, and that no two values that
// live together share a byte. The error names the two.
Status check_plan(std::span<const Interval> intervals, std::span<const uint64_t> offsets,
                  uint64_t arena_bytes, uint64_t alignment);
// The same, and that all constraints are met. Values of one class of aliases may share bytes.
Status check_plan(std::span<const Interval> intervals, const Constraints& constraints,
                  std::span<const uint64_t> offsets, uint64_t arena_bytes, uint64_t alignment);

}  // namespace davit::lowering
