// slice.hpp: the arithmetic of Slice: which elements of each axis remain.
//
// Threads  Pure functions of their arguments.
// Trust    Starts, ends, axes and steps are the model's: any 64-bit value is handled.
// Memory   Values are returned by value.
#pragma once

#include <optional>
#include <vector>

#include "ops/definition.hpp"

namespace davit::ops {

struct AxisSlice {
  std::optional<int64_t> start;  // Clamped into the axis; nullopt while unknown.
  std::optional<int64_t> step;
  ir::Dim count;  // Elements that remain.
};

// One entry per axis of input 0, whose shape must be known. Parameters that are not constant leave
// their axes unknown.
Result<std::vector<AxisSlice>> slices_of(const NodeView& node);

}  // namespace davit::ops
