// Loops that carry sequences or optionals, and SequenceMap, become copies of their bodies.
#include "ir/passes/sequences.hpp"

namespace davit::passes {
namespace {

using ir::GraphId;
using ir::kNoValue;
using ir::NodeId;
using ir::ValueId;

const GraphId* body_of(const ir::Module& module, NodeId node) {
  const ir::AttributeValue* value = module.attribute(node, "body");
  return value == nullptr ? nullptr : std::get_if<GraphId>(value);
}

uint64_t count_nodes(const ir::Module& module, GraphId graph) {
  uint64_t count = 0;
  for (const NodeId node : module.graph_nodes(graph)) {
    ++count;
    for (const GraphId nested : module.nested_graphs(node)) count += count_nodes(module, nested);
  }
  return count;
}

// Why so many copies cannot be made; empty when they can.
std::string check_copies(const Rewriter& rewriter, GraphId body, int64_t copies) {
  const ir::Module& module = rewriter.module();
  for (const NodeId node : module.graph_nodes(body)) {
    if (rewriter.has_control_edges(node)) return "its body has control edges";
  }
  if (copies <= kElementsMax &&
      module.node_count() + uint64_t(copies) * count_nodes(module, body) <= kNodesMax) {
    return {};
  }
  return std::to_string(copies) + " copies of its body are more than Davit makes";
}

std::vector<ValueId> inputs_of(const ir::Module& module, NodeId node, size_t first) {
  const auto inputs = module.inputs(node);
  if (inputs.size() <= first) return {};
  return {inputs.begin() + std::ptrdiff_t(first), inputs.end()};
}

std::string iteration_name(const ir::Module& module, NodeId node, int64_t iteration) {
  return module.local_name(node) + ".body[" + std::to_string(iteration) + "]/";
}

// ---- Loop -------------------------------------------------------------------------------------

bool carries_containers(const ir::Module& module, NodeId node, const KnownContents& known) {
  for (const ValueId state : inputs_of(module, node, 2)) {
    if (known.contains(state)) return true;
  }
  return false;
}

// The condition that a body yields is true whenever the one it is given is.
bool keeps_condition(const ir::Module& module, ValueId yielded, ValueId given) {
  while (yielded != given) {
    const NodeId producer = yielded == kNoValue ? ir::kNoNode : module.producer(yielded);
    if (producer == ir::kNoNode || !is_op(module, producer, "Identity")) {
      const auto constant = uniform_constant(module, yielded);
      return constant && *constant != 0;
    }
    yielded = operand(module, producer, 0);
  }
  return true;
}

// How often the body runs; an error says why that is not known.
Result<int64_t> trip_count(const ir::Module& module, NodeId node, GraphId body) {
  const auto unknown = [](const char* why) { return Status(DVT_UNSUPPORTED, DVT_STAGE_NONE, why); };
  const ValueId condition = operand(module, node, 1);
  const auto first = uniform_constant(module, condition);
  if (condition != kNoValue && !first) return unknown("its condition is not constant");
  if (first && *first == 0) return int64_t{0};
  const ValueId count = operand(module, node, 0);
  const ir::TensorData* data = count == kNoValue ? nullptr : module.constant(count);
  const auto values = data == nullptr ? std::nullopt : data->to_i64();
  if (!values || values->size() != 1) return unknown("its trip count is not constant");
  if (!keeps_condition(module, module.graph_outputs(body)[0], module.graph_inputs(body)[1])) {
    return unknown("its body decides when it ends");
  }
  return std::max<int64_t>((*values)[0], 0);
}

struct Unrolled {
  std::vector<ValueId> states;
  std::vector<std::vector<ValueId>> scans;  // By scan output, then by iteration.
};

Unrolled copy_iterations(Rewriter& rewriter, NodeId node, GraphId body, int64_t trips) {
  ir::Module& module = rewriter.module();
  const GraphId graph = module.node_graph(node);
  Unrolled result{.states = inputs_of(module, node, 2), .scans = {}};
  const size_t states = result.states.size();
  result.scans.resize(module.graph_outputs(body).size() - 1 - states);
  const ValueId yes = rewriter.add_constant(graph, module.local_name(node) + ".condition",
                                            ir::make_tensor(DVT_BOOL, {}, {std::byte{1}}));
  for (int64_t i = 0; i < trips; ++i) {
    std::vector<ValueId> arguments = {add_integers(rewriter, node, {}, {i}), yes};
    arguments.insert(arguments.end(), result.states.begin(), result.states.end());
    const std::vector<ValueId> yielded =
        copy_body(rewriter, body, graph, arguments, iteration_name(module, node, i));
    result.states.assign(yielded.begin() + 1, yielded.begin() + 1 + std::ptrdiff_t(states));
    for (size_t s = 0; s < result.scans.size(); ++s) {
      result.scans[s].push_back(yielded[1 + states + s]);
    }
  }
  return result;
}

}  // namespace

std::string unroll_loop(Rewriter& rewriter, NodeId node, const KnownContents& known,
                        uint32_t& changes) {
  ir::Module& module = rewriter.module();
  const GraphId* attribute = body_of(module, node);
  if (attribute == nullptr || !carries_containers(module, node, known)) return {};
  const GraphId body = *attribute;
  const size_t states = module.inputs(node).size() - 2;
  // Inference refuses other numbers; it comes first.
  if (module.graph_inputs(body).size() != states + 2 ||
      module.graph_outputs(body).size() < states + 1) {
    return "its body takes another number of values";
  }
  const auto trips = trip_count(module, node, body);
  if (!trips.ok()) return trips.status().detail().message;
  if (std::string why = check_copies(rewriter, body, *trips); !why.empty()) return why;
  const auto span = module.outputs(node);
  const std::vector<ValueId> outputs(span.begin(), span.end());
  for (size_t k = states; *trips == 0 && k < outputs.size(); ++k) {
    if (outputs[k] != kNoValue) return "it never runs, so the shape of a scan output is not known";
  }
  const Unrolled unrolled = copy_iterations(rewriter, node, body, *trips);
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (outputs[k] == kNoValue) continue;
    const ValueId result =
        k < states ? unrolled.states[k]
                   : join_tensors(rewriter, node, unrolled.scans[k - states], {.stacked = true});
    read_instead(rewriter, outputs[k], result);
  }
  rewriter.strike(node);
  ++changes;
  return {};
}

// ---- SequenceMap ------------------------------------------------------------------------------

std::string unroll_map(Rewriter& rewriter, NodeId node, const KnownContents& known,
                       uint32_t& changes) {
  ir::Module& module = rewriter.module();
  const GraphId* attribute = body_of(module, node);
  const std::vector<ValueId> inputs = inputs_of(module, node, 0);
  const auto first = inputs.empty() ? known.end() : known.find(inputs[0]);
  if (attribute == nullptr || first == known.end() || !first->second.is_sequence()) {
    return std::string(kUnknownElements);
  }
  const GraphId body = *attribute;
  const auto count = int64_t(first->second.elements.size());
  if (std::string why = check_copies(rewriter, body, count); !why.empty()) return why;
  for (const ValueId input : inputs) {
    const auto contents = known.find(input);
    if (contents == known.end()) continue;
    if (contents->second.is_sequence() && int64_t(contents->second.elements.size()) == count) {
      continue;
    }
    return "its sequences differ in length";
  }
  const auto span = module.outputs(node);
  const std::vector<ValueId> outputs(span.begin(), span.end());
  if (module.graph_outputs(body).size() < outputs.size()) return "its body yields too few outputs";
  std::vector<std::vector<ValueId>> results(outputs.size());
  for (int64_t i = 0; i < count; ++i) {
    std::vector<ValueId> arguments;
    for (const ValueId input : inputs) {
      const auto contents = known.find(input);
      arguments.push_back(contents == known.end() ? input : contents->second.elements[size_t(i)]);
    }
    const std::vector<ValueId> yielded = copy_body(rewriter, body, module.node_graph(node),
                                                   arguments, iteration_name(module, node, i));
    for (size_t k = 0; k < outputs.size(); ++k) results[k].push_back(yielded[k]);
  }
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (outputs[k] == kNoValue) continue;
    rewriter.add_node(module.node_graph(node),
                      {.op = count == 0 ? "SequenceEmpty" : "SequenceConstruct",
                       .name = module.local_name(node) + "." + std::to_string(k),
                       .inputs = results[k],
                       .outputs = {outputs[k]},
                       .opset = 13});
  }
  rewriter.strike(node);
  ++changes;
  return {};
}

}  // namespace davit::passes
