// simulated_graph.hpp: an image's Main as the simulation takes it.
//
// Threads  One thread.
// Trust    Images are verified.
// Memory   Refers to the image, which must outlive it.
#pragma once

#include <string>
#include <vector>

#include "cli/recorded_calls.hpp"
#include "exec/dependencies.hpp"
#include "exec/image.hpp"
#include "simulation/host.hpp"

namespace davit::cli {

struct SimulatedGraph {
  const exec::GraphView* graph = nullptr;
  std::string reason;           // Why executors run it on one worker; empty when they need not.
  bool may_be_planned = false;  // A plan can be laid down for it.
  exec::Dependencies dependencies;
  std::vector<double> cost_ns;
  RecordedRun device;  // Empty for the cpu.

  // For the loop and the dynamic mode: values share memory as the image has it.
  [[nodiscard]] simulation::HostGraph as_compiled() const;
  // For plans, which come with a memory plan of their own: what values demand alone.
  [[nodiscard]] simulation::HostGraph of_values() const;
};

// A graph of the cpu. `cost_ns`: of each node.
SimulatedGraph simulated_graph(const DvtImage& image, std::vector<double> cost_ns);

// Main, or the graph of a gear, that drives a device, from a recorded run. Calls take what the
// model's parameters say; for nodes that do no more than to call the device that is all. Others
// (shapes, branches, loops, what is computed on the host) also take what they took on this machine.
SimulatedGraph simulated_graph(const DvtImage& image, const exec::GraphView& graph,
                               RecordedRun recorded);

}  // namespace davit::cli
