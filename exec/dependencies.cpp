#include "exec/dependencies.hpp"

#include <algorithm>
#include <span>

#include "exec/host_accesses.hpp"
#include "exec/layout.hpp"

namespace davit::exec {
namespace {

std::vector<std::vector<uint32_t>> sources_of(const GraphView& graph) {
  std::vector<std::vector<uint32_t>> before(graph.node_count);
  for (uint32_t node = 0; node < graph.node_count; ++node) {
    for (const uint32_t to : graph.succ_of(node)) before[to].push_back(node);
  }
  return before;
}

constexpr const char* kTooMuch = "too many values share memory";

}  // namespace

Dependencies dependencies_from(std::vector<std::vector<uint32_t>>& before) {
  const auto count = static_cast<uint32_t>(before.size());
  Dependencies made;
  made.successor_offsets.assign(count + 1, 0);
  for (auto& sources : before) {
    std::sort(sources.begin(), sources.end());
    sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
    for (const uint32_t from : sources) ++made.successor_offsets[from + 1];
    made.indegree.push_back(static_cast<uint32_t>(sources.size()));
  }
  for (uint32_t i = 0; i < count; ++i) made.successor_offsets[i + 1] += made.successor_offsets[i];
  made.successors.resize(made.successor_offsets.back());
  std::vector<uint32_t> fill(made.successor_offsets.begin(), made.successor_offsets.end() - 1);
  for (uint32_t node = 0; node < count; ++node) {
    for (const uint32_t from : before[node]) made.successors[fill[from]++] = node;
  }
  return made;
}

Dependencies successors_of(const GraphView& graph) {
  const uint32_t n = graph.node_count;
  return {.successor_offsets = {graph.succ_off, graph.succ_off + n + 1},
          .successors = {graph.succ, graph.succ + graph.succ_off[n]},
          .indegree = {graph.indegree, graph.indegree + n}};
}

Dependencies dependencies_behind(const Dependencies& all, uint32_t first) {
  const auto count = static_cast<uint32_t>(all.indegree.size());
  Dependencies made;
  made.successor_offsets.push_back(0);
  made.indegree.assign(count - first, 0);
  for (uint32_t node = first; node < count; ++node) {
    for (uint32_t i = all.successor_offsets[node]; i < all.successor_offsets[node + 1]; ++i) {
      made.successors.push_back(all.successors[i] - first);  // Successors are behind their node.
      ++made.indegree[made.successors.back()];
    }
    made.successor_offsets.push_back(static_cast<uint32_t>(made.successors.size()));
  }
  return made;
}

std::string reason_to_stay_sequential(const ImageView& image, const GraphView& graph) {
  const std::vector<DvtHostNode> host_kinds = host_nodes(image);
  for (uint32_t node = 0; node < graph.node_count; ++node) {
    if (!graph.bodies_of(node).empty()) return "the graph has branches or loops";
    if (host_kinds[graph.kernel[node]] != DVT_HOST_OTHER) return "shapes are set at run time";
    for (const auto values : {graph.inputs_of(node), graph.outputs_of(node)}) {
      for (const uint32_t value : values) {
        if (value != kNone && image.is_dynamic(value)) return "shapes are set at run time";
      }
    }
  }
  if (HostAccesses(image, graph, true).cost() > kSweepStepsMax) return kTooMuch;
  return "";
}

Dependencies dependencies_of(const ImageView& image, const GraphView& graph) {
  return host_dependencies_of(image, graph, true);
}

std::string reason_to_keep_in_order(const ImageView& image, const GraphView& graph) {
  for (uint32_t node = 0; node < graph.node_count; ++node) {
    for (const uint32_t body : graph.bodies_of(node)) {
      if (drives_device(image, image.graphs[body])) return "its bodies drive a device";
    }
  }
  if (HostAccesses(image, graph, true).cost() > kSweepStepsMax) return kTooMuch;
  return "";
}

Dependencies host_dependencies_of(const ImageView& image, const GraphView& graph,
                                  bool heap_in_order) {
  std::vector<std::vector<uint32_t>> before = sources_of(graph);
  HostAccesses(image, graph, heap_in_order).run(before);
  return dependencies_from(before);
}

}  // namespace davit::exec
