// Stage 6b of the verifier: host nodes that give dynamic values shape and memory, and take it.
#include <cstring>
#include <string>

#include "exec/verify_dynamic.hpp"

namespace davit::exec::verify {

Status DynamicValues::read_shape(uint32_t node, uint32_t value) const {
  // Bounds become a shape when the value is filled.
  const State s = state(value);
  if (s == State::kShaped || s == State::kAllocated || s == State::kFilled) return {};
  return at(node, "the shape of value %s is not final here", describe_value(view_, value).c_str());
}

Status DynamicValues::read_data(uint32_t node, uint32_t value) const {
  if (state(value) != State::kFilled) {
    return at(node, "value %s has no data here", describe_value(view_, value).c_str());
  }
  const uint32_t memory = root(value);
  if (own(memory) && dynamic(memory) && state_[memory] == State::kFreed) {
    return at(node, "value %s uses memory that was freed", describe_value(view_, value).c_str());
  }
  return {};
}

Status DynamicValues::match_operands(uint32_t node, uint32_t target) const {
  const auto inputs = graph_->inputs_of(node);
  const auto target_inputs = graph_->inputs_of(target);
  const uint32_t kernel = computing_kernel(target);
  if (inputs.size() != target_inputs.size()) {
    return at(node, "has %zu inputs, its target %zu", inputs.size(), target_inputs.size());
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const uint32_t value = target_inputs[i];
    const bool needed = dynamic(value) || (value != kNone && reads_on_host(kernel, i));
    // Without kernels it is not known which inputs are read.
    const bool fits = needed || !view_.kernels.empty() ? inputs[i] == (needed ? value : kNone)
                                                       : inputs[i] == value || inputs[i] == kNone;
    if (!fits) return at(node, "input %zu is not the one that its target asks for", i);
  }
  const auto outputs = graph_->outputs_of(node);
  size_t next = 0;
  for (const uint32_t value : graph_->outputs_of(target)) {
    if (!dynamic(value)) continue;
    if (next == outputs.size() || outputs[next] != value) {
      return at(node, "output %zu is not the dynamic output of its target", next);
    }
    ++next;
  }
  return next == outputs.size() ? Status() : at(node, "has more outputs than its target");
}

Status DynamicValues::infer_shape(uint32_t node) {
  DvtInferShapeAttributes attributes{};
  if (graph_->attributes_of(node).size() != sizeof attributes) return at(node, "has no target");
  std::memcpy(&attributes, graph_->attributes_of(node).data(), sizeof attributes);
  if (attributes.target <= int64_t{node} || attributes.target >= int64_t{graph_->node_count}) {
    return at(node, "target %lld is not a later node", static_cast<long long>(attributes.target));
  }
  const auto target = static_cast<uint32_t>(attributes.target);
  const DvtHostNode what = kind(target);
  if (what != DVT_HOST_OTHER && what != DVT_HOST_REFER_TO) {
    return at(node, "target %u computes nothing", target);
  }
  if (shaper_[target] != kNone) return at(node, "target %u has an InferShape already", target);
  shaper_[target] = node;
  const uint32_t kernel = computing_kernel(target);
  if (!view_.kernels.empty() && view_.kernels[kernel]->infer == nullptr) {
    Status status =
        failed(DVT_UNSUPPORTED, "graphs[%u] node %u: kernel \"%s\" has no shape function", index_,
               target, view_.kernel_refs[kernel].name);
    status.detail().node = view_.strings[graph_->origin_of(target)];
    return status;
  }
  if (Status s = match_operands(node, target); !s.ok()) return s;
  const auto inputs = graph_->inputs_of(node);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] != kNone && place(inputs[i]) == ValueKind::kDevice && reads_on_host(kernel, i)) {
      return at(node, "reads the data of device value %s",
                describe_value(view_, inputs[i]).c_str());
    }
    if (!dynamic(inputs[i])) continue;
    Status s = reads_on_host(kernel, i) ? read_data(node, inputs[i]) : read_shape(node, inputs[i]);
    if (!s.ok()) return s;
  }
  const bool bounds = (flags(kernel) & DVT_KERNEL_SHAPES_OUTPUTS) != 0;
  for (const uint32_t value : graph_->outputs_of(node)) {
    if (state(value) != State::kNone) {
      return at(node, "value %s has a shape already", describe_value(view_, value).c_str());
    }
    set(value, bounds ? State::kBounded : State::kShaped, value);
  }
  return {};
}

Status DynamicValues::allocate(uint32_t node) {
  for (const uint32_t value : graph_->outputs_of(node)) {
    const State s = state(value);
    if (place(value) != ValueKind::kHeap || (s != State::kShaped && s != State::kBounded)) {
      return at(node, "value %s is not a heap value with a shape and no memory",
                describe_value(view_, value).c_str());
    }
    set(value, s == State::kShaped ? State::kAllocated : State::kReserved, value);
  }
  return {};
}

Status DynamicValues::bind_output(uint32_t node) {
  DvtBindOutputAttributes attributes{};
  if (graph_->attributes_of(node).size() == sizeof attributes) {
    std::memcpy(&attributes, graph_->attributes_of(node).data(), sizeof attributes);
  }
  const auto outputs = graph_->outputs_of(node);
  if (outputs.size() != 1 || place(outputs[0]) != ValueKind::kOutput || !dynamic(outputs[0]) ||
      attributes.output < 0 ||
      static_cast<uint64_t>(attributes.output) != view_.values.offset[outputs[0]]) {
    return at(node, "its value is not the dynamic output that it names");
  }
  // A body may not run at all, and the caller reads outputs after every run.
  if (graph_->role != GraphRole::kMain) return at(node, "only Main binds outputs");
  const State s = state(outputs[0]);
  if (s != State::kShaped && s != State::kBounded) {
    return at(node, "the output has no shape yet, or memory already");
  }
  set(outputs[0], s == State::kShaped ? State::kAllocated : State::kReserved, outputs[0]);
  return {};
}

Status DynamicValues::refer(uint32_t node) {
  if (shaper_[node] == kNone) return at(node, "no InferShape has it as its target");
  const auto inputs = graph_->inputs_of(node);
  const auto outputs = graph_->outputs_of(node);
  const uint32_t source = inputs.empty() ? kNone : inputs[0];
  const bool on_device = source != kNone && place(source) == ValueKind::kDevice;
  const ValueKind kind_of_reference = on_device ? ValueKind::kDevice : ValueKind::kHeap;
  if (source == kNone || outputs.size() != 1 || place(outputs[0]) != kind_of_reference ||
      !dynamic(outputs[0])) {
    return at(node, "needs an input, and a heap value as output");
  }
  // The memory must outlive the reference without the plan's knowing of it.
  const ValueKind from = place(source);
  const bool lasting = on_device || from == ValueKind::kHeap || from == ValueKind::kInput ||
                       from == ValueKind::kConstant ||
                       (from == ValueKind::kOutput && dynamic(source));
  if (!lasting) {
    return at(node, "refers to value %s, whose memory is planned",
              describe_value(view_, source).c_str());
  }
  for (const uint32_t value : inputs) {
    if (!dynamic(value)) continue;
    if (Status s = read_data(node, value); !s.ok()) return s;
  }
  if (state(outputs[0]) != State::kShaped) {
    return at(node, "its output has no shape, or memory already");
  }
  set(outputs[0], State::kFilled, root(source));
  return {};
}

Status DynamicValues::release(uint32_t node) {
  for (const uint32_t value : graph_->inputs_of(node)) {
    const State s = value == kNone ? State::kNone : state(value);
    if (value == kNone || place(value) != ValueKind::kHeap || !own(value) || root(value) != value ||
        (s != State::kReserved && s != State::kAllocated && s != State::kFilled)) {
      return at(node, "value %s is not a heap value with memory of its own",
                value == kNone ? "_" : describe_value(view_, value).c_str());
    }
    if (pending(copies_[value])) {
      return at(node, "value %s is freed while a copy of stream %u may still use it",
                describe_value(view_, value).c_str(), copies_[value].stream);
    }
    state_[value] = State::kFreed;
  }
  return {};
}

Status DynamicValues::copy_shape(uint32_t node) {
  const auto inputs = graph_->inputs_of(node);
  const auto outputs = graph_->outputs_of(node);
  if (inputs.size() != 1 || outputs.size() != 1 || inputs[0] == kNone || !dynamic(outputs[0]) ||
      view_.tensor_of(inputs[0]) == nullptr ||
      view_.tensor_of(inputs[0])->dtype != view_.tensor_of(outputs[0])->dtype) {
    return at(node, "copies the shape of a tensor to a dynamic value of its element type");
  }
  if (dynamic(inputs[0])) {
    if (Status s = read_shape(node, inputs[0]); !s.ok()) return s;
  }
  if (state(outputs[0]) != State::kNone) {
    return at(node, "value %s has a shape already", describe_value(view_, outputs[0]).c_str());
  }
  set(outputs[0], State::kShaped, outputs[0]);
  return {};
}

}  // namespace davit::exec::verify
