#include "ir/verify.hpp"

#include <algorithm>
#include <unordered_set>

#include "base/checked.hpp"
#include "base/dtype.hpp"

namespace davit::ir {
namespace {

class Verifier {
 public:
  explicit Verifier(const Module& module)
      : module_(module),
        definitions_(module.value_count(), 0),
        reads_(module.value_count(), 0),
        graph_refs_(module.graph_count(), 0) {}

  Status run() {
    if (Status status = check_graphs(); !status.ok()) return status;
    for (uint32_t g = 0; g < module_.graph_count(); ++g) {
      if (!module_.graph_alive(GraphId{g})) continue;
      if (Status status = check_graph(GraphId{g}); !status.ok()) return status;
    }
    if (Status status = check_values(); !status.ok()) return status;
    if (Status status = check_subgraphs(); !status.ok()) return status;
    return module_.check_acyclic();
  }

 private:
  [[nodiscard]] Status error(GraphId graph, std::string message) const {
    return Status({.code = DVT_INTERNAL,
                   .stage = DVT_STAGE_CHECK,
                   .message = std::move(message),
                   .node = module_.graph_path(graph)});
  }
  [[nodiscard]] Status value_error(ValueId value, DvtCode code, std::string message) const {
    return Status({.code = code,
                   .stage = DVT_STAGE_CHECK,
                   .message = std::move(message),
                   .node = module_.graph_path(module_.value_graph(value)),
                   .tensor = std::string(module_.value_name(value))});
  }
  [[nodiscard]] Status node_error(NodeId node, std::string message) const {
    return Status(module_.error_at(node, DVT_INTERNAL, DVT_STAGE_CHECK, std::move(message)));
  }
  [[nodiscard]] bool live_value(ValueId value) const {
    return index_of(value) < module_.value_count() && module_.value_alive(value);
  }
  [[nodiscard]] bool live_node(NodeId node) const {
    return index_of(node) < module_.node_count() && module_.node_alive(node);
  }

  // Parents first, so that walks up the nesting end.
  Status check_graphs() {
    for (uint32_t g = 0; g < module_.graph_count(); ++g) {
      const GraphId graph{g};
      const GraphId parent = module_.graph_parent(graph);
      const NodeId owner = module_.graph_owner(graph);
      if (graph == kMainGraph ? parent != kNoGraph || owner != kNoNode : index_of(parent) >= g) {
        return Status(DVT_INTERNAL, DVT_STAGE_CHECK,
                      "graph " + std::to_string(g) + " has a wrong parent");
      }
      if (graph == kMainGraph || !module_.graph_alive(graph)) continue;
      if (!module_.graph_alive(parent) || !live_node(owner) ||
          module_.node_graph(owner) != parent) {
        return Status(DVT_INTERNAL, DVT_STAGE_CHECK,
                      "graph " + std::to_string(g) + " has no live owner in its parent");
      }
    }
    return {};
  }

  Status check_graph(GraphId graph) {
    for (const ValueId value : module_.graph_inputs(graph)) {
      if (!live_value(value) || module_.value_graph(value) != graph ||
          !module_.is_graph_input(value)) {
        return error(graph, "a graph input is not a live value of the graph");
      }
      ++definitions_[index_of(value)];
    }
    for (const NodeId node : module_.graph_nodes(graph)) {
      if (!live_node(node) || module_.node_graph(node) != graph) {
        return error(graph, "a listed node is erased or belongs to another graph");
      }
      if (Status status = check_node(node); !status.ok()) return status;
    }
    for (const ValueId value : module_.graph_outputs(graph)) {
      if (!live_value(value) || !module_.encloses(module_.value_graph(value), graph)) {
        return error(graph, "a graph output is not defined in the graph or around it");
      }
      if (!module_.is_graph_output(value)) {
        return value_error(value, DVT_INTERNAL, "the value does not know that it is an output");
      }
    }
    return {};
  }

  Status check_node(NodeId node) {
    if (module_.op(node).empty()) return node_error(node, "a node has no operator");
    const std::span<const ValueId> inputs = module_.inputs(node);
    for (uint32_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] == kNoValue) continue;
      if (!live_value(inputs[i])) {
        return node_error(node, "input " + std::to_string(i) + " is not a live value");
      }
      if (!module_.encloses(module_.value_graph(inputs[i]), module_.node_graph(node))) {
        return node_error(node, "input '" + std::string(module_.value_name(inputs[i])) +
                                    "' is not visible from the node's graph");
      }
      ++reads_[index_of(inputs[i])];
    }
    for (const ValueId value : module_.outputs(node)) {
      if (value == kNoValue) continue;
      if (!live_value(value) || module_.producer(value) != node ||
          module_.value_graph(value) != module_.node_graph(node)) {
        return node_error(node, "an output is not a live value that names the node its producer");
      }
      ++definitions_[index_of(value)];
    }
    for (const NodeId before : module_.control_inputs(node)) {
      if (!live_node(before) || module_.node_graph(before) != module_.node_graph(node)) {
        return node_error(node, "a control edge comes from outside the node's graph");
      }
    }
    for (const GraphId graph : module_.nested_graphs(node)) {
      if (index_of(graph) >= module_.graph_count() || module_.graph_owner(graph) != node) {
        return node_error(node, "a subgraph attribute names a graph of another node");
      }
      ++graph_refs_[index_of(graph)];
    }
    return {};
  }

  Status check_values() {
    std::vector<std::unordered_set<std::string_view>> names(module_.graph_count());
    for (uint32_t v = 0; v < module_.value_count(); ++v) {
      const ValueId value{v};
      if (!module_.value_alive(value)) continue;
      const GraphId graph = module_.value_graph(value);
      if (index_of(graph) >= module_.graph_count() || !module_.graph_alive(graph)) {
        return Status(DVT_INTERNAL, DVT_STAGE_CHECK,
                      "value '" + std::string(module_.value_name(value)) + "' is in no live graph");
      }
      const std::string_view name = module_.value_name(value);
      if (name.empty()) return value_error(value, DVT_INVALID_IMAGE, "a value has no name");
      if (!names[index_of(graph)].insert(name).second) {
        return value_error(value, DVT_INVALID_IMAGE, "two values of one graph have this name");
      }
      if (module_.constant(value) != nullptr) ++definitions_[v];
      if (definitions_[v] != 1) {
        return value_error(
            value, DVT_INVALID_IMAGE,
            "the value has " + std::to_string(definitions_[v]) + " definitions instead of one");
      }
      if (Status status = check_uses(value); !status.ok()) return status;
      if (Status status = check_constant(value); !status.ok()) return status;
    }
    return {};
  }

  [[nodiscard]] Status check_uses(ValueId value) const {
    const std::vector<Module::Use> uses = module_.uses(value);
    for (const Module::Use use : uses) {
      if (!live_node(use.node) || use.operand >= module_.inputs(use.node).size() ||
          module_.inputs(use.node)[use.operand] != value) {
        return value_error(value, DVT_INTERNAL, "a listed use does not read the value");
      }
    }
    if (uses.size() != reads_[index_of(value)]) {
      return value_error(value, DVT_INTERNAL, "the list of uses misses one");
    }
    return {};
  }

  [[nodiscard]] Status check_constant(ValueId value) const {
    const TensorData* data = module_.constant(value);
    if (data == nullptr) return {};
    const std::optional<uint64_t> elements = checked_elements(data->dims);
    if (!elements) return value_error(value, DVT_INVALID_IMAGE, "impossible dims");
    const std::optional<uint64_t> bytes = checked_mul(*elements, dvt_dtype_size(data->dtype));
    if (!dtype_is_valid(data->dtype) || !data->bytes || bytes != data->bytes->size()) {
      return value_error(value, DVT_INVALID_IMAGE, "bytes and dims disagree");
    }
    const Shape* shape = module_.shape(value);
    if (module_.dtype(value) != data->dtype || shape == nullptr ||
        static_extents(*shape) != data->dims) {
      return value_error(value, DVT_INTERNAL, "dtype or shape differ from the constant's");
    }
    return {};
  }

  [[nodiscard]] Status check_subgraphs() const {
    for (uint32_t g = 1; g < module_.graph_count(); ++g) {
      const GraphId graph{g};
      if (graph_refs_[g] != uint32_t(module_.graph_alive(graph))) {
        return error(graph, "the graph is not named by exactly one attribute of its owner");
      }
    }
    return {};
  }

  const Module& module_;
  std::vector<uint32_t> definitions_;
  std::vector<uint32_t> reads_;
  std::vector<uint32_t> graph_refs_;
};

}  // namespace

Status verify(const Module& module) {
  return Verifier(module).run();
}

}  // namespace davit::ir
