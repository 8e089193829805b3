#include "alloc/allocator.hpp"

#include <algorithm>

#include "base/checked.hpp"

using davit::alloc::Range;
using davit::alloc::Span;
using davit::alloc::SpanId;

DvtAllocator::DvtAllocator(const DvtAllocatorOptions& options)
    : memory_(*options.metadata),
      heap_(memory_, static_cast<uint32_t>(std::countr_zero(options.alignment))),
      table_(memory_),
      ranges_(memory_, *options.source),
      hooks_(*options.hooks),
      alignment_(options.alignment),
      reserve_bytes_(options.reserve_bytes),
      segment_bytes_(options.segment_bytes),
      limit_bytes_(options.limit_bytes),
      expected_bytes_(options.expected_bytes),
      limit_units_(options.limit_bytes / options.alignment),
      ceiling_bytes_(ranges_.commits()
                         ? davit::checked_align(limit_bytes_, segment_bytes_).value_or(UINT64_MAX)
                         : limit_bytes_),
      watermark_bytes_(std::min(options.watermark_bytes, ceiling_bytes_)),
      is_careful_(options.source->commit == nullptr || options.limit_bytes != UINT64_MAX),
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
  id = heap_.take(id, wanted, owner);
  ++malloc_count_;
  *out = id;
  return DVT_OK;
}

DvtCode DvtAllocator::acquire_cached(uint64_t bytes, uint32_t owner, SpanId* out) {
  const uint64_t units = (std::max<uint64_t>(bytes, 1) - 1) / alignment_ + 1;
  if (units > UINT32_MAX || !heap_.prepare(1)) return DVT_OUT_OF_MEMORY;
  const auto wanted = static_cast<uint32_t>(units);
  if (passes_limit(wanted)) return DVT_OUT_OF_MEMORY;
  SpanId id = heap_.take_exact(wanted, owner);
  if (id == 0) {
    heap_.settle_parked();
    id = heap_.search(wanted);
    if (id == 0) return DVT_OUT_OF_MEMORY;
    id = heap_.take(id, wanted, owner);
  }
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
  const uint64_t room = ceiling_bytes_ - std::min(ceiling_bytes_, ranges_.reserved_bytes());
  const uint64_t needed = bytes + 2 * segment_bytes_;
  if (room < needed) trim_bytes(needed - room);
  *found = attempt(units, ceiling_bytes_);
  if (*found == 0 && trim_bytes(UINT64_MAX) > 0) *found = attempt(units, ceiling_bytes_);
  return DVT_OK;
}

SpanId DvtAllocator::attempt(uint32_t units, uint64_t ceiling) {
  if (passes_limit(units)) {
    refusal_ = "the limit is reached";
    return 0;
  }
  // One for what is cut off, one for what is warmed up, one for a new range.
  if (!heap_.prepare(3)) {
    refusal_ = "the host has no memory for metadata";
    return 0;
  }
  const SpanId found = heap_.search(units);
  if (found != 0 && !stays_whole(found, units)) return found;
  SpanId grown = ranges_.commits() ? warm_up(units, ceiling) : 0;
  if (grown == 0) grown = grow(units, ceiling);
  return grown != 0 ? grown : found;
}

// Small requests do not break a big range that was made for a big one, until as much has been taken
// from the source instead as the range holds.
bool DvtAllocator::stays_whole(SpanId id, uint32_t units) {
  const Span& span = heap_[id];
  if (!may_stay_whole(id) || units > span.units / 2) return false;
  Range* range = ranges_.range_at(span.address);
  if (range->bytes <= segment_bytes_ || range->is_general != 0) return false;
  range->refused_bytes += units * alignment_;
  if (range->refused_bytes <= range->bytes) return true;
  range->refused_bytes = 0;
  return false;
}

// The run of free spans from `first` on, as far as `units` reach.
DvtAllocator::Run DvtAllocator::run_at(SpanId first, uint32_t units) const {
  Run run{.first = first, .missing_bytes = 0};
  uint64_t covered = 0;
  for (SpanId id = first; covered < units; id = heap_[id].next) {
    const Span& span = heap_[id];
    if (!span.is_warm() && !span.is_cold()) return {};
    if (span.is_cold()) {
      const uint64_t used = std::min<uint64_t>(span.units, units - covered) * alignment_;
      run.missing_bytes += (used + segment_bytes_ - 1) / segment_bytes_ * segment_bytes_;
    }
    covered += span.units;
  }
  return run;
}

// A request that no warm span holds needs a cold one, which a warm one may precede.
DvtAllocator::Run DvtAllocator::cheapest_run(uint32_t units) const {
  Run best;
  for (SpanId id = heap_.first_cold(); id != 0; id = heap_[id].list_next) {
    const SpanId before = heap_[id].previous;
    const Run run = run_at(heap_[before].is_warm() ? before : id, units);
    if (run.missing_bytes < best.missing_bytes) best = run;
  }
  return best;
}

// Has the source back what a run lacks. The result is one warm span, or 0.
SpanId DvtAllocator::back(const Run& run, uint32_t units) {
  SpanId first = run.first;
  for (;;) {
    const SpanId cold = heap_[first].is_cold() ? first : heap_[first].next;
    const uint64_t before = heap_[first].is_cold() ? 0 : heap_[first].units;
    if (before >= units) return first;
    const Span& span = heap_[cold];
    const uint64_t used = std::min<uint64_t>(span.units, units - before) * alignment_;
    const uint64_t bytes = (used + segment_bytes_ - 1) / segment_bytes_ * segment_bytes_;
    if (!heap_.prepare(2)) {
      refusal_ = "the host has no memory for metadata";
      return 0;
    }
    if (ranges_.commit(span.address, bytes) != DVT_OK) {
      refusal_ = "the source has no more memory";
      return 0;
    }
    first = heap_.warm(cold, static_cast<uint32_t>(bytes / alignment_));
  }
}

SpanId DvtAllocator::warm_up(uint32_t units, uint64_t ceiling) {
  const Run run = cheapest_run(units);
  if (run.first == 0) return 0;
  if (run.missing_bytes > ceiling - std::min(ceiling, ranges_.reserved_bytes())) {
    refusal_ = "the limit is reached";
    return 0;
  }
  return back(run, units);
}

// What to ask of a source that does not commit: large ranges are rounded by 6 % at most, so that
// sizes that vary a little find each other's ranges.
uint64_t DvtAllocator::range_bytes_for(uint64_t bytes) const {
  if (ranges_.size() == 0) {
    // Room for what is cut badly; if it does not do, there will be a second range.
    const uint64_t expected = expected_bytes();
    const uint64_t roomy = expected + expected / 8;
    if (roomy > std::max(bytes, segment_bytes_)) {
      return davit::checked_align(roomy, segment_bytes_).value_or(bytes);
    }
  }
  if (bytes <= segment_bytes_) return segment_bytes_;
  const uint64_t step = std::max(std::bit_floor(bytes) / 16, alignment_);
  return davit::checked_align(bytes, step).value_or(bytes);
}

// A range of `wanted` bytes, or of `least` if there is no more.
Range* DvtAllocator::add_range(uint64_t wanted, uint64_t least) {
  Range* range = nullptr;
  const uint64_t aligned_to = ranges_.commits() ? segment_bytes_ : alignment_;
  refusal_ = "the source has no more memory";
  if (ranges_.add(wanted, aligned_to, &range) != DVT_OK &&
      (least == wanted || ranges_.add(least, aligned_to, &range) != DVT_OK)) {
    return nullptr;
  }
  const auto units = static_cast<uint32_t>(range->bytes / alignment_);
  range->first_span = heap_.add_range(range->base, units, ranges_.commits());
  return range;
}

// A new range, and room in it.
SpanId DvtAllocator::grow(uint32_t units, uint64_t ceiling) {
  const uint64_t bytes = units * alignment_;
  const uint64_t room = ceiling - std::min(ceiling, ranges_.reserved_bytes());
  const uint64_t pages = davit::checked_align(bytes, segment_bytes_).value_or(UINT64_MAX);
  if ((ranges_.commits() ? pages : bytes) > room) {
    refusal_ = "the limit is reached";
    return 0;
  }
  const uint64_t most = UINT32_MAX * alignment_ / segment_bytes_ * segment_bytes_;
  uint64_t least = bytes;
  uint64_t wanted = std::min(range_bytes_for(bytes), room / alignment_ * alignment_);
  if (ranges_.commits()) {
    least = pages;
    wanted = std::max(least, reserve_bytes_);
    if (least > most) {
      refusal_ = "no block may be that large";
      return 0;
    }
  }
  const bool expected = ranges_.size() == 0 && expected_bytes() > bytes;
  Range* range = add_range(std::max(std::min(wanted, most), least), least);
  if (range != nullptr) range->is_general = expected ? 1 : 0;
  if (range == nullptr || !ranges_.commits()) return range == nullptr ? 0 : range->first_span;
  return back({.first = range->first_span, .missing_bytes = pages}, units);
}

uint64_t DvtAllocator::trim(uint64_t keep_bytes) {
  heap_.settle_parked();
  const uint64_t cached = ranges_.reserved_bytes() - heap_.live_bytes();
  return cached > keep_bytes ? trim_bytes(cached - keep_bytes) : 0;
}

uint64_t DvtAllocator::trim_bytes(uint64_t most_bytes) {
  uint64_t taken = 0;
  for (size_t i = ranges_.size(); i > 0 && taken < most_bytes; --i) {
    taken += ranges_.commits() ? trim_pages(i - 1, most_bytes - taken) : trim_whole_range(i - 1);
  }
  return taken;
}

uint64_t DvtAllocator::trim_whole_range(size_t index) {
  const Range& range = ranges_[index];
  const Span& span = heap_[range.first_span];
  if (!span.is_warm() || !span.is_whole_range()) return 0;
  if (ranges_.is_pinned(range.base, range.bytes)) return 0;
  const uint64_t bytes = range.bytes;
  heap_.remove_range(range.first_span);
  ranges_.remove(range);
  return bytes;
}

// From the end, so that memory in use moves down.
uint64_t DvtAllocator::trim_pages(size_t index, uint64_t most_bytes) {
  SpanId id = ranges_[index].first_span;
  while (heap_[id].next != 0) id = heap_[id].next;
  uint64_t taken = 0;
  while (id != 0 && taken < most_bytes) {
    const SpanId previous = heap_[id].previous;
    if (heap_[id].is_warm()) taken += trim_span(id, most_bytes - taken);
    id = previous;
  }
  return taken;
}

// Takes the last pages of a warm span that are not pinned.
uint64_t DvtAllocator::trim_span(SpanId id, uint64_t most_bytes) {
  const uint64_t page = segment_bytes_;
  uint64_t taken = 0;
  const uint64_t first = (heap_[id].address + page - 1) / page * page;
  uint64_t end = (heap_[id].address + heap_[id].units * alignment_) / page * page;
  while (end > first && taken < most_bytes) {
    if (ranges_.is_pinned(end - page, page)) {
      end -= page;
      continue;
    }
    uint64_t begin = end - page;
    while (begin > first && taken + (end - begin) < most_bytes &&
           !ranges_.is_pinned(begin - page, page)) {
      begin -= page;
    }
    if (!heap_.prepare(2) || !ranges_.decommit(begin, end - begin)) return taken;
    heap_.cool(id, static_cast<uint32_t>((begin - heap_[id].address) / alignment_),
               static_cast<uint32_t>((end - begin) / alignment_));
    taken += end - begin;
    // What is left in front keeps the id, unless nothing is left.
    end = begin;
  }
  return taken;
}

bool DvtAllocator::is_backed(uint64_t address, uint64_t bytes) {
  const Range* range = ranges_.range_at(address);
  if (range == nullptr || !davit::in_range(address - range->base, bytes, range->bytes)) {
    return false;
  }
  for (SpanId id = range->first_span; id != 0; id = heap_[id].next) {
    const Span& span = heap_[id];
    const bool overlaps =
        span.address < address + bytes && address < span.address + span.units * alignment_;
    if (overlaps && span.is_cold()) return false;
  }
  return true;
}

DvtCode DvtAllocator::pin(uint64_t address, uint64_t bytes) {
  if (bytes == 0 || !davit::checked_add(address, bytes)) return DVT_INVALID_ARGUMENT;
  return is_backed(address, bytes) ? ranges_.pin(address, bytes) : DVT_INVALID_ARGUMENT;
}
