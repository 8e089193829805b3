// host_memory.hpp: what one engine (an image, an executor) keeps on the host, on an account of its
// own, so that what is left over and what there was at most has a name.
//
// In a build with mimalloc (-Dmimalloc=enabled) the account is a heap of mimalloc's as well: its
// objects share pages with nobody else's, and whatever is left in it goes with it. Otherwise
// objects come from malloc, and only the figures are the account's.
//
// Threads  Any. Counters are relaxed: each is one moment's truth.
// Trust    Sizes come back as they were asked for: containers and MetadataMemory see to it.
// Memory   Only what is kept: nothing of a run's hot path comes from here. An account must outlive
//          what was taken from it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <utility>

#include "alloc/caching_allocator.h"
#include "davit/davit.h"

namespace davit::alloc {

class HostMemory final : public std::pmr::memory_resource {
 public:
  HostMemory();
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

  std::atomic<uint64_t> live_bytes_{0}, live_peak_bytes_{0}, live_objects_{0}, allocations_{0};
  void* heap_ = nullptr;  // Of mimalloc; null: malloc.
};

}  // namespace davit::alloc
