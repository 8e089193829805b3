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

struct Parameters {
  Parameter starts, ends, axes, steps;
};
Parameters parameters(const NodeView& node) {
  return {.starts = parameter(node, "starts", 1),
          .ends = parameter(node, "ends", 2),
          .axes = parameter(node, "axes", 3),
          .steps = node.opset() >= 10 ? parameter(node, "", 4) : Parameter{}};
}

// A parameter for the record.
Result<DvtIntegerList> list_of(const NodeView& node, const Parameter& list, std::string_view name) {
  if (!list.given) return DvtIntegerList{.count = DVT_LIST_NONE, .values = {}};
  if (list.values) return integer_list(node, *list.values, name);
  return DvtIntegerList{.count = DVT_LIST_INPUT, .values = {}};
}

// The axes that starts and ends speak of; all from the first on by default. nullopt: unknown.
Result<std::optional<std::vector<size_t>>> sliced_axes(const NodeView& node,
                                                       const Parameters& given, size_t rank) {
  const Parameter& axes = given.axes;
  const Parameter& starts = given.starts;
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

Result<ir::Shape> sliced_shape(const NodeView& node) {
  const ir::Shape& shape = *node.input_shape(0);
  const Parameters given = parameters(node);
  if (!given.starts.given || !given.ends.given) {
    return node.error(DVT_INVALID_ARGUMENT, "starts or ends are missing");
  }
  auto axes = sliced_axes(node, given, shape.size());
  if (!axes.ok()) return std::move(axes.status());
  if (!*axes) return ir::Shape(shape.size());  // Any axis may be cut.
  const size_t count = (*axes)->size();
  for (const auto& [name, list] :
       {std::pair{"starts", &given.starts}, {"ends", &given.ends}, {"steps", &given.steps}}) {
    Status status = check_length(node, name, *list, count);
    if (!status.ok()) return status;
  }
  ir::Shape output = shape;
  for (size_t i = 0; i < count; ++i) {
    ir::Dim& dim = output[(**axes)[i]];
    if (!given.starts.values || !given.ends.values || (given.steps.given && !given.steps.values)) {
      dim = {};
      continue;
    }
    const int64_t start = (*given.starts.values)[i];
    const int64_t end = (*given.ends.values)[i];
    const int64_t step = given.steps.given ? (*given.steps.values)[i] : 1;
    if (step == 0) return mismatch(node, "a step is zero", "any other number", "0");
    if (dim.is_known()) {
      int64_t first = 0;
      int64_t remaining = 0;
      dvt_slice_axis(dim.extent(), start, end, step, &first, &remaining);
      dim = ir::Dim(remaining);
    } else if (start != 0 || end != INT64_MAX || step != 1) {
      dim = {};
    }
  }
  return output;
}

Result<DvtSliceAttributes> slice_attributes(const NodeView& node) {
  const Parameters given = parameters(node);
  auto starts = list_of(node, given.starts, "starts");
  if (!starts.ok()) return std::move(starts.status());
  auto ends = list_of(node, given.ends, "ends");
  if (!ends.ok()) return std::move(ends.status());
  auto axes = list_of(node, given.axes, "axes");
  if (!axes.ok()) return std::move(axes.status());
  auto steps = list_of(node, given.steps, "steps");
  if (!steps.ok()) return std::move(steps.status());
  return DvtSliceAttributes{.starts = *starts, .ends = *ends, .axes = *axes, .steps = *steps};
}

std::optional<uint64_t> piece_offset(const NodeView& node, const DvtSliceAttributes& record) {
  const auto from = node.input_extents(0);
  const auto to = node.output_extents(0);
  const int64_t count = record.starts.count;
  for (const DvtIntegerList* list : {&record.starts, &record.ends, &record.axes, &record.steps}) {
    if (list->count == DVT_LIST_INPUT) return std::nullopt;
  }
  if (!from || !to || from->size() != to->size() || count < 0) return std::nullopt;
  std::vector<int64_t> first(from->size(), 0);
  for (int64_t i = 0; i < count; ++i) {
    const auto axis = normalise_axis(record.axes.count < 0 ? i : record.axes.values[i],
                                     static_cast<int64_t>(from->size()));
    const int64_t step = record.steps.count < 0 ? 1 : record.steps.values[i];
    if (!axis) return std::nullopt;
    const auto a = static_cast<size_t>(*axis);
    if (step != 1 && (*to)[a] != 1) return std::nullopt;
    int64_t remaining = 0;
    dvt_slice_axis((*from)[a], record.starts.values[i], record.ends.values[i], step, &first[a],
                   &remaining);
  }
  // Whole rows of the first axis that more than one index of is left.
  uint64_t offset = 0;
  bool whole = true;  // Of the axes from here on.
  uint64_t stride = dvt_dtype_size(node.input_dtype(0));
  for (size_t a = from->size(); a-- > 0;) {
    if ((*to)[a] == 0 || (!whole && (*to)[a] != 1)) return std::nullopt;
    whole = whole && (*to)[a] == (*from)[a];
    offset += static_cast<uint64_t>(first[a]) * stride;
    stride *= static_cast<uint64_t>((*from)[a]);
  }
  return offset;
}

}  // namespace davit::ops
