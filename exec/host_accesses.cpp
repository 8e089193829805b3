#include "exec/host_accesses.hpp"

#include <numeric>

#include "exec/layout.hpp"
#include "exec/verify_internal.hpp"

namespace davit::exec {

HostAccesses::HostAccesses(const ImageView& image, const GraphView& graph, bool heap_in_order)
    : image_(image),
      graph_(&graph),
      host_(host_nodes(image)),
      device_(verify::device_nodes(image)),
      memory_(image.values.count),
      heap_in_order_(heap_in_order),
      sweep_(graph.node_count) {
  std::iota(memory_.begin(), memory_.end(), 0U);
  for (uint32_t node = 0; node < graph.node_count; ++node) {
    sweep_.next_node();
    add(node);
  }
}

Range HostAccesses::data(uint32_t value) const {
  const uint32_t memory = memory_[value];
  if (image_.values.kind[memory] == ValueKind::kHeap) return place_of(Place::kHeap, memory);
  return data_of(image_, memory);
}

// Other cells do not change while Main runs.
Range HostAccesses::cell(uint32_t value) const {
  const ValueKind kind = image_.values.kind[value];
  const bool changes = kind == ValueKind::kHeap || kind == ValueKind::kDevice ||
                       (kind == ValueKind::kOutput && dynamic(value));
  return changes ? place_of(Place::kCell, value) : Range{0, 0};
}

void HostAccesses::add(uint32_t node) {
  if (add_host_node(node)) return;
  if (device_[graph_->kernel[node]] != DVT_NODE_OTHER) return add_device_node(node);
  compute(node);
}

// False: it is another node.
bool HostAccesses::add_host_node(uint32_t node) {
  const auto inputs = graph_->inputs_of(node);
  const auto outputs = graph_->outputs_of(node);
  switch (host_[graph_->kernel[node]]) {
    case DVT_HOST_INFER_SHAPE:
      infer(node);
      return true;
    case DVT_HOST_ALLOC:
    case DVT_HOST_BIND_OUTPUT:
      for (const uint32_t value : outputs) {
        read_shape(value);
        write_cell(value);
      }
      if (heap_in_order_) take_turn(Turn::kHeap);
      return true;
    case DVT_HOST_FREE:
      for (const uint32_t value : inputs) {
        write_cell(value);
        write_data(value);
      }
      if (heap_in_order_) take_turn(Turn::kHeap);
      return true;
    case DVT_HOST_REFER_TO:
      read_cell(inputs[0]);
      write_cell(outputs[0]);
      memory_[outputs[0]] = memory_[inputs[0]];
      return true;
    case DVT_HOST_COPY_SHAPE:
      read_shape(inputs[0]);
      write_shape(outputs[0]);
      return true;
    case DVT_HOST_IF:
    case DVT_HOST_LOOP:
    case DVT_HOST_SELECT_GEAR:
      run_bodies(node);
      return true;
    default:
      return false;
  }
}

// Which bodies run, and how often, is not known; a Loop also moves data between its outputs.
void HostAccesses::run_bodies(uint32_t node) {
  for (const uint32_t value : graph_->inputs_of(node)) {
    read_shape(value);
    read_cell(value);
    read_data(value);
  }
  for (const uint32_t value : graph_->outputs_of(node)) {
    write_shape(value);
    write_cell(value);
    write_data(value);
  }
  if (heap_in_order_) take_turn(Turn::kHeap);
  const GraphView* const around = graph_;
  ++around_;
  for (const uint32_t body : around->bodies_of(node)) {
    graph_ = &image_.graphs[body];
    for (uint32_t inner = 0; inner < graph_->node_count; ++inner) add(inner);
  }
  --around_;
  graph_ = around;
}

// The target's kernel looks at shapes, at the data of some inputs, and where they are.
void HostAccesses::infer(uint32_t node) {
  const DvtKernel& kernel = *image_.kernels[shape_node_facts(image_, *graph_, node).kernel];
  const auto inputs = graph_->inputs_of(node);
  for (size_t i = 0; i < inputs.size(); ++i) {
    read_shape(inputs[i]);
    read_cell(inputs[i]);
    if (!dynamic(inputs[i]) || (i < 32 && (kernel.host_inputs >> i & 1) != 0)) {
      read_data(inputs[i]);
    }
  }
  for (const uint32_t value : graph_->outputs_of(node)) write_shape(value);
  take_turn(Turn::kReason);  // And the scratch that all of them share.
}

void HostAccesses::add_device_node(uint32_t node) {
  const auto inputs = graph_->inputs_of(node);
  const auto outputs = graph_->outputs_of(node);
  switch (device_[graph_->kernel[node]]) {
    case DVT_NODE_ALLOC:
      read_shape(outputs[0]);
      write_cell(outputs[0]);
      break;
    case DVT_NODE_FREE:
      write_cell(inputs[0]);
      break;
    case DVT_NODE_BUILD_REF:
    case DVT_NODE_BUILD_PART:
      read_cell(inputs[0]);
      write_cell(outputs[0]);
      break;
    case DVT_NODE_PACK_HOST:
      for (const uint32_t value : inputs) {
        read_cell(value);
        read_data(value);
      }
      write_data(outputs[0]);
      break;
    case DVT_NODE_COPY_H2D:
      for (const uint32_t value : inputs) read_shape(value);
      read_cell(inputs[0]);
      read_data(inputs[0]);
      break;
    case DVT_NODE_COPY_D2H:
      read_shape(inputs[0]);
      read_shape(outputs[0]);
      read_cell(outputs[0]);
      write_data(outputs[0]);
      break;
    case DVT_NODE_LAUNCH:
      for (const uint32_t value : inputs) read_shape(value);
      for (const uint32_t value : outputs) read_shape(value);
      break;
    case DVT_NODE_SYNC_STREAM:
      take_turn(Turn::kReason);
      break;
    default:
      break;
  }
}

void HostAccesses::compute(uint32_t node) {
  const uint32_t flags = image_.kernel_refs[graph_->kernel[node]].flags;
  const bool shape_only = (flags & DVT_KERNEL_SHAPE_ONLY) != 0;
  for (const uint32_t value : graph_->inputs_of(node)) {
    read_shape(value);
    if (shape_only) continue;
    read_cell(value);
    read_data(value);
  }
  for (const uint32_t value : graph_->outputs_of(node)) {
    read_cell(value);
    write_data(value);
    if ((flags & DVT_KERNEL_SHAPES_OUTPUTS) != 0) {
      write_shape(value);
    } else {
      read_shape(value);
    }
  }
}

void HostAccesses::run(std::vector<std::vector<uint32_t>>& before) {
  sweep_.run(before);
  if (!heap_in_order_) allocate_late(before);
}

// An AllocHost waits for what its node waits for, as far as that comes before it.
void HostAccesses::allocate_late(std::vector<std::vector<uint32_t>>& before) const {
  std::vector<uint32_t> allocated_by(image_.values.count, kNone);
  for (uint32_t node = 0; node < graph_->node_count; ++node) {
    const DvtHostNode kind = host_[graph_->kernel[node]];
    for (const uint32_t value : graph_->outputs_of(node)) {
      if (value == kNone) continue;
      if (kind == DVT_HOST_ALLOC) allocated_by[value] = node;
      const uint32_t alloc = allocated_by[value];
      if (kind != DVT_HOST_OTHER || alloc == kNone) continue;
      for (const uint32_t other : before[node]) {
        if (other < alloc) before[alloc].push_back(other);
      }
    }
  }
}

}  // namespace davit::exec
