// Range.
#include <array>

#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"

namespace davit::ops {
namespace {

Status infer_range(const NodeView& node, std::span<InferredOutput> outputs) {
  for (const uint32_t other : {1U, 2U}) {
    Status status = same_dtype(node, 0, other);
    if (!status.ok()) return status;
  }
  for (uint32_t i = 0; i < 3; ++i) {
    const auto extents = node.input_extents(i);
    if (!extents || element_count(extents) == 1) continue;
    return mismatch(node, "start, limit and delta have one element", "1",
                    std::to_string(element_count(extents)));
  }
  outputs[0].dtype = node.input_dtype(0);
  outputs[0].shape = ir::Shape(1);
  const auto start = node.input_i64(0);
  const auto limit = node.input_i64(1);
  const auto delta = node.input_i64(2);
  if (!start || !limit || !delta || start->empty() || limit->empty() || delta->empty()) return {};
  const int64_t step = delta->front();
  if (step == 0) return node.error(DVT_INVALID_ARGUMENT, "delta is zero");
  const __int128 span = __int128{limit->front()} - start->front();
  const __int128 count = (span / step) + ((span % step != 0 && (span > 0) == (step > 0)) ? 1 : 0);
  if (count > INT64_MAX) return node.error(DVT_INVALID_ARGUMENT, "the range is too long");
  outputs[0].shape->front() = ir::Dim(count > 0 ? static_cast<int64_t>(count) : 0);
  return check_elements(node, *outputs[0].shape);
}

Result<Recipe> recipe_range(const NodeView& node) {
  auto kernel = require_kernel(node, "Range", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  return plain_recipe(node, *kernel);
}

constexpr std::array kOperators = {
    OperatorDefinition{"", "Range", 11, INT64_MAX, 3, 3, 1, 1, infer_range, recipe_range,
                       move_cost},
};

}  // namespace

std::span<const OperatorDefinition> range_operators() {
  return kOperators;
}

}  // namespace davit::ops
