// clocks.hpp: the clocks of one simulated run, and who held up whom.
//
// Threads  One thread.
// Memory   About 45 bytes a node, and 40 a task.
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
      : graph_(graph), held_(graph.nodes.count()), held_by_task_(graph.nodes.count(), kNoNode) {
    result_.spans.resize(graph.nodes.count());
    result_.busy_ns.assign(workers, 0);
  }

  // Runs a node from `begin_ns` on, with `extra_ns` of the engine's before it. Returns its end.
  // Nodes that submit come in the order in which the device gets their tasks.
  double run(uint32_t node, uint32_t worker, double begin_ns, double extra_ns, Blame blame) {
    held_[node] = blame;
    result_.busy_ns[worker] += extra_ns + graph_.nodes.cost_ns[node];
    begin_ns += extra_ns;
    Span& span = result_.spans[node];
    span = {worker, begin_ns, begin_ns + graph_.nodes.cost_ns[node]};
    if (!graph_.call_offsets.empty()) span.end_ns = call_device(node, begin_ns);
    if (span.end_ns >= last_end_ns_) {
      last_end_ns_ = span.end_ns;
      last_node_ = node;
    }
    return span.end_ns;
  }

  [[nodiscard]] double end_of(uint32_t node) const { return result_.spans[node].end_ns; }

  Prediction finish() && {
    uint32_t last_task = kNoNode;
    double device_end_ns = 0;
    for (uint32_t i = 0; i < tasks_.size(); ++i) {
      if (tasks_[i].end_ns < device_end_ns) continue;
      device_end_ns = tasks_[i].end_ns;
      last_task = i;
    }
    const bool device_is_last = device_end_ns > last_end_ns_;
    result_.makespan_ns = std::max(device_end_ns, end_of_executor());
    trace_back(device_is_last ? last_task : last_node_, device_is_last);
    result_.device_busy_ns = covered_ns();
    return std::move(result_);
  }

 private:
  struct Task {
    uint32_t node;
    uint32_t before;  // The task that it waited for; kNoNode: for its own submission.
    double begin_ns, end_ns;
    bool works;  // More than a record or a wait.
  };
  struct Moment {
    double at_ns = 0;
    uint32_t task = kNoNode;
  };

  // The calls of a node come after what else it does.
  double call_device(uint32_t node, double now_ns) {
    const auto calls = graph_.calls.subspan(
        graph_.call_offsets[node], graph_.call_offsets[node + 1] - graph_.call_offsets[node]);
    double own_ns = graph_.nodes.cost_ns[node];
    for (const DeviceCall& call : calls) own_ns -= call.host_ns;
    now_ns += std::max(own_ns, 0.0);
    for (const DeviceCall& call : calls) {
      Moment& stream = at(streams_, call.stream);
      if (call.kind == DeviceCall::Kind::kSynchronise && stream.at_ns > now_ns) {
        now_ns = stream.at_ns;
        held_by_task_[node] = stream.task;
      }
      now_ns += call.host_ns;
      if (call.kind < DeviceCall::Kind::kSynchronise) submit(node, call, stream, now_ns);
    }
    return now_ns;
  }

  void submit(uint32_t node, const DeviceCall& call, Moment& stream, double now_ns) {
    Task task = {node, kNoNode, now_ns, 0, call.kind == DeviceCall::Kind::kTask};
    const auto wait_for = [&](const Moment& moment, double gap_ns) {
      if (moment.task == kNoNode || moment.at_ns + gap_ns <= task.begin_ns) return;
      task.begin_ns = moment.at_ns + gap_ns;
      task.before = moment.task;
    };
    if (call.kind == DeviceCall::Kind::kWait) {
      const Moment& record = at(events_, call.event);
      if (record.task == kNoNode || record.at_ns <= now_ns) return;
      wait_for(record, 0);
    }
    wait_for(stream, call.gap_ns);
    task.end_ns = task.begin_ns + call.device_ns;
    stream = {task.end_ns, static_cast<uint32_t>(tasks_.size())};
    if (call.kind == DeviceCall::Kind::kRecord) at(events_, call.event) = stream;
    tasks_.push_back(task);
  }

  static Moment& at(std::vector<Moment>& moments, uint32_t index) {
    if (index >= moments.size()) moments.resize(index + 1);
    return moments[index];
  }

  // When the executor is done.
  double end_of_executor() {
    double now_ns = last_end_ns_;
    for (const DeviceCall& call : graph_.last_calls) {
      now_ns = std::max(now_ns, at(streams_, call.stream).at_ns) + call.host_ns;
    }
    return now_ns;
  }

  // From the end back to who held up whom.
  void trace_back(uint32_t index, bool on_device) {
    uint32_t earlier_than = kNoNode;  // Tasks that can have held up the node.
    while (index != kNoNode) {
      if (on_device) {
        const Task& task = tasks_[index];
        on_device = task.before != kNoNode;
        result_.path.push_back({task.node, true, on_device ? Cause::kDevice : Cause::kOperand,
                                task.end_ns - task.begin_ns});
        earlier_than = index;
        index = on_device ? task.before : task.node;
        continue;
      }
      const uint32_t node = index;
      on_device = held_by_task_[node] < earlier_than;
      result_.path.push_back({node, false, on_device ? Cause::kDevice : held_[node].cause,
                              graph_.nodes.cost_ns[node]});
      index = on_device ? held_by_task_[node] : held_[node].node;
      earlier_than = kNoNode;
    }
    std::reverse(result_.path.begin(), result_.path.end());
  }

  [[nodiscard]] double covered_ns() {
    std::sort(tasks_.begin(), tasks_.end(),
              [](const Task& a, const Task& b) { return a.begin_ns < b.begin_ns; });
    double total_ns = 0;
    double reached_ns = 0;
    for (const Task& task : tasks_) {
      if (!task.works) continue;
      total_ns += std::max(task.end_ns - std::max(task.begin_ns, reached_ns), 0.0);
      reached_ns = std::max(reached_ns, task.end_ns);
    }
    return total_ns;
  }

  const HostGraph& graph_;
  Prediction result_;
  std::vector<Blame> held_;
  std::vector<uint32_t> held_by_task_;  // Per node: whose end it waited for; kNoNode: nobody's.
  std::vector<Task> tasks_;             // In order of submission.
  std::vector<Moment> streams_, events_;
  double last_end_ns_ = 0;
  uint32_t last_node_ = kNoNode;
};

}  // namespace davit::simulation
