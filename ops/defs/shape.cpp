// Operators whose outputs are views of their input, or follow from shapes alone.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/checked.hpp"
#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"
#include "ops/kernels/alias.h"
#include "ops/kernels/fill.h"

namespace davit::ops {
namespace {

// A rank that arrives as a tensor's extent, before it sizes a vector. Davit's tensors end at
// DVT_MAX_RANK; shapes of more axes may pass through a model as long as nothing runs on them.
constexpr int64_t kRankLimit = 64;

void pass_dtype(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
}

Status infer_identity(const NodeView& node, std::span<InferredOutput> outputs) {
  pass_dtype(node, outputs);
  if (const ir::Shape* shape = node.input_shape(0)) outputs[0].shape = *shape;
  return {};
}

// A product of dims: a number times at most one symbol.
struct Product {
  int64_t extent = 1;
  std::optional<ir::Dim> symbol;
};

// nullopt when there are unknown dims or several symbols, or when the number is too large.
std::optional<Product> product_of(std::span<const ir::Dim> dims) {
  if (std::find(dims.begin(), dims.end(), ir::Dim(0)) != dims.end()) return Product{.extent = 0};
  Product product;
  for (const ir::Dim dim : dims) {
    if (dim.is_known()) {
      if (__builtin_mul_overflow(product.extent, dim.extent(), &product.extent)) return {};
    } else {
      if (product.symbol || !dim.is_symbol()) return {};
      product.symbol = dim;
    }
  }
  return product;
}

// The product as one dim.
ir::Dim dim_product(std::span<const ir::Dim> dims) {
  const auto product = product_of(dims);
  if (!product) return {};
  if (!product->symbol) return ir::Dim(product->extent);
  return product->extent == 1 ? *product->symbol : ir::Dim();
}

// ---- Reshape ----------------------------------------------------------------------------------

// The extent for -1: what remains of the input after the other dims. `copied[i]` marks input axes
// that a 0 carried over; they cancel whatever their extent.
Result<ir::Dim> inferred_extent(const NodeView& node, const ir::Shape& input,
                                const std::vector<bool>& copied, const ir::Shape& output,
                                size_t hole) {
  std::vector<ir::Dim> rest;
  for (size_t i = 0; i < input.size(); ++i) {
    if (!copied[i]) rest.push_back(input[i]);
  }
  std::vector<ir::Dim> given;
  for (size_t i = 0; i < output.size(); ++i) {
    const bool is_copy = i < copied.size() && copied[i];
    if (i != hole && !is_copy) given.push_back(output[i]);
  }
  const auto numerator = product_of(rest);
  const auto denominator = product_of(given);
  const auto known = [](ir::Dim dim) { return dim.is_known(); };
  if (numerator && !numerator->symbol && !denominator &&
      std::all_of(given.begin(), given.end(), known)) {  // The product is above 2^63.
    if (numerator->extent == 0) return ir::Dim(0);
    return mismatch(node, "the shape has more elements than the input", shape_text(node, input),
                    shape_text(node, output));
  }
  if (!numerator || !denominator) return ir::Dim();
  if (numerator->symbol) {
    return numerator->extent == denominator->extent ? *numerator->symbol : ir::Dim();
  }
  if (denominator->extent == 0 || numerator->extent % denominator->extent != 0) {
    return mismatch(node, "-1 in the shape has no solution",
                    "a multiple of " + std::to_string(denominator->extent) + " elements",
                    std::to_string(numerator->extent));
  }
  return ir::Dim(numerator->extent / denominator->extent);
}

// The output for constant target dims. `input` may be null.
Result<ir::Shape> reshaped(const NodeView& node, const ir::Shape* input,
                           std::span<const int64_t> target) {
  const bool allow_zero = node.opset() >= 14 && node.attribute_int("allowzero", 0) != 0;
  ir::Shape output(target.size());
  std::vector<bool> copied(input == nullptr ? 0 : input->size());
  std::optional<size_t> hole;
  for (size_t i = 0; i < target.size(); ++i) {
    if (target[i] == -1) {
      if (hole) return mismatch(node, "the shape has more than one -1", "one", "two");
      hole = i;
    } else if (target[i] < -1) {
      return mismatch(node, "the shape has a negative extent", "-1 or more",
                      std::to_string(target[i]));
    } else if (target[i] > 0 || allow_zero) {
      output[i] = ir::Dim(target[i]);
    } else if (input != nullptr) {
      if (i >= input->size()) {
        return mismatch(node, "a 0 in the shape has no input axis to copy",
                        "at most " + std::to_string(input->size()) + " axes", std::to_string(i));
      }
      output[i] = (*input)[i];
      copied[i] = true;
    }
  }
  if (input == nullptr) return output;
  if (hole) {
    auto extent = inferred_extent(node, *input, copied, output, *hole);
    if (!extent.ok()) return std::move(extent.status());
    output[*hole] = *extent;
  }
  const ir::Dim before = dim_product(*input);
  const ir::Dim after = dim_product(output);
  const bool too_large =
      !after.is_known() &&
      std::all_of(output.begin(), output.end(), [](ir::Dim dim) { return dim.is_known(); });
  if (before.is_known() && (too_large || (after.is_known() && before != after))) {
    return mismatch(node, "the shape has another number of elements than the input",
                    shape_text(node, *input), shape_text(node, output));
  }
  return output;
}

Status infer_reshape(const NodeView& node, std::span<InferredOutput> outputs) {
  pass_dtype(node, outputs);
  if (const auto target = node.input_i64(1)) {
    auto shape = reshaped(node, node.input_shape(0), *target);
    if (!shape.ok()) return std::move(shape.status());
    outputs[0].shape = std::move(*shape);
    return {};
  }
  const auto extents = node.input_extents(1);
  if (extents && extents->size() == 1 && (*extents)[0] <= kRankLimit) {
    outputs[0].shape = ir::Shape(static_cast<size_t>((*extents)[0]));
  }
  return {};
}

Result<Recipe> recipe_reshape(const NodeView& node) {
  const bool allow_zero = node.opset() >= 14 && node.attribute_int("allowzero", 0) != 0;
  auto shape = integer_list(node, 1, "shape");
  if (!shape.ok()) return std::move(shape.status());
  Recipe recipe = view_recipe("Reshape", attribute_bytes(DvtReshapeAttributes{
                                             .allow_zero = allow_zero ? 1 : 0, .shape = *shape}));
  take_list(recipe, *shape, 1);
  return recipe;
}

// ---- Flatten, Squeeze, Unsqueeze --------------------------------------------------------------

Status infer_flatten(const NodeView& node, std::span<InferredOutput> outputs) {
  pass_dtype(node, outputs);
  const ir::Shape* shape = node.input_shape(0);
  if (shape == nullptr) {
    outputs[0].shape = ir::Shape(2);
    return {};
  }
  const auto rank = static_cast<int64_t>(shape->size());
  int64_t axis = node.attribute_int("axis", 1);
  if (axis < 0 && node.opset() >= 11) axis += rank;
  if (axis < 0 || axis > rank) {
    return mismatch(node, "axis is out of range",
                    (node.opset() >= 11 ? "-" + std::to_string(rank) : std::string("0")) + " to " +
                        std::to_string(rank),
                    std::to_string(node.attribute_int("axis", 1)));
  }
  const std::span<const ir::Dim> dims(*shape);
  const auto cut = static_cast<size_t>(axis);
  outputs[0].shape = ir::Shape{dim_product(dims.first(cut)), dim_product(dims.subspan(cut))};
  return {};
}

Result<Recipe> recipe_flatten(const NodeView& node) {
  return view_recipe("Flatten",
                     attribute_bytes(DvtFlattenAttributes{.axis = node.attribute_int("axis", 1)}));
}

// Axes of Squeeze and Unsqueeze: an attribute before opset 13, an input since. nullopt: not given,
// or not known; `given` tells.
std::optional<std::vector<int64_t>> axes_of(const NodeView& node, bool& given) {
  if (node.opset() >= 13) {
    given = node.has_input(1);
    return node.input_i64(1);
  }
  given = node.has_attribute("axes");
  if (!given) return std::nullopt;
  return node.attribute_ints("axes");
}

// Marks the axes of a shape of `rank` axes.
Result<std::vector<bool>> mark_axes(const NodeView& node, std::span<const int64_t> axes,
                                    size_t rank) {
  std::vector<bool> marked(rank);
  for (const int64_t axis : axes) {
    auto normal = require_axis(node, axis, rank, "axes");
    if (!normal.ok()) return std::move(normal.status());
    if (marked[static_cast<size_t>(*normal)]) {
      return mismatch(node, "axes name one axis twice", "distinct axes", std::to_string(axis));
    }
    marked[static_cast<size_t>(*normal)] = true;
  }
  return marked;
}

Status infer_squeeze(const NodeView& node, std::span<InferredOutput> outputs) {
  pass_dtype(node, outputs);
  const ir::Shape* shape = node.input_shape(0);
  bool given = false;
  const auto axes = axes_of(node, given);
  if (shape == nullptr || (given && !axes)) return {};
  std::vector<bool> removed(shape->size());
  if (axes) {
    auto marked = mark_axes(node, *axes, shape->size());
    if (!marked.ok()) return std::move(marked.status());
    removed = std::move(*marked);
  } else {
    for (size_t i = 0; i < shape->size(); ++i) {
      if (!(*shape)[i].is_known()) return {};  // Whether the axis goes depends on its extent.
      removed[i] = (*shape)[i].extent() == 1;
    }
  }
  ir::Shape output;
  for (size_t i = 0; i < shape->size(); ++i) {
    const ir::Dim dim = (*shape)[i];
    if (!removed[i]) {
      output.push_back(dim);
    } else if (dim.is_known() && dim.extent() != 1) {
      return mismatch(node, "axis " + std::to_string(i) + " cannot be squeezed", "1",
                      std::to_string(dim.extent()));
    }
  }
  outputs[0].shape = std::move(output);
  return {};
}

Status infer_unsqueeze(const NodeView& node, std::span<InferredOutput> outputs) {
  pass_dtype(node, outputs);
  const ir::Shape* shape = node.input_shape(0);
  bool given = false;
  const auto axes = axes_of(node, given);
  if (!given) return node.error(DVT_INVALID_ARGUMENT, "axes are missing");
  if (shape == nullptr || !axes) return {};
  const size_t rank = shape->size() + axes->size();
  if (rank > static_cast<size_t>(kRankLimit)) {
    return mismatch(node, "too many axes", std::to_string(kRankLimit), std::to_string(rank));
  }
  auto inserted = mark_axes(node, *axes, rank);
  if (!inserted.ok()) return std::move(inserted.status());
  ir::Shape output;
  size_t next = 0;
  for (size_t i = 0; i < rank; ++i) {
    output.push_back((*inserted)[i] ? ir::Dim(1) : (*shape)[next++]);
  }
  outputs[0].shape = std::move(output);
  return {};
}

Result<Recipe> recipe_axes(const NodeView& node, std::string_view kernel) {
  bool given = false;
  const auto axes = axes_of(node, given);
  auto list = given && axes
                  ? integer_list(node, *axes, "axes")
                  : DvtIntegerList{.count = given ? DVT_LIST_INPUT : DVT_LIST_NONE, .values = {}};
  if (!list.ok()) return std::move(list.status());
  Recipe recipe = view_recipe(kernel, attribute_bytes(DvtAxesAttributes{.axes = *list}));
  take_list(recipe, *list, 1);
  return recipe;
}
Result<Recipe> recipe_squeeze(const NodeView& node) {
  return recipe_axes(node, "Squeeze");
}
Result<Recipe> recipe_unsqueeze(const NodeView& node) {
  return recipe_axes(node, "Unsqueeze");
}

// ---- Shape, Size, Constant --------------------------------------------------------------------

// Which dims Shape returns; opset 15 added the attributes.
DvtShapeAttributes stated_range(const NodeView& node) {
  DvtShapeAttributes range{.start = 0, .end = INT64_MAX};
  if (node.opset() >= 15) {
    range.start = node.attribute_int("start", 0);
    range.end = node.attribute_int("end", INT64_MAX);
  }
  return range;
}

// The same for a tensor of `size` axes, as [start, end).
DvtShapeAttributes shape_range(const NodeView& node, size_t size) {
  const auto rank = static_cast<int64_t>(size);
  const auto clamp = [rank](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  DvtShapeAttributes range = stated_range(node);
  range.start = clamp(range.start);
  range.end = std::max(range.start, clamp(range.end));
  return range;
}

Status infer_shape(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = DVT_I64;
  const ir::Shape* shape = node.input_shape(0);
  outputs[0].shape = ir::Shape(1);
  if (shape == nullptr) return {};
  const auto [start, end] = shape_range(node, shape->size());
  outputs[0].shape = ir::Shape{ir::Dim(end - start)};
  std::vector<int64_t> values;
  for (int64_t i = start; i < end; ++i) {
    const ir::Dim dim = (*shape)[static_cast<size_t>(i)];
    if (!dim.is_known()) return {};
    values.push_back(dim.extent());
  }
  outputs[0].constant = ir::make_i64_tensor({end - start}, values);
  return {};
}

Result<Recipe> recipe_shape(const NodeView& node) {
  return plain_recipe(node, find_kernel("Shape"), attribute_bytes(stated_range(node)));
}

Status infer_size(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = DVT_I64;
  outputs[0].shape = ir::Shape{};
  const auto extents = node.input_extents(0);
  if (!extents) return {};
  const auto elements = checked_elements(*extents);
  if (!elements) return node.error(DVT_INVALID_ARGUMENT, "the input has too many elements");
  outputs[0].constant = ir::make_i64_tensor({}, {static_cast<int64_t>(*elements)});
  return {};
}

Result<Recipe> recipe_size(const NodeView& node) {
  return plain_recipe(node, find_kernel("Size"));
}

// A one-axis tensor of T, or a scalar, from attribute values.
template <class T>
ir::TensorData tensor_of(DvtDType dtype, std::vector<int64_t> dims, std::span<const T> values) {
  std::vector<std::byte> bytes(values.size_bytes());
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return ir::make_tensor(dtype, std::move(dims), std::move(bytes));
}

std::optional<ir::TensorData> constant_value(const NodeView& node) {
  if (const ir::TensorData* value = node.attribute_tensor("value")) return *value;
  if (node.opset() < 12) return std::nullopt;
  if (node.has_attribute("value_int")) {
    return ir::make_i64_tensor({}, {node.attribute_int("value_int", 0)});
  }
  if (node.has_attribute("value_float")) {
    const std::array values = {node.attribute_float("value_float", 0)};
    return tensor_of<float>(DVT_F32, {}, values);
  }
  if (node.has_attribute("value_ints")) {
    const auto values = node.attribute_ints("value_ints");
    return ir::make_i64_tensor({static_cast<int64_t>(values.size())}, values);
  }
  if (node.has_attribute("value_floats")) {
    const auto values = node.attribute_floats("value_floats");
    return tensor_of<float>(DVT_F32, {static_cast<int64_t>(values.size())}, values);
  }
  return std::nullopt;
}

Status infer_constant(const NodeView& node, std::span<InferredOutput> outputs) {
  auto value = constant_value(node);
  if (!value) {
    ErrorDetail detail = node.module().error_at(node.id(), DVT_UNSUPPORTED, DVT_STAGE_INFER,
                                                "the constant has no dense numeric value");
    detail.expected = "attribute value, value_int(s) or value_float(s)";
    return Status(std::move(detail));
  }
  ir::Shape shape;
  for (const int64_t extent : value->dims) shape.emplace_back(extent);
  outputs[0].dtype = value->dtype;
  outputs[0].shape = std::move(shape);
  outputs[0].constant = std::move(value);
  return {};
}

// Inference has made it a constant; a node of it never runs.
Result<Recipe> recipe_constant(const NodeView& node) {
  return node.error(DVT_UNSUPPORTED, "a Constant node has no kernel; fold it", DVT_STAGE_LOWER);
}

// ---- Table ------------------------------------------------------------------------------------

constexpr std::array kOperators = {
    OperatorDefinition{"", "Identity", 1, INT64_MAX, 1, 1, 1, 1, infer_identity, alias_recipe,
                       no_cost},
    OperatorDefinition{"", "Reshape", 5, INT64_MAX, 2, 2, 1, 1, infer_reshape, recipe_reshape,
                       no_cost},
    OperatorDefinition{"", "Flatten", 1, INT64_MAX, 1, 1, 1, 1, infer_flatten, recipe_flatten,
                       no_cost},
    OperatorDefinition{"", "Squeeze", 1, 12, 1, 1, 1, 1, infer_squeeze, recipe_squeeze, no_cost},
    OperatorDefinition{"", "Squeeze", 13, INT64_MAX, 1, 2, 1, 1, infer_squeeze, recipe_squeeze,
                       no_cost},
    OperatorDefinition{"", "Unsqueeze", 1, 12, 1, 1, 1, 1, infer_unsqueeze, recipe_unsqueeze,
                       no_cost},
    OperatorDefinition{"", "Unsqueeze", 13, INT64_MAX, 2, 2, 1, 1, infer_unsqueeze,
                       recipe_unsqueeze, no_cost},
    OperatorDefinition{"", "Shape", 1, INT64_MAX, 1, 1, 1, 1, infer_shape, recipe_shape, no_cost},
    OperatorDefinition{"", "Size", 1, INT64_MAX, 1, 1, 1, 1, infer_size, recipe_size, no_cost},
    OperatorDefinition{"", "Constant", 1, INT64_MAX, 0, 0, 1, 1, infer_constant, recipe_constant,
                       no_cost},
};

}  // namespace

std::span<const OperatorDefinition> shape_operators() {
  return kOperators;
}

}  // namespace davit::ops
