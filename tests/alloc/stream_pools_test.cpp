// Blocks on several streams, on a device that runs late and wild. Every block is written whole by
// one task and read whole by others; what a reader finds must be what its writer wrote.
#include <doctest/doctest.h>

#include "alloc/stream_pools.h"
#include "tests/alloc/checker.hpp"
#include "tests/alloc/late_device.hpp"

using davit::test::LateDevice;

namespace {

constexpr uint32_t kStreams = 4;
constexpr uint32_t kEvents = 8;

struct PoolsDeleter {
  void operator()(DvtStreamPools* pools) const { dvt_stream_pools_destroy(pools); }
};
using PoolsPointer = std::unique_ptr<DvtStreamPools, PoolsDeleter>;

// Device, streams, events and pools.
struct Setup {
  explicit Setup(uint32_t seed, uint64_t capacity = 1 << 20,
                 const DvtAllocatorHooks* hooks = nullptr)
      : device(seed, capacity) {
    for (uint32_t i = 0; i < kStreams; ++i) streams.push_back(device.add_stream());
    for (uint32_t i = 0; i < kEvents; ++i) events.push_back(device.add_event());
    DvtStreamPoolsOptions options;
    dvt_stream_pools_options_init(&options);
    options.stream_count = kStreams;
    options.event_count = kEvents;
    options.device = device.get();
    options.streams = streams.data();
    options.events = events.data();
    options.shared.segment_bytes = 4096;
    options.shared.limit_bytes = capacity;
    options.shared.hooks = hooks;
    options.pool_segment_bytes = 4096;
    DvtStreamPools* made = nullptr;
    REQUIRE(dvt_stream_pools_create(&options, &made) == DVT_OK);
    pools.reset(made);
  }
  DvtBlock malloc(uint32_t stream, uint64_t bytes) {
    DvtBlock block{};
    REQUIRE(dvt_stream_pools_malloc(pools.get(), stream, bytes, 0, &block) == DVT_OK);
    return block;
  }
  void free(const DvtBlock& block, uint32_t stream) {
    REQUIRE(dvt_stream_pools_free(pools.get(), block.id, stream) == DVT_OK);
  }
  void order(uint32_t from, uint32_t to, uint32_t event = 0) {
    REQUIRE(dvt_stream_pools_record(pools.get(), from, event) == DVT_OK);
    REQUIRE(dvt_stream_pools_wait(pools.get(), to, event) == DVT_OK);
  }
  DvtStreamPoolsStatistics statistics() const {
    DvtStreamPoolsStatistics out;
    dvt_stream_pools_statistics(pools.get(), &out);
    return out;
  }

  LateDevice device;
  std::vector<DvtStream*> streams;
  std::vector<DvtEvent*> events;
  PoolsPointer pools;
};

// One random program of up to `steps` steps.
class Schedule {
 public:
  explicit Schedule(uint32_t seed)
      : setup_(seed, seed % 3 == 0 ? 32 << 10 : 1 << 20), random_(seed * 7919 + 1) {}

  // The number of bytes that a reader found wrong.
  uint64_t run(int steps) {
    for (int i = 0; i < steps; ++i) step();
    while (!values_.empty()) drop(values_.size() - 1);
    REQUIRE(dvt_stream_pools_finish(setup_.pools.get(), 1) == DVT_OK);
    const DvtStreamPoolsStatistics now = setup_.statistics();
    REQUIRE(now.live_bytes == 0);
    REQUIRE(now.waiting_bytes == 0);
    borrowed_ = now.borrow_count;
    setup_.pools.reset();
    REQUIRE(setup_.device.block_count() == 0);
    return wrong_;
  }
  [[nodiscard]] uint64_t borrowed() const { return borrowed_; }

 private:
  struct Value {
    DvtBlock block;
    uint32_t bytes;
    unsigned char tag;
    uint64_t users;  // Streams that hold it.
  };

  void step() {
    const uint32_t kind = random_() % 100;
    if (kind < 35 || values_.empty()) {
      make();
    } else if (kind < 60) {
      read_elsewhere(values_[random_() % values_.size()]);
    } else if (kind < 90) {
      drop(random_() % values_.size());
    } else if (kind < 96) {
      setup_.order(random_() % kStreams, random_() % kStreams, random_() % kEvents);
    } else if (kind < 98) {
      setup_.device.step();
    } else {
      REQUIRE(dvt_stream_pools_synchronize(setup_.pools.get(), random_() % kStreams) == DVT_OK);
    }
  }
  void make() {
    const uint32_t stream = random_() % kStreams;
    Value value{.block = {},
                .bytes = 1 + static_cast<uint32_t>(random_() % 3000),
                .tag = static_cast<unsigned char>(random_()),
                .users = uint64_t{1} << stream};
    const DvtCode code =
        dvt_stream_pools_malloc(setup_.pools.get(), stream, value.bytes, 0, &value.block);
    if (code == DVT_OUT_OF_MEMORY) return;
    REQUIRE(code == DVT_OK);
    LateDevice::submit(setup_.streams[stream],
                       [value] { std::memset(value.block.address, value.tag, value.bytes); });
    values_.push_back(value);
  }
  // A stream that holds the value hands it to another, which reads it.
  void read_elsewhere(Value& value) {
    const uint32_t from = any_user(value);
    const uint32_t to = random_() % kStreams;
    if (from != to) setup_.order(from, to, random_() % kEvents);
    REQUIRE(dvt_stream_pools_use(setup_.pools.get(), value.block.id, to) == DVT_OK);
    value.users |= uint64_t{1} << to;
    LateDevice::submit(setup_.streams[to], [this, value] { check(value); });
  }
  void drop(size_t index) {
    Value& value = values_[index];
    while (value.users != 0) {
      const uint32_t stream = any_user(value);
      LateDevice::submit(setup_.streams[stream], [this, copy = value] { check(copy); });
      setup_.free(value.block, stream);
      value.users &= ~(uint64_t{1} << stream);
      if (random_() % 4 == 0) setup_.order(stream, random_() % kStreams, random_() % kEvents);
    }
    values_[index] = values_.back();
    values_.pop_back();
  }
  uint32_t any_user(const Value& value) {
    for (;;) {
      const uint32_t stream = random_() % kStreams;
      if ((value.users >> stream & 1) != 0) return stream;
    }
  }
  void check(const Value& value) {
    const auto* bytes = static_cast<const unsigned char*>(value.block.address);
    for (uint32_t i = 0; i < value.bytes; ++i) wrong_ += bytes[i] != value.tag ? 1 : 0;
  }

  Setup setup_;
  std::mt19937 random_;
  std::vector<Value> values_;
  uint64_t wrong_ = 0;
  uint64_t borrowed_ = 0;
};

}  // namespace

// User report C4, for Frees that are recorded on a stream.
TEST_CASE("10,000 random schedules over 4 streams: never a byte wrong") {
  uint64_t borrowed = 0;
  for (uint32_t seed = 1; seed <= 10'000; ++seed) {
    CAPTURE(seed);
    Schedule schedule(seed);
    REQUIRE(schedule.run(60) == 0);
    borrowed += schedule.borrowed();
  }
  CHECK(borrowed > 1000);  // Else the test says nothing about it.
}

TEST_CASE("a stream has its own memory back at once, another only in order") {
  Setup setup(1);
  const DvtBlock first = setup.malloc(0, 1000);
  setup.free(first, 0);
  CHECK(setup.malloc(0, 1000).address == first.address);

  const DvtBlock shared = setup.malloc(0, 2000);
  setup.order(0, 1);
  REQUIRE(dvt_stream_pools_use(setup.pools.get(), shared.id, 1) == DVT_OK);
  setup.free(shared, 0);
  setup.free(shared, 1);
  CHECK(setup.statistics().waiting_bytes >= 2000);
  CHECK(setup.malloc(0, 2000).address != shared.address);
  setup.order(1, 0);
  CHECK(setup.malloc(0, 2000).address == shared.address);
  CHECK(setup.statistics().waiting_bytes == 0);
  CHECK(setup.statistics().birth_count == 2);
}

TEST_CASE("a stream that knows the last uses borrows a block of another") {
  Setup setup(1);
  const DvtBlock block = setup.malloc(0, 4096);
  setup.order(0, 1);
  REQUIRE(dvt_stream_pools_use(setup.pools.get(), block.id, 1) == DVT_OK);
  setup.free(block, 0);
  setup.order(0, 1);
  setup.free(block, 1);
  CHECK(setup.malloc(2, 4096).address != block.address);
  const DvtBlock borrowed = setup.malloc(1, 4096);
  CHECK(borrowed.address == block.address);
  CHECK(borrowed.id != block.id);
  CHECK(setup.statistics().borrow_count == 1);
  setup.free(borrowed, 1);
  CHECK(setup.statistics().waiting_bytes > 0);
  REQUIRE(dvt_stream_pools_finish(setup.pools.get(), 0) == DVT_OK);
  CHECK(setup.statistics().waiting_bytes == 0);
}

TEST_CASE("stale and foreign ids are refused") {
  Setup setup(1);
  DvtStreamPools* pools = setup.pools.get();
  const DvtBlock block = setup.malloc(0, 100);
  CHECK(dvt_stream_pools_free(pools, block.id, 1) == DVT_INVALID_ARGUMENT);
  CHECK(dvt_stream_pools_free(pools, block.id, 99) == DVT_INVALID_ARGUMENT);
  CHECK(dvt_stream_pools_use(pools, block.id, 99) == DVT_INVALID_ARGUMENT);
  setup.free(block, 0);
  CHECK(dvt_stream_pools_free(pools, block.id, 0) == DVT_INVALID_ARGUMENT);
  const DvtBlock again = setup.malloc(0, 100);
  CHECK(dvt_stream_pools_free(pools, block.id, 0) == DVT_INVALID_ARGUMENT);
  CHECK(again.id != block.id);
  DvtBlock out{};
  CHECK(dvt_stream_pools_malloc(pools, kStreams, 1, 0, &out) == DVT_INVALID_ARGUMENT);
  CHECK(dvt_stream_pools_record(pools, 0, kEvents) == DVT_INVALID_ARGUMENT);
  CHECK(dvt_stream_pools_wait(pools, kStreams, 0) == DVT_INVALID_ARGUMENT);
}

// User report C1: memory whose free is pending on an event would fit.
TEST_CASE("a block that waits for an event is waited for, first time") {
  Setup setup(1, 64 << 10);
  const DvtBlock block = setup.malloc(0, 60 << 10);
  setup.order(0, 1);
  REQUIRE(dvt_stream_pools_use(setup.pools.get(), block.id, 1) == DVT_OK);
  setup.free(block, 0);
  setup.free(block, 1);
  CHECK(setup.statistics().waiting_bytes == 60 << 10);
  setup.malloc(0, 60 << 10);
  CHECK(setup.statistics().synchronize_count == kStreams);
}

TEST_CASE("the failure path in its order, and its texts") {
  struct Trail {
    std::string text;
    DvtCode answer = DVT_OK;
  } trail;
  const DvtAllocatorHooks hooks{
      .user = &trail,
      .exact_wait = [](void* user, uint64_t bytes) -> DvtCode {
        auto& self = *static_cast<Trail*>(user);
        self.text += "exact wait for " + std::to_string(bytes) + ";";
        return self.answer;
      },
      .owner_name = [](void*, uint32_t owner) { return owner == 5 ? "Conv_5" : "other"; }};
  Setup setup(1, 64 << 10, &hooks);
  DvtStreamPools* pools = setup.pools.get();
  // Cached by stream 1, needed by stream 0: trimmed from one pool, had by the other.
  setup.free(setup.malloc(1, 40 << 10), 1);
  setup.malloc(0, 40 << 10);
  CHECK(trail.text == "exact wait for 40960;");

  DvtBlock out{};
  trail.answer = DVT_ALLOCATOR_SUSPENDED;
  CHECK(dvt_stream_pools_malloc(pools, 2, 40 << 10, 5, &out) == DVT_ALLOCATOR_SUSPENDED);
  trail.answer = DVT_CANCELLED;
  CHECK(dvt_stream_pools_malloc(pools, 2, 40 << 10, 5, &out) == DVT_CANCELLED);
  trail.answer = DVT_OK;
  setup.device.fail_synchronize = true;
  CHECK(dvt_stream_pools_malloc(pools, 2, 40 << 10, 5, &out) == DVT_TIMEOUT);
  setup.device.fail_synchronize = false;
  CHECK(dvt_stream_pools_malloc(pools, 2, 40 << 10, 5, &out) == DVT_OUT_OF_MEMORY);
  DvtError error{};
  dvt_stream_pools_explain(pools, 40 << 10, 5, &error);
  CHECK(std::string(error.message).find("Conv_5 asks late for 40960 bytes") != std::string::npos);
  CHECK(std::string(error.expected) == "at most the limit of 65536 bytes (64.0 KiB)");
  CHECK(std::string(error.got).find("40960 live") == 0);
  CHECK(std::string(error.hint) == "most is held by other: 40960 bytes (40.0 KiB) in 1 block");
}
