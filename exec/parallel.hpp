// parallel.hpp: Main on several workers, by the image's schedule or as nodes become ready.
//
// Threads  One run at a time.
// Trust    The image is verified. What is not safe to share stays sequential, with a reason.
// Memory   Tables at load, out of the resource that it is given; a run allocates nothing.
#pragma once

#include <memory_resource>
#include <string>

#include "base/resource.hpp"
#include "davit/davit.h"
#include "exec/deferred_frees.hpp"
#include "exec/image.hpp"
#include "exec/mt_topo/scheduler.hpp"

namespace davit::exec {

// Main's scheduler, or why there is none.
class Parallel {
 public:
  // None yet, and none until create() has made one.
  explicit Parallel(std::pmr::memory_resource& memory)
      : reason_("no pool of workers was given", &memory), remark_(&memory) {}
  // `steps` are Main's, and stay where they are. `memory` holds what is made, and outlives it.
  static Result<Parallel> create(const ImageView& image, const DvtStep* steps,
                                 const DvtExecutorOptions& options,
                                 std::pmr::memory_resource& memory);

  // Of an image that drives a device: Frees that may be ahead of Launches. Else null.
  [[nodiscard]] DeferredFrees* deferred() const { return deferred_.get(); }
  // False: the caller runs the steps itself.
  [[nodiscard]] bool active() const { return scheduler_ != nullptr; }
  // The first node that it runs; those before it, which set shapes, are the caller's.
  [[nodiscard]] uint32_t first() const { return first_; }
  // What was measured does not hold any more.
  void shapes_changed() noexcept { scheduler_->forget(); }
  // Nodes are counted from first().
  mt_topo::Outcome run(const mt_topo::RunControl& control,
                       const mt_topo::RunObserver* observer) noexcept {
    return scheduler_->run(control, observer);
  }
  void describe(DvtScheduleInfo& out) const;

 private:
  std::pmr::string reason_;  // While not active.
  std::pmr::string remark_;  // What else is to be said of the image's schedule.
  uint32_t first_ = 0;
  ResourcePtr<mt_topo::Scheduler> scheduler_;
  ResourcePtr<DeferredFrees> deferred_;
};

}  // namespace davit::exec
