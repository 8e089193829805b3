// The checker behind check_plan(). It shares nothing with the planner but the Interval type, so
// that a mistake in one does not hide in the other.
#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>
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

// What can be said of each value alone.
Status check_range(std::span<const Interval> intervals, std::span<const uint64_t> offsets,
                   uint64_t arena_bytes, uint64_t alignment) {
  if (offsets.size() != intervals.size()) return broken("one offset per value is needed");
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
  }
  return {};
}

}  // namespace

Status check_plan(std::span<const Interval> intervals, std::span<const uint64_t> offsets,
                  uint64_t arena_bytes, uint64_t alignment) {
  if (Status status = check_range(intervals, offsets, arena_bytes, alignment); !status.ok()) {
    return status;
  }
  struct Event {
    uint64_t time;
    uint32_t is_birth;
    size_t index;
  };
  std::vector<Event> events;
  for (size_t i = 0; i < intervals.size(); ++i) {
    const Interval& interval = intervals[i];
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

namespace {

// Classes of values that aliases connect: the smallest value of each.
std::vector<uint32_t> alias_classes(size_t count, const Constraints& constraints) {
  std::vector<std::vector<uint32_t>> neighbours(count);
  for (const auto& alias : constraints.aliases) {
    neighbours[alias.value].push_back(alias.base);
    neighbours[alias.base].push_back(alias.value);
  }
  std::vector<uint32_t> classes(count, UINT32_MAX);
  for (uint32_t first = 0; first < count; ++first) {
    if (classes[first] != UINT32_MAX) continue;
    std::vector<uint32_t> waiting{first};
    while (!waiting.empty()) {
      const uint32_t value = waiting.back();
      waiting.pop_back();
      if (classes[value] != UINT32_MAX) continue;
      classes[value] = first;
      waiting.insert(waiting.end(), neighbours[value].begin(), neighbours[value].end());
    }
  }
  return classes;
}

Status check_constraints(std::span<const Interval> intervals, const Constraints& constraints,
                         std::span<const uint64_t> offsets, uint64_t alignment) {
  std::vector<uint64_t> alignments(intervals.size(), alignment);
  const auto name = [&](uint32_t value) { return constraints.name_of(value); };
  for (const auto& [value, bytes] : constraints.alignments) {
    alignments[value] = std::max(alignments[value], bytes);
    if (offsets[value] % bytes != 0)
      return broken("the offset of " + name(value) + " is not aligned");
  }
  for (const auto& [value, offset] : constraints.fixed) {
    if (offsets[value] != offset) return broken(name(value) + " is not where it is fixed");
  }
  for (const auto* ties : {&constraints.aliases, &constraints.ties}) {
    for (const auto& [value, base, distance] : *ties) {
      if (offsets[value] == offsets[base] + distance) continue;
      return broken(name(value) + " is not at its distance from " + name(base));
    }
  }
  for (const auto& run : constraints.runs) {
    for (size_t i = 1; i < run.size(); ++i) {
      const uint64_t end = offsets[run[i - 1]] + intervals[run[i - 1]].size;
      const uint64_t step = alignments[run[i]];
      // Rounded up from the end of a value at an aligned offset: less than one step above it.
      if (offsets[run[i]] >= end && offsets[run[i]] - end < step) continue;
      return broken(name(run[i]) + " does not follow " + name(run[i - 1]));
    }
  }
  return {};
}

}  // namespace

Status check_plan(std::span<const Interval> intervals, const Constraints& constraints,
                  std::span<const uint64_t> offsets, uint64_t arena_bytes, uint64_t alignment) {
  if (constraints.aliases.empty()) {
    Status status = check_plan(intervals, offsets, arena_bytes, alignment);
    return status.ok() ? check_constraints(intervals, constraints, offsets, alignment)
                       : std::move(status);
  }
  if (Status status = check_range(intervals, offsets, arena_bytes, alignment); !status.ok()) {
    return status;
  }
  const std::vector<uint32_t> classes = alias_classes(intervals.size(), constraints);
  // Live values may share bytes with their like, so each birth is compared with all of them.
  std::vector<uint32_t> births(intervals.size());
  std::iota(births.begin(), births.end(), 0);
  std::sort(births.begin(), births.end(),
            [&](uint32_t a, uint32_t b) { return intervals[a].lower < intervals[b].lower; });
  std::vector<uint32_t> live;
  for (const uint32_t index : births) {
    const Interval& interval = intervals[index];
    if (interval.size == 0) continue;
    std::erase_if(live, [&](uint32_t other) { return intervals[other].upper <= interval.lower; });
    for (const uint32_t other : live) {
      if (classes[other] != classes[index] && offsets[other] < offsets[index] + interval.size &&
          offsets[index] < offsets[other] + intervals[other].size) {
        return broken(describe(index, interval, offsets[index]) + " overlaps " +
                      describe(other, intervals[other], offsets[other]));
      }
    }
    live.push_back(index);
  }
  return check_constraints(intervals, constraints, offsets, alignment);
}

}  // namespace davit::lowering
