// Variables: an input and an output that are one thing, which runs pass on without a copy.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/checked.hpp"
#include "exec/caller_memory.hpp"
#include "exec/executor.hpp"
#include "exec/tensor_text.hpp"

using davit::ErrorDetail;
using davit::Status;
using davit::exec::invalid_argument;
using davit::exec::kCallerAlignment;
using davit::exec::PortView;
using davit::exec::Variable;

namespace {

// Whether some tensor has both shapes, of which each may be open.
bool may_be_one(const DvtTensor& a, const DvtTensor& b) {
  if (a.dtype != b.dtype) return false;
  if (a.rank == DVT_RANK_UNKNOWN || b.rank == DVT_RANK_UNKNOWN) return true;
  if (a.rank != b.rank) return false;
  for (uint32_t d = 0; d < a.rank; ++d) {
    if (a.dims[d] != b.dims[d] && a.dims[d] != -1 && b.dims[d] != -1) return false;
  }
  return true;
}

}  // namespace

Status DvtExecutor::check_variable_ports(uint32_t input, uint32_t output) const {
  const bool has_input = input < view_.inputs.size();
  if (!has_input || output >= view_.outputs.size()) {
    const size_t count = has_input ? view_.outputs.size() : view_.inputs.size();
    return invalid_argument(
        DVT_STAGE_BIND, has_input ? "there is no such output" : "there is no such input",
        "an index below " + std::to_string(count), std::to_string(has_input ? output : input));
  }
  const PortView& in = view_.inputs[input];
  const PortView& out = view_.outputs[output];
  const DvtTensor& from = view_.descs[in.desc];
  const DvtTensor& to = view_.descs[out.desc];
  if (may_be_one(from, to)) return {};
  return Status(ErrorDetail{
      .code = DVT_INVALID_ARGUMENT,
      .stage = DVT_STAGE_BIND,
      .message = "a variable is an input and an output of one type",
      .tensor = view_.strings[out.name],
      .expected = davit::exec::port_text(view_, in) + ", as " + view_.strings[in.name] + " is",
      .got = davit::exec::port_text(view_, out)});
}

// In memory of the caller's, or, for an output of static shape, of the executor.
Status DvtExecutor::provide_halves(Variable& variable, void* base, size_t bytes) const {
  uint64_t half_bytes = bytes / 2 / kCallerAlignment * kCallerAlignment;
  uint64_t needed = 2 * uint64_t{kCallerAlignment};
  if (!variable.has_dynamic_output) {
    const uint64_t tensor_bytes = view_.descs[output_of(variable).desc].bytes;
    const auto half = davit::checked_align(std::max<uint64_t>(tensor_bytes, 1), kCallerAlignment);
    if (!half || *half > UINT64_MAX / 2) {
      return {DVT_OUT_OF_MEMORY, DVT_STAGE_BIND, "two halves exceed the address space"};
    }
    half_bytes = *half;
    needed = 2 * *half;
  }
  if (base != nullptr || bytes != 0) {
    Status status =
        davit::exec::check_piece(base, bytes, needed, "memory for a variable", DVT_STAGE_BIND);
    if (!status.ok()) return status;
  } else if (variable.has_dynamic_output) {
    return {};
  } else {
    auto own = davit::exec::Block::map(2 * half_bytes, "a variable");
    if (!own.ok()) return std::move(own.status());
    variable.own = std::move(own).value();
    base = variable.own.at<std::byte>(0);
  }
  variable.halves[0] = static_cast<std::byte*>(base);
  variable.halves[1] = variable.halves[0] + half_bytes;
  variable.half_bytes = half_bytes;
  return {};
}

Status DvtExecutor::bind_variable(uint32_t input, uint32_t output, void* base, size_t bytes) {
  if (!loaded_) return {DVT_FAILED_STATE, DVT_STAGE_BIND, "the executor is unloaded"};
  if (Status status = check_variable_ports(input, output); !status.ok()) return status;
  Variable variable{.input = input,
                    .output = static_cast<uint32_t>(view_.inputs.size()) + output,
                    .has_dynamic_output = view_.is_dynamic(view_.outputs[output].value)};
  if (Status status = provide_halves(variable, base, bytes); !status.ok()) return status;
  // All that can fail has been done.
  variables_.reserve(variables_.size() + 1);
  begin_variable(std::move(variable));
  return {};
}

void DvtExecutor::begin_variable(Variable variable) {
  const uint32_t output = variable.output;
  end_variable(variable.input);
  end_variable(output);
  bindings_[variable.input].bound = false;
  point(variable.input, nullptr);
  DvtOutputSlot& slot = slot_of(variable);
  slot.has_shape = 0;
  if (variable.has_dynamic_output) {
    slot.bound = variable.halves[1];
    slot.capacity = variable.half_bytes;
    bindings_[output].bytes = variable.half_bytes;
    shapes_valid_ = false;
  } else {
    // One shape for good, which the first half has.
    take_shape(variable.input, view_.descs[output_of(variable).desc]);
    bindings_[variable.input].bound = variable.has_value = true;
    point(variable.input, variable.halves[0]);
  }
  bindings_[output].bound = true;
  point(output, variable.halves[1]);
  variables_.push_back(std::move(variable));
  ready_ = false;
  has_run_ = false;
}

const PortView& DvtExecutor::output_of(const Variable& variable) const {
  return port_at(variable.output);
}

DvtOutputSlot& DvtExecutor::slot_of(const Variable& variable) const {
  return runtime_->outputs[variable.output - view_.inputs.size()];
}

const std::byte* DvtExecutor::address_of(const Variable& variable) const {
  return variable.halves[0] != nullptr ? variable.halves[variable.current]
                                       : static_cast<const std::byte*>(variable.value.address);
}

const Variable* DvtExecutor::variable_of(uint32_t slot) const {
  for (const Variable& variable : variables_) {
    if (variable.input == slot || variable.output == slot) return &variable;
  }
  return nullptr;
}

// ---- Its value ---------------------------------------------------------------------------------

Status DvtExecutor::variable(uint32_t input, DvtTensor* tensor, void*& data) const {
  const Variable* found = input < view_.inputs.size() ? variable_of(input) : nullptr;
  if (found == nullptr) {
    return invalid_argument(DVT_STAGE_BIND, "the input is no variable's",
                            "an input of dvt_executor_bind_variable()", std::to_string(input));
  }
  const bool is_gone = !loaded_ && found->halves[0] == nullptr;  // With the heap.
  if (!found->has_value || is_gone) {
    return Status(ErrorDetail{
        .code = DVT_FAILED_STATE,
        .stage = DVT_STAGE_BIND,
        .message = is_gone ? "the executor is unloaded" : "the variable has no value yet",
        .tensor = view_.strings[port_at(input).name],
        .hint = is_gone ? "" : "call dvt_executor_set_variable()"});
  }
  if (tensor != nullptr) *tensor = *cells_[view_.inputs[input].value].tensor;
  data = const_cast<std::byte*>(address_of(*found));
  return {};
}

Status DvtExecutor::set_variable(uint32_t input, const DvtTensor* tensor, const void* data) {
  if (!loaded_) return {DVT_FAILED_STATE, DVT_STAGE_BIND, "the executor is unloaded"};
  const Variable* found = input < view_.inputs.size() ? variable_of(input) : nullptr;
  if (found == nullptr) {
    return invalid_argument(DVT_STAGE_BIND, "the input is no variable's",
                            "an input of dvt_executor_bind_variable()", std::to_string(input));
  }
  Variable& variable = variables_[static_cast<size_t>(found - variables_.data())];
  const PortView& port = view_.inputs[input];
  if (tensor == nullptr && !variable.has_value) {
    return Status(ErrorDetail{.code = DVT_FAILED_STATE,
                              .stage = DVT_STAGE_BIND,
                              .message = "the shape of the variable is not known",
                              .tensor = view_.strings[port.name],
                              .expected = davit::exec::port_text(view_, port)});
  }
  DvtTensor shape = tensor != nullptr ? *tensor : *cells_[port.value].tensor;
  shape.flags = DVT_TENSOR_DYNAMIC;
  shape.reserved = 0;
  if (Status status = check_shape(port, shape); !status.ok()) return status;
  if (!variable.has_dynamic_output) {
    if (Status status = check_shape(output_of(variable), shape); !status.ok()) return status;
  }
  if (Status status = write_variable(variable, shape, data); !status.ok()) return status;
  variable.has_value = true;
  if (take_shape(input, shape) || !bindings_[input].bound) ready_ = false;
  bindings_[input].bound = true;
  point(input, address_of(variable));
  return {};
}

Status DvtExecutor::write_variable(Variable& variable, const DvtTensor& shape, const void* data) {
  const auto write = [&](void* to) {
    if (shape.bytes == 0) return;
    if (data != nullptr) {
      std::memmove(to, data, shape.bytes);
    } else {
      std::memset(to, 0, shape.bytes);
    }
  };
  if (variable.halves[0] != nullptr) {
    if (shape.bytes > variable.half_bytes) {
      return invalid_argument(DVT_STAGE_BIND,
                              "the value is too large for half of the memory of " +
                                  std::string(view_.strings[port_at(variable.input).name]),
                              "at most " + std::to_string(variable.half_bytes) + " bytes",
                              std::to_string(shape.bytes) + " bytes");
    }
    write(variable.halves[variable.current]);
    return {};
  }
  if (variable.value.id != 0 && variable.value_bytes >= shape.bytes) {
    write(variable.value.address);
    return {};
  }
  DvtValueMemory& memory = runtime_->memory;
  DvtCell& cell = cells_[output_of(variable).value];
  void* const kept = cell.data;
  const DvtCode code = dvt_heap_allocate(&memory, &cell, shape.bytes);
  if (code != DVT_OK) {
    ErrorDetail detail{.code = code,
                       .stage = DVT_STAGE_BIND,
                       .message = "no memory for a variable",
                       .tensor = view_.strings[port_at(variable.input).name]};
    explain_shortage(runtime_->memory, detail);
    return Status(std::move(detail));
  }
  const DvtBlock block = dvt_take_block(&memory, &cell);
  cell.data = kept;
  write(block.address);  // What there was may be what is copied.
  dvt_heap_release(&memory, std::exchange(variable.value, block));
  variable.value_bytes = shape.bytes;
  return {};
}

// ---- Between runs ------------------------------------------------------------------------------

Status DvtExecutor::check_apart(const Variable& variable, const void* begin, uint64_t bytes) const {
  const auto first = reinterpret_cast<uintptr_t>(begin);
  for (uint32_t slot = 0; slot < port_count(); ++slot) {
    if (slot == variable.input || slot == variable.output) continue;
    const auto data = reinterpret_cast<uintptr_t>(bindings_[slot].data);
    const uint64_t size = bindings_[slot].bytes;
    if (size == 0 || bytes == 0 || data >= first + bytes || data + size <= first) continue;
    return Status(ErrorDetail{.code = DVT_INVALID_ARGUMENT,
                              .stage = DVT_STAGE_BIND,
                              .message = "a bound buffer overlaps a variable",
                              .tensor = view_.strings[port_at(slot).name],
                              .expected = "memory of its own",
                              .got = std::string("memory of the variable of ") +
                                     view_.strings[port_at(variable.input).name]});
  }
  return {};
}

// Each half is an output in turn, so that nothing else may be in either.
Status DvtExecutor::check_variables_apart() const {
  for (const Variable& variable : variables_) {
    Status status;
    if (variable.halves[0] != nullptr) {
      status = check_apart(variable, variable.halves[0], 2 * variable.half_bytes);
    } else {
      status = check_apart(variable, variable.value.address, variable.value_bytes);
      const DvtOutputSlot& slot = slot_of(variable);
      if (status.ok() && slot.owned.id != 0) {
        status = check_apart(variable, slot.owned.address, slot.owned_bytes);
      }
    }
    if (!status.ok()) return status;
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
  if (ended->has_dynamic_output) {
    DvtOutputSlot& output = slot_of(*ended);
    output.bound = nullptr;
    output.capacity = 0;
    bindings_[ended->output].bytes = 0;
    dvt_heap_release(&runtime_->memory, ended->value);
    shapes_valid_ = false;
  }
  ready_ = false;
  has_run_ = false;
  variables_.erase(variables_.begin() + (ended - variables_.data()));
}

// What a run has left is what the next one finds: of all variables, or of none.
Status DvtExecutor::turn_variables() {
  for (const Variable& variable : variables_) {
    if (!variable.has_dynamic_output) continue;
    DvtTensor left = *cells_[output_of(variable).value].tensor;
    Status status = check_shape(port_at(variable.input), left);
    if (status.ok()) continue;
    has_run_ = false;
    status.detail().stage = DVT_STAGE_RUN;
    status.detail().message =
        "what the run has left is no value of the variable: " + status.detail().message;
    return status;
  }
  for (Variable& variable : variables_) {
    if (variable.has_dynamic_output) {
      turn_dynamic(variable);
      continue;
    }
    variable.current ^= 1;
    point(variable.input, variable.halves[variable.current]);
    point(variable.output, variable.halves[variable.current ^ 1]);
  }
  return {};
}

void DvtExecutor::turn_dynamic(Variable& variable) {
  DvtOutputSlot& slot = slot_of(variable);
  DvtCell& output = cells_[output_of(variable).value];
  uint64_t room = variable.half_bytes;
  if (variable.halves[0] != nullptr) {
    variable.current ^= 1;
    slot.bound = variable.halves[variable.current ^ 1];
    bindings_[variable.output].data = static_cast<const std::byte*>(slot.bound);
    output.data = slot.bound;
  } else {
    std::swap(slot.owned, variable.value);
    std::swap(slot.owned_bytes, variable.value_bytes);
    room = slot.owned.id == 0 ? 0 : slot.owned_bytes;
    output.data = slot.owned.address;
  }
  if (take_shape(variable.input, *output.tensor)) ready_ = false;  // Gears go by shapes.
  point(variable.input, address_of(variable));
  // Else the next run might begin behind the node that provides the memory.
  if (room < output.tensor->bytes || slot.is_bound_only != 0) shapes_valid_ = false;
}
