// pattern.hpp: small graphs that are looked for in large ones, and replaced.
//
// A pattern is a graph in the text form of ir/text.hpp, without header, or built with add_*():
//
//   input %x: f32[?, ?]                      anything of that type (each part optional)
//   const %half: f32[] = {0.5}               a constant whose elements are all near 0.5
//   (%m) = ReduceMean "mean" (%x) { keepdims = int 1 }
//   (%d) = Sub (%x, %m)
//   (%s) = Pow "square" (%d, %half) { pattern.or = strings ["Mul"] }
//   (%y) = Add "shift" (%s, %beta) { pattern.optional = int 1 }
//   output (%y)
//
//   - Inputs match any value; one name matches one value, however often it is read.
//   - Constants match constants of any dtype and shape whose elements are all near the one given.
//   - Nodes match nodes of their operator, or one of pattern.or, in one graph, that have the
//     attributes given, with those values, among theirs. An absent operand must be absent.
//   - Operands of Add, Mul, Max, Min, Equal, And, Or and Xor match in either order.
//   - A node with pattern.optional may be missing: its result is then its operand 0, and other
//     values that only it reads are kNoValue.
//   - The first output belongs to the last node, where a match begins; further ones are other
//     results that the rest of the graph may read, as long as what it makes of them does not come
//     back. All else is interior: nobody else reads it. No node has control edges.
//
// Threads  Patterns are constant once built; matching only reads the module.
// Trust    parse() takes any text. Matching visits at most kPatternSteps values a node, so a
// hostile
//          pattern cannot stall a compilation.
// Memory   A Pattern owns its graph.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "ir/module.hpp"
#include "ir/passes/passes.hpp"
#include "ir/passes/rewrite.hpp"

namespace davit::passes {

class Pattern;

// What a pattern was found to be.
class Match {
 public:
  // By the names of the pattern; kNoValue and kNoNode for what a missing optional node leaves out.
  // Precondition: the pattern has that name.
  [[nodiscard]] ir::ValueId value(std::string_view name) const;
  [[nodiscard]] ir::NodeId node(std::string_view name) const;
  // The matched nodes, in the pattern's order.
  [[nodiscard]] const std::vector<ir::NodeId>& nodes() const { return nodes_; }
  // The one that the match began at.
  [[nodiscard]] ir::NodeId anchor() const { return nodes_.back(); }
  // Values of the pattern's outputs.
  [[nodiscard]] const std::vector<ir::ValueId>& outputs() const { return outputs_; }

 private:
  friend class Pattern;
  friend class Matcher;
  const Pattern* pattern_ = nullptr;
  std::vector<ir::ValueId> values_;        // By value of the pattern.
  std::vector<ir::NodeId> pattern_nodes_;  // By node of the pattern.
  std::vector<ir::NodeId> nodes_;
  std::vector<ir::ValueId> outputs_;
};

class Pattern {
 public:
  // An error names line and column, or the rule that is broken.
  static Result<Pattern> parse(std::string_view body);
  // For patterns in this source: a malformed one ends the process with its error.
  static Pattern of(std::string_view body);

  // ---- Built by hand ----
  Pattern() = default;
  ir::ValueId add_input(std::string_view name);
  ir::ValueId add_number(std::string_view name, double number);
  ir::ValueId add_node(std::string_view op, std::vector<ir::ValueId> inputs,
                       std::string_view name = "", std::vector<ir::Attribute> attributes = {});
  // Ends the building; the last node added must define the first of them.
  Status set_outputs(std::vector<ir::ValueId> outputs);

  // ---- Conditions ----
  // A match also asks this of a value or node; an empty string is consent, others are the reason
  // why a match is refused. Precondition: the pattern has that name.
  using ValueCondition = std::function<std::string(const ir::Module&, ir::ValueId)>;
  using MatchCondition = std::function<std::string(const ir::Module&, const Match&)>;
  Pattern& where(std::string_view value, ValueCondition condition);
  Pattern& where(MatchCondition condition);

  // The match that ends at `anchor`, if there is one. When all nodes are there but a condition or a
  // boundary stands against it, the reason is appended to `refusals` under the name of the pass.
  [[nodiscard]] std::optional<Match> match(const Rewriter& rewriter, ir::NodeId anchor,
                                           std::string_view pass, Refusals& refusals) const;

  [[nodiscard]] const ir::Module& graph() const { return graph_; }

 private:
  friend class Match;
  friend class Matcher;
  struct NodeRule {
    std::vector<std::string> operators;
    std::vector<ir::Attribute> attributes;
    bool is_optional = false;
  };
  // Checks the graph and reads the rules from its attributes.
  Status index();

  ir::Module graph_;
  std::vector<NodeRule> rules_;  // By node.
  std::map<std::string, ir::ValueId, std::less<>> value_names_;
  std::map<std::string, ir::NodeId, std::less<>> node_names_;
  std::vector<std::pair<ir::ValueId, ValueCondition>> value_conditions_;
  std::vector<MatchCondition> conditions_;
};

inline constexpr uint32_t kPatternSteps = 10000;

// ---- Conditions that many patterns have --------------------------------------------------------

// "'w' is not a constant".
std::string is_constant(const ir::Module& module, ir::ValueId value);
std::string is_float_value(const ir::Module& module, ir::ValueId value);

// ---- Replacement -------------------------------------------------------------------------------

// One node in the place of a match: it defines the match's outputs and, unless `init` has a name,
// is called after its nodes.
ir::NodeId fuse(Rewriter& rewriter, const Match& match, ir::Module::NodeInit init);

// A copy of `replacement`'s graph in the place of a match. Its inputs are values of the match by
// name, its outputs take the place of the match's.
void replace(Rewriter& rewriter, const Match& match, const Pattern& replacement);

// "conv_1+relu_1": what a node is called that does the work of several.
std::string joined_name(const ir::Module& module, const std::vector<ir::NodeId>& nodes);

}  // namespace davit::passes
