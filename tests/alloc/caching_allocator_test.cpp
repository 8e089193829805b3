// One thing at a time: sizes, merging, limits, trimming, pinning, texts.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/alloc/checker.hpp"

using davit::test::AllocatorPointer;
using davit::test::default_options;
using davit::test::FakeSource;
using davit::test::make_allocator;
using davit::test::statistics;

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

DvtBlock acquire(const AllocatorPointer& allocator, uint64_t bytes, uint32_t owner = 0) {
  DvtBlock block{};
  REQUIRE(dvt_allocator_acquire(allocator.get(), bytes, owner, &block) == DVT_OK);
  return block;
}

void release(const AllocatorPointer& allocator, const DvtBlock& block) {
  REQUIRE(dvt_allocator_release(allocator.get(), block.id) == DVT_OK);
}

}  // namespace

TEST_CASE("options that make no sense are refused") {
  DvtAllocator* out = nullptr;
  DvtAllocatorOptions options = default_options();
  options.alignment = 96;
  CHECK(dvt_allocator_create(&options, &out) == DVT_INVALID_ARGUMENT);
  options.alignment = 32;
  CHECK(dvt_allocator_create(&options, &out) == DVT_INVALID_ARGUMENT);
  options = default_options();
  options.struct_size = 8;
  CHECK(dvt_allocator_create(&options, &out) == DVT_INVALID_ARGUMENT);
  options = default_options();
  DvtMemorySource half = dvt_host_source(nullptr);
  half.decommit = nullptr;
  options.source = &half;
  CHECK(dvt_allocator_create(&options, &out) == DVT_INVALID_ARGUMENT);
  CHECK(out == nullptr);
  dvt_allocator_destroy(nullptr);
}

TEST_CASE("memory of the host can be written, and comes back") {
  const AllocatorPointer allocator = make_allocator(default_options());
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{64}, uint64_t{65}, 100 * kMiB}) {
    const DvtBlock block = acquire(allocator, bytes);
    CHECK(reinterpret_cast<uint64_t>(block.address) % 64 == 0);
    std::memset(block.address, 7, bytes);
    CHECK(dvt_allocator_block_bytes(allocator.get(), block.id) >= bytes);
    release(allocator, block);
  }
  CHECK(statistics(allocator).live_bytes == 0);
  CHECK(statistics(allocator).reserved_bytes >= 100 * kMiB);
  CHECK(dvt_allocator_trim(allocator.get(), 0) >= 100 * kMiB);
  CHECK(statistics(allocator).reserved_bytes == 0);
  const DvtBlock again = acquire(allocator, 10 * kMiB);
  std::memset(again.address, 7, 10 * kMiB);
  CHECK(dvt_allocator_is_valid(allocator.get()) == 1);
}

TEST_CASE("neighbours merge both ways") {
  const AllocatorPointer allocator = make_allocator(default_options());
  std::vector<DvtBlock> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(acquire(allocator, kMiB));
  const DvtBlock end = acquire(allocator, 64);
  release(allocator, blocks[0]);
  release(allocator, blocks[2]);
  release(allocator, blocks[1]);
  const DvtBlock whole = acquire(allocator, 3 * kMiB);
  CHECK(whole.address == blocks[0].address);
  release(allocator, whole);
  release(allocator, end);
  CHECK(statistics(allocator).free_spans == 1);
}

TEST_CASE("what is not a live block is refused") {
  const AllocatorPointer allocator = make_allocator(default_options());
  const DvtBlock block = acquire(allocator, 1000);
  release(allocator, block);
  CHECK(dvt_allocator_release(allocator.get(), block.id) == DVT_INVALID_ARGUMENT);
  const DvtBlock other = acquire(allocator, 1000);
  CHECK(dvt_allocator_release(allocator.get(), block.id) == DVT_INVALID_ARGUMENT);
  for (const uint64_t id : {uint64_t{0}, uint64_t{77}, UINT64_MAX, uint64_t{UINT32_MAX}}) {
    CHECK(dvt_allocator_release(allocator.get(), id) == DVT_INVALID_ARGUMENT);
    CHECK(dvt_allocator_block_bytes(allocator.get(), id) == 0);
  }
  void* address = nullptr;
  REQUIRE(dvt_allocator_malloc(allocator.get(), 100, 0, &address) == DVT_OK);
  CHECK(dvt_allocator_free(allocator.get(), static_cast<char*>(address) + 64) ==
        DVT_INVALID_ARGUMENT);
  CHECK(dvt_allocator_free(allocator.get(), other.address) == DVT_INVALID_ARGUMENT);
  CHECK(dvt_allocator_free(allocator.get(), address) == DVT_OK);
  CHECK(dvt_allocator_free(allocator.get(), address) == DVT_INVALID_ARGUMENT);
  CHECK(dvt_allocator_free(allocator.get(), nullptr) == DVT_OK);
}

TEST_CASE("sizes that no block can have are out of memory") {
  const AllocatorPointer allocator = make_allocator(default_options());
  for (const uint64_t bytes : {UINT64_MAX, UINT64_MAX - 64, uint64_t{1} << 60, uint64_t{1} << 40}) {
    DvtBlock block{};
    CHECK(dvt_allocator_acquire(allocator.get(), bytes, 0, &block) == DVT_OUT_OF_MEMORY);
  }
  CHECK(dvt_allocator_is_valid(allocator.get()) == 1);
}

// User report C2: a big cached block, small requests, the big request again.
TEST_CASE("small requests do not cost the big block") {
  for (const bool commits : {false, true}) {
    CAPTURE(commits);
    FakeSource fake(commits, 64 << 10);
    const DvtMemorySource source = fake.source();
    DvtAllocatorOptions options = default_options();
    options.source = &source;
    options.limit_bytes = 17 * kMiB;
    options.segment_bytes = 64 << 10;
    const AllocatorPointer allocator = make_allocator(options);
    release(allocator, acquire(allocator, 10 * kMiB));
    std::vector<DvtBlock> small;
    for (int i = 0; i < 40; ++i) small.push_back(acquire(allocator, 160 << 10));
    const DvtBlock big = acquire(allocator, 10 * kMiB);
    CHECK(fake.misuse.empty());
    CHECK(fake.backed_bytes() <= 17 * kMiB);
    release(allocator, big);
  }
}

// User report C7.
TEST_CASE("after one large run, trim brings a small run back to its own size") {
  FakeSource fake(true, 64 << 10);
  const DvtMemorySource source = fake.source();
  DvtAllocatorOptions options = default_options();
  options.source = &source;
  options.segment_bytes = 64 << 10;
  const AllocatorPointer allocator = make_allocator(options);
  const DvtBlock kept = acquire(allocator, 100);
  const auto run = [&](uint64_t scale) {
    std::vector<DvtBlock> blocks;
    for (uint64_t i = 1; i <= 8; ++i) blocks.push_back(acquire(allocator, i * scale));
    for (const DvtBlock& block : blocks) release(allocator, block);
  };
  run(kMiB);
  CHECK(statistics(allocator).reserved_bytes >= 36 * kMiB);
  dvt_allocator_reset_peaks(allocator.get());
  for (int i = 0; i < 100; ++i) run(64 << 10);
  const uint64_t small_peak = statistics(allocator).live_peak_bytes;
  CHECK(small_peak < 3 * kMiB);
  dvt_allocator_trim(allocator.get(), 0);
  dvt_allocator_reset_peaks(allocator.get());
  for (int i = 0; i < 100; ++i) run(64 << 10);
  CHECK(statistics(allocator).reserved_bytes <= small_peak * 12 / 10);
  CHECK(statistics(allocator).reserved_bytes == fake.backed_bytes());
  release(allocator, kept);
}

// User report C8: allocators share nothing, so nobody waits for a trim of another's.
TEST_CASE("eight threads keep what they wrote while a ninth grows and trims") {
  std::atomic<uint32_t> running{8};
  std::atomic<uint32_t> wrong{0};
  const auto run = [&](uint32_t thread) {
    const AllocatorPointer allocator = make_allocator(default_options());
    const auto mark = static_cast<unsigned char>(thread + 1);
    constexpr uint64_t kBytes = 64 << 10;
    for (int round = 0; round < 500; ++round) {
      DvtBlock blocks[4];
      for (DvtBlock& block : blocks) {
        if (dvt_allocator_acquire(allocator.get(), kBytes, 0, &block) != DVT_OK) std::abort();
        std::memset(block.address, mark, kBytes);
      }
      for (const DvtBlock& block : blocks) {
        const auto* bytes = static_cast<const unsigned char*>(block.address);
        wrong += std::count(bytes, bytes + kBytes, mark) == kBytes ? 0 : 1;
        if (dvt_allocator_release(allocator.get(), block.id) != DVT_OK) std::abort();
      }
    }
    // What was cached at first is still there: nobody else's trim has taken it.
    wrong += statistics(allocator).grow_count == 1 ? 0 : 1;
    --running;
  };
  std::vector<std::thread> threads;
  for (uint32_t thread = 0; thread < 8; ++thread) threads.emplace_back(run, thread);
  const AllocatorPointer mine = make_allocator(default_options());
  uint32_t trims = 0;
  while (running > 0 || trims == 0) {
    const DvtBlock block = acquire(mine, 8 * kMiB);
    std::memset(block.address, 0, 8 * kMiB);
    release(mine, block);
    CHECK(dvt_allocator_trim(mine.get(), 0) == 8 * kMiB);
    ++trims;
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

// User report C11: nothing of the allocator belongs to a thread.
TEST_CASE("10,000 threads end while their blocks live; another frees them, and all comes back") {
  FakeSource fake(true);
  const DvtMemorySource source = fake.source();
  DvtAllocatorOptions options = default_options();
  options.source = &source;
  const AllocatorPointer allocator = make_allocator(options);
  constexpr uint32_t kThreads = 10'000;
  std::vector<DvtBlock> blocks(kThreads);
  uint64_t metadata_bytes = 0;
  for (int round = 0; round < 2; ++round) {
    for (uint32_t i = 0; i < kThreads; ++i) {
      // The start of a thread and its join hand the allocator over.
      std::thread([&] {
        const DvtCode code = dvt_allocator_acquire(allocator.get(), 64 + i % 5000, i, &blocks[i]);
        if (code != DVT_OK) blocks[i] = {};
      }).join();
    }
    CHECK(statistics(allocator).live_blocks == kThreads);
    if (round == 0) metadata_bytes = statistics(allocator).metadata_bytes;
    for (const DvtBlock& block : blocks) release(allocator, block);
    CHECK(dvt_allocator_is_valid(allocator.get()) != 0);
    CHECK(statistics(allocator).live_bytes == 0);
    dvt_allocator_trim(allocator.get(), 0);
    CHECK(fake.backed_bytes() == 0);
  }
  CHECK(statistics(allocator).metadata_bytes == metadata_bytes);
}

// User report C5: addresses in a pinned range may be baked into something.
TEST_CASE("trim and recovery leave pinned ranges alone") {
  for (const bool commits : {false, true}) {
    CAPTURE(commits);
    FakeSource fake(commits);
    const DvtMemorySource source = fake.source();
    DvtAllocatorOptions options = default_options();
    options.source = &source;
    options.segment_bytes = 4096;
    options.limit_bytes = 2 * kMiB;
    const AllocatorPointer allocator = make_allocator(options);
    const DvtBlock block = acquire(allocator, kMiB);
    REQUIRE(dvt_allocator_pin(allocator.get(), block.address, kMiB) == DVT_OK);
    release(allocator, block);
    dvt_allocator_trim(allocator.get(), 0);
    CHECK(fake.covers(block.address, kMiB));
    DvtBlock other{};
    CHECK(dvt_allocator_acquire(allocator.get(), 2 * kMiB + 1, 0, &other) == DVT_OUT_OF_MEMORY);
    CHECK(fake.covers(block.address, kMiB));
    CHECK(dvt_allocator_unpin(allocator.get(), block.address, kMiB) == DVT_OK);
    CHECK(dvt_allocator_unpin(allocator.get(), block.address, kMiB) == DVT_INVALID_ARGUMENT);
    dvt_allocator_trim(allocator.get(), 0);
    CHECK(fake.backed_bytes() == 0);
    CHECK(dvt_allocator_pin(allocator.get(), block.address, kMiB) == DVT_INVALID_ARGUMENT);
    CHECK(fake.misuse.empty());
  }
}

TEST_CASE("the first range of a source that does not commit holds what is expected") {
  FakeSource fake;
  const DvtMemorySource source = fake.source();
  DvtAllocatorOptions options = default_options();
  options.source = &source;
  options.expected_bytes = 80 * kMiB;
  const AllocatorPointer allocator = make_allocator(options);
  const DvtBlock small = acquire(allocator, 100);
  CHECK(statistics(allocator).reserved_bytes == 90 * kMiB);
  const DvtBlock large = acquire(allocator, 80 * kMiB);
  CHECK(fake.range_count() == 1);
  const DvtBlock larger = acquire(allocator, 100 * kMiB);
  CHECK(fake.range_count() == 2);
  for (const DvtBlock& block : {small, large, larger}) release(allocator, block);
  // Whatever was live is expected to be live again.
  dvt_allocator_trim(allocator.get(), 0);
  CHECK(fake.range_count() == 0);
  const uint64_t peak = statistics(allocator).live_peak_bytes;
  acquire(allocator, 100);
  acquire(allocator, 80 * kMiB);
  acquire(allocator, 100 * kMiB);
  CHECK(fake.range_count() == 1);
  CHECK(statistics(allocator).reserved_bytes >= peak);
  // A source that has less gives what is asked for.
  FakeSource poor;
  poor.capacity_bytes = kMiB;
  const DvtMemorySource little = poor.source();
  options.source = &little;
  const AllocatorPointer modest = make_allocator(options);
  acquire(modest, 100);
  CHECK(statistics(modest).reserved_bytes <= kMiB);
}

TEST_CASE("a limit is exact where the source commits, too") {
  for (const bool commits : {false, true}) {
    CAPTURE(commits);
    FakeSource fake(commits);
    const DvtMemorySource source = fake.source();
    DvtAllocatorOptions options = default_options();
    options.source = &source;
    options.segment_bytes = 4096;
    options.limit_bytes = 10 * 64;
    const AllocatorPointer allocator = make_allocator(options);
    std::vector<DvtBlock> blocks;
    for (int i = 0; i < 10; ++i) blocks.push_back(acquire(allocator, 64));
    DvtBlock other{};
    CHECK(dvt_allocator_acquire(allocator.get(), 1, 0, &other) == DVT_OUT_OF_MEMORY);
    CHECK(dvt_allocator_acquire_cached(allocator.get(), 1, 0, &other) == DVT_OUT_OF_MEMORY);
    release(allocator, blocks.back());
    acquire(allocator, 64);
    CHECK(dvt_allocator_acquire(allocator.get(), 1, 0, &other) == DVT_OUT_OF_MEMORY);
    CHECK(statistics(allocator).live_bytes == options.limit_bytes);
    CHECK(dvt_allocator_is_valid(allocator.get()));
  }
}

TEST_CASE("out of memory tells what was asked, what there is, and who has it") {
  FakeSource fake(true);
  const DvtMemorySource source = fake.source();
  DvtAllocatorHooks hooks{};
  hooks.owner_name = [](void*, uint32_t owner) -> const char* {
    return owner == 3 ? "Conv_3" : owner == 4 ? "Relu_4" : nullptr;
  };
  DvtAllocatorOptions options = default_options();
  options.source = &source;
  options.hooks = &hooks;
  options.segment_bytes = 4096;
  options.limit_bytes = kMiB;
  const AllocatorPointer allocator = make_allocator(options);
  acquire(allocator, 512 << 10, 3);
  acquire(allocator, 128 << 10, 9);
  acquire(allocator, 256 << 10, 3);
  DvtBlock block{};
  REQUIRE(dvt_allocator_acquire(allocator.get(), 512 << 10, 4, &block) == DVT_OUT_OF_MEMORY);
  DvtError error{};
  dvt_allocator_explain(allocator.get(), 512 << 10, 4, &error);
  CHECK(error.code == DVT_OUT_OF_MEMORY);
  CHECK(
      std::string(error.message) ==
      "out of memory: Relu_4 asks the fake for 524288 bytes (512.0 KiB), and the limit is reached");
  CHECK(std::string(error.expected) == "at most the limit of 1048576 bytes (1.0 MiB)");
  CHECK(std::string(error.got) == "917504 live, 0 cached, largest hole 0 bytes, fragmentation 0 %");
  CHECK(std::string(error.hint) ==
        "most is held by Conv_3: 786432 bytes (768.0 KiB) in 2 blocks; "
        "owner 9: 131072 bytes (128.0 KiB) in 1 block");
}
