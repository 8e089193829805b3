// deferred_frees.hpp: Frees that run before the Launches that use their memory.
//
// In a run on several workers the memory lane may be ahead of the launch lane. A Free with a
// Free-to-Launch row then holds its block: the address stays valid for the Launches of the row, and
// goes back to the device when all of them have been submitted. The device runs them in order, so
// whoever gets the memory next is behind them. How an allocation waits: held_blocks.hpp.
//
// Threads  begin_run() and finish() with no lane running; else each function in the lane it names.
// Trust    The image is verified, and its relations are proved to end (liveness.hpp).
// Memory   Owns the books (relations.hpp) and 16 bytes for each Free with a row, out of the
// resource
//          that it is given. A run allocates nothing.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <optional>
#include <utility>
#include <vector>

#include "base/resource.hpp"
#include "base/status.hpp"
#include "exec/held_blocks.hpp"
#include "exec/image.hpp"
#include "exec/mt_topo/platform.hpp"
#include "exec/runtime.h"

namespace davit::exec {

class DeferredFrees {
 public:
  static Result<ResourcePtr<DeferredFrees>> create(const ImageView& image, const GraphView& graph,
                                                   std::pmr::memory_resource& memory);

  void begin_run() noexcept { blocks_->begin_run(); }
  // After a run in which all nodes have run: gives back what is still held. After one that failed,
  // the cells own what they hold.
  DvtCode finish(DvtRuntime& runtime) noexcept;

  // Memory lane. DVT_STEP_SUSPENDED: call again later.
  int32_t allocate(DvtRuntime& runtime, DvtCell* cell, uint64_t bytes, const char* owner) noexcept;
  DvtCode free(DvtRuntime& runtime, uint32_t node, DvtCell* cell) noexcept;
  // Launch lane. The node has been submitted.
  void submitted(uint32_t node) noexcept { blocks_->submitted(node); }

  // Any thread: one of the launches that a suspended allocation waits for, or kNone.
  [[nodiscard]] uint32_t awaited_launch() const noexcept { return blocks_->awaited_launch(); }

  // Memory lane.
  [[nodiscard]] const RelationStatistics& statistics() const { return blocks_->statistics(); }

 private:
  explicit DeferredFrees(std::pmr::memory_resource& memory) : kernel_flags_(&memory) {}

  std::pmr::vector<uint32_t> kernel_flags_;                           // The books borrow them.
  std::optional<HeldBlocks<mt_topo::RealThreads, DvtCell*>> blocks_;  // From create() on.
};

}  // namespace davit::exec

// What stands behind DvtRuntime.deferred.
struct DvtDeferredFrees {
  davit::exec::DeferredFrees& frees;
};
