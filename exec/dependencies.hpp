// dependencies.hpp: what each node of a graph has to wait for, whoever runs it.
//
// The image's successors order nodes by the values they pass. Values share memory, so a node must
// also wait for those that still use the bytes it writes; and where shapes are set at run time, for
// those that set shapes and addresses. All of it follows from one sweep over what nodes touch
// (host_accesses.hpp). Successors are kept besides.
//
// Threads  Pure functions.
// Trust    Ids and edges are verified (verify_graph.cpp), and planned values lie in the arena.
// Memory   The caller owns what is returned.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exec/image.hpp"
#include "exec/mt_topo/plan.hpp"

namespace davit::exec {

// Below what a plan of many overlapping values would cost at load, a run is not worth it: pieces of
// memory that all operands together may touch.
inline constexpr uint64_t kSweepStepsMax = 200'000'000;

// Successors with those that memory adds. As GraphView has them.
struct Dependencies {
  std::vector<uint32_t> successor_offsets, successors, indegree;
};
// From the nodes before each, which are changed.
Dependencies dependencies_from(std::vector<std::vector<uint32_t>>& before);
// Those of the image alone.
Dependencies successors_of(const GraphView& graph);
// Those of the nodes from `first` on, numbered from 0, when all nodes before it have run.
Dependencies dependencies_behind(const Dependencies& all, uint32_t first);

// Why a graph has no schedule for several workers; empty when it may have: static, without bodies,
// on the host.
std::string reason_to_stay_sequential(const ImageView& image, const GraphView& graph);
// Precondition: no reason_to_stay_sequential().
Dependencies dependencies_of(const ImageView& image, const GraphView& graph);

// The graph's schedule as the scheduler takes it. Precondition: it has one.
inline mt_topo::PlanTables plan_tables(const GraphView& graph) {
  const uint32_t n = graph.node_count;
  return {.part_offsets = {graph.part_off, graph.part_count + 1},
          .order = {graph.part_nodes, n},
          .wait_offsets = {graph.wait_off, n + 1},
          .waits = {graph.waits, graph.wait_off[n]}};
}

// Likewise for a graph on the host, or a body, whose shapes may be set at run time and whose nodes
// may run bodies: such a node waits as if it touched all that its bodies do. `heap_in_order`:
// memory of the heap is taken and given back in the order of the image, so that it needs no more
// than there. The image's kernels are resolved.
std::string reason_to_keep_in_order(const ImageView& image, const GraphView& graph);
Dependencies host_dependencies_of(const ImageView& image, const GraphView& graph,
                                  bool heap_in_order);

// Whether some node drives a device. The functions above are for graphs without.
bool drives_device(const ImageView& image, const GraphView& graph);

// Likewise for a graph that drives a device, whose relations are proved to end (liveness.hpp).
// Where host nodes compute, or shapes are set at run time, rows have to name launches before their
// Free: then whatever a launch waits for is before it, and they end.
std::string reason_to_keep_device_in_order(const ImageView& image, const GraphView& graph);

// Nodes that change memory of the device follow each other in the order of the image, and so do
// launches, events included, whatever their streams: a device with several is told the same in the
// same order. A launch waits for those that gave its operands their memory, a Free for the launches
// with its memory, unless its Free-to-Launch row names the last of them. SyncStream comes after the
// launches before it and before all that is behind it. The device itself runs each stream in order.
// Host nodes wait as in host_dependencies_of(), with the heap in order. Precondition: no
// reason_to_keep_device_in_order().
Dependencies device_dependencies_of(const ImageView& image, const GraphView& graph);

}  // namespace davit::exec
