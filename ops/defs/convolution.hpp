// convolution.hpp: what float and quantised convolutions share.
//
// Threads  Pure functions of their arguments.
// Trust    As ops/definition.hpp: attributes and shapes are the model's.
// Memory   Values are returned by value.
#pragma once

#include <optional>

#include "ops/definition.hpp"
#include "ops/kernels/convolution.h"

namespace davit::ops {

// Which inputs of the node are X, W and B.
struct ConvInputs {
  uint32_t x, w, b;
};

// Y's shape, as far as it follows; refuses shapes and attributes that do not go together.
Status infer_convolution(const NodeView& node, ConvInputs inputs, std::optional<ir::Shape>& shape);

// The kernel's record. Precondition: infer_convolution() succeeded.
Result<DvtConvAttributes> convolution_record(const NodeView& node, ConvInputs inputs);

// Extents of the product and the node's traffic. Precondition: shapes are static.
DvtTaskCost convolution_cost(const NodeView& node, ConvInputs inputs);

}  // namespace davit::ops
