#include "alloc/span_heap.hpp"

#include <cassert>

namespace davit::alloc {

bool SpanHeap::init() {
  const Span nil{.address = UINT64_MAX, .kind = kLive, .generation = 1};
  return spans_.push_back(nil);
}

bool SpanHeap::add_unused(int count) {
  while (unused_.size() < static_cast<size_t>(count)) {
    const size_t id = spans_.size();
    if (id > UINT32_MAX || !unused_.reserve(id + 1)) return false;
    if (!spans_.push_back({.kind = kUnused})) return false;
    unused_.push_back_reserved(static_cast<SpanId>(id));
  }
  return true;
}

SpanId SpanHeap::search(uint32_t units) const {
  const SpanId found = find(units);
  if (found != 0) return found;
  SpanId id = heads_[size_class(units)];
  while (id != kNil && spans_[id].units < units) id = spans_[id].list_next;
  if (id != kNil) return id;
  id = heads_[kLast];
  while (id != kNil && spans_[id].units < units) id = spans_[id].list_next;
  return id;
}

SpanId SpanHeap::add_range(uint64_t address, uint32_t units, bool cold) {
  const SpanId id = pop_unused();
  Span& span = spans_[id];
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
  assert(spans_[id].is_whole_range());
  if (spans_[id].is_cold()) {
    unlist_cold(id);
  } else {
    unlist(id);
  }
  push_unused(id);
}

SpanId SpanHeap::warm(SpanId id, uint32_t units) {
  assert(spans_[id].is_cold() && spans_[id].units >= units);
  unlist_cold(id);
  if (spans_[id].units > units) list_cold(cut(id, units));
  spans_[id].kind = kParked;
  return settle(id);
}

void SpanHeap::cool(SpanId id, uint32_t offset, uint32_t units) {
  assert(spans_[id].is_warm() && offset + units <= spans_[id].units);
  unlist(id);
  if (offset + units < spans_[id].units) list(cut(id, offset + units));
  if (offset > 0) {
    const SpanId middle = cut(id, offset);
    spans_[middle].kind = kCold;
    list(id);
    id = middle;
  }
  Span& span = spans_[id];
  if (spans_[span.next].is_cold()) {
    unlist_cold(span.next);
    absorb_next(span, id);
  }
  const SpanId previous = span.previous;
  if (spans_[previous].is_cold()) {
    unlist_cold(previous);
    absorb_next(spans_[previous], previous);
    id = previous;
  }
  list_cold(id);
}

void SpanHeap::list_cold(SpanId id) {
  Span& span = spans_[id];
  span.kind = kCold;
  span.list_previous = 0;
  span.list_next = first_cold_;
  spans_[first_cold_].list_previous = id;
  first_cold_ = id;
}

void SpanHeap::unlist_cold(SpanId id) {
  const Span& span = spans_[id];
  spans_[span.list_next].list_previous = span.list_previous;
  if (span.list_previous != 0) {
    spans_[span.list_previous].list_next = span.list_next;
  } else {
    first_cold_ = span.list_next;
  }
}

}  // namespace davit::alloc
