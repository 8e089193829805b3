// pool.hpp: the worker threads that executors share. oneTBB owns them.
//
// A helper is a oneTBB task that spins for work for a bounded time and then ends, so that an idle
// pool holds no thread and costs nothing; the next run that wants it submits the task again. While
// a helper spins, calling it is one store that it sees, without a system call.
//
// Threads  Any. Runs of any number of schedulers at the same time, also from inside a node of
// another
//          run: who runs a node never takes work of another run, so nothing is waited for in a
//          circle.
// fork     A child has no helpers: its runs are done by their callers alone.
// Memory   Shared; schedulers hold it. Destroying it waits for its tasks, but not longer than 100
// ms:
//          those that oneTBB has not started by then own what they touch.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/status.hpp"
#include "exec/mt_topo/job.hpp"

namespace davit::mt_topo {

constexpr uint32_t kWorkersMax = 64;

struct PoolOptions {
  uint32_t workers = 0;  // With the caller of a run. 0: one per usable CPU (cpus.hpp).
  int64_t spin_us = 50;  // What an idle worker spins before it sleeps.
};

class Pool {
 public:
  // Needs oneTBB: of the library dvt_threads, which scheduler.cpp does not depend on.
  static Result<std::shared_ptr<Pool>> create(const PoolOptions& options);
  virtual ~Pool() = default;

  [[nodiscard]] virtual uint32_t workers() const noexcept = 0;
  [[nodiscard]] virtual int64_t spin_ns() const noexcept = 0;
  // Null when the pool has one worker, and in a child of fork().
  [[nodiscard]] virtual Crew* crew() noexcept = 0;

  // Threads that call runs which may have helpers. add_caller() returns how many there are with
  // this one.
  uint32_t add_caller() noexcept { return callers_.fetch_add(1, std::memory_order_relaxed) + 1; }
  void remove_caller() noexcept { callers_.fetch_sub(1, std::memory_order_relaxed); }
  [[nodiscard]] uint32_t callers() const noexcept {
    return callers_.load(std::memory_order_relaxed);
  }

 private:
  alignas(64) std::atomic<uint32_t> callers_{0};
};

}  // namespace davit::mt_topo

// The opaque type of davit.h.
struct DvtPool {
  std::shared_ptr<davit::mt_topo::Pool> pool;
};
