#include "alloc/span_heap.hpp"

namespace davit::alloc {

bool SpanHeap::init() {
  return spans_.push_back({.kind = kLive});
}

bool SpanHeap::add_unused() {
  const size_t id = spans_.size();
  if (id > UINT32_MAX || !spans_.push_back({.kind = kUnused})) return false;
  push_unused(static_cast<SpanId>(id));
  return true;
}

SpanId SpanHeap::add_range(uint64_t address, uint32_t units, uint8_t flags) {
  if (!prepare_take()) return 0;
  const SpanId id = pop_unused();
  Span& span = spans_[id];
  span.address = address;
  span.units = units;
  span.previous = 0;
  span.next = 0;
  span.flags = flags;
  list(id);
  return id;
}

void SpanHeap::remove_range(SpanId id) {
  assert(spans_[id].is_listed() && spans_[id].previous == 0 && spans_[id].next == 0);
  unlist(id);
  push_unused(id);
}

}  // namespace davit::alloc
