// Stage 6 of the verifier: device memory.
//
//   Only memory-lane nodes write cells of device values, and they write nothing else but words: a
//   device cell always holds an address that an allocation returned.
//   BuildRefTensor gives memory a second name. All names of an allocation are freed together.
//   A graph frees what it allocated (DeInit: what Init did), and uses nothing after it was freed;
//   so the next run finds everything where it was.
#include <string_view>

#include "exec/verify_internal.hpp"

namespace davit::exec::verify {
namespace {

class DeviceMemory {
 public:
  DeviceMemory(const ImageView& view, const FlowFacts& facts)
      : view_(view),
        facts_(facts),
        allocation_(view.values.count, kNone),
        freed_(view.values.count) {}

  Status run() {
    for (const uint32_t graph : facts_.graph_order) {
      index_ = graph;
      graph_ = &view_.graphs[graph];
      for (uint32_t node = 0; node < graph_->node_count; ++node) {
        if (Status s = check_outputs(node); !s.ok()) return s;
        if (Status s = check_inputs(node); !s.ok()) return s;
        if (Status s = check_alive(node); !s.ok()) return s;
        if (Status s = check_free(node); !s.ok()) return s;
      }
    }
    return {};
  }

 private:
  struct Freed {
    uint32_t graph = kNone;
    uint32_t node = kNone;
  };

  Status check_outputs(uint32_t node);
  Status check_inputs(uint32_t node) const;
  Status check_alive(uint32_t node) const;
  Status check_free(uint32_t node);

  [[nodiscard]] bool is_device(uint32_t value) const {
    return value != kNone && view_.values.kind[value] == ValueKind::kDevice;
  }
  [[nodiscard]] const KernelRefView& kernel(uint32_t node) const {
    return view_.kernel_refs[graph_->kernel[node]];
  }
  [[nodiscard]] std::string_view name(uint32_t node) const { return kernel(node).name; }

  const ImageView& view_;
  const FlowFacts& facts_;
  std::vector<uint32_t> allocation_;  // Per device value: the value that was allocated.
  std::vector<Freed> freed_;          // Per allocated value: who freed it.
  uint32_t index_ = 0;
  const GraphView* graph_ = nullptr;
};

Status DeviceMemory::check_outputs(uint32_t node) {
  const uint32_t lane = graph_->lane[node];
  const auto inputs = graph_->inputs_of(node);
  for (uint32_t at = graph_->outputs_off[node]; at < graph_->outputs_off[node + 1]; ++at) {
    const uint32_t value = graph_->outputs[at];
    const bool device = is_device(value);
    if (lane == DVT_KERNEL_LANE_NORMAL && device) {
      return broken("graphs[%u].outputs[%u]: device value %s: only memory-lane nodes allocate",
                    index_, at, describe_value(view_, value).c_str());
    }
    if (lane != DVT_KERNEL_LANE_MEMORY) continue;
    if (!device && view_.values.kind[value] != ValueKind::kWord) {
      return broken(
          "graphs[%u].outputs[%u]: value %s: memory-lane nodes write device values or "
          "words",
          index_, at, describe_value(view_, value).c_str());
    }
    // check_inputs() makes sure that a reference refers to device memory.
    const bool reference = name(node) == "BuildRefTensor" && !inputs.empty();
    if (device)
      allocation_[value] = reference && is_device(inputs[0]) ? allocation_[inputs[0]] : value;
  }
  return {};
}

// Operands whose cells the built-in kernels take for addresses in device memory.
Status DeviceMemory::check_inputs(uint32_t node) const {
  const auto inputs = graph_->inputs_of(node);
  const auto require = [&](size_t operand) -> Status {
    if (operand >= inputs.size() || is_device(inputs[operand])) return {};
    return broken("graphs[%u].inputs[%u]: operand %zu of %s must be a device value", index_,
                  graph_->inputs_off[node] + static_cast<uint32_t>(operand), operand,
                  kernel(node).name);
  };
  if (name(node) == "BuildRefTensor") return require(0);
  if (name(node) == "LaunchH2DCopy") return require(1);
  if ((kernel(node).flags & DVT_KERNEL_FREE) != 0) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (Status s = require(i); !s.ok()) return s;
    }
  }
  return {};
}

Status DeviceMemory::check_alive(uint32_t node) const {
  const auto check = [&](uint32_t value) -> Status {
    if (!is_device(value)) return {};
    // Bodies come after their parents here, but run in the middle of them: what a parent frees
    // later does not concern them. (What it freed before, their runner could not have listed.)
    const Freed& freed = freed_[allocation_[value]];
    const bool before =
        freed.graph == index_ ||
        (freed.graph != kNone && freed.graph == view_.init && graph_->role != GraphRole::kBody);
    if (!before) return {};
    return broken("graphs[%u] node %u: uses device value %s, which graphs[%u] node %u freed",
                  index_, node, describe_value(view_, value).c_str(), freed.graph, freed.node);
  };
  for (const uint32_t value : graph_->inputs_of(node)) {
    if (Status s = check(value); !s.ok()) return s;
  }
  for (const uint32_t value : graph_->outputs_of(node)) {
    if (Status s = check(value); !s.ok()) return s;
  }
  return {};
}

Status DeviceMemory::check_free(uint32_t node) {
  if ((kernel(node).flags & DVT_KERNEL_FREE) == 0) return {};
  for (const uint32_t value : graph_->inputs_of(node)) {
    const uint32_t allocation = allocation_[value];
    if (freed_[allocation].graph != kNone) {
      return broken("graphs[%u] node %u: frees device value %s a second time", index_, node,
                    describe_value(view_, value).c_str());
    }
    const uint32_t home = facts_.home[allocation];
    if (home != index_ && !(graph_->role == GraphRole::kDeInit && home == view_.init)) {
      return broken("graphs[%u] node %u: frees device value %s, which graphs[%u] allocated", index_,
                    node, describe_value(view_, value).c_str(), home);
    }
    freed_[allocation] = {index_, node};
  }
  return {};
}

}  // namespace

Status check_device_memory(const ImageView& view, const FlowFacts& facts) {
  for (uint32_t value = 0; value < view.values.count; ++value) {
    if (view.values.kind[value] == ValueKind::kDevice) return DeviceMemory(view, facts).run();
  }
  // Without device values only the operands of built-in kernels could be wrong.
  for (const KernelRefView& ref : view.kernel_refs) {
    if ((ref.flags & DVT_KERNEL_LANE_MASK) != DVT_KERNEL_LANE_NORMAL) {
      return DeviceMemory(view, facts).run();
    }
  }
  return {};
}

}  // namespace davit::exec::verify
