// Executors in virtual time. Expected times are worked out in the comments, to the nanosecond.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "davit/kernel.h"
#include "simulation/host.hpp"

namespace sim = davit::simulation;
using Kind = sim::DeviceCall::Kind;

namespace {

struct Owned {
  std::vector<uint32_t> offsets = {0}, successors;
  std::vector<uint8_t> lane;
  std::vector<double> cost_ns;
  std::vector<uint32_t> call_offsets = {0};
  std::vector<sim::DeviceCall> calls, last_calls;

  // Nodes come in order; `to` are its successors.
  void node(double ns, std::initializer_list<uint32_t> to, uint8_t on = DVT_KERNEL_LANE_NORMAL,
            std::initializer_list<sim::DeviceCall> asks = {}) {
    successors.insert(successors.end(), to);
    offsets.push_back(static_cast<uint32_t>(successors.size()));
    cost_ns.push_back(ns);
    lane.push_back(on);
    calls.insert(calls.end(), asks);
    call_offsets.push_back(static_cast<uint32_t>(calls.size()));
  }
  // A node of the launch lane that does nothing but one call.
  void call(sim::DeviceCall call, std::initializer_list<uint32_t> to) {
    node(call.host_ns, to, DVT_KERNEL_LANE_LAUNCH, {call});
  }
  [[nodiscard]] sim::HostGraph graph() const {
    return {{offsets, successors, lane, cost_ns}, call_offsets, calls, last_calls};
  }
};

// Round numbers, so that each shows in a sum.
constexpr sim::HostCosts kCosts = {.loop_node_ns = 1,
                                   .planned_node_ns = 2,
                                   .dynamic_unit_ns = 10,
                                   .transfer_ns = 100,
                                   .hand_over_ns = 200};
constexpr sim::HostCosts kFree = {0, 0, 0, 0, 0};

// 0 -> {1, 2} -> 3
Owned diamond() {
  Owned graph;
  graph.node(1000, {1, 2});
  graph.node(5000, {3});
  graph.node(4000, {3});
  graph.node(1000, {});
  return graph;
}

davit::schedule::Plan plan_of(const Owned& graph, uint32_t workers, double transfer_ns) {
  return davit::schedule::make_plan(graph.graph().nodes,
                                    {.workers = workers, .transfer_ns = transfer_ns});
}

davit::mt_topo::PlanTables tables_of(const davit::schedule::Plan& plan) {
  return {plan.part_offsets, plan.order, plan.wait_offsets, plan.waits};
}

Owned random_graph(uint32_t nodes, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::vector<uint32_t>> rows(nodes);
  for (uint32_t to = 1; to < nodes; ++to) {
    for (uint32_t i = 0; i < random() % 3; ++i) {
      auto& row = rows[to - 1 - random() % std::min(to, 20U)];
      if (std::find(row.begin(), row.end(), to) == row.end()) row.push_back(to);
    }
  }
  Owned graph;
  for (const auto& row : rows) {
    graph.node(
        double(random() % 5000), {},
        random() % 8 == 0 ? uint8_t{DVT_KERNEL_LANE_MEMORY} : uint8_t{DVT_KERNEL_LANE_NORMAL});
    graph.successors.insert(graph.successors.end(), row.begin(), row.end());
    graph.offsets.back() = static_cast<uint32_t>(graph.successors.size());
  }
  return graph;
}

// What holds for every run of any graph.
void check(const sim::Prediction& run, const Owned& graph) {
  const auto nodes = graph.graph().nodes;
  CHECK(run.makespan_ns >= sim::least_ns(graph.graph()) - 1e-6);
  CHECK(run.utilisation() <= 1 + 1e-9);
  for (uint32_t node = 0; node < nodes.count(); ++node) {
    const sim::Span& span = run.spans[node];
    REQUIRE(span.worker < run.busy_ns.size());
    CHECK(span.end_ns - span.begin_ns >= nodes.cost_ns[node] - 1e-6);
    for (uint32_t i = nodes.successor_offsets[node]; i < nodes.successor_offsets[node + 1]; ++i) {
      CHECK(run.spans[nodes.successors[i]].begin_ns >= span.end_ns - 1e-6);
    }
  }
  // Nobody runs two nodes at once, and one memory node runs at a time.
  std::vector<uint32_t> order(nodes.count());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const auto key = [&](uint32_t node) {
      return std::pair(run.spans[node].begin_ns, run.spans[node].end_ns);
    };
    return key(a) < key(b);
  });
  std::vector<double> free(run.busy_ns.size(), 0);
  double memory_free = 0;
  for (const uint32_t node : order) {
    const sim::Span& span = run.spans[node];
    CHECK(span.begin_ns >= free[span.worker] - 1e-6);
    free[span.worker] = span.end_ns;
    if (nodes.lane[node] != DVT_KERNEL_LANE_MEMORY) continue;
    CHECK(span.begin_ns >= memory_free - 1e-6);
    memory_free = span.end_ns;
  }
  // The path ends when the run does, and each link begins after the one before has ended.
  REQUIRE(!run.path.empty());
  CHECK(run.path.front().cause == sim::Cause::kStart);
  for (size_t i = 1; i < run.path.size(); ++i) {
    if (run.path[i].on_device || run.path[i - 1].on_device) continue;
    CHECK(run.spans[run.path[i].node].begin_ns >= run.spans[run.path[i - 1].node].end_ns - 1e-6);
  }
}

}  // namespace

TEST_CASE("the loop: all nodes, one after the other") {
  const Owned graph = diamond();
  const sim::Prediction run = sim::simulate_sequential(graph.graph(), kCosts);
  check(run, graph);
  CHECK(run.makespan_ns == doctest::Approx(11'000 + 4 * 1));
  CHECK(run.utilisation() == doctest::Approx(1));
  CHECK(run.path.size() == 4);
  CHECK(run.path[1].cause == sim::Cause::kWorker);
}

TEST_CASE("a plan: waits cost a transfer") {
  const Owned graph = diamond();
  const auto plan = plan_of(graph, 2, 100);
  REQUIRE(plan.part_offsets.size() == 3);
  const sim::Prediction run = sim::simulate_planned(graph.graph(), kCosts, tables_of(plan));
  check(run, graph);
  // 0 ends at 1002; 1 follows it there and ends at 6004. 2 sees 0 at 1102 and ends at 5104, which 3
  // sees at 5204, before 1 ends: 3 begins at 6004 and ends at 7006.
  CHECK(run.makespan_ns == doctest::Approx(7006));
  REQUIRE(run.path.size() == 3);
  CHECK(run.path[1].node == 1);
}

TEST_CASE("dynamic: what is laid out reaches an idle worker after a hand-over") {
  const Owned graph = diamond();
  const sim::Prediction run = sim::simulate_dynamic(graph.graph(), kCosts, 2);
  check(run, graph);
  // 0 ends at 1010 and makes 1 and 2 ready; its worker takes 1 and lays 2 out. 1 ends at
  // 1010 + 10 + 5000 = 6020; 2 begins at 1210 + 10 and ends at 5220. 3 follows 1: 6020 + 10 + 1000.
  CHECK(run.makespan_ns == doctest::Approx(7030));
  CHECK(run.spans[2].worker == 1);
  CHECK(run.spans[2].begin_ns == doctest::Approx(1220));
  CHECK(sim::simulate_dynamic(graph.graph(), kCosts, 1).makespan_ns ==
        doctest::Approx(11'000 + 4 * 10));
}

TEST_CASE("dynamic: a chain is one unit") {
  Owned graph;
  for (uint32_t i = 0; i < 3; ++i) graph.node(100, {i + 1});
  graph.node(100, {});
  const sim::Prediction run = sim::simulate_dynamic(graph.graph(), kCosts, 4);
  CHECK(run.makespan_ns == doctest::Approx(10 + 3 * 1 + 400));
}

TEST_CASE("memory nodes run one at a time, and nobody waits for them") {
  Owned graph;
  graph.node(1000, {1, 2, 3, 4});
  graph.node(3000, {}, DVT_KERNEL_LANE_MEMORY);
  graph.node(3000, {}, DVT_KERNEL_LANE_MEMORY);
  graph.node(3000, {});
  graph.node(3000, {});
  const sim::Prediction run = sim::simulate_dynamic(graph.graph(), kFree, 4);
  check(run, graph);
  CHECK(run.makespan_ns == doctest::Approx(7000));
}

TEST_CASE("a device: tasks follow each other, and a wait ends with the last") {
  // Each launch takes 1000 on the host and 5000 on the device: the device is busy from 1001 on.
  Owned graph;
  graph.call({.kind = Kind::kTask, .host_ns = 1000, .device_ns = 5000}, {1});
  graph.call({.kind = Kind::kTask, .host_ns = 1000, .device_ns = 5000}, {2});
  graph.call({.kind = Kind::kSynchronise, .host_ns = 500}, {});
  sim::Prediction run = sim::simulate_sequential(graph.graph(), kCosts);
  CHECK(run.makespan_ns == doctest::Approx(1001 + 10'000 + 500));
  CHECK(run.device_busy_ns == doctest::Approx(10'000));
  // node 0, its task, the task of node 1, the wait.
  REQUIRE(run.path.size() == 4);
  CHECK(run.path[1].on_device);
  CHECK(run.path[2].on_device);
  CHECK(run.path[2].cause == sim::Cause::kDevice);
  CHECK(run.path[3].cause == sim::Cause::kDevice);
  for (sim::DeviceCall& call : graph.calls) call.gap_ns = 50;
  CHECK(sim::simulate_sequential(graph.graph(), kCosts).makespan_ns ==
        doctest::Approx(1001 + 5000 + 50 + 5000 + 500));
  // Tasks of 100: the host decides. The second is submitted at 2002.
  for (sim::DeviceCall& call : graph.calls) call.device_ns = 100;
  run = sim::simulate_sequential(graph.graph(), kCosts);
  CHECK(run.makespan_ns == doctest::Approx(2002 + 100 + 500));
}

TEST_CASE("streams run beside each other, and events order them") {
  // Stream 0 works from 1001 to 9001 and records until 9051. Stream 1 waits for that until 9081;
  // its task of 2000 ends at 11081.
  Owned graph;
  graph.call({.kind = Kind::kTask, .stream = 0, .host_ns = 1000, .device_ns = 8000}, {1});
  graph.call({.kind = Kind::kRecord, .stream = 0, .event = 2, .host_ns = 100, .device_ns = 50},
             {2});
  graph.call({.kind = Kind::kTask, .stream = 1, .host_ns = 1000, .device_ns = 3000}, {3});
  graph.call({.kind = Kind::kWait, .stream = 1, .event = 2, .host_ns = 100, .device_ns = 30}, {4});
  graph.call({.kind = Kind::kTask, .stream = 1, .host_ns = 1000, .device_ns = 2000}, {5});
  graph.call({.kind = Kind::kSynchronise, .stream = 1, .host_ns = 500}, {});
  sim::Prediction run = sim::simulate_sequential(graph.graph(), kCosts);
  CHECK(run.makespan_ns == doctest::Approx(11'081 + 500));
  CHECK(run.device_busy_ns == doctest::Approx(8000 + 2000));  // That of 3000 is inside.
  // Launch, its task, the record, the wait, the second task of stream 1, the node that waits.
  REQUIRE(run.path.size() == 6);
  for (size_t i = 1; i < 5; ++i) CHECK(run.path[i].on_device);
  CHECK(run.path[4].node == 4);
  CHECK(run.path[4].ns == doctest::Approx(2000));
  CHECK(sim::least_ns(graph.graph()) == doctest::Approx(8000));
  // A record that is reached when the wait is submitted adds no task: stream 1 ends 2000 after its
  // first task, or after the submission at 3205.
  graph.calls[0].device_ns = 10;
  run = sim::simulate_sequential(graph.graph(), kCosts);
  CHECK(run.makespan_ns == doctest::Approx(2103 + 3000 + 2000 + 500));
}

TEST_CASE("the executor waits for streams that no node has waited for") {
  Owned graph;
  graph.call({.kind = Kind::kTask, .stream = 1, .host_ns = 100, .device_ns = 900}, {1});
  graph.node(10, {});
  graph.last_calls = {{.kind = Kind::kSynchronise, .stream = 1, .host_ns = 30},
                      {.kind = Kind::kSynchronise, .stream = 0, .host_ns = 30}};
  CHECK(sim::simulate_sequential(graph.graph(), kFree).makespan_ns == doctest::Approx(1060));
}

TEST_CASE("a node that submits, waits and goes on: what shapes of run time need") {
  // 200 of its own, a task of 700 from 300 on, 50 after it, and another from 1150 on.
  Owned graph;
  graph.node(450, {1}, DVT_KERNEL_LANE_NORMAL,
             {{.kind = Kind::kTask, .host_ns = 100, .device_ns = 700},
              {.kind = Kind::kSynchronise, .host_ns = 50},
              {.kind = Kind::kTask, .host_ns = 100, .device_ns = 300}});
  graph.node(1, {});
  const sim::Prediction run = sim::simulate_sequential(graph.graph(), kFree);
  CHECK(run.spans[0].end_ns == doctest::Approx(1150));
  CHECK(run.busy_ns[0] == doctest::Approx(451));
  CHECK(run.makespan_ns == doctest::Approx(1450));
  CHECK(run.path.size() >= 3);
}

TEST_CASE("without costs of its own, every executor keeps the bounds") {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const Owned graph = random_graph(5 + seed * 7, seed);
    const double sum = std::accumulate(graph.cost_ns.begin(), graph.cost_ns.end(), 0.0);
    const sim::Prediction loop = sim::simulate_sequential(graph.graph(), kFree);
    check(loop, graph);
    CHECK(loop.makespan_ns == doctest::Approx(sum));
    for (const uint32_t workers : {1U, 2U, 3U, 8U, 64U}) {
      CAPTURE(workers);
      const auto plan = plan_of(graph, workers, 0);
      const sim::Prediction planned = sim::simulate_planned(graph.graph(), kFree, tables_of(plan));
      check(planned, graph);
      CHECK(planned.makespan_ns == doctest::Approx(plan.makespan_ns));
      const sim::Prediction dynamic = sim::simulate_dynamic(graph.graph(), kFree, workers);
      check(dynamic, graph);
      CHECK(dynamic.makespan_ns <= sum + 1e-6);
    }
  }
}

TEST_CASE("the same arguments give the same run") {
  const Owned graph = random_graph(500, 7);
  const sim::Prediction a = sim::simulate_dynamic(graph.graph(), kCosts, 5);
  const sim::Prediction b = sim::simulate_dynamic(graph.graph(), kCosts, 5);
  for (size_t node = 0; node < a.spans.size(); ++node) {
    CHECK(a.spans[node].worker == b.spans[node].worker);
    CHECK(a.spans[node].begin_ns == b.spans[node].begin_ns);
  }
}
