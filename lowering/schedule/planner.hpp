// planner.hpp: lays down a schedule for N workers, and drops edges that others imply.
//
// Method: list scheduling. Ready nodes go by the longest way to the end; each goes to the part
// where it can finish first, when what comes from another part arrives `transfer_ns` later. Waits
// are kept only where nothing else implies them: the order of the parts, or another wait, directly
// or through any number of steps (vector clocks).
//
// Threads  Pure functions.
// Trust    Graphs are verified: successors come after their node.
// Memory   Returns owned values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace davit::schedule {

// Borrowed.
struct Graph {
  std::span<const uint32_t> successor_offsets;  // count + 1
  std::span<const uint32_t> successors;
  std::span<const uint8_t> lane;    // DVT_KERNEL_LANE_*; empty: all normal.
  std::span<const double> cost_ns;  // Of each node.

  [[nodiscard]] uint32_t count() const {
    return static_cast<uint32_t>(successor_offsets.size() - 1);
  }
};

struct PlanOptions {
  uint32_t workers = 2;
  // Until a result is seen by another core, with what the wait for it costs there.
  double transfer_ns = 200;
  // Nodes that cost less on average are not worth moving: their operands cost as much to move.
  double node_min_ns = 20;
  // A plan for more workers has to promise this much less time than the plan for one.
  double gain = 0.9;
};

// As exec/mt_topo/plan.hpp has it.
struct Plan {
  std::vector<uint32_t> part_offsets;
  std::vector<uint32_t> order;
  std::vector<uint32_t> wait_offsets;
  std::vector<uint32_t> waits;
  std::vector<uint32_t> sequence;  // All nodes in an order that edges, parts and waits agree with.
  double makespan_ns = 0;          // Modelled.
  double sequential_ns = 0;        // Sum of the costs.
};

// The best plan for up to options.workers. One part when more would not pay. Memory nodes are all
// in the first part; launches keep their order.
Plan make_plan(const Graph& graph, const PlanOptions& options);

// Edges without those that another path implies, as far as a search of `visits` nodes per node
// finds out. Offsets and successors, like Graph's.
struct Edges {
  std::vector<uint32_t> successor_offsets;
  std::vector<uint32_t> successors;
  std::vector<uint32_t> indegree;
};
Edges reduce_edges(const Graph& graph, uint32_t visits);

}  // namespace davit::schedule
