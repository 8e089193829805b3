// packing.hpp: the planner's heuristics. Each places all blocks of a problem, or gives up.
//
// A block is an interval of the planner with its size rounded to the alignment and its times
// squeezed to [0, time_count), so that the structures below can be arrays. Blocks are sorted by
// (lower, upper, size descending), which makes results independent of the order of equal values.
// The heuristics know nothing of alignments beyond that of sizes, nor of fixed offsets.
//
// Threads  Pure functions.
// Memory   Results own their data. Sums of sizes fit 63 bits (lower_bound() has checked).
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace davit::lowering {

struct Block {
  static constexpr uint64_t kFree = std::numeric_limits<uint64_t>::max();

  uint32_t lower, upper;   // Live in [lower, upper).
  uint64_t size;           // > 0.
  uint64_t alignment = 1;  // Of the offset, where sizes do not see to it; a power of two.
  uint64_t fixed = kFree;  // The only offset allowed.
};

struct Problem {
  std::vector<Block> blocks;  // Sorted, see above.
  uint32_t time_count = 0;
};

// A divisor of all offsets and tops worth a look, as large as is easy to tell; 0 for no blocks.
// Alignments that it does not see to are multiples of it.
uint64_t granularity(const Problem& problem);

struct Packing {
  std::vector<uint64_t> offsets;  // One per block.
  uint64_t height = 0;            // Bytes used.
};

// Counts down the work that is left. A heuristic that finds it used up gives up.
class Budget {
 public:
  // `stopped` may be null; when it becomes true, by any thread, nothing is left.
  explicit Budget(uint64_t steps, const std::atomic<bool>* stopped = nullptr)
      : left_(steps), stopped_(stopped) {}
  // False when `steps` are more than what is left.
  bool spend(uint64_t steps) {
    if (stopped() || steps > left_) {
      left_ = 0;
      return false;
    }
    left_ -= steps;
    return true;
  }
  [[nodiscard]] bool empty() const { return left_ == 0; }
  [[nodiscard]] bool stopped() const {
    return stopped_ != nullptr && stopped_->load(std::memory_order_relaxed);
  }

 private:
  uint64_t left_;
  const std::atomic<bool>* stopped_;
};

// Plays an allocator through time: at each step frees what dies, then gives each block that is born
// the smallest hole that fits. O(n log n).
Packing pack_in_time(const Problem& problem);
// The same with time running backwards.
Packing pack_back_in_time(const Problem& problem);
// Piles up what lives when the most bytes do, without a gap; plays from there on and back.
Packing pack_from_peak(const Problem& problem);

// Places blocks in the given order, each in the lowest gap that the blocks placed before it leave
// (or, with best_fit, in the tightest). O(pairs that live together), see count_pairs(); gives up
// before it starts when the budget does not allow for these, and on the way when it is stopped.
std::optional<Packing> pack_in_order(const Problem& problem, std::span<const uint32_t> order,
                                     bool best_fit, Budget& budget);

// The steps of pack_in_order(): pairs that live together, and blocks. O(n log n).
uint64_t count_pairs(const Problem& problem);

// Orders for pack_in_order().
std::vector<uint32_t> order_by_size(const Problem& problem);      // Largest first.
std::vector<uint32_t> order_by_area(const Problem& problem);      // Largest size x life first.
std::vector<uint32_t> order_by_duration(const Problem& problem);  // Longest life first.
// Times with the most live bytes first, and at each time the largest block first.
std::vector<uint32_t> order_by_breadth(const Problem& problem);

// Fills the lowest flat stretch of the skyline with the longest-lived block that fits into it,
// again and again (Sekiyama et al., 2018). Between O(n log n) and O(n^2), by how well the search
// prunes.
std::optional<Packing> pack_skyline(const Problem& problem, Budget& budget);

}  // namespace davit::lowering
