// If and Loop as nodes that run bodies (exec/dynamic.h). See lower_dynamic.hpp.
#include <algorithm>
#include <set>

#include "lowering/lower_dynamic.hpp"

namespace davit::lowering {
namespace {

using image::ValueKind;

ir::GraphId body_of(const ir::Module& module, ir::NodeId node, std::string_view attribute) {
  const ir::AttributeValue* value = module.attribute(node, attribute);
  const auto* graph = value == nullptr ? nullptr : std::get_if<ir::GraphId>(value);
  return graph == nullptr ? ir::kNoGraph : *graph;
}

}  // namespace

// What the bodies use of the values around them becomes an input of the node that runs them.
void DynamicLowering::add_captures(const std::vector<uint32_t>& bodies, image::Node& node) const {
  const image::ImageModel& model = const_cast<ModelBuilder&>(builder_).model();
  std::set<uint32_t> known(node.inputs.begin(), node.inputs.end());
  known.insert(node.outputs.begin(), node.outputs.end());
  for (const uint32_t body : bodies) {
    std::set<uint32_t> written;
    for (const image::Node& inner : model.graphs[body].nodes) {
      written.insert(inner.outputs.begin(), inner.outputs.end());
    }
    for (const image::Node& inner : model.graphs[body].nodes) {
      for (const uint32_t value : inner.inputs) {
        if (value == image::kNone || written.contains(value)) continue;
        if (model.values[value].kind == ValueKind::kConstant) continue;
        if (known.insert(value).second) node.inputs.push_back(value);
      }
    }
  }
}

// The heap value of a result; one without a name when nobody uses it.
Result<uint32_t> DynamicLowering::result_value(ir::ValueId outer, ir::ValueId inner) {
  if (outer != ir::kNoValue) return operand(outer);
  return add_typed(ValueKind::kHeap, module_.dtype(inner), 0, true);
}

Status DynamicLowering::emit_if(Scope& scope, Item& item) {
  const ir::GraphId branches[] = {body_of(module_, item.node, "then_branch"),
                                  body_of(module_, item.node, "else_branch")};
  image::Node node = host_node(DVT_HOST_IF, item);
  node.op = module_.op_label(item.node);
  auto condition = operand(module_.inputs(item.node)[0]);
  if (!condition.ok()) return std::move(condition.status());
  node.inputs = {*condition};
  std::vector<uint32_t> unused;
  const auto outputs = module_.outputs(item.node);
  const auto results = module_.graph_outputs(branches[0]);
  for (size_t k = 0; k < results.size(); ++k) {
    const ir::ValueId outer = k < outputs.size() ? outputs[k] : ir::kNoValue;
    auto value = result_value(outer, results[k]);
    if (!value.ok()) return std::move(value.status());
    node.outputs.push_back(*value);
    if (outer == ir::kNoValue) unused.push_back(*value);
  }
  for (const ir::GraphId branch : branches) {
    auto body = lower_body(branch, node.outputs, {});
    if (!body.ok()) return std::move(body.status());
    node.bodies.push_back(*body);
  }
  add_runner(scope, item, std::move(node), std::move(unused));
  return {};
}

// The node that runs bodies, and a Free of the results that nobody reads.
void DynamicLowering::add_runner(Scope& scope, Item& item, image::Node node,
                                 std::vector<uint32_t> unused) {
  add_captures(node.bodies, node);
  scope.graph.nodes.push_back(std::move(node));
  note_reads(scope, item, uint32_t(scope.graph.nodes.size() - 1));
  if (unused.empty()) return;
  image::Node free = host_node(DVT_HOST_FREE, item);
  free.inputs = std::move(unused);
  scope.graph.nodes.push_back(std::move(free));
}

// Iteration number or condition of a loop body: one planned element.
Result<uint32_t> DynamicLowering::loop_parameter(ir::ValueId value, uint64_t position) {
  const auto tensor = tensor_of(module_, value);
  const DvtDType dtype = module_.dtype(value);
  if (tensor.ok() && tensor->bytes != dvt_dtype_size(dtype)) {
    return Status(ErrorDetail{.code = DVT_UNSUPPORTED,
                              .stage = DVT_STAGE_LOWER,
                              .message = "iteration and condition of a loop have one element",
                              .tensor = std::string(module_.value_name(value))});
  }
  intervals_.push_back({position, position + 1, dvt_dtype_size(dtype)});
  const uint64_t place = intervals_.size() - 1;
  if (tensor.ok()) return builder_.add_value(ValueKind::kPlanned, value, place);
  return add_typed(ValueKind::kPlanned, dtype, place, false);
}

// The operands are listed in exec/dynamic.h.
Status DynamicLowering::emit_loop(Scope& scope, Item& item) {
  const ir::GraphId body = body_of(module_, item.node, "body");
  const auto parameters = module_.graph_inputs(body);
  const auto results = module_.graph_outputs(body);
  const auto inputs = module_.inputs(item.node);
  const auto outputs = module_.outputs(item.node);
  const size_t states = parameters.size() - 2;
  const size_t collected = results.size() - 1 - states;
  image::Node node = host_node(DVT_HOST_LOOP, item);
  node.op = module_.op_label(item.node);
  node.attributes = ops::attribute_bytes(
      DvtLoopAttributes{.states = int64_t(states), .collected = int64_t(collected)});
  for (size_t i = 0; i < 2 + states; ++i) {
    auto value = operand(i < inputs.size() ? inputs[i] : ir::kNoValue);
    if (!value.ok()) return std::move(value.status());
    node.inputs.push_back(*value);
  }
  std::vector<uint32_t> unused;
  for (size_t k = 0; k < states + collected; ++k) {
    const ir::ValueId outer = k < outputs.size() ? outputs[k] : ir::kNoValue;
    auto value = result_value(outer, results[1 + k]);
    if (!value.ok()) return std::move(value.status());
    node.outputs.push_back(*value);
    if (outer == ir::kNoValue) unused.push_back(*value);
  }
  // Views of iteration and condition refer to memory; planned memory is nothing to refer to.
  Copies copies;
  for (size_t i = 0; i < parameters.size(); ++i) {
    auto value = i < 2 ? loop_parameter(parameters[i], position_) : operand(parameters[i]);
    if (!value.ok()) return std::move(value.status());
    if (i < 2 && is_heap(parameters[i])) {
      copies.emplace_back(parameters[i], *value);
    } else {
      image_value_[index_of(parameters[i])] = *value;
    }
    node.outputs.push_back(*value);
  }
  auto go_on = loop_parameter(results[0], position_);
  if (!go_on.ok()) return std::move(go_on.status());
  std::vector<uint32_t> body_results = {*go_on};
  for (size_t k = 1; k < results.size(); ++k) {
    body_results.push_back(add_typed(ValueKind::kHeap, module_.dtype(results[k]), 0, true));
  }
  node.outputs.insert(node.outputs.end(), body_results.begin(), body_results.end());
  auto lowered = lower_body(body, body_results, copies);
  if (!lowered.ok()) return std::move(lowered.status());
  node.bodies = {*lowered};
  add_runner(scope, item, std::move(node), std::move(unused));
  return {};
}

}  // namespace davit::lowering
