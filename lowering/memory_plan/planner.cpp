#include "lowering/memory_plan/planner.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "base/checked.hpp"
#include "lowering/memory_plan/bodies.hpp"
#include "lowering/memory_plan/body_packing.hpp"
#include "lowering/memory_plan/heuristics.hpp"
#include "lowering/memory_plan/packing.hpp"
#include "lowering/memory_plan/search.hpp"

namespace davit::lowering {
namespace {

Status too_large() {
  return Status(DVT_OUT_OF_MEMORY, DVT_STAGE_PLAN,
                "the values that live together need more than 2^63 bytes");
}

// A rectangle to place: a value, or a body's bounding box.
struct Item {
  uint64_t lower, upper;
  uint64_t size;  // A multiple of the alignment of the plan.
  uint32_t index;
  uint64_t alignment = 1;
  uint64_t fixed = Block::kFree;
};

// A problem, and the index of the item of each of its blocks.
struct Squeezed {
  Problem problem;
  std::vector<uint32_t> index;
};

Squeezed squeeze(std::vector<Item> items) {
  std::vector<uint64_t> times;
  for (const Item& item : items) {
    times.push_back(item.lower);
    times.push_back(item.upper);
  }
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  const auto key = [](const Item& item) {
    return std::tuple(item.lower, item.upper, UINT64_MAX - item.size, item.index);
  };
  std::sort(items.begin(), items.end(),
            [&](const Item& a, const Item& b) { return key(a) < key(b); });
  const auto squeezed = [&](uint64_t time) {
    return uint32_t(std::lower_bound(times.begin(), times.end(), time) - times.begin());
  };
  Squeezed out;
  for (const Item& item : items) {
    out.problem.blocks.push_back(
        {squeezed(item.lower), squeezed(item.upper), item.size, item.alignment, item.fixed});
    out.index.push_back(item.index);
  }
  // Steps between the distinct times; the last time only ends values.
  out.problem.time_count = times.empty() ? 0 : uint32_t(times.size() - 1);
  return out;
}

Status check_lives(std::span<const Interval> intervals) {
  for (const Interval& interval : intervals) {
    if (interval.lower >= interval.upper) {
      return Status(DVT_INTERNAL, DVT_STAGE_PLAN, "a value dies before it is born");
    }
  }
  return {};
}

// The best of the heuristics, and the search when none is good enough.
class Contest {
 public:
  Contest(const Problem& problem, uint64_t bound, const PlanOptions& options)
      : problem_(problem), bound_(bound), options_(options) {}

  // Returns the largest lower bound known.
  uint64_t run() {
    const uint64_t enough = std::max(bound_, options_.capacity);
    winner_ = pack_by_heuristics(
        problem_, {.enough = enough, .work_max = options_.work_max, .threads = options_.threads});
    const uint64_t height = winner_.packing.height;
    if (height <= enough) return bound_;
    Budget budget(options_.search_steps);
    const uint64_t bound = search_packing(
        problem_, {.bound = bound_, .enough = options_.capacity, .on_better = options_.on_better},
        winner_.packing, budget);
    if (winner_.packing.height < height) winner_.method = "search";
    return bound;
  }

  [[nodiscard]] const Packing& best() const { return winner_.packing; }
  [[nodiscard]] std::string_view method() const { return winner_.method; }

 private:
  const Problem& problem_;
  uint64_t bound_;
  const PlanOptions& options_;
  Winner winner_;
};

// Bodies as rectangles.
struct Boxes {
  std::vector<Item> items;
  bool are_exact = true;  // Every body is its box.
  bool are_plain = true;  // No block has a constraint of its own.
};

Boxes make_boxes(const std::vector<Body>& bodies, uint64_t alignment) {
  Boxes boxes;
  for (uint32_t i = 0; i < bodies.size(); ++i) {
    const Body& body = bodies[i];
    if (body.parts.empty()) continue;
    Item item{.lower = UINT64_MAX, .upper = 0, .size = body.bytes, .index = i};
    for (const Body::Part& part : body.parts) {
      item.lower = std::min(item.lower, part.lower);
      item.upper = std::max(item.upper, part.upper);
    }
    // Empty members may lie beyond the part.
    const bool fills_box = body.parts.size() == 1 && body.parts.front().low == 0 &&
                           body.parts.front().high == body.bytes;
    item.alignment = body.alignment;
    item.fixed = body.fixed;
    boxes.are_exact = boxes.are_exact && fills_box && body.residue == 0;
    boxes.are_plain = boxes.are_plain && body.alignment <= alignment && body.fixed == Body::kFree;
    boxes.items.push_back(item);
  }
  return boxes;
}

// A plan of bodies that are not all plain rectangles: first fits, then a search over their boxes.
class BodyContest {
 public:
  BodyContest(const std::vector<Body>& bodies, const Constraints& constraints, uint64_t bound,
              const PlanOptions& options)
      : bodies_(bodies), constraints_(constraints), bound_(bound), options_(options) {}

  // Returns the largest lower bound known.
  Result<uint64_t> run(const Boxes& boxes) {
    const uint64_t enough = std::max(bound_, options_.capacity);
    // Boxes that are exact leave little to change places for.
    Budget budget(boxes.are_exact ? options_.search_steps / 8 : options_.search_steps / 2);
    auto packing = pack_bodies(bodies_, constraints_, enough, budget);
    if (!packing.ok()) return std::move(packing.status());
    best_ = std::move(*packing);
    method_ = "first fit of bodies";
    const bool boxes_have_residues = std::any_of(
        bodies_.begin(), bodies_.end(), [](const Body& body) { return body.residue != 0; });
    if (best_.height <= enough || boxes_have_residues) return bound_;
    return search(boxes, enough);
  }

  [[nodiscard]] const BodyPacking& best() const { return best_; }
  [[nodiscard]] std::string_view method() const { return method_; }

 private:
  uint64_t search(const Boxes& boxes, uint64_t enough) {
    const Squeezed squeezed = squeeze(boxes.items);
    Packing packing{.offsets = std::vector<uint64_t>(squeezed.index.size()),
                    .height = best_.height};
    Budget budget(options_.search_steps / 2);
    const uint64_t shown = search_packing(
        squeezed.problem, {.bound = bound_, .enough = enough, .on_better = options_.on_better},
        packing, budget);
    if (packing.height < best_.height) {
      method_ = "search";
      best_.height = packing.height;
      for (size_t i = 0; i < squeezed.index.size(); ++i) {
        best_.offsets[squeezed.index[i]] = packing.offsets[i];
      }
    }
    return boxes.are_exact ? shown : bound_;
  }

  const std::vector<Body>& bodies_;
  const Constraints& constraints_;
  uint64_t bound_;
  const PlanOptions& options_;
  BodyPacking best_;
  std::string_view method_;
};

// The arena covers offsets of empty values, too.
uint64_t place_members(const std::vector<Body>& bodies, const std::vector<uint64_t>& offsets,
                       Plan& plan) {
  uint64_t end = 0;
  for (size_t i = 0; i < bodies.size(); ++i) {
    for (const auto& [value, distance] : bodies[i].members) {
      plan.offsets[value] = offsets[i] + distance;
    }
    end = std::max(end, offsets[i] + bodies[i].bytes);
  }
  return end;
}

}  // namespace

Result<uint64_t> lower_bound(std::span<const Interval> intervals, uint64_t alignment) {
  struct Change {
    uint64_t time;
    bool birth;
    uint64_t size;
  };
  std::vector<Change> changes;
  for (const Interval& interval : intervals) {
    const auto size = checked_align(interval.size, alignment);
    if (!size || *size > INT64_MAX) return too_large();
    changes.push_back({interval.lower, true, *size});
    changes.push_back({interval.upper, false, *size});
  }
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return std::tuple(a.time, a.birth) < std::tuple(b.time, b.birth);  // Deaths first.
  });
  uint64_t live = 0;
  uint64_t most = 0;
  for (const Change& change : changes) {
    if (!change.birth) {
      live -= change.size;
      continue;
    }
    const auto sum = checked_add(live, change.size);
    if (!sum || *sum > INT64_MAX) return too_large();
    live = *sum;
    most = std::max(most, live);
  }
  return most;
}

Result<Plan> plan_memory(std::span<const Interval> intervals, const PlanOptions& options) {
  if (Status status = check_lives(intervals); !status.ok()) return status;
  auto bound = lower_bound(intervals, options.alignment);
  if (!bound.ok()) return std::move(bound.status());
  std::vector<Item> items;
  for (uint32_t i = 0; i < intervals.size(); ++i) {
    const Interval& interval = intervals[i];
    if (interval.size == 0) continue;
    // lower_bound() has checked this sum.
    const uint64_t size = (interval.size + options.alignment - 1) & ~(options.alignment - 1);
    items.push_back({.lower = interval.lower, .upper = interval.upper, .size = size, .index = i});
  }
  const Squeezed squeezed = squeeze(std::move(items));
  Contest contest(squeezed.problem, *bound, options);
  Plan plan;
  plan.proven_bound_bytes = contest.run();
  plan.offsets.assign(intervals.size(), 0);
  for (size_t i = 0; i < squeezed.index.size(); ++i) {
    plan.offsets[squeezed.index[i]] = contest.best().offsets[i];
  }
  plan.arena_bytes = contest.best().height;
  plan.lower_bound_bytes = *bound;
  plan.method = contest.method();
  if (Status status = check_plan(intervals, plan.offsets, plan.arena_bytes, options.alignment);
      !status.ok()) {
    status.detail().code = DVT_INTERNAL;
    return status;
  }
  return plan;
}

Result<Plan> plan_memory(std::span<const Interval> intervals, const Constraints& constraints,
                         const PlanOptions& options) {
  if (constraints.empty()) return plan_memory(intervals, options);
  if (Status status = check_lives(intervals); !status.ok()) return status;
  auto bodies = make_bodies(intervals, constraints, options.alignment);
  if (!bodies.ok()) return std::move(bodies.status());
  auto bound = bodies_lower_bound(*bodies);
  if (!bound.ok()) return std::move(bound.status());
  const Boxes boxes = make_boxes(*bodies, options.alignment);
  Plan plan{.offsets = std::vector<uint64_t>(intervals.size()), .lower_bound_bytes = *bound};
  std::vector<uint64_t> offsets;  // By body. Those without bytes are in no box.
  for (const Body& body : *bodies) {
    offsets.push_back(body.fixed == Body::kFree ? body.residue : body.fixed);
  }
  if (boxes.are_exact && boxes.are_plain) {
    const Squeezed squeezed = squeeze(boxes.items);
    Contest contest(squeezed.problem, *bound, options);
    plan.proven_bound_bytes = contest.run();
    plan.method = contest.method();
    for (size_t i = 0; i < squeezed.index.size(); ++i) {
      offsets[squeezed.index[i]] = contest.best().offsets[i];
    }
  } else {
    BodyContest contest(*bodies, constraints, *bound, options);
    auto shown = contest.run(boxes);
    if (!shown.ok()) return std::move(shown.status());
    plan.proven_bound_bytes = *shown;
    plan.method = contest.method();
    offsets = contest.best().offsets;
  }
  plan.arena_bytes = place_members(*bodies, offsets, plan);
  if (Status status =
          check_plan(intervals, constraints, plan.offsets, plan.arena_bytes, options.alignment);
      !status.ok()) {
    status.detail().code = DVT_INTERNAL;
    return status;
  }
  return plan;
}

}  // namespace davit::lowering
