// Why nothing moves: parts of EventCore that only run on the way to an error.
#include <fmt/format.h>

#include <algorithm>

#include "npu_model/event_core.hpp"

namespace davit::npu {

// The queued tasks that would let the head of a stream go on; empty when there is none.
std::vector<TaskRef> EventCore::awaited(uint32_t stream) const {
  const Stream& s = streams_[stream];
  if (s.queued() == 0 || s.state != StreamState::kWaiting) return {};
  const Task& head = s.head();
  switch (head.type) {
    case DVT_NPU_EVENT_WAIT:
      return {records_[head.object].task};
    case DVT_NPU_MODEL_EXECUTE: {
      const Model& model = models_[head.object];
      if (model.execution.stream == stream) return first_of(DVT_NPU_END_GRAPH, head.object);
      if (model.execution.stream != kNone) return {model.execution};
      return {};
    }
    case DVT_NPU_QUEUE_ENQUEUE:
      return first_of(DVT_NPU_QUEUE_DEQUEUE, head.object);
    case DVT_NPU_QUEUE_DEQUEUE:
      return first_of(DVT_NPU_QUEUE_ENQUEUE, head.object);
    default:
      return first_of(DVT_NPU_NOTIFY_RECORD, head.object);
  }
}

// The first queued task of this type and object of each stream. Of a program that runs, only what
// is queued counts: whether it comes to the rest is not known.
std::vector<TaskRef> EventCore::first_of(DvtNpuTaskType type, uint32_t object) const {
  std::vector<TaskRef> out;
  for (uint32_t i = 0; i < streams_.size(); ++i) {
    for (size_t t = streams_[i].ended; t < streams_[i].tasks.size(); ++t) {
      const Task& task = streams_[i].tasks[t];
      if (task.type != type || task.object != object) continue;
      out.push_back({i, task.id});
      break;
    }
  }
  return out;
}

// What a waiting task waits for when no queued task will give it.
std::string EventCore::missing(const Task& task) const {
  switch (task.type) {
    case DVT_NPU_MODEL_EXECUTE: {
      const Model& model = models_[task.object];
      return model.running_streams > 0
                 ? fmt::format("model {}, whose streams have not come to their end", task.object)
                 : fmt::format("the end of model {}, none of whose streams run", task.object);
    }
    case DVT_NPU_QUEUE_ENQUEUE:
      return fmt::format("room in queue {}, from which nobody dequeues", task.object);
    case DVT_NPU_QUEUE_DEQUEUE:
      return fmt::format("an item of queue {}, into which nobody enqueues", task.object);
    default:
      if (notifies_[task.object].imported) {
        return fmt::format("notify {}, which no device has recorded", task.object);
      }
      return fmt::format("notify {}, which nobody records", task.object);
  }
}

std::string EventCore::explain_stream(uint32_t stream) const {
  const Stream& s = streams_[stream];
  const Task& head = s.head();
  std::string text = describe(Access{stream, head.type, head.id, head.name});
  if (s.state == StreamState::kRunning) {
    const double elapsed_us = static_cast<double>(now_ - s.now.start_ps) / 1e6;
    return text + fmt::format(" started {:.1f} us ago and does not complete", elapsed_us);
  }
  if (s.state == StreamState::kReady) {
    return text + " waits for cores, an engine or a stream slot that is never given back";
  }
  if (s.state != StreamState::kWaiting) return text + " is about to start";
  const auto targets = awaited(stream);
  if (targets.empty()) return text + " waits for " + missing(head);
  return text +
         fmt::format(" waits for stream {} task {}", targets.front().stream, targets.front().task);
}

// Streams that wait in a circle, smallest first; empty when there is no circle. A stream waits for
// one other at most here: with several possible recorders a circle is not proved.
std::vector<uint32_t> EventCore::find_cycle() const {
  std::vector<uint32_t> target(streams_.size(), kNone);
  for (uint32_t i = 0; i < streams_.size(); ++i) {
    const auto targets = awaited(i);
    if (targets.size() == 1) target[i] = targets.front().stream;
  }
  std::vector<uint32_t> visited(streams_.size(), kNone);  // Walk that saw the stream first.
  for (uint32_t start = 0; start < streams_.size(); ++start) {
    uint32_t at = start;
    while (at != kNone && visited[at] == kNone) {
      visited[at] = start;
      at = target[at];
    }
    if (at == kNone || visited[at] != start) continue;
    std::vector<uint32_t> cycle;
    uint32_t next = at;
    do {
      cycle.push_back(next);
      next = target[next];
    } while (next != at);
    std::rotate(cycle.begin(), std::min_element(cycle.begin(), cycle.end()), cycle.end());
    return cycle;
  }
  return {};
}

std::string EventCore::explain_stuck(size_t sentences_max) const {
  const auto cycle_count =
      static_cast<uint64_t>(static_cast<double>(now_) * parameters_.clock_mhz / 1e6);
  std::string text = fmt::format("deadlock at cycle {}", cycle_count);
  const auto circle = find_cycle();
  std::vector<uint32_t> stuck = circle;
  if (!circle.empty()) {
    text += " (circular wait of streams";
    for (const uint32_t stream : circle) text += fmt::format(" {}", stream);
    text += ")";
  }
  for (uint32_t i = 0; i < streams_.size(); ++i) {
    const bool listed = std::find(circle.begin(), circle.end(), i) != circle.end();
    if (streams_[i].live && streams_[i].queued() > 0 && !listed) stuck.push_back(i);
  }
  for (size_t i = 0; i < stuck.size() && i < sentences_max; ++i) {
    text += (i == 0 ? ": " : "; ") + explain_stream(stuck[i]);
  }
  if (stuck.size() > sentences_max) {
    text += fmt::format("; and {} more streams", stuck.size() - sentences_max);
  }
  return text;
}

}  // namespace davit::npu
