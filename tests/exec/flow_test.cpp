// Executors of images with branches and loops.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "davit/davit.hpp"
#include "davit/device.h"
#include "tests/exec/support.hpp"
#include "tests/support/dynamic_kernels.hpp"

using davit::Error;
using davit::Executor;
using davit::test::check_ok;
using davit::test::contains;
using davit::test::dynamic_control;
using davit::test::kFlowSample;
using davit::test::TextImage;

namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

Executor load(const TextImage& text, uint64_t heap_bytes_max = 0) {
  DvtExecutorOptions options;
  dvt_executor_options_init(&options);
  options.heap_bytes_max = heap_bytes_max;
  auto executor = Executor::create(text.image, &options);
  INFO(executor.error().text());
  REQUIRE(executor);
  return std::move(*executor);
}

struct Inputs {
  bool go = true;
  bool deep = true;
  int64_t trip = 3;
  bool more = true;
};

// An executor of kFlowSample, what it is fed, and what must come out.
class Sample {
 public:
  explicit Sample(const std::string& source = kFlowSample, uint64_t heap_bytes_max = 0)
      : text_(source), executor(load(text_, heap_bytes_max)) {
    dynamic_control = {};
  }
  ~Sample() { dynamic_control = {}; }

  void bind(const Inputs& inputs, int64_t length = 3) {
    inputs_ = inputs;
    x_.clear();
    for (int64_t i = 0; i < length; ++i) x_.push_back(static_cast<float>(i + 1));
    check_ok(executor.bind_input(0, std::span<const float>(x_), DVT_F32, std::span(&length, 1)));
    check_ok(executor.bind_input(1, std::span<const bool>(&inputs_.go, 1)));
    check_ok(executor.bind_input(2, std::span<const bool>(&inputs_.deep, 1)));
    check_ok(executor.bind_input(3, std::span<const int64_t>(&inputs_.trip, 1)));
    check_ok(executor.bind_input(4, std::span<const bool>(&inputs_.more, 1)));
  }

  void check_outputs() {
    std::vector<float> state, rows;
    int64_t iterations = 0;
    for (const float x : x_) state.push_back(x * (inputs_.go || inputs_.deep ? 2.0F : 4.0F));
    for (bool more = inputs_.more; more && iterations < inputs_.trip; ++iterations) {
      for (size_t k = 0; k < x_.size(); ++k) {
        const float sum = state[k] + x_[k];
        rows.push_back(4 * sum);
        state[k] = 4 * sum;
      }
      more = iterations < 2;
    }
    for (float& element : state) element *= 2;
    const auto y = executor.output(0);
    const auto all = executor.output(1);
    REQUIRE(y);
    REQUIRE(all);
    const auto length = static_cast<int64_t>(x_.size());
    CHECK(dims(*y) == std::vector<int64_t>{length});
    CHECK(std::equal(state.begin(), state.end(), y->as<float>().begin(), y->as<float>().end()));
    CHECK(dims(*all) == std::vector<int64_t>{iterations, iterations == 0 ? 0 : length});
    CHECK(std::equal(rows.begin(), rows.end(), all->as<float>().begin(), all->as<float>().end()));
  }
  void check_run() {
    check_ok(executor.run());
    check_outputs();
  }

 private:
  static std::vector<int64_t> dims(const Executor::Output& output) {
    return {output.dims().begin(), output.dims().end()};
  }

  TextImage text_;
  std::vector<float> x_;
  Inputs inputs_;

 public:
  Executor executor;
};

}  // namespace

TEST_CASE("branches, nested ones too, and lengths that change") {
  Sample sample;
  // User report B2: what a run has left of a branch is not there in the next one.
  for (int run = 0; run < 1000; ++run) {
    sample.bind({.go = run % 2 == 0, .deep = run % 3 == 0}, 1 + run % 8);
    sample.check_run();
  }
}

// User report B1.
TEST_CASE("branches without nodes") {
  const TextImage text(R"(davit 1.3 target cpu
input go: bool[]
graph main {
  If(go) bodies=[empty, also_empty] origin="if"
}

graph body empty {
}

graph body also_empty {
}
)");
  Executor executor = load(text);
  for (const bool go : {true, false, true}) {
    check_ok(executor.bind_input(0, std::span<const bool>(&go, 1)));
    check_ok(executor.run());
  }
}

TEST_CASE("a loop ends by its trip count or its condition, or does not begin") {
  Sample sample;
  for (const bool more : {true, false}) {
    for (const int64_t trip : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{3}, int64_t{4},
                               int64_t{5000}, INT64_MAX, int64_t{-1}, INT64_MIN}) {
      CAPTURE(trip);
      sample.bind({.trip = trip, .more = more});
      sample.check_run();
      sample.check_run();
    }
  }
}

TEST_CASE("trip count and condition may be absent") {
  Sample both(replaced(kFlowSample, "Loop(trip, more,", "Loop(_, _,"));
  both.bind({.trip = INT64_MAX, .more = true});
  both.check_run();
  Sample no_trip(replaced(kFlowSample, "Loop(trip, more,", "Loop(_, more,"));
  no_trip.bind({.trip = INT64_MAX, .more = false});
  no_trip.check_run();
}

TEST_CASE("what a loop collects grows as it must") {
  // 100 iterations, counted by the trip count or, as many, by the condition alone.
  const std::string hundred =
      replaced(kFlowSample, "two: i64[] = {2}", "two: i64[] = {2}\nconst limit: i64[] = {99}");
  for (const char* loop : {"Loop(trip, more,", "Loop(_, more,"}) {
    std::string text = replaced(hundred, "next = dyn.Less(i, two)", "next = dyn.Less(i, limit)");
    text = replaced(text, "Loop(trip, more,", loop);
    // Rows that do not grow: state = x each time.
    text = replaced(text, "  sum = dyn.Add(state, x)", "  sum = dyn.Add(x, x)");
    text = replaced(text, "sum = InferShape(state, x)", "sum = InferShape(x, x)");
    const TextImage image(text);
    Executor executor = load(image);
    const std::vector<float> x = {1, 2, 3};
    const int64_t length = 3, trip = 100;
    const bool yes = true;
    check_ok(executor.bind_input(0, std::span<const float>(x), DVT_F32, std::span(&length, 1)));
    for (const uint32_t i : {1, 2, 4}) {
      check_ok(executor.bind_input(i, std::span<const bool>(&yes, 1)));
    }
    check_ok(executor.bind_input(3, std::span<const int64_t>(&trip, 1)));
    check_ok(executor.run());
    const auto all = executor.output(1);
    REQUIRE(all);
    CHECK(all->dims()[0] == 100);
    REQUIRE(all->as<float>().size() == 300);
    for (size_t k = 0; k < 300; ++k) CHECK(all->as<float>()[k] == 8 * x[k % 3]);
  }
}

TEST_CASE("memory is flat after the first runs") {
  Sample sample;
  DvtExecutorStatistics warm{};
  for (int run = 0; run < 1000; ++run) {
    sample.bind({.go = run % 2 == 0, .deep = run % 4 == 1, .trip = run % 5}, 1 + run % 8);
    sample.check_run();
    if (run == 500) warm = sample.executor.statistics();
  }
  const DvtExecutorStatistics now = sample.executor.statistics();
  CHECK(now.heap_system_allocations == warm.heap_system_allocations);
  CHECK(now.heap_peak_bytes == warm.heap_peak_bytes);
}

TEST_CASE("an observed run reports the nodes of bodies, each before the node that runs it") {
  Sample sample;
  sample.bind({.go = false, .deep = false, .trip = 2});
  std::vector<std::string> seen;
  std::vector<uint32_t> bodies;
  check_ok(sample.executor.run_observed([&](const DvtNodeEvent& event) {
    if (std::string_view(event.kernel).starts_with("dyn.") || event.body == DVT_NO_INDEX) {
      seen.emplace_back(event.origin);
      bodies.push_back(event.body);
    }
  }));
  sample.check_outputs();
  REQUIRE(seen.size() > 4);
  CHECK(seen[0] == "if.else/if.else/twice");
  CHECK(seen[1] == "if.else/if.else/start");
  CHECK(seen[2] == "if");
  CHECK(bodies[0] == 4);
  CHECK(bodies[2] == DVT_NO_INDEX);
  CHECK(std::count(seen.begin(), seen.end(), "loop.body/add") == 2);
  CHECK(std::count(seen.begin(), seen.end(), "loop.body/loop.body/double") == 4);
  CHECK(std::count(seen.begin(), seen.end(), "loop") == 1);
}

// ---- Failures ----------------------------------------------------------------------------------

TEST_CASE("a kernel fails at every place: the inner node is named, the next run is right") {
  for (const Inputs& inputs : {Inputs{}, Inputs{.go = false}, Inputs{.go = false, .deep = false}}) {
    // Who runs when, from a run that succeeds.
    std::vector<std::string> order;
    {
      Sample sample;
      sample.bind(inputs);
      check_ok(sample.executor.run_observed([&](const DvtNodeEvent& event) {
        if (std::string_view(event.kernel).starts_with("dyn.")) order.emplace_back(event.origin);
      }));
    }
    REQUIRE(order.size() > 20);
    Sample sample;
    sample.bind(inputs);
    for (uint32_t failing = 0; failing < order.size(); ++failing) {
      for (const bool observed : {false, true}) {
        dynamic_control = {.fail_run = failing};
        const Error error = observed ? sample.executor.run_observed([](const DvtNodeEvent&) {})
                                     : sample.executor.run();
        REQUIRE(error.code() == DVT_KERNEL_FAILED);
        CHECK(error.detail()->node == order[failing]);
        CHECK(contains(error.detail()->message, "kernel dyn."));
        CHECK(sample.executor.statistics().heap_live_bytes == 0);
      }
      dynamic_control = {};
      sample.check_run();
    }
  }
}

TEST_CASE("a shape function fails at every place") {
  uint32_t failing = 0;
  for (;; ++failing) {
    Sample sample;
    sample.bind({.go = false});
    dynamic_control = {.fail_infer = failing};
    const Error error = sample.executor.run();
    if (!error) break;
    CHECK(contains(error.detail()->message, "InferShape failed: it was told to fail"));
    CHECK(sample.executor.statistics().heap_live_bytes == 0);
    dynamic_control = {};
    sample.check_run();
  }
  CHECK(failing == 6);  // Branch, add, double, row, y, all: later iterations remember.
}

TEST_CASE("memory runs out, wherever it may") {
  uint32_t failures = 0;
  uint64_t limit = 64;
  for (;; limit += 16) {
    Sample sample(kFlowSample, limit);
    sample.bind({.go = false, .deep = false, .trip = 4096}, 8);
    const Error error = sample.executor.run();
    if (!error) {
      sample.check_outputs();
      break;
    }
    ++failures;
    CHECK(error.code() == DVT_OUT_OF_MEMORY);
    CHECK(contains(error.detail()->message, " asks the host for "));
    CHECK(contains(error.detail()->message, "the limit is reached"));
    CHECK(contains(error.detail()->expected, std::to_string(limit) + " bytes"));
    CHECK(contains(error.detail()->got, " live, "));
    CHECK(sample.executor.statistics().heap_live_bytes == 0);
    CHECK(sample.executor.run().code() == DVT_OUT_OF_MEMORY);
    if (limit < 8 * 64) continue;
    sample.bind({.trip = 0}, 1);
    sample.check_run();
  }
  CHECK(failures > 20);
}

TEST_CASE("a loop whose items change their shape cannot collect them") {
  const TextImage text(R"(davit 1.2 target cpu
input x: f32[?] dynamic
output all: f32[...] dynamic
const trip: i64[] = {4}
planned i: i64[]
planned cond: bool[]
planned next: bool[]
heap rows: f32[...] dynamic
heap row: f32[...] dynamic
graph main {
  rows, i, cond, next, row = Loop(trip, _, x) {states=0, collected=1} bodies=[body] origin="loop"
  all = InferShape(rows) {target=3}
  all = BindOutput() {output=0}
  all = dyn.Double(rows)
  FreeHost(rows)
}
graph body body {
  row = InferShape(x, i) {target=2}
  row = AllocHost()
  row = dyn.Take(x, i) origin="take"
  next = dyn.Less(i, trip)
}
)");
  Executor executor = load(text);
  const std::array<float, 8> x = {1, 2, 3, 4, 5, 6, 7, 8};
  const int64_t length = 8;
  check_ok(executor.bind_input(0, std::span<const float>(x), DVT_F32, std::span(&length, 1)));
  const Error error = executor.run();
  REQUIRE(error.code() == DVT_INVALID_ARGUMENT);
  CHECK(error.detail()->node == std::string("loop"));
  CHECK(contains(error.detail()->message,
                 "collected output 0 has another shape in iteration 1 than before"));
  CHECK(executor.statistics().heap_live_bytes == 0);
}

TEST_CASE("what is collected without an iteration is empty, whatever its rank") {
  for (const char* type : {"f32[...]", "f32[]", "f32[?, 7]", "f32[5, 3]"}) {
    CAPTURE(type);
    const TextImage text(replaced(R"(davit 1.2 target cpu
input x: f32[?] dynamic
output all: f32[...] dynamic
const trip: i64[] = {0}
planned i: i64[]
planned cond: bool[]
planned next: bool[]
heap rows: TYPE dynamic
heap row: f32[...] dynamic
graph main {
  rows, i, cond, next, row = Loop(trip, _, x) {states=0, collected=1} bodies=[body]
  all = InferShape(rows) {target=3}
  all = BindOutput() {output=0}
  all = dyn.Double(rows)
  FreeHost(rows)
}
graph body body {
  row = InferShape(x) {target=2}
  row = AllocHost()
  row = dyn.Double(x)
  next = dyn.Less(i, trip)
}
)",
                                  "TYPE", type));
    Executor executor = load(text);
    const float x = 1;
    const int64_t length = 1;
    check_ok(executor.bind_input(0, std::span<const float>(&x, 1), DVT_F32, std::span(&length, 1)));
    check_ok(executor.run());
    CHECK(executor.output(0)->tensor.bytes == 0);
    CHECK(executor.output(0)->dims()[0] == 0);
  }
}

TEST_CASE("a condition of several elements is none") {
  const TextImage text(R"(davit 1.2 target cpu
input c: bool[?] dynamic
input x: f32[?] dynamic
output y: f32[?] dynamic
heap a: f32[?] dynamic
graph main {
  a = If(c, x) bodies=[t, e] origin="if"
  y = InferShape(a) {target=3}
  y = BindOutput() {output=0}
  y = dyn.Double(a)
  FreeHost(a)
}
graph body t {
  a = InferShape(x) {target=2}
  a = AllocHost()
  a = dyn.Double(x)
}
graph body e {
  a = InferShape(x, x) {target=2}
  a = AllocHost()
  a = dyn.Add(x, x)
}
)");
  Executor executor = load(text);
  const std::array<bool, 2> conditions = {true, true};
  const std::array<float, 1> x = {3};
  for (const auto& [length, code] : {std::pair<int64_t, DvtCode>{1, DVT_OK},
                                     {2, DVT_INVALID_ARGUMENT},
                                     {0, DVT_INVALID_ARGUMENT}}) {
    const int64_t one = 1;
    check_ok(
        executor.bind_input(0, std::span<const bool>(conditions), DVT_BOOL, std::span(&length, 1)));
    check_ok(executor.bind_input(1, std::span<const float>(x), DVT_F32, std::span(&one, 1)));
    const Error error = executor.run();
    CHECK(error.code() == code);
    if (error) CHECK(error.detail()->node == std::string("if"));
  }
}

TEST_CASE("bodies that executors cannot run are refused at load") {
  const TextImage other(R"(davit 1.2 target cpu
graph main {
  t.Step() bodies=[body] origin="step"
}
graph body body {
  t.Step()
}
)");
  const auto executor = Executor::create(other.image);
  REQUIRE(executor.error().code() == DVT_UNSUPPORTED);
  CHECK(executor.error().detail()->node == std::string("step"));
  const TextImage device(R"(davit 1.2 target "ascend:test"
streams 1
input go: bool[]
graph init {
  CreateStream() {stream=0, priority=0}
}
graph main {
  If(go) bodies=[t, e]
}
graph body t {
  SyncStream() {stream=0} origin="sync"
}
graph body e {
}
graph deinit {
  DestroyStream() {stream=0}
}
)");
  DvtExecutorOptions options;
  dvt_executor_options_init(&options);
  DvtDevice* cpu = dvt_cpu_device_create();
  options.device = cpu;
  const auto on_device = Executor::create(device.image, &options);
  CHECK(on_device.error().code() == DVT_UNSUPPORTED);
  CHECK(on_device.error().detail()->node == std::string("sync"));
  dvt_cpu_device_destroy(cpu);
}
