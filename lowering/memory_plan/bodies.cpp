#include "lowering/memory_plan/bodies.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "base/checked.hpp"

namespace davit::lowering {
namespace {

constexpr uint64_t kAlignmentMax = uint64_t{1} << 40;

Status contradiction(std::string message) {
  return Status(DVT_INVALID_ARGUMENT, DVT_STAGE_PLAN, std::move(message));
}

Status too_large() {
  return Status(DVT_OUT_OF_MEMORY, DVT_STAGE_PLAN,
                "values that belong together need over 2^62 bytes");
}

// Values in sets, with the distance of each from its set's root.
class Sets {
 public:
  explicit Sets(size_t count) : parent_(count), distance_(count, 0) {
    std::iota(parent_.begin(), parent_.end(), 0);
  }

  struct Position {
    uint32_t root;
    int64_t distance;
  };
  Position find(uint32_t value) {
    uint32_t root = value;
    int64_t total = 0;
    while (parent_[root] != root) {
      total += distance_[root];
      root = parent_[root];
    }
    for (int64_t left = total; parent_[value] != root && value != root;) {
      const uint32_t next = parent_[value];
      const int64_t step = std::exchange(distance_[value], left);
      parent_[value] = root;
      left -= step;
      value = next;
    }
    return {root, total};
  }

  // False when the two already have another distance.
  bool tie(uint32_t value, uint32_t base, int64_t distance) {
    const Position a = find(value);
    const Position b = find(base);
    if (a.root == b.root) return a.distance - b.distance == distance;
    parent_[a.root] = b.root;
    distance_[a.root] = b.distance + distance - a.distance;
    return true;
  }

 private:
  std::vector<uint32_t> parent_;
  std::vector<int64_t> distance_;  // From the parent.
};

class Builder {
 public:
  Builder(std::span<const Interval> intervals, const Constraints& constraints, uint64_t alignment)
      : intervals_(intervals),
        constraints_(constraints),
        alignment_(alignment),
        sets_(intervals.size()),
        classes_(intervals.size()),
        alignments_(intervals.size(), alignment),
        body_of_(intervals.size(), UINT32_MAX) {}

  Result<std::vector<Body>> run() {
    Status status = check_values();
    if (status.ok()) status = take_alignments();
    if (status.ok()) status = take_ties();
    if (status.ok()) status = take_runs();
    if (!status.ok()) return status;
    gather();
    for (size_t i = 0; status.ok() && i < bodies_.size(); ++i) {
      status = check_sharing(bodies_[i]);
      if (status.ok()) status = align(bodies_[i]);
      if (status.ok()) find_parts(bodies_[i]);
    }
    if (status.ok()) status = take_fixed();
    if (!status.ok()) return status;
    return std::move(bodies_);
  }

 private:
  [[nodiscard]] std::string name(uint32_t value) const { return constraints_.name_of(value); }

  Status check_values() {
    uint32_t highest = 0;
    for (const auto& fixed : constraints_.fixed) highest = std::max(highest, fixed.value);
    for (const auto& aligned : constraints_.alignments) highest = std::max(highest, aligned.value);
    for (const auto* ties : {&constraints_.aliases, &constraints_.ties}) {
      for (const auto& tie : *ties) highest = std::max({highest, tie.value, tie.base});
    }
    for (const auto& run : constraints_.runs) {
      for (const uint32_t value : run) highest = std::max(highest, value);
    }
    if (constraints_.empty() || highest < intervals_.size()) return {};
    return contradiction("a constraint names " + name(highest) + " of " +
                         std::to_string(intervals_.size()));
  }

  Status take_alignments() {
    for (const auto& [value, bytes] : constraints_.alignments) {
      if (bytes == 0 || (bytes & (bytes - 1)) != 0 || bytes > kAlignmentMax) {
        return contradiction("the alignment of " + name(value) + " is " + std::to_string(bytes) +
                             ", not a power of two up to 2^40");
      }
      alignments_[value] = std::max(alignments_[value], bytes);
    }
    return {};
  }

  // All distances in one set sum up to less than 2^62, so that none overflows.
  Status tie(uint32_t value, uint32_t base, uint64_t distance) {
    const auto sum = checked_add(distance_sum_, distance);
    if (!sum || *sum > uint64_t{1} << 62) return too_large();
    distance_sum_ = *sum;
    if (sets_.tie(value, base, int64_t(distance))) return {};
    const int64_t other = sets_.find(value).distance - sets_.find(base).distance;
    return contradiction(name(value) + " has to begin " + std::to_string(distance) +
                         " bytes after " + name(base) + ", and by other constraints " +
                         std::to_string(other) + " bytes");
  }

  Status take_ties() {
    for (const auto* ties : {&constraints_.aliases, &constraints_.ties}) {
      for (const auto& [value, base, distance] : *ties) {
        if (Status status = tie(value, base, distance); !status.ok()) return status;
        if (ties == &constraints_.aliases) classes_.tie(value, base, 0);
      }
    }
    return {};
  }

  Status take_runs() {
    for (const auto& run : constraints_.runs) {
      for (size_t i = 1; i < run.size(); ++i) {
        const auto distance = checked_align(intervals_[run[i - 1]].size, alignments_[run[i]]);
        if (!distance) return too_large();
        if (Status status = tie(run[i], run[i - 1], *distance); !status.ok()) return status;
      }
    }
    return {};
  }

  void gather() {
    std::vector<int64_t> lowest;
    for (uint32_t value = 0; value < intervals_.size(); ++value) {
      const auto [root, distance] = sets_.find(value);
      if (body_of_[root] == UINT32_MAX) {
        body_of_[root] = uint32_t(bodies_.size());
        bodies_.emplace_back();
        lowest.push_back(distance);
      }
      const uint32_t body = body_of_[root];
      body_of_[value] = body;
      lowest[body] = std::min(lowest[body], distance);
    }
    for (uint32_t value = 0; value < intervals_.size(); ++value) {
      const uint32_t body = body_of_[value];
      bodies_[body].members.push_back({value, uint64_t(sets_.find(value).distance - lowest[body])});
    }
  }

  [[nodiscard]] bool may_share(uint32_t a, uint32_t b) {
    return classes_.find(a).root == classes_.find(b).root;
  }

  // Members that live together and are not aliases are apart.
  Status check_sharing(Body& body) {
    std::vector<Body::Member> members = body.members;
    std::stable_sort(members.begin(), members.end(), [&](const auto& a, const auto& b) {
      return intervals_[a.value].lower < intervals_[b.value].lower;
    });
    for (size_t i = 0; i < members.size(); ++i) {
      const auto& [a, a_low] = members[i];
      for (size_t j = i + 1; j < members.size(); ++j) {
        const auto& [b, b_low] = members[j];
        if (intervals_[b].lower >= intervals_[a].upper) break;
        const bool meet = a_low < b_low + intervals_[b].size && b_low < a_low + intervals_[a].size;
        if (!meet || intervals_[a].size == 0 || intervals_[b].size == 0 || may_share(a, b)) {
          continue;
        }
        return contradiction(name(a) + " and " + name(b) +
                             " have to share bytes while both live, and are no aliases");
      }
    }
    return {};
  }

  Status align(Body& body) {
    uint32_t strictest = body.members.front().value;
    for (const auto& [value, distance] : body.members) {
      const auto end = checked_add(distance, intervals_[value].size);
      if (!end || *end > uint64_t{1} << 62) return too_large();
      if (alignments_[value] > body.alignment) {
        body.alignment = alignments_[value];
        body.residue = (0 - distance) & (body.alignment - 1);
        strictest = value;
      }
    }
    for (const auto& [value, distance] : body.members) {
      if (((body.residue + distance) & (alignments_[value] - 1)) == 0) continue;
      return contradiction("the alignments of " + name(value) + " and " + name(strictest) +
                           " do not go with their distance");
    }
    return {};
  }

  // Sweeps over the members' lives: between two births or deaths, the union of their bytes.
  void find_parts(Body& body) {
    using Range = std::pair<uint64_t, uint64_t>;
    std::map<uint64_t, std::vector<std::pair<bool, Range>>> events;
    for (const auto& [value, distance] : body.members) {
      const Interval& interval = intervals_[value];
      body.bytes = std::max(body.bytes, distance);
      if (interval.size == 0) continue;
      // All distances are multiples of the alignment, so what is rounded up to it is nobody's.
      const Range range(distance, (distance + interval.size + alignment_ - 1) & ~(alignment_ - 1));
      body.bytes = std::max(body.bytes, range.second);
      events[interval.lower].emplace_back(true, range);
      events[interval.upper].emplace_back(false, range);
    }
    std::multimap<uint64_t, uint64_t> live;
    std::map<Range, uint64_t> open;  // Ranges in use, since when.
    for (const auto& [time, changes] : events) {
      for (const auto& [is_birth, range] : changes) {
        if (is_birth) live.insert(range);
      }
      for (const auto& [is_birth, range] : changes) {
        if (is_birth) continue;
        auto it = live.find(range.first);
        while (it->second != range.second) ++it;
        live.erase(it);
      }
      std::map<Range, uint64_t> now;
      for (auto it = live.begin(); it != live.end();) {
        Range range = *it;
        while (++it != live.end() && it->first <= range.second) {
          range.second = std::max(range.second, it->second);
        }
        const auto known = open.find(range);
        now.emplace(range, known == open.end() ? time : known->second);
      }
      for (const auto& [range, since] : open) {
        if (now.find(range) == now.end()) {
          body.parts.push_back({since, time, range.first, range.second});
        }
      }
      open = std::move(now);
    }
  }

  Status take_fixed() {
    for (const auto& [value, offset] : constraints_.fixed) {
      Body& body = bodies_[body_of_[value]];
      const auto member = std::find_if(body.members.begin(), body.members.end(),
                                       [value = value](const auto& m) { return m.value == value; });
      if (offset > uint64_t{1} << 62) return too_large();
      if (offset < member->distance) {
        return contradiction(name(value) + " is fixed at " + std::to_string(offset) +
                             ", which leaves no room for what has to lie below it");
      }
      const uint64_t at = offset - member->distance;
      if ((at & (body.alignment - 1)) != body.residue) {
        return contradiction("the offset " + std::to_string(offset) + " of " + name(value) +
                             " is not aligned");
      }
      if (body.fixed != Body::kFree && body.fixed != at) {
        return contradiction(name(value) + " is fixed at " + std::to_string(offset) +
                             ", and by other constraints at " +
                             std::to_string(body.fixed + member->distance));
      }
      body.fixed = at;
    }
    return {};
  }

  std::span<const Interval> intervals_;
  const Constraints& constraints_;
  uint64_t alignment_;
  uint64_t distance_sum_ = 0;
  Sets sets_;     // By distance.
  Sets classes_;  // Aliases; distances are not used.
  std::vector<uint64_t> alignments_;
  std::vector<uint32_t> body_of_;  // By value; while gathering, by root.
  std::vector<Body> bodies_;
};

}  // namespace

Result<std::vector<Body>> make_bodies(std::span<const Interval> intervals,
                                      const Constraints& constraints, uint64_t alignment) {
  return Builder(intervals, constraints, alignment).run();
}

}  // namespace davit::lowering
