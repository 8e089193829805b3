#include "lowering/memory_plan/packing.hpp"

#include <algorithm>
#include <cassert>
#include <map>
#include <numeric>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "lowering/memory_plan/placed_blocks.hpp"

namespace davit::lowering {
namespace {

// The free bytes of pack_in_time(), by offset and by size.
class Holes {
 public:
  // What lies below `height` is taken.
  explicit Holes(uint64_t height = 0) : height_(height) {}

  // The offset of `size` free bytes: from the smallest hole that fits, else at the top.
  uint64_t take(uint64_t size) {
    const auto fit = by_size_.lower_bound({size, 0});
    if (fit != by_size_.end()) {
      const auto [hole, offset] = *fit;
      erase(offset, hole);
      if (hole > size) insert(offset + size, hole - size);
      return offset;
    }
    uint64_t offset = height_;
    if (!by_offset_.empty()) {  // A hole at the top is extended.
      const auto [last, hole] = *by_offset_.rbegin();
      if (last + hole == height_) {
        offset = last;
        erase(last, hole);
      }
    }
    height_ = offset + size;
    return offset;
  }

  void give(uint64_t offset, uint64_t size) {
    const auto next = by_offset_.lower_bound(offset);
    if (next != by_offset_.begin()) {
      const auto [start, hole] = *std::prev(next);
      if (start + hole == offset) {
        erase(start, hole);
        offset = start;
        size += hole;
      }
    }
    if (next != by_offset_.end() && next->first == offset + size) {
      const uint64_t hole = next->second;
      erase(next->first, hole);
      size += hole;
    }
    insert(offset, size);
  }

  [[nodiscard]] uint64_t height() const { return height_; }

 private:
  void insert(uint64_t offset, uint64_t size) {
    by_offset_.emplace(offset, size);
    by_size_.emplace(size, offset);
  }
  void erase(uint64_t offset, uint64_t size) {
    by_offset_.erase(offset);
    by_size_.erase({size, offset});
  }

  std::map<uint64_t, uint64_t> by_offset_;
  std::set<std::pair<uint64_t, uint64_t>> by_size_;
  uint64_t height_;
};

// The unplaced blocks of pack_skyline(): the longest-lived within a stretch of time. A tree as
// above; a node knows the earliest `upper` and the best key below it, which prunes the search.
class WaitingBlocks {
 public:
  explicit WaitingBlocks(const std::vector<Block>& blocks) : blocks_(blocks) {
    while (leaves_ < blocks.size()) leaves_ *= 2;
    nodes_.resize(2 * leaves_);
    for (size_t i = 0; i < blocks.size(); ++i) {
      nodes_[leaves_ + i] = {blocks[i].upper, blocks[i].upper - blocks[i].lower, blocks[i].size};
    }
    for (size_t node = leaves_ - 1; node > 0; --node) pull(node);
  }

  void remove(uint32_t index) {
    nodes_[leaves_ + index] = {};
    for (size_t node = (leaves_ + index) / 2; node > 0; node /= 2) pull(node);
  }

  // The index of the longest-lived (then the largest, then the first) block within [begin, end);
  // nullopt for none. Each node visited is one step of `budget`.
  std::optional<uint32_t> longest_within(uint32_t begin, uint32_t end, Budget& budget) const {
    const auto first = std::partition_point(blocks_.begin(), blocks_.end(),
                                            [&](const Block& b) { return b.lower < begin; });
    Search search{size_t(first - blocks_.begin()), end, {}, UINT32_MAX, &budget};
    descend(1, 0, leaves_, search);
    if (search.found == UINT32_MAX) return std::nullopt;
    return search.found;
  }

 private:
  struct Node {
    uint32_t earliest = UINT32_MAX;
    uint32_t duration = 0;
    uint64_t size = 0;
    [[nodiscard]] std::pair<uint32_t, uint64_t> key() const { return {duration, size}; }
  };
  struct Search {
    size_t first;
    uint32_t end;
    std::pair<uint32_t, uint64_t> best;
    uint32_t found;
    Budget* budget;
  };

  void pull(size_t node) {
    const Node& a = nodes_[2 * node];
    const Node& b = nodes_[2 * node + 1];
    const auto [duration, size] = std::max(a.key(), b.key());
    nodes_[node] = {std::min(a.earliest, b.earliest), duration, size};
  }

  void descend(size_t node, size_t begin, size_t count, Search& search) const {
    if (begin + count <= search.first || nodes_[node].earliest > search.end ||
        nodes_[node].key() <= search.best || begin >= blocks_.size() ||
        blocks_[begin].lower >= search.end || !search.budget->spend(1)) {
      return;
    }
    if (count == 1) {
      search.best = nodes_[node].key();
      search.found = uint32_t(begin);
      return;
    }
    // The more promising half first, so that the other is often pruned.
    const bool left_first = nodes_[2 * node].key() >= nodes_[2 * node + 1].key();
    for (const bool left : {left_first, !left_first}) {
      descend(2 * node + (left ? 0 : 1), begin + (left ? 0 : count / 2), count / 2, search);
    }
  }

  const std::vector<Block>& blocks_;
  size_t leaves_ = 1;
  std::vector<Node> nodes_;
};

// The upper contour of what pack_skyline() has placed: flat stretches [start, end), which together
// cover all time; neighbours differ in height.
class Skyline {
 public:
  struct Stretch {
    uint32_t start, end;
    uint64_t height;
  };

  explicit Skyline(uint32_t time_count) { put(0, time_count, 0); }

  // The lowest stretch, the earliest of several.
  Stretch lowest() {
    while (true) {
      const auto [height, start] = queue_.top();
      const auto it = stretches_.find(start);
      if (it != stretches_.end() && it->second.height == height) {
        return {start, it->second.end, height};
      }
      queue_.pop();  // Changed since it was queued.
    }
  }

  // Puts a block of `size` on [lower, upper) of the stretch.
  void stack(const Stretch& stretch, uint32_t lower, uint32_t upper, uint64_t size) {
    stretches_.erase(stretch.start);
    if (stretch.start < lower) put(stretch.start, lower, stretch.height);
    if (upper < stretch.end) put(upper, stretch.end, stretch.height);
    put_merged(lower, upper, stretch.height + size);
  }

  // Lifts a stretch that nothing fits into to its lower neighbour. False when it has none.
  bool lift(const Stretch& stretch) {
    const auto it = stretches_.find(stretch.start);
    const bool has_left = it != stretches_.begin();
    const bool has_right = std::next(it) != stretches_.end();
    if (!has_left && !has_right) return false;
    uint64_t height = UINT64_MAX;
    if (has_left) height = std::prev(it)->second.height;
    if (has_right) height = std::min(height, std::next(it)->second.height);
    stretches_.erase(it);
    put_merged(stretch.start, stretch.end, height);
    return true;
  }

 private:
  struct Span {
    uint32_t end;
    uint64_t height;
  };

  void put(uint32_t start, uint32_t end, uint64_t height) {
    stretches_[start] = {end, height};
    queue_.emplace(height, start);
  }

  // Joins [start, end) with neighbours of the same height. Precondition: the range is empty.
  void put_merged(uint32_t start, uint32_t end, uint64_t height) {
    auto next = stretches_.lower_bound(start);
    if (next != stretches_.end() && next->first == end && next->second.height == height) {
      end = next->second.end;
      next = stretches_.erase(next);
    }
    if (next != stretches_.begin()) {
      const auto before = std::prev(next);
      if (before->second.end == start && before->second.height == height) start = before->first;
    }
    put(start, end, height);
  }

  std::map<uint32_t, Span> stretches_;
  using Entry = std::pair<uint64_t, uint32_t>;  // Height, start.
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

// The blocks' indices with the largest key first; equal keys keep the order of the blocks.
template <class Key>
std::vector<uint32_t> order_by(const Problem& problem, Key key) {
  std::vector<uint32_t> order(problem.blocks.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return key(problem.blocks[a]) > key(problem.blocks[b]);
  });
  return order;
}

// Plays an allocator through time: `alive` have their offsets below `height`; `born` come in order.
// Returns the bytes used.
uint64_t play(const std::vector<Block>& blocks, std::span<const uint32_t> alive,
              std::span<const uint32_t> born, uint64_t height, std::vector<uint64_t>& offsets) {
  Holes holes(height);
  using Death = std::pair<uint32_t, uint32_t>;  // Upper, block.
  std::priority_queue<Death, std::vector<Death>, std::greater<>> deaths;
  for (const uint32_t i : alive) deaths.emplace(blocks[i].upper, i);
  for (const uint32_t i : born) {
    while (!deaths.empty() && deaths.top().first <= blocks[i].lower) {
      const uint32_t dead = deaths.top().second;
      deaths.pop();
      holes.give(offsets[dead], blocks[dead].size);
    }
    offsets[i] = holes.take(blocks[i].size);
    deaths.emplace(blocks[i].upper, i);
  }
  return holes.height();
}

// The problem with time running backwards, and the index of each of its blocks in the original.
struct Turned {
  Problem problem;
  std::vector<uint32_t> index;
};

Turned turn(const Problem& problem) {
  const auto backwards = [&](const Block& block) {
    Block turned = block;
    turned.lower = problem.time_count - block.upper;
    turned.upper = problem.time_count - block.lower;
    return turned;
  };
  Turned out{.problem = {.blocks = {}, .time_count = problem.time_count},
             .index = std::vector<uint32_t>(problem.blocks.size())};
  std::iota(out.index.begin(), out.index.end(), 0);
  std::stable_sort(out.index.begin(), out.index.end(), [&](uint32_t a, uint32_t b) {
    const Block x = backwards(problem.blocks[a]);
    const Block y = backwards(problem.blocks[b]);
    return std::tuple(x.lower, x.upper, y.size) < std::tuple(y.lower, y.upper, x.size);
  });
  for (const uint32_t i : out.index) out.problem.blocks.push_back(backwards(problem.blocks[i]));
  return out;
}

// Live bytes by time; one more than there are times, the last 0.
std::vector<uint64_t> live_bytes(const Problem& problem) {
  std::vector<uint64_t> live(problem.time_count + 1, 0);  // Differences first, then sums.
  for (const Block& block : problem.blocks) {
    live[block.lower] += block.size;
    live[block.upper] -= block.size;  // Wraps; the sum does not.
  }
  for (size_t t = 1; t < live.size(); ++t) live[t] += live[t - 1];
  return live;
}

// The first time with the most live bytes.
uint32_t peak_time(const Problem& problem) {
  const std::vector<uint64_t> live = live_bytes(problem);
  return uint32_t(std::max_element(live.begin(), live.end()) - live.begin());
}

}  // namespace

uint64_t granularity(const Problem& problem) {
  uint64_t unit = 0;
  for (const Block& block : problem.blocks) {
    unit = std::gcd(unit, block.size);
    if (block.fixed != Block::kFree) unit = std::gcd(unit, block.fixed);
  }
  for (const Block& block : problem.blocks) {
    if (unit % block.alignment != 0) unit = std::gcd(unit, block.alignment);
  }
  return unit;
}

Packing pack_in_time(const Problem& problem) {
  std::vector<uint32_t> born(problem.blocks.size());
  std::iota(born.begin(), born.end(), 0);
  Packing packing{.offsets = std::vector<uint64_t>(born.size()), .height = 0};
  packing.height = play(problem.blocks, {}, born, 0, packing.offsets);
  return packing;
}

Packing pack_back_in_time(const Problem& problem) {
  const Turned turned = turn(problem);
  const Packing packing = pack_in_time(turned.problem);
  Packing out{.offsets = std::vector<uint64_t>(turned.index.size()), .height = packing.height};
  for (size_t i = 0; i < turned.index.size(); ++i) {
    out.offsets[turned.index[i]] = packing.offsets[i];
  }
  return out;
}

Packing pack_from_peak(const Problem& problem) {
  const auto& blocks = problem.blocks;
  const uint32_t peak = peak_time(problem);
  std::vector<uint32_t> alive;
  std::vector<uint32_t> later;
  for (uint32_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].lower > peak) {
      later.push_back(i);
    } else if (blocks[i].upper > peak) {
      alive.push_back(i);
    }
  }
  std::stable_sort(alive.begin(), alive.end(),
                   [&](uint32_t a, uint32_t b) { return blocks[a].upper < blocks[b].upper; });
  Packing packing{.offsets = std::vector<uint64_t>(blocks.size()), .height = 0};
  uint64_t top = 0;
  for (const uint32_t i : alive) {
    packing.offsets[i] = top;
    top += blocks[i].size;
  }
  packing.height = play(blocks, alive, later, top, packing.offsets);

  // What is earlier is later when time is turned.
  const Turned turned = turn(problem);
  std::vector<uint64_t> offsets(blocks.size());
  alive.clear();
  std::vector<uint32_t> earlier;
  for (uint32_t i = 0; i < blocks.size(); ++i) {
    const uint32_t index = turned.index[i];
    if (blocks[index].upper <= peak) {
      earlier.push_back(i);
    } else if (blocks[index].lower <= peak) {
      alive.push_back(i);
      offsets[i] = packing.offsets[index];
    }
  }
  packing.height =
      std::max(packing.height, play(turned.problem.blocks, alive, earlier, top, offsets));
  for (const uint32_t i : earlier) packing.offsets[turned.index[i]] = offsets[i];
  return packing;
}

uint64_t count_pairs(const Problem& problem) {
  std::vector<uint32_t> deaths;
  for (const Block& block : problem.blocks) deaths.push_back(block.upper);
  std::sort(deaths.begin(), deaths.end());
  uint64_t pairs = 0;
  size_t dead = 0;
  for (size_t i = 0; i < problem.blocks.size(); ++i) {
    while (deaths[dead] <= problem.blocks[i].lower) ++dead;
    pairs += i - dead + 1;
  }
  return pairs;
}

std::optional<Packing> pack_in_order(const Problem& problem, std::span<const uint32_t> order,
                                     bool best_fit, Budget& budget) {
  const auto& blocks = problem.blocks;
  assert(order.size() == blocks.size());
  if (!budget.spend(count_pairs(problem))) return std::nullopt;
  Packing packing;
  packing.offsets.resize(blocks.size());
  PlacedBlocks placed(blocks);
  std::vector<std::pair<uint64_t, uint64_t>> taken;  // Offset, end.
  for (const uint32_t index : order) {
    if (budget.stopped()) return std::nullopt;
    const Block& block = blocks[index];
    taken.clear();
    placed.for_each_overlap(block, [&](uint32_t other) {
      taken.emplace_back(packing.offsets[other], packing.offsets[other] + blocks[other].size);
    });
    std::sort(taken.begin(), taken.end());
    uint64_t top = 0;  // End of what is below the current gap.
    uint64_t chosen = UINT64_MAX;
    uint64_t chosen_gap = UINT64_MAX;
    for (const auto& [offset, end] : taken) {
      if (offset > top && offset - top >= block.size && offset - top < chosen_gap) {
        chosen = top;
        chosen_gap = offset - top;
        if (!best_fit) break;
      }
      top = std::max(top, end);
    }
    packing.offsets[index] = chosen == UINT64_MAX ? top : chosen;
    packing.height = std::max(packing.height, packing.offsets[index] + block.size);
    placed.place(index);
  }
  return packing;
}

std::vector<uint32_t> order_by_size(const Problem& problem) {
  // Equal sizes in order of birth: first fit then uses as few places for them as there can be.
  return order_by(problem, [](const Block& b) { return b.size; });
}

std::vector<uint32_t> order_by_area(const Problem& problem) {
  return order_by(problem, [](const Block& b) {
    return __extension__(static_cast<unsigned __int128>(b.size) * (b.upper - b.lower));
  });
}

std::vector<uint32_t> order_by_duration(const Problem& problem) {
  return order_by(problem, [](const Block& b) { return std::tuple(b.upper - b.lower, b.size); });
}

std::vector<uint32_t> order_by_breadth(const Problem& problem) {
  const std::vector<uint64_t> live = live_bytes(problem);
  std::vector<uint32_t> times(problem.time_count);
  std::iota(times.begin(), times.end(), 0);
  std::stable_sort(times.begin(), times.end(),
                   [&](uint32_t a, uint32_t b) { return live[a] > live[b]; });
  std::vector<uint32_t> rank(times.size());
  for (uint32_t i = 0; i < times.size(); ++i) rank[times[i]] = i;
  // A block's rank is the best one of the times it lives at: a sparse table over rank answers that.
  std::vector<std::vector<uint32_t>> best{rank};
  for (size_t width = 1; 2 * width <= rank.size(); width *= 2) {
    const auto& half = best.back();
    std::vector<uint32_t> level(rank.size() - 2 * width + 1);
    for (size_t i = 0; i < level.size(); ++i) level[i] = std::min(half[i], half[i + width]);
    best.push_back(std::move(level));
  }
  return order_by(problem, [&](const Block& b) {
    const uint32_t length = b.upper - b.lower;
    const unsigned level = 31 - unsigned(__builtin_clz(length));
    const uint32_t first =
        std::min(best[level][b.lower], best[level][b.upper - (uint32_t(1) << level)]);
    return std::tuple(UINT32_MAX - first, b.size);
  });
}

std::optional<Packing> pack_skyline(const Problem& problem, Budget& budget) {
  const auto& blocks = problem.blocks;
  Packing packing;
  packing.offsets.resize(blocks.size());
  WaitingBlocks waiting(blocks);
  Skyline skyline(problem.time_count);
  for (size_t left = blocks.size(); left > 0;) {
    const Skyline::Stretch stretch = skyline.lowest();
    const auto index = waiting.longest_within(stretch.start, stretch.end, budget);
    if (budget.empty()) return std::nullopt;
    if (!index) {
      // Only the whole of time has no neighbour, and every waiting block fits into that.
      if (!skyline.lift(stretch)) return std::nullopt;
      continue;
    }
    const Block& block = blocks[*index];
    waiting.remove(*index);
    packing.offsets[*index] = stretch.height;
    packing.height = std::max(packing.height, stretch.height + block.size);
    skyline.stack(stretch, block.lower, block.upper, block.size);
    --left;
  }
  return packing;
}

}  // namespace davit::lowering
