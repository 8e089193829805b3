// graphs.hpp: graphs whose nodes compute, so that a wrong order gives a wrong result.
//
// A node hashes the results of its predecessors with its own number. Results are plain memory: a
// node that runs too early reads what ThreadSanitizer reports and what the sequential loop would
// not.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <vector>

#include "davit/kernel.h"
#include "exec/mt_topo/topology.hpp"
#include "lowering/schedule/planner.hpp"

namespace davit::test {

struct WorkGraph;

struct WorkNode {
  WorkGraph* graph = nullptr;
  uint32_t index = 0;
  std::vector<uint32_t> from;
  uint64_t result = 0;
  uint32_t runs = 0;
  int32_t code = DVT_OK;        // What it returns.
  uint32_t spin = 0;            // Turns of work.
  std::function<void()> extra;  // Called in the middle, when set.
};

struct WorkGraph {
  std::vector<WorkNode> nodes;
  std::vector<DvtStep> steps;
  std::vector<uint32_t> successor_offsets, successors, indegree;
  std::vector<uint8_t> lane;
  uint64_t memory_state = 0;           // Changed by memory nodes, which run one at a time.
  std::vector<uint32_t> launch_order;  // Likewise by launches.

  WorkGraph() = default;
  WorkGraph(const WorkGraph&) = delete;
  WorkGraph& operator=(const WorkGraph&) = delete;

  // `from` lists the predecessors of each node, all before it.
  void build(const std::vector<std::vector<uint32_t>>& from) {
    const auto count = static_cast<uint32_t>(from.size());
    nodes.resize(count);
    lane.assign(count, DVT_KERNEL_LANE_NORMAL);
    std::vector<std::vector<uint32_t>> to(count);
    for (uint32_t node = 0; node < count; ++node) {
      nodes[node].graph = this;
      nodes[node].index = node;
      nodes[node].from = from[node];
      for (const uint32_t source : from[node]) to[source].push_back(node);
      indegree.push_back(static_cast<uint32_t>(from[node].size()));
      steps.push_back({run_node, &nodes[node]});
    }
    successor_offsets.push_back(0);
    for (const auto& targets : to) {
      successors.insert(successors.end(), targets.begin(), targets.end());
      successor_offsets.push_back(static_cast<uint32_t>(successors.size()));
    }
  }

  [[nodiscard]] mt_topo::Tables tables() const {
    return {.steps = steps,
            .successor_offsets = successor_offsets,
            .successors = successors,
            .indegree = indegree,
            .lane = lane,
            .priority = {}};
  }

  // Of equal costs, so that it spreads over all workers.
  [[nodiscard]] schedule::Plan plan(uint32_t workers) const {
    const std::vector<double> cost(nodes.size(), 1000.0);
    return schedule::make_plan({successor_offsets, successors, lane, cost},
                               {.workers = workers, .transfer_ns = 10, .gain = 1.0});
  }

  void reset() {
    for (WorkNode& node : nodes) {
      node.result = 0;
      node.runs = 0;
    }
    memory_state = 0;
    launch_order.clear();
  }

  [[nodiscard]] std::vector<uint64_t> results() const {
    std::vector<uint64_t> all;
    for (const WorkNode& node : nodes) all.push_back(node.result);
    return all;
  }

 private:
  static uint64_t mix(uint64_t a, uint64_t b) {
    return (a ^ (b + 0x9E3779B97F4A7C15 + (a << 6) + (a >> 2))) * 0xBF58476D1CE4E5B9;
  }

  static int32_t run_node(void* context) {
    auto& node = *static_cast<WorkNode*>(context);
    uint64_t hash = node.index;
    for (const uint32_t from : node.from) hash = mix(hash, node.graph->nodes[from].result);
    for (uint32_t i = 0; i < node.spin; ++i) hash = mix(hash, i);
    if (node.graph->lane[node.index] == DVT_KERNEL_LANE_MEMORY) ++node.graph->memory_state;
    if (node.graph->lane[node.index] == DVT_KERNEL_LANE_LAUNCH) {
      node.graph->launch_order.push_back(node.index);
    }
    if (node.extra) node.extra();
    node.result = hash;
    ++node.runs;
    return node.code;
  }
};

inline mt_topo::PlanTables tables_of(const schedule::Plan& plan) {
  return {.part_offsets = plan.part_offsets,
          .order = plan.order,
          .wait_offsets = plan.wait_offsets,
          .waits = plan.waits};
}

// Any shape: chains, fans, layers, unconnected pieces, by chance.
inline std::vector<std::vector<uint32_t>> random_edges(std::mt19937& random, uint32_t count) {
  std::vector<std::vector<uint32_t>> from(count);
  const uint32_t reach = 1 + random() % count;  // How far back edges go.
  const uint32_t most = 1 + random() % 4;       // Of predecessors.
  const uint32_t loose = random() % 5;          // How many nodes in 10 have none.
  for (uint32_t node = 1; node < count; ++node) {
    if (random() % 10 < loose) continue;
    const uint32_t wanted = 1 + random() % most;
    for (uint32_t i = 0; i < wanted; ++i) {
      const uint32_t source = node - 1 - random() % std::min(node, reach);
      auto& sources = from[node];
      if (std::find(sources.begin(), sources.end(), source) == sources.end()) {
        sources.push_back(source);
      }
    }
  }
  if (count > 20 && random() % 4 == 0) {  // A wide fan-in.
    from[count - 1].clear();
    for (uint32_t node = 0; node + 1 < count; node += 1 + random() % 2)
      from[count - 1].push_back(node);
  }
  return from;
}

}  // namespace davit::test
