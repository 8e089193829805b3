// Stage 7 of the verifier: values that may be live at the same time do not share memory.
//
//   Time runs over the nodes of Init, Main and DeInit in stored order. A value in memory (with its
//   views) lives from the node that writes it to the last node that reads it; what Init writes for
//   Main or DeInit, and what the leading shape_nodes of Main write, lives for ever. All that bodies
//   touch lives at the node of Init, Main or DeInit that leads to them; but gears count as
//   graphs that run after each other. Values that live at the
//   same node are disjoint, with one exception: input 0, read there for the last time by a kernel
//   with DVT_KERNEL_IN_PLACE, and output 0, when both are the same bytes. A view of several values
//   keeps each of them alive and is not alive itself, so that they may lie side by side.
//
// The sweep keeps the live values in address order; each value is compared with its two neighbours
// when it is born. A bitmap tree over the sorted values finds those in a few steps, so that the
// whole is linear but for the sorting.
#include <string>
#include <utility>

#include "exec/gears.hpp"
#include "exec/verify_index_set.hpp"
#include "exec/verify_internal.hpp"

namespace davit::exec::verify {
namespace {

// Twice the index of a node of Init, Main, DeInit in their order, plus one once it has read an
// input that its output replaces.
using Time = uint32_t;
constexpr Time kForever = UINT32_MAX;

class PlanSweep {
 public:
  PlanSweep(const ImageView& view, const FlowFacts& facts, Scratch& scratch)
      : view_(view),
        facts_(facts),
        root_(&scratch),
        last_use_(&scratch),
        dying_off_(&scratch),
        dying_(&scratch),
        live_(static_cast<uint32_t>(facts.by_address.size()), scratch) {
    const uint32_t values = view.values.count;
    root_.resize(values);
    for (uint32_t v = 0; v < values; ++v) {
      const uint32_t root = facts.values[v].root;
      root_[v] = root == kNone || facts.rank[root] == kNone ? kNone : root;
    }
    last_use_.assign(values, 0);
  }

  Status run() {
    find_graphs();
    for (const uint32_t graph : graphs_) {
      find_ends(view_.graphs[graph]);
      if (graph == view_.init) init_end_ = now_;
    }
    sort_by_last_use();
    now_ = 0;
    for (const uint32_t graph : graphs_) {
      if (Status s = sweep(graph); !s.ok()) return s;
    }
    return {};
  }

 private:
  [[nodiscard]] uint32_t root_of(uint32_t value) const {
    return value == kNone ? kNone : root_[value];
  }
  [[nodiscard]] bool in_place(const GraphView& graph, uint32_t node) const;
  void find_graphs();
  void find_ends(const GraphView& graph);
  void extend(uint32_t value, Time time);
  void extend_root(uint32_t root, Time time);
  void extend_body(uint32_t body);
  void sort_by_last_use();
  Status sweep(uint32_t graph);
  Status bear(uint32_t value, uint32_t graph, uint32_t node);
  Status bear_body(uint32_t body, uint32_t graph, uint32_t node);
  Status clash(uint32_t a, uint32_t b, uint32_t graph, uint32_t node) const;
  void bury(Time time);

  const ImageView& view_;
  const FlowFacts& facts_;
  // Per value: the (first) value whose memory it uses; kNone when it uses none.
  std::pmr::vector<uint32_t> root_;
  std::pmr::vector<Time> last_use_;  // Per value that is a root: ids are near each other in time.
  // Per time before now_: where its row of dying_ ends; a row holds the ranks of the roots whose
  // last use is then.
  std::pmr::vector<uint32_t> dying_off_, dying_;
  std::vector<uint32_t> graphs_;  // One after the other.
  std::vector<uint32_t> unread_;  // Ranks of what the node writes and no later node reads.
  IndexSet live_;                 // Ranks of the values that are live.
  Time now_ = 0;
  Time init_end_ = 0;  // Values of Init that are used from here on live for ever.
};

// A gear runs in the place of Main, which has nothing else to do.
void PlanSweep::find_graphs() {
  const GearsView gears = gears_of(view_);
  if (view_.init != kNone) graphs_.push_back(view_.init);
  if (gears.count == 0) graphs_.push_back(view_.main);
  for (uint32_t gear = 0; gear < gears.count; ++gear) graphs_.push_back(gears.bodies()[gear]);
  if (view_.deinit != kNone) graphs_.push_back(view_.deinit);
}

bool PlanSweep::in_place(const GraphView& graph, uint32_t node) const {
  if ((view_.kernel_refs[graph.kernel[node]].flags & DVT_KERNEL_IN_PLACE) == 0) return false;
  const auto inputs = graph.inputs_of(node);
  const auto outputs = graph.outputs_of(node);
  if (inputs.empty() || outputs.empty() || root_of(inputs[0]) == kNone) return false;
  const uint32_t in = facts_.rank[inputs[0]];
  const uint32_t out = facts_.rank[outputs[0]];
  return out != kNone && facts_.begin[in] == facts_.begin[out] && facts_.end[in] == facts_.end[out];
}

// Calls come in the order of time.
inline void PlanSweep::extend(uint32_t value, Time time) {
  const uint32_t root = root_of(value);
  if (root == kNone) return;
  if (facts_.join.empty()) return extend_root(root, time);
  for (const uint32_t part : facts_.roots_of(value)) extend_root(part, time);
}

inline void PlanSweep::extend_root(uint32_t root, Time time) {
  // Init's values must survive any number of runs of Main.
  const bool of_init = init_end_ != 0 && facts_.values[root].home == view_.init;
  last_use_[root] = of_init ? kForever : time;
}

// The depth of bodies is bounded (verifier: depth limit).
void PlanSweep::extend_body(uint32_t body) {
  const GraphView& graph = view_.graphs[body];
  for (uint32_t node = 0; node < graph.node_count; ++node) {
    for (const uint32_t value : graph.inputs_of(node)) extend(value, now_ + 1);
    for (const uint32_t inner : graph.bodies_of(node)) extend_body(inner);
  }
}

void PlanSweep::find_ends(const GraphView& graph) {
  for (uint32_t node = 0; node < graph.node_count; ++node, now_ += 2) {
    const auto inputs = graph.inputs_of(node);
    if (!inputs.empty()) extend(inputs[0], in_place(graph, node) ? now_ : now_ + 1);
    for (size_t i = 1; i < inputs.size(); ++i) extend(inputs[i], now_ + 1);
    for (const uint32_t body : graph.bodies_of(node)) extend_body(body);
  }
  // What follows from shapes survives from run to run.
  for (uint32_t node = 0; node < graph.shape_nodes; ++node) {
    for (const uint32_t value : graph.outputs_of(node)) {
      if (root_of(value) != kNone) last_use_[root_of(value)] = kForever;
    }
  }
}

// A counting sort, so that the sweep need not ask each operand whether it dies.
void PlanSweep::sort_by_last_use() {
  dying_off_.assign(now_ + 1, 0);
  const auto dies = [&](uint32_t value) {
    return root_[value] == value && last_use_[value] != kForever;
  };
  uint32_t count = 0;
  for (uint32_t v = 0; v < root_.size(); ++v) {
    if (!dies(v)) continue;
    ++dying_off_[last_use_[v]];
    ++count;
  }
  dying_.resize(count);
  uint32_t begin = 0;
  for (uint32_t& off : dying_off_) begin += std::exchange(off, begin);
  for (uint32_t v = 0; v < root_.size(); ++v) {
    if (dies(v)) dying_[dying_off_[last_use_[v]]++] = facts_.rank[v];
  }
}

Status PlanSweep::clash(uint32_t a, uint32_t b, uint32_t graph, uint32_t node) const {
  const auto describe = [&](uint32_t rank) {
    const uint32_t value = facts_.by_address[rank];
    const std::string text = describe_value(view_, value);
    if (view_.values.kind[value] == ValueKind::kOutput) {
      return text + " (output " + std::to_string(view_.values.offset[value]) + ")";
    }
    return text + " at [" + std::to_string(facts_.begin[rank]) + ", " +
           std::to_string(facts_.end[rank]) + ")";
  };
  return broken(
      "values.offset[%u]: value %s shares memory with value %s, and both are live at "
      "graphs[%u] node %u",
      facts_.by_address[a], describe(a).c_str(), describe(b).c_str(), graph, node);
}

// Live values are disjoint, so only the neighbours in address order can overlap a new one.
Status PlanSweep::bear(uint32_t value, uint32_t graph, uint32_t node) {
  const uint32_t root = root_of(value);
  if (root == kNone) return {};
  const uint32_t rank = facts_.rank[root];
  if (facts_.begin[rank] == facts_.end[rank] || live_.contains(rank)) return {};
  const uint32_t below = live_.before(rank);
  if (below != kNone && facts_.end[below] > facts_.begin[rank]) {
    return clash(rank, below, graph, node);
  }
  const uint32_t above = live_.after(rank);
  if (above != kNone && facts_.end[rank] > facts_.begin[above]) {
    return clash(rank, above, graph, node);
  }
  live_.insert(rank);
  if (last_use_[root] <= now_) unread_.push_back(rank);
  return {};
}

Status PlanSweep::bear_body(uint32_t body, uint32_t graph, uint32_t node) {
  const GraphView& inner = view_.graphs[body];
  for (uint32_t i = 0; i < inner.node_count; ++i) {
    for (const uint32_t value : inner.outputs_of(i)) {
      if (Status s = bear(value, graph, node); !s.ok()) return s;
    }
    for (const uint32_t deeper : inner.bodies_of(i)) {
      if (Status s = bear_body(deeper, graph, node); !s.ok()) return s;
    }
  }
  return {};
}

// Called for each time, in order.
void PlanSweep::bury(Time time) {
  for (uint32_t i = time == 0 ? 0 : dying_off_[time - 1]; i < dying_off_[time]; ++i) {
    if (live_.contains(dying_[i])) live_.erase(dying_[i]);
  }
}

Status PlanSweep::sweep(uint32_t index) {
  const GraphView& graph = view_.graphs[index];
  for (uint32_t node = 0; node < graph.node_count; ++node, now_ += 2) {
    bury(now_);
    for (const uint32_t body : graph.bodies_of(node)) {
      if (Status s = bear_body(body, index, node); !s.ok()) return s;
    }
    for (const uint32_t value : graph.outputs_of(node)) {
      if (Status s = bear(value, index, node); !s.ok()) return s;
    }
    bury(now_ + 1);
    for (const uint32_t rank : unread_) live_.erase(rank);
    unread_.clear();
  }
  return {};
}

}  // namespace

Status check_plan(const ImageView& view, const FlowFacts& facts, Scratch& scratch) {
  return PlanSweep(view, facts, scratch).run();
}

}  // namespace davit::exec::verify
