// verify_internal.hpp: what the files of the verifier share.
//
// Threads  Pure functions of their arguments.
// Trust    Each stage relies on the ones before it, in the order of verify.cpp, and on nothing
// else. Memory   See verify.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "exec/image.hpp"
#include "exec/runtime.h"

namespace davit::exec::verify {

// Segments of the container, in place. Absent ones are empty.
struct Segments {
  std::span<const std::byte> metadata;
  std::span<const std::byte> code;
  std::span<const std::byte> constants;
  // The constants are in a file of their own, which this describes; else its kind is 0.
  DvtSegment external{};
};

// Memory of the verifier's large arrays: one block, so that filling it in costs few page faults.
using Scratch = std::pmr::memory_resource;

// A broken rule: DVT_INVALID_IMAGE at stage check.
[[gnu::format(printf, 1, 2)]] Status broken(const char* format, ...);
// The same with another code.
[[gnu::format(printf, 2, 3)]] Status failed(DvtCode code, const char* format, ...);

// Values and ports are named with their original names where they have one: `7 "conv1_out"`.
std::string describe_value(const ImageView& view, uint32_t value);

// 1. Header, segment table, gaps, digests. Fills in versions, target, file size.
Status check_container(std::span<const std::byte> bytes, bool skip_digests, ImageView& view,
                       Segments& segments);

// 2. The flatbuffer as such, then strings, descriptors, values, ports, kernel references, costs,
// plans and provenance; columns of graphs by shape only (lengths, offsets, alignment).
// `metadata` is aligned to 8; view.constants is set.
Status read_metadata(std::span<const std::byte> metadata, ImageView& view);

// 3. Resolves view.kernel_refs into view.kernels.
// In `tables`, then `code`, then Davit's own.
Status resolve_kernels(std::span<const DvtKernelTable> tables, DvtKernelTable code,
                       ImageView& view);

// 4. Ids, lanes, operand counts, attributes, edges, rows of every graph.
Status check_graphs(const ImageView& view, Scratch& scratch);

// 4b. Gears, and values at ports whose shape is dynamic.
Status check_gears(const ImageView& view);

// Which of dvt_device_kernels() each kernel of the image is.
std::vector<DvtDeviceNode> device_nodes(const ImageView& view);

// What the data flow analysis knows of a value.
struct ValueFacts {
  // The value whose memory it reads: itself when it is written; for a view, the value that was
  // written last at its address. kNone when it is neither written nor, so far, read. See
  // FlowFacts::roots_of().
  uint32_t root = kNone;
  uint32_t home = kNone;  // The graph that writes its cell.
  // The last node so far that lists it among its outputs.
  uint32_t writer_graph = kNone;
  uint32_t writer_node = kNone;
};

// What the data flow analysis finds out, for the checks after it.
struct FlowFacts {
  explicit FlowFacts(Scratch& scratch)
      : by_address(&scratch),
        begin(&scratch),
        end(&scratch),
        rank(&scratch),
        values(&scratch),
        join(&scratch),
        join_off(&scratch),
        join_parts(&scratch) {}

  // The values whose memory it reads: several, by ascending address, for a view that they make up
  // together. {kNone} when it is neither written nor, so far, read.
  [[nodiscard]] std::span<const uint32_t> roots_of(uint32_t value) const {
    if (join.empty() || join[value] == kNone) return {&values[value].root, 1};
    const uint32_t row = join[value];
    return std::span(join_parts).subspan(join_off[row], join_off[row + 1] - join_off[row]);
  }

  // Values in the arena or an output port, by ascending address. Output ports lie behind the arena.
  std::pmr::vector<uint32_t> by_address;
  std::pmr::vector<uint64_t> begin, end;  // Their addresses, in the same order.
  std::pmr::vector<uint32_t> rank;        // Per value: its position in by_address, or kNone.
  std::pmr::vector<ValueFacts> values;    // Per value.
  // Views of several values: a row of join_parts for each, kNone per value that is none. Empty
  // where there are no such views.
  std::pmr::vector<uint32_t> join, join_off, join_parts;
  std::vector<uint32_t> graph_order;  // Init, Main, DeInit, then bodies, parents first.
};

// Sorts the values by address. Precondition: stages 1 to 4.
Status map_memory(const ImageView& view, FlowFacts& facts);

// 5. Who writes and reads what, in which order; edges; bodies. Fills in the rest of `facts`.
Status check_dataflow(const ImageView& view, FlowFacts& facts, Scratch& scratch);

// 6. Device memory: who allocates, uses and frees it.
Status check_device_memory(const ImageView& view, const FlowFacts& facts);

// 6b. Values whose shape is set at run time; nodes that run bodies.
Status check_dynamic_values(const ImageView& view, const FlowFacts& facts);

// 7. No two values that may be live at the same time share memory.
Status check_plan(const ImageView& view, const FlowFacts& facts, Scratch& scratch);

// 8. A schedule for several workers covers all that nodes have to wait for.
Status check_schedule(const ImageView& view);

// 9. Every kernel's own check.
Status check_kernels(const ImageView& view);

}  // namespace davit::exec::verify
