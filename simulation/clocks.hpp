// clocks.hpp: the clocks of one simulated run, and who held up whom.
//
// Threads  One thread.
// Memory   40 bytes a node.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "simulation/host.hpp"

namespace davit::simulation {

constexpr uint32_t kNoNode = UINT32_MAX;

// Who is to blame for a moment: the node that ended then.
struct Blame {
  uint32_t node = kNoNode;
  Cause cause = Cause::kStart;
};

class Clocks {
 public:
  Clocks(const HostGraph& graph, uint32_t workers)
      : graph_(graph), held_(graph.nodes.count()), before_on_device_(graph.nodes.count(), kNoNode) {
    result_.spans.resize(graph.nodes.count());
    result_.busy_ns.assign(workers, 0);
  }

  // Runs a node from `begin_ns` on, with `extra_ns` of the engine's before it. Returns its end.
  // Nodes that submit come in the order in which the device gets their tasks.
  double run(uint32_t node, uint32_t worker, double begin_ns, double extra_ns, Blame blame) {
    held_[node] = blame;
    result_.busy_ns[worker] += extra_ns + graph_.nodes.cost_ns[node];
    begin_ns += extra_ns;
    if (!graph_.waits_for_device.empty() && graph_.waits_for_device[node] != 0 &&
        device_free_ns_ > begin_ns) {
      begin_ns = device_free_ns_;
      held_[node] = {last_task_, Cause::kDevice};
    }
    Span& span = result_.spans[node];
    span = {worker, begin_ns, begin_ns + graph_.nodes.cost_ns[node]};
    if (!graph_.device_ns.empty() && graph_.device_ns[node] > 0) submit(node, span.end_ns);
    if (span.end_ns >= last_end_ns_) {
      last_end_ns_ = span.end_ns;
      last_node_ = node;
    }
    return span.end_ns;
  }

  [[nodiscard]] double end_of(uint32_t node) const { return result_.spans[node].end_ns; }

  Prediction finish() && {
    const bool device_is_last = device_free_ns_ > last_end_ns_;
    result_.makespan_ns = std::max(device_free_ns_, last_end_ns_);
    trace_back(device_is_last ? last_task_ : last_node_, device_is_last);
    return std::move(result_);
  }

 private:
  void submit(uint32_t node, double at_ns) {
    const double task_ns = graph_.device_ns[node];
    const double free_ns = last_task_ == kNoNode ? 0 : device_free_ns_ + graph_.device_gap_ns;
    if (free_ns > at_ns) before_on_device_[node] = last_task_;
    device_free_ns_ = std::max(free_ns, at_ns) + task_ns;
    result_.device_busy_ns += task_ns;
    last_task_ = node;
  }

  void trace_back(uint32_t node, bool on_device) {
    while (node != kNoNode) {
      const Blame blame = on_device ? blame_of_task(node) : held_[node];
      result_.path.push_back({node, on_device, blame.cause});
      on_device = on_device ? before_on_device_[node] != kNoNode : blame.cause == Cause::kDevice;
      node = blame.node;
    }
    std::reverse(result_.path.begin(), result_.path.end());
  }

  // A task waits for the task before it, or else for its own submission.
  [[nodiscard]] Blame blame_of_task(uint32_t node) const {
    const uint32_t before = before_on_device_[node];
    return before != kNoNode ? Blame{before, Cause::kDevice} : Blame{node, Cause::kOperand};
  }

  const HostGraph& graph_;
  Prediction result_;
  std::vector<Blame> held_;
  std::vector<uint32_t> before_on_device_;
  double device_free_ns_ = 0;
  double last_end_ns_ = 0;
  uint32_t last_task_ = kNoNode;
  uint32_t last_node_ = kNoNode;
};

}  // namespace davit::simulation
