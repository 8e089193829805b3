// relations_bench: what Free-to-Launch relations cost, against the same protocol under one mutex.
//
// The peer is how such state is usually kept: generations per node, a counter of unmet launches,
// one mutex around all of it, reset at each run.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "bench/report.hpp"
#include "davit/kernel.h"
#include "exec/held_blocks.hpp"
#include "exec/relations.hpp"
#include "exec/sequential_c/sequential.h"

namespace {

using davit::bench::Report;
using davit::bench::Timing;
using davit::exec::RelationTables;
using BenchRelations = davit::exec::Relations<davit::mt_topo::RealThreads>;

class MutexRelations {
 public:
  explicit MutexRelations(const RelationTables& tables)
      : tables_(tables),
        submitted_(tables.kernel.size()),
        freed_(tables.kernel.size()),
        required_(tables.kernel.size()) {}

  void begin_run() {
    const std::lock_guard lock(mutex_);
    std::ranges::fill(submitted_, 0);
    std::ranges::fill(freed_, 0);
    std::ranges::fill(required_, 0);
    unmet_ = 0;
  }
  void freed(uint32_t node) {
    const std::lock_guard lock(mutex_);
    const uint64_t generation = ++freed_[node];
    for (uint32_t i = tables_.free_offsets[node]; i < tables_.free_offsets[node + 1]; ++i) {
      const uint32_t launch = tables_.free_launches[i];
      const bool met = submitted_[launch] >= required_[launch];
      required_[launch] = std::max(required_[launch], generation);
      if (met && submitted_[launch] < required_[launch]) ++unmet_;
    }
  }
  void submitted(uint32_t node) {
    const std::lock_guard lock(mutex_);
    const bool met = submitted_[node] >= required_[node];
    ++submitted_[node];
    if (!met && submitted_[node] >= required_[node] && --unmet_ == 0) all_met_.notify_all();
  }
  bool settled() {
    const std::lock_guard lock(mutex_);
    return unmet_ == 0;
  }

 private:
  RelationTables tables_;
  std::mutex mutex_;
  std::condition_variable all_met_;
  std::vector<uint64_t> submitted_, freed_, required_;
  uint64_t unmet_ = 0;
};

// Frees, then others, then launches; each Free with `width` launches.
struct Graph {
  Graph(uint32_t frees, uint32_t others, uint32_t launches, uint32_t width) {
    const uint32_t first = frees + others;
    kernel.assign(frees, 0);
    kernel.insert(kernel.end(), others, 1);
    kernel.insert(kernel.end(), launches, 2);
    for (uint32_t free = 0; free < frees; ++free) {
      const uint32_t begin = free * uint64_t{launches} / frees;
      std::vector<uint32_t> row;
      for (uint32_t i = 0; i < width; ++i) row.push_back(first + (begin + i) % launches);
      std::ranges::sort(row);
      rows.insert(rows.end(), row.begin(), row.end());
      offsets.push_back(static_cast<uint32_t>(rows.size()));
    }
    offsets.resize(kernel.size() + 1, static_cast<uint32_t>(rows.size()));
  }
  [[nodiscard]] RelationTables tables() const {
    return {
        .kernel = kernel, .kernel_flags = flags, .free_offsets = offsets, .free_launches = rows};
  }

  std::vector<uint32_t> flags = {DVT_KERNEL_LANE_MEMORY | DVT_KERNEL_FREE, DVT_KERNEL_LANE_NORMAL,
                                 DVT_KERNEL_LANE_LAUNCH};
  std::vector<uint32_t> kernel, offsets = {0}, rows;
};

davit::ResourcePtr<BenchRelations> make(const RelationTables& tables) {
  auto made = BenchRelations::create(tables);
  if (!made.ok()) {
    std::fprintf(stderr, "%s\n", made.status().to_string().c_str());
    std::_Exit(1);
  }
  (*made)->begin_run();
  return std::move(*made);
}

int32_t body(void* context) {
  ++*static_cast<uint64_t*>(context);
  return 0;
}

// A hand-written run over nodes without relations, and the same with the question asked of each.
void measure_unrelated(Report& report) {
  const Graph graph(1, 10'000, 1, 1);
  const auto relations = make(graph.tables());
  std::vector<uint64_t> contexts(graph.kernel.size());
  std::vector<DvtStep> steps;
  for (uint64_t& context : contexts) steps.push_back({body, &context});
  const auto tracked = [&] {
    for (uint32_t node = 1; node + 1 < steps.size(); ++node) {
      if (steps[node].fn(steps[node].ctx) != 0) std::_Exit(1);
      if (relations->related(node)) [[unlikely]]
        relations->freed(node);
    }
  };
  const auto untracked = [&] {
    for (uint32_t node = 1; node + 1 < steps.size(); ++node) {
      if (steps[node].fn(steps[node].ctx) != 0) std::_Exit(1);
    }
  };
  const auto contest = davit::bench::measure({tracked, untracked});
  report.add({.metric = "unrelated node, added",
              .value = (contest.median_ns[0] - contest.median_ns[1]) / 10'000,
              .unit = "ns",
              .peer = "",
              .peer_value = {}},
             0.5);
}

void measure_satisfied_wait(Report& report) {
  const Graph graph(1000, 0, 1000, 1);
  const auto relations = make(graph.tables());
  MutexRelations peer(graph.tables());
  uint64_t settled = 0;
  constexpr int kAsked = 1000;
  const auto contest = davit::bench::measure({
      [&] {
        for (int i = 0; i < kAsked; ++i) {
          (void)relations->settled();
          asm volatile("" ::: "memory");  // Each question is asked.
        }
      },
      [&] {
        for (int i = 0; i < kAsked; ++i) settled += peer.settled() ? 1 : 0;
      },
  });
  if (settled == 0) std::_Exit(1);
  const double ours = contest.median_ns[0] / kAsked;
  report.add({.metric = "satisfied wait", .value = ours, .unit = "ns"}, 2.0);
  report.add({.metric = "satisfied wait",
              .value = ours,
              .unit = "ns",
              .peer = "one mutex",
              .peer_value = contest.median_ns[1] / kAsked,
              .paired_ratio = contest.ratio[0]},
             1.0);
}

// A device that always has memory.
struct Rich {
  static inline uint64_t given = 0;
  [[gnu::noinline]] static int32_t give() {
    ++given;
    return DVT_OK;
  }
  int32_t allocate() const { return give(); }
  int32_t release(uint32_t /*block*/) const { return DVT_OK; }
  void will_retry() const {}
};

// An allocation that succeeds asks nothing of the relations, however many are owed: one look at
// whether it is waiting already, and one at its code.
void measure_allocation(Report& report) {
  constexpr uint32_t kAllocations = 1000;
  const Graph graph(kAllocations, 0, kAllocations, 1);
  davit::exec::HeldBlocks<davit::mt_topo::RealThreads, uint32_t> held(make(graph.tables()),
                                                                      kAllocations);
  held.begin_run();
  for (uint32_t free = 0; free < kAllocations; ++free) {
    if (held.free(Rich{}, free, free) != DVT_OK) std::_Exit(1);
  }
  const auto contest = davit::bench::measure({
      [&] {
        for (uint32_t i = 0; i < kAllocations; ++i) {
          if (held.allocate(Rich{}) != DVT_OK) std::_Exit(1);
        }
      },
      [&] {
        for (uint32_t i = 0; i < kAllocations; ++i) {
          if (Rich{}.allocate() != DVT_OK) std::_Exit(1);
        }
      },
  });
  report.add({.metric = "allocation that succeeds while 1,000 launches are owed, added",
              .value = (contest.median_ns[0] - contest.median_ns[1]) / kAllocations,
              .unit = "ns",
              .peer = "",
              .peer_value = {}},
             0.5);
}

// A run of 1000 pairs: the Free first, so that each Launch is owed.
void measure_pairs(Report& report) {
  constexpr uint32_t kPairs = 1000;
  const Graph graph(kPairs, 0, kPairs, 1);
  const auto relations = make(graph.tables());
  MutexRelations peer(graph.tables());
  uint64_t told = 0;
  const auto contest = davit::bench::measure({
      [&] {
        relations->begin_run();
        for (uint32_t i = 0; i < kPairs; ++i) {
          relations->freed(i);
          told += relations->submitted(kPairs + i) ? 1 : 0;
        }
        if (!relations->settled()) std::_Exit(1);
      },
      [&] {
        peer.begin_run();
        for (uint32_t i = 0; i < kPairs; ++i) {
          peer.freed(i);
          peer.submitted(kPairs + i);
        }
        if (!peer.settled()) std::_Exit(1);
      },
  });
  if (told != 0) std::_Exit(1);
  const double ours = contest.median_ns[0] / kPairs;
  report.add({.metric = "Free activation and Launch submission", .value = ours, .unit = "ns"}, 10);
  report.add({.metric = "Free activation and Launch submission",
              .value = ours,
              .unit = "ns",
              .peer = "one mutex",
              .peer_value = contest.median_ns[1] / kPairs,
              .paired_ratio = contest.ratio[0]},
             1.0);
}

// The launch lane and the memory lane on two threads: this one frees and asks all the time, the
// other submits, each at its own pace and all in one run. Time of the run for each pair.
void measure_asked_pairs(Report& report) {
  constexpr uint32_t kPairs = 20'000;
  constexpr uint32_t kRuns = 101;
  const Graph graph(kPairs, 0, kPairs, 1);
  const auto relations = make(graph.tables());
  std::atomic<uint32_t> started{0};
  std::atomic<uint32_t> finished{0};
  std::thread launch_lane([&] {
    for (uint32_t run = 1; run <= kRuns; ++run) {
      while (started.load(std::memory_order_acquire) != run) std::this_thread::yield();
      for (uint32_t i = 0; i < kPairs; ++i) (void)relations->submitted(kPairs + i);
      finished.store(run, std::memory_order_release);
    }
  });
  std::vector<double> times;
  for (uint32_t run = 1; run <= kRuns; ++run) {
    relations->begin_run();
    const double begin = davit::bench::now_ns(davit::bench::Clock::kWall);
    started.store(run, std::memory_order_release);
    for (uint32_t i = 0; i < kPairs; ++i) {
      relations->freed(i);
      (void)relations->settled();
    }
    while (!relations->settled()) {
    }
    while (finished.load(std::memory_order_acquire) != run) std::this_thread::yield();
    times.push_back((davit::bench::now_ns(davit::bench::Clock::kWall) - begin) / kPairs);
  }
  launch_lane.join();
  report.add({.metric = "the same, asked all the time from another thread",
              .value = davit::bench::median(times),
              .unit = "ns"},
             25);
}

void measure_load(Report& report) {
  // 100,000 nodes, 1,000,000 relations.
  const Graph graph(50'000, 0, 50'000, 20);
  const RelationTables tables = graph.tables();
  size_t bytes = 0;
  const auto contest = davit::bench::measure({[&] {
                                               const auto relations = make(tables);
                                               bytes = relations->bytes();
                                             }},
                                             {.samples = 51, .sample_ns = 1e6});
  report.add({.metric = "load 100,000 nodes, 1,000,000 relations",
              .value = contest.median_ns[0] / 1e6,
              .unit = "ms"},
             1.3);
  const size_t with_tables = bytes + 4 * (tables.free_offsets.size() + tables.free_launches.size());
  report.add({.metric = "bytes of these, tables of the image included",
              .value = static_cast<double>(with_tables),
              .unit = "bytes"},
             6e6);
}

void measure_start(Report& report) {
  const Graph graph(500'000, 0, 500'000, 1);
  const auto relations = make(graph.tables());
  const auto contest = davit::bench::measure({[&] { relations->begin_run(); }});
  report.add(
      {.metric = "start of a run, 1,000,000 nodes", .value = contest.median_ns[0], .unit = "ns"},
      10);
}

}  // namespace

int main(int argc, char** argv) {
  Report report("relations_bench", argc, argv, davit::bench::Parts::kWhole);
  measure_unrelated(report);
  measure_satisfied_wait(report);
  measure_allocation(report);
  measure_pairs(report);
  measure_asked_pairs(report);
  measure_load(report);
  measure_start(report);
  return report.finish();
}
