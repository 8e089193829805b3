// The part of GraphReader that replaces calls of functions by the bodies of the functions.
#include <algorithm>

#include "ir/onnx/graph_reader.hpp"
#include "ir/onnx/import.hpp"

namespace davit::onnx_import {
namespace {

using ir::ValueId;

constexpr uint32_t kCallDepthMax = 32;
constexpr uint64_t kExpandedNodesMax = uint64_t{1} << 20U;
constexpr uint64_t kExpandedBytesMax = uint64_t{1} << 31U;

std::string label(const onnx::FunctionProto& function) {
  return "function " + function.domain() + "::" + function.name();
}

Status refuse(const std::string& path, DvtCode code, std::string message, std::string tensor = {}) {
  return Status({.code = code,
                 .stage = DVT_STAGE_PARSE,
                 .message = std::move(message),
                 .node = path,
                 .tensor = std::move(tensor)});
}

bool holds_graphs(const onnx::AttributeProto& attribute) {
  return attribute.has_g() || attribute.graphs_size() != 0;
}

}  // namespace

Result<onnx::AttributeProto*> GraphReader::resolve(onnx::AttributeProto& proto,
                                                   const Scope& scope) {
  if (proto.ref_attr_name().empty()) return &proto;
  if (scope.call == nullptr) {
    return Status(
        DVT_INVALID_IMAGE, DVT_STAGE_PARSE,
        "it refers to attribute '" + proto.ref_attr_name() + "' of a function, but is in none");
  }
  const auto found = scope.call->attributes.find(proto.ref_attr_name());
  if (found == scope.call->attributes.end()) return static_cast<onnx::AttributeProto*>(nullptr);
  const std::string name = proto.name();
  proto = found->second;
  proto.set_name(name);
  return &proto;
}

int64_t GraphReader::own_opset(const Scope& scope, const std::string& domain) {
  if (scope.call == nullptr) return 0;
  const auto found = scope.call->opsets.find(domain);
  return found == scope.call->opsets.end() ? 0 : found->second;
}

Status GraphReader::bind_attributes(const CallSite& site, const onnx::NodeProto& call,
                                    const onnx::FunctionProto& function,
                                    FunctionCall& bound) const {
  for (onnx::AttributeProto& attribute : attribute_defaults(function)) {
    const std::string name = attribute.name();
    bound.attributes[name] = std::move(attribute);
  }
  const bool is_of_model = functions_.find(call) == &function;
  const auto& known = function.attribute();
  for (onnx::AttributeProto attribute : call.attribute()) {
    const std::string name = attribute.name();
    if (is_of_model && !bound.attributes.contains(name) &&
        std::find(known.begin(), known.end(), name) == known.end()) {
      return refuse(site.path, DVT_INVALID_IMAGE,
                    label(function) + " has no attribute '" + name + "'");
    }
    Result<onnx::AttributeProto*> resolved = resolve(attribute, site.scope);
    if (!resolved.ok()) {
      resolved.status().detail().node = site.path;
      return std::move(resolved.status());
    }
    if (*resolved == nullptr) continue;
    // The graph would have to be read in the scope of the caller.
    if (holds_graphs(**resolved)) {
      return refuse(site.path, DVT_UNSUPPORTED,
                    "attribute '" + name + "' of " + label(function) + " is a graph");
    }
    bound.attributes[name] = **resolved;
  }
  return {};
}

Status GraphReader::bind_opsets(const CallSite& site, const onnx::FunctionProto& function,
                                FunctionCall& bound) {
  for (const onnx::OperatorSetIdProto& import : function.opset_import()) {
    const std::string domain = normal_domain(import.domain());
    const bool known =
        !domain.empty() || (import.version() >= kOpsetMin && import.version() <= kOpsetMax);
    if (!known || import.version() <= 0) {
      Status status =
          refuse(site.path, import.version() > 0 ? DVT_UNSUPPORTED : DVT_INVALID_IMAGE,
                 label(function) + " imports opset " + std::to_string(import.version()) + " of '" +
                     import.domain() + "', which is outside what Davit reads");
      return status;
    }
    bound.opsets[domain] = import.version();
  }
  return {};
}

Status GraphReader::bind_operands(const CallSite& site, const onnx::FunctionProto& function,
                                  Scope& inner) {
  const auto count = [&](const char* what, size_t got, int expected) {
    Status status = refuse(site.path, DVT_INVALID_IMAGE,
                           "the call has more " + std::string(what) + " than " + label(function));
    status.detail().expected = "at most " + std::to_string(expected);
    status.detail().got = std::to_string(got);
    return status;
  };
  if (site.inputs.size() > size_t(function.input_size())) {
    return count("inputs", site.inputs.size(), function.input_size());
  }
  if (site.outputs.size() > size_t(function.output_size())) {
    return count("outputs", site.outputs.size(), function.output_size());
  }
  for (int i = 0; i < function.input_size(); ++i) {
    const ValueId value = size_t(i) < site.inputs.size() ? site.inputs[size_t(i)] : ir::kNoValue;
    if (!inner.names.emplace(function.input(i), value).second) {
      return refuse(site.path, DVT_INVALID_IMAGE, label(function) + " has two inputs of one name",
                    function.input(i));
    }
  }
  for (size_t i = 0; i < site.outputs.size(); ++i) {
    const std::string& name = function.output(int(i));
    if (site.outputs[i] == ir::kNoValue || inner.names.contains(name)) continue;
    inner.results.emplace(name, site.outputs[i]);
  }
  return {};
}

Status GraphReader::check_limits(const CallSite& site, const onnx::FunctionProto& function) {
  const FunctionCall* caller = site.scope.call;
  if (caller != nullptr && caller->is_inside(&function)) {
    return refuse(site.path, DVT_INVALID_IMAGE, label(function) + " calls itself");
  }
  if (caller != nullptr && caller->depth() >= kCallDepthMax) {
    return refuse(
        site.path, DVT_UNSUPPORTED,
        "calls of functions are nested more than " + std::to_string(kCallDepthMax) + " deep");
  }
  expanded_nodes_ += uint64_t(function.node_size());
  expanded_bytes_ += function.ByteSizeLong();
  if (expanded_nodes_ <= kExpandedNodesMax && expanded_bytes_ <= kExpandedBytesMax) return {};
  return refuse(site.path, DVT_UNSUPPORTED,
                "the bodies of all calls of functions together have more than " +
                    std::to_string(kExpandedNodesMax) + " nodes or " +
                    std::to_string(kExpandedBytesMax) + " bytes");
}

Status GraphReader::pass_on(const CallSite& site, const onnx::FunctionProto& function,
                            const Scope& inner) {
  for (size_t i = 0; i < site.outputs.size(); ++i) {
    if (site.outputs[i] == ir::kNoValue) continue;
    const std::string& name = function.output(int(i));
    const ValueId* value = find(inner, name);
    if (value == nullptr || *value == ir::kNoValue) {
      return refuse(site.path, DVT_INVALID_IMAGE, label(function) + " does not define its output",
                    name);
    }
    if (*value == site.outputs[i]) continue;
    int64_t opset = own_opset(inner, "");
    if (opset == 0 && !module_.opset_imports.contains("")) opset = kOpsetMax;
    module_.add_node(site.scope.graph, {.domain = "",
                                        .op = "Identity",
                                        .name = inner.prefix + name,
                                        .inputs = {*value},
                                        .outputs = {site.outputs[i]},
                                        .attributes = {},
                                        .opset = opset});
  }
  return {};
}

Status GraphReader::expand(const CallSite& site, const onnx::NodeProto& call,
                           const onnx::FunctionProto& function) {
  if (Status status = check_limits(site, function); !status.ok()) return status;
  FunctionCall bound{
      .outer = site.scope.call, .function = &function, .attributes = {}, .opsets = {}};
  if (Status status = bind_attributes(site, call, function, bound); !status.ok()) return status;
  if (Status status = bind_opsets(site, function, bound); !status.ok()) return status;
  Scope inner{site.scope.graph, nullptr, {}, &bound, site.name + "/", {}};
  if (Status status = bind_operands(site, function, inner); !status.ok()) return status;
  Nodes nodes = function.node();
  if (Status status = declare_node_outputs(nodes, inner); !status.ok()) return status;
  for (int i = 0; i < nodes.size(); ++i) {
    if (Status status = read_node(*nodes.Mutable(i), i, inner); !status.ok()) return status;
  }
  return pass_on(site, function, inner);
}

Status GraphReader::expand_node(ir::NodeId node, const onnx::NodeProto& call,
                                const onnx::FunctionProto& function) {
  const auto inputs = module_.inputs(node);
  const auto outputs = module_.outputs(node);
  const std::vector<ValueId> input_values(inputs.begin(), inputs.end());
  const std::vector<ValueId> output_values(outputs.begin(), outputs.end());
  for (size_t i = 0; i < output_values.size(); ++i) {
    if (output_values[i] != ir::kNoValue) module_.set_output(node, uint32_t(i), ir::kNoValue);
  }
  const std::string name = module_.local_name(node);
  const Scope scope{module_.node_graph(node), nullptr, {}};
  Status status =
      expand({scope, module_.node_path(node), name, input_values, output_values}, call, function);
  return status.ok() ? check_lists() : std::move(status);
}

}  // namespace davit::onnx_import
