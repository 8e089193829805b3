#include "npu_model/event_core.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

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
  if (head.ready_ps <= now_) {
    make_ready(stream);
    return;
  }
  s.state = StreamState::kPending;
  timers_.push({head.ready_ps, head.id, stream});
}

int64_t EventCore::next_ps() const {
  if (ready_changed_) return now_;
  return timers_.empty() ? next_due_ : std::min(next_due_, timers_.top().at_ps);
}

void EventCore::run_until(int64_t limit_ps) {
  for (int64_t next = next_ps(); next <= limit_ps && next != kNever; next = next_ps()) {
    now_ = next;
    bool moved = true;
    while (moved) {
      moved = ready_changed_;
      if (next_due_ <= now_) moved = finish_due() || moved;
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
  // What is submitted at the limit is ready at once.
  if (limit_ps != kNever) now_ = std::max(now_, limit_ps);
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
    remove_active(i);
    if (pass_queue(stream)) end_head(stream);
  }
  next_due_ = kNever;  // Until share(), which follows, has looked.
  return moved;
}

void EventCore::begin_body(Active& active) {
  const int64_t body = streams_[active.stream].head().timing->body_ps;
  active.in_head = false;
  active.remaining_q16 = body * kOne;
  active.updated_ps = now_;
  active.speed_q16 = kOne;
  active.due_ps = now_ + body;  // Alone on the device; share() knows better.
  hbm_wanted_mbps_ += std::min<uint64_t>(active.hbm_need_mbps, hbm_mbps_);
  l2_wanted_mbps_ += std::min<uint64_t>(active.l2_need_mbps, l2_mbps_);
}

void EventCore::remove_active(size_t index) {
  const Active& active = active_[index];
  aic_free_ += active.aic;
  aiv_free_ += active.aiv;
  if (active.line == kAicpu) ++aicpu_free_;
  engine_busy_[active.line] = false;
  aic_wanted_ -= active.aic_wanted;
  aiv_wanted_ -= active.aiv_wanted;
  if (!active.in_head) {
    hbm_wanted_mbps_ -= std::min<uint64_t>(active.hbm_need_mbps, hbm_mbps_);
    l2_wanted_mbps_ -= std::min<uint64_t>(active.l2_need_mbps, l2_mbps_);
  }
  active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(index));
}

void EventCore::fire_timer(const Timer& timer) {
  Stream& s = streams_[timer.stream];
  // Timers of abandoned tasks are still in the queue.
  if (s.queued() == 0 || s.head().id != timer.task) return;
  if (s.state == StreamState::kPending) {
    make_ready(timer.stream);
  } else if (s.state == StreamState::kRunning) {
    end_synchronisation(timer.stream);
  }
}

// ---- Dispatch ----------------------------------------------------------------------------------

EventCore::Line EventCore::line_of(const Task& task) const {
  if (is_synchronisation(task.type)) return kAtOnce;
  if (needs_aicpu(task.type)) return kAicpu;
  switch (task.type) {
    case DVT_NPU_COPY_H2D:
      return breaks(Rule::kCopiesHaveOwnEngines) ? kSdma : kPcieIn;
    case DVT_NPU_COPY_D2H:
      return breaks(Rule::kCopiesHaveOwnEngines) ? kSdma : kPcieOut;
    case DVT_NPU_COPY_D2D:
    case DVT_NPU_MEMSET:
      return kSdma;
    default:
      break;
  }
  const TaskTiming& timing = *task.timing;
  if (timing.aic + timing.aiv == 0 || breaks(Rule::kPriorityDoesNotPreempt)) return kSlot;
  const bool all = task.all_cores || breaks(Rule::kStartsOnAnyCore);
  if (all && !breaks(Rule::kAllCoresWaits)) return kAllCores;
  if (timing.aic == 0) return kAiv;
  return timing.aiv == 0 || breaks(Rule::kMixNeedsVectorCores) ? kAic : kMix;
}

// Whether what the tasks of a line wait for is free.
bool EventCore::is_open(Line line) const {
  switch (line) {
    case kAic:
      return aic_free_ > 0;
    case kAiv:
      return aiv_free_ > 0;
    case kMix:
      return aic_free_ > 0 && aiv_free_ > 0;
    case kAicpu:
      return aicpu_free_ > 0;
    case kPcieIn:
    case kPcieOut:
    case kSdma:
      return !engine_busy_[line];
    default:
      return true;
  }
}

void EventCore::make_ready(uint32_t stream) {
  Stream& s = streams_[stream];
  const Task& head = s.head();
  s.state = StreamState::kReady;
  ReadyLine& line = ready_[line_of(head)];
  line.push_back(
      {breaks(Rule::kPriorityOrdersStart) ? 0 : s.priority, stream, head.ready_ps, head.id});
  std::push_heap(line.begin(), line.end(), std::greater<>());
  ready_changed_ = true;
}

void EventCore::take(ReadyLine& line, size_t index) {
  if (index == 0) {
    std::pop_heap(line.begin(), line.end(), std::greater<>());
    line.pop_back();
    return;
  }
  line.erase(line.begin() + static_cast<std::ptrdiff_t>(index));
  std::make_heap(line.begin(), line.end(), std::greater<>());
}

// The first in line for all cores whose cores are free; the size of the line when there is none.
size_t EventCore::first_that_fits() const {
  const ReadyLine& line = ready_[kAllCores];
  size_t best = line.size();
  for (size_t i = 0; i < line.size(); ++i) {
    const TaskTiming& timing = *streams_[line[i].stream].head().timing;
    if (aic_free_ < timing.aic || aiv_free_ < timing.aiv) continue;
    if (best == line.size() || line[best] > line[i]) best = i;
  }
  return best;
}

uint32_t EventCore::next_startable() {
  if (active_.size() >= slots_total_) return kNone;
  ReadyLine* best_line = nullptr;
  size_t best = 0;
  for (size_t l = kSlot; l < kLineCount; ++l) {
    ReadyLine& line = ready_[l];
    if (line.empty() || !is_open(static_cast<Line>(l))) continue;
    const size_t first = l == kAllCores ? first_that_fits() : 0;
    if (first == line.size()) continue;
    if (best_line != nullptr && !((*best_line)[best] > line[first])) continue;
    best_line = &line;
    best = first;
  }
  if (best_line == nullptr) return kNone;
  const uint32_t stream = (*best_line)[best].stream;
  take(*best_line, best);
  return stream;
}

void EventCore::dispatch_ready() {
  ready_changed_ = false;
  ReadyLine& at_once = ready_[kAtOnce];
  while (!at_once.empty()) {
    const uint32_t stream = at_once.front().stream;
    take(at_once, 0);
    start_synchronisation(stream);
  }
  for (uint32_t stream = next_startable(); stream != kNone; stream = next_startable()) {
    start(stream);
  }
}

// Starts a kernel or copy. Precondition: a stream slot, its engine, and at least one core are free.
void EventCore::start(uint32_t stream) {
  Stream& s = streams_[stream];
  Task& task = s.head();
  const TaskTiming& timing = *task.timing;
  Active active{.stream = stream,
                .aic_wanted = timing.aic,
                .aiv_wanted = timing.aiv,
                .aic = static_cast<uint16_t>(std::min<uint32_t>(timing.aic, aic_free_)),
                .aiv = static_cast<uint16_t>(std::min<uint32_t>(timing.aiv, aiv_free_)),
                .core_need_q16 = timing.core_need_q16,
                .hbm_need_mbps = timing.hbm_need_mbps,
                .l2_need_mbps = timing.l2_need_mbps,
                .speed_q16 = kOne,
                .line = line_of(task),
                .in_head = true,
                .hangs = task.hangs,
                .remaining_q16 = 0,
                .updated_ps = now_,
                .due_ps = task.hangs ? kNever : now_ + timing.head_ps};
  aic_free_ -= active.aic;
  aiv_free_ -= active.aiv;
  aic_wanted_ += active.aic_wanted;
  aiv_wanted_ += active.aiv_wanted;
  if (active.line == kAicpu) --aicpu_free_;
  engine_busy_[active.line] = true;
  next_due_ = std::min(next_due_, active.due_ps);
  active_.push_back(active);
  changed_ = true;
  task.start_ps = now_;
  s.state = StreamState::kRunning;
  // The next task of a long queue has left the cache; it is needed when this one ends.
  if (s.queued() > 1) __builtin_prefetch(&s.tasks[s.ended + 1]);
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
    ReadyLine& line = ready_[line_of(s.head())];
    const auto entry = std::find_if(line.begin(), line.end(),
                                    [&](const ReadyKey& key) { return key.stream == stream; });
    take(line, static_cast<size_t>(entry - line.begin()));
  }
  for (size_t i = 0; i < active_.size(); ++i) {
    if (active_[i].stream != stream) continue;
    remove_active(i);
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

// While there is enough for all, everything runs at full speed and nothing has to be shared out.
void EventCore::share() {
  changed_ = false;
  const bool cores = aic_wanted_ > aic_total_ || aiv_wanted_ > aiv_total_;
  const bool bandwidth = hbm_wanted_mbps_ > hbm_mbps_ || l2_wanted_mbps_ > l2_mbps_;
  const bool had_cores = std::exchange(cores_are_short_, cores);
  const bool had_bandwidth = std::exchange(bandwidth_is_short_, bandwidth);
  if (cores || had_cores) grant_cores();
  if (bandwidth || had_bandwidth) {
    speeds_.clear();
    for (const Active& active : active_) speeds_.push_back(core_speed(active));
    // What fits at full speed fits at any.
    if (hbm_wanted_mbps_ > hbm_mbps_) share_bandwidth(&Active::hbm_need_mbps, hbm_mbps_);
    if (l2_wanted_mbps_ > l2_mbps_) share_bandwidth(&Active::l2_need_mbps, l2_mbps_);
    for (size_t i = 0; i < active_.size(); ++i) set_speed(active_[i], speeds_[i]);
  } else if (cores || had_cores) {
    for (Active& active : active_) set_speed(active, core_speed(active));
  }
  next_due_ = kNever;
  for (const Active& active : active_) next_due_ = std::min(next_due_, active.due_ps);
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
    active.aic = static_cast<uint16_t>(std::min<uint32_t>(active.aic_wanted, aic_left));
    active.aiv = static_cast<uint16_t>(std::min<uint32_t>(active.aiv_wanted, aiv_left));
    aic_left -= active.aic;
    aiv_left -= active.aiv;
  }
  aic_free_ = aic_left;
  aiv_free_ = aiv_left;
}

// With the cores it has, while bandwidth is no limit.
uint32_t EventCore::core_speed(const Active& active) {
  const bool complete = active.aic == active.aic_wanted && active.aiv == active.aiv_wanted;
  if (active.in_head || active.core_need_q16 == 0 || complete) return kOne;
  uint64_t share = kOne;
  if (active.aic_wanted > 0) share = uint64_t{active.aic} * kOne / active.aic_wanted;
  if (active.aiv_wanted > 0) {
    share = std::min(share, uint64_t{active.aiv} * kOne / active.aiv_wanted);
  }
  // Only the core-bound part of the body suffers from missing cores.
  return static_cast<uint32_t>(std::clamp<uint64_t>(share * kOne / active.core_need_q16, 1, kOne));
}

// Max-min fair: whoever wants less than an equal part of what is left gets all of it.
void EventCore::share_bandwidth(uint32_t Active::*need, uint64_t capacity_mbps) {
  demands_.clear();
  uint64_t total = 0;
  for (uint32_t i = 0; i < active_.size(); ++i) {
    if (active_[i].in_head) continue;
    // A task alone is never slower than its own timing says, whatever the capacity.
    const uint64_t demand = std::min(uint64_t{active_[i].*need} * speeds_[i] / kOne, capacity_mbps);
    if (demand == 0) continue;
    demands_.emplace_back(demand, i);
    total += demand;
  }
  if (total <= capacity_mbps) return;
  // Few, and often in order already.
  for (size_t i = 1; i < demands_.size(); ++i) {
    for (size_t k = i; k > 0 && demands_[k] < demands_[k - 1]; --k) {
      std::swap(demands_[k], demands_[k - 1]);
    }
  }
  uint64_t left = capacity_mbps;
  for (size_t i = 0; i < demands_.size(); ++i) {
    const auto [wanted, index] = demands_[i];
    const uint64_t given = std::min(wanted, left / (demands_.size() - i));
    left -= given;
    if (given == wanted) continue;
    speeds_[index] =
        static_cast<uint32_t>(std::max<uint64_t>(uint64_t{speeds_[index]} * given / wanted, 1));
  }
}

void EventCore::set_speed(Active& active, uint32_t speed_q16) {
  if (active.in_head || active.hangs || speed_q16 == active.speed_q16) return;
  const int64_t done = (now_ - active.updated_ps) * active.speed_q16;
  active.remaining_q16 = std::max<int64_t>(active.remaining_q16 - done, 0);
  active.updated_ps = now_;
  active.speed_q16 = speed_q16;
  active.due_ps = now_ + (active.remaining_q16 + speed_q16 - 1) / speed_q16;
}

}  // namespace davit::npu
