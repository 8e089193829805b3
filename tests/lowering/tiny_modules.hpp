// tiny_modules.hpp: modules of a few nodes, for the tests of lowering.
#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "ir/module.hpp"

namespace davit::testing {

inline ir::TensorData f32_tensor(std::vector<int64_t> dims, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return ir::make_tensor(DVT_F32, std::move(dims), std::move(bytes));
}

// Builds a main graph of f32 tensors, opset 13. Shapes of results are left to inference.
class TinyModule {
 public:
  TinyModule() {
    module_.opset_imports[""] = 13;
    module_.source_name = "tiny.onnx";
    module_.source_digest = std::string(32, '0');
  }

  ir::ValueId input(const std::string& name, const std::vector<int64_t>& dims) {
    const ir::ValueId value = module_.add_value(ir::kMainGraph, name);
    module_.set_dtype(value, DVT_F32);
    ir::Shape shape;
    for (const int64_t dim : dims) shape.push_back(dim < 0 ? ir::Dim() : ir::Dim(dim));
    module_.set_shape(value, std::move(shape));
    module_.add_graph_input(ir::kMainGraph, value);
    return value;
  }
  ir::ValueId constant(const std::string& name, ir::TensorData data) {
    return module_.add_constant(ir::kMainGraph, name, std::move(data));
  }
  // A node with one output of the given name.
  ir::ValueId node(const std::string& op, std::vector<ir::ValueId> inputs,
                   const std::string& output, std::vector<ir::Attribute> attributes = {}) {
    const ir::ValueId value = module_.add_value(ir::kMainGraph, output);
    module_.add_node(ir::kMainGraph, {.domain = "",
                                      .op = op,
                                      .name = op + "_" + output,
                                      .inputs = std::move(inputs),
                                      .outputs = {value},
                                      .attributes = std::move(attributes)});
    return value;
  }
  ir::Module build(std::vector<ir::ValueId> outputs) {
    module_.set_graph_outputs(ir::kMainGraph, std::move(outputs));
    return std::move(module_);
  }

 private:
  ir::Module module_;
};

}  // namespace davit::testing
