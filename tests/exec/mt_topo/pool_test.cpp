// Pools: shared by many runs, nested, narrow under load, idle, forked and torn down.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "exec/mt_topo/crew_slots.hpp"
#include "tests/exec/mt_topo/runs.hpp"

using namespace davit;
using namespace davit::test;

TEST_CASE("a node may run another graph on the same pool, on every worker at once") {
  for (const uint32_t workers : {1U, 2U, 3U}) {
    const auto pool = make_pool(workers);
    WorkGraph outer;
    outer.build({{}, {0}, {0}, {0}, {0}, {1, 2, 3, 4}});
    std::vector<std::unique_ptr<WorkGraph>> inner;
    std::vector<ResourcePtr<Scheduler>> schedulers;
    for (uint32_t i = 0; i < 4; ++i) {
      inner.push_back(std::make_unique<WorkGraph>());
      std::mt19937 random(i);
      inner[i]->build(test::random_edges(random, 60));
      schedulers.push_back(make(*inner[i], inner[i]->plan(workers), pool,
                                i % 2 == 0 ? Mode::kDynamic : Mode::kPlanned));
      outer.nodes[i + 1].extra = [&, i] { CHECK(schedulers[i]->run().code == DVT_OK); };
    }
    for (const Mode mode : kModes) {
      const auto scheduler = make(outer, outer.plan(workers), pool, mode);
      for (int run = 0; run < 50; ++run) CHECK(scheduler->run().code == DVT_OK);
    }
  }
}

TEST_CASE("nodes that run another graph on the same pool while they hold a mutex do not hang") {
  for (const uint32_t workers : {1U, 2U, 3U}) {
    const auto pool = make_pool(workers);
    WorkGraph outer;
    WorkGraph inner;
    outer.build({{}, {0}, {0}, {0}, {1, 2, 3}});
    std::mt19937 random(1);
    inner.build(test::random_edges(random, 60));
    const auto nested = make(inner, inner.plan(workers), pool, Mode::kDynamic);
    std::mutex mutex;
    for (uint32_t node = 1; node < 4; ++node) {
      outer.nodes[node].extra = [&] {
        const std::lock_guard lock(mutex);
        CHECK(nested->run().code == DVT_OK);
      };
    }
    for (const Mode mode : kModes) {
      const auto scheduler = make(outer, outer.plan(workers), pool, mode);
      for (int run = 0; run < 50; ++run) CHECK(scheduler->run().code == DVT_OK);
    }
  }
}

TEST_CASE("many callers share one pool") {
  const auto pool = make_pool(3);
  std::vector<std::thread> callers;
  std::atomic<uint32_t> wrong{0};
  for (uint32_t caller = 0; caller < 6; ++caller) {
    callers.emplace_back([&, caller] {
      std::mt19937 random(caller);
      WorkGraph graph;
      graph.build(test::random_edges(random, 200));
      for (auto& node : graph.nodes) node.spin = 100;
      int32_t code = 0;
      (void)dvt_sequential_run(graph.steps.data(), graph.steps.size(), &code);
      const auto expected = graph.results();
      const schedule::Plan plan = graph.plan(3);
      const PlanTables tables = tables_of(plan);
      auto scheduler =
          Scheduler::create(graph.tables(), &tables, pool, {.mode = kModes[1 + caller % 2]});
      for (uint32_t run = 0; run < scaled(200); ++run) {
        graph.reset();
        const bool right = (*scheduler)->run().code == DVT_OK && graph.results() == expected;
        wrong.fetch_add(right ? 0 : 1);
      }
    });
  }
  for (auto& caller : callers) caller.join();
  CHECK(wrong == 0);
}

TEST_CASE("runs with fewer workers than their pool has may get any of its helpers") {
  const auto pool = make_pool(4, 1000);
  std::vector<std::thread> callers;
  std::atomic<uint32_t> wrong{0};
  for (uint32_t caller = 0; caller < 2; ++caller) {
    callers.emplace_back([&, caller] {
      std::mt19937 random(caller);
      WorkGraph graph;
      graph.build(test::random_edges(random, 100));
      for (auto& node : graph.nodes) node.spin = 100;
      int32_t code = 0;
      (void)dvt_sequential_run(graph.steps.data(), graph.steps.size(), &code);
      const auto expected = graph.results();
      auto scheduler = Scheduler::create(graph.tables(), nullptr, pool,
                                         {.mode = Mode::kDynamic, .workers = 2, .measures = false});
      for (uint32_t run = 0; run < scaled(500); ++run) {
        graph.reset();
        const bool right = (*scheduler)->run().code == DVT_OK && graph.results() == expected;
        wrong.fetch_add(right ? 0 : 1);
      }
    });
  }
  for (auto& caller : callers) caller.join();
  CHECK(wrong == 0);
}

// User report I1.
TEST_CASE("where each worker has a run of its own, runs are done by their callers alone") {
  ByWhom context;
  constexpr uint32_t kNodes = 64;
  const std::vector<DvtStep> steps(kNodes, DvtStep{ByWhom::run, &context});
  const std::vector<uint32_t> none(kNodes + 1, 0);
  const Tables tables = {steps, none, {}, std::span(none).first(kNodes), {}, {}};
  const auto pool = make_pool(2, 100'000);
  const auto make_one = [&](Mode mode) {
    auto made = Scheduler::create(tables, nullptr, pool, {.mode = mode});
    REQUIRE(made.ok());
    return std::move(*made);
  };
  const auto forced = make_one(Mode::kDynamic);
  const auto automatic = make_one(Mode::kAutomatic);
  // Another run of the pool, whose node does not end.
  std::atomic<bool> begun{false};
  std::atomic<bool> over{false};
  WorkGraph other;
  other.build({{}});
  other.nodes[0].extra = [&] {
    begun.store(true);
    while (!over.load()) std::this_thread::yield();
  };
  const auto busy = make(other, other.plan(2), pool, Mode::kDynamic);
  std::thread caller([&] { CHECK(busy->run().code == DVT_OK); });
  while (!begun.load()) std::this_thread::yield();
  for (int run = 0; run < 50; ++run) {
    CHECK(forced->run().code == DVT_OK);
    CHECK(automatic->run().code == DVT_OK);
    CHECK(automatic->choice().mode == Mode::kSequential);
  }
  CHECK(context.elsewhere.load() == 0);
  over.store(true);
  caller.join();
  CHECK(pool->callers() == 0);
  // Inside a node of a run there is one caller, not two.
  WorkGraph inner;
  inner.build({{}});
  uint32_t inside = 0;
  inner.nodes[0].extra = [&] { inside = pool->callers(); };
  const auto nested = make(inner, inner.plan(2), pool, Mode::kDynamic);
  WorkGraph outer;
  outer.build({{}});
  outer.nodes[0].extra = [&] { CHECK(nested->run().code == DVT_OK); };
  const auto nesting = make(outer, outer.plan(2), pool, Mode::kDynamic);
  CHECK(nesting->run().code == DVT_OK);
  CHECK(inside == 1);
  CHECK(pool->callers() == 0);
}

// User report I2.
TEST_CASE("ten nodes that each take a while are run by ten workers at once") {
  constexpr uint32_t kWide = 10;
  constexpr std::chrono::milliseconds kEach(100);
  WorkGraph graph;
  graph.build(std::vector<std::vector<uint32_t>>(kWide));
  for (auto& node : graph.nodes) {
    node.extra = [&] { std::this_thread::sleep_for(kEach); };
  }
  for (const Mode mode : {Mode::kPlanned, Mode::kDynamic}) {
    CAPTURE(mode_name(mode));
    std::vector<uint32_t> by(kWide);
    const RunObserver observer = {[](void*, uint32_t, uint32_t) {},
                                  [](void* user, uint32_t worker, uint32_t node, int32_t) {
                                    (*static_cast<std::vector<uint32_t>*>(user))[node] = worker;
                                  },
                                  &by};
    double best = 0;
    size_t workers = 0;
    // A busy machine may be late now and then.
    for (int attempt = 0; attempt < 20 && (best < 7 || workers < kWide); ++attempt) {
      const auto pool = make_pool(kWide);
      const auto scheduler = make(graph, graph.plan(kWide), pool, mode);
      const int64_t begin = RealThreads::now_ns();
      REQUIRE(scheduler->run({}, &observer).code == DVT_OK);
      const auto took = std::chrono::nanoseconds(RealThreads::now_ns() - begin);
      best = std::max(best, std::chrono::duration<double>(kWide * kEach) / took);
      std::sort(by.begin(), by.end());
      workers = static_cast<size_t>(std::unique(by.begin(), by.end()) - by.begin());
    }
    CHECK(best >= 7);
    CHECK(workers == kWide);
  }
}

TEST_CASE("what one node has held up is run by all workers at once") {
  constexpr uint32_t kWide = 8;
  WorkGraph graph;
  std::vector<std::vector<uint32_t>> from(kWide + 1, std::vector<uint32_t>{0});
  from[0].clear();
  graph.build(from);
  const auto nap = [] { std::this_thread::sleep_for(std::chrono::milliseconds(100)); };
  for (auto& node : graph.nodes) node.extra = nap;
  const auto pool = make_pool(kWide);
  for (const Mode mode : {Mode::kPlanned, Mode::kDynamic}) {
    CAPTURE(mode_name(mode));
    const auto scheduler = make(graph, graph.plan(kWide), pool, mode);
    double best = 0;  // Of the time that one worker takes.
    for (int attempt = 0; attempt < 20 && best < 3; ++attempt) {
      const int64_t begin = RealThreads::now_ns();
      REQUIRE(scheduler->run().code == DVT_OK);
      best = std::max(best, 1e8 * (kWide + 1) / double(RealThreads::now_ns() - begin));
    }
    CHECK(best >= 3);
  }
}

// User report B8: completion does not depend on who waits, and no wake-up is lost.
TEST_CASE("50,000 runs whose helper sleeps between them all end") {
  WorkGraph graph;
  graph.build({{}, {}, {0, 1}, {2}, {2}, {3, 4}});
  const auto pool = make_pool(2, 0);
  const auto scheduler = make(graph, graph.plan(2), pool, Mode::kDynamic);
  const Expected expected = run_sequentially(graph);
  for (uint32_t run = 0; run < scaled(50'000); ++run) check_run(graph, *scheduler, expected);
}

// User report B11. Before the test that leaves oneTBB with a thousand arenas to clear away.
TEST_CASE("an idle pool and idle helpers use no processor") {
  WorkGraph graph;
  graph.build({{}, {0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}});
  const auto pool = make_pool(8);
  const auto scheduler = make(graph, graph.plan(8), pool, Mode::kPlanned);
  CHECK(scheduler->run().code == DVT_OK);
  const auto cpu_ms = [] { return std::clock() * 1000 / CLOCKS_PER_SEC; };
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  auto before = cpu_ms();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  CHECK(cpu_ms() - before <= 5);
  // One long node that everything else waits for.
  graph.nodes[0].extra = [] { std::this_thread::sleep_for(std::chrono::milliseconds(500)); };
  for (const Mode mode : {Mode::kPlanned, Mode::kDynamic}) {
    const auto waiting = make(graph, graph.plan(8), pool, mode);
    before = cpu_ms();
    CHECK(waiting->run().code == DVT_OK);
    CHECK(cpu_ms() - before <= 25);
  }
}

TEST_CASE("create, run, destroy: no hang, also when helpers are asleep or just called") {
  std::mt19937 random(3);
  WorkGraph graph;
  graph.build(test::random_edges(random, 12));
  const Expected expected = run_sequentially(graph);
  const schedule::Plan plan = graph.plan(2);
  const auto shared = make_pool(2);
  for (uint32_t cycle = 0; cycle < scaled(20'000); ++cycle) {
    check_run(graph, *make(graph, plan, shared, kModes[1 + cycle % 2]), expected);
  }
  for (uint32_t cycle = 0; cycle < scaled(1000); ++cycle) {
    const auto pool = make_pool(2, cycle % 3 == 0 ? 0 : 20);
    check_run(graph, *make(graph, plan, pool, kModes[1 + cycle % 2]), expected);
  }
}

namespace {

// A pool of three that gets every other thread that it sends for, or none.
class PoorPool final : public Pool {
 public:
  explicit PoorPool(bool gets_some) : crew_(gets_some) {}
  [[nodiscard]] uint32_t workers() const noexcept override { return 3; }
  [[nodiscard]] int64_t spin_ns() const noexcept override { return 0; }
  [[nodiscard]] Crew* crew() noexcept override { return &crew_; }
  [[nodiscard]] uint32_t refused() const { return crew_.refused.load(); }

 private:
  struct PoorCrew final : CrewSlots<RealThreads> {
    explicit PoorCrew(bool some) : CrewSlots(2, 0), gets_some(some) {}
    ~PoorCrew() override {
      stop();
      for (std::thread& thread : threads) thread.join();
    }
    bool send_thread(uint32_t index) noexcept override {
      const std::lock_guard lock(mutex);
      if (!gets_some || ++asked % 2 == 0) {
        refused.fetch_add(1);
        return false;
      }
      threads.emplace_back([this, index] { attend(index); });
      return true;
    }
    const bool gets_some;
    std::mutex mutex;
    uint32_t asked = 0;
    std::atomic<uint32_t> refused{0};
    std::vector<std::thread> threads;
  } crew_;
};

}  // namespace

TEST_CASE("helpers whose thread cannot be had are done without") {
  for (const bool gets_some : {false, true}) {
    const auto pool = std::make_shared<PoorPool>(gets_some);
    for (uint32_t seed = 0; seed < 20; ++seed) {
      std::mt19937 random(seed);
      WorkGraph graph;
      graph.build(test::random_edges(random, 60));
      const Expected expected = run_sequentially(graph);
      for (const Mode mode : {Mode::kPlanned, Mode::kDynamic}) {
        const auto scheduler = make(graph, graph.plan(3), pool, mode);
        for (int run = 0; run < 5; ++run) check_run(graph, *scheduler, expected);
      }
    }
    CHECK(pool->refused() > 0);
  }
}

#if !defined(__SANITIZE_THREAD__)
TEST_CASE("the child of a fork has no helpers, and runs all the same") {
  std::mt19937 random(5);
  WorkGraph graph;
  graph.build(test::random_edges(random, 50));
  const Expected expected = run_sequentially(graph);
  const auto pool = make_pool(2);
  const auto scheduler = make(graph, graph.plan(2), pool, Mode::kPlanned);
  check_run(graph, *scheduler, expected);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    graph.reset();
    const bool right = pool->crew() == nullptr && scheduler->run().code == DVT_OK &&
                       graph.results() == expected.results;
    ::_exit(right ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(pool->crew() != nullptr);
  check_run(graph, *scheduler, expected);
}
#endif
