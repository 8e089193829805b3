// run_dynamic.hpp: runs one node as a graph with dynamic shapes would: its recipe is made without
// knowing extents, then the kernel's infer(), check() and run() follow on the actual tensors.
//
// Threads  Functions share nothing.
// Trust    Test data only.
// Memory   Results own their data. Buffers are of exactly their size.
#pragma once

#include <span>
#include <vector>

#include "base/status.hpp"
#include "ir/module.hpp"

namespace davit::testing {

// What the recipe may know of the node's inputs.
struct Known {
  bool ranks = true;  // Else not even those, but of constants.
  // Integers of one axis at most that were constant remain so, and scales of Resize.
  bool parameters = true;
};

// The outputs of `node` for the inputs (null: absent). DVT_UNSUPPORTED from the definition passes
// through; everything else that goes wrong after it is DVT_INTERNAL: shapes that disagree with the
// definition's, with known extents or without, or costs; an infer() that reads what it must not; a
// kernel that refuses what infer() made.
Result<std::vector<ir::TensorData>> run_dynamic(const ir::Module& module, ir::NodeId node,
                                                std::span<const ir::TensorData* const> inputs,
                                                Known known);

}  // namespace davit::testing
