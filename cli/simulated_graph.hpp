// simulated_graph.hpp: an image's Main as the simulation takes it.
//
// Threads  One thread.
// Trust    Images are verified.
// Memory   Refers to the image, which must outlive it.
#pragma once

#include <string>
#include <vector>

#include "base/status.hpp"
#include "davit/npu.h"
#include "exec/dependencies.hpp"
#include "exec/image.hpp"
#include "simulation/host.hpp"

namespace davit::cli {

struct SimulatedGraph {
  const exec::GraphView* graph = nullptr;
  std::string reason;  // Why executors run it on one worker; empty when they need not.
  exec::Dependencies dependencies;
  std::vector<double> cost_ns;
  std::vector<double> device_ns;  // As HostGraph has them; empty for the cpu.
  std::vector<uint8_t> waits_for_device;
  double device_gap_ns = 0;

  // For the loop and the dynamic mode: values share memory as the image has it.
  [[nodiscard]] simulation::HostGraph as_compiled() const;
  // For plans, which come with a memory plan of their own: what values demand alone.
  [[nodiscard]] simulation::HostGraph of_values() const;
};

// A graph of the cpu. `cost_ns`: of each node.
SimulatedGraph simulated_graph(const DvtImage& image, std::vector<double> cost_ns);

// A graph that drives a device: what the host takes comes from the model's parameters, the tasks
// from its last run. DVT_UNSUPPORTED when they cannot be told apart by node: several streams, or
// values whose shape is set at run time.
Result<SimulatedGraph> simulated_graph(const DvtImage& image, const DvtNpu& npu);

}  // namespace davit::cli
