// The scheduler against the sequential loop: random graphs, all modes, 1 to 4 workers; failures at
// every node; limits; which mode runs.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/exec/mt_topo/runs.hpp"

using namespace davit;
using namespace davit::test;

TEST_CASE("random graphs: every mode and number of workers gives the sequential loop's results") {
  const std::shared_ptr<Pool> pools[] = {make_pool(1), make_pool(2), make_pool(3), make_pool(4)};
  const char* wanted = std::getenv("DAVIT_RANDOM_GRAPHS");
  const auto graphs =
      wanted == nullptr ? scaled(1500) : static_cast<uint32_t>(std::strtoul(wanted, nullptr, 10));
  REQUIRE(graphs > 0);
  for (uint32_t seed = 0; seed < graphs; ++seed) {
    std::mt19937 random(seed);
    WorkGraph graph;
    graph.build(test::random_edges(random, 1 + random() % 120));
    give_lanes(graph, random);
    const uint32_t spin = random() % 3 == 0 ? 100 : 0;
    for (auto& node : graph.nodes) node.spin = spin == 0 ? 0 : random() % spin;
    const Expected expected = run_sequentially(graph);
    const uint32_t workers = 1 + seed % 4;
    const schedule::Plan plan = graph.plan(1 + random() % 4);
    CAPTURE(seed);
    for (const Mode mode : kModes) {
      CAPTURE(mode_name(mode));
      const auto scheduler = make(graph, plan, pools[workers - 1], mode);
      for (int run = 0; run < 4; ++run) check_run(graph, *scheduler, expected);
    }
  }
}

TEST_CASE("large graphs with work cross workers and stay right") {
  const auto pool = make_pool(3);
  for (uint32_t seed = 0; seed < 6; ++seed) {
    std::mt19937 random(seed);
    WorkGraph graph;
    graph.build(test::random_edges(random, 5000));
    give_lanes(graph, random);
    for (auto& node : graph.nodes) node.spin = random() % 200;
    const Expected expected = run_sequentially(graph);
    for (const Mode mode : kModes) {
      const auto scheduler = make(graph, graph.plan(3), pool, mode);
      for (int run = 0; run < 8; ++run) check_run(graph, *scheduler, expected);
    }
  }
}

TEST_CASE("what is fastest is found by runs that are shared") {
  ByWhom nodes;
  constexpr uint32_t kNodes = 2000;
  const std::vector<DvtStep> steps(kNodes, DvtStep{ByWhom::run, &nodes});
  std::vector<uint32_t> offsets(kNodes + 1, kNodes - 1), successors, indegree(kNodes, 1);
  offsets[0] = indegree[0] = 0;
  for (uint32_t node = 1; node < kNodes; ++node) successors.push_back(node);
  const Tables tables = {steps, offsets, successors, indegree, {}, {}};
  const auto pool = make_pool(2, 100'000);  // So that the helper comes in time on a busy machine.
  for (int attempt = 0; attempt < 100 && nodes.elsewhere.load() == 0; ++attempt) {
    auto scheduler = Scheduler::create(tables, nullptr, pool, {.mode = Mode::kAutomatic});
    REQUIRE(scheduler.ok());
    for (int run = 0; run < 6; ++run) REQUIRE((*scheduler)->run().code == DVT_OK);
  }
  CHECK(nodes.elsewhere.load() > 0);
}

TEST_CASE("a dynamic schedule whose sharing costs more than it gains stays with its caller") {
  ByWhom context{.elsewhere_takes = std::chrono::microseconds(100)};
  constexpr uint32_t kNodes = 1000;
  const std::vector<DvtStep> steps(kNodes, DvtStep{ByWhom::run, &context});
  const std::vector<uint32_t> none(kNodes + 1, 0);
  const Tables tables = {steps, none, {}, std::span(none).first(kNodes), {}, {}};
  const auto pool = make_pool(2, 100'000);
  ResourcePtr<Scheduler> scheduler;
  const auto is_alone = [&] {
    return std::string(scheduler->choice().reason).find("sharing costs more") != std::string::npos;
  };
  // On a busy machine the helper may not come at all, and then nothing can be learned.
  bool alone = false;
  for (int attempt = 0; attempt < 100 && !alone; ++attempt) {
    auto made = Scheduler::create(tables, nullptr, pool, {.mode = Mode::kDynamic});
    REQUIRE(made.ok());
    scheduler = std::move(*made);
    for (int run = 0; run < 40 && !is_alone(); ++run) REQUIRE(scheduler->run().code == DVT_OK);
    alone = is_alone();
  }
  REQUIRE(alone);
  // The run after the vote is not of a comparison.
  const uint32_t before = context.elsewhere.load();
  REQUIRE(scheduler->run().code == DVT_OK);
  CHECK(context.elsewhere.load() == before);
}

TEST_CASE("an empty graph and a single node") {
  const auto pool = make_pool(2);
  for (const uint32_t count : {0U, 1U}) {
    WorkGraph graph;
    graph.build(std::vector<std::vector<uint32_t>>(count));
    const Expected expected = run_sequentially(graph);
    for (const Mode mode : kModes) {
      check_run(graph, *make(graph, graph.plan(2), pool, mode), expected);
    }
  }
}

TEST_CASE("a failure at any node keeps its code, starts no dependant and spoils no later run") {
  std::mt19937 random(7);
  WorkGraph graph;
  graph.build(test::random_edges(random, 40));
  for (uint32_t node = 0; node < 40; ++node) graph.lane[node] = static_cast<uint8_t>(node % 3);
  const Expected expected = run_sequentially(graph);
  for (const uint32_t workers : {1U, 2U, 3U}) {
    const auto pool = make_pool(workers);
    for (const Mode mode : kModes) {
      const auto scheduler = make(graph, graph.plan(workers), pool, mode);
      for (uint32_t failing = 0; failing < 40; ++failing) {
        for (const int32_t code : {int32_t{DVT_KERNEL_FAILED}, int32_t{DVT_END_OF_SEQUENCE}, -5}) {
          graph.reset();
          graph.nodes[failing].code = code;
          const Outcome outcome = scheduler->run();
          CHECK(outcome.code == code);
          CHECK(outcome.node == failing);
          for (const auto& node : graph.nodes) {
            CHECK(node.runs <= 1);
            for (const uint32_t from : node.from) {
              if (node.runs == 1) CHECK(graph.nodes[from].runs == 1);
              if (from == failing) CHECK(node.runs == 0);
            }
          }
          graph.nodes[failing].code = DVT_OK;
        }
        check_run(graph, *scheduler, expected);
      }
    }
  }
}

TEST_CASE("two failures: one of them is kept, with its own node") {
  WorkGraph graph;
  graph.build({{}, {0}, {0}, {1, 2}});
  graph.nodes[1].code = 41;
  graph.nodes[2].code = 42;
  const auto pool = make_pool(2);
  for (const Mode mode : kModes) {
    const auto scheduler = make(graph, graph.plan(2), pool, mode);
    for (int run = 0; run < 50; ++run) {
      const Outcome outcome = scheduler->run();
      CHECK(outcome.code == 40 + static_cast<int32_t>(outcome.node));
      CHECK(graph.nodes[3].runs == 0);
    }
  }
}

TEST_CASE("a C++ exception ends the run with the node's name") {
  std::mt19937 random(11);
  WorkGraph graph;
  graph.build(test::random_edges(random, 30));
  const auto pool = make_pool(2);
  for (const Mode mode : kModes) {
    const auto scheduler = make(graph, graph.plan(2), pool, mode);
    for (uint32_t failing = 0; failing < 30; ++failing) {
      graph.nodes[failing].extra = [] { throw std::runtime_error("from a user's kernel"); };
      const Outcome outcome = scheduler->run();
      CHECK(outcome.code == DVT_KERNEL_FAILED);
      CHECK(outcome.node == failing);
      graph.nodes[failing].extra = nullptr;
    }
    CHECK(scheduler->run().code == DVT_OK);
  }
}

TEST_CASE("cancel ends a run within a node, wherever it is set") {
  std::mt19937 random(13);
  WorkGraph graph;
  graph.build(test::random_edges(random, 30));
  const Expected expected = run_sequentially(graph);
  for (const uint32_t workers : {1U, 2U, 3U}) {
    const auto pool = make_pool(workers);
    for (const Mode mode : kModes) {
      const auto scheduler = make(graph, graph.plan(workers), pool, mode);
      for (uint32_t at = 0; at < 29; ++at) {
        std::atomic<uint32_t> cancel{0};
        graph.nodes[at].extra = [&] { cancel.store(1); };
        graph.reset();
        const Outcome outcome = scheduler->run({.cancel = &cancel}, nullptr);
        graph.nodes[at].extra = nullptr;
        // It may be the last of all nodes to run.
        if (outcome.code != DVT_OK) {
          CHECK(outcome.code == DVT_CANCELLED);
          CHECK(outcome.node == kNoNode);
        } else {
          CHECK(graph.results() == expected.results);
        }
      }
      check_run(graph, *scheduler, expected);
    }
  }
}

TEST_CASE("a deadline ends a run, also one whose caller waits for a helper") {
  WorkGraph graph;
  graph.build({{}, {0}, {0}, {1, 2}, {3}, {3}});
  const auto nap = [] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); };
  for (auto& node : graph.nodes) node.extra = nap;
  for (const uint32_t workers : {1U, 2U}) {
    const auto pool = make_pool(workers);
    for (const Mode mode : kModes) {
      const auto scheduler = make(graph, graph.plan(workers), pool, mode);
      const Outcome outcome =
          scheduler->run({.deadline_ns = RealThreads::now_ns() + 7'000'000}, nullptr);
      CHECK(outcome.code == DVT_TIMEOUT);
      CHECK(scheduler->run({.deadline_ns = RealThreads::now_ns() - 1}, nullptr).code ==
            DVT_TIMEOUT);
    }
  }
}

TEST_CASE("a memory node that suspends runs again later; others run meanwhile, launches at last") {
  constexpr uint32_t kCount = 40;
  for (const uint32_t workers : {1U, 2U, 3U}) {
    const auto pool = make_pool(workers);
    for (uint32_t seed = 0; seed < 50; ++seed) {
      std::mt19937 random(seed);
      WorkGraph graph;
      graph.build(test::random_edges(random, kCount));
      give_lanes(graph, random);
      // A memory node waits for a node that neither needs it nor any memory node.
      std::vector<bool> needs_memory(kCount);
      std::vector<uint32_t> free_of_memory;
      for (uint32_t node = 0; node < kCount; ++node) {
        const auto& from = graph.nodes[node].from;
        needs_memory[node] =
            graph.lane[node] == DVT_KERNEL_LANE_MEMORY ||
            graph.lane[node] == DVT_KERNEL_LANE_LAUNCH ||  // They follow each other.
            std::ranges::any_of(from, [&](uint32_t source) { return needs_memory[source]; });
        if (!needs_memory[node]) free_of_memory.push_back(node);
      }
      const Expected expected = run_sequentially(graph);
      struct Waiter {
        const DvtStep* step;
        const std::atomic<uint32_t>* awaited;
        uint32_t suspended = 0;
      };
      std::vector<Waiter> waiters(kCount);
      std::vector<std::atomic<uint32_t>> done(kCount);
      std::vector<DvtStep> steps = graph.steps;
      for (const uint32_t node : free_of_memory) {
        graph.nodes[node].extra = [&done, node] { done[node].store(1); };
      }
      for (uint32_t node = 0; node < kCount && !free_of_memory.empty(); ++node) {
        if (graph.lane[node] != DVT_KERNEL_LANE_MEMORY) continue;
        waiters[node] = {&graph.steps[node],
                         &done[free_of_memory[random() % free_of_memory.size()]]};
        steps[node] = {[](void* context) -> int32_t {
                         auto& waiter = *static_cast<Waiter*>(context);
                         if (waiter.awaited->load() != 0) return waiter.step->fn(waiter.step->ctx);
                         ++waiter.suspended;
                         return DVT_STEP_SUSPENDED;
                       },
                       &waiters[node]};
      }
      Tables tables = graph.tables();
      tables.steps = steps;
      tables.may_suspend = true;
      CHECK(!Scheduler::create(tables, nullptr, pool, {.mode = Mode::kAutomatic}).ok());
      auto scheduler = Scheduler::create(tables, nullptr, pool, {.mode = Mode::kDynamic});
      REQUIRE(scheduler.ok());
      CAPTURE(seed);
      for (int run = 0; run < 5; ++run) {
        for (auto& flag : done) flag.store(0);
        check_run(graph, **scheduler, expected);
      }
    }
  }
}

TEST_CASE("the choice is visible") {
  WorkGraph chain;
  chain.build({{}, {0}, {1}, {2}});
  WorkGraph tiny;
  tiny.build({{}, {0}, {0}, {1, 2}});
  const auto pool = make_pool(2);
  const auto choice = [&](const WorkGraph& graph, const std::shared_ptr<Pool>& with, Mode mode) {
    const auto scheduler = make(graph, graph.plan(2), with, mode);
    for (int run = 0; run < 20; ++run) CHECK(scheduler->run().code == DVT_OK);
    return std::string(mode_name(scheduler->choice().mode)) + ": " + scheduler->choice().reason;
  };
  CHECK(choice(chain, pool, Mode::kAutomatic) == "sequential: the graph is a chain");
  CHECK(choice(tiny, make_pool(1), Mode::kAutomatic) == "sequential: one worker");
  CHECK(choice(tiny, pool, Mode::kDynamic) == "dynamic: asked for");
  CHECK(choice(tiny, pool, Mode::kAutomatic).find("too short to share") != std::string::npos);
  // Nodes that do nothing are not shared, however many.
  for (const uint32_t count : {10U, 100U, 1000U}) {
    CAPTURE(count);
    const std::vector<DvtStep> steps(count, DvtStep{[](void*) -> int32_t { return 0; }, nullptr});
    const std::vector<uint32_t> none(count + 1, 0);
    auto scheduler = Scheduler::create({steps, none, {}, std::span(none).first(count), {}, {}},
                                       nullptr, pool, {});
    REQUIRE(scheduler.ok());
    for (int run = 0; run < 20; ++run) CHECK((*scheduler)->run().code == DVT_OK);
    CHECK((*scheduler)->choice().mode == Mode::kSequential);
  }
}

TEST_CASE("tables that are wrong are refused by name") {
  WorkGraph graph;
  graph.build({{}, {0}, {0}, {1, 2}});
  const auto refused = [&](const Tables& tables) {
    const auto scheduler = Scheduler::create(tables, nullptr, nullptr, {});
    return scheduler.ok() ? std::string("accepted") : scheduler.status().detail().message;
  };
  CHECK(refused(graph.tables()) == "accepted");
  const auto broken = [&](auto change) {
    std::vector<uint32_t> offsets = graph.successor_offsets;
    std::vector<uint32_t> successors = graph.successors;
    std::vector<uint32_t> indegree = graph.indegree;
    std::vector<uint8_t> lane = graph.lane;
    std::vector<DvtStep> steps = graph.steps;
    change(offsets, successors, indegree, lane, steps);
    return refused({steps, offsets, successors, indegree, lane, {}});
  };
  CHECK(broken([](auto& o, auto&, auto&, auto&, auto&) {
          o[1] = 9;
        }).find("successor_offsets[2]") != std::string::npos);
  CHECK(broken([](auto& o, auto&, auto&, auto&, auto&) { o.pop_back(); }).find("count + 1") !=
        std::string::npos);
  CHECK(broken([](auto&, auto& s, auto&, auto&, auto&) { s[2] = 0; }).find("not after it") !=
        std::string::npos);
  CHECK(broken([](auto&, auto& s, auto&, auto&, auto&) { s[0] = 9; }).find("not after it") !=
        std::string::npos);
  CHECK(broken([](auto&, auto&, auto& d, auto&, auto&) { d[3] = 1; }).find("indegree[3]") !=
        std::string::npos);
  CHECK(broken([](auto&, auto&, auto&, auto& l, auto&) { l[1] = 3; }).find("lane[1]") !=
        std::string::npos);
  CHECK(broken([](auto&, auto&, auto&, auto&, auto& s) { s[2].fn = nullptr; }).find("steps[2]") !=
        std::string::npos);
}

TEST_CASE("a plan without one of its waits is refused, and so is any other damage") {
  std::mt19937 random(5);
  WorkGraph graph;
  graph.build(test::random_edges(random, 60));
  const Tables tables = graph.tables();
  const schedule::Plan good = graph.plan(3);
  REQUIRE(good.part_offsets.size() == 4);
  REQUIRE(good.waits.size() > 5);
  CHECK(check_plan(tables_of(good), tables).ok());
  for (size_t missing = 0; missing < good.waits.size(); ++missing) {
    schedule::Plan plan = good;
    plan.waits.erase(plan.waits.begin() + static_cast<std::ptrdiff_t>(missing));
    for (uint32_t& offset : plan.wait_offsets) offset -= offset > missing ? 1 : 0;
    CHECK_FALSE(check_plan(tables_of(plan), tables).ok());
  }
  // A plan that passes in spite of a change is one that runs right.
  const auto pool = make_pool(3);
  const Expected expected = run_sequentially(graph);
  for (uint32_t trial = 0; trial < 3000; ++trial) {
    schedule::Plan plan = good;
    std::vector<uint32_t>* const columns[] = {&plan.part_offsets, &plan.order, &plan.wait_offsets,
                                              &plan.waits};
    auto& column = *columns[random() % 4];
    column[random() % column.size()] = random() % 70;
    const PlanTables changed = tables_of(plan);
    auto scheduler = Scheduler::create(tables, &changed, pool, {.mode = Mode::kPlanned});
    if (scheduler.ok()) check_run(graph, **scheduler, expected);
  }
}
