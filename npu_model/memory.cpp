#include "npu_model/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/checked.hpp"

namespace davit::npu {
namespace {

// Made-up addresses of a memory without backing begin here: canonical, never mapped by Linux.
constexpr uintptr_t kFakeBase = uintptr_t{1} << 56;

uintptr_t number(const void* address) {
  return reinterpret_cast<uintptr_t>(address);
}

}  // namespace

Memory::Memory(uint64_t capacity_bytes, bool backed)
    : capacity_(capacity_bytes / kGranule * kGranule), backed_(backed) {
  if (capacity_ > 0) holes_.emplace(0, capacity_);
}

Memory::~Memory() {
  if (!backed_) return;
  for (const auto& [address, block] : blocks_) {
    std::free(reinterpret_cast<void*>(address));  // NOLINT(performance-no-int-to-ptr): map key.
  }
  for (const Quarantined& entry : quarantine_) std::free(entry.address);
}

Status Memory::out_of_memory(uint64_t bytes, const std::string& owner) const {
  std::map<std::string_view, uint64_t> by_owner;
  for (const auto& [address, block] : blocks_) by_owner[block.owner] += block.reserved_bytes;
  std::vector<std::pair<uint64_t, std::string_view>> largest;
  for (const auto& [name, size] : by_owner) largest.emplace_back(size, name);
  std::sort(largest.begin(), largest.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::string owners;
  for (size_t i = 0; i < std::min<size_t>(largest.size(), 3); ++i) {
    owners +=
        fmt::format("{}{} ({} bytes)", i == 0 ? "" : ", ", largest[i].second, largest[i].first);
  }
  return Status(ErrorDetail{
      .code = DVT_OUT_OF_MEMORY,
      .stage = DVT_STAGE_RUN,
      .message = fmt::format("device memory (HBM) exhausted: {} asks for {} bytes", owner, bytes),
      .expected = fmt::format("at most {} bytes in one piece", largest_hole_bytes()),
      .got = fmt::format("{} of {} bytes live in {} blocks", live_, capacity_, blocks_.size()),
      .hint = owners.empty() ? "" : "largest owners: " + owners});
}

Result<std::byte*> Memory::allocate(uint64_t bytes, uint64_t serial, std::string owner) {
  const auto reserved = checked_align(std::max<uint64_t>(bytes, 1), kGranule);
  if (!reserved) return out_of_memory(bytes, owner);
  const auto hole = std::find_if(holes_.begin(), holes_.end(),
                                 [&](const auto& entry) { return entry.second >= *reserved; });
  if (hole == holes_.end()) return out_of_memory(bytes, owner);

  const uint64_t offset = hole->first;
  void* address = nullptr;
  if (backed_) {
    if (posix_memalign(&address, kGranule, *reserved) != 0) {
      return Status(DVT_OUT_OF_MEMORY, DVT_STAGE_RUN,
                    fmt::format("host memory exhausted: {} bytes behind device memory of {}",
                                *reserved, owner));
    }
    std::memset(address, kPoison, *reserved);
  } else {
    address = reinterpret_cast<void*>(kFakeBase + offset);  // NOLINT(performance-no-int-to-ptr)
  }
  const uint64_t rest = hole->second - *reserved;
  holes_.erase(hole);
  if (rest > 0) holes_.emplace(offset + *reserved, rest);
  blocks_.emplace(number(address), Block{offset, bytes, *reserved, serial, std::move(owner)});
  live_ += *reserved;
  peak_ = std::max(peak_, live_);
  return static_cast<std::byte*>(address);
}

Status Memory::release(const void* address) {
  const auto it = blocks_.find(number(address));
  if (it == blocks_.end()) {
    const Block* inside = find(address, 1);
    const std::string reason =
        inside != nullptr ? fmt::format("inside the block of {}, not its start", inside->owner)
                          : explain(address, 1);
    return Status(DVT_INVALID_ARGUMENT, DVT_STAGE_RUN,
                  fmt::format("free of {}: {}", fmt::ptr(address), reason));
  }
  Block block = std::move(it->second);
  blocks_.erase(it);
  live_ -= block.reserved_bytes;

  auto next = holes_.lower_bound(block.offset);
  uint64_t begin = block.offset;
  uint64_t size = block.reserved_bytes;
  if (next != holes_.end() && next->first == begin + size) {
    size += next->second;
    next = holes_.erase(next);
  }
  if (next != holes_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == begin) {
      begin = previous->first;
      size += previous->second;
      holes_.erase(previous);
    }
  }
  holes_.emplace(begin, size);

  if (graves_.insert_or_assign(number(address), std::move(block.owner)).second) {
    grave_order_.push_back(number(address));
    if (grave_order_.size() > kGravesMax) {
      graves_.erase(grave_order_.front());
      grave_order_.pop_front();
    }
  }
  if (backed_) {
    quarantine(reinterpret_cast<std::byte*>(number(address)),  // NOLINT(performance-no-int-to-ptr)
               block.reserved_bytes);
  }
  return {};
}

void Memory::quarantine(std::byte* address, uint64_t bytes) {
  std::memset(address, kPoison, bytes);
  quarantine_.push_back({address, bytes});
  quarantined_ += bytes;
  while (quarantined_ > kQuarantineBytes) {
    quarantined_ -= quarantine_.front().bytes;
    std::free(quarantine_.front().address);
    quarantine_.pop_front();
  }
}

const Block* Memory::find(const void* address, uint64_t bytes) const {
  auto it = blocks_.upper_bound(number(address));
  if (it == blocks_.begin()) return nullptr;
  --it;
  return in_range(number(address) - it->first, bytes, it->second.bytes) ? &it->second : nullptr;
}

bool Memory::overlaps(const void* address, uint64_t bytes) const {
  if (bytes == 0) return false;
  const auto end = checked_add(number(address), bytes);
  auto it = end ? blocks_.lower_bound(*end) : blocks_.end();
  if (it == blocks_.begin()) return false;
  --it;
  return it->first + it->second.reserved_bytes > number(address);
}

std::string Memory::explain(const void* address, uint64_t bytes) const {
  auto it = blocks_.upper_bound(number(address));
  if (it != blocks_.begin()) {
    --it;
    const uint64_t start = number(address) - it->first;
    if (start < it->second.bytes) {
      return fmt::format("{} bytes from byte {} reach beyond the block of {} ({} bytes)", bytes,
                         start, it->second.owner, it->second.bytes);
    }
  }
  if (const auto grave = graves_.find(number(address)); grave != graves_.end()) {
    return fmt::format("freed memory (was of {})", grave->second);
  }
  return "not device memory";
}

uint64_t Memory::largest_hole_bytes() const {
  uint64_t largest = 0;
  for (const auto& [offset, size] : holes_) largest = std::max(largest, size);
  return largest;
}

}  // namespace davit::npu
