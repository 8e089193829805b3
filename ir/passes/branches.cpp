// inline_branches: an If whose condition is known is its branch.
#include "ir/passes/passes.hpp"
#include "ir/passes/rewrite.hpp"

namespace davit::passes {

using ir::kNoValue;
using ir::NodeId;
using ir::ValueId;

const ir::GraphId* taken_branch(const ir::Module& module, NodeId node) {
  if (!is_op(module, node, "If")) return nullptr;
  const std::optional<double> condition = uniform_constant(module, operand(module, node, 0));
  if (!condition) return nullptr;
  const ir::AttributeValue* branch =
      module.attribute(node, *condition != 0 ? "then_branch" : "else_branch");
  const auto* graph = branch == nullptr ? nullptr : std::get_if<ir::GraphId>(branch);
  if (graph == nullptr || !module.graph_inputs(*graph).empty() ||
      module.graph_outputs(*graph).size() < module.outputs(node).size()) {
    return nullptr;
  }
  return graph;
}

Result<uint32_t> inline_branches(ir::Module& module, Refusals& refusals) {
  Rewriter rewriter(module);
  uint32_t changes = 0;
  for (const NodeId node : live_nodes(module)) {
    const ir::GraphId* branch = taken_branch(module, node);
    if (branch == nullptr) continue;
    if (rewriter.has_control_edges(node)) {
      refusals.push_back({"inline_branches", module.node_path(node), "it has control edges"});
      continue;
    }
    const std::vector<ValueId> results = module.inline_graph(*branch);
    const auto span = module.outputs(node);
    const std::vector<ValueId> outputs(span.begin(), span.end());
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] != kNoValue) rewriter.replace_or_copy(outputs[i], results[i]);
    }
    rewriter.strike(node);
    ++changes;
  }
  if (Status status = rewriter.finish(); !status.ok()) return status;
  return changes;
}

}  // namespace davit::passes
