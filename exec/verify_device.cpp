// Stage 6 of the verifier: device memory.
//
//   Only Davit's device nodes (exec/runtime.h) have device operands, each where it expects one: a
//   device cell always holds an address that an AllocMemHbm returned.
//   BuildRefTensor gives memory a second name, which dies with the first.
//   A launch does not write memory that it reads, but for a kernel with DVT_KERNEL_IN_PLACE: output
//   0 may be input 0. A graph frees what it allocated (DeInit: what Init did), and uses nothing
//   after it was freed. All but Init free all they allocated; so the next run finds everything as
//   it was.
#include <algorithm>
#include <string_view>

#include "exec/dynamic.h"
#include "exec/gears.hpp"
#include "exec/layout.hpp"
#include "exec/verify_internal.hpp"

namespace davit::exec::verify {
namespace {

// What a device node's operand may be.
enum class Operand : uint8_t {
  kDevice,
  kDeviceOrWord,
  kHost,         // A tensor on the host.
  kHostWritable  // The same, but neither constant nor input.
};

const char* operand_text(Operand operand) {
  switch (operand) {
    case Operand::kDevice:
      return "a device value";
    case Operand::kDeviceOrWord:
      return "a device value or a word";
    case Operand::kHost:
      return "a tensor on the host";
    case Operand::kHostWritable:
      return "a planned value, a heap value or an output";
  }
  return "";
}

bool operand_fits(Operand operand, ValueKind kind) {
  switch (operand) {
    case Operand::kDevice:
      return kind == ValueKind::kDevice;
    case Operand::kDeviceOrWord:
      return kind == ValueKind::kDevice || kind == ValueKind::kWord;
    case Operand::kHost:
      return kind != ValueKind::kDevice && kind != ValueKind::kWord;
    case Operand::kHostWritable:
      return kind == ValueKind::kPlanned || kind == ValueKind::kOutput || kind == ValueKind::kHeap;
  }
  return false;
}

class DeviceMemory {
 public:
  DeviceMemory(const ImageView& view, const FlowFacts& facts)
      : view_(view),
        facts_(facts),
        nodes_(device_nodes(view)),
        host_nodes_(host_nodes(view)),
        mains_(main_graphs(view)),
        allocation_(view.values.count, kNone),
        freed_(view.values.count),
        used_by_(view.values.count, 0) {}

  Status run() {
    for (const uint32_t graph : facts_.graph_order) {
      if (Status s = scan(graph); !s.ok()) return s;
    }
    return {};
  }

 private:
  struct Freed {
    uint32_t graph = kNone;
    uint32_t node = kNone;
  };

  Status scan(uint32_t graph);
  Status check_operands(uint32_t node) const;
  Status check_operand(const char* column, uint32_t at, uint32_t value, Operand operand,
                       uint32_t node) const;
  Status check_host_node(uint32_t node) const;
  Status check_alive(uint32_t node, uint32_t value) const;
  Status check_aliases(uint32_t node);
  Status allocate(uint32_t node);
  Status release(uint32_t node);

  [[nodiscard]] bool is_device(uint32_t value) const {
    return value != kNone && view_.values.kind[value] == ValueKind::kDevice;
  }
  // Of a body: it runs in the place of Main.
  [[nodiscard]] bool is_gear() const {
    return std::find(mains_.begin(), mains_.end(), index_) != mains_.end();
  }
  [[nodiscard]] DvtDeviceNode kind(uint32_t node) const { return nodes_[graph_->kernel[node]]; }

  const ImageView& view_;
  const FlowFacts& facts_;
  const std::vector<DvtDeviceNode> nodes_;     // Per kernel of the image.
  const std::vector<DvtHostNode> host_nodes_;  // The same.
  const std::vector<uint32_t> mains_;
  std::vector<uint32_t> allocation_;  // Per device value: the value that was allocated.
  std::vector<Freed> freed_;          // Per allocated value: who freed it.
  std::vector<uint32_t> used_by_;     // Per allocated value: the last launch with it, from 1.
  uint32_t launches_ = 0;
  uint32_t index_ = 0;
  const GraphView* graph_ = nullptr;
};

Status DeviceMemory::check_operand(const char* column, uint32_t at, uint32_t value, Operand operand,
                                   uint32_t node) const {
  if (value == kNone || operand_fits(operand, view_.values.kind[value])) return {};
  return broken("graphs[%u].%s[%u]: value %s is an operand of %s and must be %s", index_, column,
                at, describe_value(view_, value).c_str(),
                view_.kernel_refs[graph_->kernel[node]].name, operand_text(operand));
}

Status DeviceMemory::check_host_node(uint32_t node) const {
  // These read and write shapes, or hand an address on; the data stays where it is.
  const DvtHostNode what = host_nodes_[graph_->kernel[node]];
  const uint32_t flags = view_.kernel_refs[graph_->kernel[node]].flags;
  if (what == DVT_HOST_INFER_SHAPE || what == DVT_HOST_COPY_SHAPE || what == DVT_HOST_REFER_TO) {
    return {};
  }
  const bool shapes_only = (flags & DVT_KERNEL_SHAPE_ONLY) != 0;
  for (uint32_t at = graph_->inputs_off[node]; at < graph_->inputs_off[node + 1]; ++at) {
    if (!is_device(graph_->inputs[at]) || shapes_only) continue;
    return broken("graphs[%u].inputs[%u]: kernel \"%s\" cannot use device value %s", index_, at,
                  view_.kernel_refs[graph_->kernel[node]].name,
                  describe_value(view_, graph_->inputs[at]).c_str());
  }
  for (uint32_t at = graph_->outputs_off[node]; at < graph_->outputs_off[node + 1]; ++at) {
    if (!is_device(graph_->outputs[at])) continue;
    return broken("graphs[%u].outputs[%u]: kernel \"%s\" cannot use device value %s", index_, at,
                  view_.kernel_refs[graph_->kernel[node]].name,
                  describe_value(view_, graph_->outputs[at]).c_str());
  }
  return {};
}

// The table in exec/runtime.h. Counts are the business of the kernels' checks.
Status DeviceMemory::check_operands(uint32_t node) const {
  Operand first_input = Operand::kDevice;
  Operand other_inputs = Operand::kDevice;
  Operand outputs = Operand::kDevice;
  switch (kind(node)) {
    case DVT_NODE_OTHER:
      return check_host_node(node);
    case DVT_NODE_COPY_H2D:
      first_input = Operand::kHost;
      break;
    case DVT_NODE_COPY_D2H:
      outputs = Operand::kHostWritable;
      break;
    case DVT_NODE_LAUNCH:
      first_input = other_inputs = Operand::kDeviceOrWord;
      break;
    case DVT_NODE_PACK_HOST:
      first_input = other_inputs = Operand::kHost;
      outputs = Operand::kHostWritable;
      break;
    default:
      break;
  }
  const uint32_t first = graph_->inputs_off[node];
  for (uint32_t at = first; at < graph_->inputs_off[node + 1]; ++at) {
    const Operand operand = at == first ? first_input : other_inputs;
    if (Status s = check_operand("inputs", at, graph_->inputs[at], operand, node); !s.ok())
      return s;
  }
  for (uint32_t at = graph_->outputs_off[node]; at < graph_->outputs_off[node + 1]; ++at) {
    if (Status s = check_operand("outputs", at, graph_->outputs[at], outputs, node); !s.ok()) {
      return s;
    }
  }
  return {};
}

// What the cells hold from here on. Dataflow has proved that each is written once, before its use.
Status DeviceMemory::allocate(uint32_t node) {
  const DvtDeviceNode what = kind(node);
  const auto outputs = graph_->outputs_of(node);
  const bool refers = host_nodes_[graph_->kernel[node]] == DVT_HOST_REFER_TO;
  // That it has one output is checked later (check_dynamic_values).
  if (refers && std::none_of(outputs.begin(), outputs.end(),
                             [&](uint32_t value) { return is_device(value); })) {
    return {};
  }
  const bool parts = what == DVT_NODE_BUILD_REF || what == DVT_NODE_BUILD_PART;
  if (what != DVT_NODE_ALLOC && !parts && !refers) return {};
  const auto inputs = graph_->inputs_of(node);
  for (const uint32_t value : outputs) {
    if (what == DVT_NODE_ALLOC) {
      allocation_[value] = value;
    } else if (!inputs.empty() && is_device(inputs[0])) {
      allocation_[value] = allocation_[inputs[0]];
    } else {
      return broken("graphs[%u] node %u: a reference to no device value", index_, node);
    }
  }
  return {};
}

Status DeviceMemory::check_alive(uint32_t node, uint32_t value) const {
  // A dynamic value has a shape before it has memory (check_dynamic_values).
  if (!is_device(value) || allocation_[value] == kNone) return {};
  // Bodies come after their parents here, but run in the middle of them: what a parent frees later
  // does not concern them. (What it freed before, the node that runs them could not have listed.)
  const Freed& freed = freed_[allocation_[value]];
  const bool gone = freed.graph == index_ || (freed.graph != kNone && freed.graph == view_.init &&
                                              (graph_->role != GraphRole::kBody || is_gear()));
  if (!gone) return {};
  return broken("graphs[%u] node %u: uses device value %s, which graphs[%u] node %u freed", index_,
                node, describe_value(view_, value).c_str(), freed.graph, freed.node);
}

Status DeviceMemory::check_aliases(uint32_t node) {
  if (kind(node) != DVT_NODE_LAUNCH) return {};
  const auto inputs = graph_->inputs_of(node);
  const auto outputs = graph_->outputs_of(node);
  for (const auto operands : {inputs, outputs}) {
    for (const uint32_t value : operands) {
      if (!is_device(value) || allocation_[value] != kNone) continue;
      return broken("graphs[%u] node %u: device value %s has no memory", index_, node,
                    describe_value(view_, value).c_str());
    }
  }
  const uint32_t kernel = graph_->device_kernel_of(node);
  const bool in_place = (view_.kernel_refs[kernel].flags & DVT_KERNEL_IN_PLACE) != 0 &&
                        !inputs.empty() && !outputs.empty() && is_device(inputs[0]) &&
                        allocation_[inputs[0]] == allocation_[outputs[0]] &&
                        view_.tensor_of(inputs[0])->bytes == view_.tensor_of(outputs[0])->bytes;
  ++launches_;
  for (size_t i = in_place ? 1 : 0; i < inputs.size(); ++i) {
    if (is_device(inputs[i])) used_by_[allocation_[inputs[i]]] = launches_;
  }
  for (const uint32_t value : outputs) {
    uint32_t& user = used_by_[allocation_[value]];
    if (user == launches_) {
      return broken("graphs[%u] node %u: writes device value %s, which is also another operand",
                    index_, node, describe_value(view_, value).c_str());
    }
    user = launches_;
  }
  return {};
}

Status DeviceMemory::release(uint32_t node) {
  if (kind(node) != DVT_NODE_FREE) return {};
  for (const uint32_t value : graph_->inputs_of(node)) {
    if (!is_device(value)) continue;
    if (allocation_[value] == kNone) {
      return broken("graphs[%u] node %u: frees device value %s, which has no memory", index_, node,
                    describe_value(view_, value).c_str());
    }
    if (allocation_[value] != value) {
      return broken("graphs[%u] node %u: frees device value %s, a reference to value %s", index_,
                    node, describe_value(view_, value).c_str(),
                    describe_value(view_, allocation_[value]).c_str());
    }
    const uint32_t home = facts_.values[value].home;
    if (home != index_ && !(graph_->role == GraphRole::kDeInit && home == view_.init)) {
      return broken("graphs[%u] node %u: frees device value %s, which graphs[%u] allocated", index_,
                    node, describe_value(view_, value).c_str(), home);
    }
    freed_[value] = {index_, node};
  }
  return {};
}

Status DeviceMemory::scan(uint32_t graph) {
  index_ = graph;
  graph_ = &view_.graphs[graph];
  for (uint32_t node = 0; node < graph_->node_count; ++node) {
    if (Status s = check_operands(node); !s.ok()) return s;
    if (Status s = allocate(node); !s.ok()) return s;
    for (const uint32_t value : graph_->inputs_of(node)) {
      if (Status s = check_alive(node, value); !s.ok()) return s;
    }
    for (const uint32_t value : graph_->outputs_of(node)) {
      if (Status s = check_alive(node, value); !s.ok()) return s;
    }
    if (Status s = check_aliases(node); !s.ok()) return s;
    if (Status s = release(node); !s.ok()) return s;
  }
  if (graph_->role == GraphRole::kInit) return {};
  for (uint32_t node = 0; node < graph_->node_count; ++node) {
    if (kind(node) != DVT_NODE_ALLOC) continue;
    for (const uint32_t value : graph_->outputs_of(node)) {
      if (freed_[value].graph == index_) continue;
      return broken("graphs[%u] node %u: allocates device value %s, which the graph does not free",
                    index_, node, describe_value(view_, value).c_str());
    }
  }
  return {};
}

}  // namespace

std::vector<DvtDeviceNode> device_nodes(const ImageView& view) {
  const DvtKernelTable table = dvt_device_kernels();
  std::vector<DvtDeviceNode> nodes(view.kernel_refs.size(), DVT_NODE_OTHER);
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!view.kernels.empty()) {
      nodes[i] = dvt_device_node(view.kernels[i]);
      continue;
    }
    for (size_t k = 0; k < table.count; ++k) {
      if (std::string_view(table.kernels[k].name) == view.kernel_refs[i].name) {
        nodes[i] = dvt_device_node(&table.kernels[k]);
      }
    }
  }
  return nodes;
}

Status check_device_memory(const ImageView& view, const FlowFacts& facts) {
  for (const DvtDeviceNode node : device_nodes(view)) {
    if (node != DVT_NODE_OTHER) return DeviceMemory(view, facts).run();
  }
  // Without device nodes nobody can write a device value, so nobody uses one (verifier: dataflow
  // refuses reads of what was not written), unless another kernel claims to write one.
  for (uint32_t value = 0; value < view.values.count; ++value) {
    if (view.values.kind[value] == ValueKind::kDevice) return DeviceMemory(view, facts).run();
  }
  return {};
}

}  // namespace davit::exec::verify
