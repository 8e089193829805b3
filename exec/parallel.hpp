// parallel.hpp: Main on several workers, by the image's schedule or as nodes become ready, and the
// bodies of its branches and loops.
//
// A body is a graph with a scheduler of its own on the same pool. The worker that runs the node of
// a body is the caller of the body's run, so nobody waits in a circle (scheduler.hpp); other nodes
// of Main, and other bodies, go on meanwhile.
//
// Threads  One run at a time, and one of each body, by any thread, within one of Main.
// Trust    The image is verified. What is not safe to share stays sequential, with a reason.
// Memory   Tables at load, out of the resource that it is given; a run allocates nothing.
#pragma once

#include <memory_resource>
#include <span>
#include <string>
#include <vector>

#include "base/resource.hpp"
#include "davit/davit.h"
#include "exec/deferred_frees.hpp"
#include "exec/image.hpp"
#include "exec/mt_topo/scheduler.hpp"

namespace davit::exec {

// A graph's scheduler, or why there is none.
class Parallel {
 public:
  // None yet, and none until create() has made one.
  explicit Parallel(std::pmr::memory_resource& memory)
      : reason_("no pool of workers was given", &memory),
        remark_(&memory),
        bodies_(&memory),
        around_(&memory) {}
  // Of Main, or of a gear in its place. `steps`: by graph, those of Main and of bodies; they stay
  // where they are. `memory` holds what is made, and outlives it.
  static Result<Parallel> create(const ImageView& image, uint32_t graph,
                                 std::span<const DvtStep* const> steps,
                                 const DvtExecutorOptions& options,
                                 std::pmr::memory_resource& memory);

  // Of an image that drives a device: Frees that may be ahead of Launches. Else null.
  [[nodiscard]] DeferredFrees* deferred() const { return deferred_.get(); }
  // False: the caller runs the steps itself.
  [[nodiscard]] bool active() const { return scheduler_ != nullptr; }
  // The first node that it runs; those before it, which set shapes, are the caller's.
  [[nodiscard]] uint32_t first() const { return first_; }
  // What was measured does not hold any more.
  void shapes_changed() noexcept;
  // Nodes are counted from first().
  mt_topo::Outcome run(const mt_topo::RunControl& control,
                       const mt_topo::RunObserver* observer) noexcept {
    return scheduler_->run(control, observer);
  }
  void describe(DvtScheduleInfo& out) const;

  // Of one of Main's bodies, or of one inside.
  mt_topo::Outcome run_body(uint32_t graph, const mt_topo::RunControl& control,
                            const mt_topo::RunObserver* observer) noexcept {
    return bodies_[graph]->run(control, observer);
  }
  // Whether the run of a graph around the body has failed, so that there is no use in going on. By
  // who runs the body's node.
  [[nodiscard]] bool has_failed_around(uint32_t graph) const noexcept;

 private:
  Status create_body(const ImageView& image, uint32_t id, const DvtStep* steps,
                     const DvtExecutorOptions& options);
  Status create_bodies(const ImageView& image, uint32_t graph,
                       std::span<const DvtStep* const> steps, const DvtExecutorOptions& options);
  [[nodiscard]] std::string describe_bodies() const;

  std::pmr::string reason_;  // While not active.
  std::pmr::string remark_;  // What else is to be said of the image's schedule.
  uint32_t first_ = 0;
  ResourcePtr<mt_topo::Scheduler> scheduler_;
  ResourcePtr<DeferredFrees> deferred_;
  // By graph; null: no body that Main leads to.
  std::pmr::vector<ResourcePtr<mt_topo::Scheduler>> bodies_;
  std::pmr::vector<uint32_t> around_;  // By graph: the one that has its node; kNone of Main.
};

}  // namespace davit::exec
