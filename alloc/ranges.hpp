// ranges.hpp: what was taken from the source, and what of it is pinned.
//
// With a source that commits, a range is address space, and reserved_bytes() counts what is backed;
// the span heap knows which parts are. Otherwise a range is memory, and counts as a whole.
//
// Threads  Those of the allocator. Slow paths only.
// Trust    Callers pass parts of ranges.
// Memory   One record a range, one a pin.
#pragma once

#include <cstdint>

#include "alloc/grow_array.hpp"

namespace davit::alloc {

struct Range {
  uint64_t base;
  uint64_t bytes;
  uint64_t refused_bytes;  // Requests that were turned away so that it stays whole.
  uint64_t touched_bytes;  // From its base to the end of what was backed at any time.
  uint32_t first_span;
  uint32_t is_general;  // 1: for requests of any size, whatever they break.
};

class Ranges {
 public:
  Ranges(MetadataMemory& memory, const DvtMemorySource& source)
      : source_(source), ranges_(memory), pins_(memory) {}
  ~Ranges();
  Ranges(const Ranges&) = delete;
  Ranges& operator=(const Ranges&) = delete;

  [[nodiscard]] bool commits() const { return source_.commit != nullptr; }
  [[nodiscard]] const char* source_name() const { return source_.name; }

  // A new range; nothing of it is backed where the source commits. The caller sets first_span.
  [[nodiscard]] DvtCode add(uint64_t bytes, uint64_t alignment, Range** out);
  // Precondition: nothing of it is backed where the source commits.
  void remove(const Range& range);

  [[nodiscard]] size_t size() const { return ranges_.size(); }
  Range& operator[](size_t index) { return ranges_[index]; }
  const Range& operator[](size_t index) const { return ranges_[index]; }
  // The range that holds an address, or null.
  [[nodiscard]] Range* range_at(uint64_t address);

  [[nodiscard]] DvtCode commit(uint64_t address, uint64_t bytes);
  // False: the source keeps it, and it counts on.
  bool decommit(uint64_t address, uint64_t bytes);

  [[nodiscard]] DvtCode pin(uint64_t address, uint64_t bytes);
  [[nodiscard]] DvtCode unpin(uint64_t address, uint64_t bytes);
  [[nodiscard]] bool is_pinned(uint64_t address, uint64_t bytes) const;

  [[nodiscard]] uint64_t reserved_bytes() const { return reserved_; }
  [[nodiscard]] uint64_t reserved_peak_bytes() const { return reserved_peak_; }
  void reset_peak() { reserved_peak_ = reserved_; }
  [[nodiscard]] uint64_t grow_count() const { return grow_count_; }

 private:
  struct Pin {
    uint64_t begin;
    uint64_t end;
  };

  void grew(uint64_t bytes);
  void give_back(const Range& range);

  DvtMemorySource source_;
  GrowArray<Range> ranges_;  // By address.
  GrowArray<Pin> pins_;
  uint64_t reserved_ = 0;
  uint64_t reserved_peak_ = 0;
  uint64_t grow_count_ = 0;
};

}  // namespace davit::alloc
