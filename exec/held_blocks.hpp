// held_blocks.hpp: blocks that are freed before the Launches that use them have been submitted, and
// the allocations that wait for them.
//
//   allocate: there is memory -> done, nothing is asked
//             there is none   -> give back what is settled, and try again
//                                 -> wait for what was owed when it first failed (suspended), give
//                                    back what was held then, and try again
//                                 -> nothing is held: out of memory
//
// Threads  begin_run() and release_all() with no lane running; else each function in the lane it
//          names.
// Trust    The relations are proved to end (liveness.hpp).
// Memory   Owns the books and room for `most` blocks. A run allocates nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <utility>
#include <vector>

#include "exec/relations.hpp"
#include "exec/sequential_c/sequential.h"

namespace davit::exec {

// Platform: mt_topo/platform.hpp. A Device is what one call works with:
//   int32_t allocate()            DVT_OUT_OF_MEMORY: there is none
//   int32_t release(Block)
//   void will_retry()             after an allocate() that had no memory
template <class Platform, class Block>
class HeldBlocks {
 public:
  HeldBlocks(ResourcePtr<Relations<Platform>> books, size_t most,
             std::pmr::memory_resource& memory = *std::pmr::get_default_resource())
      : books_(std::move(books)), held_(&memory), wait_(books_->make_wait()) {
    held_.reserve(most);
  }

  void begin_run() noexcept {
    books_->begin_run();
    held_.clear();
    waiting_ = false;
    awaited_launch_.store(kNone, std::memory_order_relaxed);
  }

  template <class Device>
  int32_t release_all(Device&& device) noexcept {
    return release(device, held_.size());
  }

  // Memory lane. DVT_STEP_SUSPENDED: call again later.
  template <class Device>
  int32_t allocate(Device&& device) noexcept {
    if (waiting_) {
      if (!books_->is_over(wait_)) return DVT_STEP_SUSPENDED;
      books_->resume(wait_);
      waiting_ = false;
      awaited_launch_.store(kNone, std::memory_order_relaxed);
      if (const int32_t code = release(device, awaited_); code != DVT_OK) return code;
    }
    int32_t code = device.allocate();
    while (code == DVT_OUT_OF_MEMORY && !held_.empty()) {
      device.will_retry();
      // No Launch that is owed waits for this allocation: its relations are proved to end.
      awaited_ = held_.size();
      if (books_->suspend(wait_, [](uint32_t /*launch*/) { return false; })) {
        waiting_ = true;
        awaited_launch_.store(wait_.launch(), std::memory_order_relaxed);
        return DVT_STEP_SUSPENDED;
      }
      if (const int32_t freed = release(device, awaited_); freed != DVT_OK) return freed;
      code = device.allocate();
    }
    return code;
  }

  // Memory lane. `node` is the Free.
  template <class Device>
  int32_t free(Device&& device, uint32_t node, Block block) noexcept {
    if (!books_->related(node)) return device.release(block);
    books_->freed(node);
    held_.push_back(block);
    return books_->settled() ? release(device, held_.size()) : int32_t{DVT_OK};
  }

  // Launch lane. The node has been submitted.
  void submitted(uint32_t node) noexcept {
    if (books_->related(node)) (void)books_->submitted(node);
  }

  // Any thread: one of the launches that a suspended allocation waits for, or kNone.
  [[nodiscard]] uint32_t awaited_launch() const noexcept {
    return awaited_launch_.load(std::memory_order_relaxed);
  }

  // Memory lane.
  [[nodiscard]] const RelationStatistics& statistics() const { return books_->statistics(); }

 private:
  template <class Device>
  int32_t release(Device& device, size_t count) noexcept {
    int32_t first = DVT_OK;
    for (size_t i = 0; i < count; ++i) {
      const int32_t code = device.release(held_[i]);
      if (first == DVT_OK) first = code;
    }
    held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(count));
    return first;
  }

  ResourcePtr<Relations<Platform>> books_;
  std::pmr::vector<Block> held_;  // From the oldest on.
  typename Relations<Platform>::Wait wait_;
  size_t awaited_ = 0;  // Of held_: when wait_ is over, so many may go.
  std::atomic<uint32_t> awaited_launch_{kNone};
  bool waiting_ = false;
};

}  // namespace davit::exec
