#include "ir/onnx/standard_functions.hpp"

#include <onnx/defs/schema.h>

#include <climits>
#include <exception>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "ir/onnx/digest.hpp"
#include "ir/onnx/external_data.hpp"
#include "ir/onnx/functions.hpp"
#include "ir/onnx/graph_reader.hpp"

namespace davit::onnx_import {
namespace {

using ir::NodeId;
using Attribute = onnx::AttributeProto;

onnx::TensorProto tensor_proto(const ir::TensorData& data) {
  onnx::TensorProto proto;
  proto.set_data_type(data.dtype);
  for (const int64_t dim : data.dims) proto.add_dims(dim);
  if (data.dtype == DVT_STRING) {
    for (const std::string& text : ir::strings_of(data)) proto.add_string_data(text);
  } else if (data.bytes) {
    proto.set_raw_data(data.bytes->data(), data.bytes->size());
  }
  return proto;
}

// False for graphs.
bool set_value(Attribute& proto, const ir::AttributeValue& value) {
  return std::visit(
      [&proto](const auto& typed) {
        using T = std::decay_t<decltype(typed)>;
        if constexpr (std::is_same_v<T, int64_t>) {
          proto.set_type(Attribute::INT);
          proto.set_i(typed);
        } else if constexpr (std::is_same_v<T, float>) {
          proto.set_type(Attribute::FLOAT);
          proto.set_f(typed);
        } else if constexpr (std::is_same_v<T, std::string>) {
          proto.set_type(Attribute::STRING);
          proto.set_s(typed);
        } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
          proto.set_type(Attribute::INTS);
          for (const int64_t item : typed) proto.add_ints(item);
        } else if constexpr (std::is_same_v<T, std::vector<float>>) {
          proto.set_type(Attribute::FLOATS);
          for (const float item : typed) proto.add_floats(item);
        } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          proto.set_type(Attribute::STRINGS);
          for (const std::string& item : typed) proto.add_strings(item);
        } else if constexpr (std::is_same_v<T, ir::TensorData>) {
          proto.set_type(Attribute::TENSOR);
          *proto.mutable_t() = tensor_proto(typed);
        } else {
          return false;
        }
        return true;
      },
      value);
}

// The node as the library wants to see it, with the defaults of the schema's attributes; nullopt
// when it has subgraphs.
std::optional<onnx::NodeProto> node_proto(const ir::Module& module, NodeId node,
                                          const onnx::OpSchema& schema) {
  onnx::NodeProto proto;
  proto.set_op_type(std::string(module.op(node)));
  proto.set_domain(std::string(module.domain(node)));
  const auto operand = [](ir::ValueId value) {
    return value == ir::kNoValue ? std::string() : "v" + std::to_string(index_of(value));
  };
  for (const ir::ValueId value : module.inputs(node)) proto.add_input(operand(value));
  for (const ir::ValueId value : module.outputs(node)) proto.add_output(operand(value));
  for (const ir::Attribute& attribute : module.attributes(node)) {
    Attribute* added = proto.add_attribute();
    added->set_name(attribute.name);
    if (!set_value(*added, attribute.value)) return std::nullopt;
  }
  for (const auto& [name, described] : schema.attributes()) {
    if (described.default_value.name().empty() || module.attribute(node, name) != nullptr) continue;
    *proto.add_attribute() = described.default_value;
  }
  return proto;
}

std::vector<onnx::TypeProto> input_types(const ir::Module& module, NodeId node) {
  std::vector<onnx::TypeProto> types;
  for (const ir::ValueId value : module.inputs(node)) {
    onnx::TypeProto& type = types.emplace_back();
    if (value == ir::kNoValue || module.dtype(value) == DVT_DTYPE_NONE) continue;
    type.mutable_tensor_type()->set_elem_type(module.dtype(value));
  }
  return types;
}

// The body of the node's operator; nullopt when it has none that could be used.
std::optional<onnx::FunctionProto> body_of(const onnx::OpSchema& schema,
                                           const onnx::NodeProto& proto,
                                           const std::vector<onnx::TypeProto>& types) {
  if (schema.HasFunction()) return *schema.GetFunction();
  if (!schema.HasContextDependentFunction()) return std::nullopt;
  const onnx::FunctionBodyBuildContextImpl context(proto, types);
  onnx::FunctionProto body;
  if (!schema.BuildContextDependentFunction(context, body)) return std::nullopt;
  return body;
}

// What is there of one node, if it can be expanded.
struct Expansion {
  NodeId node;
  onnx::NodeProto call;
  onnx::FunctionProto body;
};

std::optional<Expansion> expansion_of(const ir::Module& module, NodeId node) {
  const int64_t opset = module.opset_version(node);
  if (opset <= 0 || opset > INT_MAX) return std::nullopt;
  const onnx::OpSchema* schema = onnx::OpSchemaRegistry::Schema(
      std::string(module.op(node)), int(opset), std::string(module.domain(node)));
  if (schema == nullptr) return std::nullopt;
  auto proto = node_proto(module, node, *schema);
  if (!proto) return std::nullopt;
  auto body = body_of(*schema, *proto, input_types(module, node));
  if (!body) return std::nullopt;
  return Expansion{node, std::move(*proto), std::move(*body)};
}

}  // namespace

Result<uint32_t> expand_standard_functions(
    ir::Module& module, const std::function<bool(const ir::Module&, ir::NodeId)>& wanted) try {
  std::vector<Expansion> expansions;
  for (uint32_t n = 0; n < module.node_count(); ++n) {
    const NodeId node{n};
    if (!module.node_alive(node) || !wanted(module, node)) continue;
    if (auto expansion = expansion_of(module, node)) expansions.push_back(std::move(*expansion));
  }
  if (expansions.empty()) return 0U;
  const Functions none;
  Digest digest;
  ExternalData external(std::nullopt, digest);
  GraphReader reader(module, none, external);
  std::vector<NodeId> replaced;
  for (const Expansion& expansion : expansions) {
    Status status = reader.expand_node(expansion.node, expansion.call, expansion.body);
    if (!status.ok()) return status;
    replaced.push_back(expansion.node);
  }
  module.erase_nodes(replaced);
  if (Status status = module.sort(); !status.ok()) return status;
  return uint32_t(replaced.size());
} catch (const std::bad_alloc&) {
  throw;
} catch (const std::exception& error) {  // What the library makes of attributes that it dislikes.
  return Status(DVT_UNSUPPORTED, DVT_STAGE_CHECK,
                std::string("the ONNX library cannot expand a function: ") + error.what());
}

}  // namespace davit::onnx_import
