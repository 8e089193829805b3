// Operators that move elements. Over the opsets their parameters turned from attributes into
// inputs; where those are not constant, shapes are unknown and the kernels take them as inputs.
#include "ops/kernels/movement.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/checked.hpp"
#include "base/dtype.hpp"
#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"
#include "ops/defs/slice.hpp"
#include "ops/kernels/convert.h"
#include "ops/kernels/fill.h"

namespace davit::ops {
namespace {

constexpr uint32_t kVariadic = UINT32_MAX;

bool same_extents(const NodeView& node) {
  const auto extents = node.input_extents(0);
  return extents && extents == node.output_extents(0);
}

// Kernels find a negative axis themselves; infer() has judged it if the rank is known.
std::vector<std::byte> axis_bytes(const NodeView& node) {
  return attribute_bytes(DvtAxisAttributes{.axis = node.attribute_int("axis", 0)});
}

Recipe movement_recipe(const NodeView& node, std::string_view kernel,
                       std::vector<std::byte> attributes, std::vector<uint32_t> inputs) {
  Recipe recipe = plain_recipe(node, find_kernel(kernel), std::move(attributes));
  recipe.inputs = std::move(inputs);
  return recipe;
}

// The axis of the node when all those before it have extent 1 in `extents`.
std::optional<size_t> outermost_axis(const NodeView& node, const std::vector<int64_t>& extents) {
  const auto rank = static_cast<int64_t>(extents.size());
  const auto axis = normalise_axis(node.attribute_int("axis", 0), rank);
  if (!axis) return std::nullopt;
  const auto along = static_cast<size_t>(*axis);
  for (size_t d = 0; d < along; ++d) {
    if (extents[d] != 1) return std::nullopt;
  }
  return along;
}

// Kernels have fixed room for per-axis attributes.
Status check_rank(const NodeView& node) {
  const ir::Shape* shape = node.input_shape(0);
  if (shape == nullptr || shape->size() <= DVT_MAX_RANK) return {};
  return node.error(
      DVT_UNSUPPORTED,
      "tensors of more than " + std::to_string(DVT_MAX_RANK) + " axes are not supported",
      DVT_STAGE_LOWER);
}

// ---- Concat -----------------------------------------------------------------------------------

// Joins two dims that must be equal; nullopt if they cannot be.
std::optional<ir::Dim> join(ir::Dim a, ir::Dim b) {
  if (a.is_known() && b.is_known() && a != b) return std::nullopt;
  if (a.is_known()) return a;
  return b.is_known() || !a.is_symbol() ? b : a;
}

Status infer_concat(const NodeView& node, std::span<InferredOutput> outputs) {
  if (!node.has_attribute("axis")) {
    return node.error(DVT_INVALID_ARGUMENT, "attribute axis is missing");
  }
  Status present = all_present(node);
  if (!present.ok()) return present;
  outputs[0].dtype = node.input_dtype(0);
  const ir::Shape* first = node.input_shape(0);
  for (uint32_t i = 0; i < node.input_count(); ++i) {
    Status status = same_dtype(node, 0, i);
    if (!status.ok()) return status;
    if (node.input_shape(i) == nullptr) first = nullptr;
  }
  if (first == nullptr) return {};
  auto axis = require_axis(node, node.attribute_int("axis", 0), first->size());
  if (!axis.ok()) return std::move(axis.status());
  const auto along = static_cast<size_t>(*axis);
  ir::Shape output = *first;
  for (uint32_t i = 1; i < node.input_count(); ++i) {
    const ir::Shape& shape = *node.input_shape(i);
    bool fits = shape.size() == output.size();
    for (size_t d = 0; fits && d < shape.size(); ++d) {
      if (d == along) continue;
      const auto dim = join(output[d], shape[d]);
      fits = dim.has_value();
      output[d] = dim.value_or(ir::Dim());
    }
    if (!fits) {
      return mismatch(node,
                      "input " + std::to_string(i) + " does not fit the others along axis " +
                          std::to_string(*axis),
                      shape_text(node, *first), shape_text(node, shape));
    }
    const ir::Dim sum = output[along];
    const ir::Dim more = shape[along];
    const bool known =
        sum.is_known() && more.is_known() && sum.extent() <= INT64_MAX - more.extent();
    output[along] = known ? ir::Dim(sum.extent() + more.extent()) : ir::Dim();
  }
  outputs[0].shape = std::move(output);
  return {};
}

Result<Recipe> recipe_concat(const NodeView& node) {
  if (node.input_count() == 1) return alias_recipe(node);
  Recipe recipe = plain_recipe(node, find_kernel("Concat"), axis_bytes(node));
  const auto extents = node.output_extents(0);
  recipe.joins_inputs = extents && outermost_axis(node, *extents);
  return recipe;
}

// ---- Split ------------------------------------------------------------------------------------

// Sizes of the parts: given by attribute (before opset 13) or input, else equal. nullopt: unknown.
Result<std::optional<std::vector<int64_t>>> split_sizes(const NodeView& node, size_t count,
                                                        ir::Dim extent) {
  if (node.opset() < 13 && node.has_attribute("split")) return {node.attribute_ints("split")};
  if (node.opset() >= 13 && node.has_input(1)) return node.input_i64(1);
  if (node.opset() >= 18) {
    const int64_t parts = node.attribute_int("num_outputs", static_cast<int64_t>(count));
    if (parts != static_cast<int64_t>(count)) {
      return mismatch(node, "num_outputs differs from the number of outputs", std::to_string(count),
                      std::to_string(parts));
    }
  }
  if (!extent.is_known()) return std::optional<std::vector<int64_t>>();
  const auto parts = static_cast<int64_t>(count);
  const int64_t size = extent.extent() / parts + (extent.extent() % parts != 0 ? 1 : 0);
  // Since opset 18 the last part may be smaller.
  const int64_t last = extent.extent() - size * (parts - 1);
  if (last < 0 || (last != size && node.opset() < 18)) {
    return mismatch(node, "the axis does not divide into equal parts",
                    "a multiple of " + std::to_string(parts), std::to_string(extent.extent()));
  }
  std::vector<int64_t> sizes(count, size);
  sizes.back() = last;
  return {std::move(sizes)};
}

Status infer_split(const NodeView& node, std::span<InferredOutput> outputs) {
  for (InferredOutput& output : outputs) output.dtype = node.input_dtype(0);
  const ir::Shape* shape = node.input_shape(0);
  if (shape == nullptr) return {};
  auto axis = require_axis(node, node.attribute_int("axis", 0), shape->size());
  if (!axis.ok()) return std::move(axis.status());
  const auto along = static_cast<size_t>(*axis);
  auto sizes = split_sizes(node, outputs.size(), (*shape)[along]);
  if (!sizes.ok()) return std::move(sizes.status());
  if (const auto& known = *sizes) {
    std::optional<uint64_t> sum = 0;
    for (const int64_t size : *known) {
      if (size < 0)
        return mismatch(node, "a part has a negative size", "0 or more", std::to_string(size));
      sum = sum ? checked_add(*sum, static_cast<uint64_t>(size)) : sum;
    }
    const ir::Dim extent = (*shape)[along];
    const bool adds_up =
        !extent.is_known() || (sum && *sum == static_cast<uint64_t>(extent.extent()));
    if (known->size() != outputs.size() || !adds_up) {
      return mismatch(node, "the parts do not add up to the input",
                      std::to_string(outputs.size()) + " parts of " + shape_text(node, {extent}),
                      std::to_string(known->size()) + " parts");
    }
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    outputs[i].shape = *shape;
    (*outputs[i].shape)[along] = *sizes ? ir::Dim((**sizes)[i]) : ir::Dim();
  }
  return {};
}

// Where the parts begin in the input, if each lies there in one piece; else empty.
std::vector<uint64_t> split_offsets(const NodeView& node) {
  const auto extents = node.input_extents(0);
  const auto axis = extents ? outermost_axis(node, *extents) : std::nullopt;
  std::vector<uint64_t> offsets;
  uint64_t offset = 0;
  for (uint32_t i = 0; axis && i < node.output_count(); ++i) {
    const auto part = node.output_extents(i);
    if (!part) return {};
    offsets.push_back(offset);
    offset += element_count(part) * dvt_dtype_size(node.input_dtype(0));
  }
  return offsets;
}

Result<Recipe> recipe_split(const NodeView& node) {
  if (node.module().outputs(node.id()).size() == 1) return alias_recipe(node);
  for (uint32_t i = 0; i < node.output_count(); ++i) {
    if (!node.has_output(i)) {
      return node.error(DVT_UNSUPPORTED, "Split with an unused output is not supported",
                        DVT_STAGE_LOWER);
    }
  }
  DvtSplitAttributes record{.axis = node.attribute_int("axis", 0), .count = 0, .sizes = {}};
  std::vector<uint32_t> inputs = {0};
  const bool by_attribute = node.opset() < 13 && node.has_attribute("split");
  const bool by_input = node.opset() >= 13 && node.has_input(1);
  if (by_attribute || by_input) {
    const auto sizes = by_attribute ? node.attribute_ints("split") : node.input_i64(1);
    if (sizes && sizes->size() <= DVT_SPLIT_MAX) {
      record.count = static_cast<int64_t>(sizes->size());
      std::copy(sizes->begin(), sizes->end(), record.sizes);
    } else if (by_input) {
      record.count = DVT_LIST_INPUT;
      inputs.push_back(1);
    } else if (node.input_extents(0)) {
      record.count = DVT_SPLIT_ANY;
    } else {
      return node.error(DVT_UNSUPPORTED, "that many parts need a static input shape",
                        DVT_STAGE_LOWER);
    }
  } else {
    record.count = node.opset() >= 18 ? DVT_SPLIT_RAGGED : DVT_SPLIT_EQUAL;
  }
  Recipe recipe = movement_recipe(node, "Split", attribute_bytes(record), std::move(inputs));
  recipe.part_offsets = split_offsets(node);
  return recipe;
}

// ---- Transpose --------------------------------------------------------------------------------

std::vector<int64_t> permutation(const NodeView& node, size_t rank) {
  std::vector<int64_t> perm = node.attribute_ints("perm");
  if (!node.has_attribute("perm")) {
    for (size_t i = rank; i > 0; --i) perm.push_back(static_cast<int64_t>(i - 1));
  }
  return perm;
}

Status infer_transpose(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
  const ir::Shape* shape = node.input_shape(0);
  if (shape == nullptr) return {};
  const auto perm = permutation(node, shape->size());
  ir::Shape output;
  std::vector<bool> seen(shape->size());
  bool valid = perm.size() == shape->size();
  for (size_t i = 0; valid && i < perm.size(); ++i) {
    valid = perm[i] >= 0 && perm[i] < static_cast<int64_t>(shape->size()) &&
            !seen[static_cast<size_t>(perm[i])];
    if (!valid) break;
    seen[static_cast<size_t>(perm[i])] = true;
    output.push_back((*shape)[static_cast<size_t>(perm[i])]);
  }
  if (!valid) {
    return mismatch(node, "attribute perm is not a permutation of the input's axes",
                    std::to_string(shape->size()) + " axes", std::to_string(perm.size()) + " axes");
  }
  outputs[0].shape = std::move(output);
  return {};
}

Result<Recipe> recipe_transpose(const NodeView& node) {
  Status status = check_rank(node);
  if (!status.ok()) return status;
  auto rank = require_rank(node, 0);
  if (!rank.ok()) return std::move(rank.status());
  const auto extents = node.input_extents(0);
  const auto perm = permutation(node, *rank);
  // Moving only axes of extent 1 moves no element.
  int64_t last = -1;
  bool in_order = true;
  DvtTransposeAttributes record{};
  for (size_t i = 0; i < perm.size(); ++i) {
    record.perm[i] = perm[i];
    if (extents && (*extents)[static_cast<size_t>(perm[i])] == 1) continue;
    in_order = in_order && perm[i] > last;
    last = perm[i];
  }
  if (in_order) return alias_recipe(node);
  return plain_recipe(node, find_kernel("Transpose"), attribute_bytes(record));
}

// ---- Slice (slice.cpp has its parameters) -----------------------------------------------------

Result<Recipe> recipe_slice(const NodeView& node) {
  Status status = check_rank(node);
  if (!status.ok()) return status;
  auto record = slice_attributes(node);
  if (!record.ok()) return std::move(record.status());
  const auto is_one = [](int64_t step) { return step == 1; };
  const DvtIntegerList& steps = record->steps;
  if (same_extents(node) && steps.count != DVT_LIST_INPUT &&
      (steps.count < 0 || std::all_of(steps.values, steps.values + steps.count, is_one))) {
    return Recipe{.is_alias = true};
  }
  std::vector<uint32_t> inputs = {0};
  const DvtIntegerList* lists[] = {&record->starts, &record->ends, &record->axes, &record->steps};
  for (uint32_t i = 0; i < 4; ++i) {
    if (lists[i]->count != DVT_LIST_INPUT) continue;
    inputs.resize(i + 2, ir::kNone);
    inputs[i + 1] = i + 1;
  }
  Recipe recipe = movement_recipe(node, "Slice", attribute_bytes(*record), std::move(inputs));
  if (const auto offset = piece_offset(node, *record)) recipe.part_offsets = {*offset};
  return recipe;
}

Status infer_slice(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
  const ir::Shape* shape = node.input_shape(0);
  if (shape == nullptr) return {};
  auto output = sliced_shape(node);
  if (!output.ok()) return std::move(output.status());
  outputs[0].shape = std::move(*output);
  return {};
}

// ---- Pad --------------------------------------------------------------------------------------

std::optional<int64_t> pad_mode(const NodeView& node) {
  const std::string mode = node.attribute_string("mode", "constant");
  if (mode == "constant") return DVT_PAD_CONSTANT;
  if (mode == "reflect") return DVT_PAD_REFLECT;
  if (mode == "edge") return DVT_PAD_EDGE;
  if (mode == "wrap" && node.opset() >= 19) return DVT_PAD_WRAP;
  return std::nullopt;
}

struct Pads {
  std::vector<int64_t> before, after;  // Per input axis.
};

// Amounts per axis; nullopt while an input that holds them is unknown.
Result<std::optional<Pads>> pads_of(const NodeView& node, size_t rank) {
  const bool as_input = node.opset() >= 11;
  const auto amounts = as_input ? node.input_i64(1) : std::optional(node.attribute_ints("pads"));
  if (!amounts) return std::optional<Pads>();
  std::vector<int64_t> axes;
  if (node.opset() >= 18 && node.has_input(3)) {
    const auto given = node.input_i64(3);
    if (!given) return std::optional<Pads>();
    axes = *given;
  } else {
    for (size_t i = 0; i < rank; ++i) axes.push_back(static_cast<int64_t>(i));
  }
  if (amounts->size() != 2 * axes.size()) {
    return mismatch(node, "pads must have two entries per axis", std::to_string(2 * axes.size()),
                    std::to_string(amounts->size()));
  }
  Pads pads{.before = std::vector<int64_t>(rank), .after = std::vector<int64_t>(rank)};
  for (size_t i = 0; i < axes.size(); ++i) {
    auto axis = require_axis(node, axes[i], rank, "axes");
    if (!axis.ok()) return std::move(axis.status());
    pads.before[static_cast<size_t>(*axis)] = (*amounts)[i];
    pads.after[static_cast<size_t>(*axis)] = (*amounts)[axes.size() + i];
  }
  return {std::move(pads)};
}

Status infer_pad(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
  if (!pad_mode(node)) {
    return mismatch(
        node, "attribute mode is not known in this opset",
        node.opset() >= 19 ? "constant, reflect, edge or wrap" : "constant, reflect or edge",
        node.attribute_string("mode", ""));
  }
  const ir::Shape* shape = node.input_shape(0);
  if (shape == nullptr) return {};
  auto pads = pads_of(node, shape->size());
  if (!pads.ok()) return std::move(pads.status());
  ir::Shape output(shape->size());
  for (size_t d = 0; *pads && d < shape->size(); ++d) {
    const int64_t before = (*pads)->before[d];
    const int64_t after = (*pads)->after[d];
    const ir::Dim dim = (*shape)[d];
    if (before == 0 && after == 0) output[d] = dim;
    if (!dim.is_known()) continue;
    int64_t extent = 0;
    const bool overflow = __builtin_add_overflow(dim.extent(), before, &extent) ||
                          __builtin_add_overflow(extent, after, &extent);
    const bool crops_too_much = before < -dim.extent() || after < -dim.extent() || extent < 0;
    const bool nothing_left =
        dim.extent() + std::min<int64_t>(before, 0) + std::min<int64_t>(after, 0) <= 0;
    if (overflow || crops_too_much ||
        (nothing_left && extent > 0 && *pad_mode(node) != DVT_PAD_CONSTANT)) {
      return mismatch(node, "pads do not fit axis " + std::to_string(d),
                      "an extent of " + std::to_string(dim.extent()),
                      std::to_string(before) + " before, " + std::to_string(after) + " after");
    }
    output[d] = ir::Dim(extent);
  }
  Status status = check_elements(node, output);
  outputs[0].shape = std::move(output);
  return status;
}

// Whether nothing is put before or after, and the shape is known to stay.
bool pads_nothing(const NodeView& node, const Pads& pads) {
  const auto is_zero = [](int64_t amount) { return amount == 0; };
  return same_extents(node) && std::all_of(pads.before.begin(), pads.before.end(), is_zero) &&
         std::all_of(pads.after.begin(), pads.after.end(), is_zero);
}

Result<Recipe> recipe_pad(const NodeView& node) {
  Status status = check_rank(node);
  if (!status.ok()) return status;
  const bool by_input = node.opset() >= 11;
  const ir::Shape* shape = node.input_shape(0);
  DvtPadAttributes record{};
  record.mode = pad_mode(node).value_or(DVT_PAD_CONSTANT);
  record.rank = DVT_LIST_INPUT;
  if (shape != nullptr || !by_input) {
    const size_t rank = shape != nullptr ? shape->size() : node.attribute_ints("pads").size() / 2;
    auto pads = pads_of(node, rank);
    if (!pads.ok()) return std::move(pads.status());
    if (*pads && pads_nothing(node, **pads)) return Recipe{.is_alias = true};
    if (*pads && rank <= DVT_MAX_RANK) {
      record.rank = static_cast<int64_t>(rank);
      std::copy((*pads)->before.begin(), (*pads)->before.end(), record.before);
      std::copy((*pads)->after.begin(), (*pads)->after.end(), record.after);
    }
  }
  if (!by_input) {
    const double value = node.attribute_float("value", 0.0F);
    const DvtConvertLoop convert = dvt_narrow_loop(DVT_F64, node.input_dtype(0));
    if (convert != nullptr) convert(&value, &record.bits, 1);
  }
  const bool has_value = by_input && node.has_input(2);
  std::vector<uint32_t> inputs = {0};
  if (record.rank == DVT_LIST_INPUT) {
    inputs = {0, has_value ? 2 : ir::kNone, 1};
    if (node.has_input(3)) inputs.push_back(3);
  } else if (has_value) {
    inputs.push_back(2);
  }
  return movement_recipe(node, "Pad", attribute_bytes(record), std::move(inputs));
}

// ---- Expand, Tile, ConstantOfShape ------------------------------------------------------------

// Constant extents as a shape; refuses negative ones.
Result<ir::Shape> shape_from(const NodeView& node, std::span<const int64_t> extents) {
  ir::Shape shape;
  for (const int64_t extent : extents) {
    if (extent < 0) {
      return mismatch(node, "the shape has a negative extent", "0 or more", std::to_string(extent));
    }
    shape.emplace_back(extent);
  }
  return shape;
}

Status infer_expand(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
  const ir::Shape* shape = node.input_shape(0);
  const auto extents = node.input_i64(1);
  if (shape == nullptr || !extents) return {};
  auto target = shape_from(node, *extents);
  if (!target.ok()) return std::move(target.status());
  auto output = broadcast(*shape, *target);
  if (!output) {
    return mismatch(node, "the input does not broadcast to the shape", shape_text(node, *target),
                    shape_text(node, *shape));
  }
  Status status = check_elements(node, *output);
  outputs[0].shape = std::move(*output);
  return status;
}

Result<Recipe> recipe_expand(const NodeView& node) {
  const auto from = node.input_extents(0);
  const auto to = node.output_extents(0);
  if (from && to && element_count(from) == element_count(to)) return Recipe{.is_alias = true};
  auto shape = integer_list(node, 1, "shape");
  if (!shape.ok()) return std::move(shape.status());
  Recipe recipe =
      movement_recipe(node, "Expand", attribute_bytes(DvtExpandAttributes{.shape = *shape}), {0});
  take_list(recipe, *shape, 1);
  return recipe;
}

Status infer_tile(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
  const ir::Shape* shape = node.input_shape(0);
  if (shape == nullptr) return {};
  const auto repeats = node.input_i64(1);
  if (!repeats) {
    outputs[0].shape = ir::Shape(shape->size());
    return {};
  }
  if (repeats->size() != shape->size()) {
    return mismatch(node, "repeats must have one entry per axis", std::to_string(shape->size()),
                    std::to_string(repeats->size()));
  }
  ir::Shape output;
  for (size_t d = 0; d < shape->size(); ++d) {
    const ir::Dim dim = (*shape)[d];
    int64_t extent = 0;
    if ((*repeats)[d] < 0 ||
        (dim.is_known() && __builtin_mul_overflow(dim.extent(), (*repeats)[d], &extent))) {
      return mismatch(node, "repeats are out of range", "0 or more", std::to_string((*repeats)[d]));
    }
    output.push_back((*repeats)[d] == 1 ? dim : dim.is_known() ? ir::Dim(extent) : ir::Dim());
  }
  Status status = check_elements(node, output);
  outputs[0].shape = std::move(output);
  return status;
}

Result<Recipe> recipe_tile(const NodeView& node) {
  if (same_extents(node)) return Recipe{.is_alias = true};
  auto repeats = integer_list(node, 1, "repeats");
  if (!repeats.ok()) return std::move(repeats.status());
  Recipe recipe =
      movement_recipe(node, "Tile", attribute_bytes(DvtTileAttributes{.repeats = *repeats}), {0});
  take_list(recipe, *repeats, 1);
  return recipe;
}

Status infer_constant_of_shape(const NodeView& node, std::span<InferredOutput> outputs) {
  const ir::TensorData* value = node.attribute_tensor("value");
  if (value != nullptr && value->element_count() != 1) {
    return mismatch(node, "attribute value must have one element", "1",
                    std::to_string(value->element_count()));
  }
  outputs[0].dtype = value == nullptr ? DvtDType{DVT_F32} : value->dtype;
  const auto extents = node.input_i64(0);
  if (!extents) {
    const auto rank = node.input_extents(0);
    if (rank && rank->size() == 1 && (*rank)[0] <= DVT_MAX_RANK) {
      outputs[0].shape = ir::Shape(static_cast<size_t>((*rank)[0]));
    }
    return {};
  }
  auto shape = shape_from(node, *extents);
  if (!shape.ok()) return std::move(shape.status());
  Status status = check_elements(node, *shape);
  outputs[0].shape = std::move(*shape);
  return status;
}

Result<Recipe> recipe_constant_of_shape(const NodeView& node) {
  DvtFillAttributes record{};
  const ir::TensorData* value = node.attribute_tensor("value");
  if (value != nullptr && value->bytes != nullptr && value->bytes->size() <= sizeof record.bits) {
    std::memcpy(&record.bits, value->bytes->data(), value->bytes->size());
  }
  auto shape = integer_list(node, 0, "shape");
  if (!shape.ok()) return std::move(shape.status());
  record.shape = *shape;
  Recipe recipe = movement_recipe(node, "Fill", attribute_bytes(record), {});
  take_list(recipe, *shape, 0);
  return recipe;
}

// ---- Table ------------------------------------------------------------------------------------

constexpr std::array kOperators = {
    OperatorDefinition{"", "Concat", 4, INT64_MAX, 1, kVariadic, 1, 1, infer_concat, recipe_concat,
                       move_cost},
    OperatorDefinition{"", "Split", 2, 12, 1, 1, 1, kVariadic, infer_split, recipe_split,
                       part_cost},
    OperatorDefinition{"", "Split", 13, INT64_MAX, 1, 2, 1, kVariadic, infer_split, recipe_split,
                       part_cost},
    OperatorDefinition{"", "Transpose", 1, INT64_MAX, 1, 1, 1, 1, infer_transpose, recipe_transpose,
                       move_cost},
    OperatorDefinition{"", "Slice", 1, 9, 1, 1, 1, 1, infer_slice, recipe_slice, part_cost},
    OperatorDefinition{"", "Slice", 10, INT64_MAX, 3, 5, 1, 1, infer_slice, recipe_slice,
                       part_cost},
    OperatorDefinition{"", "Pad", 2, 10, 1, 1, 1, 1, infer_pad, recipe_pad, move_cost},
    OperatorDefinition{"", "Pad", 11, 17, 2, 3, 1, 1, infer_pad, recipe_pad, move_cost},
    OperatorDefinition{"", "Pad", 18, INT64_MAX, 2, 4, 1, 1, infer_pad, recipe_pad, move_cost},
    OperatorDefinition{"", "Expand", 8, INT64_MAX, 2, 2, 1, 1, infer_expand, recipe_expand,
                       move_cost},
    OperatorDefinition{"", "Tile", 6, INT64_MAX, 2, 2, 1, 1, infer_tile, recipe_tile, move_cost},
    OperatorDefinition{"", "ConstantOfShape", 9, INT64_MAX, 1, 1, 1, 1, infer_constant_of_shape,
                       recipe_constant_of_shape, move_cost},
};

}  // namespace

std::span<const OperatorDefinition> movement_operators() {
  return kOperators;
}

}  // namespace davit::ops
