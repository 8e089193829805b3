// The scheduler's own code under chosen interleavings: everything with few preemptions on small
// graphs, chance on larger ones. What is flawed on purpose must be found.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "exec/mt_topo/dynamic.hpp"
#include "exec/mt_topo/planned.hpp"
#include "exec/relations.hpp"
#include "tests/exec/mt_topo/explorer.hpp"
#include "tests/exec/mt_topo/graphs.hpp"

using namespace davit;           // NOLINT(google-build-using-namespace)
using namespace davit::mt_topo;  // NOLINT(google-build-using-namespace)
using davit::test::Exploration;
using davit::test::Explored;
using davit::test::ExploredCrew;
using davit::test::ExploreOptions;
using davit::test::Explorer;
using davit::test::WorkGraph;

namespace {

constexpr int64_t kSpinNs = 1000;

// Choices that are not 0, each with its number.
std::string text_of(const Exploration& found) {
  std::string text = found.failure + " after " + std::to_string(found.executions) + ";";
  for (size_t i = 0; i < found.choices.size(); ++i) {
    if (found.choices[i] == 0) continue;
    text += " " + std::to_string(i) + ":" + std::to_string(found.choices[i]);
  }
  return text;
}

// A graph, what its nodes must give, and how to run it.
struct Subject {
  Subject(const std::vector<std::vector<uint32_t>>& from, const std::vector<uint8_t>& lanes,
          uint32_t workers_wanted)
      : workers(workers_wanted) {
    graph.build(from);
    if (!lanes.empty()) graph.lane = lanes;
    int32_t code = 0;
    (void)dvt_sequential_run(graph.steps.data(), graph.steps.size(), &code);
    expected = graph.results();
    plan = graph.plan(workers);
    tables = test::tables_of(plan);
    segments = std::make_unique<Segments>(tables, graph.tables());
    topology = std::make_unique<Topology>(graph.tables());
  }

  void check_run(const Outcome& outcome) const {
    Explorer& explorer = Explorer::current();
    if (outcome.code != DVT_OK) return explorer.fail("a run fails");
    if (graph.results() != expected) return explorer.fail("another result");
    for (const auto& node : graph.nodes) {
      if (node.runs != 1) return explorer.fail("a node has not run once");
    }
  }

  // One execution: `runs` runs, then the helpers go.
  template <class Way>
  void run(Way& way, uint32_t runs, const std::function<Outcome(Way&, Crew*)>& call) {
    ExploredCrew crew(workers - 1, kSpinNs);
    for (uint32_t i = 0; i < runs; ++i) {
      graph.reset();
      check_run(call(way, &crew));
    }
    crew.stop();
    while (crew.attending() != 0) Explored::relax();
  }

  Exploration dynamic(const ExploreOptions& options, uint32_t runs = 1) {
    return Explorer::explore(options, [&] {
      Dynamic<Explored> way(*topology, workers, kSpinNs);
      run<Dynamic<Explored>>(way, runs, [this](auto& it, Crew* crew) {
        return it.run(crew, workers - 1, {}, nullptr, batch_min);
      });
    });
  }
  Exploration planned(const ExploreOptions& options, uint32_t runs = 1) {
    return Explorer::explore(options, [&] {
      Planned<Explored> way(*segments, workers, kSpinNs);
      run<Planned<Explored>>(way, runs, [this](auto& it, Crew* crew) {
        return it.run(crew, workers - 1, {}, nullptr);
      });
    });
  }

  uint32_t workers;
  uint32_t batch_min = 1;
  WorkGraph graph;
  std::vector<uint64_t> expected;
  schedule::Plan plan;
  PlanTables tables;
  std::unique_ptr<Segments> segments;
  std::unique_ptr<Topology> topology;
};

const std::vector<std::vector<uint32_t>> kPair = {{}, {}};
const std::vector<std::vector<uint32_t>> kDiamond = {{}, {0}, {0}, {1, 2}};
const std::vector<std::vector<uint32_t>> kCross = {{}, {}, {0, 1}, {0, 1}};
constexpr uint8_t kMemoryLane = DVT_KERNEL_LANE_MEMORY;

void check_complete(const Exploration& found) {
  CHECK_MESSAGE(found.failure.empty(), text_of(found));
  CHECK(found.complete);
  CHECK(found.executions > 100);
}

}  // namespace

TEST_CASE("dynamic: everything with up to three preemptions") {
  check_complete(Subject(kPair, {}, 2).dynamic({.preemptions = 3}));
  check_complete(Subject(kDiamond, {}, 2).dynamic({.preemptions = 3}));
  check_complete(Subject(kCross, {}, 2).dynamic({.preemptions = 3}));
}

TEST_CASE("dynamic, nothing kept back: everything with few preemptions") {
  const auto all_laid_out = [](Subject subject, const ExploreOptions& options) {
    subject.batch_min = 0;
    check_complete(subject.dynamic(options));
  };
  all_laid_out(Subject(kPair, {}, 2), {.preemptions = 3});
  all_laid_out(Subject(kDiamond, {}, 2), {.preemptions = 3});
  all_laid_out(Subject(kCross, {}, 2), {.preemptions = 3});
  // Half a batch is left to others.
  all_laid_out(Subject({{}, {}, {}}, {}, 2), {.preemptions = 2});
}

TEST_CASE("dynamic: the memory lane, everything with up to three preemptions") {
  check_complete(
      Subject({{}, {}, {}}, {0, kMemoryLane, kMemoryLane}, 2).dynamic({.preemptions = 3}));
}

TEST_CASE("planned: everything with up to three preemptions") {
  check_complete(Subject(kPair, {}, 2).planned({.preemptions = 3}));
  check_complete(Subject(kDiamond, {}, 2).planned({.preemptions = 3}));
  check_complete(Subject(kCross, {}, 2).planned({.preemptions = 3}));
}

TEST_CASE("two runs in a row: helpers of the first are in the way of the second") {
  check_complete(Subject(kCross, {}, 2).dynamic({.preemptions = 2}, 2));
  check_complete(Subject(kCross, {}, 2).planned({.preemptions = 2}, 2));
}

TEST_CASE("random graphs, three workers, interleavings by chance") {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const uint32_t count = 2 + random() % 12;
    std::vector<uint8_t> lanes(count, 0);
    for (uint8_t& lane : lanes) lane = static_cast<uint8_t>(seed % 2 == 0 ? random() % 3 : 0);
    Subject subject(test::random_edges(random, count), lanes, 3);
    subject.batch_min = seed % 3 == 0 ? 0 : 1;
    const ExploreOptions options{.executions = 60, .random_seed = seed};
    const Exploration dynamic = subject.dynamic(options, 2);
    CHECK_MESSAGE(dynamic.failure.empty(), text_of(dynamic));
    const Exploration planned = subject.planned(options, 2);
    CHECK_MESSAGE(planned.failure.empty(), text_of(planned));
  }
}

TEST_CASE(
    "sleep and wake-up (J2 of job.hpp); with a fence of the sleeper alone a wake-up is lost") {
  struct NoJob final : Job {
    void help(uint32_t /*worker*/) noexcept override {}
  };
  const auto explore = [](const ExploreOptions& options) {
    return Explorer::explore(options, [] {
      NoJob job;
      JobState<Explored> state(kSpinNs);
      Explored::Atom<uint32_t> work{0};
      bool announced = false;
      state.start(nullptr, 0, {}, nullptr);
      Explorer::current().spawn([&] {
        work.store(1, std::memory_order_release);
        state.announce(job);
        announced = true;
      });
      const auto have_work = [&] { return work.load(std::memory_order_acquire) != 0; };
      while (!have_work()) state.park_caller(have_work);
      while (!announced) Explored::relax();
    });
  };
  check_complete(explore({.preemptions = 5}));
  CHECK(explore({.preemptions = 5, .membarrier = false}).failure ==
        "a hang: all threads are parked");
}

TEST_CASE("a plan without one of its waits gives another result, and the explorer finds it") {
  Subject subject(kCross, {}, 2);
  REQUIRE(!subject.plan.waits.empty());
  subject.plan.waits.clear();
  std::ranges::fill(subject.plan.wait_offsets, 0);
  subject.tables = test::tables_of(subject.plan);
  subject.segments = std::make_unique<Segments>(subject.tables, subject.graph.tables());
  const Exploration found = subject.planned({.preemptions = 2});
  CHECK(found.failure == "another result");
  // The same choices show it again.
  const Exploration again = subject.planned({.preemptions = 2, .replay = found.choices});
  CHECK(again.executions == 1);
  CHECK(again.failure == "another result");
}

TEST_CASE("relations: no interleaving recycles early, and none loses the wake-up") {
  const std::vector<uint32_t> kernel = {0, 1, 1};
  const std::vector<uint32_t> flags = {DVT_KERNEL_LANE_MEMORY | DVT_KERNEL_FREE,
                                       DVT_KERNEL_LANE_LAUNCH};
  const std::vector<uint32_t> offsets = {0, 2, 2, 2};
  const std::vector<uint32_t> rows = {1, 2};
  const auto explore = [&](const ExploreOptions& options) {
    return Explorer::explore(options, [&] {
      auto made = exec::Relations<Explored>::create({.kernel = kernel,
                                                     .kernel_flags = flags,
                                                     .free_offsets = offsets,
                                                     .free_launches = rows});
      auto& relations = **made;
      Explored::Atom<uint32_t> bell{0};
      Explored::Atom<uint32_t> launches_done{0};
      bool submitted[3] = {};
      relations.begin_run();
      Explorer::current().spawn([&] {
        for (const uint32_t launch : {1U, 2U}) {
          submitted[launch] = true;
          if (relations.submitted(launch)) {
            bell.fetch_add(1, std::memory_order_release);
            Explored::unpark(&bell);
          }
        }
        launches_done.store(1, std::memory_order_release);
      });
      auto wait = relations.make_wait();
      relations.freed(0);
      uint32_t heard = bell.load(std::memory_order_acquire);
      if (!relations.settled() &&
          relations.suspend(wait, [](uint32_t /*launch*/) { return false; })) {
        while (!relations.is_over(wait)) {
          Explored::park(bell, heard);
          heard = bell.load(std::memory_order_acquire);
        }
        relations.resume(wait);
      }
      if (!submitted[1] || !submitted[2]) Explorer::current().fail("recycled early");
      while (launches_done.load(std::memory_order_acquire) == 0) Explored::relax();
    });
  };
  check_complete(explore({.preemptions = 4}));
  const Exploration flawed = explore({.preemptions = 4, .membarrier = false});
  CHECK(flawed.failure == "a hang: all threads are parked");
}
