// Cancel and deadline of a run, at every node, with 1, 2 and 3 workers and every schedule;
// observers.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "exec/execution_trace.hpp"
#include "tests/exec/support.hpp"
#include "tests/support/dynamic_kernels.hpp"

using davit::Cancel;
using davit::Error;
using davit::Executor;
using davit::Pool;
using davit::test::TextImage;

namespace {

constexpr uint32_t kLayers = 4;
constexpr uint32_t kWidth = 3;
constexpr uint32_t kNodes = kLayers * kWidth + 1;

std::string name(uint32_t node) {
  return node == kNodes - 1 ? "y" : "v" + std::to_string(node);
}

// Nodes that a node reads; of the first layer none, they read x.
std::vector<uint32_t> sources(uint32_t node) {
  if (node == kNodes - 1) return {node - 3, node - 2, node - 1};
  if (node < kWidth) return {};
  const uint32_t row = node / kWidth - 1;
  return {row * kWidth + node % kWidth, row * kWidth + (node + 1) % kWidth};
}

// Layers that read the one before, and a part of a schedule for each place in a layer.
std::string layered_text() {
  std::string text = "davit 1.3 target cpu\ninput x: f32[4]\noutput y: f32[4]\n";
  for (uint32_t node = 0; node + 1 < kNodes; ++node) {
    text += "planned " + name(node) + ": f32[4]\n";
  }
  text += "graph main {\n";
  for (uint32_t node = 0; node < kNodes; ++node) {
    text += "  n" + std::to_string(node) + ": " + name(node) + " = t.Sum(";
    const auto from = sources(node);
    for (size_t i = 0; i < from.size(); ++i) text += (i == 0 ? "" : ", ") + name(from[i]);
    text += std::string(from.empty() ? "x" : "") + ") origin=\"" + name(node) + "\"\n";
  }
  for (uint32_t part = 0; part < kWidth; ++part) {
    text += "  part [";
    for (uint32_t node = part; node < kNodes; node += kWidth) {
      text += (node == part ? "n" : ", n") + std::to_string(node);
      std::string waits;
      for (const uint32_t from : sources(node)) {
        if (from % kWidth == part) continue;
        waits += (waits.empty() ? "n" : ", n") + std::to_string(from);
      }
      if (!waits.empty()) text += " after [" + waits + "]";
    }
    text += "]\n";
  }
  return text + "}\n";
}

Cancel make_cancel() {
  auto cancel = Cancel::create();
  REQUIRE(cancel);
  return std::move(*cancel);
}

// An executor of the layered graph with so many workers.
struct Sample {
  Sample(uint32_t workers, uint32_t schedule) : text(layered_text()) {
    auto made = Pool::create(workers);
    REQUIRE(made);
    pool.emplace(std::move(*made));
    CHECK(pool->workers() == workers);
    DvtExecutorOptions options;
    dvt_executor_options_init(&options);
    options.pool = pool->get();
    options.schedule = schedule;
    auto loaded = Executor::create(text.image, &options);
    INFO(loaded.error().text());
    REQUIRE(loaded);
    executor.emplace(std::move(*loaded));
    REQUIRE(!executor->bind_input(0, std::span<const float>(x)));
    REQUIRE(!executor->bind_output(0, std::span<float>(y)));
  }

  Error run(const DvtCancel* cancel, int64_t timeout_us) {
    DvtRunOptions options;
    dvt_run_options_init(&options);
    options.cancel = cancel;
    options.timeout_us = timeout_us;
    return executor->run(options);
  }

  // The next run is right, whatever happened to this one.
  void check_next_run() {
    y.fill(0);
    const Error error = executor->run();
    INFO(error.text());
    CHECK(!error);
    CHECK(y[0] == expected()[kNodes - 1]);
  }

  static std::array<float, kNodes> expected() {
    std::array<float, kNodes> values{};
    for (uint32_t node = 0; node < kNodes; ++node) {
      values[node] = 1;
      for (const uint32_t from : sources(node)) values[node] += values[from];
      if (sources(node).empty()) values[node] += 5;
    }
    return values;
  }

  TextImage text;
  std::optional<Pool> pool;
  std::optional<Executor> executor;
  std::array<float, 4> x = {5, 5, 5, 5};
  std::array<float, 4> y{};
};

// What the hook does, at which node; and what ran.
enum class Act : uint8_t { kNothing, kCancel, kSleep, kFail };
std::atomic<Act> act{Act::kNothing};
std::atomic<uint32_t> act_at{0};
std::atomic<DvtCancel*> act_cancel{nullptr};
std::array<std::atomic<uint32_t>, kNodes> ran;
constexpr int64_t kTimeoutUs = 3000;

DvtCode hook(uint32_t node) {
  for (const uint32_t from : sources(node)) {
    // Nothing that depends on a node that has not run is started.
    if (ran[from].load() == 0) std::abort();
  }
  if (node == act_at.load()) {
    switch (act.load()) {
      case Act::kCancel:
        dvt_cancel_request(act_cancel.load());
        break;
      case Act::kSleep:
        std::this_thread::sleep_for(std::chrono::microseconds(kTimeoutUs + 1000));
        break;
      case Act::kFail:
        return DVT_END_OF_SEQUENCE;
      case Act::kNothing:
        break;
    }
  }
  ran[node].fetch_add(1);
  return DVT_OK;
}

// Sets the hook for one test case.
struct Hooked {
  Hooked() { davit::test::sum_hook.store(hook); }
  ~Hooked() { davit::test::sum_hook.store(nullptr); }
  Hooked(const Hooked&) = delete;
  Hooked& operator=(const Hooked&) = delete;

  static void arm(Act what, uint32_t node, DvtCancel* cancel = nullptr) {
    for (auto& count : ran) count.store(0);
    act_at.store(node);
    act_cancel.store(cancel);
    act.store(what);
  }
  static uint32_t ran_count() {
    uint32_t count = 0;
    for (const auto& one : ran) count += one.load();
    return count;
  }
};

struct Setup {
  uint32_t workers;
  uint32_t schedule;
};
constexpr Setup kSetups[] = {
    {1, DVT_SCHEDULE_SEQUENTIAL}, {1, DVT_SCHEDULE_DYNAMIC}, {1, DVT_SCHEDULE_PLANNED},
    {2, DVT_SCHEDULE_SEQUENTIAL}, {2, DVT_SCHEDULE_DYNAMIC}, {2, DVT_SCHEDULE_PLANNED},
    {3, DVT_SCHEDULE_SEQUENTIAL}, {3, DVT_SCHEDULE_DYNAMIC}, {3, DVT_SCHEDULE_PLANNED},
};

}  // namespace

TEST_CASE("a run that is cancelled at any node ends there, and the next run is right") {
  const Hooked hooked;
  const auto cancel = make_cancel();
  for (const Setup& setup : kSetups) {
    CAPTURE(setup.workers);
    CAPTURE(setup.schedule);
    Sample sample(setup.workers, setup.schedule);
    for (uint32_t node = 0; node < kNodes; ++node) {
      CAPTURE(node);
      cancel.reset();
      Hooked::arm(Act::kCancel, node, cancel.get());
      const Error error = sample.run(cancel.get(), -1);
      if (node == kNodes - 1) {
        CHECK(!error);  // All nodes have run: there was nothing left to cancel.
      } else {
        CHECK(error.code() == DVT_CANCELLED);
        CHECK(std::string(error.detail()->message).starts_with("the run was cancelled"));
        CHECK(Hooked::ran_count() < kNodes);
        if (setup.schedule == DVT_SCHEDULE_SEQUENTIAL) CHECK(Hooked::ran_count() == node + 1);
      }
      Hooked::arm(Act::kNothing, 0);
      sample.check_next_run();
    }
  }
}

TEST_CASE("of two runs at once, the one that is cancelled ends, and the other is right") {
  const auto cancel = make_cancel();
  for (const uint32_t schedule : {DVT_SCHEDULE_SEQUENTIAL, DVT_SCHEDULE_DYNAMIC}) {
    Sample cancelled(2, schedule);
    Sample other(2, schedule);
    for (int run = 0; run < 200; ++run) {
      cancel.reset();
      std::thread canceller([&] { cancel.request(); });
      Error error;
      std::thread caller([&] { error = cancelled.run(cancel.get(), -1); });
      other.check_next_run();
      caller.join();
      canceller.join();
      // It may have ended before.
      if (error) CHECK(error.code() == DVT_CANCELLED);
    }
    cancel.request();
    CHECK(cancelled.run(cancel.get(), -1).code() == DVT_CANCELLED);
    other.check_next_run();
    cancel.reset();
    cancelled.check_next_run();
  }
}

TEST_CASE("an image whose Main has no nodes runs at once, by every schedule") {
  const TextImage text("davit 1.3 target cpu\ngraph main {\n}\n");
  auto pool = Pool::create(2);
  REQUIRE(pool);
  for (const uint32_t schedule :
       {DVT_SCHEDULE_AUTO, DVT_SCHEDULE_SEQUENTIAL, DVT_SCHEDULE_DYNAMIC}) {
    DvtExecutorOptions options;
    dvt_executor_options_init(&options);
    options.pool = pool->get();
    options.schedule = schedule;
    auto executor = Executor::create(text.image, &options);
    INFO(executor.error().text());
    REQUIRE(executor);
    DvtRunOptions limited;
    dvt_run_options_init(&limited);
    limited.timeout_us = 60'000'000;
    for (int run = 0; run < 3; ++run) {
      CHECK(!executor->run());
      CHECK(!executor->run(limited));
    }
  }
}

TEST_CASE("leading shape nodes run before the schedule's nodes, by every schedule") {
  const TextImage text(R"(davit 1.3 target cpu
input x: f32[4]
output y: f32[4]
const c: f32[4] = {1, 2, 3, 4}
planned v: f32[4]
graph main shape_nodes=1 {
  v = Copy(c)
  y = t.Add(v, x)
}
)");
  auto pool = Pool::create(2);
  REQUIRE(pool);
  for (const uint32_t schedule :
       {DVT_SCHEDULE_AUTO, DVT_SCHEDULE_SEQUENTIAL, DVT_SCHEDULE_DYNAMIC}) {
    DvtExecutorOptions options;
    dvt_executor_options_init(&options);
    options.pool = pool->get();
    options.schedule = schedule;
    auto executor = Executor::create(text.image, &options);
    INFO(executor.error().text());
    REQUIRE(executor);
    const std::array<float, 4> x = {10, 20, 30, 40};
    std::array<float, 4> y{};
    REQUIRE(!executor->bind_input(0, std::span<const float>(x)));
    REQUIRE(!executor->bind_output(0, std::span<float>(y)));
    for (int run = 0; run < 3; ++run) {
      y.fill(0);
      CHECK(!executor->run());
      CHECK(y == std::array<float, 4>{11, 22, 33, 44});
    }
  }
}

TEST_CASE("a run whose time is up at any node ends there, and the next run is right") {
  const Hooked hooked;
  for (const Setup& setup : kSetups) {
    CAPTURE(setup.workers);
    CAPTURE(setup.schedule);
    Sample sample(setup.workers, setup.schedule);
    for (uint32_t node = 0; node + 1 < kNodes; ++node) {
      CAPTURE(node);
      Hooked::arm(Act::kSleep, node);
      const Error error = sample.run(nullptr, kTimeoutUs);
      CHECK(error.code() == DVT_TIMEOUT);
      CHECK(std::string(error.detail()->message).starts_with("the time of the run is up"));
      CHECK(Hooked::ran_count() < kNodes);
      Hooked::arm(Act::kNothing, 0);
      sample.check_next_run();
    }
  }
}

TEST_CASE("the status of a node that failed is kept, also in a run with limits") {
  const Hooked hooked;
  const auto cancel = make_cancel();
  for (const Setup& setup : kSetups) {
    CAPTURE(setup.workers);
    CAPTURE(setup.schedule);
    Sample sample(setup.workers, setup.schedule);
    for (uint32_t node = 0; node < kNodes; ++node) {
      CAPTURE(node);
      Hooked::arm(Act::kFail, node);
      const Error error = sample.run(cancel.get(), 60'000'000);
      CHECK(error.code() == DVT_END_OF_SEQUENCE);
      CHECK(std::string(error.detail()->node) == name(node));
      Hooked::arm(Act::kNothing, 0);
      sample.check_next_run();
    }
  }
}

TEST_CASE(
    "limits that are reached before the run start nothing; a later deadline does not matter") {
  const Hooked hooked;
  const auto cancel = make_cancel();
  for (const Setup& setup : kSetups) {
    CAPTURE(setup.workers);
    CAPTURE(setup.schedule);
    Sample sample(setup.workers, setup.schedule);
    Hooked::arm(Act::kNothing, 0);
    cancel.request();
    CHECK(sample.run(cancel.get(), -1).code() == DVT_CANCELLED);
    cancel.reset();
    CHECK(sample.run(cancel.get(), 0).code() == DVT_TIMEOUT);
    CHECK(Hooked::ran_count() == 0);
    for (const int64_t timeout_us : {int64_t{60'000'000}, INT64_MAX, int64_t{-1}, INT64_MIN}) {
      Hooked::arm(Act::kNothing, 0);
      CHECK(!sample.run(cancel.get(), timeout_us));
    }
    Hooked::arm(Act::kNothing, 0);
    sample.check_next_run();
  }
}

TEST_CASE("a sequential run that was ended names the node that would have been next") {
  const Hooked hooked;
  const auto cancel = make_cancel();
  Sample sample(1, DVT_SCHEDULE_SEQUENTIAL);
  Hooked::arm(Act::kCancel, 4, cancel.get());
  const Error error = sample.run(cancel.get(), -1);
  CHECK(std::string(error.detail()->node) == name(5));
  CHECK(std::string(error.detail()->message) ==
        "the run was cancelled; this node would have been next");
}

TEST_CASE("a loop without end is cancelled, and so is one with an observer") {
  std::string endless(davit::test::kFlowSample);
  const std::string condition = "next = dyn.Less(i, two)";
  endless.replace(endless.find(condition), condition.size(), "next = dyn.Less(i, many)");
  endless.insert(endless.find("planned i:"), "const many: i64[] = {9223372036854775807}\n");
  const TextImage text(endless);
  auto executor = Executor::create(text.image);
  REQUIRE(executor);
  const std::array<float, 2> x = {1, 2};
  const int64_t length = 2;
  const int64_t trip = INT64_MAX;
  const bool yes = true;
  REQUIRE(!executor->bind_input(0, std::span<const float>(x), DVT_F32, std::span(&length, 1)));
  for (const uint32_t i : {1, 2, 4}) {
    REQUIRE(!executor->bind_input(i, std::span<const bool>(&yes, 1)));
  }
  REQUIRE(!executor->bind_input(3, std::span<const int64_t>(&trip, 1)));
  for (const bool observed : {false, true}) {
    CAPTURE(observed);
    DvtRunOptions options;
    dvt_run_options_init(&options);
    if (observed) options.observer = [](void*, const DvtNodeEvent*) {};
    std::string node;
    // On a busy machine the time may be up before the loop is reached.
    for (options.timeout_us = 100'000; options.timeout_us < 30'000'000; options.timeout_us *= 4) {
      const Error error = executor->run(options);
      REQUIRE(error.code() == DVT_TIMEOUT);
      node = error.detail()->node;
      if (node.starts_with("loop")) break;
    }
    CAPTURE(node);
    CHECK(node.starts_with("loop"));
  }
  const int64_t few = 2;
  REQUIRE(!executor->bind_input(3, std::span<const int64_t>(&few, 1)));
  CHECK(!executor->run());
}

TEST_CASE("observers see every node once, with the worker that ran it") {
  struct Seen {
    std::mutex mutex;
    std::array<uint32_t, kNodes> times{};
    uint32_t workers = 0;
  };
  for (const Setup& setup : kSetups) {
    CAPTURE(setup.workers);
    CAPTURE(setup.schedule);
    Sample sample(setup.workers, setup.schedule);
    DvtScheduleInfo info = sample.executor->schedule();
    for (int repeat = 0; repeat < 50; ++repeat) {
      Seen seen;
      DvtRunOptions options;
      dvt_run_options_init(&options);
      options.observer_user = &seen;
      options.observer = [](void* user, const DvtNodeEvent* event) {
        auto& all = *static_cast<Seen*>(user);
        const std::lock_guard lock(all.mutex);
        ++all.times[event->node];
        all.workers |= 1U << event->worker;
        if (event->end_ns < event->begin_ns) std::abort();
      };
      CHECK(!sample.executor->run(options));
      for (const uint32_t times : seen.times) CHECK(times == 1);
      CHECK((seen.workers >> info.workers) == 0);
      CHECK(sample.y[0] == Sample::expected()[kNodes - 1]);
    }
  }
}

TEST_CASE("a trace has a row for each worker with its role, and every node on one of them") {
  constexpr uint32_t kRuns = 20;
  for (const uint32_t schedule : {DVT_SCHEDULE_DYNAMIC, DVT_SCHEDULE_PLANNED}) {
    Sample sample(3, schedule);
    DvtScheduleInfo info = sample.executor->schedule();
    davit::exec::ExecutionTrace trace(*sample.text.image.get(), 7, info.workers);
    DvtRunOptions options;
    dvt_run_options_init(&options);
    options.observer = &davit::exec::ExecutionTrace::observe;
    options.observer_user = &trace;
    for (uint32_t run = 0; run < kRuns; ++run) {
      trace.begin_run();
      CHECK(!sample.executor->run(options));
      info = sample.executor->schedule();
      trace.end_run(DVT_OK, info);
    }
    davit::trace::TraceWriter writer;
    trace.append_to(writer, 1);
    const auto document = nlohmann::json::parse(writer.json());
    std::map<int64_t, std::string> rows;
    std::map<int64_t, double> row_end;
    std::map<std::pair<int64_t, int64_t>, uint32_t> slices;  // By run and node.
    uint32_t arrows = 0;
    for (const auto& event : document.at("traceEvents")) {
      const std::string phase = event.at("ph");
      if (phase == "M" && event.at("name") == "thread_name") {
        rows[event.at("tid")] = event.at("args").at("name");
      }
      if (phase == "b") {
        CHECK(event.at("args").at("schedule") ==
              (schedule == DVT_SCHEDULE_PLANNED ? "planned" : "dynamic"));
      }
      if (phase == "s") ++arrows;
      if (phase != "X") continue;
      ++slices[{event.at("args").at("run_id"), event.at("args").at("node_id")}];
      CHECK(rows.contains(event.at("tid")));
      // Slices of a row are disjoint.
      CHECK(event.at("ts").get<double>() >= row_end[event.at("tid")]);
      row_end[event.at("tid")] =
          event.at("ts").get<double>() + event.at("dur").get<double>() - 1e-3;
    }
    REQUIRE(rows.size() == 3);
    CHECK(rows.at(7) == "executor-7 worker-0 (caller, all lanes)");
    CHECK(rows.at((1 << 16) + 7) == "executor-7 worker-1 (helper, all lanes)");
    CHECK(rows.at((2 << 16) + 7) == "executor-7 worker-2 (helper, all lanes)");
    CHECK(slices.size() == kRuns * kNodes);
    for (const auto& [where, times] : slices) CHECK(times == 1);
    uint32_t edges = 0;
    for (uint32_t node = 0; node < kNodes; ++node) {
      edges += static_cast<uint32_t>(sources(node).size());
    }
    CHECK(arrows == kRuns * edges);
    const std::string why = document.at("otherData").at("schedule_exec_7");
    CHECK(why.starts_with("asked for"));
  }
}

TEST_CASE(
    "a watched run that does not end tells who waits for whom, while it runs and afterwards") {
  static std::atomic<bool> held;
  static std::atomic<bool> waiting;
  for (const Setup& setup : kSetups) {
    CAPTURE(setup.workers);
    CAPTURE(setup.schedule);
    Sample sample(setup.workers, setup.schedule);
    CHECK(sample.executor->describe_waits() == "no run was watched");
    held.store(true);
    waiting.store(false);
    davit::test::sum_hook.store([](uint32_t node) -> DvtCode {
      if (node != 4) return DVT_OK;
      waiting.store(true);
      while (held.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return DVT_OK;
    });
    const davit::Cancel cancel = make_cancel();
    Error error;
    std::thread caller([&] {
      DvtRunOptions options;
      dvt_run_options_init(&options);
      options.flags = DVT_RUN_WATCHED;
      options.cancel = cancel.get();
      error = sample.executor->run(options);
    });
    while (!waiting.load()) std::this_thread::yield();
    const std::string during = sample.executor->describe_waits();
    dvt_cancel_request(cancel.get());
    held.store(false);
    caller.join();
    davit::test::sum_hook.store(nullptr);
    CHECK(during.starts_with("watched run 1 is in progress\n  normal lane: "));
    CHECK(during.find("\n  node 4 (t.Sum, v4) has begun") != std::string::npos);
    CHECK(during.find("\n  node 7 (t.Sum, v7) waits for node 4 (t.Sum, v4)") != std::string::npos);
    CHECK(error.code() == DVT_CANCELLED);
    const std::string after = sample.executor->describe_waits();
    CHECK(after.starts_with("watched run 1 has ended: cancelled\n"));
    CHECK(after.find("last ended: node ") != std::string::npos);
    std::array<char, 8> few{};
    CHECK(dvt_executor_describe_waits(sample.executor->get(), few.data(), few.size()) ==
          after.size());
    CHECK(std::string(few.data()) == "watched");
    sample.check_next_run();
  }
  CHECK(dvt_executor_describe_waits(nullptr, nullptr, 0) > 0);
}

TEST_CASE("options of another version are refused") {
  Sample sample(1, DVT_SCHEDULE_SEQUENTIAL);
  DvtRunOptions options;
  dvt_run_options_init(&options);
  options.struct_size = 3;
  CHECK(sample.executor->run(options).code() == DVT_VERSION_MISMATCH);
  dvt_run_options_init(&options);
  options.flags = 2;
  CHECK(sample.executor->run(options).code() == DVT_INVALID_ARGUMENT);
  CHECK(dvt_executor_run_with(sample.executor->get(), nullptr, nullptr) == DVT_OK);
  CHECK(dvt_cancel_create(nullptr, nullptr) == DVT_INVALID_ARGUMENT);
  dvt_cancel_request(nullptr);
  dvt_cancel_reset(nullptr);
  dvt_cancel_destroy(nullptr);
}
