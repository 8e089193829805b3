// Graphs that drive a device with several workers: the memory lane ahead of the launch lane, under
// as little memory as the order of the image needs; failures at every call; liveness proved or not.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "davit/device.h"
#include "exec/image.hpp"
#include "exec/liveness.hpp"
#include "tests/exec/support.hpp"

using davit::Error;
using davit::Executor;
using davit::Pool;
using davit::test::TextImage;

namespace {

using Floats = std::array<float, 4>;

// A device with few blocks of 16 bytes. Tasks run when somebody synchronises, as late as can be: of
// other streams, only those before an event that is waited for. Or at once, on eager streams. What
// they work on has to be allocated when they are submitted.
class LazyDevice {
 public:
  static constexpr int kNever = -1;

  explicit LazyDevice(size_t blocks) : memory_(blocks), used_(blocks, false) {
    fill_in();
    base_.device.vtable = &vtable_;
    base_.self = this;
  }
  LazyDevice(const LazyDevice&) = delete;
  LazyDevice& operator=(const LazyDevice&) = delete;

  DvtDevice* get() { return &base_.device; }
  void fail_call(int index) {
    calls_ = 0;
    fail_at_ = index;
  }
  [[nodiscard]] int calls() const { return calls_; }
  [[nodiscard]] size_t in_use() const {
    return size_t(std::count(used_.begin(), used_.end(), true));
  }
  [[nodiscard]] size_t refused() const { return refused_; }
  // Launches and waits take a while, so that others get ahead.
  bool slow = false;
  size_t eager_from = SIZE_MAX;  // Streams from this one on, counted from 1, are eager.

 private:
  struct Base {
    DvtDevice device;
    LazyDevice* self;
  };
  struct Stream {
    bool eager = false;  // Runs what it is given at once.
    std::deque<std::function<void()>> tasks;
    size_t done = 0;
    [[nodiscard]] size_t submitted() const { return done + tasks.size(); }
  };
  struct Event {
    Stream* stream = nullptr;
    size_t submitted = 0;  // On it, when it was recorded.
  };
  static LazyDevice& self(DvtDevice* device) { return *reinterpret_cast<Base*>(device)->self; }

  bool enter() { return calls_++ != fail_at_; }
  [[nodiscard]] bool is_block(const void* address) const {
    const auto index = static_cast<size_t>(static_cast<const Floats*>(address) - memory_.data());
    return index < memory_.size() && used_[index];
  }
  static Stream& stream_of(DvtStream* stream) { return *reinterpret_cast<Stream*>(stream); }
  static Event& event_of(DvtEvent* event) { return *reinterpret_cast<Event*>(event); }
  static DvtCode submit(Stream& stream, std::function<void()> task) {
    stream.tasks.push_back(std::move(task));
    if (stream.eager) run_until(stream, stream.submitted());
    return DVT_OK;
  }

  DvtCode allocate(void** out) {
    for (size_t i = 0; i < used_.size(); ++i) {
      if (used_[i]) continue;
      used_[i] = true;
      *out = &memory_[i];
      return DVT_OK;
    }
    ++refused_;
    return DVT_OUT_OF_MEMORY;
  }
  DvtCode release(void* address) {
    if (!is_block(address)) return DVT_INVALID_ARGUMENT;
    used_[static_cast<size_t>(static_cast<Floats*>(address) - memory_.data())] = false;
    return DVT_OK;
  }
  DvtCode launch(Stream& stream, const DvtLaunch& task) {
    using Record = std::vector<std::max_align_t>;
    auto record = std::make_shared<Record>(task.argument_bytes / sizeof(std::max_align_t) + 1);
    std::memcpy(record->data(), task.arguments, task.argument_bytes);
    dvt_launch_bind(record->data());
    auto* context = reinterpret_cast<DvtContext*>(record->data());
    for (uint32_t i = 0; i < uint32_t{context->input_count} + context->output_count; ++i) {
      if (!is_block(context->cells[i]->data)) return DVT_INVALID_ARGUMENT;
    }
    return submit(stream, [record, run = task.run] { CHECK(run(record->data()) == DVT_OK); });
  }
  static void run_until(Stream& stream, size_t submitted) {
    while (stream.done < submitted) {
      const auto task = std::move(stream.tasks.front());
      stream.tasks.pop_front();
      ++stream.done;
      task();
    }
  }

  void fill_in() {
    vtable_.name = "ascend:test";
    vtable_.malloc = [](DvtDevice* d, uint64_t bytes, const char*, void** out) -> DvtCode {
      const std::lock_guard lock(self(d).mutex_);
      CHECK(bytes == sizeof(Floats));
      return self(d).enter() ? self(d).allocate(out) : DVT_OUT_OF_RESOURCE;
    };
    vtable_.free = [](DvtDevice* d, void* address) -> DvtCode {
      const std::lock_guard lock(self(d).mutex_);
      return self(d).enter() ? self(d).release(address) : DVT_OUT_OF_RESOURCE;
    };
    vtable_.stream_create = [](DvtDevice* d, uint32_t, DvtStream** out) -> DvtCode {
      Stream& made = self(d).streams_.emplace_back();
      made.eager = self(d).eager_from <= self(d).streams_.size();
      *out = reinterpret_cast<DvtStream*>(&made);
      return DVT_OK;
    };
    vtable_.stream_destroy = [](DvtDevice*, DvtStream*) -> DvtCode { return DVT_OK; };
    vtable_.event_create = [](DvtDevice* d, DvtEvent** out) -> DvtCode {
      *out = reinterpret_cast<DvtEvent*>(&self(d).events_.emplace_back());
      return DVT_OK;
    };
    vtable_.event_destroy = [](DvtDevice*, DvtEvent*) -> DvtCode { return DVT_OK; };
    vtable_.event_record = [](DvtDevice* d, DvtStream* stream, DvtEvent* event) -> DvtCode {
      const std::lock_guard lock(self(d).mutex_);
      event_of(event) = {&stream_of(stream), stream_of(stream).submitted()};
      return DVT_OK;
    };
    vtable_.event_wait = [](DvtDevice* d, DvtStream* stream, DvtEvent* event) -> DvtCode {
      const std::lock_guard lock(self(d).mutex_);
      const Event& awaited = event_of(event);
      if (awaited.stream == nullptr) return DVT_INVALID_ARGUMENT;
      return submit(stream_of(stream),
                    [awaited] { run_until(*awaited.stream, awaited.submitted); });
    };
    vtable_.launch = [](DvtDevice* d, DvtStream* stream, const DvtLaunch* task) -> DvtCode {
      if (self(d).slow) std::this_thread::sleep_for(std::chrono::microseconds(20));
      const std::lock_guard lock(self(d).mutex_);
      return self(d).enter() ? self(d).launch(stream_of(stream), *task) : DVT_OUT_OF_RESOURCE;
    };
    vtable_.copy_async = [](DvtDevice* d, DvtStream* stream, DvtCopyKind kind, void* to,
                            const void* from, uint64_t bytes, const char*) -> DvtCode {
      const std::lock_guard lock(self(d).mutex_);
      if (!self(d).enter()) return DVT_OUT_OF_RESOURCE;
      const bool down = kind == DVT_COPY_DEVICE_TO_HOST;
      if (!self(d).is_block(down ? from : to)) return DVT_INVALID_ARGUMENT;
      return submit(stream_of(stream), [=] { std::memcpy(to, from, bytes); });
    };
    vtable_.stream_synchronize = [](DvtDevice* d, DvtStream* stream, int64_t) -> DvtCode {
      if (self(d).slow) std::this_thread::sleep_for(std::chrono::microseconds(100));
      const std::lock_guard lock(self(d).mutex_);
      const DvtCode code = self(d).enter() ? DVT_OK : DVT_OUT_OF_RESOURCE;
      run_until(stream_of(stream), stream_of(stream).submitted());
      return code;
    };
    vtable_.last_error = [](DvtDevice*) -> const char* { return "the device says no"; };
  }

  Base base_{};
  DvtDeviceVtable vtable_{};
  std::mutex mutex_;
  std::vector<Floats> memory_;
  std::vector<bool> used_;
  std::deque<Stream> streams_;
  std::deque<Event> events_;
  int calls_ = 0;
  int fail_at_ = kNever;
  size_t refused_ = 0;
};

struct Program {
  std::string text;
  size_t blocks = 0;  // That the order of the image needs.
};

// d0 is the input; each of the others is the sum of two before it. What nobody reads any more is
// freed, and its Free names all launches that use it. With two streams, launches go to either, and
// the other one waits for each by an event, or the host does.
Program make_program(std::mt19937& random, uint32_t count, uint32_t streams = 1) {
  std::vector<std::array<uint32_t, 2>> from(count);
  std::vector<uint32_t> last(count, 0);
  std::vector<std::string> users(count);
  for (uint32_t i = 1; i < count; ++i) {
    for (uint32_t& source : from[i]) {
      source = random() % 3 == 0 ? random() % i : i - 1 - random() % std::min(i, 3U);
      last[source] = i;
    }
  }
  last[count - 1] = count;
  Program program;
  const auto name = [](uint32_t i) { return "d" + std::to_string(i); };
  const auto after_launch = [&](uint32_t stream) -> std::string {
    if (streams == 1) return "";
    const std::string mine = std::to_string(stream);
    if (random() % 4 == 0) return "SyncStream() {stream=" + mine + "}\n";
    return "RecordEvent() {event=" + mine + "} stream=" + mine + "\nWaitEvent() {event=" + mine +
           "} stream=" + std::to_string(1 - stream) + "\n";
  };
  std::string text = "davit 1.3 target \"ascend:test\"\nstreams " + std::to_string(streams) +
                     (streams == 1 ? "" : "\nevents 2") + "\ninput x: f32[4]\n";
  text += "output y: f32[4]\n";
  for (uint32_t i = 0; i < count; ++i) text += "device " + name(i) + ": f32[4]\n";
  text += "graph init {\nCreateStream() {stream=0, priority=0}\n";
  if (streams == 2) {
    text += "CreateStream() {stream=1, priority=0}\nCreateEvent() {event=0}\n";
    text += "CreateEvent() {event=1}\n";
  }
  text += "}\ngraph main {\n";
  size_t live = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const std::string number = std::to_string(i);
    text += "a" + number + ": d" + number + " = AllocMemHbm() {bytes=16} origin=\"alloc\"\n";
    program.blocks = std::max(program.blocks, ++live);
    if (i == 0) {
      text += "l0: LaunchH2DCopy(x, d0) stream=0\n" + after_launch(0);
      continue;
    }
    const auto [a, b] = from[i];
    const uint32_t stream = streams == 1 ? 0 : uint32_t(random() % 2);
    text += "l" + number + ": d" + number + " = LaunchKernel<" +
            (a == b ? "t.Inc>(" + name(a) : "t.Add>(" + name(a) + ", " + name(b)) +
            ") stream=" + std::to_string(stream) + " after=[a" + number + ", l" +
            std::to_string(a) + (a == b ? "" : ", l" + std::to_string(b)) + "] origin=\"" +
            name(i) + "\"\n" + after_launch(stream);
    for (const uint32_t source : {a, b}) {
      if (users[source].ends_with("l" + number)) continue;
      users[source] += (users[source].empty() ? "l" : ", l") + number;
    }
    for (uint32_t value = 0; value <= i; ++value) {
      const bool unread = value == i && last[value] == 0;
      if (last[value] != i && !unread) continue;
      if (unread) users[value] = "l" + number;
      text += "FreeMemHbm(" + name(value) + ") frees=[" + users[value] + "]\n";
      last[value] = UINT32_MAX;
      --live;
    }
  }
  const std::string end = name(count - 1);
  text += "down: y = LaunchD2HCopy(" + end + ") stream=0 after=[l" + std::to_string(count - 1) +
          "]\nsync: SyncStream() {stream=0} after=[down]\n" +
          (streams == 1 ? "" : "SyncStream() {stream=1} after=[down]\n") + "FreeMemHbm(" + end +
          ") after=[sync]\n}\ngraph deinit {\n" +
          (streams == 1 ? "" : "DestroyEvent() {event=0}\nDestroyEvent() {event=1}\n") +
          (streams == 1 ? "" : "DestroyStream() {stream=1}\n") + "DestroyStream() {stream=0}\n}\n";
  program.text = std::move(text);
  return program;
}

struct Loaded {
  Loaded(const TextImage& text, LazyDevice& device, uint32_t workers, uint32_t schedule) {
    auto made = Pool::create(workers);
    REQUIRE(made);
    pool.emplace(std::move(*made));
    DvtExecutorOptions options;
    dvt_executor_options_init(&options);
    options.device = device.get();
    options.device_memory = DVT_DEVICE_MEMORY_DIRECT;  // Nothing but what the nodes ask for.
    options.pool = pool->get();
    options.schedule = schedule;
    auto loaded = Executor::create(text.image, &options);
    INFO(loaded.error().text());
    REQUIRE(loaded);
    executor.emplace(std::move(*loaded));
    REQUIRE(!executor->bind_input(0, std::span<const float>(x)));
    REQUIRE(!executor->bind_output(0, std::span<float>(y)));
  }
  Error run(int64_t timeout_us = -1) {
    y.fill(0);
    DvtRunOptions options;
    dvt_run_options_init(&options);
    options.timeout_us = timeout_us;
    return executor->run(options);
  }
  std::string reason() { return executor->schedule().reason; }

  Floats x = {1, 2, 3, 4};
  Floats y{};
  std::optional<Pool> pool;
  std::optional<Executor> executor;
};

Floats in_order(const TextImage& text, size_t blocks) {
  LazyDevice device(blocks);
  Loaded loaded(text, device, 1, DVT_SCHEDULE_SEQUENTIAL);
  const Error error = loaded.run();
  INFO(error.text());
  REQUIRE(!error);
  CHECK(device.in_use() == 0);
  return loaded.y;
}

}  // namespace

TEST_CASE("lanes apart, in as little memory as in order: the same bits, and all is returned") {
  size_t refused = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const uint32_t streams = 1 + seed % 2;
    const Program program = make_program(random, 2 + random() % 60, streams);
    const TextImage text(program.text);
    const Floats expected = in_order(text, program.blocks);
    for (const uint32_t workers : {1U, 2U, 3U}) {
      CAPTURE(workers);
      LazyDevice device(program.blocks);
      device.slow = seed % 4 < 2;
      if (seed % 8 > 3) device.eager_from = 2;
      Loaded loaded(text, device, workers, DVT_SCHEDULE_DYNAMIC);
      CHECK(loaded.reason() == "asked for");
      for (int run = 0; run < 5; ++run) {
        const Error error = loaded.run();
        INFO(error.text());
        REQUIRE(!error);
        CHECK(loaded.y == expected);
        CHECK(device.in_use() == 0);
      }
      refused += device.refused();
    }
  }
  CHECK(refused > 0);  // Some allocations had to wait.
}

TEST_CASE("lanes apart with less memory than any order needs: an error, and no hang") {
  std::mt19937 random(3);
  const Program program = make_program(random, 40);
  const TextImage text(program.text);
  for (const uint32_t workers : {1U, 2U, 3U}) {
    LazyDevice device(program.blocks - 1);
    Loaded loaded(text, device, workers, DVT_SCHEDULE_DYNAMIC);
    for (int run = 0; run < 5; ++run) {
      const Error error = loaded.run();
      REQUIRE(error);
      CHECK(error.code() == DVT_OUT_OF_MEMORY);
      CHECK(std::string(error.detail()->node) == "alloc");
      CHECK(device.in_use() == 0);
    }
  }
}

TEST_CASE(
    "lanes apart: any call of the device may fail; memory is returned, the next run is right") {
  std::mt19937 random(5);
  const Program program = make_program(random, 12);
  const TextImage text(program.text);
  const Floats expected = in_order(text, program.blocks);
  for (const uint32_t workers : {1U, 2U, 3U}) {
    LazyDevice device(program.blocks + workers);
    Loaded loaded(text, device, workers, DVT_SCHEDULE_DYNAMIC);
    device.fail_call(LazyDevice::kNever);
    REQUIRE(!loaded.run());
    const int calls = device.calls();
    for (int call = 0; call < calls; ++call) {
      CAPTURE(call);
      device.fail_call(call);
      const Error error = loaded.run();
      device.fail_call(LazyDevice::kNever);
      if (error) {  // With more workers, fewer calls may have been made.
        CHECK(error.code() == DVT_OUT_OF_RESOURCE);
        CHECK(std::string(error.detail()->message).find("the device says no") != std::string::npos);
      }
      CHECK(device.in_use() == 0);
      REQUIRE(!loaded.run());
      CHECK(loaded.y == expected);
      CHECK(device.in_use() == 0);
    }
    CHECK(loaded.run(0).code() == DVT_TIMEOUT);
    CHECK(device.in_use() == 0);
    CHECK(!loaded.run());
  }
}

TEST_CASE("a suspended allocation is told with the launch that it waits for") {
  std::mt19937 random(9);
  const Program program = make_program(random, 40);
  const TextImage text(program.text);
  LazyDevice device(program.blocks);
  device.slow = true;
  Loaded loaded(text, device, 2, DVT_SCHEDULE_DYNAMIC);
  DvtRunOptions options;
  dvt_run_options_init(&options);
  options.flags = DVT_RUN_WATCHED;
  std::string suspended;
  for (int run = 0; run < 2000 && suspended.empty(); ++run) {
    std::atomic<bool> over{false};
    std::thread asker([&] {
      while (!over.load()) {
        const std::string waits = loaded.executor->describe_waits();
        if (waits.find("is suspended until") != std::string::npos) suspended = waits;
      }
    });
    const Error error = loaded.executor->run(options);
    over.store(true);
    asker.join();
    REQUIRE(!error);
  }
  const size_t at = suspended.find(" (AllocMemHbm, alloc) is suspended until node ");
  REQUIRE(at != std::string::npos);
  CHECK(suspended.find(" (LaunchKernel, d", at) != std::string::npos);
  CHECK(suspended.find(" is submitted", at) != std::string::npos);
}

TEST_CASE("a graph that drives a device runs in order unless asked otherwise") {
  std::mt19937 random(1);
  const TextImage text(make_program(random, 10).text);
  LazyDevice device(100);
  CHECK(Loaded(text, device, 2, DVT_SCHEDULE_AUTO).reason().find("drives a device") !=
        std::string::npos);
}

TEST_CASE("liveness: relations that end are proved; a wait for what waits for it is shown") {
  const auto graph_of = [](const TextImage& text) -> const davit::exec::GraphView& {
    const auto& view = text.image.get()->view;
    return view.graphs[view.main];
  };
  std::mt19937 random(2);
  const TextImage good(make_program(random, 30).text);
  const auto proof = davit::exec::prove_liveness(good.image.get()->view, graph_of(good));
  CHECK(proof.proved());
  CHECK(proof.relations > 20);

  // The Free of d0 names l2, which needs the memory of d2, which may wait for l2.
  const auto text_with = [](const std::string& row) {
    return "davit 1.3 target \"ascend:test\"\nstreams 1\ninput x: f32[4]\noutput y: f32[4]\n"
           "device d0: f32[4]\ndevice d1: f32[4]\ndevice d2: f32[4]\n"
           "graph init {\nCreateStream() {stream=0, priority=0}\n}\n"
           "graph main {\n"
           "d0 = AllocMemHbm() {bytes=16} origin=\"x\"\n"
           "l0: LaunchH2DCopy(x, d0) stream=0 origin=\"x\"\n"
           "a1: d1 = AllocMemHbm() {bytes=16} origin=\"one\"\n"
           "l1: d1 = LaunchKernel<t.Inc>(d0) stream=0 after=[a1, l0] origin=\"one\"\n"
           "FreeMemHbm(d0) frees=[" +
           row +
           "] origin=\"x\"\n"
           "a2: d2 = AllocMemHbm() {bytes=16} origin=\"two\"\n"
           "l2: d2 = LaunchKernel<t.Inc>(d1) stream=0 after=[a2, l1] origin=\"two\"\n"
           "down: y = LaunchD2HCopy(d2) stream=0 after=[l2] origin=\"y\"\n"
           "sync: SyncStream() {stream=0} after=[down]\n"
           "FreeMemHbm(d1) after=[sync]\nFreeMemHbm(d2) after=[sync]\n}\n"
           "graph deinit {\nDestroyStream() {stream=0}\n}\n";
  };
  const TextImage one(text_with("l1"));
  CHECK(davit::exec::prove_liveness(one.image.get()->view, graph_of(one)).proved());
  const TextImage bad(text_with("l1, l2"));
  const auto& view = bad.image.get()->view;
  const auto liveness = davit::exec::prove_liveness(view, graph_of(bad));
  CHECK(liveness.relations == 2);
  CHECK(liveness.free == 4);
  CHECK(liveness.chain == std::vector<uint32_t>{5, 6});
  CHECK(davit::exec::describe_liveness(view, graph_of(bad), liveness) ==
        "node 5 (AllocMemHbm, two) may wait for node 6 (LaunchKernel, two), which node 4 "
        "(FreeMemHbm, x) has named; "
        "node 6 (LaunchKernel, two) waits for node 5 (AllocMemHbm, two)");
  LazyDevice device(3);
  Loaded loaded(bad, device, 2, DVT_SCHEDULE_DYNAMIC);
  CHECK(loaded.reason().find("not proved to end") != std::string::npos);
  CHECK(!loaded.run());
}
