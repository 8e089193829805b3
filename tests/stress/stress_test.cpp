// The stress driver: it covers what it says, repeats, finds what is wrong, and tells who waits.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "stress/stress.hpp"

using davit::stress::StressOptions;
using davit::stress::StressReport;

namespace {

#if defined(__SANITIZE_THREAD__)
constexpr uint64_t kRounds = 60;
#else
constexpr uint64_t kRounds = 300;
#endif

StressReport run_well(const StressOptions& options) {
  const auto report = davit::stress::run(options);
  REQUIRE_MESSAGE(report.ok(), report.status().to_string());
  return *report;
}

}  // namespace

TEST_CASE("rounds cover every event, shape, schedule and number of workers, and repeat") {
  const StressOptions options{.seed = 7, .rounds = kRounds, .workers_max = 3, .nodes_max = 200};
  const StressReport report = run_well(options);
  CHECK(report.rounds == kRounds);
  for (const char* scenario : {"event: nothing",
                               "event: failure",
                               "event: end of sequence",
                               "event: exception",
                               "event: cancel",
                               "event: deadline",
                               "event: nested run",
                               "shape: chain",
                               "shape: wide",
                               "shape: layered",
                               "shape: wavefront",
                               "shape: random",
                               "schedule: auto",
                               "schedule: sequential",
                               "schedule: planned",
                               "schedule: dynamic",
                               "workers: 1",
                               "workers: 2",
                               "workers: 3",
                               "lanes: mixed",
                               "lanes: normal",
                               "callers at once: 1",
                               "callers at once: 2",
                               "callers at once: 3",
                               "flow: none",
                               "flow: branch",
                               "flow: loop",
                               "flow: in a body",
                               "event: failure, in a body",
                               "event: end of sequence, in a body",
                               "event: exception, in a body",
                               "event: cancel, in a body",
                               "event: deadline, in a body",
                               "event: nested run, in a body",
                               "device: fixed shapes",
                               "device: open shapes",
                               "device: enough memory",
                               "device: as little memory as in order",
                               "device: branches and loops",
                               "host: fixed shapes",
                               "host: open shapes",
                               "host: enough memory",
                               "host: as little memory as in order",
                               "host: too little memory",
                               "host: branches and loops",
                               "model: cancelled",
                               "model: a row that is not there",
                               "model: out of memory",
                               "model: all memory returned"}) {
    CHECK_MESSAGE(report.scenarios.contains(scenario), scenario);
  }
  const StressReport again = run_well(options);
  CHECK(again.scenarios == report.scenarios);
  CHECK(again.runs == report.runs);
}

TEST_CASE("one configuration alone; allocations that suspend go on") {
  using davit::mt_topo::Mode;
  const StressReport report = run_well({.seed = 5,
                                        .rounds = kRounds,
                                        .workers_min = 2,
                                        .workers_max = 2,
                                        .schedule = Mode::kDynamic,
                                        .suspend = true,
                                        .nodes_max = 200});
  CHECK(report.suspensions > 0);
  CHECK(report.scenarios.contains("schedule: dynamic"));
  CHECK(!report.scenarios.contains("schedule: planned"));
  CHECK(!report.scenarios.contains("workers: 1"));
  CHECK(!davit::stress::run({.rounds = 1, .schedule = Mode::kPlanned, .suspend = true}).ok());
  CHECK(!davit::stress::run({.rounds = 1, .workers_min = 3, .workers_max = 2}).ok());
}

TEST_CASE("time ends a run of rounds") {
  const StressReport report =
      run_well({.seed = 1, .seconds = 0.3, .workers_max = 2, .nodes_max = 50});
  CHECK(report.rounds > 0);
}

#if !defined(__SANITIZE_THREAD__)  // The race is on purpose.
TEST_CASE("a scheduler that does not know of an edge is found out, with a seed") {
  const auto report = davit::stress::run(
      {.seed = 1, .rounds = 3000, .workers_max = 3, .nodes_max = 400, .leave_out_edge = true});
  REQUIRE(!report.ok());
  const auto& detail = report.status().detail();
  CHECK(detail.message.find("has another result than the sequential loop") != std::string::npos);
  CHECK(detail.hint.starts_with("again: --seed "));
}
#endif

TEST_CASE("a run that stalls is told of, with who waits for whom") {
  std::atomic<bool> go_on{false};
  std::string told;
  const auto report =
      davit::stress::run({.seed = 3,
                          .rounds = 20,
                          .workers_max = 2,
                          .nodes_max = 100,
                          .stall_seconds = 0.2,
                          .on_stall =
                              [&](const davit::Status& stall) {
                                told = stall.detail().message;
                                go_on.store(true);
                              },
                          .in_a_node =
                              [&] {
                                while (!go_on.load())
                                  std::this_thread::sleep_for(std::chrono::milliseconds(1));
                              }});
  REQUIRE(!report.ok());
  CHECK(report.status().code() == DVT_TIMEOUT);
  CHECK(told.starts_with("no node has ended for 0.2"));
  CHECK(told.find("node 0 (") != std::string::npos);
  CHECK(told.find("is running") != std::string::npos);
}

TEST_CASE("options without an end, or out of range, are refused") {
  CHECK(davit::stress::run({}).status().code() == DVT_INVALID_ARGUMENT);
  CHECK(davit::stress::run({.rounds = 1, .workers_max = 0}).status().code() ==
        DVT_INVALID_ARGUMENT);
  CHECK(davit::stress::run({.rounds = 1, .workers_max = 65}).status().code() ==
        DVT_INVALID_ARGUMENT);
  CHECK(davit::stress::run({.rounds = 1, .nodes_max = 0}).status().code() == DVT_INVALID_ARGUMENT);
}
