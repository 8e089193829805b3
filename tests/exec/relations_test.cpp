// Free-to-Launch relations: what loading refuses, and the protocol against a model of sets.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "davit/kernel.h"
#include "exec/relations.hpp"

using davit::exec::RelationTables;
using TestRelations = davit::exec::Relations<davit::mt_topo::RealThreads>;

namespace {

constexpr uint32_t kFree = 0;
constexpr uint32_t kLaunch = 1;
constexpr uint32_t kOther = 2;
constexpr uint32_t kLostFree = 3;  // Not on the memory lane.
const std::vector<uint32_t> kFlags = {DVT_KERNEL_LANE_MEMORY | DVT_KERNEL_FREE,
                                      DVT_KERNEL_LANE_LAUNCH, DVT_KERNEL_LANE_NORMAL,
                                      DVT_KERNEL_FREE};

struct Graph {
  std::vector<uint32_t> kernel;
  std::vector<std::vector<uint32_t>> rows;  // By node.
  std::vector<uint32_t> offsets, launches;

  RelationTables tables() {
    offsets.assign(1, 0);
    launches.clear();
    for (const auto& row : rows) {
      launches.insert(launches.end(), row.begin(), row.end());
      offsets.push_back(static_cast<uint32_t>(launches.size()));
    }
    return view();
  }
  [[nodiscard]] RelationTables view() const {
    return {.kernel = kernel,
            .kernel_flags = kFlags,
            .free_offsets = offsets,
            .free_launches = launches};
  }
};

// Frees 0 to 2, an unrelated node, launches 4 to 6.
Graph small_graph() {
  return {.kernel = {kFree, kFree, kFree, kOther, kLaunch, kLaunch, kLaunch},
          .rows = {{4, 5}, {5}, {}, {}, {}, {}, {}},
          .offsets = {},
          .launches = {}};
}

davit::ResourcePtr<TestRelations> make(const RelationTables& tables) {
  auto made = TestRelations::create(tables);
  REQUIRE_MESSAGE(made.ok(), made.status().to_string());
  (*made)->begin_run();
  return std::move(*made);
}

std::string refusal(const RelationTables& tables) {
  const auto related = davit::exec::related_nodes(tables);
  return related.ok() ? "" : related.status().detail().message;
}

const auto kNobody = [](uint32_t) { return false; };

}  // namespace

TEST_CASE("loading refuses what is not a relation, and names it") {
  Graph graph = small_graph();
  CHECK(refusal(graph.tables()).empty());
  CHECK(
      refusal(
          {.kernel = graph.kernel, .kernel_flags = kFlags, .free_offsets = {}, .free_launches = {}})
          .empty());
  const auto with = [&](auto change) {
    Graph changed = small_graph();
    changed.tables();
    change(changed);
    return refusal(changed.view());
  };
  CHECK(with([](Graph& g) { g.offsets.pop_back(); }) == "free_off: must be 8 numbers from 0 to 3");
  CHECK(with([](Graph& g) { g.offsets[0] = 1; }) == "free_off: must be 8 numbers from 0 to 3");
  CHECK(with([](Graph& g) { g.offsets.back() = 2; }) == "free_off: must be 8 numbers from 0 to 3");
  CHECK(with([](Graph& g) { g.offsets[2] = 1; }) == "free_off[2]: offsets must not decrease");
  CHECK(with([](Graph& g) { g.offsets[2] = 77; }) == "free_off[2]: is above the last offset");
  CHECK(with([](Graph& g) { g.launches[1] = 7; }) == "free_launch[1]: 7 is not a node");
  CHECK(with([](Graph& g) { g.launches[1] = UINT32_MAX; }) ==
        "free_launch[1]: 4294967295 is not a node");
  CHECK(with([](Graph& g) { g.launches[2] = 3; }) ==
        "free_launch[2]: node 3 is not on the launch lane");
  CHECK(with([](Graph& g) { g.launches[1] = 4; }) == "free_launch[1]: launches must be ascending");
  CHECK(with([](Graph& g) { g.kernel[1] = kOther; }) ==
        "free_off[1]: the node frees nothing on the memory lane");
  CHECK(with([](Graph& g) { g.kernel[1] = kLostFree; }) ==
        "free_off[1]: the node frees nothing on the memory lane");
  CHECK(with([](Graph& g) { g.kernel[3] = 9; }) == "kernel[3]: 9 is not in kernels");
}

TEST_CASE("a Free owes its Launches until they are submitted") {
  Graph graph = small_graph();
  const auto relations = make(graph.tables());
  for (uint32_t node = 0; node < 7; ++node) {
    CHECK(relations->related(node) == (node < 2 || node == 4 || node == 5));
  }
  CHECK(relations->settled());
  relations->freed(0);
  CHECK_FALSE(relations->settled());
  CHECK(relations->owed().size() == 2);
  CHECK_FALSE(relations->submitted(4));  // Nobody waits.
  CHECK_FALSE(relations->settled());
  REQUIRE(relations->owed().size() == 1);
  CHECK(relations->owed()[0] == 5);
  relations->freed(1);  // The same occurrence: counts once.
  CHECK(relations->statistics().duplicates == 1);
  CHECK_FALSE(relations->submitted(5));
  CHECK(relations->settled());
}

TEST_CASE("a Launch that was submitted first is not owed, and the k-th pays for the k-th Free") {
  Graph graph = small_graph();
  const auto relations = make(graph.tables());
  CHECK_FALSE(relations->submitted(5));
  relations->freed(1);
  CHECK(relations->settled());
  CHECK(relations->statistics().early == 1);
  relations->freed(1);
  CHECK_FALSE(relations->settled());
  CHECK_FALSE(relations->submitted(5));
  CHECK(relations->settled());
  // Of another run: nothing is left, submissions of the last one count for nothing.
  relations->freed(0);
  relations->begin_run();
  CHECK(relations->settled());
  relations->freed(1);
  CHECK_FALSE(relations->settled());
}

TEST_CASE("what a suspended allocation waits for is fixed, and leaves out what depends on it") {
  Graph graph = small_graph();
  const auto relations = make(graph.tables());
  auto wait = relations->make_wait();
  CHECK_FALSE(relations->suspend(wait, kNobody));
  relations->freed(1);
  CHECK_FALSE(relations->suspend(wait, [](uint32_t launch) { return launch == 5; }));
  REQUIRE(relations->suspend(wait, kNobody));
  relations->freed(0);  // Owes 4, which the allocation does not wait for.
  CHECK_FALSE(relations->is_over(wait));
  CHECK(relations->submitted(4));  // Somebody waits.
  CHECK_FALSE(relations->is_over(wait));
  CHECK(relations->submitted(5));
  CHECK(relations->is_over(wait));
  relations->resume(wait);
  CHECK(relations->settled());
  relations->freed(0);
  CHECK_FALSE(relations->submitted(4));  // Nobody any more.
}

TEST_CASE("a later generation does not hold up who waits for an earlier one") {
  Graph graph = small_graph();
  const auto relations = make(graph.tables());
  auto wait = relations->make_wait();
  relations->freed(1);
  REQUIRE(relations->suspend(wait, kNobody));
  relations->freed(1);
  CHECK(relations->submitted(5));
  CHECK(relations->is_over(wait));
  CHECK_FALSE(relations->settled());
}

TEST_CASE("epochs wrap") {
  Graph graph = small_graph();
  const auto relations = make(graph.tables());
  relations->freed(0);
  (void)relations->submitted(5);
  relations->set_epochs(UINT32_MAX, UINT16_MAX);
  relations->begin_run();  // Epochs 1 again, whose words were cleared.
  CHECK(relations->settled());
  relations->freed(1);
  CHECK_FALSE(relations->settled());
  CHECK_FALSE(relations->submitted(5));
  CHECK(relations->settled());
}

TEST_CASE("a Launch that is submitted more often than can be counted stays owed") {
  Graph graph = small_graph();
  const auto relations = make(graph.tables());
  for (uint32_t i = 0; i < UINT16_MAX - 1; ++i) {
    relations->freed(1);
    CHECK_FALSE(relations->submitted(5));
  }
  CHECK(relations->settled());
  for (uint32_t i = 0; i < 10; ++i) {
    relations->freed(1);
    CHECK_FALSE(relations->submitted(5));
    CHECK_FALSE(relations->settled());
  }
  relations->begin_run();
  relations->freed(1);
  CHECK_FALSE(relations->submitted(5));
  CHECK(relations->settled());
}

TEST_CASE("random runs agree with a model of sets") {
  std::mt19937 random(1);
  for (uint32_t trial = 0; trial < 300; ++trial) {
    CAPTURE(trial);
    Graph graph;
    const uint32_t count = 2 + random() % 40;
    std::vector<uint32_t> launches;
    for (uint32_t node = 0; node < count; ++node) {
      graph.kernel.push_back(random() % 3);
      if (graph.kernel[node] == kLaunch) launches.push_back(node);
    }
    graph.rows.resize(count);
    for (uint32_t node = 0; node < count; ++node) {
      if (graph.kernel[node] != kFree) continue;
      for (const uint32_t launch : launches) {
        if (random() % 3 == 0) graph.rows[node].push_back(launch);
      }
    }
    const auto relations = make(graph.tables());
    auto wait = relations->make_wait();
    for (uint32_t run = 0; run < 5; ++run) {
      relations->begin_run();
      std::map<uint32_t, uint32_t> frees, submissions, wanted, waited;
      bool waiting = false;
      const auto met = [&](const std::map<uint32_t, uint32_t>& owed) {
        return std::ranges::all_of(
            owed, [&](const auto& entry) { return submissions[entry.first] >= entry.second; });
      };
      for (uint32_t step = 0; step < 120; ++step) {
        const uint32_t node = random() % count;
        if (graph.kernel[node] == kFree && relations->related(node)) {
          relations->freed(node);
          ++frees[node];
          for (const uint32_t launch : graph.rows[node]) {
            wanted[launch] = std::max(wanted[launch], frees[node]);
          }
        } else if (graph.kernel[node] == kLaunch && relations->related(node)) {
          CHECK(relations->submitted(node) == waiting);
          ++submissions[node];
        } else if (!waiting) {
          waiting = relations->suspend(wait, kNobody);
          CHECK(waiting != met(wanted));
          waited = wanted;
        } else if (relations->is_over(wait)) {
          CHECK(met(waited));
          relations->resume(wait);
          waiting = false;
        } else {
          CHECK_FALSE(met(waited));
        }
        if (random() % 4 == 0) {
          CHECK(relations->settled() == met(wanted));
          std::set<uint32_t> owed;
          for (const auto& [launch, generation] : wanted) {
            if (submissions[launch] < generation) owed.insert(launch);
          }
          CHECK(std::set<uint32_t>(relations->owed().begin(), relations->owed().end()) == owed);
        }
      }
      if (waiting) relations->resume(wait);
    }
  }
}

TEST_CASE("two lanes on two threads: what was submitted is seen, and who waits is told") {
  constexpr uint32_t kPairs = 64;
  constexpr uint32_t kRuns = 300;
  Graph graph;
  graph.kernel.assign(kPairs, kFree);
  graph.kernel.insert(graph.kernel.end(), kPairs, kLaunch);
  graph.rows.resize(2 * kPairs);
  for (uint32_t i = 0; i < kPairs; ++i) graph.rows[i] = {kPairs + i};
  const auto relations = make(graph.tables());
  auto wait = relations->make_wait();
  std::vector<uint32_t> submitted_in(kPairs, 0);  // Plain: ThreadSanitizer judges the order.
  std::atomic<uint32_t> run_started{0};
  std::atomic<uint32_t> run_finished{0};
  std::atomic<uint32_t> rung{0};
  std::thread launch_lane([&] {
    for (uint32_t run = 1; run <= kRuns; ++run) {
      while (run_started.load(std::memory_order_acquire) != run) std::this_thread::yield();
      for (uint32_t i = 0; i < kPairs; ++i) {
        submitted_in[i] = run;
        if (relations->submitted(kPairs + i)) rung.fetch_add(1, std::memory_order_release);
      }
      run_finished.store(run, std::memory_order_release);
    }
  });
  for (uint32_t run = 1; run <= kRuns; ++run) {
    relations->begin_run();
    run_started.store(run, std::memory_order_release);
    for (uint32_t i = 0; i < kPairs; ++i) {
      relations->freed(i);
      if (relations->settled()) {
        for (uint32_t k = 0; k <= i; ++k) CHECK(submitted_in[k] == run);
      } else if (i % 8 == 7) {
        const uint32_t heard = rung.load(std::memory_order_acquire);
        if (!relations->suspend(wait, kNobody)) continue;
        // Sleeps until it is rung, as an executor would: a lost wake-up hangs here.
        uint32_t seen = heard;
        while (!relations->is_over(wait)) {
          while (rung.load(std::memory_order_acquire) == seen) std::this_thread::yield();
          seen = rung.load(std::memory_order_acquire);
        }
        relations->resume(wait);
        for (uint32_t k = 0; k <= i; ++k) CHECK(submitted_in[k] == run);
      }
    }
    while (run_finished.load(std::memory_order_acquire) != run) std::this_thread::yield();
    CHECK(relations->settled());
  }
  launch_lane.join();
}
