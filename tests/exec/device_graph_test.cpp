// Device graphs on the cpu device: results, the order of calls, and that nothing is kept when any
// call of the device fails.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "davit/davit.hpp"
#include "davit/device.h"
#include "exec/runtime.h"
#include "tests/exec/support.hpp"

using davit::Error;
using davit::Executor;
using davit::test::TextImage;

namespace {

using Floats = std::array<float, 4>;

// A cpu device that logs every call, fails the n-th, and knows what is alive.
class FakeDevice {
 public:
  static constexpr int kNever = -1;

  explicit FakeDevice(const char* name = "ascend:test") : real_(dvt_cpu_device_create()) {
    fill_in_memory();
    fill_in_streams();
    fill_in_reports();
    vtable_.name = name;
    base_.device.vtable = &vtable_;
    base_.self = this;
  }
  FakeDevice(const FakeDevice&) = delete;
  FakeDevice& operator=(const FakeDevice&) = delete;
  ~FakeDevice() { dvt_cpu_device_destroy(real_); }

  DvtDevice* get() { return &base_.device; }
  [[nodiscard]] int calls() const { return static_cast<int>(log_.size()); }
  [[nodiscard]] const std::vector<std::string>& log() const { return log_; }
  [[nodiscard]] size_t alive() const { return alive_.size(); }
  void fail_call(int index, DvtCode code = DVT_OUT_OF_RESOURCE) {
    fail_at_ = index;
    fail_code_ = code;
  }
  // From now on every synchronisation times out.
  void hang(bool hanging) { hanging_ = hanging; }
  void clear_log() { log_.clear(); }
  void set_capacity(uint64_t bytes) { capacity_ = bytes; }
  [[nodiscard]] long count(const char* call) const {
    return std::count(log_.begin(), log_.end(), call);
  }

 private:
  struct Base {
    DvtDevice device;
    FakeDevice* self;
  };

  static FakeDevice& self(DvtDevice* device) { return *reinterpret_cast<Base*>(device)->self; }

  // Logs a call. False: it has to fail.
  bool enter(const char* what) {
    log_.emplace_back(what);
    return calls() - 1 != fail_at_;
  }
  DvtCode keep(DvtCode code, void* object) {
    if (code == DVT_OK) alive_.insert(object);
    return code;
  }
  DvtCode drop(DvtCode code, void* object) {
    if (code == DVT_OK) CHECK(alive_.erase(object) == 1);
    return code;
  }

  void fill_in_memory() {
    vtable_.malloc = [](DvtDevice* d, uint64_t bytes, const char* owner, void** out) -> DvtCode {
      FakeDevice& fake = self(d);
      if (!fake.enter("malloc")) return fake.fail_code_;
      if (bytes > fake.capacity_ - fake.used_) return DVT_OUT_OF_MEMORY;
      const DvtCode code = fake.real_->vtable->malloc(fake.real_, bytes, owner, out);
      if (code == DVT_OK) fake.used_ += fake.sizes_[*out] = bytes;
      return fake.keep(code, *out);
    };
    vtable_.free = [](DvtDevice* d, void* address) -> DvtCode {
      FakeDevice& fake = self(d);
      if (!fake.enter("free")) return fake.fail_code_;
      const DvtCode code = fake.real_->vtable->free(fake.real_, address);
      if (code == DVT_OK) fake.used_ -= fake.sizes_[address];
      return fake.drop(code, address);
    };
    vtable_.copy_async = [](DvtDevice* d, DvtStream* stream, DvtCopyKind kind, void* to,
                            const void* from, uint64_t bytes, const char* name) -> DvtCode {
      FakeDevice& fake = self(d);
      if (!fake.enter("copy")) return fake.fail_code_;
      return fake.real_->vtable->copy_async(fake.real_, stream, kind, to, from, bytes, name);
    };
  }

  void fill_in_streams() {
    vtable_.stream_create = [](DvtDevice* d, uint32_t priority, DvtStream** out) -> DvtCode {
      FakeDevice& fake = self(d);
      if (!fake.enter("stream_create")) return fake.fail_code_;
      const DvtCode code = fake.real_->vtable->stream_create(fake.real_, priority, out);
      return fake.keep(code, *out);
    };
    vtable_.stream_destroy = [](DvtDevice* d, DvtStream* stream) -> DvtCode {
      FakeDevice& fake = self(d);
      if (!fake.enter("stream_destroy")) return fake.fail_code_;
      return fake.drop(fake.real_->vtable->stream_destroy(fake.real_, stream), stream);
    };
    vtable_.stream_synchronize = [](DvtDevice* d, DvtStream* stream, int64_t timeout) -> DvtCode {
      FakeDevice& fake = self(d);
      if (!fake.enter("synchronize")) return fake.fail_code_;
      if (fake.hanging_) return DVT_TIMEOUT;
      return fake.real_->vtable->stream_synchronize(fake.real_, stream, timeout);
    };
    vtable_.launch = [](DvtDevice* d, DvtStream* stream, const DvtLaunch* launch) -> DvtCode {
      FakeDevice& fake = self(d);
      if (!fake.enter(launch->name)) return fake.fail_code_;
      return fake.real_->vtable->launch(fake.real_, stream, launch);
    };
    vtable_.event_create = [](DvtDevice* d, DvtEvent** out) -> DvtCode {
      FakeDevice& fake = self(d);
      if (!fake.enter("event_create")) return fake.fail_code_;
      const DvtCode code = fake.real_->vtable->event_create(fake.real_, out);
      return fake.keep(code, *out);
    };
    vtable_.event_destroy = [](DvtDevice* d, DvtEvent* event) -> DvtCode {
      FakeDevice& fake = self(d);
      if (!fake.enter("event_destroy")) return fake.fail_code_;
      return fake.drop(fake.real_->vtable->event_destroy(fake.real_, event), event);
    };
    vtable_.event_record = [](DvtDevice* d, DvtStream* stream, DvtEvent* event) -> DvtCode {
      FakeDevice& fake = self(d);
      if (!fake.enter("record")) return fake.fail_code_;
      return fake.real_->vtable->event_record(fake.real_, stream, event);
    };
    vtable_.event_wait = [](DvtDevice* d, DvtStream* stream, DvtEvent* event) -> DvtCode {
      FakeDevice& fake = self(d);
      if (!fake.enter("wait")) return fake.fail_code_;
      return fake.real_->vtable->event_wait(fake.real_, stream, event);
    };
  }

  void fill_in_reports() {
    vtable_.run_begin = [](DvtDevice* d) { self(d).brackets_ += "("; };
    vtable_.run_end = [](DvtDevice* d) { self(d).brackets_ += ")"; };
    vtable_.last_error = [](DvtDevice* /*d*/) -> const char* { return "the device says no"; };
  }

 public:
  std::string brackets_;  // "()" for each run.

 private:
  Base base_{};
  DvtDeviceVtable vtable_{};
  DvtDevice* real_;
  std::vector<std::string> log_;
  std::set<void*> alive_;
  std::map<void*, uint64_t> sizes_;
  uint64_t capacity_ = UINT64_MAX, used_ = 0;
  int fail_at_ = kNever;
  DvtCode fail_code_ = DVT_OUT_OF_RESOURCE;
  bool hanging_ = false;
};

davit::Expected<Executor> load(const TextImage& text, FakeDevice& device,
                               uint32_t memory = DVT_DEVICE_MEMORY_DIRECT, uint64_t bytes_max = 0) {
  DvtExecutorOptions options;
  dvt_executor_options_init(&options);
  options.device = device.get();
  options.device_memory = memory;
  options.device_bytes_max = bytes_max;
  return Executor::create(text.image, &options);
}

Error bind(Executor& executor, const Floats& x, Floats& y) {
  if (Error error = executor.bind_input(0, std::span<const float>(x))) return error;
  return executor.bind_output(0, std::span<float>(y));
}

constexpr Floats kX = {1, 2, 3, 4};
constexpr Floats kWanted = {12, 23, 34, 45};

}  // namespace

TEST_CASE("a device graph computes, run after run, and returns everything at unload") {
  const TextImage text(davit::test::kDeviceText);
  FakeDevice device;
  auto executor = load(text, device);
  INFO(executor.error().text());
  REQUIRE(executor);
  CHECK(device.alive() == 4);  // The weight, two streams, an event.
  for (int run = 0; run < 3; ++run) {
    Floats y{};
    REQUIRE(!bind(*executor, kX, y));
    device.clear_log();
    const Error error = executor->run();
    INFO(error.text());
    REQUIRE(!error);
    CHECK(y == kWanted);
    CHECK(device.alive() == 4);
    const std::vector<std::string> calls = {"malloc", "copy",   "record", "wait", "malloc",
                                            "add_1",  "malloc", "inc_1",  "copy", "synchronize"};
    REQUIRE(device.calls() >= 10);
    CHECK(std::vector<std::string>(device.log().begin(), device.log().begin() + 10) == calls);
  }
  // Main synchronises stream 0; stream 1, on which it ends with work, is left to the executor.
  CHECK(std::count(device.log().begin(), device.log().end(), "synchronize") == 2);
  CHECK(device.brackets_ == "()()()");
  CHECK(!executor->unload());
  CHECK(device.alive() == 0);
}

TEST_CASE("a device's failure at any call of a whole life leaves nothing behind") {
  const TextImage text(davit::test::kDeviceText);
  int loads_failed = 0;
  int runs_failed = 0;
  int unloads_failed = 0;
  for (int failing = 0;; ++failing) {
    FakeDevice device;
    device.fail_call(failing);
    {
      auto executor = load(text, device);
      if (!executor) {
        ++loads_failed;
        CHECK(executor.error().code() == DVT_OUT_OF_RESOURCE);
        CHECK(executor.error().detail()->stage == DVT_STAGE_LOAD);
        CHECK(std::string(executor.error().detail()->message).find("the device says no") !=
              std::string::npos);
      } else {
        for (int run = 0; run < 2; ++run) {
          Floats y{};
          REQUIRE(!bind(*executor, kX, y));
          const Error error = executor->run();
          runs_failed += error ? 1 : 0;
          CHECK((error ? error.detail()->stage : DVT_STAGE_RUN) == DVT_STAGE_RUN);
          // A right result, or an error; and the next run is right.
          if (!error) CHECK(y == kWanted);
          CHECK(device.alive() == 4);
        }
        unloads_failed += executor->unload() ? 1 : 0;
      }
    }
    CAPTURE(failing);
    CHECK(device.alive() == 0);
    if (device.calls() <= failing) break;  // The whole life needs fewer calls.
  }
  // Init has six calls to the device, Main fourteen, DeInit four; unload synchronises two streams
  // before that. Main joins stream 1, which no SyncStream of Main covers.
  CHECK(loads_failed == 6);
  CHECK(runs_failed >= 2 * 13);
  CHECK(unloads_failed >= 4 + 2);
}

TEST_CASE("device memory of Main is cached: later runs ask the device for nothing") {
  const TextImage text(davit::test::kDeviceText);
  FakeDevice device;
  auto executor = load(text, device, DVT_DEVICE_MEMORY_CACHED);
  INFO(executor.error().text());
  REQUIRE(executor);
  CHECK(device.alive() == 4);  // What Init allocates is not cached.
  for (int run = 0; run < 3; ++run) {
    Floats y{};
    REQUIRE(!bind(*executor, kX, y));
    device.clear_log();
    REQUIRE(!executor->run());
    CHECK(y == kWanted);
    CHECK(device.count("malloc") == (run == 0 ? 1 : 0));
    CHECK(device.count("free") == 0);
    CHECK(device.alive() == 5);  // And one range.
  }
  const DvtMemoryStatistics memory = executor->memory(DVT_MEMORY_DEVICE);
  CHECK(memory.live_bytes == 0);
  CHECK(memory.live_peak_bytes == 3 * 64);
  CHECK(memory.allocations == 3 * 3);
  CHECK(memory.system_allocations == 1);
  CHECK(memory.cached_bytes == memory.reserved_bytes);
  CHECK(memory.largest_hole_bytes == memory.cached_bytes);
  CHECK(memory.limit_bytes == 0);
  CHECK(executor->memory(DVT_MEMORY_HEAP).reserved_bytes == 0);
  CHECK(executor->trim() == memory.cached_bytes);
  CHECK(device.alive() == 4);
  Floats y{};
  REQUIRE(!bind(*executor, kX, y));
  CHECK(!executor->run());
  CHECK(y == kWanted);
  CHECK(!executor->unload());
  CHECK(device.alive() == 0);
}

TEST_CASE("with a cache, too, a device's failure at any call leaves nothing behind") {
  const TextImage text(davit::test::kDeviceText);
  int failures = 0;
  for (int failing = 0;; ++failing) {
    CAPTURE(failing);
    FakeDevice device;
    device.fail_call(failing);
    if (auto executor = load(text, device, DVT_DEVICE_MEMORY_CACHED); executor) {
      for (int run = 0; run < 3; ++run) {
        Floats y{};
        REQUIRE(!bind(*executor, kX, y));
        const Error error = executor->run();
        failures += error ? 1 : 0;
        if (!error) CHECK(y == kWanted);
        CHECK(executor->memory(DVT_MEMORY_DEVICE).live_bytes == 0);
        CHECK(device.alive() <= 4 + 3);  // At most a range for each allocation of Main.
      }
      failures += executor->unload() ? 1 : 0;
    } else {
      ++failures;
    }
    CHECK(device.alive() == 0);
    if (device.calls() <= failing) break;
  }
  CHECK(failures > 30);
}

TEST_CASE("when a device has no more, streams are waited for, and the error tells it all") {
  const TextImage text(davit::test::kDeviceText);
  for (const bool by_limit : {false, true}) {
    FakeDevice device;
    auto executor = load(text, device, DVT_DEVICE_MEMORY_CACHED, by_limit ? 2 * 64 : 0);
    REQUIRE(executor);
    Floats y{};
    REQUIRE(!bind(*executor, kX, y));
    if (!by_limit) device.set_capacity(16 + 2 * 64);  // The weight, and two of three.
    device.clear_log();
    const Error error = executor->run();
    REQUIRE(error.code() == DVT_OUT_OF_MEMORY);
    CHECK(device.count("synchronize") >= 2);
    CHECK(error.detail()->node == std::string("y"));
    const std::string message = error.detail()->message;
    INFO(message);
    CHECK(message.find("y asks ascend:test for 16 bytes") != std::string::npos);
    CHECK(message.find(by_limit ? "the limit is reached" : "the source has no more memory") !=
          std::string::npos);
    CHECK(std::string(error.detail()->got) ==
          "128 live, 0 cached, largest hole 0 bytes, fragmentation 0 %");
    CHECK(std::string(error.detail()->hint) ==
          "most is held by x: 64 bytes in 1 block; sum: 64 bytes in 1 block");
    CHECK(executor->memory(DVT_MEMORY_DEVICE).live_bytes == 0);
    CHECK(executor->memory(DVT_MEMORY_DEVICE).recoveries > 0);
    if (by_limit) continue;
    device.set_capacity(UINT64_MAX);
    CHECK(!executor->run());
    CHECK(y == kWanted);
  }
}

TEST_CASE("options of device memory that make no sense are refused") {
  const TextImage text(davit::test::kDeviceText);
  FakeDevice device;
  CHECK(load(text, device, 2).error().code() == DVT_INVALID_ARGUMENT);
  CHECK(load(text, device, DVT_DEVICE_MEMORY_DIRECT, 100).error().code() == DVT_INVALID_ARGUMENT);
  CHECK(device.alive() == 0);
}

TEST_CASE("a failing launch names the original node, its operator and the device kernel") {
  const TextImage text(davit::test::kDeviceText);
  FakeDevice device;
  auto executor = load(text, device);
  REQUIRE(executor);
  Floats y{};
  REQUIRE(!bind(*executor, kX, y));
  device.fail_call(device.calls() + 5);
  const Error error = executor->run();
  REQUIRE(error);
  CHECK(error.detail()->node == std::string("add_1"));
  CHECK(error.detail()->op == std::string("test::Add(1)"));
  CHECK(std::string(error.detail()->message) ==
        "kernel LaunchKernel(t.Add) failed: the device says no");
}

TEST_CASE("work that does not end is a timeout, and memory stays until it does") {
  const TextImage text(davit::test::kDeviceText);
  FakeDevice device;
  auto executor = load(text, device);
  REQUIRE(executor);
  Floats y{};
  REQUIRE(!bind(*executor, kX, y));
  device.hang(true);
  CHECK(executor->run().code() == DVT_TIMEOUT);
  CHECK(device.alive() == 7);  // Three allocations of Main, which tasks may still use.
  const Error again = executor->run();
  CHECK(again.code() == DVT_TIMEOUT);
  CHECK(device.alive() == 7);  // The run did not even start.
  device.hang(false);
  CHECK(!executor->run());
  CHECK(y == kWanted);
  CHECK(device.alive() == 4);
}

TEST_CASE("an image for a device needs one, and the right one") {
  const TextImage text(davit::test::kDeviceText);
  const auto none = Executor::create(text.image);
  REQUIRE(!none);
  CHECK(none.error().code() == DVT_INVALID_ARGUMENT);
  CHECK(none.error().detail()->expected == std::string("ascend:test"));

  FakeDevice other("ascend:910B9");
  const auto wrong = load(text, other);
  REQUIRE(!wrong);
  CHECK(wrong.error().detail()->got == std::string("ascend:910B9"));
  CHECK(other.calls() == 0);

  FakeDevice cpu("cpu");
  CHECK(load(text, cpu));
}

TEST_CASE("a cpu image with device nodes brings its own cpu device") {
  std::string on_cpu(davit::test::kDeviceText);
  on_cpu.replace(on_cpu.find("\"ascend:test\""), 13, "cpu");
  const TextImage text(on_cpu);
  auto executor = Executor::create(text.image);
  INFO(executor.error().text());
  REQUIRE(executor);
  Floats y{};
  REQUIRE(!bind(*executor, kX, y));
  CHECK(!executor->run());
  CHECK(y == kWanted);
}

TEST_CASE("several executors share a device") {
  const TextImage text(davit::test::kDeviceText);
  FakeDevice device;
  {
    std::vector<Executor> executors;
    for (int i = 0; i < 3; ++i) {
      auto executor = load(text, device);
      REQUIRE(executor);
      executors.push_back(std::move(*executor));
    }
    for (Executor& executor : executors) {
      Floats y{};
      REQUIRE(!bind(executor, kX, y));
      CHECK(!executor.run());
      CHECK(y == kWanted);
    }
  }
  CHECK(device.alive() == 0);
}

TEST_CASE("a device belongs to the process that made it: the child of a fork gets an error") {
  const TextImage text(davit::test::kDeviceText);
  FakeDevice device;
  auto executor = load(text, device);
  REQUIRE(executor);
  Floats y{};
  REQUIRE(!bind(*executor, kX, y));
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const Error error = executor->run();
    const bool refused = error.code() == DVT_FAILED_STATE &&
                         std::string(error.detail()->message).find("fork") != std::string::npos;
    const int calls = device.calls();
    const bool left_alone = !executor->unload() && device.calls() == calls;
    ::_exit(refused && left_alone ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(!executor->run());
  CHECK(y == kWanted);
}

TEST_CASE("a Main that frees too little fails in its second run instead of leaking") {
  // The verifier refuses such images; kernels do not rely on it.
  DvtDevice* device = dvt_cpu_device_create();
  const DvtKernelTable table = dvt_device_kernels();
  const DvtKernel* alloc = nullptr;
  for (size_t i = 0; i < table.count; ++i) {
    if (std::string(table.kernels[i].name) == "AllocMemHbm") alloc = &table.kernels[i];
  }
  REQUIRE(alloc != nullptr);
  DvtNodeNames names = {"x", "op"};
  char reasons[3][64] = {};  // For each lane.
  DvtRuntime runtime{};
  runtime.device = device;
  runtime.names = &names;
  runtime.reason = reasons[0];
  runtime.reason_bytes = sizeof reasons[0];
  const DvtAllocAttributes attributes = {16};
  DvtCell cell{};
  DvtContext context{};
  context.runtime = &runtime;
  context.attributes = &attributes;
  context.output_count = 1;
  context.cells[0] = &cell;
  CHECK(alloc->run(&context) == DVT_OK);
  CHECK(alloc->run(&context) == DVT_FAILED_STATE);
  CHECK(std::string(reasons[DVT_KERNEL_LANE_MEMORY]).find("nothing has freed") !=
        std::string::npos);
  dvt_cpu_device_destroy(device);
}

TEST_CASE("checks of device nodes name what is wrong") {
  const auto refused = [](std::string_view from, std::string_view to) {
    std::string text(davit::test::kDeviceText);
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    text.replace(at, from.size(), to);
    return davit::test::assembly_error(text);
  };
  CHECK(refused("CreateStream() {stream=0, priority=0}", "CreateStream() {stream=2, priority=0}")
            .find("stream 2 is not below the plan's 2") != std::string::npos);
  CHECK(refused("CreateStream() {stream=0, priority=0}", "CreateStream() {stream=0, priority=9}")
            .find("priority 9") != std::string::npos);
  CHECK(refused("CreateEvent() {event=0}", "CreateEvent() {event=-1}").find("event -1") !=
        std::string::npos);
  CHECK(refused("{bytes=16} origin=\"x\"", "{bytes=15} origin=\"x\"")
            .find("allocates 15 bytes for a tensor of 16") != std::string::npos);
  CHECK(refused("device sum2: f32[2, 2]", "device sum2: f32[2, 3]")
            .find("a reference of 24 bytes to a tensor of 16") != std::string::npos);
  CHECK(refused("input x: f32[4]", "input x: f32[5]").find("copies 20 bytes to a tensor of 16") !=
        std::string::npos);
  CHECK(refused("LaunchH2DCopy(x, dx) stream=1", "LaunchH2DCopy(x, dx)").find("has no stream") !=
        std::string::npos);
}
