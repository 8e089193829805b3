// Stage 6b of the verifier: If and Loop, and what they hand to their bodies.
#include <algorithm>
#include <cstring>
#include <string>

#include "exec/verify_dynamic.hpp"

namespace davit::exec::verify {

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

// The bodies give the outputs their data; check_gears() has seen the operands.
Status DynamicValues::select_gear(uint32_t node) {
  for (const PortView& output : view_.outputs) {
    if (!dynamic(output.value)) continue;
    if (Status s = write_result(node, output.value, State::kFilled); !s.ok()) return s;
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

// Dataflow has proved that each body has one runner.
Status DynamicValues::begin_body(uint32_t graph) {
  const GraphView& parent = view_.graphs[runner_graph_[graph]];
  const uint32_t node = runner_node_[graph];
  const auto outputs = parent.outputs_of(node);
  size_t first = 0;
  size_t end = outputs.size();
  if (kinds_[parent.kernel[node]] == DVT_HOST_SELECT_GEAR) {
    const auto bodies = parent.bodies_of(node);
    const auto gear = size_t(std::find(bodies.begin(), bodies.end(), graph) - bodies.begin());
    first = view_.outputs.size() * (gear + 1);
    end = first + view_.outputs.size();
  }
  if (kinds_[parent.kernel[node]] == DVT_HOST_LOOP) {
    DvtLoopAttributes counts;  // loop() has checked it.
    std::memcpy(&counts, parent.attributes_of(node).data(), sizeof counts);
    first = size_t(dvt_loop_results(&counts));
  }
  for (size_t k = first; k < end; ++k) result_mark_[outputs[k]] = graph;
  return {};
}

}  // namespace davit::exec::verify
