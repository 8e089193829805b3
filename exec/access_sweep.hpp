// access_sweep.hpp: who has to wait for whom, from what each node touches.
//
// One sweep over the accesses of all nodes, in the order of the image: a read waits for the last
// write of any part of its range, a write for the last write and for all reads since. That order is
// the sequential loop's for every byte, so the results are the same bits.
//
// Ranges are bytes of the executor's arena; what has no address there (ports, words, shapes, cells,
// memory of the heap) has places of its own beyond it: place_of().
//
// Threads  One.
// Trust    Ids are verified, and planned values lie in the arena.
// Memory   16 bytes per access and node, while it lives.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exec/image.hpp"

namespace davit::exec {

struct Range {
  uint64_t begin, end;
  [[nodiscard]] bool empty() const { return begin == end; }
};

// Things beside the arena, each with a number.
enum class Place : uint8_t { kPort = 1, kWord, kShape, kCell, kHeap, kTurn };
inline Range place_of(Place place, uint64_t number) {
  const uint64_t at = (static_cast<uint64_t>(place) << 60) + number;
  return {at, at + 1};
}

// Data of a static value on the host; empty for what is never written: constants and inputs.
Range data_of(const ImageView& image, uint32_t value);

class AccessSweep {
 public:
  explicit AccessSweep(uint32_t node_count) : node_count_(node_count) {}

  // Of the node that next_node() has begun last. Reads first, then writes.
  void read(Range range) { add(range, false); }
  void write(Range range) { add(range, true); }
  // Begins the next node; call it before each, also before those that touch nothing.
  void next_node() { begin_.push_back(static_cast<uint32_t>(accesses_.size())); }

  // When all nodes have come: how many pieces all accesses touch together.
  [[nodiscard]] uint64_t cost();
  // Adds to before[node] whom it has to wait for.
  void run(std::span<std::vector<uint32_t>> before);

 private:
  struct Access {
    Range range;
    bool writes;
  };
  struct Piece {
    uint32_t writer = kNone;
    std::vector<uint32_t> readers;  // Since the write.
  };

  void add(Range range, bool writes) {
    if (!range.empty()) accesses_.push_back({range, writes});
  }
  void cut();
  [[nodiscard]] std::pair<size_t, size_t> pieces_of(Range range) const;

  uint32_t node_count_;
  std::vector<Access> accesses_;
  std::vector<uint32_t> begin_;  // Per node: its first access.
  std::vector<uint64_t> cuts_;   // Piece i is [cuts_[i], cuts_[i + 1]).
};

}  // namespace davit::exec
