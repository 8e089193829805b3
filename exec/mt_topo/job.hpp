// job.hpp: what the participants of one run share, whichever way it is scheduled.
//
// A run has one caller, who takes part from begin to end, and helpers, who are called and may come,
// leave and come again. Nobody ever waits for a helper to come. The caller returns when every
// helper that has come is gone.
//
// Words (on one line: all are read often, and written when somebody fails, comes or goes)
//   failure   [ code:32 | node:32 ]  0 while all is well; the first failure wins and stays
//   hunger    kCallerParked: the caller sleeps on `bell`.  kHelpersAway: call helpers for work
//   present   helpers called or come, | kCallerWaits when the caller sleeps until they are gone
//
// Invariants
//   J1  A helper's last touch of a job is the decrement of `present`. So the caller may free or
//       restart the job once present == 0.
//   J2  No lost wake-up: whoever makes work or completion visible then calls announce(): store,
//       light_fence, load hunger. Whoever goes to sleep or away: store hunger, heavy_fence, look
//       for work again. By the fences' contract one of the two sees the other.
//   J3  The caller is rung while it is parked, whoever else is there: kCallerParked is set before
//       its last look and cleared only by the one who rings.
//
// Starting a run writes only what differs from the run before: helpers have these lines, too, and
// every one that changes has to come over before they can begin.
//
// Threads  As each function says.
// Memory   The job is the scheduler's; see J1.
#pragma once

#include <atomic>
#include <cstdint>

#include "davit/types.h"
#include "exec/mt_topo/topology.hpp"

namespace davit::mt_topo {

// Something that helpers can join. `worker` is from 1 to the size of the crew - 1; the caller is 0.
class Job {
 public:
  virtual void help(uint32_t worker) noexcept = 0;

 protected:
  ~Job() = default;
};

// Where helpers come from: the pool, or the explorer's.
class Crew {
 public:
  // Calls one more helper that is free; false: there is none. The helper calls job.help() once, at
  // any time from now on, even before this returns.
  virtual bool call(Job& job) noexcept = 0;
  // Takes back what has been called and has not come; returns how many. They will not come.
  virtual uint32_t dismiss(Job& job) noexcept = 0;

 protected:
  ~Crew() = default;
};

// How a run ended. code 0: all nodes ran. Otherwise the node that failed, or kNoNode when the run
// was cancelled or timed out.
struct Outcome {
  int32_t code = DVT_OK;
  uint32_t node = kNoNode;
};

// What one run is given beside the graph.
struct RunControl {
  // Set to non-zero by any thread to end the run with DVT_CANCELLED within one node. May be null.
  const std::atomic<uint32_t>* cancel = nullptr;
  int64_t deadline_ns = INT64_MAX;  // On CLOCK_MONOTONIC; then DVT_TIMEOUT within one node.
  [[nodiscard]] bool limited() const { return cancel != nullptr || deadline_ns != INT64_MAX; }
};

// Called around every node of an observed run, by the worker that runs it.
struct RunObserver {
  void (*begin)(void* user, uint32_t worker, uint32_t node) = nullptr;
  void (*end)(void* user, uint32_t worker, uint32_t node, int32_t code) = nullptr;
  void* user = nullptr;
};

// Which loop a worker runs: the plain one holds nothing of the others.
enum class Loop { kPlain, kLimited, kObserved };

template <class Platform>
class JobState {
 public:
  static constexpr uint32_t kCallerParked = 1;
  static constexpr uint32_t kHelpersAway = 2;

  explicit JobState(int64_t spin_ns) : spin_ns_(spin_ns) {}

  // By the caller, with no helper present. `crew` may be null: nobody helps.
  void start(Crew* crew, uint32_t helpers_max, const RunControl& control,
             const RunObserver* observer) noexcept {
    if (crew == nullptr) helpers_max = 0;
    if (crew_ != crew) crew_ = crew;
    if (helpers_max_ != helpers_max) helpers_max_ = helpers_max;
    if (control_.cancel != control.cancel || control_.deadline_ns != control.deadline_ns) {
      control_ = control;
    }
    if (observer_ != observer) observer_ = observer;
    set(failure_, uint64_t{0});
    // Helpers are called at the first work there is for them.
    set(hunger_, helpers_max > 0 ? kHelpersAway : 0);
    set(patience_, 0U);
  }

  [[nodiscard]] bool failed() const noexcept {
    return failure_.load(std::memory_order_relaxed) != 0;
  }
  // By the caller, with no helper present: `present` has published it. `all_ran`: all nodes have.
  // Who waits may have seen a cancel or deadline while the last node ran: that stopped nothing.
  [[nodiscard]] Outcome outcome(bool all_ran) const noexcept {
    const uint64_t word = failure_.load(std::memory_order_relaxed);
    if (word == 0 || (all_ran && static_cast<uint32_t>(word) == kNoNode)) return {};
    return {static_cast<int32_t>(word >> 32), static_cast<uint32_t>(word)};
  }

  void fail(int32_t code, uint32_t node) noexcept {
    uint64_t expected = 0;
    failure_.compare_exchange_strong(expected, uint64_t{static_cast<uint32_t>(code)} << 32 | node,
                                     std::memory_order_acq_rel, std::memory_order_relaxed);
  }

  // False when the run is to stop for a reason of its own or of the caller.
  [[nodiscard]] bool may_go_on() noexcept {
    if (control_.cancel != nullptr && control_.cancel->load(std::memory_order_relaxed) != 0) {
      fail(DVT_CANCELLED, kNoNode);
    } else if (control_.deadline_ns != INT64_MAX && Platform::now_ns() >= control_.deadline_ns) {
      fail(DVT_TIMEOUT, kNoNode);
    }
    return !failed();
  }

  // After a store that makes work or the end of the run visible (J2).
  void announce(Job& job) noexcept {
    Platform::light_fence();
    const uint32_t hunger = hunger_.load(std::memory_order_relaxed);
    if (hunger != 0) [[unlikely]]
      feed(job, hunger);
  }

  // By a helper that goes, after its last store: the end of the run, or a failure. Work has been
  // announced when it was made; to call helpers for it here, they would call each other for ever.
  void ring_caller() noexcept {
    Platform::light_fence();
    if ((hunger_.load(std::memory_order_relaxed) & kCallerParked) != 0) (void)ring();
  }

  // Cheap enough for every now and then: helpers that were busy elsewhere may be free by now.
  [[nodiscard]] bool helpers_away() const noexcept {
    return (hunger_.load(std::memory_order_relaxed) & kHelpersAway) != 0 &&
           (present_.load(std::memory_order_relaxed) & kCount) < helpers_max_;
  }

  // The caller sleeps until announce(), unless have_work() says that there is no need to.
  template <class HaveWork>
  void park_caller(const HaveWork& have_work) noexcept {
    const uint32_t bell = bell_.load(std::memory_order_acquire);
    hunger_.fetch_or(kCallerParked, std::memory_order_relaxed);
    Platform::heavy_fence();
    // Nobody rings for a cancelled run or a deadline.
    if (!have_work()) Platform::park(bell_, bell, control_.limited() ? kLimitedParkNs : -1);
    hunger_.fetch_and(~kCallerParked, std::memory_order_relaxed);
  }

  // A helper may go unless have_work(); then it calls depart().
  template <class HaveWork>
  [[nodiscard]] bool may_leave(const HaveWork& have_work) noexcept {
    hunger_.fetch_or(kHelpersAway, std::memory_order_relaxed);
    Platform::heavy_fence();
    return !have_work();
  }

  // J1. Release: all that this helper did happens before what the caller does after gather().
  void depart() noexcept {
    const auto* address = &present_;
    if (present_.fetch_sub(1, std::memory_order_release) & kCallerWaits) Platform::unpark(address);
  }

  // By the caller, at the end: returns when no helper is there or will come.
  void gather(Job& job) noexcept {
    if (present_.load(std::memory_order_acquire) == 0) return;
    int64_t limit = 0;
    for (uint32_t turn = 0;; ++turn) {
      uint32_t present = present_.load(std::memory_order_acquire);
      if ((present & kCount) == 0) break;
      // Again and again: a helper that has not seen the end yet may have called another one.
      if (turn % 64 == 0) present_.fetch_sub(crew_->dismiss(job), std::memory_order_relaxed);
      if (turn == 0) limit = Platform::now_ns() + spin_ns_;
      if (turn % 64 != 63 || Platform::now_ns() < limit) {
        Platform::relax();
        continue;
      }
      if ((present & kCallerWaits) == 0) {
        if (!present_.compare_exchange_strong(present, present | kCallerWaits,
                                              std::memory_order_acquire)) {
          continue;
        }
        present |= kCallerWaits;
      }
      Platform::park(present_, present);
    }
    set(present_, 0U);
  }

  // Calls up to `count` helpers.
  void call_helpers(Job& job, uint32_t count) noexcept {
    for (; count > 0 && add_helper(job); --count) {
    }
  }

  [[nodiscard]] int64_t spin_ns() const noexcept { return spin_ns_; }
  [[nodiscard]] uint32_t helpers_max() const noexcept { return helpers_max_; }
  [[nodiscard]] const RunObserver* observer() const noexcept { return observer_; }

 private:
  static constexpr uint32_t kCallerWaits = 1U << 31;
  static constexpr uint32_t kCount = kCallerWaits - 1;
  static constexpr uint32_t kPatience = 64;
  static constexpr int64_t kLimitedParkNs = 1'000'000;

  template <class T>
  using Atom = typename Platform::template Atom<T>;

  // False: somebody else has rung.
  bool ring() noexcept {
    if ((hunger_.fetch_and(~kCallerParked, std::memory_order_acq_rel) & kCallerParked) == 0) {
      return false;
    }
    bell_.fetch_add(1, std::memory_order_release);
    Platform::unpark(&bell_);
    return true;
  }

  [[gnu::noinline]] void feed(Job& job, uint32_t hunger) noexcept {
    if ((hunger & kCallerParked) != 0 && ring()) return;
    if (helpers_away() && !failed()) {
      // Where nobody is free, asking at every store would be dear.
      const uint32_t patience = patience_.load(std::memory_order_relaxed);
      if (patience != 0) return patience_.store(patience - 1, std::memory_order_relaxed);
      if (!add_helper(job)) patience_.store(kPatience, std::memory_order_relaxed);
    }
  }

  // Counted before the helper can come, so that `present` never runs below what is true.
  bool add_helper(Job& job) noexcept {
    // While there is no helper, the caller is the only one to write the word.
    if (present_.load(std::memory_order_relaxed) == 0) {
      present_.store(1, std::memory_order_relaxed);
      if (helpers_max_ > 0 && crew_->call(job)) return true;
    } else if (present_.fetch_add(1, std::memory_order_relaxed) < helpers_max_ &&
               crew_->call(job)) {
      return true;
    }
    present_.fetch_sub(1, std::memory_order_relaxed);
    return false;
  }

  // By the caller, with no helper present.
  template <class T>
  static void set(Atom<T>& word, T value) noexcept {
    if (word.load(std::memory_order_relaxed) != value) word.store(value, std::memory_order_relaxed);
  }

  const int64_t spin_ns_;
  Crew* crew_ = nullptr;
  uint32_t helpers_max_ = 0;
  RunControl control_;
  const RunObserver* observer_ = nullptr;

  alignas(64) Atom<uint64_t> failure_{0};
  Atom<uint32_t> hunger_{0};
  Atom<uint32_t> patience_{0};  // Announcements to let pass before helpers are called again.
  Atom<uint32_t> present_{0};
  Atom<uint32_t> bell_{0};
};

}  // namespace davit::mt_topo
