// Operators whose outputs are views of their input, or follow from shapes alone.
#include <array>

#include "ops/defs/families.hpp"

namespace davit::ops {
namespace {

Result<Recipe> alias_recipe(const NodeView&) {
  return Recipe{.is_alias = true};
}
DvtTaskCost no_cost(const NodeView&) {
  return {};
}

Status infer_identity(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
  if (const ir::Shape* shape = node.input_shape(0)) outputs[0].shape = *shape;
  return {};
}

constexpr std::array kOperators = {
    OperatorDefinition{"", "Identity", 1, INT64_MAX, 1, 1, 1, 1, infer_identity, alias_recipe,
                       no_cost},
};

}  // namespace

std::span<const OperatorDefinition> shape_operators() {
  return kOperators;
}

}  // namespace davit::ops
