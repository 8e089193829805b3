// join.hpp: counts the arrivals a unit waits for, and finds the one that came last, once per epoch.
//
//   word = [ epoch:32 | pending:32 ]
//
//   (old, any)  --first arrival of k--> (e, indegree - k)
//   (e, p)      --arrival of k-->       (e, p - k)            p > k
//   (e, k)      --arrival of k-->       unchanged             the caller owns the unit
//
// Invariants
//   1  pending = indegree minus the arrivals of this epoch, all of which have finished their
//   source. 2  Each arc arrives once per epoch. So exactly one arrival finds pending == k, and it
//   needs no
//      write: nobody else will look at the word in this epoch.
//   3  A word of another epoch means that nobody has arrived: starting a run costs nothing. The
//   epoch
//      wraps after 2^32 - 1 runs; the scheduler then clears all words (Dynamic::start()).
//
// Ordering
//   arrive() is an acq_rel read-modify-write, or an acquire load when it is the last. All writes of
//   an epoch are read-modify-writes of one word, so a load of the last one synchronises with each
//   of them: the owner sees what every source has done. arrive_alone() is for a worker that nobody
//   else arrives beside; what it did is published by Mailbox::publish() before anybody can.
#pragma once

#include <cstdint>

namespace davit::mt_topo {

template <class Platform>
class Join {
 public:
  explicit Join(uint32_t indegree = 0) noexcept : indegree_(indegree) {}

  // True: the caller owns the unit. `count` arcs arrive at once.
  [[nodiscard]] bool arrive(uint32_t epoch, uint32_t count) noexcept {
    uint64_t word = word_.load(std::memory_order_acquire);
    while (epoch_of(word) != epoch) {
      if (indegree_ == count) return true;
      if (word_.compare_exchange_weak(word, pack(epoch, indegree_ - count),
                                      std::memory_order_acq_rel, std::memory_order_acquire)) {
        return false;
      }
    }
    if (pending_of(word) == count) return true;
    return pending_of(word_.fetch_sub(count, std::memory_order_acq_rel)) == count;
  }

  [[nodiscard]] bool arrive_alone(uint32_t epoch, uint32_t count) noexcept {
    const uint64_t word = word_.load(std::memory_order_relaxed);
    const uint32_t pending = epoch_of(word) == epoch ? pending_of(word) : indegree_;
    if (pending == count) return true;
    word_.store(pack(epoch, pending - count), std::memory_order_relaxed);
    return false;
  }

  // By one thread, with no run in progress.
  void clear() noexcept { word_.store(0, std::memory_order_relaxed); }

 private:
  static uint32_t epoch_of(uint64_t word) noexcept { return static_cast<uint32_t>(word >> 32); }
  static uint32_t pending_of(uint64_t word) noexcept { return static_cast<uint32_t>(word); }
  static uint64_t pack(uint32_t epoch, uint32_t pending) noexcept {
    return uint64_t{epoch} << 32 | pending;
  }

  typename Platform::template Atom<uint64_t> word_{0};
  uint32_t indegree_;
};

}  // namespace davit::mt_topo
