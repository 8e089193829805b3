// mailbox.hpp: where a worker lays out what others may take.
//
//   Empty  --publish, by the owner-->  Full  --take, by anybody-->  Taken  --items read-->  Empty
//                                        ^--------------------------  some are left  --'
//
// A worker keeps what is ready in a queue of its own, which costs no atomic operation, and one
// batch of it here. A batch changes hands for one transfer of a line or two, however many items it
// holds. Where items take long, who takes leaves half of them to others.
//
// Ordering
//   Full is stored with release, after the items; the one who takes acquires it: sees the items and
//   all that the owner did before. Who leaves some stores it with release again, and has acquired.
//   Empty is stored with release, after the items have been read; the owner acquires it before it
//   overwrites them.
#pragma once

#include <atomic>
#include <cstdint>

namespace davit::mt_topo {

template <class Platform>
class alignas(64) Mailbox {
 public:
  static constexpr uint32_t kItems = 62;

  // By the owner.
  [[nodiscard]] bool empty() const noexcept {
    return state_.load(std::memory_order_acquire) == kEmpty;
  }
  // By anybody, as a hint.
  [[nodiscard]] bool full() const noexcept {
    return state_.load(std::memory_order_relaxed) == kFull;
  }

  // By the owner, when empty(). Calls next() `count` times for the items; at most kItems.
  template <class Next>
  void publish(uint32_t count, const Next& next) noexcept {
    count_ = count;
    for (uint32_t i = 0; i < count; ++i) items_[i] = next(i);
    state_.store(kFull, std::memory_order_release);
  }

  enum class Taken { kNothing, kAll, kSome };

  // Gives all items to put(), or, when half will do, the later half.
  template <class Put>
  [[nodiscard]] Taken take(bool half, const Put& put) noexcept {
    uint32_t expected = kFull;
    if (!full() || !state_.compare_exchange_strong(expected, kTaken, std::memory_order_acquire,
                                                   std::memory_order_relaxed)) {
      return Taken::kNothing;
    }
    const uint32_t left = half ? count_ / 2 : 0;
    for (uint32_t i = left; i < count_; ++i) put(items_[i]);
    count_ = left;
    state_.store(left == 0 ? kEmpty : kFull, std::memory_order_release);
    return left == 0 ? Taken::kAll : Taken::kSome;
  }

  // By one thread, with no run in progress: a failed run leaves items behind.
  void clear() noexcept { state_.store(kEmpty, std::memory_order_relaxed); }

 private:
  enum : uint32_t { kEmpty, kFull, kTaken };

  typename Platform::template Atom<uint32_t> state_{kEmpty};
  uint32_t count_ = 0;
  uint32_t items_[kItems] = {};
};

}  // namespace davit::mt_topo
