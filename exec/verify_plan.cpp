// Stage 7 of the verifier: values that may be live at the same time do not share memory.
//
//   Time runs over the nodes of Init, Main and DeInit in stored order. A value in memory (with its
//   views) lives from the node that writes it to the last node that reads it; what Init writes for
//   Main or DeInit lives for ever. All that bodies touch lives at the node of Init, Main or DeInit
//   that leads to them.
//   Values that live at the same node are disjoint, with one exception: input 0, read there for the
//   last time by a kernel with DVT_KERNEL_IN_PLACE, and output 0, when both are the same bytes.
//
// The sweep keeps the live values in address order; each value is compared with its two neighbours
// when it is born. A bitmap tree over the sorted values finds those in a few steps, so that the
// whole is linear but for the sorting.
#include <algorithm>
#include <bit>
#include <string>

#include "exec/verify_internal.hpp"

namespace davit::exec::verify {
namespace {

// A set of integers below `size` with fast neighbours: 64-ary tree of bitmaps.
class IndexSet {
 public:
  explicit IndexSet(uint32_t size) {
    size_t words = size;
    do {
      words = (words + 63) / 64;
      levels_.emplace_back(std::max<size_t>(words, 1), 0);
    } while (words > 1);
  }

  [[nodiscard]] bool contains(uint32_t i) const {
    return (levels_[0][i / 64] >> (i % 64) & 1) != 0;
  }

  void insert(uint32_t i) {
    for (auto& level : levels_) {
      level[i / 64] |= uint64_t{1} << (i % 64);
      i /= 64;
    }
  }

  void erase(uint32_t i) {
    for (auto& level : levels_) {
      level[i / 64] &= ~(uint64_t{1} << (i % 64));
      if (level[i / 64] != 0) return;
      i /= 64;
    }
  }

  // The largest member below i, or kNone.
  [[nodiscard]] uint32_t before(uint32_t i) const {
    for (size_t l = 0; l < levels_.size(); ++l) {
      const uint64_t below = levels_[l][i / 64] & ((uint64_t{1} << (i % 64)) - 1);
      if (below != 0) {
        i = i / 64 * 64 + 63 - static_cast<uint32_t>(std::countl_zero(below));
        for (; l > 0; --l) {
          i = i * 64 + 63 - static_cast<uint32_t>(std::countl_zero(levels_[l - 1][i]));
        }
        return i;
      }
      i /= 64;
    }
    return kNone;
  }

  // The smallest member above i, or kNone.
  [[nodiscard]] uint32_t after(uint32_t i) const {
    for (size_t l = 0; l < levels_.size(); ++l) {
      const uint64_t above = i % 64 == 63 ? 0 : levels_[l][i / 64] & (~uint64_t{0} << (i % 64 + 1));
      if (above != 0) {
        i = i / 64 * 64 + static_cast<uint32_t>(std::countr_zero(above));
        for (; l > 0; --l) {
          i = i * 64 + static_cast<uint32_t>(std::countr_zero(levels_[l - 1][i]));
        }
        return i;
      }
      i /= 64;
    }
    return kNone;
  }

 private:
  std::vector<std::vector<uint64_t>> levels_;
};

// Twice the index of a node of Init, Main, DeInit in their order, plus one once it has read an
// input that its output replaces.
using Time = uint32_t;
constexpr Time kForever = UINT32_MAX;

class PlanSweep {
 public:
  PlanSweep(const ImageView& view, const FlowFacts& facts)
      : view_(view),
        facts_(facts),
        live_(static_cast<uint32_t>(facts.by_address.size())),
        end_(facts.by_address.size(), 0) {}

  Status run() {
    for (const uint32_t graph : {view_.init, view_.main, view_.deinit}) {
      if (graph != kNone) find_ends(view_.graphs[graph]);
    }
    now_ = 0;
    for (const uint32_t graph : {view_.init, view_.main, view_.deinit}) {
      if (graph == kNone) continue;
      if (Status s = sweep(graph); !s.ok()) return s;
    }
    return {};
  }

 private:
  // The rank of the value whose memory this one uses; kNone when it uses none.
  [[nodiscard]] uint32_t rank_of(uint32_t value) const {
    if (value == kNone || facts_.rank[value] == kNone || facts_.root[value] == kNone) return kNone;
    return facts_.rank[facts_.root[value]];
  }
  [[nodiscard]] uint64_t bytes(uint32_t value) const { return view_.tensor_of(value)->bytes; }
  [[nodiscard]] bool in_place(const GraphView& graph, uint32_t node) const;
  void find_ends(const GraphView& graph);
  void extend(uint32_t value, Time time);
  void extend_body(uint32_t body);
  Status sweep(uint32_t graph);
  Status bear(uint32_t value, uint32_t graph, uint32_t node);
  Status bear_body(uint32_t body, uint32_t graph, uint32_t node);
  Status clash(uint32_t a, uint32_t b, uint32_t graph, uint32_t node) const;
  void bury(uint32_t value, Time time);
  void bury_body(uint32_t body);

  const ImageView& view_;
  const FlowFacts& facts_;
  IndexSet live_;          // Ranks of the values that are live.
  std::vector<Time> end_;  // Per rank: the last time of use.
  Time now_ = 0;
};

bool PlanSweep::in_place(const GraphView& graph, uint32_t node) const {
  const auto inputs = graph.inputs_of(node);
  const auto outputs = graph.outputs_of(node);
  if ((view_.kernel_refs[graph.kernel[node]].flags & DVT_KERNEL_IN_PLACE) == 0) return false;
  if (inputs.empty() || outputs.empty() || rank_of(inputs[0]) == kNone) return false;
  const uint32_t in = facts_.rank[inputs[0]];
  const uint32_t out = facts_.rank[outputs[0]];
  return out != kNone && facts_.address[in] == facts_.address[out] &&
         bytes(inputs[0]) == bytes(outputs[0]);
}

void PlanSweep::extend(uint32_t value, Time time) {
  const uint32_t rank = rank_of(value);
  if (rank == kNone) return;
  // Init's values must survive any number of runs of Main.
  const uint32_t home = facts_.home[facts_.by_address[rank]];
  const bool for_later =
      home != kNone && home == view_.init && time >= 2 * view_.graphs[view_.init].node_count;
  end_[rank] = for_later ? kForever : std::max(end_[rank], time);
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
    for (size_t i = 0; i < inputs.size(); ++i) {
      extend(inputs[i], i == 0 && in_place(graph, node) ? now_ : now_ + 1);
    }
    for (const uint32_t body : graph.bodies_of(node)) extend_body(body);
  }
}

Status PlanSweep::clash(uint32_t a, uint32_t b, uint32_t graph, uint32_t node) const {
  const auto describe = [&](uint32_t rank) {
    const uint32_t value = facts_.by_address[rank];
    const uint64_t begin = view_.values.offset[value];
    if (view_.values.kind[value] == ValueKind::kOutput) {
      return describe_value(view_, value) + " (output " + std::to_string(begin) + ")";
    }
    return describe_value(view_, value) + " at [" + std::to_string(begin) + ", " +
           std::to_string(begin + bytes(value)) + ")";
  };
  return broken(
      "values.offset[%u]: value %s shares memory with value %s, and both are live at "
      "graphs[%u] node %u",
      facts_.by_address[a], describe(a).c_str(), describe(b).c_str(), graph, node);
}

// Live values are disjoint, so only the neighbours in address order can overlap a new one.
Status PlanSweep::bear(uint32_t value, uint32_t graph, uint32_t node) {
  const uint32_t rank = rank_of(value);
  if (rank == kNone || bytes(value) == 0 || live_.contains(rank)) return {};
  const uint32_t below = live_.before(rank);
  if (below != kNone &&
      facts_.address[below] + bytes(facts_.by_address[below]) > facts_.address[rank]) {
    return clash(rank, below, graph, node);
  }
  const uint32_t above = live_.after(rank);
  if (above != kNone && facts_.address[rank] + bytes(value) > facts_.address[above]) {
    return clash(rank, above, graph, node);
  }
  live_.insert(rank);
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

void PlanSweep::bury(uint32_t value, Time time) {
  const uint32_t rank = rank_of(value);
  if (rank != kNone && end_[rank] <= time && live_.contains(rank)) live_.erase(rank);
}

void PlanSweep::bury_body(uint32_t body) {
  const GraphView& graph = view_.graphs[body];
  for (uint32_t node = 0; node < graph.node_count; ++node) {
    for (const uint32_t value : graph.inputs_of(node)) bury(value, now_ + 1);
    for (const uint32_t value : graph.outputs_of(node)) bury(value, now_ + 1);
    for (const uint32_t inner : graph.bodies_of(node)) bury_body(inner);
  }
}

Status PlanSweep::sweep(uint32_t index) {
  const GraphView& graph = view_.graphs[index];
  for (uint32_t node = 0; node < graph.node_count; ++node, now_ += 2) {
    if (in_place(graph, node)) bury(graph.inputs_of(node)[0], now_);
    for (const uint32_t body : graph.bodies_of(node)) {
      if (Status s = bear_body(body, index, node); !s.ok()) return s;
    }
    for (const uint32_t value : graph.outputs_of(node)) {
      if (Status s = bear(value, index, node); !s.ok()) return s;
    }
    for (const uint32_t value : graph.inputs_of(node)) bury(value, now_ + 1);
    for (const uint32_t value : graph.outputs_of(node)) bury(value, now_ + 1);
    for (const uint32_t body : graph.bodies_of(node)) bury_body(body);
  }
  return {};
}

}  // namespace

Status check_plan(const ImageView& view, const FlowFacts& facts) {
  return PlanSweep(view, facts).run();
}

}  // namespace davit::exec::verify
