// scheduler_bench: what scheduling costs per node, against peers in the same process.
//
// Graphs are those of docs/scheduler.md. Bodies: "empty" adds one to a number of its own, called
// through a pointer; "1 us" is a chain of multiply-adds of about a microsecond. Peers that
// schedule: oneTBB's flow graph; a oneTBB task_group with counters of its own that goes on with one
// successor itself; OpenMP tasks with `depend` on what they read and write.
//
// Two-worker figures follow the time that a cache line takes between the two cores, which moves on
// virtual machines; it is measured before each graph and printed with it.
#include <omp.h>
#include <oneapi/tbb/flow_graph.h>
#include <oneapi/tbb/task_group.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bench/report.hpp"
#include "exec/mt_topo/platform.hpp"
#include "exec/mt_topo/scheduler.hpp"
#include "lowering/schedule/planner.hpp"

namespace {

using davit::bench::Clock;
using davit::bench::Contest;
using davit::bench::Report;
using davit::mt_topo::Mode;
using davit::mt_topo::Pool;
using davit::mt_topo::Scheduler;

struct alignas(64) Body {
  uint64_t count = 0;
};

int32_t run_empty(void* context) {
  ++static_cast<Body*>(context)->count;
  return DVT_OK;
}

uint32_t microsecond_turns = 0;

int32_t run_microsecond(void* context) {
  auto* body = static_cast<Body*>(context);
  double x = 1.0 + static_cast<double>(body->count & 1);
  for (uint32_t i = 0; i < microsecond_turns; ++i) x = x * 0.999999 + 1e-9;
  body->count += x > 0 ? 1 : 0;
  return DVT_OK;
}

void calibrate() {
  Body body;
  microsecond_turns = 100'000;
  double best = 1e18;
  for (int i = 0; i < 20; ++i) {
    const double begin = davit::bench::now_ns(Clock::kWall);
    (void)run_microsecond(&body);
    best = std::min(best, davit::bench::now_ns(Clock::kWall) - begin);
  }
  microsecond_turns = static_cast<uint32_t>(100'000 * 1000 / best);
}

using Edges = std::vector<std::vector<uint32_t>>;  // Predecessors of each node.

Edges chain(uint32_t count) {
  Edges from(count);
  for (uint32_t node = 1; node < count; ++node) from[node] = {node - 1};
  return from;
}
Edges wide(uint32_t count) {
  Edges from(count + 2);
  for (uint32_t node = 1; node <= count; ++node) {
    from[node] = {0};
    from[count + 1].push_back(node);
  }
  return from;
}
Edges wavefront(uint32_t side) {
  Edges from(size_t{side} * side);
  for (uint32_t row = 0; row < side; ++row) {
    for (uint32_t column = 0; column < side; ++column) {
      const uint32_t node = row * side + column;
      if (row > 0) from[node].push_back(node - side);
      if (column > 0) from[node].push_back(node - 1);
    }
  }
  return from;
}
Edges layered(uint32_t layers, uint32_t width) {
  std::mt19937 random(12345);  // NOLINT(cert-msc51-cpp): the same graph every time.
  Edges from(size_t{layers} * width);
  for (uint32_t node = width; node < from.size(); ++node) {
    const uint32_t wanted = 2 + random() % 3;
    const uint32_t layer = (node / width - 1) * width;
    while (from[node].size() < wanted) {
      const uint32_t source = layer + random() % width;
      if (std::find(from[node].begin(), from[node].end(), source) == from[node].end()) {
        from[node].push_back(source);
      }
    }
    std::sort(from[node].begin(), from[node].end());
  }
  return from;
}
// 150 layers in a row; every ninth is also read at the end of its block.
Edges cnn_like() {
  Edges from = chain(150);
  for (uint32_t node = 9; node < 150; node += 9) from[node].insert(from[node].begin(), node - 9);
  return from;
}

struct Graph {
  std::string name;
  std::vector<DvtStep> steps;
  std::vector<Body> bodies;
  std::vector<uint32_t> successor_offsets, successors, indegree;
  std::vector<uint8_t> lane;

  Graph(std::string graph_name, const Edges& from, DvtStepFn fn, bool mixed_lanes)
      : name(std::move(graph_name)), bodies(from.size()) {
    std::vector<double> cost(from.size(), 1);
    std::vector<std::vector<uint32_t>> to(from.size());
    for (uint32_t node = 0; node < from.size(); ++node) {
      for (const uint32_t source : from[node]) to[source].push_back(node);
      steps.push_back({fn, &bodies[node]});
      lane.push_back(mixed_lanes ? node % 3 : 0);
    }
    successor_offsets.push_back(0);
    for (const auto& targets : to) {
      successors.insert(successors.end(), targets.begin(), targets.end());
      successor_offsets.push_back(static_cast<uint32_t>(successors.size()));
    }
    // What lowering does once: edges that others imply are dropped, for the peers too.
    davit::schedule::Edges kept =
        davit::schedule::reduce_edges({successor_offsets, successors, lane, cost}, 64);
    successor_offsets = std::move(kept.successor_offsets);
    successors = std::move(kept.successors);
    indegree = std::move(kept.indegree);
  }

  [[nodiscard]] size_t count() const { return steps.size(); }
  [[nodiscard]] davit::mt_topo::Tables tables() const {
    return {steps, successor_offsets, successors, indegree, lane, {}};
  }
  [[nodiscard]] std::span<const uint32_t> successors_of(uint32_t node) const {
    return tables().successors_of(node);
  }
  [[nodiscard]] davit::schedule::Plan plan(double node_ns, uint32_t workers) const {
    const std::vector<double> cost(count(), node_ns);
    return davit::schedule::make_plan({successor_offsets, successors, lane, cost},
                                      {.workers = workers});
  }
};

using Run = std::function<void()>;

[[gnu::noinline]] void hand_loop(const DvtStep* steps, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (steps[i].fn(steps[i].ctx) != DVT_OK) std::_Exit(1);
  }
}

class FlowGraph {
 public:
  explicit FlowGraph(const Graph& graph) {
    using Message = tbb::flow::continue_msg;
    for (uint32_t node = 0; node < graph.count(); ++node) {
      const DvtStep step = graph.steps[node];
      nodes_.emplace_back(flow_, [step](const Message&) { (void)step.fn(step.ctx); });
    }
    for (uint32_t node = 0; node < graph.count(); ++node) {
      for (const uint32_t to : graph.successors_of(node)) make_edge(nodes_[node], nodes_[to]);
      if (graph.indegree[node] == 0) roots_.push_back(node);
    }
  }
  void run() {
    for (const uint32_t root : roots_) nodes_[root].try_put({});
    flow_.wait_for_all();
  }

 private:
  tbb::flow::graph flow_;
  std::deque<tbb::flow::continue_node<tbb::flow::continue_msg>> nodes_;
  std::vector<uint32_t> roots_;
};

// What a careful user writes with task_group: counters of its own, re-armed by the node that runs,
// and one ready successor gone on with at once.
class TaskGroup {
 public:
  explicit TaskGroup(const Graph& graph) : graph_(graph), waiting_(graph.count()) {
    for (uint32_t node = 0; node < graph.count(); ++node) waiting_[node] = graph.indegree[node];
  }
  void run() {
    for (uint32_t node = 0; node < graph_.count(); ++node) {
      if (graph_.indegree[node] == 0) group_.run([this, node] { go(node); });
    }
    group_.wait();
  }

 private:
  void go(uint32_t node) {
    constexpr uint32_t kNone = UINT32_MAX;
    while (node != kNone) {
      waiting_[node].store(graph_.indegree[node], std::memory_order_relaxed);
      (void)graph_.steps[node].fn(graph_.steps[node].ctx);
      uint32_t next = kNone;
      for (const uint32_t to : graph_.successors_of(node)) {
        if (waiting_[to].fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
        if (next == kNone) {
          next = to;
        } else {
          group_.run([this, to] { go(to); });
        }
      }
      node = next;
    }
  }

  const Graph& graph_;
  std::vector<std::atomic<uint32_t>> waiting_;
  tbb::task_group group_;
};

class OpenMpTasks {
 public:
  explicit OpenMpTasks(const Graph& graph) : graph_(graph), from_(graph.count()) {
    for (uint32_t node = 0; node < graph.count(); ++node) {
      for (const uint32_t to : graph.successors_of(node)) from_[to].push_back(node);
    }
    marks_.resize(graph.count());
  }
  void run() {
    [[maybe_unused]] char* marks = marks_.data();  // gcc does not see depend().
#pragma omp parallel num_threads(2)
#pragma omp single
    for (uint32_t node = 0; node < graph_.count(); ++node) {
      const std::vector<uint32_t>& from = from_[node];
      const DvtStep step = graph_.steps[node];
#pragma omp task firstprivate(step) depend(iterator(i = 0               \
                                                    : from.size()),     \
                                           in                           \
                                           : marks[from[i]]) depend(out \
                                                                    : marks[node])
      (void)step.fn(step.ctx);
    }
  }

 private:
  const Graph& graph_;
  std::vector<std::vector<uint32_t>> from_;
  std::vector<char> marks_;
};

// Nanoseconds for a line to go to the other core and back.
double round_trip_ns() {
  constexpr uint32_t kTurns = 20'000;
  alignas(64) std::atomic<uint32_t> ball{0};
  std::thread other([&] {
    for (uint32_t turn = 0; turn < kTurns; ++turn) {
      while (ball.load(std::memory_order_acquire) != 2 * turn + 1) {
        davit::mt_topo::RealThreads::relax();
      }
      ball.store(2 * turn + 2, std::memory_order_release);
    }
  });
  double begin = 0;
  for (uint32_t turn = 0; turn < kTurns; ++turn) {
    if (turn == kTurns / 10) begin = davit::bench::now_ns(Clock::kWall);
    ball.store(2 * turn + 1, std::memory_order_release);
    while (ball.load(std::memory_order_acquire) != 2 * turn + 2) {
      davit::mt_topo::RealThreads::relax();
    }
  }
  const double took = davit::bench::now_ns(Clock::kWall) - begin;
  other.join();
  return took / (kTurns - kTurns / 10.0);
}

std::shared_ptr<Pool> make_pool(uint32_t workers, int64_t spin_us = 50) {
  auto pool = Pool::create({.workers = workers, .spin_us = spin_us});
  if (!pool.ok()) std::_Exit(1);
  return *pool;
}

std::unique_ptr<Scheduler> make(const Graph& graph, const davit::schedule::Plan& plan,
                                const std::shared_ptr<Pool>& pool, Mode mode) {
  const davit::mt_topo::PlanTables tables = {plan.part_offsets, plan.order, plan.wait_offsets,
                                             plan.waits};
  auto made = Scheduler::create(graph.tables(), &tables, pool, {.mode = mode});
  if (!made.ok()) {
    std::fprintf(stderr, "%s: %s\n", graph.name.c_str(), made.status().to_string().c_str());
    std::_Exit(1);
  }
  for (int run = 0; run < 12; ++run) (void)(*made)->run();  // What it has to learn, it knows.
  return std::move(*made);
}

Run runs(const std::unique_ptr<Scheduler>& scheduler) {
  return [&scheduler] {
    if (scheduler->run().code != DVT_OK) std::_Exit(1);
  };
}

// Whoever is measured runs every node once.
void check_counts(const Graph& graph, const std::vector<Run>& contenders) {
  for (const Run& run : contenders) {
    const std::vector<Body> before = graph.bodies;
    run();
    for (size_t node = 0; node < before.size(); ++node) {
      if (graph.bodies[node].count == before[node].count + 1) continue;
      std::fprintf(stderr, "%s: a contender does not run every node once\n", graph.name.c_str());
      std::_Exit(1);
    }
  }
}

const davit::bench::Timing kTiming = {
    .clock = Clock::kWall, .samples = 31, .sample_ns = 1e6, .warm_up_ns = 1e7};

// Empty bodies: every mode against the sequential loop and the peers.
void measure_empty(Report& report, const std::string& name, const Edges& edges,
                   const std::shared_ptr<Pool>& pool, std::vector<double>& against_task_group) {
  const Graph graph(name, edges, run_empty, false);
  const davit::schedule::Plan plan = graph.plan(2, 2);
  const auto sequential = make(graph, plan, pool, Mode::kSequential);
  const auto automatic = make(graph, plan, pool, Mode::kAutomatic);
  const auto planned = make(graph, plan, pool, Mode::kPlanned);
  const auto dynamic = make(graph, plan, pool, Mode::kDynamic);
  const auto one = make(graph, plan, make_pool(1), Mode::kDynamic);
  FlowGraph flow(graph);
  TaskGroup group(graph);
  check_counts(graph, {[&] { flow.run(); }, [&] { group.run(); }, runs(planned), runs(dynamic)});
  const double trip = round_trip_ns();
  const Contest contest = davit::bench::measure(
      {runs(automatic), runs(planned), runs(dynamic), [&] { flow.run(); }, [&] { group.run(); },
       [&] { hand_loop(graph.steps.data(), graph.count()); }, runs(one), runs(sequential)},
      kTiming);
  const auto per_node = [&](size_t i) {
    return contest.median_ns[i] / static_cast<double>(graph.count());
  };
  const std::string title = name + ", empty, 2 workers: ";
  report.add({.metric = title + "cache line round trip", .value = trip, .unit = "ns"});
  report.add({.metric = title + "sequential",
              .value = per_node(7),
              .unit = "ns/node",
              .peer = "hand-written loop",
              .peer_value = per_node(5)},
             1.15);
  report.add({.metric = title + "default",
              .value = per_node(0),
              .unit = "ns/node",
              .peer = "own sequential loop",
              .peer_value = per_node(7),
              .paired_ratio = contest.ratio[0]},
             1.15);
  report.add({.metric = title + "planned", .value = per_node(1), .unit = "ns/node"}, 3.0);
  report.add(
      {.metric = name + ", empty, 1 worker: dynamic", .value = per_node(6), .unit = "ns/node"});
  report.add({.metric = title + "dynamic",
              .value = per_node(2),
              .unit = "ns/node",
              .peer = "oneTBB flow graph",
              .peer_value = per_node(3)},
             0.5);
  report.add({.metric = title + "dynamic, again",
              .value = per_node(2),
              .unit = "ns/node",
              .peer = "oneTBB task_group",
              .peer_value = per_node(4)},
             1.4);
  against_task_group.push_back(per_node(2) / per_node(4));
}

// Bodies of a microsecond: how much of the ideal speed-up is reached. `ideal` is 2, or 1 for graphs
// without width.
void measure_busy(Report& report, const std::string& name, const Edges& edges,
                  const std::shared_ptr<Pool>& pool, double ideal, double dynamic_target) {
  const Graph graph(name, edges, run_microsecond, false);
  const davit::schedule::Plan plan = graph.plan(1000, 2);
  const auto sequential = make(graph, plan, pool, Mode::kSequential);
  const auto planned = make(graph, plan, pool, Mode::kPlanned);
  const auto dynamic = make(graph, plan, pool, Mode::kDynamic);
  const auto one = make(graph, plan, make_pool(1), Mode::kDynamic);
  FlowGraph flow(graph);
  TaskGroup group(graph);
  const double trip = round_trip_ns();
  davit::bench::Timing timing = kTiming;
  timing.samples = graph.count() > 20'000 ? 9 : 21;
  const Contest contest =
      davit::bench::measure({runs(planned), runs(dynamic), runs(one), [&] { flow.run(); },
                             [&] { group.run(); }, runs(sequential)},
                            timing);
  const std::string title = name + ", 1 us, 2 workers: ";
  const auto reached = [&](size_t i) { return 1 / contest.ratio[i] / ideal; };
  report.add({.metric = title + "cache line round trip", .value = trip, .unit = "ns"});
  // Ratios are "more is worse": the peer's share of the ideal is the ideal itself.
  const double planned_target = ideal == 1 ? 0.98 : 0.96;
  report.add({.metric = title + "planned, share of ideal",
              .value = reached(0),
              .unit = "",
              .peer = "ideal",
              .peer_value = 1,
              .paired_ratio = 1 / reached(0)},
             1 / planned_target);
  report.add({.metric = title + "dynamic, share of ideal",
              .value = reached(1),
              .unit = "",
              .peer = "ideal",
              .peer_value = 1,
              .paired_ratio = 1 / reached(1)},
             1 / dynamic_target);
  report.add({.metric = title + "flow graph, share of ideal", .value = reached(3), .unit = ""});
  report.add({.metric = title + "task_group, share of ideal", .value = reached(4), .unit = ""});
  const double added =
      (contest.ratio[2] - 1) * contest.median_ns[5] / static_cast<double>(graph.count());
  report.add(
      {.metric = title + "added per node, dynamic on one worker", .value = added, .unit = "ns"},
      35);
}

void measure_open_mp(Report& report, const std::string& name, const Edges& edges,
                     const std::shared_ptr<Pool>& pool) {
  const Graph graph(name, edges, run_empty, false);
  const auto dynamic = make(graph, graph.plan(2, 2), pool, Mode::kDynamic);
  OpenMpTasks tasks(graph);
  davit::bench::Timing timing = kTiming;
  timing.samples = 9;
  const Contest contest = davit::bench::measure({runs(dynamic), [&] { tasks.run(); }}, timing);
  report.add({.metric = name + ", empty, 2 workers: dynamic",
              .value = contest.median_ns[0] / static_cast<double>(graph.count()),
              .unit = "ns/node",
              .peer = "OpenMP tasks, depend",
              .peer_value = contest.median_ns[1] / static_cast<double>(graph.count())},
             1.0);
}

// Nodes that alternate between the lanes, 1 to 3 workers on what cores there are.
void measure_lanes(Report& report, const std::string& name, const Edges& edges) {
  const Graph graph(name, edges, run_empty, true);
  const davit::schedule::Plan plan = graph.plan(2, 2);
  std::vector<std::unique_ptr<Scheduler>> schedulers;
  for (const uint32_t workers : {1U, 2U, 3U}) {
    schedulers.push_back(make(graph, plan, make_pool(workers), Mode::kDynamic));
  }
  const Contest contest = davit::bench::measure(
      {runs(schedulers[0]), runs(schedulers[1]), runs(schedulers[2])}, kTiming);
  for (size_t i = 0; i < 3; ++i) {
    report.add({.metric = name + ", mixed lanes, empty, dynamic, workers: " + std::to_string(i + 1),
                .value = contest.median_ns[i] / static_cast<double>(graph.count()),
                .unit = "ns/node"},
               i == 2 ? 180 : 60);
  }
}

void measure_small_and_large(Report& report, const std::shared_ptr<Pool>& pool) {
  const Graph small("CNN-like", cnn_like(), run_empty, false);
  const auto scheduler = make(small, small.plan(2, 2), pool, Mode::kAutomatic);
  const Contest contest = davit::bench::measure({runs(scheduler)}, kTiming);
  report.add({.metric = "150 empty nodes, caller to caller, default",
              .value = contest.median_ns[0],
              .unit = "ns"},
             1000);

  Graph large("1,000,000 nodes", layered(1000, 1000), run_empty, false);
  const auto failing = [](void*) -> int32_t { return DVT_END_OF_SEQUENCE; };
  large.steps[0].fn = failing;
  const std::vector<double> cost(large.count(), 1000.0);
  const davit::schedule::Plan plan = large.plan(1000, 2);
  for (const Mode mode : {Mode::kSequential, Mode::kPlanned, Mode::kDynamic}) {
    const davit::mt_topo::PlanTables tables = {plan.part_offsets, plan.order, plan.wait_offsets,
                                               plan.waits};
    auto early = Scheduler::create(large.tables(), &tables, pool, {.mode = mode});
    if (!early.ok()) std::_Exit(1);
    const Contest exits = davit::bench::measure({[&] { (void)(*early)->run(); }}, kTiming);
    report.add({.metric = std::string("1,000,000 nodes, end of sequence at the first, ") +
                          davit::mt_topo::mode_name(mode),
                .value = exits.median_ns[0],
                .unit = "ns"},
               2000);
  }
}

struct Shape {
  const char* name;
  Edges edges;
  double ideal;           // Speed-up that two workers could reach with bodies of a microsecond.
  double dynamic_target;  // Share of it.
};

}  // namespace

int main(int argc, char** argv) {
  Report report("scheduler_bench", argc, argv);
  calibrate();
  const auto pool = make_pool(2);
  const Shape shapes[] = {
      {"chain", chain(10'000), 1, 0.98},
      {"wide", wide(10'000), 2, 0.93},
      {"wavefront", wavefront(100), 2, 0.93},
      {"layered", layered(100, 100), 2, 0.93},
      {"layered100k", layered(1000, 100), 2, 0.88},
      {"CNN-like", cnn_like(), 1, 0.98},
  };
  const auto name_of = [](const Shape& shape, const char* part) {
    return std::string(shape.name) + ", " + part;
  };
  std::vector<double> against_task_group;
  for (const Shape& shape : shapes) {
    if (!report.wants(name_of(shape, "empty"))) continue;
    measure_empty(report, shape.name, shape.edges, pool, against_task_group);
  }
  double logs = 0;
  for (const double ratio : against_task_group) logs += std::log(ratio);
  if (!against_task_group.empty()) {
    report.add({.metric = "empty, dynamic to task_group, geometric mean",
                .value = std::exp(logs / static_cast<double>(against_task_group.size())),
                .unit = ""},
               0.8);
  }
  for (const Shape& shape : shapes) {
    if (!report.wants(name_of(shape, "1 us"))) continue;
    measure_busy(report, shape.name, shape.edges, pool, shape.ideal, shape.dynamic_target);
  }
  if (report.wants("OpenMP")) measure_open_mp(report, "layered", layered(100, 100), pool);
  for (const Shape& shape : shapes) {
    if (report.wants(name_of(shape, "lanes"))) measure_lanes(report, shape.name, shape.edges);
  }
  if (report.wants("start")) measure_small_and_large(report, pool);
  return report.finish();
}
