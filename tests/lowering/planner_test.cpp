#include "lowering/memory_plan/planner.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <random>
#include <set>
#include <sstream>
#include <string>

#include "lowering/memory_plan/packing.hpp"

using davit::lowering::check_plan;
using davit::lowering::Interval;
using davit::lowering::kSearchStepsPerMs;
using davit::lowering::lower_bound;
using davit::lowering::plan_memory;
using davit::lowering::PlanOptions;

namespace {

std::vector<Interval> read_csv(const std::string& name) {
  const char* folder = std::getenv("DAVIT_TEST_DATA");
  REQUIRE_MESSAGE(folder != nullptr, "run by meson, or set DAVIT_TEST_DATA to tests/data");
  std::ifstream file(std::string(folder) + "/" + name + ".csv");
  std::string line;
  REQUIRE(std::getline(file, line));
  REQUIRE(line == "id,lower,upper,size");
  std::vector<Interval> intervals;
  while (std::getline(file, line)) {
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream fields(line);
    uint64_t id = 0;
    Interval interval;
    REQUIRE(bool(fields >> id >> interval.lower >> interval.upper >> interval.size));
    intervals.push_back(interval);
  }
  return intervals;
}

// Lives like those of a network: most are short, a few span much of it.
std::vector<Interval> random_network(uint32_t count, uint32_t seed, uint64_t size_max) {
  std::mt19937 random(seed);
  std::vector<Interval> intervals;
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t life = random() % 16 == 0 ? 1 + random() % 200 : 1 + random() % 4;
    intervals.push_back({i, i + 1 + life, random() % (size_max + 1)});
  }
  std::shuffle(intervals.begin(), intervals.end(), random);
  return intervals;
}

// The slow, obvious form of check_plan().
bool is_valid(const std::vector<Interval>& intervals, const std::vector<uint64_t>& offsets,
              uint64_t arena_bytes) {
  for (size_t i = 0; i < intervals.size(); ++i) {
    const Interval& a = intervals[i];
    if (offsets[i] + a.size > arena_bytes || offsets[i] % 64 != 0) return false;
    for (size_t j = 0; j < i; ++j) {
      const Interval& b = intervals[j];
      const bool together = a.lower < b.upper && b.lower < a.upper;
      const bool share = offsets[i] < offsets[j] + b.size && offsets[j] < offsets[i] + a.size;
      if (together && share && a.size > 0 && b.size > 0) return false;
    }
  }
  return true;
}

}  // namespace

TEST_CASE("plans of real networks reach the lower bound") {
  for (const std::string name : {"ch_PP-OCRv4_det", "minilm_l6_static", "mlsd_320_tiny",
                                 "mobilenet_v2", "resnet18", "squeezenet1_1"}) {
    CAPTURE(name);
    const auto intervals = read_csv("intervals/" + name);
    const auto plan = plan_memory(intervals);
    REQUIRE(plan.ok());
    CHECK(plan->arena_bytes == plan->lower_bound_bytes);
    CHECK(is_valid(intervals, plan->offsets, plan->arena_bytes));
  }
}

TEST_CASE("the challenging instances of MiniMalloc fit its capacity") {
  for (const char letter : std::string("ABCDEFGHIJK")) {
    CAPTURE(letter);
    const auto intervals = read_csv(std::string("minimalloc/") + letter + ".1048576");
    const uint64_t capacity = 1'048'576;
    const auto plan =
        plan_memory(intervals, {.search_steps = 20'000 * kSearchStepsPerMs, .capacity = capacity});
    REQUIRE(plan.ok());
    CHECK(plan->arena_bytes <= capacity);
    CHECK(plan->proven_bound_bytes <= plan->arena_bytes);
    CHECK(is_valid(intervals, plan->offsets, plan->arena_bytes));
  }
}

TEST_CASE("a plan depends on the steps allowed and on nothing else") {
  const auto intervals = read_csv("minimalloc/J.1048576");
  PlanOptions options{.search_steps = 0};
  const auto heuristic = plan_memory(intervals, options);
  options.search_steps = 100 * kSearchStepsPerMs;
  const auto first = plan_memory(intervals, options);
  const auto again = plan_memory(intervals, options);
  REQUIRE(heuristic.ok());
  REQUIRE(first.ok());
  REQUIRE(again.ok());
  CHECK(first->arena_bytes < heuristic->arena_bytes);
  CHECK(first->method == "search");
  CHECK(first->offsets == again->offsets);
}

TEST_CASE("random plans are valid, repeatable and near the bound") {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    const auto intervals = random_network(1 + seed * 2, seed, seed % 3 == 0 ? 10 : 100'000);
    const PlanOptions options{.search_steps = 20 * kSearchStepsPerMs};
    const auto plan = plan_memory(intervals, options);
    REQUIRE(plan.ok());
    CHECK(is_valid(intervals, plan->offsets, plan->arena_bytes));
    CHECK(plan->arena_bytes >= plan->lower_bound_bytes);
    CHECK(plan->arena_bytes * 4 <= plan->lower_bound_bytes * 5);
    const auto again = plan_memory(intervals, options);
    REQUIRE(again.ok());
    CHECK(again->offsets == plan->offsets);
  }
}

// Where the first is not good enough: some end with a later heuristic at the bound, some with the
// best of all.
TEST_CASE("heuristics side by side make the plan that one thread makes") {
  std::set<std::string> methods;
  for (uint32_t seed = 0; seed < 24; ++seed) {
    CAPTURE(seed);
    std::vector<Interval> intervals = random_network(1200, seed, seed % 2 == 0 ? 64 : 100'000);
    if (seed % 3 == 0) {
      for (Interval& interval : intervals) interval.size = (interval.size + 5000) / 5000 * 4096;
    }
    PlanOptions options{.search_steps = 0, .threads = 1};
    // What is good enough may be beaten by one that does not count.
    if (seed % 4 == 1) options.capacity = lower_bound(intervals, 64).value() * 11 / 10;
    const auto alone = plan_memory(intervals, options);
    REQUIRE(alone.ok());
    methods.emplace(alone->method);
    for (const uint32_t threads : {2U, 3U, 16U, 0U}) {
      options.threads = threads;
      const auto shared = plan_memory(intervals, options);
      REQUIRE(shared.ok());
      CHECK(shared->method == alone->method);
      CHECK(shared->arena_bytes == alone->arena_bytes);
      CHECK(shared->offsets == alone->offsets);
    }
  }
  CHECK(methods.size() >= 3);  // Else this tests less than it says.
}

TEST_CASE("who is behind a good packing is stopped, and says nothing") {
  using namespace davit::lowering;
  Problem problem;
  for (uint32_t i = 0; i < 3000; ++i) problem.blocks.push_back({i, i + 40, 64 * (1 + i % 7)});
  problem.time_count = 3040;
  std::atomic<bool> stopped = true;
  Budget budget(1'000'000'000, &stopped);
  CHECK(!pack_skyline(problem, budget));
  Budget other(1'000'000'000, &stopped);
  CHECK(!pack_in_order(problem, order_by_size(problem), false, other));
  stopped = false;
  Budget free(1'000'000'000, &stopped);
  CHECK(pack_in_order(problem, order_by_size(problem), false, free));
}

TEST_CASE("each heuristic alone makes valid packings") {
  using namespace davit::lowering;
  Problem problem;
  std::mt19937 random(7);
  for (uint32_t i = 0; i < 300; ++i) {
    problem.blocks.push_back({i, i + 1 + uint32_t(random() % 30), 64 * (1 + random() % 50)});
  }
  problem.time_count = 340;
  std::vector<Interval> intervals;
  for (const Block& block : problem.blocks) {
    intervals.push_back({block.lower, block.upper, block.size});
  }
  const auto check = [&](const std::optional<Packing>& packing) {
    REQUIRE(packing);
    CHECK(is_valid(intervals, packing->offsets, packing->height));
  };
  Budget budget(1'000'000'000);
  check(pack_in_time(problem));
  check(pack_back_in_time(problem));
  check(pack_from_peak(problem));
  check(pack_skyline(problem, budget));
  for (const bool best_fit : {false, true}) {
    check(pack_in_order(problem, order_by_size(problem), best_fit, budget));
    check(pack_in_order(problem, order_by_area(problem), best_fit, budget));
    check(pack_in_order(problem, order_by_duration(problem), best_fit, budget));
    check(pack_in_order(problem, order_by_breadth(problem), best_fit, budget));
  }
  Budget tiny(10);
  CHECK(!pack_skyline(problem, tiny));
  CHECK(!pack_in_order(problem, order_by_size(problem), false, tiny));
}

TEST_CASE("a hundred thousand values are planned in bounded work") {
  const auto network = plan_memory(random_network(100'000, 1, 1'000'000));
  REQUIRE(network.ok());
  CHECK(network->arena_bytes * 10 <= network->lower_bound_bytes * 11);
  // All live at once: nothing may look at all pairs.
  std::vector<Interval> crowd;
  for (uint64_t i = 0; i < 100'000; ++i) crowd.push_back({i, 200'000 - i, 64 + i});
  const auto plan = plan_memory(crowd);
  REQUIRE(plan.ok());
  CHECK(plan->arena_bytes == plan->lower_bound_bytes);
}

TEST_CASE("small cases by hand") {
  CHECK(plan_memory({})->arena_bytes == 0);
  const std::vector<Interval> empty = {{0, 5, 0}, {1, 2, 0}};
  CHECK(plan_memory(empty)->arena_bytes == 0);
  const std::vector<Interval> chain = {{0, 2, 1}, {1, 3, 65}, {2, 4, 64}};
  const auto plan = plan_memory(chain);
  REQUIRE(plan.ok());
  CHECK(plan->arena_bytes == 192);
  CHECK(plan->offsets[0] != plan->offsets[1]);
  const std::vector<Interval> backwards = {{3, 3, 64}};
  CHECK(!plan_memory(backwards).ok());
}

TEST_CASE("sizes that overflow are an error") {
  const std::vector<Interval> one = {{0, 1, UINT64_MAX}};
  CHECK(plan_memory(one).status().code() == DVT_OUT_OF_MEMORY);
  const std::vector<Interval> two = {{0, 2, INT64_MAX - 63}, {1, 3, INT64_MAX - 63}};
  CHECK(plan_memory(two).status().code() == DVT_OUT_OF_MEMORY);
  const std::vector<Interval> apart = {{0, 1, uint64_t(1) << 62}, {1, 2, uint64_t(1) << 62}};
  CHECK(plan_memory(apart)->arena_bytes == (uint64_t(1) << 62));
}

TEST_CASE("the checker finds every kind of bad plan") {
  const std::vector<Interval> intervals = {{0, 3, 100}, {1, 2, 64}, {2, 5, 64}, {3, 4, 10}};
  const std::vector<uint64_t> good = {0, 128, 128, 0};
  CHECK(check_plan(intervals, good, 192, 64).ok());
  const auto refuses = [&](std::vector<uint64_t> offsets, uint64_t arena, const char* why) {
    const davit::Status status = check_plan(intervals, offsets, arena, 64);
    REQUIRE(!status.ok());
    CHECK_MESSAGE(status.to_string().find(why) != std::string::npos, status.to_string());
  };
  refuses({0, 64, 128, 0}, 192, "value 1 (steps 1 to 2, bytes 64 to 128) overlaps value 0");
  refuses({0, 128, 64, 0}, 192, "overlaps value 0");
  refuses({64, 0, 128, 0}, 192, "value 2 (steps 2 to 5, bytes 128 to 192) overlaps value 0");
  refuses({0, 128, 128, 128}, 192, "overlaps value 2");
  refuses({0, 130, 128, 0}, 256, "not aligned");
  refuses({0, 128, 128, 0}, 191, "leaves the arena");
  refuses({0, 128, 128, UINT64_MAX - 63}, 192, "leaves the arena");
  refuses({0, 128, 128}, 192, "one offset per value");
}

TEST_CASE("any change of an offset that breaks a random plan is found") {
  std::mt19937 random(3);
  const auto intervals = random_network(300, 11, 1000);
  const auto plan = plan_memory(intervals);
  REQUIRE(plan.ok());
  int broken = 0;
  for (int round = 0; round < 1000; ++round) {
    auto offsets = plan->offsets;
    offsets[random() % offsets.size()] = 64 * (random() % (plan->arena_bytes / 64));
    const bool valid = is_valid(intervals, offsets, plan->arena_bytes);
    broken += valid ? 0 : 1;
    CHECK(check_plan(intervals, offsets, plan->arena_bytes, 64).ok() == valid);
  }
  CHECK(broken > 100);
}
