#include "ir/module.hpp"

#include <algorithm>
#include <cassert>
#include <unordered_set>

namespace davit::ir {
namespace {

template <class T>
void sort_unique(std::vector<T>& items) {
  std::sort(items.begin(), items.end());
  items.erase(std::unique(items.begin(), items.end()), items.end());
}

}  // namespace

Module::Module() {
  graphs_.push_back({true, intern(""), kNoGraph, kNoNode, {}, {}, {}});
}

uint32_t Module::intern(std::string_view text) {
  const auto found = string_index_.find(text);
  if (found != string_index_.end()) return found->second;
  const auto id = uint32_t(strings_.size());
  strings_.emplace_back(text);
  string_index_.emplace(text, id);
  return id;
}

SymbolId Module::intern_symbol(std::string_view name) {
  const uint32_t text = intern(name);
  const auto [entry, added] =
      symbol_of_name_.try_emplace(text, SymbolId(uint32_t(symbols_.size())));
  if (added) symbols_.push_back(text);
  return entry->second;
}

std::string_view Module::symbol_name(SymbolId id) const {
  return strings_[symbols_[index_of(id)]];
}

// ---- Graphs ----------------------------------------------------------------------------------

GraphId Module::add_graph(std::string_view name, GraphId parent, NodeId owner) {
  graphs_.push_back({true, intern(name), parent, owner, {}, {}, {}});
  return GraphId(uint32_t(graphs_.size() - 1));
}

bool Module::graph_alive(GraphId graph) const {
  return graphs_[index_of(graph)].alive;
}

std::string_view Module::graph_name(GraphId graph) const {
  return strings_[graphs_[index_of(graph)].name];
}

void Module::set_graph_name(GraphId graph, std::string_view name) {
  graphs_[index_of(graph)].name = intern(name);
}

std::string Module::graph_path(GraphId graph) const {
  const NodeId owner = graph_owner(graph);
  if (owner == kNoNode) return {};
  return node_path(owner) + "." + std::string(graph_name(graph));
}

bool Module::encloses(GraphId outer, GraphId graph) const {
  while (graph != kNoGraph && graph != outer) graph = graph_parent(graph);
  return graph == outer;
}

GraphId Module::graph_parent(GraphId graph) const {
  return graphs_[index_of(graph)].parent;
}

NodeId Module::graph_owner(GraphId graph) const {
  return graphs_[index_of(graph)].owner;
}

std::span<const NodeId> Module::graph_nodes(GraphId graph) const {
  return graphs_[index_of(graph)].nodes;
}

std::span<const ValueId> Module::graph_inputs(GraphId graph) const {
  return graphs_[index_of(graph)].inputs;
}

std::span<const ValueId> Module::graph_outputs(GraphId graph) const {
  return graphs_[index_of(graph)].outputs;
}

void Module::add_graph_input(GraphId graph, ValueId value) {
  graphs_[index_of(graph)].inputs.push_back(value);
  value_is_input_[index_of(value)] = 1;
}

void Module::remove_graph_input(GraphId graph, ValueId value) {
  std::erase(graphs_[index_of(graph)].inputs, value);
  value_is_input_[index_of(value)] = 0;
}

void Module::set_graph_outputs(GraphId graph, std::vector<ValueId> values) {
  std::vector<ValueId>& outputs = graphs_[index_of(graph)].outputs;
  for (const ValueId value : outputs) --value_output_count_[index_of(value)];
  outputs = std::move(values);
  for (const ValueId value : outputs) ++value_output_count_[index_of(value)];
}

std::vector<ValueId> Module::inline_graph(GraphId graph) {
  GraphRecord& from = graphs_[index_of(graph)];
  const GraphId parent = from.parent;
  assert(from.inputs.empty() && parent != kNoGraph);
  const std::string prefix = local_name(from.owner) + "." + std::string(graph_name(graph)) + "/";
  std::unordered_set<uint32_t> taken;
  for (uint32_t v = 0; v < value_count(); ++v) {
    if (value_alive_[v] != 0 && value_graph_[v] == parent) taken.insert(value_name_[v]);
  }
  for (uint32_t v = 0; v < value_count(); ++v) {
    if (value_alive_[v] == 0 || value_graph_[v] != graph) continue;
    value_graph_[v] = parent;
    while (!taken.insert(value_name_[v]).second) {
      value_name_[v] = intern(prefix + strings_[value_name_[v]]);
    }
  }
  std::vector<NodeId>& siblings = graphs_[index_of(parent)].nodes;
  siblings.insert(std::find(siblings.begin(), siblings.end(), from.owner), from.nodes.begin(),
                  from.nodes.end());
  for (const NodeId node : from.nodes) {
    node_name_[index_of(node)] = intern(prefix + local_name(node));
    node_graph_[index_of(node)] = parent;
    for (const GraphId nested : nested_graphs(node)) graphs_[index_of(nested)].parent = parent;
  }
  std::vector<ValueId> outputs = from.outputs;
  set_graph_outputs(graph, {});
  std::erase_if(node_attributes_[index_of(from.owner)], [&](const Attribute& attribute) {
    const auto* named = std::get_if<GraphId>(&attribute.value);
    return named != nullptr && *named == graph;
  });
  from.nodes.clear();
  from.alive = false;
  return outputs;
}

// ---- Values ----------------------------------------------------------------------------------

ValueId Module::add_value(GraphId graph, std::string_view name) {
  value_alive_.push_back(1);
  value_name_.push_back(intern(name));
  value_graph_.push_back(graph);
  value_dtype_.push_back(DVT_DTYPE_NONE);
  value_shape_.emplace_back();
  value_producer_.push_back(kNoNode);
  value_constant_.push_back(kNone);
  value_uses_.emplace_back();
  value_is_input_.push_back(0);
  value_output_count_.push_back(0);
  return ValueId(value_count() - 1);
}

ValueId Module::add_constant(GraphId graph, std::string_view name, TensorData data) {
  const ValueId value = add_value(graph, name);
  set_constant(value, std::move(data));
  return value;
}

bool Module::value_alive(ValueId value) const {
  return value_alive_[index_of(value)] != 0;
}

std::string_view Module::value_name(ValueId value) const {
  return strings_[value_name_[index_of(value)]];
}

GraphId Module::value_graph(ValueId value) const {
  return value_graph_[index_of(value)];
}

DvtDType Module::dtype(ValueId value) const {
  return value_dtype_[index_of(value)];
}

const Shape* Module::shape(ValueId value) const {
  const std::optional<Shape>& shape = value_shape_[index_of(value)];
  return shape ? &*shape : nullptr;
}

void Module::set_dtype(ValueId value, DvtDType dtype) {
  value_dtype_[index_of(value)] = dtype;
  if (dtype != DVT_DTYPE_NONE) containers_.erase(value);
}

void Module::set_shape(ValueId value, Shape shape) {
  value_shape_[index_of(value)] = std::move(shape);
}

const ContainerType* Module::container(ValueId value) const {
  const auto found = containers_.find(value);
  return found == containers_.end() ? nullptr : &found->second;
}

void Module::set_container(ValueId value, std::optional<ContainerType> type) {
  containers_.erase(value);
  if (type) containers_.emplace(value, std::move(*type));
}

const TensorData* Module::constant(ValueId value) const {
  const uint32_t at = value_constant_[index_of(value)];
  return at == kNone ? nullptr : &constants_[at];
}

void Module::set_constant(ValueId value, TensorData data) {
  const uint32_t at = index_of(value);
  if (value_producer_[at] != kNoNode) {
    const Range range = node_outputs_[index_of(value_producer_[at])];
    std::replace(operands_.begin() + range.begin, operands_.begin() + range.begin + range.count,
                 value, kNoValue);
    value_producer_[at] = kNoNode;
  }
  if (value_is_input_[at] != 0) remove_graph_input(value_graph(value), value);
  set_dtype(value, data.dtype);
  Shape shape;
  for (const int64_t dim : data.dims) shape.emplace_back(dim);
  value_shape_[at] = std::move(shape);
  if (value_constant_[at] == kNone) {
    value_constant_[at] = uint32_t(constants_.size());
    constants_.emplace_back();
  }
  constants_[value_constant_[at]] = std::move(data);
}

void Module::erase_constant(ValueId value) {
  assert(constant(value) != nullptr && value_uses_[index_of(value)].empty() &&
         !is_graph_output(value));
  drop_value(value);
}

void Module::erase_undefined(ValueId value) {
  assert(constant(value) == nullptr && producer(value) == kNoNode && !is_graph_input(value) &&
         value_uses_[index_of(value)].empty() && !is_graph_output(value));
  drop_value(value);
}

NodeId Module::producer(ValueId value) const {
  return value_producer_[index_of(value)];
}

std::vector<Module::Use> Module::uses(ValueId value) const {
  return value_uses_[index_of(value)];
}

bool Module::is_graph_output(ValueId value) const {
  return value_output_count_[index_of(value)] != 0;
}

bool Module::is_graph_input(ValueId value) const {
  return value_is_input_[index_of(value)] != 0;
}

void Module::replace_all_uses(ValueId from, ValueId to) {
  if (from == to) return;
  std::vector<Use> moved = std::move(value_uses_[index_of(from)]);
  value_uses_[index_of(from)].clear();
  std::vector<Use>& uses = value_uses_[index_of(to)];
  for (const Use use : moved) {
    operands_[node_inputs_[index_of(use.node)].begin + use.operand] = to;
    uses.push_back(use);
  }
  if (!is_graph_output(from)) return;
  for (GraphRecord& graph : graphs_) {
    std::replace(graph.outputs.begin(), graph.outputs.end(), from, to);
  }
  value_output_count_[index_of(to)] += value_output_count_[index_of(from)];
  value_output_count_[index_of(from)] = 0;
}

void Module::drop_use(ValueId value, Use use) {
  std::erase_if(value_uses_[index_of(value)], [&](const Use& other) {
    return other.node == use.node && other.operand == use.operand;
  });
}

void Module::drop_value(ValueId value) {
  const uint32_t at = index_of(value);
  value_alive_[at] = 0;
  value_producer_[at] = kNoNode;
  value_shape_[at].reset();
  value_uses_[at].clear();
  value_is_input_[at] = 0;
  if (value_constant_[at] != kNone) constants_[value_constant_[at]] = {};
  value_constant_[at] = kNone;
  containers_.erase(value);
}

// ---- Nodes -----------------------------------------------------------------------------------

NodeId Module::add_node(GraphId graph, NodeInit init) {
  const NodeId node{node_count()};
  node_alive_.push_back(1);
  node_domain_.push_back(intern(init.domain));
  node_op_.push_back(intern(init.op));
  node_name_.push_back(intern(init.name));
  node_graph_.push_back(graph);
  node_opset_.push_back(init.opset);
  node_inputs_.push_back({uint32_t(operands_.size()), uint32_t(init.inputs.size())});
  operands_.insert(operands_.end(), init.inputs.begin(), init.inputs.end());
  node_outputs_.push_back({uint32_t(operands_.size()), uint32_t(init.outputs.size())});
  operands_.insert(operands_.end(), init.outputs.begin(), init.outputs.end());
  node_attributes_.push_back(std::move(init.attributes));
  node_control_.emplace_back();
  for (uint32_t i = 0; i < init.inputs.size(); ++i) {
    if (init.inputs[i] != kNoValue) value_uses_[index_of(init.inputs[i])].push_back({node, i});
  }
  for (const ValueId value : init.outputs) {
    if (value != kNoValue) value_producer_[index_of(value)] = node;
  }
  graphs_[index_of(graph)].nodes.push_back(node);
  return node;
}

// Adds everything inside the subgraphs of `node`, at any depth.
void Module::collect_nested(NodeId node, std::vector<NodeId>& nodes,
                            std::vector<GraphId>& graphs) const {
  for (const GraphId graph : nested_graphs(node)) {
    graphs.push_back(graph);
    for (const NodeId inner : graph_nodes(graph)) {
      nodes.push_back(inner);
      collect_nested(inner, nodes, graphs);
    }
  }
}

void Module::erase_nodes(std::span<const NodeId> nodes) {
  std::vector<NodeId> doomed(nodes.begin(), nodes.end());
  std::vector<GraphId> dead_graphs;
  for (const NodeId node : nodes) collect_nested(node, doomed, dead_graphs);
  for (const GraphId graph : dead_graphs) set_graph_outputs(graph, {});

  std::vector<GraphId> touched;
  std::vector<ValueId> read;
  for (const NodeId node : doomed) {
    const uint32_t at = index_of(node);
    node_alive_[at] = 0;
    touched.push_back(node_graph(node));
    for (const ValueId value : inputs(node)) {
      if (value != kNoValue) read.push_back(value);
    }
    node_attributes_[at].clear();
    node_control_[at].clear();
  }
  sort_unique(read);
  for (const ValueId value : read) {
    std::erase_if(value_uses_[index_of(value)], [&](Use use) { return !node_alive(use.node); });
  }
  for (const NodeId node : doomed) {
    for (const ValueId value : outputs(node)) {
      if (value == kNoValue) continue;
      assert(value_uses_[index_of(value)].empty() && !is_graph_output(value));
      drop_value(value);
    }
    node_inputs_[index_of(node)].count = 0;
    node_outputs_[index_of(node)].count = 0;
  }
  sort_unique(touched);
  const auto is_dead = [&](NodeId node) { return !node_alive(node); };
  for (const GraphId graph : touched) {
    std::vector<NodeId>& members = graphs_[index_of(graph)].nodes;
    std::erase_if(members, is_dead);
    if (!has_control_edges_) continue;
    for (const NodeId node : members) std::erase_if(node_control_[index_of(node)], is_dead);
  }
  if (dead_graphs.empty()) return;
  for (const GraphId graph : dead_graphs) graphs_[index_of(graph)].alive = false;
  for (uint32_t i = 0; i < value_count(); ++i) {
    const ValueId value{i};
    if (value_alive(value) && !graph_alive(value_graph(value))) drop_value(value);
  }
}

bool Module::node_alive(NodeId node) const {
  return node_alive_[index_of(node)] != 0;
}

std::string_view Module::domain(NodeId node) const {
  return strings_[node_domain_[index_of(node)]];
}

std::string_view Module::op(NodeId node) const {
  return strings_[node_op_[index_of(node)]];
}

std::string_view Module::node_name(NodeId node) const {
  return strings_[node_name_[index_of(node)]];
}

GraphId Module::node_graph(NodeId node) const {
  return node_graph_[index_of(node)];
}

std::string Module::local_name(NodeId node) const {
  const std::string_view name = node_name(node);
  if (!name.empty()) return std::string(name);
  return std::string(op(node)) + "_" + std::to_string(index_of(node));
}

std::string Module::node_path(NodeId node) const {
  std::string path = graph_path(node_graph(node));
  if (!path.empty()) path += '/';
  return path + local_name(node);
}

std::string Module::op_label(NodeId node) const {
  const std::string_view domain_name = domain(node).empty() ? "ai.onnx" : domain(node);
  return std::string(domain_name) + "::" + std::string(op(node)) + "(" +
         std::to_string(opset_version(node)) + ")";
}

int64_t Module::own_opset(NodeId node) const {
  return node_opset_[index_of(node)];
}

int64_t Module::opset_version(NodeId node) const {
  if (own_opset(node) != 0) return own_opset(node);
  const auto found = opset_imports.find(std::string(domain(node)));
  return found == opset_imports.end() ? 0 : found->second;
}

std::span<const ValueId> Module::inputs(NodeId node) const {
  const Range range = node_inputs_[index_of(node)];
  return std::span(operands_).subspan(range.begin, range.count);
}

std::span<const ValueId> Module::outputs(NodeId node) const {
  const Range range = node_outputs_[index_of(node)];
  return std::span(operands_).subspan(range.begin, range.count);
}

void Module::set_input(NodeId node, uint32_t operand, ValueId value) {
  const Range range = node_inputs_[index_of(node)];
  assert(operand < range.count);
  ValueId& slot = operands_[range.begin + operand];
  if (slot != kNoValue) drop_use(slot, {node, operand});
  slot = value;
  if (value != kNoValue) value_uses_[index_of(value)].push_back({node, operand});
}

void Module::set_output(NodeId node, uint32_t index, ValueId value) {
  const Range range = node_outputs_[index_of(node)];
  assert(index < range.count);
  ValueId& slot = operands_[range.begin + index];
  if (slot != kNoValue) value_producer_[index_of(slot)] = kNoNode;
  slot = value;
  if (value == kNoValue) return;
  assert(value_producer_[index_of(value)] == kNoNode && constant(value) == nullptr);
  value_producer_[index_of(value)] = node;
}

std::span<const Attribute> Module::attributes(NodeId node) const {
  return node_attributes_[index_of(node)];
}

const AttributeValue* Module::attribute(NodeId node, std::string_view name) const {
  for (const Attribute& attribute : node_attributes_[index_of(node)]) {
    if (attribute.name == name) return &attribute.value;
  }
  return nullptr;
}

void Module::set_attribute(NodeId node, std::string_view name, AttributeValue value) {
  std::vector<Attribute>& attributes = node_attributes_[index_of(node)];
  for (Attribute& attribute : attributes) {
    if (attribute.name == name) {
      attribute.value = std::move(value);
      return;
    }
  }
  attributes.push_back({std::string(name), std::move(value)});
}

void Module::set_attributes(NodeId node, std::vector<Attribute> attributes) {
  node_attributes_[index_of(node)] = std::move(attributes);
}

std::vector<GraphId> Module::nested_graphs(NodeId node) const {
  std::vector<GraphId> out;
  for (const Attribute& attribute : attributes(node)) {
    if (const auto* one = std::get_if<GraphId>(&attribute.value)) out.push_back(*one);
    if (const auto* list = std::get_if<std::vector<GraphId>>(&attribute.value)) {
      out.insert(out.end(), list->begin(), list->end());
    }
  }
  return out;
}

void Module::add_control_edge(NodeId before, NodeId after) {
  node_control_[index_of(after)].push_back(before);
  has_control_edges_ = true;
}

std::span<const NodeId> Module::control_inputs(NodeId node) const {
  return node_control_[index_of(node)];
}

ErrorDetail Module::error_at(NodeId node, DvtCode code, DvtStage stage, std::string message) const {
  return {.code = code,
          .stage = stage,
          .message = std::move(message),
          .node = node_path(node),
          .op = op_label(node)};
}

}  // namespace davit::ir
