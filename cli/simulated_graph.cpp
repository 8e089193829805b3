#include "cli/simulated_graph.hpp"

#include <utility>

#include "exec/runtime.h"

namespace davit::cli {
namespace {

const exec::GraphView& main_of(const DvtImage& image) {
  return image.view.graphs[image.view.main];
}

}  // namespace

simulation::HostGraph SimulatedGraph::as_compiled() const {
  return {{dependencies.successor_offsets,
           dependencies.successors,
           {graph->lane, graph->node_count},
           cost_ns},
          device.call_offsets,
          device.calls,
          device.last_calls};
}

simulation::HostGraph SimulatedGraph::of_values() const {
  const uint32_t n = graph->node_count;
  return {{{graph->succ_off, n + 1}, {graph->succ, graph->succ_off[n]}, {graph->lane, n}, cost_ns},
          device.call_offsets,
          device.calls,
          device.last_calls};
}

SimulatedGraph simulated_graph(const DvtImage& image, std::vector<double> cost_ns) {
  SimulatedGraph made;
  made.graph = &main_of(image);
  made.reason = exec::reason_to_keep_in_order(image.view, *made.graph);
  made.dependencies = made.reason.empty()
                          ? exec::host_dependencies_of(image.view, *made.graph, false)
                          : exec::successors_of(*made.graph);
  made.may_be_planned = exec::reason_to_stay_sequential(image.view, *made.graph).empty();
  made.cost_ns = std::move(cost_ns);
  return made;
}

SimulatedGraph simulated_graph(const DvtImage& image, const exec::GraphView& graph,
                               RecordedRun recorded) {
  SimulatedGraph made;
  made.graph = &graph;
  made.reason = exec::reason_to_keep_device_in_order(image.view, *made.graph);
  made.dependencies = made.reason.empty() ? exec::device_dependencies_of(image.view, *made.graph)
                                          : exec::successors_of(*made.graph);
  made.device = std::move(recorded);
  for (uint32_t node = 0; node < made.graph->node_count; ++node) {
    const DvtDeviceNode kind = dvt_device_node(image.view.kernels[made.graph->kernel[node]]);
    double cost_ns = kind == DVT_NODE_OTHER ? made.device.own_ns[node] : 0;
    for (uint32_t i = made.device.call_offsets[node]; i < made.device.call_offsets[node + 1]; ++i) {
      cost_ns += made.device.calls[i].host_ns;
    }
    made.cost_ns.push_back(cost_ns);
  }
  return made;
}

}  // namespace davit::cli
