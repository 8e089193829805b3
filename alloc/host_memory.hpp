// host_memory.hpp: what one engine (an image, an executor) keeps on the host, on an account of its
// own, so that what is left over and what there was at most has a name.
//
// An account is a heap, too: small objects lie in slabs of its own (object_pools.hpp) that they
// share with nobody else's, large ones in blocks of malloc's; in a build with mimalloc
// (-Dmimalloc=true) all of them in a heap of mimalloc's. Under AddressSanitizer every object is a
// block of malloc's, so that it has its guards.
//
// Threads  Any: a lock, which nobody else wants as a rule, guards the slabs. Counters are relaxed:
//          each is one moment's truth.
// Trust    Sizes and alignments come back as they were asked for: containers, base/resource.hpp and
//          metadata() see to it.
// Memory   Only what is kept: nothing of a run's hot path comes from here. An account must outlive
//          what was taken from it; slabs go with it, whatever is left in them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <utility>

#include "alloc/caching_allocator.h"
#include "alloc/object_pools.hpp"
#include "davit/davit.h"

namespace davit::alloc {

class HostMemory final : public std::pmr::memory_resource {
 public:
  // Of an engine that is an object of `engine_bytes`, which counts as the first on the account.
  explicit HostMemory(size_t engine_bytes = 0);
  ~HostMemory() override;
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  // "malloc", or mimalloc and its version.
  static const char* allocator_name();

  // All but mapped_bytes.
  void statistics(DvtHostMemory& out) const;

  // For metadata of caching allocators; valid as long as this.
  [[nodiscard]] DvtMetadataMemory metadata();

  // Null when the host has none; `alignment` is a power of two.
  [[nodiscard]] void* take(size_t bytes, size_t alignment) noexcept;
  void give_back(void* address, size_t bytes, size_t alignment) noexcept;

 private:
  // For containers: std::bad_alloc when the host has none.
  void* do_allocate(size_t bytes, size_t alignment) override;
  void do_deallocate(void* address, size_t bytes, size_t alignment) override {
    give_back(address, bytes, alignment);
  }
  [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override {
    return this == &other;
  }

  // Larger ones are malloc's own.
  static constexpr size_t kPooledMax = size_t{4} << 10;
  [[nodiscard]] static bool is_pooled(size_t bytes, size_t alignment);
  [[nodiscard]] void* take_pooled(size_t bytes) noexcept;

  std::atomic<uint64_t> live_bytes_{0}, live_peak_bytes_{0}, live_objects_{0}, allocations_{0};
  std::atomic<uint64_t> unpooled_bytes_{0};
  void* heap_ = nullptr;  // Of mimalloc; null: malloc.
  mutable std::mutex pools_mutex_;
  ObjectPools pools_;
};

}  // namespace davit::alloc
