// fold_batch_norms and fold_scales: products with constant weights absorb what is multiplied with
// their channels and added to them. Not exact: weights are rounded where results were before.
#include <algorithm>
#include <array>
#include <cmath>

#include "ir/passes/passes.hpp"
#include "ir/passes/rewrite.hpp"

namespace davit::passes {
namespace {

using ir::kNoNode;
using ir::kNoValue;
using ir::NodeId;
using ir::ValueId;

// y = factor[c] * x + shift[c], c being the channel.
struct Affine {
  std::vector<double> factors, shifts;
};

// A Conv, ConvTranspose, Gemm or MatMul whose weights can be changed.
struct Product {
  NodeId node;
  bool has_bias_operand;  // MatMul has none.
  uint32_t channel_axis;  // Of the result.
  int64_t channels;
  std::vector<int64_t> dims;  // Of the weights.
  // The channel of weight i.
  int64_t (*channel_of)(const Product& product, int64_t index);
  int64_t group = 1;
  bool is_transposed = false;  // Gemm: channels are rows of B.
};

int64_t tail_volume(const Product& product, size_t first) {
  int64_t volume = 1;
  for (size_t i = first; i < product.dims.size(); ++i) volume *= product.dims[i];
  return volume;
}
int64_t channel_of_filter(const Product& product, int64_t index) {
  return index / tail_volume(product, 1);
}
// W is [C, M / group, ...]: rows of group g make the channels of group g.
int64_t channel_of_transposed_filter(const Product& product, int64_t index) {
  const int64_t volume = tail_volume(product, 2);
  const int64_t row = index / (volume * product.dims[1]);
  const int64_t group = row / (product.dims[0] / product.group);
  return group * product.dims[1] + index / volume % product.dims[1];
}
int64_t channel_of_matrix(const Product& product, int64_t index) {
  return product.is_transposed ? index / product.dims.back() : index % product.dims.back();
}

std::optional<Product> product_at(const ir::Module& module, NodeId node) {
  const ops::NodeView view(module, node);
  const auto dims = static_shape(module, operand(module, node, 1));
  const ir::Shape* result = module.outputs(node).empty() || module.outputs(node)[0] == kNoValue
                                ? nullptr
                                : module.shape(module.outputs(node)[0]);
  if (!dims || result == nullptr || dims->size() < 2) return std::nullopt;
  Product product{.node = node, .has_bias_operand = true, .channel_axis = 1, .dims = *dims};
  product.group = view.attribute_int("group", 1);
  if (is_op(module, node, "Conv")) {
    product.channel_of = channel_of_filter;
    product.channels = (*dims)[0];
  } else if (is_op(module, node, "ConvTranspose")) {
    product.channel_of = channel_of_transposed_filter;
    product.channels = (*dims)[1] * product.group;
  } else if (is_op(module, node, "Gemm") && view.opset() >= 7) {  // Before, C has to be told.
    product.channel_of = channel_of_matrix;
    product.is_transposed = view.attribute_int("transB", 0) != 0;
    product.channels = product.is_transposed ? (*dims)[0] : (*dims)[1];
  } else if (is_op(module, node, "MatMul")) {
    product.has_bias_operand = false;
    product.channel_of = channel_of_matrix;
    product.channels = dims->back();
    product.channel_axis = uint32_t(result->size() - 1);
  } else {
    return std::nullopt;
  }
  if (result->empty() || product.channel_axis >= result->size()) return std::nullopt;
  return product;
}

std::string quoted(std::string_view text) {
  return "'" + std::string(text) + "'";
}

bool has_nonzero(const std::vector<double>& values) {
  return std::any_of(values.begin(), values.end(), [](double value) { return value != 0; });
}

// The bias as one number per channel; 0 without one. nullopt when it is something else.
std::optional<std::vector<double>> bias_of(const ir::Module& module, const Product& product) {
  std::vector<double> bias(size_t(product.channels), 0.0);
  const ValueId value = product.has_bias_operand ? operand(module, product.node, 2) : kNoValue;
  if (value == kNoValue) return bias;
  const ir::TensorData* data = module.constant(value);
  if (data == nullptr) return std::nullopt;
  const std::vector<double> numbers = constant_reals(*data);
  const bool is_row =
      data->dims.empty() || numbers.size() == 1 ||
      (data->dims.back() == product.channels && numbers.size() == size_t(product.channels));
  if (!is_row || numbers.empty()) return std::nullopt;
  const double beta = is_op(module, product.node, "Gemm")
                          ? ops::NodeView(module, product.node).attribute_float("beta", 1.0F)
                          : 1.0F;
  for (size_t c = 0; c < bias.size(); ++c) bias[c] = beta * numbers[numbers.size() == 1 ? 0 : c];
  return bias;
}

// Why the product cannot take this in; empty when it can.
std::string obstacle(const Rewriter& rewriter, const Product& product, const Affine& affine) {
  const ir::Module& module = rewriter.module();
  const ValueId weights = operand(module, product.node, 1);
  const ValueId result = module.outputs(product.node)[0];
  const std::string name = quoted(module.value_name(result));
  if (module.is_graph_output(result)) return "interior value " + name + " is a graph output";
  if (only_reader(module, result) == kNoNode) {
    return "interior value " + name + " is read more than once";
  }
  if (rewriter.has_control_edges(product.node)) return "the product has control edges";
  if (!is_float(module.dtype(weights))) return "its weights are integers";
  if (module.constant(weights) == nullptr) {
    return "weights " + quoted(module.value_name(weights)) + " are not a constant";
  }
  if (module.uses(weights).size() > 1) {
    return "weights " + quoted(module.value_name(weights)) + " are shared";
  }
  if (!bias_of(module, product)) return "the bias is not one constant per channel";
  if (!product.has_bias_operand && has_nonzero(affine.shifts)) {
    return "MatMul has no bias";
  }
  for (const auto* numbers : {&affine.factors, &affine.shifts}) {
    for (size_t c = 0; c < numbers->size(); ++c) {
      if (!std::isfinite((*numbers)[c])) return "channel " + std::to_string(c) + " is not finite";
    }
  }
  return {};
}

// Precondition: obstacle() found none. `reader` computes the affine map of the product's result.
void absorb(Rewriter& rewriter, const Product& product, const Affine& affine, NodeId reader) {
  ir::Module& module = rewriter.module();
  const ir::GraphId graph = module.node_graph(product.node);
  const ValueId weights = operand(module, product.node, 1);
  const ir::TensorData data = *module.constant(weights);  // Adding constants moves them.
  std::vector<double> numbers = constant_reals(data);
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] *= affine.factors[size_t(product.channel_of(product, int64_t(i)))];
  }
  std::vector<double> bias = *bias_of(module, product);
  for (size_t c = 0; c < bias.size(); ++c) bias[c] = bias[c] * affine.factors[c] + affine.shifts[c];

  std::vector<ValueId> inputs(module.inputs(product.node).begin(),
                              module.inputs(product.node).end());
  inputs[1] = rewriter.add_constant(graph, module.value_name(weights),
                                    make_real_tensor(data.dtype, data.dims, numbers));
  std::vector<ir::Attribute> attributes(module.attributes(product.node).begin(),
                                        module.attributes(product.node).end());
  const bool had_bias = operand(module, product.node, 2) != kNoValue;
  if (product.has_bias_operand && (had_bias || has_nonzero(bias))) {
    const std::string name = had_bias ? std::string(module.value_name(inputs[2]))
                                      : std::string(module.value_name(weights)) + ".bias";
    inputs.resize(3, kNoValue);
    inputs[2] =
        rewriter.add_constant(graph, name, make_real_tensor(data.dtype, {product.channels}, bias));
    std::erase_if(attributes, [](const ir::Attribute& each) { return each.name == "beta"; });
  }
  rewriter.add_node(graph, {.domain = std::string(module.domain(product.node)),
                            .op = std::string(module.op(product.node)),
                            .name = module.local_name(product.node),
                            .inputs = std::move(inputs),
                            .outputs = {module.outputs(reader)[0]},
                            .attributes = std::move(attributes)});
  rewriter.strike(reader);
  rewriter.strike(product.node);
}

// A constant that broadcasts to one number per channel of a result of that rank.
std::optional<std::vector<double>> per_channel(const ir::TensorData& data, size_t rank,
                                               uint32_t axis, int64_t channels) {
  if (data.dims.size() > rank || !is_float(data.dtype)) return std::nullopt;
  for (size_t i = 0; i < data.dims.size(); ++i) {
    const size_t at = rank - data.dims.size() + i;
    if (data.dims[i] != 1 && (at != axis || data.dims[i] != channels)) return std::nullopt;
  }
  std::vector<double> numbers = constant_reals(data);
  if (numbers.size() == 1) numbers.assign(size_t(channels), numbers[0]);
  if (numbers.size() != size_t(channels)) return std::nullopt;
  return numbers;
}

// ---- BatchNormalization ------------------------------------------------------------------------

// The map of a BatchNormalization with constant parameters, in inference.
std::optional<Affine> affine_of_norm(const ir::Module& module, NodeId node, int64_t channels) {
  const ops::NodeView view(module, node);
  const bool trains =
      view.opset() >= 14 ? view.attribute_int("training_mode", 0) != 0 : view.output_count() > 1;
  if (trains || (view.opset() < 9 && view.attribute_int("spatial", 1) == 0)) return std::nullopt;
  std::array<std::vector<double>, 4> parameters;  // Scale, bias, mean, variance.
  for (uint32_t i = 0; i < parameters.size(); ++i) {
    const ir::TensorData* data = view.input_constant(i + 1);
    if (data == nullptr) return std::nullopt;
    parameters[i] = constant_reals(*data);
    if (parameters[i].size() != size_t(channels)) return std::nullopt;
  }
  const double epsilon = view.attribute_float("epsilon", 1e-5F);
  Affine affine;
  for (size_t c = 0; c < size_t(channels); ++c) {
    const double factor = parameters[0][c] / std::sqrt(parameters[3][c] + epsilon);
    affine.factors.push_back(factor);
    affine.shifts.push_back(parameters[1][c] - parameters[2][c] * factor);
  }
  return affine;
}

// ---- Mul, Div, Add, Sub ------------------------------------------------------------------------

// The map of a binary operator with a constant; nullopt when it is none of the channels.
std::optional<Affine> affine_of_binary(const ir::Module& module, NodeId node, ValueId x,
                                       const Product& product) {
  if (module.inputs(node).size() != 2 || module.opset_version(node) < 7) return std::nullopt;
  const bool turned = operand(module, node, 1) == x;
  const ir::TensorData* data = module.constant(operand(module, node, turned ? 0 : 1));
  const ir::Shape* shape = module.shape(x);
  if (data == nullptr || !same_type(module, x, module.outputs(node)[0])) return std::nullopt;
  const auto numbers = per_channel(*data, shape->size(), product.channel_axis, product.channels);
  if (!numbers) return std::nullopt;
  const auto all = [&](double number) { return std::vector<double>(numbers->size(), number); };
  const auto mapped = [&](auto function) {
    std::vector<double> out;
    for (const double number : *numbers) out.push_back(function(number));
    return out;
  };
  if (is_op(module, node, "Mul")) return Affine{*numbers, all(0)};
  // That is a Gemm in the making, not a pattern of this pass.
  if (!product.has_bias_operand && !is_op(module, node, "Div")) return std::nullopt;
  if (is_op(module, node, "Add")) return Affine{all(1), *numbers};
  if (is_op(module, node, "Div") && !turned) {
    return Affine{mapped([](double number) { return 1 / number; }), all(0)};
  }
  if (is_op(module, node, "Sub")) {
    if (turned) return Affine{all(-1), *numbers};
    return Affine{all(1), mapped([](double number) { return -number; })};
  }
  return std::nullopt;
}

// The operand of a node that a product computes.
ValueId product_operand(const ir::Module& module, NodeId node) {
  for (const ValueId value : module.inputs(node)) {
    const NodeId producer = value == kNoValue ? kNoNode : module.producer(value);
    if (producer != kNoNode && module.node_graph(producer) == module.node_graph(node) &&
        product_at(module, producer)) {
      return value;
    }
  }
  return kNoValue;
}

using MapOf = std::optional<Affine> (*)(const ir::Module&, NodeId, ValueId, const Product&);

Result<uint32_t> fold(ir::Module& module, std::string_view pass, Refusals& refusals,
                      bool (*is_reader)(const ir::Module&, NodeId), MapOf map_of) {
  Rewriter rewriter(module);
  uint32_t changes = 0;
  for (const NodeId node : live_nodes(module)) {
    if (rewriter.is_struck(node) || rewriter.has_control_edges(node) || !is_reader(module, node)) {
      continue;
    }
    const ValueId x = product_operand(module, node);
    if (x == kNoValue) continue;
    const Product product = *product_at(module, module.producer(x));
    const auto affine = map_of(module, node, x, product);
    if (!affine) continue;
    const std::string reason = obstacle(rewriter, product, *affine);
    if (reason.empty()) {
      absorb(rewriter, product, *affine, node);
      ++changes;
    } else {
      refusals.push_back({std::string(pass), module.node_path(node), reason});
    }
  }
  if (Status status = rewriter.finish(); !status.ok()) return status;
  return changes;
}

}  // namespace

Result<uint32_t> fold_batch_norms(ir::Module& module, Refusals& refusals) {
  return fold(
      module, "fold_batch_norms", refusals,
      [](const ir::Module& in, NodeId node) { return is_op(in, node, "BatchNormalization"); },
      [](const ir::Module& in, NodeId node, ValueId x, const Product& product) {
        // The channel of a BatchNormalization is axis 1.
        const bool fits = operand(in, node, 0) == x && product.channel_axis == 1;
        return fits ? affine_of_norm(in, node, product.channels) : std::nullopt;
      });
}

Result<uint32_t> fold_scales(ir::Module& module, Refusals& refusals) {
  return fold(
      module, "fold_scales", refusals,
      [](const ir::Module& in, NodeId node) {
        return is_op(in, node, "Mul") || is_op(in, node, "Div") || is_op(in, node, "Add") ||
               is_op(in, node, "Sub");
      },
      affine_of_binary);
}

}  // namespace davit::passes
