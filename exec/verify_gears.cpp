// Stage 4b of the verifier: gears.
//
//   A SelectGear is the one node of Main. Each gear has a body, and a static value at each port:
//   with the port's element type, and a shape within what the port says. Static values at a port
//   whose shape is dynamic are values of a gear, or have as many bytes and are used in its body and
//   the bodies in it. Elsewhere there is none.
#include <algorithm>
#include <string>

#include "exec/gears.hpp"
#include "exec/layout.hpp"
#include "exec/verify_internal.hpp"

namespace davit::exec::verify {
namespace {

class Gears {
 public:
  explicit Gears(const ImageView& view) : view_(view), gears_(gears_of(view)) {}

  Status run() {
    if (Status s = find_node(); !s.ok()) return s;
    if (Status s = check_operands(); !s.ok()) return s;
    claim_bodies();
    for (uint32_t graph = 0; graph < view_.graphs.size(); ++graph) {
      if (Status s = check_graph(graph); !s.ok()) return s;
    }
    return {};
  }

 private:
  [[nodiscard]] const PortView* port_of(uint32_t value) const {
    const ValueKind kind = view_.values.kind[value];
    if (kind == ValueKind::kInput) return &view_.inputs[view_.values.offset[value]];
    if (kind == ValueKind::kOutput) return &view_.outputs[view_.values.offset[value]];
    return nullptr;
  }

  // No other node selects gears.
  Status find_node() const {
    const auto kinds = host_nodes(view_);
    for (uint32_t g = 0; g < view_.graphs.size(); ++g) {
      const GraphView& graph = view_.graphs[g];
      for (uint32_t node = 0; node < graph.node_count; ++node) {
        if (kinds[graph.kernel[node]] != DVT_HOST_SELECT_GEAR) continue;
        if (g == view_.main && graph.node_count == 1 && gears_.count > 0) continue;
        return broken(
            "graphs[%u] node %u (SelectGear): must be the one node of Main, and have "
            "bodies",
            g, node);
      }
    }
    return {};
  }

  Status check_operands() const {
    if (gears_.count == 0) return {};
    const GraphView& main = view_.graphs[view_.main];
    const auto inputs = main.inputs_of(0);
    const auto outputs = main.outputs_of(0);
    const size_t rows = size_t{gears_.count} + 1;
    if (inputs.size() != view_.inputs.size() * rows ||
        outputs.size() != view_.outputs.size() * rows) {
      return broken(
          "graphs[%u] node 0 (SelectGear): needs a value for each port of the image, and "
          "for each gear",
          view_.main);
    }
    if (Status s = check_values(inputs, view_.inputs, ValueKind::kInput); !s.ok()) return s;
    return check_values(outputs, view_.outputs, ValueKind::kOutput);
  }

  Status check_values(std::span<const uint32_t> values, std::span<const PortView> ports,
                      ValueKind kind) const {
    for (size_t i = 0; i < values.size(); ++i) {
      const uint32_t value = values[i];
      const PortView& port = ports[i % ports.size()];
      if (i < ports.size() ? value != port.value : !fits(value, port, i % ports.size(), kind)) {
        return broken("graphs[%u] node 0 (SelectGear): value %s is not one of port \"%s\"",
                      view_.main, value == kNone ? "_" : describe_value(view_, value).c_str(),
                      view_.strings[port.name]);
      }
    }
    return {};
  }

  [[nodiscard]] bool fits(uint32_t value, const PortView& port, size_t index,
                          ValueKind kind) const {
    if (value == kNone || view_.values.kind[value] != kind || view_.is_dynamic(value) ||
        view_.values.offset[value] != index) {
      return false;
    }
    const DvtTensor& tensor = *view_.tensor_of(value);
    const DvtTensor& known = view_.descs[port.desc];
    if (tensor.dtype != known.dtype) return false;
    if (known.rank == DVT_RANK_UNKNOWN) return true;
    bool inside = tensor.rank == known.rank;
    for (uint32_t d = 0; inside && d < known.rank; ++d) {
      inside = known.dims[d] == -1 || known.dims[d] == tensor.dims[d];
      if (port.dims == nullptr) continue;
      inside = inside && tensor.dims[d] >= port.dims[d].min && tensor.dims[d] <= port.dims[d].max;
    }
    return inside;
  }

  // Which gear each graph belongs to. That bodies form a tree is checked later (check_dataflow).
  void claim_bodies() {
    gear_of_.assign(view_.graphs.size(), kNone);
    if (gears_.count == 0) return;
    for (uint32_t gear = 0; gear < gears_.count; ++gear) {
      std::vector<uint32_t> open = {gears_.bodies()[gear]};
      while (!open.empty()) {
        const uint32_t graph = open.back();
        open.pop_back();
        if (graph >= view_.graphs.size() || gear_of_[graph] != kNone) continue;
        gear_of_[graph] = gear;
        const GraphView& inner = view_.graphs[graph];
        for (uint32_t node = 0; node < inner.node_count; ++node) {
          open.insert(open.end(), inner.bodies_of(node).begin(), inner.bodies_of(node).end());
        }
      }
    }
  }

  Status check_graph(uint32_t index) const {
    if (gears_.count > 0 && index == view_.main) return {};
    const GraphView& graph = view_.graphs[index];
    const std::span<const uint32_t> columns[] = {
        {graph.inputs, graph.inputs_off[graph.node_count]},
        {graph.outputs, graph.outputs_off[graph.node_count]}};
    for (const auto& column : columns) {
      for (const uint32_t value : column) {
        if (value == kNone || belongs(value, gear_of_[index])) continue;
        return broken(
            "graphs[%u]: value %s is not of the gear that the graph belongs to, and the "
            "port's shape is dynamic",
            index, describe_value(view_, value).c_str());
      }
    }
    return {};
  }

  [[nodiscard]] bool belongs(uint32_t value, uint32_t gear) const {
    const PortView* port = port_of(value);
    if (port == nullptr || view_.is_dynamic(value) || !view_.is_dynamic(port->value)) return true;
    if (gear == kNone) return false;
    const auto index = static_cast<uint32_t>(view_.values.offset[value]);
    const uint32_t own = view_.values.kind[value] == ValueKind::kInput
                             ? gears_.input_value(gear, index)
                             : gears_.output_value(gear, index);
    return view_.tensor_of(value)->bytes == view_.tensor_of(own)->bytes;
  }

  const ImageView& view_;
  const GearsView gears_;
  std::vector<uint32_t> gear_of_;  // Per graph, or kNone.
};

}  // namespace

Status check_gears(const ImageView& view) {
  const auto kinds = host_nodes(view);
  const bool selects = std::find(kinds.begin(), kinds.end(), DVT_HOST_SELECT_GEAR) != kinds.end();
  return selects || view.has_dynamic_descs ? Gears(view).run() : Status();
}

}  // namespace davit::exec::verify
