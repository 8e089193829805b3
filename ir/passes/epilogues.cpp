// fuse_epilogues: pointwise operators behind a product become its steps.
#include <algorithm>
#include <array>
#include <cfloat>

#include "ir/passes/passes.hpp"
#include "ir/passes/pattern.hpp"
#include "ir/passes/rewrite.hpp"
#include "ops/defs/fused.hpp"
#include "ops/kernels/fused.h"

namespace davit::passes {
namespace {

using ir::kNoNode;
using ir::kNoValue;
using ir::NodeId;
using ir::ValueId;

struct Step {
  NodeId node;
  std::string name;
  ValueId operand = kNoValue;  // Of binary steps; may be a value of the chain.
  double alpha = 0, beta = 0;
};

// Numbers of an activation's attributes, by their names and defaults.
struct Activation {
  std::string_view op, alpha_name, beta_name;
  float alpha, beta;
};
constexpr std::array kActivations = {
    Activation{"Relu", "", "", 0, 0},
    Activation{"HardSigmoid", "alpha", "beta", 0.2F, 0.5F},
    Activation{"LeakyRelu", "alpha", "", 0.01F, 0},
    Activation{"Elu", "alpha", "", 1, 0},
    Activation{"HardSwish", "", "", 0, 0},
    Activation{"Sigmoid", "", "", 0, 0},
    Activation{"Tanh", "", "", 0, 0},
    Activation{"Erf", "", "", 0, 0},
    Activation{"Exp", "", "", 0, 0},
    Activation{"Neg", "", "", 0, 0},
    Activation{"Abs", "", "", 0, 0},
    Activation{"Sqrt", "", "", 0, 0},
    Activation{"Softplus", "", "", 0, 0},
};

bool is_product(const ir::Module& module, NodeId node) {
  const bool known = is_op(module, node, "Conv") || is_op(module, node, "ConvTranspose") ||
                     is_op(module, node, "MatMul") || is_op(module, node, "Gemm");
  // Older ones say by attributes how C and operands broadcast.
  return known && module.opset_version(node) >= 8 && module.outputs(node).size() == 1 &&
         is_float(module.dtype(module.outputs(node)[0]));
}

// The lowest and highest finite number, which bound a Clip that says nothing.
double limit_of(DvtDType dtype) {
  if (dtype == DVT_F64) return DBL_MAX;
  if (dtype == DVT_F32) return FLT_MAX;
  return dtype == DVT_F16 ? 65504.0 : 0x1.FEp127;
}

std::optional<Step> clip_step(const ir::Module& module, NodeId node) {
  const ops::NodeView view(module, node);
  const double limit = limit_of(view.input_dtype(0));
  Step step{.node = node, .name = "Clip", .alpha = -limit, .beta = limit};
  if (view.opset() < 11) {
    step.alpha = view.has_attribute("min") ? view.attribute_float("min", 0) : -limit;
    step.beta = view.has_attribute("max") ? view.attribute_float("max", 0) : limit;
    return step;
  }
  for (const uint32_t i : {1U, 2U}) {
    if (!view.has_input(i)) continue;
    const auto bound = uniform_constant(module, operand(module, node, i));
    if (!bound) return std::nullopt;
    (i == 1 ? step.alpha : step.beta) = *bound;
  }
  return step;
}

// The one operand of a binary operator that is not `value`; `value` itself when both are.
std::optional<Step> binary_step(const ir::Module& module, NodeId node, ValueId value) {
  constexpr std::array<std::string_view, 6> kOperators = {"Add", "Sub", "Mul", "Div", "Min", "Max"};
  const std::string_view op = module.op(node);
  if (std::find(kOperators.begin(), kOperators.end(), op) == kOperators.end() ||
      module.inputs(node).size() != 2) {
    return std::nullopt;
  }
  const bool is_second = operand(module, node, 0) != value;
  const ValueId other = operand(module, node, is_second ? 0 : 1);
  if (other == kNoValue) return std::nullopt;
  Step step{.node = node, .name = std::string(op), .operand = other};
  if (!is_second || op == "Add" || op == "Mul") return step;
  if (op != "Sub") return std::nullopt;
  step.name = "SubFrom";
  return step;
}

// What `node` does to `value`, as a step.
std::optional<Step> step_of(const ir::Module& module, NodeId node, ValueId value) {
  if (module.outputs(node).size() != 1 || !same_type(module, value, module.outputs(node)[0])) {
    return std::nullopt;
  }
  if (module.domain(node) == ops::kFusedDomain && module.op(node) == "Gelu") {
    const bool by_tanh = ops::NodeView(module, node).attribute_string("approximate", "") == "tanh";
    return Step{.node = node, .name = "Gelu", .alpha = by_tanh ? 1.0 : 0.0};
  }
  if (!is_op(module, node, module.op(node))) return std::nullopt;
  if (is_op(module, node, "Clip") && operand(module, node, 0) == value) {
    return clip_step(module, node);
  }
  for (const Activation& activation : kActivations) {
    if (activation.op != module.op(node)) continue;
    const ops::NodeView view(module, node);
    return Step{.node = node,
                .name = std::string(activation.op),
                .alpha = view.attribute_float(activation.alpha_name, activation.alpha),
                .beta = view.attribute_float(activation.beta_name, activation.beta)};
  }
  return binary_step(module, node, value);
}

// A chain of steps behind one product.
class Chain {
 public:
  Chain(const Rewriter& rewriter, NodeId product, const std::vector<uint32_t>& position)
      : rewriter_(rewriter), module_(rewriter.module()), product_(product), position_(position) {
    values_.push_back(module_.outputs(product)[0]);
  }

  // The longest chain whose interior values nobody else reads. Sets `reason` when it is empty
  // although a step was there.
  std::vector<Step> run(std::string& reason) {
    std::vector<Step> steps;
    size_t closed = 0;
    while (steps.size() < DVT_STEPS_MAX) {
      auto step = next();
      if (!step) break;
      steps.push_back(std::move(*step));
      values_.push_back(module_.outputs(steps.back().node)[0]);
      if (open_value(steps) == kNoValue) closed = steps.size();
      if (module_.is_graph_output(values_.back())) break;
    }
    if (closed == 0 && !steps.empty()) reason = obstacle(steps);
    steps.resize(closed);
    return steps;
  }

  // Operand as the kernel counts them: a value of the chain, or kNoValue.
  [[nodiscard]] std::optional<int64_t> chain_operand(ValueId value) const {
    const auto at = std::find(values_.begin(), values_.end(), value);
    if (at == values_.end()) return std::nullopt;
    return DVT_STEP_BEFORE - (at - values_.begin());
  }

 private:
  // The step that comes first in the order of nodes: it cannot depend on another reader.
  std::optional<Step> next() {
    const ValueId value = values_.back();
    NodeId first = kNoNode;
    for (const ir::Module::Use use : module_.uses(value)) {
      if (module_.node_graph(use.node) != module_.node_graph(product_)) return std::nullopt;
      if (first == kNoNode || place_of(use.node) < place_of(first)) first = use.node;
    }
    if (first == kNoNode || rewriter_.has_control_edges(first) || rewriter_.is_struck(first) ||
        module_.is_graph_output(value)) {
      return std::nullopt;
    }
    auto step = step_of(module_, first, value);
    if (!step || step->operand == kNoValue) return step;
    if (const auto index = chain_operand(step->operand)) {
      if (std::find(kept_.begin(), kept_.end(), *index) == kept_.end()) kept_.push_back(*index);
      return kept_.size() <= 2 ? step : std::nullopt;
    }
    return fits(step->operand) ? step : std::nullopt;
  }

  // Nodes that this pass has made come last; they are no steps.
  [[nodiscard]] uint32_t place_of(NodeId node) const {
    return index_of(node) < position_.size() ? position_[index_of(node)] : UINT32_MAX;
  }

  // An operand from outside that broadcasts to the product's shape without changing it.
  [[nodiscard]] bool fits(ValueId value) const {
    const ir::Shape* shape = module_.shape(value);
    const ir::Shape& result = *module_.shape(values_[0]);
    if (shape == nullptr || shape->size() > result.size() ||
        module_.dtype(value) != module_.dtype(values_[0])) {
      return false;
    }
    for (size_t i = 0; i < shape->size(); ++i) {
      const ir::Dim dim = (*shape)[i];
      if (dim != ir::Dim(1) && dim != result[result.size() - shape->size() + i]) return false;
    }
    return true;
  }

  // An interior value that is read from outside the chain, or kNoValue.
  [[nodiscard]] ValueId open_value(const std::vector<Step>& steps) const {
    for (size_t i = 0; i < steps.size(); ++i) {
      if (module_.is_graph_output(values_[i])) return values_[i];
      for (const ir::Module::Use use : module_.uses(values_[i])) {
        if (std::none_of(steps.begin(), steps.end(),
                         [&](const Step& step) { return step.node == use.node; })) {
          return values_[i];
        }
      }
    }
    return kNoValue;
  }

  [[nodiscard]] std::string obstacle(const std::vector<Step>& steps) const {
    const ValueId value = open_value(steps);
    return "interior value '" + std::string(module_.value_name(value)) +
           (module_.is_graph_output(value) ? "' is a graph output" : "' is also read elsewhere");
  }

  const Rewriter& rewriter_;
  const ir::Module& module_;
  const NodeId product_;
  const std::vector<uint32_t>& position_;
  std::vector<ValueId> values_;  // Before step 0, 1, ..., and the last.
  std::vector<int64_t> kept_;    // Distinct chain operands.
};

void fuse_steps(Rewriter& rewriter, NodeId product, const Chain& chain,
                const std::vector<Step>& steps) {
  ir::Module& module = rewriter.module();
  const auto span = module.inputs(product);
  std::vector<ValueId> inputs(span.begin(), span.end());
  inputs.resize(is_op(module, product, "MatMul") ? 2 : 3, kNoValue);
  std::vector<std::string> names;
  std::vector<int64_t> operands;
  std::vector<double> numbers;
  std::vector<NodeId> nodes{product};
  for (const Step& step : steps) {
    names.push_back(step.name);
    nodes.push_back(step.node);
    numbers.insert(numbers.end(), {step.alpha, step.beta});
    const auto earlier = step.operand == kNoValue ? std::optional<int64_t>(DVT_STEP_BEFORE)
                                                  : chain.chain_operand(step.operand);
    operands.push_back(earlier ? *earlier : int64_t(inputs.size()));
    if (!earlier) inputs.push_back(step.operand);
  }
  std::vector<ir::Attribute> attributes(module.attributes(product).begin(),
                                        module.attributes(product).end());
  attributes.push_back({"steps", std::move(names)});
  attributes.push_back({"step_operands", std::move(operands)});
  attributes.push_back(
      {"step_numbers", make_real_tensor(DVT_F64, {int64_t(steps.size()), 2}, numbers)});
  module.opset_imports[std::string(ops::kFusedDomain)] = ops::kFusedOpset;
  rewriter.add_node(module.node_graph(product), {.domain = std::string(ops::kFusedDomain),
                                                 .op = "Fused" + std::string(module.op(product)),
                                                 .name = joined_name(module, nodes),
                                                 .inputs = std::move(inputs),
                                                 .outputs = {module.outputs(steps.back().node)[0]},
                                                 .attributes = std::move(attributes)});
  for (size_t i = nodes.size(); i-- > 0;) rewriter.strike(nodes[i]);
}

}  // namespace

Result<uint32_t> fuse_epilogues(ir::Module& module, Refusals& refusals) {
  Rewriter rewriter(module);
  uint32_t changes = 0;
  const std::vector<NodeId> nodes = live_nodes(module);
  std::vector<uint32_t> position(module.node_count(), 0);
  for (size_t i = 0; i < nodes.size(); ++i) position[index_of(nodes[i])] = uint32_t(i);
  for (const NodeId node : nodes) {
    if (rewriter.is_struck(node) || rewriter.has_control_edges(node) || !is_product(module, node) ||
        module.shape(module.outputs(node)[0]) == nullptr) {
      continue;
    }
    Chain chain(rewriter, node, position);
    std::string reason;
    const std::vector<Step> steps = chain.run(reason);
    if (!reason.empty()) {
      refusals.push_back({"fuse_epilogues", module.node_path(node), reason});
    }
    if (steps.empty()) continue;
    fuse_steps(rewriter, node, chain, steps);
    ++changes;
  }
  if (Status status = rewriter.finish(); !status.ok()) return status;
  return changes;
}

}  // namespace davit::passes
