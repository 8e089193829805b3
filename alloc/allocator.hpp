// allocator.hpp: what stands behind DvtAllocator: the span heap, the ranges below it, and what
// happens when no span fits.
//
// Threads  One owner at a time.
// Trust    caching_allocator.cpp checks what comes from outside.
// Memory   One object from the metadata source.
#pragma once

#include <algorithm>

#include "alloc/address_table.hpp"
#include "alloc/ranges.hpp"
#include "alloc/span_heap.hpp"

namespace davit::alloc {

// What an out-of-memory error tells.
struct Shortage {
  uint64_t reserved_bytes;
  uint64_t live_bytes;
  uint64_t cached_bytes;
  uint64_t largest_hole_bytes;
  uint64_t limit_bytes;
  const char* refusal;
};
struct OwnerTotal {
  uint32_t owner;
  uint64_t bytes;
  uint64_t blocks;
};

// malloc and free.
DvtMetadataMemory default_host();

}  // namespace davit::alloc

struct DvtAllocator {
 public:
  // Options that validate() has completed.
  explicit DvtAllocator(const DvtAllocatorOptions& options);
  [[nodiscard]] bool init() { return heap_.init(); }

  DvtCode acquire(uint64_t bytes, uint32_t owner, davit::alloc::SpanId* out) {
    // No span has more than UINT32_MAX units; 0 bytes become more, too.
    const uint64_t units = ((bytes - 1) >> heap_.shift()) + 1;
    if (units > UINT32_MAX) return acquire_slowly(bytes, owner, out);
    const auto wanted = static_cast<uint32_t>(units);
    davit::alloc::SpanId id = heap_.take_exact(wanted, owner);
    if (id == 0) {
      const auto [found, is_loose] = heap_.settle_and_find(wanted);
      if (found == 0 || (is_careful_ && is_refused(found, wanted)) || !heap_.prepare(1)) {
        if (is_loose) heap_.list_loose(found);
        return acquire_slowly(bytes, owner, out);
      }
      id = found;
      if (is_loose) {
        heap_.take_loose(id, wanted, owner);
      } else {
        id = heap_.take(id, wanted, owner);
      }
    }
    ++malloc_count_;
    *out = id;
    return DVT_OK;
  }
  // The same from cached memory alone: neither the source nor a hook is called.
  DvtCode acquire_cached(uint64_t bytes, uint32_t owner, davit::alloc::SpanId* out);
  void release(davit::alloc::SpanId id) {
    ++free_count_;
    heap_.release(id);
  }

  uint64_t trim(uint64_t keep_bytes);
  DvtCode pin(uint64_t address, uint64_t bytes);
  DvtCode unpin(uint64_t address, uint64_t bytes) { return ranges_.unpin(address, bytes); }

  void statistics(DvtAllocatorStatistics* out) const;
  void visit(DvtBlockVisitor visitor, void* user) const;
  [[nodiscard]] davit::alloc::Shortage shortage() const;
  // One entry a block.
  void add_owners(davit::alloc::GrowArray<davit::alloc::OwnerTotal>* totals) const;
  void explain(uint64_t bytes, uint32_t owner, DvtError* out) const;
  // For several allocators together. Sorts `totals`.
  void explain(uint64_t bytes, uint32_t owner, const davit::alloc::Shortage& now,
               davit::alloc::GrowArray<davit::alloc::OwnerTotal>* totals, DvtError* out) const;
  [[nodiscard]] bool is_valid() const;
  void reset_peaks() {
    heap_.reset_peak();
    ranges_.reset_peak();
  }

  [[nodiscard]] davit::alloc::SpanHeap& heap() { return heap_; }
  [[nodiscard]] const davit::alloc::SpanHeap& heap() const { return heap_; }
  [[nodiscard]] davit::alloc::AddressTable& table() { return table_; }
  [[nodiscard]] davit::alloc::MetadataMemory& memory() { return memory_; }

 private:
  // Free spans next to each other, and what it takes to use their first bytes.
  struct Run {
    davit::alloc::SpanId first = 0;  // 0: none.
    uint64_t missing_bytes = UINT64_MAX;
  };

  [[nodiscard]] bool passes_limit(uint32_t units) const {
    return heap_.live_units() + units > limit_units_;
  }
  [[nodiscard]] bool is_refused(davit::alloc::SpanId id, uint32_t units) const {
    return passes_limit(units) || may_stay_whole(id);
  }
  [[nodiscard]] bool may_stay_whole(davit::alloc::SpanId id) const {
    return keeps_whole_ && heap_[id].is_whole_range();
  }

  DvtCode acquire_slowly(uint64_t bytes, uint32_t owner, davit::alloc::SpanId* out);
  // Finds or makes a warm span without passing `ceiling` reserved bytes; 0: there is none.
  davit::alloc::SpanId attempt(uint32_t units, uint64_t ceiling);
  bool stays_whole(davit::alloc::SpanId id, uint32_t units);
  davit::alloc::SpanId warm_up(uint32_t units, uint64_t ceiling);
  [[nodiscard]] Run cheapest_run(uint32_t units) const;
  [[nodiscard]] Run run_at(davit::alloc::SpanId first, uint32_t units) const;
  davit::alloc::SpanId back(const Run& run, uint32_t units);
  davit::alloc::SpanId grow(uint32_t units, uint64_t ceiling);
  [[nodiscard]] uint64_t expected_bytes() const {
    return std::max(expected_bytes_, heap_.live_peak_bytes());
  }
  [[nodiscard]] uint64_t range_bytes_for(uint64_t bytes) const;
  davit::alloc::Range* add_range(uint64_t wanted, uint64_t least);
  // The hooks and the trim between the first attempt and the last.
  DvtCode recover(uint32_t units, davit::alloc::SpanId* found);

  uint64_t trim_bytes(uint64_t most_bytes);
  uint64_t trim_whole_range(size_t index);
  uint64_t trim_pages(size_t index, uint64_t most_bytes);
  uint64_t trim_span(davit::alloc::SpanId id, uint64_t most_bytes);
  [[nodiscard]] bool is_backed(uint64_t address, uint64_t bytes);

  void count_holes(const davit::alloc::Range& range, DvtAllocatorStatistics* out) const;
  [[nodiscard]] const char* owner_name(uint32_t owner) const;
  void name_owners(const davit::alloc::GrowArray<davit::alloc::OwnerTotal>& totals,
                   DvtError* out) const;
  [[nodiscard]] bool range_is_valid(const davit::alloc::Range& range, uint64_t* live,
                                    uint64_t* backed, size_t* spans) const;

  davit::alloc::MetadataMemory memory_;
  davit::alloc::SpanHeap heap_;
  davit::alloc::AddressTable table_;
  davit::alloc::Ranges ranges_;
  DvtAllocatorHooks hooks_;
  uint64_t alignment_;
  uint64_t reserve_bytes_;
  uint64_t segment_bytes_;  // A power of two, and a multiple of the source's pages.
  uint64_t limit_bytes_;
  uint64_t expected_bytes_;
  uint64_t limit_units_;
  uint64_t ceiling_bytes_;  // The limit of what is taken from the source.
  uint64_t watermark_bytes_;
  bool is_careful_;   // is_refused() may say so.
  bool keeps_whole_;  // Ranges of the source are worth keeping whole: it does not commit.
  uint64_t malloc_count_ = 0;
  uint64_t free_count_ = 0;
  uint64_t recover_count_ = 0;
  const char* refusal_ = "";  // Why the last attempt failed, for explain().
};
