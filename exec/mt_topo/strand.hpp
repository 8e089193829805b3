// strand.hpp: the memory lane: units that run one at a time, on whichever worker holds the strand.
//
//   word = kIdle | kHeld | head of a list of units that wait, linked through next[]
//
//   kIdle --enter(u)--> kHeld                 the caller holds the strand and runs u
//   kHeld --enter(u)--> u -> end              u waits; the holder will run it
//   v     --enter(u)--> u -> v -> ...
//   kHeld --leave----> kIdle
//   list  --leave----> kHeld                  the holder takes the whole list, oldest first
//
// No unit waits for a worker: with one worker the strand is always idle when it comes, and a unit
// that finds it held is run by the one who holds it, after what that one is doing now.
//
// Ordering
//   enter() releases, and leave() acquires when it takes the list: the holder sees what led to each
//   unit. leave() to kIdle releases, and the enter() that finds kIdle acquires: memory nodes see
//   those that ran before, wherever they ran. next[] is plain: written before the release of
//   enter(), read after the acquire of leave(). Only the holder removes, and it removes everything
//   at once: there is no ABA.
#pragma once

#include <cstdint>

namespace davit::mt_topo {

template <class Platform>
class Strand {
 public:
  static constexpr uint32_t kEnd = UINT32_MAX;

  // True: the caller holds the strand and runs the unit. `next` has an entry for every unit.
  [[nodiscard]] bool enter(uint32_t unit, uint32_t* next) noexcept {
    uint32_t word = word_.load(std::memory_order_relaxed);
    for (;;) {
      if (word == kIdle) {
        if (word_.compare_exchange_weak(word, kHeld, std::memory_order_acquire,
                                        std::memory_order_relaxed)) {
          return true;
        }
        continue;
      }
      next[unit] = word == kHeld ? kEnd : word;
      if (word_.compare_exchange_weak(word, unit, std::memory_order_release,
                                      std::memory_order_relaxed)) {
        return false;
      }
    }
  }

  // By the holder, when it has run what it knew of. Returns the units that have come meanwhile, as
  // a list from the oldest on, or kEnd when the strand is idle again.
  [[nodiscard]] uint32_t leave(uint32_t* next) noexcept {
    uint32_t word = kHeld;
    if (word_.compare_exchange_strong(word, kIdle, std::memory_order_release,
                                      std::memory_order_relaxed)) {
      return kEnd;
    }
    word = word_.exchange(kHeld, std::memory_order_acquire);
    uint32_t oldest = kEnd;
    while (word != kEnd) {
      const uint32_t newer = word;
      word = next[newer];
      next[newer] = oldest;
      oldest = newer;
    }
    return oldest;
  }

  // By one thread, with no run in progress: a failed run leaves units behind.
  void clear() noexcept { word_.store(kIdle, std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kIdle = UINT32_MAX - 1;
  static constexpr uint32_t kHeld = UINT32_MAX - 2;

  typename Platform::template Atom<uint32_t> word_{kIdle};
};

}  // namespace davit::mt_topo
