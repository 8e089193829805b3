// host_accesses.hpp: what the nodes of a graph touch on the host: shapes, cells and data.
//
//   shape   the descriptor of a dynamic value, in the executor's arena
//   cell    the address of a value that gets its memory at run time
//   data    bytes of planned values, ports, words, and of the heap
//   turn    what one node of a kind uses at a time
//
// Memory of a device is not among it, and launches are given their operands' addresses in the order
// of the lanes (dependencies_device.cpp). A node that runs bodies touches what all nodes of all its
// bodies do.
//
// Threads  One.
// Trust    The image is verified, its kernels are resolved when shapes are set at run time.
// Memory   A few words per operand, while it lives.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/access_sweep.hpp"
#include "exec/dynamic.h"
#include "exec/image.hpp"
#include "exec/runtime.h"

namespace davit::exec {

class HostAccesses {
 public:
  // `heap_in_order`: memory of the heap is taken and given back in the order of the image. Else it
  // is taken right before the node that fills it, so that no more lives than runs.
  HostAccesses(const ImageView& image, const GraphView& graph, bool heap_in_order);

  [[nodiscard]] uint64_t cost() { return sweep_.cost(); }
  // Adds to before[node] whom it has to wait for.
  void run(std::vector<std::vector<uint32_t>>& before);

 private:
  void add(uint32_t node);
  bool add_host_node(uint32_t node);
  void run_bodies(uint32_t node);
  void add_device_node(uint32_t node);
  void infer(uint32_t node);
  void compute(uint32_t node);
  void allocate_late(std::vector<std::vector<uint32_t>>& before) const;

  [[nodiscard]] bool dynamic(uint32_t value) const {
    return value != kNone && image_.is_dynamic(value);
  }
  // Data of a value on the host, whoever's memory it is in.
  [[nodiscard]] Range data(uint32_t value) const;
  [[nodiscard]] Range cell(uint32_t value) const;
  void read_shape(uint32_t value) {
    if (dynamic(value)) sweep_.read(place_of(Place::kShape, value));
  }
  void write_shape(uint32_t value) {
    if (dynamic(value)) sweep_.write(place_of(Place::kShape, value));
  }
  // Of what has no cell or no data, nothing is touched.
  void read_cell(uint32_t value) {
    if (value != kNone) sweep_.read(cell(value));
  }
  void write_cell(uint32_t value) {
    if (value != kNone) sweep_.write(cell(value));
  }
  void read_data(uint32_t value) {
    if (value != kNone) sweep_.read(data(value));
  }
  void write_data(uint32_t value) {
    if (value != kNone) sweep_.write(data(value));
  }
  enum class Turn : uint8_t { kReason, kHeap };
  void take_turn(Turn turn) {
    // Bodies fail with words of their own (DvtRuntime.reason).
    if (turn == Turn::kReason && around_ > 0) return;
    sweep_.write(place_of(Place::kTurn, static_cast<uint64_t>(turn)));
  }

  const ImageView& image_;
  const GraphView* graph_;  // Whose nodes are being added: the one that is asked about, or a body.
  uint32_t around_ = 0;     // Graphs around it.
  const std::vector<DvtHostNode> host_;      // Per kernel of the image.
  const std::vector<DvtDeviceNode> device_;  // The same.
  std::vector<uint32_t> memory_;  // Per value: the one whose memory it has; of references, another.
  const bool heap_in_order_;
  AccessSweep sweep_;
};

}  // namespace davit::exec
