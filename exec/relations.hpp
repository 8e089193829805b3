// relations.hpp: which Launches must have been submitted before what Frees released is used again.
//
// Lowering lets a Free run before the Launches that use its memory, and leaves a row behind: those
// Launches. A Free that succeeds activates its row: each Launch in it is *owed*, until it has been
// submitted as often in this run as the Free has succeeded. So the k-th submission pays for the
// k-th Free, and several Frees that name one Launch count once. Failed nodes call nothing here. Who
// wants to use released memory again waits until nothing is owed; who only allocates asks nothing.
//
// Words    Each has one writer, so that no operation is a locked one.
//            memory lane   memory_: how often a Free has succeeded, or a Launch must be submitted
//                          [ epoch:32 | listed:1 | count:31 ]
//            launch lane   submitted_: how often a Launch has been
//                          [ epoch:16 | count:16 ]
//          A word of another epoch reads as 0, so that a run starts in constant time. `listed` says
//          that the Launch is in the list of what is owed. A Launch that is submitted more than
//          65,535 times in one run (bodies of loops begin a run each time) stays owed: memory is
//          then not recycled, which is safe.
//
// Invariants
//   R1  A Launch is in the list if owed > submitted; it may be there a little longer.
//   R2  No lost wake-up: submitted() stores, passes light_fence(), looks whether somebody waits;
//       suspend() says that it waits, passes heavy_fence(), looks again (platform.hpp).
//
// Threads  begin_run() with neither lane running. Else each function in the lane that it names. A
//          lane may move to another thread if what it has done happens before what it does there.
// Trust    create() checks the tables.
// Memory   Borrows the tables. Owns 12 bytes per node and 4 per related Launch, out of the resource
//          that it is given. Runs allocate nothing.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory_resource>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "base/resource.hpp"
#include "base/status.hpp"
#include "exec/image.hpp"
#include "exec/mt_topo/platform.hpp"

namespace davit::exec {

// Borrowed. Rows as in schema/image.fbs, Graph.free_off.
struct RelationTables {
  std::span<const uint32_t> kernel;        // Of each node: index in kernel_flags.
  std::span<const uint32_t> kernel_flags;  // DVT_KERNEL_*.
  std::span<const uint32_t> free_offsets;  // Nodes + 1; empty: no relations.
  std::span<const uint32_t> free_launches;
};

// A bit for each node that has a row or is in one, when the tables are right: offsets monotone and
// in range; rows of nodes that free, on the memory lane; ascending nodes of the launch lane in
// them. Errors begin with the column of the image that is wrong.
Result<std::vector<uint64_t>> related_nodes(const RelationTables& tables);

// Since the relations were made.
struct RelationStatistics {
  uint64_t frees = 0;       // That had a row.
  uint64_t owed = 0;        // Launches that a Free found not submitted yet.
  uint64_t duplicates = 0;  // Of those that another Free had found before.
  uint64_t early = 0;       // Launches that a Free found submitted already.
  uint64_t waits = 0;       // settled() asked with something in the list.
  uint64_t suspended = 0;
  uint32_t owed_peak = 0;  // At once.
};

template <class Platform>
class Relations {
 public:
  // What a suspended allocation waits for, fixed when it was suspended.
  class Wait {
   public:
    // For nothing: make_wait() makes those for suspend().
    explicit Wait(std::pmr::memory_resource& memory = *std::pmr::get_default_resource())
        : owed_(&memory) {}
    [[nodiscard]] bool empty() const { return owed_.empty(); }
    // One of them. Precondition: not empty().
    [[nodiscard]] uint32_t launch() const { return owed_.front().launch; }

   private:
    friend class Relations;
    struct Owed {
      uint32_t launch;
      uint32_t generation;
    };
    std::pmr::vector<Owed> owed_;
  };

  static Result<ResourcePtr<Relations>> create(
      const RelationTables& tables,
      std::pmr::memory_resource& memory = *std::pmr::get_default_resource()) {
    try {
      auto related = related_nodes(tables);
      if (!related.ok()) return std::move(related.status());
      return make_at_in<Relations>(
          memory, [&](void* place) { return new (place) Relations(tables, *related, memory); });
    } catch (const std::bad_alloc&) {
      return Status(DVT_OUT_OF_MEMORY, DVT_STAGE_LOAD, "no memory for Free-to-Launch relations");
    }
  }

  // Constant time, but for one run in 65,535, which clears 4 bytes per node.
  void begin_run() noexcept {
    if (++epoch_ == 0) clear_memory_words();
    if (++launch_epoch_ > kLaunchCountMax) clear_submitted();
    list_count_ = 0;
    waiting_.store(0, std::memory_order_relaxed);
  }

  // Whether the node has anything to tell: all that others pay.
  [[nodiscard]] bool related(uint32_t node) const noexcept {
    return (related_[node / 64] >> (node % 64) & 1) != 0;
  }

  // Memory lane. A related Free has succeeded.
  void freed(uint32_t node) noexcept {
    const uint32_t generation = count_of(memory_[node]) + 1;
    memory_[node] = word(generation);
    ++statistics_.frees;
    for (uint32_t i = offsets_[node]; i < offsets_[node + 1]; ++i) owe(launches_[i], generation);
  }

  // Launch lane. A related Launch has been submitted. True: somebody waits, and may go on.
  [[nodiscard]] bool submitted(uint32_t node) noexcept {
    auto& mine = submitted_[node];
    // Release: what was submitted happens before what settled() lets the memory lane do.
    const uint32_t count = launch_count_of(mine.load(std::memory_order_relaxed));
    mine.store(launch_epoch_ << 16 | std::min(count + 1, kLaunchCountMax),
               std::memory_order_release);
    Platform::light_fence();
    return waiting_.load(std::memory_order_relaxed) != 0;
  }

  // Memory lane. Whether nothing is owed: what was freed may be used again once the streams are
  // synchronised.
  [[nodiscard]] bool settled() noexcept {
    if (list_count_ == 0) return true;
    ++statistics_.waits;
    // One that is owed is answer enough.
    while (list_count_ != 0 && unlist(list_[list_count_ - 1])) --list_count_;
    return list_count_ == 0;
  }

  // Memory lane. The Launches that are owed.
  [[nodiscard]] std::span<const uint32_t> owed() noexcept {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < list_count_; ++i) {
      if (!unlist(list_[i])) list_[kept++] = list_[i];
    }
    list_count_ = kept;
    return {list_.get(), list_count_};
  }

  // For suspend(). Allocates, so that nothing else has to.
  [[nodiscard]] Wait make_wait() const {
    Wait wait(*related_.get_allocator().resource());
    wait.owed_.reserve(launch_count_);
    return wait;
  }

  // Memory lane. Fixes what an allocation waits for: what is owed now, but for Launches that
  // `excluded` names, which depend on the allocation itself. False: there is nothing to wait for.
  template <class Excluded>
  [[nodiscard]] bool suspend(Wait& wait, const Excluded& excluded) noexcept {
    wait.owed_.clear();
    for (const uint32_t launch : owed()) {
      if (!excluded(launch)) wait.owed_.push_back({launch, count_of(memory_[launch])});
    }
    if (wait.owed_.empty()) return false;
    waiting_.store(waiting_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    Platform::heavy_fence();
    ++statistics_.suspended;
    if (!is_over(wait)) return true;
    resume(wait);
    return false;
  }

  // Memory lane. Whether a suspended allocation may be tried again.
  [[nodiscard]] bool is_over(Wait& wait) const noexcept {
    std::erase_if(wait.owed_,
                  [&](const auto& owed) { return submissions_of(owed.launch) >= owed.generation; });
    return wait.owed_.empty();
  }

  // Memory lane. The allocation is not suspended any more, for whatever reason.
  void resume(Wait& wait) noexcept {
    wait.owed_.clear();
    waiting_.store(waiting_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
  }

  // Memory lane.
  [[nodiscard]] const RelationStatistics& statistics() const noexcept { return statistics_; }
  // What this allocates.
  [[nodiscard]] size_t bytes() const noexcept {
    return node_count_ * (sizeof(Atom) + sizeof(uint64_t)) + related_.size() * sizeof(uint64_t) +
           launch_count_ * sizeof(uint32_t);
  }

  // For tests of the wrap.
  void set_epochs(uint32_t epoch, uint32_t launch_epoch) noexcept {
    epoch_ = epoch;
    launch_epoch_ = launch_epoch;
  }

 private:
  using Atom = typename Platform::template Atom<uint32_t>;
  static constexpr uint32_t kListed = 1U << 31;
  static constexpr uint32_t kLaunchCountMax = UINT16_MAX;

  Relations(const RelationTables& tables, std::span<const uint64_t> related,
            std::pmr::memory_resource& memory)
      : offsets_(tables.free_offsets),
        launches_(tables.free_launches),
        node_count_(static_cast<uint32_t>(tables.kernel.size())),
        related_(related.begin(), related.end(), &memory),
        submitted_(ResourceArray<Atom>::zeroed(node_count_, memory)),
        memory_(ResourceArray<uint64_t>::zeroed(node_count_, memory)) {
    for (const uint64_t bits : related_) {
      launch_count_ += static_cast<uint32_t>(std::popcount(bits));
    }
    for (uint32_t node = 0; node + 1 < offsets_.size(); ++node) {
      if (offsets_[node] != offsets_[node + 1]) --launch_count_;
    }
    list_ = ResourceArray<uint32_t>(launch_count_, memory);
  }

  [[nodiscard]] uint64_t word(uint32_t generation) const noexcept {
    return uint64_t{epoch_} << 32 | generation;
  }
  // With kListed.
  [[nodiscard]] uint32_t entry_of(uint64_t stored) const noexcept {
    return static_cast<uint32_t>(stored >> 32) == epoch_ ? static_cast<uint32_t>(stored) : 0;
  }
  [[nodiscard]] uint32_t count_of(uint64_t stored) const noexcept {
    return entry_of(stored) & ~kListed;
  }
  [[nodiscard]] uint32_t launch_count_of(uint32_t stored) const noexcept {
    return stored >> 16 == launch_epoch_ ? stored & kLaunchCountMax : 0;
  }
  // Acquire: pairs with submitted(). Saturated: nobody knows.
  [[nodiscard]] uint32_t submissions_of(uint32_t launch) const noexcept {
    const uint32_t count = launch_count_of(submitted_[launch].load(std::memory_order_acquire));
    return count == kLaunchCountMax ? 0 : count;
  }

  void owe(uint32_t launch, uint32_t generation) noexcept {
    if (submissions_of(launch) >= generation) {
      ++statistics_.early;
      return;
    }
    const uint32_t before = entry_of(memory_[launch]);
    ++statistics_.owed;
    if ((before & ~kListed) >= generation) {
      ++statistics_.duplicates;
      return;
    }
    memory_[launch] = word(generation | kListed);
    if ((before & kListed) != 0) return;
    list_[list_count_++] = launch;
    statistics_.owed_peak = std::max(statistics_.owed_peak, list_count_);
  }

  // Whether a Launch in the list has been submitted; it is then taken for not being there.
  [[nodiscard]] bool unlist(uint32_t launch) noexcept {
    const uint32_t wanted = count_of(memory_[launch]);
    if (submissions_of(launch) < wanted) return false;
    memory_[launch] = word(wanted);
    return true;
  }

  void clear_memory_words() noexcept {
    std::fill_n(memory_.get(), node_count_, 0);
    epoch_ = 1;
  }
  void clear_submitted() noexcept {
    for (uint32_t node = 0; node < node_count_; ++node) {
      submitted_[node].store(0, std::memory_order_relaxed);
    }
    launch_epoch_ = 1;
  }

  std::span<const uint32_t> offsets_, launches_;
  uint32_t node_count_;
  uint32_t launch_count_ = 0;
  uint32_t epoch_ = 0;
  uint32_t launch_epoch_ = 0;           // 1 to kLaunchCountMax.
  std::pmr::vector<uint64_t> related_;  // A bit per node.
  ResourceArray<Atom> submitted_;
  ResourceArray<uint64_t> memory_;
  ResourceArray<uint32_t> list_;
  uint32_t list_count_ = 0;
  RelationStatistics statistics_;
  alignas(64) typename Platform::template Atom<uint32_t> waiting_{0};  // Suspended allocations.
};

}  // namespace davit::exec
