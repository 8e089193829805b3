#include "exec/layout.hpp"

#include <algorithm>
#include <cstring>

#include "base/checked.hpp"
#include "exec/runtime.h"
#include "exec/sequential_c/sequential.h"

namespace davit::exec {
namespace {

// Hands out consecutive regions; remembers overflow instead of wrapping.
class Cursor {
 public:
  uint64_t take(uint64_t count, uint64_t element_bytes, uint64_t alignment) {
    const auto start = checked_align(end_, alignment);
    const auto bytes = checked_mul(count, element_bytes);
    const auto end = start && bytes ? checked_add(*start, *bytes) : std::nullopt;
    if (!end) {
      overflowed_ = true;
      return 0;
    }
    end_ = *end;
    return *start;
  }

  template <class T>
  uint64_t take(uint64_t count) {
    return take(count, sizeof(T), alignof(T));
  }

  [[nodiscard]] uint64_t end() const { return end_; }
  [[nodiscard]] bool overflowed() const { return overflowed_; }

 private:
  uint64_t end_ = 0;
  bool overflowed_ = false;
};

// True when some kernel of the image drives a device. Unresolved kernels count by their names.
bool uses_device(const ImageView& image) {
  const DvtKernelTable table = dvt_device_kernels();
  const auto drives = [&](uint32_t kernel) {
    if (!image.kernels.empty()) return dvt_device_node(image.kernels[kernel]) != DVT_NODE_OTHER;
    return std::any_of(table.kernels, table.kernels + table.count, [&](const DvtKernel& known) {
      return std::strcmp(known.name, image.kernel_refs[kernel].name) == 0;
    });
  };
  for (uint32_t kernel = 0; kernel < image.kernel_refs.size(); ++kernel) {
    if (drives(kernel)) return true;
  }
  return false;
}

uint64_t count_port_values(const ImageView& image) {
  const auto* first = image.values.kind;
  return static_cast<uint64_t>(std::count_if(first, first + image.values.count, [](ValueKind kind) {
    return kind == ValueKind::kInput || kind == ValueKind::kOutput;
  }));
}

uint64_t largest_launch_bytes(const GraphView& graph) {
  uint64_t operands = 0;
  for (uint32_t node = 0; node < graph.node_count; ++node) {
    if (graph.lane[node] != DVT_KERNEL_LANE_LAUNCH) continue;
    operands =
        std::max<uint64_t>(operands, graph.inputs_of(node).size() + graph.outputs_of(node).size());
  }
  return dvt_launch_argument_bytes(operands);
}

}  // namespace

Result<Layout> lay_out(const ImageView& image) {
  uint64_t nodes = 0;
  uint64_t operands = 0;
  Layout layout;
  layout.uses_device = uses_device(image);
  for (const uint32_t id : runnable_graphs(image)) {
    if (id == kNone) continue;
    const GraphView& graph = image.graphs[id];
    nodes += graph.node_count;
    operands += graph.operand_count;
    if (layout.uses_device) {
      layout.launch_bytes = std::max(layout.launch_bytes, largest_launch_bytes(graph));
    }
  }
  const uint64_t ports = image.inputs.size() + image.outputs.size();
  const uint64_t device_nodes = layout.uses_device ? nodes : 0;

  Cursor cursor;
  layout.values = cursor.take(image.arena_bytes, 1, image.arena_alignment);
  layout.runtime = cursor.take<DvtRuntime>(1);
  layout.cells = cursor.take(image.values.count, sizeof(DvtCell), 64);
  layout.steps = cursor.take(nodes, sizeof(DvtStep), 64);
  // nodes and operands are sums of at most three u32 counts: these products cannot wrap.
  layout.contexts =
      cursor.take(nodes * offsetof(DvtContext, cells) + operands * sizeof(DvtCell*), 1, 64);
  layout.port_offsets = cursor.take<uint32_t>(ports + 1);
  layout.port_values = cursor.take<uint32_t>(count_port_values(image));
  layout.bindings = cursor.take<Binding>(ports);
  layout.port_order = cursor.take<uint32_t>(ports);
  layout.names = cursor.take<DvtNodeNames>(device_nodes);
  layout.costs = cursor.take<const DvtTaskCost*>(device_nodes);
  layout.streams = cursor.take<DvtStream*>(image.stream_count);
  layout.events = cursor.take<DvtEvent*>(image.event_count);
  layout.unjoined = cursor.take<uint8_t>(image.stream_count);
  layout.launch = cursor.take(layout.launch_bytes, 1, 16);
  layout.reason = cursor.take(kReasonBytes, 1, 1);
  layout.total = cursor.end();
  if (cursor.overflowed()) {
    return Status(DVT_OUT_OF_MEMORY, DVT_STAGE_LOAD,
                  "the memory of an executor exceeds the address space");
  }
  return layout;
}

}  // namespace davit::exec
