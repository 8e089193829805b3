// crew_slots.hpp: helpers between jobs: who is free, who is called, who comes.
//
//   slot = kAsleep | kAttended | a job | kBusy
//
//   kAsleep   --call-->     job       and a thread is sent for
//   kAttended --call-->     job       a thread spins on the slot, or is on its way
//   job       --come-->     kBusy     the thread runs job.help(), then kAttended again
//   job       --dismiss-->  kAttended
//   kAttended --spun out--> kAsleep   the thread goes back to where it came from
//
// Invariants
//   1  At most one thread attends a slot: it is sent for at kAsleep -> job only, and only it leads
//      from there to kAsleep again.
//   2  A called job is either come to or dismissed, never both: each is a compare-and-swap from it.
//
// Ordering
//   call releases, come acquires: the helper sees the job as its caller has prepared it.
//
// Threads  call() and dismiss() by any thread, attend(i) by one thread for each i.
// Memory   One line per slot. A job outlives its calls (job.hpp, J1).
#pragma once

#include <cstdint>
#include <memory>

#include "exec/mt_topo/job.hpp"
#include "exec/mt_topo/platform.hpp"

namespace davit::mt_topo {

template <class Platform>
class CrewSlots : public Crew {
 public:
  CrewSlots(uint32_t helpers, int64_t spin_ns)
      : slots_(new Slot[helpers]), count_(helpers), spin_ns_(spin_ns) {}
  virtual ~CrewSlots() = default;

  bool call(Job& job) noexcept override {
    const auto word = reinterpret_cast<uintptr_t>(&job);
    for (uint32_t i = 0; i < count_; ++i) {
      // Without a look before: who attends the slot looks at it all the time, and the line would
      // come twice.
      uintptr_t expected = kAttended;
      if (slots_[i].word.compare_exchange_strong(expected, word, std::memory_order_acq_rel,
                                                 std::memory_order_relaxed)) {
        return true;
      }
    }
    for (uint32_t i = 0; i < count_; ++i) {
      if (!replace(i, kAsleep, word)) continue;
      if (send_thread(i)) return true;
      // The job may have been dismissed meanwhile; then it has been told so, and counts as called.
      return slots_[i].word.exchange(kAsleep, std::memory_order_relaxed) != word;
    }
    return false;
  }

  uint32_t dismiss(Job& job) noexcept override {
    uint32_t dismissed = 0;
    for (uint32_t i = 0; i < count_; ++i) {
      if (replace(i, reinterpret_cast<uintptr_t>(&job), kAttended)) ++dismissed;
    }
    return dismissed;
  }

  // The helper's loop. Returns when nobody has called for the spin budget, or after stop().
  void attend(uint32_t index) noexcept {
    Slot& slot = slots_[index];
    int64_t limit = Platform::now_ns() + spin_ns_;
    for (uint32_t turn = 1;; ++turn) {
      // As the line's only owner: to come takes a locked operation, and who calls takes the line.
      fetch_to_write(&slot.word);
      const uintptr_t word = slot.word.load(std::memory_order_relaxed);
      if (word > kBusy) {
        // The job's first lines come over while the slot is fought for.
        for (uintptr_t line = 0; line < 4; ++line) {
          __builtin_prefetch(reinterpret_cast<const char*>(word) + 64 * line);
        }
        if (!replace(index, word, kBusy)) continue;
        reinterpret_cast<Job*>(word)->help(index + 1);
        slot.word.store(kAttended, std::memory_order_release);
        limit = Platform::now_ns() + spin_ns_;
        turn = 0;
        continue;
      }
      if (turn % 32 == 0 &&
          (stopped_.load(std::memory_order_relaxed) != 0 || Platform::now_ns() >= limit)) {
        if (replace(index, kAttended, kAsleep)) return;
      }
      Platform::relax();
    }
  }

  // Threads that attend leave soon; nobody may call any more.
  void stop() noexcept { stopped_.store(1, std::memory_order_relaxed); }
  [[nodiscard]] uint32_t count() const noexcept { return count_; }

 protected:
  // Makes a thread call attend(index), at any time from now on. False: there is none to be had.
  virtual bool send_thread(uint32_t index) noexcept = 0;

 private:
  enum : uintptr_t { kAsleep = 0, kAttended = 1, kBusy = 2 };
  struct alignas(64) Slot {
    typename Platform::template Atom<uintptr_t> word{kAsleep};
  };

  bool replace(uint32_t index, uintptr_t from, uintptr_t to) noexcept {
    auto& word = slots_[index].word;
    return word.load(std::memory_order_relaxed) == from &&
           word.compare_exchange_strong(from, to, std::memory_order_acq_rel,
                                        std::memory_order_relaxed);
  }

  std::unique_ptr<Slot[]> slots_;
  uint32_t count_;
  int64_t spin_ns_;
  typename Platform::template Atom<uint32_t> stopped_{0};
};

}  // namespace davit::mt_topo
