// mutation.hpp: from one valid node to many contexts as a crafted image could hold them.
//
// Threads  One test at a time.
// Trust    Test data only.
// Memory   Operands have exactly their size, so that AddressSanitizer sees any overrun.
#pragma once

#include <cstdint>

#include "tests/ops/harness.hpp"
#include "tests/ops/values.hpp"

namespace davit::test {

// `node` has constant inputs and must evaluate. Checks that
//   - the kernel's infer() gives the shapes that the definition infers, and the recipe's
//   workspaces;
//   - without extents the recipe has the same kernel, operands and record; inputs in the bit mask
//     `keep` stay constants there;
//   - of `rounds` random changes (dims, ranks, dtypes, operands, counts, attributes, data), run()
//     survives what check() lets pass, and infer() survives them all.
void mutate(OneNode& node, Source& source, int rounds, uint32_t keep = 0);

}  // namespace davit::test
