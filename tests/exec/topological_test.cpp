// The topological executors against their definition, on random graphs.
#include "exec/sequential_c/topological.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace {

struct Graph;
struct Node {
  Graph* graph;
  uint32_t index;
};

struct Graph {
  std::vector<std::vector<uint32_t>> succ;
  std::vector<int32_t> priority;
  std::vector<uint32_t> order;  // Of the last run.
  uint32_t failing = UINT32_MAX;

  std::vector<Node> nodes;
  std::vector<DvtStep> steps;
  std::vector<uint32_t> succ_off, succ_flat, indegree;
  std::vector<uint64_t> memory;
  DvtTopology topology{};

  static int32_t visit(void* context) {
    const auto* node = static_cast<const Node*>(context);
    node->graph->order.push_back(node->index);
    return node->index == node->graph->failing ? 7 : 0;
  }

  void finish(bool with_priority) {
    const auto n = uint32_t(succ.size());
    nodes.clear();
    for (uint32_t i = 0; i < n; ++i) nodes.push_back({this, i});
    for (uint32_t i = 0; i < n; ++i) steps.push_back({visit, &nodes[i]});
    indegree.assign(n, 0);
    succ_off.assign(1, 0);
    for (const auto& row : succ) {
      for (const uint32_t to : row) {
        succ_flat.push_back(to);
        ++indegree[to];
      }
      succ_off.push_back(uint32_t(succ_flat.size()));
    }
    memory.assign(dvt_topology_bytes(n) / 8 + 1, ~uint64_t{0});
    topology = {.steps = steps.data(),
                .count = n,
                .succ_off = succ_off.data(),
                .succ = succ_flat.data(),
                .indegree = indegree.data(),
                .priority = with_priority ? priority.data() : nullptr,
                .roots = nullptr,
                .root_count = 0,
                .memory = memory.data(),
                .epoch = 0};
    dvt_topology_init(&topology);
  }
};

void fill_random(Graph& graph, uint32_t seed) {
  std::mt19937 random(seed);
  const uint32_t n = 1 + random() % 60;
  graph.succ.resize(n);
  for (uint32_t i = 0; i < n; ++i) {
    graph.priority.push_back(int32_t(random() % 5) - 2);
    for (uint32_t k = i + 1; k < n; ++k) {
      if (random() % 8 == 0) graph.succ[i].push_back(k);
    }
  }
}

// What the definition says: of the ready steps, the smallest (priority, index).
std::vector<uint32_t> by_definition(const Graph& graph) {
  std::vector<uint32_t> left = graph.indegree, order;
  std::vector<bool> done(left.size(), false);
  while (order.size() < left.size()) {
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < left.size(); ++i) {
      if (done[i] || left[i] != 0) continue;
      if (best == UINT32_MAX || graph.priority[i] < graph.priority[best]) best = i;
    }
    done[best] = true;
    order.push_back(best);
    for (const uint32_t next : graph.succ[best]) --left[next];
  }
  return order;
}

bool is_topological(const Graph& graph) {
  std::vector<uint32_t> position(graph.succ.size(), UINT32_MAX);
  for (uint32_t at = 0; at < graph.order.size(); ++at) {
    if (position[graph.order[at]] != UINT32_MAX) return false;
    position[graph.order[at]] = at;
  }
  for (uint32_t i = 0; i < graph.succ.size(); ++i) {
    for (const uint32_t next : graph.succ[i]) {
      if (position[next] != UINT32_MAX && position[i] > position[next]) return false;
    }
  }
  return true;
}

}  // namespace

TEST_CASE("every step runs once, after its predecessors, run after run") {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    Graph graph;
    fill_random(graph, seed);
    graph.finish(seed % 2 == 0);
    for (int run = 0; run < 3; ++run) {
      graph.order.clear();
      int32_t code = -1;
      REQUIRE(dvt_topological_run(&graph.topology, &code) == graph.topology.count);
      CHECK(code == 0);
      REQUIRE(graph.order.size() == graph.succ.size());
      REQUIRE(is_topological(graph));
    }
  }
}

TEST_CASE("the priority executor follows its definition") {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    Graph graph;
    fill_random(graph, seed);
    graph.finish(true);
    int32_t code = -1;
    REQUIRE(dvt_priority_run(&graph.topology, &code) == graph.topology.count);
    REQUIRE(graph.order == by_definition(graph));
  }
}

TEST_CASE("a failure at every step stops the run, and the next run is right") {
  for (const bool by_priority : {false, true}) {
    Graph graph;
    fill_random(graph, 11);
    graph.finish(true);
    const auto run = [&](int32_t* code) {
      graph.order.clear();
      return by_priority ? dvt_priority_run(&graph.topology, code)
                         : dvt_topological_run(&graph.topology, code);
    };
    for (uint32_t failing = 0; failing < graph.topology.count; ++failing) {
      graph.failing = failing;
      int32_t code = 0;
      CHECK(run(&code) == failing);
      CHECK(code == 7);
      CHECK(graph.order.back() == failing);
      graph.failing = UINT32_MAX;
      CHECK(run(&code) == graph.topology.count);
      CHECK(code == 0);
      CHECK(graph.order.size() == graph.succ.size());
      CHECK(is_topological(graph));
    }
  }
}

TEST_CASE("epochs wrap, graphs are empty, steps are observed") {
  Graph graph;
  fill_random(graph, 3);
  graph.finish(false);
  graph.topology.epoch = UINT32_MAX - 1;
  for (int run = 0; run < 4; ++run) {
    graph.order.clear();
    int32_t code = 0;
    CHECK(dvt_topological_run(&graph.topology, &code) == graph.topology.count);
    CHECK(graph.order.size() == graph.succ.size());
  }
  std::vector<size_t> seen;
  const DvtStepTrace trace = {[](void*, size_t) {},
                              [](void* user, size_t step, int32_t) {
                                static_cast<std::vector<size_t>*>(user)->push_back(step);
                              },
                              &seen};
  graph.order.clear();
  int32_t code = 0;
  CHECK(dvt_topological_run_traced(&graph.topology, 0, &trace, &code) == graph.topology.count);
  CHECK(std::equal(seen.begin(), seen.end(), graph.order.begin(), graph.order.end()));

  Graph empty;
  empty.finish(false);
  CHECK(dvt_topological_run(&empty.topology, &code) == 0);
  CHECK(code == 0);
}
