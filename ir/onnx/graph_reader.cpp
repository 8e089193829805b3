#include "ir/onnx/graph_reader.hpp"

#include <algorithm>
#include <unordered_set>

#include "base/dtype.hpp"
#include "ir/onnx/attribute_names.hpp"
#include "ir/onnx/tensor_reader.hpp"

namespace davit::onnx_import {
namespace {

using ir::GraphId;
using ir::NodeId;
using ir::ValueId;

std::string join(const std::vector<std::string>& items) {
  constexpr size_t kListed = 20;
  std::string text;
  for (size_t i = 0; i < std::min(items.size(), kListed); ++i) {
    if (i != 0) text += ", ";
    text += items[i];
  }
  if (items.size() > kListed) text += " and " + std::to_string(items.size() - kListed) + " more";
  return text;
}

// Writers older than the `type` field leave it out.
onnx::AttributeProto::AttributeType attribute_type(const onnx::AttributeProto& proto) {
  if (proto.has_type() && proto.type() != onnx::AttributeProto::UNDEFINED) return proto.type();
  if (proto.has_f()) return onnx::AttributeProto::FLOAT;
  if (proto.has_i()) return onnx::AttributeProto::INT;
  if (proto.has_s()) return onnx::AttributeProto::STRING;
  if (proto.has_t()) return onnx::AttributeProto::TENSOR;
  if (proto.has_g()) return onnx::AttributeProto::GRAPH;
  if (proto.floats_size() != 0) return onnx::AttributeProto::FLOATS;
  if (proto.ints_size() != 0) return onnx::AttributeProto::INTS;
  if (proto.strings_size() != 0) return onnx::AttributeProto::STRINGS;
  if (proto.graphs_size() != 0) return onnx::AttributeProto::GRAPHS;
  return onnx::AttributeProto::UNDEFINED;
}

template <class T>
ir::TensorData tensor_of(DvtDType dtype, std::vector<int64_t> dims, const T* values, size_t count) {
  const auto* begin = reinterpret_cast<const std::byte*>(values);
  return ir::make_tensor(dtype, std::move(dims), {begin, begin + count * sizeof(T)});
}

// What a Constant node's attribute says; nullopt for an attribute that is none of its forms, or a
// string that is too long.
std::optional<ir::TensorData> constant_of(const std::string& name, ir::AttributeValue value) {
  if (auto* tensor = std::get_if<ir::TensorData>(&value); tensor && name == "value") {
    return std::move(*tensor);
  }
  if (const auto* one = std::get_if<float>(&value); one && name == "value_float") {
    return tensor_of(DVT_F32, {}, one, 1);
  }
  if (const auto* one = std::get_if<int64_t>(&value); one && name == "value_int") {
    return tensor_of(DVT_I64, {}, one, 1);
  }
  if (auto* one = std::get_if<std::string>(&value); one && name == "value_string") {
    return ir::make_string_tensor({}, std::span(one, 1));
  }
  if (const auto* many = std::get_if<std::vector<float>>(&value); many && name == "value_floats") {
    return tensor_of(DVT_F32, {int64_t(many->size())}, many->data(), many->size());
  }
  if (const auto* many = std::get_if<std::vector<int64_t>>(&value); many && name == "value_ints") {
    return tensor_of(DVT_I64, {int64_t(many->size())}, many->data(), many->size());
  }
  if (auto* many = std::get_if<std::vector<std::string>>(&value); many && name == "value_strings") {
    return ir::make_string_tensor({int64_t(many->size())}, *many);
  }
  return std::nullopt;
}

// As ONNX's checker: an attribute that the operator does not have is an error, most often a typo
// that would silently mean the default. Names that begin with "__" are free for tools.
Status check_attribute_name(const std::string& op, int64_t opset, const std::string& name) {
  const auto names = attribute_names(op, opset);
  if (!names || name.starts_with("__") || has_attribute_name(*names, name)) return {};
  Status status(DVT_INVALID_IMAGE, DVT_STAGE_PARSE, "the operator has no such attribute");
  status.detail().expected = names->empty() ? "no attributes" : "one of: " + std::string(*names);
  return status;
}

}  // namespace

Status GraphReader::read_main(onnx::GraphProto& proto) {
  Scope scope{ir::kMainGraph, nullptr, {}};
  module_.set_graph_name(ir::kMainGraph, proto.name());
  if (Status status = read_graph(proto, scope); !status.ok()) return status;
  if (proto.output_size() == 0) {
    return error(scope, DVT_INVALID_IMAGE, "the model has no outputs");
  }
  return check_lists();
}

Status GraphReader::check_lists() const {
  if (!unknown_domain_calls_.empty()) {
    return {DVT_INVALID_IMAGE, DVT_STAGE_PARSE,
            "nodes use a domain that the model does not import: " + join(unknown_domain_calls_)};
  }
  return {};
}

Status GraphReader::read_graph(onnx::GraphProto& proto, Scope& scope) {
  if (Status status = read_initializers(proto, scope); !status.ok()) return status;
  if (Status status = read_inputs(proto, scope); !status.ok()) return status;
  if (Status status = declare_node_outputs(*proto.mutable_node(), scope); !status.ok())
    return status;
  for (const onnx::ValueInfoProto& info : proto.value_info()) {
    const auto found = scope.names.find(info.name());
    // Exporters leave stale entries behind: of values that are gone, or have become constants.
    if (found == scope.names.end() || module_.constant(found->second) != nullptr) continue;
    if (Status status = read_type(info, found->second); !status.ok()) return status;
  }
  for (int i = 0; i < proto.node_size(); ++i) {
    Status status = read_node(*proto.mutable_node(i), i, scope);
    if (!status.ok()) return status;
  }
  return read_outputs(proto, scope);
}

Status GraphReader::read_initializers(onnx::GraphProto& proto, Scope& scope) {
  if (proto.sparse_initializer_size() != 0) {
    return error(scope, DVT_UNSUPPORTED, "sparse initializers are not supported",
                 proto.sparse_initializer(0).values().name());
  }
  for (onnx::TensorProto& tensor : *proto.mutable_initializer()) {
    const std::string name = tensor.name();
    Result<ir::TensorData> data = read_tensor(std::move(tensor), external_);
    if (!data.ok()) {
      data.status().detail().node = module_.graph_path(scope.graph);
      return std::move(data.status());
    }
    const ValueId value = module_.add_constant(scope.graph, name, std::move(*data));
    if (Status status = declare(scope, name, value, "initializer"); !status.ok()) return status;
  }
  return {};
}

Status GraphReader::read_inputs(const onnx::GraphProto& proto, Scope& scope) {
  std::unordered_set<std::string> seen;
  for (const onnx::ValueInfoProto& input : proto.input()) {
    if (!seen.insert(input.name()).second) {
      return error(scope, DVT_INVALID_IMAGE, "two graph inputs have one name", input.name());
    }
    const auto found = scope.names.find(input.name());
    if (found != scope.names.end()) {  // Has an initializer.
      if (Status status = read_type(input, found->second); !status.ok()) return status;
      continue;
    }
    const ValueId value = module_.add_value(scope.graph, input.name());
    if (Status status = declare(scope, input.name(), value, "input"); !status.ok()) return status;
    module_.add_graph_input(scope.graph, value);
    // Inside a body the operator that owns it knows the types.
    Status status = scope.outer == nullptr ? read_port(input, value) : read_type(input, value);
    if (!status.ok()) return status;
    const ir::ContainerType* container = module_.container(value);
    const DvtDType dtype = container == nullptr ? module_.dtype(value) : container->dtype;
    if (scope.outer == nullptr && dtype == DVT_DTYPE_NONE) {
      return error(scope, DVT_INVALID_IMAGE, "a model input has no element type", input.name());
    }
  }
  return {};
}

Status GraphReader::declare_node_outputs(Nodes& nodes, Scope& scope) {
  for (int i = 0; i < nodes.size(); ++i) {
    onnx::NodeProto& node = *nodes.Mutable(i);
    const std::string path = node_path(node, i, scope);
    if (node.op_type() == "Constant" && normal_domain(node.domain()).empty()) {
      if (Status status = read_constant_node(node, scope, path); !status.ok()) return status;
      continue;
    }
    for (const std::string& name : node.output()) {
      if (name.empty()) continue;
      const auto result = scope.results.find(name);
      const ValueId value = result != scope.results.end()
                                ? result->second
                                : module_.add_value(scope.graph, scope.prefix + name);
      Status status = declare(scope, name, value, "node output");
      if (status.ok()) continue;
      status.detail().node = path;
      return status;
    }
  }
  return {};
}

Status GraphReader::read_constant_node(onnx::NodeProto& proto, Scope& scope,
                                       const std::string& path) {
  const auto fail = [&](Status status) {
    status.detail().node = path;
    status.detail().op = "ai.onnx::Constant";
    return status;
  };
  if (proto.output_size() != 1 || proto.output(0).empty() || proto.attribute_size() != 1) {
    return fail(
        {DVT_INVALID_IMAGE, DVT_STAGE_PARSE, "a Constant needs one output and one attribute"});
  }
  const std::string attribute_name = proto.attribute(0).name();
  Result<onnx::AttributeProto*> resolved = resolve(*proto.mutable_attribute(0), scope);
  if (!resolved.ok() || *resolved == nullptr) {
    Status status = resolved.ok() ? Status(DVT_INVALID_IMAGE, DVT_STAGE_PARSE,
                                           "the call does not have what it refers to")
                                  : std::move(resolved.status());
    std::string& message = status.detail().message;
    message = "attribute '" + attribute_name + "': " + message;
    return fail(std::move(status));
  }
  onnx::AttributeProto& attribute = **resolved;
  const auto type = attribute_type(attribute);
  std::optional<ir::TensorData> data;
  if (type != onnx::AttributeProto::GRAPH && type != onnx::AttributeProto::GRAPHS) {
    Result<ir::AttributeValue> value = read_attribute(attribute, ir::kNoNode, scope);
    if (!value.ok()) {
      std::string& message = value.status().detail().message;
      message = "attribute '" + attribute_name + "': " + message;
      return fail(std::move(value.status()));
    }
    data = constant_of(attribute_name, std::move(*value));
  }
  if (!data) {
    return fail({DVT_INVALID_IMAGE, DVT_STAGE_PARSE,
                 "attribute '" + attribute_name + "' is no form of a Constant"});
  }
  const std::string& name = proto.output(0);
  const auto result = scope.results.find(name);
  ValueId value = ir::kNoValue;
  if (result == scope.results.end()) {
    value = module_.add_constant(scope.graph, scope.prefix + name, std::move(*data));
  } else {
    value = result->second;
    module_.set_constant(value, std::move(*data));
  }
  Status status = declare(scope, name, value, "constant");
  return status.ok() ? std::move(status) : fail(std::move(status));
}

Status GraphReader::read_operands(const onnx::NodeProto& proto, const std::string& path,
                                  const Scope& scope, ir::Module::NodeInit& init) const {
  const auto fail = [&](std::string message, std::string tensor) {
    const auto import = module_.opset_imports.find(init.domain);
    int64_t opset = own_opset(scope, init.domain);
    if (opset == 0 && import != module_.opset_imports.end()) opset = import->second;
    return Status({.code = DVT_INVALID_IMAGE,
                   .stage = DVT_STAGE_PARSE,
                   .message = std::move(message),
                   .node = path,
                   .op = (init.domain.empty() ? "ai.onnx" : init.domain) + "::" + init.op + "(" +
                         std::to_string(opset) + ")",
                   .tensor = std::move(tensor)});
  };
  if (proto.op_type().empty()) return fail("the node has no operator", {});
  for (const std::string& name : proto.output()) {
    init.outputs.push_back(name.empty() ? ir::kNoValue : scope.names.at(name));
  }
  for (const std::string& name : proto.input()) {
    const ValueId* value = name.empty() ? &ir::kNoValue : find(scope, name);
    if (value == nullptr) return fail("the node reads a tensor that nothing defines", name);
    init.inputs.push_back(*value);
  }
  return {};
}

Status GraphReader::read_node(onnx::NodeProto& proto, int index, const Scope& scope) {
  ir::Module::NodeInit init{.domain = normal_domain(proto.domain()),
                            .op = proto.op_type(),
                            .name = proto.name(),
                            .inputs = {},
                            .outputs = {},
                            .attributes = {}};
  if (init.op == "Constant" && init.domain.empty()) return {};  // See declare_node_outputs().
  const std::string path = node_path(proto, index, scope);
  if (Status status = read_operands(proto, path, scope, init); !status.ok()) return status;
  // Without the path of its graph, which the graph has.
  const std::string local =
      scope.prefix +
      (proto.name().empty() ? proto.op_type() + "_" + std::to_string(index) : proto.name());
  if (const onnx::FunctionProto* function = functions_.find(proto)) {
    return expand({scope, path, local, init.inputs, init.outputs}, proto, *function);
  }
  if (!scope.prefix.empty()) init.name = local;
  init.opset = own_opset(scope, init.domain);
  const NodeId node = module_.add_node(scope.graph, std::move(init));
  if (module_.opset_version(node) == 0) {
    unknown_domain_calls_.push_back(module_.node_path(node) + " (" + module_.op_label(node) + ")");
  }
  return read_attributes(proto, node, scope);
}

Status GraphReader::read_attributes(onnx::NodeProto& proto, NodeId node, const Scope& scope) {
  std::vector<ir::Attribute> attributes;
  std::unordered_set<std::string> seen;
  const bool is_standard = module_.domain(node).empty();
  const auto fail = [&](Status status, const std::string& name) {
    ErrorDetail& detail = status.detail();
    if (detail.node.empty()) {  // Else it comes from inside a subgraph.
      detail.node = module_.node_path(node);
      detail.op = module_.op_label(node);
      detail.message = "attribute '" + name + "': " + detail.message;
    }
    return status;
  };
  for (onnx::AttributeProto& attribute : *proto.mutable_attribute()) {
    const std::string name = attribute.name();
    if (name.empty() || !seen.insert(name).second) {
      return fail({DVT_INVALID_IMAGE, DVT_STAGE_PARSE, "the name is empty or comes twice"}, name);
    }
    if (is_standard) {
      Status status = check_attribute_name(proto.op_type(), module_.opset_version(node), name);
      if (!status.ok()) return fail(std::move(status), name);
    }
    Result<onnx::AttributeProto*> resolved = resolve(attribute, scope);
    if (!resolved.ok()) return fail(std::move(resolved.status()), name);
    if (*resolved == nullptr) continue;
    // The type of an Optional that is absent says nothing about what there is.
    if (is_standard && proto.op_type() == "Optional" && name == "type") continue;
    Result<ir::AttributeValue> value = read_attribute(**resolved, node, scope);
    if (!value.ok()) return fail(std::move(value.status()), name);
    attributes.push_back({name, std::move(*value)});
  }
  module_.set_attributes(node, std::move(attributes));
  return {};
}

Result<ir::AttributeValue> GraphReader::read_attribute(onnx::AttributeProto& proto, NodeId node,
                                                       const Scope& scope) {
  using Proto = onnx::AttributeProto;
  const auto unsupported = [](const char* what) {
    return Status(DVT_UNSUPPORTED, DVT_STAGE_PARSE, std::string(what) + " are not supported");
  };
  switch (attribute_type(proto)) {
    case Proto::FLOAT:
      return ir::AttributeValue(proto.f());
    case Proto::INT:
      return ir::AttributeValue(proto.i());
    case Proto::STRING:
      return ir::AttributeValue(std::move(*proto.mutable_s()));
    case Proto::FLOATS:
      return ir::AttributeValue(std::vector<float>(proto.floats().begin(), proto.floats().end()));
    case Proto::INTS:
      return ir::AttributeValue(std::vector<int64_t>(proto.ints().begin(), proto.ints().end()));
    case Proto::STRINGS:
      return ir::AttributeValue(
          std::vector<std::string>(proto.strings().begin(), proto.strings().end()));
    case Proto::TENSOR: {
      Result<ir::TensorData> data = read_tensor(std::move(*proto.mutable_t()), external_);
      if (!data.ok()) return std::move(data.status());
      return ir::AttributeValue(std::move(*data));
    }
    case Proto::GRAPH: {
      Result<GraphId> graph = read_subgraph(*proto.mutable_g(), proto.name(), node, scope);
      if (!graph.ok()) return std::move(graph.status());
      return ir::AttributeValue(*graph);
    }
    case Proto::GRAPHS: {
      std::vector<GraphId> graphs;
      for (int i = 0; i < proto.graphs_size(); ++i) {
        const std::string name = proto.name() + "[" + std::to_string(i) + "]";
        Result<GraphId> graph = read_subgraph(*proto.mutable_graphs(i), name, node, scope);
        if (!graph.ok()) return std::move(graph.status());
        graphs.push_back(*graph);
      }
      return ir::AttributeValue(std::move(graphs));
    }
    case Proto::TENSORS:
      return unsupported("lists of tensors");
    case Proto::SPARSE_TENSOR:
    case Proto::SPARSE_TENSORS:
      return unsupported("sparse tensors");
    case Proto::TYPE_PROTO:
    case Proto::TYPE_PROTOS:
      return unsupported("type attributes");
    default:
      return Status(DVT_INVALID_IMAGE, DVT_STAGE_PARSE, "it has neither type nor value");
  }
}

Result<GraphId> GraphReader::read_subgraph(onnx::GraphProto& proto, const std::string& name,
                                           NodeId owner, const Scope& scope) {
  const GraphId graph = module_.add_graph(name, scope.graph, owner);
  Scope inner{graph, &scope, {}, scope.call};
  if (Status status = read_graph(proto, inner); !status.ok()) return status;
  return graph;
}

Status GraphReader::read_outputs(const onnx::GraphProto& proto, Scope& scope) {
  std::vector<ValueId> outputs;
  std::unordered_set<std::string> seen;
  for (const onnx::ValueInfoProto& output : proto.output()) {
    const ValueId* found = find(scope, output.name());
    if (found == nullptr || *found == ir::kNoValue) {
      return error(scope, DVT_INVALID_IMAGE, "nothing defines this graph output", output.name());
    }
    const ValueId value = *found;
    if (scope.outer == nullptr && !seen.insert(output.name()).second) {
      return error(scope, DVT_INVALID_IMAGE, "two model outputs have one name", output.name());
    }
    Status status = scope.outer == nullptr ? read_port(output, value) : read_type(output, value);
    if (!status.ok()) return status;
    outputs.push_back(value);
  }
  module_.set_graph_outputs(scope.graph, std::move(outputs));
  return {};
}

Status GraphReader::read_port(const onnx::ValueInfoProto& proto, ValueId value) {
  const onnx::TypeProto* type = &proto.type();
  if (type->has_tensor_type() || type->value_case() == onnx::TypeProto::VALUE_NOT_SET) {
    return read_type(proto, value);
  }
  ir::ContainerType container;
  if (type->has_optional_type()) {
    container.is_optional = true;
    type = &type->optional_type().elem_type();
  }
  if (type->has_sequence_type()) {
    container.is_sequence = true;
    type = &type->sequence_type().elem_type();
  }
  if (!type->has_tensor_type() || module_.dtype(value) != DVT_DTYPE_NONE) {
    return Status({.code = DVT_UNSUPPORTED,
                   .stage = DVT_STAGE_PARSE,
                   .message = "a model has tensors, sequences of tensors and optionals of either",
                   .node = module_.graph_path(module_.value_graph(value)),
                   .tensor = proto.name(),
                   .got = "a map, a sparse tensor, or another nesting"});
  }
  Result<DvtDType> dtype = read_dtype(type->tensor_type().elem_type(), proto.name());
  if (!dtype.ok()) return std::move(dtype.status());
  container.dtype = *dtype;
  if (type->tensor_type().has_shape()) {
    Result<ir::Shape> shape = read_shape(type->tensor_type().shape(), proto.name());
    if (!shape.ok()) return std::move(shape.status());
    container.shape = std::move(*shape);
  }
  module_.set_container(value, std::move(container));
  return {};
}

Status GraphReader::read_type(const onnx::ValueInfoProto& proto, ValueId value) {
  if (!proto.type().has_tensor_type()) return {};
  const onnx::TypeProto::Tensor& type = proto.type().tensor_type();
  const auto disagree = [&](std::string declared, std::string known) {
    return Status({.code = DVT_INVALID_IMAGE,
                   .stage = DVT_STAGE_PARSE,
                   .message = "two declarations of a tensor disagree",
                   .node = module_.graph_path(module_.value_graph(value)),
                   .tensor = proto.name(),
                   .expected = std::move(known),
                   .got = std::move(declared)});
  };
  if (type.elem_type() != onnx::TensorProto::UNDEFINED) {
    Result<DvtDType> dtype = read_dtype(type.elem_type(), proto.name());
    if (!dtype.ok()) return std::move(dtype.status());
    const DvtDType known = module_.dtype(value);
    if (known != DVT_DTYPE_NONE && known != *dtype) {
      return disagree(std::string(dtype_name(*dtype)), std::string(dtype_name(known)));
    }
    module_.set_dtype(value, *dtype);
  }
  if (!type.has_shape()) return {};
  Result<ir::Shape> shape = read_shape(type.shape(), proto.name());
  if (!shape.ok()) return std::move(shape.status());
  const ir::TensorData* constant = module_.constant(value);
  if (constant == nullptr) {
    module_.set_shape(value, std::move(*shape));
    return {};
  }
  const bool fits = std::equal(shape->begin(), shape->end(), constant->dims.begin(),
                               constant->dims.end(), [](ir::Dim declared, int64_t dim) {
                                 return !declared.is_known() || declared.extent() == dim;
                               });
  return fits ? Status() : disagree("another shape", "the shape of its constant data");
}

Result<ir::Shape> GraphReader::read_shape(const onnx::TensorShapeProto& proto,
                                          const std::string& tensor) {
  ir::Shape shape;
  for (const onnx::TensorShapeProto::Dimension& dim : proto.dim()) {
    if (dim.has_dim_param() && !dim.dim_param().empty()) {
      shape.push_back(ir::Dim::symbol(module_.intern_symbol(dim.dim_param())));
    } else if (!dim.has_dim_value() || dim.dim_value() == -1) {  // Some exporters write -1.
      shape.emplace_back();
    } else if (dim.dim_value() < 0) {
      return Status({.code = DVT_INVALID_IMAGE,
                     .stage = DVT_STAGE_PARSE,
                     .message = "dimension " + std::to_string(dim.dim_value()) + " is negative",
                     .tensor = tensor});
    } else {
      shape.emplace_back(dim.dim_value());
    }
  }
  return shape;
}

Status GraphReader::declare(Scope& scope, const std::string& name, ValueId value,
                            const char* what) {
  if (name.empty()) {
    return error(scope, DVT_INVALID_IMAGE, std::string("an ") + what + " has no name");
  }
  if (!scope.names.emplace(name, value).second) {
    return error(
        scope, DVT_INVALID_IMAGE,
        std::string("the tensor is defined twice in one graph; the second time as ") + what, name);
  }
  return {};
}

const ValueId* GraphReader::find(const Scope& scope, const std::string& name) {
  for (const Scope* at = &scope; at != nullptr; at = at->outer) {
    const auto found = at->names.find(name);
    if (found != at->names.end()) return &found->second;
  }
  return nullptr;
}

// As Module::node_path() for a node that is not in the module.
std::string GraphReader::node_path(const onnx::NodeProto& proto, int index,
                                   const Scope& scope) const {
  std::string path = module_.graph_path(scope.graph);
  if (!path.empty()) path += '/';
  path += scope.prefix;
  if (!proto.name().empty()) return path + proto.name();
  return path + proto.op_type() + "_" + std::to_string(index);
}

Status GraphReader::error(const Scope& scope, DvtCode code, std::string message,
                          std::string tensor) const {
  return Status({.code = code,
                 .stage = DVT_STAGE_PARSE,
                 .message = std::move(message),
                 .node = module_.graph_path(scope.graph),
                 .tensor = std::move(tensor)});
}

}  // namespace davit::onnx_import
