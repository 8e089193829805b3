#include "npu_model/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/checked.hpp"

namespace davit::npu {
namespace {

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
  for (const auto& [address, block] : blocks_) std::free(block.address);
  for (const Quarantined& entry : quarantine_) std::free(entry.address);
}

Status Memory::out_of_memory(uint64_t bytes, const std::string& owner) const {
  std::map<std::string_view, uint64_t> by_owner;
  for (const auto& [address, block] : blocks_) {
    if (block.freed_serial == 0) by_owner[block.owner] += block.reserved_bytes;
  }
  std::vector<std::pair<uint64_t, std::string_view>> largest;
  largest.reserve(by_owner.size());
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
      .got = fmt::format("{} of {} bytes live in {} blocks", live_, capacity_, block_count()),
      .hint = owners.empty() ? "" : "largest owners: " + owners});
}

Result<std::byte*> Memory::allocate(uint64_t bytes, std::string owner) {
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
    // Addresses are never used twice, as little as blocks with backing share host memory.
    address = reinterpret_cast<void*>(next_fake_);  // NOLINT(performance-no-int-to-ptr)
    next_fake_ += *reserved;
  }
  const uint64_t rest = hole->second - *reserved;
  holes_.erase(hole);
  if (rest > 0) holes_.emplace(offset + *reserved, rest);

  Block& block = blocks_[number(address)];
  block = {.offset = offset,
           .bytes = bytes,
           .reserved_bytes = *reserved,
           .owner = std::move(owner),
           .address = static_cast<std::byte*>(address),
           .history = {}};
  for (Block* freed : freed_) {
    const bool apart =
        freed->offset >= offset + *reserved || offset >= freed->offset + freed->reserved_bytes;
    if (apart) continue;
    freed->aliases.push_back(&block);
    block.aliases.push_back(freed);
  }
  live_ += *reserved;
  peak_ = std::max(peak_, live_);
  return block.address;
}

Status Memory::release(const void* address, uint64_t serial) {
  const auto it = blocks_.find(number(address));
  if (it == blocks_.end() || it->second.freed_serial != 0) {
    const Block* inside = at(address);
    const std::string reason =
        inside != nullptr && inside->freed_serial == 0
            ? fmt::format("inside the block of {}, not its start", inside->owner)
            : explain(address, 1);
    return Status(DVT_INVALID_ARGUMENT, DVT_STAGE_RUN,
                  fmt::format("free of {}: {}", fmt::ptr(address), reason));
  }
  Block& block = it->second;
  block.freed_serial = serial;
  freed_.push_back(&block);
  live_ -= block.reserved_bytes;
  give_back(block.offset, block.reserved_bytes);
  return {};
}

// Returns a range to the holes and merges it with its neighbours.
void Memory::give_back(uint64_t offset, uint64_t bytes) {
  auto next = holes_.lower_bound(offset);
  if (next != holes_.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = holes_.erase(next);
  }
  if (next != holes_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      offset = previous->first;
      bytes += previous->second;
      holes_.erase(previous);
    }
  }
  holes_.emplace(offset, bytes);
}

void Memory::reap(uint64_t oldest_serial) {
  const auto end = std::find_if(freed_.begin(), freed_.end(), [&](const Block* block) {
    return block->freed_serial >= oldest_serial;
  });
  for (auto it = freed_.begin(); it != end; ++it) bury(**it);
  freed_.erase(freed_.begin(), end);
}

// Remembers the owner, poisons, and forgets the block.
void Memory::bury(const Block& block) {
  const uintptr_t key = number(block.address);
  for (Block* alias : block.aliases) std::erase(alias->aliases, &block);
  if (graves_.insert_or_assign(key, block.owner).second) {
    grave_order_.push_back(key);
    if (grave_order_.size() > kGravesMax) {
      graves_.erase(grave_order_.front());
      grave_order_.pop_front();
    }
  }
  if (backed_) quarantine(block.address, block.reserved_bytes);
  blocks_.erase(key);
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

const Block* Memory::at(const void* address) const {
  auto it = blocks_.upper_bound(number(address));
  if (it == blocks_.begin()) return nullptr;
  --it;
  return number(address) - it->first < std::max<uint64_t>(it->second.bytes, 1) ? &it->second
                                                                               : nullptr;
}

const Block* Memory::find(const void* address, uint64_t bytes, uint64_t serial) const {
  const Block* block = at(address);
  if (block == nullptr) return nullptr;
  if (block->freed_serial != 0 && block->freed_serial < serial) return nullptr;
  return in_range(number(address) - number(block->address), bytes, block->bytes) ? block : nullptr;
}

Block* Memory::find(const void* address, uint64_t bytes, uint64_t serial) {
  return const_cast<Block*>(std::as_const(*this).find(address, bytes, serial));
}

Status Memory::check_range(const void* address, uint64_t bytes) const {
  if (find(address, bytes, UINT64_MAX) != nullptr) return {};
  return Status(DVT_INVALID_ARGUMENT, DVT_STAGE_BIND,
                fmt::format("{}: {}", fmt::ptr(address), explain(address, bytes)));
}

void Memory::note_write(const void* address, const Access& task) {
  const auto it = blocks_.upper_bound(number(address));
  if (it == blocks_.begin() || at(address) == nullptr) return;
  Block& writer = std::prev(it)->second;
  writer.written = true;
  for (Block* alias : writer.aliases) {
    const uint64_t begin = std::max(alias->offset, writer.offset);
    const uint64_t end =
        std::min(alias->offset + alias->reserved_bytes, writer.offset + writer.reserved_bytes);
    std::memset(alias->address + (begin - alias->offset), kPoison, end - begin);
    // Bytes that nobody wrote are nobody's loss: old owners write before new ones do.
    if (alias->written) {
      alias->clobbered_by = fmt::format("{} (by {})", writer.owner, describe(task));
    }
  }
}

bool Memory::overlaps(const void* address, uint64_t bytes) const {
  if (bytes == 0) return false;
  const auto end = checked_add(number(address), bytes);
  auto it = end ? blocks_.lower_bound(*end) : blocks_.end();
  if (it == blocks_.begin()) return false;
  --it;
  return it->second.freed_serial == 0 && it->first + it->second.reserved_bytes > number(address);
}

std::string Memory::explain(const void* address, uint64_t bytes) const {
  if (const Block* block = at(address)) {
    if (block->freed_serial != 0) return fmt::format("freed memory (was of {})", block->owner);
    return fmt::format("{} bytes from byte {} reach beyond the block of {} ({} bytes)", bytes,
                       number(address) - number(block->address), block->owner, block->bytes);
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
