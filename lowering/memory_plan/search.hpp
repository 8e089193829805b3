// search.hpp: looks for plans smaller than the heuristics find, or shows that there are none.
//
// Depth first over partial plans (partial_plan.hpp). Somewhere the contour of what is placed has a
// valley; some section of it has the fewest blocks that could lie at its floor; one of these does,
// or none. Each case is tried, the longest-lived block first. Where no waiting block crosses a
// moment, what lies before and after is solved apart, so that a failure on one side does not make
// the other be solved again. Contours that have failed are remembered. An attempt that takes too
// long is given up and made again with another order of blocks, with more work allowed.
//
// Threads  One; pure functions.
// Memory   A few MB while it runs. Work is counted in steps, so results are the same everywhere.
#pragma once

#include <cstdint>
#include <functional>

#include "lowering/memory_plan/packing.hpp"

namespace davit::lowering {

struct SearchGoal {
  uint64_t bound = 0;   // No plan is smaller.
  uint64_t enough = 0;  // A plan of this height ends the search; the bound for the best there is.
  std::function<void(uint64_t height)> on_better;  // Told of every improvement. May be empty.
};

// Replaces `best` by smaller packings until one is good enough, no smaller one exists, or the
// budget is used up. Returns the largest lower bound it has shown (up to collisions of 64-bit
// hashes). Does nothing to problems that are too large (PartialPlan::can_hold()).
uint64_t search_packing(const Problem& problem, const SearchGoal& goal, Packing& best,
                        Budget& budget);

}  // namespace davit::lowering
