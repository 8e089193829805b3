// Det.
#include <array>

#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"
#include "ops/defs/scratch.hpp"

namespace davit::ops {
namespace {

Status infer_det(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
  const ir::Shape* x = node.input_shape(0);
  if (x == nullptr) return {};
  const size_t rank = x->size();
  if (rank < 2 || ((*x)[rank - 1].is_known() && (*x)[rank - 2].is_known() &&
                   !((*x)[rank - 1] == (*x)[rank - 2]))) {
    return mismatch(node, "X must be square matrices", "[...,N,N]", shape_text(node, *x));
  }
  outputs[0].shape = ir::Shape(x->begin(), x->end() - 2);
  return {};
}

Result<Recipe> recipe_det(const NodeView& node) {
  auto kernel = require_kernel(node, "Det", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  Recipe recipe = plain_recipe(node, *kernel);
  if (Status status = add_workspaces(node, recipe); !status.ok()) return status;
  return recipe;
}

// About n / 3 multiplications and subtractions per element.
DvtTaskCost cost_det(const NodeView& node) {
  const auto n = static_cast<uint64_t>(node.input_extents(0)->back());
  return vector_cost(node, element_count(node.input_extents(0)), 67 * n);
}

constexpr std::array kOperators = {
    OperatorDefinition{"", "Det", 11, INT64_MAX, 1, 1, 1, 1, infer_det, recipe_det, cost_det},
};

}  // namespace

std::span<const OperatorDefinition> determinant_operators() {
  return kOperators;
}

}  // namespace davit::ops
