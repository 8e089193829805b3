// address_table.hpp: from the address of a block to its span: open addressing, at most half full.
//
//   entry:  0     32        64
//           | span | hash   |      0: empty
//
// Threads  Those of the allocator.
// Memory   Eight bytes a slot; grows by doubling.
#pragma once

#include <cstdint>

#include "alloc/span_heap.hpp"

namespace davit::alloc {

class AddressTable {
 public:
  explicit AddressTable(MetadataMemory& memory) : entries_(memory) {}

  // True when insert() will not lack memory.
  [[nodiscard]] bool prepare_insert() { return 2 * (count_ + 1) <= entries_.size() || grow(); }
  // Precondition: prepare_insert(), and the address is not in the table.
  void insert(uint64_t address, SpanId id) {
    place(uint64_t{hash(address)} << 32 | id);
    ++count_;
  }
  // Takes out the span that begins at an address. 0: there is none.
  SpanId extract(const SpanHeap& heap, uint64_t address) {
    if (count_ == 0) return 0;
    const uint32_t wanted = hash(address);
    size_t slot = home(wanted);
    for (; entries_[slot] != 0; slot = after(slot)) {
      const auto id = static_cast<SpanId>(entries_[slot]);
      if (entries_[slot] >> 32 != wanted || heap[id].address != address) continue;
      --count_;
      close_gap(slot);
      return id;
    }
    return 0;
  }

 private:
  static uint32_t hash(uint64_t address) {
    return static_cast<uint32_t>((address * 0x9E3779B97F4A7C15U) >> 32);
  }
  [[nodiscard]] size_t home(uint64_t hash) const { return hash >> home_shift_; }
  [[nodiscard]] size_t after(size_t slot) const { return (slot + 1) & (entries_.size() - 1); }
  void place(uint64_t entry) {
    size_t slot = home(entry >> 32);
    while (entries_[slot] != 0) slot = after(slot);
    entries_[slot] = entry;
  }
  // Moves up what would no longer be found behind an empty slot.
  void close_gap(size_t gap) {
    const size_t mask = entries_.size() - 1;
    for (size_t slot = after(gap); entries_[slot] != 0; slot = after(slot)) {
      const size_t from_home = (slot - home(entries_[slot] >> 32)) & mask;
      if (from_home < ((slot - gap) & mask)) continue;
      entries_[gap] = entries_[slot];
      gap = slot;
    }
    entries_[gap] = 0;
  }
  bool grow();

  GrowArray<uint64_t> entries_;  // A power of two.
  size_t count_ = 0;
  uint32_t home_shift_ = 32;
};

}  // namespace davit::alloc
