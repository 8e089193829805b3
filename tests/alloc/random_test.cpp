// Random traces against the checker, and every call of the source and of the host failing once.
#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "tests/alloc/checker.hpp"

using davit::test::AllocatorPointer;
using davit::test::Checker;
using davit::test::default_options;
using davit::test::FakeHost;
using davit::test::FakeSource;
using davit::test::make_allocator;
using davit::test::statistics;

namespace {

struct Live {
  DvtBlock block;
  bool by_address;
  unsigned char fill;
  uint64_t bytes;
};

// What a trace does and how the allocator is set up, all from one seed.
class Trace {
 public:
  explicit Trace(uint32_t seed)
      : random_(seed), commits_(seed % 2 == 0), fake_(commits_, 4096), checker_(alignment(seed)) {
    const DvtMemorySource source = fake_.source();
    const DvtMetadataMemory host = host_.memory();
    DvtAllocatorOptions options = default_options();
    options.source = &source;
    options.metadata = &host;
    options.alignment = static_cast<uint32_t>(alignment(seed));
    options.segment_bytes = seed % 4 < 2 ? 4096 : 64 << 10;
    options.reserve_bytes = 1 << 20;
    options.limit_bytes = seed % 5 == 0 ? 0 : 2 << 20;
    options.watermark_bytes = seed % 5 == 1 ? 1 << 20 : 0;
    allocator_ = make_allocator(options);
  }
  ~Trace() {
    allocator_.reset();
    CHECK(host_.live == 0);
    CHECK(fake_.range_count() == 0);
    CHECK(fake_.backed_bytes() == 0);
  }
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  FakeSource& fake() { return fake_; }
  FakeHost& host() { return host_; }
  [[nodiscard]] bool is_made() const { return allocator_ != nullptr; }
  [[nodiscard]] size_t live_count() const { return live_.size(); }
  [[nodiscard]] uint64_t refused() const { return refused_; }

  void step() {
    const uint32_t kind = random_() % 100;
    if (kind < 52 || live_.empty()) {
      allocate();
    } else if (kind < 99) {
      give_back(random_() % live_.size());
    } else {
      dvt_allocator_trim(allocator_.get(), random_() % 2 == 0 ? 0 : 100'000);
    }
  }
  void give_back_all() {
    while (!live_.empty()) give_back(live_.size() - 1);
  }
  void check() const {
    REQUIRE(dvt_allocator_is_valid(allocator_.get()) == 1);
    REQUIRE(fake_.misuse == "");
    const DvtAllocatorStatistics now = statistics(allocator_);
    REQUIRE(now.live_bytes == checker_.live_bytes());
    REQUIRE(now.live_blocks == checker_.live_blocks());
    REQUIRE(now.reserved_bytes == fake_.backed_bytes());
    REQUIRE(now.reserved_bytes <= now.limit_bytes);
    REQUIRE(now.segments == fake_.range_count());
    REQUIRE(now.malloc_count - now.free_count == now.live_blocks);
    REQUIRE(now.largest_hole_bytes <= now.cached_bytes);
  }

 private:
  static uint64_t alignment(uint32_t seed) { return seed % 3 == 0 ? 512 : 64; }

  void allocate() {
    Live live{};
    live.bytes = std::min<uint64_t>(uint64_t{1} << (random_() % 18), 100'000) + random_() % 700;
    live.by_address = random_() % 2 == 0;
    live.fill = static_cast<unsigned char>(random_());
    const DvtCode code =
        live.by_address ? dvt_allocator_malloc(allocator_.get(), live.bytes, 1, &live.block.address)
                        : dvt_allocator_acquire(allocator_.get(), live.bytes, 1, &live.block);
    if (code != DVT_OK) {
      REQUIRE(code == DVT_OUT_OF_MEMORY);
      ++refused_;
      return;
    }
    const auto wrong = checker_.gave(live.block.address, live.bytes);
    REQUIRE_MESSAGE(!wrong.has_value(), wrong.value_or(""));
    REQUIRE(fake_.covers(live.block.address, live.bytes));
    std::memset(live.block.address, live.fill, live.bytes);
    live_.push_back(live);
  }

  void give_back(size_t index) {
    const Live live = live_[index];
    const auto* bytes = static_cast<const unsigned char*>(live.block.address);
    for (const uint64_t at : {uint64_t{0}, live.bytes / 2, live.bytes - 1}) {
      REQUIRE(bytes[at] == live.fill);
    }
    const DvtCode code = live.by_address ? dvt_allocator_free(allocator_.get(), live.block.address)
                                         : dvt_allocator_release(allocator_.get(), live.block.id);
    REQUIRE(code == DVT_OK);
    checker_.took(live.block.address);
    live_[index] = live_.back();
    live_.pop_back();
  }

  std::mt19937 random_;
  bool commits_;
  FakeSource fake_;
  FakeHost host_;
  Checker checker_;
  AllocatorPointer allocator_;
  std::vector<Live> live_;
  uint64_t refused_ = 0;
};

}  // namespace

TEST_CASE("no overlap, right alignment, right accounts in 60 random traces") {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    Trace trace(seed);
    REQUIRE(trace.is_made());
    for (int i = 0; i < 2000; ++i) {
      trace.step();
      if (i % 97 == 0) trace.check();
    }
    trace.give_back_all();
    trace.check();
  }
}

TEST_CASE("every call of the source fails once, and nothing is lost") {
  for (uint32_t seed = 0; seed < 4; ++seed) {
    for (uint64_t call = 1;; ++call) {
      CAPTURE(seed);
      CAPTURE(call);
      Trace trace(seed);
      trace.fake().fail_at(call);
      for (int i = 0; i < 300; ++i) trace.step();
      trace.check();
      const bool reached = trace.fake().calls() >= call;
      trace.give_back_all();
      trace.check();
      if (!reached) break;
    }
  }
}

TEST_CASE("every metadata allocation fails once, and nothing is lost") {
  for (uint32_t seed = 0; seed < 4; ++seed) {
    for (uint64_t call = 1;; ++call) {
      CAPTURE(seed);
      CAPTURE(call);
      Trace trace(seed);
      trace.host().fail_in = call;
      for (int i = 0; i < 300; ++i) trace.step();
      trace.check();
      const bool reached = trace.host().fail_in == 0;
      trace.give_back_all();
      trace.check();
      if (!reached) break;
    }
  }
}

TEST_CASE("creation without host memory fails and leaves nothing") {
  for (uint64_t call = 1; call <= 2; ++call) {
    FakeHost host;
    host.fail_in = call;
    const DvtMetadataMemory memory = host.memory();
    DvtAllocatorOptions options = default_options();
    options.metadata = &memory;
    DvtAllocator* out = nullptr;
    CHECK(dvt_allocator_create(&options, &out) == DVT_OUT_OF_MEMORY);
    CHECK(out == nullptr);
    CHECK(host.live == 0);
  }
}

TEST_CASE("a steady state takes nothing from the host or the source") {
  FakeSource source(true, 4096);
  FakeHost host;
  const DvtMemorySource below = source.source();
  const DvtMetadataMemory memory = host.memory();
  DvtAllocatorOptions options = default_options();
  options.source = &below;
  options.metadata = &memory;
  const AllocatorPointer allocator = make_allocator(options);
  uint64_t source_calls = 0;
  uint64_t host_calls = 0;
  for (int run = 0; run < 10; ++run) {
    std::vector<void*> addresses;
    for (uint64_t i = 1; i < 500; ++i) {
      void* address = nullptr;
      REQUIRE(dvt_allocator_malloc(allocator.get(), i * 777 % 50'000, 0, &address) == DVT_OK);
      addresses.push_back(address);
    }
    for (size_t i = 0; i < addresses.size(); i += 2) {
      dvt_allocator_free(allocator.get(), addresses[i]);
    }
    for (size_t i = 1; i < addresses.size(); i += 2) {
      dvt_allocator_free(allocator.get(), addresses[i]);
    }
    if (run > 0) CHECK(source.calls() == source_calls);
    if (run > 0) CHECK(host.calls == host_calls);
    source_calls = source.calls();
    host_calls = host.calls;
  }
}
