// Rewrites that come from outside: a pattern and what takes its place.
#include <memory>

#include "ir/passes/passes.hpp"
#include "ir/passes/pattern.hpp"
#include "ir/passes/rewrite.hpp"

namespace davit::passes {
namespace {

Status broken(const Rewrite& rewrite, std::string message) {
  return {DVT_INVALID_ARGUMENT, DVT_STAGE_OPTIMISE,
          "pass " + rewrite.name + ": " + std::move(message)};
}

bool has_input(const ir::Module& graph, std::string_view name) {
  for (const ir::ValueId input : graph.graph_inputs(ir::kMainGraph)) {
    if (graph.value_name(input) == name) return true;
  }
  return false;
}

}  // namespace

Result<Rewrite> make_rewrite(std::string name, std::string_view pattern,
                             std::string_view replacement) {
  Rewrite rewrite{.name = std::move(name)};
  auto from = Pattern::parse(pattern);
  if (!from.ok()) return broken(rewrite, "pattern: " + from.status().detail().message);
  auto to = Pattern::parse(replacement);
  if (!to.ok()) return broken(rewrite, "replacement: " + to.status().detail().message);
  const ir::Module& after = to->graph();
  for (const ir::ValueId input : after.graph_inputs(ir::kMainGraph)) {
    const std::string_view known = after.value_name(input);
    if (has_input(from->graph(), known)) continue;
    return broken(rewrite, "input '" + std::string(known) +
                               "' of the replacement is no input of the pattern");
  }
  const size_t results = from->graph().graph_outputs(ir::kMainGraph).size();
  if (after.graph_outputs(ir::kMainGraph).size() != results) {
    return broken(rewrite, "the replacement has not as many outputs as the pattern");
  }
  rewrite.pattern = std::make_shared<const Pattern>(std::move(*from));
  rewrite.replacement = std::make_shared<const Pattern>(std::move(*to));
  return rewrite;
}

Result<uint32_t> run_rewrite(const Rewrite& rewrite, ir::Module& module, Refusals& refusals) {
  if (rewrite.run != nullptr) return run_graph_pass(rewrite, module);
  Rewriter rewriter(module);
  uint32_t changes = 0;
  for (const ir::NodeId node : live_nodes(module)) {
    if (rewriter.is_struck(node)) continue;
    const auto match = rewrite.pattern->match(rewriter, node, rewrite.name, refusals);
    if (!match) continue;
    if (!rewrite.domain.empty()) module.opset_imports.emplace(rewrite.domain, rewrite.version);
    replace(rewriter, *match, *rewrite.replacement);
    ++changes;
  }
  if (Status status = rewriter.finish(); !status.ok()) return status;
  return changes;
}

}  // namespace davit::passes
