// layout.hpp: what is where in the one block of memory that an executor owns.
//
//   0
//   | values | runtime | cells | steps | contexts | ports | device | launch | reason |
//
//   values    planned values, arena_bytes of the plan; first, as it has the largest alignment
//   runtime   DvtRuntime
//   cells     DvtCell for each value
//   steps     DvtStep for each node of Init, Main, DeInit, in this order
//   contexts  DvtContext records of 32 + 8 * operands bytes, in the order of the steps
//   ports     for binding: CSR from ports to the values that name them, and what is bound
//   device    names, costs, streams, events; empty unless the image drives a device
//   launch    argument record of the task that is being submitted
//   reason    what a failing kernel says
//
// Threads  A value.
// Trust    Counts come from a verified image. Sums are checked all the same: their terms are the
//          file's.
// Memory   Offsets in bytes; each region is aligned for its type.
#pragma once

#include <array>
#include <cstdint>

#include "base/status.hpp"
#include "exec/image.hpp"

namespace davit::exec {

// What is bound to a port. Ports are numbered inputs first, then outputs.
struct Binding {
  const std::byte* data = nullptr;
  uint64_t bytes = 0;  // Of the port's tensor.
  bool bound = false;
};

inline constexpr uint64_t kReasonBytes = 256;

struct Layout {
  uint64_t values = 0;
  uint64_t runtime = 0;
  uint64_t cells = 0;
  uint64_t steps = 0;
  uint64_t contexts = 0;
  uint64_t port_offsets = 0;  // u32[ports + 1]
  uint64_t port_values = 0;   // u32[values that name a port]
  uint64_t bindings = 0;      // Binding[ports]
  uint64_t port_order = 0;    // u32[ports], scratch of the overlap check
  uint64_t names = 0;         // DvtNodeNames[nodes]
  uint64_t costs = 0;         // const DvtTaskCost*[nodes]
  uint64_t streams = 0;       // DvtStream*[stream_count]
  uint64_t events = 0;        // DvtEvent*[event_count]
  uint64_t unjoined = 0;      // u8[stream_count], see DeviceFlow
  uint64_t launch = 0;
  uint64_t reason = 0;
  uint64_t total = 0;

  uint64_t launch_bytes = 0;
  bool uses_device = false;  // Some node is one of dvt_device_kernels().
};

// DVT_OUT_OF_MEMORY when the sizes exceed the address space.
Result<Layout> lay_out(const ImageView& image);

// The graphs that an executor runs, in the order of its steps: Init, Main, DeInit. kNone: absent.
inline std::array<uint32_t, 3> runnable_graphs(const ImageView& image) {
  return {image.init, image.main, image.deinit};
}

}  // namespace davit::exec
