// slice.hpp: the parameters of Slice, over its opsets: attributes before opset 10, inputs since.
//
// Threads  Pure functions of their arguments.
// Trust    Starts, ends, axes and steps are the model's: any 64-bit value is handled.
// Memory   Values are returned by value.
#pragma once

#include "ops/definition.hpp"
#include "ops/kernels/movement.h"

namespace davit::ops {

// What remains of input 0, whose shape must be known. Parameters that are not constant leave their
// axes unknown.
Result<ir::Shape> sliced_shape(const NodeView& node);

// The kernel's record. Lists are DVT_LIST_INPUT where an input is not constant.
Result<DvtSliceAttributes> slice_attributes(const NodeView& node);

// Where in input 0 the output begins, in bytes, when it lies there in one piece. nullopt also when
// shapes or parameters are not known, or the output is empty.
std::optional<uint64_t> piece_offset(const NodeView& node, const DvtSliceAttributes& record);

}  // namespace davit::ops
