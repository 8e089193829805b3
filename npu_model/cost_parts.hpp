// cost_parts.hpp: what cost.cpp and custom_cost.cpp share.
//
// Threads  Pure functions.
// Trust    As cost.hpp.
// Memory   Nothing is allocated.
#pragma once

#include <cstdint>

#include "npu_model/cost.hpp"
#include "npu_model/parameters.hpp"

namespace davit::npu {

// To whole cycles or bytes that are exact in double; 0 for what is not positive.
uint64_t round_up(double value);
int64_t us_to_ps(double us);
// Cycles that `bytes` take at a chip-wide rate.
double rate_cycles(const Parameters& p, double bytes, double gbps);
// Of an element; 1 for dtypes without a size.
uint32_t dtype_bytes(DvtDType dtype);
// Vector units that work beside one cube unit.
double vector_units(const Parameters& p);
// Of a product m x k by k x n.
double cube_fractals(const Parameters& p, double m, double n, double k, DvtDType dtype);

// Fills in body, need and demand fields from pipe cycles and traffic. `core_cycles`: of the body,
// those that more cores would shorten.
void finish_timing(const Parameters& p, TaskTiming& timing, double core_cycles, double body_cycles);
// Where cube and vector unit are one core, all kernels run on the same cores.
void combine_cores(const Parameters& p, TaskTiming& timing);

}  // namespace davit::npu
