// scratch.hpp: what definitions ask their kernels for: sizes of workspaces, costs; and which
// outputs are there.
//
// Threads  Pure functions of their arguments.
// Trust    As ops/definition.hpp.
// Memory   Values are returned by value.
#pragma once

#include "ops/definition.hpp"

namespace davit::ops {

// Appends `count` workspaces to a recipe that is complete otherwise. With static shapes their sizes
// are what the kernel's infer() asks for; with dynamic ones, and while a parameter that they depend
// on is not constant, they are 0, as nobody reads them then. An error when the kernel refuses the
// operands.
Status add_workspaces(const NodeView& node, Recipe& recipe, size_t count = 1);

// The kernel's own cost(), for definitions whose kernel has one.
DvtTaskCost cost_of_kernel(const NodeView& node);

// Shapes of the node's outputs by the kernel's infer(), where all that it needs is known. The
// dtypes of `outputs` are set. An extent that depends on data stays open.
Status infer_by_kernel(const NodeView& node, const Recipe& recipe,
                       std::span<InferredOutput> outputs);

// Bit i: the node's output i is there. For kernels whose recipe lists present outputs only.
int64_t present_outputs(const NodeView& node);

}  // namespace davit::ops
