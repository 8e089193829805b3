// proto_builder.hpp: small ONNX protos for tests.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>

#include "ir/onnx/import.hpp"

namespace davit::test {

inline onnx::ModelProto model_proto(int64_t opset = 13) {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(opset);
  model.mutable_graph()->set_name("g");
  return model;
}

inline onnx::ValueInfoProto* describe(onnx::ValueInfoProto* info, const std::string& name,
                                      int32_t type, std::initializer_list<int64_t> dims) {
  info->set_name(name);
  onnx::TypeProto::Tensor* tensor = info->mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(type);
  tensor->mutable_shape();
  for (const int64_t dim : dims) tensor->mutable_shape()->add_dim()->set_dim_value(dim);
  return info;
}

inline onnx::ValueInfoProto* add_input(onnx::GraphProto* graph, const std::string& name,
                                       int32_t type = onnx::TensorProto::FLOAT,
                                       std::initializer_list<int64_t> dims = {2}) {
  return describe(graph->add_input(), name, type, dims);
}

inline void add_output(onnx::GraphProto* graph, const std::string& name) {
  graph->add_output()->set_name(name);
}

inline onnx::NodeProto* add_node(onnx::GraphProto* graph, const std::string& op,
                                 std::initializer_list<const char*> inputs,
                                 std::initializer_list<const char*> outputs,
                                 const std::string& name = {}) {
  onnx::NodeProto* node = graph->add_node();
  node->set_op_type(op);
  node->set_name(name);
  for (const char* input : inputs) node->add_input(input);
  for (const char* output : outputs) node->add_output(output);
  return node;
}

inline onnx::AttributeProto* add_attribute(onnx::NodeProto* node, const std::string& name,
                                           onnx::AttributeProto::AttributeType type) {
  onnx::AttributeProto* attribute = node->add_attribute();
  attribute->set_name(name);
  attribute->set_type(type);
  return attribute;
}

inline onnx::TensorProto* add_initializer(onnx::GraphProto* graph, const std::string& name,
                                          int32_t type, std::initializer_list<int64_t> dims) {
  onnx::TensorProto* tensor = graph->add_initializer();
  tensor->set_name(name);
  tensor->set_data_type(type);
  for (const int64_t dim : dims) tensor->add_dims(dim);
  return tensor;
}

// x -> Relu -> y.
inline onnx::ModelProto relu_model() {
  onnx::ModelProto model = model_proto();
  add_input(model.mutable_graph(), "x");
  add_node(model.mutable_graph(), "Relu", {"x"}, {"y"}, "relu");
  add_output(model.mutable_graph(), "y");
  return model;
}

inline Result<ir::Module> import_proto(const onnx::ModelProto& model,
                                       const std::optional<std::string>& folder = std::nullopt) {
  const std::string bytes = model.SerializeAsString();
  return onnx_import::import_onnx_bytes(std::as_bytes(std::span(bytes)), folder);
}

// "ok", or the error as people see it.
inline std::string import_error(const onnx::ModelProto& model,
                                const std::optional<std::string>& folder = std::nullopt) {
  const Result<ir::Module> module = import_proto(model, folder);
  return module.ok() ? "ok" : module.status().to_string();
}

}  // namespace davit::test
