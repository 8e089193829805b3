#include "exec/dependencies.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "exec/dynamic.h"
#include "exec/layout.hpp"
#include "exec/liveness.hpp"
#include "exec/verify_internal.hpp"

namespace davit::exec {
namespace {

// Bytes that a node touches. Ports and words have places of their own beyond every arena.
struct Range {
  uint64_t begin, end;
};
constexpr uint64_t kPorts = uint64_t{1} << 62;
constexpr uint64_t kWords = uint64_t{1} << 63;

Range range_of(const ImageView& image, uint32_t value) {
  const uint64_t offset = image.values.offset[value];
  switch (image.values.kind[value]) {
    case ValueKind::kPlanned: {
      const DvtTensor* tensor = image.tensor_of(value);
      const uint64_t bytes = tensor == nullptr ? sizeof(uint64_t) : tensor->bytes;
      return {offset, offset + std::max<uint64_t>(bytes, 1)};
    }
    case ValueKind::kOutput:
      return {kPorts + offset, kPorts + offset + 1};
    case ValueKind::kWord:
      return {kWords + value, kWords + value + 1};
    default:  // Constants and inputs are never written.
      return {0, 0};
  }
}

// As GraphView has them, from the nodes before each.
Dependencies table_of(std::vector<std::vector<uint32_t>>& before) {
  const auto count = static_cast<uint32_t>(before.size());
  Dependencies made;
  made.successor_offsets.assign(count + 1, 0);
  for (auto& sources : before) {
    std::sort(sources.begin(), sources.end());
    sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
    for (const uint32_t from : sources) ++made.successor_offsets[from + 1];
    made.indegree.push_back(static_cast<uint32_t>(sources.size()));
  }
  for (uint32_t i = 0; i < count; ++i) made.successor_offsets[i + 1] += made.successor_offsets[i];
  made.successors.resize(made.successor_offsets.back());
  std::vector<uint32_t> fill(made.successor_offsets.begin(), made.successor_offsets.end() - 1);
  for (uint32_t node = 0; node < count; ++node) {
    for (const uint32_t from : before[node]) made.successors[fill[from]++] = node;
  }
  return made;
}

// The sweep: all ranges are cut at each other's ends, and each piece remembers who touched it.
class Sweep {
 public:
  Sweep(const ImageView& image, const GraphView& graph) : image_(image), graph_(graph) {
    for (uint32_t node = 0; node < graph.node_count; ++node) {
      for (const auto values : {graph.inputs_of(node), graph.outputs_of(node)}) {
        for (const uint32_t value : values) add_cuts(value);
      }
    }
    std::sort(cuts_.begin(), cuts_.end());
    cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
    pieces_.resize(cuts_.size());
  }

  // How many pieces all accesses touch together.
  [[nodiscard]] uint64_t cost() const {
    uint64_t total = 0;
    for (uint32_t node = 0; node < graph_.node_count; ++node) {
      for (const auto values : {graph_.inputs_of(node), graph_.outputs_of(node)}) {
        for (const uint32_t value : values) total += pieces_of(value).size();
      }
    }
    return total;
  }

  Dependencies run() {
    std::vector<std::vector<uint32_t>> before(graph_.node_count);
    for (uint32_t node = 0; node < graph_.node_count; ++node) {
      for (const uint32_t to : graph_.succ_of(node)) before[to].push_back(node);
    }
    for (uint32_t node = 0; node < graph_.node_count; ++node) {
      for (const uint32_t value : graph_.inputs_of(node)) read(value, node, before[node]);
      for (const uint32_t value : graph_.outputs_of(node)) write(value, node, before[node]);
    }
    return table_of(before);
  }

 private:
  struct Piece {
    uint32_t writer = kNone;
    std::vector<uint32_t> readers;  // Since the write.
  };

  void add_cuts(uint32_t value) {
    if (value == kNone) return;
    const Range range = range_of(image_, value);
    if (range.begin == range.end) return;
    cuts_.push_back(range.begin);
    cuts_.push_back(range.end);
  }

  [[nodiscard]] std::span<const Piece> pieces_of(uint32_t value) const {
    if (value == kNone) return {};
    const Range range = range_of(image_, value);
    const auto first = std::lower_bound(cuts_.begin(), cuts_.end(), range.begin);
    const auto last = std::lower_bound(first, cuts_.end(), range.end);
    return std::span(pieces_).subspan(static_cast<size_t>(first - cuts_.begin()),
                                      static_cast<size_t>(last - first));
  }
  std::span<Piece> pieces_of(uint32_t value) {
    const auto pieces = std::as_const(*this).pieces_of(value);
    return {const_cast<Piece*>(pieces.data()), pieces.size()};
  }

  static void wait_for(uint32_t other, uint32_t node, std::vector<uint32_t>& before) {
    if (other != kNone && other != node) before.push_back(other);
  }

  void read(uint32_t value, uint32_t node, std::vector<uint32_t>& before) {
    for (Piece& piece : pieces_of(value)) {
      wait_for(piece.writer, node, before);
      if (piece.readers.empty() || piece.readers.back() != node) piece.readers.push_back(node);
    }
  }

  void write(uint32_t value, uint32_t node, std::vector<uint32_t>& before) {
    for (Piece& piece : pieces_of(value)) {
      wait_for(piece.writer, node, before);
      for (const uint32_t reader : piece.readers) wait_for(reader, node, before);
      piece.writer = node;
      piece.readers.clear();
    }
  }

  const ImageView& image_;
  const GraphView& graph_;
  std::vector<uint64_t> cuts_;
  std::vector<Piece> pieces_;  // [cuts_[i], cuts_[i + 1]).
};

// One pass over the nodes of a graph that drives a device.
class DeviceSweep {
 public:
  DeviceSweep(const ImageView& image, const GraphView& graph)
      : graph_(graph),
        kinds_(verify::device_nodes(image)),
        is_device_(image.values.count),
        before_(graph.node_count),
        writer_(image.values.count, kNone),
        owner_(image.values.count, kNone),
        last_user_(image.values.count, kNone) {
    for (uint32_t value = 0; value < image.values.count; ++value) {
      is_device_[value] = image.values.kind[value] == ValueKind::kDevice;
    }
  }

  Dependencies run() {
    for (uint32_t node = 0; node < graph_.node_count; ++node) {
      for (const uint32_t to : graph_.succ_of(node)) before_[to].push_back(node);
      const DvtDeviceNode kind = kinds_[graph_.kernel[node]];
      if (kind == DVT_NODE_SYNC_STREAM) {
        wait_for(launch_, node);
        wait_for(sync_, node);
        sync_ = node;
      } else if (graph_.lane[node] == DVT_KERNEL_LANE_LAUNCH) {
        launch(node);
      } else {
        change_memory(node, kind);
      }
    }
    return table_of(before_);
  }

 private:
  void wait_for(uint32_t other, uint32_t node) {
    if (other != kNone) before_[node].push_back(other);
  }

  // The scheduler keeps launches in order.
  void launch(uint32_t node) {
    wait_for(sync_, node);
    for (const auto values : {graph_.inputs_of(node), graph_.outputs_of(node)}) {
      for (const uint32_t value : values) {
        if (value == kNone || !is_device_[value]) continue;
        wait_for(writer_[value], node);
        if (owner_[value] != kNone) last_user_[owner_[value]] = node;
      }
    }
    launch_ = node;
  }

  void change_memory(uint32_t node, DvtDeviceNode kind) {
    wait_for(memory_, node);
    wait_for(sync_, node);
    memory_ = node;
    for (const uint32_t value : graph_.outputs_of(node)) {
      writer_[value] = node;
      owner_[value] = kind == DVT_NODE_ALLOC ? value : owner_[graph_.inputs_of(node)[0]];
    }
    if (kind != DVT_NODE_FREE) return;
    // Launches go in order: the last one that uses the memory stands for all.
    const auto row = graph_.free_launches_of(node);
    const auto& last = last_user_[graph_.inputs_of(node)[0]];
    if (row.empty() || last == kNone || last > row.back()) wait_for(last, node);
  }

  const GraphView& graph_;
  const std::vector<DvtDeviceNode> kinds_;  // Per kernel of the image.
  std::vector<bool> is_device_;
  std::vector<std::vector<uint32_t>> before_;
  // Per value: who gave it its address, the value that was allocated; and of that, the last launch
  // with it.
  std::vector<uint32_t> writer_, owner_, last_user_;
  uint32_t memory_ = kNone, launch_ = kNone, sync_ = kNone;  // The last of each.
};

}  // namespace

std::string reason_to_stay_sequential(const ImageView& image, const GraphView& graph) {
  const std::vector<DvtHostNode> host_kinds = host_nodes(image);
  for (uint32_t node = 0; node < graph.node_count; ++node) {
    const uint32_t kernel = graph.kernel[node];
    if (!graph.bodies_of(node).empty()) return "the graph has branches or loops";
    if (host_kinds[kernel] != DVT_HOST_OTHER) return "shapes are set at run time";
    for (const auto values : {graph.inputs_of(node), graph.outputs_of(node)}) {
      for (const uint32_t value : values) {
        if (value != kNone && image.is_dynamic(value)) return "shapes are set at run time";
      }
    }
  }
  if (Sweep(image, graph).cost() > kSweepStepsMax) return "too many values share memory";
  return "";
}

Dependencies dependencies_of(const ImageView& image, const GraphView& graph) {
  return Sweep(image, graph).run();
}

bool drives_device(const ImageView& image, const GraphView& graph) {
  const std::vector<DvtDeviceNode> kinds = verify::device_nodes(image);
  const std::span kernels(graph.kernel, graph.node_count);
  return std::ranges::any_of(kernels,
                             [&](uint32_t kernel) { return kinds[kernel] != DVT_NODE_OTHER; });
}

std::string reason_to_keep_device_in_order(const ImageView& image, const GraphView& graph) {
  const std::vector<DvtDeviceNode> kinds = verify::device_nodes(image);
  for (uint32_t node = 0; node < graph.node_count; ++node) {
    switch (kinds[graph.kernel[node]]) {
      case DVT_NODE_ALLOC:
      case DVT_NODE_FREE:
      case DVT_NODE_BUILD_REF:
      case DVT_NODE_COPY_H2D:
      case DVT_NODE_COPY_D2H:
      case DVT_NODE_LAUNCH:
      case DVT_NODE_RECORD_EVENT:
      case DVT_NODE_WAIT_EVENT:
      case DVT_NODE_SYNC_STREAM:
        break;
      default:
        return "the graph does more than to drive a device";
    }
    for (const auto values : {graph.inputs_of(node), graph.outputs_of(node)}) {
      for (const uint32_t value : values) {
        if (value != kNone && image.is_dynamic(value)) return "shapes are set at run time";
      }
    }
  }
  if (!prove_liveness(image, graph).proved()) {
    return "Free-to-Launch relations are not proved to end (davit verify --liveness)";
  }
  return "";
}

Dependencies device_dependencies_of(const ImageView& image, const GraphView& graph) {
  return DeviceSweep(image, graph).run();
}

}  // namespace davit::exec
