// The Reduce* operators: one kernel, ten operations. The axes are an attribute at first; they
// became an input in opset 13 for ReduceSum and in opset 18 for the others.
#include "ops/kernels/reduction.h"

#include <algorithm>
#include <array>

#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"

namespace davit::ops {
namespace {

bool axes_are_input(const NodeView& node) {
  return node.opset() >= (node.module().op(node.id()) == "ReduceSum" ? 13 : 18);
}

// The axes as stated: nullopt while they are an input that is not constant.
std::optional<std::vector<int64_t>> stated_axes(const NodeView& node) {
  if (!axes_are_input(node)) return node.attribute_ints("axes");
  if (!node.has_input(1)) return std::vector<int64_t>();
  return node.input_i64(1);
}

bool is_noop(const NodeView& node, const std::vector<int64_t>& axes) {
  return axes.empty() && axes_are_input(node) && node.attribute_int("noop_with_empty_axes", 0) != 0;
}

// Which dims are reduced, as a bit mask. No axes means all, unless is_noop().
Result<int64_t> axes_mask(const NodeView& node, const std::vector<int64_t>& axes, size_t rank) {
  if (axes.empty()) return (int64_t{1} << rank) - 1;
  int64_t mask = 0;
  for (const int64_t axis : axes) {
    const auto dim = normalise_axis(axis, static_cast<int64_t>(rank));
    if (!dim || (mask >> *dim & 1) != 0) {
      return mismatch(
          node, dim ? "an axis is named twice" : "an axis is out of range",
          "distinct values in [-" + std::to_string(rank) + ", " + std::to_string(rank) + ")",
          std::to_string(axis));
    }
    mask |= int64_t{1} << *dim;
  }
  return mask;
}

Status infer_reduce(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
  const ir::Shape* x = node.input_shape(0);
  if (x == nullptr || x->size() > DVT_MAX_RANK) return {};
  const bool keep = node.attribute_int("keepdims", 1) != 0;
  const auto axes = stated_axes(node);
  if (!axes) {
    if (keep) outputs[0].shape = ir::Shape(x->size());
    return {};
  }
  if (is_noop(node, *axes)) {
    outputs[0].shape = *x;
    return {};
  }
  auto mask = axes_mask(node, *axes, x->size());
  if (!mask.ok()) return std::move(mask.status());
  ir::Shape shape;
  for (size_t i = 0; i < x->size(); ++i) {
    const bool reduced = (*mask >> i & 1) != 0;
    if (!reduced) {
      shape.push_back((*x)[i]);
    } else if (keep) {
      shape.emplace_back(1);
    }
  }
  outputs[0].shape = std::move(shape);
  return {};
}

struct Operation {
  std::string_view name;
  DvtReduceOp op;
};
constexpr std::array kOperations = {
    Operation{"ReduceL1", DVT_REDUCE_L1},
    Operation{"ReduceL2", DVT_REDUCE_L2},
    Operation{"ReduceLogSum", DVT_REDUCE_LOG_SUM},
    Operation{"ReduceLogSumExp", DVT_REDUCE_LOG_SUM_EXP},
    Operation{"ReduceMax", DVT_REDUCE_MAX},
    Operation{"ReduceMean", DVT_REDUCE_MEAN},
    Operation{"ReduceMin", DVT_REDUCE_MIN},
    Operation{"ReduceProd", DVT_REDUCE_PROD},
    Operation{"ReduceSum", DVT_REDUCE_SUM},
    Operation{"ReduceSumSquare", DVT_REDUCE_SUM_SQUARE},
};

DvtReduceOp operation_of(const NodeView& node) {
  const std::string_view name = node.module().op(node.id());
  return std::find_if(kOperations.begin(), kOperations.end(),
                      [name](const Operation& operation) { return operation.name == name; })
      ->op;
}

Result<Recipe> recipe_reduce(const NodeView& node) {
  const DvtDType dtype = node.input_dtype(0);
  const auto stated = stated_axes(node);
  const std::vector<int64_t> axes = stated.value_or(std::vector<int64_t>());
  if (stated && is_noop(node, axes)) return Recipe{.is_alias = true};
  auto kernel = require_kernel(node, "Reduce", dtype);
  if (!kernel.ok()) return std::move(kernel.status());
  const DvtReduceOp op = operation_of(node);
  const bool is_float =
      dtype == DVT_F32 || dtype == DVT_F64 || dtype == DVT_F16 || dtype == DVT_BF16;
  if (op >= DVT_REDUCE_L2 && !is_float) {
    return node.error(DVT_UNSUPPORTED, "no kernel for integers", DVT_STAGE_LOWER);
  }
  const ir::Shape* x = node.input_shape(0);
  DvtReduceAttributes attributes = {.op = op,
                                    .axes = -1,
                                    .axes_from_end = 0,
                                    .keep_dims = node.attribute_int("keepdims", 1) != 0 ? 1 : 0};
  if (!stated) {
    if (is_noop(node, axes)) attributes.axes = 0;
  } else if (x != nullptr) {
    auto mask = axes_mask(node, axes, x->size());
    if (!mask.ok()) return std::move(mask.status());
    attributes.axes = *mask;
  } else if (!axes.empty()) {
    attributes.axes = 0;
    for (const int64_t axis : axes) {
      if (axis < -DVT_MAX_RANK || axis >= DVT_MAX_RANK) {
        return node.error(DVT_INVALID_ARGUMENT, "an axis is out of range", DVT_STAGE_LOWER);
      }
      int64_t& bits = axis >= 0 ? attributes.axes : attributes.axes_from_end;
      bits |= int64_t{1} << (axis >= 0 ? axis : -1 - axis);
    }
  }
  Recipe recipe = plain_recipe(node, *kernel, attribute_bytes(attributes));
  recipe.inputs = {0};
  if (!stated) recipe.inputs.push_back(1);
  return recipe;
}

DvtTaskCost cost_reduce(const NodeView& node) {
  return vector_cost(node, element_count(node.input_extents(0)), 100);
}

constexpr OperatorDefinition reduce(std::string_view name, int64_t since, int64_t until,
                                    uint32_t input_max) {
  return {"", name, since, until, 1, input_max, 1, 1, infer_reduce, recipe_reduce, cost_reduce};
}

// ReduceSum has its own history, and ReduceMax and ReduceMin two more versions than the others.
constexpr auto kOperators = [] {
  std::array<OperatorDefinition, 4 * kOperations.size() + 3> all{};
  size_t count = 0;
  for (const Operation& operation : kOperations) {
    const std::string_view name = operation.name;
    const bool sum = operation.op == DVT_REDUCE_SUM;
    const bool extreme = operation.op == DVT_REDUCE_MAX || operation.op == DVT_REDUCE_MIN;
    all[count++] = reduce(name, 1, 10, 1);
    if (extreme) {
      all[count++] = reduce(name, 11, 11, 1);
      all[count++] = reduce(name, 12, 12, 1);
    } else {
      all[count++] = reduce(name, 11, 12, 1);
    }
    if (sum) {
      all[count++] = reduce(name, 13, INT64_MAX, 2);
      continue;
    }
    all[count++] = reduce(name, 13, 17, 1);
    if (!extreme) {
      all[count++] = reduce(name, 18, INT64_MAX, 2);
      continue;
    }
    all[count++] = reduce(name, 18, 19, 2);
    all[count++] = reduce(name, 20, INT64_MAX, 2);
  }
  // 7 with 4 versions, ReduceSum with 3, two with 6.
  static_assert(4 * kOperations.size() + 3 == 7 * 4 + 3 + 2 * 6);
  return all;
}();

}  // namespace

std::span<const OperatorDefinition> reduction_operators() {
  return kOperators;
}

}  // namespace davit::ops
