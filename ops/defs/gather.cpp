// Operators that read or update what indices name. Kernels judge the indices themselves.
#include <array>

#include "base/dtype.hpp"
#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"
#include "ops/kernels/index.h"
#include "ops/kernels/movement.h"

namespace davit::ops {
namespace {

std::vector<std::byte> axis_bytes(const NodeView& node) {
  return attribute_bytes(DvtAxisAttributes{.axis = node.attribute_int("axis", 0)});
}

Status check_indices(const NodeView& node) {
  const DvtDType indices = node.input_dtype(1);
  if (indices == DVT_DTYPE_NONE || indices == DVT_I32 || indices == DVT_I64) return {};
  return mismatch(node, "indices must be integers", "i32 or i64", std::string(dtype_name(indices)));
}

bool longer(ir::Dim a, ir::Dim b) {
  return a.is_known() && b.is_known() && a.extent() > b.extent();
}
bool differ(ir::Dim a, ir::Dim b) {
  return a.is_known() && b.is_known() && !(a == b);
}

Status misfit(const NodeView& node) {
  return mismatch(node, "indices do not fit the input", shape_text(node, *node.input_shape(0)),
                  shape_text(node, *node.input_shape(1)));
}

// ---- Gather -----------------------------------------------------------------------------------

Status infer_gather(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
  Status status = check_indices(node);
  if (!status.ok()) return status;
  const ir::Shape* shape = node.input_shape(0);
  if (shape == nullptr) return {};
  auto axis = require_axis(node, node.attribute_int("axis", 0), shape->size());
  if (!axis.ok()) return std::move(axis.status());
  const ir::Shape* index_shape = node.input_shape(1);
  if (index_shape == nullptr) return {};
  ir::Shape output(shape->begin(), shape->begin() + *axis);
  output.insert(output.end(), index_shape->begin(), index_shape->end());
  output.insert(output.end(), shape->begin() + *axis + 1, shape->end());
  outputs[0].shape = std::move(output);
  return {};
}

Result<Recipe> recipe_gather(const NodeView& node) {
  return plain_recipe(node, find_kernel("Gather"), axis_bytes(node));
}

// ---- GatherElements ---------------------------------------------------------------------------

// Indices of one element each: input 0's rank, and nowhere but along the axis longer than it.
Status check_elements_of(const NodeView& node) {
  const ir::Shape* shape = node.input_shape(0);
  const ir::Shape* indices = node.input_shape(1);
  if (shape == nullptr) return {};
  auto axis = require_axis(node, node.attribute_int("axis", 0), shape->size());
  if (!axis.ok()) return std::move(axis.status());
  if (indices == nullptr) return {};
  bool fits = indices->size() == shape->size();
  for (size_t d = 0; fits && d < shape->size(); ++d) {
    fits = d == static_cast<size_t>(*axis) || !longer((*indices)[d], (*shape)[d]);
  }
  return fits ? Status() : misfit(node);
}

Status infer_gather_elements(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
  Status status = check_indices(node);
  if (status.ok()) status = check_elements_of(node);
  const ir::Shape* indices = node.input_shape(1);
  if (status.ok() && indices != nullptr) outputs[0].shape = *indices;
  return status;
}

Result<Recipe> recipe_gather_elements(const NodeView& node) {
  return plain_recipe(node, find_kernel("GatherElements"), axis_bytes(node));
}

// ---- GatherND ---------------------------------------------------------------------------------

int64_t batch_dims(const NodeView& node) {
  return node.opset() >= 12 ? node.attribute_int("batch_dims", 0) : 0;
}

// Entries of each tuple; nullopt while it is not known. Refuses tuples that do not fit.
Result<std::optional<size_t>> tuple_length(const NodeView& node, int64_t batch) {
  const ir::Shape* shape = node.input_shape(0);
  const ir::Shape* indices = node.input_shape(1);
  if (shape == nullptr || indices == nullptr) return std::optional<size_t>();
  if (batch < 0 || batch >= static_cast<int64_t>(shape->size()) ||
      batch >= static_cast<int64_t>(indices->size())) {
    return mismatch(node, "indices and input have too few axes for batch_dims",
                    std::to_string(batch + 1) + " or more", shape_text(node, *indices));
  }
  for (size_t d = 0; d < static_cast<size_t>(batch); ++d) {
    if (differ((*shape)[d], (*indices)[d])) return misfit(node);
  }
  const ir::Dim last = indices->back();
  if (!last.is_known()) return std::optional<size_t>();
  if (last.extent() < 1 || last.extent() > static_cast<int64_t>(shape->size()) - batch) {
    return misfit(node);
  }
  return std::optional(static_cast<size_t>(last.extent()));
}

Status infer_gather_nd(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
  Status status = check_indices(node);
  if (!status.ok()) return status;
  const int64_t batch = batch_dims(node);
  auto length = tuple_length(node, batch);
  if (!length.ok()) return std::move(length.status());
  if (!*length) return {};
  const ir::Shape& shape = *node.input_shape(0);
  const ir::Shape& indices = *node.input_shape(1);
  ir::Shape output(indices.begin(), indices.end() - 1);
  output.insert(output.end(), shape.begin() + batch + static_cast<int64_t>(**length), shape.end());
  outputs[0].shape = std::move(output);
  return {};
}

Result<Recipe> recipe_gather_nd(const NodeView& node) {
  return plain_recipe(node, find_kernel("GatherND"),
                      attribute_bytes(DvtGatherNdAttributes{.batch_dims = batch_dims(node)}));
}

DvtTaskCost cost_gather(const NodeView& node) {
  DvtTaskCost cost = part_cost(node);
  cost.read_bytes += input_bytes(node, 1);
  return cost;
}

// ---- ScatterElements, ScatterND ---------------------------------------------------------------

std::optional<DvtScatter> reduction_of(const NodeView& node) {
  const std::string text = node.attribute_string("reduction", "none");
  if (text == "none") return DVT_SCATTER_NONE;
  if (text == "add" && node.opset() >= 16) return DVT_SCATTER_ADD;
  if (text == "mul" && node.opset() >= 16) return DVT_SCATTER_MUL;
  if (text == "max" && node.opset() >= 18) return DVT_SCATTER_MAX;
  if (text == "min" && node.opset() >= 18) return DVT_SCATTER_MIN;
  return std::nullopt;
}

Status infer_scatter(const NodeView& node, std::span<InferredOutput> outputs) {
  Status status = check_indices(node);
  if (status.ok()) status = same_dtype(node, 0, 2);
  if (!status.ok()) return status;
  if (!reduction_of(node)) {
    return mismatch(node, "attribute reduction is not known in this opset",
                    node.opset() >= 18   ? "none, add, mul, max or min"
                    : node.opset() >= 16 ? "none, add or mul"
                                         : "none",
                    node.attribute_string("reduction", ""));
  }
  outputs[0].dtype = node.input_dtype(0);
  if (const ir::Shape* shape = node.input_shape(0)) outputs[0].shape = *shape;
  return {};
}

// Updates have a shape that follows from the other inputs'.
Status check_updates(const NodeView& node, const ir::Shape& expected) {
  const ir::Shape* updates = node.input_shape(2);
  if (updates == nullptr) return {};
  bool fits = updates->size() == expected.size();
  for (size_t d = 0; fits && d < expected.size(); ++d) fits = !differ((*updates)[d], expected[d]);
  if (fits) return {};
  return mismatch(node, "updates have the wrong shape", shape_text(node, expected),
                  shape_text(node, *updates));
}

Status infer_scatter_elements(const NodeView& node, std::span<InferredOutput> outputs) {
  Status status = infer_scatter(node, outputs);
  if (status.ok()) status = check_elements_of(node);
  const ir::Shape* indices = node.input_shape(1);
  if (!status.ok() || indices == nullptr) return status;
  return check_updates(node, *indices);
}

Status infer_scatter_nd(const NodeView& node, std::span<InferredOutput> outputs) {
  Status status = infer_scatter(node, outputs);
  if (!status.ok()) return status;
  auto length = tuple_length(node, 0);
  if (!length.ok()) return std::move(length.status());
  if (!*length) return {};
  const ir::Shape& shape = *node.input_shape(0);
  const ir::Shape& indices = *node.input_shape(1);
  ir::Shape expected(indices.begin(), indices.end() - 1);
  expected.insert(expected.end(), shape.begin() + static_cast<int64_t>(**length), shape.end());
  return check_updates(node, expected);
}

Result<Recipe> recipe_scatter(const NodeView& node) {
  const DvtScatter reduction = reduction_of(node).value_or(DVT_SCATTER_NONE);
  const DvtDType dtype = node.input_dtype(0);
  if (!is_number(dtype) || (reduction != DVT_SCATTER_NONE && dtype == DVT_BOOL)) {
    return node.error(DVT_UNSUPPORTED,
                      "no kernel for updates of type " + std::string(dtype_name(dtype)),
                      DVT_STAGE_LOWER);
  }
  const bool tuples = node.module().op(node.id()) == "ScatterND";
  const DvtScatterAttributes record{.axis = tuples ? 0 : node.attribute_int("axis", 0),
                                    .reduction = reduction};
  return plain_recipe(node, find_kernel(tuples ? "ScatterND" : "ScatterElements"),
                      attribute_bytes(record));
}

constexpr OperatorDefinition scatter(std::string_view name, int64_t since, int64_t until,
                                     Status (*infer)(const NodeView&, std::span<InferredOutput>)) {
  return {"", name, since, until, 3, 3, 1, 1, infer, recipe_scatter, move_cost};
}

constexpr std::array kOperators = {
    OperatorDefinition{"", "Gather", 1, INT64_MAX, 2, 2, 1, 1, infer_gather, recipe_gather,
                       cost_gather},
    OperatorDefinition{"", "GatherElements", 11, INT64_MAX, 2, 2, 1, 1, infer_gather_elements,
                       recipe_gather_elements, cost_gather},
    OperatorDefinition{"", "GatherND", 11, INT64_MAX, 2, 2, 1, 1, infer_gather_nd, recipe_gather_nd,
                       cost_gather},
    scatter("Scatter", 9, 10, infer_scatter_elements),  // ScatterElements replaced it.
    scatter("ScatterElements", 11, INT64_MAX, infer_scatter_elements),
    scatter("ScatterND", 11, INT64_MAX, infer_scatter_nd),
};

}  // namespace

std::span<const OperatorDefinition> gather_operators() {
  return kOperators;
}

}  // namespace davit::ops
