// dynamic.hpp: runs units as they become ready, on whoever is free.
//
// A worker takes from a queue of its own, oldest first, which follows the order of the image and
// keeps neighbours in the cache. Nothing in it is shared. When it has enough to spare it lays a
// batch out in its mailbox, where others take it. Until the caller first does so, it is alone, and
// no operation of the run is a locked one: a graph without width runs like the sequential loop, and
// calls nobody.
//
// Invariants
//   1  A unit is queued once per run: by the one whose arrival was the last (join.hpp), or as a
//      root; and again by the one who has called it and found that it suspends itself. So a queue
//      of as many entries as units never overflows.
//   2  Queues are empty when a worker waits or leaves; so what is ready is in a mailbox, in the
//      strand's list (whose holder is awake), or in the queue of a worker that is awake.
//   3  done = units finished by workers, reported when their queue is empty. It has
//      grown by unit_count exactly when all have run, because invariant 2 leaves nothing
//      unreported.
//
// Liveness: let a unit be ready and unfinished, and not suspended. By 2 it is with an awake worker,
// or in a mailbox whose owner is awake or has gone; an owner takes its own mailbox before it waits.
// So no ready unit is ever only with sleepers. If none is ready, some unit is running, or all are
// done (the graph is acyclic).
//
// Threads  One run at a time; see job.hpp for helpers.
// Trust    The topology is checked.
// Memory   Everything is allocated by the constructor, out of the resource that it is given:
//          16 bytes per unit, and 4 bytes per unit and worker that is touched only as far as it is
//          used; 8 more per unit where nodes may suspend. A run allocates nothing.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory_resource>
#include <new>
#include <span>
#include <utility>

#include "base/resource.hpp"
#include "exec/mt_topo/job.hpp"
#include "exec/mt_topo/join.hpp"
#include "exec/mt_topo/mailbox.hpp"
#include "exec/mt_topo/platform.hpp"
#include "exec/mt_topo/strand.hpp"
#include "exec/mt_topo/topology.hpp"

namespace davit::mt_topo {

template <class Platform>
class Dynamic final : public Job {
 public:
  // `workers` counts the caller, and everybody whom a crew may send.
  Dynamic(const Topology& topology, uint32_t workers, int64_t spin_ns,
          std::pmr::memory_resource& memory = *std::pmr::get_default_resource())
      : topology_(topology),
        workers_(workers),
        ring_size_(std::bit_ceil(std::max(topology.unit_count(), 2U))),
        state_(spin_ns),
        joins_(topology.unit_count(), memory),
        mailboxes_(workers, memory),
        rings_(size_t{ring_size_} * workers, memory),
        strand_next_(topology.unit_count(), memory),
        pauses_(Pauses::zeroed(topology.may_suspend() ? topology.unit_count() : 0, memory)) {
    for (uint32_t unit = 0; unit < topology.unit_count(); ++unit) {
      joins_[unit].~Join();
      new (&joins_[unit]) Join<Platform>(topology.indegree(unit));
    }
  }

  // `crew` may be null: the caller runs all. At most `helpers` come at a time. `batch_min`: units
  // that a worker must have in its queue before it lays any out, so that a hand-over pays; 0: each
  // unit takes so long that none may wait behind another while somebody is free.
  Outcome run(Crew* crew, uint32_t helpers, const RunControl& control, const RunObserver* observer,
              uint32_t batch_min) noexcept {
    start(crew, std::min(helpers, workers_ - 1), control, observer, batch_min);
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

  // Where a unit of the memory lane that has been suspended goes on; handed over with the unit.
  struct Pause {
    uint32_t epoch;
    uint32_t position;
  };
  using Pauses = ResourceArray<Pause>;

  void start(Crew* crew, uint32_t helpers, const RunControl& control, const RunObserver* observer,
             uint32_t batch_min) noexcept {
    if (++epoch_ == 0) {
      std::fill_n(pauses_.get(), pauses_.size(), Pause{});
      for (uint32_t unit = 0; unit < topology_.unit_count(); ++unit) joins_[unit].clear();
      epoch_ = 1;
    }
    batch_min_ = crew == nullptr || helpers == 0 ? UINT32_MAX : batch_min;
    loop_ = observer != nullptr ? Loop::kObserved
            : control.limited() ? Loop::kLimited
                                : Loop::kPlain;
    if (state_.failed()) clear_shared();
    done_at_ += topology_.unit_count();
    state_.start(crew, helpers, control, observer);
  }

  // What a run that has succeeded leaves as it was.
  void clear_shared() noexcept {
    for (uint32_t worker = 0; worker < workers_; ++worker) mailboxes_[worker].clear();
    strand_.clear();
    done_.store(done_at_, std::memory_order_relaxed);
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

  const Topology& topology_;
  const uint32_t workers_;
  const uint32_t ring_size_;
  uint32_t epoch_ = 0;
  uint32_t batch_min_ = 1;
  uint32_t done_at_ = 0;  // What done_ is at the end of the run: it is never set back.
  Loop loop_ = Loop::kPlain;
  JobState<Platform> state_;
  ResourceArray<Join<Platform>> joins_;
  ResourceArray<Mailbox<Platform>> mailboxes_;
  ResourceArray<uint32_t> rings_;
  ResourceArray<uint32_t> strand_next_;
  Pauses pauses_;  // Empty unless nodes may suspend.
  alignas(64) Strand<Platform> strand_;
  alignas(64) typename Platform::template Atom<uint32_t> done_{0};
};

// One participant, for as long as it takes part. Lives on its stack.
template <class Platform>
template <Loop kLoop>
class Dynamic<Platform>::Worker {
 public:
  Worker(Dynamic& run, uint32_t index) noexcept
      : run_(run),
        topology_(run.topology_),
        steps_(topology_.steps()),
        begin_(topology_.begin()),
        arc_begin_(topology_.arc_begin()),
        arcs_(topology_.arcs()),
        joins_(run.joins_.get()),
        ring_(run.rings_.get() + size_t{index} * run.ring_size_),
        mask_(run.ring_size_ - 1),
        pauses_(run.pauses_.size() == 0 ? nullptr : run.pauses_.get()),
        index_(index),
        epoch_(run.epoch_),
        batch_min_(run.batch_min_),
        large_(topology_.unit_count() >= kLarge),
        alone_(index == 0),
        roots_left_(index == 0 ? topology_.roots() : std::span<const uint32_t>()) {}

  void work() noexcept {
    // A helper has been called because there is something to take.
    if (index_ != 0) (void)steal();
    for (;;) {
      drain();
      if (run_.state_.failed()) {
        (void)report();  // All nodes may have run all the same.
        return;
      }
      if (refill() || send_held() || take_from(index_)) continue;
      if (report()) return;
      if (!steal() && !wait()) return;
    }
  }

 private:
  static constexpr uint32_t kRootBatch = 256;
  // Units whose words, steps and contexts fill about 1 MiB.
  static constexpr uint32_t kLarge = 8192;
  // How far ahead of the order of the image units run where many are ready at once, and more.
  static constexpr uint32_t kUnitsAhead = 384;
  static constexpr uint32_t kTablesAhead = kUnitsAhead + 64;

  void drain() noexcept {
    if (alone_ && pauses_ == nullptr) drain_alone();
    while (head_ != tail_) {
      if (!may_go_on()) return;
      const uint32_t item = ring_[head_++ & mask_];
      if (held_count_ != 0 && !feeds_held(item)) (void)send_held();
      if (tail_ - head_ >= std::max(batch_min_, 1U) && turns_in_vain_ == 0) lay_out();
      run_item(item);
    }
  }

  // The same until there is enough to lay out, with nothing shared to look at: two thirds of the
  // instructions.
  void drain_alone() noexcept {
    const uint32_t most = std::max(batch_min_, 1U);
    uint32_t head = head_;
    uint32_t tail = tail_;
    uint32_t finished = 0;
    while (head != tail && tail - head <= most) {
      if constexpr (kLoop != Loop::kPlain) {
        if (!may_go_on()) break;
      }
      const uint32_t unit = ring_[head++ & mask_] & kUnitMask;
      if (large_) fetch_in_order(unit);
      const uint32_t* arc = arcs_ + arc_begin_[unit];
      const uint32_t* const end = arcs_ + arc_begin_[unit + 1];
      if (!call(begin_[unit], begin_[unit + 1])) break;
      ++finished;
      for (; arc != end; ++arc) {
        const bool sole = (*arc & kSole) != 0;
        if (sole || joins_[*arc & kUnitMask].arrive_alone(epoch_, 1)) ring_[tail++ & mask_] = *arc;
      }
    }
    head_ = head;
    tail_ = tail;
    finished_ += finished;
  }

  [[nodiscard]] bool may_go_on() noexcept {
    if constexpr (kLoop == Loop::kPlain) return !run_.state_.failed();
    return run_.state_.may_go_on();
  }

  void push(uint32_t item) noexcept { ring_[tail_++ & mask_] = item; }

  // Roots enter the queue a few at a time, so that starting a run costs no more.
  [[nodiscard]] bool refill() noexcept {
    const size_t count = std::min<size_t>(roots_left_.size(), kRootBatch);
    for (size_t i = 0; i < count; ++i) push(roots_left_[i]);
    roots_left_ = roots_left_.subspan(count);
    return count > 0;
  }

  // The half of the queue that this worker would come to last; where units take long, all.
  void lay_out() noexcept {
    Mailbox<Platform>& mailbox = run_.mailboxes_[index_];
    if (mailbox.empty()) {
      const uint32_t queued = tail_ - head_;
      const uint32_t count =
          std::min(batch_min_ == 0 ? queued : (queued + 1) / 2, Mailbox<Platform>::kItems);
      tail_ -= count;
      alone_ = false;
      mailbox.publish(count, [&](uint32_t i) { return ring_[(tail_ + i) & mask_]; });
      run_.state_.announce(run_);
    } else if (head_ % 16 == 0 && run_.state_.helpers_away()) {
      run_.state_.call_helpers(run_, 1);
    }
  }

  void run_item(uint32_t item) noexcept {
    const uint32_t unit = item & kUnitMask;
    if ((item & kMemory) == 0 || alone_) {
      (void)run_unit(unit);
      return;
    }
    uint32_t* next = run_.strand_next_.get();
    if (!run_.strand_.enter(unit, next)) return;
    if (!run_unit(unit)) return;
    for (uint32_t waiting; (waiting = run_.strand_.leave(next)) != Strand<Platform>::kEnd;) {
      while (waiting != Strand<Platform>::kEnd) {
        const uint32_t then = next[waiting];
        if (!may_go_on() || !run_unit(waiting)) return;
        waiting = then;
      }
    }
  }

  // False: the run has failed, and the strand, if held, stays so until the next start().
  [[nodiscard]] bool run_unit(uint32_t unit) noexcept {
    const uint32_t* arc = arcs_ + arc_begin_[unit];
    const uint32_t* const end = arcs_ + arc_begin_[unit + 1];
    if (large_ && alone_) {
      fetch_in_order(unit);
    } else if (large_) {
      fetch_ahead(arc, end);
    }
    uint32_t position = begin_[unit];
    if (pauses_ != nullptr && pauses_[unit].epoch == epoch_) position = pauses_[unit].position;
    if (!call(position, begin_[unit + 1])) {
      if (suspended_at_ == kNoNode) return false;
      put_back(unit);
      return true;
    }
    ++finished_;
    turns_in_vain_ = 0;
    for (; arc != end; ++arc) arrive(*arc);
    return true;
  }

  // A suspended unit waits at the end of the queue; what it waits for is in front of it, or with
  // another worker that is awake. Nothing is laid out until a unit has finished: what this worker
  // takes back from its mailbox it must come to itself, for nobody else may be there.
  void put_back(uint32_t unit) noexcept {
    pauses_[unit] = {epoch_, std::exchange(suspended_at_, kNoNode)};
    push(unit | kMemory);
    // While all that is queued is suspended, look wherever work may be.
    if (++turns_in_vain_ < tail_ - head_) return;
    if (!refill() && !send_held() && !take_from(index_) && !steal()) Platform::relax();
  }

  // The lines that the arrivals of this unit and the body of the next will touch, where they do not
  // fit the cache: this unit's body hides the way.
  void fetch_ahead(const uint32_t* arc, const uint32_t* end) const noexcept {
    for (const uint32_t* const few = std::min(end, arc + 4); arc < few; ++arc) {
      fetch_to_write(&joins_[*arc & kUnitMask]);
    }
    if (head_ != tail_) {
      fetch_to_write(steps_[begin_[ring_[head_ & mask_] & kUnitMask]].ctx);
    }
  }

  // The same while nobody else takes part: units run near their order, so each asks for the one
  // some way behind it, and all lines are asked for once, whatever the queue holds meanwhile.
  void fetch_in_order(uint32_t unit) const noexcept {
    const uint32_t tables = unit + kTablesAhead;
    if (tables >= topology_.unit_count()) return;
    __builtin_prefetch(&begin_[tables]);
    __builtin_prefetch(&arc_begin_[tables]);
    __builtin_prefetch(&steps_[begin_[tables]]);
    const uint32_t next = unit + kUnitsAhead;
    __builtin_prefetch(&arcs_[arc_begin_[next]]);
    fetch_to_write(&joins_[next]);
    fetch_to_write(steps_[begin_[next]].ctx);
  }

  // False: the run has failed, or a node has suspended itself (suspended_at_).
  [[nodiscard]] bool call(uint32_t position, uint32_t end) noexcept {
    try {
      for (; position < end; ++position) {
        if constexpr (kLoop == Loop::kObserved) {
          const RunObserver& observer = *run_.state_.observer();
          observer.begin(observer.user, index_, topology_.node(position));
        }
        const int32_t code = steps_[position].fn(steps_[position].ctx);
        if (code == DVT_STEP_SUSPENDED && pauses_ != nullptr) [[unlikely]] {
          suspended_at_ = position;
          return false;
        }
        if constexpr (kLoop == Loop::kObserved) {
          const RunObserver& observer = *run_.state_.observer();
          observer.end(observer.user, index_, topology_.node(position), code);
        }
        if (code != DVT_OK) [[unlikely]] {
          run_.state_.fail(code, topology_.node(position));
          return false;
        }
        if constexpr (kLoop != Loop::kPlain) {
          // Not behind the last: a run whose nodes have all run has succeeded.
          if (position + 1 != end && !may_go_on()) return false;
        }
      }
    } catch (...) {
      run_.state_.fail(DVT_KERNEL_FAILED, topology_.node(position));
      return false;
    }
    return true;
  }

  void arrive(uint32_t arc) noexcept {
    if ((arc & kSole) != 0) {
      push(arc);
    } else if ((arc & kWide) != 0) {
      hold(arc);
    } else {
      arrive(arc, 1);
    }
  }

  void arrive(uint32_t arc, uint32_t count) noexcept {
    Join<Platform>& join = joins_[arc & kUnitMask];
    if (alone_ ? join.arrive_alone(epoch_, count) : join.arrive(epoch_, count)) push(arc);
  }

  // Arrivals at one wide target are sent together. They are held only while the next unit of the
  // queue will arrive there too, so that the target could not start any earlier.
  void hold(uint32_t arc) noexcept {
    if (held_count_ != 0 && held_ != arc) (void)send_held();
    held_ = arc;
    ++held_count_;
  }
  [[nodiscard]] bool feeds_held(uint32_t item) const noexcept {
    const uint32_t unit = item & kUnitMask;
    return arc_begin_[unit] != arc_begin_[unit + 1] && arcs_[arc_begin_[unit]] == held_;
  }
  [[nodiscard]] bool send_held() noexcept {
    if (held_count_ == 0) return false;
    arrive(held_, std::exchange(held_count_, 0));
    return head_ != tail_;
  }

  [[nodiscard]] bool take_from(uint32_t worker) noexcept {
    using Taken = typename Mailbox<Platform>::Taken;
    const Taken taken =
        run_.mailboxes_[worker].take(batch_min_ == 0, [&](uint32_t item) { push(item); });
    if (taken == Taken::kSome) run_.state_.announce(run_);
    return taken != Taken::kNothing;
  }
  [[nodiscard]] bool steal() noexcept {
    for (uint32_t i = 1; i < run_.workers_; ++i) {
      if (take_from((index_ + i) % run_.workers_)) return true;
    }
    return false;
  }

  // Release: what this worker did; acquire, in all_done(): what all did.
  [[nodiscard]] bool report() noexcept {
    if (finished_ != 0) {
      run_.done_.fetch_add(std::exchange(finished_, 0), std::memory_order_acq_rel);
    }
    return all_done();
  }
  [[nodiscard]] bool all_done() const noexcept {
    return run_.done_.load(std::memory_order_acquire) == run_.done_at_;
  }
  [[nodiscard]] bool have_work() const noexcept {
    if (all_done() || run_.state_.failed()) return true;
    for (uint32_t worker = 0; worker < run_.workers_; ++worker) {
      if (run_.mailboxes_[worker].full()) return true;
    }
    return false;
  }

  // False: this worker has nothing more to do here.
  [[nodiscard]] bool wait() noexcept {
    const int64_t limit = Platform::now_ns() + run_.state_.spin_ns();
    for (uint32_t turn = 1;; ++turn) {
      if (have_work()) return !all_done() && !run_.state_.failed();
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

  Dynamic& run_;
  const Topology& topology_;
  const DvtStep* const steps_;
  const uint32_t* const begin_;
  const uint32_t* const arc_begin_;
  const uint32_t* const arcs_;
  Join<Platform>* const joins_;
  uint32_t* const ring_;
  const uint32_t mask_;
  Pause* const pauses_;
  const uint32_t index_;
  const uint32_t epoch_;
  const uint32_t batch_min_;
  uint32_t head_ = 0;
  uint32_t tail_ = 0;
  uint32_t held_ = 0;
  uint32_t held_count_ = 0;
  uint32_t finished_ = 0;
  uint32_t suspended_at_ = kNoNode;
  uint32_t turns_in_vain_ = 0;  // Units put back since one has finished.
  const bool large_;
  bool alone_;  // Nothing of this run has been laid out yet.
  std::span<const uint32_t> roots_left_;
};

}  // namespace davit::mt_topo
