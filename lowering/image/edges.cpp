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
        roots_(model.values.size()),
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

  // The values whose writers a reader of `value` depends on: for a view, what was written last
  // where it lies.
  const std::vector<uint32_t>& sources_of(uint32_t value) {
    std::vector<uint32_t>& roots = roots_[value];
    if (!roots.empty()) return roots;
    if (in_memory(value) && !written_[value] && model_.values[value].tensor.bytes != 0) {
      roots = written_at(value);
    }
    if (roots.empty()) roots.push_back(value);
    return roots;
  }

  std::vector<uint32_t> written_at(uint32_t value) {
    const Value& v = model_.values[value];
    std::vector<uint32_t> found;
    auto part = last_at_.upper_bound({v.kind, v.offset});
    if (part != last_at_.begin() && overlap(std::prev(part)->second, value)) --part;
    for (; part != last_at_.end() && overlap(part->second, value); ++part) {
      found.push_back(part->second);
    }
    return found;
  }

  // Outputs have no addresses but their ports.
  [[nodiscard]] bool overlap(uint32_t a, uint32_t b) const {
    const Value& x = model_.values[a];
    const Value& y = model_.values[b];
    if (x.kind != y.kind || x.kind == ValueKind::kOutput) {
      return x.kind == y.kind && x.offset == y.offset;
    }
    return x.offset < y.offset ? y.offset - x.offset < x.tensor.bytes
                               : x.offset - y.offset < y.tensor.bytes;
  }

  void read(uint32_t value, uint32_t graph, uint32_t node) {
    if (!known(value)) return;
    for (const uint32_t source : sources_of(value)) {
      const Writer writer = last_writer_[source];
      if (writer.graph == graph && writer.node < node) {
        edges_[graph].emplace_back(writer.node, node);
      }
    }
  }

  // What lay there is gone.
  void replace_at(uint32_t value) {
    for (const uint32_t old : written_at(value)) {
      last_at_.erase({model_.values[old].kind, model_.values[old].offset});
    }
    last_at_[{model_.values[value].kind, model_.values[value].offset}] = value;
  }

  void write(uint32_t value, uint32_t graph, uint32_t node) {
    if (!known(value)) return;
    const Value& v = model_.values[value];
    const bool launch = model_.graphs[graph].nodes[node].lane == DVT_KERNEL_LANE_LAUNCH;
    const bool again = is_dynamic(v) && last_writer_[value].graph == graph;
    if ((launch && v.kind == ValueKind::kDevice) || again) read(value, graph, node);
    last_writer_[value] = {graph, node};
    if (in_memory(value) && v.tensor.bytes != 0) replace_at(value);
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
  std::vector<std::vector<uint32_t>> roots_;
  std::vector<Writer> last_writer_;
  std::map<std::pair<ValueKind, uint64_t>, uint32_t> last_at_;  // Of one kind: disjoint.
  std::vector<Edges> edges_;
};

}  // namespace

std::vector<Edges> find_data_edges(const ImageModel& model) {
  return EdgeFinder(model).run();
}

}  // namespace davit::image
