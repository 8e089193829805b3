// layout.hpp: what is where in the one block of memory that an executor owns.
//
//   0
//   | values | runtime | cells | steps | contexts | ports | dynamic | device | launch | reason |
//
//   values    planned values, arena_bytes of the plan; first, as it has the largest alignment
//   runtime   DvtRuntime
//   cells     DvtCell for each value
//   steps     DvtStep for each node of Init, Main, DeInit, in this order, then of the bodies
//   contexts  DvtContext records of 32 + 8 * operands bytes, in the order of the steps
//   ports     for binding: CSR from ports to the values that name them, and what is bound
//   dynamic   shapes of this run, memos of InferShape nodes, what nodes with bodies need
//   device    names, costs, streams, events; empty unless the image drives a device
//   launch    argument record of the task that is being submitted
//   reason    what a failing kernel says, for each lane
//
// Threads  A value.
// Trust    Counts come from a verified image. Sums are checked all the same: their terms are the
//          file's.
// Memory   Offsets in bytes; each region is aligned for its type.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "exec/dynamic.h"
#include "exec/image.hpp"

namespace davit::exec {

// What is bound to a port. Ports are numbered inputs first, then outputs.
struct Binding {
  const std::byte* data = nullptr;
  uint64_t bytes = 0;  // Of the port's tensor; of the buffer for a dynamic output.
  bool bound = false;
};

inline constexpr uint64_t kReasonBytes = 256;  // Of each lane.
inline constexpr uint64_t kReasons = 3;

struct Layout {
  uint64_t values = 0;
  uint64_t runtime = 0;
  uint64_t cells = 0;
  uint64_t steps = 0;
  uint64_t contexts = 0;
  uint64_t port_offsets = 0;   // u32[ports + 1]
  uint64_t port_values = 0;    // u32[values that name a port]
  uint64_t bindings = 0;       // Binding[ports]
  uint64_t port_order = 0;     // u32[ports], scratch of the overlap check
  uint64_t outputs = 0;        // DvtOutputSlot[outputs]
  uint64_t blocks = 0;         // u64[values], of images with dynamic values or a device
  uint64_t shapes = 0;         // DvtTensor[dynamic values]
  uint64_t scratch = 0;        // DvtTensor[flow nodes + 1][scratch_tensors]
  uint64_t shape_nodes = 0;    // DvtShapeNode[InferShape nodes]
  uint64_t memos = 0;          // Of those nodes, one after the other.
  uint64_t flow_nodes = 0;     // DvtFlowNode[nodes with bodies]
  uint64_t flow_runtimes = 0;  // DvtRuntime[the same]
  uint64_t bodies = 0;         // DvtBody[bodies]
  uint64_t capacities = 0;     // uint64_t[collected outputs of loops]
  uint64_t declared = 0;       // DvtTensor[the same]
  uint64_t names = 0;          // DvtNodeNames[nodes]
  uint64_t costs = 0;          // const DvtTaskCost*[nodes]
  uint64_t streams = 0;        // DvtStream*[stream_count]
  uint64_t events = 0;         // DvtEvent*[event_count]
  uint64_t unjoined = 0;       // u8[stream_count], see DeviceFlow
  uint64_t launch = 0;
  uint64_t reason = 0;  // char[flow nodes + 1][kReasons][kReasonBytes]
  uint64_t total = 0;

  uint64_t launch_bytes = 0;
  uint64_t scratch_tensors = 0;  // Most outputs of a target of InferShape.
  uint64_t flow_node_count = 0;
  bool uses_device = false;  // Some node is one of dvt_device_kernels().
  bool uses_heap = false;    // Some value is dynamic.
};

// DVT_OUT_OF_MEMORY when the sizes exceed the address space.
Result<Layout> lay_out(const ImageView& image);

// An InferShape node, and what its memo needs.
struct ShapeNodeFacts {
  uint32_t target = 0;
  uint32_t kernel = 0;  // Whose infer() and check() hold for the target.
  uint32_t dynamic_inputs = 0;
  uint32_t outputs = 0;     // All of the target's.
  bool remembers = false;   // The shapes depend on shapes and constants alone.
  uint32_t memo_bytes = 0;  // Of one way.
};
ShapeNodeFacts shape_node_facts(const ImageView& image, const GraphView& graph, uint32_t node);

// Which of dvt_dynamic_kernels() each kernel of the image is; by name while kernels are not
// resolved.
std::vector<DvtHostNode> host_nodes(const ImageView& image);

// Whether nodes of this kind have bodies.
inline bool runs_bodies(DvtHostNode kind) {
  return kind == DVT_HOST_IF || kind == DVT_HOST_LOOP || kind == DVT_HOST_SELECT_GEAR;
}

// What a Loop node collects; 0 for any other node.
uint32_t collected_outputs(DvtHostNode kind, const GraphView& graph, uint32_t node);

// The graphs that an executor runs, in the order of its steps: Init, Main, DeInit. kNone: absent.
inline std::array<uint32_t, 3> runnable_graphs(const ImageView& image) {
  return {image.init, image.main, image.deinit};
}

}  // namespace davit::exec
