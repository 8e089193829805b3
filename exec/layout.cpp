#include "exec/layout.hpp"

#include <algorithm>
#include <cstring>

#include "base/checked.hpp"
#include "exec/gears.hpp"
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

// Counts of what graphs with dynamic shapes and bodies need.
struct DynamicCounts {
  uint64_t values = 0, scratch = 0, shape_nodes = 0, memo_bytes = 0;
  uint64_t flow_nodes = 0, bodies = 0, collected = 0;
};

DynamicCounts count_dynamic(const ImageView& image) {
  DynamicCounts counts;
  for (uint32_t value = 0; value < image.values.count && image.has_dynamic_descs; ++value) {
    counts.values += image.is_dynamic(value) ? 1 : 0;
  }
  const std::vector<DvtHostNode> kinds = host_nodes(image);
  if (std::all_of(kinds.begin(), kinds.end(),
                  [](DvtHostNode kind) { return kind == DVT_HOST_OTHER; })) {
    return counts;
  }
  for (const GraphView& graph : image.graphs) {
    for (uint32_t node = 0; node < graph.node_count; ++node) {
      if (kinds[graph.kernel[node]] == DVT_HOST_INFER_SHAPE) {
        const ShapeNodeFacts facts = shape_node_facts(image, graph, node);
        ++counts.shape_nodes;
        counts.scratch = std::max<uint64_t>(counts.scratch, facts.outputs);
        if (facts.remembers) {
          counts.memo_bytes += uint64_t{DVT_SHAPE_MEMO_WAYS} * facts.memo_bytes;
        }
      }
      const DvtHostNode kind = kinds[graph.kernel[node]];
      if (!runs_bodies(kind)) continue;
      ++counts.flow_nodes;
      counts.bodies += graph.bodies_of(node).size();
      counts.collected += collected_outputs(kind, graph, node);
    }
  }
  return counts;
}

}  // namespace

std::vector<DvtHostNode> host_nodes(const ImageView& image) {
  std::vector<DvtHostNode> nodes;
  nodes.reserve(image.kernel_refs.size());
  for (size_t i = 0; i < image.kernel_refs.size(); ++i) {
    nodes.push_back(image.kernels.empty() ? dvt_host_node_named(image.kernel_refs[i].name)
                                          : dvt_host_node(image.kernels[i]));
  }
  return nodes;
}

ShapeNodeFacts shape_node_facts(const ImageView& image, const GraphView& graph, uint32_t node) {
  DvtInferShapeAttributes attributes;
  std::memcpy(&attributes, graph.attributes_of(node).data(), sizeof attributes);
  ShapeNodeFacts facts;
  facts.target = static_cast<uint32_t>(attributes.target);
  const uint32_t device_kernel = graph.device_kernel_of(facts.target);
  facts.kernel = device_kernel == kNone ? graph.kernel[facts.target] : device_kernel;
  facts.outputs = static_cast<uint32_t>(graph.outputs_of(facts.target).size());
  facts.remembers = true;
  for (const uint32_t value : graph.inputs_of(node)) {
    if (value == kNone) continue;
    // Static inputs of an InferShape, and dynamic ones that the kernel reads, are data.
    if (image.is_dynamic(value)) {
      ++facts.dynamic_inputs;
    } else if (image.values.kind[value] != ValueKind::kConstant) {
      facts.remembers = false;
    }
  }
  const uint32_t host_inputs = image.kernels.empty() ? 0 : image.kernels[facts.kernel]->host_inputs;
  const auto inputs = graph.inputs_of(node);
  for (size_t i = 0; i < inputs.size() && i < 32; ++i) {
    const bool reads = (host_inputs >> i & 1) != 0;
    if (reads && inputs[i] != kNone && image.is_dynamic(inputs[i])) facts.remembers = false;
  }
  facts.memo_bytes = static_cast<uint32_t>(facts.dynamic_inputs * sizeof(DvtShape) +
                                           graph.outputs_of(node).size() * sizeof(DvtTensor));
  return facts;
}

uint32_t collected_outputs(DvtHostNode kind, const GraphView& graph, uint32_t node) {
  if (kind != DVT_HOST_LOOP) return 0;
  DvtLoopAttributes counts;  // Verifier: check_dynamic_values.
  std::memcpy(&counts, graph.attributes_of(node).data(), sizeof counts);
  return static_cast<uint32_t>(counts.collected);
}

Result<Layout> lay_out(const ImageView& image) {
  uint64_t nodes = 0;
  uint64_t operands = 0;
  Layout layout;
  layout.uses_device = uses_device(image);
  const DynamicCounts dynamic = count_dynamic(image);
  layout.uses_heap = dynamic.values > 0;
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
  uint64_t device_nodes = layout.uses_device ? nodes : 0;
  for (const uint32_t body : gears_of(image).bodies()) {
    if (!layout.uses_device) continue;
    device_nodes += image.graphs[body].node_count;
    layout.launch_bytes = std::max(layout.launch_bytes, largest_launch_bytes(image.graphs[body]));
  }
  for (const GraphView& graph : image.graphs) {
    if (graph.role != GraphRole::kBody) continue;
    nodes += graph.node_count;
    operands += graph.operand_count;
  }

  Cursor cursor;
  layout.values = cursor.take(image.arena_bytes, 1, image.arena_alignment);
  layout.runtime = cursor.take<DvtRuntime>(1);
  layout.cells = cursor.take(image.values.count, sizeof(DvtCell), 64);
  layout.steps = cursor.take(nodes, sizeof(DvtStep), 64);
  // Columns of all graphs fit into one flatbuffer below 2 GB: these products cannot wrap.
  layout.contexts =
      cursor.take(nodes * offsetof(DvtContext, cells) + operands * sizeof(DvtCell*), 1, 64);
  layout.port_offsets = cursor.take<uint32_t>(ports + 1);
  layout.port_values = cursor.take<uint32_t>(count_port_values(image));
  layout.bindings = cursor.take<Binding>(ports);
  layout.port_order = cursor.take<uint32_t>(ports);
  layout.outputs = cursor.take<DvtOutputSlot>(image.outputs.size());
  const bool allocates = layout.uses_heap || layout.uses_device;
  layout.blocks = cursor.take<uint64_t>(allocates ? image.values.count : 0);
  layout.shapes = cursor.take<DvtTensor>(dynamic.values);
  layout.scratch = cursor.take<DvtTensor>(dynamic.scratch * (dynamic.flow_nodes + 1));
  layout.scratch_tensors = dynamic.scratch;
  layout.flow_node_count = dynamic.flow_nodes;
  layout.shape_nodes = cursor.take<DvtShapeNode>(dynamic.shape_nodes);
  layout.memos = cursor.take(dynamic.memo_bytes, 1, 8);
  layout.flow_nodes = cursor.take<DvtFlowNode>(dynamic.flow_nodes);
  layout.flow_runtimes = cursor.take<DvtRuntime>(dynamic.flow_nodes);
  layout.bodies = cursor.take<DvtBody>(dynamic.bodies);
  layout.capacities = cursor.take<uint64_t>(dynamic.collected);
  layout.declared = cursor.take<DvtTensor>(dynamic.collected);
  layout.names = cursor.take<DvtNodeNames>(device_nodes);
  layout.costs = cursor.take<const DvtTaskCost*>(device_nodes);
  layout.streams = cursor.take<DvtStream*>(image.stream_count);
  layout.events = cursor.take<DvtEvent*>(image.event_count);
  layout.unjoined = cursor.take<uint8_t>(image.stream_count);
  layout.launch = cursor.take(layout.launch_bytes, 1, 16);
  layout.reason = cursor.take(dynamic.flow_nodes + 1, kReasons * kReasonBytes, 1);
  layout.total = cursor.end();
  if (cursor.overflowed()) {
    return Status(DVT_OUT_OF_MEMORY, DVT_STAGE_LOAD,
                  "the memory of an executor exceeds the address space");
  }
  return layout;
}

}  // namespace davit::exec
