// The checker behind check_plan(). It shares nothing with the planner but the Interval type, so
// that a mistake in one does not hide in the other.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "lowering/memory_plan/planner.hpp"

namespace davit::lowering {
namespace {

Status broken(std::string message) {
  return Status(DVT_INVALID_ARGUMENT, DVT_STAGE_PLAN, std::move(message));
}

std::string describe(size_t index, const Interval& interval, uint64_t offset) {
  return "value " + std::to_string(index) + " (steps " + std::to_string(interval.lower) + " to " +
         std::to_string(interval.upper) + ", bytes " + std::to_string(offset) + " to " +
         std::to_string(offset + interval.size) + ")";
}

}  // namespace

Status check_plan(std::span<const Interval> intervals, std::span<const uint64_t> offsets,
                  uint64_t arena_bytes, uint64_t alignment) {
  if (offsets.size() != intervals.size()) return broken("one offset per value is needed");
  struct Event {
    uint64_t time;
    uint32_t is_birth;
    size_t index;
  };
  std::vector<Event> events;
  for (size_t i = 0; i < intervals.size(); ++i) {
    const Interval& interval = intervals[i];
    if (interval.lower >= interval.upper) {
      return broken("value " + std::to_string(i) + " dies before it is born");
    }
    if (offsets[i] % alignment != 0) {
      return broken("the offset of value " + std::to_string(i) + " is not aligned");
    }
    if (offsets[i] > arena_bytes || interval.size > arena_bytes - offsets[i]) {
      return broken(describe(i, interval, offsets[i]) + " leaves the arena of " +
                    std::to_string(arena_bytes) + " bytes");
    }
    if (interval.size == 0) continue;
    events.push_back({interval.lower, 1, i});
    events.push_back({interval.upper, 0, i});
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.time != b.time ? a.time < b.time : a.is_birth < b.is_birth;
  });
  std::map<uint64_t, size_t> live;  // Offset to value. Live values are disjoint, by induction.
  for (const Event& event : events) {
    const size_t index = event.index;
    if (event.is_birth == 0) {
      live.erase(offsets[index]);
      continue;
    }
    const auto above = live.lower_bound(offsets[index]);
    if (above != live.end() && above->first < offsets[index] + intervals[index].size) {
      return broken(describe(index, intervals[index], offsets[index]) + " overlaps " +
                    describe(above->second, intervals[above->second], above->first));
    }
    if (above != live.begin()) {
      const auto& [offset, below] = *std::prev(above);
      if (offset + intervals[below].size > offsets[index]) {
        return broken(describe(index, intervals[index], offsets[index]) + " overlaps " +
                      describe(below, intervals[below], offset));
      }
    }
    live.emplace(offsets[index], index);
  }
  return {};
}

}  // namespace davit::lowering
