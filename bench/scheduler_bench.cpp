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
#include <string>
#include <vector>

#include "bench/scheduler_graphs.hpp"

namespace {

using namespace davit::bench;  // NOLINT(google-build-using-namespace)
using davit::mt_topo::Mode;
using davit::mt_topo::Pool;

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

// Empty bodies: every mode against the sequential loop and the peers.
void measure_empty(Report& report, const std::string& name, const Edges& edges,
                   const std::shared_ptr<Pool>& pool, std::vector<double>& against_task_group) {
  const Graph graph(name, edges, run_empty, false);
  const davit::schedule::Plan plan = graph.plan(2, 2);
  const auto sequential = make(graph, plan, pool, Mode::kSequential);
  const auto automatic = make(graph, plan, pool, Mode::kAutomatic);
  const auto planned = make(graph, plan, pool, Mode::kPlanned);
  const auto dynamic = make(graph, plan, pool, Mode::kDynamic);
  // With counters, although nobody else is there.
  const auto one = make(graph, plan, make_pool(1), Mode::kDynamic, false);
  FlowGraph flow(graph);
  TaskGroup group(graph);
  check_counts(graph, {[&] { flow.run(); }, [&] { group.run(); }, runs(planned), runs(dynamic)});
  const std::string title = name + ", empty, 2 workers: ";
  add_round_trip(report, name + ", empty, 2 workers");
  const Contest contest = measure(
      {runs(automatic), runs(planned), runs(dynamic), [&] { flow.run(); }, [&] { group.run(); },
       [&] { hand_loop(graph.steps.data(), graph.count()); }, runs(one), runs(sequential)},
      kTiming);
  const auto per_node = [&](size_t i) {
    return contest.median_ns[i] / static_cast<double>(graph.count());
  };
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
  // With counters, although nobody else is there.
  const auto one = make(graph, plan, make_pool(1), Mode::kDynamic, false);
  FlowGraph flow(graph);
  TaskGroup group(graph);
  add_round_trip(report, name + ", 1 us, 2 workers");
  Timing timing = kTiming;
  timing.samples = graph.count() > 20'000 ? 9 : 21;
  const Contest contest = measure({runs(planned), runs(dynamic), runs(one), [&] { flow.run(); },
                                   [&] { group.run(); }, runs(sequential)},
                                  timing);
  const std::string title = name + ", 1 us, 2 workers: ";
  // What else the machine does only takes away; so the least disturbed samples are judged.
  const auto reached = [&](size_t i) { return contest.best_ns[5] / contest.best_ns[i] / ideal; };
  // Ratios are "more is worse": the peer's share of the ideal is the ideal itself.
  const auto judge = [&](const char* mode, size_t i, double target) {
    report.add({.metric = title + mode + ", share of ideal",
                .value = reached(i),
                .unit = "",
                .peer = "ideal",
                .peer_value = 1,
                .paired_ratio = 1 / reached(i)},
               1 / target);
    report.add({.metric = title + mode + ", median of samples",
                .value = 1 / contest.ratio[i] / ideal,
                .unit = ""});
  };
  judge("planned", 0, ideal == 1 ? 0.98 : 0.96);
  judge("dynamic", 1, dynamic_target);
  report.add({.metric = title + "flow graph, share of ideal", .value = reached(3), .unit = ""});
  report.add({.metric = title + "task_group, share of ideal", .value = reached(4), .unit = ""});
  report.add(
      {.metric = title + "added per node, dynamic on one worker",
       .value = (contest.best_ns[2] - contest.best_ns[5]) / static_cast<double>(graph.count()),
       .unit = "ns"},
      35);
}

void measure_open_mp(Report& report, const std::string& name, const Edges& edges,
                     const std::shared_ptr<Pool>& pool) {
  const Graph graph(name, edges, run_empty, false);
  const auto dynamic = make(graph, graph.plan(2, 2), pool, Mode::kDynamic);
  OpenMpTasks tasks(graph);
  add_round_trip(report, name + ", empty, 2 workers, OpenMP");
  Timing timing = kTiming;
  timing.samples = 9;
  const Contest contest = measure({runs(dynamic), [&] { tasks.run(); }}, timing);
  report.add({.metric = name + ", empty, 2 workers: dynamic",
              .value = contest.median_ns[0] / static_cast<double>(graph.count()),
              .unit = "ns/node",
              .peer = "OpenMP tasks, depend",
              .peer_value = contest.median_ns[1] / static_cast<double>(graph.count())},
             1.0);
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
  if (report.wants("start")) measure_starts(report, pool);
  if (report.wants("hand-over")) measure_hand_over(report, pool);
  if (report.wants("idle")) measure_idle(report, pool);
  if (report.wants("clients")) measure_clients(report, pool);
  if (report.wants("cycles")) measure_cycles(report, pool);
  if (report.wants("queues")) measure_queues(report);
  return report.finish();
}
