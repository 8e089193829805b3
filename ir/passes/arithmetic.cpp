// simplify_arithmetic: identities that hold bit for bit, with NaN, infinities and zeros of both
// signs.
#include <algorithm>
#include <array>
#include <cmath>

#include "ir/passes/passes.hpp"
#include "ir/passes/pointwise.hpp"
#include "ir/passes/rewrite.hpp"

namespace davit::passes {
namespace {

using ir::kNoNode;
using ir::kNoValue;
using ir::NodeId;
using ir::ValueId;

template <class List>
bool contains(const List& list, std::string_view item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

NodeId producer_of(const ir::Module& module, ValueId value) {
  return value == kNoValue ? kNoNode : module.producer(value);
}

bool comes_from(const ir::Module& module, ValueId value, std::string_view op) {
  const NodeId node = producer_of(module, value);
  return node != kNoNode && is_op(module, node, op);
}

// Results of these are NaN or at least 0.
bool is_never_negative(const ir::Module& module, ValueId value) {
  constexpr std::array<std::string_view, 7> kOperators = {
      "Abs", "Exp", "HardSigmoid", "Relu", "Sigmoid", "Softmax", "Sqrt"};
  const NodeId node = producer_of(module, value);
  return node != kNoNode && is_op(module, node, module.op(node)) &&
         contains(kOperators, module.op(node)) && is_float(module.dtype(value));
}

// Results of these are never -0. Sums of products begin at +0, and in f32 and f64 every partial sum
// has the precision of its dtype, so that none is rounded to -0.
bool is_never_minus_zero(const ir::Module& module, ValueId value) {
  constexpr std::array<std::string_view, 4> kPositive = {"Abs", "Exp", "Sigmoid", "Softmax"};
  constexpr std::array<std::string_view, 3> kSums = {"Conv", "ConvTranspose", "MatMul"};
  const NodeId node = producer_of(module, value);
  if (node == kNoNode || !is_op(module, node, module.op(node))) return false;
  const DvtDType dtype = module.dtype(value);
  if (contains(kPositive, module.op(node))) return is_float(dtype);
  return contains(kSums, module.op(node)) && (dtype == DVT_F32 || dtype == DVT_F64);
}

// ---- x * 1, x + 0 and the like -----------------------------------------------------------------

// Whether `number` as operand `at` of this operator leaves the other one, x, as it is.
bool is_neutral(const ir::Module& module, std::string_view op, uint32_t at, double number,
                ValueId x) {
  if (op == "Mul") return number == 1;
  if (op == "Add") {
    if (number != 0) return false;
    return !is_float(module.dtype(x)) || std::signbit(number) || is_never_minus_zero(module, x);
  }
  if (at != 1) return false;
  if (op == "Div") return number == 1;
  // An integer base with another exponent type would go through double.
  if (op == "Pow") return number == 1 && is_float(module.dtype(x));
  if (op == "Sub") {
    if (number != 0) return false;
    return !is_float(module.dtype(x)) || !std::signbit(number) || is_never_minus_zero(module, x);
  }
  return false;
}

ValueId without_neutral(const ir::Module& module, NodeId node) {
  constexpr std::array<std::string_view, 5> kOperators = {"Add", "Div", "Mul", "Pow", "Sub"};
  if (!contains(kOperators, module.op(node)) || module.inputs(node).size() != 2) return kNoValue;
  for (const uint32_t at : {1U, 0U}) {
    const std::optional<double> number = uniform_constant(module, operand(module, node, at));
    const ValueId x = operand(module, node, 1 - at);
    if (number && is_neutral(module, module.op(node), at, *number, x)) return x;
  }
  return kNoValue;
}

// ---- Of one operand ----------------------------------------------------------------------------

// Operators that change nothing the second time, and those whose results they leave alone.
ValueId without_repetition(const ir::Module& module, NodeId node) {
  constexpr std::array<std::string_view, 3> kToIntegers = {"Ceil", "Floor", "Round"};
  const std::string_view op = module.op(node);
  const ValueId x = operand(module, node, 0);
  const NodeId before = producer_of(module, x);
  if (before == kNoNode || !is_op(module, before, module.op(before))) return kNoValue;
  if (op == "Neg" && comes_from(module, x, "Neg")) return operand(module, before, 0);
  if (op == "Relu" && is_never_negative(module, x)) return x;
  if ((op == "Abs" || op == "Sign") && comes_from(module, x, op)) return x;
  if (contains(kToIntegers, op) && contains(kToIntegers, module.op(before))) return x;
  return kNoValue;
}

// Where with a condition that is the same everywhere.
ValueId without_choice(const ir::Module& module, NodeId node) {
  if (module.op(node) != "Where") return kNoValue;
  const std::optional<double> condition = uniform_constant(module, operand(module, node, 0));
  return condition ? operand(module, node, *condition != 0 ? 1 : 2) : kNoValue;
}

ValueId simpler(const ir::Module& module, NodeId node) {
  if (!is_pointwise(module, node)) return kNoValue;
  for (const auto& rule : {without_neutral, without_repetition, without_choice}) {
    const ValueId value = rule(module, node);
    if (value != kNoValue && same_type(module, value, module.outputs(node)[0])) return value;
  }
  return kNoValue;
}

// ---- Other operators ---------------------------------------------------------------------------

void replace_node(Rewriter& rewriter, NodeId node, std::string_view op, std::vector<ValueId> inputs,
                  std::vector<ir::Attribute> attributes = {}) {
  ir::Module& module = rewriter.module();
  rewriter.add_node(module.node_graph(node), {.op = std::string(op),
                                              .name = module.local_name(node),
                                              .inputs = std::move(inputs),
                                              .outputs = {module.outputs(node)[0]},
                                              .attributes = std::move(attributes)});
  rewriter.strike_unneeded(node);
}

// x^2 is x * x: Pow's kernels compute it so.
bool square(Rewriter& rewriter, NodeId node) {
  const ir::Module& module = rewriter.module();
  if (module.op(node) != "Pow" || uniform_constant(module, operand(module, node, 1)) != 2.0 ||
      !same_type(module, operand(module, node, 0), module.outputs(node)[0])) {
    return false;
  }
  const ValueId x = operand(module, node, 0);
  replace_node(rewriter, node, "Mul", {x, x});
  return true;
}

// 1 / number, when that is exact and normal in the dtype, so that products round as quotients do.
std::optional<double> exact_reciprocal(DvtDType dtype, double number) {
  int exponent = 0;
  if (std::abs(std::frexp(number, &exponent)) != 0.5) return std::nullopt;
  int limit = 0;  // Exponents of normal numbers go from -limit to limit, at least.
  if (dtype == DVT_F16) limit = 14;
  if (dtype == DVT_F32 || dtype == DVT_BF16) limit = 126;
  if (dtype == DVT_F64) limit = 1022;
  if (limit == 0 || std::abs(exponent - 1) > limit) return std::nullopt;
  return 1 / number;
}

bool divide_by_power_of_two(Rewriter& rewriter, NodeId node) {
  ir::Module& module = rewriter.module();
  if (module.op(node) != "Div") return false;
  const ValueId divisor = operand(module, node, 1);
  const std::optional<double> number = uniform_constant(module, divisor);
  if (!number) return false;
  const auto factor = exact_reciprocal(module.dtype(divisor), *number);
  if (!factor) return false;
  const ir::TensorData& data = *module.constant(divisor);
  const std::vector<double> factors(data.element_count(), *factor);
  const ValueId constant = rewriter.add_constant(
      module.node_graph(node), std::string(module.value_name(divisor)) + ".reciprocal",
      make_real_tensor(data.dtype, data.dims, factors));
  replace_node(rewriter, node, "Mul", {operand(module, node, 0), constant});
  return true;
}

// ---- Clip and Relu -----------------------------------------------------------------------------

struct Bounds {
  double low, high;
};

// The bounds of a Relu, or of a Clip that states both; nullopt for other nodes.
std::optional<Bounds> bounds_of(const ir::Module& module, NodeId node) {
  if (is_op(module, node, "Relu")) return Bounds{0, HUGE_VAL};
  if (!is_op(module, node, "Clip")) return std::nullopt;
  const ops::NodeView view(module, node);
  Bounds bounds{};
  if (view.opset() < 11) {
    if (!view.has_attribute("min") || !view.has_attribute("max")) return std::nullopt;
    bounds = {view.attribute_float("min", 0), view.attribute_float("max", 0)};
  } else {
    const auto low = uniform_constant(module, operand(module, node, 1));
    const auto high = uniform_constant(module, operand(module, node, 2));
    if (!low || !high) return std::nullopt;
    bounds = {*low, *high};
  }
  if (!(bounds.low <= bounds.high)) return std::nullopt;  // NaN too.
  return bounds;
}

// Two of them one after the other are one Clip.
bool clip_once(Rewriter& rewriter, NodeId node) {
  ir::Module& module = rewriter.module();
  const ValueId between = operand(module, node, 0);
  const NodeId inner = producer_of(module, between);
  if (inner == kNoNode || !is_float(module.dtype(between)) || rewriter.has_control_edges(inner)) {
    return false;
  }
  const auto first = bounds_of(module, inner);
  const auto second = bounds_of(module, node);
  // Relu of Relu is a repetition; it must not become a Clip.
  if (!first || !second || (first->high == HUGE_VAL && second->high == HUGE_VAL)) return false;
  const double low = std::clamp(first->low, second->low, second->high);
  const double high = std::clamp(first->high, second->low, second->high);
  const DvtDType dtype = module.dtype(between);
  const ValueId x = operand(module, inner, 0);
  if (ops::NodeView(module, node).opset() < 11) {
    replace_node(rewriter, node, "Clip", {x}, {{"min", float(low)}, {"max", float(high)}});
    return true;
  }
  const auto bound = [&](const char* suffix, double number) {
    return rewriter.add_constant(module.node_graph(node), module.local_name(node) + suffix,
                                 make_real_tensor(dtype, {}, {number}));
  };
  const ValueId low_value = bound(".min", low);
  const ValueId high_value = bound(".max", high);
  replace_node(rewriter, node, "Clip", {x, low_value, high_value});
  return true;
}

}  // namespace

Result<uint32_t> simplify_arithmetic(ir::Module& module, Refusals& /*refusals*/) {
  Rewriter rewriter(module);
  uint32_t changes = 0;
  for (const NodeId node : live_nodes(module)) {
    if (rewriter.is_struck(node) || rewriter.has_control_edges(node) ||
        !is_pointwise(module, node)) {
      continue;
    }
    const ValueId value = simpler(module, node);
    if (value != kNoValue && rewriter.replace(module.outputs(node)[0], value)) {
      rewriter.strike_unneeded(node);
      ++changes;
      continue;
    }
    if (square(rewriter, node) || divide_by_power_of_two(rewriter, node) ||
        clip_once(rewriter, node)) {
      ++changes;
    }
  }
  if (Status status = rewriter.finish(); !status.ok()) return status;
  return changes;
}

}  // namespace davit::passes
