#include "alloc/allocator.hpp"

#include <algorithm>

#include "base/checked.hpp"

using davit::alloc::kCold;
using davit::alloc::Range;
using davit::alloc::Span;
using davit::alloc::SpanId;

DvtAllocator::DvtAllocator(const DvtAllocatorOptions& options)
    : memory_(*options.metadata),
      heap_(memory_, static_cast<uint32_t>(std::countr_zero(options.alignment))),
      table_(memory_),
      ranges_(memory_, *options.source, options.segment_bytes),
      hooks_(*options.hooks),
      alignment_(options.alignment),
      reserve_bytes_(options.reserve_bytes),
      segment_bytes_(options.segment_bytes),
      limit_bytes_(options.limit_bytes),
      watermark_bytes_(options.watermark_bytes),
      keeps_whole_(options.source->commit == nullptr) {}

DvtCode DvtAllocator::acquire_slowly(uint64_t bytes, uint32_t owner, SpanId* out) {
  heap_.settle_parked();
  const uint64_t units = (std::max<uint64_t>(bytes, 1) - 1) / alignment_ + 1;
  if (units > UINT32_MAX) {
    refusal_ = "no block may be that large";
    return DVT_OUT_OF_MEMORY;
  }
  const auto wanted = static_cast<uint32_t>(units);
  SpanId id = attempt(wanted, watermark_bytes_);
  if (id == 0) {
    const DvtCode code = recover(wanted, &id);
    if (code != DVT_OK) return code;
  }
  if (id == 0) return DVT_OUT_OF_MEMORY;
  heap_.take(id, wanted, owner);
  ++malloc_count_;
  *out = id;
  return DVT_OK;
}

DvtCode DvtAllocator::recover(uint32_t units, SpanId* found) {
  ++recover_count_;
  const uint64_t bytes = units * alignment_;
  if (hooks_.exact_wait != nullptr) {
    const DvtCode code = hooks_.exact_wait(hooks_.user, bytes);
    if (code != DVT_OK) return code;
  }
  if (hooks_.synchronize != nullptr) {
    const DvtCode code = hooks_.synchronize(hooks_.user);
    if (code != DVT_OK) return code;
  }
  if (hooks_.recycle != nullptr) hooks_.recycle(hooks_.user, bytes);
  heap_.settle_parked();
  *found = attempt(units, watermark_bytes_);
  if (*found != 0) return DVT_OK;
  if (hooks_.other_pools != nullptr) hooks_.other_pools(hooks_.user, bytes);
  heap_.settle_parked();
  // What has to be given back so that a piece of its own for this request stays below the limit.
  const uint64_t room = limit_bytes_ - std::min(limit_bytes_, ranges_.reserved_bytes());
  const uint64_t needed = bytes + 2 * ranges_.page_bytes();
  if (room < needed) trim_bytes(needed - room);
  *found = attempt(units, limit_bytes_);
  if (*found == 0 && trim_bytes(UINT64_MAX) > 0) *found = attempt(units, limit_bytes_);
  return DVT_OK;
}

SpanId DvtAllocator::attempt(uint32_t units, uint64_t ceiling) {
  if (!heap_.prepare_take()) {
    refusal_ = "the host has no memory for metadata";
    return 0;
  }
  const SpanId best = heap_.find(units);
  const bool whole = best != 0 && stays_whole(best, units);
  if (best != 0 && !whole && make_ready(best, units, ceiling)) return best;
  if (best != 0 && !whole) {
    const SpanId id = cheapest(units, ceiling);
    if (id != 0 && make_ready(id, units, ceiling)) return id;
  }
  const SpanId grown = grow(units, ceiling);
  return grown == 0 && whole ? best : grown;
}

// Small requests do not break a big range that was made for a big one, until as much has been taken
// from the source instead as the range holds.
bool DvtAllocator::stays_whole(SpanId id, uint32_t units) {
  const Span& span = heap_[id];
  if (!keeps_whole_ || !span.is_whole_range() || units > span.units / 2) return false;
  Range* range = ranges_.range_at(span.address);
  if (range->bytes <= segment_bytes_) return false;
  range->refused_bytes += units * alignment_;
  if (range->refused_bytes <= range->bytes) return true;
  range->refused_bytes = 0;
  return false;
}

bool DvtAllocator::make_ready(SpanId id, uint32_t units, uint64_t ceiling) {
  const Span& span = heap_[id];
  if ((span.flags & kCold) == 0) return true;
  const Range& range = *ranges_.range_at(span.address);
  const uint64_t bytes = units * alignment_;
  const uint64_t missing = ranges_.unbacked_bytes(range, span.address, bytes);
  const auto total = davit::checked_add(ranges_.reserved_bytes(), missing);
  if (missing > 0 && (!total || *total > ceiling)) {
    refusal_ = "the limit is reached";
    return false;
  }
  if (missing > 0 && ranges_.back(range, span.address, bytes) != DVT_OK) {
    refusal_ = "the source has no more memory";
    return false;
  }
  return true;
}

// The span that needs the least memory from the source. Looks at all: only near the ceiling.
SpanId DvtAllocator::cheapest(uint32_t units, uint64_t ceiling) const {
  const uint64_t room = ceiling - std::min(ceiling, ranges_.reserved_bytes());
  SpanId best = 0;
  uint64_t least = UINT64_MAX;
  for (size_t i = 0; i < ranges_.size(); ++i) {
    for (SpanId id = ranges_[i].first_span; id != 0; id = heap_[id].next) {
      const Span& span = heap_[id];
      if (!span.is_listed() || span.units < units) continue;
      const uint64_t missing = ranges_.unbacked_bytes(ranges_[i], span.address, units * alignment_);
      if (missing > room || missing >= least) continue;
      best = id;
      least = missing;
    }
  }
  return best;
}

// What to ask of a source that does not commit: large ranges are rounded by 6 % at most, so that
// sizes that vary a little find each other's ranges.
uint64_t DvtAllocator::range_bytes_for(uint64_t bytes) const {
  if (bytes <= segment_bytes_) return segment_bytes_;
  const uint64_t step = std::max(std::bit_floor(bytes) / 16, alignment_);
  return davit::checked_align(bytes, step).value_or(bytes);
}

// A range of `wanted` bytes, or of `least` if there is no more.
Range* DvtAllocator::add_range(uint64_t wanted, uint64_t least) {
  Range* range = nullptr;
  refusal_ = "the source has no more memory";
  if (ranges_.add(wanted, alignment_, &range) != DVT_OK &&
      (least == wanted || ranges_.add(least, alignment_, &range) != DVT_OK)) {
    return nullptr;
  }
  const auto units = static_cast<uint32_t>(range->bytes / alignment_);
  range->first_span = heap_.add_range(range->base, units, ranges_.commits() ? kCold : 0);
  if (range->first_span != 0 && heap_.prepare_take()) return range;
  refusal_ = "the host has no memory for metadata";
  if (range->first_span != 0) heap_.remove_range(range->first_span);
  ranges_.remove(*range);
  return nullptr;
}

// A new range, and room in it.
SpanId DvtAllocator::grow(uint32_t units, uint64_t ceiling) {
  const uint64_t bytes = units * alignment_;
  const uint64_t room = ceiling - std::min(ceiling, ranges_.reserved_bytes());
  if (bytes > room) {
    refusal_ = "the limit is reached";
    return 0;
  }
  const uint64_t most = UINT32_MAX * alignment_ / segment_bytes_ * segment_bytes_;
  uint64_t least = bytes;
  uint64_t wanted = std::min(range_bytes_for(bytes), room / alignment_ * alignment_);
  if (ranges_.commits()) {
    least = davit::checked_align(bytes, segment_bytes_).value_or(UINT64_MAX);
    wanted = std::max(least, reserve_bytes_);
    if (least > most) {
      refusal_ = "no block may be that large";
      return 0;
    }
  }
  const Range* range = add_range(std::max(std::min(wanted, most), least), least);
  return range != nullptr && make_ready(range->first_span, units, ceiling) ? range->first_span : 0;
}

uint64_t DvtAllocator::trim(uint64_t keep_bytes) {
  heap_.settle_parked();
  const uint64_t cached = ranges_.reserved_bytes() - heap_.live_bytes();
  return cached > keep_bytes ? trim_bytes(cached - keep_bytes) : 0;
}

uint64_t DvtAllocator::trim_bytes(uint64_t most_bytes) {
  uint64_t taken = 0;
  for (size_t i = ranges_.size(); i > 0 && taken < most_bytes; --i) {
    taken += trim_range(i - 1, most_bytes - taken);
  }
  return taken;
}

uint64_t DvtAllocator::trim_range(size_t index, uint64_t most_bytes) {
  const Range& range = ranges_[index];
  SpanId id = range.first_span;
  if (!ranges_.commits()) {
    const Span& span = heap_[id];
    const bool removable =
        span.is_listed() && span.is_whole_range() && !ranges_.is_pinned(range.base, range.bytes);
    if (!removable) return 0;
    const uint64_t bytes = range.bytes;
    heap_.remove_range(id);
    ranges_.remove(range);
    return bytes;
  }
  while (heap_[id].next != 0) id = heap_[id].next;
  uint64_t taken = 0;
  for (; id != 0 && taken < most_bytes; id = heap_[id].previous) {
    const Span& span = heap_[id];
    if (!span.is_listed()) continue;
    const uint64_t bytes =
        ranges_.unback(range, span.address, span.units * alignment_, most_bytes - taken);
    if (bytes > 0) heap_.set_flags(id, kCold);
    taken += bytes;
  }
  return taken;
}

DvtCode DvtAllocator::pin(uint64_t address, uint64_t bytes) {
  if (bytes == 0 || !davit::checked_add(address, bytes)) return DVT_INVALID_ARGUMENT;
  return ranges_.pin(address, bytes);
}
