// window.hpp: kernel_shape, strides, dilations, pads and auto_pad, as convolutions and pools share
// them.
//
// Threads  Pure functions of their arguments.
// Trust    As ops/definition.hpp: attributes are the model's. What read_window() returns has one
//          valid entry per spatial dim.
// Memory   Values are returned by value.
#pragma once

#include <span>
#include <vector>

#include "ops/definition.hpp"
#include "ops/kernels/window.h"

namespace davit::ops {

enum class AutoPad { kNotSet, kValid, kSameUpper, kSameLower };

struct Window {
  std::vector<int64_t> kernel, strides, dilations;
  std::vector<int64_t> pads_begin, pads_end;  // Zeros unless auto_pad is NOTSET.
  AutoPad auto_pad = AutoPad::kNotSet;
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

// The kernel's record, with the pads that auto_pad chooses for `in` extents; those of an unknown
// one (or beyond the end of `in`) are left to the kernel. Precondition: window_output() succeeded.
DvtWindowAttributes window_attributes(const Window& window, std::span<const ir::Dim> in);

// The dims of a shape behind batch and channels; empty when it is unknown.
std::span<const ir::Dim> spatial_dims(const ir::Shape* shape);

// Splits what auto_pad has to add along one dim into begin and end.
std::pair<int64_t, int64_t> split_pads(AutoPad auto_pad, int64_t total);

}  // namespace davit::ops
