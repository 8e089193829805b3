// gears.hpp: the gears of an image (exec/dynamic.h), sets of shapes of its inputs that it is
// compiled for.
//
// Threads  Pure functions.
// Trust    Of input(): the view has passed check_gears().
// Memory   A view of a view.
#pragma once

#include <vector>

#include "exec/dynamic.h"
#include "exec/image.hpp"

namespace davit::exec {

struct GearsView {
  const ImageView* image = nullptr;
  uint32_t count = 0;  // 0: the image has none.

  [[nodiscard]] uint32_t input_value(uint32_t gear, uint32_t port) const {
    const size_t row = image->inputs.size() * (size_t{gear} + 1);
    return image->graphs[image->main].inputs_of(0)[row + port];
  }
  [[nodiscard]] uint32_t output_value(uint32_t gear, uint32_t port) const {
    const size_t row = image->outputs.size() * (size_t{gear} + 1);
    return image->graphs[image->main].outputs_of(0)[row + port];
  }
  [[nodiscard]] const DvtTensor& input(uint32_t gear, uint32_t port) const {
    return *image->tensor_of(input_value(gear, port));
  }
  [[nodiscard]] std::span<const uint32_t> bodies() const {
    if (count == 0) return {};
    return image->graphs[image->main].bodies_of(0);
  }
};

inline GearsView gears_of(const ImageView& image) {
  const GraphView& main = image.graphs[image.main];
  if (main.node_count != 1) return {};
  const uint32_t kernel = main.kernel[0];
  const DvtHostNode kind = image.kernels.empty()
                               ? dvt_host_node_named(image.kernel_refs[kernel].name)
                               : dvt_host_node(image.kernels[kernel]);
  if (kind != DVT_HOST_SELECT_GEAR) return {};
  return {&image, static_cast<uint32_t>(main.bodies_of(0).size())};
}

// The graphs that allocate on a device and submit to it between Init and DeInit: Main, or the
// bodies of the gears, of which each takes its place.
inline std::vector<uint32_t> main_graphs(const ImageView& image) {
  const GearsView gears = gears_of(image);
  if (gears.count == 0) return {image.main};
  return {gears.bodies().begin(), gears.bodies().end()};
}

}  // namespace davit::exec
