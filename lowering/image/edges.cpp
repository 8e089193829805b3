#include "lowering/image/edges.hpp"

#include <algorithm>
#include <map>

namespace davit::image {
namespace {

// Scans graphs parents first, nodes in order, and remembers who wrote what last.
class EdgeFinder {
 public:
  explicit EdgeFinder(const ImageModel& model)
      : model_(model),
        written_(model.values.size(), false),
        root_(model.values.size(), kNone),
        last_writer_(model.values.size()),
        edges_(model.graphs.size()) {
    for (const Graph& graph : model.graphs) {
      for (const Node& node : graph.nodes) {
        for (const uint32_t value : node.outputs) {
          if (known(value)) written_[value] = true;
        }
      }
    }
  }

  std::vector<Edges> run() {
    for (const uint32_t graph : parents_first()) scan(graph);
    for (Edges& edges : edges_) {
      std::sort(edges.begin(), edges.end());
      edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    }
    return std::move(edges_);
  }

 private:
  struct Writer {
    uint32_t graph = kNone;
    uint32_t node = kNone;
  };

  static bool is_dynamic(const Value& value) {
    return value.has_tensor && (value.tensor.flags & DVT_TENSOR_DYNAMIC) != 0;
  }
  [[nodiscard]] bool known(uint32_t value) const { return value < model_.values.size(); }
  [[nodiscard]] bool in_memory(uint32_t value) const {
    const Value& v = model_.values[value];
    return v.kind == ValueKind::kPlanned || (v.kind == ValueKind::kOutput && !is_dynamic(v));
  }

  [[nodiscard]] std::vector<uint32_t> parents_first() const {
    std::vector<uint32_t> order;
    std::vector<bool> seen(model_.graphs.size(), false);
    const auto add = [&](uint32_t graph) {
      if (graph >= model_.graphs.size() || seen[graph]) return;
      seen[graph] = true;
      order.push_back(graph);
    };
    for (const GraphRole role : {GraphRole::kInit, GraphRole::kMain, GraphRole::kDeInit}) {
      for (uint32_t i = 0; i < model_.graphs.size(); ++i) {
        if (model_.graphs[i].role == role) add(i);
      }
    }
    for (size_t i = 0; i < order.size(); ++i) {
      for (const Node& node : model_.graphs[order[i]].nodes) {
        for (const uint32_t body : node.bodies) add(body);
      }
    }
    return order;
  }

  // The value whose writer a reader of `value` depends on.
  uint32_t source_of(uint32_t value) {
    if (!in_memory(value)) return value;
    uint32_t& root = root_[value];
    if (root == kNone) {
      const Value& v = model_.values[value];
      const auto last = last_at_.find({v.kind, v.offset});
      const bool is_view = !written_[value] && v.tensor.bytes != 0 && last != last_at_.end();
      root = is_view ? last->second : value;
    }
    return root;
  }

  void read(uint32_t value, uint32_t graph, uint32_t node) {
    if (!known(value)) return;
    const Writer writer = last_writer_[source_of(value)];
    if (writer.graph == graph && writer.node < node) edges_[graph].emplace_back(writer.node, node);
  }

  void write(uint32_t value, uint32_t graph, uint32_t node) {
    if (!known(value)) return;
    const Value& v = model_.values[value];
    const bool launch = model_.graphs[graph].nodes[node].lane == DVT_KERNEL_LANE_LAUNCH;
    const bool again = is_dynamic(v) && last_writer_[value].graph == graph;
    if ((launch && v.kind == ValueKind::kDevice) || again) read(value, graph, node);
    last_writer_[value] = {graph, node};
    if (in_memory(value) && v.tensor.bytes != 0) last_at_[{v.kind, v.offset}] = value;
  }

  void scan(uint32_t graph) {
    const std::vector<Node>& nodes = model_.graphs[graph].nodes;
    for (uint32_t i = 0; i < nodes.size(); ++i) {
      for (const uint32_t value : nodes[i].inputs) read(value, graph, i);
      for (const uint32_t value : nodes[i].outputs) write(value, graph, i);
    }
  }

  const ImageModel& model_;
  std::vector<bool> written_;
  std::vector<uint32_t> root_;
  std::vector<Writer> last_writer_;
  std::map<std::pair<ValueKind, uint64_t>, uint32_t> last_at_;
  std::vector<Edges> edges_;
};

}  // namespace

std::vector<Edges> find_data_edges(const ImageModel& model) {
  return EdgeFinder(model).run();
}

}  // namespace davit::image
