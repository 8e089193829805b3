// body_packing.hpp: places bodies, whatever their shape.
//
// Threads  Pure functions.
// Memory   Results own their data. Work is counted in steps of the search.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "lowering/memory_plan/bodies.hpp"
#include "lowering/memory_plan/packing.hpp"

namespace davit::lowering {

// One offset per body.
struct BodyPacking {
  std::vector<uint64_t> offsets;
  uint64_t height = 0;
};

// The most bytes that live together, and no less than what is fixed needs. DVT_OUT_OF_MEMORY when a
// sum does not fit 63 bits.
Result<uint64_t> bodies_lower_bound(const std::vector<Body>& bodies);

// First fit in several orders; then bodies of the best order change places, and what is not worse
// is kept, until the height is `enough` or the budget is used up. The first order is always
// completed. DVT_INVALID_ARGUMENT when two fixed bodies collide. Of the constraints, names alone
// are used.
Result<BodyPacking> pack_bodies(const std::vector<Body>& bodies, const Constraints& constraints,
                                uint64_t enough, Budget& budget);

}  // namespace davit::lowering
