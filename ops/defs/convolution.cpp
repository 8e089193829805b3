// Conv and ConvTranspose.
#include "ops/defs/convolution.hpp"

#include <algorithm>
#include <array>

#include "base/checked.hpp"
#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"
#include "ops/defs/window.hpp"

namespace davit::ops {
namespace {

constexpr ConvInputs kConvInputs = {.x = 0, .w = 1, .b = 2};

// Kernel extents from W's shape, or from kernel_shape while W is unknown; both must agree.
Result<std::optional<std::vector<int64_t>>> kernel_extents(const NodeView& node,
                                                           const ir::Shape* w) {
  std::vector<int64_t> stated = node.attribute_ints("kernel_shape");
  if (w == nullptr || w->size() < 2) {
    if (stated.empty()) return std::optional<std::vector<int64_t>>();
    return std::optional(std::move(stated));
  }
  const auto extents = ir::static_extents({w->begin() + 2, w->end()});
  if (!extents) {
    if (stated.size() == w->size() - 2) return std::optional(std::move(stated));
    return std::optional<std::vector<int64_t>>();
  }
  if (!stated.empty() && stated != *extents) {
    return mismatch(node, "kernel_shape differs from the shape of W", shape_text(node, *w),
                    std::to_string(stated.size()) + " dims, first " + std::to_string(stated[0]));
  }
  return std::optional(*extents);
}

// Ranks of X and W and, where known, the spatial rank they imply.
Status check_ranks(const NodeView& node, const ir::Shape* x, const ir::Shape* w) {
  for (const ir::Shape* shape : {x, w}) {
    if (shape == nullptr) continue;
    Status status = check_spatial_rank(node, shape->size());
    if (!status.ok()) return status;
  }
  if (x != nullptr && w != nullptr && x->size() != w->size()) {
    return mismatch(node, "X and W must have the same rank", shape_text(node, *x),
                    shape_text(node, *w));
  }
  return {};
}

Status check_common(const NodeView& node, std::span<InferredOutput> outputs) {
  Status status = same_dtype(node, 0, 1);
  if (status.ok() && node.has_input(2)) status = same_dtype(node, 0, 2);
  if (!status.ok()) return status;
  const DvtDType dtype = node.input_dtype(0);
  outputs[0].dtype = dtype != DVT_DTYPE_NONE ? dtype : node.input_dtype(1);
  return {};
}

Status check_geometry(const NodeView& node, const ir::Shape* x, const ir::Shape* w) {
  if (node.attribute_int("group", 1) < 1) {
    return mismatch(node, "attribute group is out of range", "at least 1",
                    std::to_string(node.attribute_int("group", 1)));
  }
  return check_ranks(node, x, w);
}

// B holds one value per output channel.
Status check_bias(const NodeView& node, const ir::Shape* b, ir::Dim channels) {
  if (b == nullptr ||
      (b->size() == 1 && (!(*b)[0].is_known() || !channels.is_known() || (*b)[0] == channels))) {
    return {};
  }
  return mismatch(node, "B must have one value per output channel", shape_text(node, {channels}),
                  shape_text(node, *b));
}

ir::Dim dim_of(const ir::Shape* shape, size_t index) {
  return shape == nullptr || index >= shape->size() ? ir::Dim() : (*shape)[index];
}

Status check_groups(const NodeView& node, ir::Dim in_channels, ir::Dim per_group, ir::Dim filters) {
  const int64_t group = node.attribute_int("group", 1);
  if (filters.is_known() && filters.extent() % group != 0) {
    return mismatch(node, "group does not divide the channels of W",
                    "a multiple of " + std::to_string(group), std::to_string(filters.extent()));
  }
  if (!in_channels.is_known() || !per_group.is_known()) return {};
  const auto expected =
      checked_mul(static_cast<uint64_t>(per_group.extent()), static_cast<uint64_t>(group));
  if (expected && *expected == static_cast<uint64_t>(in_channels.extent())) return {};
  return mismatch(node, "X's channels do not match W and group",
                  std::to_string(per_group.extent()) + " x " + std::to_string(group),
                  std::to_string(in_channels.extent()));
}

}  // namespace

Status infer_convolution(const NodeView& node, ConvInputs inputs,
                         std::optional<ir::Shape>& inferred) {
  const ir::Shape* x = node.input_shape(inputs.x);
  const ir::Shape* w = node.input_shape(inputs.w);
  Status status = check_geometry(node, x, w);
  if (status.ok()) status = check_groups(node, dim_of(x, 1), dim_of(w, 1), dim_of(w, 0));
  if (status.ok()) status = check_bias(node, node.input_shape(inputs.b), dim_of(w, 0));
  if (!status.ok()) return status;
  auto kernel = kernel_extents(node, w);
  if (!kernel.ok()) return std::move(kernel.status());
  if (x == nullptr && w == nullptr) return {};
  const size_t rank = x != nullptr ? x->size() : w->size();
  ir::Shape shape(rank);
  shape[0] = dim_of(x, 0);
  shape[1] = dim_of(w, 0);
  if (*kernel) {
    if ((*kernel)->size() != rank - 2) {
      return mismatch(node, "kernel_shape has the wrong length", std::to_string(rank - 2),
                      std::to_string((*kernel)->size()));
    }
    auto window = read_window(node, **kernel);
    if (!window.ok()) return std::move(window.status());
    for (size_t i = 0; i + 2 < rank; ++i) {
      auto out = window_output(node, *window, i, dim_of(x, i + 2));
      if (!out.ok()) return std::move(out.status());
      shape[i + 2] = *out;
    }
  }
  inferred = std::move(shape);
  return {};
}

namespace {

Status infer_conv(const NodeView& node, std::span<InferredOutput> outputs) {
  Status status = check_common(node, outputs);
  return status.ok() ? infer_convolution(node, kConvInputs, outputs[0].shape) : std::move(status);
}

// The kernel's extents, or DVT_UNSUPPORTED: then not even W's rank is known.
Result<size_t> spatial_rank(const NodeView& node, const ir::Shape* x, const ir::Shape* w) {
  auto kernel = kernel_extents(node, w);
  if (!kernel.ok()) return std::move(kernel.status());
  if (*kernel) return (*kernel)->size();
  for (const ir::Shape* shape : {w, x}) {
    if (shape != nullptr && shape->size() > 2) return shape->size() - 2;
  }
  return node.error(DVT_UNSUPPORTED, "the rank of X is not known", DVT_STAGE_LOWER);
}

}  // namespace

Result<DvtConvAttributes> convolution_record(const NodeView& node, ConvInputs inputs) {
  auto spatial = spatial_rank(node, node.input_shape(inputs.x), node.input_shape(inputs.w));
  if (!spatial.ok()) return std::move(spatial.status());
  // The record does not depend on the kernel's extents.
  auto window = read_window(node, std::vector<int64_t>(*spatial, 1));
  if (!window.ok()) return std::move(window.status());
  return DvtConvAttributes{.group = node.attribute_int("group", 1),
                           .window = window_attributes(*window)};
}

namespace {

Result<Recipe> recipe_conv(const NodeView& node) {
  auto kernel = require_kernel(node, "Conv", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  auto record = convolution_record(node, kConvInputs);
  if (!record.ok()) return std::move(record.status());
  Recipe recipe = plain_recipe(node, *kernel, attribute_bytes(*record));
  if (node.input_dtype(0) == DVT_F32) recipe.workspace_bytes = {dvt_conv_workspace_bytes()};
  return recipe;
}

std::vector<int64_t> tail(const std::vector<int64_t>& dims) {
  return {dims.begin() + 2, dims.end()};
}

DvtTaskCost product_cost(const NodeView& node, uint64_t m, uint64_t n, uint64_t k, uint64_t batch) {
  DvtTaskCost cost = move_cost(node);  // For its traffic.
  cost.kind = DVT_TASK_CONV;
  cost.batch = batch;
  cost.m = m;
  cost.n = n;
  cost.k = k;
  return cost;
}

uint64_t volume(const std::vector<int64_t>& dims) {
  return checked_elements(tail(dims)).value_or(UINT64_MAX);
}

}  // namespace

DvtTaskCost convolution_cost(const NodeView& node, ConvInputs inputs) {
  const auto w = *node.input_extents(inputs.w);
  const auto y = *node.output_extents(0);
  const auto group = static_cast<uint64_t>(node.attribute_int("group", 1));
  return product_cost(node, static_cast<uint64_t>(y[0]) * volume(y),
                      static_cast<uint64_t>(w[0]) / group, static_cast<uint64_t>(w[1]) * volume(w),
                      group);
}

namespace {

DvtTaskCost cost_conv(const NodeView& node) {
  return convolution_cost(node, kConvInputs);
}

// ---- ConvTranspose ----------------------------------------------------------------------------

// output_padding or output_shape; empty when absent.
Result<std::vector<int64_t>> read_extra(const NodeView& node, const char* name, size_t spatial,
                                        int64_t low) {
  std::vector<int64_t> values = node.attribute_ints(name);
  const bool in_range = std::all_of(values.begin(), values.end(), [low](int64_t value) {
    return value >= low && value <= DVT_WINDOW_LIMIT;
  });
  if (in_range && (values.empty() || values.size() == spatial)) return values;
  return mismatch(node, std::string("attribute ") + name + " has a wrong length or value",
                  std::to_string(spatial) + " values of at least " + std::to_string(low),
                  std::to_string(values.size()) + " values");
}

// The kernel's record. It does not depend on the kernel's extents.
Result<DvtConvTransposeAttributes> transposed_attributes(const NodeView& node, size_t spatial) {
  auto window = read_window(node, std::vector<int64_t>(spatial, 1));
  if (!window.ok()) return std::move(window.status());
  auto padding = read_extra(node, "output_padding", spatial, 0);
  if (!padding.ok()) return std::move(padding.status());
  auto shape = read_extra(node, "output_shape", spatial, 1);
  if (!shape.ok()) return std::move(shape.status());
  DvtConvTransposeAttributes attributes = {.group = node.attribute_int("group", 1),
                                           .window = window_attributes(*window),
                                           .output_padding = {},
                                           .output_shape = {}};
  std::copy(padding->begin(), padding->end(), attributes.output_padding);
  std::copy(shape->begin(), shape->end(), attributes.output_shape);
  return attributes;
}

Status infer_transpose(const NodeView& node, std::span<InferredOutput> outputs) {
  Status status = check_common(node, outputs);
  if (!status.ok()) return status;
  const ir::Shape* x = node.input_shape(0);
  const ir::Shape* w = node.input_shape(1);
  const int64_t group = node.attribute_int("group", 1);
  status = check_geometry(node, x, w);
  if (!status.ok()) return status;
  status = check_groups(node, dim_of(x, 1), ir::Dim(), dim_of(w, 0));
  const ir::Dim filters = dim_of(w, 0);
  const ir::Dim channels = dim_of(x, 1);
  if (status.ok() && filters.is_known() && channels.is_known() && !(filters == channels)) {
    status = mismatch(node, "X's channels do not match W", std::to_string(filters.extent()),
                      std::to_string(channels.extent()));
  }
  if (!status.ok()) return status;
  ir::Dim maps;
  if (dim_of(w, 1).is_known()) {
    const auto total =
        checked_mul(static_cast<uint64_t>(dim_of(w, 1).extent()), static_cast<uint64_t>(group));
    if (!total || *total > uint64_t{DVT_WINDOW_LIMIT}) {
      return node.error(DVT_INVALID_ARGUMENT, "group times the channels of W is too large");
    }
    maps = ir::Dim(static_cast<int64_t>(*total));
  }
  status = check_bias(node, node.input_shape(2), maps);
  if (!status.ok()) return status;
  auto kernel = kernel_extents(node, w);
  if (!kernel.ok()) return std::move(kernel.status());
  if (x == nullptr && w == nullptr) return {};
  const size_t rank = x != nullptr ? x->size() : w->size();
  ir::Shape shape(rank);
  shape[0] = dim_of(x, 0);
  shape[1] = maps;
  if (*kernel && (*kernel)->size() == rank - 2) {
    auto attributes = transposed_attributes(node, rank - 2);
    if (!attributes.ok()) return std::move(attributes.status());
    for (size_t i = 0; i + 2 < rank; ++i) {
      const ir::Dim in = dim_of(x, i + 2);
      const int64_t taps = (**kernel)[i];
      if (taps < 1 || taps > DVT_WINDOW_LIMIT) {
        return mismatch(node, "kernel_shape is out of range", "extents of at least 1",
                        std::to_string(taps));
      }
      if (!in.is_known()) continue;
      int64_t begin = 0;
      int64_t end = 0;
      const int64_t out = dvt_conv_transpose_out(&*attributes, static_cast<uint32_t>(i),
                                                 in.extent(), taps, &begin, &end);
      if (out < 0) {
        return mismatch(node, "spatial dim " + std::to_string(i) + " of the output is out of range",
                        "0 or more", "an input of " + std::to_string(in.extent()));
      }
      shape[i + 2] = ir::Dim(out);
    }
  }
  outputs[0].shape = std::move(shape);
  return {};
}

Result<Recipe> recipe_transpose(const NodeView& node) {
  auto kernel = require_kernel(node, "ConvTranspose", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  auto spatial = spatial_rank(node, node.input_shape(0), node.input_shape(1));
  if (!spatial.ok()) return std::move(spatial.status());
  auto attributes = transposed_attributes(node, *spatial);
  if (!attributes.ok()) return std::move(attributes.status());
  Recipe recipe = plain_recipe(node, *kernel, attribute_bytes(*attributes));
  if (node.input_dtype(0) != DVT_F32) return recipe;
  // With static shapes this is the size; else infer() gives it.
  uint64_t bytes = 1;
  const auto w = node.input_extents(1);
  if (w && element_count(w) > 0 && element_count(node.output_extents(0)) > 0) {
    const auto rows = checked_mul(static_cast<uint64_t>((*w)[1]), volume(*w)).value_or(UINT64_MAX);
    bytes = rows <= INT64_MAX ? dvt_conv_transpose_workspace_bytes(static_cast<int64_t>(rows)) : 0;
  }
  if (bytes == 0) return node.error(DVT_UNSUPPORTED, "W is too large", DVT_STAGE_LOWER);
  recipe.workspace_bytes = {bytes};
  return recipe;
}

DvtTaskCost cost_transpose(const NodeView& node) {
  const auto x = *node.input_extents(0);
  const auto w = *node.input_extents(1);
  const auto group = static_cast<uint64_t>(node.attribute_int("group", 1));
  return product_cost(node, static_cast<uint64_t>(x[0]) * volume(x),
                      static_cast<uint64_t>(w[1]) * volume(w), static_cast<uint64_t>(x[1]) / group,
                      group);
}

constexpr std::array kOperators = {
    OperatorDefinition{"", "Conv", 1, 10, 2, 3, 1, 1, infer_conv, recipe_conv, cost_conv},
    OperatorDefinition{"", "Conv", 11, INT64_MAX, 2, 3, 1, 1, infer_conv, recipe_conv, cost_conv},
    OperatorDefinition{"", "ConvTranspose", 1, 10, 2, 3, 1, 1, infer_transpose, recipe_transpose,
                       cost_transpose},
    OperatorDefinition{"", "ConvTranspose", 11, INT64_MAX, 2, 3, 1, 1, infer_transpose,
                       recipe_transpose, cost_transpose},
};

}  // namespace

std::span<const OperatorDefinition> convolution_operators() {
  return kOperators;
}

}  // namespace davit::ops
