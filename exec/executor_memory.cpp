// The pools of an executor for memory whose size is known at run time only: making them, what they
// are asked when nothing fits, and what they tell.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/address_sanitizer.h"
#include "base/checked.hpp"
#include "exec/device_memory.hpp"
#include "exec/executor.hpp"

using davit::ErrorDetail;
using davit::Status;
using davit::exec::GraphView;

namespace {

// Address space, of which a process has room for thousands of executors. AddressSanitizer pays for
// what is given back by the byte.
constexpr uint64_t kHeapRangeBytes = uint64_t{DVT_ADDRESS_SANITIZER ? 1U : 256U} << 26;
// Below this limit memory is taken in small steps.
constexpr uint64_t kTightHeapBytes = uint64_t{64} << 20;
constexpr uint64_t kTightSegmentBytes = uint64_t{64} << 10;

// Whether nodes of the kernel ask for memory for their outputs.
bool allocates(const DvtKernel* kernel) {
  const DvtHostNode kind = dvt_host_node(kernel);
  return kind == DVT_HOST_ALLOC || kind == DVT_HOST_LOOP || kind == DVT_HOST_BIND_OUTPUT ||
         kind == DVT_HOST_SELECT_GEAR || dvt_device_node(kernel) == DVT_NODE_ALLOC;
}

}  // namespace

DvtAllocatorHooks DvtExecutor::memory_hooks() {
  return {.user = this, .owner_name = [](void* self, uint32_t value) {
            return static_cast<const DvtExecutor*>(self)->owner_of(value);
          }};
}

Status DvtExecutor::create_allocator(const DvtAllocatorOptions& options, const char* what,
                                     Allocator& out) {
  DvtAllocator* allocator = nullptr;
  const DvtMetadataMemory metadata = host_memory_.metadata();
  DvtAllocatorOptions accounted = options;
  accounted.metadata = &metadata;
  if (const DvtCode code = dvt_allocator_create(&accounted, &allocator); code != DVT_OK) {
    return {code, DVT_STAGE_LOAD, std::string("no memory for ") + what};
  }
  out.reset(allocator);
  return {};
}

Status DvtExecutor::create_heap(const DvtExecutorOptions& options) {
  DvtValueMemory& memory = runtime_->memory;
  memory.cells = cells_;
  memory.blocks = block_.at<uint64_t>(layout_.blocks);
  if (!layout_.uses_heap) return {};
  const DvtAllocatorHooks hooks = memory_hooks();
  DvtAllocatorOptions heap;
  dvt_allocator_options_init(&heap);
  heap.limit_bytes = options.heap_bytes_max;
  heap.reserve_bytes = kHeapRangeBytes;
  const bool tight = options.heap_bytes_max != 0 && options.heap_bytes_max < kTightHeapBytes;
  heap.segment_bytes = tight ? kTightSegmentBytes : 0;
  heap.hooks = &hooks;
  Status status = create_allocator(heap, "a heap", heap_);
  memory.heap = heap_.get();
  return status;
}

Status DvtExecutor::check_device_memory(const DvtExecutorOptions& options) {
  if (options.device_memory > DVT_DEVICE_MEMORY_DIRECT) {
    return Status(ErrorDetail{.code = DVT_INVALID_ARGUMENT,
                              .stage = DVT_STAGE_LOAD,
                              .message = "DvtExecutorOptions.device_memory is unknown",
                              .expected = "one of DVT_DEVICE_MEMORY_*",
                              .got = std::to_string(options.device_memory)});
  }
  if (options.device_memory == DVT_DEVICE_MEMORY_DIRECT && options.device_bytes_max != 0) {
    return {DVT_INVALID_ARGUMENT, DVT_STAGE_LOAD,
            "DvtExecutorOptions.device_bytes_max is a limit of cached device memory"};
  }
  return {};
}

void DvtExecutor::give_back(void* address) {
  // What belongs to a device that fork() has left behind is not the child's to give back.
  if (lost_device_in_fork()) return;
  DvtDevice* device = runtime_->device;
  const DvtCode code = device->vtable->free(device, address);
  if (code == DVT_OK) return;
  if (return_code_ == DVT_OK) return_code_ = code;
  // As other memory of a device, it is given back in spite of an error.
  const DvtCode again = device->vtable->free(device, address);
  static_cast<void>(again);
}

// Ranges that a run has added one by one become one that holds all, once for every new peak.
void DvtExecutor::consolidate_device_cache() {
  if (device_cache_ == nullptr) return;
  // What is parked is merged, so that every run finds the caller's memory as the first one did.
  if (feature_base_ != nullptr) dvt_allocator_trim(device_cache_.get(), UINT64_MAX);
  DvtAllocatorStatistics now;
  dvt_allocator_statistics(device_cache_.get(), &now);
  if (now.segments < 2 || now.live_bytes != 0 || now.live_peak_bytes <= consolidated_bytes_) return;
  consolidated_bytes_ = now.live_peak_bytes;
  dvt_allocator_trim(device_cache_.get(), 0);
}

Status DvtExecutor::create_device_pools(const DvtExecutorOptions& options) {
  if (Status status = check_device_memory(options); !status.ok()) return status;
  if (Status status = create_fixed_memory(options); !status.ok()) return status;
  device_bytes_max_ = options.device_bytes_max;
  if (runtime_->device == nullptr || options.device_memory == DVT_DEVICE_MEMORY_DIRECT) return {};
  return create_device_cache();
}

// Over what the device gives.
Status DvtExecutor::create_device_cache() {
  DvtMemorySource source = dvt_device_source(runtime_->device);
  source.user = this;
  source.reserve = [](void* self, uint64_t bytes, uint64_t alignment, void** out) {
    const auto& executor = *static_cast<const DvtExecutor*>(self);
    const DvtMemorySource device = dvt_device_source(executor.runtime_->device);
    return device.reserve(device.user, bytes, alignment, out);
  };
  source.release = [](void* self, void* address, uint64_t /*bytes*/) {
    static_cast<DvtExecutor*>(self)->give_back(address);
  };
  DvtAllocatorHooks hooks = memory_hooks();
  // What is cached may be in use by tasks that were submitted before it was freed.
  hooks.synchronize = [](void* self) {
    auto& executor = *static_cast<DvtExecutor*>(self);
    return executor.synchronise_all(DVT_STAGE_RUN).code();
  };
  DvtAllocatorOptions cache;
  dvt_allocator_options_init(&cache);
  cache.limit_bytes = device_bytes_max_;
  cache.expected_bytes = davit::exec::peak_device_bytes(view_);
  cache.source = &source;
  cache.hooks = &hooks;
  Status status = create_allocator(cache, "a cache of device memory", device_cache_);
  runtime_->memory.device = device_cache_.get();
  return status;
}

// Slow, for texts.
const char* DvtExecutor::owner_of(uint32_t value) const {
  for (const GraphView& graph : view_.graphs) {
    for (uint32_t node = 0; node < graph.node_count; ++node) {
      if (!allocates(view_.kernels[graph.kernel[node]])) continue;
      const auto outputs = graph.outputs_of(node);
      if (std::find(outputs.begin(), outputs.end(), value) == outputs.end()) continue;
      const char* origin = view_.strings[graph.origin_of(node)];
      if (*origin != '\0') return origin;
    }
  }
  return view_.value_name(value);
}

void DvtExecutor::explain_shortage(DvtValueMemory& memory, davit::ErrorDetail& detail) {
  DvtError error{};
  dvt_allocator_explain(std::exchange(memory.failed, nullptr), memory.failed_bytes,
                        memory.failed_value, &error);
  detail.message.append(": ").append(error.message);
  detail.expected = error.expected;
  detail.got = error.got;
  detail.hint = error.hint;
}

// After a failed run: its heap values, and the outputs that the engine provided.
void DvtExecutor::return_heap_values() {
  DvtValueMemory& memory = runtime_->memory;
  for (uint32_t value = 0; value < view_.values.count; ++value) {
    const bool on_device = view_.values.kind[value] == davit::exec::ValueKind::kDevice;
    if (!on_device && dvt_owns_memory(&memory, &cells_[value])) {
      dvt_heap_free(&memory, &cells_[value]);
    }
  }
  for (size_t i = 0; i < view_.outputs.size(); ++i) {
    dvt_heap_release(&memory, std::exchange(runtime_->outputs[i].owned, {}));
  }
}

const DvtAllocator* DvtExecutor::allocator_of(DvtMemoryPool pool) const {
  return pool == DVT_MEMORY_DEVICE ? device_cache_.get() : heap_.get();
}

void DvtExecutor::host_memory(DvtHostMemory& out) const {
  host_memory_.statistics(out);
  out.mapped_bytes = block_.bytes();
  for (const davit::exec::Variable& variable : variables_) out.mapped_bytes += variable.own.bytes();
}

void DvtExecutor::memory(DvtMemoryPool pool, DvtMemoryStatistics& out) const {
  out = {};
  const DvtAllocator* allocator = allocator_of(pool);
  if (allocator == nullptr) return;
  DvtAllocatorStatistics now;
  dvt_allocator_statistics(allocator, &now);
  out = {.live_bytes = now.live_bytes,
         .live_peak_bytes = now.live_peak_bytes,
         .cached_bytes = now.cached_bytes,
         .reserved_bytes = now.reserved_bytes,
         .reserved_peak_bytes = now.reserved_peak_bytes,
         .largest_hole_bytes = now.largest_hole_bytes,
         .limit_bytes = now.limit_bytes == UINT64_MAX ? 0 : now.limit_bytes,
         .live_blocks = now.live_blocks,
         .allocations = now.malloc_count,
         .system_allocations = now.grow_count,
         .recoveries = now.recover_count};
}

uint64_t DvtExecutor::live_bytes(DvtMemoryPool pool) const {
  return dvt_live_bytes(allocator_of(pool));
}

void DvtExecutor::visit_memory(DvtMemoryPool pool, DvtMemoryVisitor visit, void* user) const {
  const DvtAllocator* allocator = allocator_of(pool);
  if (allocator == nullptr) return;
  struct Call {
    const DvtExecutor& executor;
    DvtMemoryVisitor visit;
    void* user;
  } call{*this, visit, user};
  dvt_allocator_visit(
      allocator,
      [](void* self, uint32_t value, const void* /*address*/, uint64_t bytes) {
        const auto& to = *static_cast<const Call*>(self);
        to.visit(to.user, to.executor.owner_of(value), bytes);
      },
      &call);
}

uint64_t DvtExecutor::trim(uint64_t keep_bytes) {
  uint64_t given = heap_ != nullptr ? dvt_allocator_trim(heap_.get(), keep_bytes) : 0;
  // Tasks that have not ended may still use what a failed run has freed.
  const bool at_rest = !recovery_pending_ && !lost_device_in_fork();
  if (device_cache_ != nullptr && feature_base_ == nullptr && at_rest) {
    given += dvt_allocator_trim(device_cache_.get(), keep_bytes);
  }
  return given;
}
