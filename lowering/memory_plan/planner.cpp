#include "lowering/memory_plan/planner.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "base/checked.hpp"
#include "lowering/memory_plan/packing.hpp"
#include "lowering/memory_plan/search.hpp"

namespace davit::lowering {
namespace {

Status too_large() {
  return Status(DVT_OUT_OF_MEMORY, DVT_STAGE_PLAN,
                "the values that live together need more than 2^63 bytes");
}

// The problem's blocks, and for each the index of its interval.
struct Squeezed {
  Problem problem;
  std::vector<uint32_t> interval;
};

Squeezed squeeze(std::span<const Interval> intervals, uint64_t alignment) {
  std::vector<uint64_t> times;
  Squeezed out;
  for (uint32_t i = 0; i < intervals.size(); ++i) {
    if (intervals[i].size == 0) continue;
    times.push_back(intervals[i].lower);
    times.push_back(intervals[i].upper);
    out.interval.push_back(i);
  }
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  const auto key = [&](uint32_t i) {
    const Interval& a = intervals[i];
    return std::tuple(a.lower, a.upper, UINT64_MAX - a.size, i);
  };
  std::sort(out.interval.begin(), out.interval.end(),
            [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
  const auto squeezed = [&](uint64_t time) {
    return uint32_t(std::lower_bound(times.begin(), times.end(), time) - times.begin());
  };
  for (const uint32_t i : out.interval) {
    const Interval& a = intervals[i];
    out.problem.blocks.push_back({squeezed(a.lower), squeezed(a.upper),
                                  (a.size + alignment - 1) & ~(alignment - 1)});  // lower_bound()
  }
  // Steps between the distinct times; the last time only ends values.
  out.problem.time_count = times.empty() ? 0 : uint32_t(times.size() - 1);
  return out;
}

// Tries one heuristic after the other, and the search when none is good enough.
class Contest {
 public:
  Contest(const Problem& problem, uint64_t bound, const PlanOptions& options)
      : problem_(problem), bound_(bound), options_(options) {}

  // Returns the largest lower bound known.
  uint64_t run() {
    if (run_heuristics()) return bound_;
    Budget budget(options_.search_steps);
    const uint64_t height = best_.height;
    const uint64_t bound =
        search_packing(problem_, {.bound = bound_, .enough = options_.capacity}, best_, budget);
    if (best_.height < height) method_ = "search";
    return bound;
  }

  [[nodiscard]] const Packing& best() const { return best_; }
  [[nodiscard]] std::string_view method() const { return method_; }

 private:
  // True when one of them is good enough.
  bool run_heuristics() {
    if (offer(pack_in_time(problem_), "best fit in time")) return true;
    if (offer(pack_back_in_time(problem_), "best fit back in time")) return true;
    Budget skyline_budget(options_.work_max);
    if (offer(pack_skyline(problem_, skyline_budget), "skyline")) return true;
    using Order = std::vector<uint32_t> (*)(const Problem&);
    constexpr std::pair<Order, std::string_view> kOrders[] = {{order_by_size, "largest first"},
                                                              {order_by_breadth, "breadth first"},
                                                              {order_by_area, "largest area first"},
                                                              {order_by_duration, "longest first"}};
    Budget budget(options_.work_max);
    for (const bool best_fit : {false, true}) {
      for (const auto& [order, name] : kOrders) {
        if (offer(pack_in_order(problem_, order(problem_), best_fit, budget), name)) return true;
      }
    }
    return false;
  }

  // Keeps the smaller packing; true when it is good enough.
  bool offer(std::optional<Packing> packing, std::string_view method) {
    if (packing && (method_.empty() || packing->height < best_.height)) {
      best_ = std::move(*packing);
      method_ = method;
    }
    return best_.height <= std::max(bound_, options_.capacity);
  }

  const Problem& problem_;
  uint64_t bound_;
  const PlanOptions& options_;
  Packing best_;
  std::string_view method_;
};

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
  for (const Interval& interval : intervals) {
    if (interval.lower >= interval.upper) {
      return Status(DVT_INTERNAL, DVT_STAGE_PLAN, "a value dies before it is born");
    }
  }
  auto bound = lower_bound(intervals, options.alignment);
  if (!bound.ok()) return std::move(bound.status());
  const Squeezed squeezed = squeeze(intervals, options.alignment);
  Contest contest(squeezed.problem, *bound, options);
  Plan plan;
  plan.proven_bound_bytes = contest.run();
  plan.offsets.assign(intervals.size(), 0);
  for (size_t i = 0; i < squeezed.interval.size(); ++i) {
    plan.offsets[squeezed.interval[i]] = contest.best().offsets[i];
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

}  // namespace davit::lowering
