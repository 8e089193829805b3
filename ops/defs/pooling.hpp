// pooling.hpp: what the definitions of pools share.
//
// Threads  Pure functions of their arguments.
// Trust    As ops/definition.hpp.
// Memory   Values are returned by value.
#pragma once

#include "ops/defs/window.hpp"

namespace davit::ops {

// kernel_shape and the window's other attributes.
Result<Window> read_pool(const NodeView& node);

// Inference of a pool, and of one over all of an image.
Status infer_pool(const NodeView& node, std::span<InferredOutput> outputs);
Status infer_global_pool(const NodeView& node, std::span<InferredOutput> outputs);

// Cost: one pass over what the windows see.
DvtTaskCost cost_pool(const NodeView& node);
DvtTaskCost cost_global_pool(const NodeView& node);

}  // namespace davit::ops
