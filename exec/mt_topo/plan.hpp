// plan.hpp: a schedule laid down beforehand: who runs what in which order, and who waits for whom.
//
// Positions count through the parts: part p has positions [part_offsets[p], part_offsets[p + 1]).
// The node at a position runs after the node at the position before it in its part, and after the
// positions that it waits for, which are of other parts.
//
// Threads  Immutable once built.
// Trust    Tables may come from a file; check_plan() proves that they are a schedule of the graph.
// Memory   PlanTables borrows. Segments owns, out of the resource that it is given.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "exec/mt_topo/topology.hpp"

namespace davit::mt_topo {

constexpr uint32_t kPartsMax = 64;

struct PlanTables {
  std::span<const uint32_t> part_offsets;  // parts + 1
  std::span<const uint32_t> order;         // node of each position
  std::span<const uint32_t> wait_offsets;  // count + 1
  std::span<const uint32_t> waits;         // positions, of other parts

  [[nodiscard]] uint32_t parts() const { return static_cast<uint32_t>(part_offsets.size() - 1); }
};

// Proves what Planned relies on: every node has one position; parts and waits together have no
// cycle; every successor, and every launch after the launch before it, comes later by them; all
// memory nodes are in one part. Linear in the tables, times the number of parts. Errors begin with
// the column of the image that is wrong. Precondition: check_tables(tables); steps may be empty.
Status check_plan(const PlanTables& plan, const Tables& tables);

// Plan and steps as the run wants them.
//
//   part p = segments [part_begin[p], part_begin[p + 1])
//   segment: wait for flags [wait_begin, wait_end); run steps [begin, end); then raise
//            raised[raise_begin, raise_end)
//
// A flag is an entry of PlanTables.waits, so that each has one who raises and one who waits.
struct Segment {
  uint32_t begin, end;
  uint32_t wait_begin, wait_end;
  uint32_t raise_begin, raise_end;
};

class Segments {
 public:
  // Precondition: check_plan().
  Segments(const PlanTables& plan, const Tables& tables,
           std::pmr::memory_resource& memory = *std::pmr::get_default_resource());

  [[nodiscard]] uint32_t parts() const { return static_cast<uint32_t>(part_begin_.size() - 1); }
  [[nodiscard]] uint32_t part_begin(uint32_t part) const { return part_begin_[part]; }
  [[nodiscard]] const Segment& segment(uint32_t index) const { return segments_[index]; }
  [[nodiscard]] uint32_t raised(uint32_t index) const { return raised_[index]; }
  [[nodiscard]] const DvtStep* steps() const { return steps_.data(); }
  [[nodiscard]] uint32_t node(uint32_t position) const { return node_[position]; }
  [[nodiscard]] uint32_t flag_count() const { return static_cast<uint32_t>(raised_.size()); }

 private:
  std::pmr::vector<DvtStep> steps_;
  std::pmr::vector<uint32_t> node_;
  std::pmr::vector<uint32_t> part_begin_;
  std::pmr::vector<Segment> segments_;
  std::pmr::vector<uint32_t> raised_;
};

}  // namespace davit::mt_topo
