// scheduler.hpp: runs a graph on one or more workers: in order, by a plan, or as nodes become
// ready.
//
// All three give the same results, bit for bit: they run the same nodes, each after all that it
// waits for, launches in the order of the image, memory nodes one at a time.
//
//   kSequential  the caller runs the nodes in the order of the image
//   kPlanned     planned.hpp, when the image has a plan
//   kDynamic     dynamic.hpp
//   kAutomatic   tries those that may pay and keeps the fastest: a graph too short or too narrow to
//                gain stays sequential. choice() says what ran and why.
//
// Load         Callers of runs and their helpers together are no more than the workers of the pool:
//              where each worker has a run of its own, runs are done by their callers alone, and in
//              kAutomatic in order.
//
// Failures     The first code that is not 0 ends the run: nothing starts after it is seen. The run
//              returns when every node that had started is back; the scheduler is ready for the
//              next run. A C++ exception that leaves a node is DVT_KERNEL_FAILED.
//
// Threads  One run at a time; several schedulers share a pool, also nested (pool.hpp).
// Trust    create() checks all tables.
// Memory   The steps' contexts and the steps themselves are borrowed; everything else is copied. A
// run
//          allocates nothing, unless it has to wake a helper that sleeps.
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>

#include "base/resource.hpp"
#include "base/status.hpp"
#include "exec/mt_topo/job.hpp"
#include "exec/mt_topo/plan.hpp"
#include "exec/mt_topo/pool.hpp"
#include "exec/mt_topo/topology.hpp"

namespace davit::mt_topo {

enum class Mode : uint8_t { kAutomatic, kSequential, kPlanned, kDynamic };
const char* mode_name(Mode mode);

// Units that a worker of the dynamic mode must have in its queue before it lays any out, when a
// unit takes `unit_ns`; 0: none waits behind another (dynamic.hpp).
uint32_t batch_minimum(double unit_ns);

struct SchedulerOptions {
  Mode mode = Mode::kAutomatic;
  uint32_t workers = 0;  // At most; 0: all of the pool.
  // Dynamic runs are done by their caller alone at first, and now and then later, to learn what a
  // unit costs and whether sharing it pays. False, for tests: all are shared, unit by unit,
  // whatever other runs the pool has.
  bool measures = true;
  // Of the scheduler and all its tables; outlives it.
  std::pmr::memory_resource* memory = std::pmr::get_default_resource();
};

// What the last run was, and why.
struct Choice {
  Mode mode = Mode::kSequential;
  const char* reason = "";  // Lives as long as the scheduler, until the next run.
};

class Scheduler {
 public:
  // `plan` may be null. `pool` may be null: one worker.
  static Result<ResourcePtr<Scheduler>> create(const Tables& tables, const PlanTables* plan,
                                               std::shared_ptr<Pool> pool,
                                               const SchedulerOptions& options);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  Outcome run() noexcept { return run({}, nullptr); }
  Outcome run(const RunControl& control, const RunObserver* observer) noexcept;

  // What nodes take has changed: kAutomatic tries again, kDynamic measures again.
  void forget() noexcept;

  // Whether the run in progress has failed. By the nodes of it; a run that its caller does alone
  // has nobody to tell.
  [[nodiscard]] bool has_failed() const noexcept;

  [[nodiscard]] Choice choice() const;
  [[nodiscard]] uint32_t workers() const;

 private:
  struct State;
  explicit Scheduler(ResourcePtr<State> state);
  ResourcePtr<State> state_;
};

}  // namespace davit::mt_topo
