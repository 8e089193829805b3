#include "alloc/ranges.hpp"

#include <algorithm>

#include "base/address_sanitizer.h"

namespace davit::alloc {
namespace {

void* pointer(uint64_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

bool begins_after(uint64_t address, const Range& range) {
  return address < range.base;
}

}  // namespace

Ranges::~Ranges() {
  for (const Range& range : ranges_) give_back(range);
}

void Ranges::grew(uint64_t bytes) {
  reserved_ += bytes;
  reserved_peak_ = std::max(reserved_peak_, reserved_);
  ++grow_count_;
}

DvtCode Ranges::add(uint64_t bytes, uint64_t alignment, Range** out) {
  if (!ranges_.reserve(ranges_.size() + 1)) return DVT_OUT_OF_MEMORY;
  void* base = nullptr;
  const DvtCode code = source_.reserve(source_.user, bytes, alignment, &base);
  if (code != DVT_OK) return code;
  const auto address = reinterpret_cast<uint64_t>(base);
  const auto* place = std::upper_bound(ranges_.begin(), ranges_.end(), address, begins_after);
  const auto index = static_cast<size_t>(place - ranges_.begin());
  ranges_.insert(
      index,
      {.base = address, .bytes = bytes, .refused_bytes = 0, .touched_bytes = 0, .first_span = 0});
  if (!commits()) grew(bytes);
  *out = &ranges_[index];
  return DVT_OK;
}

// Somebody else will be given these addresses. What was never backed was never poisoned.
void Ranges::give_back(const Range& range) {
  dvt_unpoison(pointer(range.base), range.touched_bytes);
  source_.release(source_.user, pointer(range.base), range.bytes);
}

void Ranges::remove(const Range& range) {
  if (!commits()) reserved_ -= range.bytes;
  give_back(range);
  ranges_.erase(static_cast<size_t>(&range - ranges_.begin()));
}

Range* Ranges::range_at(uint64_t address) {
  Range* after = std::upper_bound(ranges_.begin(), ranges_.end(), address, begins_after);
  if (after == ranges_.begin()) return nullptr;
  Range* range = after - 1;
  return address - range->base < range->bytes ? range : nullptr;
}

DvtCode Ranges::commit(uint64_t address, uint64_t bytes) {
  const DvtCode code = source_.commit(source_.user, pointer(address), bytes);
  if (code != DVT_OK) return code;
  grew(bytes);
  Range* range = range_at(address);
  range->touched_bytes = std::max(range->touched_bytes, address + bytes - range->base);
  return DVT_OK;
}

bool Ranges::decommit(uint64_t address, uint64_t bytes) {
  if (source_.decommit(source_.user, pointer(address), bytes) != DVT_OK) return false;
  reserved_ -= bytes;
  return true;
}

DvtCode Ranges::pin(uint64_t address, uint64_t bytes) {
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
