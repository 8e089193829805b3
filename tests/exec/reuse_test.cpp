// Memory is used again across streams, and by Frees that run before the Launches that still use it.
// Random programs run on two lanes, one far ahead of the other, over the stream pools and the
// relations, on a device that runs as late and wildly as it may. Two judges: the bytes that tasks
// find, and a checker that knows nothing of pools, clocks or relations. It replays what reached the
// device, works out which task is ordered before which, and demands that whoever gets bytes comes
// after everybody who had them.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <bitset>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "alloc/stream_pools.h"
#include "exec/mt_topo/platform.hpp"
#include "exec/relations.hpp"
#include "tests/alloc/late_device.hpp"

using davit::exec::Relations;
using davit::test::LateDevice;

namespace {

constexpr uint32_t kStreams = 4;
constexpr uint32_t kEvents = 4;

// ---- The checker -------------------------------------------------------------------------------

class ReplayChecker {
 public:
  static constexpr size_t kTasksMax = 1024;

  // A task that touches [begin, begin + bytes) for a value.
  void launch(uint32_t stream, uint32_t value, uint64_t begin, uint64_t bytes) {
    const size_t task = submit(stream);
    for (const Touch& earlier : touches_) {
      const bool apart = earlier.begin >= begin + bytes || begin >= earlier.begin + earlier.bytes;
      if (apart || earlier.value == value) continue;
      ++reuses;
      if (!before_[task].test(earlier.task)) {
        wrong.push_back("value " + std::to_string(value) + " may be written before value " +
                        std::to_string(earlier.value) + " is done with its bytes");
      }
    }
    touches_.push_back({task, value, begin, bytes});
  }
  void record(uint32_t stream, uint32_t event) { records_[event] = submit(stream); }
  void wait(uint32_t stream, uint32_t event) {
    const std::optional<size_t> record = records_[event];
    if (record) before_stream_[stream] |= before_[*record];
    submit(stream);
  }
  void synchronized(uint32_t stream) { host_ |= before_stream_[stream]; }

  std::vector<std::string> wrong;
  uint64_t reuses = 0;

 private:
  using Tasks = std::bitset<kTasksMax>;
  struct Touch {
    size_t task;
    uint32_t value;
    uint64_t begin, bytes;
  };

  size_t submit(uint32_t stream) {
    const size_t task = before_.size();
    REQUIRE(task < kTasksMax);
    Tasks& known = before_stream_[stream];
    known |= host_;
    known.set(task);  // And so for those behind it.
    before_.push_back(known);
    return task;
  }

  std::vector<Tasks> before_;      // Of each task: it and what has ended when it runs.
  Tasks before_stream_[kStreams];  // Of what comes next on the stream.
  Tasks host_;                     // What the host has waited for.
  std::optional<size_t> records_[kEvents];
  std::vector<Touch> touches_;
};

// A late device whose submissions the checker sees, too.
class LoggedDevice {
 public:
  LoggedDevice(uint32_t seed, uint64_t capacity, ReplayChecker& checker)
      : late(seed, capacity), checker_(checker) {
    for (uint32_t i = 0; i < kStreams; ++i) streams.push_back(late.add_stream());
    for (uint32_t i = 0; i < kEvents; ++i) events.push_back(late.add_event());
    base_.device.vtable = &table();
    base_.self = this;
  }
  DvtDevice* get() { return &base_.device; }

  LateDevice late;
  std::vector<DvtStream*> streams;
  std::vector<DvtEvent*> events;

 private:
  struct Base {
    DvtDevice device;
    LoggedDevice* self;
  };
  static LoggedDevice& of(DvtDevice* device) { return *reinterpret_cast<Base*>(device)->self; }
  [[nodiscard]] uint32_t number(const DvtStream* stream) const {
    return static_cast<uint32_t>(std::find(streams.begin(), streams.end(), stream) -
                                 streams.begin());
  }
  [[nodiscard]] uint32_t number(const DvtEvent* event) const {
    return static_cast<uint32_t>(std::find(events.begin(), events.end(), event) - events.begin());
  }

  static const DvtDeviceVtable& table() {
    static const DvtDeviceVtable vtable = {
        .name = "late",
        .malloc = [](DvtDevice* d, uint64_t bytes, const char* owner, void** out) -> DvtCode {
          DvtDevice* inner = of(d).late.get();
          return inner->vtable->malloc(inner, bytes, owner, out);
        },
        .free = [](DvtDevice* d, void* address) -> DvtCode {
          DvtDevice* inner = of(d).late.get();
          return inner->vtable->free(inner, address);
        },
        .event_record = [](DvtDevice* d, DvtStream* stream, DvtEvent* event) -> DvtCode {
          LoggedDevice& self = of(d);
          self.checker_.record(self.number(stream), self.number(event));
          DvtDevice* inner = self.late.get();
          return inner->vtable->event_record(inner, stream, event);
        },
        .event_wait = [](DvtDevice* d, DvtStream* stream, DvtEvent* event) -> DvtCode {
          LoggedDevice& self = of(d);
          self.checker_.wait(self.number(stream), self.number(event));
          DvtDevice* inner = self.late.get();
          return inner->vtable->event_wait(inner, stream, event);
        },
        .stream_synchronize = [](DvtDevice* d, DvtStream* stream, int64_t timeout) -> DvtCode {
          LoggedDevice& self = of(d);
          DvtDevice* inner = self.late.get();
          const DvtCode code = inner->vtable->stream_synchronize(inner, stream, timeout);
          if (code == DVT_OK) self.checker_.synchronized(self.number(stream));
          return code;
        }};
    return vtable;
  }

  ReplayChecker& checker_;
  Base base_{};
};

// ---- Programs ----------------------------------------------------------------------------------

enum class Op : uint32_t { kFree, kLaunch, kAlloc };  // Also kernels of the relations.

struct Node {
  Op op;
  uint32_t value;
  uint32_t stream = 0;
};

struct Value {
  uint32_t bytes;
  unsigned char tag;
  uint32_t stream;  // Of its writer.
  std::vector<uint32_t> launches;
  // While it runs.
  enum class State { kNone, kLive, kHeld, kGone, kFailed } state = State::kNone;
  DvtBlock block{};
  uint64_t users = 0;
  uint32_t submitted = 0;
};

struct Program {
  std::vector<Node> nodes;
  std::vector<Value> values;
  // For the relations: every Free has a row of all Launches of its value.
  std::vector<uint32_t> kernels, offsets, rows;
};

constexpr uint32_t kKernelFlags[] = {DVT_KERNEL_LANE_MEMORY | DVT_KERNEL_FREE,
                                     DVT_KERNEL_LANE_LAUNCH, DVT_KERNEL_LANE_MEMORY};

Program make_program(std::mt19937& random, size_t steps) {
  Program program;
  std::vector<uint32_t> live;
  const auto add = [&](Op op, uint32_t value, uint32_t stream) {
    if (op == Op::kLaunch) {
      program.values[value].launches.push_back(static_cast<uint32_t>(program.nodes.size()));
    }
    program.nodes.push_back({op, value, stream});
  };
  const auto drop = [&](size_t index) {
    add(Op::kFree, live[index], 0);
    live[index] = live.back();
    live.pop_back();
  };
  while (program.nodes.size() < steps) {
    const uint32_t kind = random() % 100;
    if (kind < 40 || live.empty()) {
      const auto value = static_cast<uint32_t>(program.values.size());
      const uint32_t stream = random() % kStreams;
      program.values.push_back({.bytes = 1 + static_cast<uint32_t>(random() % 3000),
                                .tag = static_cast<unsigned char>(random()),
                                .stream = stream});
      add(Op::kAlloc, value, stream);
      add(Op::kLaunch, value, stream);
      live.push_back(value);
    } else if (kind < 65) {
      add(Op::kLaunch, live[random() % live.size()], random() % kStreams);
    } else {
      drop(random() % live.size());
    }
  }
  while (!live.empty()) drop(live.size() - 1);
  program.offsets.push_back(0);
  for (const Node& node : program.nodes) {
    program.kernels.push_back(static_cast<uint32_t>(node.op));
    if (node.op == Op::kFree) {
      const auto& launches = program.values[node.value].launches;
      program.rows.insert(program.rows.end(), launches.begin(), launches.end());
    }
    program.offsets.push_back(static_cast<uint32_t>(program.rows.size()));
  }
  return program;
}

// ---- Runs --------------------------------------------------------------------------------------

struct PoolsDeleter {
  void operator()(DvtStreamPools* pools) const { dvt_stream_pools_destroy(pools); }
};

// How the engine treats what a Free releases before all its Launches are submitted.
enum class EarlyFree { kHeld, kUsedAtOnce };

class Schedule {
 public:
  Schedule(uint32_t seed, EarlyFree early)
      : random_(seed * 7919 + 1),
        early_(early),
        capacity_(seed % 3 == 0 ? 16 << 10 : 64 << 10),
        device_(seed, capacity_, checker),
        program_(make_program(random_, 80)) {
    auto relations = Relations<davit::mt_topo::RealThreads>::create(
        {program_.kernels, kKernelFlags, program_.offsets, program_.rows});
    INFO(relations.status().to_string());
    REQUIRE(relations.ok());
    relations_ = std::move(*relations);
    wait_.emplace(relations_->make_wait());
    const DvtAllocatorHooks hooks{.user = this, .exact_wait = [](void* self, uint64_t) {
                                    return static_cast<Schedule*>(self)->exact_wait();
                                  }};
    DvtStreamPoolsOptions options;
    dvt_stream_pools_options_init(&options);
    options.stream_count = kStreams;
    options.event_count = kEvents;
    options.device = device_.get();
    options.streams = device_.streams.data();
    options.events = device_.events.data();
    options.shared.segment_bytes = 4096;
    options.shared.limit_bytes = capacity_;
    options.shared.hooks = &hooks;
    options.pool_segment_bytes = 4096;
    DvtStreamPools* pools = nullptr;
    REQUIRE(dvt_stream_pools_create(&options, &pools) == DVT_OK);
    pools_.reset(pools);
  }

  void run() {
    relations_->begin_run();
    for (;;) {
      // The memory lane runs ahead.
      const bool memory_first = random_() % 4 != 0;
      const bool moved =
          memory_first ? memory_step() || launch_step() : launch_step() || memory_step();
      if (!moved) break;
      if (random_() % 16 == 0) device_.late.step();
    }
    REQUIRE(memory_at_ == program_.nodes.size());
    REQUIRE(launch_at_ == program_.nodes.size());
    release_held();
    REQUIRE(dvt_stream_pools_finish(pools_.get(), 1) == DVT_OK);
    DvtStreamPoolsStatistics now;
    dvt_stream_pools_statistics(pools_.get(), &now);
    REQUIRE(now.live_bytes == 0);
    pools_.reset();
    REQUIRE(device_.late.block_count() == 0);
  }
  [[nodiscard]] uint64_t suspended() const { return relations_->statistics().suspended; }

  ReplayChecker checker;
  uint64_t wrong_bytes = 0;
  uint64_t held = 0;  // Frees before the last Launch.
  uint64_t failed = 0;

 private:
  // The next Alloc or Free. False: there is none.
  bool memory_step() {
    while (memory_at_ < program_.nodes.size() && program_.nodes[memory_at_].op == Op::kLaunch) {
      ++memory_at_;
    }
    if (memory_at_ == program_.nodes.size()) return false;
    const Node& node = program_.nodes[memory_at_];
    Value& value = program_.values[node.value];
    if (node.op == Op::kAlloc) {
      allocate(value);
      ++memory_at_;
      return true;
    }
    const uint32_t at = memory_at_++;
    if (value.state != Value::State::kLive) return true;  // Its Alloc has failed.
    relations_->freed(at);
    const bool early = value.submitted < value.launches.size();
    held += early ? 1 : 0;
    value.state = Value::State::kHeld;
    held_.push_back(node.value);
    if (early_ == EarlyFree::kUsedAtOnce && early && value.submitted > 0) {
      release(value);
      held_.pop_back();
    }
    if (relations_->settled()) release_held();
    return true;
  }

  void allocate(Value& value) {
    may_suspend_ = random_() % 2 == 0;
    DvtCode code = ask(value);
    while (code == DVT_ALLOCATOR_SUSPENDED) {
      // Others go on until the set is met, or nothing does.
      bool moved = true;
      while (!relations_->is_over(*wait_) && moved) moved = launch_step();
      relations_->resume(*wait_);
      may_suspend_ = moved;
      code = ask(value);
    }
    REQUIRE((code == DVT_OK || code == DVT_OUT_OF_MEMORY));
    value.state = code == DVT_OK ? Value::State::kLive : Value::State::kFailed;
    value.users = uint64_t{1} << value.stream;
    failed += code == DVT_OK ? 0 : 1;
  }
  DvtCode ask(Value& value) {
    return dvt_stream_pools_malloc(pools_.get(), value.stream, value.bytes, 0, &value.block);
  }

  DvtCode exact_wait() {
    const auto depends = [&](uint32_t launch) { return launch >= first_blocked_launch(); };
    if (may_suspend_ && !relations_->settled() && relations_->suspend(*wait_, depends)) {
      return DVT_ALLOCATOR_SUSPENDED;
    }
    while (!relations_->settled() && launch_step()) {
    }
    if (relations_->settled()) release_held();
    return DVT_OK;
  }

  // Launches go in order, so that one without memory holds up those behind it.
  [[nodiscard]] uint32_t first_blocked_launch() const {
    for (uint32_t at = launch_at_; at < program_.nodes.size(); ++at) {
      const Node& node = program_.nodes[at];
      if (node.op == Op::kLaunch && program_.values[node.value].state == Value::State::kNone) {
        return at;
      }
    }
    return static_cast<uint32_t>(program_.nodes.size());
  }

  // Submits the next Launch. False: there is none, or it has no memory yet.
  bool launch_step() {
    while (launch_at_ < program_.nodes.size() && program_.nodes[launch_at_].op != Op::kLaunch) {
      ++launch_at_;
    }
    if (launch_at_ == program_.nodes.size()) return false;
    const Node& node = program_.nodes[launch_at_];
    Value& value = program_.values[node.value];
    if (value.state == Value::State::kNone) return false;
    if (value.state != Value::State::kFailed) submit(node, value);
    ++launch_at_;
    return true;
  }

  void submit(const Node& node, Value& value) {
    const bool writes = value.submitted == 0;
    if (value.state != Value::State::kGone) {  // It never is, but where the engine is made wrong.
      if (!writes && node.stream != value.stream) order(value.stream, node.stream);
      REQUIRE(dvt_stream_pools_use(pools_.get(), value.block.id, node.stream) == DVT_OK);
      value.users |= uint64_t{1} << node.stream;
    }
    checker.launch(node.stream, node.value, reinterpret_cast<uint64_t>(value.block.address),
                   value.bytes);
    LateDevice::submit(device_.streams[node.stream],
                       [this, writes, address = static_cast<unsigned char*>(value.block.address),
                        bytes = value.bytes, tag = value.tag] {
                         if (writes) std::memset(address, tag, bytes);
                         for (uint32_t i = 0; i < bytes; ++i) wrong_bytes += address[i] != tag;
                       });
    ++value.submitted;
    if (relations_->related(launch_at_)) {
      const bool somebody_waits = relations_->submitted(launch_at_);
      static_cast<void>(somebody_waits);  // One thread: it looks by itself.
    }
  }
  void order(uint32_t from, uint32_t to) {
    const uint32_t event = random_() % kEvents;
    REQUIRE(dvt_stream_pools_record(pools_.get(), from, event) == DVT_OK);
    REQUIRE(dvt_stream_pools_wait(pools_.get(), to, event) == DVT_OK);
  }

  void release_held() {
    for (const uint32_t id : held_) release(program_.values[id]);
    held_.clear();
  }
  void release(Value& value) {
    for (uint64_t users = value.users; users != 0; users &= users - 1) {
      const auto stream = static_cast<uint32_t>(std::countr_zero(users));
      REQUIRE(dvt_stream_pools_free(pools_.get(), value.block.id, stream) == DVT_OK);
    }
    value.state = Value::State::kGone;
  }

  std::mt19937 random_;
  EarlyFree early_;
  uint64_t capacity_;
  LoggedDevice device_;
  Program program_;
  davit::ResourcePtr<Relations<davit::mt_topo::RealThreads>> relations_;
  std::optional<Relations<davit::mt_topo::RealThreads>::Wait> wait_;
  std::unique_ptr<DvtStreamPools, PoolsDeleter> pools_;
  std::vector<uint32_t> held_;
  uint32_t memory_at_ = 0;
  uint32_t launch_at_ = 0;
  bool may_suspend_ = false;
};

}  // namespace

// User report C4: nothing is used again before every Launch that reads it, on any stream.
TEST_CASE("10,000 random schedules with early Frees over 4 streams: bytes go in order") {
  uint64_t reuses = 0, held = 0, suspended = 0, failed = 0;
  for (uint32_t seed = 1; seed <= 10'000; ++seed) {
    CAPTURE(seed);
    Schedule schedule(seed, EarlyFree::kHeld);
    schedule.run();
    INFO((schedule.checker.wrong.empty() ? std::string() : schedule.checker.wrong[0]));
    REQUIRE(schedule.checker.wrong.empty());
    REQUIRE(schedule.wrong_bytes == 0);
    reuses += schedule.checker.reuses;
    held += schedule.held;
    suspended += schedule.suspended();
    failed += schedule.failed;
  }
  MESSAGE(reuses << " uses of bytes again, " << held << " early Frees, " << suspended
                 << " suspended Allocs, " << failed << " out of memory");
  // Else the test says nothing about them.
  CHECK(reuses > 100'000);
  CHECK(held > 10'000);
  CHECK(suspended > 1'000);
  CHECK(failed > 100);
}

TEST_CASE("both judges notice when memory is used again before its Launches are submitted") {
  uint32_t by_checker = 0, by_bytes = 0;
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    Schedule schedule(seed, EarlyFree::kUsedAtOnce);
    schedule.run();
    by_checker += schedule.checker.wrong.empty() ? 0 : 1;
    by_bytes += schedule.wrong_bytes != 0 ? 1 : 0;
  }
  CHECK(by_checker > 10);
  CHECK(by_bytes > 10);
}

TEST_CASE("the checker knows what orders tasks") {
  ReplayChecker checker;
  checker.launch(0, 1, 0, 100);
  checker.launch(0, 2, 50, 100);  // The same stream.
  CHECK(checker.wrong.empty());
  checker.record(0, 0);
  checker.wait(1, 0);
  checker.launch(1, 3, 0, 100);  // By the event.
  CHECK(checker.wrong.empty());
  checker.launch(2, 4, 200, 10);  // Other bytes.
  CHECK(checker.wrong.empty());
  checker.launch(2, 5, 99, 1);  // By nothing.
  CHECK(checker.wrong.size() == 3);
  checker.synchronized(2);
  checker.synchronized(1);
  checker.launch(3, 6, 0, 300);  // By the host.
  CHECK(checker.wrong.size() == 3);
  CHECK(checker.reuses == 1 + 2 + 3 + 5);
}
