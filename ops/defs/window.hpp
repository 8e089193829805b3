// window.hpp: kernel_shape, strides, dilations, pads and auto_pad, as convolutions and pools share
// them.
//
// Threads  Pure functions of their arguments.
// Trust    As ops/definition.hpp: attributes are the model's. What read_window() returns has one
//          valid entry per spatial dim.
// Memory   Values are returned by value.
#pragma once

#include <vector>

#include "ops/definition.hpp"
#include "ops/kernels/window.h"

namespace davit::ops {

struct Window {
  std::vector<int64_t> kernel, strides, dilations;
  std::vector<int64_t> pads_begin, pads_end;  // Zeros unless auto_pad is NOTSET.
  DvtAutoPad auto_pad = DVT_PADS_STATED;      // VALID: stated, zero.
  bool ceil_mode = false;

  [[nodiscard]] size_t spatial() const { return kernel.size(); }
};

// Reads the node's attributes for `kernel`, one extent per spatial dim. Refuses lists of another
// length, values out of range, and an unknown auto_pad.
Result<Window> read_window(const NodeView& node, std::vector<int64_t> kernel);

// X's rank must leave 1 to 3 spatial dims.
Status check_spatial_rank(const NodeView& node, size_t rank);

// The output extent of one spatial dim; unknown when `in` is, but for dims that the window keeps.
// An error when the window does not fit.
Result<ir::Dim> window_output(const NodeView& node, const Window& window, size_t dim, ir::Dim in);

// The kernel's record.
DvtWindowAttributes window_attributes(const Window& window);

}  // namespace davit::ops
