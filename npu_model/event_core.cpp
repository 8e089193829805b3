#include "npu_model/event_core.hpp"

#include <algorithm>
#include <cmath>

#include "npu_model/functional.hpp"

namespace davit::npu {
namespace {

constexpr uint32_t kOne = 65536;  // Full speed in Q16.

int64_t to_ps(double us) {
  return static_cast<int64_t>(std::llround(us * 1e6));
}

// Of the task scheduler: no core, no engine.
bool is_synchronisation(DvtNpuTaskType type) {
  return type >= DVT_NPU_EVENT_RECORD && type < DVT_NPU_QUEUE_ENQUEUE;
}

bool needs_aicpu(DvtNpuTaskType type) {
  return type == DVT_NPU_AI_CPU || type >= DVT_NPU_QUEUE_ENQUEUE;
}

}  // namespace

EventCore::EventCore(const Parameters& parameters, Listener& listener)
    : parameters_(parameters),
      listener_(listener),
      gap_ps_(to_ps(parameters.task_gap_us)),
      record_ps_(to_ps(parameters.event_record_us)),
      wait_ps_(to_ps(parameters.event_wait_us)),
      notify_ps_(to_ps(parameters.notify_us)),
      execute_ps_(to_ps(parameters.model_execute_us)),
      control_ps_(to_ps(parameters.control_us)),
      callback_ps_(to_ps(parameters.callback_us)),
      aic_total_(static_cast<uint32_t>(parameters.aic_cores)),
      aiv_total_(static_cast<uint32_t>(parameters.aiv_cores)),
      aicpu_total_(static_cast<uint32_t>(parameters.aicpu_cores)),
      slots_total_(breaks(Rule::kStreamsAreIndependent)
                       ? 1
                       : static_cast<uint32_t>(parameters.active_streams)),
      hbm_mbps_(static_cast<uint64_t>(parameters.hbm_gbps * parameters.hbm_efficiency * 1000)),
      l2_mbps_(static_cast<uint64_t>(parameters.l2_gbps * parameters.l2_efficiency * 1000)),
      aic_free_(aic_total_),
      aiv_free_(aiv_total_),
      aicpu_free_(aicpu_total_) {}

uint32_t EventCore::new_record() {
  if (free_records_.empty()) {
    records_.emplace_back();
    return static_cast<uint32_t>(records_.size() - 1);
  }
  const uint32_t index = free_records_.back();
  free_records_.pop_back();
  records_[index] = Record{};
  return index;
}

void EventCore::drop_reference(uint32_t record) {
  if (--records_[record].references == 0) free_records_.push_back(record);
}

void EventCore::submit(uint32_t stream, Task task) {
  Stream& s = streams_[stream];
  s.tasks.push_back(std::move(task));
  if (breaks(Rule::kStreamIsFifo) && s.queued() > 2) std::swap(s.tasks.back(), s.tasks.end()[-2]);
  if (s.state == StreamState::kIdle) arm_head(stream);
}

// The head becomes ready when it has arrived, and for work on cores and engines not sooner than a
// task gap after the task before it.
void EventCore::arm_head(uint32_t stream) {
  Stream& s = streams_[stream];
  if (s.queued() == 0) {
    s.state = StreamState::kIdle;
    return;
  }
  Task& head = s.head();
  const int64_t gap = is_synchronisation(head.type) ? 0 : gap_ps_;
  head.ready_ps =
      std::max(head.submit_ps, s.last_end_ps + gap) + int64_t{head.delay_us} * 1'000'000;
  s.state = StreamState::kPending;
  timers_.push({head.ready_ps, head.id, stream});
}

int64_t EventCore::next_ps() const {
  int64_t next = timers_.empty() ? kNever : timers_.top().at_ps;
  for (const Active& active : active_) next = std::min(next, active.due_ps);
  return next;
}

void EventCore::run_until(int64_t limit_ps) {
  for (int64_t next = next_ps(); next <= limit_ps && next != kNever; next = next_ps()) {
    advance_to(next);
    bool moved = true;
    while (moved) {
      moved = finish_due();
      while (!timers_.empty() && timers_.top().at_ps <= now_) {
        const Timer timer = timers_.top();
        timers_.pop();
        fire_timer(timer);
        moved = true;
      }
      if (moved) dispatch_ready();
    }
    if (changed_) share();
  }
}

void EventCore::advance_to(int64_t at_ps) {
  const int64_t elapsed = at_ps - now_;
  now_ = at_ps;
  if (elapsed == 0) return;
  for (Active& active : active_) {
    if (active.due_ps == kNever) continue;
    active.remaining_q16 = std::max<int64_t>(active.remaining_q16 - elapsed * active.speed_q16, 0);
  }
}

// Ends all phases that are due now, in order of dispatch. True when one did.
bool EventCore::finish_due() {
  bool moved = false;
  for (size_t i = 0; i < active_.size();) {
    Active& active = active_[i];
    if (active.due_ps > now_) {
      ++i;
      continue;
    }
    moved = changed_ = true;
    if (active.in_head) {
      begin_body(active);
      continue;  // A task without a body ends at once.
    }
    const uint32_t stream = active.stream;
    release_resources(active);
    active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
    if (pass_queue(stream)) end_head(stream);
  }
  return moved;
}

void EventCore::begin_body(Active& active) {
  const int64_t body = streams_[active.stream].head().timing->body_ps;
  active.in_head = false;
  active.remaining_q16 = body * kOne;
  active.due_ps = body == 0 ? now_ : kNever;  // share() sets it for a body that takes time.
}

void EventCore::release_resources(const Active& active) {
  const DvtNpuTaskType type = streams_[active.stream].head().type;
  aic_free_ += active.aic;
  aiv_free_ += active.aiv;
  if (needs_aicpu(type)) ++aicpu_free_;
  if (const auto engine = engine_of(type)) engine_busy_[*engine] = false;
}

void EventCore::fire_timer(const Timer& timer) {
  Stream& s = streams_[timer.stream];
  // Timers of abandoned tasks are still in the queue.
  if (s.queued() == 0 || s.head().id != timer.task) return;
  if (s.state == StreamState::kPending) {
    s.state = StreamState::kReady;
    ready_.insert({breaks(Rule::kPriorityOrdersStart) ? 0 : s.priority, s.head().ready_ps,
                   s.head().id, timer.stream});
  } else if (s.state == StreamState::kRunning) {
    end_synchronisation(timer.stream);
  }
}

void EventCore::dispatch_ready() {
  for (auto it = ready_.begin(); it != ready_.end();) {
    const uint32_t stream = it->stream;
    it = try_dispatch(stream) ? ready_.erase(it) : std::next(it);
  }
}

bool EventCore::try_dispatch(uint32_t stream) {
  if (!is_synchronisation(streams_[stream].head().type)) return try_start(stream);
  start_synchronisation(stream);
  return true;
}

std::optional<EventCore::Engine> EventCore::engine_of(DvtNpuTaskType type) const {
  if (breaks(Rule::kCopiesHaveOwnEngines) && type >= DVT_NPU_COPY_H2D && type <= DVT_NPU_MEMSET) {
    return kSdma;
  }
  switch (type) {
    case DVT_NPU_COPY_H2D:
      return kPcieIn;
    case DVT_NPU_COPY_D2H:
      return kPcieOut;
    case DVT_NPU_COPY_D2D:
    case DVT_NPU_MEMSET:
      return kSdma;
    default:
      return std::nullopt;
  }
}

bool EventCore::has_cores(const Task& task) const {
  const TaskTiming& timing = *task.timing;
  if (breaks(Rule::kPriorityDoesNotPreempt)) return true;
  if (breaks(Rule::kMixNeedsVectorCores) && timing.aic > 0) return aic_free_ > 0;
  const bool all =
      (task.all_cores || breaks(Rule::kStartsOnAnyCore)) && !breaks(Rule::kAllCoresWaits);
  if (all) return aic_free_ >= timing.aic && aiv_free_ >= timing.aiv;
  return (timing.aic == 0 || aic_free_ > 0) && (timing.aiv == 0 || aiv_free_ > 0);
}

// Starts a kernel or copy when a stream slot, its engine, and at least one core are free.
bool EventCore::try_start(uint32_t stream) {
  Stream& s = streams_[stream];
  Task& task = s.head();
  const TaskTiming& timing = *task.timing;
  if (active_.size() >= slots_total_) return false;
  const auto engine = engine_of(task.type);
  if (engine && engine_busy_[*engine]) return false;
  if (!has_cores(task)) return false;
  if (needs_aicpu(task.type) && aicpu_free_ == 0) return false;

  Active active{.stream = stream,
                .in_head = true,
                .aic = 0,
                .aiv = 0,
                .speed_q16 = kOne,
                .remaining_q16 = timing.head_ps * kOne,
                .due_ps = now_ + timing.head_ps};
  if (task.hangs) active.due_ps = kNever;
  active.aic = std::min<uint32_t>(timing.aic, aic_free_);
  active.aiv = std::min<uint32_t>(timing.aiv, aiv_free_);
  aic_free_ -= active.aic;
  aiv_free_ -= active.aiv;
  if (needs_aicpu(task.type)) --aicpu_free_;
  if (engine) engine_busy_[*engine] = true;
  active_.push_back(active);
  changed_ = true;
  task.start_ps = now_;
  s.state = StreamState::kRunning;
  return true;
}

// ---- Synchronisation tasks ---------------------------------------------------------------------

void EventCore::start_synchronisation(uint32_t stream) {
  Stream& s = streams_[stream];
  Task& task = s.head();
  const auto run_for = [&](int64_t ps) {
    task.start_ps = now_;
    s.state = StreamState::kRunning;
    timers_.push({now_ + ps, task.id, stream});
  };
  switch (task.type) {
    case DVT_NPU_EVENT_RECORD:
      run_for(record_ps_);
      return;
    case DVT_NPU_NOTIFY_RECORD:
      run_for(notify_ps_);
      return;
    case DVT_NPU_EVENT_WAIT: {
      Record& record = records_[task.object];
      s.state = StreamState::kWaiting;
      if (record.reached) {
        release_waiter(stream, record.task);
      } else {
        record.waiters.push_back(stream);
      }
      return;
    }
    case DVT_NPU_NOTIFY_WAIT: {
      Notify& notify = notifies_[task.object];
      s.state = StreamState::kWaiting;
      if (notify.set) {
        notify.set = breaks(Rule::kNotifyResets);
        release_waiter(stream, notify.set_by);
      } else {
        notify.waiters.push_back(stream);
      }
      return;
    }
    case DVT_NPU_HOST_CALLBACK:
      run_for(callback_ps_);
      return;
    case DVT_NPU_MODEL_EXECUTE:
      start_execution(stream);
      return;
    case DVT_NPU_END_GRAPH:
      run_for(notify_ps_);
      return;
    default:
      run_for(task.type == DVT_NPU_LABEL_SET ? 0 : control_ps_);
      return;
  }
}

void EventCore::release_waiter(uint32_t stream, TaskRef by) {
  Stream& s = streams_[stream];
  Task& task = s.head();
  task.released_by = by;
  task.start_ps = now_;
  s.state = StreamState::kRunning;
  timers_.push({now_ + (task.type == DVT_NPU_EVENT_WAIT ? wait_ps_ : notify_ps_), task.id, stream});
}

void EventCore::reach_record(uint32_t record) {
  Record& r = records_[record];
  r.reached = true;
  r.reached_ps = now_;
  std::vector<uint32_t> waiters = std::exchange(r.waiters, {});
  if (breaks(Rule::kRecordReleasesAll) && !waiters.empty())
    waiters.erase(waiters.begin() + 1, waiters.end());
  for (const uint32_t waiter : waiters) release_waiter(waiter, r.task);
}

void EventCore::end_synchronisation(uint32_t stream) {
  Task& task = streams_[stream].head();
  const uint32_t object = task.object;
  if (task.type == DVT_NPU_MODEL_EXECUTE && !models_[object].ended) {
    begin_heads(stream);
    return;
  }
  if (task.type == DVT_NPU_EVENT_RECORD) {
    reach_record(object);
  } else if (task.type == DVT_NPU_NOTIFY_RECORD) {
    Notify& notify = notifies_[object];
    if (notify.waiters.empty()) {
      notify.set = true;
      notify.set_by = {stream, task.id};
    } else {
      do {
        const uint32_t waiter = notify.waiters.front();
        notify.waiters.pop_front();
        release_waiter(waiter, {stream, task.id});
      } while (breaks(Rule::kNotifyReleasesOne) && !notify.waiters.empty());
    }
  } else if (task.type >= DVT_NPU_MODEL_EXECUTE) {
    end_control(stream);
    return;
  }
  end_head(stream);
}

void EventCore::end_head(uint32_t stream) {
  Stream& s = streams_[stream];
  Task& task = s.head();
  task.end_ps = now_;
  s.last_end_ps = now_;
  s.last_ended_task = task.id;
  ++s.ended;
  s.state = StreamState::kIdle;
  // The listener may pop the task, but it submits nothing.
  listener_.ended(stream, task);
  if (s.program != nullptr) feed(stream, {});
  arm_head(stream);
}

void EventCore::detach(uint32_t stream) {
  Stream& s = streams_[stream];
  if (s.queued() == 0) return;
  if (s.state == StreamState::kReady) {
    ready_.erase({s.priority, s.head().ready_ps, s.head().id, stream});
  }
  for (size_t i = 0; i < active_.size(); ++i) {
    if (active_[i].stream != stream) continue;
    release_resources(active_[i]);
    active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
    break;
  }
  for (Record& record : records_) std::erase(record.waiters, stream);
  for (Notify& notify : notifies_) std::erase(notify.waiters, stream);
  for (Model& model : models_) std::erase(model.queue, stream);
  for (Queue& queue : queues_) {
    std::erase(queue.readers, stream);
    std::erase(queue.writers, stream);
  }
  s.state = StreamState::kIdle;
}

void EventCore::abandon(uint32_t stream, const ErrorDetail& reason) {
  Stream& s = streams_[stream];
  if (s.queued() == 0) return;
  const Task& head = s.head();
  if (head.type == DVT_NPU_MODEL_EXECUTE && models_[head.object].execution.stream == stream) {
    abort_model(head.object);
    models_[head.object].execution = {};
    detach(stream);
    next_execution(head.object);
  }
  detach(stream);
  std::vector<uint32_t> reached;
  for (size_t i = s.ended; i < s.tasks.size(); ++i) {
    const Task& task = s.tasks[i];
    if (task.type == DVT_NPU_EVENT_RECORD) reached.push_back(task.object);
    if (task.type == DVT_NPU_EVENT_WAIT) drop_reference(task.object);
  }
  s.tasks.erase(s.tasks.begin() + static_cast<std::ptrdiff_t>(s.ended), s.tasks.end());
  for (const uint32_t record : reached) {
    records_[record].error = reason;
    reach_record(record);
    drop_reference(record);
  }
  dispatch_ready();
  share();
}

// ---- Shared resources --------------------------------------------------------------------------

void EventCore::share() {
  changed_ = false;
  grant_cores();
  share_bandwidth(&TaskTiming::hbm_need_mbps, hbm_mbps_);
  share_bandwidth(&TaskTiming::l2_need_mbps, l2_mbps_);
  for (Active& active : active_) {
    if (active.in_head || streams_[active.stream].head().hangs) continue;
    const int64_t speed = active.speed_q16;
    active.due_ps = now_ + (active.remaining_q16 + speed - 1) / speed;
  }
}

// In order of dispatch, each gets what it wants of what is left (I2).
void EventCore::grant_cores() {
  if (breaks(Rule::kPriorityDoesNotPreempt)) {
    std::stable_sort(active_.begin(), active_.end(), [&](const Active& a, const Active& b) {
      return streams_[a.stream].priority < streams_[b.stream].priority;
    });
  }
  uint32_t aic_left = aic_total_;
  uint32_t aiv_left = aiv_total_;
  for (Active& active : active_) {
    const TaskTiming& timing = *streams_[active.stream].head().timing;
    active.aic = std::min<uint32_t>(timing.aic, aic_left);
    active.aiv = std::min<uint32_t>(timing.aiv, aiv_left);
    aic_left -= active.aic;
    aiv_left -= active.aiv;
    active.speed_q16 = kOne;
    if (active.in_head || timing.core_need_q16 == 0) continue;
    uint64_t share = kOne;
    if (timing.aic > 0) share = std::min(share, uint64_t{active.aic} * kOne / timing.aic);
    if (timing.aiv > 0) share = std::min(share, uint64_t{active.aiv} * kOne / timing.aiv);
    // Only the core-bound part of the body suffers from missing cores.
    const uint64_t speed = share * kOne / timing.core_need_q16;
    active.speed_q16 = static_cast<uint32_t>(std::clamp<uint64_t>(speed, 1, kOne));
  }
  aic_free_ = aic_left;
  aiv_free_ = aiv_left;
}

// Max-min fair: whoever wants less than an equal part of what is left gets all of it.
void EventCore::share_bandwidth(uint32_t TaskTiming::*need, uint64_t capacity_mbps) {
  const auto demand = [&](const Active& active) -> uint64_t {
    if (active.in_head) return 0;
    const uint64_t full = streams_[active.stream].head().timing->*need;
    // A task alone is never slower than its own timing says, whatever the capacity.
    return std::min(full * active.speed_q16 / kOne, capacity_mbps);
  };
  uint64_t total = 0;
  for (const Active& active : active_) total += demand(active);
  if (total <= capacity_mbps) return;
  order_.clear();
  for (uint32_t i = 0; i < active_.size(); ++i) {
    if (demand(active_[i]) > 0) order_.push_back(i);
  }
  std::stable_sort(order_.begin(), order_.end(),
                   [&](uint32_t a, uint32_t b) { return demand(active_[a]) < demand(active_[b]); });
  uint64_t left = capacity_mbps;
  for (size_t i = 0; i < order_.size(); ++i) {
    Active& active = active_[order_[i]];
    const uint64_t wanted = demand(active);
    const uint64_t given = std::min(wanted, left / (order_.size() - i));
    left -= given;
    active.speed_q16 =
        static_cast<uint32_t>(std::max<uint64_t>(uint64_t{active.speed_q16} * given / wanted, 1));
  }
}

}  // namespace davit::npu
