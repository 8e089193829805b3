// span_heap.hpp: cuts spans out of ranges and puts them together again.
//
// A range is a doubly linked chain of spans in address order. A free span is warm, that is backed
// by memory, or cold, that is address space only. No two neighbours are both warm, or both cold.
// Every free span is in the list of its class; lists are in address order, so that memory fills
// from the bottom.
//
// One span, the one freed last, may be parked: free, but neither merged nor listed yet. The next
// request of its very size takes it as it is, and any other operation first settles it, so that
// parking changes no decision. When what it has merged to is just what is taken next, it is not
// listed in between: it is loose.
//
//   Cold <--cool-- Warm ---take--> Live ---release--> Parked
//     |             ^               ^                   | |
//     +----warm-----+               +-take, same size---+ |
//                   +-------- settle: merge, list --------+
//
// Threads  Those of the allocator.
// Trust    Ids come from this heap; live() checks those that come from outside.
// Memory   Spans live in one array that grows; ids of merged spans are used again.
#pragma once

#include <array>
#include <cstdint>

#include "alloc/grow_array.hpp"
#include "alloc/size_classes.hpp"

namespace davit::alloc {

// Where a span lies in the array of all, in words of 8 bytes: what an instruction can scale an
// index by, so that a span is addressed without a computation. 0: none.
using SpanId = uint32_t;

// What a span is: below ClassSet::kCapacity, warm and in that class; or one of these.
inline constexpr uint16_t kCold = 0xFFFC;
inline constexpr uint16_t kParked = 0xFFFD;
inline constexpr uint16_t kUnused = 0xFFFE;
inline constexpr uint16_t kLive = 0xFFFF;

//   0         8       12         16     20          24              28     30           32
//   | address | units | previous | next | list_next | list_previous | kind | generation |
struct Span {
  uint64_t address;
  uint32_t units;
  SpanId previous;  // Neighbours in the range; 0: none.
  SpanId next;
  uint32_t list_next;  // Free: in the list of its class or all cold ones. Live: the owner.
  SpanId list_previous;
  uint16_t kind;
  uint16_t generation;  // Changes with every release, so that an id kept too long is recognised.

  [[nodiscard]] bool is_warm() const { return kind < ClassSet::kCapacity; }
  [[nodiscard]] bool is_cold() const { return kind == kCold; }
  [[nodiscard]] bool is_free() const { return kind <= kParked; }
  [[nodiscard]] bool is_whole_range() const { return previous == 0 && next == 0; }
};
static_assert(sizeof(Span) == 32, "two to a cache line");
inline constexpr uint32_t kSpanWords = sizeof(Span) / 8;  // From one id to the next.
static_assert(kSpanWords == 4, "live() rotates");

class SpanHeap {
 public:
  // The class of warm spans that a cold one follows: what a search ends with, whatever the set
  // says. It is never in the set, so that a search for more than is cached waits for no change of
  // it.
  static constexpr uint32_t kLast = ClassSet::kCapacity - 1;
  static_assert(kSizeClasses <= kLast);

  // Units are 1 << unit_shift bytes.
  SpanHeap(MetadataMemory& memory, uint32_t unit_shift)
      : spans_(memory), unused_(memory), shift_(unit_shift) {
    heads_.fill(kNil);
  }
  // Makes span 0, the neighbour of every first and last span. False: no host memory.
  [[nodiscard]] bool init();

  // ---- Taking ----

  // The parked span if it has that many units, now live; else 0.
  SpanId take_exact(uint32_t units, uint32_t owner) {
    const SpanId id = parked_;
    if (id == 0 || at(id).units != units) return 0;
    parked_ = 0;
    occupy(id, owner);
    return id;
  }
  // A warm span, or 0 when it takes a search(): the first of the request's own class if it fits,
  // else the first of the next class that is not empty. Firsts are low, and a span that cold memory
  // follows comes last, since it can grow: docs/memory.md has what other rules cost.
  [[nodiscard]] SpanId find(uint32_t units) const {
    const uint32_t wanted = size_class(units);
    const SpanId above = heads_[classes_.next_after(wanted)];
    const SpanId own = heads_[wanted];
    const SpanId found = at(own).units >= units ? own : above;
    return at(found).units >= units ? found : kNil;
  }
  struct Found {
    SpanId id;      // 0: it takes a search().
    bool is_loose;  // In no list.
  };
  // settle_parked(), then find(); but if what was parked is what is found, it stays loose.
  [[nodiscard]] Found settle_and_find(uint32_t units) {
    SpanId loose = parked_;
    if (loose == 0) return {find(units), false};
    parked_ = 0;
    loose = merge(loose);
    const uint32_t kind = warm_kind(loose);
    const uint32_t wanted = size_class(units);
    uint32_t next = classes_.next_after(wanted);
    // Nobody can predict this, so there is no branch.
    next ^= (next ^ kind) & mask(kind > wanted) & mask(kind < next);
    const SpanId own = lower_of(kind == wanted, loose, heads_[wanted]);
    const SpanId above = lower_of(kind == next, loose, heads_[next]);
    const SpanId found = at(own).units >= units ? own : above;
    if (found == loose && at(loose).units >= units) return {loose, true};
    list(loose);
    return {at(found).units >= units ? found : kNil, false};
  }
  // Looks at all spans of the class, too.
  [[nodiscard]] SpanId search(uint32_t units) const;
  // True when the next `count` spans will not lack metadata.
  [[nodiscard]] bool prepare(int count) {
    return static_cast<size_t>(count) <= unused_.size() || add_unused(count);
  }
  // Makes the first `units` of a warm span live; returns their id. What is left of a span that
  // grows keeps its id and its place in the list: that saves most of the work. Precondition:
  // prepare(1).
  SpanId take(SpanId id, uint32_t units, uint32_t owner) {
    Span& span = at(id);
    const uint32_t rest = span.units - units;
    if (rest > 0 && span.kind == kLast && span.previous != 0) {
      const SpanId front = cut_front(id, units);
      occupy(front, owner);
      return front;
    }
    unlist(id);
    if (rest > 0) list(cut(id, units));
    occupy(id, owner);
    return id;
  }

  // The same for a loose one.
  void take_loose(SpanId id, uint32_t units, uint32_t owner) {
    if (at(id).units > units) list(cut(id, units));
    occupy(id, owner);
  }
  // Puts a loose span where it belongs.
  void list_loose(SpanId id) { list(id); }

  // ---- Giving back ----

  // The live span of an outside id, or 0.
  [[nodiscard]] SpanId live(uint64_t outside) const {
    const auto id = static_cast<uint32_t>(outside);
    // An id between two spans becomes a large index.
    if (std::rotr(id, std::countr_zero(kSpanWords)) >= spans_.size()) return 0;
    const Span& span = at(id);
    return span.kind == kLive && span.generation == outside >> 32 ? id : 0;
  }
  [[nodiscard]] uint64_t outside(SpanId id) const { return uint64_t{at(id).generation} << 32 | id; }
  [[nodiscard]] void* pointer(SpanId id) const {
    return reinterpret_cast<void*>(at(id).address);  // NOLINT(performance-no-int-to-ptr)
  }
  // Precondition: id is live.
  void release(SpanId id) {
    Span& span = at(id);
    live_units_ -= span.units;
    ++span.generation;
    span.kind = kParked;
    const SpanId before = parked_;
    parked_ = id;
    if (before != 0) settle(before);
  }
  // Precondition: id is live.
  void set_owner(SpanId id, uint32_t owner) { at(id).list_next = owner; }
  void settle_parked() {
    const SpanId id = parked_;
    parked_ = 0;
    if (id != 0) settle(id);
  }

  // ---- Ranges and temperature; slow paths ----

  // A new range as one free span; its first span keeps this id for ever. Precondition: prepare(1).
  [[nodiscard]] SpanId add_range(uint64_t address, uint32_t units, bool cold);
  // Precondition: the range is one free span.
  void remove_range(SpanId id);
  // The first `units` of a cold span are backed now. Returns the warm span that begins there or
  // before. Precondition: prepare(1).
  SpanId warm(SpanId id, uint32_t units);
  // `units` of a warm span, from `offset` on, are not backed any more. Precondition: prepare(2).
  void cool(SpanId id, uint32_t offset, uint32_t units);

  [[nodiscard]] const Span& operator[](SpanId id) const { return at(id); }
  // The list that a warm span is in, or belongs into.
  [[nodiscard]] uint32_t warm_kind(SpanId id) const {
    const Span& span = at(id);
    return at(span.next).is_cold() ? kLast : size_class(span.units);
  }
  [[nodiscard]] uint64_t live_units() const { return live_units_; }
  [[nodiscard]] uint64_t live_bytes() const { return live_units_ << shift_; }
  [[nodiscard]] uint64_t live_peak_bytes() const { return live_peak_units_ << shift_; }
  void reset_peak() { live_peak_units_ = live_units_; }
  [[nodiscard]] uint32_t shift() const { return shift_; }
  // All spans that there are or were, and span 0, by index; for checks.
  [[nodiscard]] size_t span_count() const { return spans_.size(); }
  [[nodiscard]] const Span& by_index(size_t index) const { return spans_[index]; }
  [[nodiscard]] SpanId first_of(uint32_t kind) const { return heads_[kind]; }
  [[nodiscard]] SpanId first_cold() const { return first_cold_; }
  [[nodiscard]] const ClassSet& classes() const { return classes_; }

 private:
  // What 0 means: no neighbour, no list element. This span fits nothing, lies above everything, and
  // may be written to, which saves branches that nobody can predict.
  static constexpr SpanId kNil = 0;

  [[nodiscard]] Span& at(SpanId id) {
    return *reinterpret_cast<Span*>(reinterpret_cast<uint64_t*>(spans_.begin()) + id);
  }
  [[nodiscard]] const Span& at(SpanId id) const {
    return *reinterpret_cast<const Span*>(reinterpret_cast<const uint64_t*>(spans_.begin()) + id);
  }
  static uint32_t mask(bool condition) { return 0U - static_cast<uint32_t>(condition); }

  void occupy(SpanId id, uint32_t owner) {
    Span& span = at(id);
    span.kind = kLive;
    span.list_next = owner;
    live_units_ += span.units;
    if (live_units_ > live_peak_units_) live_peak_units_ = live_units_;
  }

  // Cuts a span in two; returns the second part, which is in no list. Precondition: prepare(1).
  SpanId cut(SpanId id, uint32_t units) {
    const SpanId other = pop_unused();
    Span& span = at(id);
    Span& tail = at(other);
    tail.address = span.address + (uint64_t{units} << shift_);
    tail.units = span.units - units;
    tail.previous = id;
    tail.next = span.next;
    at(span.next).previous = other;
    span.next = other;
    span.units = units;
    return other;
  }
  // Cuts the first `units` off a span, which keeps its id and its place in its list; returns the
  // new span before it. Preconditions: prepare(1), the span is not the first of its range.
  SpanId cut_front(SpanId id, uint32_t units) {
    const SpanId front = pop_unused();
    Span& span = at(id);
    Span& head = at(front);
    head.address = span.address;
    head.units = units;
    head.previous = span.previous;
    head.next = id;
    at(span.previous).next = front;
    span.address += uint64_t{units} << shift_;
    span.units -= units;
    span.previous = front;
    return front;
  }
  // Takes the next span, which is in no list, into this one.
  void absorb_next(Span& span, SpanId id) {
    const SpanId next = span.next;
    span.units += at(next).units;
    span.next = at(next).next;
    at(span.next).previous = id;
    push_unused(next);
  }

  // The lower of the span and the first one of its list becomes the first, the other the second.
  void list(SpanId id) {
    Span& span = at(id);
    const uint32_t kind = warm_kind(id);
    span.kind = static_cast<uint16_t>(kind);
    const SpanId first = heads_[kind];
    if (first == kNil) {
      span.list_previous = kNil;
      span.list_next = kNil;
      heads_[kind] = id;
      if (kind != kLast) classes_.insert(kind);
      return;
    }
    // Nor can anybody predict which is lower.
    const SpanId second = at(first).list_next;
    const SpanId head = first ^ ((first ^ id) & mask(span.address < at(first).address));
    const SpanId other = first ^ id ^ head;
    at(head).list_previous = kNil;
    at(head).list_next = other;
    at(other).list_previous = head;
    at(other).list_next = second;
    at(second).list_previous = other;
    heads_[kind] = head;
  }
  void unlist(SpanId id) {
    const Span& span = at(id);
    const SpanId next = span.list_next;
    const SpanId previous = span.list_previous;
    at(next).list_previous = previous;
    if (previous != kNil) {
      at(previous).list_next = next;
      return;
    }
    const uint32_t kind = span.kind;
    heads_[kind] = next;
    // kLast is never in the set, so that erasing it changes nothing.
    classes_.erase_if(next == kNil, kind);
  }

  // The loose span if it may be meant and lies lower, else the other.
  [[nodiscard]] SpanId lower_of(bool may_be, SpanId loose, SpanId other) const {
    return may_be && at(loose).address < at(other).address ? loose : other;
  }

  // Merges a span that is backed, free and in no list with its warm neighbours.
  SpanId merge(SpanId id) {
    Span& span = at(id);
    if (at(span.next).is_warm()) {
      unlist(span.next);
      absorb_next(span, id);
    }
    const SpanId previous = span.previous;
    if (at(previous).is_warm()) {
      unlist(previous);
      absorb_next(at(previous), previous);
      id = previous;
    }
    return id;
  }
  SpanId settle(SpanId id) {
    id = merge(id);
    list(id);
    return id;
  }

  SpanId pop_unused() { return unused_.pop_back(); }
  // Precondition: unused_ has room for all spans.
  void push_unused(SpanId id) {
    at(id).kind = kUnused;
    unused_.push_back_reserved(id);
  }
  bool add_unused(int count);
  void list_cold(SpanId id);
  void unlist_cold(SpanId id);

  GrowArray<Span> spans_;
  GrowArray<SpanId> unused_;
  uint32_t shift_;
  SpanId parked_ = 0;
  uint64_t live_units_ = 0;
  uint64_t live_peak_units_ = 0;
  ClassSet classes_;
  SpanId first_cold_ = 0;
  std::array<SpanId, ClassSet::kCapacity> heads_;
};

}  // namespace davit::alloc
