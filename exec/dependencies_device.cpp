// Dependencies of graphs that drive a device.
#include <algorithm>
#include <span>

#include "exec/dependencies.hpp"
#include "exec/dynamic.h"
#include "exec/host_accesses.hpp"
#include "exec/layout.hpp"
#include "exec/liveness.hpp"
#include "exec/verify_internal.hpp"

namespace davit::exec {
namespace {

// One pass over the nodes, for what they tell the device; host_accesses.hpp has the rest.
class DeviceSweep {
 public:
  DeviceSweep(const ImageView& image, const GraphView& graph)
      : graph_(graph),
        kinds_(verify::device_nodes(image)),
        host_(host_nodes(image)),
        is_device_(image.values.count),
        before_(graph.node_count),
        writer_(image.values.count, kNone),
        owner_(image.values.count, kNone),
        last_user_(image.values.count, kNone) {
    for (uint32_t value = 0; value < image.values.count; ++value) {
      is_device_[value] = image.values.kind[value] == ValueKind::kDevice;
    }
  }

  std::vector<std::vector<uint32_t>> run() {
    for (uint32_t node = 0; node < graph_.node_count; ++node) {
      for (const uint32_t to : graph_.succ_of(node)) before_[to].push_back(node);
      const DvtDeviceNode kind = kinds_[graph_.kernel[node]];
      wait_for(sync_, node);
      if (kind == DVT_NODE_SYNC_STREAM) {
        wait_for(launch_, node);
        sync_ = node;
      } else if (graph_.lane[node] == DVT_KERNEL_LANE_LAUNCH) {
        launch(node);
      } else if (kind != DVT_NODE_OTHER) {
        change_memory(node, kind);
      } else if (host_[graph_.kernel[node]] == DVT_HOST_REFER_TO) {
        name_again(node);
      }
    }
    return std::move(before_);
  }

 private:
  void wait_for(uint32_t other, uint32_t node) {
    if (other != kNone) before_[node].push_back(other);
  }

  // The scheduler keeps launches in order.
  void launch(uint32_t node) {
    for (const auto values : {graph_.inputs_of(node), graph_.outputs_of(node)}) {
      for (const uint32_t value : values) {
        if (value == kNone || !is_device_[value]) continue;
        wait_for(writer_[value], node);
        if (owner_[value] != kNone) last_user_[owner_[value]] = node;
      }
    }
    launch_ = node;
  }

  // Memory has a second name from here on.
  void name_again(uint32_t node) {
    const uint32_t value = graph_.outputs_of(node)[0];
    writer_[value] = node;
    owner_[value] = owner_[graph_.inputs_of(node)[0]];
  }

  void change_memory(uint32_t node, DvtDeviceNode kind) {
    wait_for(memory_, node);
    memory_ = node;
    if (kind == DVT_NODE_BUILD_REF || kind == DVT_NODE_BUILD_PART) return name_again(node);
    if (kind == DVT_NODE_PACK_HOST) return;
    if (kind == DVT_NODE_ALLOC) {
      const uint32_t value = graph_.outputs_of(node)[0];
      writer_[value] = node;
      owner_[value] = value;
      return;
    }
    // A Free. Launches go in order: the last one that uses the memory stands for all.
    const auto row = graph_.free_launches_of(node);
    const uint32_t last = last_user_[graph_.inputs_of(node)[0]];
    if (row.empty() || last == kNone || last > row.back()) wait_for(last, node);
  }

  const GraphView& graph_;
  const std::vector<DvtDeviceNode> kinds_;  // Per kernel of the image.
  const std::vector<DvtHostNode> host_;     // The same.
  std::vector<bool> is_device_;
  std::vector<std::vector<uint32_t>> before_;
  // Per value: who gave it its address, the value that was allocated; and of that, the last launch
  // with it.
  std::vector<uint32_t> writer_, owner_, last_user_;
  uint32_t memory_ = kNone, launch_ = kNone, sync_ = kNone;  // The last of each.
};

// Nodes whose order among others is known: what runs on the host keeps to its lane's.
bool may_run_apart(DvtDeviceNode kind, bool host_node, uint8_t lane) {
  switch (kind) {
    case DVT_NODE_ALLOC:
    case DVT_NODE_FREE:
    case DVT_NODE_BUILD_REF:
    case DVT_NODE_COPY_H2D:
    case DVT_NODE_COPY_D2H:
    case DVT_NODE_LAUNCH:
    case DVT_NODE_RECORD_EVENT:
    case DVT_NODE_WAIT_EVENT:
    case DVT_NODE_SYNC_STREAM:
    case DVT_NODE_PACK_HOST:
    case DVT_NODE_BUILD_PART:
      return true;
    case DVT_NODE_OTHER:
      return host_node || lane == DVT_KERNEL_LANE_NORMAL;
    default:
      return false;
  }
}

bool rows_look_back(const GraphView& graph) {
  for (uint32_t node = 0; node < graph.node_count; ++node) {
    const auto row = graph.free_launches_of(node);
    if (!row.empty() && row.back() > node) return false;
  }
  return true;
}

}  // namespace

bool drives_device(const ImageView& image, const GraphView& graph) {
  const std::vector<DvtDeviceNode> kinds = verify::device_nodes(image);
  const std::span kernels(graph.kernel, graph.node_count);
  return std::ranges::any_of(kernels,
                             [&](uint32_t kernel) { return kinds[kernel] != DVT_NODE_OTHER; });
}

std::string reason_to_keep_device_in_order(const ImageView& image, const GraphView& graph) {
  const std::vector<DvtDeviceNode> kinds = verify::device_nodes(image);
  const std::vector<DvtHostNode> host = host_nodes(image);
  bool only_device = true;
  for (uint32_t node = 0; node < graph.node_count; ++node) {
    const uint32_t kernel = graph.kernel[node];
    if (!may_run_apart(kinds[kernel], host[kernel] != DVT_HOST_OTHER, graph.lane[node])) {
      return std::string("kernel ") + image.kernel_refs[kernel].name + " has an order of its own";
    }
    only_device = only_device && kinds[kernel] != DVT_NODE_OTHER;
  }
  if (!only_device && !rows_look_back(graph)) {
    return "a Free-to-Launch relation names a launch behind its Free, in a graph with host nodes";
  }
  if (!prove_liveness(image, graph).proved()) {
    return "Free-to-Launch relations are not proved to end (davit verify --liveness)";
  }
  if (HostAccesses(image, graph, true).cost() > kSweepStepsMax) {
    return "too many values share memory";
  }
  return "";
}

Dependencies device_dependencies_of(const ImageView& image, const GraphView& graph) {
  std::vector<std::vector<uint32_t>> before = DeviceSweep(image, graph).run();
  HostAccesses(image, graph, true).run(before);
  return dependencies_from(before);
}

}  // namespace davit::exec
