#include "stress/random_module.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace davit::stress {
namespace {

using ir::GraphId;
using ir::kMainGraph;
using ir::NodeId;
using ir::ValueId;

constexpr const char* kUnary[] = {"Relu", "Sigmoid", "Neg", "Identity"};
constexpr const char* kBinary[] = {"Add", "Mul", "Sub"};
constexpr uint32_t kDepthMax = 3;

class Maker {
 public:
  Maker(Random& random, const ModelOptions& options) : random_(random), options_(options) {
    module_.opset_imports[""] = 13;
    module_.source_name = "stress";
    module_.source_digest = std::string(32, '0');
  }

  ir::Module make() {
    const std::vector<ValueId> values = {input(kMainGraph, "a", DVT_F32, matrix()),
                                         input(kMainGraph, "b", DVT_F32, matrix())};
    go_ = input(kMainGraph, "go", DVT_BOOL, {});
    trip_ = input(kMainGraph, "trip", DVT_I64, {});
    index_ = input(kMainGraph, "index", DVT_I64, {1});
    module_.set_graph_outputs(kMainGraph, {fill(kMainGraph, values, 2 + pick(40), 0)});
    return std::move(module_);
  }

 private:
  uint32_t pick(uint64_t below) { return static_cast<uint32_t>(random_() % below); }
  std::string fresh(const char* prefix) { return prefix + std::to_string(names_++); }
  [[nodiscard]] std::vector<int64_t> matrix() const { return {options_.rows, options_.columns}; }

  ValueId input(GraphId graph, const std::string& name, DvtDType dtype,
                const std::vector<int64_t>& dims) {
    const ValueId value = module_.add_value(graph, name);
    module_.set_dtype(value, dtype);
    ir::Shape shape;
    for (const int64_t dim : dims) shape.push_back(dim < 0 ? ir::Dim() : ir::Dim(dim));
    module_.set_shape(value, std::move(shape));
    module_.add_graph_input(graph, value);
    return value;
  }
  NodeId add(GraphId graph, const char* op, std::vector<ValueId> inputs,
             std::vector<ValueId> outputs) {
    return module_.add_node(graph, {.domain = "",
                                    .op = op,
                                    .name = fresh("n"),
                                    .inputs = std::move(inputs),
                                    .outputs = std::move(outputs),
                                    .attributes = {}});
  }
  ValueId node(GraphId graph, const char* op, std::vector<ValueId> inputs) {
    const ValueId value = module_.add_value(graph, fresh("v"));
    add(graph, op, std::move(inputs), {value});
    return value;
  }

  // `count` nodes behind `values`, which are those around; what the last gives.
  ValueId fill(GraphId graph, std::vector<ValueId> values, uint32_t count, uint32_t depth) {
    uint32_t flows = depth == 0 ? options_.flows : 0;
    if (depth > 0 && depth < kDepthMax && pick(3) == 0) flows = 1;
    for (uint32_t i = 0; i < count; ++i) {
      const auto operand = [&] {
        return values[values.size() - 1 - pick(std::min<size_t>(values.size(), 6))];
      };
      const bool flow = flows > 0 && (count - i <= flows || pick(count) < flows);
      flows -= flow ? 1 : 0;
      if (flow) {
        values.push_back(pick(2) == 0 ? branch(graph, values, depth)
                                      : loop(graph, operand(), values, depth));
      } else if (options_.takes_by_index && pick(12) == 0) {
        const ValueId from = operand();
        values.push_back(node(graph, "Add", {from, node(graph, "Gather", {from, index_})}));
      } else if (pick(2) == 0) {
        values.push_back(node(graph, kUnary[pick(4)], {operand()}));
      } else {
        values.push_back(node(graph, kBinary[pick(3)], {operand(), operand()}));
      }
    }
    return values.back();
  }

  // The result of a body: now and then one of the values around as it is.
  ValueId fill_body(GraphId graph, const std::vector<ValueId>& values, uint32_t depth) {
    if (pick(6) == 0) return values[pick(values.size())];
    return fill(graph, values, 1 + pick(12), depth + 1);
  }

  ValueId branch(GraphId graph, const std::vector<ValueId>& values, uint32_t depth) {
    const ValueId result = module_.add_value(graph, fresh("v"));
    const ValueId condition = pick(2) == 0 ? go_ : node(graph, "Not", {go_});
    const NodeId owner = add(graph, "If", {condition}, {result});
    for (const char* attribute : {"then_branch", "else_branch"}) {
      const GraphId body = module_.add_graph(attribute, graph, owner);
      module_.set_attribute(owner, attribute, body);
      module_.set_graph_outputs(body, {fill_body(body, values, depth)});
    }
    return result;
  }

  ValueId loop(GraphId graph, ValueId initial, const std::vector<ValueId>& values, uint32_t depth) {
    const bool collects = pick(2) == 0;
    std::vector<ValueId> outputs = {module_.add_value(graph, fresh("v"))};
    if (collects) outputs.push_back(module_.add_value(graph, fresh("v")));
    const NodeId owner =
        add(graph, "Loop", {trip_, pick(2) == 0 ? go_ : ir::kNoValue, initial}, outputs);
    const GraphId body = module_.add_graph("body", graph, owner);
    module_.set_attribute(owner, "body", body);
    input(body, fresh("i"), DVT_I64, {});
    const ValueId condition = input(body, fresh("c"), DVT_BOOL, {});
    std::vector<ValueId> inside = values;
    inside.push_back(input(body, fresh("s"), DVT_F32, matrix()));
    const ValueId next = fill_body(body, inside, depth);
    std::vector<ValueId> results = {condition, next};
    if (collects) results.push_back(next);
    module_.set_graph_outputs(body, results);
    return outputs[0];
  }

  Random& random_;
  const ModelOptions& options_;
  ir::Module module_;
  uint32_t names_ = 0;
  ValueId go_ = ir::kNoValue, trip_ = ir::kNoValue, index_ = ir::kNoValue;
};

}  // namespace

ir::Module random_module(Random& random, const ModelOptions& options) {
  return Maker(random, options).make();
}

}  // namespace davit::stress
