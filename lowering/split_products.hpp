// split_products.hpp: one large operator becomes pieces that workers run at the same time: tiles as
// nodes, so that operators are parallel by the pool and the schedule that the graph has anyway.
//
//   y = Conv(x, w, b)    becomes    y0 = Conv(x, w[0:32], b[0:32])      y = Concat(y0, y1;
//   channels)
//                                   y1 = Conv(x, w[32:64], b[32:64])
//
// Pieces are cut where they are contiguous, so that neither the Concat nor the Split in front of a
// piece that needs only a part of an input is a node of the image (share_memory.hpp). Cut are
//
//   Conv, FusedConv                 of one batch: channels of the result; with groups, whole groups
//   MatMul, Gemm, and fused ones    by a constant matrix: rows of the first operand
//   MaxPool, AveragePool            of one batch: channels
//
// Threads  Pure functions.
// Trust    The module has passed inference.
// Memory   Pieces of constants are copies; the wholes go with the next dead-code removal.
#pragma once

#include <cstdint>

#include "ir/module.hpp"
#include "ir/passes/passes.hpp"

namespace davit::lowering {

// Cuts every operator of the main graph whose work is worth it into at most `pieces`. Returns how
// many were cut. `refusals` gets those that are large enough, and what keeps them whole. Results
// keep their bits with the reference kernels.
Result<uint32_t> split_products(ir::Module& module, uint32_t pieces, passes::Refusals& refusals);

}  // namespace davit::lowering
