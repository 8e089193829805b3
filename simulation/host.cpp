#include "simulation/host.hpp"

#include <algorithm>
#include <numeric>

#include "simulation/clocks.hpp"

namespace davit::simulation {

double Prediction::utilisation() const {
  if (makespan_ns <= 0 || busy_ns.empty()) return 0;
  const double busy = std::accumulate(busy_ns.begin(), busy_ns.end(), 0.0);
  return std::min(busy / (makespan_ns * static_cast<double>(busy_ns.size())), 1.0);
}

Prediction simulate_sequential(const HostGraph& graph, const HostCosts& costs) {
  Clocks clocks(graph, 1);
  double now_ns = 0;
  Blame blame;
  for (uint32_t node = 0; node < graph.nodes.count(); ++node) {
    now_ns = clocks.run(node, 0, now_ns, costs.loop_node_ns, blame);
    blame = {node, Cause::kWorker};
  }
  return std::move(clocks).finish();
}

namespace {

// Runs each part as far as its waits allow, round after round: the order in which parts are looked
// at does not show in their times.
class PlannedRun {
 public:
  PlannedRun(const HostGraph& graph, const HostCosts& costs, const mt_topo::PlanTables& plan)
      : costs_(costs),
        plan_(plan),
        clocks_(graph, plan.parts()),
        next_(plan.part_offsets.begin(), plan.part_offsets.end() - 1),
        parts_(plan.parts()),
        part_of_(graph.nodes.count()) {
    for (uint32_t part = 0; part < plan.parts(); ++part) {
      for (uint32_t at = plan.part_offsets[part]; at < plan.part_offsets[part + 1]; ++at) {
        part_of_[at] = part;
      }
    }
  }

  Prediction run() && {
    for (bool moved = true; moved;) {
      moved = false;
      for (uint32_t part = 0; part < plan_.parts(); ++part) moved |= advance(part);
    }
    return std::move(clocks_).finish();
  }

 private:
  struct Part {
    double now_ns = 0;
    Blame blame;
  };

  bool advance(uint32_t part) {
    const uint32_t from = next_[part];
    uint32_t& at = next_[part];
    for (; at < plan_.part_offsets[part + 1] && is_ready(at); ++at) step(part, at);
    return at != from;
  }

  [[nodiscard]] bool is_ready(uint32_t at) const {
    for (uint32_t i = plan_.wait_offsets[at]; i < plan_.wait_offsets[at + 1]; ++i) {
      const uint32_t awaited = plan_.waits[i];
      if (awaited >= next_[part_of_[awaited]]) return false;
    }
    return true;
  }

  void step(uint32_t part, uint32_t at) {
    Part& state = parts_[part];
    double begin_ns = state.now_ns;
    Blame blame = state.blame;
    for (uint32_t i = plan_.wait_offsets[at]; i < plan_.wait_offsets[at + 1]; ++i) {
      const uint32_t awaited = plan_.order[plan_.waits[i]];
      const double seen_ns = clocks_.end_of(awaited) + costs_.transfer_ns;
      if (seen_ns <= begin_ns) continue;
      begin_ns = seen_ns;
      blame = {awaited, Cause::kOperand};
    }
    const uint32_t node = plan_.order[at];
    state.now_ns = clocks_.run(node, part, begin_ns, costs_.planned_node_ns, blame);
    state.blame = {node, Cause::kWorker};
  }

  const HostCosts& costs_;
  const mt_topo::PlanTables& plan_;
  Clocks clocks_;
  std::vector<uint32_t> next_;  // Per part: the position that it comes to.
  std::vector<Part> parts_;
  std::vector<uint32_t> part_of_;  // Per position.
};

}  // namespace

Prediction simulate_planned(const HostGraph& graph, const HostCosts& costs,
                            const mt_topo::PlanTables& plan) {
  return PlannedRun(graph, costs, plan).run();
}

double least_ns(const HostGraph& graph) {
  const schedule::Graph& nodes = graph.nodes;
  std::vector<double> begin_ns(nodes.count(), 0);
  double end_ns = 0;
  for (uint32_t node = 0; node < nodes.count(); ++node) {
    const double end = begin_ns[node] + nodes.cost_ns[node];
    end_ns = std::max(end_ns, end);
    for (uint32_t i = nodes.successor_offsets[node]; i < nodes.successor_offsets[node + 1]; ++i) {
      double& begin = begin_ns[nodes.successors[i]];
      begin = std::max(begin, end);
    }
  }
  std::vector<double> stream_ns;
  for (const DeviceCall& call : graph.calls) {
    if (call.stream >= stream_ns.size()) stream_ns.resize(call.stream + 1, 0);
    if (call.kind == DeviceCall::Kind::kTask) stream_ns[call.stream] += call.device_ns;
  }
  for (const double ns : stream_ns) end_ns = std::max(end_ns, ns);
  return end_ns;
}

}  // namespace davit::simulation
