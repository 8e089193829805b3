// Stages 3 and 4 of the verifier: kernels by name, then ids, lanes, operands and rows of each
// graph.
#include <string>
#include <unordered_map>

#include "exec/runtime.h"
#include "exec/verify_internal.hpp"

namespace davit::exec::verify {
namespace {

using KernelIndex = std::unordered_map<std::string_view, const DvtKernel*>;

void add_table(const DvtKernelTable& table, KernelIndex& index) {
  for (size_t i = 0; i < table.count; ++i) {
    index.try_emplace(table.kernels[i].name, &table.kernels[i]);  // The first table wins.
  }
}

Status check_kernel_ref(const KernelRefView& ref, const DvtKernel& kernel, uint32_t index) {
  if (ref.abi_version != kernel.abi_version || kernel.abi_version != DVT_KERNEL_ABI_VERSION) {
    return failed(
        DVT_VERSION_MISMATCH,
        "kernels[%u] \"%s\": the image was made for kernel ABI %u, the kernel has %u, the "
        "runtime %d",
        index, ref.name, ref.abi_version, kernel.abi_version, DVT_KERNEL_ABI_VERSION);
  }
  if (ref.flags != kernel.flags) {
    return failed(
        DVT_VERSION_MISMATCH,
        "kernels[%u].flags: the image was made for a \"%s\" with flags 0x%x, this runtime's "
        "has 0x%x",
        index, ref.name, ref.flags, kernel.flags);
  }
  return {};
}

// Checks the nodes of one graph against the tables they index.
class GraphChecker {
 public:
  GraphChecker(const ImageView& view, uint32_t index, const std::vector<DvtDeviceNode>& nodes)
      : view_(view), graph_(view.graphs[index]), index_(index), nodes_(nodes) {}

  Status check() const {
    for (uint32_t node = 0; node < graph_.node_count; ++node) {
      if (Status s = check_node(node); !s.ok()) return s;
      if (Status s = check_succ(node); !s.ok()) return s;
      if (Status s = check_free_row(node); !s.ok()) return s;
    }
    if (Status s = check_operands("inputs", graph_.inputs, graph_.inputs_off, true); !s.ok()) {
      return s;
    }
    return check_operands("outputs", graph_.outputs, graph_.outputs_off, false);
  }

 private:
  Status check_node(uint32_t node) const;
  Status check_names(uint32_t node) const;
  Status check_device_kernel(uint32_t node) const;
  Status check_signature(uint32_t node) const;
  Status check_count(uint32_t node, const char* what, uint32_t count, uint32_t min, uint32_t max,
                     const DvtKernel& kernel) const;
  Status check_succ(uint32_t node) const;
  Status check_free_row(uint32_t node) const;
  Status check_operands(const char* column, const uint32_t* ids, const uint32_t* offsets,
                        bool none_allowed) const;

  const ImageView& view_;
  const GraphView& graph_;
  uint32_t index_;
  const std::vector<DvtDeviceNode>& nodes_;  // Per kernel of the image.
};

Status GraphChecker::check_node(uint32_t node) const {
  const uint32_t kernel = graph_.kernel[node];
  if (kernel >= view_.kernel_refs.size()) {
    return broken("graphs[%u].kernel[%u]: %u is not in kernels", index_, node, kernel);
  }
  const KernelRefView& ref = view_.kernel_refs[kernel];
  if (graph_.lane[node] != (ref.flags & DVT_KERNEL_LANE_MASK)) {
    return broken("graphs[%u].lane[%u]: %u, but the kernel \"%s\" runs on lane %u", index_, node,
                  graph_.lane[node], ref.name, ref.flags & DVT_KERNEL_LANE_MASK);
  }
  const uint32_t stream = graph_.stream_of(node);
  if (stream != kNone && stream >= view_.stream_count) {
    return broken("graphs[%u].stream[%u]: %u is not below streams.stream_count (%u)", index_, node,
                  stream, view_.stream_count);
  }
  const uint32_t cost = graph_.cost_of(node);
  if (cost != kNone && cost >= view_.cost_count) {
    return broken("graphs[%u].cost[%u]: %u is not in costs", index_, node, cost);
  }
  if (graph_.attributes_off != nullptr && graph_.attributes_off[node] % 8 != 0) {
    return broken("graphs[%u].attributes_off[%u]: must be a multiple of 8", index_, node);
  }
  if (Status s = check_names(node); !s.ok()) return s;
  if (Status s = check_device_kernel(node); !s.ok()) return s;
  return view_.kernels.empty() ? Status() : check_signature(node);
}

Status GraphChecker::check_names(uint32_t node) const {
  const uint32_t origin = graph_.origin_of(node);
  if (origin != kNone && origin >= view_.strings.size()) {
    return broken("graphs[%u].origin[%u]: %u is not in strings", index_, node, origin);
  }
  const uint32_t op = graph_.op_of(node);
  if (op != kNone && op >= view_.strings.size()) {
    return broken("graphs[%u].op[%u]: %u is not in strings", index_, node, op);
  }
  return {};
}

// A node has a device kernel if and only if its kernel launches one.
Status GraphChecker::check_device_kernel(uint32_t node) const {
  const uint32_t device_kernel = graph_.device_kernel_of(node);
  if (nodes_[graph_.kernel[node]] != DVT_NODE_LAUNCH) {
    if (device_kernel == kNone) return {};
    return broken("graphs[%u].device_kernel[%u]: only LaunchKernel nodes have one", index_, node);
  }
  if (device_kernel >= view_.kernel_refs.size()) {
    return broken("graphs[%u].device_kernel[%u]: %u is not in kernels", index_, node,
                  device_kernel);
  }
  if ((view_.kernel_refs[device_kernel].flags & DVT_KERNEL_DEVICE) == 0) {
    return broken("graphs[%u].device_kernel[%u]: \"%s\" does not run on devices", index_, node,
                  view_.kernel_refs[device_kernel].name);
  }
  return {};
}

Status GraphChecker::check_count(uint32_t node, const char* what, uint32_t count, uint32_t min,
                                 uint32_t max, const DvtKernel& kernel) const {
  if (count >= min && count <= max) return {};
  return broken("graphs[%u].%s_off[%u]: the node has %u %s, \"%s\" takes %u to %u", index_, what,
                node, count, what, kernel.name, min, max);
}

// Counts and attributes are those of the kernel that computes: for a launch, the device kernel.
Status GraphChecker::check_signature(uint32_t node) const {
  const uint32_t device_kernel = graph_.device_kernel_of(node);
  const uint32_t computing = device_kernel == kNone ? graph_.kernel[node] : device_kernel;
  const DvtKernel& kernel = *view_.kernels[computing];
  if (Status s = check_count(node, "inputs", static_cast<uint32_t>(graph_.inputs_of(node).size()),
                             kernel.input_min, kernel.input_max, kernel);
      !s.ok()) {
    return s;
  }
  if (Status s = check_count(node, "outputs", static_cast<uint32_t>(graph_.outputs_of(node).size()),
                             kernel.output_min, kernel.output_max, kernel);
      !s.ok()) {
    return s;
  }
  const size_t attribute_bytes = graph_.attributes_of(node).size();
  if (attribute_bytes != kernel.attribute_bytes) {
    return broken("graphs[%u].attributes_off[%u]: a record of %zu bytes, \"%s\" has one of %u",
                  index_, node, attribute_bytes, kernel.name, kernel.attribute_bytes);
  }
  return {};
}

// Successors come later, so the stored order is topological and there is no cycle.
Status GraphChecker::check_succ(uint32_t node) const {
  uint32_t previous = node;
  for (uint32_t at = graph_.succ_off[node]; at < graph_.succ_off[node + 1]; ++at) {
    const uint32_t succ = graph_.succ[at];
    if (succ >= graph_.node_count) {
      return broken("graphs[%u].succ[%u]: %u is not a node", index_, at, succ);
    }
    if (succ <= previous) {
      return broken("graphs[%u].succ[%u]: successors of node %u must be ascending and above it",
                    index_, at, node);
    }
    previous = succ;
  }
  return {};
}

Status GraphChecker::check_free_row(uint32_t node) const {
  const auto row = graph_.free_launches_of(node);
  if (row.empty()) return {};
  const uint32_t first = graph_.free_off[node];
  if ((view_.kernel_refs[graph_.kernel[node]].flags & DVT_KERNEL_FREE) == 0) {
    return broken("graphs[%u].free_off[%u]: the node frees nothing", index_, node);
  }
  for (uint32_t i = 0; i < row.size(); ++i) {
    if (row[i] >= graph_.node_count) {
      return broken("graphs[%u].free_launch[%u]: %u is not a node", index_, first + i, row[i]);
    }
    if (graph_.lane[row[i]] != DVT_KERNEL_LANE_LAUNCH) {
      return broken("graphs[%u].free_launch[%u]: node %u is not on the launch lane", index_,
                    first + i, row[i]);
    }
    if (i > 0 && row[i] <= row[i - 1]) {
      return broken("graphs[%u].free_launch[%u]: launches must be ascending", index_, first + i);
    }
  }
  return {};
}

Status GraphChecker::check_operands(const char* column, const uint32_t* ids,
                                    const uint32_t* offsets, bool none_allowed) const {
  for (uint32_t i = 0; i < offsets[graph_.node_count]; ++i) {
    if (ids[i] < view_.values.count || (none_allowed && ids[i] == kNone)) continue;
    return broken("graphs[%u].%s[%u]: %u is not in values", index_, column, i, ids[i]);
  }
  return {};
}

// Both columns are optional; the nodes' own checks do not cover the sums.
Status check_indegree(const ImageView& view, uint32_t index, std::vector<uint32_t>& count) {
  const GraphView& graph = view.graphs[index];
  count.assign(graph.node_count, 0);
  for (uint32_t i = 0; i < graph.edge_count; ++i) ++count[graph.succ[i]];
  for (uint32_t node = 0; node < graph.node_count; ++node) {
    if (count[node] != graph.indegree[node]) {
      return broken("graphs[%u].indegree[%u]: %u, but the node occurs %u times in succ", index,
                    node, graph.indegree[node], count[node]);
    }
  }
  return {};
}

}  // namespace

Status resolve_kernels(std::span<const DvtKernelTable> tables, ImageView& view) {
  KernelIndex index;
  for (const DvtKernelTable& table : tables) add_table(table, index);
  add_table(dvt_cpu_kernels(), index);
  add_table(dvt_device_kernels(), index);
  view.kernels.reserve(view.kernel_refs.size());
  for (uint32_t i = 0; i < view.kernel_refs.size(); ++i) {
    const KernelRefView& ref = view.kernel_refs[i];
    const auto found = index.find(ref.name);
    if (found == index.end()) {
      Status status =
          failed(DVT_UNSUPPORTED, "kernels[%u]: there is no kernel \"%s\"", i, ref.name);
      status.detail().op = ref.name;
      status.detail().hint = "pass the table that has it in DvtImageOptions.kernel_tables";
      return status;
    }
    if (Status s = check_kernel_ref(ref, *found->second, i); !s.ok()) return s;
    view.kernels.push_back(found->second);
  }
  return {};
}

Status check_graphs(const ImageView& view) {
  const std::vector<DvtDeviceNode> nodes = device_nodes(view);
  std::vector<uint32_t> count;
  for (uint32_t i = 0; i < view.graphs.size(); ++i) {
    if (Status s = GraphChecker(view, i, nodes).check(); !s.ok()) return s;
    if (Status s = check_indegree(view, i, count); !s.ok()) return s;
  }
  return {};
}

}  // namespace davit::exec::verify
