// scheduler_engine.cpp: what a run costs beside its nodes: lanes, starting, handing over, waiting.
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/scheduler_graphs.hpp"
#include "exec/mt_topo/platform.hpp"
#include "tests/support/futex_calls.hpp"

namespace davit::bench {

using mt_topo::Mode;
using mt_topo::Pool;
using mt_topo::RealThreads;
using mt_topo::Scheduler;

// Nodes that alternate between the lanes, 1 to 3 workers on what cores there are.
void measure_lanes(Report& report, const std::string& name, const Edges& edges) {
  add_round_trip(report, name + ", mixed lanes, empty, dynamic");
  const Graph graph(name, edges, run_empty, true);
  const schedule::Plan plan = graph.plan(2, 2);
  std::vector<ResourcePtr<Scheduler>> schedulers;
  for (const uint32_t workers : {1U, 2U, 3U}) {
    schedulers.push_back(make(graph, plan, make_pool(workers), Mode::kDynamic));
  }
  const Contest contest =
      measure({runs(schedulers[0]), runs(schedulers[1]), runs(schedulers[2])}, kTiming);
  for (size_t i = 0; i < 3; ++i) {
    report.add({.metric = name + ", mixed lanes, empty, dynamic, workers: " + std::to_string(i + 1),
                .value = contest.median_ns[i] / static_cast<double>(graph.count()),
                .unit = "ns/node"},
               i == 2 ? 180.0 : 60.0);
  }
}

void measure_starts(Report& report, const std::shared_ptr<Pool>& pool) {
  add_round_trip(report, "start");
  const Graph small("CNN-like", cnn_like(), run_empty, false);
  const auto scheduler = make(small, small.plan(2, 2), pool, Mode::kAutomatic);
  const Contest contest = measure({runs(scheduler)}, kTiming);
  report.add({.metric = "150 empty nodes, caller to caller, default",
              .value = contest.median_ns[0],
              .unit = "ns"},
             1000);

  Graph large("1,000,000 nodes", layered(1000, 1000), run_empty, false);
  const auto failing = [](void*) -> int32_t { return DVT_END_OF_SEQUENCE; };
  large.steps[0].fn = failing;
  const std::vector<double> cost(large.count(), 1000.0);
  const schedule::Plan plan = large.plan(1000, 2);
  for (const Mode mode : {Mode::kSequential, Mode::kPlanned, Mode::kDynamic}) {
    const mt_topo::PlanTables tables = {plan.part_offsets, plan.order, plan.wait_offsets,
                                        plan.waits};
    auto early = Scheduler::create(large.tables(), &tables, pool, {.mode = mode});
    if (!early.ok()) std::_Exit(1);
    const Contest exits = measure({[&] { (void)(*early)->run(); }}, kTiming);
    report.add({.metric = std::string("1,000,000 nodes, end of sequence at the first, ") +
                          mt_topo::mode_name(mode),
                .value = exits.median_ns[0],
                .unit = "ns"},
               2000);
  }
}

namespace {

constexpr int64_t kGiveUpNs = 1'000'000;

// Two nodes that meet: each waits until the other has begun, and notes when it did. No call of the
// system is needed for that.
struct Meeting {
  struct Side {
    Meeting* meeting;
    alignas(64) std::atomic<int64_t> begun{0};
  };
  Side sides[2] = {{this}, {this}};

  static int32_t run(void* context) {
    auto* mine = static_cast<Side*>(context);
    Side* other = mine == &mine->meeting->sides[0] ? mine + 1 : mine - 1;
    const int64_t now = RealThreads::now_ns();
    mine->begun.store(now, std::memory_order_release);
    while (other->begun.load(std::memory_order_acquire) == 0) {
      if (RealThreads::now_ns() - now > kGiveUpNs) return DVT_TIMEOUT;
      RealThreads::relax();
    }
    return DVT_OK;
  }
};

struct Calls {
  double begin_ns;  // Median of 2,000.
  double futex_calls;
};

// From the caller's first look at the clock to the begin of the later node, which a helper runs
// that was spinning between runs. The spin budget lasts.
Calls call_helper(Mode mode) {
  const auto pool = make_pool(2, 1'000'000);
  Meeting meeting;
  const DvtStep steps[] = {{Meeting::run, &meeting.sides[0]}, {Meeting::run, &meeting.sides[1]}};
  const std::vector<uint32_t> none = {0, 0, 0};
  const std::vector<uint32_t> parts = {0, 1, 2};
  const std::vector<uint32_t> order = {0, 1};
  const mt_topo::PlanTables plan = {parts, order, none, {}};
  auto made = Scheduler::create({steps, none, {}, std::span(none).first(2), {}, {}}, &plan, pool,
                                {.mode = mode});
  if (!made.ok()) std::_Exit(1);
  std::vector<double> samples;
  uint64_t futex_calls = 0;
  for (int i = 0; i < 2000; ++i) {
    // The first ones send for the helper, or are their caller's alone, to learn.
    if (i == 16) futex_calls = test::futex_calls();
    for (Meeting::Side& side : meeting.sides) side.begun.store(0, std::memory_order_relaxed);
    const int64_t begin = RealThreads::now_ns();
    if ((*made)->run().code != DVT_OK) continue;  // Alone, to learn; or nobody came in time.
    samples.push_back(
        double(std::max(meeting.sides[0].begun.load(), meeting.sides[1].begun.load()) - begin));
  }
  return {samples.empty() ? 1e9 : median(samples), double(test::futex_calls() - futex_calls)};
}

// A chain whose nodes take turns on two workers, so that each waits for the flag of the other.
double flag_ns(const std::shared_ptr<Pool>& pool) {
  constexpr uint32_t kNodes = 2000;
  const Graph graph("turns", chain(kNodes), run_empty, false);
  schedule::Plan plan;
  plan.part_offsets = {0, kNodes / 2, kNodes};
  plan.wait_offsets = {0};
  for (uint32_t position = 0; position < kNodes; ++position) {
    const uint32_t part = position / (kNodes / 2);
    const uint32_t node = 2 * (position % (kNodes / 2)) + part;
    plan.order.push_back(node);
    if (node > 0) plan.waits.push_back((node - 1) / 2 + (1 - part) * (kNodes / 2));
    plan.wait_offsets.push_back(static_cast<uint32_t>(plan.waits.size()));
  }
  const auto scheduler = make(graph, plan, pool, Mode::kPlanned);
  return measure({runs(scheduler)}, kTiming).median_ns[0] / kNodes;
}

double cpu_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// Share of one core that the process uses meanwhile.
double core_share(const Run& run) {
  const double cpu = cpu_ns();
  const double wall = now_ns(Clock::kWall);
  run();
  return (cpu_ns() - cpu) / (now_ns(Clock::kWall) - wall);
}

void nap() {
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
}

}  // namespace

void measure_hand_over(Report& report, const std::shared_ptr<Pool>& pool) {
  constexpr double kLimitNs = 200;
  const auto add = [&](const std::string& what, double value) {
    report.add({.metric = "hand-over: " + what, .value = value, .unit = "ns"}, kLimitNs);
  };
  add_round_trip(report, "hand-over");
  add("a flag, to a worker that waits for it", flag_ns(pool));
  for (const Mode mode : {Mode::kPlanned, Mode::kDynamic}) {
    const Calls calls = call_helper(mode);
    add(std::string("a run, to a helper that spins, ") + mt_topo::mode_name(mode), calls.begin_ns);
    report.add({.metric = std::string("hand-over: futex calls in 1,984 such runs, ") +
                          mt_topo::mode_name(mode),
                .value = calls.futex_calls,
                .unit = "calls"},
               0);
  }
}

void measure_idle(Report& report, const std::shared_ptr<Pool>& pool) {
  const auto add = [&](const std::string& what, const Run& run, double limit) {
    report.add({.metric = "idle: " + what, .value = core_share(run), .unit = "cores"}, limit);
  };
  const Graph graph("wavefront", wavefront(100), run_empty, false);
  const schedule::Plan plan = graph.plan(1000, 2);
  const auto planned = make(graph, plan, pool, Mode::kPlanned);
  (void)planned->run();
  add("no run", nap, 0.01);
  constexpr uint32_t kWorkers = 8;
  const auto idle = make_pool(kWorkers);
  Edges edges(1 + kWorkers, std::vector<uint32_t>{0});
  edges[0].clear();
  Graph long_task("one long node, then eight", edges, run_empty, false);
  long_task.steps[0].fn = [](void*) -> int32_t {
    nap();
    return DVT_OK;
  };
  for (const Mode mode : {Mode::kPlanned, Mode::kDynamic}) {
    const schedule::Plan parts = long_task.plan(1e6, kWorkers);
    const mt_topo::PlanTables tables = {parts.part_offsets, parts.order, parts.wait_offsets,
                                        parts.waits};
    auto waiting = Scheduler::create(long_task.tables(), &tables, idle, {.mode = mode});
    if (!waiting.ok()) std::_Exit(1);
    add(
        std::string("one long node, 7 idle workers, ") + mt_topo::mode_name(mode),
        [&] { (void)(*waiting)->run(); }, 0.05);
  }
}

namespace {

// Runs of all clients together in a second, each with a scheduler of its own.
double runs_per_second(std::vector<ResourcePtr<Scheduler>>& schedulers) {
  constexpr double kNs = 3e8;
  std::atomic<uint64_t> runs{0};
  std::atomic<bool> over{false};
  std::vector<std::thread> clients;
  const double begin = now_ns(Clock::kWall);
  clients.reserve(schedulers.size());
  for (const auto& scheduler : schedulers) {
    clients.emplace_back([&] {
      while (!over.load(std::memory_order_relaxed)) {
        if (scheduler->run().code != DVT_OK) std::_Exit(1);
        runs.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  while (now_ns(Clock::kWall) - begin < kNs) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const auto counted = static_cast<double>(runs.load());
  const double took = now_ns(Clock::kWall) - begin;
  over.store(true);
  for (std::thread& client : clients) client.join();
  return counted / took * 1e9;
}

}  // namespace

void measure_clients(Report& report, const std::shared_ptr<Pool>& pool) {
  add_round_trip(report, "clients");
  const Edges edges = layered(20, 100);
  for (const uint32_t clients : {1U, 4U, 16U}) {
    double each_us[2] = {};
    for (const Mode mode : {Mode::kSequential, Mode::kAutomatic}) {
      std::vector<std::unique_ptr<Graph>> graphs;
      std::vector<ResourcePtr<Scheduler>> schedulers;
      for (uint32_t client = 0; client < clients; ++client) {
        graphs.push_back(std::make_unique<Graph>("layered", edges, run_microsecond, false));
        schedulers.push_back(make(*graphs.back(), graphs.back()->plan(1000, 2), pool, mode));
      }
      each_us[mode == Mode::kAutomatic] = 1e6 / runs_per_second(schedulers);
    }
    report.add({.metric = "clients: " + std::to_string(clients) + ", a run of 2,000 us, default",
                .value = each_us[1],
                .unit = "us each",
                .peer = "own sequential loop",
                .peer_value = each_us[0]},
               1.1);
  }
}

void measure_cycles(Report& report, const std::shared_ptr<Pool>& pool) {
  add_round_trip(report, "cycles");
  constexpr int kCycles = 100'000;
  const Graph graph("wavefront", wavefront(4), run_empty, false);
  const Graph other("wavefront", wavefront(10), run_microsecond, false);
  const auto busy = make(other, other.plan(1000, 2), pool, Mode::kPlanned);
  const schedule::Plan plan = graph.plan(1000, 2);
  const mt_topo::PlanTables tables = {plan.part_offsets, plan.order, plan.wait_offsets, plan.waits};
  std::atomic<bool> over{false};
  std::thread meanwhile([&] {
    while (!over.load()) (void)busy->run();
  });
  const double begin = now_ns(Clock::kWall);
  for (int cycle = 0; cycle < kCycles; ++cycle) {
    auto made = Scheduler::create(graph.tables(), &tables, pool,
                                  {.mode = cycle % 2 == 0 ? Mode::kPlanned : Mode::kDynamic});
    if (!made.ok() || (*made)->run().code != DVT_OK) std::_Exit(1);
  }
  const double each = (now_ns(Clock::kWall) - begin) / kCycles;
  over.store(true);
  meanwhile.join();
  report.add({.metric = "cycles: create, run, destroy, 100,000 times while another runs",
              .value = each,
              .unit = "ns each"});
}

}  // namespace davit::bench
