// DFT, STFT, MelWeightMatrix, HannWindow, HammingWindow and BlackmanWindow.
#include "ops/kernels/signal.h"

#include <array>
#include <cmath>

#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"
#include "ops/defs/scratch.hpp"
#include "ops/kernels/fft.h"

namespace davit::ops {
namespace {

// The only element of a constant input; nullopt when it is not constant or has not just one.
std::optional<int64_t> scalar(const NodeView& node, uint32_t index) {
  const auto values = node.input_i64(index);
  return values && values->size() == 1 ? std::optional((*values)[0]) : std::nullopt;
}

Status check_scalar(const NodeView& node, uint32_t index, const char* name) {
  const ir::Shape* shape = node.input_shape(index);
  const DvtDType dtype = node.input_dtype(index);
  if (dtype != DVT_DTYPE_NONE && dtype != DVT_I64 && dtype != DVT_I32) {
    return node.error(DVT_INVALID_ARGUMENT, std::string(name) + " must be of type i32 or i64");
  }
  const auto extents = shape == nullptr ? std::nullopt : ir::static_extents(*shape);
  if (!extents || extents->empty() || *extents == std::vector<int64_t>{1}) return {};
  return mismatch(node, std::string(name) + " must be a scalar", "[] or [1]",
                  shape_text(node, *shape));
}

Status check_length(const NodeView& node, int64_t length) {
  if (length >= 1 && length <= DVT_FFT_MAX) return {};
  return mismatch(node, "the length of the transform is out of range", "1 to 2^30",
                  std::to_string(length));
}

Status check_parts(const NodeView& node, ir::Dim parts, bool onesided) {
  if (!parts.is_known()) return {};
  if (parts.extent() != 1 && parts.extent() != 2) {
    return mismatch(node, "the last axis must hold the parts of a number", "1 or 2",
                    std::to_string(parts.extent()));
  }
  if (!onesided || parts.extent() == 1) return {};
  return node.error(DVT_INVALID_ARGUMENT, "a onesided transform needs real numbers");
}

ir::Dim bins_of(ir::Dim length, bool onesided) {
  return onesided && length.is_known() ? ir::Dim(length.extent() / 2 + 1)
         : onesided                    ? ir::Dim()
                                       : length;
}

// ---- DFT --------------------------------------------------------------------------------------

// Since opset 20 the axis is an input.
std::optional<int64_t> dft_axis(const NodeView& node) {
  if (node.opset() < 20) return node.attribute_int("axis", 1);
  return node.has_input(2) ? scalar(node, 2) : std::optional<int64_t>(-2);
}

Status infer_dft(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
  const bool onesided = node.attribute_int("onesided", 0) != 0;
  if (onesided && node.attribute_int("inverse", 0) != 0) {
    return node.error(DVT_UNSUPPORTED, "an inverse transform cannot be onesided");
  }
  Status status = check_scalar(node, 1, "dft_length");
  if (status.ok()) status = check_scalar(node, 2, "axis");
  if (!status.ok()) return status;
  const auto length = scalar(node, 1);
  if (length) status = check_length(node, *length);
  const ir::Shape* x = node.input_shape(0);
  if (!status.ok() || x == nullptr) return status;
  if (x->size() < 2) {
    return mismatch(node, "the input must have a signal axis and one for the parts",
                    "rank 2 or more", shape_text(node, *x));
  }
  status = check_parts(node, x->back(), onesided);
  if (!status.ok()) return status;
  ir::Shape shape = *x;
  shape.back() = ir::Dim(2);
  const auto stated = dft_axis(node);
  if (!stated) {  // Any axis but the last may change.
    std::fill(shape.begin(), shape.end() - 1, ir::Dim());
    outputs[0].shape = std::move(shape);
    return {};
  }
  auto axis = require_axis(node, *stated, x->size());
  if (!axis.ok()) return std::move(axis.status());
  const auto at = static_cast<size_t>(*axis);
  if (at + 1 == x->size()) {
    return node.error(DVT_INVALID_ARGUMENT, "the last axis holds the parts of the numbers");
  }
  const ir::Dim n = !node.has_input(1) ? (*x)[at] : length ? ir::Dim(*length) : ir::Dim();
  if (n.is_known()) status = check_length(node, n.extent());
  shape[at] = bins_of(n, onesided);
  outputs[0].shape = std::move(shape);
  return status;
}

// A scalar parameter for the record, whose input is then left out.
int64_t parameter(const NodeView& node, uint32_t input, int64_t absent, Recipe& recipe) {
  if (!node.has_input(input)) return absent;
  const auto value = scalar(node, input);
  if (!value) return DVT_LIST_INPUT;
  recipe.inputs[input] = ir::kNone;
  return *value;
}

void trim_inputs(Recipe& recipe) {
  while (!recipe.inputs.empty() && recipe.inputs.back() == ir::kNone) recipe.inputs.pop_back();
}

Result<Recipe> recipe_dft(const NodeView& node) {
  auto kernel = require_kernel(node, "DFT", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  Recipe recipe = plain_recipe(node, *kernel);
  const auto axis = dft_axis(node);
  if (axis && recipe.inputs.size() > 2) recipe.inputs[2] = ir::kNone;
  const DvtDftAttributes attributes = {.axis = axis.value_or(0),
                                       .length = parameter(node, 1, 0, recipe),
                                       .inverse = node.attribute_int("inverse", 0) != 0 ? 1 : 0,
                                       .onesided = node.attribute_int("onesided", 0) != 0 ? 1 : 0};
  recipe.attributes = attribute_bytes(attributes);
  trim_inputs(recipe);
  if (Status status = add_workspaces(node, recipe); !status.ok()) return status;
  return recipe;
}

// A fast transform: 5 n log n operations, over all numbers.
DvtTaskCost cost_fourier(const NodeView& node) {
  return vector_cost(node, element_count(node.output_extents(0)), 2500);
}

// ---- STFT -------------------------------------------------------------------------------------

Status infer_stft(const NodeView& node, std::span<InferredOutput> outputs) {
  outputs[0].dtype = node.input_dtype(0);
  const bool onesided = node.attribute_int("onesided", 1) != 0;
  Status status = check_scalar(node, 1, "frame_step");
  if (status.ok()) status = check_scalar(node, 3, "frame_length");
  if (status.ok()) status = same_dtype(node, 0, 2);
  if (!status.ok()) return status;
  if (!node.has_input(2) && !node.has_input(3)) {
    return node.error(DVT_INVALID_ARGUMENT, "window or frame_length must be there");
  }
  const ir::Shape* window = node.input_shape(2);
  if (window != nullptr && window->size() != 1) {
    return mismatch(node, "the window must have rank 1", "[n]", shape_text(node, *window));
  }
  ir::Dim length = window == nullptr ? ir::Dim() : (*window)[0];
  if (const auto stated = scalar(node, 3)) {
    if (length.is_known() && length.extent() != *stated) {
      return mismatch(node, "window and frame_length differ", std::to_string(*stated),
                      std::to_string(length.extent()));
    }
    status = check_length(node, *stated);
    if (!status.ok()) return status;
    length = ir::Dim(*stated);
  }
  if (length.is_known()) status = check_length(node, length.extent());
  const ir::Shape* x = node.input_shape(0);
  if (status.ok() && x != nullptr && x->size() != 3) {
    return mismatch(node, "the signal must have rank 3", "[batch,length,1 or 2]",
                    shape_text(node, *x));
  }
  if (status.ok() && x != nullptr) status = check_parts(node, x->back(), onesided);
  if (!status.ok()) return status;
  ir::Shape shape = {x == nullptr ? ir::Dim() : (*x)[0], ir::Dim(), bins_of(length, onesided),
                     ir::Dim(2)};
  const auto step = scalar(node, 1);
  if (step && x != nullptr && (*x)[1].is_known() && length.is_known()) {
    if (*step < 1 || length.extent() > (*x)[1].extent()) {
      return mismatch(
          node, "no frame fits into the signal",
          "frames of at most " + std::to_string((*x)[1].extent()) + " at steps of at least 1",
          std::to_string(length.extent()) + " at steps of " + std::to_string(*step));
    }
    shape[1] = ir::Dim(((*x)[1].extent() - length.extent()) / *step + 1);
  }
  outputs[0].shape = std::move(shape);
  return check_elements(node, *outputs[0].shape);
}

Result<Recipe> recipe_stft(const NodeView& node) {
  auto kernel = require_kernel(node, "STFT", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  Recipe recipe = plain_recipe(node, *kernel);
  const DvtStftAttributes attributes = {.step = parameter(node, 1, 1, recipe),
                                        .length = parameter(node, 3, 0, recipe),
                                        .onesided = node.attribute_int("onesided", 1) != 0 ? 1 : 0};
  recipe.attributes = attribute_bytes(attributes);
  trim_inputs(recipe);
  if (Status status = add_workspaces(node, recipe); !status.ok()) return status;
  return recipe;
}

// ---- Windows and weights ----------------------------------------------------------------------

// The stated output type, which must be a number.
Result<DvtDType> output_type(const NodeView& node) {
  const int64_t stated = node.attribute_int("output_datatype", DVT_F32);
  const bool valid =
      stated >= 0 && stated < 256 && stated != DVT_BOOL && is_number(static_cast<DvtDType>(stated));
  if (valid) return static_cast<DvtDType>(stated);
  return mismatch(node, "attribute output_datatype is no number", "a numeric type",
                  std::to_string(stated));
}

Status infer_window(const NodeView& node, std::span<InferredOutput> outputs) {
  auto dtype = output_type(node);
  if (!dtype.ok()) return std::move(dtype.status());
  outputs[0].dtype = *dtype;
  if (Status status = check_scalar(node, 0, "size"); !status.ok()) return status;
  const auto size = scalar(node, 0);
  if (size && *size < 0) {
    return mismatch(node, "the size is negative", "0 or more", std::to_string(*size));
  }
  outputs[0].shape = ir::Shape{size ? ir::Dim(*size) : ir::Dim()};
  return check_elements(node, *outputs[0].shape);
}

Result<Recipe> recipe_window(const NodeView& node, double a, double b, double c) {
  Recipe recipe = plain_recipe(node, find_kernel("CosineWindow"));
  const DvtCosineWindowAttributes attributes = {
      .a = a,
      .b = b,
      .c = c,
      .periodic = node.attribute_int("periodic", 1) != 0 ? 1 : 0,
      .size = parameter(node, 0, 0, recipe)};
  recipe.attributes = attribute_bytes(attributes);
  trim_inputs(recipe);
  return recipe;
}
Result<Recipe> recipe_hann(const NodeView& node) {
  return recipe_window(node, 0.5, 0.5, 0.0);
}
Result<Recipe> recipe_hamming(const NodeView& node) {
  return recipe_window(node, 25.0 / 46.0, 21.0 / 46.0, 0.0);
}
Result<Recipe> recipe_blackman(const NodeView& node) {
  return recipe_window(node, 0.42, 0.5, 0.08);
}

Status infer_mel(const NodeView& node, std::span<InferredOutput> outputs) {
  auto dtype = output_type(node);
  if (!dtype.ok()) return std::move(dtype.status());
  outputs[0].dtype = *dtype;
  constexpr std::array kNames = {"num_mel_bins", "dft_length", "sample_rate"};
  ir::Dim sizes[2];
  for (uint32_t i = 0; i < kNames.size(); ++i) {
    if (Status status = check_scalar(node, i, kNames[i]); !status.ok()) return status;
    const auto value = scalar(node, i);
    if (!value) continue;
    if (*value < (i == 2 ? 1 : 0) || *value > int64_t{1} << 31) {
      return mismatch(node, std::string(kNames[i]) + " is out of range", "0 to 2^31",
                      std::to_string(*value));
    }
    if (i == 0) sizes[1] = ir::Dim(*value);
    if (i == 1) sizes[0] = ir::Dim(*value / 2 + 1);
  }
  outputs[0].shape = ir::Shape{sizes[0], sizes[1]};
  return check_elements(node, *outputs[0].shape);
}

Result<Recipe> recipe_mel(const NodeView& node) {
  return plain_recipe(node, find_kernel("MelWeightMatrix"));
}

DvtTaskCost cost_window(const NodeView& node) {
  return vector_cost(node, element_count(node.output_extents(0)), 1000);
}

constexpr OperatorDefinition window(const char* name, Result<Recipe> (*recipe)(const NodeView&)) {
  return {"", name, 17, INT64_MAX, 1, 1, 1, 1, infer_window, recipe, cost_window};
}

constexpr std::array kOperators = {
    OperatorDefinition{"", "DFT", 17, 19, 1, 2, 1, 1, infer_dft, recipe_dft, cost_fourier},
    OperatorDefinition{"", "DFT", 20, INT64_MAX, 1, 3, 1, 1, infer_dft, recipe_dft, cost_fourier},
    OperatorDefinition{"", "STFT", 17, INT64_MAX, 2, 4, 1, 1, infer_stft, recipe_stft,
                       cost_fourier},
    window("HannWindow", recipe_hann),
    window("HammingWindow", recipe_hamming),
    window("BlackmanWindow", recipe_blackman),
    OperatorDefinition{"", "MelWeightMatrix", 17, INT64_MAX, 5, 5, 1, 1, infer_mel, recipe_mel,
                       cost_window},
};

}  // namespace

std::span<const OperatorDefinition> signal_operators() {
  return kOperators;
}

}  // namespace davit::ops
