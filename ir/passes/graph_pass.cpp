// Passes of plug-ins over the whole graph: what davit/plugin.h promises of DvtGraphFunctions.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.hpp"
#include "davit/plugin.h"
#include "ir/passes/passes.hpp"
#include "ir/passes/rewrite.hpp"

// Ids are those of the module. A plug-in may pass any number: what does not exist has no name, no
// operands and no type.
struct DvtGraph {
  davit::passes::Rewriter rewriter;
  std::vector<davit::ir::NodeId> nodes;  // As they were at the beginning.
  std::vector<uint32_t> replaced;        // Producers of values that were replaced.
  std::string domain;
  int64_t version = 1;
  mutable std::string text;  // Of the last attribute.

  [[nodiscard]] const davit::ir::Module& module() const { return rewriter.module(); }
  [[nodiscard]] bool has_node(uint32_t node) const {
    return node < module().node_count() && module().node_alive(davit::ir::NodeId(node)) &&
           !rewriter.is_struck(davit::ir::NodeId(node));
  }
  [[nodiscard]] bool has_value(uint32_t value) const {
    return value < module().value_count() && module().value_alive(davit::ir::ValueId(value));
  }
};

namespace davit::passes {
namespace {

using ir::NodeId;
using ir::ValueId;

static_assert(sizeof(ValueId) == sizeof(uint32_t), "spans of ids are handed out as they are");

uint32_t node_count(const DvtGraph* graph) {
  return uint32_t(graph->nodes.size());
}

uint32_t node_at(const DvtGraph* graph, uint32_t position) {
  if (position >= graph->nodes.size()) return DVT_NO_INDEX;
  const uint32_t node = index_of(graph->nodes[position]);
  return graph->has_node(node) ? node : DVT_NO_INDEX;
}

// Names of modules are terminated: they are interned strings.
const char* node_name(const DvtGraph* graph, uint32_t node) {
  return graph->has_node(node) ? graph->module().node_name(NodeId(node)).data() : "";
}
const char* node_domain(const DvtGraph* graph, uint32_t node) {
  return graph->has_node(node) ? graph->module().domain(NodeId(node)).data() : "";
}
const char* node_op(const DvtGraph* graph, uint32_t node) {
  return graph->has_node(node) ? graph->module().op(NodeId(node)).data() : "";
}

uint32_t give(std::span<const ValueId> from, const uint32_t** values) {
  if (values != nullptr) *values = reinterpret_cast<const uint32_t*>(from.data());
  return uint32_t(from.size());
}

uint32_t node_inputs(const DvtGraph* graph, uint32_t node, const uint32_t** values) {
  return give(
      graph->has_node(node) ? graph->module().inputs(NodeId(node)) : std::span<const ValueId>(),
      values);
}

uint32_t node_outputs(const DvtGraph* graph, uint32_t node, const uint32_t** values) {
  return give(
      graph->has_node(node) ? graph->module().outputs(NodeId(node)) : std::span<const ValueId>(),
      values);
}

int node_attribute(const DvtGraph* graph, uint32_t node, const char* name, DvtGraphAttribute* out) {
  if (name == nullptr || out == nullptr || !graph->has_node(node)) return 0;
  const ir::AttributeValue* value = graph->module().attribute(NodeId(node), name);
  if (value == nullptr) return 0;
  *out = {.name = name, .kind = 0, .is_list = 0, .count = 1, .values = nullptr};
  if (const auto* integer = std::get_if<int64_t>(value)) {
    out->kind = 'i';
    out->values = integer;
  } else if (const auto* real = std::get_if<float>(value)) {
    out->kind = 'f';
    out->values = real;
  } else if (const auto* text = std::get_if<std::string>(value)) {
    out->kind = 's';
    graph->text = *text;
    out->values = graph->text.c_str();
  } else if (const auto* integers = std::get_if<std::vector<int64_t>>(value)) {
    *out = {name, 'i', 1, uint32_t(integers->size()), integers->data()};
  } else if (const auto* reals = std::get_if<std::vector<float>>(value)) {
    *out = {name, 'f', 1, uint32_t(reals->size()), reals->data()};
  }
  return out->kind != 0 ? 1 : 0;
}

const char* value_name(const DvtGraph* graph, uint32_t value) {
  return graph->has_value(value) ? graph->module().value_name(ValueId(value)).data() : "";
}

DvtTensor value_tensor(const DvtGraph* graph, uint32_t value) {
  DvtTensor tensor{};
  tensor.rank = DVT_RANK_UNKNOWN;
  if (!graph->has_value(value)) return tensor;
  const ir::Module& module = graph->module();
  tensor.dtype = module.dtype(ValueId(value));
  const ir::Shape* shape = module.shape(ValueId(value));
  if (shape == nullptr || shape->size() > DVT_MAX_RANK) return tensor;
  tensor.rank = uint8_t(shape->size());
  bool is_known = true;
  for (size_t d = 0; d < shape->size(); ++d) {
    tensor.dims[d] = (*shape)[d].is_known() ? (*shape)[d].extent() : -1;
    is_known = is_known && tensor.dims[d] >= 0;
  }
  const auto elements = is_known ? checked_elements({tensor.dims, tensor.rank}) : std::nullopt;
  tensor.bytes = elements ? *elements * dvt_dtype_size(tensor.dtype) : 0;
  return tensor;
}

const void* value_constant(const DvtGraph* graph, uint32_t value) {
  if (!graph->has_value(value)) return nullptr;
  const ir::TensorData* data = graph->module().constant(ValueId(value));
  return data == nullptr || !data->bytes ? nullptr : data->bytes->data();
}

uint32_t value_producer(const DvtGraph* graph, uint32_t value) {
  return graph->has_value(value) ? index_of(graph->module().producer(ValueId(value)))
                                 : DVT_NO_INDEX;
}

uint32_t value_reader_count(const DvtGraph* graph, uint32_t value) {
  if (!graph->has_value(value)) return 0;
  uint32_t count = uint32_t(graph->module().uses(ValueId(value)).size());
  for (const ValueId output : graph->module().graph_outputs(ir::kMainGraph)) {
    count += output == ValueId(value) ? 1 : 0;
  }
  return count;
}

uint32_t add_constant(DvtGraph* graph, const char* name, const DvtTensor* tensor,
                      const void* data) {
  DvtTensor known{};
  if (tensor == nullptr || tensor->rank > DVT_MAX_RANK) return DVT_NO_INDEX;
  known.dtype = tensor->dtype;
  if (dvt_dtype_size(known.dtype) == 0 || known.dtype == DVT_STRING ||
      dvt_set_shape(&known, tensor->rank, tensor->dims) != DVT_OK ||
      (known.bytes > 0 && data == nullptr)) {
    return DVT_NO_INDEX;
  }
  std::vector<std::byte> bytes(known.bytes);
  if (!bytes.empty()) std::memcpy(bytes.data(), data, bytes.size());
  return index_of(graph->rewriter.add_constant(
      ir::kMainGraph, name == nullptr ? "constant" : name,
      ir::make_tensor(known.dtype, {known.dims, known.dims + known.rank}, std::move(bytes))));
}

// False when it is malformed.
bool read_attribute(const DvtGraphAttribute& from, ir::Attribute& to) {
  if (from.name == nullptr || (from.values == nullptr && from.count > 0)) return false;
  if (from.is_list == 0 && from.count != 1) return false;
  to.name = from.name;
  const auto* integers = static_cast<const int64_t*>(from.values);
  const auto* reals = static_cast<const float*>(from.values);
  switch (from.kind) {
    case 'i':
      if (from.is_list != 0) {
        to.value = std::vector<int64_t>(integers, integers + from.count);
      } else {
        to.value = *integers;
      }
      return true;
    case 'f':
      if (from.is_list != 0) {
        to.value = std::vector<float>(reals, reals + from.count);
      } else {
        to.value = *reals;
      }
      return true;
    case 's':
      to.value = std::string(static_cast<const char*>(from.values));
      return from.is_list == 0;
    default:
      return false;
  }
}

uint32_t add_node(DvtGraph* graph, const DvtGraphNode* node) {
  if (node == nullptr || node->op == nullptr || node->output_count == 0 ||
      (node->inputs == nullptr && node->input_count > 0) ||
      (node->attributes == nullptr && node->attribute_count > 0)) {
    return DVT_NO_INDEX;
  }
  ir::Module::NodeInit init{.domain = node->domain == nullptr ? "" : node->domain,
                            .op = node->op,
                            .name = node->name == nullptr ? "" : node->name,
                            .inputs = {},
                            .outputs = {},
                            .attributes = {}};
  for (uint32_t i = 0; i < node->input_count; ++i) {
    const uint32_t input = node->inputs[i];
    if (input != DVT_NO_INDEX && !graph->has_value(input)) return DVT_NO_INDEX;
    init.inputs.push_back(ValueId(input));
  }
  for (uint32_t i = 0; i < node->attribute_count; ++i) {
    if (!read_attribute(node->attributes[i], init.attributes.emplace_back())) return DVT_NO_INDEX;
  }
  if (!graph->domain.empty() && init.domain == graph->domain) {
    graph->rewriter.module().opset_imports.emplace(graph->domain, graph->version);
  }
  const std::string base = init.name.empty() ? init.op : init.name;
  for (uint32_t k = 0; k < node->output_count; ++k) {
    init.outputs.push_back(graph->rewriter.add_value(
        ir::kMainGraph, k == 0 ? base : base + "_" + std::to_string(k), DVT_DTYPE_NONE, {}));
  }
  return index_of(graph->rewriter.add_node(ir::kMainGraph, std::move(init)));
}

int replace_value(DvtGraph* graph, uint32_t from, uint32_t to) {
  if (!graph->has_value(from) || !graph->has_value(to) || from == to) return 0;
  const NodeId producer = graph->module().producer(ValueId(from));
  if (producer == ir::kNoNode || !graph->rewriter.replace(ValueId(from), ValueId(to))) return 0;
  graph->replaced.push_back(index_of(producer));
  return 1;
}

constexpr DvtGraphFunctions kFunctions = {sizeof(DvtGraphFunctions),
                                          node_count,
                                          node_at,
                                          node_name,
                                          node_domain,
                                          node_op,
                                          node_inputs,
                                          node_outputs,
                                          node_attribute,
                                          value_name,
                                          value_tensor,
                                          value_constant,
                                          value_producer,
                                          value_reader_count,
                                          add_constant,
                                          add_node,
                                          replace_value};

}  // namespace

Result<uint32_t> run_graph_pass(const Rewrite& rewrite, ir::Module& module) {
  const auto nodes = module.graph_nodes(ir::kMainGraph);
  DvtGraph graph{.rewriter = Rewriter(module),
                 .nodes = {nodes.begin(), nodes.end()},
                 .replaced = {},
                 .domain = rewrite.domain,
                 .version = rewrite.version,
                 .text = {}};
  uint32_t changes = 0;
  char reason[256] = "";
  const DvtCode code = rewrite.run(&graph, &kFunctions, &changes, reason, sizeof reason);
  if (code != DVT_OK) {
    reason[sizeof reason - 1] = '\0';
    return Status(code, DVT_STAGE_OPTIMISE,
                  "pass " + rewrite.name + ": " + (reason[0] == '\0' ? "it failed" : reason));
  }
  for (const uint32_t node : graph.replaced) {
    if (!graph.has_node(node)) continue;
    const auto outputs = module.outputs(NodeId(node));
    const bool unneeded = std::none_of(outputs.begin(), outputs.end(), [&](ValueId value) {
      return value != ir::kNoValue && (module.has_uses(value) || module.is_graph_output(value));
    });
    if (unneeded) graph.rewriter.strike_unneeded(NodeId(node));
  }
  if (Status status = graph.rewriter.finish(); !status.ok()) return status;
  return changes;
}

}  // namespace davit::passes
