// runs.hpp: what the tests of schedulers and pools share: making them, and looking at their runs.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "exec/mt_topo/platform.hpp"
#include "exec/mt_topo/scheduler.hpp"
#include "tests/exec/mt_topo/graphs.hpp"

namespace davit::test {

using namespace mt_topo;  // NOLINT(google-build-using-namespace)

inline std::shared_ptr<Pool> make_pool(uint32_t workers, int64_t spin_us = 50) {
  auto pool = Pool::create({.workers = workers, .spin_us = spin_us});
  REQUIRE(pool.ok());
  return *pool;
}

inline ResourcePtr<Scheduler> make(const WorkGraph& graph, const schedule::Plan& plan,
                                   std::shared_ptr<Pool> pool, Mode mode) {
  const PlanTables tables = tables_of(plan);
  auto scheduler = Scheduler::create(graph.tables(), &tables, std::move(pool),
                                     {.mode = mode, .measures = false});
  INFO(scheduler.status().to_string());
  REQUIRE(scheduler.ok());
  return std::move(*scheduler);
}

inline void give_lanes(WorkGraph& graph, std::mt19937& random) {
  const uint32_t kinds = random() % 4;  // None, or each by chance.
  if (kinds == 0) return;
  for (uint8_t& lane : graph.lane) lane = static_cast<uint8_t>(random() % 3);
}

struct Expected {
  std::vector<uint64_t> results;
  uint64_t memory_state;
  std::vector<uint32_t> launch_order;
};

inline Expected run_sequentially(WorkGraph& graph) {
  graph.reset();
  int32_t code = 0;
  REQUIRE(dvt_sequential_run(graph.steps.data(), graph.steps.size(), &code) == graph.steps.size());
  return {graph.results(), graph.memory_state, graph.launch_order};
}

inline void check_run(WorkGraph& graph, Scheduler& scheduler, const Expected& expected) {
  graph.reset();
  const Outcome outcome = scheduler.run();
  CHECK(outcome.code == DVT_OK);
  CHECK(graph.results() == expected.results);
  CHECK(graph.memory_state == expected.memory_state);
  CHECK(graph.launch_order == expected.launch_order);
  CHECK(std::ranges::all_of(graph.nodes, [](const auto& node) { return node.runs == 1; }));
}

inline constexpr Mode kModes[] = {Mode::kSequential, Mode::kPlanned, Mode::kDynamic,
                                  Mode::kAutomatic};

inline uint32_t scaled(uint32_t full) {
#if defined(__SANITIZE_THREAD__)
  return full / 5;
#else
  return full;
#endif
}

// Nodes that note whether a helper runs them, and take longer there.
struct ByWhom {
  std::thread::id caller = std::this_thread::get_id();
  std::chrono::microseconds elsewhere_takes{0};
  std::atomic<uint32_t> elsewhere{0};

  static int32_t run(void* user) {
    auto& mine = *static_cast<ByWhom*>(user);
    const int64_t begin = RealThreads::now_ns();
    while (RealThreads::now_ns() - begin < 1000) RealThreads::relax();
    if (std::this_thread::get_id() == mine.caller) return DVT_OK;
    mine.elsewhere.fetch_add(1);
    std::this_thread::sleep_for(mine.elsewhere_takes);
    return DVT_OK;
  }
};

}  // namespace davit::test
