// interval_csv.hpp: planning problems as files: one value a line, `id,lower,upper,size`, as in the
// benchmarks of this field, and for some values `offset` (fixed) and `alignment`.
//
// Threads  Pure functions.
// Trust    Text is untrusted: errors name line and column.
// Memory   Results own their data.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "lowering/memory_plan/planner.hpp"

namespace davit::lowering {

struct IntervalTable {
  std::vector<std::string> ids;  // Unique.
  std::vector<Interval> intervals;
  Constraints constraints;  // Of the columns offset and alignment.
};

// The first line names the columns, in any order; the first four must be there, and no others than
// these six may. Numbers are decimal, lower < upper; cells of offset and alignment may be empty.
// Lines may end in CR LF; empty ones are skipped. Error:
// DVT_INVALID_IMAGE.
Result<IntervalTable> parse_intervals(std::string_view text);

// The table with a column of offsets, one for each interval; with the column alignment where some
// have one.
std::string print_offsets(const IntervalTable& table, std::span<const uint64_t> offsets);

}  // namespace davit::lowering
