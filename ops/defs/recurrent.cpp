// LSTM, GRU and RNN.
#include "ops/kernels/recurrent.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"
#include "ops/defs/scratch.hpp"

namespace davit::ops {
namespace {

struct Kind {
  std::string_view kernel;
  int64_t gates;
  size_t functions;  // Per direction.
  std::array<int64_t, 3> defaults;
};
constexpr Kind kLstm = {
    "LSTM", 4, 3, {DVT_RECURRENT_SIGMOID, DVT_RECURRENT_TANH, DVT_RECURRENT_TANH}};
constexpr Kind kGru = {"GRU", 3, 2, {DVT_RECURRENT_SIGMOID, DVT_RECURRENT_TANH, 0}};
constexpr Kind kRnn = {"RNN", 1, 1, {DVT_RECURRENT_TANH, 0, 0}};

// An activation of the standard, with its defaults of alpha and beta. Counts: those it takes.
struct Function {
  std::string_view name;
  DvtRecurrentFunction id;
  int parameters;
  float alpha, beta;
};
constexpr std::array kFunctions = {
    Function{"sigmoid", DVT_RECURRENT_SIGMOID, 0, 0.0F, 0.0F},
    Function{"tanh", DVT_RECURRENT_TANH, 0, 0.0F, 0.0F},
    Function{"relu", DVT_RECURRENT_RELU, 0, 0.0F, 0.0F},
    Function{"affine", DVT_RECURRENT_AFFINE, 2, 1.0F, 0.0F},
    Function{"leakyrelu", DVT_RECURRENT_LEAKY_RELU, 1, 0.01F, 0.0F},
    Function{"thresholdedrelu", DVT_RECURRENT_THRESHOLDED_RELU, 1, 1.0F, 0.0F},
    Function{"scaledtanh", DVT_RECURRENT_SCALED_TANH, 2, 1.0F, 1.0F},
    Function{"hardsigmoid", DVT_RECURRENT_HARD_SIGMOID, 2, 0.2F, 0.5F},
    Function{"elu", DVT_RECURRENT_ELU, 1, 1.0F, 0.0F},
    Function{"softsign", DVT_RECURRENT_SOFTSIGN, 0, 0.0F, 0.0F},
    Function{"softplus", DVT_RECURRENT_SOFTPLUS, 0, 0.0F, 0.0F},
};

Result<int64_t> read_direction(const NodeView& node) {
  const std::string text = node.attribute_string("direction", "forward");
  if (text == "forward") return int64_t{DVT_RECURRENT_FORWARD};
  if (text == "reverse") return int64_t{DVT_RECURRENT_REVERSE};
  if (text == "bidirectional") return int64_t{DVT_RECURRENT_BIDIRECTIONAL};
  return mismatch(node, "attribute direction has an unknown value",
                  "forward, reverse or bidirectional", text);
}

// activations, activation_alpha and activation_beta. A value of the two lists goes to the next
// function that takes one.
Status read_functions(const NodeView& node, const Kind& kind, size_t directions,
                      DvtRecurrentAttributes& attributes) {
  std::vector<std::string> names = node.attribute_strings("activations");
  const std::vector<float> alphas = node.attribute_floats("activation_alpha");
  const std::vector<float> betas = node.attribute_floats("activation_beta");
  const size_t count = kind.functions * directions;
  if (!names.empty() && names.size() != count) {
    return mismatch(node, "attribute activations has the wrong length",
                    std::to_string(count) + " names", std::to_string(names.size()) + " names");
  }
  size_t alpha = 0, beta = 0;
  for (size_t i = 0; i < count; ++i) {
    const Function* function = nullptr;
    if (names.empty()) {
      const int64_t id = kind.defaults[i % kind.functions];
      function = std::ranges::find(kFunctions, id, &Function::id);
    } else {
      std::string lower = names[i];
      std::ranges::transform(lower, lower.begin(),
                             [](unsigned char c) { return char(std::tolower(c)); });
      function = std::ranges::find(kFunctions, lower, &Function::name);
      if (function == kFunctions.end()) {
        return mismatch(node, "attribute activations names an unknown function",
                        "Relu, Tanh, Sigmoid, Affine, LeakyRelu, ThresholdedRelu, ScaledTanh, "
                        "HardSigmoid, Elu, Softsign or Softplus",
                        names[i]);
      }
    }
    attributes.functions[i] = function->id;
    const bool has_alpha = function->parameters > 0 && alpha < alphas.size();
    attributes.alpha[i] = has_alpha ? alphas[alpha++] : function->alpha;
    const bool has_beta = function->parameters > 1 && beta < betas.size();
    attributes.beta[i] = has_beta ? betas[beta++] : function->beta;
  }
  return {};
}

Result<DvtRecurrentAttributes> read_attributes(const NodeView& node, const Kind& kind) {
  DvtRecurrentAttributes attributes{};
  auto direction = read_direction(node);
  if (!direction.ok()) return std::move(direction.status());
  attributes.direction = *direction;
  attributes.layout = node.opset() >= 14 && node.attribute_int("layout", 0) != 0 ? 1 : 0;
  attributes.input_forget = node.attribute_int("input_forget", 0) != 0 ? 1 : 0;
  attributes.linear_before_reset = node.attribute_int("linear_before_reset", 0) != 0 ? 1 : 0;
  attributes.outputs = present_outputs(node);
  if (node.has_attribute("clip")) {
    attributes.clips = 1;
    attributes.clip = node.attribute_float("clip", 0.0F);
    if (!(attributes.clip > 0.0)) {
      return mismatch(node, "attribute clip is out of range", "a positive number",
                      std::to_string(attributes.clip));
    }
  }
  const size_t directions = *direction == DVT_RECURRENT_BIDIRECTIONAL ? 2 : 1;
  if (Status status = read_functions(node, kind, directions, attributes); !status.ok()) {
    return status;
  }
  return attributes;
}

// ---- Shapes -----------------------------------------------------------------------------------

struct Input {
  uint32_t index;
  const char* name;
  ir::Shape dims;  // What it must be, as far as that is known.
};

// What is known better; the first of equals.
ir::Dim either(ir::Dim a, ir::Dim b) {
  if (a.is_known() || b.is_known()) return a.is_known() ? a : b;
  return a.is_symbol() ? a : b;
}

ir::Dim dim_of(const NodeView& node, uint32_t input, size_t rank, size_t index) {
  const ir::Shape* shape = node.input_shape(input);
  return shape == nullptr || shape->size() != rank ? ir::Dim() : (*shape)[index];
}

ir::Dim times(int64_t factor, ir::Dim dim) {
  if (!dim.is_known() || dim.extent() > INT64_MAX / 64) return ir::Dim();
  return ir::Dim(factor * dim.extent());
}

Status check_inputs(const NodeView& node, const std::vector<Input>& inputs) {
  for (const Input& input : inputs) {
    const ir::Shape* shape = node.input_shape(input.index);
    if (shape == nullptr) continue;
    bool fits = shape->size() == input.dims.size();
    for (size_t i = 0; fits && i < shape->size(); ++i) {
      fits = !(*shape)[i].is_known() || !input.dims[i].is_known() || (*shape)[i] == input.dims[i];
    }
    if (fits) continue;
    return mismatch(node, std::string("input ") + input.name + " has the wrong shape",
                    shape_text(node, input.dims), shape_text(node, *shape));
  }
  return {};
}

Status infer_kind(const NodeView& node, const Kind& kind, std::span<InferredOutput> outputs) {
  for (InferredOutput& output : outputs) output.dtype = node.input_dtype(DVT_RECURRENT_X);
  for (const uint32_t input : {DVT_RECURRENT_W, DVT_RECURRENT_R, DVT_RECURRENT_B, DVT_RECURRENT_H0,
                               DVT_RECURRENT_C0, DVT_RECURRENT_P}) {
    if (Status status = same_dtype(node, DVT_RECURRENT_X, input); !status.ok()) return status;
  }
  const DvtDType lengths = node.input_dtype(DVT_RECURRENT_LENGTHS);
  if (lengths != DVT_DTYPE_NONE && lengths != DVT_I32) {
    return node.error(DVT_INVALID_ARGUMENT, "sequence_lens must be of type i32");
  }
  auto attributes = read_attributes(node, kind);
  if (!attributes.ok()) return std::move(attributes.status());
  const bool batch_first = attributes->layout != 0;
  const ir::Dim directions(attributes->direction == DVT_RECURRENT_BIDIRECTIONAL ? 2 : 1);
  const ir::Dim steps = dim_of(node, DVT_RECURRENT_X, 3, batch_first ? 1 : 0);
  const ir::Dim batch = dim_of(node, DVT_RECURRENT_X, 3, batch_first ? 0 : 1);
  const ir::Dim width =
      either(dim_of(node, DVT_RECURRENT_X, 3, 2), dim_of(node, DVT_RECURRENT_W, 3, 2));
  ir::Dim hidden = dim_of(node, DVT_RECURRENT_R, 3, 2);
  if (const int64_t stated = node.attribute_int("hidden_size", 0); stated > 0) {
    hidden = either(ir::Dim(stated), hidden);
  }
  const ir::Dim gates = times(kind.gates, hidden);
  const ir::Dim outer = batch_first ? batch : directions;
  const ir::Dim inner = batch_first ? directions : batch;
  const ir::Shape state = {outer, inner, hidden};
  const ir::Dim first = batch_first ? batch : steps;
  const ir::Dim second = batch_first ? steps : batch;
  Status status = check_inputs(node, {{DVT_RECURRENT_X, "X", {first, second, width}},
                                      {DVT_RECURRENT_W, "W", {directions, gates, width}},
                                      {DVT_RECURRENT_R, "R", {directions, gates, hidden}},
                                      {DVT_RECURRENT_B, "B", {directions, times(2, gates)}},
                                      {DVT_RECURRENT_LENGTHS, "sequence_lens", {batch}},
                                      {DVT_RECURRENT_H0, "initial_h", state},
                                      {DVT_RECURRENT_C0, "initial_c", state},
                                      {DVT_RECURRENT_P, "P", {directions, times(3, hidden)}}});
  if (!status.ok()) return status;
  outputs[0].shape = batch_first ? ir::Shape{batch, steps, directions, hidden}
                                 : ir::Shape{steps, directions, batch, hidden};
  for (size_t i = 1; i < outputs.size(); ++i) outputs[i].shape = state;
  return {};
}

Result<Recipe> recipe_kind(const NodeView& node, const Kind& kind) {
  auto kernel = require_kernel(node, kind.kernel, node.input_dtype(DVT_RECURRENT_X));
  if (!kernel.ok()) return std::move(kernel.status());
  auto attributes = read_attributes(node, kind);
  if (!attributes.ok()) return std::move(attributes.status());
  Recipe recipe = plain_recipe(node, *kernel, attribute_bytes(*attributes));
  std::erase(recipe.outputs, ir::kNone);
  if (Status status = add_workspaces(node, recipe); !status.ok()) return status;
  return recipe;
}

Status infer_lstm(const NodeView& node, std::span<InferredOutput> outputs) {
  return infer_kind(node, kLstm, outputs);
}
Status infer_gru(const NodeView& node, std::span<InferredOutput> outputs) {
  return infer_kind(node, kGru, outputs);
}
Status infer_rnn(const NodeView& node, std::span<InferredOutput> outputs) {
  return infer_kind(node, kRnn, outputs);
}
Result<Recipe> recipe_lstm(const NodeView& node) {
  return recipe_kind(node, kLstm);
}
Result<Recipe> recipe_gru(const NodeView& node) {
  return recipe_kind(node, kGru);
}
Result<Recipe> recipe_rnn(const NodeView& node) {
  return recipe_kind(node, kRnn);
}

constexpr OperatorDefinition lstm(int64_t since, int64_t until) {
  return {"", "LSTM", since, until, 3, 8, 0, 3, infer_lstm, recipe_lstm, cost_of_kernel};
}
constexpr OperatorDefinition gru(int64_t since, int64_t until) {
  return {"", "GRU", since, until, 3, 6, 0, 2, infer_gru, recipe_gru, cost_of_kernel};
}
constexpr OperatorDefinition rnn(int64_t since, int64_t until) {
  return {"", "RNN", since, until, 3, 6, 0, 2, infer_rnn, recipe_rnn, cost_of_kernel};
}

constexpr std::array kOperators = {
    lstm(1, 6), lstm(7, 13),        lstm(14, INT64_MAX), gru(1, 2),  gru(3, 6),
    gru(7, 13), gru(14, INT64_MAX), rnn(1, 6),           rnn(7, 13), rnn(14, INT64_MAX),
};

}  // namespace

std::span<const OperatorDefinition> recurrent_operators() {
  return kOperators;
}

}  // namespace davit::ops
