// ranges.hpp: what was taken from the source: ranges, which of their pages are backed, what is
// pinned.
//
// With a source that commits, a range is address space and reserved_bytes() counts its backed
// pages. Otherwise a range is memory, and counts as a whole.
//
// Threads  Those of the allocator. Slow paths only.
// Trust    Callers pass parts of ranges.
// Memory   One bit a page.
#pragma once

#include <cstdint>

#include "alloc/grow_array.hpp"

namespace davit::alloc {

struct Range {
  uint64_t base;
  uint64_t bytes;
  uint64_t* pages;         // Bit set: backed. Null where the source does not commit.
  uint64_t refused_bytes;  // Requests that were turned away so that it stays whole.
  uint32_t first_span;
};

class Ranges {
 public:
  // page_bytes: a power of two; what is backed at once.
  Ranges(MetadataMemory& memory, const DvtMemorySource& source, uint64_t page_bytes);
  ~Ranges();
  Ranges(const Ranges&) = delete;
  Ranges& operator=(const Ranges&) = delete;

  [[nodiscard]] bool commits() const { return source_.commit != nullptr; }
  [[nodiscard]] const char* source_name() const { return source_.name; }
  [[nodiscard]] uint64_t page_bytes() const { return page_bytes_; }

  // A new range; nothing of it is backed where the source commits. On success range_at(address)
  // finds it. The caller sets first_span.
  [[nodiscard]] DvtCode add(uint64_t bytes, uint64_t alignment, Range** out);
  void remove(const Range& range);

  [[nodiscard]] size_t size() const { return ranges_.size(); }
  Range& operator[](size_t index) { return ranges_[index]; }
  const Range& operator[](size_t index) const { return ranges_[index]; }
  // The range that holds an address, or null.
  [[nodiscard]] Range* range_at(uint64_t address);
  [[nodiscard]] const Range* range_at(uint64_t address) const;

  // Bytes that back() would take from the source.
  [[nodiscard]] uint64_t unbacked_bytes(const Range& range, uint64_t address, uint64_t bytes) const;
  // The longest backed piece of [address, address + bytes).
  [[nodiscard]] uint64_t longest_backed(const Range& range, uint64_t address, uint64_t bytes) const;
  // Puts memory behind a part of a range. A failure keeps what was backed before it.
  [[nodiscard]] DvtCode back(const Range& range, uint64_t address, uint64_t bytes);
  // Takes memory away from the pages that lie wholly in a part of a range and are not pinned, last
  // first, until `most_bytes` are taken. Returns the bytes taken.
  uint64_t unback(const Range& range, uint64_t address, uint64_t bytes, uint64_t most_bytes);

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

  [[nodiscard]] size_t page_words(const Range& range) const {
    return (range.bytes / page_bytes_ + 63) / 64;
  }
  [[nodiscard]] uint64_t backed_bytes(const Range& range) const {
    return range.bytes - unbacked_bytes(range, range.base, range.bytes);
  }
  void grew(uint64_t bytes);
  void give_back(const Range& range);

  MetadataMemory* memory_;
  DvtMemorySource source_;
  uint64_t page_bytes_;
  GrowArray<Range> ranges_;  // By address.
  GrowArray<Pin> pins_;
  uint64_t reserved_ = 0;
  uint64_t reserved_peak_ = 0;
  uint64_t grow_count_ = 0;
};

}  // namespace davit::alloc
