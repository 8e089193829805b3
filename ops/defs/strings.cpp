// StringNormalizer. Its stopwords are an attribute; the pass lift_tables makes them input 1,
// because a kernel's record holds no lists of any length.
#include "ops/kernels/strings.h"

#include <algorithm>
#include <array>

#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"

namespace davit::ops {
namespace {

struct CaseChange {
  std::string_view name;
  int64_t id;
};
constexpr std::array kChanges = {CaseChange{"NONE", DVT_CASE_NONE},
                                 CaseChange{"LOWER", DVT_CASE_LOWER},
                                 CaseChange{"UPPER", DVT_CASE_UPPER}};

const CaseChange* change_of(const NodeView& node) {
  const auto* at = std::ranges::find(kChanges, node.attribute_string("case_change_action", "NONE"),
                                     &CaseChange::name);
  return at == kChanges.end() ? nullptr : at;
}

Status infer_normalizer(const NodeView& node, std::span<InferredOutput> outputs) {
  const DvtDType dtype = node.input_dtype(0);
  if (dtype != DVT_DTYPE_NONE && dtype != DVT_STRING) {
    return node.error(DVT_INVALID_ARGUMENT, "the input must be of type string");
  }
  if (change_of(node) == nullptr) {
    return mismatch(node, "attribute case_change_action has an unknown value",
                    "NONE, LOWER or UPPER", node.attribute_string("case_change_action", ""));
  }
  outputs[0].dtype = DVT_STRING;
  const ir::Shape* shape = node.input_shape(0);
  if (shape == nullptr) return {};
  const bool is_row = shape->size() == 2 && (!(*shape)[0].is_known() || (*shape)[0].extent() == 1);
  if (shape->size() != 1 && !is_row) {
    return mismatch(node, "the input must be one list", "[C] or [1,C]", shape_text(node, *shape));
  }
  ir::Shape left(shape->size());
  if (is_row) left[0] = ir::Dim(1);
  outputs[0].shape = std::move(left);
  return {};
}

Result<Recipe> recipe_normalizer(const NodeView& node) {
  if (!node.attribute_strings("stopwords").empty() && !node.has_input(1)) {
    return node.error(DVT_INTERNAL, "lift_tables has not seen this node", DVT_STAGE_LOWER);
  }
  return plain_recipe(node, find_kernel("StringNormalizer"),
                      attribute_bytes(DvtNormalizerAttributes{
                          .case_change = change_of(node)->id,
                          .case_sensitive = node.attribute_int("is_case_sensitive", 0)}));
}

DvtTaskCost cost_normalizer(const NodeView& node) {
  DvtTaskCost cost = vector_cost(node, element_count(node.input_extents(0)), 25600);
  cost.kind = DVT_TASK_AICPU;
  return cost;
}

constexpr std::array kOperators = {
    OperatorDefinition{"", "StringNormalizer", 10, INT64_MAX, 1, 2, 1, 1, infer_normalizer,
                       recipe_normalizer, cost_normalizer},
};

}  // namespace

std::span<const OperatorDefinition> strings_operators() {
  return kOperators;
}

}  // namespace davit::ops
