// Models, labels and queues of Npu: what is submitted, and what their tasks do.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "npu_model/npu.hpp"

namespace davit::npu {
namespace {

Status misuse(std::string message) {
  return Status(DVT_INVALID_ARGUMENT, DVT_STAGE_RUN, std::move(message));
}

Status wrong_state(std::string message) {
  return Status(DVT_FAILED_STATE, DVT_STAGE_RUN, std::move(message));
}

}  // namespace

std::string Npu::user_of(DvtNpuTaskType first, DvtNpuTaskType last, uint32_t object) const {
  const auto uses = [&](const Task& task) {
    return task.type >= first && task.type <= last && task.object == object;
  };
  for (uint32_t i = 0; i < core_.streams().size(); ++i) {
    const Stream& s = core_.streams()[i];
    for (size_t t = s.ended; t < s.tasks.size(); ++t) {
      if (uses(s.tasks[t])) return fmt::format("task {} of stream {}", s.tasks[t].id, i);
    }
    if (s.program == nullptr) continue;
    const auto& tasks = s.program->tasks;
    if (std::any_of(tasks.begin(), tasks.end(), uses)) {
      return fmt::format("stream {} of model {}", i, s.program->model);
    }
  }
  return {};
}

// ---- Models ------------------------------------------------------------------------------------

Result<DvtNpuModel*> Npu::create_model() {
  auto index = model_handles_.create();
  if (!index.ok()) return std::move(index.status());
  auto& models = core_.models();
  if (*index >= models.size()) models.resize(*index + 1);
  models[*index] = Model{};
  models[*index].live = true;
  return model_handles_.handle<DvtNpuModel>(*index);
}

Status Npu::destroy_model(DvtNpuModel* model) {
  auto index = model_handles_.resolve(model, "destroy");
  if (!index.ok()) return std::move(index.status());
  run_until(host_->now_ps);
  const std::string user = user_of(DVT_NPU_MODEL_EXECUTE, DVT_NPU_MODEL_EXECUTE, *index);
  Model& m = core_.models()[*index];
  if (!user.empty() || m.running_streams > 0) {
    return wrong_state(fmt::format("destroy: model {} is {}", *index,
                                   user.empty() ? "running" : fmt::format("executed by {}", user)));
  }
  for (const uint32_t stream : m.streams) {
    demand_ended(stream);
    Stream& s = core_.streams()[stream];
    for (const Task& task : s.program->tasks) {
      const bool refers = task.type == DVT_NPU_EVENT_RECORD || task.type == DVT_NPU_EVENT_WAIT;
      if (!refers) continue;
      end_use_of_event(task.object);
      core_.drop_reference(task.object);
    }
    for (const uint32_t chained : s.program->chained) stream_handles_.destroy(chained);
    s.program = nullptr;
  }
  for (const uint32_t label : m.labels) {
    core_.labels()[label].live = false;
    label_handles_.destroy(label);
  }
  m = Model{};
  model_handles_.destroy(*index);
  return {};
}

Status Npu::refuse_bound(uint32_t stream, const char* operation) const {
  const auto& program = core_.streams()[stream].program;
  if (program == nullptr) return {};
  return wrong_state(
      fmt::format("{}: stream {} is bound to model {}", operation, stream, program->model));
}

Status Npu::bind_stream(DvtNpuModel* model, DvtStream* stream, bool is_head) {
  auto m = model_handles_.resolve(model, "bind");
  if (!m.ok()) return std::move(m.status());
  auto index = stream_handles_.resolve(stream, "bind");
  if (!index.ok()) return std::move(index.status());
  if (core_.models()[*m].built) return wrong_state(fmt::format("bind: model {} is complete", *m));
  if (auto bound = refuse_bound(*index, "bind"); !bound.ok()) return bound;
  run_until(host_->now_ps);
  Stream& s = core_.streams()[*index];
  if (s.queued() > 0) {
    return wrong_state(fmt::format("bind: stream {} has {} unfinished tasks", *index, s.queued()));
  }
  s.program = std::make_unique<Program>();
  s.program->model = *m;
  s.program->is_head = is_head;
  core_.models()[*m].streams.push_back(*index);
  return {};
}

// A stream of a model holds what its queue on the device does; what is more goes into streams that
// are chained to it and count as streams.
Status Npu::enter_program(uint32_t stream) {
  Program& program = *core_.streams()[stream].program;
  if (core_.models()[program.model].built) {
    return wrong_state(
        fmt::format("stream {} belongs to model {}, which is complete", stream, program.model));
  }
  const auto depth = static_cast<size_t>(settings_.parameters.model_stream_depth);
  if (program.tasks.size() < depth * (program.chained.size() + 1)) return {};
  auto chained = breaks(Rule::kLongProgramsChain)
                     ? Result<uint32_t>(Status(DVT_OUT_OF_RESOURCE, DVT_STAGE_RUN, "no stream"))
                     : stream_handles_.create();
  if (!chained.ok()) {
    Status status = std::move(chained.status());
    status.detail().message =
        fmt::format("{} to chain to stream {} of model {}, which has {} tasks",
                    status.detail().message, stream, program.model, program.tasks.size());
    return status;
  }
  program.chained.push_back(*chained);
  auto& streams = core_.streams();
  if (*chained >= streams.size()) streams.resize(*chained + 1);
  streams[*chained] = Stream{};
  return {};
}

Result<uint32_t> Npu::open_stream(DvtStream* stream, const char* operation, uint32_t* model) {
  auto index = stream_handles_.resolve(stream, operation);
  if (!index.ok()) return index;
  const auto& program = core_.streams()[*index].program;
  if (program == nullptr) {
    return wrong_state(fmt::format("{}: stream {} is not bound to a model", operation, *index));
  }
  *model = program->model;
  return index;
}

Status Npu::submit_control(uint32_t stream, DvtNpuTaskType type, uint32_t object,
                           std::shared_ptr<Effect> effect) {
  Task task;
  task.type = type;
  task.object = object;
  task.op = intern(dvt_npu_task_type_name(type));
  task.serial = next_serial_++;
  if (effect != nullptr) {
    auto status = check_operands(*effect, memory_, task.serial);
    if (!status.ok()) {
      status.detail().op = task.op;
      return status;
    }
    if (effect->kind != Effect::Kind::kCallback || !settings_.timing_only) {
      task.effect = std::move(effect);
    }
  }
  auto status = enter_queue(stream);
  if (!status.ok()) return status;
  enqueue(stream, std::move(task));
  return {};
}

Status Npu::end_graph(DvtNpuModel* model, DvtStream* stream) {
  auto m = model_handles_.resolve(model, "end graph");
  if (!m.ok()) return std::move(m.status());
  uint32_t bound = kNone;
  auto index = open_stream(stream, "end graph", &bound);
  if (!index.ok()) return std::move(index.status());
  if (bound != *m) {
    return misuse(fmt::format("end graph: stream {} is bound to model {}, not to model {}", *index,
                              bound, *m));
  }
  if (core_.models()[*m].end_graph_stream != kNone) {
    return wrong_state(fmt::format("end graph: model {} has its end on stream {} already", *m,
                                   core_.models()[*m].end_graph_stream));
  }
  auto status = submit_control(*index, DVT_NPU_END_GRAPH, *m, nullptr);
  if (status.ok()) core_.models()[*m].end_graph_stream = *index;
  return status;
}

Status Npu::build_end(DvtNpuModel* model) {
  auto m = model_handles_.resolve(model, "build end");
  if (!m.ok()) return std::move(m.status());
  Model& built = core_.models()[*m];
  if (built.built) return wrong_state(fmt::format("build end: model {} is complete", *m));
  const bool has_head =
      std::any_of(built.streams.begin(), built.streams.end(),
                  [&](uint32_t stream) { return core_.streams()[stream].program->is_head; });
  if (!has_head) return wrong_state(fmt::format("build end: model {} has no head stream", *m));
  if (built.end_graph_stream == kNone) {
    return wrong_state(fmt::format("build end: model {} has no end-graph task", *m));
  }
  for (const uint32_t label : built.labels) {
    if (core_.labels()[label].stream != kNone) continue;
    return wrong_state(fmt::format("build end: label {} of model {} is not set", label, *m));
  }
  built.built = true;
  return {};
}

Status Npu::execute(DvtNpuModel* model, DvtStream* stream) {
  auto m = model_handles_.resolve(model, "execute");
  if (!m.ok()) return std::move(m.status());
  auto index = stream_handles_.resolve(stream, "execute");
  if (!index.ok()) return std::move(index.status());
  if (!core_.models()[*m].built) {
    return wrong_state(fmt::format("execute: model {} is not complete", *m));
  }
  if (auto bound = refuse_bound(*index, "execute"); !bound.ok()) return bound;
  return submit_control(*index, DVT_NPU_MODEL_EXECUTE, *m, nullptr);
}

Status Npu::abort_model(DvtNpuModel* model) {
  auto m = model_handles_.resolve(model, "abort");
  if (!m.ok()) return std::move(m.status());
  run_until(host_->now_ps);
  const Model& running = core_.models()[*m];
  if (running.execution.stream == kNone && running.running_streams == 0) {
    return wrong_state(fmt::format("abort: model {} is not running", *m));
  }
  core_.abort_model(*m);
  run_until(host_->now_ps);
  return {};
}

void Npu::collect_failures(Stream& caller, const Model& model) {
  for (const uint32_t stream : model.streams) {
    auto error = std::exchange(core_.streams()[stream].error, std::nullopt);
    if (error && !caller.error) caller.error = std::move(error);
  }
}

void Npu::instantiate(uint32_t stream, Task& task) {
  task.id = next_task_++;
  task.serial = next_serial_++;
  task.delay_us = delay_us();
  if (task.type == DVT_NPU_EVENT_RECORD) core_.records()[task.object].task = {stream, task.id};
  if (settings_.check_order) order_.submit(stream, task.id);
}

// ---- Control flow ------------------------------------------------------------------------------

// The device reads what is in memory when the task runs: what came before it has taken effect.
uint64_t Npu::decide(uint32_t stream, const Task& task) {
  demand_ended(stream);
  Stream& s = core_.streams()[stream];
  if (s.now.causes.activated_by.stream != kNone) demand(s.now.causes.activated_by);
  if (s.error) return 0;
  if (settings_.check_order) begin_order(stream, task, s.now.causes);
  auto status = check_operands(*task.effect, memory_, task.serial);
  if (status.ok() && settings_.check_order) {
    const Access access{stream, task.type, task.id, task.name};
    status = check_order(*task.effect, memory_, task.serial, access, order_.clock(stream),
                         [this](const void* address) { return later_writer(address); });
  }
  if (status.ok()) return read_decision(*task.effect);
  fail(s, task, std::move(status));
  return 0;
}

void Npu::failed(uint32_t stream, const Task& task, std::string reason) {
  fail(core_.streams()[stream], task,
       Status(DVT_FAILED_STATE, DVT_STAGE_RUN,
              fmt::format("{}: {}", describe(Access{stream, task.type, task.id, task.name}),
                          std::move(reason))));
}

Result<uint32_t> Npu::target_of(DvtStream* target, const char* operation, uint32_t model) {
  auto index = stream_handles_.resolve(target, operation);
  if (!index.ok()) return index;
  const auto& program = core_.streams()[*index].program;
  const bool any = breaks(Rule::kTargetIsOfModel);
  if (program != nullptr && (any || program->model == model)) return index;
  return misuse(
      fmt::format("{}: target stream {} is not bound to model {}", operation, *index, model));
}

Status Npu::activate(DvtStream* stream, DvtStream* target) {
  uint32_t model = kNone;
  auto index = open_stream(stream, "activate", &model);
  if (!index.ok()) return std::move(index.status());
  auto to = target_of(target, "activate", model);
  if (!to.ok()) return std::move(to.status());
  return submit_control(*index, DVT_NPU_STREAM_ACTIVE, *to, nullptr);
}

Status Npu::switch_stream(DvtStream* stream, const void* left, DvtNpuCondition condition,
                          const void* right, DvtStream* target) {
  uint32_t model = kNone;
  auto index = open_stream(stream, "switch", &model);
  if (!index.ok()) return std::move(index.status());
  auto to = target_of(target, "switch", model);
  if (!to.ok()) return std::move(to.status());
  if (condition > DVT_NPU_LESS_OR_EQUAL) return misuse("switch: the condition is unknown");
  if (left == nullptr || right == nullptr) return misuse("switch: an operand is NULL");
  if (settings_.timing_only) return wrong_state("switch: a timing_only NPU has no values");
  auto effect = std::make_shared<Effect>();
  effect->kind = Effect::Kind::kDecide;
  effect->from = left;
  effect->to = const_cast<void*>(right);  // Read only, as kDecide is.
  effect->bytes = sizeof(int64_t);
  effect->condition = condition;
  return submit_control(*index, DVT_NPU_STREAM_SWITCH, *to, std::move(effect));
}

Result<DvtNpuLabel*> Npu::create_label(DvtNpuModel* model) {
  auto m = model_handles_.resolve(model, "label");
  if (!m.ok()) return std::move(m.status());
  if (core_.models()[*m].built) return wrong_state(fmt::format("label: model {} is complete", *m));
  auto index = label_handles_.create();
  if (!index.ok()) return std::move(index.status());
  auto& labels = core_.labels();
  if (*index >= labels.size()) labels.resize(*index + 1);
  labels[*index] = Label{.live = true, .model = *m};
  core_.models()[*m].labels.push_back(*index);
  return label_handles_.handle<DvtNpuLabel>(*index);
}

Result<uint32_t> Npu::label_of(DvtNpuLabel* label, const char* operation, uint32_t model) {
  auto index = label_handles_.resolve(label, operation);
  if (!index.ok()) return index;
  const uint32_t owner = core_.labels()[*index].model;
  if (owner == model) return index;
  return misuse(fmt::format("{}: label {} belongs to model {}, not to model {}", operation, *index,
                            owner, model));
}

Status Npu::set_label(DvtStream* stream, DvtNpuLabel* label) {
  uint32_t model = kNone;
  auto index = open_stream(stream, "label set", &model);
  if (!index.ok()) return std::move(index.status());
  auto l = label_of(label, "label set", model);
  if (!l.ok()) return std::move(l.status());
  Label& target = core_.labels()[*l];
  if (target.stream != kNone) {
    return wrong_state(
        fmt::format("label set: label {} is set on stream {} already", *l, target.stream));
  }
  const size_t position = core_.streams()[*index].program->tasks.size();
  auto status = submit_control(*index, DVT_NPU_LABEL_SET, *l, nullptr);
  if (!status.ok()) return status;
  target.stream = *index;
  target.position = position;
  return {};
}

Status Npu::go_to(DvtStream* stream, DvtNpuLabel* label) {
  uint32_t model = kNone;
  auto index = open_stream(stream, "label goto", &model);
  if (!index.ok()) return std::move(index.status());
  auto l = label_of(label, "label goto", model);
  if (!l.ok()) return std::move(l.status());
  return submit_control(*index, DVT_NPU_LABEL_GOTO, *l, nullptr);
}

Status Npu::switch_label(DvtStream* stream, const void* index, DvtNpuLabel* const* labels,
                         uint32_t count) {
  uint32_t model = kNone;
  auto s = open_stream(stream, "label switch", &model);
  if (!s.ok()) return std::move(s.status());
  if (labels == nullptr || count == 0) return misuse("label switch: no labels");
  if (index == nullptr) return misuse("label switch: the index is NULL");
  if (settings_.timing_only) return wrong_state("label switch: a timing_only NPU has no values");
  auto effect = std::make_shared<Effect>();
  effect->kind = Effect::Kind::kDecide;
  effect->from = index;
  effect->bytes = sizeof(uint32_t);
  for (uint32_t i = 0; i < count; ++i) {
    auto l = label_of(labels[i], "label switch", model);
    if (!l.ok()) return std::move(l.status());
    effect->labels.push_back(*l);
  }
  return submit_control(*s, DVT_NPU_LABEL_SWITCH, kNone, std::move(effect));
}

// ---- Queues ------------------------------------------------------------------------------------

Result<DvtNpuQueue*> Npu::create_queue(uint32_t depth) {
  const auto most = static_cast<uint32_t>(settings_.parameters.queue_depth);
  if (depth == 0 || depth > most) {
    return misuse(fmt::format("queue: depth {} is not in 1..{}", depth, most));
  }
  auto index = queue_handles_.create();
  if (!index.ok()) return std::move(index.status());
  auto& queues = core_.queues();
  if (*index >= queues.size()) queues.resize(*index + 1);
  queues[*index] = Queue{};
  queues[*index].live = true;
  queues[*index].depth = depth;
  return queue_handles_.handle<DvtNpuQueue>(*index);
}

Status Npu::destroy_queue(DvtNpuQueue* queue) {
  auto index = queue_handles_.resolve(queue, "destroy");
  if (!index.ok()) return std::move(index.status());
  run_until(host_->now_ps);
  const std::string user = user_of(DVT_NPU_QUEUE_ENQUEUE, DVT_NPU_QUEUE_DEQUEUE, *index);
  if (!user.empty()) {
    return wrong_state(fmt::format("destroy: queue {} is used by {}", *index, user));
  }
  for (uint32_t i = 0; i < core_.streams().size(); ++i) demand_ended(i);
  items_.erase(items_.lower_bound({*index, 0}), items_.lower_bound({*index + 1, 0}));
  core_.queues()[*index] = Queue{};
  queue_handles_.destroy(*index);
  return {};
}

Result<uint32_t> Npu::queue_size(DvtNpuQueue* queue) {
  auto index = queue_handles_.resolve(queue, "queue size");
  if (!index.ok()) return index;
  run_until(host_->now_ps);
  return core_.queues()[*index].size();
}

Status Npu::put(DvtNpuQueue* queue, const void* from, uint64_t bytes) {
  auto index = queue_handles_.resolve(queue, "enqueue");
  if (!index.ok()) return std::move(index.status());
  if (from == nullptr && bytes > 0) return misuse("enqueue: source is NULL");
  host_advance(enqueue_ps_);
  const Queue& q = core_.queues()[*index];
  if (q.size() >= q.depth) {
    return Status(ErrorDetail{.code = DVT_OUT_OF_RESOURCE,
                              .stage = DVT_STAGE_RUN,
                              .message = fmt::format("enqueue: queue {} is full", *index),
                              .expected = fmt::format("at most {} items", q.depth)});
  }
  const auto* begin = static_cast<const std::byte*>(from);
  if (!settings_.timing_only) {
    items_[{*index, q.enqueued}] = {{begin, begin + bytes}, order_.host()};
  }
  core_.put_item(*index, {});
  core_.settle();
  return {};
}

Status Npu::take(DvtNpuQueue* queue, void* to, uint64_t bytes, int64_t timeout_us) {
  auto index = queue_handles_.resolve(queue, "dequeue");
  if (!index.ok()) return std::move(index.status());
  if (to == nullptr && bytes > 0) return misuse("dequeue: destination is NULL");
  const int64_t begin = host_->now_ps;
  const int64_t deadline = deadline_of(timeout_us);
  run_until(host_->now_ps);
  const Queue& q = core_.queues()[*index];
  while (q.size() == 0) {
    const int64_t next = next_ps();
    if (next == kNever || next > deadline) {
      host_->now_ps = deadline != kNever ? deadline : std::max(host_->now_ps, core_.now_ps());
      run_until(host_->now_ps);
      return Status(
          DVT_TIMEOUT, DVT_STAGE_RUN,
          fmt::format("dequeue: queue {} is empty after {:.1f} us{}", *index,
                      static_cast<double>(host_->now_ps - begin) / 1e6,
                      next == kNever ? ": " + core_.explain_stuck(4) + explain_others() : ""));
    }
    run_until(next);
    host_->now_ps = std::max(host_->now_ps, next);
  }
  host_advance(synchronise_ps_);
  if (const TaskRef producer = q.producers.front(); producer.stream != kNone) demand(producer);
  if (settings_.timing_only) {
    core_.take_item(*index);
    core_.settle();
    return {};
  }
  const auto item = items_.find({*index, q.dequeued});
  if (item != items_.end() && item->second.bytes.size() != bytes) {
    return misuse(fmt::format("dequeue: the item of queue {} has {} bytes, not {}", *index,
                              item->second.bytes.size(), bytes));
  }
  core_.take_item(*index);
  core_.settle();
  if (item == items_.end()) {
    return wrong_state(
        fmt::format("dequeue: an item of queue {} is lost: the task that enqueues it "
                    "was skipped or failed",
                    *index));
  }
  if (item->second.clock != nullptr) order_.host_saw(*item->second.clock);
  if (bytes > 0) std::memcpy(to, item->second.bytes.data(), bytes);
  items_.erase(item);
  return {};
}

Status Npu::submit_queue_task(DvtStream* stream, DvtNpuQueue* queue, DvtNpuTaskType type,
                              std::shared_ptr<Effect> effect) {
  const bool reads = type == DVT_NPU_QUEUE_DEQUEUE;
  const char* operation = reads ? "dequeue" : "enqueue";
  auto s = stream_handles_.resolve(stream, operation);
  if (!s.ok()) return std::move(s.status());
  auto q = queue_handles_.resolve(queue, operation);
  if (!q.ok()) return std::move(q.status());
  Task task;
  task.type = type;
  task.object = *q;
  return submit_transfer(*s, std::move(task), std::move(effect));
}

Status Npu::put_async(DvtStream* stream, DvtNpuQueue* queue, const void* from, uint64_t bytes) {
  auto effect = std::make_shared<Effect>();
  effect->kind = Effect::Kind::kEnqueue;
  effect->from = from;
  effect->bytes = bytes;
  return submit_queue_task(stream, queue, DVT_NPU_QUEUE_ENQUEUE, std::move(effect));
}

Status Npu::take_async(DvtStream* stream, DvtNpuQueue* queue, void* to, uint64_t bytes) {
  auto effect = std::make_shared<Effect>();
  effect->kind = Effect::Kind::kDequeue;
  effect->to = to;
  effect->bytes = bytes;
  return submit_queue_task(stream, queue, DVT_NPU_QUEUE_DEQUEUE, std::move(effect));
}

Status Npu::move_item(uint32_t stream, const Task& task, const Access& access) {
  const Effect& effect = *task.effect;
  const uint64_t ticket = core_.streams()[stream].causes.front().ticket;
  if (task.type == DVT_NPU_QUEUE_ENQUEUE) {
    const auto* begin = static_cast<const std::byte*>(effect.from);
    auto clock = order_.host();
    if (settings_.check_order) {
      order_.end(stream, task.id);
      clock = std::make_shared<Clock>(order_.clock(stream));
    }
    items_[{task.object, ticket}] = {{begin, begin + effect.bytes}, std::move(clock)};
    return {};
  }
  const auto item = items_.find({task.object, ticket});
  if (item == items_.end()) {
    return wrong_state(
        fmt::format("an item of queue {} is lost: the task that enqueues it was "
                    "skipped or failed",
                    task.object));
  }
  const Item taken = std::move(item->second);
  items_.erase(item);
  if (taken.bytes.size() != effect.bytes) {
    return misuse(fmt::format("the item of queue {} has {} bytes, not {}", task.object,
                              taken.bytes.size(), effect.bytes));
  }
  if (settings_.check_order) order_.wait(stream, *taken.clock);
  std::memcpy(effect.to, taken.bytes.data(), taken.bytes.size());
  memory_.note_write(effect.to, access);
  return {};
}

}  // namespace davit::npu
