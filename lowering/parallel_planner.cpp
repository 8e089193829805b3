#include "lowering/parallel_planner.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/checked.hpp"

namespace davit::lowering {
namespace {

class ParallelPacking {
 public:
  ParallelPacking(std::span<const Interval> intervals, std::span<const Accesses> accesses,
                  const schedule::RunOrder& order, uint64_t alignment)
      : intervals_(intervals),
        parts_(order.parts()),
        starts_(intervals.size() * parts_, UINT32_MAX),
        ends_(intervals.size() * parts_, 0) {
    for (uint32_t value = 0; value < intervals.size(); ++value) {
      sizes_.push_back((intervals[value].size + alignment - 1) & ~(alignment - 1));
      for (const uint32_t node : accesses[value]) {
        uint32_t& end = ends_[size_t{value} * parts_ + order.part_of(node)];
        end = std::max(end, order.position_of(node) + 1);
        const auto done = order.done_before(node);
        for (uint32_t part = 0; part < parts_; ++part) {
          uint32_t& start = starts_[size_t{value} * parts_ + part];
          start = std::min(start, done[part]);
        }
      }
    }
  }

  // The lowest arena that the heuristics find; `bound` cannot be beaten.
  Plan run(uint64_t bound) {
    Plan best;
    for (const bool best_fit : {true, false}) {
      for (const auto& [key, name] :
           {std::pair(&ParallelPacking::area, "largest area first"),
            std::pair(&ParallelPacking::size, "largest first"),
            std::pair(&ParallelPacking::birth, "in the order of the image")}) {
        Plan plan = place(sorted_by(key), best_fit);
        plan.method = name;
        if (best.method.empty() || plan.arena_bytes < best.arena_bytes) best = std::move(plan);
        if (best.arena_bytes == bound) return best;
      }
    }
    return best;
  }

 private:
  using Key = double (ParallelPacking::*)(uint32_t) const;

  [[nodiscard]] double size(uint32_t value) const { return -static_cast<double>(sizes_[value]); }
  [[nodiscard]] double area(uint32_t value) const {
    return size(value) * static_cast<double>(intervals_[value].upper - intervals_[value].lower);
  }
  [[nodiscard]] double birth(uint32_t value) const {
    return static_cast<double>(intervals_[value].lower);
  }

  [[nodiscard]] std::vector<uint32_t> sorted_by(Key key) const {
    std::vector<uint32_t> values(intervals_.size());
    std::iota(values.begin(), values.end(), 0U);
    std::erase_if(values, [&](uint32_t value) { return sizes_[value] == 0; });
    std::stable_sort(values.begin(), values.end(),
                     [&](uint32_t a, uint32_t b) { return (this->*key)(a) < (this->*key)(b); });
    return values;
  }

  // Whether all that touches `first` has run before anything touches `then`.
  [[nodiscard]] bool precedes(uint32_t first, uint32_t then) const {
    const uint32_t* starts = &starts_[size_t{then} * parts_];
    const uint32_t* ends = &ends_[size_t{first} * parts_];
    for (uint32_t part = 0; part < parts_; ++part) {
      if (ends[part] > starts[part]) return false;
    }
    return true;
  }

  // Each value goes into the lowest (or the tightest) gap that those placed before leave.
  Plan place(const std::vector<uint32_t>& values, bool best_fit) const {
    Plan plan;
    plan.offsets.assign(intervals_.size(), 0);
    std::vector<uint32_t> placed;  // By ascending offset.
    for (const uint32_t value : values) {
      const uint64_t offset = find_gap(value, placed, plan.offsets, best_fit);
      plan.offsets[value] = offset;
      plan.arena_bytes = std::max(plan.arena_bytes, offset + sizes_[value]);
      const auto at = std::upper_bound(
          placed.begin(), placed.end(), offset,
          [&](uint64_t wanted, uint32_t other) { return wanted < plan.offsets[other]; });
      placed.insert(at, value);
    }
    return plan;
  }

  [[nodiscard]] uint64_t find_gap(uint32_t value, const std::vector<uint32_t>& placed,
                                  const std::vector<uint64_t>& offsets, bool best_fit) const {
    uint64_t end = 0;
    uint64_t found = 0;
    uint64_t tightest = UINT64_MAX;
    for (const uint32_t other : placed) {
      if (precedes(other, value) || precedes(value, other)) continue;
      if (offsets[other] >= end && offsets[other] - end >= sizes_[value] &&
          offsets[other] - end < tightest) {
        found = end;
        tightest = offsets[other] - end;
        if (!best_fit) return found;
      }
      end = std::max(end, offsets[other] + sizes_[other]);
    }
    return tightest == UINT64_MAX ? end : found;
  }

  std::span<const Interval> intervals_;
  const uint32_t parts_;
  std::vector<uint64_t> sizes_;
  // By value and part: positions that have run before any access, the position behind the last.
  std::vector<uint32_t> starts_, ends_;
};

}  // namespace

Result<Plan> plan_parallel_memory(std::span<const Interval> intervals,
                                  std::span<const Accesses> accesses,
                                  const schedule::RunOrder& order, const PlanOptions& options) {
  auto bound = lower_bound(intervals, options.alignment);
  if (!bound.ok()) return std::move(bound.status());
  uint64_t total = 0;
  for (const Interval& interval : intervals) {
    const auto sum = checked_add(total, interval.size + options.alignment);  // lower_bound().
    if (!sum || *sum > INT64_MAX) {
      return Status(DVT_OUT_OF_MEMORY, DVT_STAGE_PLAN, "the values need more than 2^63 bytes");
    }
    total = *sum;
  }
  Plan plan = ParallelPacking(intervals, accesses, order, options.alignment).run(*bound);
  plan.lower_bound_bytes = *bound;
  plan.proven_bound_bytes = *bound;
  return plan;
}

}  // namespace davit::lowering
