// checker.hpp: an allocator's independent judge: it knows only what was asked and what was given,
// and keeps that in an ordered map. Also a source that records, poisons and fails.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "alloc/caching_allocator.h"

namespace davit::test {

class Checker {
 public:
  explicit Checker(uint64_t alignment = 64) : alignment_(alignment) {}

  // Why the block must not have been given, or nothing.
  std::optional<std::string> gave(const void* address, uint64_t bytes) {
    const auto begin = reinterpret_cast<uint64_t>(address);
    const uint64_t size = (bytes < 1 ? 1 : bytes);
    if (begin % alignment_ != 0) return "misaligned";
    const auto next = blocks_.lower_bound(begin);
    if (next != blocks_.end() && next->first < begin + size) return "overlaps the next block";
    if (next != blocks_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second > begin) return "overlaps the block before";
    }
    blocks_.emplace(begin, size);
    live_ += (size + alignment_ - 1) / alignment_ * alignment_;
    return std::nullopt;
  }
  void took(const void* address) {
    const auto block = blocks_.find(reinterpret_cast<uint64_t>(address));
    live_ -= (block->second + alignment_ - 1) / alignment_ * alignment_;
    blocks_.erase(block);
  }

  [[nodiscard]] uint64_t live_bytes() const { return live_; }
  [[nodiscard]] size_t live_blocks() const { return blocks_.size(); }
  [[nodiscard]] const std::map<uint64_t, uint64_t>& blocks() const { return blocks_; }

 private:
  uint64_t alignment_;
  uint64_t live_ = 0;
  std::map<uint64_t, uint64_t> blocks_;  // Address to bytes.
};

// A source of aligned host memory in whole ranges, or of address space with pages. Counts, and
// fails at the chosen call.
class FakeSource {
 public:
  explicit FakeSource(bool commits = false, uint64_t page_bytes = 4096)
      : commits_(commits), page_bytes_(page_bytes) {}
  ~FakeSource() {
    for (const auto& [address, bytes] : ranges_) std::free(reinterpret_cast<void*>(address));
  }
  FakeSource(const FakeSource&) = delete;
  FakeSource& operator=(const FakeSource&) = delete;

  DvtMemorySource source() {
    DvtMemorySource out{.name = "the fake",
                        .user = this,
                        .reserve = reserve,
                        .release = release,
                        .page_bytes = 0,
                        .commit = nullptr,
                        .decommit = nullptr};
    if (commits_) {
      out.page_bytes = page_bytes_;
      out.commit = commit;
      out.decommit = decommit;
    }
    return out;
  }

  // The `call`-th call from now on fails (1: the next); 0: none.
  void fail_at(uint64_t call) { fail_in_ = call; }
  void fail_always(bool fail) { fail_always_ = fail; }
  uint64_t capacity_bytes = UINT64_MAX;

  [[nodiscard]] uint64_t calls() const { return calls_; }
  [[nodiscard]] uint64_t backed_bytes() const { return backed_; }
  [[nodiscard]] uint64_t range_count() const { return ranges_.size(); }
  [[nodiscard]] bool covers(const void* address, uint64_t bytes) const {
    const auto begin = reinterpret_cast<uint64_t>(address);
    if (commits_) {
      for (uint64_t page = begin / page_bytes_; page <= (begin + bytes - 1) / page_bytes_; ++page) {
        if (pages_.count(page) == 0) return false;
      }
      return true;
    }
    const auto after = ranges_.upper_bound(begin);
    if (after == ranges_.begin()) return false;
    const auto& [base, size] = *std::prev(after);
    return begin + bytes <= base + size;
  }
  std::string misuse;  // The first one; empty: none.

 private:
  bool fails() {
    ++calls_;
    return fail_always_ || (fail_in_ != 0 && --fail_in_ == 0);
  }
  static DvtCode reserve(void* user, uint64_t bytes, uint64_t alignment, void** out) {
    auto& self = *static_cast<FakeSource*>(user);
    if (self.fails()) return DVT_OUT_OF_MEMORY;
    if (!self.commits_ && self.backed_ + bytes > self.capacity_bytes) return DVT_OUT_OF_MEMORY;
    void* address = nullptr;
    if (posix_memalign(&address, alignment, bytes) != 0) return DVT_OUT_OF_MEMORY;
    self.ranges_.emplace(reinterpret_cast<uint64_t>(address), bytes);
    if (!self.commits_) self.backed_ += bytes;
    *out = address;
    return DVT_OK;
  }
  static void release(void* user, void* address, uint64_t bytes) {
    auto& self = *static_cast<FakeSource*>(user);
    const auto range = self.ranges_.find(reinterpret_cast<uint64_t>(address));
    if (range == self.ranges_.end() || range->second != bytes) {
      self.misuse = "released what was not reserved";
      return;
    }
    if (!self.commits_) self.backed_ -= bytes;
    std::free(address);
    self.ranges_.erase(range);
    if (!self.commits_) return;
    const auto begin = reinterpret_cast<uint64_t>(address) / self.page_bytes_;
    for (uint64_t page = begin; page < begin + bytes / self.page_bytes_; ++page) {
      if (self.pages_.erase(page) > 0) self.backed_ -= self.page_bytes_;
    }
  }
  static DvtCode commit(void* user, void* address, uint64_t bytes) {
    auto& self = *static_cast<FakeSource*>(user);
    if (self.fails() || self.backed_ + bytes > self.capacity_bytes) return DVT_OUT_OF_MEMORY;
    const auto begin = reinterpret_cast<uint64_t>(address);
    if (begin % self.page_bytes_ != 0 || bytes % self.page_bytes_ != 0) self.misuse = "odd commit";
    for (uint64_t at = begin; at < begin + bytes; at += self.page_bytes_) {
      if (!self.pages_.emplace(at / self.page_bytes_, true).second) self.misuse = "committed twice";
    }
    self.backed_ += bytes;
    return DVT_OK;
  }
  static DvtCode decommit(void* user, void* address, uint64_t bytes) {
    auto& self = *static_cast<FakeSource*>(user);
    if (self.fails()) return DVT_INTERNAL;
    const auto begin = reinterpret_cast<uint64_t>(address);
    for (uint64_t at = begin; at < begin + bytes; at += self.page_bytes_) {
      if (self.pages_.erase(at / self.page_bytes_) == 0) self.misuse = "decommitted twice";
    }
    self.backed_ -= bytes;
    return DVT_OK;
  }

  bool commits_;
  uint64_t page_bytes_;
  uint64_t calls_ = 0;
  uint64_t fail_in_ = 0;
  bool fail_always_ = false;
  uint64_t backed_ = 0;
  std::map<uint64_t, uint64_t> ranges_;
  std::map<uint64_t, bool> pages_;
};

// malloc and free that count, and fail at the chosen call.
class FakeHost {
 public:
  DvtMetadataMemory memory() {
    return {this,
            [](void* user, size_t bytes) -> void* {
              auto& self = *static_cast<FakeHost*>(user);
              ++self.calls;
              if (self.fail_in != 0 && --self.fail_in == 0) return nullptr;
              auto* header = static_cast<Header*>(std::malloc(sizeof(Header) + bytes));
              header->bytes = bytes;
              ++self.live;
              self.bytes += bytes;
              return header + 1;
            },
            [](void* user, void* address) {
              Header* header = static_cast<Header*>(address) - 1;
              --static_cast<FakeHost*>(user)->live;
              static_cast<FakeHost*>(user)->bytes -= header->bytes;
              std::free(header);
            }};
  }
  uint64_t calls = 0;
  uint64_t fail_in = 0;
  int64_t live = 0;
  uint64_t bytes = 0;  // Live.

 private:
  struct alignas(16) Header {
    size_t bytes;
  };
};

struct AllocatorDeleter {
  void operator()(DvtAllocator* allocator) const { dvt_allocator_destroy(allocator); }
};
using AllocatorPointer = std::unique_ptr<DvtAllocator, AllocatorDeleter>;

inline AllocatorPointer make_allocator(const DvtAllocatorOptions& options) {
  DvtAllocator* allocator = nullptr;
  if (dvt_allocator_create(&options, &allocator) != DVT_OK) return nullptr;
  return AllocatorPointer(allocator);
}

inline DvtAllocatorOptions default_options() {
  DvtAllocatorOptions options;
  dvt_allocator_options_init(&options);
  return options;
}

inline DvtAllocatorStatistics statistics(const AllocatorPointer& allocator) {
  DvtAllocatorStatistics out;
  dvt_allocator_statistics(allocator.get(), &out);
  return out;
}

}  // namespace davit::test
