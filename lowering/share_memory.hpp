// share_memory.hpp: values of a static graph that lie in others, so that no node moves bytes: what
// Split and Slice cut out in one piece, and the inputs of a Concat side by side in its output.
//
// Threads  Pure functions.
// Trust    As lower.hpp: all shapes are static.
// Memory   Work and memory are linear in the graph, but for joined values that are joined again:
//          those are bounded.
#pragma once

#include <cstdint>

#include "ir/module.hpp"
#include "ir/passes/passes.hpp"
#include "lowering/prepare.hpp"

namespace davit::lowering {

struct Sharing {
  bool view_parts = true;
  bool join_parts = true;
  bool work_in_place = true;  // For the lowering: results may replace operands.
};

// Takes steps that need not run from prepared.steps. Left alone is what has anything to do with
// ports and constants, whose bytes are elsewhere; what would lie at no multiple of `alignment`; a
// Slice of less than half of a value, which would keep the rest from being used again; and a Concat
// of values that lie in other places already. `refusals` gets the nodes whose operator would allow
// it, and what does not.
void share_memory(const ir::Module& module, Prepared& prepared, const Sharing& sharing,
                  uint64_t alignment, passes::Refusals& refusals);

}  // namespace davit::lowering
