// Stage 6b of the verifier: device nodes with dynamic operands, and copies that run after their
// nodes.
#include <algorithm>
#include <cstring>
#include <string>

#include "exec/verify_dynamic.hpp"

namespace davit::exec::verify {

Status DynamicValues::give_memory(uint32_t node, uint32_t value) {
  const State s = state(value);
  if (s != State::kShaped && s != State::kBounded) {
    return at(node, "value %s has no shape yet, or memory already",
              describe_value(view_, value).c_str());
  }
  set(value, s == State::kShaped ? State::kAllocated : State::kReserved, value);
  return {};
}

Status DynamicValues::fill(uint32_t node, uint32_t value) {
  if (!own(value) || state_[value] != State::kAllocated) {
    return at(node, "value %s has no memory here", describe_value(view_, value).c_str());
  }
  state_[value] = State::kFilled;
  return {};
}

// Copies run later: until the stream is joined, heap memory they use must not go, and what they
// write must not be read.
Status DynamicValues::note_copy(uint32_t node, uint32_t host_value, bool writes) {
  const uint32_t stream = graph_->stream_of(node);
  if (stream == kNone) return at(node, "has no stream");
  if (facts_.roots_of(host_value).size() > 1) {
    return at(node, "value %s is a view of several values, which no copy takes",
              describe_value(view_, host_value).c_str());
  }
  Copy& copy = copies_[memory_of(host_value)];
  const bool before = pending(copy);
  if (before && copy.stream != stream) {
    return at(node, "value %s is used by copies of streams %u and %u at a time",
              describe_value(view_, host_value).c_str(), copy.stream, stream);
  }
  copy = {stream, time_, writes || (before && copy.writes)};
  return {};
}

void DynamicValues::join_stream(uint32_t node) {
  DvtStreamAttributes attributes{};
  if (graph_->attributes_of(node).size() != sizeof attributes) return;
  std::memcpy(&attributes, graph_->attributes_of(node).data(), sizeof attributes);
  if (attributes.stream < 0 || attributes.stream >= int64_t{view_.stream_count}) return;
  joined_at_[static_cast<size_t>(attributes.stream)] = time_;
}

// Else a kernel would be checked with one number, and run with another.
Status DynamicValues::check_joined(uint32_t node) const {
  const DvtHostNode what = kind(node);
  if (what != DVT_HOST_OTHER && what != DVT_HOST_IF && what != DVT_HOST_LOOP &&
      what != DVT_HOST_INFER_SHAPE) {
    return {};
  }
  uint32_t kernel = computing_kernel(node);
  if (what == DVT_HOST_INFER_SHAPE) {
    DvtInferShapeAttributes attributes{};
    std::memcpy(&attributes, graph_->attributes_of(node).data(), sizeof attributes);
    kernel = computing_kernel(static_cast<uint32_t>(attributes.target));
  }
  const auto inputs = graph_->inputs_of(node);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const uint32_t value = inputs[i];
    if (value == kNone || place(value) == ValueKind::kDevice) continue;
    const bool reads = what == DVT_HOST_INFER_SHAPE ? reads_on_host(kernel, i) || !dynamic(value)
                                                    : !shape_only(kernel, i);
    if (!reads) continue;
    const uint32_t memory = memory_of(value);
    std::span<const uint32_t> roots(&memory, 1);
    if (!dynamic(value) && facts_.roots_of(value).size() > 1) roots = facts_.roots_of(value);
    for (const uint32_t root : roots) {
      const Copy& copy = copies_[root];
      if (!copy.writes || !pending(copy)) continue;
      return at(node, "value %s is read before a SyncStream of stream %u",
                describe_value(view_, value).c_str(), copy.stream);
    }
  }
  return {};
}

Status DynamicValues::device_node(uint32_t node) {
  const auto inputs = graph_->inputs_of(node);
  const auto outputs = graph_->outputs_of(node);
  const DvtDeviceNode what = device_kinds_[graph_->kernel[node]];
  const auto is_dynamic = [&](uint32_t value) { return dynamic(value); };
  const bool any = std::any_of(inputs.begin(), inputs.end(), is_dynamic) ||
                   std::any_of(outputs.begin(), outputs.end(), is_dynamic);
  if (what == DVT_NODE_SYNC_STREAM) join_stream(node);
  if (what == DVT_NODE_COPY_D2H && outputs.size() == 1 && !dynamic(outputs[0])) {
    if (Status s = note_copy(node, outputs[0], true); !s.ok()) return s;
    if (result_of_body(outputs[0])) set(outputs[0], State::kFilled, outputs[0]);
  }
  if (!any) return {};
  switch (what) {
    case DVT_NODE_ALLOC:
      return outputs.size() == 1 ? give_memory(node, outputs[0]) : at(node, "needs one value");
    case DVT_NODE_FREE:
      if (inputs.size() != 1 || !own(inputs[0]) || root(inputs[0]) != inputs[0] ||
          state_[inputs[0]] < State::kReserved || state_[inputs[0]] == State::kFreed) {
        return at(node, "its value has no memory of its own");
      }
      state_[inputs[0]] = State::kFreed;
      return {};
    case DVT_NODE_COPY_H2D: {
      if (graph_->role != GraphRole::kMain) return at(node, "only Main copies dynamic values");
      if (inputs.size() != 2 || inputs[0] == kNone || inputs[1] == kNone) {
        return at(node, "needs two values");
      }
      if (dynamic(inputs[0])) {
        if (Status s = read_data(node, inputs[0]); !s.ok()) return s;
      }
      if (Status s = note_copy(node, inputs[0], false); !s.ok()) return s;
      return dynamic(inputs[1]) ? fill(node, inputs[1]) : Status();
    }
    case DVT_NODE_COPY_D2H: {
      if (graph_->role != GraphRole::kMain) return at(node, "only Main copies dynamic values");
      if (inputs.size() != 1 || outputs.size() != 1 || inputs[0] == kNone) {
        return at(node, "needs two values");
      }
      if (dynamic(inputs[0])) {
        if (Status s = read_data(node, inputs[0]); !s.ok()) return s;
      }
      if (!dynamic(outputs[0])) return {};
      if (Status s = note_copy(node, outputs[0], true); !s.ok()) return s;
      return fill(node, outputs[0]);
    }
    default:
      return at(node, "does not take dynamic values");
  }
}

}  // namespace davit::exec::verify
