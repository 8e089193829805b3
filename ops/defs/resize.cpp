// Resize and its predecessor Upsample.
//
// Where documents disagree: output extents follow the standard's text, also for tf_crop_and_resize,
// whose region takes part; positions follow the standard's reference implementation. A scale that
// is the float nearest to out / in is taken to mean out / in, so that neither extents nor ties
// depend on its last bit.
#include "ops/kernels/resize.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/checked.hpp"
#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"

namespace davit::ops {
namespace {

// Above this an extent cannot belong to a tensor, and doubles would no longer hold it exactly.
constexpr double kExtentLimit = 4503599627370496.0;  // 2^52

struct Word {
  std::string_view text;
  int64_t value;
};
constexpr std::array kModes = {
    Word{"nearest", DVT_RESIZE_NEAREST},
    Word{"linear", DVT_RESIZE_LINEAR},
    Word{"bilinear", DVT_RESIZE_LINEAR},  // Upsample 1.
    Word{"cubic", DVT_RESIZE_CUBIC},
};
constexpr std::array kCoordinates = {
    Word{"half_pixel", DVT_RESIZE_HALF_PIXEL},
    Word{"pytorch_half_pixel", DVT_RESIZE_PYTORCH_HALF_PIXEL},
    Word{"align_corners", DVT_RESIZE_ALIGN_CORNERS},
    Word{"asymmetric", DVT_RESIZE_ASYMMETRIC},
    Word{"tf_crop_and_resize", DVT_RESIZE_TF_CROP},
    Word{"tf_half_pixel_for_nn", DVT_RESIZE_TF_HALF_PIXEL_FOR_NN},
    Word{"half_pixel_symmetric", DVT_RESIZE_HALF_PIXEL_SYMMETRIC},
};
constexpr std::array kNearestModes = {
    Word{"round_prefer_floor", DVT_RESIZE_ROUND_PREFER_FLOOR},
    Word{"round_prefer_ceil", DVT_RESIZE_ROUND_PREFER_CEIL},
    Word{"floor", DVT_RESIZE_FLOOR},
    Word{"ceil", DVT_RESIZE_CEIL},
};

Result<int64_t> read_word(const NodeView& node, const char* attribute, std::span<const Word> words,
                          std::string_view fallback) {
  const std::string text = node.attribute_string(attribute, fallback);
  std::string known;
  for (const Word& word : words) {
    if (word.text == text) return word.value;
    known += (known.empty() ? "" : ", ") + std::string(word.text);
  }
  return mismatch(node, std::string("attribute ") + attribute + " has an unknown value", known,
                  text);
}

bool is_upsample(const NodeView& node) {
  return node.module().op(node.id()) == "Upsample";
}
// Resize 10 and Upsample have no modes but nearest and linear, and no region.
bool is_plain(const NodeView& node) {
  return is_upsample(node) || node.opset() < 11;
}

Result<DvtResizeAttributes> read_modes(const NodeView& node) {
  DvtResizeAttributes attributes{};
  auto mode = read_word(node, "mode", kModes, "nearest");
  if (!mode.ok()) return std::move(mode.status());
  attributes.mode = *mode;
  if (is_plain(node)) {
    attributes.coordinates = DVT_RESIZE_ASYMMETRIC;
    attributes.nearest_mode = DVT_RESIZE_CEIL_WHEN_SHRINKING;
    return attributes;
  }
  auto coordinates = read_word(node, "coordinate_transformation_mode", kCoordinates, "half_pixel");
  if (!coordinates.ok()) return std::move(coordinates.status());
  attributes.coordinates = *coordinates;
  auto nearest = read_word(node, "nearest_mode", kNearestModes, "round_prefer_floor");
  if (!nearest.ok()) return std::move(nearest.status());
  attributes.nearest_mode = *nearest;
  attributes.antialias = node.attribute_int("antialias", 0) != 0 ? 1 : 0;
  attributes.exclude_outside = node.attribute_int("exclude_outside", 0) != 0 ? 1 : 0;
  attributes.cubic_a = node.attribute_float("cubic_coeff_a", -0.75F);
  attributes.extrapolation_value = node.attribute_float("extrapolation_value", 0.0F);
  return attributes;
}

// Floating-point elements of a constant; nullopt for other types.
std::optional<std::vector<double>> to_reals(const ir::TensorData& data) {
  std::vector<double> values;
  if (data.dtype == DVT_F32) {
    const auto span = data.as<float>();
    values.assign(span.begin(), span.end());
  } else if (data.dtype == DVT_F64) {
    const auto span = data.as<double>();
    values.assign(span.begin(), span.end());
  } else {
    return std::nullopt;
  }
  return values;
}

// What the node asks for, per named axis.
struct Request {
  std::vector<size_t> axes;    // Distinct dims of X.
  std::vector<double> scales;  // One per axis, or empty ...
  std::vector<int64_t> sizes;  // ... and then these.
  std::vector<double> roi;     // Starts, then ends, for tf_crop_and_resize; else empty.
  bool complete = false;       // False: it depends on inputs that are not constant.
};

Result<std::vector<size_t>> read_axes(const NodeView& node, size_t rank) {
  std::vector<size_t> axes;
  const std::vector<int64_t> stated = node.opset() >= 18 && !is_upsample(node)
                                          ? node.attribute_ints("axes")
                                          : std::vector<int64_t>();
  for (const int64_t axis : stated) {
    const auto dim = normalise_axis(axis, static_cast<int64_t>(rank));
    const bool twice = dim && std::find(axes.begin(), axes.end(), *dim) != axes.end();
    if (!dim || twice) {
      return mismatch(
          node, twice ? "an axis is named twice" : "an axis is out of range",
          "distinct values in [-" + std::to_string(rank) + ", " + std::to_string(rank) + ")",
          std::to_string(axis));
    }
    axes.push_back(static_cast<size_t>(*dim));
  }
  for (size_t i = 0; stated.empty() && i < rank; ++i) axes.push_back(i);
  return axes;
}

// True when the operand is there and not the empty tensor that stands for "not given".
bool is_given(const NodeView& node, uint32_t index) {
  if (!node.has_input(index)) return false;
  const ir::Shape* shape = node.input_shape(index);
  return shape == nullptr || shape->size() != 1 || !((*shape)[0] == ir::Dim(0));
}

// A list of reals from a constant input. An empty result: not constant.
Result<std::vector<double>> read_reals(const NodeView& node, uint32_t index, const char* name,
                                       size_t count) {
  const ir::TensorData* data = node.input_constant(index);
  if (data == nullptr) return std::vector<double>();
  auto values = to_reals(*data);
  if (!values) {
    return node.error(DVT_UNSUPPORTED, std::string(name) + " must be of type f32 or f64");
  }
  if (values->size() == count) return std::move(*values);
  return mismatch(node, std::string(name) + " has the wrong length",
                  std::to_string(count) + " values", std::to_string(values->size()) + " values");
}

Status read_scales(const NodeView& node, uint32_t index, Request& request) {
  auto scales = read_reals(node, index, "scales", request.axes.size());
  if (!scales.ok()) return std::move(scales.status());
  for (const double scale : *scales) {
    if (scale > 0.0 && std::isfinite(scale)) continue;
    return mismatch(node, "a scale is out of range", "positive and finite", std::to_string(scale));
  }
  request.complete = !scales->empty() || request.axes.empty();
  request.scales = std::move(*scales);
  return {};
}

Status read_sizes(const NodeView& node, Request& request) {
  auto sizes = node.input_i64(3);
  if (!sizes) return {};
  const bool in_range = std::all_of(sizes->begin(), sizes->end(), [](int64_t size) {
    return size >= 0 && static_cast<double>(size) < kExtentLimit;
  });
  if (!in_range || sizes->size() != request.axes.size()) {
    return mismatch(node, "sizes has a wrong length or value",
                    std::to_string(request.axes.size()) + " extents",
                    std::to_string(sizes->size()) + " values");
  }
  request.sizes = std::move(*sizes);
  request.complete = true;
  return {};
}

// Upsample keeps its scales in an attribute until opset 9, in opset 1 as two numbers.
Status read_upsample(const NodeView& node, Request& request) {
  if (node.opset() >= 9) return read_scales(node, 1, request);
  for (const float scale : node.attribute_floats("scales")) request.scales.push_back(scale);
  if (request.scales.size() != request.axes.size()) {
    return mismatch(node, "attribute scales has the wrong length",
                    std::to_string(request.axes.size()) + " values",
                    std::to_string(request.scales.size()) + " values");
  }
  for (const double scale : request.scales) {
    if (scale >= 1.0 && std::isfinite(scale)) continue;
    return mismatch(node, "a scale is out of range", "1 or more", std::to_string(scale));
  }
  request.complete = true;
  return {};
}

Result<Request> read_request(const NodeView& node, size_t rank, int64_t coordinates) {
  Request request;
  auto axes = read_axes(node, rank);
  if (!axes.ok()) return std::move(axes.status());
  request.axes = std::move(*axes);
  Status status;
  if (is_upsample(node)) {
    status = read_upsample(node, request);
  } else if (node.opset() < 11) {
    status = read_scales(node, 1, request);
  } else if (is_given(node, 2) == is_given(node, 3)) {
    // An empty tensor whose shape is not known yet looks given; the constants decide.
    status = node.error(DVT_INVALID_ARGUMENT, "exactly one of scales and sizes must be given");
  } else {
    status = is_given(node, 2) ? read_scales(node, 2, request) : read_sizes(node, request);
  }
  if (!status.ok()) return status;
  if (coordinates == DVT_RESIZE_TF_CROP) {
    if (!is_given(node, 1)) {
      return node.error(DVT_INVALID_ARGUMENT, "tf_crop_and_resize needs the input roi");
    }
    auto roi = read_reals(node, 1, "roi", 2 * request.axes.size());
    if (!roi.ok()) return std::move(roi.status());
    request.complete = request.complete && (!roi->empty() || request.axes.empty());
    request.roi = std::move(*roi);
    if (!std::all_of(request.roi.begin(), request.roi.end(),
                     [](double value) { return std::isfinite(value); })) {
      return node.error(DVT_INVALID_ARGUMENT, "roi must be finite");
    }
  }
  return request;
}

// How one dim is resized.
struct Extent {
  int64_t out;
  double numerator, denominator;  // The scale.
};

// From a scale. `span` is the part of the dim that the region of interest covers.
std::optional<Extent> scaled_extent(int64_t in, double scale, double span) {
  const double factor = scale * span;
  const double product = static_cast<double>(in) * factor;
  if (!(product >= 0.0) || product >= kExtentLimit) return std::nullopt;
  const double nearest = std::nearbyint(product);
  const auto ratio = static_cast<float>(nearest / static_cast<double>(in));
  if (in > 0 && nearest > 0.0 && ratio == static_cast<float>(factor)) {
    return Extent{static_cast<int64_t>(nearest), nearest, static_cast<double>(in)};
  }
  return Extent{static_cast<int64_t>(std::floor(product)), factor, 1.0};
}

// The one scale that keep_aspect_ratio_policy picks from sizes, as a fraction of two extents.
// nullopt: "stretch", every axis has its own.
Result<std::optional<Extent>> common_scale(const NodeView& node, const Request& request,
                                           const std::vector<int64_t>& in) {
  const std::string policy = node.opset() >= 18
                                 ? node.attribute_string("keep_aspect_ratio_policy", "stretch")
                                 : std::string("stretch");
  if (policy == "stretch" || request.sizes.empty()) return std::optional<Extent>();
  if (policy != "not_larger" && policy != "not_smaller") {
    return mismatch(node, "attribute keep_aspect_ratio_policy has an unknown value",
                    "stretch, not_larger or not_smaller", policy);
  }
  std::optional<Extent> picked;
  for (size_t i = 0; i < request.axes.size(); ++i) {
    const auto size = static_cast<double>(request.sizes[i]);
    const auto extent = static_cast<double>(in[request.axes[i]]);
    const double scale = size / extent;
    const bool better =
        picked && (policy == "not_larger" ? scale < picked->numerator / picked->denominator
                                          : scale > picked->numerator / picked->denominator);
    if (!picked || better) picked = Extent{0, size, extent};
  }
  return picked;
}

// One entry per dim of X. Precondition: request.complete.
Result<std::vector<Extent>> resolve(const NodeView& node, const Request& request,
                                    const std::vector<int64_t>& in) {
  std::vector<Extent> extents;
  for (const int64_t extent : in) extents.push_back({extent, 1.0, 1.0});
  auto common = common_scale(node, request, in);
  if (!common.ok()) return std::move(common.status());
  for (size_t i = 0; i < request.axes.size(); ++i) {
    const size_t dim = request.axes[i];
    const auto extent = static_cast<double>(in[dim]);
    const double span =
        request.roi.empty() ? 1.0 : request.roi[request.axes.size() + i] - request.roi[i];
    std::optional<Extent> resized;
    if (!request.scales.empty()) {
      resized = scaled_extent(in[dim], request.scales[i], span);
    } else if (*common) {
      const double out = std::floor(extent * (*common)->numerator / (*common)->denominator + 0.5);
      if (out >= 0.0 && out < kExtentLimit) {
        resized = Extent{static_cast<int64_t>(out), (*common)->numerator, (*common)->denominator};
      }
    } else {
      resized = Extent{request.sizes[i], static_cast<double>(request.sizes[i]), extent};
    }
    if (!resized || (in[dim] == 0 && resized->out > 0)) {
      return mismatch(node, "dim " + std::to_string(dim) + " cannot be resized so",
                      "an extent that fits a tensor", "from " + std::to_string(in[dim]));
    }
    extents[dim] = *resized;
  }
  return extents;
}

// Dims of the output while some of the input's are unknown.
ir::Shape partial_shape(const Request& request, const ir::Shape& x) {
  ir::Shape shape = x;
  for (size_t i = 0; i < request.axes.size(); ++i) {
    ir::Dim& dim = shape[request.axes[i]];
    if (request.complete && !request.sizes.empty()) {
      dim = ir::Dim(request.sizes[i]);
    } else if (!request.complete || !request.roi.empty() || request.scales[i] != 1.0) {
      dim = ir::Dim();
    }
  }
  return shape;
}

Status infer_resize(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
  auto modes = read_modes(node);
  if (!modes.ok()) return std::move(modes.status());
  const ir::Shape* x = node.input_shape(0);
  if (x == nullptr || x->size() > DVT_MAX_RANK) return {};
  if (x->empty()) return node.error(DVT_INVALID_ARGUMENT, "X must not be a scalar");
  auto request = read_request(node, x->size(), modes->coordinates);
  if (!request.ok()) return std::move(request.status());
  const auto in = ir::static_extents(*x);
  const bool stretches = node.attribute_string("keep_aspect_ratio_policy", "stretch") == "stretch";
  if (!in || !request->complete) {
    const bool known = stretches || request->sizes.empty();
    outputs[0].shape = known ? partial_shape(*request, *x) : ir::Shape(x->size());
    return {};
  }
  auto extents = resolve(node, *request, *in);
  if (!extents.ok()) return std::move(extents.status());
  ir::Shape shape;
  for (const Extent& extent : *extents) shape.emplace_back(extent.out);
  outputs[0].shape = std::move(shape);
  return {};
}

// How the kernel is to take sizes of dims that are not all known.
double size_rule(const NodeView& node) {
  const std::string policy = node.opset() >= 18
                                 ? node.attribute_string("keep_aspect_ratio_policy", "stretch")
                                 : std::string("stretch");
  return policy == "not_larger"    ? DVT_RESIZE_NOT_LARGER
         : policy == "not_smaller" ? DVT_RESIZE_NOT_SMALLER
                                   : DVT_RESIZE_TO_SIZE;
}

// Scales of dims that are not all known: the kernel works them out.
void leave_scales(const NodeView& node, const Request& request, DvtResizeAttributes& attributes) {
  for (size_t i = 0; i < request.axes.size(); ++i) {
    const size_t dim = request.axes[i];
    const double span =
        request.roi.empty() ? 1.0 : request.roi[request.axes.size() + i] - request.roi[i];
    const bool by_scale = !request.scales.empty();
    attributes.numerator[dim] =
        by_scale ? request.scales[i] * span : static_cast<double>(request.sizes[i]);
    attributes.denominator[dim] = by_scale ? DVT_RESIZE_BY_SCALE : size_rule(node);
  }
}

// Lists that are not constant are inputs 1 to 3 of the kernel, and the record says where in them
// each dim has its value.
Recipe recipe_with_inputs(const NodeView& node, const DvtKernel& kernel, const Request& request,
                          DvtResizeAttributes attributes) {
  const uint32_t scales_at = is_plain(node) ? 1 : 2;
  const bool by_sizes = !is_plain(node) && is_given(node, 3);
  const bool is_listed = by_sizes ? request.sizes.empty() : request.scales.empty();
  const bool has_roi = attributes.coordinates == DVT_RESIZE_TF_CROP && request.roi.empty();
  for (size_t i = 0; i < request.axes.size(); ++i) {
    const size_t dim = request.axes[i];
    attributes.denominator[dim] = by_sizes ? size_rule(node) : DVT_RESIZE_BY_SCALE;
    attributes.numerator[dim] = is_listed  ? static_cast<double>(i)
                                : by_sizes ? static_cast<double>(request.sizes[i])
                                           : request.scales[i];
    if (has_roi) attributes.roi_start[dim] = attributes.roi_end[dim] = static_cast<double>(i);
  }
  Recipe recipe = plain_recipe(node, &kernel, attribute_bytes(attributes));
  recipe.inputs = {0, has_roi ? 1 : ir::kNone, is_listed && !by_sizes ? scales_at : ir::kNone,
                   is_listed && by_sizes ? 3 : ir::kNone};
  while (recipe.inputs.back() == ir::kNone) recipe.inputs.pop_back();
  recipe.workspace_bytes = {1};  // The kernel's infer() knows better.
  return recipe;
}

Result<Recipe> recipe_resize(const NodeView& node) {
  auto kernel = require_kernel(node, "Resize", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  auto attributes = read_modes(node);
  if (!attributes.ok()) return std::move(attributes.status());
  const ir::Shape* x = node.input_shape(0);
  if (x == nullptr) {
    return node.error(DVT_UNSUPPORTED, "the rank of X is not known", DVT_STAGE_LOWER);
  }
  auto request = read_request(node, x->size(), attributes->coordinates);
  if (!request.ok()) return std::move(request.status());
  for (size_t i = 0; i < DVT_MAX_RANK; ++i) {
    attributes->numerator[i] = attributes->denominator[i] = 1.0;
    attributes->roi_start[i] = 0.0;
    attributes->roi_end[i] = 1.0;
  }
  for (size_t i = 0; i < request->axes.size() && !request->roi.empty(); ++i) {
    attributes->roi_start[request->axes[i]] = request->roi[i];
    attributes->roi_end[request->axes[i]] = request->roi[request->axes.size() + i];
  }
  if (!request->complete) return recipe_with_inputs(node, **kernel, *request, *attributes);
  uint64_t workspace = 1;
  if (const auto in = node.input_extents(0)) {
    auto extents = resolve(node, *request, *in);
    if (!extents.ok()) return std::move(extents.status());
    std::vector<int64_t> out;
    for (size_t i = 0; i < in->size(); ++i) {
      attributes->numerator[i] = (*extents)[i].numerator;
      attributes->denominator[i] = (*extents)[i].denominator;
      out.push_back((*extents)[i].out);
    }
    workspace = dvt_resize_workspace_bytes(&*attributes, static_cast<uint32_t>(in->size()),
                                           in->data(), out.data());
    if (workspace == 0 && checked_elements(out).value_or(1) != 0) {
      return node.error(DVT_UNSUPPORTED, "the filter of this resize is too large", DVT_STAGE_LOWER);
    }
  } else {
    leave_scales(node, *request, *attributes);
  }
  Recipe recipe = plain_recipe(node, *kernel, attribute_bytes(*attributes));
  recipe.inputs = {0};
  recipe.workspace_bytes = {std::max<uint64_t>(workspace, 1)};
  return recipe;
}

// Nearest moves elements; the filters read a few per output element.
DvtTaskCost cost_resize(const NodeView& node) {
  const std::string mode = node.attribute_string("mode", "nearest");
  if (mode == "nearest") return move_cost(node);
  return vector_cost(node, element_count(node.output_extents(0)), mode == "cubic" ? 1600 : 400);
}

constexpr OperatorDefinition resize(std::string_view name, int64_t since, int64_t until,
                                    uint32_t input_min, uint32_t input_max) {
  return {"", name, since,        until,         input_min,  input_max,
          1,  1,    infer_resize, recipe_resize, cost_resize};
}

constexpr std::array kOperators = {
    resize("Resize", 10, 10, 2, 2),        resize("Resize", 11, 12, 3, 4),
    resize("Resize", 13, 17, 1, 4),        resize("Resize", 18, 18, 1, 4),
    resize("Resize", 19, INT64_MAX, 1, 4), resize("Upsample", 7, 8, 1, 1),
    resize("Upsample", 9, 9, 2, 2),
};

}  // namespace

std::span<const OperatorDefinition> resize_operators() {
  return kOperators;
}

}  // namespace davit::ops
