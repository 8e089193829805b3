// scratch.hpp: outputs of recipes: workspaces, sized by the kernel itself, and optional ones.
//
// Threads  Pure functions of their arguments.
// Trust    As ops/definition.hpp.
// Memory   Values are returned by value.
#pragma once

#include "ops/definition.hpp"

namespace davit::ops {

// Appends `count` workspaces to a recipe that is complete otherwise. With static shapes their sizes
// are what the kernel's infer() asks for; with dynamic ones they are 0, as nobody reads them then.
// An error when the kernel refuses the operands.
Status add_workspaces(const NodeView& node, Recipe& recipe, size_t count = 1);

// Bit i: the node's output i is there. For kernels whose recipe lists present outputs only.
int64_t present_outputs(const NodeView& node);

}  // namespace davit::ops
