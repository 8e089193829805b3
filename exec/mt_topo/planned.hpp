// planned.hpp: runs a plan. Parts are routines that whoever is free goes on with.
//
//   part word = [ epoch:32 | kTaken, kDone or the segment to go on with ]
//
//   (old, any)  --claim-->   (e, kTaken)     a part that nobody has touched in this epoch is free
//   (e, at)     --claim-->   (e, kTaken)
//   (e, kTaken) --give up--> (e, at)         at a segment whose flags are not all raised
//   (e, kTaken) --finish-->  (e, kDone)
//
// A worker whose part has to wait looks for another that can go on, and gives its own up for it:
// one worker can run all parts, and no part waits for a worker to come.
//
// Invariants
//   1  A part is run by the worker that claimed it last. Its steps happen in its order, also across
//      workers: give up is a release, claim an acquire of the same word.
//   2  flag == epoch means that the awaited position has run: raising is a release, looking an
//   acquire.
//      Flags of other epochs are down: starting a run costs nothing. At the wrap of the epoch all
//      words are cleared.
//
// Liveness: take the unfinished position that is first in an order that parts and waits agree with
// (check_plan() has found one). All that it waits for has run, so its flags are raised, and its
// part stands at it. Either a worker is running the part, or holds it and will look at the flags
// again, or the part is free. Workers sleep only when they have found no free part that can go on,
// and J2 of job.hpp wakes the caller for one that turns up. So somebody runs that position.
//
// Threads, Memory  As dynamic.hpp; 4 bytes per wait, 64 per part.
// Trust    The plan has passed check_plan().
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory_resource>

#include "base/resource.hpp"
#include "exec/mt_topo/job.hpp"
#include "exec/mt_topo/plan.hpp"

namespace davit::mt_topo {

template <class Platform>
class Planned final : public Job {
 public:
  // `workers` counts the caller.
  Planned(const Segments& segments, uint32_t workers, int64_t spin_ns,
          std::pmr::memory_resource& memory = *std::pmr::get_default_resource())
      : segments_(segments),
        workers_(std::min(workers, segments.parts())),
        state_(spin_ns),
        parts_(segments.parts(), memory),
        flags_(segments.flag_count(), memory) {}

  // `crew` may be null: the caller runs all parts. At most `helpers` come at a time.
  Outcome run(Crew* crew, uint32_t helpers, const RunControl& control,
              const RunObserver* observer) noexcept {
    start(crew, std::min(helpers, workers_ - 1), control, observer);
    state_.call_helpers(*this, state_.helpers_max());
    join_in(0);
    state_.gather(*this);
    return state_.outcome(done_.load(std::memory_order_relaxed) == done_at_);
  }

  void help(uint32_t worker) noexcept override {
    join_in(worker);
    state_.ring_caller();
    state_.depart();
  }

  // What nodes of the run in progress may ask.
  [[nodiscard]] const JobState<Platform>& state() const noexcept { return state_; }

  // For tests of the wrap.
  void set_epoch(uint32_t epoch) noexcept { epoch_ = epoch; }

 private:
  template <Loop kLoop>
  class Worker;

  struct Flag {
    typename Platform::template Atom<uint32_t> epoch{0};
  };
  struct alignas(64) Part {
    typename Platform::template Atom<uint64_t> word{0};
  };
  static constexpr uint32_t kTaken = UINT32_MAX;
  static constexpr uint32_t kDone = UINT32_MAX - 1;
  static constexpr uint32_t kNoPart = UINT32_MAX;

  void start(Crew* crew, uint32_t helpers, const RunControl& control,
             const RunObserver* observer) noexcept {
    if (state_.failed()) done_.store(done_at_, std::memory_order_relaxed);
    done_at_ += segments_.parts();
    if (++epoch_ == 0) {
      for (uint32_t i = 0; i < segments_.flag_count(); ++i) {
        flags_[i].epoch.store(0, std::memory_order_relaxed);
      }
      for (uint32_t i = 0; i < segments_.parts(); ++i) {
        parts_[i].word.store(0, std::memory_order_relaxed);
      }
      epoch_ = 1;
    }
    loop_ = observer != nullptr ? Loop::kObserved
            : control.limited() ? Loop::kLimited
                                : Loop::kPlain;
    state_.start(crew, helpers, control, observer);
  }

  void join_in(uint32_t worker) noexcept {
    switch (loop_) {
      case Loop::kPlain:
        return Worker<Loop::kPlain>(*this, worker).work();
      case Loop::kLimited:
        return Worker<Loop::kLimited>(*this, worker).work();
      case Loop::kObserved:
        return Worker<Loop::kObserved>(*this, worker).work();
    }
  }

  const Segments& segments_;
  const uint32_t workers_;
  uint32_t epoch_ = 0;
  uint32_t done_at_ = 0;  // What done_ is at the end of the run: it is never set back.
  Loop loop_ = Loop::kPlain;
  JobState<Platform> state_;
  ResourceArray<Part> parts_;
  ResourceArray<Flag> flags_;
  alignas(64) typename Platform::template Atom<uint32_t> done_{0};
};

template <class Platform>
template <Loop kLoop>
class Planned<Platform>::Worker {
 public:
  Worker(Planned& run, uint32_t index) noexcept
      : run_(run), segments_(run.segments_), index_(index), epoch_(run.epoch_) {}

  void work() noexcept {
    do {
      while (part_ != kNoPart || claim_one_that_can_go_on()) {
        if (!go_on()) return;
      }
    } while (wait());
  }

 private:
  // Runs the part until it is done or has had to wait. False: the run has failed.
  [[nodiscard]] bool go_on() noexcept {
    const uint32_t end = segments_.part_begin(part_ + 1);
    while (at_ != end) {
      if (!may_go_on()) return false;
      const Segment& segment = segments_.segment(at_);
      if (!raised(segment)) {
        if (!swap_part()) await(segment);
        return !run_.state_.failed();
      }
      if (!call(segment.begin, segment.end)) return false;
      raise(segment);
      ++at_;
    }
    finish_part();
    return true;
  }

  [[nodiscard]] bool may_go_on() noexcept {
    if constexpr (kLoop == Loop::kPlain) return !run_.state_.failed();
    return run_.state_.may_go_on();
  }

  [[nodiscard]] bool raised(const Segment& segment) const noexcept {
    for (uint32_t flag = segment.wait_begin; flag < segment.wait_end; ++flag) {
      if (run_.flags_[flag].epoch.load(std::memory_order_acquire) != epoch_) return false;
    }
    return true;
  }

  void raise(const Segment& segment) noexcept {
    if (segment.raise_begin == segment.raise_end) return;
    for (uint32_t i = segment.raise_begin; i < segment.raise_end; ++i) {
      run_.flags_[segments_.raised(i)].epoch.store(epoch_, std::memory_order_release);
    }
    run_.state_.announce(run_);
  }

  [[nodiscard]] bool call(uint32_t position, uint32_t end) noexcept;

  void finish_part() noexcept {
    store_part(kDone);
    run_.done_.fetch_add(1, std::memory_order_acq_rel);
  }
  void store_part(uint32_t state) noexcept {
    run_.parts_[part_].word.store(uint64_t{epoch_} << 32 | state, std::memory_order_release);
    part_ = kNoPart;
  }
  void give_up_part() noexcept {
    store_part(at_);
    run_.state_.announce(run_);
  }

  [[nodiscard]] bool all_done() const noexcept {
    return run_.done_.load(std::memory_order_acquire) == run_.done_at_;
  }

  // A free part that can go on: its segment, else kNoPart. `word` is what to claim it by.
  [[nodiscard]] uint32_t free_at(uint32_t part, uint64_t& word) const noexcept {
    word = run_.parts_[part].word.load(std::memory_order_acquire);
    uint32_t at = static_cast<uint32_t>(word);
    if (static_cast<uint32_t>(word >> 32) != epoch_) at = segments_.part_begin(part);
    if (at == kTaken || at == kDone) return kNoPart;
    if (at == segments_.part_begin(part + 1)) return at;  // An empty part.
    return raised(segments_.segment(at)) ? at : kNoPart;
  }

  // Starts with the part of its own number, so that memory stays where it was in the run before.
  [[nodiscard]] bool claim(uint32_t& claimed, uint32_t& at) noexcept {
    for (uint32_t i = 0; i < segments_.parts(); ++i) {
      const uint32_t part = (index_ + i) % segments_.parts();
      uint64_t word = 0;
      at = free_at(part, word);
      if (at == kNoPart) continue;
      if (run_.parts_[part].word.compare_exchange_strong(word, uint64_t{epoch_} << 32 | kTaken,
                                                         std::memory_order_acquire,
                                                         std::memory_order_relaxed)) {
        claimed = part;
        return true;
      }
    }
    return false;
  }
  [[nodiscard]] bool claim_one_that_can_go_on() noexcept {
    if (!claim(part_, at_)) return false;
    // A flag that several parts have waited for has called one helper.
    if (run_.state_.helpers_away() && one_can_go_on()) run_.state_.call_helpers(run_, 1);
    return true;
  }

  // Gives up a part that has to wait for one that can go on.
  [[nodiscard]] bool swap_part() noexcept {
    uint32_t part = kNoPart;
    uint32_t at = 0;
    if (!claim(part, at)) return false;
    give_up_part();
    part_ = part;
    at_ = at;
    return true;
  }

  // Keeps the part and waits for its flags, or for another part that can go on; gives it up at
  // last.
  void await(const Segment& segment) noexcept {
    const int64_t limit = run_.state_.spin_ns();
    int64_t start = 0;
    for (uint32_t turn = 1;; ++turn) {
      if (raised(segment)) return;
      if (turn % 8 == 0 && (!may_go_on() || swap_part())) return;
      if (turn % 32 == 0) {
        const int64_t now = Platform::now_ns();
        if (start == 0) start = now;
        if (now - start >= limit) break;
      }
      Platform::relax();
    }
    give_up_part();
  }

  [[nodiscard]] bool have_work() const noexcept {
    return all_done() || run_.state_.failed() || one_can_go_on();
  }
  [[nodiscard]] bool one_can_go_on() const noexcept {
    uint64_t word = 0;
    for (uint32_t part = 0; part < segments_.parts(); ++part) {
      if (free_at(part, word) != kNoPart) return true;
    }
    return false;
  }

  // Without a part. False: there is nothing more to do here.
  [[nodiscard]] bool wait() noexcept {
    const int64_t limit = Platform::now_ns() + run_.state_.spin_ns();
    for (uint32_t turn = 1;; ++turn) {
      // The words of parts are left with who runs them, but for a look now and then.
      if (all_done() || run_.state_.failed()) return false;
      if (turn % 8 == 1 && have_work()) return !all_done() && !run_.state_.failed();
      if (turn % 32 == 0) {
        if (!may_go_on()) return false;
        if (Platform::now_ns() >= limit) break;
      }
      Platform::relax();
    }
    const auto work_is_there = [&] { return have_work(); };
    if (index_ != 0) return !run_.state_.may_leave(work_is_there);
    run_.state_.park_caller(work_is_there);
    return true;
  }

  Planned& run_;
  const Segments& segments_;
  const uint32_t index_;
  const uint32_t epoch_;
  uint32_t part_ = kNoPart;
  uint32_t at_ = 0;
};

template <class Platform>
template <Loop kLoop>
bool Planned<Platform>::Worker<kLoop>::call(uint32_t position, uint32_t end) noexcept {
  const DvtStep* steps = segments_.steps();
  try {
    for (; position < end; ++position) {
      if constexpr (kLoop == Loop::kObserved) {
        const RunObserver& observer = *run_.state_.observer();
        observer.begin(observer.user, index_, segments_.node(position));
      }
      const int32_t code = steps[position].fn(steps[position].ctx);
      if constexpr (kLoop == Loop::kObserved) {
        const RunObserver& observer = *run_.state_.observer();
        observer.end(observer.user, index_, segments_.node(position), code);
      }
      if (code != DVT_OK) [[unlikely]] {
        run_.state_.fail(code, segments_.node(position));
        return false;
      }
      if constexpr (kLoop != Loop::kPlain) {
        // Not behind the last: a run whose nodes have all run has succeeded.
        if (position + 1 != end && !may_go_on()) return false;
      }
    }
  } catch (...) {
    run_.state_.fail(DVT_KERNEL_FAILED, segments_.node(position));
    return false;
  }
  return true;
}

}  // namespace davit::mt_topo
