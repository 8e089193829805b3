// matrix.hpp: what operators that are matrix products share.
//
// Threads  Pure functions of their arguments.
// Trust    As ops/definition.hpp.
// Memory   Values are returned by value.
#pragma once

#include "ops/definition.hpp"

namespace davit::ops {

// The shape of the product of inputs `a` and `b` by MatMul's rules; left alone while a rank is
// unknown. Refuses operands that do not multiply.
Status infer_product(const NodeView& node, uint32_t a, uint32_t b, std::optional<ir::Shape>& shape);

// The product's extents and the node's traffic, on the cube. Precondition: shapes are static.
DvtTaskCost product_cost(const NodeView& node, uint32_t a, uint32_t b);

}  // namespace davit::ops
