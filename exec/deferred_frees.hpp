// deferred_frees.hpp: Frees that run before the Launches that use their memory.
//
// In a run on several workers the memory lane may be ahead of the launch lane. A Free with a
// Free-to-Launch row then holds its block: the address stays valid for the Launches of the row, and
// goes back to the device when all of them have been submitted. The device runs them in order, so
// whoever gets the memory next is behind them.
//
//   allocate: there is memory -> done, nothing is asked
//             there is none   -> give back what is settled, and try again
//                                 -> wait for what was owed when it first failed (suspended), give
//                                    back what was held then, and try again
//                                 -> nothing is held: out of memory
//
// Threads  begin_run() and finish() with no lane running; else each function in the lane it names.
// Trust    The image is verified, and its relations are proved to end (liveness.hpp).
// Memory   Owns the books (relations.hpp) and 16 bytes for each Free with a row. A run allocates
//          nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.hpp"
#include "exec/image.hpp"
#include "exec/mt_topo/platform.hpp"
#include "exec/relations.hpp"
#include "exec/runtime.h"

namespace davit::exec {

class DeferredFrees {
 public:
  static Result<std::unique_ptr<DeferredFrees>> create(const ImageView& image,
                                                       const GraphView& graph);

  void begin_run() noexcept;
  // After a run in which all nodes have run: gives back what is still held. After one that failed,
  // the cells own what they hold.
  DvtCode finish(DvtRuntime& runtime) noexcept;

  // Memory lane. DVT_STEP_SUSPENDED: call again later.
  int32_t allocate(DvtRuntime& runtime, DvtCell* cell, uint64_t bytes, const char* owner) noexcept;
  DvtCode free(DvtRuntime& runtime, uint32_t node, DvtCell* cell) noexcept;
  // Launch lane. The node has been submitted.
  void submitted(uint32_t node) noexcept {
    if (relations_->related(node)) (void)relations_->submitted(node);
  }

  // Any thread: one of the launches that a suspended allocation waits for, or kNone.
  [[nodiscard]] uint32_t awaited_launch() const noexcept {
    return awaited_launch_.load(std::memory_order_relaxed);
  }

  // Memory lane.
  [[nodiscard]] const RelationStatistics& statistics() const { return relations_->statistics(); }

 private:
  using Books = Relations<mt_topo::RealThreads>;

  DeferredFrees(std::vector<uint32_t> kernel_flags, size_t held_most)
      : kernel_flags_(std::move(kernel_flags)) {
    held_.reserve(held_most);
  }
  DvtCode release(DvtRuntime& runtime, size_t count) noexcept;

  std::vector<uint32_t> kernel_flags_;  // The books borrow them.
  std::unique_ptr<Books> relations_;
  std::vector<DvtCell*> held_;  // From the oldest on.
  Books::Wait wait_;
  size_t awaited_ = 0;  // Of held_: when wait_ is over, so many may go.
  std::atomic<uint32_t> awaited_launch_{kNone};
  bool waiting_ = false;
};

}  // namespace davit::exec

// What stands behind DvtRuntime.deferred.
struct DvtDeferredFrees {
  davit::exec::DeferredFrees& frees;
};
