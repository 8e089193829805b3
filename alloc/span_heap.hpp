// span_heap.hpp: cuts spans out of ranges and puts them together again.
//
// A range is a doubly linked chain of spans in address order; no two neighbours are both free. Free
// spans are also in the list of their size class. One span, the one freed last, may be parked:
// free, but neither merged nor listed yet. The next request of its very size takes it as it is, and
// any other operation first puts it away, so that parking changes no decision.
//
//            take                       release
//   Free ------------> Live ---------------------------> Parked
//    ^                  ^                                  | |
//    |                  +---------- take, same size -------+ |
//    +------------------------- settle: merge, list ---------+
//
// Threads  Those of the allocator.
// Trust    Ids come from this heap; live() checks those that come from outside.
// Memory   Spans live in one array that grows; ids of merged spans are used again.
#pragma once

#include <array>
#include <cassert>
#include <cstdint>

#include "alloc/grow_array.hpp"
#include "alloc/size_classes.hpp"

namespace davit::alloc {

using SpanId = uint32_t;  // 0: none.

// Kinds of spans, in place of a size class.
inline constexpr uint16_t kParked = 0xFFFD;
inline constexpr uint16_t kUnused = 0xFFFE;
inline constexpr uint16_t kLive = 0xFFFF;

enum SpanFlags : uint8_t {
  kCold = 1,  // Free, and perhaps not backed by memory everywhere.
};

//   0         8       12         16     20          24              28     30      31
//   | address | units | previous | next | list_next | list_previous | kind | flags | generation |
struct Span {
  uint64_t address;
  uint32_t units;
  SpanId previous;  // Neighbours in the range; 0: none.
  SpanId next;
  uint32_t list_next;  // Free: in the list of its class. Live: the owner. Unused: next unused id.
  SpanId list_previous;
  uint16_t kind;  // Class of a free span, or one of the above.
  uint8_t flags;
  uint8_t generation;  // Changes with every release, so that an id kept too long is recognised.

  [[nodiscard]] bool is_listed() const { return kind < kSizeClasses; }
  [[nodiscard]] bool is_free() const { return kind <= kParked; }
  [[nodiscard]] bool is_whole_range() const { return previous == 0 && next == 0; }
};
static_assert(sizeof(Span) == 32, "two to a cache line");

class SpanHeap {
 public:
  // Units are 1 << unit_shift bytes.
  SpanHeap(MetadataMemory& memory, uint32_t unit_shift) : spans_(memory), shift_(unit_shift) {
    heads_.fill(0);
  }
  // Makes span 0, the neighbour of every first and last span. False: no host memory.
  [[nodiscard]] bool init();

  // ---- Taking ----

  // The parked span if it has that many units, now live; else 0 and nothing is parked any more.
  SpanId take_parked(uint32_t units, uint32_t owner) {
    const SpanId id = parked_;
    if (id == 0) return 0;
    parked_ = 0;
    if (spans_[id].units == units) {
      occupy(id, owner);
      return id;
    }
    settle(id);
    return 0;
  }
  // The free span that fits best, or 0. Nothing is parked.
  [[nodiscard]] SpanId find(uint32_t units) const {
    const uint32_t wanted = size_class(units);
    uint32_t found = classes_.first_from(wanted);
    if (found == wanted) {
      const SpanId id = best_of(heads_[found], units);
      if (id != 0) return id;
      found = classes_.first_from(wanted + 1);
    }
    return found == kSizeClasses ? 0 : best_of(heads_[found], units);
  }
  // True when take() will not lack metadata.
  [[nodiscard]] bool prepare_take() { return unused_ != 0 || add_unused(); }
  // Makes the first `units` of a listed span live. Precondition: prepare_take().
  void take(SpanId id, uint32_t units, uint32_t owner) {
    unlist(id);
    Span& span = spans_[id];
    const uint32_t rest = span.units - units;
    if (rest > 0) {
      const SpanId other = pop_unused();
      Span& tail = spans_[other];
      tail.address = span.address + (uint64_t{units} << shift_);
      tail.units = rest;
      tail.previous = id;
      tail.next = span.next;
      tail.flags = span.flags;
      spans_[span.next].previous = other;
      span.next = other;
      span.units = units;
      list(other);
    }
    span.flags = 0;
    occupy(id, owner);
  }

  // ---- Giving back ----

  // The live span of an outside id, or 0.
  [[nodiscard]] SpanId live(uint64_t outside) const {
    const auto id = static_cast<uint32_t>(outside);
    if (id == 0 || id >= spans_.size()) return 0;
    const Span& span = spans_[id];
    return span.kind == kLive && span.generation == outside >> 32 ? id : 0;
  }
  [[nodiscard]] void* pointer(SpanId id) const {
    return reinterpret_cast<void*>(spans_[id].address);  // NOLINT(performance-no-int-to-ptr)
  }
  [[nodiscard]] uint64_t outside(SpanId id) const {
    return uint64_t{spans_[id].generation} << 32 | id;
  }
  // Precondition: id is live.
  void release(SpanId id) {
    Span& span = spans_[id];
    live_units_ -= span.units;
    ++span.generation;
    span.kind = kParked;
    const SpanId before = parked_;
    parked_ = id;
    if (before != 0) settle(before);
  }
  void settle_parked() {
    const SpanId id = parked_;
    parked_ = 0;
    if (id != 0) settle(id);
  }

  // ---- Ranges ----

  // A new range as one free span; its first span keeps this id for ever. 0: no metadata.
  [[nodiscard]] SpanId add_range(uint64_t address, uint32_t units, uint8_t flags);
  // Precondition: the range is one free, listed span.
  void remove_range(SpanId id);
  void set_flags(SpanId id, uint8_t flags) { spans_[id].flags = flags; }

  [[nodiscard]] const Span& operator[](SpanId id) const { return spans_[id]; }
  [[nodiscard]] uint64_t live_bytes() const { return live_units_ << shift_; }
  [[nodiscard]] uint64_t live_peak_bytes() const { return live_peak_units_ << shift_; }
  void reset_peak() { live_peak_units_ = live_units_; }
  [[nodiscard]] uint32_t shift() const { return shift_; }
  [[nodiscard]] size_t id_count() const { return spans_.size(); }
  [[nodiscard]] SpanId head(uint32_t size_class) const { return heads_[size_class]; }
  [[nodiscard]] const ClassSet& classes() const { return classes_; }

 private:
  // How far the best fit is looked for within a class. Any span of a class fits to 3 %.
  static constexpr int kProbes = 8;

  // The smallest of the first kProbes spans of a list that has `units`; of equals the first.
  [[nodiscard]] SpanId best_of(SpanId id, uint32_t units) const {
    SpanId best = 0;
    uint32_t best_units = UINT32_MAX;
    for (int probe = 0; id != 0 && probe < kProbes; ++probe) {
      const Span& span = spans_[id];
      if (span.units == units) return id;
      if (span.units > units && span.units < best_units) {
        best = id;
        best_units = span.units;
      }
      id = span.list_next;
    }
    return best;
  }

  void occupy(SpanId id, uint32_t owner) {
    Span& span = spans_[id];
    span.kind = kLive;
    span.list_next = owner;
    live_units_ += span.units;
    if (live_units_ > live_peak_units_) live_peak_units_ = live_units_;
  }

  void list(SpanId id) {
    Span& span = spans_[id];
    const uint32_t kind = size_class(span.units);
    const SpanId head = heads_[kind];
    span.kind = static_cast<uint16_t>(kind);
    span.list_next = head;
    span.list_previous = 0;
    if (head != 0) {
      spans_[head].list_previous = id;
    } else {
      classes_.insert(kind);
    }
    heads_[kind] = id;
  }
  void unlist(SpanId id) {
    const Span& span = spans_[id];
    if (span.list_next != 0) spans_[span.list_next].list_previous = span.list_previous;
    if (span.list_previous != 0) {
      spans_[span.list_previous].list_next = span.list_next;
    } else {
      heads_[span.kind] = span.list_next;
      if (span.list_next == 0) classes_.erase(span.kind);
    }
  }

  // Merges a span that is free but not listed with its neighbours, and lists the result.
  void settle(SpanId id) {
    Span& span = spans_[id];
    const SpanId next = span.next;
    if (spans_[next].is_listed()) {
      unlist(next);
      span.units += spans_[next].units;
      span.flags |= spans_[next].flags;
      span.next = spans_[next].next;
      spans_[span.next].previous = id;
      push_unused(next);
    }
    const SpanId previous = span.previous;
    if (spans_[previous].is_listed()) {
      unlist(previous);
      Span& front = spans_[previous];
      front.units += span.units;
      front.flags |= span.flags;
      front.next = span.next;
      spans_[front.next].previous = previous;
      push_unused(id);
      list(previous);
    } else {
      list(id);
    }
  }

  SpanId pop_unused() {
    const SpanId id = unused_;
    unused_ = spans_[id].list_next;
    return id;
  }
  void push_unused(SpanId id) {
    spans_[id].kind = kUnused;
    spans_[id].list_next = unused_;
    unused_ = id;
  }
  bool add_unused();

  GrowArray<Span> spans_;
  uint32_t shift_;
  SpanId parked_ = 0;
  SpanId unused_ = 0;
  uint64_t live_units_ = 0;
  uint64_t live_peak_units_ = 0;
  ClassSet classes_;
  std::array<SpanId, kSizeClasses> heads_;
};

}  // namespace davit::alloc
