// host.hpp: what a graph would take on a host with any number of workers, in virtual time.
//
// Each worker has a clock. It runs nodes by the rules of an executor of the engine (the sequential
// loop, exec/mt_topo's planned and dynamic modes), and pays for each node, for taking work over,
// and for results that come from another worker. A graph that drives a device also has the clocks
// of its streams: tasks of a stream follow each other, each no earlier than it is submitted, and
// events order streams.
//
//   worker 0 | node 0 | node 2 |....wait....| node 5 |
//   worker 1 | idle ... | node 3   | node 4 |
//   stream 0          | task of 2        | task of 4 |
//
// A task takes what it took when it was recorded: that its streams would meet others at cores and
// bandwidth when the host is faster or slower is not modelled. Nor are: bandwidth and caches that
// workers share, other processes, and how long workers take to get each other's cache lines when
// many want them. `davit simulate --measure` and bench/simulation_bench compare predictions with
// runs.
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

// What a node asks of the device.
struct DeviceCall {
  enum class Kind : uint8_t {
    kTask,         // Submits work.
    kRecord,       // Submits a record of an event.
    kWait,         // Submits a wait for its latest record; nothing, when that is reached.
    kSynchronise,  // Waits until the stream has done all that was submitted.
    kHost,         // Takes its time on the host, and no more.
  };
  Kind kind = Kind::kTask;
  uint32_t stream = 0, event = 0;
  double host_ns = 0;    // Before it is submitted, or after the wait.
  double device_ns = 0;  // What is submitted takes that long.
  double gap_ns = 0;     // And starts so long after the end of the task before at least.
};

// Borrowed.
struct HostGraph {
  schedule::Graph nodes;  // Costs include what the calls take on the host.
  // Of node i, in order, after what else it does: calls[call_offsets[i] .. call_offsets[i + 1]).
  // Empty: there is no device. Nodes that submit run in their order, one at a time.
  std::span<const uint32_t> call_offsets = {};
  std::span<const DeviceCall> calls = {};
  // Of the executor, when all nodes have run: waits for streams that no node has waited for.
  std::span<const DeviceCall> last_calls = {};
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
  kDevice,   // The task before it in the path had to end.
};

struct PathLink {
  uint32_t node;
  bool on_device;  // A task of the node, not the node.
  Cause cause;
  double ns;  // What it took.
};

struct Prediction {
  std::vector<Span> spans;      // Per node.
  std::vector<double> busy_ns;  // Per worker: in nodes and in what the engine takes for them.
  double makespan_ns = 0;       // Until host and device are done.
  double device_busy_ns = 0;    // While at least one stream had a task.
  std::vector<PathLink> path;   // What decided when the run ended, first to last.

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
// of a stream.
double least_ns(const HostGraph& graph);

}  // namespace davit::simulation
