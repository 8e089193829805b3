// What a malloc that succeeds executes: instruction for instruction the same with Free-to-Launch
// relations and without, whatever is owed (docs/memory.md, "When nothing fits"). A child runs it
// step by step, and its parent counts.
#include <doctest/doctest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "alloc/caching_allocator.h"
#include "exec/held_blocks.hpp"
#include "exec/mt_topo/platform.hpp"
#include "exec/relations.hpp"

using davit::exec::HeldBlocks;
using davit::exec::Relations;
using davit::exec::RelationTables;
using davit::mt_topo::RealThreads;

namespace {

constexpr int kPairs = 100;
constexpr std::array<uint64_t, 4> kSizes = {64, 4096, 1000, 70'000};

// That `work` takes in a child, with what it costs to tell where it begins and ends; nothing where
// tracing is not allowed.
std::optional<uint64_t> count_steps(const std::function<void()>& work) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(1);
    std::raise(SIGSTOP);
    work();
    std::raise(SIGSTOP);
    _exit(0);
  }
  int state = 0;
  const auto stopped_by = [&] {
    REQUIRE(waitpid(child, &state, 0) == child);
    return WIFSTOPPED(state) ? WSTOPSIG(state) : 0;
  };
  std::optional<uint64_t> steps;
  if (stopped_by() == SIGSTOP) {
    steps = 0;
    do {
      ++*steps;
      REQUIRE(ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr) == 0);
    } while (stopped_by() == SIGTRAP);
    REQUIRE(WIFSTOPPED(state));
    kill(child, SIGKILL);
    (void)stopped_by();
  }
  return steps;
}

struct AllocatorDestroy {
  void operator()(DvtAllocator* allocator) const { dvt_allocator_destroy(allocator); }
};
using Allocator = std::unique_ptr<DvtAllocator, AllocatorDestroy>;

// With some memory cached, in pieces.
Allocator make_allocator(const DvtAllocatorHooks* hooks) {
  DvtAllocatorOptions options;
  dvt_allocator_options_init(&options);
  options.hooks = hooks;
  options.reserve_bytes = uint64_t{1} << 30;
  DvtAllocator* allocator = nullptr;
  REQUIRE(dvt_allocator_create(&options, &allocator) == DVT_OK);
  std::vector<DvtBlock> blocks(40);
  for (size_t i = 0; i < blocks.size(); ++i) {
    REQUIRE(dvt_allocator_acquire(allocator, 100'000, 0, &blocks[i]) == DVT_OK);
  }
  for (size_t i = 0; i < blocks.size(); i += 2) {
    REQUIRE(dvt_allocator_release(allocator, blocks[i].id) == DVT_OK);
  }
  return Allocator(allocator);
}

// By `acquire`, of several sizes, split and merged; all of them succeed.
template <class Acquire>
void run_pairs(DvtAllocator* allocator, Acquire acquire) {
  for (int i = 0; i < kPairs; ++i) {
    DvtBlock a{}, b{};
    if (acquire(kSizes[size_t(i) % kSizes.size()], &a) != DVT_OK ||
        acquire(kSizes[size_t(i + 1) % kSizes.size()], &b) != DVT_OK ||
        dvt_allocator_release(allocator, a.id) != DVT_OK ||
        dvt_allocator_release(allocator, b.id) != DVT_OK) {
      _exit(2);
    }
  }
}

uint64_t steps_of(const std::function<void()>& work) {
  const auto steps = count_steps(work);
  const auto nothing = count_steps([] {});
  if (!steps || !nothing) {
    MESSAGE("tracing a child is not allowed here: nothing is compared");
    return 0;
  }
  return *steps - *nothing;
}

// A Free, of node 0, whose block two launches still use.
struct Tables {
  std::array<uint32_t, 4> kernel = {0, 1, 1, 2};
  std::array<uint32_t, 3> flags = {DVT_KERNEL_LANE_MEMORY | DVT_KERNEL_FREE, DVT_KERNEL_LANE_LAUNCH,
                                   DVT_KERNEL_LANE_NORMAL};
  std::array<uint32_t, 5> offsets = {0, 2, 2, 2, 2};
  std::array<uint32_t, 2> launches = {1, 2};
  [[nodiscard]] RelationTables get() const { return {kernel, flags, offsets, launches}; }
};

// What HeldBlocks asks of a device.
struct OnAllocator {
  DvtAllocator* allocator;
  uint64_t bytes = 0;
  DvtBlock* out = nullptr;

  int32_t allocate() noexcept { return dvt_allocator_acquire(allocator, bytes, 0, out); }
  int32_t release(DvtBlock block) noexcept { return dvt_allocator_release(allocator, block.id); }
  void will_retry() noexcept {}
};

}  // namespace

TEST_CASE("hooks cost a malloc that succeeds no instruction") {
  const auto never = [](void*, uint64_t) -> DvtCode { _exit(3); };
  const DvtAllocatorHooks hooks = {.user = nullptr,
                                   .exact_wait = never,
                                   .synchronize = [](void*) -> DvtCode { _exit(3); },
                                   .recycle = [](void*, uint64_t) { _exit(3); },
                                   .other_pools = [](void*, uint64_t) { _exit(3); },
                                   .owner_name = nullptr};
  std::array<uint64_t, 2> steps{};
  for (const bool hooked : {false, true}) {
    const Allocator allocator = make_allocator(hooked ? &hooks : nullptr);
    steps[hooked ? 1 : 0] = steps_of([&] {
      run_pairs(allocator.get(), [&](uint64_t bytes, DvtBlock* out) {
        return dvt_allocator_acquire(allocator.get(), bytes, 0, out);
      });
    });
  }
  CHECK(steps[0] == steps[1]);
  const double each = double(steps[0]) / (2 * kPairs);
  MESSAGE(each << " instructions a pair");
}

TEST_CASE("relations cost a malloc that succeeds a branch, whatever is owed") {
  const Tables tables;
  const auto steps_with = [&](bool relations, bool owed) {
    const Allocator allocator = make_allocator(nullptr);
    DvtBlock held{};
    REQUIRE(dvt_allocator_acquire(allocator.get(), 64, 0, &held) == DVT_OK);
    if (!relations) {
      return steps_of([&] {
        run_pairs(allocator.get(), [&](uint64_t bytes, DvtBlock* out) {
          return OnAllocator{allocator.get(), bytes, out}.allocate();
        });
      });
    }
    auto books = Relations<RealThreads>::create(tables.get());
    REQUIRE(books.ok());
    HeldBlocks<RealThreads, DvtBlock> blocks(std::move(*books), 4);
    blocks.begin_run();
    if (owed) {
      REQUIRE(blocks.free(OnAllocator{allocator.get()}, 0, held) == DVT_OK);
      REQUIRE(blocks.statistics().owed == 2);
    }
    return steps_of([&] {
      run_pairs(allocator.get(), [&](uint64_t bytes, DvtBlock* out) {
        return blocks.allocate(OnAllocator{allocator.get(), bytes, out});
      });
    });
  };
  const uint64_t without = steps_with(false, false);
  const uint64_t nothing_owed = steps_with(true, false);
  const uint64_t owed = steps_with(true, true);
  CHECK(owed == nothing_owed);
  // The look whether this allocation had been suspended, and whether there was memory.
  CHECK(nothing_owed <= without + 2 * kPairs * 12);
  const double each = double(without) / (2 * kPairs), related = double(owed) / (2 * kPairs);
  MESSAGE(each << " instructions a pair without relations, " << related << " with");
}
