// heuristics.hpp: which heuristics of packing.hpp are tried, in which order, and which of them
// wins.
//
// They are ranked from the cheapest to the dearest. The smallest packing wins, of equal ones the
// first; and what comes behind the first that is good enough does not count. So the winner does not
// depend on how many run at once: threads take ranks in order, and those behind a good one stop.
//
// Threads  One call may use several of its own, and joins them.
// Memory   Each heuristic that runs has books of its own: some 100 bytes a block.
#pragma once

#include <cstdint>
#include <string_view>

#include "lowering/memory_plan/packing.hpp"

namespace davit::lowering {

struct HeuristicOptions {
  uint64_t enough = 0;    // A packing of at most this height ends it.
  uint64_t work_max = 0;  // Steps of the skyline, and of all packings in order together.
  uint32_t threads = 0;   // At most, the caller with them; 0: one for each CPU.
};

struct Winner {
  Packing packing;
  std::string_view method;
};

Winner pack_by_heuristics(const Problem& problem, const HeuristicOptions& options);

}  // namespace davit::lowering
