// constraints.hpp: what a memory plan has to respect beyond lives and sizes. Values are indices of
// the planner's intervals.
//
// Threads  Values.
// Trust    plan_memory() checks them: an error names values that contradict each other.
// Memory   Own their data but for the names.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace davit::lowering {

struct Constraints {
  // Zero copy: the caller says where the bytes are. A multiple of all alignments that apply.
  struct Fixed {
    uint32_t value;
    uint64_t offset;
  };
  // A power of two, beyond the alignment of the whole plan.
  struct Alignment {
    uint32_t value;
    uint64_t bytes;
  };
  // `value` begins `distance` bytes after the beginning of `base`.
  struct Tie {
    uint32_t value, base;
    uint64_t distance;
  };

  [[nodiscard]] std::string name_of(uint32_t value) const {
    return value < names.size() ? names[value] : "value " + std::to_string(value);
  }
  [[nodiscard]] bool empty() const {
    return fixed.empty() && alignments.empty() && aliases.empty() && ties.empty() && runs.empty();
  }

  std::vector<Fixed> fixed;
  std::vector<Alignment> alignments;
  // Views, results in place, references: the two may share bytes while both live. This carries
  // over: all values that aliases connect are one class, which may share.
  std::vector<Tie> aliases;
  // The same without the right to share bytes: for pairs whose distance matters.
  std::vector<Tie> ties;
  // Continuous inputs and outputs: each value begins where the one before ends, rounded up to its
  // alignment.
  std::vector<std::vector<uint32_t>> runs;
  // Of values, for errors; may be empty. Not owned.
  std::span<const std::string> names;
};

}  // namespace davit::lowering
