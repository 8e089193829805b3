// The pool behind heap values: size classes, reuse, limit, statistics.
#include "exec/host_memory.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

namespace {

struct Destroyer {
  void operator()(DvtHostMemory* memory) const { dvt_host_memory_destroy(memory); }
};
using Pool = std::unique_ptr<DvtHostMemory, Destroyer>;

Pool make(uint64_t limit = 0) {
  Pool pool(dvt_host_memory_create(limit));
  REQUIRE(pool != nullptr);
  return pool;
}

DvtHostMemoryStatistics statistics(const Pool& pool) {
  DvtHostMemoryStatistics statistics;
  dvt_host_memory_statistics(pool.get(), &statistics);
  return statistics;
}

}  // namespace

TEST_CASE("blocks are aligned, writable and apart, whatever their size") {
  const Pool pool = make();
  std::vector<std::pair<unsigned char*, uint64_t>> blocks;
  for (const uint64_t bytes : {0, 1, 63, 64, 65, 72, 73, 127, 128, 129, 1000, 4096, 100000}) {
    auto* data = static_cast<unsigned char*>(dvt_host_memory_allocate(pool.get(), bytes));
    REQUIRE(data != nullptr);
    CHECK(reinterpret_cast<uintptr_t>(data) % 64 == 0);
    std::memset(data, static_cast<int>(blocks.size()), bytes);
    blocks.emplace_back(data, bytes);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (uint64_t at = 0; at < blocks[i].second; ++at) REQUIRE(blocks[i].first[at] == i);
  }
}

TEST_CASE("a class is at least the size, and at most an eighth larger") {
  for (uint64_t bytes = 65; bytes < 5000; ++bytes) {
    const Pool pool = make();
    REQUIRE(dvt_host_memory_allocate(pool.get(), bytes) != nullptr);
    const uint64_t taken = statistics(pool).live_bytes;
    CHECK(taken >= bytes);
    CHECK(taken <= bytes + bytes / 8 + 1);
  }
  for (const uint64_t bytes : {0, 1, 64}) {
    const Pool pool = make();
    REQUIRE(dvt_host_memory_allocate(pool.get(), bytes) != nullptr);
    CHECK(statistics(pool).live_bytes == 64);
  }
}

TEST_CASE("a freed block serves the next of its class") {
  const Pool pool = make();
  void* first = dvt_host_memory_allocate(pool.get(), 1000);
  dvt_host_memory_free(pool.get(), first);
  CHECK(statistics(pool).live_bytes == 0);
  CHECK(statistics(pool).cached_bytes == 1024);
  CHECK(dvt_host_memory_allocate(pool.get(), 1024) == first);
  CHECK(dvt_host_memory_allocate(pool.get(), 1024) != first);
  const DvtHostMemoryStatistics now = statistics(pool);
  CHECK(now.allocations == 3);
  CHECK(now.system_allocations == 2);
  CHECK(now.live_bytes == 2048);
  CHECK(now.cached_bytes == 0);
  CHECK(now.peak_live_bytes == 2048);
  CHECK(now.peak_reserved_bytes == 2048);
}

TEST_CASE("free_all frees what is in use, once, and keeps it for later") {
  const Pool pool = make();
  std::set<void*> blocks;
  for (int i = 0; i < 10; ++i) blocks.insert(dvt_host_memory_allocate(pool.get(), 100));
  CHECK(blocks.size() == 10);
  dvt_host_memory_free(pool.get(), *blocks.begin());
  dvt_host_memory_free_all(pool.get());
  CHECK(statistics(pool).live_bytes == 0);
  CHECK(statistics(pool).cached_bytes == 10 * 104);
  dvt_host_memory_free_all(pool.get());
  for (int i = 0; i < 10; ++i) CHECK(blocks.contains(dvt_host_memory_allocate(pool.get(), 100)));
  CHECK(statistics(pool).system_allocations == 10);
}

TEST_CASE("the limit holds for live and cached blocks; cached ones make room") {
  const Pool pool = make(1024);
  void* small = dvt_host_memory_allocate(pool.get(), 512);
  REQUIRE(small != nullptr);
  CHECK(dvt_host_memory_allocate(pool.get(), 1024) == nullptr);
  CHECK(statistics(pool).live_bytes == 512);
  dvt_host_memory_free(pool.get(), small);
  CHECK(dvt_host_memory_allocate(pool.get(), 1024) != nullptr);
  CHECK(statistics(pool).cached_bytes == 0);
  CHECK(statistics(pool).peak_reserved_bytes == 1024);
  CHECK(dvt_host_memory_allocate(pool.get(), 1) == nullptr);
  // What failed counts for nothing.
  CHECK(statistics(pool).allocations == 2);
}

TEST_CASE("sizes that no memory has are refused") {
  const Pool pool = make();
  for (const uint64_t bytes : {UINT64_MAX, UINT64_MAX / 2, uint64_t{1} << 63,
                               (uint64_t{1} << 62) + 1, uint64_t{1} << 62, uint64_t{1} << 61}) {
    CHECK(dvt_host_memory_allocate(pool.get(), bytes) == nullptr);
  }
  CHECK(statistics(pool).live_bytes == 0);
}

TEST_CASE("what is kept is given back when it is more than was ever in use") {
  const Pool pool = make();
  for (const uint64_t bytes : {1000, 2000, 4000, 8000}) {
    dvt_host_memory_free(pool.get(), dvt_host_memory_allocate(pool.get(), bytes));
  }
  const DvtHostMemoryStatistics now = statistics(pool);
  CHECK(now.live_bytes == 0);
  CHECK(now.cached_bytes < 1024 + 2048 + 4096 + 8192);
}

TEST_CASE("work that repeats comes to allocate nothing, though it uses many classes in turn") {
  const Pool pool = make();
  const auto work = [&] {
    for (uint64_t bytes = 1 << 20; bytes > 1000; bytes -= bytes / 9) {
      dvt_host_memory_free(pool.get(), dvt_host_memory_allocate(pool.get(), bytes));
    }
  };
  for (int i = 0; i < 20; ++i) work();
  const uint64_t before = statistics(pool).system_allocations;
  for (int i = 0; i < 100; ++i) work();
  CHECK(statistics(pool).system_allocations == before);
}

TEST_CASE("null is nothing to free") {
  const Pool pool = make();
  dvt_host_memory_free(pool.get(), nullptr);
  dvt_host_memory_destroy(nullptr);
  CHECK(statistics(pool).live_bytes == 0);
}
