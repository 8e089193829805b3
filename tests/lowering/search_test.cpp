#include "lowering/memory_plan/search.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

using namespace davit::lowering;

namespace {

constexpr uint64_t kNoHeight = UINT64_MAX;

bool live_together(const Block& a, const Block& b) {
  return a.lower < b.upper && b.lower < a.upper;
}

// The height when blocks are put in the given order, each as low as those before it allow.
uint64_t first_fit_height(const Problem& problem, const std::vector<uint32_t>& order) {
  std::vector<uint64_t> offsets(problem.blocks.size(), kNoHeight);
  const auto overlap_at = [&](uint32_t i, uint64_t offset) -> std::optional<uint32_t> {
    const Block& block = problem.blocks[i];
    for (uint32_t j = 0; j < offsets.size(); ++j) {
      const Block& other = problem.blocks[j];
      if (offsets[j] != kNoHeight && j != i && live_together(block, other) &&
          offset < offsets[j] + other.size && offsets[j] < offset + block.size) {
        return j;
      }
    }
    return std::nullopt;
  };
  uint64_t height = 0;
  for (uint32_t i = 0; i < offsets.size(); ++i) {
    const Block& block = problem.blocks[i];
    if (block.fixed == Block::kFree) continue;
    if (overlap_at(i, block.fixed)) return kNoHeight;
    offsets[i] = block.fixed;
    height = std::max(height, block.fixed + block.size);
  }
  for (const uint32_t i : order) {
    const Block& block = problem.blocks[i];
    if (block.fixed != Block::kFree) continue;
    uint64_t offset = 0;
    while (const auto other = overlap_at(i, offset)) {
      offset = offsets[*other] + problem.blocks[*other].size;
      offset = (offset + block.alignment - 1) & ~(block.alignment - 1);
    }
    offsets[i] = offset;
    height = std::max(height, offset + block.size);
  }
  return height;
}

// The smallest height there is: blocks sorted by their offsets in a best plan are such an order.
uint64_t smallest_height(const Problem& problem) {
  std::vector<uint32_t> order(problem.blocks.size());
  std::iota(order.begin(), order.end(), 0);
  uint64_t smallest = kNoHeight;
  do {
    smallest = std::min(smallest, first_fit_height(problem, order));
  } while (std::next_permutation(order.begin(), order.end()));
  return smallest;
}

bool is_valid(const Problem& problem, const Packing& packing) {
  for (size_t i = 0; i < problem.blocks.size(); ++i) {
    const Block& a = problem.blocks[i];
    const uint64_t offset = packing.offsets[i];
    if (offset + a.size > packing.height || offset % a.alignment != 0) return false;
    if (a.fixed != Block::kFree && offset != a.fixed) return false;
    for (size_t j = 0; j < i; ++j) {
      const Block& b = problem.blocks[j];
      if (live_together(a, b) && offset < packing.offsets[j] + b.size &&
          packing.offsets[j] < offset + a.size) {
        return false;
      }
    }
  }
  return true;
}

Problem random_problem(std::mt19937& random, uint32_t count) {
  Problem problem{.blocks = {}, .time_count = 8};
  for (uint32_t i = 0; i < count; ++i) {
    const auto lower = uint32_t(random() % 7);
    const auto upper = lower + 1 + uint32_t(random() % (8 - lower));
    problem.blocks.push_back({lower, std::min(upper, 8U), 1 + random() % 9});
  }
  return problem;
}

// A packing for the search to improve on: everything on top of each other, above what is fixed.
Packing pile(const Problem& problem) {
  Packing packing{.offsets = std::vector<uint64_t>(problem.blocks.size()), .height = 0};
  for (const Block& block : problem.blocks) {
    if (block.fixed != Block::kFree)
      packing.height = std::max(packing.height, block.fixed + block.size);
  }
  for (size_t i = 0; i < problem.blocks.size(); ++i) {
    const Block& block = problem.blocks[i];
    if (block.fixed != Block::kFree) {
      packing.offsets[i] = block.fixed;
      continue;
    }
    packing.offsets[i] = (packing.height + block.alignment - 1) & ~(block.alignment - 1);
    packing.height = packing.offsets[i] + block.size;
  }
  return packing;
}

// Searches without limit and compares with all orders.
void check_search(const Problem& problem) {
  const uint64_t smallest = smallest_height(problem);
  if (smallest == kNoHeight) return;  // Fixed blocks collide.
  Packing best = pile(problem);
  Budget budget(1'000'000'000);
  const uint64_t bound = search_packing(problem, {.bound = 0, .enough = 0}, best, budget);
  CHECK(best.height == smallest);
  CHECK(bound <= smallest);
  CHECK(is_valid(problem, best));
  CHECK(!budget.empty());
}

}  // namespace

TEST_CASE("the search finds the smallest plan") {
  std::mt19937 random(1);
  for (int round = 0; round < 400; ++round) {
    CAPTURE(round);
    check_search(random_problem(random, 1 + round % 7));
  }
}

TEST_CASE("the search finds the smallest plan with alignments") {
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    Problem problem = random_problem(random, 2 + round % 5);
    for (Block& block : problem.blocks) block.alignment = uint64_t(1) << random() % 4;
    check_search(problem);
  }
}

TEST_CASE("the search finds the smallest plan around fixed blocks") {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    Problem problem = random_problem(random, 2 + round % 5);
    for (uint32_t i = 0; i < 1 + random() % 2; ++i) problem.blocks[i].fixed = random() % 12;
    check_search(problem);
  }
}

TEST_CASE("the search ends with what is enough, and with its budget") {
  std::mt19937 random(4);
  const Problem problem = random_problem(random, 60);
  const Packing start = pile(problem);
  Packing best = start;
  Budget budget(1'000'000'000);
  const uint64_t enough = start.height - 5;
  search_packing(problem, {.bound = 0, .enough = enough}, best, budget);
  CHECK(best.height <= enough);
  CHECK(is_valid(problem, best));

  Packing untouched = start;
  Budget none(0);
  CHECK(search_packing(problem, {.bound = 7, .enough = 0}, untouched, none) == 7);
  CHECK(untouched.offsets == start.offsets);
}
