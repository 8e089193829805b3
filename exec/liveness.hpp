// liveness.hpp: whether the Free-to-Launch relations of a graph can make a run wait for ever.
//
// An allocation that finds no memory waits for Launches that a Free before it has named. Memory
// nodes run in the order of the image, Launches too. So the wait ends unless such a Launch waits,
// by whatever chain of edges and orders, for a memory node behind the allocation that waits for it.
// That is decided for all relations together in time linear in the graph.
//
// Threads  Pure functions.
// Trust    The image is verified.
// Memory   Returns owned values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exec/image.hpp"

namespace davit::exec {

struct Liveness {
  uint64_t relations = 0;  // Pairs of a Free and a Launch.
  // What cannot be proved: the first allocation that may wait, then who waits for whom in turn,
  // up to the Launch that it may wait for. Empty: every wait ends.
  std::vector<uint32_t> chain;
  uint32_t free = kNone;  // Which named that Launch.

  [[nodiscard]] bool proved() const { return chain.empty(); }
};

Liveness prove_liveness(const ImageView& image, const GraphView& graph);

// "node 4 (AllocMemHbm, conv1) may wait for ...", in one line.
std::string describe_liveness(const ImageView& image, const GraphView& graph,
                              const Liveness& liveness);

}  // namespace davit::exec
