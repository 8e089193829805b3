// scheduler_graphs.hpp: the graphs of scheduler_bench, and how they are run.
//
// Threads  One, but for what schedulers do.
// Memory   Graphs own their bodies; schedulers borrow their graph.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/report.hpp"
#include "exec/mt_topo/scheduler.hpp"
#include "lowering/schedule/planner.hpp"

namespace davit::bench {

struct alignas(64) Body {
  uint64_t count = 0;
};

// Add one to their Body: at once, or after about a microsecond's work.
int32_t run_empty(void* body);
int32_t run_microsecond(void* body);
// How much work that is. Before the first run_microsecond().
void calibrate();

using Edges = std::vector<std::vector<uint32_t>>;  // Predecessors of each node.

Edges chain(uint32_t count);
Edges wide(uint32_t count);  // One, then `count`, then one.
Edges wavefront(uint32_t side);
Edges layered(uint32_t layers, uint32_t width);  // Two to four predecessors, fixed seed.
Edges cnn_like();  // 150 in a row; every ninth is also read at the end of its block.

struct Graph {
  std::string name;
  std::vector<DvtStep> steps;
  std::vector<Body> bodies;
  std::vector<uint32_t> successor_offsets, successors, indegree;
  std::vector<uint8_t> lane;

  // With mixed lanes, nodes are normal, memory and launch nodes in turn.
  Graph(std::string graph_name, const Edges& from, DvtStepFn fn, bool mixed_lanes);
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  [[nodiscard]] size_t count() const { return steps.size(); }
  [[nodiscard]] mt_topo::Tables tables() const {
    return {steps, successor_offsets, successors, indegree, lane, {}};
  }
  [[nodiscard]] std::span<const uint32_t> successors_of(uint32_t node) const {
    return tables().successors_of(node);
  }
  // For nodes that take `node_ns`.
  [[nodiscard]] schedule::Plan plan(double node_ns, uint32_t workers) const;
};

// These end the process when they fail.
std::shared_ptr<mt_topo::Pool> make_pool(uint32_t workers, int64_t spin_us = 50);
// Has run often enough to know what it has to learn.
ResourcePtr<mt_topo::Scheduler> make(const Graph& graph, const schedule::Plan& plan,
                                     const std::shared_ptr<mt_topo::Pool>& pool, mt_topo::Mode mode,
                                     bool measures = true);

using Run = std::function<void()>;
Run runs(const ResourcePtr<mt_topo::Scheduler>& scheduler);

// Nanoseconds for a cache line to go to the other core and back.
double round_trip_ns();
// The same as a row, before the figures of `title` that follow it.
void add_round_trip(Report& report, const std::string& title);

inline constexpr Timing kTiming = {
    .clock = Clock::kWall, .samples = 31, .sample_ns = 1e6, .warm_up_ns = 1e7};

// scheduler_engine.cpp: what a run costs beside its nodes.
void measure_lanes(Report& report, const std::string& name, const Edges& edges);
void measure_starts(Report& report, const std::shared_ptr<mt_topo::Pool>& pool);
void measure_hand_over(Report& report, const std::shared_ptr<mt_topo::Pool>& pool);
void measure_idle(Report& report, const std::shared_ptr<mt_topo::Pool>& pool);
void measure_clients(Report& report, const std::shared_ptr<mt_topo::Pool>& pool);
void measure_cycles(Report& report, const std::shared_ptr<mt_topo::Pool>& pool);
// scheduler_queues.cpp: mailboxes and the strand beside moodycamel's queue.
void measure_queues(Report& report);

}  // namespace davit::bench
