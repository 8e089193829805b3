// scratch.hpp: scratch outputs of recipes, sized by the kernel itself.
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

}  // namespace davit::ops
