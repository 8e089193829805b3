// Binding of inputs and outputs: the only untrusted thing that reaches a loaded executor.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/dtype.hpp"
#include "exec/executor.hpp"
#include "exec/gears.hpp"
#include "exec/tensor_text.hpp"

using davit::ErrorDetail;
using davit::Status;
using davit::exec::Binding;
using davit::exec::PortView;

namespace {

std::string address_text(const void* address) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%" PRIxPTR, reinterpret_cast<uintptr_t>(address));
  return text;
}

Status no_such_port(const char* kind, uint32_t index, size_t count) {
  return Status(
      ErrorDetail{.code = DVT_INVALID_ARGUMENT,
                  .stage = DVT_STAGE_BIND,
                  .message = std::string("there is no ") + kind + " " + std::to_string(index),
                  .expected = "an index below " + std::to_string(count),
                  .got = std::to_string(index)});
}

}  // namespace

const PortView& DvtExecutor::port_at(uint32_t slot) const {
  const size_t inputs = view_.inputs.size();
  return slot < inputs ? view_.inputs[slot] : view_.outputs[slot - inputs];
}

uint32_t DvtExecutor::port_count() const {
  return static_cast<uint32_t>(view_.inputs.size() + view_.outputs.size());
}

Status DvtExecutor::bind_input(uint32_t index, const void* data, size_t bytes) {
  if (index >= view_.inputs.size()) return no_such_port("input", index, view_.inputs.size());
  return bind(view_.inputs[index], index, data, bytes);
}

Status DvtExecutor::bind_output(uint32_t index, void* data, size_t bytes) {
  if (index >= view_.outputs.size()) return no_such_port("output", index, view_.outputs.size());
  has_run_ = false;  // What was computed may be elsewhere now.
  if (std::exchange(runtime_->outputs[index].has_shape, uint8_t{0}) != 0) shapes_valid_ = false;
  if (view_.is_dynamic(view_.outputs[index].value)) return bind_dynamic_output(index, data, bytes);
  return bind(view_.outputs[index], static_cast<uint32_t>(view_.inputs.size()) + index, data,
              bytes);
}

Status DvtExecutor::bind_output_tensor(uint32_t index, const DvtTensor& tensor, void* data,
                                       size_t bytes) {
  if (index >= view_.outputs.size()) return no_such_port("output", index, view_.outputs.size());
  const PortView& port = view_.outputs[index];
  DvtTensor shape = tensor;
  shape.flags = DVT_TENSOR_DYNAMIC;
  shape.reserved = 0;
  if (Status status = check_shape(port, shape); !status.ok()) return status;
  const bool is_dynamic = view_.is_dynamic(port.value);
  if (is_dynamic && data != nullptr && bytes < shape.bytes) {
    return check_buffer(port, shape, data, bytes);
  }
  if (Status status = bind_output(index, data, bytes); !status.ok() || !is_dynamic) return status;
  DvtOutputSlot& slot = runtime_->outputs[index];
  slot.given = shape;
  slot.has_shape = 1;
  // Else the next run might begin behind the nodes that compare.
  const DvtTensor& known = *cells_[port.value].tensor;
  if (known.rank != shape.rank || std::memcmp(known.dims, shape.dims, sizeof shape.dims) != 0) {
    shapes_valid_ = false;
  }
  return {};
}

// Of outputs whose shape came with the data; the others' was compared before.
Status DvtExecutor::check_given_shapes() const {
  for (uint32_t i = 0; i < view_.outputs.size(); ++i) {
    const DvtOutputSlot& slot = runtime_->outputs[i];
    if (slot.has_shape == 0 || slot.is_bound_only == 0) continue;
    const DvtTensor& found = *cells_[view_.outputs[i].value].tensor;
    if (found.rank == slot.given.rank &&
        std::memcmp(found.dims, slot.given.dims, sizeof found.dims) == 0) {
      continue;
    }
    return Status(ErrorDetail{.code = DVT_INVALID_ARGUMENT,
                              .stage = DVT_STAGE_RUN,
                              .message = "the output has another shape than was given",
                              .tensor = slot.name,
                              .expected = davit::exec::tensor_text(found),
                              .got = davit::exec::tensor_text(slot.given)});
  }
  return {};
}

// Whether a tensor may be bound to a port. Works out its bytes.
Status DvtExecutor::check_shape(const PortView& port, DvtTensor& given) const {
  const DvtTensor& known = view_.descs[port.desc];
  const auto refuse = [&](const char* message, std::string expected, std::string got) {
    return Status(ErrorDetail{.code = DVT_INVALID_ARGUMENT,
                              .stage = DVT_STAGE_BIND,
                              .message = message,
                              .tensor = view_.strings[port.name],
                              .expected = std::move(expected),
                              .got = std::move(got)});
  };
  if (given.dtype != known.dtype) {
    return refuse("the element type is not the port's", std::string(davit::dtype_name(known.dtype)),
                  std::string(davit::dtype_name(given.dtype)));
  }
  if (dvt_set_shape(&given, given.rank, given.dims) != DVT_OK) {
    return refuse("the shape is no shape of a tensor",
                  "at most 8 dimensions, none negative, less than 2^63 bytes",
                  davit::exec::tensor_text(given));
  }
  bool fits = known.rank == given.rank || known.rank == DVT_RANK_UNKNOWN;
  for (uint32_t d = 0; fits && known.rank != DVT_RANK_UNKNOWN && d < known.rank; ++d) {
    if (known.dims[d] != -1) fits = known.dims[d] == given.dims[d];
    if (port.dims == nullptr) continue;
    fits = fits && given.dims[d] >= port.dims[d].min && given.dims[d] <= port.dims[d].max;
  }
  if (fits) return {};
  return refuse("the shape does not fit the port", davit::exec::port_text(view_, port),
                davit::exec::tensor_text(given));
}

Status DvtExecutor::bind_input_tensor(uint32_t index, const DvtTensor& tensor, const void* data) {
  if (index >= view_.inputs.size()) return no_such_port("input", index, view_.inputs.size());
  const PortView& port = view_.inputs[index];
  DvtTensor shape = tensor;
  shape.flags = DVT_TENSOR_DYNAMIC;
  shape.reserved = 0;
  if (Status status = check_shape(port, shape); !status.ok()) return status;
  if (Status status = check_buffer(port, shape, data, shape.bytes); !status.ok()) return status;
  if (!variables_.empty()) end_variable(index);
  take_shape(index, shape);
  attach(index, data);
  return {};
}

// That an input has from now on, and whether it is another than before.
bool DvtExecutor::take_shape(uint32_t index, const DvtTensor& shape) {
  const PortView& port = view_.inputs[index];
  if (!view_.is_dynamic(port.value)) return false;
  auto* known = const_cast<DvtTensor*>(cells_[port.value].tensor);  // In our block.
  const bool changes =
      known->rank != shape.rank || std::memcmp(known->dims, shape.dims, sizeof shape.dims) != 0;
  if (changes) {
    shapes_valid_ = shapes_measured_ = false;
    *known = shape;
  }
  bindings_[index].bytes = shape.bytes;
  return changes;
}

// How much is needed turns out during the run.
Status DvtExecutor::bind_dynamic_output(uint32_t index, void* data, size_t bytes) {
  const PortView& port = view_.outputs[index];
  if (!loaded_) return {DVT_FAILED_STATE, DVT_STAGE_BIND, "the executor is unloaded"};
  const DvtTensor& tensor = *cells_[port.value].tensor;
  const uint32_t alignment = dvt_dtype_alignment(tensor.dtype);
  const bool aligned = reinterpret_cast<uintptr_t>(data) % alignment == 0;
  if ((data == nullptr && bytes > 0) || !aligned) {
    return Status(ErrorDetail{
        .code = DVT_INVALID_ARGUMENT,
        .stage = DVT_STAGE_BIND,
        .message = aligned ? "the buffer is null" : "the buffer is not aligned to its element",
        .tensor = view_.strings[port.name],
        .expected = aligned ? std::to_string(bytes) + " bytes"
                            : "an address that is a multiple of " + std::to_string(alignment),
        .got = address_text(data)});
  }
  if (!variables_.empty()) end_variable(static_cast<uint32_t>(view_.inputs.size()) + index);
  DvtOutputSlot& slot = runtime_->outputs[index];
  slot.bound = data;
  slot.capacity = bytes;
  Binding& binding = bindings_[view_.inputs.size() + index];
  binding.data = static_cast<const std::byte*>(data);
  binding.bytes = bytes;
  binding.bound = data != nullptr;
  ready_ = false;
  if (shapes_valid_ && data != nullptr && bytes >= tensor.bytes) {
    cells_[port.value].data = data;
  } else {
    shapes_valid_ = false;
  }
  return {};
}

Status DvtExecutor::output_tensor(uint32_t index, DvtTensor& tensor, const void*& data) const {
  if (index >= view_.outputs.size()) return no_such_port("output", index, view_.outputs.size());
  if (!loaded_ || !has_run_) {
    return {DVT_FAILED_STATE, DVT_STAGE_BIND,
            "there is no result: no run has succeeded since the outputs were bound"};
  }
  const DvtCell& cell = cells_[view_.outputs[index].value];
  tensor = *cell.tensor;
  const auto slot = static_cast<uint32_t>(view_.inputs.size()) + index;
  const davit::exec::Variable* variable = variable_of(slot);
  data = variable != nullptr ? address_of(*variable) : cell.data;
  return {};
}

Status DvtExecutor::bind(const PortView& port, uint32_t slot, const void* data, size_t bytes) {
  Status status = check_buffer(port, *cells_[port.value].tensor, data, bytes);
  if (status.ok()) attach(slot, data);
  return status;
}

// Whether a buffer may be bound to a port with this shape.
Status DvtExecutor::check_buffer(const PortView& port, const DvtTensor& tensor, const void* data,
                                 size_t bytes) const {
  const auto refuse = [&](const char* message, std::string expected, std::string got) {
    return Status(ErrorDetail{.code = DVT_INVALID_ARGUMENT,
                              .stage = DVT_STAGE_BIND,
                              .message = message,
                              .tensor = view_.strings[port.name],
                              .expected = std::move(expected),
                              .got = std::move(got)});
  };
  if (!loaded_) {
    return {DVT_FAILED_STATE, DVT_STAGE_BIND, "the executor is unloaded"};
  }
  if (tensor.rank == DVT_RANK_UNKNOWN) {
    return Status(ErrorDetail{.code = DVT_FAILED_STATE,
                              .stage = DVT_STAGE_BIND,
                              .message = "the shape of the input is not set",
                              .tensor = view_.strings[port.name],
                              .expected = davit::exec::port_text(view_, port),
                              .hint = "call dvt_executor_bind_input_tensor()"});
  }
  if (bytes < tensor.bytes) {
    return refuse("the buffer is too small",
                  davit::exec::tensor_text(tensor) + ", " + std::to_string(tensor.bytes) + " bytes",
                  std::to_string(bytes) + " bytes");
  }
  if (data == nullptr && tensor.bytes > 0) {
    return refuse("the buffer is null", std::to_string(tensor.bytes) + " bytes", "NULL");
  }
  const uint32_t alignment = dvt_dtype_alignment(tensor.dtype);
  if (reinterpret_cast<uintptr_t>(data) % alignment != 0) {
    return refuse("the buffer is not aligned to its element",
                  "an address that is a multiple of " + std::to_string(alignment),
                  address_text(data));
  }
  return {};
}

void DvtExecutor::attach(uint32_t slot, const void* data) {
  if (!variables_.empty()) end_variable(slot);
  bindings_[slot].bound = true;
  ready_ = false;
  point(slot, data);
}

// What is bound stays valid: it is checked, or it takes turns with what was.
void DvtExecutor::point(uint32_t slot, const void* data) {
  bindings_[slot].data = static_cast<const std::byte*>(data);
  const auto* const offsets = block_.at<uint32_t>(layout_.port_offsets);
  const auto* const values = block_.at<uint32_t>(layout_.port_values);
  for (uint32_t i = offsets[slot]; i < offsets[slot + 1]; ++i) {
    // Verifier: no node writes an input.
    cells_[values[i]].data = const_cast<void*>(data);
  }
}

Status DvtExecutor::bind_arena(void* base, size_t bytes) {
  const auto refuse = [](const char* message, std::string expected, std::string got) {
    return Status(ErrorDetail{.code = DVT_INVALID_ARGUMENT,
                              .stage = DVT_STAGE_BIND,
                              .message = message,
                              .expected = std::move(expected),
                              .got = std::move(got)});
  };
  if (!loaded_) return {DVT_FAILED_STATE, DVT_STAGE_BIND, "the executor is unloaded"};
  if (recovery_pending_) {
    return {DVT_FAILED_STATE, DVT_STAGE_BIND, "work of a run that failed may still use the arena"};
  }
  auto* to = static_cast<std::byte*>(base);
  if (to == nullptr) to = block_.at<std::byte>(layout_.values);
  if (base != nullptr && bytes < view_.arena_bytes) {
    return refuse("the arena is too small", std::to_string(view_.arena_bytes) + " bytes",
                  std::to_string(bytes) + " bytes");
  }
  if (reinterpret_cast<uintptr_t>(to) % view_.arena_alignment != 0) {
    return refuse("the arena is not aligned",
                  "an address that is a multiple of " + std::to_string(view_.arena_alignment),
                  address_text(to));
  }
  if (to == arena_) return {};
  // Init may have made values that Main reads.
  if (init_.count > 0) std::memmove(to, arena_, view_.arena_bytes);
  arena_ = to;
  for (uint32_t value = 0; value < view_.values.count; ++value) {
    if (view_.values.kind[value] != davit::exec::ValueKind::kPlanned) continue;
    cells_[value].data = arena_ + view_.values.offset[value];
  }
  shapes_valid_ = false;  // What the shape nodes have computed is elsewhere.
  ready_ = false;
  return {};
}

// What is bound must not be overwritten by planned values, nor they by it.
Status DvtExecutor::check_arena_apart() const {
  if (arena_ == block_.at<std::byte>(layout_.values)) return {};
  const auto begin = reinterpret_cast<uintptr_t>(arena_);
  for (uint32_t slot = 0; slot < port_count(); ++slot) {
    const auto data = reinterpret_cast<uintptr_t>(bindings_[slot].data);
    const bool apart =
        data >= begin ? data - begin >= view_.arena_bytes : begin - data >= bindings_[slot].bytes;
    if (bindings_[slot].bytes == 0 || apart) continue;
    return Status(ErrorDetail{.code = DVT_INVALID_ARGUMENT,
                              .stage = DVT_STAGE_BIND,
                              .message = "a bound buffer overlaps the arena",
                              .tensor = view_.strings[port_at(slot).name],
                              .expected = "memory of its own",
                              .got = "memory of planned values"});
  }
  return {};
}

Status DvtExecutor::check_bindings() {
  if (!loaded_) return {DVT_FAILED_STATE, DVT_STAGE_RUN, "the executor is unloaded"};
  for (uint32_t slot = 0; slot < port_count(); ++slot) {
    if (bindings_[slot].bound) continue;
    // An output whose shape is dynamic is in memory of the executor.
    if (slot >= view_.inputs.size() && view_.is_dynamic(port_at(slot).value)) continue;
    const bool input = slot < view_.inputs.size();
    const bool variable = variable_of(slot) != nullptr;
    return Status(ErrorDetail{.code = DVT_FAILED_STATE,
                              .stage = DVT_STAGE_RUN,
                              .message = variable ? "a variable has no value"
                                         : input  ? "an input is not bound"
                                                  : "an output is not bound",
                              .tensor = view_.strings[port_at(slot).name],
                              .hint = variable ? "call dvt_executor_set_variable()"
                                      : input  ? "call dvt_executor_bind_input()"
                                               : "call dvt_executor_bind_output()"});
  }
  if (Status status = check_overlaps(); !status.ok()) return status;
  if (Status status = check_arena_apart(); !status.ok()) return status;
  if (Status status = choose_gear(); !status.ok()) return status;
  if (Status status = check_variables_apart(); !status.ok()) return status;
  ready_ = true;
  return {};
}

namespace {

bool same_shape(const DvtTensor& a, const DvtTensor& b) {
  return a.rank == b.rank && std::memcmp(a.dims, b.dims, sizeof a.dims) == 0;
}

}  // namespace

// The gear whose shapes the inputs have.
Status DvtExecutor::choose_gear() {
  if (gears_ == nullptr) return {};
  const davit::exec::GearsView gears = davit::exec::gears_of(view_);
  for (uint32_t gear = 0; gear < gears.count; ++gear) {
    bool fits = true;
    for (uint32_t port = 0; fits && port < view_.inputs.size(); ++port) {
      fits = same_shape(*cells_[view_.inputs[port].value].tensor, gears.input(gear, port));
    }
    if (!fits) continue;
    gears_->gear = gear;
    return {};
  }
  return no_such_gear(gears);
}

// Names the first input that rules out those gears that the inputs before it have left.
Status DvtExecutor::no_such_gear(const davit::exec::GearsView& gears) const {
  std::vector<uint32_t> left(gears.count);
  std::iota(left.begin(), left.end(), 0U);
  ErrorDetail detail{.code = DVT_INVALID_ARGUMENT, .stage = DVT_STAGE_BIND};
  for (uint32_t port = 0; port < view_.inputs.size() && !left.empty(); ++port) {
    const DvtTensor& given = *cells_[view_.inputs[port].value].tensor;
    detail.message = port == 0 ? "the shape is that of no gear"
                               : "the shape is that of no gear, with those of the inputs before it";
    detail.tensor = view_.strings[view_.inputs[port].name];
    detail.got = davit::exec::tensor_text(given);
    detail.expected.clear();
    std::vector<uint32_t> fitting;
    for (const uint32_t gear : left) {
      const DvtTensor& wanted = gears.input(gear, port);
      if (same_shape(given, wanted)) fitting.push_back(gear);
      const std::string shape = davit::exec::tensor_text(wanted);
      if (detail.expected.find(shape) != std::string::npos) continue;
      detail.expected += (detail.expected.empty() ? "" : " or ") + shape;
    }
    left = std::move(fitting);
  }
  return Status(std::move(detail));
}

// Sweeps over the buffers by ascending address. Inputs may overlap each other.
Status DvtExecutor::check_overlaps() {
  auto* const order = block_.at<uint32_t>(layout_.port_order);
  uint32_t count = 0;
  for (uint32_t slot = 0; slot < port_count(); ++slot) {
    if (bindings_[slot].bytes > 0) order[count++] = slot;
  }
  std::sort(order, order + count, [&](uint32_t a, uint32_t b) {
    return std::less<>()(bindings_[a].data, bindings_[b].data);
  });
  const auto end_of = [&](uint32_t slot) {
    return reinterpret_cast<uintptr_t>(bindings_[slot].data) + bindings_[slot].bytes;
  };
  // The buffers seen so far that reach furthest: of all, and of the outputs alone. The latter is
  // the last one, because outputs do not overlap.
  uint32_t furthest = davit::exec::kNone;
  uint32_t furthest_output = davit::exec::kNone;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t slot = order[i];
    const bool output = slot >= view_.inputs.size();
    const uint32_t rival = output ? furthest : furthest_output;
    const auto start = reinterpret_cast<uintptr_t>(bindings_[slot].data);
    if (rival != davit::exec::kNone && start < end_of(rival)) {
      return Status(ErrorDetail{
          .code = DVT_INVALID_ARGUMENT,
          .stage = DVT_STAGE_BIND,
          .message = std::string("the buffer of an output overlaps that of ") +
                     (output && rival >= view_.inputs.size() ? "another output" : "an input"),
          .tensor = view_.strings[port_at(output ? slot : rival).name],
          .expected = "memory of its own",
          .got = std::string("memory shared with ") +
                 view_.strings[port_at(output ? rival : slot).name]});
    }
    if (furthest == davit::exec::kNone || end_of(slot) > end_of(furthest)) furthest = slot;
    if (output) furthest_output = slot;
  }
  return {};
}
