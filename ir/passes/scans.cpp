// lower_scans: a Scan is a Loop that takes its elements by their number.
#include <algorithm>

#include "ir/passes/sequences.hpp"

namespace davit::passes {
namespace {

using ir::GraphId;
using ir::kNoValue;
using ir::NodeId;
using ir::ValueId;

constexpr int64_t kOpset = 13;

std::vector<int64_t> integers_attribute(const ir::Module& module, NodeId node,
                                        std::string_view name) {
  const ir::AttributeValue* value = module.attribute(node, name);
  const auto* list = value == nullptr ? nullptr : std::get_if<std::vector<int64_t>>(value);
  return list == nullptr ? std::vector<int64_t>() : *list;
}

// One Scan, read and checked.
struct Scan {
  NodeId node;
  GraphId graph;  // That it is in.
  GraphId body;
  std::vector<ValueId> states, inputs;
  std::vector<ValueId> outputs;  // States, then what is collected; kNoValue where nobody reads it.
  size_t scan_outputs = 0;
  std::vector<int64_t> input_axes, input_directions, output_axes, output_directions;
};

// Empty when the Scan was read, else what is wrong with it.
std::string read_scan(const ir::Module& module, NodeId node, bool has_lengths, Scan& scan) {
  const ir::AttributeValue* body = module.attribute(node, "body");
  const ir::AttributeValue* count = module.attribute(node, "num_scan_inputs");
  const auto* graph = body == nullptr ? nullptr : std::get_if<GraphId>(body);
  const auto* inputs = count == nullptr ? nullptr : std::get_if<int64_t>(count);
  const size_t first = has_lengths ? 1 : 0;
  const auto operands = module.inputs(node);
  if (graph == nullptr) return "it has no body";
  if (inputs == nullptr || *inputs < 1 || operands.size() < first + size_t(*inputs)) {
    return "num_scan_inputs does not fit its inputs";
  }
  if (std::ranges::find(operands.subspan(first), kNoValue) != operands.end()) {
    return "one of its inputs is missing";
  }
  scan.node = node;
  scan.graph = module.node_graph(node);
  scan.body = *graph;
  const auto split = operands.end() - std::ptrdiff_t(*inputs);
  scan.states.assign(operands.begin() + std::ptrdiff_t(first), split);
  scan.inputs.assign(split, operands.end());
  const auto outputs = module.outputs(node);
  scan.outputs.assign(outputs.begin(), outputs.end());
  const size_t results = module.graph_outputs(scan.body).size();
  if (module.graph_inputs(scan.body).size() != scan.states.size() + scan.inputs.size() ||
      results < scan.states.size() || scan.outputs.size() > results) {
    return "its body takes or yields another number of values";
  }
  scan.outputs.resize(results, kNoValue);
  scan.scan_outputs = results - scan.states.size();
  return {};
}

// A list with one number for each of `count` ports, or none.
std::string check_list(std::vector<int64_t>& list, size_t count, std::string_view name,
                       bool is_direction) {
  if (list.empty()) list.resize(count, 0);
  if (list.size() != count) return "attribute " + std::string(name) + " has the wrong length";
  const auto is_wrong = [](int64_t direction) { return direction != 0 && direction != 1; };
  if (is_direction && std::ranges::any_of(list, is_wrong)) {
    return "attribute " + std::string(name) + " must be 0 or 1";
  }
  return {};
}

// Extents that are known must agree; others are checked when they are used.
bool differ_in_length(const ir::Module& module, const Scan& scan) {
  std::optional<int64_t> length;
  for (size_t k = 0; k < scan.inputs.size(); ++k) {
    const ir::Shape* shape = module.shape(scan.inputs[k]);
    const int64_t axis = scan.input_axes[k];
    if (shape == nullptr) continue;
    const int64_t at = axis < 0 ? axis + int64_t(shape->size()) : axis;
    if (at < 0 || at >= int64_t(shape->size()) || !(*shape)[size_t(at)].is_known()) continue;
    const int64_t extent = (*shape)[size_t(at)].extent();
    if (length && *length != extent) return true;
    length = extent;
  }
  return false;
}

std::string read_axes(const ir::Module& module, Scan& scan) {
  const auto read = [&](std::vector<int64_t>& list, size_t count, std::string_view name) {
    list = integers_attribute(module, scan.node, name);
    return check_list(list, count, name, name.ends_with("directions"));
  };
  std::string why = read(scan.input_axes, scan.inputs.size(), "scan_input_axes");
  if (why.empty()) {
    why = read(scan.input_directions, scan.inputs.size(), "scan_input_directions");
  }
  if (why.empty()) why = read(scan.output_axes, scan.scan_outputs, "scan_output_axes");
  if (why.empty()) why = read(scan.output_directions, scan.scan_outputs, "scan_output_directions");
  if (why.empty() && differ_in_length(module, scan)) return "its inputs differ in length";
  return why;
}

// Builds the Loop that stands for a Scan.
class LoopBuilder {
 public:
  LoopBuilder(Rewriter& rewriter, const Scan& scan)
      : rewriter_(rewriter), module_(rewriter.module()), scan_(scan) {}

  // A Loop of `states` over the extent of the axis of `counted`; fills in its body's first inputs.
  void begin(ValueId counted, int64_t axis, const std::vector<ValueId>& states,
             std::vector<ValueId> outputs) {
    const ValueId shape = add_operator(rewriter_, scan_.node, "Shape", {counted});
    module_.set_dtype(shape, DVT_I64);
    const ValueId at = add_integers(rewriter_, scan_.node, {}, {axis});
    trips_ = add_operator(rewriter_, scan_.node, "Gather", {shape, at}, {{"axis", int64_t{0}}});
    std::vector<ValueId> inputs = {trips_, kNoValue};
    inputs.insert(inputs.end(), states.begin(), states.end());
    loop_ = rewriter_.add_node(scan_.graph, {.op = "Loop",
                                             .name = module_.local_name(scan_.node),
                                             .inputs = std::move(inputs),
                                             .outputs = std::move(outputs),
                                             .opset = kOpset});
    graph_ = module_.add_graph("body", scan_.graph, loop_);
    module_.set_attribute(loop_, "body", graph_);
    iteration_ = add_input("iteration", DVT_I64, ir::Shape());
    condition_ = add_input("condition", DVT_BOOL, ir::Shape());
  }

  ValueId add_input(const std::string& name, DvtDType dtype, std::optional<ir::Shape> shape) {
    const ValueId value = rewriter_.add_value(graph_, name, dtype, std::move(shape));
    module_.add_graph_input(graph_, value);
    return value;
  }

  ValueId add(const std::string& op, std::vector<ValueId> inputs,
              std::vector<ir::Attribute> attributes, DvtDType dtype) {
    const ValueId value = rewriter_.add_value(graph_, op, dtype, std::nullopt);
    rewriter_.add_node(graph_, {.op = op,
                                .name = std::string(module_.value_name(value)),
                                .inputs = std::move(inputs),
                                .outputs = {value},
                                .attributes = std::move(attributes),
                                .opset = kOpset});
    return value;
  }

  // The element of `tensor` in this iteration, from the end when `reversed`.
  ValueId element(ValueId tensor, int64_t axis, bool reversed) {
    ValueId at = iteration_;
    if (reversed) {
      const ValueId last = add("Sub", {trips_, one()}, {}, DVT_I64);
      at = add("Sub", {last, iteration_}, {}, DVT_I64);
    }
    return add("Gather", {tensor, at}, {{"axis", axis}}, module_.dtype(tensor));
  }

  void finish(const std::vector<ValueId>& results) {
    std::vector<ValueId> outputs = {add("Identity", {condition_}, {}, DVT_BOOL)};
    outputs.insert(outputs.end(), results.begin(), results.end());
    module_.set_graph_outputs(graph_, std::move(outputs));
    rewriter_.strike(scan_.node);
  }

  [[nodiscard]] GraphId graph() const { return graph_; }

 private:
  ValueId one() { return rewriter_.add_constant(graph_, "one", ir::make_i64_tensor({}, {1})); }

  Rewriter& rewriter_;
  ir::Module& module_;
  const Scan& scan_;
  NodeId loop_ = ir::kNoNode;
  GraphId graph_ = ir::kNoGraph;
  ValueId trips_ = kNoValue, iteration_ = kNoValue, condition_ = kNoValue;
};

// ---- Version 9 and later -----------------------------------------------------------------------

// What was collected along axis 0, as the Scan has it; `output` is defined.
void place_output(Rewriter& rewriter, const Scan& scan, size_t index, ValueId collected,
                  ValueId output, size_t rank) {
  ir::Module& module = rewriter.module();
  const auto numbers = [&](int64_t value) {
    return add_integers(rewriter, scan.node, {1}, {value});
  };
  const bool turned = scan.output_axes[index] != 0;
  ir::Module::NodeInit init = {.name = module.local_name(scan.node) + "." + std::to_string(index),
                               .opset = kOpset};
  if (scan.output_directions[index] != 0) {
    std::vector<ValueId> inputs = {collected, numbers(-1), numbers(INT64_MIN), numbers(0),
                                   numbers(-1)};
    if (turned) {
      collected = add_operator(rewriter, scan.node, "Slice", std::move(inputs));
    } else {
      init.op = "Slice";
      init.inputs = std::move(inputs);
    }
  }
  if (turned) {
    const int64_t axis = scan.output_axes[index];
    std::vector<int64_t> order;
    for (size_t d = 1; d < rank; ++d) order.push_back(int64_t(d));
    order.insert(order.begin() + std::ptrdiff_t(axis < 0 ? axis + int64_t(rank) : axis), 0);
    init.op = "Transpose";
    init.inputs = {collected};
    init.attributes = {{"perm", std::move(order)}};
  }
  init.outputs = {output};
  rewriter.add_node(scan.graph, std::move(init));
}

// The ranks of what is collected where an axis is not the first; empty when all is well.
std::string check_output_axes(const ir::Module& module, const Scan& scan,
                              std::vector<size_t>& ranks) {
  for (size_t k = 0; k < scan.scan_outputs; ++k) {
    const ValueId result = module.graph_outputs(scan.body)[scan.states.size() + k];
    const ValueId output = scan.outputs[scan.states.size() + k];
    const ir::Shape* inner = module.shape(result);
    const ir::Shape* outer = output == kNoValue ? nullptr : module.shape(output);
    const int64_t axis = scan.output_axes[k];
    if (inner == nullptr && outer == nullptr && axis != 0) {
      return "the rank of its output " + std::to_string(k) + " is not known";
    }
    ranks.push_back(outer != nullptr ? outer->size() : inner != nullptr ? inner->size() + 1 : 1);
    const auto rank = int64_t(ranks.back());
    if (axis != 0 && (axis < -rank || axis >= rank)) return "scan_output_axes is out of range";
  }
  return {};
}

std::string lower_scan(Rewriter& rewriter, NodeId node) {
  ir::Module& module = rewriter.module();
  Scan scan;
  std::vector<size_t> ranks;
  std::string why = read_scan(module, node, false, scan);
  if (why.empty()) why = read_axes(module, scan);
  if (why.empty()) why = check_output_axes(module, scan, ranks);
  if (!why.empty()) return why;

  std::vector<ValueId> outputs = scan.outputs;
  for (size_t k = 0; k < scan.scan_outputs; ++k) {
    ValueId& output = outputs[scan.states.size() + k];
    if (output == kNoValue || (scan.output_axes[k] == 0 && scan.output_directions[k] == 0))
      continue;
    output = rewriter.add_value(scan.graph, module.value_name(output), module.dtype(output),
                                std::nullopt);
  }
  LoopBuilder loop(rewriter, scan);
  loop.begin(scan.inputs[0], scan.input_axes[0], scan.states, outputs);
  std::vector<ValueId> arguments;
  for (size_t k = 0; k < scan.states.size(); ++k) {
    // A state keeps its shape.
    const ValueId parameter = module.graph_inputs(scan.body)[k];
    const ir::Shape* shape = module.shape(parameter);
    if (shape == nullptr) shape = module.shape(scan.states[k]);
    arguments.push_back(loop.add_input(std::string(module.value_name(parameter)),
                                       module.dtype(scan.states[k]),
                                       shape ? std::optional(*shape) : std::nullopt));
  }
  for (size_t k = 0; k < scan.inputs.size(); ++k) {
    arguments.push_back(
        loop.element(scan.inputs[k], scan.input_axes[k], scan.input_directions[k] != 0));
  }
  const std::vector<ValueId> results = copy_body(rewriter, scan.body, loop.graph(), arguments, "");
  for (size_t k = 0; k < scan.scan_outputs; ++k) {
    const size_t at = scan.states.size() + k;
    if (outputs[at] == scan.outputs[at]) continue;
    place_output(rewriter, scan, k, outputs[at], scan.outputs[at], ranks[k]);
  }
  loop.finish(results);
  return {};
}

// ---- Version 8 ---------------------------------------------------------------------------------

// A Loop over the batch, with a Scan of version 9 inside, which the next round lowers.
std::string lower_batched_scan(Rewriter& rewriter, NodeId node) {
  ir::Module& module = rewriter.module();
  Scan scan;
  if (std::string why = read_scan(module, node, true, scan); !why.empty()) return why;
  if (module.inputs(node)[0] != kNoValue) return "lengths of sequences are not supported";
  const std::vector<int64_t> directions = integers_attribute(module, node, "directions");
  LoopBuilder loop(rewriter, scan);
  // Nothing is carried: each example has states of its own, which are collected.
  loop.begin(scan.inputs[0], 0, {}, scan.outputs);
  ir::Module::NodeInit init = {.op = "Scan",
                               .name = "batch",
                               .attributes = {{"num_scan_inputs", int64_t(scan.inputs.size())}},
                               .opset = 9};
  for (const ValueId state : scan.states) init.inputs.push_back(loop.element(state, 0, false));
  for (const ValueId input : scan.inputs) init.inputs.push_back(loop.element(input, 0, false));
  if (!directions.empty()) init.attributes.push_back({"scan_input_directions", directions});
  for (const ValueId result : module.graph_outputs(scan.body)) {
    init.outputs.push_back(rewriter.add_value(loop.graph(), module.value_name(result),
                                              module.dtype(result), std::nullopt));
  }
  const std::vector<ValueId> results = init.outputs;
  const NodeId inner = rewriter.add_node(loop.graph(), std::move(init));
  module.set_attribute(inner, "body", copy_graph(rewriter, scan.body, loop.graph(), inner));
  loop.finish(results);
  return {};
}

}  // namespace

Result<uint32_t> lower_scans(ir::Module& module, Refusals& refusals) {
  Rewriter rewriter(module);
  uint32_t changes = 0;
  for (const NodeId node : live_nodes(module)) {
    if (!is_op(module, node, "Scan") || is_gone(rewriter, node)) continue;
    std::string why = "it has control edges";
    if (!rewriter.has_control_edges(node)) {
      why = module.opset_version(node) < 9 ? lower_batched_scan(rewriter, node)
                                           : lower_scan(rewriter, node);
    }
    if (why.empty()) {
      ++changes;
    } else {
      refusals.push_back({"lower_scans", module.node_path(node), std::move(why)});
    }
  }
  if (changes == 0) return 0U;
  if (Status status = rewriter.finish(); !status.ok()) return status;
  return changes;
}

Status check_scans(const ir::Module& module, const Refusals& refusals) {
  for (const NodeId node : live_nodes(module)) {
    if (!is_op(module, node, "Scan")) continue;
    const auto refusal = std::ranges::find(refusals, module.node_path(node), &Refusal::node);
    return Status(module.error_at(
        node, DVT_UNSUPPORTED, DVT_STAGE_CHECK,
        refusal == refusals.end() ? "it could not become a Loop" : refusal->reason));
  }
  return {};
}

}  // namespace davit::passes
