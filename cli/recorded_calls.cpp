#include "cli/recorded_calls.hpp"

#include <algorithm>
#include <chrono>
#include <string>

#include "cli/node_times.hpp"
#include "cli/run_shares.hpp"

namespace davit::cli {
namespace {

using simulation::DeviceCall;
using Kind = DeviceCall::Kind;

int64_t real_now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double to_ns(int64_t ps) {
  return static_cast<double>(ps) / 1000;
}

CallRecorder* recorder(DvtDevice* device) {
  return static_cast<CallRecorder*>(device);
}

}  // namespace

// A method of the class, so that the functions below may use its private part.
DvtDeviceVtable CallRecorder::functions() {
  DvtDeviceVtable v{};
  v.malloc = [](DvtDevice* d, uint64_t bytes, const char* owner, void** out) {
    CallRecorder& r = *recorder(d);
    return r.note(Kind::kHost, DVT_NPU_AI_CORE, nullptr, nullptr,
                  [&] { return dvt_npu_malloc(r.npu_, bytes, owner, out); });
  };
  v.free = [](DvtDevice* d, void* address) {
    CallRecorder& r = *recorder(d);
    return r.note(Kind::kHost, DVT_NPU_AI_CORE, nullptr, nullptr,
                  [&] { return dvt_npu_free(r.npu_, address); });
  };
  v.stream_create = [](DvtDevice* d, uint32_t priority, DvtStream** out) {
    return dvt_npu_stream_create(recorder(d)->npu_, priority, out);
  };
  v.stream_destroy = [](DvtDevice* d, DvtStream* s) {
    return dvt_npu_stream_destroy(recorder(d)->npu_, s);
  };
  v.launch = [](DvtDevice* d, DvtStream* s, const DvtLaunch* launch) {
    CallRecorder& r = *recorder(d);
    return r.note(Kind::kTask, DVT_NPU_AI_CORE, s, nullptr,
                  [&] { return dvt_npu_launch(r.npu_, s, launch); });
  };
  v.copy_async = [](DvtDevice* d, DvtStream* s, DvtCopyKind kind, void* to, const void* from,
                    uint64_t bytes, const char* name) {
    CallRecorder& r = *recorder(d);
    return r.note(Kind::kTask, DVT_NPU_COPY_H2D, s, nullptr,
                  [&] { return dvt_npu_copy_async(r.npu_, s, kind, to, from, bytes, name); });
  };
  v.memset_async = [](DvtDevice* d, DvtStream* s, void* to, int value, uint64_t bytes) {
    CallRecorder& r = *recorder(d);
    return r.note(Kind::kTask, DVT_NPU_MEMSET, s, nullptr,
                  [&] { return dvt_npu_memset_async(r.npu_, s, to, value, bytes); });
  };
  v.event_create = [](DvtDevice* d, DvtEvent** out) {
    return dvt_npu_event_create(recorder(d)->npu_, out);
  };
  v.event_destroy = [](DvtDevice* d, DvtEvent* e) {
    return dvt_npu_event_destroy(recorder(d)->npu_, e);
  };
  v.event_record = [](DvtDevice* d, DvtStream* s, DvtEvent* e) {
    CallRecorder& r = *recorder(d);
    return r.note(Kind::kRecord, DVT_NPU_EVENT_RECORD, s, e,
                  [&] { return dvt_npu_event_record(r.npu_, s, e); });
  };
  v.event_wait = [](DvtDevice* d, DvtStream* s, DvtEvent* e) {
    CallRecorder& r = *recorder(d);
    return r.note(Kind::kWait, DVT_NPU_EVENT_WAIT, s, e,
                  [&] { return dvt_npu_event_wait(r.npu_, s, e); });
  };
  v.stream_synchronize = [](DvtDevice* d, DvtStream* s, int64_t timeout_us) {
    CallRecorder& r = *recorder(d);
    return r.note(Kind::kSynchronise, DVT_NPU_AI_CORE, s, nullptr,
                  [&] { return dvt_npu_stream_synchronize(r.npu_, s, timeout_us); });
  };
  v.run_begin = [](DvtDevice* d) {
    DvtDevice* npu = dvt_npu_device(recorder(d)->npu_);
    npu->vtable->run_begin(npu);
  };
  v.run_end = [](DvtDevice* d) {
    DvtDevice* npu = dvt_npu_device(recorder(d)->npu_);
    npu->vtable->run_end(npu);
  };
  v.last_error = [](DvtDevice* d) {
    DvtDevice* npu = dvt_npu_device(recorder(d)->npu_);
    return npu->vtable->last_error(npu);
  };
  return v;
}

CallRecorder::CallRecorder(DvtNpu* npu) : DvtDevice{}, npu_(npu), functions_(functions()) {
  functions_.name = dvt_npu_device(npu)->vtable->name;
  vtable = &functions_;
}

uint32_t CallRecorder::index_of(std::vector<const void*>& known, const void* handle) {
  const auto at = std::find(known.begin(), known.end(), handle);
  if (at == known.end()) known.push_back(handle);
  return static_cast<uint32_t>(at - known.begin());
}

template <class Function>
DvtCode CallRecorder::note(Kind kind, DvtNpuTaskType type, const void* stream, const void* event,
                           const Function& call) {
  const int64_t begin_ps = dvt_npu_host_now_ps(npu_);
  const int64_t real_begin_ns = real_now_ns();
  const DvtCode code = call();
  in_calls_ns_ += real_now_ns() - real_begin_ns;
  Call made = {{.kind = kind}, node_, type};
  if (stream != nullptr) made.call.stream = index_of(streams_, stream);
  if (event != nullptr) made.call.event = index_of(events_, event);
  made.call.host_ns = to_ns(dvt_npu_host_now_ps(npu_) - begin_ps);
  // How much of it was waiting depends on when it began.
  if (kind == Kind::kSynchronise) made.call.host_ns = npu_parameter(npu_, "host.synchronize") * 1e3;
  calls_.push_back(made);
  return code;
}

void CallRecorder::record(uint32_t body, uint32_t node_count) {
  body_ = body;
  own_ns_.assign(node_count, {});
}

void CallRecorder::begin_run() {
  calls_.clear();
  node_ = 0;
  in_calls_ns_ = 0;
}

void CallRecorder::observe(void* user, const DvtNodeEvent* event) {
  auto& self = *static_cast<CallRecorder*>(user);
  if (event->body != self.body_ || event->node >= self.own_ns_.size()) return;
  for (auto call = self.calls_.rbegin(); call != self.calls_.rend() && call->node == self.node_;
       ++call) {
    call->node = event->node;
  }
  const int64_t taken_ns = event->end_ns - event->begin_ns - self.in_calls_ns_;
  self.own_ns_[event->node].push_back(static_cast<double>(std::max<int64_t>(taken_ns, 0)));
  self.in_calls_ns_ = 0;
  self.node_ = static_cast<uint32_t>(self.own_ns_.size());  // Of no node yet.
}

Result<RecordedRun> CallRecorder::finish() {
  DvtNpuRun run{};
  std::vector<DvtNpuTask> tasks;
  const uint64_t runs = dvt_npu_run_count(npu_);
  if (runs > 0 && dvt_npu_run(npu_, runs - 1, &run) == DVT_OK) tasks = tasks_of(npu_, run);
  std::sort(tasks.begin(), tasks.end(),
            [](const DvtNpuTask& a, const DvtNpuTask& b) { return a.id < b.id; });
  RecordedRun out;
  out.call_offsets.assign(own_ns_.size() + 1, 0);
  size_t next = 0;
  const double gap_ns = to_ns(task_gap_ps(npu_));
  for (const Call& made : calls_) {
    DeviceCall call = made.call;
    if (made.node >= own_ns_.size()) {
      out.last_calls.push_back(call);
      continue;
    }
    ++out.call_offsets[made.node + 1];
    if (call.kind < Kind::kSynchronise) {
      const bool there = next < tasks.size() &&
                         (made.type == DVT_NPU_AI_CORE    ? tasks[next].type <= DVT_NPU_AI_CPU
                          : made.type == DVT_NPU_COPY_H2D ? tasks[next].type >= DVT_NPU_COPY_H2D &&
                                                                tasks[next].type <= DVT_NPU_COPY_D2D
                                                          : tasks[next].type == made.type);
      if (there) {
        const bool works = call.kind == Kind::kTask;
        call.gap_ns = works ? gap_ns : 0;
        call.device_ns =
            to_ns(tasks[next].end_ps - (works ? tasks[next].ready_ps : tasks[next].start_ps));
        ++next;
      } else if (call.kind == Kind::kWait) {
        call.device_ns = npu_parameter(npu_, "event.wait") * 1000;  // It found the event reached.
      } else {
        break;
      }
    }
    out.calls.push_back(call);
  }
  for (size_t node = 0; node < own_ns_.size(); ++node) {
    out.call_offsets[node + 1] += out.call_offsets[node];
    out.own_ns.push_back(median_of(own_ns_[node]));
  }
  if (next == tasks.size() && out.calls.size() == out.call_offsets.back()) return out;
  return Status(DVT_INTERNAL, DVT_STAGE_RUN,
                "the device ran " + std::to_string(tasks.size()) + " tasks, of which " +
                    std::to_string(next) + " are those that nodes asked for");
}

}  // namespace davit::cli
