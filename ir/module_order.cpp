// Module: the order of nodes, and cycles.
#include <algorithm>
#include <functional>
#include <queue>

#include "ir/module.hpp"

namespace davit::ir {

// For each node, those of its graph that must come later. An edge appears once per operand that
// makes it.
Module::Successors Module::successors() const {
  Successors out(node_count());
  // What a nested graph reads, the node that owns it reads: climb to the graph of `from`.
  const auto add_edge = [&](NodeId from, GraphId reader_graph, NodeId reader) {
    const GraphId home = node_graph(from);
    while (reader_graph != home && reader_graph != kNoGraph) {
      reader = graph_owner(reader_graph);
      reader_graph = graph_parent(reader_graph);
    }
    if (reader != kNoNode) out[index_of(from)].push_back(reader);
  };
  for (uint32_t g = 0; g < graph_count(); ++g) {
    const GraphId graph{g};
    const auto add_operand = [&](ValueId value, NodeId reader) {
      if (value == kNoValue || producer(value) == kNoNode) return;
      add_edge(producer(value), graph, reader);
    };
    for (const NodeId node : graph_nodes(graph)) {
      for (const ValueId value : inputs(node)) add_operand(value, node);
      for (const NodeId before : control_inputs(node)) add_edge(before, graph, node);
    }
    for (const ValueId value : graph_outputs(graph)) add_operand(value, kNoNode);
  }
  return out;
}

// The order of each graph. Kahn's algorithm; the position in the old order breaks ties.
Result<std::vector<std::vector<NodeId>>> Module::topological_orders() const {
  const Successors next = successors();
  std::vector<uint32_t> pending(node_count(), 0);
  for (const std::vector<NodeId>& targets : next) {
    for (const NodeId target : targets) ++pending[index_of(target)];
  }
  std::vector<std::vector<NodeId>> orders(graph_count());
  std::vector<uint32_t> position(node_count(), kNone);
  for (uint32_t g = 0; g < graph_count(); ++g) {
    const std::span<const NodeId> nodes = graph_nodes(GraphId{g});
    std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
    for (uint32_t i = 0; i < nodes.size(); ++i) {
      position[index_of(nodes[i])] = i;
      if (pending[index_of(nodes[i])] == 0) ready.push(i);
    }
    orders[g].reserve(nodes.size());
    while (!ready.empty()) {
      const NodeId node = nodes[ready.top()];
      ready.pop();
      orders[g].push_back(node);
      for (const NodeId target : next[index_of(node)]) {
        if (--pending[index_of(target)] == 0) ready.push(position[index_of(target)]);
      }
    }
    if (orders[g].size() == nodes.size()) continue;
    const auto unplaced = std::find_if(nodes.begin(), nodes.end(),
                                       [&](NodeId node) { return pending[index_of(node)] > 0; });
    return cycle_error(*unplaced, next, pending);
  }
  return orders;
}

Status Module::sort() {
  Result<std::vector<std::vector<NodeId>>> orders = topological_orders();
  if (!orders.ok()) return std::move(orders.status());
  for (uint32_t g = 0; g < graph_count(); ++g) graphs_[g].nodes = std::move((*orders)[g]);
  return {};
}

Status Module::check_acyclic() const {
  return std::move(topological_orders().status());
}

// Precondition: pending[i] > 0 marks the nodes that could not be placed, `unplaced` is one.
Status Module::cycle_error(NodeId unplaced, const Successors& successors,
                           std::span<const uint32_t> pending) const {
  // Each unplaced node has an unplaced predecessor, so walking back must meet a node again.
  std::vector<NodeId> predecessor(node_count(), kNoNode);
  for (const NodeId from : graph_nodes(node_graph(unplaced))) {
    if (pending[index_of(from)] == 0) continue;
    for (const NodeId to : successors[index_of(from)]) predecessor[index_of(to)] = from;
  }
  std::vector<uint8_t> seen(node_count(), 0);
  NodeId at = unplaced;
  while (seen[index_of(at)] == 0) {
    seen[index_of(at)] = 1;
    at = predecessor[index_of(at)];
  }
  std::vector<NodeId> cycle{at};
  for (NodeId i = predecessor[index_of(at)]; i != at; i = predecessor[index_of(i)]) {
    cycle.push_back(i);
  }
  std::reverse(cycle.begin() + 1, cycle.end());

  constexpr size_t kListed = 16;
  std::string path;
  for (size_t i = 0; i < std::min(cycle.size(), kListed); ++i) path += node_path(cycle[i]) + " -> ";
  if (cycle.size() > kListed) path += "... -> ";
  path += node_path(at);
  return Status(error_at(at, DVT_INVALID_IMAGE, DVT_STAGE_CHECK,
                         "the graph has a cycle of " + std::to_string(cycle.size()) +
                             (cycle.size() == 1 ? " node: " : " nodes: ") + path));
}

}  // namespace davit::ir
