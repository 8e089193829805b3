// Stages 3 and 4 of the verifier: kernels by name, then ids, lanes, operands and rows of each
// graph.
#include <string>
#include <unordered_map>

#include "exec/layout.hpp"
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
  // A newer runtime's kernel may have learnt something (to work in place, say); it must not have
  // forgotten what the image relies on, nor changed lanes. When shapes are final, and whether it
  // writes, are no abilities.
  constexpr uint32_t kFixed =
      DVT_KERNEL_LANE_MASK | DVT_KERNEL_FREE | DVT_KERNEL_ALIAS | DVT_KERNEL_SHAPES_OUTPUTS;
  if (((ref.flags ^ kernel.flags) & kFixed) != 0 || (ref.flags & ~kernel.flags) != 0) {
    return failed(DVT_VERSION_MISMATCH,
                  "kernels[%u].flags: the image was made for a \"%s\" with flags 0x%x, this "
                  "runtime's has 0x%x",
                  index, ref.name, ref.flags, kernel.flags);
  }
  return {};
}

// What a node must look like whose kernel this is.
struct Signature {
  uint32_t input_min, input_max, output_min, output_max;
  uint32_t attribute_bytes;
};

Signature signature_of(const DvtKernel& kernel) {
  return {kernel.input_min, kernel.input_max, kernel.output_min, kernel.output_max,
          kernel.attribute_bytes};
}

// Checks one graph against the tables it indexes, column by column.
class GraphChecker {
 public:
  GraphChecker(const ImageView& view, uint32_t index, const std::vector<DvtDeviceNode>& nodes,
               const std::vector<DvtHostNode>& host_nodes, const std::vector<Signature>& signatures)
      : view_(view),
        graph_(view.graphs[index]),
        index_(index),
        nodes_(nodes),
        host_nodes_(host_nodes),
        signatures_(signatures) {}

  Status check() const {
    if (Status s = check_ids(); !s.ok()) return s;
    if (Status s = check_lanes(); !s.ok()) return s;
    if (Status s = check_device_kernels(); !s.ok()) return s;
    if (Status s = check_signatures(); !s.ok()) return s;
    if (!succ_is_ascending()) return find_bad_succ();
    for (uint32_t node = 0; graph_.free_off != nullptr && node < graph_.node_count; ++node) {
      if (Status s = check_free_row(node); !s.ok()) return s;
    }
    return {};
  }

 private:
  Status check_column(const char* name, const uint32_t* column, uint32_t size, size_t limit,
                      bool none_allowed, const char* table) const;
  Status check_ids() const;
  Status check_lanes() const;
  Status check_device_kernels() const;
  Status check_signatures() const;
  Status check_signature(uint32_t node, uint32_t kernel) const;
  [[nodiscard]] bool succ_is_ascending() const;
  Status find_bad_succ() const;
  Status check_succ(uint32_t node) const;
  Status check_free_row(uint32_t node) const;

  const ImageView& view_;
  const GraphView& graph_;
  uint32_t index_;
  const std::vector<DvtDeviceNode>& nodes_;     // Per kernel of the image.
  const std::vector<DvtHostNode>& host_nodes_;  // The same.
  const std::vector<Signature>& signatures_;    // The same; empty when kernels are not resolved.
};

// Every entry is below `limit`, or none where that is allowed. A null column is absent.
Status GraphChecker::check_column(const char* name, const uint32_t* column, uint32_t size,
                                  size_t limit, bool none_allowed, const char* table) const {
  if (column == nullptr) return {};
  // First without branches, which the compiler vectorises; kNone + 1 is 0.
  const uint32_t shift = none_allowed ? 1 : 0;
  bool good = true;
  for (uint32_t i = 0; i < size; ++i) good &= uint32_t(column[i] + shift) < limit + shift;
  if (good) return {};
  for (uint32_t i = 0; i < size; ++i) {
    if (column[i] < limit || (none_allowed && column[i] == kNone)) continue;
    return broken("graphs[%u].%s[%u]: %u is not in %s", index_, name, i, column[i], table);
  }
  return {};
}

Status GraphChecker::check_ids() const {
  const GraphView& g = graph_;
  const uint32_t n = g.node_count;
  const struct {
    const char* name;
    const uint32_t* column;
    uint32_t size;
    size_t limit;
    bool none_allowed;
    const char* table;
  } columns[] = {
      {"kernel", g.kernel, n, view_.kernel_refs.size(), false, "kernels"},
      {"stream", g.stream_column, n, view_.stream_count, true, "the stream plan"},
      {"origin", g.origin_column, n, view_.strings.size(), true, "strings"},
      {"op", g.op_column, n, view_.strings.size(), true, "strings"},
      {"cost", g.cost_column, n, view_.cost_count, true, "costs"},
      {"inputs", g.inputs, g.inputs_off[n], view_.values.count, true, "values"},
      {"outputs", g.outputs, g.outputs_off[n], view_.values.count, false, "values"},
  };
  for (const auto& c : columns) {
    if (Status s = check_column(c.name, c.column, c.size, c.limit, c.none_allowed, c.table);
        !s.ok()) {
      return s;
    }
  }
  return {};
}

Status GraphChecker::check_lanes() const {
  for (uint32_t node = 0; node < graph_.node_count; ++node) {
    const KernelRefView& ref = view_.kernel_refs[graph_.kernel[node]];
    if (graph_.lane[node] == (ref.flags & DVT_KERNEL_LANE_MASK)) continue;
    return broken("graphs[%u].lane[%u]: %u, but the kernel \"%s\" runs on lane %u", index_, node,
                  graph_.lane[node], ref.name, ref.flags & DVT_KERNEL_LANE_MASK);
  }
  return {};
}

// A node has a device kernel if and only if its kernel launches one, or is a reference that an
// alias kernel gives the shape of.
Status GraphChecker::check_device_kernels() const {
  for (uint32_t node = 0; node < graph_.node_count; ++node) {
    const uint32_t device_kernel = graph_.device_kernel_of(node);
    const bool launches = nodes_[graph_.kernel[node]] == DVT_NODE_LAUNCH;
    const bool refers = host_nodes_[graph_.kernel[node]] == DVT_HOST_REFER_TO;
    if (!launches && !refers) {
      if (device_kernel == kNone) continue;
      return broken("graphs[%u].device_kernel[%u]: only LaunchKernel and ReferTo nodes have one",
                    index_, node);
    }
    if (device_kernel >= view_.kernel_refs.size()) {
      return broken("graphs[%u].device_kernel[%u]: %u is not in kernels", index_, node,
                    device_kernel);
    }
    const uint32_t needed = launches ? DVT_KERNEL_DEVICE : DVT_KERNEL_ALIAS;
    if ((view_.kernel_refs[device_kernel].flags & needed) == 0) {
      return broken("graphs[%u].device_kernel[%u]: \"%s\" %s", index_, node,
                    view_.kernel_refs[device_kernel].name,
                    launches ? "does not run on devices" : "is no alias kernel");
    }
  }
  return {};
}

// Counts and attributes are those of the kernel that computes: for a launch, the device kernel.
Status GraphChecker::check_signatures() const {
  for (uint32_t node = 0; node < graph_.node_count; ++node) {
    if (graph_.attributes_off != nullptr && graph_.attributes_off[node] % 8 != 0) {
      return broken("graphs[%u].attributes_off[%u]: must be a multiple of 8", index_, node);
    }
    if (signatures_.empty()) continue;
    const uint32_t device_kernel = graph_.device_kernel_of(node);
    const uint32_t kernel = device_kernel == kNone ? graph_.kernel[node] : device_kernel;
    if (Status s = check_signature(node, kernel); !s.ok()) return s;
  }
  return {};
}

Status GraphChecker::check_signature(uint32_t node, uint32_t kernel) const {
  const Signature& expected = signatures_[kernel];
  const char* name = view_.kernel_refs[kernel].name;
  const size_t inputs = graph_.inputs_of(node).size();
  const size_t outputs = graph_.outputs_of(node).size();
  const size_t attribute_bytes = graph_.attributes_of(node).size();
  if (inputs < expected.input_min || inputs > expected.input_max) {
    return broken("graphs[%u].inputs_off[%u]: the node has %zu inputs, \"%s\" takes %u to %u",
                  index_, node, inputs, name, expected.input_min, expected.input_max);
  }
  if (outputs < expected.output_min || outputs > expected.output_max) {
    return broken("graphs[%u].outputs_off[%u]: the node has %zu outputs, \"%s\" takes %u to %u",
                  index_, node, outputs, name, expected.output_min, expected.output_max);
  }
  if (attribute_bytes != expected.attribute_bytes) {
    return broken("graphs[%u].attributes_off[%u]: a record of %zu bytes, \"%s\" has one of %u",
                  index_, node, attribute_bytes, name, expected.attribute_bytes);
  }
  return {};
}

// check_succ() for all nodes at once, without branches that depend on the lengths of rows. Inside a
// row no entry is followed by one that is not above it; where a row ends, that is no matter.
bool GraphChecker::succ_is_ascending() const {
  const uint32_t n = graph_.node_count;
  const uint32_t edges = graph_.succ_off[n];
  const uint32_t* const succ = graph_.succ;
  bool good = true;
  uint32_t drops = 0;
  for (uint32_t at = 0; at < edges; ++at) good &= succ[at] < n;
  for (uint32_t at = 1; at < edges; ++at) drops += succ[at] <= succ[at - 1] ? 1 : 0;
  for (uint32_t node = 0; node < n; ++node) {
    const uint32_t begin = graph_.succ_off[node];
    if (begin == graph_.succ_off[node + 1]) continue;
    good &= succ[begin] > node;
    drops -= begin > 0 && succ[begin] <= succ[begin - 1] ? 1 : 0;
  }
  return good && drops == 0;
}

Status GraphChecker::find_bad_succ() const {
  for (uint32_t node = 0; node < graph_.node_count; ++node) {
    if (Status s = check_succ(node); !s.ok()) return s;
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

Status check_indegree(const ImageView& view, uint32_t index, std::pmr::vector<uint32_t>& count) {
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

Status resolve_kernels(std::span<const DvtKernelTable> tables, DvtKernelTable code,
                       ImageView& view) {
  KernelIndex index;
  for (const DvtKernelTable& table : tables) add_table(table, index);
  add_table(code, index);
  add_table(dvt_cpu_kernels(), index);
  add_table(dvt_device_kernels(), index);
  add_table(dvt_dynamic_kernels(), index);
  view.kernels.reserve(view.kernel_refs.size());
  for (uint32_t i = 0; i < view.kernel_refs.size(); ++i) {
    const KernelRefView& ref = view.kernel_refs[i];
    const auto found = index.find(ref.name);
    if (found == index.end()) {
      Status status =
          failed(DVT_UNSUPPORTED, "kernels[%u]: there is no kernel \"%s\"", i, ref.name);
      status.detail().op = ref.name;
      const bool generated = std::string_view(ref.name).starts_with("generated.");
      status.detail().hint =
          generated ? "the image brings no machine code for it: text forms leave code out; compile "
                      "the model with --isa"
                    : "pass the table that has it in DvtImageOptions.kernel_tables, or give its "
                      "plug-in with --plugin";
      return status;
    }
    if (Status s = check_kernel_ref(ref, *found->second, i); !s.ok()) return s;
    view.kernels.push_back(found->second);
  }
  return {};
}

Status check_graphs(const ImageView& view, Scratch& scratch) {
  const std::vector<DvtDeviceNode> nodes = device_nodes(view);
  const std::vector<DvtHostNode> hosts = host_nodes(view);
  std::vector<Signature> signatures;
  signatures.reserve(view.kernels.size());
  for (const DvtKernel* kernel : view.kernels) signatures.push_back(signature_of(*kernel));
  std::pmr::vector<uint32_t> count(&scratch);
  for (uint32_t i = 0; i < view.graphs.size(); ++i) {
    if (Status s = GraphChecker(view, i, nodes, hosts, signatures).check(); !s.ok()) return s;
    if (Status s = check_indegree(view, i, count); !s.ok()) return s;
  }
  return {};
}

}  // namespace davit::exec::verify
