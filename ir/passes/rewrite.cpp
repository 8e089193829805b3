#include "ir/passes/rewrite.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include "ops/kernels/convert.h"

namespace davit::passes {

using ir::GraphId;
using ir::kNoNode;
using ir::kNoValue;
using ir::NodeId;
using ir::ValueId;

Rewriter::Rewriter(ir::Module& module) : module_(module) {
  for (uint32_t n = 0; n < module.node_count(); ++n) {
    for (const NodeId before : module.control_inputs(NodeId{n})) {
      controlled_.resize(module.node_count(), 0);
      controlled_[n] = controlled_[index_of(before)] = 1;
    }
  }
}

bool Rewriter::has_control_edges(NodeId node) const {
  return index_of(node) < controlled_.size() && controlled_[index_of(node)] != 0;
}

bool Rewriter::can_replace(ValueId from, ValueId to) const {
  if (has_control_edges(module_.producer(from))) return false;
  if (!module_.is_graph_output(from)) return true;
  // A body may return what it computes under any name, but returns it from its own graph.
  const GraphId graph = module_.value_graph(from);
  if (module_.value_graph(to) != graph) return false;
  return graph != ir::kMainGraph ||
         (module_.producer(to) != kNoNode && !module_.is_graph_output(to));
}

bool Rewriter::replace(ValueId from, ValueId to) {
  assert(module_.producer(from) != kNoNode);
  if (!can_replace(from, to)) return false;
  if (!module_.is_graph_output(from) || module_.value_graph(from) != ir::kMainGraph) {
    module_.replace_all_uses(from, to);
    return true;
  }
  const NodeId producer = module_.producer(to);
  const auto slot = [&](NodeId node, ValueId value) {
    const auto outputs = module_.outputs(node);
    return uint32_t(std::find(outputs.begin(), outputs.end(), value) - outputs.begin());
  };
  const NodeId source = module_.producer(from);
  module_.set_output(source, slot(source, from), kNoValue);
  module_.set_output(producer, slot(producer, to), from);
  if (module_.shape(from) == nullptr && module_.shape(to) != nullptr) {
    module_.set_shape(from, *module_.shape(to));
  }
  module_.replace_all_uses(to, from);
  module_.erase_undefined(to);
  return true;
}

void Rewriter::replace_or_copy(ValueId from, ValueId to) {
  if (replace(from, to)) return;
  const NodeId source = module_.producer(from);
  add_node(
      module_.value_graph(from),
      {.op = "Identity", .name = module_.local_name(source), .inputs = {to}, .outputs = {from}});
}

NodeId Rewriter::add_node(GraphId graph, ir::Module::NodeInit init) {
  for (const ValueId value : init.outputs) {
    if (value == kNoValue || module_.producer(value) == kNoNode) continue;
    const NodeId before = module_.producer(value);
    const auto outputs = module_.outputs(before);
    module_.set_output(before,
                       uint32_t(std::find(outputs.begin(), outputs.end(), value) - outputs.begin()),
                       kNoValue);
  }
  return module_.add_node(graph, std::move(init));
}

ValueId Rewriter::add_value(GraphId graph, std::string_view base, DvtDType dtype,
                            std::optional<ir::Shape> shape) {
  const ValueId value = module_.add_value(graph, fresh_name(graph, base));
  module_.set_dtype(value, dtype);
  if (shape) module_.set_shape(value, std::move(*shape));
  return value;
}

ValueId Rewriter::add_value_like(ValueId like) {
  const ir::Shape* shape = module_.shape(like);
  return add_value(module_.value_graph(like), module_.value_name(like), module_.dtype(like),
                   shape == nullptr ? std::nullopt : std::optional(*shape));
}

ValueId Rewriter::add_constant(GraphId graph, std::string_view base, ir::TensorData data) {
  return module_.add_constant(graph, fresh_name(graph, base), std::move(data));
}

std::string Rewriter::fresh_name(GraphId graph, std::string_view base) {
  names_.resize(module_.graph_count());
  for (; indexed_values_ < module_.value_count(); ++indexed_values_) {
    const ValueId value{indexed_values_};
    if (!module_.value_alive(value)) continue;
    names_[index_of(module_.value_graph(value))].insert(module_.value_name(value));
  }
  const auto& taken = names_[index_of(graph)];
  std::string name(base);
  for (uint32_t i = 1; taken.contains(name); ++i)
    name = std::string(base) + "." + std::to_string(i);
  return name;
}

void Rewriter::strike(NodeId node) {
  const auto inputs = module_.inputs(node);
  for (uint32_t i = 0; i < inputs.size(); ++i) module_.set_input(node, i, kNoValue);
  if (is_struck_.size() <= index_of(node)) is_struck_.resize(module_.node_count(), 0);
  is_struck_[index_of(node)] = 1;
  struck_.push_back(node);
}

bool Rewriter::is_struck(NodeId node) const {
  return index_of(node) < is_struck_.size() && is_struck_[index_of(node)] != 0;
}

void Rewriter::strike_unneeded(NodeId node) {
  std::vector<NodeId> pending{node};
  while (!pending.empty()) {
    const NodeId at = pending.back();
    pending.pop_back();
    const auto span = module_.inputs(at);
    const std::vector<ValueId> inputs(span.begin(), span.end());
    strike(at);
    for (const ValueId value : inputs) {
      const NodeId producer = value == kNoValue ? kNoNode : module_.producer(value);
      if (producer == kNoNode || has_control_edges(producer) || is_struck(producer)) continue;
      const auto outputs = module_.outputs(producer);
      if (std::all_of(outputs.begin(), outputs.end(), [&](ValueId output) {
            return output == kNoValue ||
                   (!module_.has_uses(output) && !module_.is_graph_output(output));
          })) {
        pending.push_back(producer);
      }
    }
  }
}

Status Rewriter::finish() {
  // A subgraph of a node that was struck out may hold others.
  std::erase_if(struck_, [&](NodeId node) { return !module_.node_alive(node); });
  module_.erase_nodes(struck_);
  struck_.clear();
  Status status = module_.sort();
  if (!status.ok()) status.detail().code = DVT_INTERNAL;
  return status;
}

// ---- Looking at nodes --------------------------------------------------------------------------

std::vector<GraphId> live_graphs(const ir::Module& module) {
  std::vector<GraphId> graphs;
  for (uint32_t g = 0; g < module.graph_count(); ++g) {
    if (module.graph_alive(GraphId{g})) graphs.emplace_back(GraphId{g});
  }
  return graphs;
}

std::vector<NodeId> live_nodes(const ir::Module& module) {
  std::vector<NodeId> nodes;
  for (const GraphId graph : live_graphs(module)) {
    const auto listed = module.graph_nodes(graph);
    nodes.insert(nodes.end(), listed.begin(), listed.end());
  }
  return nodes;
}

bool is_op(const ir::Module& module, NodeId node, std::string_view op) {
  return module.op(node) == op && (module.domain(node).empty() || module.domain(node) == "ai.onnx");
}

ValueId operand(const ir::Module& module, NodeId node, uint32_t index) {
  const auto inputs = module.inputs(node);
  return index < inputs.size() ? inputs[index] : kNoValue;
}

NodeId only_reader(const ir::Module& module, ValueId value) {
  if (module.is_graph_output(value)) return kNoNode;
  NodeId reader = kNoNode;
  for (const ir::Module::Use use : module.uses(value)) {
    if (reader != kNoNode && use.node != reader) return kNoNode;
    reader = use.node;
  }
  return reader;
}

bool same_type(const ir::Module& module, ValueId a, ValueId b) {
  const ir::Shape* x = module.shape(a);
  const ir::Shape* y = module.shape(b);
  return module.dtype(a) == module.dtype(b) && module.dtype(a) != DVT_DTYPE_NONE && x != nullptr &&
         y != nullptr && *x == *y;
}

std::optional<std::vector<int64_t>> static_shape(const ir::Module& module, ValueId value) {
  const ir::Shape* shape = value == kNoValue ? nullptr : module.shape(value);
  return shape == nullptr ? std::nullopt : ir::static_extents(*shape);
}

bool is_float(DvtDType dtype) {
  return dtype == DVT_F32 || dtype == DVT_F64 || dtype == DVT_F16 || dtype == DVT_BF16;
}

std::vector<double> constant_reals(const ir::TensorData& data) {
  const DvtDType wide = dvt_wide_dtype(data.dtype);
  if (wide == DVT_DTYPE_NONE || data.bytes == nullptr) return {};
  const uint64_t count = data.element_count();
  std::vector<uint64_t> widened(count);  // All wide dtypes have 8 bytes.
  std::vector<double> reals(count);
  dvt_widen_loop(data.dtype)(data.bytes->data(), widened.data(), int64_t(count));
  dvt_narrow_loop(wide, DVT_F64)(widened.data(), reals.data(), int64_t(count));
  return reals;
}

ir::TensorData make_real_tensor(DvtDType dtype, std::vector<int64_t> dims,
                                const std::vector<double>& values) {
  assert(is_float(dtype));
  std::vector<std::byte> bytes(values.size() * dvt_dtype_size(dtype));
  dvt_narrow_loop(DVT_F64, dtype)(values.data(), bytes.data(), int64_t(values.size()));
  return ir::make_tensor(dtype, std::move(dims), std::move(bytes));
}

std::optional<double> uniform_constant(const ir::Module& module, ValueId value) {
  const ir::TensorData* data = value == kNoValue ? nullptr : module.constant(value);
  if (data == nullptr || data->bytes == nullptr || data->bytes->empty()) return std::nullopt;
  const uint32_t size = dvt_dtype_size(data->dtype);
  if (size == 0 || std::memcmp(data->bytes->data(), data->bytes->data() + size,
                               data->bytes->size() - size) != 0) {
    return std::nullopt;
  }
  ir::TensorData first = *data;
  first.dims = {};
  first.bytes = std::make_shared<const std::vector<std::byte>>(data->bytes->begin(),
                                                               data->bytes->begin() + size);
  return constant_reals(first)[0];
}

}  // namespace davit::passes
