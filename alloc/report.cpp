// Statistics, the text of an out-of-memory error, and the check of all invariants.
#include <algorithm>
#include <cstdio>
#include <iterator>

#include "alloc/allocator.hpp"

using davit::alloc::ClassSet;
using davit::alloc::GrowArray;

using davit::alloc::kLive;
using davit::alloc::kParked;
using davit::alloc::OwnerTotal;
using davit::alloc::Range;
using davit::alloc::Shortage;
using davit::alloc::Span;
using davit::alloc::SpanId;

void DvtAllocator::statistics(DvtAllocatorStatistics* out) const {
  *out = {};
  out->live_bytes = heap_.live_bytes();
  out->live_peak_bytes = heap_.live_peak_bytes();
  out->reserved_bytes = ranges_.reserved_bytes();
  out->reserved_peak_bytes = ranges_.reserved_peak_bytes();
  out->cached_bytes = out->reserved_bytes - out->live_bytes;
  out->limit_bytes = limit_bytes_;
  out->live_blocks = malloc_count_ - free_count_;
  out->segments = ranges_.size();
  out->malloc_count = malloc_count_;
  out->free_count = free_count_;
  out->grow_count = ranges_.grow_count();
  out->recover_count = recover_count_;
  out->metadata_bytes = memory_.bytes();
  for (size_t i = 0; i < ranges_.size(); ++i) count_holes(ranges_[i], out);
}

// A hole is a piece of backed free memory: one warm span, or several while one of them is parked.
void DvtAllocator::count_holes(const Range& range, DvtAllocatorStatistics* out) const {
  uint64_t begin = range.base;
  uint64_t end = range.base;
  const auto close = [&] {
    if (end == begin) return;
    ++out->free_spans;
    out->largest_hole_bytes = std::max(out->largest_hole_bytes, end - begin);
  };
  for (SpanId id = range.first_span; id != 0; id = heap_[id].next) {
    const Span& span = heap_[id];
    if (!span.is_free() || span.is_cold()) {
      close();
      begin = span.address + uint64_t{span.units} * alignment_;
    }
    end = span.address + uint64_t{span.units} * alignment_;
  }
  close();
}

void DvtAllocator::visit(DvtBlockVisitor visitor, void* user) const {
  for (size_t i = 0; i < ranges_.size(); ++i) {
    for (SpanId id = ranges_[i].first_span; id != 0; id = heap_[id].next) {
      const Span& span = heap_[id];
      if (span.kind != kLive) continue;
      const auto* address = reinterpret_cast<const void*>(span.address);  // NOLINT
      visitor(user, span.list_next, address, uint64_t{span.units} * alignment_);
    }
  }
}

const char* DvtAllocator::owner_name(uint32_t owner) const {
  return hooks_.owner_name != nullptr ? hooks_.owner_name(hooks_.user, owner) : nullptr;
}

namespace {

// "1234567 bytes (1.2 MiB)": exact for machines, short for people.
struct SizeText {
  char text[48];
};
SizeText size_text(uint64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  SizeText out{};
  double scaled = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; scaled >= 1024 && unit + 1 < std::size(kUnits); ++unit) scaled /= 1024;
  const auto exact = static_cast<unsigned long long>(bytes);
  if (bytes < 1024) {
    std::snprintf(out.text, sizeof out.text, "%llu bytes", exact);
  } else {
    std::snprintf(out.text, sizeof out.text, "%llu bytes (%.1f %s)", exact, scaled, kUnits[unit]);
  }
  return out;
}

// Makes one total per owner of many, largest first.
void sum_up(GrowArray<OwnerTotal>* totals) {
  std::sort(totals->begin(), totals->end(),
            [](const OwnerTotal& a, const OwnerTotal& b) { return a.owner < b.owner; });
  size_t count = 0;
  for (const OwnerTotal& total : *totals) {
    if (count > 0 && (*totals)[count - 1].owner == total.owner) {
      (*totals)[count - 1].bytes += total.bytes;
      (*totals)[count - 1].blocks += total.blocks;
    } else {
      (*totals)[count++] = total;
    }
  }
  totals->truncate(count);
  std::sort(totals->begin(), totals->end(), [](const OwnerTotal& a, const OwnerTotal& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.owner < b.owner;
  });
}

}  // namespace

Shortage DvtAllocator::shortage() const {
  DvtAllocatorStatistics now{};
  statistics(&now);
  return {.reserved_bytes = now.reserved_bytes,
          .live_bytes = now.live_bytes,
          .cached_bytes = now.cached_bytes,
          .largest_hole_bytes = now.largest_hole_bytes,
          .limit_bytes = limit_bytes_,
          .refusal = refusal_};
}

void DvtAllocator::add_owners(GrowArray<OwnerTotal>* totals) const {
  visit(
      [](void* user, uint32_t owner, const void*, uint64_t bytes) {
        // Without host memory the list ends early; the error is told all the same.
        static_cast<void>(static_cast<GrowArray<OwnerTotal>*>(user)->push_back({owner, bytes, 1}));
      },
      totals);
}

void DvtAllocator::explain(uint64_t bytes, uint32_t owner, DvtError* out) const {
  davit::alloc::MetadataMemory scratch = memory_;
  GrowArray<OwnerTotal> totals(scratch);
  add_owners(&totals);
  explain(bytes, owner, shortage(), &totals, out);
}

void DvtAllocator::explain(uint64_t bytes, uint32_t owner, const Shortage& now,
                           GrowArray<OwnerTotal>* totals, DvtError* out) const {
  const double fragmentation =
      now.cached_bytes == 0
          ? 0
          : 1 - static_cast<double>(now.largest_hole_bytes) / static_cast<double>(now.cached_bytes);
  const char* name = owner_name(owner);
  out->code = DVT_OUT_OF_MEMORY;
  std::snprintf(out->message, sizeof out->message, "out of memory: %s asks %s for %s, and %s",
                name != nullptr ? name : "a node", ranges_.source_name(), size_text(bytes).text,
                now.refusal);
  if (now.limit_bytes == UINT64_MAX) {
    std::snprintf(out->expected, sizeof out->expected, "what the source gives; no limit is set");
  } else {
    std::snprintf(out->expected, sizeof out->expected, "at most the limit of %s",
                  size_text(now.limit_bytes).text);
  }
  std::snprintf(out->got, sizeof out->got,
                "%llu live, %llu cached, largest hole %llu bytes, fragmentation %.0f %%",
                static_cast<unsigned long long>(now.live_bytes),
                static_cast<unsigned long long>(now.cached_bytes),
                static_cast<unsigned long long>(now.largest_hole_bytes), fragmentation * 100);
  sum_up(totals);
  name_owners(*totals, out);
}

void DvtAllocator::name_owners(const GrowArray<OwnerTotal>& totals, DvtError* out) const {
  constexpr size_t kNamed = 3;
  const size_t size = sizeof out->hint;
  size_t used = 0;
  out->hint[0] = '\0';
  for (size_t i = 0; i < std::min(totals.size(), kNamed) && used < size; ++i) {
    const OwnerTotal& total = totals[i];
    char unnamed[32];
    std::snprintf(unnamed, sizeof unnamed, "owner %u", total.owner);
    const char* known = owner_name(total.owner);
    const int length =
        std::snprintf(out->hint + used, size - used, "%s%s: %s in %llu block%s",
                      i == 0 ? "most is held by " : "; ", known != nullptr ? known : unnamed,
                      size_text(total.bytes).text, static_cast<unsigned long long>(total.blocks),
                      total.blocks == 1 ? "" : "s");
    used += length > 0 ? static_cast<size_t>(length) : 0;
  }
}

// A range is a chain of spans without gaps, of which no two neighbours could be one.
bool DvtAllocator::range_is_valid(const Range& range, uint64_t* live, uint64_t* backed,
                                  size_t* spans) const {
  uint64_t at = range.base;
  SpanId previous = 0;
  for (SpanId id = range.first_span; id != 0; id = heap_[id].next) {
    const Span& span = heap_[id];
    const uint64_t bytes = uint64_t{span.units} * alignment_;
    if (span.address != at || span.previous != previous || span.units == 0) return false;
    if (span.is_cold()) {
      if (heap_[previous].is_cold()) return false;
      if (at % segment_bytes_ != range.base % segment_bytes_ || bytes % segment_bytes_ != 0)
        return false;
    } else if (span.is_warm()) {
      if (span.kind != heap_.warm_kind(id) || heap_[previous].is_warm()) return false;
    } else if (span.kind != kLive && span.kind != kParked) {
      return false;
    }
    if (span.kind == kLive) *live += bytes;
    if (!span.is_cold()) *backed += bytes;
    ++*spans;
    at += bytes;
    previous = id;
  }
  return at == range.base + range.bytes;
}

bool DvtAllocator::is_valid() const {
  uint64_t live = 0;
  uint64_t backed = 0;
  size_t in_ranges = 0;
  for (size_t i = 0; i < ranges_.size(); ++i) {
    if (!range_is_valid(ranges_[i], &live, &backed, &in_ranges)) return false;
  }
  if (live != heap_.live_bytes() || ranges_.reserved_bytes() != backed) return false;
  size_t known = 0;
  for (size_t index = 1; index < heap_.span_count(); ++index) {
    if (heap_.by_index(index).kind != davit::alloc::kUnused) ++known;
  }
  if (known != in_ranges) return false;
  for (uint32_t kind = 0; kind < ClassSet::kCapacity; ++kind) {
    const SpanId head = heap_.first_of(kind);
    const bool is_listed = head != 0 && kind != davit::alloc::SpanHeap::kLast;
    if (heap_.classes().contains(kind) != is_listed) return false;
    SpanId previous = 0;
    for (SpanId id = head; id != 0; id = heap_[id].list_next) {
      if (heap_[id].kind != kind || heap_[id].list_previous != previous) return false;
      previous = id;
    }
  }
  return true;
}
