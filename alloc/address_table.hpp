// address_table.hpp: from the address of a block to its span: open addressing, at most half full.
//
// Threads  Those of the allocator.
// Memory   Four bytes a slot; grows by doubling. The addresses are those of the spans.
#pragma once

#include <cstdint>

#include "alloc/span_heap.hpp"

namespace davit::alloc {

class AddressTable {
 public:
  explicit AddressTable(MetadataMemory& memory) : slots_(memory) {}

  // True when insert() will not lack memory.
  [[nodiscard]] bool prepare_insert(const SpanHeap& heap) {
    return 2 * (count_ + 1) <= slots_.size() || grow(heap);
  }
  // Precondition: prepare_insert(), and the address is not in the table.
  void insert(const SpanHeap& heap, SpanId id) {
    place(hash(heap[id].address), id);
    ++count_;
  }
  // Takes out the span that begins at an address. 0: there is none.
  SpanId extract(const SpanHeap& heap, uint64_t address) {
    if (count_ == 0) return 0;
    size_t slot = hash(address);
    while (slots_[slot] != 0 && heap[slots_[slot]].address != address) slot = after(slot);
    const SpanId id = slots_[slot];
    if (id == 0) return 0;
    --count_;
    close_gap(heap, slot);
    return id;
  }

 private:
  [[nodiscard]] size_t hash(uint64_t address) const {
    return static_cast<size_t>((address * 0x9E3779B97F4A7C15U) >> hash_shift_);
  }
  [[nodiscard]] size_t after(size_t slot) const { return (slot + 1) & (slots_.size() - 1); }
  void place(size_t slot, SpanId id) {
    while (slots_[slot] != 0) slot = after(slot);
    slots_[slot] = id;
  }
  // Moves up what would no longer be found behind an empty slot.
  void close_gap(const SpanHeap& heap, size_t gap) {
    const size_t mask = slots_.size() - 1;
    for (size_t slot = after(gap); slots_[slot] != 0; slot = after(slot)) {
      const size_t home = hash(heap[slots_[slot]].address);
      if (((slot - home) & mask) < ((slot - gap) & mask)) continue;
      slots_[gap] = slots_[slot];
      gap = slot;
    }
    slots_[gap] = 0;
  }
  bool grow(const SpanHeap& heap);

  GrowArray<SpanId> slots_;  // A power of two; 0: empty.
  size_t count_ = 0;
  uint32_t hash_shift_ = 64;
};

}  // namespace davit::alloc
