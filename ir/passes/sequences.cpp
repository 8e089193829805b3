// expand_sequences: sequences and optionals of which it is known what they hold become the tensors.
//
// Values are looked at in topological order. What makes a sequence is only noted (KnownContents),
// what reads one is rewritten to read its elements; makers that nothing reads any more go.
#include "ir/passes/sequences.hpp"

#include <algorithm>
#include <array>

namespace davit::passes {
namespace {

using ir::GraphId;
using ir::kNoValue;
using ir::NodeId;
using ir::ValueId;
using Kind = Contents::Kind;

constexpr int64_t kOpset = 13;

constexpr std::array<std::string_view, 12> kOperators = {
    "ConcatFromSequence", "Optional",      "OptionalGetElement", "OptionalHasElement",
    "SequenceAt",         "SequenceEmpty", "SequenceConstruct",  "SequenceErase",
    "SequenceInsert",     "SequenceMap",   "SequenceLength",     "SplitToSequence"};

int64_t integer_attribute(const ir::Module& module, NodeId node, std::string_view name,
                          int64_t otherwise) {
  const ir::AttributeValue* value = module.attribute(node, name);
  const auto* integer = value == nullptr ? nullptr : std::get_if<int64_t>(value);
  return integer == nullptr ? otherwise : *integer;
}

std::optional<std::vector<int64_t>> constant_integers(const ir::Module& module, ValueId value) {
  const ir::TensorData* data = value == kNoValue ? nullptr : module.constant(value);
  return data == nullptr ? std::nullopt : data->to_i64();
}

void add_identity(Rewriter& rewriter, ValueId made, ValueId source) {
  rewriter.add_node(rewriter.module().value_graph(made),
                    {.op = "Identity",
                     .name = std::string(rewriter.module().value_name(made)),
                     .inputs = {source},
                     .outputs = {made},
                     .opset = kOpset});
}

// One sweep over the nodes. What a rewrite makes is seen by the next.
class Expander {
 public:
  Expander(ir::Module& module, Refusals& refusals)
      : rewriter_(module), module_(module), refusals_(refusals) {}

  Result<uint32_t> run() {
    const std::vector<NodeId> nodes = live_nodes(module_);
    for (const NodeId node : nodes) {
      if (!is_gone(rewriter_, node)) visit(node);
    }
    expand_outputs();
    strike_unread(nodes);
    if (Status status = rewriter_.finish(); !status.ok()) return status;
    return changes_;
  }

 private:
  void refuse(NodeId node, std::string reason) {
    refusals_.push_back(
        {std::string(kExpandSequences), module_.node_path(node), std::move(reason)});
  }

  [[nodiscard]] ValueId output(NodeId node) const {
    const auto outputs = module_.outputs(node);
    return outputs.empty() ? kNoValue : outputs[0];
  }

  // nullptr when it is not known.
  [[nodiscard]] const Contents* contents(NodeId node, uint32_t index) const {
    const ValueId value = operand(module_, node, index);
    const auto found = value == kNoValue ? known_.end() : known_.find(value);
    return found == known_.end() ? nullptr : &found->second;
  }

  void visit(NodeId node) {
    const std::string_view op = module_.op(node);
    if (!module_.domain(node).empty() || output(node) == kNoValue) return;
    const bool is_ours = is_sequence_operator(module_, node);
    if (!is_ours && op != "Identity" && op != "If" && op != "Loop") return;
    if (rewriter_.has_control_edges(node)) {
      if (is_ours) refuse(node, "it has control edges");
      return;
    }
    std::string why;
    if (op == "If") {
      why = visit_if(node);
    } else if (op == "Loop") {
      why = unroll_loop(rewriter_, node, known_, changes_);
    } else if (op == "SequenceMap") {
      why = unroll_map(rewriter_, node, known_, changes_);
    } else if (op.starts_with("Optional")) {
      why = visit_optional(node);
    } else if (op == "SplitToSequence") {
      why = split(node);
    } else if (op == "SequenceConstruct" || op == "SequenceEmpty") {
      why = note_sequence(node);
    } else if (const Contents* sequence = contents(node, 0)) {
      why = op == "Identity" ? note(node, *sequence) : visit_reader(node, *sequence);
    } else if (op != "Identity") {
      why = std::string(kUnknownElements);
    }
    if (!why.empty()) refuse(node, std::move(why));
  }

  std::string note(NodeId node, Contents contents) {
    known_[output(node)] = std::move(contents);
    return {};
  }

  void replace(NodeId node, ValueId value) {
    read_instead(rewriter_, output(node), value);
    rewriter_.strike(node);
    ++changes_;
  }

  void replace_by_constant(NodeId node, ir::TensorData data) {
    module_.set_constant(output(node), std::move(data));
    rewriter_.strike(node);
    ++changes_;
  }

  // ---- Makers ---------------------------------------------------------------------------------

  std::string note_sequence(NodeId node) {
    const auto inputs = module_.inputs(node);
    Contents sequence{.kind = Kind::kSequence, .elements = {inputs.begin(), inputs.end()}};
    if (std::ranges::find(sequence.elements, kNoValue) != sequence.elements.end()) {
      return "an element is missing";
    }
    if (sequence.elements.size() > size_t(kElementsMax)) return "it has too many elements";
    return note(node, std::move(sequence));
  }

  // A position that is constant, from 0 to `limit`; nullopt with a reason.
  std::optional<int64_t> position(NodeId node, uint32_t index, int64_t count, int64_t limit,
                                  std::string& why) const {
    const auto values = constant_integers(module_, operand(module_, node, index));
    if (!values || values->size() != 1) {
      why = "its position is not constant";
      return std::nullopt;
    }
    const int64_t at = (*values)[0] < 0 ? (*values)[0] + count : (*values)[0];
    if (at >= 0 && at <= limit) return at;
    why = "position " + std::to_string((*values)[0]) + " is outside a sequence of " +
          std::to_string(count);
    return std::nullopt;
  }

  std::string visit_insert(NodeId node, Contents sequence) {
    const ValueId tensor = operand(module_, node, 1);
    const auto count = int64_t(sequence.elements.size());
    if (tensor == kNoValue) return "there is no tensor to insert";
    if (count >= kElementsMax) return "its sequence has too many elements";
    std::string why;
    std::optional<int64_t> at = count;
    if (operand(module_, node, 2) != kNoValue) at = position(node, 2, count, count, why);
    if (!at) return why;
    sequence.elements.insert(sequence.elements.begin() + *at, tensor);
    return note(node, std::move(sequence));
  }

  std::string visit_erase(NodeId node, Contents sequence) {
    const auto count = int64_t(sequence.elements.size());
    std::string why;
    std::optional<int64_t> at = count - 1;
    if (operand(module_, node, 1) != kNoValue) at = position(node, 1, count, count - 1, why);
    if (!at) return why;
    if (count == 0) return "its sequence is empty";
    sequence.elements.erase(sequence.elements.begin() + *at);
    return note(node, std::move(sequence));
  }

  // The sizes of the parts; an empty result with a reason.
  std::vector<int64_t> part_sizes(NodeId node, int64_t axis, std::string& why) const {
    const ir::Shape* shape = module_.shape(operand(module_, node, 0));
    const ValueId given = operand(module_, node, 1);
    const auto values = constant_integers(module_, given);
    if (given != kNoValue && !values) why = "its split is not constant";
    if (given != kNoValue && values && module_.constant(given)->dims.size() == 1) return *values;
    const int64_t at = shape != nullptr && axis < 0 ? axis + int64_t(shape->size()) : axis;
    const bool known = shape != nullptr && at >= 0 && at < int64_t(shape->size()) &&
                       (*shape)[size_t(at)].is_known();
    if (why.empty() && !known) why = "the extent of the axis is not known";
    const int64_t size = given == kNoValue || !values || values->empty() ? 1 : (*values)[0];
    if (why.empty() && size <= 0) why = "its split is not positive";
    if (!why.empty()) return {};
    const int64_t extent = (*shape)[size_t(at)].extent();
    if (extent / size > kElementsMax) why = "it would make too many tensors";
    std::vector<int64_t> sizes;
    for (int64_t done = 0; why.empty() && done < extent; done += size) {
      sizes.push_back(std::min(size, extent - done));
    }
    return sizes;
  }

  // SplitToSequence is a Split, and a SequenceConstruct of what that yields.
  std::string split(NodeId node) {
    const int64_t axis = integer_attribute(module_, node, "axis", 0);
    std::string why;
    const std::vector<int64_t> sizes = part_sizes(node, axis, why);
    if (!why.empty()) return why;
    if (sizes.size() > size_t(kElementsMax)) return "it would make too many tensors";
    const ValueId input = operand(module_, node, 0);
    const bool squeezes = operand(module_, node, 1) == kNoValue &&
                          integer_attribute(module_, node, "keepdims", 1) == 0;
    std::vector<ValueId> parts;
    if (!sizes.empty()) {
      ir::Module::NodeInit init = {
          .op = "Split",
          .name = module_.local_name(node),
          .inputs = {input, add_integers(rewriter_, node, {int64_t(sizes.size())}, sizes)},
          .attributes = {{"axis", axis}},
          .opset = kOpset};
      for (size_t i = 0; i < sizes.size(); ++i) {
        parts.push_back(rewriter_.add_value(
            module_.node_graph(node),
            std::string(module_.value_name(output(node))) + "[" + std::to_string(i) + "]",
            module_.dtype(input), std::nullopt));
      }
      init.outputs = parts;
      rewriter_.add_node(module_.node_graph(node), std::move(init));
    }
    for (ValueId& part : parts) {
      if (!squeezes) break;
      part = add_operator(rewriter_, node, "Squeeze",
                          {part, add_integers(rewriter_, node, {1}, {axis})});
    }
    rewriter_.add_node(module_.node_graph(node),
                       {.op = parts.empty() ? "SequenceEmpty" : "SequenceConstruct",
                        .name = module_.local_name(node) + ".parts",
                        .inputs = parts,
                        .outputs = {output(node)},
                        .opset = kOpset});
    rewriter_.strike(node);
    ++changes_;
    return {};
  }

  // ---- Readers --------------------------------------------------------------------------------

  std::string visit_reader(NodeId node, const Contents& sequence) {
    const std::string_view op = module_.op(node);
    if (!sequence.is_sequence()) return "it reads an optional as a sequence";
    if (op == "SequenceInsert") return visit_insert(node, sequence);
    if (op == "SequenceErase") return visit_erase(node, sequence);
    if (op == "SequenceAt") return visit_at(node, sequence);
    if (op == "SequenceLength") {
      replace_by_constant(node, ir::make_i64_tensor({}, {int64_t(sequence.elements.size())}));
      return {};
    }
    if (sequence.elements.empty()) return "its sequence is empty";
    const Joining how = {.axis = integer_attribute(module_, node, "axis", 0),
                         .stacked = integer_attribute(module_, node, "new_axis", 0) != 0};
    replace(node, join_tensors(rewriter_, node, sequence.elements, how));
    return {};
  }

  // A position that is known only at run time picks from the stack of tensors of one shape.
  std::string visit_at(NodeId node, const Contents& sequence) {
    const ValueId index = operand(module_, node, 1);
    const auto count = int64_t(sequence.elements.size());
    if (index == kNoValue) return "there is no position";
    if (module_.constant(index) != nullptr) {
      std::string why;
      const auto at = position(node, 1, count, count - 1, why);
      if (at) replace(node, sequence.elements[size_t(*at)]);
      return why;
    }
    if (count == 0) return "its sequence is empty";
    for (const ValueId element : sequence.elements) {
      if (!static_shape(module_, element) || !same_type(module_, element, sequence.elements[0])) {
        return "its position is not constant, and its tensors differ in shape";
      }
    }
    const ir::Shape* shape = module_.shape(index);
    if (shape == nullptr || !shape->empty()) return "its position is no scalar";
    const ValueId stack = join_tensors(rewriter_, node, sequence.elements, {.stacked = true});
    replace(node, add_operator(rewriter_, node, "Gather", {stack, index}, {{"axis", int64_t{0}}}));
    return {};
  }

  // A plain tensor is an optional that is there.
  std::string visit_optional(NodeId node) {
    const std::string_view op = module_.op(node);
    const ValueId input = operand(module_, node, 0);
    Contents held{.kind = Kind::kAbsent, .elements = {}};
    if (const Contents* known = contents(node, 0)) {
      held = *known;
    } else if (input != kNoValue && module_.dtype(input) != DVT_DTYPE_NONE) {
      held = {.kind = Kind::kTensor, .elements = {input}};
    } else if (input != kNoValue) {
      return "what its optional holds is not known";
    }
    if (op == "OptionalHasElement") {
      const std::byte value{held.kind != Kind::kAbsent};
      replace_by_constant(node, ir::make_tensor(DVT_BOOL, {}, {value}));
      return {};
    }
    if (op == "Optional") return note(node, std::move(held));
    if (held.kind == Kind::kAbsent) return "its optional is absent";
    if (held.kind == Kind::kSequence) return note(node, std::move(held));
    replace(node, held.elements[0]);
    return {};
  }

  // ---- Control flow and outputs ---------------------------------------------------------------

  // An If that yields what is no tensor is its branch.
  // Whether a node of its branches, or of graphs in them, is one of ours. Models guard with
  // branches what could not be done with the sequence they have.
  [[nodiscard]] bool guards_containers(NodeId node) const {
    return std::ranges::any_of(live_nodes(module_), [&](NodeId inner) {
      if (!is_sequence_operator(module_, inner) || is_gone(rewriter_, inner)) return false;
      NodeId owner = inner;
      while (owner != ir::kNoNode && owner != node) {
        owner = module_.graph_owner(module_.node_graph(owner));
      }
      return owner == node;
    });
  }

  std::string visit_if(NodeId node) {
    const auto span = module_.outputs(node);
    const std::vector<ValueId> outputs(span.begin(), span.end());
    const bool yields_container = std::ranges::any_of(outputs, [&](ValueId value) {
      return value != kNoValue && module_.dtype(value) == DVT_DTYPE_NONE;
    });
    const GraphId* branch = taken_branch(module_, node);
    if (branch == nullptr) return yields_container ? "its condition is not constant" : "";
    if (!yields_container && !guards_containers(node)) return {};
    const std::vector<ValueId> results = module_.inline_graph(*branch);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] != kNoValue) read_instead(rewriter_, outputs[i], results[i]);
    }
    rewriter_.strike(node);
    ++changes_;
    return {};
  }

  // A sequence y leaves as y[0], y[1] ...; an optional under its name, or not at all.
  void expand_outputs() {
    const auto span = module_.graph_outputs(ir::kMainGraph);
    std::vector<ValueId> outputs;
    uint32_t expanded = 0;
    for (const ValueId value : std::vector<ValueId>(span.begin(), span.end())) {
      const auto found = known_.find(value);
      if (found == known_.end() || module_.producer(value) == ir::kNoNode) {
        outputs.push_back(value);
        continue;
      }
      ++expanded;
      const Contents& held = found->second;
      if (held.kind == Kind::kAbsent) continue;
      const std::string name(module_.value_name(value));
      if (held.kind == Kind::kTensor) {
        module_.set_container(value, std::nullopt);
        add_identity(rewriter_, value, held.elements[0]);
        outputs.push_back(value);
        continue;
      }
      for (size_t i = 0; i < held.elements.size(); ++i) {
        const ValueId element =
            rewriter_.add_value(ir::kMainGraph, name + "[" + std::to_string(i) + "]",
                                module_.dtype(held.elements[i]), std::nullopt);
        add_identity(rewriter_, element, held.elements[i]);
        outputs.push_back(element);
      }
      module_.set_container(value, std::nullopt);
    }
    if (expanded == 0) return;
    changes_ += expanded;
    module_.set_graph_outputs(ir::kMainGraph, std::move(outputs));
  }

  void strike_unread(const std::vector<NodeId>& nodes) {
    for (auto at = nodes.rbegin(); at != nodes.rend(); ++at) {
      if (is_gone(rewriter_, *at) || rewriter_.has_control_edges(*at)) continue;
      const ValueId value = output(*at);
      if (value == kNoValue ? !is_sequence_operator(module_, *at) : !known_.contains(value))
        continue;
      if (value != kNoValue && (module_.has_uses(value) || module_.is_graph_output(value)))
        continue;
      rewriter_.strike(*at);
      ++changes_;
    }
  }

  Rewriter rewriter_;
  ir::Module& module_;
  Refusals& refusals_;
  KnownContents known_;
  uint32_t changes_ = 0;
};

}  // namespace

bool is_sequence_operator(const ir::Module& module, NodeId node) {
  return module.domain(node).empty() &&
         std::ranges::find(kOperators, module.op(node)) != kOperators.end();
}

bool is_gone(const Rewriter& rewriter, NodeId node) {
  while (node != ir::kNoNode && !rewriter.is_struck(node)) {
    node = rewriter.module().graph_owner(rewriter.module().node_graph(node));
  }
  return node != ir::kNoNode;
}

std::optional<ir::Shape> nameless(std::optional<ir::Shape> shape) {
  if (!shape) return shape;
  for (ir::Dim& dim : *shape) {
    if (dim.is_symbol()) dim = ir::Dim();
  }
  return shape;
}

void read_instead(Rewriter& rewriter, ValueId from, ValueId to) {
  if (rewriter.module().is_graph_output(from)) {
    add_identity(rewriter, from, to);
  } else {
    rewriter.module().replace_all_uses(from, to);
  }
}

ValueId add_operator(Rewriter& rewriter, NodeId origin, std::string_view op,
                     std::vector<ValueId> inputs, std::vector<ir::Attribute> attributes) {
  ir::Module& module = rewriter.module();
  const GraphId graph = module.node_graph(origin);
  const std::string name = module.local_name(origin) + "." + std::string(op);
  const ValueId value = rewriter.add_value(graph, name, module.dtype(inputs[0]), std::nullopt);
  rewriter.add_node(graph, {.op = std::string(op),
                            .name = std::string(module.value_name(value)),
                            .inputs = std::move(inputs),
                            .outputs = {value},
                            .attributes = std::move(attributes),
                            .opset = kOpset});
  return value;
}

ValueId add_integers(Rewriter& rewriter, NodeId origin, std::vector<int64_t> dims,
                     const std::vector<int64_t>& values) {
  return rewriter.add_constant(rewriter.module().node_graph(origin),
                               rewriter.module().local_name(origin) + ".integers",
                               ir::make_i64_tensor(std::move(dims), values));
}

ValueId join_tensors(Rewriter& rewriter, NodeId origin, const std::vector<ValueId>& tensors,
                     Joining how) {
  std::vector<ValueId> parts = tensors;
  if (how.stacked) {
    const ValueId axes = add_integers(rewriter, origin, {1}, {how.axis});
    for (ValueId& part : parts) part = add_operator(rewriter, origin, "Unsqueeze", {part, axes});
  }
  return add_operator(rewriter, origin, "Concat", std::move(parts), {{"axis", how.axis}});
}

Result<uint32_t> expand_sequences(ir::Module& module, Refusals& refusals) {
  const auto is_ours = [&](NodeId node) { return is_sequence_operator(module, node); };
  uint32_t changes = 0;
  while (std::ranges::any_of(live_nodes(module), is_ours)) {
    refusals.clear();
    auto more = Expander(module, refusals).run();
    if (!more.ok()) return std::move(more.status());
    if (*more == 0) break;
    changes += *more;
    // Lengths, positions and conditions become known.
    if (auto learned = infer_shapes(module); !learned.ok()) return std::move(learned.status());
  }
  return changes;
}

Status check_sequences(const ir::Module& module, const Refusals& refusals) {
  std::vector<std::string> causes, consequences;
  std::map<std::string, NodeId> left;
  for (const NodeId node : live_nodes(module)) {
    if (is_sequence_operator(module, node)) left.emplace(module.node_path(node), node);
  }
  if (left.empty()) return {};
  for (const Refusal& refusal : refusals) {
    const auto node = left.extract(refusal.node);
    const std::string label = node.empty() ? "" : " (" + module.op_label(node.mapped()) + ")";
    (refusal.reason == kUnknownElements ? consequences : causes)
        .push_back(refusal.node + label + ": " + refusal.reason);
  }
  for (const auto& [path, node] : left) {
    consequences.push_back(path + " (" + module.op_label(node) + "): something reads it as it is");
  }
  std::string list;
  for (const std::string& entry : causes.empty() ? consequences : causes) {
    list += (list.empty() ? "" : "; ") + entry;
  }
  Status status(
      DVT_UNSUPPORTED, DVT_STAGE_CHECK,
      "what sequences and optionals hold must be known when the model is compiled: " + list);
  status.detail().hint = "--freeze the inputs on which lengths, positions and trip counts depend";
  return status;
}

}  // namespace davit::passes
