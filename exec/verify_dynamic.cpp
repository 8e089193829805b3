// Stage 6b of the verifier: values whose shape is set at run time, and nodes that run bodies.
//
//   A dynamic value goes through these states, in the stored order of its graph:
//
//     none -> shaped ---> allocated -> filled -> freed      AllocHost, the target, FreeHost
//        \-> bounded ---> reserved --/                      the same, with upper bounds until then
//            shaped -----------------> filled               ReferTo: memory of its input
//     none --------------------------> filled               a result of If or Loop
//
//   A node with dynamic operands is the target of one InferShape before it, which has the same
//   operands; so its kernel's check() has seen the final shapes when it runs.
//   Data is read of filled values only; a shape may be read once it is final.
//   A graph frees the heap values that it allocated, but for the results of a body: these are
//   filled at its end, with memory of their own. The leading shape_nodes of Main depend on input
//   shapes alone, so that they need not run again while those stay the same.
//
// Bodies come after their parents; what a parent hands to a body is filled when the body runs.
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>

#include "exec/dynamic.h"
#include "exec/layout.hpp"
#include "exec/verify_internal.hpp"

namespace davit::exec::verify {
namespace {

enum class State : uint8_t { kNone, kBounded, kShaped, kReserved, kAllocated, kFilled, kFreed };

class DynamicValues {
 public:
  DynamicValues(const ImageView& view, const FlowFacts& facts)
      : view_(view),
        facts_(facts),
        kinds_(host_nodes(view)),
        device_kinds_(device_nodes(view)),
        copies_(view.values.count),
        joined_at_(view.stream_count, 0),
        state_(view.values.count, State::kNone),
        graph_of_(view.values.count, kNone),
        root_(view.values.count, kNone) {}

  Status run() {
    for (const uint32_t graph : facts_.graph_order) {
      if (Status s = scan(graph); !s.ok()) return s;
    }
    return {};
  }

 private:
  // The last copy from or to a value's memory on the host, which runs some time after its node.
  struct Copy {
    uint32_t stream = kNone;
    uint32_t time = 0;
    bool writes = false;
  };

  [[nodiscard]] DvtHostNode kind(uint32_t node) const { return kinds_[graph_->kernel[node]]; }
  [[nodiscard]] bool dynamic(uint32_t value) const {
    return value != kNone && view_.is_dynamic(value);
  }
  [[nodiscard]] ValueKind place(uint32_t value) const { return view_.values.kind[value]; }
  // Written by a node of this graph; else it comes from outside, filled.
  [[nodiscard]] bool own(uint32_t value) const { return graph_of_[value] == index_; }
  [[nodiscard]] State state(uint32_t value) const {
    if (own(value)) return state_[value];
    // What this graph is still to write. Else it is an input, or handed to a body. Init hands
    // nothing on: all it allocates it frees.
    const bool fresh = result_of_body(value) || facts_.values[value].home == index_;
    const bool given = place(value) == ValueKind::kInput || graph_->role == GraphRole::kBody;
    return given && !fresh ? State::kFilled : State::kNone;
  }
  [[nodiscard]] uint32_t root(uint32_t value) const { return own(value) ? root_[value] : value; }
  [[nodiscard]] bool result_of_body(uint32_t value) const {
    return value < result_mark_.size() && result_mark_[value] == index_;
  }
  void set(uint32_t value, State state, uint32_t root) {
    state_[value] = state;
    graph_of_[value] = index_;
    root_[value] = root;
  }
  // The kernel whose infer() and check() hold for a node.
  [[nodiscard]] uint32_t computing_kernel(uint32_t node) const {
    const uint32_t device_kernel = graph_->device_kernel_of(node);
    return device_kernel == kNone ? graph_->kernel[node] : device_kernel;
  }
  [[nodiscard]] uint32_t flags(uint32_t kernel) const { return view_.kernel_refs[kernel].flags; }
  [[nodiscard]] bool shape_only(uint32_t kernel, size_t input) const {
    return (flags(kernel) & DVT_KERNEL_SHAPE_ONLY) != 0 && !reads_on_host(kernel, input);
  }
  [[nodiscard]] bool reads_on_host(uint32_t kernel, size_t input) const {
    return !view_.kernels.empty() && input < 32 &&
           (view_.kernels[kernel]->host_inputs >> input & 1) != 0;
  }

  [[gnu::format(printf, 3, 4)]] Status at(uint32_t node, const char* format, ...) const;
  Status read_shape(uint32_t node, uint32_t value) const;
  Status read_data(uint32_t node, uint32_t value) const;
  Status scan(uint32_t graph);
  Status visit(uint32_t node);
  Status check_node(uint32_t node, DvtHostNode what, bool computes);
  Status infer_shape(uint32_t node);
  Status match_operands(uint32_t node, uint32_t target) const;
  Status allocate(uint32_t node);
  Status bind_output(uint32_t node);
  Status refer(uint32_t node);
  Status release(uint32_t node);
  Status compute(uint32_t node);
  Status copy_shape(uint32_t node);
  Status device_node(uint32_t node);
  Status give_memory(uint32_t node, uint32_t value);
  Status fill(uint32_t node, uint32_t value);
  Status note_copy(uint32_t node, uint32_t host_value, bool writes);
  void join_stream(uint32_t node);
  Status check_joined(uint32_t node) const;
  // A copy that may not have run yet.
  [[nodiscard]] bool pending(const Copy& copy) const {
    return copy.stream != kNone && joined_at_[copy.stream] <= copy.time;
  }
  // Whose memory a value on the host has.
  [[nodiscard]] uint32_t memory_of(uint32_t value) const {
    if (dynamic(value)) return root(value);
    const uint32_t memory = facts_.values[value].root;
    return memory == kNone ? value : memory;
  }
  Status branch(uint32_t node);
  Status write_result(uint32_t node, uint32_t value, State to);
  Status loop(uint32_t node);
  Status loop_value(uint32_t node, uint32_t value, DvtDType dtype, bool heap) const;
  Status check_planned(uint32_t node) const;
  Status check_prefix(uint32_t node) const;
  Status begin_body(uint32_t graph);
  Status finish() const;

  const ImageView& view_;
  const FlowFacts& facts_;
  const std::vector<DvtHostNode> kinds_;           // Per kernel of the image.
  const std::vector<DvtDeviceNode> device_kinds_;  // The same.
  std::vector<Copy> copies_;                       // Per value.
  std::vector<uint32_t> joined_at_;                // Per stream: the time of its last SyncStream.
  uint32_t time_ = 0;                              // Counts the nodes that were visited.
  std::vector<State> state_;                       // Per value, in the graph that wrote it last.
  std::vector<uint32_t> graph_of_;                 // Per value: that graph.
  std::vector<uint32_t> root_;                     // Per value: whose memory it uses.
  std::vector<uint32_t> result_mark_;  // Per value, only with bodies: the body it is a result of.
  // Per body: the node that runs it.
  std::vector<uint32_t> runner_graph_, runner_node_;
  // Of the graph that is scanned.
  uint32_t index_ = 0;
  const GraphView* graph_ = nullptr;
  std::vector<uint32_t> shaper_;  // Per node: the InferShape whose target it is.
};

Status DynamicValues::at(uint32_t node, const char* format, ...) const {
  char text[320];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return broken("graphs[%u] node %u (%s): %s", index_, node,
                view_.kernel_refs[graph_->kernel[node]].name, text);
}

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

// ---- Device nodes with dynamic operands --------------------------------------------------------

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
    const Copy& copy = copies_[memory_of(value)];
    if (!copy.writes || !pending(copy)) continue;
    return at(node, "value %s is read before a SyncStream of stream %u",
              describe_value(view_, value).c_str(), copy.stream);
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

Status DynamicValues::compute(uint32_t node) {
  const uint32_t kernel = computing_kernel(node);
  if ((flags(kernel) & DVT_KERNEL_ALIAS) != 0) {
    return at(node, "an alias kernel computes nothing: only a ReferTo may have it");
  }
  bool any = false;
  const auto inputs = graph_->inputs_of(node);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const uint32_t value = inputs[i];
    // What a kernel reads on the host steers it: it must have been checked, unless it is constant.
    any =
        any || (value != kNone && reads_on_host(kernel, i) && place(value) != ValueKind::kConstant);
    if (!dynamic(value)) continue;
    any = true;
    Status s = shape_only(kernel, i) ? read_shape(node, value) : read_data(node, value);
    if (!s.ok()) return s;
  }
  const bool sets_shapes = (flags(kernel) & DVT_KERNEL_SHAPES_OUTPUTS) != 0;
  if (sets_shapes && graph_->device_kernel_of(node) != kNone) {
    return at(node, "a task runs too late to set shapes");
  }
  for (const uint32_t value : graph_->outputs_of(node)) {
    if (!dynamic(value)) {
      if (sets_shapes) {
        return at(node, "sets the shape of value %s, which is static",
                  describe_value(view_, value).c_str());
      }
      if (result_of_body(value)) set(value, State::kFilled, value);
      continue;
    }
    any = true;
    const State s = state(value);
    if (s != State::kAllocated && s != State::kReserved) {
      return at(node, "value %s has no memory here", describe_value(view_, value).c_str());
    }
    state_[value] = State::kFilled;
  }
  if (any && shaper_[node] == kNone) return at(node, "no InferShape has it as its target");
  return {};
}

// Of If or Loop: shape, memory and data at once.
Status DynamicValues::write_result(uint32_t node, uint32_t value, State to) {
  if (state(value) != State::kNone) {
    return at(node, "value %s has a shape already", describe_value(view_, value).c_str());
  }
  set(value, to, value);
  return {};
}

Status DynamicValues::branch(uint32_t node) {
  const auto inputs = graph_->inputs_of(node);
  if (graph_->bodies_of(node).size() != 2) return at(node, "needs two bodies");
  if (inputs.empty() || inputs[0] == kNone || view_.tensor_of(inputs[0]) == nullptr ||
      view_.tensor_of(inputs[0])->dtype != DVT_BOOL) {
    return at(node, "its condition is no bool tensor");
  }
  for (const uint32_t value : graph_->outputs_of(node)) {
    if (place(value) != ValueKind::kHeap) return at(node, "its results must be heap values");
    if (Status s = write_result(node, value, State::kFilled); !s.ok()) return s;
  }
  return {};
}

Status DynamicValues::loop_value(uint32_t node, uint32_t value, DvtDType dtype, bool heap) const {
  const DvtTensor* tensor = value == kNone ? nullptr : view_.tensor_of(value);
  const bool fits = tensor != nullptr && tensor->dtype == dtype &&
                    (heap ? place(value) == ValueKind::kHeap
                          : place(value) == ValueKind::kPlanned && tensor->bytes > 0);
  if (fits) return {};
  return at(node, "value %s is not of the kind and element type that a loop needs there",
            value == kNone ? "_" : describe_value(view_, value).c_str());
}

Status DynamicValues::loop(uint32_t node) {
  DvtLoopAttributes counts{};
  if (graph_->attributes_of(node).size() == sizeof counts) {
    std::memcpy(&counts, graph_->attributes_of(node).data(), sizeof counts);
  }
  const auto inputs = graph_->inputs_of(node);
  const auto outputs = graph_->outputs_of(node);
  if (counts.states < 0 || counts.states > UINT16_MAX || counts.collected < 0 ||
      counts.collected > UINT16_MAX || dvt_loop_outputs(&counts) != int64_t(outputs.size()) ||
      inputs.size() < size_t(DVT_LOOP_STATES + counts.states)) {
    return at(node, "its counts of states and collected results do not fit its operands");
  }
  if (graph_->bodies_of(node).size() != 1) return at(node, "needs one body");
  constexpr DvtDType kTypes[] = {DVT_I64, DVT_BOOL};
  for (const int i : {DVT_LOOP_TRIP, DVT_LOOP_CONDITION}) {
    if (inputs[i] == kNone) continue;
    const DvtTensor* tensor = view_.tensor_of(inputs[i]);
    if (tensor == nullptr || tensor->dtype != kTypes[i]) {
      return at(node, "input %d is not of the element type that a loop needs", i);
    }
  }
  const int64_t parameters = dvt_loop_parameters(&counts);
  const int64_t results = dvt_loop_results(&counts);
  if (Status s = loop_value(node, outputs[parameters], DVT_I64, false); !s.ok()) return s;
  if (Status s = loop_value(node, outputs[parameters + 1], DVT_BOOL, false); !s.ok()) return s;
  if (Status s = loop_value(node, outputs[results], DVT_BOOL, false); !s.ok()) return s;
  for (int64_t i = 0; i < counts.states; ++i) {
    const uint32_t initial = inputs[DVT_LOOP_STATES + i];
    if (initial == kNone || view_.tensor_of(initial) == nullptr) {
      return at(node, "initial state %lld is absent", static_cast<long long>(i));
    }
    const DvtDType dtype = view_.tensor_of(initial)->dtype;
    for (const int64_t k : {i, parameters + 2 + i, results + 1 + i}) {
      if (Status s = loop_value(node, outputs[k], dtype, true); !s.ok()) return s;
    }
  }
  for (int64_t j = 0; j < counts.collected; ++j) {
    const uint32_t one = outputs[results + 1 + counts.states + j];
    const DvtTensor* tensor = view_.tensor_of(one);
    const DvtDType dtype = tensor == nullptr ? DvtDType{DVT_DTYPE_NONE} : tensor->dtype;
    for (const int64_t k : {counts.states + j, results + 1 + counts.states + j}) {
      if (Status s = loop_value(node, outputs[k], dtype, true); !s.ok()) return s;
    }
  }
  for (size_t k = 0; k < outputs.size(); ++k) {
    // What the loop and its body use is gone when it ends, and never was if there is no iteration.
    const State to = int64_t(k) < parameters ? State::kFilled : State::kFreed;
    if (Status s = write_result(node, outputs[k], to); !s.ok()) return s;
  }
  return {};
}

// Planned values of a loop: its iteration number and conditions.
Status DynamicValues::check_planned(uint32_t node) const {
  for (const uint32_t value : graph_->inputs_of(node)) {
    if (value == kNone || place(value) != ValueKind::kPlanned) continue;
    const uint32_t memory = facts_.values[value].root;
    if (memory == kNone || state_[memory] != State::kFreed) continue;
    if (graph_->role == GraphRole::kBody && !own(memory)) continue;  // Handed to the body.
    return at(node, "value %s has no data here", describe_value(view_, value).c_str());
  }
  return {};
}

// Only input shapes, constants and what follows from them.
Status DynamicValues::check_prefix(uint32_t node) const {
  const DvtHostNode what = kind(node);
  if (what == DVT_HOST_BIND_OUTPUT) return {};
  const bool infers = what == DVT_HOST_INFER_SHAPE;
  if (!infers && what != DVT_HOST_OTHER) return at(node, "is not one that shape_nodes may count");
  uint32_t kernel = graph_->kernel[node];
  if (infers) {
    // infer_shape() has seen the target.
    DvtInferShapeAttributes attributes{};
    std::memcpy(&attributes, graph_->attributes_of(node).data(), sizeof attributes);
    kernel = computing_kernel(static_cast<uint32_t>(attributes.target));
    if ((flags(kernel) & DVT_KERNEL_SHAPES_OUTPUTS) != 0) {
      return at(node, "is among shape_nodes, but the shape depends on data");
    }
  } else if ((flags(kernel) & DVT_KERNEL_PURE) == 0) {
    return at(node, "is among shape_nodes, but its kernel is not pure");
  }
  const auto inputs = graph_->inputs_of(node);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const uint32_t value = inputs[i];
    if (value == kNone) continue;
    const bool no_data =
        infers ? !reads_on_host(kernel, i) && dynamic(value) : shape_only(kernel, i);
    const ValueKind from = place(value);
    if (no_data || from == ValueKind::kConstant || from == ValueKind::kPlanned) continue;
    return at(node, "is among shape_nodes, but reads the data of value %s",
              describe_value(view_, value).c_str());
  }
  for (const uint32_t value : graph_->outputs_of(node)) {
    if (infers || place(value) == ValueKind::kPlanned) continue;
    return at(node, "is among shape_nodes, but writes value %s",
              describe_value(view_, value).c_str());
  }
  return {};
}

Status DynamicValues::visit(uint32_t node) {
  const DvtHostNode what = kind(node);
  if (what == DVT_HOST_IF || what == DVT_HOST_LOOP) {
    for (const uint32_t value : graph_->inputs_of(node)) {
      if (!dynamic(value)) continue;
      if (Status s = read_data(node, value); !s.ok()) return s;
    }
  }
  if (Status s = check_planned(node); !s.ok()) return s;
  ++time_;
  const DvtDeviceNode device = device_kinds_[graph_->kernel[node]];
  const bool computes = device == DVT_NODE_OTHER || device == DVT_NODE_LAUNCH;
  Status status = check_node(node, what, computes);
  if (status.ok() && computes) status = check_joined(node);
  return status;
}

Status DynamicValues::check_node(uint32_t node, DvtHostNode what, bool computes) {
  switch (what) {
    case DVT_HOST_INFER_SHAPE:
      return infer_shape(node);
    case DVT_HOST_ALLOC:
      return allocate(node);
    case DVT_HOST_FREE:
      return release(node);
    case DVT_HOST_REFER_TO:
      return refer(node);
    case DVT_HOST_BIND_OUTPUT:
      return bind_output(node);
    case DVT_HOST_IF:
      return branch(node);
    case DVT_HOST_LOOP:
      return loop(node);
    case DVT_HOST_COPY_SHAPE:
      return copy_shape(node);
    case DVT_HOST_OTHER:
      break;
  }
  return computes ? compute(node) : device_node(node);
}

// Dataflow has proved that each body has one runner.
Status DynamicValues::begin_body(uint32_t graph) {
  const GraphView& parent = view_.graphs[runner_graph_[graph]];
  const uint32_t node = runner_node_[graph];
  const auto outputs = parent.outputs_of(node);
  size_t first = 0;
  if (kinds_[parent.kernel[node]] == DVT_HOST_LOOP) {
    DvtLoopAttributes counts;  // loop() has checked it.
    std::memcpy(&counts, parent.attributes_of(node).data(), sizeof counts);
    first = size_t(dvt_loop_results(&counts));
  }
  for (size_t k = first; k < outputs.size(); ++k) result_mark_[outputs[k]] = graph;
  return {};
}

Status DynamicValues::finish() const {
  for (uint32_t node = 0; node < graph_->node_count; ++node) {
    const DvtHostNode what = kind(node);
    if (what != DVT_HOST_ALLOC && what != DVT_HOST_IF && what != DVT_HOST_LOOP) continue;
    for (const uint32_t value : graph_->outputs_of(node)) {
      const bool held =
          dynamic(value) && own(value) && root_[value] == value && state_[value] != State::kFreed;
      if (held && !result_of_body(value)) {
        return at(node, "value %s is not freed", describe_value(view_, value).c_str());
      }
    }
  }
  if (graph_->role == GraphRole::kMain) {
    for (uint32_t i = 0; i < view_.outputs.size(); ++i) {
      const uint32_t value = view_.outputs[i].value;
      if (dynamic(value) && state(value) != State::kFilled) {
        return broken("outputs[%u]: its value is never filled", i);
      }
    }
    return {};
  }
  if (graph_->role != GraphRole::kBody) return {};
  const GraphView& parent = view_.graphs[runner_graph_[index_]];
  for (const uint32_t value : parent.outputs_of(runner_node_[index_])) {
    if (!result_of_body(value)) continue;
    if (own(value) && state_[value] == State::kFilled && root_[value] == value) continue;
    return broken("graphs[%u]: result %s is not filled at the end, with memory of its own", index_,
                  describe_value(view_, value).c_str());
  }
  return {};
}

Status DynamicValues::scan(uint32_t graph) {
  index_ = graph;
  graph_ = &view_.graphs[graph];
  shaper_.assign(graph_->node_count, kNone);
  if (graph_->role == GraphRole::kBody) {
    if (Status s = begin_body(graph); !s.ok()) return s;
  }
  for (uint32_t node = 0; node < graph_->node_count; ++node) {
    if (Status s = visit(node); !s.ok()) return s;
    if (node < graph_->shape_nodes) {
      if (Status s = check_prefix(node); !s.ok()) return s;
    }
    for (const uint32_t body : graph_->bodies_of(node)) {
      if (runner_graph_.empty()) {
        result_mark_.assign(view_.values.count, kNone);
        runner_graph_.assign(view_.graphs.size(), kNone);
        runner_node_.assign(view_.graphs.size(), kNone);
      }
      runner_graph_[body] = graph;
      runner_node_[body] = node;
    }
  }
  return finish();
}

// Nothing is dynamic, no node runs bodies, no kernel is steered by data or needs dynamic outputs,
// and every node of Main runs each time.
bool is_plain(const ImageView& view) {
  if (view.has_dynamic_descs || view.graphs[view.main].shape_nodes != 0) return false;
  const auto kinds = host_nodes(view);
  if (std::any_of(kinds.begin(), kinds.end(),
                  [](DvtHostNode kind) { return kind != DVT_HOST_OTHER; })) {
    return false;
  }
  constexpr uint32_t kNeedsDynamic = DVT_KERNEL_SHAPES_OUTPUTS | DVT_KERNEL_ALIAS;
  if (std::any_of(view.kernel_refs.begin(), view.kernel_refs.end(),
                  [](const KernelRefView& ref) { return (ref.flags & kNeedsDynamic) != 0; })) {
    return false;
  }
  return std::none_of(view.kernels.begin(), view.kernels.end(),
                      [](const DvtKernel* kernel) { return kernel->host_inputs != 0; });
}

}  // namespace

Status check_dynamic_values(const ImageView& view, const FlowFacts& facts) {
  if (is_plain(view)) return {};
  return DynamicValues(view, facts).run();
}

}  // namespace davit::exec::verify
