// host.hpp: what a graph would take on a host with any number of workers, in virtual time.
//
// Each worker has a clock. It runs nodes by the rules of an executor of the engine (the sequential
// loop, exec/mt_topo's planned and dynamic modes), and pays for each node, for taking work over,
// and for results that come from another worker. A graph that drives a device through one stream
// also has the device's clock: its tasks follow each other, each no earlier than it is submitted.
//
//   worker 0 | node 0 | node 2 |....wait....| node 5 |
//   worker 1 | idle ... | node 3   | node 4 |
//   device            | task of 2        | task of 4 |
//
// Not modelled: bandwidth and caches that workers share, other processes, and how long workers take
// to get each other's cache lines when many want them. `davit simulate --measure` and
// bench/simulation_bench compare predictions with runs.
//
// Threads  Pure functions. Same arguments, same result, on any host.
// Trust    Graphs are verified: successors come after their node. Costs are finite and not
//          negative.
// Memory   Results own their data, about 40 bytes a node.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exec/mt_topo/plan.hpp"
#include "lowering/schedule/planner.hpp"

namespace davit::simulation {

// What the engine takes beside nodes, in nanoseconds. Defaults: docs/simulation.md.
struct HostCosts {
  double loop_node_ns = 1.4;     // A node in the sequential loop, or inside a unit.
  double planned_node_ns = 2.0;  // A node of a plan.
  double dynamic_unit_ns = 24;   // A unit (a chain of nodes) that becomes ready.
  double transfer_ns = 200;      // Until a worker that waits sees another's result.
  double hand_over_ns = 200;     // From laying work out until an idle worker runs it.
};

// Borrowed.
struct HostGraph {
  schedule::Graph nodes;
  // Of the task that a node gives to the device; 0: gives none. Empty: no device.
  std::span<const double> device_ns;
  // 1: the node begins when the device has done all that was submitted before. Empty: none.
  std::span<const uint8_t> waits_for_device;
  double device_gap_ns = 0;  // From the end of a task until the next may start.
};

struct Span {
  uint32_t worker = 0;
  double begin_ns = 0, end_ns = 0;
};

// Why something did not begin earlier.
enum class Cause : uint8_t {
  kStart,    // Nothing held it up.
  kOperand,  // The node before it in the path, by an edge or a wait.
  kWorker,   // The node before it in the path, on the same worker.
  kDevice,   // The device was busy with the task of the node before it in the path.
};

struct PathLink {
  uint32_t node;
  bool on_device;  // The node's task, not the node.
  Cause cause;
};

struct Prediction {
  std::vector<Span> spans;      // Per node.
  std::vector<double> busy_ns;  // Per worker: in nodes and in what the engine takes for them.
  double makespan_ns = 0;       // Until host and device are done.
  double device_busy_ns = 0;
  std::vector<PathLink> path;  // What decided when the run ended, first to last.

  // Of all workers, in [0, 1].
  [[nodiscard]] double utilisation() const;
};

// In the order of the graph, on one worker.
Prediction simulate_sequential(const HostGraph& graph, const HostCosts& costs);

// By a plan, with a worker for each of its parts. Precondition: mt_topo::check_plan().
Prediction simulate_planned(const HostGraph& graph, const HostCosts& costs,
                            const mt_topo::PlanTables& plan);

// As units become ready, on `workers` workers that are awake from the start. Precondition:
// workers > 0.
Prediction simulate_dynamic(const HostGraph& graph, const HostCosts& costs, uint32_t workers);

// No schedule takes less: the longest way through the graph by the nodes' own costs, or the tasks
// of the device.
double least_ns(const HostGraph& graph);

}  // namespace davit::simulation
