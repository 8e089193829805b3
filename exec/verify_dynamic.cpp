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
#include "exec/verify_dynamic.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>

namespace davit::exec::verify {

Status DynamicValues::at(uint32_t node, const char* format, ...) const {
  char text[320];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return broken("graphs[%u] node %u (%s): %s", index_, node,
                view_.kernel_refs[graph_->kernel[node]].name, text);
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

// Planned values of a loop: its iteration number and conditions.
Status DynamicValues::check_planned(uint32_t node) const {
  for (const uint32_t value : graph_->inputs_of(node)) {
    if (value == kNone || place(value) != ValueKind::kPlanned) continue;
    for (const uint32_t memory : facts_.roots_of(value)) {
      if (memory == kNone || state_[memory] != State::kFreed) continue;
      if (graph_->role == GraphRole::kBody && !own(memory)) continue;  // Handed to the body.
      return at(node, "value %s has no data here", describe_value(view_, value).c_str());
    }
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
    case DVT_HOST_SELECT_GEAR:
      return select_gear(node);
    case DVT_HOST_OTHER:
      break;
  }
  return computes ? compute(node) : device_node(node);
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

namespace {

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
