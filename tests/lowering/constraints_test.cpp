#include "lowering/memory_plan/constraints.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "lowering/memory_plan/planner.hpp"

using davit::lowering::check_plan;
using davit::lowering::Constraints;
using davit::lowering::Interval;
using davit::lowering::kSearchStepsPerMs;
using davit::lowering::plan_memory;
using davit::lowering::PlanOptions;

namespace {

using Intervals = std::vector<Interval>;
using Offsets = std::vector<uint64_t>;

const PlanOptions kByteWise{.alignment = 1, .search_steps = 10 * kSearchStepsPerMs};

Offsets plan(const Intervals& intervals, const Constraints& constraints, uint64_t arena_bytes) {
  const auto plan = plan_memory(intervals, constraints, kByteWise);
  REQUIRE_MESSAGE(plan.ok(), plan.status().to_string());
  CHECK(plan->arena_bytes == arena_bytes);
  CHECK(plan->lower_bound_bytes <= arena_bytes);
  return plan->offsets;
}

void refuses(const Intervals& intervals, const Constraints& constraints, const std::string& why) {
  const auto plan = plan_memory(intervals, constraints, kByteWise);
  REQUIRE(!plan.ok());
  CHECK(plan.status().code() == DVT_INVALID_ARGUMENT);
  CHECK_MESSAGE(plan.status().to_string().find(why) != std::string::npos,
                plan.status().to_string());
}

// Values tied to value `first`, at their distances from it: a body of these tests.
struct Group {
  std::vector<uint32_t> values;
  Offsets distances;
};

bool meet(const Interval& a, uint64_t at, const Interval& b, uint64_t other) {
  return a.lower < b.upper && b.lower < a.upper && at < other + b.size && other < at + a.size;
}

// The slow, obvious way: every order of the groups, each at the first offset that is free.
uint64_t smallest_arena(const Intervals& intervals, const std::vector<Group>& groups,
                        const Constraints& constraints) {
  std::vector<uint64_t> alignment(intervals.size(), 1);
  for (const auto& aligned : constraints.alignments) alignment[aligned.value] = aligned.bytes;
  std::vector<uint32_t> order(groups.size());
  std::iota(order.begin(), order.end(), 0);
  uint64_t smallest = UINT64_MAX;
  do {
    std::vector<std::optional<uint64_t>> offsets(intervals.size());
    const auto is_free = [&](uint32_t value, uint64_t at) {
      if (at % alignment[value] != 0) return false;
      for (uint32_t other = 0; other < intervals.size(); ++other) {
        if (offsets[other] && meet(intervals[value], at, intervals[other], *offsets[other])) {
          return false;
        }
      }
      return true;
    };
    uint64_t arena = 0;
    for (const uint32_t index : order) {
      const Group& group = groups[index];
      uint64_t at = 0;
      const auto fits = [&] {
        for (size_t i = 0; i < group.values.size(); ++i) {
          if (!is_free(group.values[i], at + group.distances[i])) return false;
        }
        return true;
      };
      while (!fits()) ++at;
      for (size_t i = 0; i < group.values.size(); ++i) {
        offsets[group.values[i]] = at + group.distances[i];
        arena = std::max(arena, at + group.distances[i] + intervals[group.values[i]].size);
      }
    }
    smallest = std::min(smallest, arena);
  } while (std::next_permutation(order.begin(), order.end()));
  return smallest;
}

}  // namespace

TEST_CASE("without constraints the plan is that of the planner") {
  const Intervals intervals = {{0, 3, 100}, {1, 2, 64}, {2, 5, 64}};
  const auto plain = plan_memory(intervals);
  const auto constrained = plan_memory(intervals, Constraints{});
  REQUIRE(plain.ok());
  REQUIRE(constrained.ok());
  CHECK(plain->offsets == constrained->offsets);
}

TEST_CASE("results in place share the bytes of their inputs") {
  // Chains of three in the same bytes, all alive at step 2.
  const Intervals intervals = {{0, 2, 8}, {1, 3, 8}, {2, 4, 8}, {0, 3, 8}, {2, 4, 8}, {3, 5, 8}};
  Constraints constraints;
  constraints.aliases = {{1, 0, 0}, {2, 1, 0}, {4, 3, 0}, {5, 4, 0}};
  const Offsets offsets = plan(intervals, constraints, 16);
  CHECK(offsets[0] == offsets[1]);
  CHECK(offsets[1] == offsets[2]);
  CHECK(offsets[3] == offsets[5]);
  CHECK(offsets[0] != offsets[3]);
}

TEST_CASE("parts of a concatenation lie where it wants them") {
  // 0 and 1 are written apart and read as 2; 3 fits above 0 until 1 is written.
  const Intervals intervals = {{0, 4, 6}, {2, 4, 4}, {3, 5, 10}, {0, 2, 4}};
  Constraints constraints;
  constraints.aliases = {{0, 2, 0}, {1, 2, 6}};
  const Offsets offsets = plan(intervals, constraints, 10);
  CHECK(offsets == Offsets{0, 6, 0, 6});
}

TEST_CASE("continuous values follow each other, whatever lives between") {
  const Intervals intervals = {{0, 2, 5}, {1, 5, 7}, {0, 6, 3}, {3, 6, 5}};
  Constraints constraints;
  constraints.runs = {{2, 0, 1}};
  const Offsets offsets = plan(intervals, constraints, 15);
  CHECK(offsets[0] == offsets[2] + 3);
  CHECK(offsets[1] == offsets[0] + 5);

  constraints.alignments = {{0, 8}};
  const auto aligned = plan_memory(intervals, constraints, kByteWise);
  REQUIRE(aligned.ok());
  CHECK(aligned->offsets[0] % 8 == 0);
  CHECK(aligned->offsets[0] == aligned->offsets[2] + 8);
}

TEST_CASE("zero-copy values lie where they are, and others go around them") {
  const Intervals intervals = {{0, 4, 10}, {1, 3, 6}, {0, 2, 4}, {2, 5, 4}};
  Constraints constraints;
  constraints.fixed = {{0, 6}};
  const Offsets offsets = plan(intervals, constraints, 20);
  CHECK(offsets[0] == 6);
  CHECK(offsets[1] == 0);
  refuses(intervals, {.fixed = {{0, 6}, {2, 12}}}, "value 0 and value 2 are fixed at bytes that");
  refuses(intervals, {.fixed = {{0, 6}, {0, 7}}}, "value 0 is fixed at 7, and by other");
  refuses(intervals, {.fixed = {{1, 2}}, .ties = {{1, 0, 10}}},
          "value 1 is fixed at 2, which leaves");
  refuses(intervals, {.fixed = {{1, 2}}, .alignments = {{1, 4}}}, "the offset 2 of value 1");
}

TEST_CASE("values without bytes lie where they have to") {
  const Intervals intervals = {{0, 4, 0}, {1, 3, 6}, {0, 2, 4}, {1, 2, 0}};
  const Offsets offsets = plan(intervals, {.fixed = {{0, 40}}, .ties = {{3, 0, 2}}}, 42);
  CHECK(offsets[0] == 40);
  CHECK(offsets[3] == 42);
}

TEST_CASE("constraints that contradict each other are named") {
  const Intervals intervals = {{0, 4, 8}, {1, 3, 8}, {5, 7, 8}};
  refuses(intervals, {.ties = {{1, 0, 8}, {1, 0, 9}}},
          "value 1 has to begin 9 bytes after value 0");
  refuses(intervals, {.ties = {{1, 0, 8}, {2, 1, 8}, {2, 0, 8}}}, "and by other constraints 16");
  refuses(intervals, {.ties = {{1, 0, 4}}}, "value 0 and value 1 have to share bytes");
  refuses(intervals, {.ties = {{0, 0, 4}}}, "value 0 has to begin 4 bytes after value 0");
  refuses(intervals, {.alignments = {{0, 8}, {1, 8}}, .ties = {{1, 0, 12}}}, "do not go with");
  refuses(intervals, {.alignments = {{0, 12}}}, "not a power of two");
  refuses(intervals, {.alignments = {{0, 0}}}, "not a power of two");
  refuses(intervals, {.fixed = {{3, 0}}}, "a constraint names value 3 of 3");
  refuses(intervals, {.runs = {{0, 7}}}, "a constraint names value 7");
  refuses({}, {.aliases = {{0, 0, 0}}}, "a constraint names value 0 of 0");
}

TEST_CASE("constraints beyond the address space are an error") {
  const Intervals intervals = {{0, 4, 8}, {1, 3, uint64_t(1) << 62}, {2, 3, uint64_t(1) << 62}};
  const auto code = [&](const Constraints& constraints) {
    return plan_memory(intervals, constraints, kByteWise).status().code();
  };
  CHECK(code({.fixed = {{0, UINT64_MAX}}}) == DVT_OUT_OF_MEMORY);
  CHECK(code({.ties = {{1, 0, UINT64_MAX}}}) == DVT_OUT_OF_MEMORY);
  CHECK(code({.runs = {{1, 2, 0}}}) == DVT_OUT_OF_MEMORY);
  CHECK(code({.alignments = {{0, 64}}}) == DVT_OUT_OF_MEMORY);
}

TEST_CASE("random constraints are met, with the fewest bytes there are") {
  std::mt19937 random(5);
  int optimal = 0;
  constexpr int kRounds = 200;
  for (int round = 0; round < kRounds; ++round) {
    CAPTURE(round);
    Intervals intervals;
    std::vector<Group> groups;
    Constraints constraints;
    for (uint32_t i = 0; i < 7; ++i) {
      const uint64_t lower = random() % 6;
      intervals.push_back({lower, lower + 1 + random() % 4, 1 + random() % 8});
      const uint32_t kind = i == 0 ? 0 : random() % 3;
      if (kind == 0) {
        groups.push_back({{i}, {0}});
        continue;
      }
      Group& group = groups.back();  // Follows it or, if their lives allow, shares its bytes.
      const uint64_t below = group.distances.back();
      const bool is_tie = kind == 1;
      const uint64_t distance = is_tie ? intervals[i - 1].size + random() % 3 : random() % 3;
      group.values.push_back(i);
      group.distances.push_back(below + distance);
      (is_tie ? constraints.ties : constraints.aliases).push_back({i, i - 1, distance});
    }
    if (round % 3 == 0) constraints.alignments.push_back({uint32_t(random() % 7), 4});
    const auto planned = plan_memory(intervals, constraints, kByteWise);
    if (!planned.ok()) {
      const std::string why = planned.status().to_string();
      CHECK_MESSAGE(why.find("have to share") != std::string::npos, why);
      continue;
    }
    CHECK(check_plan(intervals, constraints, planned->offsets, planned->arena_bytes, 1).ok());
    const uint64_t smallest = smallest_arena(intervals, groups, constraints);
    CHECK(planned->arena_bytes <= smallest + smallest / 8);
    optimal += planned->arena_bytes == smallest ? 1 : 0;
    CHECK(planned->lower_bound_bytes <= smallest);
    CHECK(planned->proven_bound_bytes <= smallest);
  }
  CHECK(optimal > kRounds * 3 / 4);
}

TEST_CASE("constraints of every kind give a plan that is right, or an error that says why") {
  std::mt19937 random(6);
  int planned = 0;
  constexpr int kRounds = 2000;
  for (int round = 0; round < kRounds; ++round) {
    CAPTURE(round);
    const uint32_t count = 1 + random() % 12;
    const auto value = [&] { return uint32_t(random() % count); };
    Intervals intervals;
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t lower = random() % 8;
      intervals.push_back({lower, lower + 1 + random() % 4, random() % 100});
    }
    Constraints constraints;
    const uint64_t alignment = uint64_t(1) << random() % 3;
    const auto distance = [&] { return alignment * (random() % 60); };
    const auto some = [&] { return random() % 3; };
    for (uint32_t i = some(); i > 0; --i) constraints.fixed.push_back({value(), distance()});
    for (uint32_t i = some(); i > 0; --i) {
      constraints.alignments.push_back({value(), uint64_t(1) << random() % 5});
    }
    for (uint32_t i = some(); i > 0; --i) {
      constraints.aliases.push_back({value(), value(), random() % 2 * distance()});
    }
    for (uint32_t i = some(); i > 0; --i) {
      constraints.ties.push_back({value(), value(), distance()});
    }
    if (random() % 2 == 0) constraints.runs.push_back({value(), value(), value()});
    const auto plan = plan_memory(intervals, constraints,
                                  {.alignment = alignment, .search_steps = kSearchStepsPerMs});
    if (!plan.ok()) {
      CHECK_MESSAGE(plan.status().code() == DVT_INVALID_ARGUMENT, plan.status().to_string());
      continue;
    }
    ++planned;
    CHECK(check_plan(intervals, constraints, plan->offsets, plan->arena_bytes, alignment).ok());
    CHECK(plan->lower_bound_bytes <= plan->arena_bytes);
    CHECK(plan->proven_bound_bytes <= plan->arena_bytes);
  }
  CHECK(planned > kRounds / 5);
}

TEST_CASE("the checker finds every broken constraint") {
  const Intervals intervals = {{0, 4, 8}, {1, 3, 8}, {2, 5, 8}, {0, 2, 4}};
  const Constraints constraints{.fixed = {{3, 24}},
                                .alignments = {{1, 8}},
                                .aliases = {{1, 0, 0}},
                                .ties = {{3, 0, 16}},
                                .runs = {{0, 2}}};
  const Offsets good = {8, 8, 16, 24};
  CHECK(check_plan(intervals, constraints, good, 28, 1).ok());
  const auto broken = [&](Offsets offsets, const Constraints& which, const std::string& why) {
    const davit::Status status = check_plan(intervals, which, offsets, 64, 1);
    REQUIRE(!status.ok());
    CHECK_MESSAGE(status.to_string().find(why) != std::string::npos, status.to_string());
  };
  broken({8, 8, 16, 32}, {.fixed = {{3, 24}}, .aliases = {{1, 0, 0}}}, "value 3 is not where");
  broken({4, 4, 16, 24}, constraints, "offset of value 1 is not aligned");
  broken({8, 16, 24, 32}, {.aliases = {{1, 0, 0}}}, "value 1 is not at its distance");
  broken({8, 16, 24, 32}, {.ties = {{3, 0, 16}}}, "value 3 is not at its distance");
  broken({8, 16, 24, 32}, {.runs = {{0, 2}}}, "value 2 does not follow value 0");
  broken({8, 8, 12, 24}, {.aliases = {{1, 0, 0}}}, "overlaps");
  broken({8, 8, 16, 24}, {.alignments = {{1, 8}}}, "overlaps");
  broken({8, 8, 60, 24}, {.aliases = {{1, 0, 0}}}, "leaves the arena");
}
