// Memory of the caller's on a device: for what Init allocates (fixed) and for what Main allocates
// (features, bound anew between runs).
#include <algorithm>
#include <utility>

#include "exec/caller_memory.hpp"
#include "exec/device_memory.hpp"
#include "exec/executor.hpp"

using davit::Status;
using davit::exec::address_text;
using davit::exec::check_piece;
using davit::exec::invalid_argument;
using davit::exec::kCallerAlignment;

Status DvtExecutor::check_device_piece(const void* base, size_t bytes, uint64_t needed,
                                       const char* what, DvtStage stage) const {
  const uint64_t least = std::max<uint64_t>(needed, kCallerAlignment);
  if (Status status = check_piece(base, bytes, least, what, stage); !status.ok()) return status;
  DvtDevice* device = runtime_->device;
  if (device->vtable->check_range == nullptr) return {};
  const DvtCode code = device->vtable->check_range(device, base, bytes);
  return device_status(code, stage, what);
}

Status DvtExecutor::create_fixed_memory(const DvtExecutorOptions& options) {
  constexpr const char* kWhat = "DvtExecutorOptions.device_fixed";
  if (options.device_fixed == nullptr && options.device_fixed_bytes == 0) return {};
  if (runtime_->device == nullptr) {
    return {DVT_INVALID_ARGUMENT, DVT_STAGE_LOAD,
            std::string(kWhat) + " would do nothing: the image drives no device"};
  }
  auto needs = davit::exec::device_memory_needs(view_);
  if (!needs.ok()) return std::move(needs.status());
  if (Status status = check_device_piece(options.device_fixed, options.device_fixed_bytes,
                                         needs->fixed_bytes, kWhat, DVT_STAGE_LOAD);
      !status.ok()) {
    return status;
  }
  const DvtMemorySource source = davit::exec::caller_source(options.device_fixed);
  const DvtAllocatorHooks hooks = memory_hooks();
  DvtAllocatorOptions fixed;
  davit::exec::caller_options(source, options.device_fixed_bytes, fixed);
  fixed.hooks = &hooks;
  Status status = create_allocator(fixed, "the books of fixed device memory", fixed_memory_);
  DvtValueMemory& memory = runtime_->memory;
  memory.fixed = memory.active = fixed_memory_.get();
  memory.fixed_begin = reinterpret_cast<uintptr_t>(options.device_fixed);
  memory.fixed_end = memory.fixed_begin + options.device_fixed_bytes;
  return status;
}

Status DvtExecutor::create_feature_memory(void* base, size_t bytes, Allocator& out) {
  const DvtMemorySource source = davit::exec::caller_source(base);
  DvtAllocatorHooks hooks = memory_hooks();
  hooks.synchronize = [](void* self) {
    auto& executor = *static_cast<DvtExecutor*>(self);
    return executor.synchronise_all(DVT_STAGE_RUN).code();
  };
  DvtAllocatorOptions features;
  davit::exec::caller_options(source, bytes, features);
  if (device_bytes_max_ != 0)
    features.limit_bytes = std::min(features.limit_bytes, device_bytes_max_);
  features.hooks = &hooks;
  return create_allocator(features, "the books of device memory", out);
}

Status DvtExecutor::bind_device_memory(void* base, size_t bytes) {
  constexpr const char* kWhat = "memory for what runs allocate on the device";
  if (!loaded_) return {DVT_FAILED_STATE, DVT_STAGE_BIND, "the executor is unloaded"};
  if (device_cache_ == nullptr) {
    return {DVT_FAILED_STATE, DVT_STAGE_BIND,
            runtime_->device == nullptr ? "the image drives no device"
                                        : "every node asks the device: DVT_DEVICE_MEMORY_DIRECT"};
  }
  if (recovery_pending_ || dvt_allocator_live_bytes(device_cache_.get()) != 0) {
    return {DVT_FAILED_STATE, DVT_STAGE_BIND,
            "work of a run that failed may still use device memory"};
  }
  if (lost_device_in_fork()) {
    return {DVT_FAILED_STATE, DVT_STAGE_BIND, "the device belongs to the parent process"};
  }
  Allocator other;
  if (base != nullptr || bytes != 0) {
    auto needs = davit::exec::device_memory_needs(view_);
    if (!needs.ok()) return std::move(needs.status());
    if (Status status =
            check_device_piece(base, bytes, needs->feature_bytes, kWhat, DVT_STAGE_BIND);
        !status.ok()) {
      return status;
    }
    const auto begin = reinterpret_cast<uintptr_t>(base);
    const DvtValueMemory& memory = runtime_->memory;
    if (begin < memory.fixed_end && memory.fixed_begin < begin + bytes) {
      return invalid_argument(DVT_STAGE_BIND, std::string(kWhat) + " overlaps that of Init",
                              "memory of its own", address_text(base));
    }
    if (Status status = create_feature_memory(base, bytes, other); !status.ok()) return status;
    device_cache_ = std::move(other);
    runtime_->memory.device = device_cache_.get();
  } else if (feature_base_ != nullptr) {
    if (Status status = create_device_cache(); !status.ok()) return status;
  }
  feature_base_ = base;
  consolidated_bytes_ = 0;
  return {};
}
