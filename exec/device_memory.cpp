#include "exec/device_memory.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "alloc/caching_allocator.h"
#include "base/checked.hpp"
#include "exec/caller_memory.hpp"
#include "exec/gears.hpp"
#include "exec/runtime.h"

namespace davit::exec {
namespace {

constexpr uint64_t kAlignment = kCallerAlignment;

// Of an AllocMemHbm node; UINT64_MAX when it cannot be rounded up.
uint64_t allocated_bytes(const ImageView& image, const GraphView& graph, uint32_t node) {
  DvtAllocAttributes attributes;
  std::memcpy(&attributes, graph.attributes_of(node).data(), sizeof attributes);
  auto bytes = static_cast<uint64_t>(attributes.bytes);  // Verifier: not negative.
  const DvtTensor* tensor = image.tensor_of(graph.outputs_of(node)[0]);
  if (tensor != nullptr) bytes = std::max(bytes, tensor->bytes);
  return checked_align(std::max<uint64_t>(bytes, 1), kAlignment).value_or(UINT64_MAX);
}

// Calls allocate(value, bytes) and free(value) in the order of the nodes, until one returns false.
template <class Allocate, class Free>
bool replay(const ImageView& image, const GraphView& graph, Allocate allocate, Free free) {
  for (uint32_t node = 0; node < graph.node_count; ++node) {
    const DvtDeviceNode kind = dvt_device_node(image.kernels[graph.kernel[node]]);
    if (kind == DVT_NODE_ALLOC) {
      const uint64_t bytes = allocated_bytes(image, graph, node);
      if (!allocate(graph.outputs_of(node)[0], bytes)) return false;
    } else if (kind == DVT_NODE_FREE) {
      free(graph.inputs_of(node)[0]);
    }
  }
  return true;
}

// Whether what a graph allocates fits into one piece, as the executor's allocator cuts it.
bool fits(const ImageView& image, const GraphView& graph, uint64_t bytes) {
  constexpr uintptr_t kMadeUp = 1U << 20;         // Nobody touches what the allocator manages.
  void* base = reinterpret_cast<void*>(kMadeUp);  // NOLINT(performance-no-int-to-ptr)
  const DvtMemorySource source = caller_source(base);
  DvtAllocatorOptions options;
  caller_options(source, bytes, options);
  DvtAllocator* made = nullptr;
  if (dvt_allocator_create(&options, &made) != DVT_OK) return false;
  const std::unique_ptr<DvtAllocator, decltype(&dvt_allocator_destroy)> allocator(
      made, dvt_allocator_destroy);
  std::vector<uint64_t> ids(image.values.count);
  return replay(
      image, graph,
      [&](uint32_t value, uint64_t wanted) {
        DvtBlock block;
        if (dvt_allocator_acquire(made, wanted, value, &block) != DVT_OK) return false;
        ids[value] = block.id;
        return true;
      },
      [&](uint32_t value) {
        const DvtCode code = dvt_allocator_release(made, std::exchange(ids[value], 0));
        (void)code;  // A value that nothing allocated here owns nothing.
      });
}

uint64_t peak_bytes(const ImageView& image, const GraphView& graph) {
  std::vector<uint64_t> held(image.values.count);
  uint64_t live = 0;
  uint64_t peak = 0;
  const bool known = replay(
      image, graph,
      [&](uint32_t value, uint64_t bytes) {
        const auto total = checked_add(live, bytes);
        if (!total) return false;
        held[value] = bytes;
        live = *total;
        peak = std::max(peak, live);
        return true;
      },
      [&](uint32_t value) { live -= std::exchange(held[value], 0); });
  return known ? peak : 0;
}

// The size of one piece in which the graph's allocations fit; 0: none is as large.
uint64_t piece_bytes(const ImageView& image, const GraphView& graph, uint64_t peak) {
  // A little more than the peak, where the allocator leaves holes.
  const uint64_t step = std::max(peak / 64 / kAlignment * kAlignment, kAlignment);
  for (uint64_t bytes = peak; bytes - peak <= peak && bytes <= UINT64_MAX - step; bytes += step) {
    if (fits(image, graph, bytes)) return bytes;
  }
  return 0;
}

}  // namespace

uint64_t peak_device_bytes(const ImageView& image) {
  uint64_t peak = 0;
  for (const uint32_t graph : main_graphs(image)) {
    peak = std::max(peak, peak_bytes(image, image.graphs[graph]));
  }
  return peak;
}

Result<DvtDeviceMemoryNeeds> device_memory_needs(const ImageView& image) {
  DvtDeviceMemoryNeeds needs{};
  const Status too_large(DVT_OUT_OF_MEMORY, DVT_STAGE_LOAD,
                         "no memory is as large as what the image allocates on a device");
  if (image.init != kNone) {
    const bool known = replay(
        image, image.graphs[image.init],
        [&](uint32_t, uint64_t bytes) {
          const auto total = checked_add(needs.fixed_bytes, bytes);
          needs.fixed_bytes = total.value_or(0);
          return total.has_value();
        },
        [](uint32_t) {});
    if (!known) return Status(too_large.detail());
  }
  for (const uint32_t graph : main_graphs(image)) {
    const uint64_t peak = peak_bytes(image, image.graphs[graph]);
    if (peak == 0) continue;
    const uint64_t bytes = piece_bytes(image, image.graphs[graph], peak);
    if (bytes == 0) return Status(too_large.detail());
    needs.feature_bytes = std::max(needs.feature_bytes, bytes);
  }
  return needs;
}

}  // namespace davit::exec
