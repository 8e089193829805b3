#include "ops/defs/common.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "base/dtype.hpp"

namespace davit::ops {
namespace {

uint64_t saturating_mul(uint64_t a, uint64_t b) {
  return checked_mul(a, b).value_or(UINT64_MAX);
}
uint64_t saturating_add(uint64_t a, uint64_t b) {
  return checked_add(a, b).value_or(UINT64_MAX);
}

DvtTaskCost traffic(const NodeView& node) {
  DvtTaskCost cost{};
  for (uint32_t i = 0; i < node.input_count(); ++i) {
    cost.read_bytes = saturating_add(cost.read_bytes, input_bytes(node, i));
  }
  for (uint32_t i = 0; i < node.output_count(); ++i) {
    cost.write_bytes = saturating_add(cost.write_bytes, output_bytes(node, i));
  }
  cost.dtype = node.input_count() > 0 ? node.input_dtype(0) : node.output_dtype(0);
  return cost;
}

}  // namespace

std::string shape_text(const NodeView& node, const ir::Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ',';
    if (shape[i].is_known()) {
      text += std::to_string(shape[i].extent());
    } else if (shape[i].is_symbol()) {
      text += node.module().symbol_name(shape[i].symbol_id());
    } else {
      text += '?';
    }
  }
  return text + "]";
}

Status mismatch(const NodeView& node, std::string message, std::string expected, std::string got,
                DvtStage stage) {
  ErrorDetail detail =
      node.module().error_at(node.id(), DVT_INVALID_ARGUMENT, stage, std::move(message));
  detail.expected = std::move(expected);
  detail.got = std::move(got);
  return Status(std::move(detail));
}

Status all_present(const NodeView& node) {
  for (uint32_t i = 0; i < node.input_count(); ++i) {
    if (node.has_input(i)) continue;
    return node.error(DVT_INVALID_ARGUMENT, "input " + std::to_string(i) + " is missing");
  }
  return {};
}

Status same_dtype(const NodeView& node, uint32_t a, uint32_t b) {
  const DvtDType x = node.input_dtype(a);
  const DvtDType y = node.input_dtype(b);
  if (x == y || x == DVT_DTYPE_NONE || y == DVT_DTYPE_NONE) return {};
  return mismatch(node,
                  "inputs " + std::to_string(a) + " and " + std::to_string(b) +
                      " must have the same element type",
                  std::string(dtype_name(x)), std::string(dtype_name(y)));
}

Result<int64_t> require_axis(const NodeView& node, int64_t axis, size_t rank,
                             std::string_view name) {
  const auto signed_rank = static_cast<int64_t>(rank);
  if (const auto normal = normalise_axis(axis, signed_rank)) return *normal;
  return mismatch(node, std::string(name) + " is out of range",
                  "-" + std::to_string(rank) + " to " + std::to_string(signed_rank - 1),
                  std::to_string(axis));
}

Status check_elements(const NodeView& node, const ir::Shape& shape) {
  const auto extents = ir::static_extents(shape);
  // 8 bytes is the largest element.
  if (!extents || checked_elements(*extents).value_or(INT64_MAX) <= INT64_MAX / 8) return {};
  return node.error(DVT_INVALID_ARGUMENT,
                    "the output would have too many elements: " + shape_text(node, shape));
}

Result<const DvtKernel*> require_kernel(const NodeView& node, std::string_view base,
                                        DvtDType dtype) {
  if (const DvtKernel* kernel = find_kernel(base, dtype)) return kernel;
  std::string known;
  for (uint32_t value = 0; value < 256; ++value) {
    if (!dtype_is_valid(value) || find_kernel(base, DvtDType(value)) == nullptr) continue;
    known += known.empty() ? "" : ", ";
    known += dtype_name(DvtDType(value));
  }
  ErrorDetail detail = node.module().error_at(node.id(), DVT_UNSUPPORTED, DVT_STAGE_LOWER,
                                              "no kernel for this element type");
  detail.expected = known.empty() ? "none" : known;
  detail.got = dtype_name(dtype);
  return Status(std::move(detail));
}

Result<size_t> require_rank(const NodeView& node, uint32_t index) {
  if (const ir::Shape* shape = node.input_shape(index)) return shape->size();
  return node.error(DVT_UNSUPPORTED, "the rank of input " + std::to_string(index) + " is not known",
                    DVT_STAGE_LOWER);
}

Result<DvtIntegerList> integer_list(const NodeView& node, const std::vector<int64_t>& values,
                                    std::string_view name) {
  if (values.size() > DVT_MAX_RANK) {
    ErrorDetail detail =
        node.module().error_at(node.id(), DVT_UNSUPPORTED, DVT_STAGE_LOWER,
                               std::string(name) + " has more entries than Davit's tensors axes");
    detail.expected = "at most " + std::to_string(DVT_MAX_RANK);
    detail.got = std::to_string(values.size());
    return Status(std::move(detail));
  }
  DvtIntegerList list{.count = static_cast<int64_t>(values.size()), .values = {}};
  std::copy(values.begin(), values.end(), list.values);
  return list;
}

Result<DvtIntegerList> integer_list(const NodeView& node, uint32_t input, std::string_view name) {
  if (const auto values = node.input_i64(input)) return integer_list(node, *values, name);
  return DvtIntegerList{.count = DVT_LIST_INPUT, .values = {}};
}

void take_list(Recipe& recipe, const DvtIntegerList& list, uint32_t input) {
  if (list.count == DVT_LIST_INPUT) recipe.inputs.push_back(input);
}

Recipe plain_recipe(const NodeView& node, const DvtKernel* kernel,
                    std::vector<std::byte> attributes) {
  Recipe recipe;
  recipe.kernel = kernel;
  recipe.attributes = std::move(attributes);
  for (uint32_t i = 0; i < node.input_count(); ++i) {
    recipe.inputs.push_back(node.has_input(i) ? i : ir::kNone);
  }
  for (uint32_t i = 0; i < node.output_count(); ++i) {
    recipe.outputs.push_back(node.has_output(i) ? i : ir::kNone);
  }
  return recipe;
}

uint64_t element_count(const std::optional<std::vector<int64_t>>& extents) {
  if (!extents) return 0;
  return checked_elements(*extents).value_or(UINT64_MAX);
}

uint64_t input_bytes(const NodeView& node, uint32_t index) {
  return saturating_mul(element_count(node.input_extents(index)),
                        dvt_dtype_size(node.input_dtype(index)));
}

uint64_t output_bytes(const NodeView& node, uint32_t index) {
  return saturating_mul(element_count(node.output_extents(index)),
                        dvt_dtype_size(node.output_dtype(index)));
}

Result<Recipe> alias_recipe(const NodeView& /*node*/) {
  return view_recipe("Identity", {});
}

Recipe view_recipe(std::string_view kernel, std::vector<std::byte> attributes) {
  Recipe recipe{.is_alias = true};
  recipe.kernel = find_kernel(kernel);
  recipe.attributes = std::move(attributes);
  recipe.inputs = {0};
  recipe.outputs = {0};
  return recipe;
}

DvtTaskCost no_cost(const NodeView& /*node*/) {
  return {};
}

DvtTaskCost part_cost(const NodeView& node) {
  DvtTaskCost cost = move_cost(node);
  cost.read_bytes = cost.write_bytes;
  return cost;
}

DvtTaskCost move_cost(const NodeView& node) {
  DvtTaskCost cost = traffic(node);
  cost.kind = DVT_TASK_MOVE;
  return cost;
}

DvtTaskCost vector_cost(const NodeView& node, uint64_t elements, uint64_t passes_x100) {
  DvtTaskCost cost = traffic(node);
  cost.kind = dvt_dtype_size(cost.dtype) == 8 ? DVT_TASK_AICPU : DVT_TASK_VECTOR;
  cost.vector_elements = elements;
  cost.vector_passes_x100 = passes_x100;
  return cost;
}

}  // namespace davit::ops
