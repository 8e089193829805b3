// topology.hpp: what the scheduler knows of a graph: plain tables in, clustered units out.
//
//   node   one DvtStep, as in the image
//   unit   a chain of nodes of one lane, run by one worker without a look at anything shared
//   arc    from a unit to a unit that waits for it, with what its source has to know of its target
//
//   arc word = [ sole:1 | memory:1 | wide:1 | unit:29 ]
//     sole    the target waits for this arc only: it is ready, and its join word is never touched
//     memory  the target belongs to the memory lane
//     wide    the target waits for kWideFanIn arcs or more: arrivals are counted before they are
//     sent
//
// Lanes    Launches submit in the order of the image: the topology gets an arc from each launch to
//          the next, so that the launch lane is in order and serial without a queue. Memory nodes
//          are serial in any order (strand.hpp). Normal nodes run anywhere.
// Threads  Immutable once built.
// Trust    Tables may come from anywhere; build() checks them.
// Memory   Owns copies, out of the resource that it is given; the contexts that steps point to are
//          the caller's.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "exec/sequential_c/sequential.h"

namespace davit::mt_topo {

// Borrowed. Nodes are in topological order: every successor has a greater index.
struct Tables {
  std::span<const DvtStep> steps;
  std::span<const uint32_t> successor_offsets;  // count + 1
  std::span<const uint32_t> successors;
  std::span<const uint32_t> indegree;
  std::span<const uint8_t> lane;  // DVT_KERNEL_LANE_*; empty: all normal.
  std::span<const int32_t>
      priority;  // Smaller first among nodes that become ready at once; may be empty.
  // Memory nodes may return DVT_STEP_SUSPENDED; then they run again later, others meanwhile. Only
  // Mode::kDynamic can.
  bool may_suspend = false;

  [[nodiscard]] uint32_t count() const {
    return successor_offsets.empty() ? 0 : static_cast<uint32_t>(successor_offsets.size() - 1);
  }
  [[nodiscard]] std::span<const uint32_t> successors_of(uint32_t node) const {
    return successors.subspan(successor_offsets[node],
                              successor_offsets[node + 1] - successor_offsets[node]);
  }
};

// Offsets monotone and in range, successors after their node, indegrees right, lanes known.
Status check_tables(const Tables& tables);

constexpr uint32_t kSole = 1U << 31;
constexpr uint32_t kMemory = 1U << 30;
constexpr uint32_t kWide = 1U << 29;
constexpr uint32_t kUnitMask = kWide - 1;
constexpr uint32_t kWideFanIn = 16;
constexpr uint32_t kNoNode = UINT32_MAX;

class Topology {
 public:
  // Precondition: check_tables().
  explicit Topology(const Tables& tables,
                    std::pmr::memory_resource& memory = *std::pmr::get_default_resource());

  [[nodiscard]] uint32_t unit_count() const { return static_cast<uint32_t>(indegree_.size()); }
  [[nodiscard]] uint32_t node_count() const { return static_cast<uint32_t>(steps_.size()); }
  [[nodiscard]] const DvtStep* steps() const { return steps_.data(); }
  // Step positions of a unit: [begin()[unit], begin()[unit + 1]). Its arcs likewise.
  [[nodiscard]] const uint32_t* begin() const { return begin_.data(); }
  [[nodiscard]] const uint32_t* arc_begin() const { return arc_begin_.data(); }
  [[nodiscard]] const uint32_t* arcs() const { return arcs_.data(); }
  // The image's node at a step position.
  [[nodiscard]] uint32_t node(uint32_t position) const { return node_[position]; }
  [[nodiscard]] uint32_t indegree(uint32_t unit) const { return indegree_[unit]; }
  // Arc words of the units that wait for nothing.
  [[nodiscard]] std::span<const uint32_t> roots() const { return roots_; }
  [[nodiscard]] bool may_suspend() const { return may_suspend_; }
  // Units on the longest path.
  [[nodiscard]] uint32_t depth() const { return depth_; }

 private:
  struct Chains;
  void lay_out_units(const Tables& tables, const Chains& chains);
  void lay_out_arcs(const Tables& tables, const Chains& chains);
  void measure_depth();

  std::pmr::vector<DvtStep> steps_;  // In the order of units.
  std::pmr::vector<uint32_t> node_;
  std::pmr::vector<uint32_t> begin_;
  std::pmr::vector<uint32_t> arc_begin_, arcs_;
  std::pmr::vector<uint32_t> indegree_;
  std::pmr::vector<uint32_t> roots_;
  std::pmr::vector<bool> memory_;
  uint32_t depth_ = 0;
  bool may_suspend_;
};

}  // namespace davit::mt_topo
