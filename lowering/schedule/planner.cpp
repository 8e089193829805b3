#include "lowering/schedule/planner.hpp"

#include <algorithm>
#include <queue>
#include <utility>

#include "davit/kernel.h"

namespace davit::schedule {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

// Edges with those that launch order adds, both ways.
struct Order {
  std::vector<uint32_t> successor_offsets, successors;
  std::vector<uint32_t> predecessor_offsets, predecessors;

  explicit Order(const Graph& graph) {
    std::vector<std::pair<uint32_t, uint32_t>> edges;
    edges.reserve(graph.successors.size());
    uint32_t last_launch = kNone;
    for (uint32_t node = 0; node < graph.count(); ++node) {
      for (uint32_t i = graph.successor_offsets[node]; i < graph.successor_offsets[node + 1]; ++i) {
        edges.emplace_back(node, graph.successors[i]);
      }
      if (!graph.lane.empty() && graph.lane[node] == DVT_KERNEL_LANE_LAUNCH) {
        if (last_launch != kNone) edges.emplace_back(last_launch, node);
        last_launch = node;
      }
    }
    build(graph.count(), edges, successor_offsets, successors);
    for (auto& [from, to] : edges) std::swap(from, to);
    build(graph.count(), edges, predecessor_offsets, predecessors);
  }

  [[nodiscard]] std::span<const uint32_t> before(uint32_t node) const {
    return std::span(predecessors)
        .subspan(predecessor_offsets[node],
                 predecessor_offsets[node + 1] - predecessor_offsets[node]);
  }
  [[nodiscard]] std::span<const uint32_t> after(uint32_t node) const {
    return std::span(successors)
        .subspan(successor_offsets[node], successor_offsets[node + 1] - successor_offsets[node]);
  }

 private:
  static void build(uint32_t count, const std::vector<std::pair<uint32_t, uint32_t>>& edges,
                    std::vector<uint32_t>& offsets, std::vector<uint32_t>& targets) {
    offsets.assign(count + 1, 0);
    for (const auto& [from, to] : edges) ++offsets[from + 1];
    for (uint32_t i = 0; i < count; ++i) offsets[i + 1] += offsets[i];
    targets.resize(edges.size());
    std::vector<uint32_t> fill(offsets.begin(), offsets.end() - 1);
    for (const auto& [from, to] : edges) targets[fill[from]++] = to;
  }
};

// Where and when each node runs.
struct Assignment {
  std::vector<uint32_t> part;
  std::vector<uint32_t> order;  // All nodes, by the time they start.
  double makespan_ns = 0;
};

class ListScheduler {
 public:
  ListScheduler(const Graph& graph, const Order& order, uint32_t parts, double transfer_ns)
      : graph_(graph),
        order_(order),
        parts_(parts),
        transfer_ns_(transfer_ns),
        bottom_(graph.count(), 0),
        finish_(graph.count(), 0),
        waiting_(graph.count(), 0),
        free_(parts, 0) {}

  Assignment run() {
    const uint32_t count = graph_.count();
    for (uint32_t node = count; node-- > 0;) {
      for (const uint32_t to : order_.after(node))
        bottom_[node] = std::max(bottom_[node], bottom_[to]);
      bottom_[node] += graph_.cost_ns[node];
    }
    made_.part.assign(count, 0);
    made_.order.reserve(count);
    // The longest way first; of equals, the order of the image.
    const auto later = [&](uint32_t a, uint32_t b) {
      return bottom_[a] != bottom_[b] ? bottom_[a] < bottom_[b] : a > b;
    };
    std::priority_queue<uint32_t, std::vector<uint32_t>, decltype(later)> ready(later);
    for (uint32_t node = 0; node < count; ++node) {
      waiting_[node] = static_cast<uint32_t>(order_.before(node).size());
      if (waiting_[node] == 0) ready.push(node);
    }
    while (!ready.empty()) {
      const uint32_t node = ready.top();
      ready.pop();
      place(node);
      for (const uint32_t to : order_.after(node)) {
        if (--waiting_[to] == 0) ready.push(to);
      }
    }
    made_.makespan_ns = *std::max_element(free_.begin(), free_.end());
    return std::move(made_);
  }

 private:
  // The part where the node starts first; of those that differ by less than a transfer's noise, the
  // one that most of its operands come from.
  void place(uint32_t node) {
    const bool pinned = !graph_.lane.empty() && graph_.lane[node] == DVT_KERNEL_LANE_MEMORY;
    uint32_t best = 0;
    double best_start = 0;
    uint32_t best_local = 0;
    for (uint32_t part = 0; part < (pinned ? 1 : parts_); ++part) {
      double start = free_[part];
      uint32_t local = 0;
      for (const uint32_t from : order_.before(node)) {
        const bool same = made_.part[from] == part;
        start = std::max(start, finish_[from] + (same ? 0 : transfer_ns_));
        local += same ? 1 : 0;
      }
      const bool sooner = start < best_start;
      const bool nearer = start == best_start && local > best_local;
      if (part == 0 || sooner || nearer) {
        best = part;
        best_start = start;
        best_local = local;
      }
    }
    made_.part[node] = best;
    made_.order.push_back(node);
    finish_[node] = best_start + graph_.cost_ns[node];
    free_[best] = finish_[node];
  }

  const Graph& graph_;
  const Order& order_;
  uint32_t parts_;
  double transfer_ns_;
  std::vector<double> bottom_, finish_;
  std::vector<uint32_t> waiting_;
  std::vector<double> free_;
  Assignment made_;
};

// Positions and the waits that nothing else implies.
class PlanWriter {
 public:
  PlanWriter(const Order& order, const Assignment& assignment, uint32_t parts)
      : order_(order), assignment_(assignment), parts_(parts) {}

  Plan write() {
    lay_out();
    const auto count = static_cast<uint32_t>(assignment_.order.size());
    clock_.assign(size_t{count} * parts_, 0);
    std::vector<std::vector<uint32_t>> waits(count);
    std::vector<uint32_t> last(parts_, kNone);
    // In an order that parts and edges agree with, so that clocks of what comes before are known.
    for (const uint32_t node : assignment_.order) {
      const uint32_t part = assignment_.part[node];
      uint32_t* clock = &clock_[size_t{position_[node]} * parts_];
      if (last[part] != kNone) {
        std::copy_n(&clock_[size_t{last[part]} * parts_], parts_, clock);
      }
      waits[position_[node]] = needed_waits(node, clock);
      clock[part] = position_[node] + 1;
      last[part] = position_[node];
    }
    plan_.wait_offsets.push_back(0);
    for (const auto& of_one : waits) {
      plan_.waits.insert(plan_.waits.end(), of_one.begin(), of_one.end());
      plan_.wait_offsets.push_back(static_cast<uint32_t>(plan_.waits.size()));
    }
    return std::move(plan_);
  }

 private:
  void lay_out() {
    const auto count = static_cast<uint32_t>(assignment_.order.size());
    position_.resize(count);
    std::vector<uint32_t> sizes(parts_ + 1, 0);
    for (const uint32_t part : assignment_.part) ++sizes[part + 1];
    for (uint32_t part = 0; part < parts_; ++part) sizes[part + 1] += sizes[part];
    plan_.part_offsets = sizes;
    plan_.order.resize(count);
    for (const uint32_t node : assignment_.order) {
      position_[node] = sizes[assignment_.part[node]]++;
      plan_.order[position_[node]] = node;
    }
  }

  // Of the predecessors in other parts, the last of each part; without those that the clock covers
  // once the others have been waited for. The latest are looked at first: they cover most.
  std::vector<uint32_t> needed_waits(uint32_t node, uint32_t* clock) {
    std::vector<uint32_t> latest(parts_, kNone);
    for (const uint32_t from : order_.before(node)) {
      const uint32_t part = assignment_.part[from];
      if (part == assignment_.part[node] || position_[from] < clock[part]) continue;
      if (latest[part] == kNone || position_[from] > latest[part]) latest[part] = position_[from];
    }
    std::erase(latest, kNone);
    std::vector<uint32_t> needed;
    for (const uint32_t candidate : latest) {
      const uint32_t part = assignment_.part[plan_.order[candidate]];
      const bool implied = std::ranges::any_of(latest, [&](uint32_t other) {
        return other != candidate && clock_[size_t{other} * parts_ + part] > candidate;
      });
      if (!implied) needed.push_back(candidate);
    }
    for (const uint32_t awaited : needed) {
      const uint32_t* seen = &clock_[size_t{awaited} * parts_];
      for (uint32_t part = 0; part < parts_; ++part)
        clock[part] = std::max(clock[part], seen[part]);
    }
    return needed;
  }

  const Order& order_;
  const Assignment& assignment_;
  uint32_t parts_;
  std::vector<uint32_t> position_;
  std::vector<uint32_t> clock_;
  Plan plan_;
};

// The order of the image, in one part.
Assignment one_part(const Graph& graph) {
  Assignment made;
  made.part.assign(graph.count(), 0);
  for (uint32_t node = 0; node < graph.count(); ++node) {
    made.order.push_back(node);
    made.makespan_ns += graph.cost_ns[node];
  }
  return made;
}

}  // namespace

Plan make_plan(const Graph& graph, const PlanOptions& options) {
  const Order order(graph);
  Assignment best = one_part(graph);
  const double sequential_ns = best.makespan_ns;
  uint32_t parts = 1;
  const bool worth_moving = sequential_ns >= options.node_min_ns * graph.count();
  for (uint32_t more = 2; more <= options.workers && worth_moving && graph.count() > 1; ++more) {
    Assignment made = ListScheduler(graph, order, more, options.transfer_ns).run();
    if (made.makespan_ns < best.makespan_ns * options.gain) {
      best = std::move(made);
      parts = more;
    }
  }
  Plan plan = PlanWriter(order, best, parts).write();
  plan.sequence = std::move(best.order);
  plan.makespan_ns = best.makespan_ns;
  plan.sequential_ns = sequential_ns;
  return plan;
}

Edges reduce_edges(const Graph& graph, uint32_t visits) {
  const uint32_t count = graph.count();
  std::vector<std::vector<uint32_t>> before(count);
  for (uint32_t node = 0; node < count; ++node) {
    for (uint32_t i = graph.successor_offsets[node]; i < graph.successor_offsets[node + 1]; ++i) {
      before[graph.successors[i]].push_back(node);
    }
  }
  std::vector<uint32_t> seen(count, kNone);
  std::vector<uint32_t> stack;
  for (uint32_t node = 0; node < count; ++node) {
    auto& sources = before[node];
    std::erase_if(sources, [last = kNone](uint32_t from) mutable {
      return std::exchange(last, from) == from;  // Double edges.
    });
    if (sources.size() < 2) continue;
    // Backwards from the sources, not past the first of them: whatever source is met is implied.
    const uint32_t first = sources.front();
    stack.clear();
    for (const uint32_t from : sources) {
      for (const uint32_t to : before[from]) stack.push_back(to);
    }
    for (uint32_t left = visits; left > 0 && !stack.empty(); --left) {
      const uint32_t at = stack.back();
      stack.pop_back();
      if (at < first || seen[at] == node) continue;
      seen[at] = node;
      stack.insert(stack.end(), before[at].begin(), before[at].end());
    }
    std::erase_if(sources, [&](uint32_t from) { return seen[from] == node; });
  }
  Edges edges;
  edges.successor_offsets.assign(count + 1, 0);
  for (const auto& sources : before) {
    for (const uint32_t from : sources) ++edges.successor_offsets[from + 1];
    edges.indegree.push_back(static_cast<uint32_t>(sources.size()));
  }
  for (uint32_t i = 0; i < count; ++i) edges.successor_offsets[i + 1] += edges.successor_offsets[i];
  edges.successors.resize(edges.successor_offsets.back());
  std::vector<uint32_t> fill(edges.successor_offsets.begin(), edges.successor_offsets.end() - 1);
  for (uint32_t node = 0; node < count; ++node) {
    for (const uint32_t from : before[node]) edges.successors[fill[from]++] = node;
  }
  return edges;
}

}  // namespace davit::schedule
