// Branches and loops on several workers: bodies beside other nodes and their own nodes beside each
// other, failures and limits at every node of a body.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/exec/support.hpp"
#include "tests/support/dynamic_kernels.hpp"

using davit::Cancel;
using davit::Error;
using davit::Executor;
using davit::Pool;
using davit::test::check_ok;
using davit::test::TextImage;

namespace {

// a = go ? 4 x : 2 x, b = go ? 4 x : 2 x, state = 2 state + 2 x in each of `trip` iterations, from
// x on, with a branch inside; y = a + b + state.
constexpr const char* kText = R"davit(davit 1.3 target cpu
input x: f32[?1..64] dynamic
input go: bool[]
input trip: i64[]
output y: f32[...] dynamic
const limit: i64[] = {9223372036854775807}
planned i: i64[]
planned cond: bool[]
planned next: bool[]
heap a: f32[?] dynamic
heap b: f32[?] dynamic
heap ab: f32[?] dynamic
heap last: f32[?] dynamic
heap a1: f32[?] dynamic
heap a2: f32[?] dynamic
heap b1: f32[?] dynamic
heap b2: f32[?] dynamic
heap c1: f32[...] dynamic
heap c2: f32[...] dynamic
heap state: f32[...] dynamic
heap state_next: f32[...] dynamic

graph main {
  a = If(go, x) bodies=[a_then, a_else] origin="a"
  b = If(go, x) bodies=[b_then, b_else] origin="b"
  last, i, cond, state, next, state_next = Loop(trip, _, x, x, go) {states=1, collected=0} bodies=[body] origin="loop"
  ab = InferShape(a, b) {target=5} origin="ab"
  ab = AllocHost() origin="ab"
  ab = dyn.Add(a, b) origin="ab"
  y = InferShape(ab, last) {target=8} origin="y"
  y = BindOutput() {output=0} origin="y"
  y = dyn.Add(ab, last) origin="y"
  FreeHost(a, b, last, ab)
}

graph body a_then {
  a1 = InferShape(x) {target=2}
  a1 = AllocHost()
  a1 = dyn.Double(x) origin="a/left"
  a2 = InferShape(x) {target=5}
  a2 = AllocHost()
  a2 = dyn.Double(x) origin="a/right"
  a = InferShape(a1, a2) {target=8}
  a = AllocHost()
  a = dyn.Add(a1, a2) origin="a/sum"
  FreeHost(a1, a2)
}

graph body a_else {
  a = InferShape(x) {target=2}
  a = AllocHost()
  a = dyn.Double(x) origin="a/else"
}

graph body b_then {
  b1 = InferShape(x) {target=2}
  b1 = AllocHost()
  b1 = dyn.Double(x) origin="b/left"
  b2 = InferShape(x) {target=5}
  b2 = AllocHost()
  b2 = dyn.Double(x) origin="b/right"
  b = InferShape(b1, b2) {target=8}
  b = AllocHost()
  b = dyn.Add(b1, b2) origin="b/sum"
  FreeHost(b1, b2)
}

graph body b_else {
  b = InferShape(x) {target=2}
  b = AllocHost()
  b = dyn.Double(x) origin="b/else"
}

graph body body {
  c1 = InferShape(state) {target=2}
  c1 = AllocHost()
  c1 = dyn.Double(state) origin="loop/left"
  c2 = If(go, x) bodies=[c_then, c_else] origin="loop/if"
  state_next = InferShape(c1, c2) {target=6}
  state_next = AllocHost()
  state_next = dyn.Add(c1, c2) origin="loop/sum"
  next = dyn.Less(i, limit) origin="loop/less"
  FreeHost(c1, c2)
}

graph body c_then {
  c2 = InferShape(x) {target=2}
  c2 = AllocHost()
  c2 = dyn.Double(x) origin="loop/then"
}

graph body c_else {
  c2 = InferShape(x, x) {target=2}
  c2 = AllocHost()
  c2 = dyn.Add(x, x) origin="loop/else"
}
)davit";

struct Inputs {
  bool go = true;
  int64_t trip = 2;
  int64_t length = 5;
};

// An executor of kText on so many workers.
class Sample {
 public:
  explicit Sample(uint32_t workers, uint32_t schedule = DVT_SCHEDULE_DYNAMIC,
                  uint64_t heap_bytes_max = 0)
      : text_(kText) {
    auto made = Pool::create(workers);
    REQUIRE(made);
    pool_.emplace(std::move(*made));
    DvtExecutorOptions options;
    dvt_executor_options_init(&options);
    options.pool = pool_->get();
    options.schedule = schedule;
    options.heap_bytes_max = heap_bytes_max;
    auto loaded = Executor::create(text_.image, &options);
    INFO(loaded.error().text());
    REQUIRE(loaded);
    executor_.emplace(std::move(*loaded));
  }

  Executor& executor() { return *executor_; }

  void bind(const Inputs& inputs) {
    inputs_ = inputs;
    x_.clear();
    for (int64_t i = 0; i < inputs.length; ++i) x_.push_back(static_cast<float>(i + 1));
    y_.assign(x_.size(), 0);
    check_ok(executor_->bind_input(0, std::span<const float>(x_), DVT_F32,
                                   std::span(&inputs_.length, 1)));
    check_ok(executor_->bind_input(1, std::span<const bool>(&inputs_.go, 1)));
    check_ok(executor_->bind_input(2, std::span<const int64_t>(&inputs_.trip, 1)));
    check_ok(executor_->bind_output(0, std::span<float>(y_)));
  }

  void check_run() {
    std::ranges::fill(y_, 0.0F);
    check_ok(executor_->run());
    check_output();
  }
  void check_output() {
    for (size_t k = 0; k < x_.size(); ++k) {
      float state = x_[k];
      for (int64_t i = 0; i < inputs_.trip; ++i) state = 2 * state + 2 * x_[k];
      CHECK(y_[k] == (inputs_.go ? 8 : 4) * x_[k] + state);
    }
    CHECK(executor_->statistics().heap_live_bytes == 0);
  }

  Error run(const DvtCancel* cancel, int64_t timeout_us) {
    DvtRunOptions options;
    dvt_run_options_init(&options);
    options.cancel = cancel;
    options.timeout_us = timeout_us;
    return executor_->run(options);
  }

  // Runs whose kernels take long: from then on Main and the bodies that have run are shared.
  void learn_to_share() {
    auto* const hook = davit::test::dynamic_hook.exchange([](const DvtContext* /*context*/) {
      std::this_thread::sleep_for(std::chrono::microseconds(300));
      return DvtCode{DVT_OK};
    });
    for (int run = 0; run < 8; ++run) check_run();
    davit::test::dynamic_hook.store(hook);
  }

  // The kernels' nodes by name, in the order of the image.
  std::vector<std::string> learn_names(std::map<const DvtContext*, std::string>& names) {
    std::vector<std::string> order;
    names.clear();
    check_ok(executor_->run_observed([&](const DvtNodeEvent& event) {
      if (!std::string_view(event.kernel).starts_with("dyn.")) return;
      if (names.emplace(event.context, event.origin).second) order.emplace_back(event.origin);
    }));
    return order;
  }

 private:
  TextImage text_;
  std::optional<Pool> pool_;
  std::optional<Executor> executor_;
  Inputs inputs_;
  std::vector<float> x_, y_;
};

// What kernels do, on whatever thread, in one test case.
enum class Act : uint8_t { kNothing, kFail, kEndOfSequence, kThrow, kCancel, kSleep };
constexpr int64_t kTimeoutUs = 2000;

struct Hooked {
  Hooked() {
    names.clear();
    arm(Act::kNothing, "");
    davit::test::dynamic_hook.store(hook);
  }
  ~Hooked() { davit::test::dynamic_hook.store(nullptr); }
  Hooked(const Hooked&) = delete;
  Hooked& operator=(const Hooked&) = delete;

  static void arm(Act what, const std::string& node, DvtCancel* flag = nullptr) {
    act = what;
    at = node;
    cancel = flag;
  }

  static DvtCode hook(const DvtContext* context) {
    const auto name = names.find(context);
    if (name == names.end() || name->second != at) return DVT_OK;
    switch (act) {
      case Act::kFail:
        return DVT_KERNEL_FAILED;
      case Act::kEndOfSequence:
        return DVT_END_OF_SEQUENCE;
      case Act::kThrow:
        throw std::runtime_error("a kernel throws");
      case Act::kCancel:
        dvt_cancel_request(cancel);
        break;
      case Act::kSleep:
        std::this_thread::sleep_for(std::chrono::microseconds(kTimeoutUs + 500));
        break;
      case Act::kNothing:
        break;
    }
    return DVT_OK;
  }

  // Changed between runs only.
  inline static std::map<const DvtContext*, std::string> names;
  inline static Act act = Act::kNothing;
  inline static std::string at;
  inline static DvtCancel* cancel = nullptr;
};

constexpr uint32_t kSchedules[] = {DVT_SCHEDULE_AUTO, DVT_SCHEDULE_DYNAMIC};

}  // namespace

TEST_CASE("results are those in order, whatever the branch, trip count, length and workers") {
  for (const uint32_t workers : {1U, 2U, 3U}) {
    for (const uint32_t schedule : kSchedules) {
      for (const uint64_t heap_bytes_max : {uint64_t{0}, uint64_t{1} << 20}) {
        CAPTURE(workers);
        CAPTURE(schedule);
        Sample sample(workers, schedule, heap_bytes_max);
        for (int run = 0; run < 300; ++run) {
          sample.bind({.go = run % 2 == 0, .trip = run % 5, .length = 1 + run / 40});
          sample.check_run();
        }
      }
    }
  }
}

TEST_CASE("what ran is told: Main's schedule, and those of bodies") {
  Sample sample(2);
  sample.bind({});
  sample.learn_to_share();
  const DvtScheduleInfo info = sample.executor().schedule();
  CHECK(info.schedule == DVT_SCHEDULE_DYNAMIC);
  CHECK(info.workers == 2);
  // The branches that are not taken have not run.
  CHECK(info.reason == std::string("asked for; bodies: 4 dynamic, 3 sequential"));
}

TEST_CASE("a node of a body fails, ends its sequence or throws: it is named, all memory is back") {
  const Hooked hooked;
  for (const uint32_t workers : {1U, 2U, 3U}) {
    for (const uint32_t schedule : kSchedules) {
      for (const bool go : {true, false}) {
        CAPTURE(workers);
        CAPTURE(schedule);
        Sample sample(workers, schedule);
        sample.bind({.go = go});
        sample.learn_to_share();
        const auto order = sample.learn_names(Hooked::names);
        REQUIRE(order.size() == (go ? 12 : 8));
        for (const std::string& node : order) {
          for (const Act act : {Act::kFail, Act::kEndOfSequence, Act::kThrow}) {
            CAPTURE(node);
            Hooked::arm(act, node);
            const Error error = sample.executor().run();
            CHECK(error.code() ==
                  (act == Act::kEndOfSequence ? DVT_END_OF_SEQUENCE : DVT_KERNEL_FAILED));
            CHECK(error.detail()->node == node);
            CHECK(sample.executor().statistics().heap_live_bytes == 0);
            Hooked::arm(Act::kNothing, "");
            sample.check_run();
          }
        }
      }
    }
  }
}

TEST_CASE("a run that is cancelled, or whose time is up, in a body ends, and the next is right") {
  const Hooked hooked;
  auto cancel = Cancel::create();
  REQUIRE(cancel);
  for (const uint32_t workers : {1U, 2U, 3U}) {
    for (const uint32_t schedule : kSchedules) {
      CAPTURE(workers);
      CAPTURE(schedule);
      Sample sample(workers, schedule);
      sample.bind({});
      sample.learn_to_share();
      for (const std::string& node : sample.learn_names(Hooked::names)) {
        for (const Act act : {Act::kCancel, Act::kSleep}) {
          CAPTURE(node);
          cancel->reset();
          Hooked::arm(act, node, cancel->get());
          const Error error =
              act == Act::kCancel ? sample.run(cancel->get(), -1) : sample.run(nullptr, kTimeoutUs);
          const DvtCode code = act == Act::kCancel ? DVT_CANCELLED : DVT_TIMEOUT;
          // Behind the last node of Main there is only its Free.
          if (error || node != "y") {
            CHECK(error.code() == code);
            CHECK(std::string(error.detail()->message)
                      .starts_with(act == Act::kCancel ? "the run was cancelled"
                                                       : "the time of the run is up"));
          }
          CHECK(sample.executor().statistics().heap_live_bytes == 0);
          Hooked::arm(Act::kNothing, "");
          sample.check_run();
        }
      }
    }
  }
}

namespace {

// Two nodes that wait for each other, but not long.
struct Meeting {
  inline static std::map<const DvtContext*, std::string> names;
  inline static std::array<std::string, 2> pair;
  inline static std::array<std::atomic<bool>, 2> here;
  inline static std::atomic<bool> met{false};

  static DvtCode hook(const DvtContext* context) {
    const auto name = names.find(context);
    for (size_t i = 0; name != names.end() && i < 2; ++i) {
      if (name->second != pair[i]) continue;
      here[i].store(true);
      const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(30);
      while (!here[1 - i].load() && std::chrono::steady_clock::now() < limit) {
        std::this_thread::yield();
      }
      if (here[0].load() && here[1].load()) met.store(true);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      here[i].store(false);
    }
    return DVT_OK;
  }
};

}  // namespace

TEST_CASE("nodes of one body, of two branches, and of a loop and a branch run at the same time") {
  using Pair = std::array<std::string, 2>;
  for (const Pair& pair : {Pair{"a/left", "a/right"}, Pair{"a/left", "b/right"},
                           Pair{"loop/left", "loop/then"}, Pair{"loop/sum", "b/sum"}}) {
    CAPTURE(pair[0]);
    Sample sample(3);
    sample.bind({});
    sample.learn_to_share();
    (void)sample.learn_names(Meeting::names);
    Meeting::pair = pair;
    Meeting::met.store(false);
    davit::test::dynamic_hook.store(Meeting::hook);
    for (int run = 0; run < 20 && !Meeting::met.load(); ++run) sample.check_run();
    davit::test::dynamic_hook.store(nullptr);
    CHECK(Meeting::met.load());
  }
}

TEST_CASE("a loop that would not end ends when a node beside it fails") {
  static std::map<const DvtContext*, std::string> names;
  static std::atomic<bool> loops;
  Sample sample(3);
  sample.bind({});
  sample.learn_to_share();
  (void)sample.learn_names(names);
  uint32_t beside = 0;
  davit::test::dynamic_hook.store([](const DvtContext* context) -> DvtCode {
    const std::string& name = names.at(context);
    if (name == "loop/sum") loops.store(true);
    if (name != "a/sum") return DVT_OK;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
    while (!loops.load() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    return DVT_KERNEL_FAILED;
  });
  sample.bind({.trip = INT64_MAX});
  for (int run = 0; run < 20 && beside < 3; ++run) {
    loops.store(false);
    const Error error = sample.executor().run();
    CHECK(error.code() == DVT_KERNEL_FAILED);
    CHECK(error.detail()->node == std::string("a/sum"));
    beside += loops.load() ? 1 : 0;
  }
  davit::test::dynamic_hook.store(nullptr);
  CHECK(beside == 3);
  sample.bind({});
  sample.check_run();
}

TEST_CASE("observers are told of every node of bodies, by the worker who ran it") {
  struct Seen {
    std::mutex mutex;
    std::map<std::string, uint32_t> times;
    std::map<uint32_t, std::vector<std::pair<int64_t, int64_t>>> by_worker;
  } seen;
  Sample sample(3);
  sample.bind({.trip = 3});
  sample.learn_to_share();
  for (int run = 0; run < 50; ++run) {
    seen.times.clear();
    seen.by_worker.clear();
    DvtRunOptions options;
    dvt_run_options_init(&options);
    options.observer_user = &seen;
    options.observer = [](void* self, const DvtNodeEvent* event) {
      auto& to = *static_cast<Seen*>(self);
      const std::lock_guard lock(to.mutex);
      if (std::string_view(event->kernel).starts_with("dyn.")) ++to.times[event->origin];
      to.by_worker[event->worker].emplace_back(event->begin_ns, event->end_ns);
    };
    check_ok(sample.executor().run(options));
    sample.check_output();
    CHECK(seen.times["a/left"] == 1);
    CHECK(seen.times["b/sum"] == 1);
    CHECK(seen.times["loop/then"] == 3);
    CHECK(seen.times["loop/sum"] == 3);
    CHECK(seen.times["y"] == 1);
    for (auto& [worker, spans] : seen.by_worker) {
      CHECK(worker < 3);
      // One after the other, or one inside the other.
      for (size_t i = 0; i < spans.size(); ++i) {
        for (size_t j = 0; j < i; ++j) {
          const auto& [early, late] = std::minmax(spans[i], spans[j]);
          CHECK((late.first >= early.second || late.second <= early.second));
        }
      }
    }
  }
}

TEST_CASE("a run that hangs in a body is told with the body's node") {
  static std::map<const DvtContext*, std::string> names;
  static std::atomic<bool> held, go_on;
  Sample sample(2);
  sample.bind({});
  (void)sample.learn_names(names);
  davit::test::dynamic_hook.store([](const DvtContext* context) -> DvtCode {
    if (names.at(context) != "loop/then") return DVT_OK;
    held.store(true);
    while (!go_on.load()) std::this_thread::yield();
    return DVT_OK;
  });
  DvtRunOptions options;
  dvt_run_options_init(&options);
  options.flags = DVT_RUN_WATCHED;
  Error error;
  std::thread caller([&] { error = sample.executor().run(options); });
  while (!held.load()) std::this_thread::yield();
  const std::string waits = sample.executor().describe_waits();
  go_on.store(true);
  caller.join();
  check_ok(error);
  CHECK(waits.find("(Loop, loop) has begun") != std::string::npos);
  CHECK(waits.find(" begun; last begun: node 2 (dyn.Double, loop/then)") != std::string::npos);
  davit::test::dynamic_hook.store(nullptr);
  sample.check_output();
}
