// dependencies.hpp: what each node of a static graph has to wait for, whoever runs it.
//
// The image's successors order nodes by the values they pass. Values share memory, so a node must
// also wait for those that still use the bytes it writes. Both follow from one sweep over the bytes
// that nodes touch, in the order of the image: a read waits for the last write of any of its bytes,
// a write for the last write and for all reads since. That order is the sequential loop's for every
// byte, so the results are the same bits. Successors are kept besides.
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

// Why the graph cannot run on several workers; empty when it can.
std::string reason_to_stay_sequential(const ImageView& image, const GraphView& graph);

// The graph's schedule as the scheduler takes it. Precondition: it has one.
inline mt_topo::PlanTables plan_tables(const GraphView& graph) {
  const uint32_t n = graph.node_count;
  return {.part_offsets = {graph.part_off, graph.part_count + 1},
          .order = {graph.part_nodes, n},
          .wait_offsets = {graph.wait_off, n + 1},
          .waits = {graph.waits, graph.wait_off[n]}};
}

// Precondition: no reason_to_stay_sequential().
Dependencies dependencies_of(const ImageView& image, const GraphView& graph);

// Whether some node drives a device. The functions above are for graphs without.
bool drives_device(const ImageView& image, const GraphView& graph);

// Likewise for a graph that drives a device: static, without bodies, of device nodes only, and
// whose relations are proved to end (liveness.hpp).
std::string reason_to_keep_device_in_order(const ImageView& image, const GraphView& graph);

// Memory nodes follow each other in the order of the image, and so do launches, events included,
// whatever their streams: a device with several is told the same in the same order. A launch waits
// for those that gave its operands their memory, a Free for the launches with its memory, unless
// its Free-to-Launch row names the last of them. SyncStream comes after the launches before it and
// before all that is behind it. The device itself runs each stream in order. Precondition: no
// reason_to_keep_device_in_order().
Dependencies device_dependencies_of(const ImageView& image, const GraphView& graph);

}  // namespace davit::exec
