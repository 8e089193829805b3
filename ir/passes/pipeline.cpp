#include <algorithm>
#include <array>

#include "ir/passes/passes.hpp"
#include "ir/passes/rewrite.hpp"
#include "ir/verify.hpp"
#include "ops/definition.hpp"

namespace davit::passes {
namespace {

template <Result<uint32_t> (*Run)(ir::Module&)>
Result<uint32_t> without_refusals(ir::Module& module, Refusals& /*refusals*/) {
  return Run(module);
}

constexpr std::array kPasses = {
    Pass{"lift_tables", lift_tables, Level::kRequired},
    Pass{"infer_shapes", without_refusals<infer_shapes>, Level::kRequired},
    Pass{"lower_scans", lower_scans, Level::kRequired},
    Pass{"expand_sequences", expand_sequences, Level::kRequired},
    Pass{"fold_constants", without_refusals<fold_constants>, Level::kFold},
    Pass{"inline_branches", inline_branches, Level::kFold},
    Pass{"remove_dead_nodes", without_refusals<remove_dead_nodes>, Level::kFold},
    Pass{"merge_constants", merge_constants, Level::kFold},
    Pass{"merge_equal_nodes", merge_equal_nodes, Level::kFold},
    Pass{"remove_identities", remove_identities, Level::kEliminate},
    Pass{"merge_casts", merge_casts, Level::kEliminate},
    Pass{"merge_views", merge_views, Level::kEliminate},
    Pass{"move_views", move_views, Level::kEliminate},
    Pass{"merge_transposes", merge_transposes, Level::kEliminate},
    Pass{"move_transposes", move_transposes, Level::kEliminate},
    Pass{"simplify_arithmetic", simplify_arithmetic, Level::kEliminate},
    Pass{"fold_batch_norms", fold_batch_norms, Level::kFuse},
    Pass{"fold_scales", fold_scales, Level::kFuse},
    Pass{"fold_pads", fold_pads, Level::kEliminate},
    Pass{"fuse_gemm", fuse_gemm, Level::kEliminate},
    Pass{"fuse_gelu", fuse_gelu, Level::kFuse},
    Pass{"fuse_layer_norm", fuse_layer_norm, Level::kFuse},
    Pass{"fuse_attention", fuse_attention, Level::kFuse},
    Pass{"fuse_epilogues", fuse_epilogues, Level::kFuse},
};
constexpr std::array kLoweringPasses = {
    LoweringPass{"split_products", Level::kFuse},      LoweringPass{"view_parts", Level::kFold},
    LoweringPass{"join_parts", Level::kFold},          LoweringPass{"work_in_place", Level::kFold},
    LoweringPass{"move_to_init", Level::kFold},        LoweringPass{"fuse_copies", Level::kFuse},
    LoweringPass{"order_launches", Level::kEliminate},
};

constexpr size_t kLowerScans = 2;
constexpr size_t kExpandSequencesAt = 3;
constexpr size_t kFoldConstants = 4;
constexpr size_t kRemoveDeadNodes = 6;
static_assert(kPasses[kLowerScans].name == "lower_scans");
static_assert(kPasses[kExpandSequencesAt].name == "expand_sequences");
static_assert(kPasses[kFoldConstants].name == "fold_constants");
static_assert(kPasses[kRemoveDeadNodes].name == "remove_dead_nodes");

// Chains of rewrites that each wait for the next round are short; whoever needs more gets less.
constexpr uint32_t kRoundsMax = 16;

uint32_t count_nodes(const ir::Module& module) {
  uint32_t count = 0;
  for (uint32_t n = 0; n < module.node_count(); ++n) count += module.node_alive(ir::NodeId{n});
  return count;
}

bool lists(std::span<const std::string> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Status check_names(std::span<const std::string> names, std::string_view what,
                   std::span<const Rewrite> rewrites = {}) {
  for (const std::string& name : names) {
    std::string optional_passes;
    bool found = std::any_of(rewrites.begin(), rewrites.end(),
                             [&](const Rewrite& rewrite) { return rewrite.name == name; });
    const auto add = [&](std::string_view pass) {
      found = found || pass == name;
      if (!optional_passes.empty()) optional_passes += ", ";
      optional_passes += pass;
    };
    for (const Pass& pass : kPasses) {
      if (pass.level != Level::kRequired) add(pass.name);
    }
    for (const LoweringPass& pass : kLoweringPasses) add(pass.name);
    if (found) continue;
    return Status({.code = DVT_INVALID_ARGUMENT,
                   .stage = DVT_STAGE_OPTIMISE,
                   .message = "'" + name + "' is not a pass that can be " + std::string(what),
                   .expected = "one of: " + optional_passes});
  }
  return {};
}

// DVT_INTERNAL when the pass broke the graph.
Status verify_after(std::string_view pass, const ir::Module& module) {
  Status status = ir::verify(module);
  if (status.ok()) return status;
  status.detail().code = DVT_INTERNAL;
  status.detail().stage = DVT_STAGE_OPTIMISE;
  status.detail().message =
      "pass " + std::string(pass) + " broke the graph: " + status.detail().message;
  return status;
}

// One call of simplify().
class Simplifier {
 public:
  Simplifier(ir::Module& module, const SimplifyOptions& options)
      : module_(module), options_(options) {}

  Result<SimplifyReport> run() {
    // Operators that nothing needs are no reason to refuse a model.
    if (Status status = run_one(kRemoveDeadNodes); !status.ok()) return status;
    Status unsupported = check_supported(module_);
    // An If may turn out to be its other branch.
    if (!unsupported.ok() && module_.graph_count() == 1 && options_.rewrites.empty()) {
      return unsupported;
    }
    Status status = run_rewrites(/*late=*/false);
    if (status.ok()) status = run_level(Level::kEliminate);
    if (status.ok()) status = run_rewrites(/*late=*/true);
    if (!unsupported.ok()) {
      if (!status.ok()) return unsupported;
      status = check_supported(module_);
    }
    if (status.ok()) status = check_scans(module_, refusals_[kLowerScans]);
    if (status.ok()) status = check_sequences(module_, refusals_[kExpandSequencesAt]);
    if (status.ok()) status = run_level(Level::kFuse);
    if (!status.ok()) return status;
    for (size_t i = 0; i < options_.rewrites.size(); ++i) {
      if (rewrite_changes_[i] == 0) continue;
      report_.changes.emplace_back(options_.rewrites[i].name, rewrite_changes_[i]);
    }
    for (size_t i = 0; i < kPasses.size(); ++i) {
      if (changes_[i] != 0) report_.changes.emplace_back(kPasses[i].name, changes_[i]);
      report_.refusals.insert(report_.refusals.end(), refusals_[i].begin(), refusals_[i].end());
    }
    return std::move(report_);
  }

 private:
  [[nodiscard]] bool enabled(const Pass& pass) const {
    return is_enabled(pass.name, pass.level, options_);
  }

  // Passes up to `level` until nothing changes.
  Status run_level(Level level) {
    const bool any = std::any_of(kPasses.begin(), kPasses.end(), [&](const Pass& pass) {
      return pass.level == level && enabled(pass);
    });
    if (level == Level::kFuse && !any) return {};
    for (uint32_t round = 0; round < kRoundsMax; ++round) {
      const uint64_t before = total_changes_;
      ++report_.rounds;
      for (size_t i = 0; i < kPasses.size(); ++i) {
        if (kPasses[i].level > level || settled_at_[i] == total_changes_) continue;
        if (Status status = run_one(i); !status.ok()) return status;
      }
      if (total_changes_ == before) break;
    }
    return {};
  }

  Status run_one(size_t index) {
    const Pass& pass = kPasses[index];
    if (!enabled(pass)) return {};
    const uint32_t nodes_before = count_nodes(module_);
    settled_at_[index] = total_changes_;
    refusals_[index].clear();
    Result<uint32_t> result = run_pass(pass, module_, refusals_[index]);
    if (!result.ok()) return std::move(result.status());
    changes_[index] += *result;
    total_changes_ += *result;
    if (index <= kFoldConstants) report_.folded_nodes += nodes_before - count_nodes(module_);
    if (index == kRemoveDeadNodes) report_.dead_nodes += *result;
    return options_.after_pass ? options_.after_pass(pass.name, module_) : Status();
  }

  // Those of one stage until nothing changes, with what lowering needs in between.
  Status run_rewrites(bool late) {
    for (size_t i = 0; i < options_.rewrites.size(); ++i) {
      const Rewrite& rewrite = options_.rewrites[i];
      if (rewrite.is_late != late || lists(options_.disabled, rewrite.name)) continue;
      Refusals refusals;
      for (uint32_t round = 0; round < kRoundsMax; ++round) {
        if (Status status = run_level(Level::kRequired); !status.ok()) return status;
        refusals.clear();
        auto changes = run_rewrite(rewrite, module_, refusals);
        if (!changes.ok()) return std::move(changes.status());
        if (*changes == 0) break;
        rewrite_changes_[i] += *changes;
        total_changes_ += *changes;
        Status status = verify_after(rewrite.name, module_);
        if (status.ok() && options_.after_pass) status = options_.after_pass(rewrite.name, module_);
        if (!status.ok()) return status;
      }
      report_.refusals.insert(report_.refusals.end(), refusals.begin(), refusals.end());
    }
    return total_changes_ == 0 ? Status() : run_level(Level::kRequired);
  }

  ir::Module& module_;
  const SimplifyOptions& options_;
  std::vector<uint32_t> rewrite_changes_ = std::vector<uint32_t>(options_.rewrites.size());
  SimplifyReport report_;
  std::array<Refusals, kPasses.size()> refusals_;
  std::array<uint32_t, kPasses.size()> changes_{};
  // The changes that a pass had seen when it began; one that begins where it began before would
  // only find what it left then.
  std::array<uint64_t, kPasses.size()> settled_at_ = all_unsettled();
  uint64_t total_changes_ = 0;

  static constexpr std::array<uint64_t, kPasses.size()> all_unsettled() {
    std::array<uint64_t, kPasses.size()> out{};
    out.fill(UINT64_MAX);
    return out;
  }
};

}  // namespace

Status check_supported(const ir::Module& module) {
  std::map<std::string, std::string> nodes_of_operator;
  for (uint32_t n = 0; n < module.node_count(); ++n) {
    const ir::NodeId node{n};
    if (!module.node_alive(node) || ops::find_operator(module, node) != nullptr ||
        is_sequence_operator(module, node) || is_op(module, node, "Scan")) {
      continue;
    }
    std::string& nodes = nodes_of_operator[module.op_label(node)];
    if (!nodes.empty()) nodes += ", ";
    nodes += module.node_path(node);
  }
  if (nodes_of_operator.empty()) return {};
  std::string list;
  bool is_foreign = false;  // Of a domain that is not ONNX's.
  for (const auto& [op, nodes] : nodes_of_operator) {
    is_foreign = is_foreign || !op.starts_with("ai.onnx");
    if (!list.empty()) list += "; ";
    list += op;
    list += ": ";
    list += nodes;
  }
  const size_t count = nodes_of_operator.size();
  return Status(ErrorDetail{
      .code = DVT_UNSUPPORTED,
      .stage = DVT_STAGE_CHECK,
      .message = std::to_string(count) + (count == 1 ? " operator is" : " operators are") +
                 " not supported: " + list,
      .hint = is_foreign ? "operators of other domains come from plug-ins: --plugin FILE" : ""});
}

std::span<const Pass> all_passes() {
  return kPasses;
}

std::span<const LoweringPass> lowering_passes() {
  return kLoweringPasses;
}

bool is_enabled(std::string_view name, Level level, const SimplifyOptions& options) {
  if (level == Level::kRequired) return true;
  if (lists(options.disabled, name)) return false;
  if (!options.only.empty()) return lists(options.only, name);
  return level <= options.level || lists(options.enabled, name);
}

Result<uint32_t> run_pass(const Pass& pass, ir::Module& module, Refusals& refusals) {
  Result<uint32_t> result = pass.run(module, refusals);
  if (!result.ok()) return result;
  Status status = verify_after(pass.name, module);
  if (!status.ok()) return status;
  return result;
}

Result<SimplifyReport> simplify(ir::Module& module, const SimplifyOptions& options) {
  Status status = check_names(options.disabled, "disabled", options.rewrites);
  if (status.ok()) status = check_names(options.enabled, "enabled");
  if (status.ok()) status = check_names(options.only, "run alone");
  if (!status.ok()) return status;
  return Simplifier(module, options).run();
}

}  // namespace davit::passes
