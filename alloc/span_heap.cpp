#include "alloc/span_heap.hpp"

#include <cassert>

namespace davit::alloc {

bool SpanHeap::init() {
  const Span nil{.address = UINT64_MAX, .kind = kLive, .generation = 1};
  return spans_.push_back(nil);
}

bool SpanHeap::add_unused(int count) {
  while (unused_.size() < static_cast<size_t>(count)) {
    const size_t index = spans_.size();
    if (index > UINT32_MAX / kSpanWords || !unused_.reserve(index + 1)) return false;
    if (!spans_.push_back({.kind = kUnused})) return false;
    unused_.push_back_reserved(static_cast<SpanId>(index * kSpanWords));
  }
  return true;
}

SpanId SpanHeap::search(uint32_t units) const {
  const SpanId found = find(units);
  if (found != 0) return found;
  SpanId id = heads_[size_class(units)];
  while (id != kNil && at(id).units < units) id = at(id).list_next;
  if (id != kNil) return id;
  id = heads_[kLast];
  while (id != kNil && at(id).units < units) id = at(id).list_next;
  return id;
}

SpanId SpanHeap::add_range(uint64_t address, uint32_t units, bool cold) {
  const SpanId id = pop_unused();
  Span& span = at(id);
  span.address = address;
  span.units = units;
  span.previous = 0;
  span.next = 0;
  if (cold) {
    list_cold(id);
  } else {
    list(id);
  }
  return id;
}

void SpanHeap::remove_range(SpanId id) {
  assert(at(id).is_whole_range());
  if (at(id).is_cold()) {
    unlist_cold(id);
  } else {
    unlist(id);
  }
  push_unused(id);
}

SpanId SpanHeap::warm(SpanId id, uint32_t units) {
  assert(at(id).is_cold() && at(id).units >= units);
  unlist_cold(id);
  if (at(id).units > units) list_cold(cut(id, units));
  at(id).kind = kParked;
  return settle(id);
}

void SpanHeap::cool(SpanId id, uint32_t offset, uint32_t units) {
  assert(at(id).is_warm() && offset + units <= at(id).units);
  unlist(id);
  if (offset + units < at(id).units) list(cut(id, offset + units));
  if (offset > 0) {
    const SpanId middle = cut(id, offset);
    at(middle).kind = kCold;
    list(id);
    id = middle;
  }
  Span& span = at(id);
  if (at(span.next).is_cold()) {
    unlist_cold(span.next);
    absorb_next(span, id);
  }
  const SpanId previous = span.previous;
  if (at(previous).is_cold()) {
    unlist_cold(previous);
    absorb_next(at(previous), previous);
    id = previous;
  }
  list_cold(id);
}

void SpanHeap::list_cold(SpanId id) {
  Span& span = at(id);
  span.kind = kCold;
  span.list_previous = 0;
  span.list_next = first_cold_;
  at(first_cold_).list_previous = id;
  first_cold_ = id;
}

void SpanHeap::unlist_cold(SpanId id) {
  const Span& span = at(id);
  at(span.list_next).list_previous = span.list_previous;
  if (span.list_previous != 0) {
    at(span.list_previous).list_next = span.list_next;
  } else {
    first_cold_ = span.list_next;
  }
}

}  // namespace davit::alloc
