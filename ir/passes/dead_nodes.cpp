#include "ir/passes/passes.hpp"

namespace davit::passes {
namespace {

// Marks what the outputs of the main graph need, through any nesting.
class Liveness {
 public:
  explicit Liveness(const ir::Module& module) : module_(module), live_(module.node_count(), 0) {
    mark_outputs(ir::kMainGraph);
    while (!pending_.empty()) {
      const ir::NodeId node = pending_.back();
      pending_.pop_back();
      for (const ir::ValueId value : module_.inputs(node)) mark_value(value);
      for (const ir::NodeId before : module_.control_inputs(node)) mark(before);
      for (const ir::GraphId graph : module_.nested_graphs(node)) mark_outputs(graph);
    }
  }

  [[nodiscard]] bool live(ir::NodeId node) const { return live_[index_of(node)] != 0; }

 private:
  void mark_outputs(ir::GraphId graph) {
    for (const ir::ValueId value : module_.graph_outputs(graph)) mark_value(value);
  }
  void mark_value(ir::ValueId value) {
    if (value != ir::kNoValue && module_.producer(value) != ir::kNoNode) {
      mark(module_.producer(value));
    }
  }
  void mark(ir::NodeId node) {
    if (live(node)) return;
    live_[index_of(node)] = 1;
    pending_.push_back(node);
  }

  const ir::Module& module_;
  std::vector<uint8_t> live_;
  std::vector<ir::NodeId> pending_;
};

}  // namespace

Result<uint32_t> remove_dead_nodes(ir::Module& module) {
  const Liveness liveness(module);
  std::vector<ir::NodeId> dead;
  for (uint32_t n = 0; n < module.node_count(); ++n) {
    const ir::NodeId node{n};
    if (module.node_alive(node) && !liveness.live(node)) dead.push_back(node);
  }
  module.erase_nodes(dead);
  for (uint32_t v = 0; v < module.value_count(); ++v) {
    const ir::ValueId value{v};
    if (module.value_alive(value) && module.constant(value) != nullptr && !module.has_uses(value) &&
        !module.is_graph_output(value)) {
      module.erase_constant(value);
    }
  }
  return uint32_t(dead.size());
}

}  // namespace davit::passes
