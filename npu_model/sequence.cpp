// Models and queues in virtual time: parts of EventCore.
#include <fmt/format.h>

#include <algorithm>

#include "npu_model/event_core.hpp"
#include "npu_model/functional.hpp"

namespace davit::npu {

// ---- Executions --------------------------------------------------------------------------------

void EventCore::start_execution(uint32_t stream) {
  Stream& s = streams_[stream];
  Model& model = models_[s.head().object];
  if (model.execution.stream != kNone || model.running_streams > 0) {
    s.state = StreamState::kWaiting;
    model.queue.push_back(stream);
    return;
  }
  s.now.start_ps = now_;
  s.state = StreamState::kRunning;
  model.execution = {stream, s.head().id};
  model.ended = false;
  model.jumps = 0;
  timers_.push({now_ + execute_ps_, s.head().id, stream});
}

// The head streams begin; their tasks come after what the calling stream did before. Its task now
// waits for the end of the graph.
void EventCore::begin_heads(uint32_t stream) {
  Stream& s = streams_[stream];
  const Task& task = s.head();
  s.state = StreamState::kWaiting;
  const Model& model = models_[task.object];
  for (const uint32_t bound : model.streams) {
    for (const Task& resident : streams_[bound].program->tasks) {
      if (resident.type != DVT_NPU_EVENT_RECORD) continue;
      Record& record = records_[resident.object];
      record.reached = false;
      record.error.reset();
      record.clock.reset();
    }
  }
  // "All tasks before this one": it has not ended itself.
  const TaskRef before = task.id == 0 ? TaskRef{} : TaskRef{stream, task.id - 1};
  for (const uint32_t bound : std::vector<uint32_t>(model.streams)) {
    const bool starts = streams_[bound].program->is_head || breaks(Rule::kOnlyHeadsStart);
    if (starts) activate(bound, 0, before);
  }
  if (!breaks(Rule::kExecutionEndsWithGraph)) return;
  models_[task.object].ended = true;
  s.state = StreamState::kRunning;
  timers_.push({now_ + notify_ps_, task.id, stream});
}

void EventCore::end_graph(uint32_t stream) {
  Model& model = models_[streams_[stream].head().object];
  if (model.ended) return;  // An end-graph task that a loop runs again.
  model.ended = true;
  const uint32_t caller = model.execution.stream;
  const Task& task = streams_[caller].head();
  streams_[caller].now.causes.released_by = {stream, streams_[stream].head().id};
  streams_[caller].state = StreamState::kRunning;
  timers_.push({now_ + notify_ps_, task.id, caller});
}

void EventCore::next_execution(uint32_t index) {
  Model& model = models_[index];
  if (model.execution.stream != kNone || model.running_streams > 0 || model.queue.empty()) return;
  const uint32_t stream = model.queue.front();
  model.queue.pop_front();
  start_execution(stream);
}

void EventCore::abort_model(uint32_t index) {
  Model& model = models_[index];
  const ErrorDetail reason{.code = DVT_CANCELLED,
                           .stage = DVT_STAGE_RUN,
                           .message = fmt::format("execution of model {} was aborted", index)};
  for (const uint32_t stream : model.streams) {
    Stream& s = streams_[stream];
    if (!s.program->running) continue;
    detach(stream);
    s.tasks.truncate(s.ended);
    s.program->running = false;
  }
  model.running_streams = 0;
  const TaskRef caller = model.execution;
  if (!model.ended) {
    model.ended = true;
    Stream& s = streams_[caller.stream];
    if (!s.error) s.error = reason;
    s.state = StreamState::kRunning;
    timers_.push({now_, caller.task, caller.stream});
  }
  dispatch_ready();
  share();
}

// ---- Programs ----------------------------------------------------------------------------------

// False: it is running already.
bool EventCore::activate(uint32_t stream, size_t position, TaskRef by) {
  Stream& s = streams_[stream];
  if (s.program->running) return false;
  s.program->running = true;
  s.program->next = position;
  ++models_[s.program->model].running_streams;
  feed(stream, by);
  if (s.program->running) arm_head(stream);
  return true;
}

// Queues a copy of the next task of a running program, or stops at its end.
void EventCore::feed(uint32_t stream, TaskRef by) {
  Stream& s = streams_[stream];
  Program& program = *s.program;
  if (!program.running) return;
  if (program.next >= program.tasks.size()) {
    stop(stream);
    return;
  }
  const bool chains = program.next > 0 && program.next % chain_depth_ == 0;
  Task task = program.tasks[program.next++];
  task.resident = true;
  task.submit_ps = now_ + (chains ? control_ps_ : 0);  // The next chained stream is activated.
  s.now.causes.activated_by = by;
  listener_.instantiate(stream, task);
  s.tasks.push_back(std::move(task));
}

void EventCore::stop(uint32_t stream) {
  Program& program = *streams_[stream].program;
  program.running = false;
  --models_[program.model].running_streams;
  if (breaks(Rule::kProgramIsReused)) program.tasks.clear();
  next_execution(program.model);
}

void EventCore::jump(uint32_t stream, uint32_t index) {
  Stream& s = streams_[stream];
  const Task& task = s.head();
  const Label& label = labels_[index];
  if (++models_[s.program->model].jumps > kJumpsMax) {
    listener_.failed(stream, task,
                     fmt::format("endless loop: more than {} jumps in one execution of model {}",
                                 kJumpsMax, s.program->model));
    return;  // The stream falls through, and ends.
  }
  if (label.stream == stream) {
    s.program->next = label.position;
    return;
  }
  if (activate(label.stream, label.position, {stream, task.id})) {
    if (!breaks(Rule::kJumpStopsStream)) s.program->next = s.program->tasks.size();
  } else {
    listener_.failed(stream, task, fmt::format("stream {} is already running", label.stream));
  }
}

// Ends a task that steers: what it decides takes place when it ends.
void EventCore::end_control(uint32_t stream) {
  Stream& s = streams_[stream];
  const Task& task = s.head();
  switch (task.type) {
    case DVT_NPU_MODEL_EXECUTE: {
      const uint32_t model = task.object;
      models_[model].execution = {};
      end_head(stream);
      next_execution(model);
      return;
    }
    case DVT_NPU_END_GRAPH:
      end_graph(stream);
      break;
    case DVT_NPU_STREAM_ACTIVE:
    case DVT_NPU_STREAM_SWITCH: {
      const bool switches = task.type == DVT_NPU_STREAM_SWITCH;
      const bool holds = switches && listener_.decide(stream, task) != 0;
      if (switches && !holds && !breaks(Rule::kFalseFallsThrough)) break;
      if (!activate(task.object, 0, {stream, task.id})) {
        listener_.failed(stream, task, fmt::format("stream {} is already running", task.object));
      } else if (switches ? !breaks(Rule::kSwitchStopsStream) : breaks(Rule::kActiveRunsBeside)) {
        s.program->next = s.program->tasks.size();
      }
      break;
    }
    case DVT_NPU_LABEL_GOTO:
      jump(stream, task.object);
      break;
    case DVT_NPU_LABEL_SWITCH: {
      const std::vector<uint32_t>& labels = task.effect->labels;
      const uint64_t index = listener_.decide(stream, task);
      const uint64_t last = labels.size() - 1;
      jump(stream,
           labels[breaks(Rule::kIndexIsClamped) ? index % labels.size() : std::min(index, last)]);
      break;
    }
    default:
      break;
  }
  end_head(stream);
}

// ---- Queues ------------------------------------------------------------------------------------

void EventCore::settle() {
  dispatch_ready();
  share();
}

uint64_t EventCore::put_item(uint32_t queue, TaskRef producer) {
  Queue& q = queues_[queue];
  q.producers.push_back(producer);
  wake(q.readers);
  return q.enqueued++;
}

uint64_t EventCore::take_item(uint32_t queue) {
  Queue& q = queues_[queue];
  q.producers.pop_front();
  wake(q.writers);
  return q.dequeued++;
}

// The first that pends may try again; it needs an AICPU for that.
void EventCore::wake(std::deque<uint32_t>& pending) {
  if (pending.empty() || breaks(Rule::kItemWakesPending)) return;
  const uint32_t stream = pending.front();
  pending.pop_front();
  Stream& s = streams_[stream];
  s.now.ready_ps = now_;
  make_ready(stream);
}

bool EventCore::pass_queue(uint32_t stream) {
  Stream& s = streams_[stream];
  const Task& task = s.head();
  if (task.type < DVT_NPU_QUEUE_ENQUEUE) return true;
  Queue& queue = queues_[task.object];
  const bool reads = task.type == DVT_NPU_QUEUE_DEQUEUE;
  if (reads ? queue.size() == 0 : queue.size() >= queue.depth) {
    s.state = StreamState::kWaiting;
    if (breaks(Rule::kPendingFreesAicpu)) --aicpu_free_;  // Which came back just now.
    (reads ? queue.readers : queue.writers).push_back(stream);
    return false;
  }
  if (reads) {
    s.now.causes.released_by = queue.producers.front();
    s.now.causes.ticket = take_item(task.object);
  } else {
    s.now.causes.ticket = put_item(task.object, {stream, task.id});
  }
  return true;
}

}  // namespace davit::npu
