#include "ops/defs/slice.hpp"

#include <algorithm>

#include "ops/defs/common.hpp"

namespace davit::ops {
namespace {

// A list that may be absent or not constant.
struct Parameter {
  bool given = false;
  std::optional<std::vector<int64_t>> values;
};

// Attributes before opset 10, inputs since.
Parameter parameter(const NodeView& node, std::string_view name, uint32_t input) {
  if (node.opset() >= 10) return {node.has_input(input), node.input_i64(input)};
  if (!node.has_attribute(name)) return {};
  return {true, node.attribute_ints(name)};
}

// start : end : step along an axis of `extent` elements, as numpy does.
AxisSlice slice_axis(int64_t extent, int64_t start, int64_t end, int64_t step) {
  const bool forward = step > 0;
  const int64_t low = forward ? 0 : -1;
  const int64_t high = forward ? extent : extent - 1;
  const auto bound = [&](int64_t at, int64_t floor) {
    return std::clamp(at < 0 ? at + extent : at, std::min(floor, high), high);
  };
  const int64_t from = bound(start, 0);
  const int64_t to = bound(end, low);
  const int64_t distance = forward ? to - from : from - to;
  const uint64_t stride =
      forward ? static_cast<uint64_t>(step) : uint64_t{0} - static_cast<uint64_t>(step);
  const uint64_t count = distance <= 0 ? 0 : (static_cast<uint64_t>(distance) - 1) / stride + 1;
  return {.start = std::max<int64_t>(from, 0),
          .step = step,
          .count = ir::Dim(static_cast<int64_t>(count))};
}

// The axes that starts and ends speak of; all from the first on by default. nullopt: unknown.
Result<std::optional<std::vector<size_t>>> sliced_axes(const NodeView& node,
                                                       const Parameter& starts, size_t rank) {
  const Parameter axes = parameter(node, "axes", 3);
  std::vector<int64_t> list;
  if (axes.given) {
    if (!axes.values) return std::optional<std::vector<size_t>>();
    list = *axes.values;
  } else {
    std::optional<size_t> count;
    if (starts.values) count = starts.values->size();
    const auto extents = starts.values ? std::nullopt : node.input_extents(1);
    if (extents && extents->size() == 1) count = static_cast<size_t>((*extents)[0]);
    if (!count) return std::optional<std::vector<size_t>>();
    if (*count > rank) {
      return mismatch(node, "starts has more entries than the input has axes", std::to_string(rank),
                      std::to_string(*count));
    }
    for (size_t i = 0; i < *count; ++i) list.push_back(static_cast<int64_t>(i));
  }
  std::vector<size_t> result;
  for (const int64_t axis : list) {
    auto normal = require_axis(node, axis, rank, "axes");
    if (!normal.ok()) return std::move(normal.status());
    const auto index = static_cast<size_t>(*normal);
    if (std::find(result.begin(), result.end(), index) != result.end()) {
      return mismatch(node, "axes name one axis twice", "distinct axes", std::to_string(axis));
    }
    result.push_back(index);
  }
  return {std::move(result)};
}

Status check_length(const NodeView& node, std::string_view name, const Parameter& list,
                    size_t count) {
  if (!list.values || list.values->size() == count) return {};
  return mismatch(node, std::string(name) + " must have one entry per sliced axis",
                  std::to_string(count), std::to_string(list.values->size()));
}

}  // namespace

Result<std::vector<AxisSlice>> slices_of(const NodeView& node) {
  const ir::Shape& shape = *node.input_shape(0);
  const Parameter starts = parameter(node, "starts", 1);
  const Parameter ends = parameter(node, "ends", 2);
  const Parameter steps = node.opset() >= 10 ? parameter(node, "", 4) : Parameter{};
  if (!starts.given || !ends.given) {
    return node.error(DVT_INVALID_ARGUMENT, "starts or ends are missing");
  }
  auto axes = sliced_axes(node, starts, shape.size());
  if (!axes.ok()) return std::move(axes.status());
  std::vector<AxisSlice> slices;
  if (!*axes) {
    slices.resize(shape.size());  // Any axis may be cut.
    return slices;
  }
  for (const ir::Dim dim : shape) slices.push_back({.start = 0, .step = 1, .count = dim});
  const size_t count = (*axes)->size();
  for (const auto& [name, list] :
       {std::pair{"starts", &starts}, {"ends", &ends}, {"steps", &steps}}) {
    Status status = check_length(node, name, *list, count);
    if (!status.ok()) return status;
  }
  for (size_t i = 0; i < count; ++i) {
    AxisSlice& slice = slices[(**axes)[i]];
    const ir::Dim dim = shape[(**axes)[i]];
    if (!starts.values || !ends.values || (steps.given && !steps.values)) {
      slice = {};
      continue;
    }
    const int64_t start = (*starts.values)[i];
    const int64_t end = (*ends.values)[i];
    const int64_t step = steps.given ? (*steps.values)[i] : 1;
    if (step == 0) return mismatch(node, "a step is zero", "any other number", "0");
    if (dim.is_known()) {
      slice = slice_axis(dim.extent(), start, end, step);
    } else if (start != 0 || end != INT64_MAX || step != 1) {
      slice = {};
    }
  }
  return slices;
}

}  // namespace davit::ops
