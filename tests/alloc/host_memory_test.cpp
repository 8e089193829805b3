// The account of what an engine keeps on the host.
#include "alloc/host_memory.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <memory_resource>
#include <thread>
#include <vector>

using davit::alloc::HostMemory;

namespace {

DvtHostMemory figures(const HostMemory& memory) {
  DvtHostMemory figures{};
  memory.statistics(figures);
  return figures;
}

}  // namespace

TEST_CASE("what is taken counts until it goes back, and the peak stays") {
  HostMemory memory, other;
  for (const size_t alignment : {1, 8, 16, 64, 4096}) {
    CAPTURE(alignment);
    void* a = memory.take(100, alignment);
    void* b = memory.take(0, alignment);
    REQUIRE(a != nullptr);
    REQUIRE(b != nullptr);
    CHECK(a != b);
    CHECK(reinterpret_cast<uintptr_t>(a) % alignment == 0);
    CHECK(reinterpret_cast<uintptr_t>(b) % alignment == 0);
    std::memset(a, 1, 100);
    CHECK(figures(memory).live_bytes == 100);
    CHECK(figures(memory).live_objects == 2);
    memory.give_back(a, 100, alignment);
    memory.give_back(b, 0, alignment);
    CHECK(figures(memory).live_bytes == 0);
    CHECK(figures(memory).live_objects == 0);
    CHECK(figures(memory).live_peak_bytes == 100);
  }
  CHECK(figures(memory).allocations == 10);
  CHECK(figures(other).allocations == 0);
  CHECK(memory.take(SIZE_MAX / 2, 16) == nullptr);
  CHECK(figures(memory).live_bytes == 0);
}

TEST_CASE("containers and metadata of allocators are on the account") {
  HostMemory memory;
  {
    std::pmr::vector<uint64_t> words({1, 2, 3}, &memory);
    CHECK(figures(memory).live_bytes == 3 * sizeof(uint64_t));
    words.resize(1000);
    CHECK(figures(memory).live_objects == 1);
  }
  CHECK(figures(memory).live_bytes == 0);
  const DvtMetadataMemory metadata = memory.metadata();
  DvtAllocatorOptions options;
  dvt_allocator_options_init(&options);
  options.metadata = &metadata;
  DvtAllocator* allocator = nullptr;
  REQUIRE(dvt_allocator_create(&options, &allocator) == DVT_OK);
  DvtBlock block;
  REQUIRE(dvt_allocator_acquire(allocator, 1000, 0, &block) == DVT_OK);
  DvtAllocatorStatistics statistics;
  dvt_allocator_statistics(allocator, &statistics);
  CHECK(figures(memory).live_bytes >= statistics.metadata_bytes);
  dvt_allocator_destroy(allocator);
  CHECK(figures(memory).live_bytes == 0);
  CHECK(figures(memory).live_objects == 0);
  metadata.release(metadata.user, nullptr);
  CHECK(metadata.allocate(metadata.user, SIZE_MAX) == nullptr);
}

// User report C11: threads end while what they took lives on, and others give it back.
TEST_CASE("any thread takes and gives back, also after the one that took has ended") {
  HostMemory memory;
  std::vector<void*> taken(4 * 1000);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (size_t j = 0; j < 1000; ++j) taken[i * 1000 + j] = memory.take(j + 1, 16);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(figures(memory).live_objects == 4000);
  for (size_t i = 0; i < taken.size(); ++i) memory.give_back(taken[i], i % 1000 + 1, 16);
  CHECK(figures(memory).live_bytes == 0);
  CHECK(figures(memory).live_peak_bytes == 4 * 1000 * 1001 / 2);
}
