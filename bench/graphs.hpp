// graphs.hpp: generated images of empty nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "davit/kernel.h"

namespace davit::bench {

// Kernel "bench.Empty": returns DVT_OK at once. Up to 16 inputs, one output.
DvtKernelTable empty_kernels();

// An image for the cpu whose Main has `layers` layers of `width` nodes. A node reads `inputs` nodes
// of the layer before, chosen by a fixed seed, or as many as there are; every `extra_every`-th node
// reads one more (0: none). Its result has `value_bytes` bytes of the arena (0: a plain word).
// `constant_bytes` are in the constants segment, as one tensor that the first node reads.
struct LayeredGraph {
  uint32_t layers = 1;
  uint32_t width = 1;
  uint32_t inputs = 1;
  uint32_t extra_every = 0;
  uint64_t value_bytes = 0;
  uint64_t constant_bytes = 0;
};
std::vector<std::byte> layered_image(const LayeredGraph& graph);

}  // namespace davit::bench
