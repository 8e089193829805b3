#include "ir/passes/pattern.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/dtype.hpp"
#include "ir/text.hpp"
#include "ir/verify.hpp"

namespace davit::passes {

using ir::kMainGraph;
using ir::kNoNode;
using ir::kNoValue;
using ir::NodeId;
using ir::ValueId;

namespace {

constexpr std::string_view kOptional = "pattern.optional";
constexpr std::string_view kOr = "pattern.or";
constexpr std::array<std::string_view, 8> kCommutative = {"Add", "And", "Equal", "Max",
                                                          "Min", "Mul", "Or",    "Xor"};

Status malformed(const std::string& message) {
  return {DVT_INVALID_ARGUMENT, DVT_STAGE_PARSE, "pattern: " + message};
}

std::string quoted(std::string_view text) {
  return "'" + std::string(text) + "'";
}

// How far a rounded constant may be from the number it was meant to be.
double nearness(DvtDType dtype) {
  if (dtype == DVT_BF16) return 0x1p-8;
  return dtype == DVT_F16 ? 0x1p-11 : 1e-6;
}

bool same_attribute(const ir::AttributeValue& a, const ir::AttributeValue& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&](const auto& value) {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, ir::TensorData>) {
          return false;  // index() refuses patterns that ask for one.
        } else {
          return value == std::get<T>(b);
        }
      },
      a);
}

}  // namespace

// ---- Building ----------------------------------------------------------------------------------

Result<Pattern> Pattern::parse(std::string_view body) {
  auto graph = ir::parse_text("davit-ir 1 source \"\" \"\" graph \"pattern\" {\n" +
                              std::string(body) + "\n}");
  if (!graph.ok()) return std::move(graph.status());
  Pattern pattern;
  pattern.graph_ = std::move(*graph);
  if (Status status = pattern.index(); !status.ok()) return status;
  return pattern;
}

Pattern Pattern::of(std::string_view body) {
  Result<Pattern> pattern = parse(body);
  if (pattern.ok()) return std::move(*pattern);
  std::fprintf(stderr, "davit: %s\n", pattern.status().to_string().c_str());
  std::abort();
}

ValueId Pattern::add_input(std::string_view name) {
  const ValueId value = graph_.add_value(kMainGraph, name);
  graph_.add_graph_input(kMainGraph, value);
  return value;
}

ValueId Pattern::add_number(std::string_view name, double number) {
  return graph_.add_constant(kMainGraph, name, make_real_tensor(DVT_F64, {}, {number}));
}

ValueId Pattern::add_node(std::string_view op, std::vector<ValueId> inputs, std::string_view name,
                          std::vector<ir::Attribute> attributes) {
  const ValueId value =
      graph_.add_value(kMainGraph, "result" + std::to_string(graph_.node_count()));
  graph_.add_node(kMainGraph, {.op = std::string(op),
                               .name = std::string(name),
                               .inputs = std::move(inputs),
                               .outputs = {value},
                               .attributes = std::move(attributes)});
  return value;
}

Status Pattern::set_outputs(std::vector<ValueId> outputs) {
  graph_.set_graph_outputs(kMainGraph, std::move(outputs));
  Status status = ir::verify(graph_);
  return status.ok() ? index() : std::move(status);
}

Status Pattern::index() {
  const auto outputs = graph_.graph_outputs(kMainGraph);
  const auto nodes = graph_.graph_nodes(kMainGraph);
  if (nodes.empty() || outputs.empty() || graph_.producer(outputs[0]) != nodes.back()) {
    return malformed("the first output must be a result of the last node");
  }
  if (graph_.graph_count() > 1) return malformed("nested graphs cannot be matched");
  for (uint32_t v = 0; v < graph_.value_count(); ++v) {
    const ir::TensorData* data = graph_.constant(ValueId{v});
    if (data != nullptr && constant_reals(*data).size() != 1) {
      return malformed("constant " + quoted(graph_.value_name(ValueId{v})) + " must be one number");
    }
    value_names_.emplace(graph_.value_name(ValueId{v}), ValueId{v});
  }
  for (const NodeId node : nodes) {
    if (!graph_.control_inputs(node).empty()) return malformed("there are control edges");
    NodeRule rule{.operators = {std::string(graph_.op(node))}};
    for (const ir::Attribute& attribute : graph_.attributes(node)) {
      if (attribute.name == kOptional) {
        rule.is_optional = true;
      } else if (attribute.name == kOr) {
        const auto* others = std::get_if<std::vector<std::string>>(&attribute.value);
        if (others == nullptr) return malformed("pattern.or must list operators");
        rule.operators.insert(rule.operators.end(), others->begin(), others->end());
      } else if (std::holds_alternative<ir::TensorData>(attribute.value)) {
        return malformed("attribute " + quoted(attribute.name) + " is a tensor");
      } else {
        rule.attributes.push_back(attribute);
      }
    }
    if (rule.is_optional && (graph_.inputs(node).empty() || graph_.inputs(node)[0] == kNoValue)) {
      return malformed("an optional node needs an operand to stand for it");
    }
    rules_.push_back(std::move(rule));
    const std::string_view name = graph_.node_name(node);
    if (!name.empty() && !node_names_.emplace(name, node).second) {
      return malformed("two nodes are called " + quoted(name));
    }
  }
  return {};
}

Pattern& Pattern::where(std::string_view value, ValueCondition condition) {
  const auto found = value_names_.find(value);
  assert(found != value_names_.end());
  value_conditions_.emplace_back(found->second, std::move(condition));
  return *this;
}

Pattern& Pattern::where(MatchCondition condition) {
  conditions_.push_back(std::move(condition));
  return *this;
}

// ---- Matching ----------------------------------------------------------------------------------

// One attempt to match a pattern at one node.
class Matcher {
 public:
  Matcher(const Pattern& pattern, const ir::Module& module, NodeId anchor)
      : pattern_(pattern), module_(module), anchor_(anchor) {}

  std::optional<Match> run(const Rewriter& rewriter, std::string& reason) {
    State start;
    start.values.assign(pattern_.graph_.value_count(), kNoValue);
    start.nodes.assign(pattern_.graph_.node_count(), kNoNode);
    const NodeId last = pattern_.graph_.graph_nodes(kMainGraph).back();
    if (pattern_.rules_[index_of(last)].is_optional) return std::nullopt;
    rewriter_ = &rewriter;
    reason_ = &reason;
    std::vector<Goal> goals;
    return bind_node(std::move(start), goals, last, anchor_);
  }

 private:
  struct State {
    std::vector<ValueId> values;
    std::vector<NodeId> nodes;
  };
  struct Goal {
    ValueId wanted, found;
  };

  // Works through the goals; the last is the next.
  std::optional<Match> solve(State state, std::vector<Goal> goals) {
    while (!goals.empty()) {
      if (++steps_ > kPatternSteps) return std::nullopt;
      const auto [wanted, found] = goals.back();
      goals.pop_back();
      ValueId& bound = state.values[index_of(wanted)];
      if (pattern_.graph_.constant(wanted) != nullptr) {
        if (!is_near(wanted, found)) return std::nullopt;
        bound = found;
        continue;
      }
      if (bound != kNoValue) {
        if (bound != found) return std::nullopt;
        continue;
      }
      const NodeId rule = pattern_.graph_.producer(wanted);
      if (rule == kNoNode) {
        if (!has_type(wanted, found)) return std::nullopt;
        bound = found;
        continue;
      }
      return bind_result(std::move(state), std::move(goals), wanted, found);
    }
    return accept(state);
  }

  // `found` is what the pattern calls `wanted`, a result of one of its nodes.
  std::optional<Match> bind_result(State state, std::vector<Goal> goals, ValueId wanted,
                                   ValueId found) {
    const NodeId rule = pattern_.graph_.producer(wanted);
    const NodeId producer = module_.producer(found);
    if (producer != kNoNode &&
        slot(pattern_.graph_, rule, wanted) == slot(module_, producer, found)) {
      if (auto match = bind_node(state, goals, rule, producer)) return match;
    }
    if (!pattern_.rules_[index_of(rule)].is_optional) return std::nullopt;
    state.values[index_of(wanted)] = found;
    goals.push_back({pattern_.graph_.inputs(rule)[0], found});
    return solve(std::move(state), std::move(goals));
  }

  std::optional<Match> bind_node(State state, const std::vector<Goal>& goals, NodeId rule,
                                 NodeId node) {
    if (!allows(rule, node) ||
        std::find(state.nodes.begin(), state.nodes.end(), node) != state.nodes.end() ||
        rewriter_->is_struck(node)) {
      return std::nullopt;
    }
    const auto results = pattern_.graph_.outputs(rule);
    const auto outputs = module_.outputs(node);
    for (size_t i = 0; i < std::max(results.size(), outputs.size()); ++i) {
      const ValueId output = i < outputs.size() ? outputs[i] : kNoValue;
      if (i < results.size() && results[i] != kNoValue) {
        state.values[index_of(results[i])] = output;
      } else if (output != kNoValue) {
        return std::nullopt;
      }
    }
    state.nodes[index_of(rule)] = node;
    for (const bool turned : {false, true}) {
      if (turned && !commutes(rule, node)) break;
      std::vector<Goal> more = goals;
      if (!add_operands(rule, node, turned, more)) continue;
      if (auto match = solve(state, std::move(more))) return match;
    }
    return std::nullopt;
  }

  // A rule may name several operators; the one that is there decides.
  [[nodiscard]] bool commutes(NodeId rule, NodeId node) const {
    return pattern_.graph_.inputs(rule).size() == 2 &&
           std::find(kCommutative.begin(), kCommutative.end(), module_.op(node)) !=
               kCommutative.end();
  }

  [[nodiscard]] bool allows(NodeId rule_node, NodeId node) const {
    const Pattern::NodeRule& rule = pattern_.rules_[index_of(rule_node)];
    const auto plain = [](std::string_view domain) {
      return domain == "ai.onnx" ? std::string_view() : domain;
    };
    if (module_.node_graph(node) != module_.node_graph(anchor_) ||
        plain(module_.domain(node)) != plain(pattern_.graph_.domain(rule_node)) ||
        std::find(rule.operators.begin(), rule.operators.end(), module_.op(node)) ==
            rule.operators.end()) {
      return false;
    }
    return std::all_of(rule.attributes.begin(), rule.attributes.end(),
                       [&](const ir::Attribute& wanted) {
                         const ir::AttributeValue* got = module_.attribute(node, wanted.name);
                         return got != nullptr && same_attribute(wanted.value, *got);
                       });
  }

  bool add_operands(NodeId rule, NodeId node, bool turned, std::vector<Goal>& goals) const {
    const auto wanted = pattern_.graph_.inputs(rule);
    const auto found = module_.inputs(node);
    for (size_t i = std::max(wanted.size(), found.size()); i-- > 0;) {
      const ValueId operand = i < wanted.size() ? wanted[i] : kNoValue;
      const size_t at = turned ? 1 - i : i;
      const ValueId value = at < found.size() ? found[at] : kNoValue;
      if ((operand == kNoValue) != (value == kNoValue)) return false;
      if (operand != kNoValue) goals.push_back({operand, value});
    }
    return true;
  }

  [[nodiscard]] bool is_near(ValueId wanted, ValueId found) const {
    const std::optional<double> number = uniform_constant(module_, found);
    const double meant = *uniform_constant(pattern_.graph_, wanted);
    return number && std::abs(*number - meant) <= nearness(module_.dtype(found)) * std::abs(meant);
  }

  [[nodiscard]] bool has_type(ValueId wanted, ValueId found) const {
    const DvtDType dtype = pattern_.graph_.dtype(wanted);
    if (dtype != DVT_DTYPE_NONE && dtype != module_.dtype(found)) return false;
    const ir::Shape* dims = pattern_.graph_.shape(wanted);
    if (dims == nullptr) return true;
    const ir::Shape* got = module_.shape(found);
    return got != nullptr && got->size() == dims->size() &&
           std::equal(dims->begin(), dims->end(), got->begin(),
                      [](ir::Dim a, ir::Dim b) { return !a.is_known() || a == b; });
  }

  static size_t slot(const ir::Module& module, NodeId node, ValueId value) {
    const auto outputs = module.outputs(node);
    return size_t(std::find(outputs.begin(), outputs.end(), value) - outputs.begin());
  }

  // All nodes are there; now for what stands against it.
  std::optional<Match> accept(const State& state) {
    Match match;
    match.pattern_ = &pattern_;
    match.values_ = state.values;
    match.pattern_nodes_ = state.nodes;
    for (const NodeId node : pattern_.graph_.graph_nodes(kMainGraph)) {
      if (state.nodes[index_of(node)] != kNoNode) {
        match.nodes_.push_back(state.nodes[index_of(node)]);
      }
    }
    for (const ValueId output : pattern_.graph_.graph_outputs(kMainGraph)) {
      match.outputs_.push_back(state.values[index_of(output)]);
    }
    std::string reason = boundary(match);
    for (const auto& [value, condition] : pattern_.value_conditions_) {
      const ValueId found = state.values[index_of(value)];
      if (reason.empty() && found != kNoValue) reason = condition(module_, found);
    }
    for (const Pattern::MatchCondition& condition : pattern_.conditions_) {
      if (reason.empty()) reason = condition(module_, match);
    }
    if (reason.empty()) return match;
    if (reason_->empty()) *reason_ = std::move(reason);
    return std::nullopt;
  }

  [[nodiscard]] std::string boundary(const Match& match) const {
    const auto inside = [&](NodeId node) {
      return std::find(match.nodes_.begin(), match.nodes_.end(), node) != match.nodes_.end();
    };
    for (const NodeId node : match.nodes_) {
      if (rewriter_->has_control_edges(node)) {
        return "node " + quoted(module_.local_name(node)) + " has control edges";
      }
      for (const ValueId value : module_.outputs(node)) {
        if (value == kNoValue || std::find(match.outputs_.begin(), match.outputs_.end(), value) !=
                                     match.outputs_.end()) {
          continue;
        }
        const std::string what = "interior value " + quoted(module_.value_name(value));
        if (module_.is_graph_output(value)) return what + " is a graph output";
        for (const ir::Module::Use use : module_.uses(value)) {
          if (!inside(use.node)) {
            return what + " is also read by " + quoted(module_.node_path(use.node));
          }
        }
      }
    }
    return match.outputs_.size() > 1 ? returning_path(match) : "";
  }

  // With several outputs, what is made of one may be read again further down.
  [[nodiscard]] std::string returning_path(const Match& match) const {
    std::vector<uint8_t> seen(module_.node_count(), 0);
    std::vector<NodeId> pending;
    const auto visit_readers = [&](ValueId value) {
      for (const ir::Module::Use use : module_.uses(value)) {
        NodeId reader = use.node;
        while (module_.node_graph(reader) != module_.node_graph(anchor_)) {
          reader = module_.graph_owner(module_.node_graph(reader));
        }
        if (seen[index_of(reader)]++ == 0) pending.push_back(reader);
      }
    };
    for (const NodeId node : match.nodes_) seen[index_of(node)] = 1;
    for (const ValueId value : match.outputs_) {
      if (value != kNoValue) visit_readers(value);
    }
    while (!pending.empty()) {
      const NodeId node = pending.back();
      pending.pop_back();
      for (const ValueId value : module_.outputs(node)) {
        if (value == kNoValue) continue;
        for (const ir::Module::Use use : module_.uses(value)) {
          if (std::find(match.nodes_.begin(), match.nodes_.end(), use.node) != match.nodes_.end()) {
            return "the graph would have a cycle through " + quoted(module_.local_name(node));
          }
        }
        visit_readers(value);
      }
    }
    return "";
  }

  const Pattern& pattern_;
  const ir::Module& module_;
  const NodeId anchor_;
  const Rewriter* rewriter_ = nullptr;
  std::string* reason_ = nullptr;
  uint32_t steps_ = 0;
};

std::optional<Match> Pattern::match(const Rewriter& rewriter, NodeId anchor, std::string_view pass,
                                    Refusals& refusals) const {
  std::string reason;
  std::optional<Match> match = Matcher(*this, rewriter.module(), anchor).run(rewriter, reason);
  if (!match && !reason.empty()) {
    refusals.push_back({std::string(pass), rewriter.module().node_path(anchor), std::move(reason)});
  }
  return match;
}

ValueId Match::value(std::string_view name) const {
  const auto found = pattern_->value_names_.find(name);
  assert(found != pattern_->value_names_.end());
  return values_[index_of(found->second)];
}

NodeId Match::node(std::string_view name) const {
  const auto found = pattern_->node_names_.find(name);
  assert(found != pattern_->node_names_.end());
  return pattern_nodes_[index_of(found->second)];
}

std::string is_constant(const ir::Module& module, ValueId value) {
  if (module.constant(value) != nullptr) return {};
  return quoted(module.value_name(value)) + " is not a constant";
}

std::string is_float_value(const ir::Module& module, ValueId value) {
  if (is_float(module.dtype(value))) return {};
  return quoted(module.value_name(value)) + " is " + std::string(dtype_name(module.dtype(value))) +
         ", not a float";
}

// ---- Replacement -------------------------------------------------------------------------------

std::string joined_name(const ir::Module& module, const std::vector<NodeId>& nodes) {
  constexpr size_t kListed = 4;
  std::string name;
  const size_t count = nodes.size() <= kListed ? nodes.size() : 1;
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) name += '+';
    name += module.local_name(nodes[i]);
  }
  if (nodes.size() > kListed) name += "+...+" + module.local_name(nodes.back());
  return name;
}

NodeId fuse(Rewriter& rewriter, const Match& match, ir::Module::NodeInit init) {
  if (init.name.empty()) init.name = joined_name(rewriter.module(), match.nodes());
  init.outputs = match.outputs();
  const NodeId node =
      rewriter.add_node(rewriter.module().node_graph(match.anchor()), std::move(init));
  for (size_t i = match.nodes().size(); i-- > 0;) rewriter.strike(match.nodes()[i]);
  return node;
}

void replace(Rewriter& rewriter, const Match& match, const Pattern& replacement) {
  const ir::Module& graph = replacement.graph();
  const ir::GraphId home = rewriter.module().node_graph(match.anchor());
  const std::string name = joined_name(rewriter.module(), match.nodes());
  std::vector<ValueId> values(graph.value_count(), kNoValue);
  for (const ValueId input : graph.graph_inputs(kMainGraph)) {
    values[index_of(input)] = match.value(graph.value_name(input));
  }
  const auto outputs = graph.graph_outputs(kMainGraph);
  for (size_t i = 0; i < outputs.size(); ++i) values[index_of(outputs[i])] = match.outputs()[i];
  const auto here = [&](ValueId value) {
    if (value == kNoValue) return kNoValue;
    ValueId& known = values[index_of(value)];
    if (known != kNoValue) return known;
    const ir::TensorData* data = graph.constant(value);
    known = data != nullptr
                ? rewriter.add_constant(home, graph.value_name(value), *data)
                : rewriter.add_value(home, graph.value_name(value), DVT_DTYPE_NONE, std::nullopt);
    return known;
  };
  for (const NodeId node : graph.graph_nodes(kMainGraph)) {
    ir::Module::NodeInit init;
    init.domain = graph.domain(node);
    init.op = graph.op(node);
    init.name = name;
    for (const ValueId value : graph.inputs(node)) init.inputs.push_back(here(value));
    for (const ValueId value : graph.outputs(node)) init.outputs.push_back(here(value));
    init.attributes.assign(graph.attributes(node).begin(), graph.attributes(node).end());
    rewriter.add_node(home, std::move(init));
  }
  for (size_t i = match.nodes().size(); i-- > 0;) rewriter.strike(match.nodes()[i]);
}

}  // namespace davit::passes
