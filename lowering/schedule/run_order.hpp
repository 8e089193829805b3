// run_order.hpp: which nodes have certainly run before which, in every run of a schedule.
//
// A node comes after the node before it in its part, after what it waits for, and after what these
// come after. Everything else may be before it, after it, or at the same time.
//
// Threads  Immutable once built.
// Trust    The plan is one of make_plan().
// Memory   4 bytes for each node and part.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lowering/schedule/planner.hpp"

namespace davit::schedule {

class RunOrder {
 public:
  explicit RunOrder(const Plan& plan);

  [[nodiscard]] uint32_t parts() const { return parts_; }
  [[nodiscard]] uint32_t part_of(uint32_t node) const { return part_[node]; }
  [[nodiscard]] uint32_t position_of(uint32_t node) const { return position_[node]; }
  // Position behind the last one of each part that has certainly run when `node` starts.
  [[nodiscard]] std::span<const uint32_t> done_before(uint32_t node) const {
    return std::span(done_).subspan(size_t{node} * parts_, parts_);
  }
  [[nodiscard]] bool before(uint32_t first, uint32_t then) const {
    return position_[first] < done_before(then)[part_[first]];
  }

 private:
  uint32_t parts_;
  std::vector<uint32_t> part_, position_;
  std::vector<uint32_t> done_;
};

}  // namespace davit::schedule
