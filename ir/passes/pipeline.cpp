#include <algorithm>
#include <array>

#include "ir/passes/passes.hpp"
#include "ir/verify.hpp"
#include "ops/definition.hpp"

namespace davit::passes {
namespace {

constexpr std::array kPasses = {
    Pass{"infer_shapes", infer_shapes, true},
    Pass{"fold_constants", fold_constants, false},
    Pass{"remove_dead_nodes", remove_dead_nodes, false},
};
const Pass& kRemoveDeadNodes = kPasses[2];

// A sorted module is settled in one round, and the second sees that nothing changes.
constexpr uint32_t kRoundsMax = 16;

uint32_t live_nodes(const ir::Module& module) {
  uint32_t count = 0;
  for (uint32_t n = 0; n < module.node_count(); ++n) count += module.node_alive(ir::NodeId{n});
  return count;
}

Status check_names(std::span<const std::string> disabled) {
  for (const std::string& name : disabled) {
    std::string optional_passes;
    bool found = false;
    for (const Pass& pass : kPasses) {
      if (pass.required) continue;
      found = found || pass.name == name;
      if (!optional_passes.empty()) optional_passes += ", ";
      optional_passes += pass.name;
    }
    if (found) continue;
    return Status({.code = DVT_INVALID_ARGUMENT,
                   .stage = DVT_STAGE_OPTIMISE,
                   .message = "'" + name + "' is not a pass that can be disabled",
                   .expected = "one of: " + optional_passes});
  }
  return {};
}

}  // namespace

Status check_supported(const ir::Module& module) {
  std::map<std::string, std::string> nodes_of_operator;
  for (uint32_t n = 0; n < module.node_count(); ++n) {
    const ir::NodeId node{n};
    if (!module.node_alive(node) || ops::find_operator(module, node) != nullptr) continue;
    std::string& nodes = nodes_of_operator[module.op_label(node)];
    if (!nodes.empty()) nodes += ", ";
    nodes += module.node_path(node);
  }
  if (nodes_of_operator.empty()) return {};
  std::string list;
  for (const auto& [op, nodes] : nodes_of_operator) {
    if (!list.empty()) list += "; ";
    list += op;
    list += ": ";
    list += nodes;
  }
  const size_t count = nodes_of_operator.size();
  return {DVT_UNSUPPORTED, DVT_STAGE_CHECK,
          std::to_string(count) + (count == 1 ? " operator is" : " operators are") +
              " not supported: " + list};
}

std::span<const Pass> all_passes() {
  return kPasses;
}

Result<uint32_t> run_pass(const Pass& pass, ir::Module& module) {
  Result<uint32_t> result = pass.run(module);
  if (!result.ok()) return result;
  Status status = ir::verify(module);
  if (status.ok()) return result;
  status.detail().code = DVT_INTERNAL;
  status.detail().stage = DVT_STAGE_OPTIMISE;
  status.detail().message =
      "pass " + std::string(pass.name) + " broke the graph: " + status.detail().message;
  return status;
}

Result<SimplifyReport> simplify(ir::Module& module, const SimplifyOptions& options) {
  if (Status status = check_names(options.disabled); !status.ok()) return status;
  const auto enabled = [&](const Pass& pass) {
    return std::find(options.disabled.begin(), options.disabled.end(), pass.name) ==
           options.disabled.end();
  };
  const auto run = [&](const Pass& pass) {
    Result<uint32_t> result = run_pass(pass, module);
    if (!result.ok() || !options.after_pass) return result;
    if (Status status = options.after_pass(pass.name, module); !status.ok()) {
      return Result<uint32_t>(std::move(status));
    }
    return result;
  };
  SimplifyReport report;
  // Operators that nothing needs are no reason to refuse a model.
  if (enabled(kRemoveDeadNodes)) {
    Result<uint32_t> dead = run(kRemoveDeadNodes);
    if (!dead.ok()) return std::move(dead.status());
    report.dead_nodes += *dead;
  }
  if (Status status = check_supported(module); !status.ok()) return status;
  for (bool changed = true; changed && report.rounds < kRoundsMax; ++report.rounds) {
    changed = false;
    for (const Pass& pass : kPasses) {
      if (!enabled(pass)) continue;
      const uint32_t before = live_nodes(module);
      Result<uint32_t> result = run(pass);
      if (!result.ok()) return std::move(result.status());
      changed = changed || *result != 0;
      uint32_t& removed = &pass == &kRemoveDeadNodes ? report.dead_nodes : report.folded_nodes;
      removed += before - live_nodes(module);
    }
  }
  return report;
}

}  // namespace davit::passes
