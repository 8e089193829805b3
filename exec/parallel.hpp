// parallel.hpp: Main on several workers, by the image's schedule or as nodes become ready.
//
// Threads  One run at a time.
// Trust    The image is verified. What is not safe to share stays sequential, with a reason.
// Memory   Tables at load; a run allocates nothing.
#pragma once

#include <memory>
#include <string>

#include "davit/davit.h"
#include "exec/deferred_frees.hpp"
#include "exec/image.hpp"
#include "exec/mt_topo/scheduler.hpp"

namespace davit::exec {

// A graph's scheduler, or why there is none.
class Parallel {
 public:
  // Of Main, or a gear in its place; `steps` are the graph's, and stay where they are.
  static Result<Parallel> create(const ImageView& image, const GraphView& graph,
                                 const DvtStep* steps, const DvtExecutorOptions& options);

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
  std::string reason_ = "no pool of workers was given";  // While not active.
  std::string remark_;  // What else is to be said of the image's schedule.
  uint32_t first_ = 0;
  std::unique_ptr<mt_topo::Scheduler> scheduler_;
  std::unique_ptr<DeferredFrees> deferred_;
};

}  // namespace davit::exec
