// The executor's dealings with a device beyond its nodes: choosing it, joining streams, cleaning
// up.
#include <unistd.h>

#include <string_view>

#include "exec/executor.hpp"
#include "exec/gears.hpp"

using davit::ErrorDetail;
using davit::Status;
using davit::exec::RunRequest;
using davit::exec::StepList;

namespace {

void keep_first(Status& first, Status next) {
  if (first.ok()) first = std::move(next);
}

// "ascend:910B2" runs on any "ascend:910B2" and on "cpu", not on "ascend:910B4": costs and plans
// were made for the one.
bool device_fits(std::string_view target, std::string_view device) {
  const auto family = [](std::string_view name) { return name.substr(0, name.find(':')); };
  return family(target) != family(device) || target == device;
}

}  // namespace

Status DvtExecutor::choose_device(const DvtExecutorOptions& options) {
  runtime_->synchronize_timeout_us = options.synchronize_timeout_us;
  if (!layout_.uses_device) return {};
  if (options.device == nullptr) {
    if (view_.target != DVT_TARGET_CPU) {
      return Status(ErrorDetail{.code = DVT_INVALID_ARGUMENT,
                                .stage = DVT_STAGE_LOAD,
                                .message = "the image needs a device",
                                .expected = view_.target_name,
                                .got = "none",
                                .hint = "set DvtExecutorOptions.device (see davit/npu.h)"});
    }
    own_device_.reset(dvt_cpu_device_create());
    if (own_device_ == nullptr) {
      return {DVT_OUT_OF_MEMORY, DVT_STAGE_LOAD, "no memory for a cpu device"};
    }
    runtime_->device = own_device_.get();
    return {};
  }
  if (!device_fits(view_.target_name, options.device->vtable->name)) {
    return Status(ErrorDetail{.code = DVT_INVALID_ARGUMENT,
                              .stage = DVT_STAGE_LOAD,
                              .message = "the image was compiled for another device",
                              .expected = view_.target_name,
                              .got = options.device->vtable->name});
  }
  runtime_->device = options.device;
  return {};
}

bool DvtExecutor::lost_device_in_fork() const {
  // The cpu device is plain memory, which a child process has, too.
  return runtime_->device != nullptr && ::getpid() != owner_pid_ &&
         std::string_view(runtime_->device->vtable->name) != "cpu";
}

Status DvtExecutor::device_status(DvtCode code, DvtStage stage, const char* what) const {
  if (code == DVT_OK) return {};
  const char* words = runtime_->device->vtable->last_error(runtime_->device);
  std::string message = std::string(what) + ": ";
  message += words != nullptr && *words != '\0' ? words : davit::code_name(code);
  return {code, stage, std::move(message)};
}

Status DvtExecutor::run_main_on_device(const RunRequest& request, uint32_t first) {
  if (lost_device_in_fork()) {
    return Status(ErrorDetail{.code = DVT_FAILED_STATE,
                              .stage = DVT_STAGE_RUN,
                              .message = "the executor was made before fork() and its device "
                                         "belongs to the parent process",
                              .hint = "make device and executor in the process that uses them"});
  }
  if (recovery_pending_) {
    if (Status status = recover(); !status.ok()) return status;
  }
  DvtDevice* device = runtime_->device;
  if (device->vtable->run_begin != nullptr) device->vtable->run_begin(device);
  const struct Bracket {
    DvtDevice* device;
    ~Bracket() {
      if (device->vtable->run_end != nullptr) device->vtable->run_end(device);
    }
  } bracket{device};
  // Until it is known that there is nothing to recover from.
  recovery_pending_ = true;
  runtime_->memory.active = device_cache_.get();
  Status status = runs_parallel(request) ? run_lanes_apart(request)
                                         : run_steps(main_, DVT_STAGE_RUN, request, first);
  if (status.ok()) status = join_streams();
  if (status.ok()) {
    recovery_pending_ = false;
    consolidate_device_cache();
    return status;
  }
  // The failure of Main is the one to report; a failed recovery is tried again at the next run.
  const Status dropped = recover();
  (void)dropped;
  return status;
}

// The memory lane may be ahead of the launch lane.
Status DvtExecutor::run_lanes_apart(const RunRequest& request) {
  davit::exec::DeferredFrees& deferred = *parallel_.deferred();
  deferred.begin_run();
  DvtDeferredFrees handle{deferred};
  runtime_->deferred = &handle;
  Status status = run_main_parallel(request);
  runtime_->deferred = nullptr;
  if (!status.ok()) return status;
  return device_status(deferred.finish(*runtime_), DVT_STAGE_RUN, "returning device memory");
}

// Waits for what Main submitted after its last SyncStream.
Status DvtExecutor::join_streams() {
  const auto* const unjoined = block_.at<uint8_t>(layout_.unjoined);
  DvtDevice* device = runtime_->device;
  for (uint32_t i = 0; i < runtime_->stream_count; ++i) {
    if (unjoined[i] == 0 || runtime_->streams[i] == nullptr) continue;
    const DvtCode code = device->vtable->stream_synchronize(device, runtime_->streams[i],
                                                            runtime_->synchronize_timeout_us);
    if (Status status = device_status(code, DVT_STAGE_RUN, "waiting for the end of Main");
        !status.ok()) {
      return status;
    }
  }
  return {};
}

// Brings all streams to rest. Failures of tasks do not matter here, work that does not end does.
Status DvtExecutor::synchronise_all(DvtStage stage) {
  DvtDevice* device = runtime_->device;
  Status first;
  for (uint32_t i = 0; i < runtime_->stream_count; ++i) {
    if (runtime_->streams[i] == nullptr) continue;
    const DvtCode code = device->vtable->stream_synchronize(device, runtime_->streams[i],
                                                            runtime_->synchronize_timeout_us);
    keep_first(first, device_status(code, stage, "waiting for a stream"));
  }
  return first;
}

// Frees what the AllocMemHbm nodes of a graph have allocated and no FreeMemHbm has freed: their
// cells hold an address just as long.
Status DvtExecutor::free_allocations(const StepList& list, DvtStage stage) {
  DvtDevice* device = runtime_->device;
  Status first;
  for (uint32_t node = 0; node < list.count; ++node) {
    if (dvt_device_node(view_.kernels[list.graph->kernel[node]]) != DVT_NODE_ALLOC) continue;
    DvtCell& cell = cells_[list.graph->outputs_of(node)[0]];
    if (cell.data == nullptr) continue;
    if (dvt_owns_memory(&runtime_->memory, &cell)) {
      dvt_device_free(&runtime_->memory, &cell);
      continue;
    }
    const DvtCode code = device->vtable->free(device, cell.data);
    if (code == DVT_OK) cell.data = nullptr;
    keep_first(first, device_status(code, stage, "returning device memory"));
  }
  return first;
}

// The same for Main, and gears in its place.
Status DvtExecutor::free_main_allocations(DvtStage stage) {
  Status first = free_allocations(main_, stage);
  for (const uint32_t body : davit::exec::gears_of(view_).bodies()) {
    keep_first(first, free_allocations(bodies_[body], stage));
  }
  return first;
}

// After a failed Main: no task runs, and what Main allocated is returned.
Status DvtExecutor::recover() {
  Status status = synchronise_all(DVT_STAGE_RUN);
  // A failed task is done with its memory; one that has not ended is not.
  if (status.code() == DVT_TIMEOUT) return status;
  status = free_main_allocations(DVT_STAGE_RUN);
  recovery_pending_ = !status.ok();
  return status;
}

// Returns whatever this executor still holds of the device.
Status DvtExecutor::reclaim_all() {
  DvtDevice* device = runtime_->device;
  const DvtStage stage = DVT_STAGE_UNLOAD;
  Status first;
  const Status dropped = synchronise_all(stage);  // unload() has reported it.
  (void)dropped;
  for (uint32_t i = 0; i < runtime_->event_count; ++i) {
    DvtEvent*& event = runtime_->events[i];
    if (event == nullptr) continue;
    const DvtCode code = device->vtable->event_destroy(device, event);
    if (code == DVT_OK) event = nullptr;
    keep_first(first, device_status(code, stage, "destroying an event"));
  }
  for (uint32_t i = 0; i < runtime_->stream_count; ++i) {
    DvtStream*& stream = runtime_->streams[i];
    if (stream == nullptr) continue;
    const DvtCode code = device->vtable->stream_destroy(device, stream);
    if (code == DVT_OK) stream = nullptr;
    keep_first(first, device_status(code, stage, "destroying a stream"));
  }
  keep_first(first, free_allocations(init_, stage));
  keep_first(first, free_main_allocations(stage));
  keep_first(first, free_allocations(deinit_, stage));
  return first;
}
