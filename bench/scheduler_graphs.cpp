#include "bench/scheduler_graphs.hpp"

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <utility>

#include "exec/mt_topo/platform.hpp"

namespace davit::bench {
namespace {

uint32_t microsecond_turns = 0;

}  // namespace

int32_t run_empty(void* context) {
  ++static_cast<Body*>(context)->count;
  return DVT_OK;
}

int32_t run_microsecond(void* context) {
  auto* body = static_cast<Body*>(context);
  double x = 1.0 + static_cast<double>(body->count & 1);
  for (uint32_t i = 0; i < microsecond_turns; ++i) x = x * 0.999999 + 1e-9;
  body->count += x > 0 ? 1 : 0;
  return DVT_OK;
}

void calibrate() {
  Body body;
  // Called as the scheduler does: inlined, the loop would be moved out from between the clocks.
  DvtStepFn volatile run = run_microsecond;
  microsecond_turns = 100'000;
  double best = 1e18;
  for (int i = 0; i < 20; ++i) {
    const double begin = now_ns(Clock::kWall);
    (void)run(&body);
    best = std::min(best, now_ns(Clock::kWall) - begin);
  }
  microsecond_turns = static_cast<uint32_t>(100'000 * 1000 / best);
}

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
Edges cnn_like() {
  Edges from = chain(150);
  for (uint32_t node = 9; node < 150; node += 9) from[node].insert(from[node].begin(), node - 9);
  return from;
}

Graph::Graph(std::string graph_name, const Edges& from, DvtStepFn fn, bool mixed_lanes)
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
  schedule::Edges kept = schedule::reduce_edges({successor_offsets, successors, lane, cost}, 64);
  successor_offsets = std::move(kept.successor_offsets);
  successors = std::move(kept.successors);
  indegree = std::move(kept.indegree);
}

schedule::Plan Graph::plan(double node_ns, uint32_t workers) const {
  const std::vector<double> cost(count(), node_ns);
  return schedule::make_plan({successor_offsets, successors, lane, cost}, {.workers = workers});
}

std::shared_ptr<mt_topo::Pool> make_pool(uint32_t workers, int64_t spin_us) {
  auto pool = mt_topo::Pool::create({.workers = workers, .spin_us = spin_us});
  if (!pool.ok()) std::_Exit(1);
  return *pool;
}

ResourcePtr<mt_topo::Scheduler> make(const Graph& graph, const schedule::Plan& plan,
                                     const std::shared_ptr<mt_topo::Pool>& pool, mt_topo::Mode mode,
                                     bool measures) {
  const mt_topo::PlanTables tables = {plan.part_offsets, plan.order, plan.wait_offsets, plan.waits};
  auto made = mt_topo::Scheduler::create(graph.tables(), &tables, pool,
                                         {.mode = mode, .measures = measures});
  if (!made.ok()) {
    std::fprintf(stderr, "%s: %s\n", graph.name.c_str(), made.status().to_string().c_str());
    std::_Exit(1);
  }
  for (int run = 0; run < 12; ++run) (void)(*made)->run();  // What it has to learn, it knows.
  return std::move(*made);
}

Run runs(const ResourcePtr<mt_topo::Scheduler>& scheduler) {
  return [&scheduler] {
    if (scheduler->run().code != DVT_OK) std::_Exit(1);
  };
}

double round_trip_ns() {
  constexpr uint32_t kTurns = 20'000;
  alignas(64) std::atomic<uint32_t> ball{0};
  std::thread other([&] {
    for (uint32_t turn = 0; turn < kTurns; ++turn) {
      while (ball.load(std::memory_order_acquire) != 2 * turn + 1) {
        mt_topo::RealThreads::relax();
      }
      ball.store(2 * turn + 2, std::memory_order_release);
    }
  });
  double begin = 0;
  for (uint32_t turn = 0; turn < kTurns; ++turn) {
    if (turn == kTurns / 10) begin = now_ns(Clock::kWall);
    ball.store(2 * turn + 1, std::memory_order_release);
    while (ball.load(std::memory_order_acquire) != 2 * turn + 2) {
      mt_topo::RealThreads::relax();
    }
  }
  const double took = now_ns(Clock::kWall) - begin;
  other.join();
  return took / (kTurns - kTurns / 10.0);
}

void add_round_trip(Report& report, const std::string& title) {
  report.add({.metric = title + ": cache line round trip", .value = round_trip_ns(), .unit = "ns"});
}

}  // namespace davit::bench
