// Streams of tasks, and the events between them.
#include "lowering/stream_plan.hpp"

#include <doctest/doctest.h>

#include <random>
#include <set>

using davit::lowering::Engine;
using davit::lowering::plan_streams;
using davit::lowering::StreamPlan;
using davit::lowering::StreamTask;

namespace {

constexpr uint32_t kNone = StreamPlan::kNone;

// What a device would do: streams in order, waits for events. Gives each task all that has
// certainly ended before it starts.
std::vector<std::set<uint32_t>> known_before(std::span<const StreamTask> tasks,
                                             const StreamPlan& plan) {
  std::vector<std::set<uint32_t>> known(tasks.size());
  std::vector<uint32_t> last(plan.streams, kNone);
  const auto learn = [&](uint32_t task, uint32_t from) {
    known[task].insert(from);
    known[task].insert(known[from].begin(), known[from].end());
  };
  for (uint32_t task = 0; task < tasks.size(); ++task) {
    uint32_t& before = last[plan.stream[task]];
    if (before != kNone) learn(task, before);
    for (const uint32_t other : plan.waits[task]) {
      CHECK(plan.event[other] != kNone);
      CHECK(plan.stream[other] != plan.stream[task]);
      learn(task, other);
    }
    before = task;
  }
  return known;
}

std::vector<StreamTask> random_tasks(std::mt19937& random, uint32_t count) {
  std::vector<StreamTask> tasks;
  for (uint32_t i = 0; i < count; ++i) {
    StreamTask task{
        Engine(random() % davit::lowering::kEngines), double(1 + random() % 20'000), {}};
    for (uint32_t k = random() % 4; i > 0 && k > 0; --k) task.after.push_back(random() % i);
    tasks.push_back(std::move(task));
  }
  return tasks;
}

}  // namespace

TEST_CASE("a chain stays on one stream, without events") {
  std::vector<StreamTask> tasks(5, {Engine::kCube, 1000, {}});
  for (uint32_t i = 1; i < tasks.size(); ++i) tasks[i].after = {i - 1};
  const StreamPlan plan = plan_streams(tasks, 4);
  CHECK(plan.streams == 1);
  CHECK(plan.events == 0);
}

TEST_CASE(
    "engines work at a time: a branch goes to a stream of its own, and comes back by an event") {
  const std::vector<StreamTask> tasks = {{Engine::kCube, 10'000, {}},
                                         {Engine::kCube, 50'000, {0}},
                                         {Engine::kVector, 50'000, {0}},
                                         {Engine::kVector, 1000, {1, 2}}};
  const StreamPlan plan = plan_streams(tasks, 4);
  CHECK(plan.streams == 2);
  CHECK(plan.stream[1] != plan.stream[2]);
  CHECK(plan.events == 2);
  CHECK(plan.makespan_ns < 70'000);
  CHECK(plan.before(0, 3));
  CHECK(!plan.before(1, 2));
}

TEST_CASE("what the host takes to submit tasks and events counts") {
  const std::vector<StreamTask> tasks = {{Engine::kCube, 10'000, {}},
                                         {Engine::kCube, 10'000, {0}},
                                         {Engine::kVector, 10'000, {0}},
                                         {Engine::kVector, 1000, {1, 2}}};
  CHECK(plan_streams(tasks, 4).one_stream_ns == 31'000);
  const StreamPlan cheap = plan_streams(tasks, 4, 100);
  CHECK(cheap.makespan_ns < cheap.one_stream_ns);
  // A host that is slower than the device: each event makes it later.
  const StreamPlan dear = plan_streams(tasks, 4, 20'000);
  CHECK(dear.one_stream_ns == 81'000);
  CHECK(dear.makespan_ns >= dear.one_stream_ns + 20'000 * double(dear.events));
}

TEST_CASE("an order by distance keeps edges, and takes the longest way first") {
  const std::vector<StreamTask> tasks = {{Engine::kCopyIn, 1000, {}}, {Engine::kVector, 10, {0}},
                                         {Engine::kVector, 10, {1}},  {Engine::kCube, 5000, {0}},
                                         {Engine::kCube, 5000, {3}},  {Engine::kCopyOut, 10, {2}},
                                         {Engine::kCopyOut, 10, {4}}};
  CHECK(davit::lowering::order_by_distance(tasks, 1, 5) == std::vector<uint32_t>{3, 4, 1, 2});
  std::mt19937 random(3);
  for (int round = 0; round < 100; ++round) {
    const auto made = random_tasks(random, 2 + random() % 60);
    const auto count = uint32_t(made.size());
    const uint32_t first = random() % count;
    const uint32_t last = first + random() % (count - first + 1);
    const auto order = davit::lowering::order_by_distance(made, first, last);
    REQUIRE(order.size() == last - first);
    std::vector<uint32_t> place(count, 0);
    for (uint32_t i = 0; i < order.size(); ++i) place[order[i]] = i;
    for (const uint32_t task : order) {
      CHECK(task >= first);
      CHECK(task < last);
      for (const uint32_t needed : made[task].after) {
        if (needed >= first) CHECK(place[needed] < place[task]);
      }
    }
  }
}

TEST_CASE("one engine is no reason for two streams") {
  const std::vector<StreamTask> tasks = {
      {Engine::kCube, 10'000, {}}, {Engine::kCube, 10'000, {0}}, {Engine::kCube, 10'000, {0}}};
  CHECK(plan_streams(tasks, 4).makespan_ns == 30'000);
}

TEST_CASE("random graphs: every edge is ordered, before() is exact, no wait is idle") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const auto tasks = random_tasks(random, 2 + random() % 60);
    const uint32_t streams_max = 1 + random() % 6;
    const StreamPlan plan = plan_streams(tasks, streams_max);
    CHECK(plan.streams <= streams_max);
    const auto known = known_before(tasks, plan);
    std::set<uint32_t> events;
    uint32_t waits = 0;
    for (uint32_t task = 0; task < tasks.size(); ++task) {
      for (const uint32_t needed : tasks[task].after) CHECK(known[task].contains(needed));
      for (uint32_t earlier = 0; earlier < task; ++earlier) {
        CHECK(plan.before(earlier, task) == known[task].contains(earlier));
      }
      if (plan.event[task] != kNone) CHECK(events.insert(plan.event[task]).second);
      waits += uint32_t(plan.waits[task].size());
      // Without any one of its waits, a task would know less.
      for (const uint32_t dropped : plan.waits[task]) {
        StreamPlan less = plan;
        std::erase(less.waits[task], dropped);
        CHECK(!known_before(tasks, less)[task].contains(dropped));
      }
    }
    CHECK(events.size() == plan.events);
    CHECK(waits + plan.implied_edges == plan.crossing_edges);
  }
}
