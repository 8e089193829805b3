// bodies.hpp: values whose distances are given move as one. A body is such a set, as a shape in
// time and space; a value without constraints is a body of its own.
//
// Threads  Pure functions.
// Trust    Constraints are checked: indices, alignments, contradictions, overflow.
// Memory   Results own their data.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "lowering/memory_plan/constraints.hpp"
#include "lowering/memory_plan/planner.hpp"

namespace davit::lowering {

struct Body {
  static constexpr uint64_t kFree = UINT64_MAX;

  struct Member {
    uint32_t value;
    uint64_t distance;  // From the body's offset.
  };
  // Bytes [low, high) from the body's offset, taken at [lower, upper). Multiples of the alignment
  // of the plan.
  struct Part {
    uint64_t lower, upper;
    uint64_t low, high;
  };

  std::vector<Member> members;
  std::vector<Part> parts;  // Disjoint; none for a body without bytes.
  uint64_t bytes = 0;       // No part or member ends above this.
  uint64_t alignment = 1;   // The offset is a multiple of this, plus `residue`.
  uint64_t residue = 0;
  uint64_t fixed = kFree;  // The only offset allowed.
};

// Errors: DVT_INVALID_ARGUMENT for constraints that contradict each other, DVT_OUT_OF_MEMORY for
// sizes that overflow. Precondition: intervals are not empty in time.
Result<std::vector<Body>> make_bodies(std::span<const Interval> intervals,
                                      const Constraints& constraints, uint64_t alignment);

}  // namespace davit::lowering
