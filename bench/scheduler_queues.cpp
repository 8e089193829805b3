// scheduler_queues.cpp: what the scheduler hands units over with, beside moodycamel's queue, where
// its header is installed (libconcurrentqueue-dev).
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/scheduler_graphs.hpp"
#include "exec/mt_topo/mailbox.hpp"
#include "exec/mt_topo/platform.hpp"
#include "exec/mt_topo/strand.hpp"

#if __has_include(<concurrentqueue/concurrentqueue.h>)
#define DAVIT_MOODYCAMEL
#include <concurrentqueue/concurrentqueue.h>
#endif

namespace davit::bench {
namespace {

using mt_topo::RealThreads;
using Box = mt_topo::Mailbox<RealThreads>;

constexpr uint32_t kBatch = Box::kItems;
constexpr uint32_t kRepeats = 1000;

// From one worker to another: batches of units.
struct OwnPort {
  Box box;

  void put(const uint32_t* items, uint32_t count) {
    while (!box.empty()) RealThreads::relax();
    box.publish(count, [&](uint32_t i) { return items[i]; });
  }
  uint32_t take(uint32_t* items) {
    uint32_t count = 0;
    (void)box.take(false, [&](uint32_t item) { items[count++] = item; });
    return count;
  }
};

// Units for a lane of which one worker at a time is the holder.
struct OwnLane {
  mt_topo::Strand<RealThreads> strand;
  std::vector<uint32_t> next = std::vector<uint32_t>(kRepeats);

  void pass(uint32_t unit) {
    if (!strand.enter(unit, next.data()) ||
        strand.leave(next.data()) != mt_topo::Strand<RealThreads>::kEnd) {
      std::_Exit(1);
    }
  }
};

#if defined(DAVIT_MOODYCAMEL)
// With tokens and in bulk, which is its fastest way.
struct PeerPort {
  moodycamel::ConcurrentQueue<uint32_t> queue;
  moodycamel::ProducerToken producer{queue};
  moodycamel::ConsumerToken consumer{queue};

  void put(const uint32_t* items, uint32_t count) {
    if (!queue.enqueue_bulk(producer, items, count)) std::_Exit(1);
  }
  uint32_t take(uint32_t* items) {
    return static_cast<uint32_t>(queue.try_dequeue_bulk(consumer, items, kBatch));
  }
};

struct PeerLane {
  PeerPort port;
  void pass(uint32_t unit) {
    uint32_t taken = 0;
    port.put(&unit, 1);
    if (port.take(&taken) != 1) std::_Exit(1);
  }
};
#endif

// Laid out and taken by one thread: what it costs a worker that nobody takes from.
template <class Port>
Run same_thread(Port& port, uint32_t count) {
  return [&port, count] {
    uint32_t items[kBatch] = {};
    for (uint32_t i = 0; i < kRepeats; ++i) {
      port.put(items, count);
      if (port.take(items) != count) std::_Exit(1);
    }
  };
}

template <class Lane>
Run pass_lane(Lane& lane) {
  return [&lane] {
    for (uint32_t unit = 0; unit < kRepeats; ++unit) lane.pass(unit);
  };
}

// Batches go to another thread and come back: half a turn.
template <class Port>
double one_way_ns(uint32_t count) {
  constexpr uint32_t kTurns = 5000;
  const auto there = std::make_unique<Port>();
  const auto back = std::make_unique<Port>();
  std::atomic<bool> over{false};
  std::thread other([&] {
    uint32_t items[kBatch];
    while (!over.load(std::memory_order_relaxed)) {
      const uint32_t taken = there->take(items);
      if (taken != 0) back->put(items, taken);
      RealThreads::relax();
    }
  });
  uint32_t items[kBatch] = {};
  double begin = 0;
  for (uint32_t turn = 0; turn < 2 * kTurns; ++turn) {
    if (turn == kTurns) begin = now_ns(Clock::kWall);
    there->put(items, count);
    for (uint32_t taken = 0; taken < count; taken += back->take(items)) RealThreads::relax();
  }
  const double took = now_ns(Clock::kWall) - begin;
  over.store(true);
  other.join();
  return took / kTurns / 2;
}

struct Row {
  std::string metric;
  double own_ns;
  double peer_ns;  // 0: it is not there.
};

void add(Report& report, const Row& row) {
  Measurement measurement{.metric = "queues: " + row.metric, .value = row.own_ns, .unit = "ns"};
  if (row.peer_ns == 0) return report.add(std::move(measurement));
  measurement.peer = "moodycamel";
  measurement.peer_value = row.peer_ns;
  report.add(std::move(measurement), 1.0);
}

template <class Port>
std::vector<double> samples_of_one_way(uint32_t count) {
  std::vector<double> samples;
  for (int i = 0; i < 11; ++i) samples.push_back(one_way_ns<Port>(count));
  return samples;
}

}  // namespace

void measure_queues(Report& report) {
  add_round_trip(report, "queues");
  OwnLane lane;
  OwnPort port;
  std::vector<Run> contenders = {same_thread(port, kBatch), same_thread(port, 1), pass_lane(lane)};
#if defined(DAVIT_MOODYCAMEL)
  PeerLane peer_lane;
  PeerPort peer_port;
  contenders.push_back(same_thread(peer_port, kBatch));
  contenders.push_back(same_thread(peer_port, 1));
  contenders.push_back(pass_lane(peer_lane));
#endif
  const Contest contest = measure(contenders, kTiming);
  const bool peer = contenders.size() > 3;
  const auto row = [&](const char* metric, size_t i, double units) {
    add(report, {metric, contest.median_ns[i] / kRepeats / units,
                 peer ? contest.median_ns[i + 3] / kRepeats / units : 0});
  };
  row("a unit of a batch of 62, laid out and taken back by one worker", 0, kBatch);
  row("a batch of one, laid out and taken back by one worker", 1, 1);
  row("a unit through a lane that is free", 2, 1);
  for (const uint32_t count : {1U, kBatch}) {
    const double own = median(samples_of_one_way<OwnPort>(count));
    double other = 0;
#if defined(DAVIT_MOODYCAMEL)
    other = median(samples_of_one_way<PeerPort>(count));
#endif
    add(report, {"a batch of " + std::to_string(count) + ", until another worker has taken it", own,
                 other});
  }
}

}  // namespace davit::bench
