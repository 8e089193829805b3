// Copies of bodies of Loop, Scan and SequenceMap.
#include <map>
#include <string>

#include "ir/passes/sequences.hpp"

namespace davit::passes {
namespace {

using ir::GraphId;
using ir::kNoValue;
using ir::NodeId;
using ir::ValueId;

class BodyCopier {
 public:
  BodyCopier(Rewriter& rewriter, std::string_view prefix)
      : rewriter_(rewriter), module_(rewriter.module()), prefix_(prefix) {}

  void bind(ValueId parameter, ValueId argument) { copies_[parameter] = argument; }

  void copy_nodes(GraphId from, GraphId to) {
    const auto listed = module_.graph_nodes(from);
    for (const NodeId node : std::vector<NodeId>(listed.begin(), listed.end())) {
      if (!rewriter_.is_struck(node)) copy_node(node, from, to);
    }
  }

  std::vector<ValueId> copies_of(std::span<const ValueId> values, GraphId from, GraphId to) {
    std::vector<ValueId> copies;
    for (const ValueId value : values) copies.push_back(copy_of(value, from, to));
    return copies;
  }

  GraphId copy_graph(GraphId graph, NodeId owner, GraphId from, GraphId to) {
    // A nested graph reads constants of the graphs around it, which are copied first.
    copy_captured_constants(graph, from, to);
    const GraphId copy = module_.add_graph(std::string(module_.graph_name(graph)), to, owner);
    const auto inputs = module_.graph_inputs(graph);
    for (const ValueId input : std::vector<ValueId>(inputs.begin(), inputs.end())) {
      module_.add_graph_input(copy, new_value(input, copy));
    }
    copy_nodes(graph, copy);
    const auto outputs = module_.graph_outputs(graph);
    module_.set_graph_outputs(
        copy, copies_of(std::vector<ValueId>(outputs.begin(), outputs.end()), graph, copy));
    return copy;
  }

 private:
  // A value from around the body is itself; a constant of it is copied when something reads it.
  ValueId copy_of(ValueId value, GraphId from, GraphId to) {
    if (value == kNoValue) return kNoValue;
    if (const auto found = copies_.find(value); found != copies_.end()) return found->second;
    const ir::TensorData* data = module_.constant(value);
    if (data == nullptr || module_.value_graph(value) != from) return value;
    const ValueId copy =
        rewriter_.add_constant(to, prefix_ + std::string(module_.value_name(value)), *data);
    copies_[value] = copy;
    return copy;
  }

  ValueId new_value(ValueId like, GraphId to) {
    const ir::Shape* shape = module_.shape(like);
    const ValueId copy = rewriter_.add_value(
        to, prefix_ + std::string(module_.value_name(like)), module_.dtype(like),
        nameless(shape ? std::optional(*shape) : std::nullopt));
    copies_[like] = copy;
    return copy;
  }

  void copy_node(NodeId node, GraphId from, GraphId to) {
    const auto inputs = module_.inputs(node);
    ir::Module::NodeInit init = {
        .domain = std::string(module_.domain(node)),
        .op = std::string(module_.op(node)),
        .name = prefix_ + module_.local_name(node),
        .inputs = copies_of(std::vector<ValueId>(inputs.begin(), inputs.end()), from, to),
        .outputs = {},
        .attributes = {},
        .opset = module_.own_opset(node)};
    const auto outputs = module_.outputs(node);
    for (const ValueId output : std::vector<ValueId>(outputs.begin(), outputs.end())) {
      init.outputs.push_back(output == kNoValue ? kNoValue : new_value(output, to));
    }
    const auto attributes = module_.attributes(node);
    const std::vector<ir::Attribute> originals(attributes.begin(), attributes.end());
    const NodeId copy = module_.add_node(to, std::move(init));
    for (const ir::Attribute& attribute : originals) {
      module_.set_attribute(copy, attribute.name, copy_value(attribute.value, copy, from, to));
    }
  }

  ir::AttributeValue copy_value(const ir::AttributeValue& value, NodeId owner, GraphId from,
                                GraphId to) {
    if (const auto* graph = std::get_if<GraphId>(&value)) {
      return copy_graph(*graph, owner, from, to);
    }
    if (const auto* graphs = std::get_if<std::vector<GraphId>>(&value)) {
      std::vector<GraphId> copies;
      for (const GraphId graph : *graphs) copies.push_back(copy_graph(graph, owner, from, to));
      return copies;
    }
    return value;
  }

  void copy_captured_constants(GraphId graph, GraphId from, GraphId to) {
    const auto outputs = module_.graph_outputs(graph);
    for (const ValueId value : std::vector<ValueId>(outputs.begin(), outputs.end())) {
      copy_of(value, from, to);
    }
    const auto listed = module_.graph_nodes(graph);
    for (const NodeId node : std::vector<NodeId>(listed.begin(), listed.end())) {
      const auto inputs = module_.inputs(node);
      for (const ValueId value : std::vector<ValueId>(inputs.begin(), inputs.end())) {
        copy_of(value, from, to);
      }
      for (const GraphId nested : module_.nested_graphs(node)) {
        copy_captured_constants(nested, from, to);
      }
    }
  }

  Rewriter& rewriter_;
  ir::Module& module_;
  const std::string prefix_;
  std::map<ValueId, ValueId> copies_;
};

}  // namespace

std::vector<ValueId> copy_body(Rewriter& rewriter, GraphId body, GraphId graph,
                               const std::vector<ValueId>& arguments, std::string_view prefix) {
  BodyCopier copier(rewriter, prefix);
  const auto parameters = rewriter.module().graph_inputs(body);
  for (size_t i = 0; i < parameters.size() && i < arguments.size(); ++i) {
    copier.bind(parameters[i], arguments[i]);
  }
  copier.copy_nodes(body, graph);
  const auto outputs = rewriter.module().graph_outputs(body);
  return copier.copies_of(std::vector<ValueId>(outputs.begin(), outputs.end()), body, graph);
}

GraphId copy_graph(Rewriter& rewriter, GraphId graph, GraphId into, NodeId owner) {
  return BodyCopier(rewriter, "").copy_graph(graph, owner, ir::kNoGraph, into);
}

}  // namespace davit::passes
