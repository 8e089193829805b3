// Records, notifies, and who waits for them: parts of EventCore.
#include <algorithm>

#include "npu_model/event_core.hpp"

namespace davit::npu {

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

void EventCore::start_synchronisation(uint32_t stream) {
  Stream& s = streams_[stream];
  Task& task = s.head();
  const auto run_for = [&](int64_t ps) {
    s.now.start_ps = now_;
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
  s.now.causes.released_by = by;
  s.now.start_ps = now_;
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

void EventCore::set_notify(uint32_t notify, int64_t at_ps, TaskRef by) {
  arrivals_.push({at_ps, arrived_++, notify, by});
}

void EventCore::set_notify_now(uint32_t index, TaskRef by) {
  Notify& notify = notifies_[index];
  if (notify.waiters.empty()) {
    notify.set = true;
    notify.set_by = by;
    return;
  }
  do {
    const uint32_t waiter = notify.waiters.front();
    notify.waiters.pop_front();
    release_waiter(waiter, by);
  } while (breaks(Rule::kNotifyReleasesOne) && !notify.waiters.empty());
}

void EventCore::wake_for_nothing(uint32_t stream) {
  Stream& s = streams_[stream];
  if (s.state != StreamState::kWaiting) return;
  Task& head = s.head();
  const bool waits = head.type == DVT_NPU_EVENT_WAIT || head.type == DVT_NPU_NOTIFY_WAIT;
  if (!waits && head.type < DVT_NPU_QUEUE_ENQUEUE) return;
  forget_wait(stream);
  if (waits && breaks(Rule::kWokenLooksAgain)) {
    release_waiter(stream, {});
    return;
  }
  if (!waits) s.now.ready_ps = now_;
  make_ready(stream);
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
    if (notifies_[object].elsewhere) {
      listener_.record_elsewhere(object, {stream, task.id});
    } else {
      set_notify_now(object, {stream, task.id});
    }
  } else if (task.type >= DVT_NPU_MODEL_EXECUTE) {
    end_control(stream);
    return;
  }
  end_head(stream);
}

// Takes a waiting stream off the list of what it waits for.
void EventCore::forget_wait(uint32_t stream) {
  const Task& head = streams_[stream].head();
  switch (head.type) {
    case DVT_NPU_EVENT_WAIT:
      std::erase(records_[head.object].waiters, stream);
      break;
    case DVT_NPU_NOTIFY_WAIT:
      std::erase(notifies_[head.object].waiters, stream);
      break;
    case DVT_NPU_MODEL_EXECUTE:
      std::erase(models_[head.object].queue, stream);
      break;
    default:
      std::erase(queues_[head.object].readers, stream);
      std::erase(queues_[head.object].writers, stream);
      break;
  }
}

}  // namespace davit::npu
