#include "npu_model/event_core.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "npu_model/functional.hpp"

namespace davit::npu {
namespace {

int64_t to_ps(double us) {
  return static_cast<int64_t>(std::llround(us * 1e6));
}

// Of the task scheduler: no core, no engine.
bool is_synchronisation(DvtNpuTaskType type) {
  return type >= DVT_NPU_EVENT_RECORD && type < DVT_NPU_QUEUE_ENQUEUE;
}

// A task takes one or two cache lines.
template <int kWrite>
void prefetch(const void* task) {
  __builtin_prefetch(task, kWrite);
  __builtin_prefetch(static_cast<const char*>(task) + sizeof(Task) - 1, kWrite);
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
      callback_ps_(breaks(Rule::kCallbackHoldsStream) ? 0 : to_ps(parameters.callback_us)),
      mix_vector_cores_(breaks(Rule::kMixNeedsBothVectorCores)
                            ? 1
                            : static_cast<uint32_t>(std::min(parameters.aiv_cores, 2.0))),
      chain_depth_(static_cast<size_t>(parameters.model_stream_depth)),
      slots_total_(breaks(Rule::kStreamsAreIndependent)
                       ? 1
                       : static_cast<uint32_t>(parameters.active_streams)),
      aic_{static_cast<uint32_t>(parameters.aic_cores),
           static_cast<uint32_t>(parameters.aic_cores)},
      aiv_{static_cast<uint32_t>(parameters.aiv_cores),
           static_cast<uint32_t>(parameters.aiv_cores)},
      aicpu_free_(static_cast<uint32_t>(parameters.aicpu_cores)),
      rates_(static_cast<uint64_t>(parameters.hbm_gbps * parameters.hbm_efficiency * 1000),
             static_cast<uint64_t>(parameters.l2_gbps * parameters.l2_efficiency * 1000)) {}

void EventCore::submit(uint32_t stream, Task&& task) {
  Stream& s = streams_[stream];
  s.tasks.push_back(std::move(task));
  // By the next submission to this stream, others have had time to fetch it.
  prefetch<1>(s.tasks.next_place());
  if (breaks(Rule::kStreamIsFifo) && s.queued() > 2) {
    std::swap(s.tasks.back(), s.tasks[s.tasks.size() - 2]);
  }
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
  s.now.ready_ps =
      std::max(head.submit_ps, s.last_end_ps + gap) + int64_t{head.delay_us} * 1'000'000;
  if (s.now.ready_ps <= now_) {
    make_ready(stream);
    return;
  }
  s.state = StreamState::kPending;
  timers_.push({s.now.ready_ps, head.id, stream});
}

int64_t EventCore::next_ps() const {
  if (ready_changed_) return now_;
  int64_t next = rates_.due_ps();
  if (!timers_.empty()) next = std::min(next, timers_.top().at_ps);
  if (!arrivals_.empty()) next = std::min(next, arrivals_.top().at_ps);
  return next;
}

void EventCore::run_until(int64_t limit_ps) {
  for (int64_t next = next_ps(); next <= limit_ps && next != kNever; next = next_ps()) {
    now_ = next;
    bool moved = true;
    while (moved) {
      moved = ready_changed_;
      if (rates_.due_ps() <= now_) moved = finish_due() || moved;
      while (!arrivals_.empty() && arrivals_.top().at_ps <= now_) {
        const Arrival arrival = arrivals_.top();
        arrivals_.pop();
        set_notify_now(arrival.notify, arrival.by);
        moved = true;
      }
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
  changed_ = true;
  bool moved = false;
  for (uint32_t slot = rates_.next_due(now_); slot != kNone; slot = rates_.next_due(now_)) {
    moved = true;
    const uint32_t stream = active_[slot].stream;
    if (active_[slot].in_head) {
      begin_body(slot);
      if (!active_[slot].in_head) continue;
    }
    end_active(slot);
    if (pass_queue(stream)) end_head(stream);
  }
  return moved;
}

// A task without a body stays in its head, which has ended.
void EventCore::begin_body(uint32_t slot) {
  Active& active = active_[slot];
  const TaskTiming& timing = *streams_[active.stream].head().timing;
  if (timing.body_ps == 0) return;
  active.in_head = false;
  rates_.run(slot, now_, timing.body_ps, core_speed(active),
             {timing.hbm_need_mbps, timing.l2_need_mbps});
}

void EventCore::end_active(uint32_t slot) {
  rates_.stop(slot, now_);
  Active& active = active_[slot];
  if (active.line == kAicpu) ++aicpu_free_;
  engine_busy_[active.line] = false;
  give_back(aic_, &Active::aic, &Active::aic_wanted, slot);
  give_back(aiv_, &Active::aiv, &Active::aiv_wanted, slot);
  active.stream = kNone;
  rates_.close(slot);
  --active_count_;
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
      return aic_.free > 0;
    case kAiv:
      return aiv_.free > 0;
    case kMix:
      return aic_.free > 0 && aiv_.free >= mix_vector_cores_;
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
  const Line number = line_of(head);
  ReadyLine& line = ready_[number];
  waiting_lines_ |= 1U << number;
  line.push_back(
      {breaks(Rule::kPriorityOrdersStart) ? 0 : s.priority, stream, s.now.ready_ps, head.id});
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
    if (aic_.free < timing.aic || aiv_.free < timing.aiv) continue;
    if (best == line.size() || line[best] > line[i]) best = i;
  }
  return best;
}

uint32_t EventCore::next_startable() {
  if (active_count_ >= slots_total_) return kNone;
  ReadyLine* best_line = nullptr;
  size_t best = 0;
  for (uint32_t left = waiting_lines_; left != 0; left &= left - 1) {
    const auto l = static_cast<size_t>(std::countr_zero(left));
    ReadyLine& line = ready_[l];
    if (line.empty()) waiting_lines_ &= ~(1U << l);
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
  const uint32_t slot = rates_.open(started_++);
  if (slot >= active_.size()) active_.resize(slot + 1);
  Active& active = active_[slot] = {.stream = stream,
                                    .aic_wanted = timing.aic,
                                    .aiv_wanted = timing.aiv,
                                    .core_need_q16 = timing.core_need_q16,
                                    .line = line_of(task),
                                    .in_head = true};
  if (breaks(Rule::kPriorityDoesNotPreempt)) preempt_for(slot);
  grant(aic_, &Active::aic, &Active::aic_wanted, slot);
  grant(aiv_, &Active::aiv, &Active::aiv_wanted, slot);
  if (active.line == kAicpu) --aicpu_free_;
  engine_busy_[active.line] = true;
  if (!task.hangs) rates_.run(slot, now_, timing.head_ps);
  ++active_count_;
  s.now.start_ps = now_;
  s.state = StreamState::kRunning;
  // The next task of a long queue has left the cache; it is needed when this one ends.
  if (s.queued() > 1) prefetch<0>(&s.tasks[s.ended + 1]);
}

// ---- Ends --------------------------------------------------------------------------------------

void EventCore::end_head(uint32_t stream) {
  Stream& s = streams_[stream];
  Task& task = s.head();
  s.now.end_ps = now_;
  s.last_end_ps = now_;
  s.last_ended_task = task.id;
  ++s.ended;
  s.state = StreamState::kIdle;
  s.causes.push_back(std::move(s.now.causes));
  // The listener may pop the task, but it submits nothing.
  listener_.ended(stream, task);
  s.now = {};
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
  for (uint32_t slot = 0; slot < active_.size(); ++slot) {
    if (active_[slot].stream == stream) end_active(slot);
  }
  if (s.state == StreamState::kWaiting) forget_wait(stream);
  s.state = StreamState::kIdle;
  s.now = {};
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
    listener_.dropped(task);
    if (task.type == DVT_NPU_EVENT_RECORD) reached.push_back(task.object);
    if (task.type == DVT_NPU_EVENT_WAIT) drop_reference(task.object);
  }
  s.tasks.truncate(s.ended);
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
  rates_.settle(now_);
}

// As many cores as there are, up to what the task wants.
void EventCore::grant(Pool& pool, uint16_t Active::*granted, uint16_t Active::*wanted,
                      uint32_t slot) {
  Active& active = active_[slot];
  const uint32_t more = std::min<uint32_t>(active.*wanted - active.*granted, pool.free);
  active.*granted = static_cast<uint16_t>(active.*granted + more);
  pool.free -= more;
  if (active.*granted < active.*wanted) {
    pool.partial = slot;
  } else if (pool.partial == slot) {
    pool.partial = kNone;
  }
}

// Cores that come back go to the task that has too few; only what it leaves can start another.
void EventCore::give_back(Pool& pool, uint16_t Active::*granted, uint16_t Active::*wanted,
                          uint32_t slot) {
  pool.free += std::exchange(active_[slot].*granted, uint16_t{0});
  if (pool.partial == slot) pool.partial = kNone;
  if (pool.partial == kNone || pool.free == 0) return;
  const uint32_t partial = pool.partial;
  grant(pool, granted, wanted, partial);
  if (!active_[partial].in_head) rates_.set_core_speed(partial, now_, core_speed(active_[partial]));
}

// Of a broken device only: takes the vector cores of all less urgent tasks.
void EventCore::preempt_for(uint32_t slot) {
  const uint32_t priority = streams_[active_[slot].stream].priority;
  for (uint32_t victim = 0; victim < active_.size(); ++victim) {
    Active& other = active_[victim];
    if (other.stream == kNone || streams_[other.stream].priority <= priority) continue;
    aiv_.free += std::exchange(other.aiv, uint16_t{0});
    aiv_.partial = victim;
    if (!other.in_head) rates_.set_core_speed(victim, now_, core_speed(other));
  }
}

// With the cores it has, while bandwidth is no limit.
uint32_t EventCore::core_speed(const Active& active) {
  const bool complete = active.aic == active.aic_wanted && active.aiv == active.aiv_wanted;
  if (active.core_need_q16 == 0 || complete) return kFullSpeed;
  uint64_t share = kFullSpeed;
  if (active.aic_wanted > 0) share = uint64_t{active.aic} * kFullSpeed / active.aic_wanted;
  if (active.aiv_wanted > 0) {
    share = std::min(share, uint64_t{active.aiv} * kFullSpeed / active.aiv_wanted);
  }
  // Only the core-bound part of the body suffers from missing cores.
  return static_cast<uint32_t>(
      std::clamp<uint64_t>(share * kFullSpeed / active.core_need_q16, 1, kFullSpeed));
}

}  // namespace davit::npu
