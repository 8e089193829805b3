// Which runs call futex(2): none while the spin budget lasts.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/exec/mt_topo/runs.hpp"
#include "tests/support/futex_calls.hpp"

using namespace davit;
using namespace davit::test;

namespace {

// Four nodes: of the two in the middle, each waits until the other has begun, so that a helper
// runs one of them; the last waits for both.
struct Meeting {
  Meeting() {
    graph.build({{}, {0}, {0}, {1, 2}});
    for (const uint32_t node : {1U, 2U}) {
      graph.nodes[node].extra = [this, node] {
        here[node - 1].store(true);
        const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(5);
        while (!here[2 - node].load() && std::chrono::steady_clock::now() < limit) {
          RealThreads::relax();
        }
        if (!here[2 - node].load()) met.store(false);
      };
    }
  }

  void run(Scheduler& scheduler) {
    met.store(true);
    for (auto& one : here) one.store(false);
    REQUIRE(scheduler.run().code == DVT_OK);
    CHECK(met.load());
  }

  WorkGraph graph;
  std::atomic<bool> here[2];
  std::atomic<bool> met{true};
};

}  // namespace

TEST_CASE("handing a run to a helper that spins, and gathering it, calls no futex") {
  for (const Mode mode : {Mode::kPlanned, Mode::kDynamic}) {
    CAPTURE(mode_name(mode));
    // More than any pause between two runs.
    const auto pool = make_pool(2, /*spin_us=*/1'000'000);
    Meeting meeting;
    const auto scheduler = make(meeting.graph, meeting.graph.plan(2), pool, mode);
    meeting.run(*scheduler);  // Sends for the helper.
    const uint64_t before = futex_calls();
    for (int run = 0; run < 1000; ++run) meeting.run(*scheduler);
    CHECK(futex_calls() == before);
  }
}

TEST_CASE("a helper that does not spin is sent for each time, which is counted") {
  const auto pool = make_pool(2, /*spin_us=*/0);
  Meeting meeting;
  const auto scheduler = make(meeting.graph, meeting.graph.plan(2), pool, Mode::kDynamic);
  const uint64_t before = futex_calls();
  for (int run = 0; run < 20; ++run) {
    meeting.run(*scheduler);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  CHECK(futex_calls() > before);
}
