// graph_reader.hpp: GraphProto, with its subgraphs, to graphs of a Module.
//
// A call of a function is replaced by the function's body: its nodes and tensors are named
// "call/inner" and keep the opsets that the function imports.
//
// Threads  Externally synchronised.
// Trust    Protos are untrusted. Recursion follows the nesting of the protos, which protobuf's
//          parser has bounded (100 messages, 33 graphs), and of calls, which is bounded here. So is
//          what all bodies together may add.
// Memory   The proto is consumed tensor by tensor; functions are copied for each call.
#pragma once

#include <onnx/onnx_pb.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.hpp"
#include "ir/module.hpp"
#include "ir/onnx/external_data.hpp"
#include "ir/onnx/functions.hpp"

namespace davit::onnx_import {

class GraphReader {
 public:
  // `module` has its opset imports. All references must outlive this.
  GraphReader(ir::Module& module, const Functions& functions, ExternalData& external)
      : module_(module), functions_(functions), external_(external) {}

  // Fills the main graph. On an error the module is to be thrown away.
  Status read_main(onnx::GraphProto& proto);

  // Puts the body of `function` in the place of `node`, which `call` describes: its attributes
  // count, its operands are the node's. The node is left without outputs, to be erased.
  Status expand_node(ir::NodeId node, const onnx::NodeProto& call,
                     const onnx::FunctionProto& function);

 private:
  // The names that a graph defines; lookups go on in the graphs around it.
  struct Scope {
    ir::GraphId graph;
    const Scope* outer;
    std::unordered_map<std::string, ir::ValueId> names;
    const FunctionCall* call = nullptr;  // The innermost one in whose body this is.
    // The scope of a body itself: what stands before the names it adds, and the values that its
    // outputs are.
    std::string prefix = {};
    std::unordered_map<std::string, ir::ValueId> results = {};
  };
  using Nodes = google::protobuf::RepeatedPtrField<onnx::NodeProto>;

  Status read_graph(onnx::GraphProto& proto, Scope& scope);
  Status read_initializers(onnx::GraphProto& proto, Scope& scope);
  Status read_inputs(const onnx::GraphProto& proto, Scope& scope);
  Status read_outputs(const onnx::GraphProto& proto, Scope& scope);
  // Outputs of all nodes, so that nodes can come in any order; Constant nodes become constants.
  Status declare_node_outputs(Nodes& nodes, Scope& scope);
  Status read_constant_node(onnx::NodeProto& proto, Scope& scope, const std::string& path);
  Status read_node(onnx::NodeProto& proto, int index, const Scope& scope);
  // Operands of a node by their names.
  Status read_operands(const onnx::NodeProto& proto, const std::string& path, const Scope& scope,
                       ir::Module::NodeInit& init) const;
  Status read_attributes(onnx::NodeProto& proto, ir::NodeId node, const Scope& scope);
  Result<ir::AttributeValue> read_attribute(onnx::AttributeProto& proto, ir::NodeId node,
                                            const Scope& scope);
  // What an attribute that refers to one of the function stands for; nullptr when the call does not
  // have it. Any other attribute is itself.
  static Result<onnx::AttributeProto*> resolve(onnx::AttributeProto& proto, const Scope& scope);
  Result<ir::GraphId> read_subgraph(onnx::GraphProto& proto, const std::string& name,
                                    ir::NodeId owner, const Scope& scope);
  // Dtype and shape of `value` from a declaration. What is already known must agree.
  Status read_type(const onnx::ValueInfoProto& proto, ir::ValueId value);
  // The same of an input or output of the model, which may be a sequence or an optional.
  Status read_port(const onnx::ValueInfoProto& proto, ir::ValueId value);
  Result<ir::Shape> read_shape(const onnx::TensorShapeProto& proto, const std::string& tensor);
  Status check_lists() const;

  // The body of a function in the place of a call with these operands; `path` is the call's, `name`
  // without its graph.
  struct CallSite {
    const Scope& scope;
    std::string path, name;
    const std::vector<ir::ValueId>& inputs;
    const std::vector<ir::ValueId>& outputs;  // Without definitions.
  };
  Status expand(const CallSite& site, const onnx::NodeProto& call,
                const onnx::FunctionProto& function);
  Status bind_attributes(const CallSite& site, const onnx::NodeProto& call,
                         const onnx::FunctionProto& function, FunctionCall& bound) const;
  static Status bind_opsets(const CallSite& site, const onnx::FunctionProto& function,
                            FunctionCall& bound);
  static Status bind_operands(const CallSite& site, const onnx::FunctionProto& function,
                              Scope& inner);
  Status check_limits(const CallSite& site, const onnx::FunctionProto& function);
  // Outputs that the body does not compute but passes on.
  Status pass_on(const CallSite& site, const onnx::FunctionProto& function, const Scope& inner);

  Status declare(Scope& scope, const std::string& name, ir::ValueId value, const char* what);
  // nullptr when nothing defines the name; absent inputs of a function are kNoValue.
  static const ir::ValueId* find(const Scope& scope, const std::string& name);
  // The import of a domain where the scope is in a function that has one, else 0.
  static int64_t own_opset(const Scope& scope, const std::string& domain);
  [[nodiscard]] std::string node_path(const onnx::NodeProto& proto, int index,
                                      const Scope& scope) const;
  [[nodiscard]] Status error(const Scope& scope, DvtCode code, std::string message,
                             std::string tensor = {}) const;

  ir::Module& module_;
  const Functions& functions_;
  ExternalData& external_;
  std::vector<std::string> unknown_domain_calls_;  // "path (domain::Name)", to report at once.
  uint64_t expanded_nodes_ = 0, expanded_bytes_ = 0;
};

}  // namespace davit::onnx_import
