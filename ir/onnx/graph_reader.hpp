// graph_reader.hpp: GraphProto, with its subgraphs, to graphs of a Module.
//
// Threads  Externally synchronised.
// Trust    Protos are untrusted. Recursion follows the nesting of the protos, which protobuf's
//          parser has bounded (100 messages, 33 graphs).
// Memory   The proto is consumed tensor by tensor.
#pragma once

#include <onnx/onnx_pb.h>

#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "ir/module.hpp"
#include "ir/onnx/external_data.hpp"

namespace davit::onnx_import {

class GraphReader {
 public:
  using FunctionNames = std::set<std::pair<std::string, std::string>>;  // Domain, name.

  // `module` has its opset imports. All references must outlive this.
  GraphReader(ir::Module& module, const FunctionNames& functions, ExternalData& external)
      : module_(module), functions_(functions), external_(external) {}

  // Fills the main graph. On an error the module is to be thrown away.
  Status read_main(onnx::GraphProto& proto);

 private:
  // The names that a graph defines; lookups go on in the graphs around it.
  struct Scope {
    ir::GraphId graph;
    const Scope* outer;
    std::unordered_map<std::string, ir::ValueId> names;
  };

  Status read_graph(onnx::GraphProto& proto, Scope& scope);
  Status read_initializers(onnx::GraphProto& proto, Scope& scope);
  Status read_inputs(const onnx::GraphProto& proto, Scope& scope);
  Status read_outputs(const onnx::GraphProto& proto, Scope& scope);
  // Outputs of all nodes, so that nodes can come in any order; Constant nodes become constants.
  Status declare_node_outputs(onnx::GraphProto& proto, Scope& scope);
  Status read_constant_node(onnx::NodeProto& proto, Scope& scope, const std::string& path);
  Status read_node(onnx::NodeProto& proto, const Scope& scope);
  Status read_attributes(onnx::NodeProto& proto, ir::NodeId node, const Scope& scope);
  Result<ir::AttributeValue> read_attribute(onnx::AttributeProto& proto, ir::NodeId node,
                                            const Scope& scope);
  Result<ir::GraphId> read_subgraph(onnx::GraphProto& proto, const std::string& name,
                                    ir::NodeId owner, const Scope& scope);
  // Dtype and shape of `value` from a declaration. What is already known must agree.
  Status read_type(const onnx::ValueInfoProto& proto, ir::ValueId value);
  Result<ir::Shape> read_shape(const onnx::TensorShapeProto& proto, const std::string& tensor);
  Status check_lists() const;

  Status declare(Scope& scope, const std::string& name, ir::ValueId value, const char* what);
  static ir::ValueId find(const Scope& scope, const std::string& name);
  [[nodiscard]] std::string node_path(const onnx::NodeProto& proto, int index,
                                      const Scope& scope) const;
  [[nodiscard]] Status error(const Scope& scope, DvtCode code, std::string message,
                             std::string tensor = {}) const;

  ir::Module& module_;
  const FunctionNames& functions_;
  ExternalData& external_;
  std::vector<std::string> function_calls_;  // "path (domain::Name)", to report at once.
  std::vector<std::string> unknown_domain_calls_;
};

}  // namespace davit::onnx_import
