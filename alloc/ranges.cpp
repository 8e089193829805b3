#include "alloc/ranges.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/checked.hpp"

namespace davit::alloc {
namespace {

void* pointer(uint64_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

bool is_set(const uint64_t* pages, uint64_t page) {
  return (pages[page / 64] >> (page % 64) & 1) != 0;
}

void set(uint64_t* pages, uint64_t page, bool backed) {
  const uint64_t bit = uint64_t{1} << (page % 64);
  pages[page / 64] = backed ? pages[page / 64] | bit : pages[page / 64] & ~bit;
}

// First page of [page, end) whose state is `backed`, or end.
uint64_t next_page(const uint64_t* pages, uint64_t page, uint64_t end, bool backed) {
  while (page < end) {
    const uint64_t word = (backed ? pages[page / 64] : ~pages[page / 64]) >> (page % 64);
    if (word != 0) return std::min(end, page + static_cast<uint64_t>(std::countr_zero(word)));
    page = (page / 64 + 1) * 64;
  }
  return end;
}

}  // namespace

Ranges::Ranges(MetadataMemory& memory, const DvtMemorySource& source, uint64_t page_bytes)
    : memory_(&memory), source_(source), page_bytes_(page_bytes), ranges_(memory), pins_(memory) {}

Ranges::~Ranges() {
  for (const Range& range : ranges_) give_back(range);
}

void Ranges::give_back(const Range& range) {
  if (range.pages != nullptr) memory_->release(range.pages, page_words(range) * sizeof(uint64_t));
  source_.release(source_.user, pointer(range.base), range.bytes);
}

void Ranges::grew(uint64_t bytes) {
  reserved_ += bytes;
  reserved_peak_ = std::max(reserved_peak_, reserved_);
  ++grow_count_;
}

DvtCode Ranges::add(uint64_t bytes, uint64_t alignment, Range** out) {
  if (!ranges_.reserve(ranges_.size() + 1)) return DVT_OUT_OF_MEMORY;
  Range range{.base = 0, .bytes = bytes, .pages = nullptr, .refused_bytes = 0, .first_span = 0};
  const size_t map_bytes = commits() ? page_words(range) * sizeof(uint64_t) : 0;
  if (map_bytes > 0) {
    range.pages = static_cast<uint64_t*>(memory_->allocate(map_bytes));
    if (range.pages == nullptr) return DVT_OUT_OF_MEMORY;
    std::memset(range.pages, 0, map_bytes);
  }
  void* base = nullptr;
  const uint64_t aligned_to = std::max(alignment, commits() ? page_bytes_ : alignment);
  const DvtCode code = source_.reserve(source_.user, bytes, aligned_to, &base);
  if (code != DVT_OK) {
    memory_->release(range.pages, map_bytes);
    return code;
  }
  range.base = reinterpret_cast<uint64_t>(base);
  const auto* place =
      std::upper_bound(ranges_.begin(), ranges_.end(), range.base,
                       [](uint64_t address, const Range& other) { return address < other.base; });
  const auto index = static_cast<size_t>(place - ranges_.begin());
  ranges_.insert(index, range);
  if (!commits()) grew(bytes);
  *out = &ranges_[index];
  return DVT_OK;
}

void Ranges::remove(const Range& range) {
  const auto index = static_cast<size_t>(&range - ranges_.begin());
  reserved_ -= backed_bytes(range);
  give_back(range);
  ranges_.erase(index);
}

const Range* Ranges::range_at(uint64_t address) const {
  const auto* after =
      std::upper_bound(ranges_.begin(), ranges_.end(), address,
                       [](uint64_t value, const Range& range) { return value < range.base; });
  if (after == ranges_.begin()) return nullptr;
  const Range* range = after - 1;
  return address - range->base < range->bytes ? range : nullptr;
}

Range* Ranges::range_at(uint64_t address) {
  return const_cast<Range*>(std::as_const(*this).range_at(address));
}

uint64_t Ranges::unbacked_bytes(const Range& range, uint64_t address, uint64_t bytes) const {
  if (range.pages == nullptr || bytes == 0) return 0;
  const uint64_t end = (address - range.base + bytes - 1) / page_bytes_ + 1;
  uint64_t missing = 0;
  uint64_t page = (address - range.base) / page_bytes_;
  while ((page = next_page(range.pages, page, end, false)) < end) {
    const uint64_t stop = next_page(range.pages, page, end, true);
    missing += stop - page;
    page = stop;
  }
  return missing * page_bytes_;
}

uint64_t Ranges::longest_backed(const Range& range, uint64_t address, uint64_t bytes) const {
  if (range.pages == nullptr) return bytes;
  const uint64_t begin = address - range.base;
  const uint64_t last = (begin + bytes - 1) / page_bytes_ + 1;
  uint64_t longest = 0;
  uint64_t page = begin / page_bytes_;
  while ((page = next_page(range.pages, page, last, true)) < last) {
    const uint64_t stop = next_page(range.pages, page, last, false);
    const uint64_t from = std::max(begin, page * page_bytes_);
    const uint64_t to = std::min(begin + bytes, stop * page_bytes_);
    longest = std::max(longest, to - from);
    page = stop;
  }
  return longest;
}

DvtCode Ranges::back(const Range& range, uint64_t address, uint64_t bytes) {
  if (range.pages == nullptr || bytes == 0) return DVT_OK;
  const uint64_t end = (address - range.base + bytes - 1) / page_bytes_ + 1;
  uint64_t page = (address - range.base) / page_bytes_;
  while ((page = next_page(range.pages, page, end, false)) < end) {
    const uint64_t stop = next_page(range.pages, page, end, true);
    const uint64_t taken = (stop - page) * page_bytes_;
    const DvtCode code =
        source_.commit(source_.user, pointer(range.base + page * page_bytes_), taken);
    if (code != DVT_OK) return code;
    for (; page < stop; ++page) set(range.pages, page, true);
    grew(taken);
  }
  return DVT_OK;
}

uint64_t Ranges::unback(const Range& range, uint64_t address, uint64_t bytes, uint64_t most_bytes) {
  if (range.pages == nullptr) return 0;
  const uint64_t begin = (address - range.base + page_bytes_ - 1) / page_bytes_;
  uint64_t page = (address - range.base + bytes) / page_bytes_;
  const auto removable = [&](uint64_t candidate) {
    return is_set(range.pages, candidate) &&
           !is_pinned(range.base + candidate * page_bytes_, page_bytes_);
  };
  uint64_t taken = 0;
  while (page > begin && taken < most_bytes) {
    if (!removable(page - 1)) {
      --page;
      continue;
    }
    const uint64_t stop = page;
    while (page > begin && taken + (stop - page) * page_bytes_ < most_bytes && removable(page - 1))
      --page;
    const uint64_t run = (stop - page) * page_bytes_;
    if (source_.decommit(source_.user, pointer(range.base + page * page_bytes_), run) != DVT_OK) {
      return taken;  // Still backed: it stays ours.
    }
    for (uint64_t gone = page; gone < stop; ++gone) set(range.pages, gone, false);
    reserved_ -= run;
    taken += run;
  }
  return taken;
}

DvtCode Ranges::pin(uint64_t address, uint64_t bytes) {
  const Range* range = range_at(address);
  if (range == nullptr || !in_range(address - range->base, bytes, range->bytes)) {
    return DVT_INVALID_ARGUMENT;
  }
  if (unbacked_bytes(*range, address, bytes) != 0) return DVT_INVALID_ARGUMENT;
  return pins_.push_back({address, address + bytes}) ? DVT_OK : DVT_OUT_OF_MEMORY;
}

DvtCode Ranges::unpin(uint64_t address, uint64_t bytes) {
  for (size_t i = 0; i < pins_.size(); ++i) {
    if (pins_[i].begin != address || pins_[i].end != address + bytes) continue;
    pins_.erase(i);
    return DVT_OK;
  }
  return DVT_INVALID_ARGUMENT;
}

bool Ranges::is_pinned(uint64_t address, uint64_t bytes) const {
  return std::any_of(pins_.begin(), pins_.end(), [&](const Pin& pin) {
    return pin.begin < address + bytes && address < pin.end;
  });
}

}  // namespace davit::alloc
