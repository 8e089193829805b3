#include "cli/node_times.hpp"

#include <algorithm>

namespace davit::cli {
namespace {

// Run by run.
struct NodeTimes {
  std::vector<std::vector<double>> of_node;

  // A DvtNodeObserver.
  static void observe(void* user, const DvtNodeEvent* event) {
    auto& times = *static_cast<NodeTimes*>(user);
    if (event->body != DVT_NO_INDEX || event->node >= times.of_node.size()) return;
    times.of_node[event->node].push_back(static_cast<double>(event->end_ns - event->begin_ns));
  }
};

}  // namespace

double median_of(std::vector<double> samples) {
  if (samples.empty()) return 0;
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

Result<std::vector<double>> measure_nodes(Runner& runner, size_t nodes, uint64_t iterations) {
  auto first = runner.run();
  if (!first.ok()) return std::move(first.status());
  NodeTimes times{.of_node = std::vector<std::vector<double>>(nodes)};
  for (uint64_t i = 0; i < iterations; ++i) {
    auto time_ns = runner.run_observed(&NodeTimes::observe, &times);
    if (!time_ns.ok()) return std::move(time_ns.status());
  }
  std::vector<double> medians;
  for (auto& samples : times.of_node) medians.push_back(median_of(std::move(samples)));
  return medians;
}

}  // namespace davit::cli
