#include "exec/liveness.hpp"

#include <algorithm>

#include "davit/kernel.h"
#include "exec/verify_internal.hpp"

namespace davit::exec {
namespace {

// For each node, the last memory node that has to run before it, and by which node it waits for it.
class Needs {
 public:
  explicit Needs(const GraphView& graph)
      : last_(graph.node_count, kNone), through_(graph.node_count, kNone) {
    uint32_t launch = kNone;
    for (uint32_t node = 0; node < graph.node_count; ++node) {
      if (graph.lane[node] == DVT_KERNEL_LANE_LAUNCH) {
        if (launch != kNone) pass_on(launch, node);
        launch = node;
      }
      // Those before it are in its lane.
      if (graph.lane[node] == DVT_KERNEL_LANE_MEMORY) {
        last_[node] = node;
        through_[node] = kNone;
      }
      for (const uint32_t to : graph.succ_of(node)) pass_on(node, to);
    }
  }

  [[nodiscard]] uint32_t last(uint32_t node) const { return last_[node]; }
  // From the last memory node to the node itself.
  [[nodiscard]] std::vector<uint32_t> way_to(uint32_t node) const {
    std::vector<uint32_t> way;
    for (; node != kNone; node = through_[node]) way.push_back(node);
    std::reverse(way.begin(), way.end());
    return way;
  }

 private:
  void pass_on(uint32_t from, uint32_t to) {
    if (last_[from] == kNone || (last_[to] != kNone && last_[to] >= last_[from])) return;
    last_[to] = last_[from];
    through_[to] = from;
  }

  std::vector<uint32_t> last_, through_;
};

std::string name_of(const ImageView& image, const GraphView& graph, uint32_t node) {
  const std::string origin = image.strings[graph.origin_of(node)];
  return "node " + std::to_string(node) + " (" + image.kernel_refs[graph.kernel[node]].name +
         (origin.empty() ? "" : ", " + origin) + ")";
}

}  // namespace

Liveness prove_liveness(const ImageView& image, const GraphView& graph) {
  Liveness result;
  if (graph.free_off == nullptr) return result;
  const std::vector<DvtDeviceNode> kinds = verify::device_nodes(image);
  // The first allocation behind each node.
  std::vector<uint32_t> next_alloc(graph.node_count + 1, kNone);
  for (uint32_t node = graph.node_count; node-- > 0;) {
    const bool allocates = kinds[graph.kernel[node]] == DVT_NODE_ALLOC;
    next_alloc[node] = allocates ? node : next_alloc[node + 1];
  }
  const Needs needs(graph);
  for (uint32_t node = 0; node < graph.node_count; ++node) {
    for (const uint32_t launch : graph.free_launches_of(node)) {
      ++result.relations;
      const uint32_t last = needs.last(launch);
      const uint32_t waiter = next_alloc[node + 1];
      if (!result.proved() || last == kNone || waiter == kNone || waiter > last) continue;
      result.free = node;
      result.chain = {waiter};
      const std::vector<uint32_t> way = needs.way_to(launch);
      result.chain.insert(result.chain.end(), way.begin() + (way.front() == waiter ? 1 : 0),
                          way.end());
    }
  }
  return result;
}

std::string describe_liveness(const ImageView& image, const GraphView& graph,
                              const Liveness& liveness) {
  if (liveness.proved()) return "";
  const auto& chain = liveness.chain;
  std::string text = name_of(image, graph, chain.front()) + " may wait for " +
                     name_of(image, graph, chain.back()) + ", which " +
                     name_of(image, graph, liveness.free) + " has named";
  for (size_t i = chain.size() - 1; i > 0; --i) {
    const bool lane = graph.lane[chain[i]] == graph.lane[chain[i - 1]];
    text += "; " + name_of(image, graph, chain[i]) +
            (lane ? " waits, in its lane's order, for " : " waits for ") +
            name_of(image, graph, chain[i - 1]);
  }
  return text;
}

}  // namespace davit::exec
