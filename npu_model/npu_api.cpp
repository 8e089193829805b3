// The C API: lock, call, remember the error.
#include <atomic>
#include <cstring>
#include <new>

#include "npu_model/npu_handle.hpp"

using davit::ErrorDetail;
using davit::Status;
using davit::npu::enter;
using davit::npu::Entry;
using davit::npu::finish;
using davit::npu::Npu;
using davit::npu::null_output;

namespace {

// Plain data: no destructor runs at thread exit.
thread_local DvtError last_error;

// Handles carry this number, so that a handle of one device is foreign to all others.
std::atomic<uint32_t> next_device{1};

DvtNpu* npu_of(DvtDevice* device) {
  return static_cast<DvtNpu*>(device);
}

// "message; got ...; expected ...": device.h has one string for all.
const char* adapter_error(DvtDevice*) {
  thread_local char text[1024];
  ErrorDetail detail;
  detail.code = last_error.code;
  detail.message = last_error.message;
  detail.node = last_error.node;
  detail.op = last_error.op;
  detail.expected = last_error.expected;
  detail.got = last_error.got;
  detail.hint = last_error.hint;
  const std::string line = Status(std::move(detail)).to_string();
  text[line.copy(text, sizeof text - 1)] = '\0';
  return text;
}

DvtDeviceVtable adapter(const char* name) {
  DvtDeviceVtable v{};
  v.name = name;
  v.malloc = [](DvtDevice* d, uint64_t bytes, const char* owner, void** out) {
    return dvt_npu_malloc(npu_of(d), bytes, owner, out);
  };
  v.free = [](DvtDevice* d, void* address) { return dvt_npu_free(npu_of(d), address); };
  v.stream_create = [](DvtDevice* d, uint32_t priority, DvtStream** out) {
    return dvt_npu_stream_create(npu_of(d), priority, out);
  };
  v.stream_destroy = [](DvtDevice* d, DvtStream* s) {
    return dvt_npu_stream_destroy(npu_of(d), s);
  };
  v.launch = [](DvtDevice* d, DvtStream* s, const DvtLaunch* launch) {
    // As the vendor's runtime does for kernels of its own.
    return dvt_npu_launch_invalidating(npu_of(d), s, launch);
  };
  v.copy_async = [](DvtDevice* d, DvtStream* s, DvtCopyKind kind, void* to, const void* from,
                    uint64_t bytes, const char* name) {
    return dvt_npu_copy_async(npu_of(d), s, kind, to, from, bytes, name);
  };
  v.memset_async = [](DvtDevice* d, DvtStream* s, void* to, int value, uint64_t bytes) {
    return dvt_npu_memset_async(npu_of(d), s, to, value, bytes);
  };
  v.event_create = [](DvtDevice* d, DvtEvent** out) {
    return dvt_npu_event_create(npu_of(d), out);
  };
  v.event_destroy = [](DvtDevice* d, DvtEvent* e) { return dvt_npu_event_destroy(npu_of(d), e); };
  v.event_record = [](DvtDevice* d, DvtStream* s, DvtEvent* e) {
    return dvt_npu_event_record(npu_of(d), s, e);
  };
  v.event_wait = [](DvtDevice* d, DvtStream* s, DvtEvent* e) {
    return dvt_npu_event_wait(npu_of(d), s, e);
  };
  v.stream_synchronize = [](DvtDevice* d, DvtStream* s, int64_t timeout_us) {
    return dvt_npu_stream_synchronize(npu_of(d), s, timeout_us);
  };
  v.run_begin = [](DvtDevice* d) {
    const Entry entry(npu_of(d));
    npu_of(d)->npu.run_begin();
  };
  v.run_end = [](DvtDevice* d) {
    const Entry entry(npu_of(d));
    npu_of(d)->npu.run_end();
  };
  v.last_error = adapter_error;
  v.check_range = [](DvtDevice* d, const void* address, uint64_t bytes) {
    const Entry entry(npu_of(d));
    return finish(npu_of(d)->npu.memory().check_range(address, bytes));
  };
  return v;
}

}  // namespace

namespace davit::npu {

thread_local const Host* Entry::entered = nullptr;

Entry::Entry(const DvtNpu* npu) : host_(npu->npu.host().get()), outer_(entered) {
  if (!nested()) host_->lock.lock();
  entered = host_;
}

Entry::~Entry() {
  entered = outer_;
  if (!nested()) host_->lock.unlock();
}

DvtCode finish(const Status& status) {
  if (status.ok()) return DVT_OK;
  status.to_c(&last_error);
  return status.code();
}

DvtCode null_output() {
  return finish(Status(DVT_INVALID_ARGUMENT, DVT_STAGE_RUN, "output pointer is NULL"));
}

Status refuse_nested() {
  return Status(DVT_FAILED_STATE, DVT_STAGE_RUN,
                "a kernel or host callback may not call the NPU that runs it");
}

}  // namespace davit::npu

DvtNpu::DvtNpu(davit::npu::Settings settings, std::shared_ptr<davit::npu::Host> host)
    : DvtDevice{},
      name("ascend:" + settings.soc),
      functions(adapter(name.c_str())),
      npu(std::move(settings), next_device.fetch_add(1, std::memory_order_relaxed),
          std::move(host)) {
  vtable = &functions;
}

extern "C" {

void dvt_npu_options_init(DvtNpuOptions* options) {
  std::memset(options, 0, sizeof *options);
  options->struct_size = sizeof *options;
  options->soc = "910B2";
}

DvtCode dvt_npu_create(const DvtNpuOptions* options, DvtNpu** out, DvtError* error) {
  if (out == nullptr) return null_output();
  *out = nullptr;
  auto settings = davit::npu::settings_from(options);
  if (settings.ok() && settings->beside != nullptr) {
    const Entry entry(settings->beside);
    if (entry.nested()) return finish(davit::npu::refuse_nested());
    auto host = settings->beside->npu.host();
    *out = new (std::nothrow) DvtNpu(std::move(*settings), std::move(host));
  } else if (settings.ok()) {
    *out = new (std::nothrow) DvtNpu(std::move(*settings), std::make_shared<davit::npu::Host>());
  }
  Status status = std::move(settings.status());
  if (status.ok() && *out == nullptr) {
    status = Status(DVT_OUT_OF_MEMORY, DVT_STAGE_LOAD, "no host memory for an NPU");
  }
  if (!status.ok()) status.to_c(error);
  return finish(status);
}

void dvt_npu_destroy(DvtNpu* npu) {
  if (npu == nullptr) return;
  const auto host = npu->npu.host();
  const std::lock_guard<std::mutex> lock(host->lock);
  npu->npu.leave();
  delete npu;
}

DvtDevice* dvt_npu_device(DvtNpu* npu) {
  return npu;
}

const DvtError* dvt_npu_last_error(void) {
  return &last_error;
}

uint32_t dvt_npu_soc_count(void) {
  return static_cast<uint32_t>(davit::npu::builtin_socs().size());
}

const char* dvt_npu_soc_name(uint32_t index) {
  const auto socs = davit::npu::builtin_socs();
  return index < socs.size() ? socs[index].name.data() : nullptr;  // From literals: terminated.
}

uint32_t dvt_npu_parameter_count(const DvtNpu* npu) {
  return static_cast<uint32_t>(npu->npu.settings().parameters.lines.size());
}

DvtCode dvt_npu_parameter(const DvtNpu* npu, uint32_t index, DvtNpuParameter* out) {
  const auto& lines = npu->npu.settings().parameters.lines;
  if (out == nullptr) return null_output();
  if (index >= lines.size()) {
    return finish(Status(DVT_INVALID_ARGUMENT, DVT_STAGE_RUN, "parameter index out of range"));
  }
  const auto& line = lines[index];
  *out = {line.key.c_str(),
          line.value,
          line.unit.c_str(),
          line.evidence,
          static_cast<uint8_t>(line.overridden ? 1 : 0),
          line.source.c_str()};
  return DVT_OK;
}

DvtCode dvt_npu_malloc(DvtNpu* npu, uint64_t bytes, const char* owner, void** out) {
  if (out == nullptr) return null_output();
  return enter(
      npu, [&](Npu& n) { return n.allocate(bytes, owner); }, out);
}

DvtCode dvt_npu_free(DvtNpu* npu, void* address) {
  return enter(npu, [&](Npu& n) { return n.release(address); });
}

void dvt_npu_memory(const DvtNpu* npu, DvtNpuMemory* out) {
  const Entry entry(npu);
  const auto& memory = npu->npu.memory();
  *out = {memory.capacity_bytes(), memory.live_bytes(), memory.peak_bytes(),
          memory.largest_hole_bytes(), memory.block_count()};
}

DvtCode dvt_npu_stream_create(DvtNpu* npu, uint32_t priority, DvtStream** out) {
  if (out == nullptr) return null_output();
  DvtNpuStreamOptions options;
  dvt_npu_stream_options_init(&options);
  options.priority = priority;
  return enter(
      npu, [&](Npu& n) { return n.create_stream(options); }, out);
}

DvtCode dvt_npu_stream_destroy(DvtNpu* npu, DvtStream* stream) {
  return enter(npu, [&](Npu& n) { return n.destroy_stream(stream); });
}

DvtCode dvt_npu_launch(DvtNpu* npu, DvtStream* stream, const DvtLaunch* launch) {
  if (launch == nullptr) {
    return finish(Status(DVT_INVALID_ARGUMENT, DVT_STAGE_RUN, "launch is NULL"));
  }
  return enter(npu, [&](Npu& n) { return n.launch(stream, *launch, {}); });
}

DvtCode dvt_npu_launch_on_all_cores(DvtNpu* npu, DvtStream* stream, const DvtLaunch* launch) {
  if (launch == nullptr) {
    return finish(Status(DVT_INVALID_ARGUMENT, DVT_STAGE_RUN, "launch is NULL"));
  }
  return enter(npu, [&](Npu& n) { return n.launch(stream, *launch, {.all_cores = true}); });
}

DvtCode dvt_npu_launch_invalidating(DvtNpu* npu, DvtStream* stream, const DvtLaunch* launch) {
  if (launch == nullptr) {
    return finish(Status(DVT_INVALID_ARGUMENT, DVT_STAGE_RUN, "launch is NULL"));
  }
  return enter(npu, [&](Npu& n) { return n.launch(stream, *launch, {.invalidates = true}); });
}

DvtCode dvt_npu_copy_async(DvtNpu* npu, DvtStream* stream, DvtCopyKind kind, void* to,
                           const void* from, uint64_t bytes, const char* name) {
  return enter(npu, [&](Npu& n) { return n.copy(stream, kind, to, from, bytes, name); });
}

DvtCode dvt_npu_memset_async(DvtNpu* npu, DvtStream* stream, void* to, int value, uint64_t bytes) {
  return enter(npu, [&](Npu& n) { return n.fill(stream, to, value, bytes); });
}

DvtCode dvt_npu_host_callback(DvtNpu* npu, DvtStream* stream, void (*function)(void* data),
                              void* data) {
  return enter(npu, [&](Npu& n) { return n.callback(stream, function, data); });
}

void dvt_npu_stream_options_init(DvtNpuStreamOptions* options) {
  std::memset(options, 0, sizeof *options);
  options->struct_size = sizeof *options;
}

DvtCode dvt_npu_stream_create_with(DvtNpu* npu, const DvtNpuStreamOptions* options,
                                   DvtStream** out) {
  if (out == nullptr) return null_output();
  if (options == nullptr) return dvt_npu_stream_create(npu, 0, out);
  return enter(
      npu, [&](Npu& n) { return n.create_stream(*options); }, out);
}

DvtCode dvt_npu_stream_abort(DvtNpu* npu, DvtStream* stream) {
  return enter(npu, [&](Npu& n) { return n.abort_stream(stream); });
}

DvtCode dvt_npu_event_create(DvtNpu* npu, DvtEvent** out) {
  if (out == nullptr) return null_output();
  return enter(
      npu, [&](Npu& n) { return n.create_event(); }, out);
}

DvtCode dvt_npu_event_destroy(DvtNpu* npu, DvtEvent* event) {
  return enter(npu, [&](Npu& n) { return n.destroy_event(event); });
}

DvtCode dvt_npu_event_record(DvtNpu* npu, DvtStream* stream, DvtEvent* event) {
  return enter(npu, [&](Npu& n) { return n.record_event(stream, event); });
}

DvtCode dvt_npu_event_wait(DvtNpu* npu, DvtStream* stream, DvtEvent* event) {
  return enter(npu, [&](Npu& n) { return n.wait_event(stream, event); });
}

DvtCode dvt_npu_event_query(DvtNpu* npu, DvtEvent* event, int* complete) {
  if (complete == nullptr) return null_output();
  return enter(
      npu, [&](Npu& n) { return n.query_event(event); }, complete);
}

DvtCode dvt_npu_event_time(DvtNpu* npu, DvtEvent* event, int64_t* out_ps) {
  if (out_ps == nullptr) return null_output();
  return enter(
      npu, [&](Npu& n) { return n.event_time(event); }, out_ps);
}

DvtCode dvt_npu_event_elapsed(DvtNpu* npu, DvtEvent* first, DvtEvent* last, int64_t* out_ps) {
  if (out_ps == nullptr) return null_output();
  return enter(
      npu, [&](Npu& n) { return n.event_elapsed(first, last); }, out_ps);
}

DvtCode dvt_npu_notify_create(DvtNpu* npu, DvtNotify** out) {
  if (out == nullptr) return null_output();
  return enter(
      npu, [&](Npu& n) { return n.create_notify(); }, out);
}

DvtCode dvt_npu_notify_destroy(DvtNpu* npu, DvtNotify* notify) {
  return enter(npu, [&](Npu& n) { return n.destroy_notify(notify); });
}

DvtCode dvt_npu_notify_import(DvtNpu* npu, DvtNpu* owner, DvtNotify* notify, DvtNotify** out) {
  if (out == nullptr) return null_output();
  if (owner == nullptr) {
    return finish(Status(DVT_INVALID_ARGUMENT, DVT_STAGE_RUN, "import: the owner is NULL"));
  }
  return enter(
      npu, [&](Npu& n) { return n.import_notify(owner->npu, notify); }, out);
}

DvtCode dvt_npu_notify_record(DvtNpu* npu, DvtStream* stream, DvtNotify* notify) {
  return enter(npu, [&](Npu& n) { return n.record_notify(stream, notify); });
}

DvtCode dvt_npu_notify_wait(DvtNpu* npu, DvtStream* stream, DvtNotify* notify) {
  return enter(npu, [&](Npu& n) { return n.wait_notify(stream, notify); });
}

DvtCode dvt_npu_stream_synchronize(DvtNpu* npu, DvtStream* stream, int64_t timeout_us) {
  return enter(npu, [&](Npu& n) { return n.synchronise_stream(stream, timeout_us); });
}

DvtCode dvt_npu_synchronize(DvtNpu* npu, int64_t timeout_us) {
  return enter(npu, [&](Npu& n) { return n.synchronise(timeout_us); });
}

int64_t dvt_npu_host_now_ps(const DvtNpu* npu) {
  const Entry entry(npu);
  return npu->npu.host_now_ps();
}

void dvt_npu_host_advance(DvtNpu* npu, int64_t ps) {
  const Entry entry(npu);
  if (!entry.nested()) npu->npu.host_advance(ps);
}

uint64_t dvt_npu_task_count(const DvtNpu* npu) {
  const Entry entry(npu);
  return npu->npu.record_count();
}

DvtCode dvt_npu_task(const DvtNpu* npu, uint64_t index, DvtNpuTask* out) {
  if (out == nullptr) return null_output();
  const Entry entry(npu);
  if (index >= npu->npu.record_count()) {
    return finish(Status(DVT_INVALID_ARGUMENT, DVT_STAGE_RUN, "task index out of range"));
  }
  *out = npu->npu.record(index);
  return DVT_OK;
}

void dvt_npu_clear_tasks(DvtNpu* npu) {
  const Entry entry(npu);
  if (!entry.nested()) npu->npu.clear_records();
}

uint64_t dvt_npu_run_count(const DvtNpu* npu) {
  const Entry entry(npu);
  return npu->npu.runs().size();
}

DvtCode dvt_npu_run(const DvtNpu* npu, uint64_t index, DvtNpuRun* out) {
  if (out == nullptr) return null_output();
  const Entry entry(npu);
  if (index >= npu->npu.runs().size()) {
    return finish(Status(DVT_INVALID_ARGUMENT, DVT_STAGE_RUN, "run index out of range"));
  }
  *out = npu->npu.runs()[index];
  return DVT_OK;
}

DvtCode dvt_npu_estimate(const DvtNpu* npu, const DvtTaskCost* cost, const char* op,
                         DvtNpuTask* out) {
  if (out == nullptr) return null_output();
  const Entry entry(npu);
  if (entry.nested()) return finish(davit::npu::refuse_nested());
  return finish(npu->npu.estimate(cost, op == nullptr ? "" : op), out);
}

DvtCode dvt_npu_describe_kernel(DvtNpu* npu, const DvtKernelTime* kernel) {
  if (kernel == nullptr) {
    return finish(Status(DVT_INVALID_ARGUMENT, DVT_STAGE_RUN, "describe: the kernel is NULL"));
  }
  return enter(npu, [&](Npu& n) { return n.describe_kernel(*kernel); });
}

}  // extern "C"
