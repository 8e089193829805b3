// placed_blocks.hpp: which of the blocks placed so far live together with a new one.
//
// Threads  One.
// Memory   Refers to the blocks; two words a block.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lowering/memory_plan/packing.hpp"

namespace davit::lowering {

// A complete binary tree over the blocks' indices, which are sorted by `lower`; node k has children
// 2k and 2k + 1 and holds the latest `upper` of the placed blocks below it, 0 for none.
class PlacedBlocks {
 public:
  explicit PlacedBlocks(const std::vector<Block>& blocks) : blocks_(blocks) {
    while (leaves_ < blocks.size()) leaves_ *= 2;
    latest_.assign(2 * leaves_, 0);
  }

  void place(uint32_t index) {
    for (size_t node = leaves_ + index; node > 0; node /= 2) {
      latest_[node] = std::max(latest_[node], blocks_[index].upper);
    }
  }

  // Calls visit(index) for each placed block that lives together with `block`.
  template <class Visit>
  void for_each_overlap(const Block& block, Visit visit) const {
    descend(1, 0, leaves_, block, visit);
  }

 private:
  template <class Visit>
  void descend(size_t node, size_t begin, size_t count, const Block& block, Visit& visit) const {
    // Blocks are sorted by lower: nothing at or after `begin` is earlier than blocks_[begin].
    if (latest_[node] <= block.lower || begin >= blocks_.size() ||
        blocks_[begin].lower >= block.upper) {
      return;
    }
    if (count == 1) {
      visit(uint32_t(begin));
      return;
    }
    descend(2 * node, begin, count / 2, block, visit);
    descend(2 * node + 1, begin + count / 2, count / 2, block, visit);
  }

  const std::vector<Block>& blocks_;
  size_t leaves_ = 1;
  std::vector<uint32_t> latest_;
};

}  // namespace davit::lowering
