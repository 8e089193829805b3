// parallel.hpp: Main on several workers: what each node has to wait for, and the scheduler that
// obeys.
//
// The image's successors order nodes by the values they pass. Values share memory, so a node must
// also wait for those that still use the bytes it writes. Both follow from one sweep over the bytes
// that nodes touch, in the order of the image: a read waits for the last write of any of its bytes,
// a write for the last write and for all reads since. That order is the sequential loop's for every
// byte, so the results are the same bits. Successors are kept besides.
//
// Threads  One run at a time.
// Trust    The image is verified. What is not proved to be safe here stays sequential, with a
// reason. Memory   Tables at load; a run allocates nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "davit/davit.h"
#include "exec/image.hpp"
#include "exec/mt_topo/scheduler.hpp"

namespace davit::exec {

// Successors with those that memory adds. As GraphView has them.
struct Dependencies {
  std::vector<uint32_t> successor_offsets, successors, indegree;
};

// Why the graph cannot run on several workers; empty when it can.
std::string reason_to_stay_sequential(const ImageView& image, const GraphView& graph);

// Precondition: no reason_to_stay_sequential().
Dependencies dependencies_of(const ImageView& image, const GraphView& graph);

// Main's scheduler, or why there is none.
class Parallel {
 public:
  // `steps` are Main's, and stay where they are.
  static Result<Parallel> create(const ImageView& image, const DvtStep* steps,
                                 const DvtExecutorOptions& options);

  // False: the caller runs the steps itself.
  [[nodiscard]] bool active() const { return scheduler_ != nullptr; }
  mt_topo::Outcome run() noexcept { return scheduler_->run(); }
  void describe(DvtScheduleInfo& out) const;

 private:
  std::string reason_ = "no pool of workers was given";  // While not active.
  std::unique_ptr<mt_topo::Scheduler> scheduler_;
};

}  // namespace davit::exec
