// Streams, events, notifies and host waits of Npu.
#include <fmt/format.h>

#include <algorithm>

#include "npu_model/npu.hpp"

namespace davit::npu {

// ---- Streams -----------------------------------------------------------------------------------

Result<DvtStream*> Npu::create_stream(const DvtNpuStreamOptions& options) {
  const auto invalid = [](std::string message) {
    return Status(DVT_INVALID_ARGUMENT, DVT_STAGE_RUN, std::move(message));
  };
  if (options.struct_size != sizeof options) {
    return invalid(
        "DvtNpuStreamOptions.struct_size is not set; call dvt_npu_stream_options_init()");
  }
  if (options.priority > 7) {
    return invalid(fmt::format("stream priority {} is not in 0..7", options.priority));
  }
  if (options.failure_mode > DVT_NPU_CONTINUE_ON_FAILURE) {
    return invalid("DvtNpuStreamOptions.failure_mode is unknown");
  }
  if (options.queue_depth > queue_entries_) {
    return invalid(fmt::format("queue depth {} of a stream is more than the {} of the device",
                               options.queue_depth, queue_entries_));
  }
  auto index = stream_handles_.create();
  if (!index.ok()) return std::move(index.status());
  auto& streams = core_.streams();
  if (*index >= streams.size()) streams.resize(*index + 1);
  Stream& s = streams[*index] = Stream{};
  s.live = true;
  s.priority = options.priority;
  s.continues_on_failure = options.failure_mode == DVT_NPU_CONTINUE_ON_FAILURE;
  s.depth = options.queue_depth == 0 ? queue_entries_ : options.queue_depth;
  if (settings_.check_order) order_.create_stream(*index);
  return stream_handles_.handle<DvtStream>(*index);
}

Status Npu::destroy_stream(DvtStream* stream) {
  auto index = stream_handles_.resolve(stream, "destroy");
  if (!index.ok()) return std::move(index.status());
  if (auto bound = refuse_bound(*index, "destroy"); !bound.ok()) return bound;
  auto status = synchronise_stream(stream, -1);
  Stream& s = core_.streams()[*index];
  if (s.queued() > 0) {
    status.detail().hint = fmt::format("{} unfinished tasks were dropped", s.queued());
    core_.abandon(*index, status.detail());
  }
  demand_ended(*index);
  s.live = false;
  stream_handles_.destroy(*index);
  return status;
}

Status Npu::abort_stream(DvtStream* stream) {
  auto index = stream_handles_.resolve(stream, "abort");
  if (!index.ok()) return std::move(index.status());
  if (auto bound = refuse_bound(*index, "abort"); !bound.ok()) return bound;
  run_until(host_->now_ps);
  core_.abandon(*index, {.code = DVT_CANCELLED,
                         .stage = DVT_STAGE_RUN,
                         .message = fmt::format("stream {} was aborted", *index)});
  demand_ended(*index);
  host_saw(*index);
  core_.streams()[*index].error.reset();
  return {};
}

Status Npu::callback(DvtStream* stream, void (*function)(void*), void* data) {
  auto index = stream_handles_.resolve(stream, "callback");
  if (!index.ok()) return std::move(index.status());
  if (function == nullptr) {
    return Status(DVT_INVALID_ARGUMENT, DVT_STAGE_RUN, "callback: function is NULL");
  }
  if (breaks(Rule::kCallbackIsInOrder)) {
    function(data);
    return {};
  }
  auto effect = std::make_shared<Effect>();
  effect->kind = Effect::Kind::kCallback;
  effect->function = function;
  effect->data = data;
  return submit_control(*index, DVT_NPU_HOST_CALLBACK, kNone, std::move(effect));
}

// ---- Events ------------------------------------------------------------------------------------

// Ids of destroyed events come back when the tasks that use them have ended.
Status Npu::wait_for_event_id() {
  while (!event_handles_.has_room() && held_event_ids_ > 0) {
    const int64_t next = next_ps();
    if (next == kNever) {
      return Status(ErrorDetail{
          .code = DVT_OUT_OF_RESOURCE,
          .stage = DVT_STAGE_RUN,
          .message = fmt::format("no event left, and the {} destroyed ones whose tasks have not "
                                 "ended will not come free: {}",
                                 held_event_ids_, core_.explain_stuck(2)),
          .expected = fmt::format("at most {} events at a time", settings_.parameters.events_max)});
    }
    run_until(next);
    host_->now_ps = std::max(host_->now_ps, next);
  }
  return {};
}

Result<DvtEvent*> Npu::create_event() {
  auto status = wait_for_event_id();
  if (!status.ok()) return status;
  auto index = event_handles_.create();
  if (!index.ok()) return std::move(index.status());
  if (*index >= events_.size()) events_.resize(*index + 1);
  events_[*index] = {};
  return event_handles_.handle<DvtEvent>(*index);
}

Status Npu::destroy_event(DvtEvent* event) {
  auto index = event_handles_.resolve(event, "destroy");
  if (!index.ok()) return std::move(index.status());
  Event& e = events_[*index];
  if (e.record != kNone) core_.drop_reference(e.record);
  e.record = kNone;
  e.destroyed = true;
  event_handles_.retire(*index);
  if (e.uses == 0 || breaks(Rule::kEventIdIsHeld)) {
    event_handles_.recycle(*index);
  } else {
    ++held_event_ids_;
  }
  return {};
}

void Npu::end_use_of_event(uint32_t record) {
  const uint32_t index = core_.records()[record].event;
  if (breaks(Rule::kEventIdIsHeld) || --events_[index].uses > 0) return;
  if (!events_[index].destroyed) return;
  event_handles_.recycle(index);
  --held_event_ids_;
}

void Npu::dropped(const Task& task) {
  const bool uses = task.type == DVT_NPU_EVENT_RECORD || task.type == DVT_NPU_EVENT_WAIT;
  if (uses && !task.resident) end_use_of_event(task.object);
}

Status Npu::submit_synchronisation(uint32_t stream, DvtNpuTaskType type, uint32_t object) {
  Task task;
  task.type = type;
  task.object = object;
  task.op = intern(dvt_npu_task_type_name(type));
  if (type == DVT_NPU_EVENT_RECORD) core_.records()[object].task = {stream, next_task_};
  if (type <= DVT_NPU_EVENT_WAIT) ++events_[core_.records()[object].event].uses;
  enqueue(stream, std::move(task));
  return {};
}

Status Npu::record_event(DvtStream* stream, DvtEvent* event) {
  auto s = stream_handles_.resolve(stream, "record");
  if (!s.ok()) return std::move(s.status());
  auto e = event_handles_.resolve(event, "record");
  if (!e.ok()) return std::move(e.status());
  auto status = enter_queue(*s);
  if (!status.ok()) return status;
  const uint32_t record = core_.new_record();
  core_.add_reference(record);  // The event's.
  core_.add_reference(record);  // The task's.
  if (const auto& program = core_.streams()[*s].program)
    core_.records()[record].model = program->model;
  core_.records()[record].event = *e;
  const uint32_t earlier = std::exchange(events_[*e].record, record);
  if (earlier != kNone) core_.drop_reference(earlier);
  if (breaks(Rule::kWaitTakesLatestRecord)) move_waits(earlier, record);
  if (breaks(Rule::kRecordCapturesPriorWork)) core_.records()[record].reached = true;
  return submit_synchronisation(*s, DVT_NPU_EVENT_RECORD, record);
}

// Of a broken device only: waits for `from` wait for `to`.
void Npu::move_waits(uint32_t from, uint32_t to) {
  if (from == kNone) return;
  core_.records()[to].waiters = std::exchange(core_.records()[from].waiters, {});
  for (Stream& stream : core_.streams()) {
    for (size_t t = 0; t < stream.tasks.size(); ++t) {
      Task& task = stream.tasks[t];
      if (task.type != DVT_NPU_EVENT_WAIT || task.object != from) continue;
      task.object = to;
      core_.add_reference(to);
    }
  }
}

Status Npu::wait_event(DvtStream* stream, DvtEvent* event) {
  auto s = stream_handles_.resolve(stream, "wait");
  if (!s.ok()) return std::move(s.status());
  auto e = event_handles_.resolve(event, "wait");
  if (!e.ok()) return std::move(e.status());
  auto status = enter_queue(*s);
  if (!status.ok()) return status;
  const uint32_t record = events_[*e].record;
  const auto& program = core_.streams()[*s].program;
  const uint32_t recorder = record == kNone ? kNone : core_.records()[record].model;
  if (recorder != (program == nullptr ? kNone : program->model)) {
    return Status(
        DVT_FAILED_STATE, DVT_STAGE_RUN,
        recorder == kNone
            ? fmt::format("wait: event {} is not recorded inside model {}", *e, program->model)
            : fmt::format(
                  "wait: event {} is recorded inside model {}, where stream {} does not run", *e,
                  recorder, *s));
  }
  if (program != nullptr) {
    core_.add_reference(record);
    return submit_synchronisation(*s, DVT_NPU_EVENT_WAIT, record);
  }
  if (record == kNone) return {};
  const bool shortcut = !breaks(Rule::kReachedEventAddsNoTask);
  if (shortcut && core_.records()[record].reached &&
      !looks_unfinished(core_.records()[record].task)) {
    // The runtime has seen the event complete, so what it covers is there.
    see_record(record);
    auto& error = core_.streams()[*s].error;
    if (!error) error = core_.records()[record].error;
    return {};
  }
  core_.add_reference(record);
  return submit_synchronisation(*s, DVT_NPU_EVENT_WAIT, record);
}

void Npu::see_record(uint32_t record) {
  demand(core_.records()[record].task);
  const auto& clock = core_.records()[record].clock;
  if (clock != nullptr) order_.host_saw(*clock);
}

Result<bool> Npu::query_event(DvtEvent* event) {
  auto e = event_handles_.resolve(event, "query");
  if (!e.ok()) return std::move(e.status());
  run_until(host_->now_ps);
  const uint32_t record = events_[*e].record;
  if (record == kNone) return !breaks(Rule::kUnrecordedIsComplete);
  if (!core_.records()[record].reached) return false;
  if (looks_unfinished(core_.records()[record].task)) return false;
  see_record(record);
  return true;
}

Result<int64_t> Npu::event_time(DvtEvent* event) {
  auto e = event_handles_.resolve(event, "event time");
  if (!e.ok()) return std::move(e.status());
  const uint32_t record = events_[*e].record;
  if (record == kNone || !core_.records()[record].reached) {
    return Status(DVT_FAILED_STATE, DVT_STAGE_RUN, fmt::format("event {} is not reached yet", *e));
  }
  return core_.records()[record].reached_ps;
}

Result<int64_t> Npu::event_elapsed(DvtEvent* first, DvtEvent* last) {
  auto begin = event_time(first);
  if (!begin.ok()) return std::move(begin.status());
  auto end = event_time(last);
  if (!end.ok()) return std::move(end.status());
  return *end - *begin;
}

// ---- Notifies ----------------------------------------------------------------------------------

Result<DvtNotify*> Npu::create_notify() {
  auto index = notify_handles_.create();
  if (!index.ok()) return std::move(index.status());
  auto& notifies = core_.notifies();
  if (*index >= notifies.size()) notifies.resize(*index + 1);
  notifies[*index] = Notify{.live = true};
  return notify_handles_.handle<DvtNotify>(*index);
}

Status Npu::destroy_notify(DvtNotify* notify) {
  auto index = notify_handles_.resolve(notify, "destroy");
  if (!index.ok()) return std::move(index.status());
  const std::string user = user_of(DVT_NPU_NOTIFY_RECORD, DVT_NPU_NOTIFY_WAIT, *index);
  if (!user.empty()) {
    return Status(DVT_FAILED_STATE, DVT_STAGE_RUN,
                  fmt::format("destroy: notify {} is used by {}", *index, user));
  }
  for (const Npu* other : host_->devices) {
    if (other == nullptr) continue;
    for (const auto& [theirs, elsewhere] : other->imported_) {
      if (elsewhere.owner != this || elsewhere.notify != notify) continue;
      const std::string recorder =
          other->user_of(DVT_NPU_NOTIFY_RECORD, DVT_NPU_NOTIFY_RECORD, theirs);
      if (recorder.empty()) continue;
      return Status(DVT_FAILED_STATE, DVT_STAGE_RUN,
                    fmt::format("destroy: notify {} is used by {} of device {}", *index, recorder,
                                other->number()));
    }
  }
  core_.notifies()[*index].live = false;
  imported_.erase(*index);
  notify_handles_.destroy(*index);
  return {};
}

Status Npu::record_notify(DvtStream* stream, DvtNotify* notify) {
  auto s = stream_handles_.resolve(stream, "record");
  if (!s.ok()) return std::move(s.status());
  auto n = notify_handles_.resolve(notify, "record");
  if (!n.ok()) return std::move(n.status());
  if (const auto elsewhere = imported_.find(*n); elsewhere != imported_.end()) {
    const auto& [owner, theirs] = elsewhere->second;
    if (owner == nullptr || !owner->notify_handles_.resolve(theirs, "record").ok()) {
      return Status(DVT_INVALID_ARGUMENT, DVT_STAGE_RUN,
                    fmt::format("record: the notify that notify {} stands for is destroyed", *n));
    }
    if (breaks(Rule::kNotifyCrossesDevices)) {
      record_elsewhere(*n, {});
      return {};
    }
  }
  auto status = enter_queue(*s);
  if (!status.ok()) return status;
  return submit_synchronisation(*s, DVT_NPU_NOTIFY_RECORD, *n);
}

Status Npu::wait_notify(DvtStream* stream, DvtNotify* notify) {
  auto s = stream_handles_.resolve(stream, "wait");
  if (!s.ok()) return std::move(s.status());
  auto n = notify_handles_.resolve(notify, "wait");
  if (!n.ok()) return std::move(n.status());
  if (imported_.contains(*n)) {
    return Status(
        DVT_INVALID_ARGUMENT, DVT_STAGE_RUN,
        fmt::format("wait: notify {} is of another device and can only be recorded here", *n));
  }
  auto status = enter_queue(*s);
  if (!status.ok()) return status;
  return submit_synchronisation(*s, DVT_NPU_NOTIFY_WAIT, *n);
}

// ---- Host waits --------------------------------------------------------------------------------

int64_t Npu::deadline_of(int64_t timeout_us) const {
  if (timeout_us < 0 || timeout_us > (kNever / 2 - host_->now_ps) / 1000000) return kNever;
  return host_->now_ps + timeout_us * 1000000;
}

Status Npu::timeout_error(uint32_t stream, int64_t begin_ps, bool stuck) const {
  const double elapsed_us = static_cast<double>(host_->now_ps - begin_ps) / 1e6;
  // The task to look at: the stream's own head, or, behind it, one that runs and never ends.
  uint32_t culprit = stream;
  if (stuck && core_.streams()[stream].state != StreamState::kRunning) {
    for (uint32_t i = 0; i < core_.streams().size(); ++i) {
      const Stream& s = core_.streams()[i];
      if (s.queued() == 0 || s.state != StreamState::kRunning) continue;
      culprit = i;
      break;
    }
  }
  const Task& head = core_.streams()[culprit].head();
  return Status(ErrorDetail{
      .code = DVT_TIMEOUT,
      .stage = DVT_STAGE_RUN,
      .message = fmt::format(
          "stream {} is not done after {:.1f} us: {}", stream, elapsed_us,
          stuck ? core_.explain_stuck(4) + explain_others() : core_.explain_stream(culprit)),
      .node = head.name,
      .op = head.op});
}

Status Npu::wait_drained(uint32_t stream, int64_t deadline_ps) {
  const int64_t begin = host_->now_ps;
  const Stream& s = core_.streams()[stream];
  while (s.queued() > 0) {
    const int64_t next = next_ps();
    if (next == kNever || next > deadline_ps) {
      host_->now_ps = deadline_ps != kNever ? deadline_ps : std::max(host_->now_ps, core_.now_ps());
      run_until(host_->now_ps);
      return timeout_error(stream, begin, next == kNever);
    }
    run_until(next);
  }
  host_->now_ps = std::max(host_->now_ps, s.last_end_ps);
  return {};
}

Status Npu::synchronise_stream(DvtStream* stream, int64_t timeout_us) {
  auto index = stream_handles_.resolve(stream, "synchronise");
  if (!index.ok()) return std::move(index.status());
  if (auto bound = refuse_bound(*index, "synchronise"); !bound.ok()) return bound;
  auto status = wait_drained(*index, deadline_of(timeout_us));
  if (!status.ok()) return status;
  host_advance(synchronise_ps_);
  demand_ended(*index);
  host_saw(*index);
  auto& error = core_.streams()[*index].error;
  if (error) return Status(*std::exchange(error, std::nullopt));
  return {};
}

Status Npu::synchronise(int64_t timeout_us) {
  const int64_t deadline = deadline_of(timeout_us);
  Status first;
  for (uint32_t i = 0; i < core_.streams().size(); ++i) {
    if (!core_.streams()[i].live) continue;
    auto status = wait_drained(i, deadline);
    if (!status.ok()) return status;
  }
  host_advance(synchronise_ps_);
  for (uint32_t i = 0; i < core_.streams().size(); ++i) {
    demand_ended(i);
    if (core_.streams()[i].live) host_saw(i);
    auto error = std::exchange(core_.streams()[i].error, std::nullopt);
    if (error && first.ok()) first = Status(*error);
  }
  return first;
}

}  // namespace davit::npu
