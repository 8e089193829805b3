// nested_graphs.hpp: modules with bodies of If and Loop, for tests.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ir/module.hpp"

namespace davit::testing {

// Builds graphs of any depth. Every value is named after its node.
class NestedGraphs {
 public:
  NestedGraphs() {
    module.opset_imports[""] = 13;
    module.source_name = "flow.onnx";
    module.source_digest = std::string(32, '0');
  }
  ir::ValueId input(ir::GraphId graph, const std::string& name, DvtDType dtype,
                    const std::vector<int64_t>& dims) {
    const ir::ValueId value = module.add_value(graph, name);
    module.set_dtype(value, dtype);
    ir::Shape shape;
    for (const int64_t dim : dims) {
      shape.push_back(dim < 0 ? ir::Dim() : ir::Dim(dim));
    }
    module.set_shape(value, std::move(shape));
    module.add_graph_input(graph, value);
    return value;
  }
  ir::ValueId node(ir::GraphId graph, const std::string& op, std::vector<ir::ValueId> inputs,
                   const std::string& name) {
    const ir::ValueId value = module.add_value(graph, name);
    add(graph, op, std::move(inputs), {value}, name);
    return value;
  }
  ir::NodeId add(ir::GraphId graph, const std::string& op, std::vector<ir::ValueId> inputs,
                 std::vector<ir::ValueId> outputs, const std::string& name) {
    return module.add_node(graph, {.domain = "",
                                   .op = op,
                                   .name = name,
                                   .inputs = std::move(inputs),
                                   .outputs = std::move(outputs),
                                   .attributes = {}});
  }
  // A subgraph of `owner`, which `fill` builds; it returns the outputs.
  void body(ir::NodeId owner, const std::string& attribute,
            const std::function<std::vector<ir::ValueId>(ir::GraphId)>& fill) {
    const ir::GraphId graph = module.add_graph(attribute, module.node_graph(owner), owner);
    module.set_attribute(owner, attribute, graph);
    module.set_graph_outputs(graph, fill(graph));
  }
  ir::ValueId value(ir::GraphId graph, const std::string& name) {
    return module.add_value(graph, name);
  }
  ir::ValueId constant(ir::GraphId graph, const std::string& name, ir::TensorData data) {
    return module.add_constant(graph, name, std::move(data));
  }

  ir::Module module;
};

}  // namespace davit::testing
