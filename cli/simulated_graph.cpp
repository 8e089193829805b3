#include "cli/simulated_graph.hpp"

#include <algorithm>
#include <utility>

#include "cli/run_shares.hpp"
#include "exec/runtime.h"

namespace davit::cli {
namespace {

const exec::GraphView& main_of(const DvtImage& image) {
  return image.view.graphs[image.view.main];
}

exec::Dependencies successors_of(const exec::GraphView& graph) {
  const uint32_t n = graph.node_count;
  return {.successor_offsets = {graph.succ_off, graph.succ_off + n + 1},
          .successors = {graph.succ, graph.succ + graph.succ_off[n]},
          .indegree = {graph.indegree, graph.indegree + n}};
}

bool submits_task(DvtDeviceNode kind) {
  return kind == DVT_NODE_LAUNCH || kind == DVT_NODE_COPY_H2D || kind == DVT_NODE_COPY_D2H;
}

// Of the last run, in the order of submission.
std::vector<double> task_times_ns(const DvtNpu& npu) {
  DvtNpuRun run{};
  const uint64_t runs = dvt_npu_run_count(&npu);
  if (runs == 0 || dvt_npu_run(&npu, runs - 1, &run) != DVT_OK) return {};
  std::vector<DvtNpuTask> tasks = tasks_of(&npu, run);
  std::sort(tasks.begin(), tasks.end(),
            [](const DvtNpuTask& a, const DvtNpuTask& b) { return a.id < b.id; });
  std::vector<double> times;
  for (const DvtNpuTask& task : tasks) {
    times.push_back(static_cast<double>(task.end_ps - task.start_ps) / 1000);
  }
  return times;
}

}  // namespace

simulation::HostGraph SimulatedGraph::as_compiled() const {
  return {{dependencies.successor_offsets,
           dependencies.successors,
           {graph->lane, graph->node_count},
           cost_ns},
          device_ns,
          waits_for_device,
          device_gap_ns};
}

simulation::HostGraph SimulatedGraph::of_values() const {
  const uint32_t n = graph->node_count;
  return {{{graph->succ_off, n + 1}, {graph->succ, graph->succ_off[n]}, {graph->lane, n}, cost_ns},
          device_ns,
          waits_for_device,
          device_gap_ns};
}

SimulatedGraph simulated_graph(const DvtImage& image, std::vector<double> cost_ns) {
  SimulatedGraph made;
  made.graph = &main_of(image);
  made.reason = exec::reason_to_stay_sequential(image.view, *made.graph);
  made.dependencies = made.reason.empty() ? exec::dependencies_of(image.view, *made.graph)
                                          : successors_of(*made.graph);
  made.cost_ns = std::move(cost_ns);
  return made;
}

Result<SimulatedGraph> simulated_graph(const DvtImage& image, const DvtNpu& npu) {
  if (image.view.has_dynamic_descs || main_of(image).branch_off != nullptr) {
    return Status(DVT_UNSUPPORTED, DVT_STAGE_CHECK,
                  "the image sets shapes at run time, or runs bodies: what the host takes for that "
                  "is not modelled");
  }
  if (image.view.stream_count > 1) {
    return Status(DVT_UNSUPPORTED, DVT_STAGE_CHECK,
                  "the image uses " + std::to_string(image.view.stream_count) +
                      " streams: only images with one are simulated");
  }
  SimulatedGraph made;
  made.graph = &main_of(image);
  made.reason = image.view.stream_count != 1
                    ? "the image uses several streams"
                    : exec::reason_to_keep_device_in_order(image.view, *made.graph);
  made.dependencies = made.reason.empty() ? exec::device_dependencies_of(image.view, *made.graph)
                                          : successors_of(*made.graph);
  const std::vector<double> tasks = task_times_ns(npu);
  made.device_gap_ns = static_cast<double>(task_gap_ps(&npu)) / 1000;
  const double enqueue_ns = npu_parameter(&npu, "host.enqueue") * 1000;
  const double synchronize_ns = npu_parameter(&npu, "host.synchronize") * 1000;
  size_t next_task = 0;
  for (uint32_t node = 0; node < made.graph->node_count; ++node) {
    const DvtDeviceNode kind = dvt_device_node(image.view.kernels[made.graph->kernel[node]]);
    const bool waits = kind == DVT_NODE_SYNC_STREAM;
    const bool submits = submits_task(kind);
    made.cost_ns.push_back(submits ? enqueue_ns : waits ? synchronize_ns : 0);
    made.waits_for_device.push_back(waits ? 1 : 0);
    made.device_ns.push_back(submits && next_task < tasks.size() ? tasks[next_task] : 0);
    next_task += submits ? 1 : 0;
  }
  if (next_task == tasks.size()) return made;
  return Status(DVT_UNSUPPORTED, DVT_STAGE_CHECK,
                "the device ran " + std::to_string(tasks.size()) + " tasks for " +
                    std::to_string(next_task) +
                    " nodes that submit: only static images with one stream are simulated");
}

}  // namespace davit::cli
