// Generated*: operators whose kernels codegen has made, for one shape each.
#include <array>

#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"
#include "ops/defs/fused.hpp"
#include "ops/plugin.hpp"

namespace davit::ops {
namespace {

Status infer_generated(const NodeView& node, std::span<InferredOutput> outputs) {
  ir::Shape shape;
  for (const int64_t extent : node.attribute_ints("shape")) {
    if (extent < 0)
      return node.error(DVT_INVALID_ARGUMENT, "attribute shape has a negative extent");
    shape.emplace_back(extent);
  }
  outputs[0].dtype = node.input_dtype(0);
  outputs[0].shape = std::move(shape);
  return {};
}

Result<Recipe> recipe_generated(const NodeView& node) {
  const std::string name = node.attribute_string("kernel", "");
  const PluginOperators* operators = node.module().plugin_operators;
  const DvtKernel* kernel =
      operators == nullptr ? nullptr : operators->find_kernel(name, DVT_DTYPE_NONE);
  if (kernel == nullptr) {
    return node.error(DVT_UNSUPPORTED, "kernel " + name + " has not been generated");
  }
  Recipe recipe = plain_recipe(node, kernel);
  const int64_t workspace = node.attribute_int("workspace_bytes", 0);
  if (workspace > 0) recipe.workspace_bytes = {uint64_t(workspace)};
  return recipe;
}

// Attribute cost has batch, m, n and k, as DvtTaskCost.
DvtTaskCost cost_generated(const NodeView& node) {
  DvtTaskCost cost = move_cost(node);
  const std::vector<int64_t> extents = node.attribute_ints("cost", {0, 0, 0, 0});
  const std::string_view op = node.module().op(node.id());
  const bool is_conv = op == "GeneratedConv";
  const bool is_product = is_conv || op == "GeneratedMatMul" || op == "GeneratedAttention";
  if (extents.size() != 4 || !is_product) return cost;
  cost.kind = is_conv ? DVT_TASK_CONV : DVT_TASK_MATMUL;
  cost.batch = uint64_t(extents[0]);
  cost.m = uint64_t(extents[1]);
  cost.n = uint64_t(extents[2]);
  cost.k = uint64_t(extents[3]);
  return cost;
}

constexpr OperatorDefinition generated(std::string_view name, uint32_t input_min) {
  return {kFusedDomain,  name, 1, INT64_MAX,       input_min,
          UINT32_MAX,    1,    1, infer_generated, recipe_generated,
          cost_generated};
}

constexpr std::array kOperators = {
    generated("GeneratedConv", 2),      generated("GeneratedMatMul", 2),
    generated("GeneratedPool", 1),      generated("GeneratedReduce", 1),
    generated("GeneratedSoftmax", 1),   generated("GeneratedResize", 1),
    generated("GeneratedAttention", 3), generated("GeneratedSource", 1)};

}  // namespace

std::span<const OperatorDefinition> generated_operators() {
  return kOperators;
}

}  // namespace davit::ops
