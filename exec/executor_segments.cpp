// Memory of the caller's beyond inputs, outputs and the arena: on a device, for what Init allocates
// (fixed) and what Main allocates (features, bound anew between runs), and variables, which are an
// input and an output in one.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/checked.hpp"
#include "exec/caller_memory.hpp"
#include "exec/device_memory.hpp"
#include "exec/executor.hpp"
#include "exec/tensor_text.hpp"

using davit::ErrorDetail;
using davit::Status;
using davit::exec::kCallerAlignment;
using davit::exec::Variable;

namespace {

Status refuse(DvtStage stage, std::string message, std::string expected, std::string got) {
  return Status(ErrorDetail{.code = DVT_INVALID_ARGUMENT,
                            .stage = stage,
                            .message = std::move(message),
                            .expected = std::move(expected),
                            .got = std::move(got)});
}

std::string address_text(const void* address) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%" PRIxPTR, reinterpret_cast<uintptr_t>(address));
  return text;
}

// Null, too small, or not aligned; `what` begins the sentence.
Status check_piece(const void* base, size_t bytes, uint64_t needed, const char* what,
                   DvtStage stage) {
  const std::string name = what;
  if (base == nullptr) {
    return refuse(stage, name + " has a size and no address", "an address, or 0 bytes",
                  std::to_string(bytes) + " bytes at NULL");
  }
  if (bytes < needed) {
    return refuse(stage, name + " is too small", std::to_string(needed) + " bytes",
                  std::to_string(bytes) + " bytes");
  }
  const auto address = reinterpret_cast<uintptr_t>(base);
  if (address % kCallerAlignment != 0) {
    return refuse(stage, name + " is not aligned",
                  "an address that is a multiple of " + std::to_string(kCallerAlignment),
                  address_text(base));
  }
  if (!davit::checked_add(address, bytes)) {
    return refuse(stage, name + " reaches beyond the address space", "an end that is an address",
                  std::to_string(bytes) + " bytes at " + address_text(base));
  }
  return {};
}

}  // namespace

// ---- On the device -----------------------------------------------------------------------------

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
      return refuse(DVT_STAGE_BIND, std::string(kWhat) + " overlaps that of Init",
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

// ---- Variables ---------------------------------------------------------------------------------

Status DvtExecutor::check_variable(uint32_t input, uint32_t output, uint64_t half_bytes,
                                   const void* base, size_t bytes) const {
  const auto& in = view_.inputs[input];
  const auto& out = view_.outputs[output];
  const DvtTensor& from = view_.descs[in.desc];
  const DvtTensor& to = view_.descs[out.desc];
  const bool is_static = !view_.is_dynamic(in.value) && !view_.is_dynamic(out.value);
  const bool same = from.dtype == to.dtype && from.rank == to.rank &&
                    std::equal(from.dims, from.dims + from.rank, to.dims);
  if (!is_static || !same) {
    return Status(ErrorDetail{
        .code = DVT_INVALID_ARGUMENT,
        .stage = DVT_STAGE_BIND,
        .message = "a variable is an input and an output of one static shape",
        .tensor = view_.strings[out.name],
        .expected = davit::exec::port_text(view_, in) + ", as " + view_.strings[in.name] + " is",
        .got = davit::exec::port_text(view_, out)});
  }
  if (base == nullptr && bytes == 0) return {};
  return check_piece(base, bytes, 2 * half_bytes, "memory for a variable", DVT_STAGE_BIND);
}

Status DvtExecutor::bind_variable(uint32_t input, uint32_t output, void* base, size_t bytes) {
  if (!loaded_) return {DVT_FAILED_STATE, DVT_STAGE_BIND, "the executor is unloaded"};
  const bool has_input = input < view_.inputs.size();
  if (!has_input || output >= view_.outputs.size()) {
    const size_t count = has_input ? view_.outputs.size() : view_.inputs.size();
    return refuse(DVT_STAGE_BIND, has_input ? "there is no such output" : "there is no such input",
                  "an index below " + std::to_string(count),
                  std::to_string(has_input ? output : input));
  }
  const uint64_t tensor_bytes = view_.descs[view_.inputs[input].desc].bytes;
  const auto half = davit::checked_align(std::max<uint64_t>(tensor_bytes, 1), kCallerAlignment);
  if (!half || *half > UINT64_MAX / 2) {
    return {DVT_OUT_OF_MEMORY, DVT_STAGE_BIND, "two halves exceed the address space"};
  }
  if (Status status = check_variable(input, output, *half, base, bytes); !status.ok()) {
    return status;
  }
  Variable variable{.input = input, .output = static_cast<uint32_t>(view_.inputs.size()) + output};
  if (base == nullptr) {
    auto own = davit::exec::Block::map(2 * *half, "a variable");
    if (!own.ok()) return std::move(own.status());
    variable.own = std::move(own).value();
    base = variable.own.at<std::byte>(0);
  }
  variable.halves[0] = static_cast<std::byte*>(base);
  variable.halves[1] = variable.halves[0] + *half;
  variable.half_bytes = *half;
  variables_.reserve(variables_.size() + 1);
  attach(variable.input, variable.halves[0]);
  attach(variable.output, variable.halves[1]);
  variables_.push_back(std::move(variable));
  has_run_ = false;
  return {};
}

Status DvtExecutor::variable(uint32_t input, void*& data) const {
  const Variable* found = input < view_.inputs.size() ? variable_of(input) : nullptr;
  if (found == nullptr) {
    return refuse(DVT_STAGE_BIND, "the input is no variable's",
                  "an input of dvt_executor_bind_variable()", std::to_string(input));
  }
  data = found->halves[found->current];
  return {};
}

const Variable* DvtExecutor::variable_of(uint32_t slot) const {
  for (const Variable& variable : variables_) {
    if (variable.input == slot || variable.output == slot) return &variable;
  }
  return nullptr;
}

// Each half is an output in turn, so that nothing else may be in either.
Status DvtExecutor::check_variables_apart() const {
  for (const Variable& variable : variables_) {
    const auto begin = reinterpret_cast<uintptr_t>(variable.halves[0]);
    const uintptr_t end = begin + 2 * variable.half_bytes;
    for (uint32_t slot = 0; slot < port_count(); ++slot) {
      if (slot == variable.input || slot == variable.output) continue;
      const auto data = reinterpret_cast<uintptr_t>(bindings_[slot].data);
      if (bindings_[slot].bytes == 0 || data >= end || data + bindings_[slot].bytes <= begin) {
        continue;
      }
      return Status(ErrorDetail{.code = DVT_INVALID_ARGUMENT,
                                .stage = DVT_STAGE_BIND,
                                .message = "a bound buffer overlaps a variable",
                                .tensor = view_.strings[port_at(slot).name],
                                .expected = "memory of its own",
                                .got = std::string("memory of the variable of ") +
                                       view_.strings[port_at(variable.input).name]});
    }
  }
  return {};
}

// One of its ports is about to be bound to something else.
void DvtExecutor::end_variable(uint32_t slot) {
  const Variable* ended = variable_of(slot);
  if (ended == nullptr) return;
  for (const uint32_t port : {ended->input, ended->output}) {
    bindings_[port].bound = false;
    point(port, nullptr);
  }
  ready_ = false;
  has_run_ = false;
  variables_.erase(variables_.begin() + (ended - variables_.data()));
}

// What a run has left is what the next one finds.
void DvtExecutor::turn_variables() {
  for (Variable& variable : variables_) {
    variable.current ^= 1;
    point(variable.input, variable.halves[variable.current]);
    point(variable.output, variable.halves[variable.current ^ 1]);
  }
}
