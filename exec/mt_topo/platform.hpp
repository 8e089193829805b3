// platform.hpp: the atomics, fences and waits that the scheduler is written against.
//
// Everything in this folder that two threads share is a template over a platform. RealThreads is
// the product; tests/exec/mt_topo/explorer.hpp has one whose every operation is a point where a
// chosen interleaving may switch threads. Nothing else may vary.
//
// Threads  Every function here may be called from any thread.
// Memory   No state but one flag, set before main().
#pragma once

#include <atomic>
#include <cstdint>

namespace davit::mt_topo {

struct RealThreads {
  template <class T>
  using Atom = std::atomic<T>;

  // One turn of a loop that waits for another thread.
  static void relax() noexcept { pause(); }

  // The two sides of "I store, then look whether you sleep" and "I say that I sleep, then look
  // again": at least one of them sees the other's store. light_fence() is on the hot side and costs
  // no instruction where the kernel has membarrier(2), whose cost heavy_fence() then bears.
  static void light_fence() noexcept {
    if (asymmetric_) {
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      full_fence();
    }
  }
  static void heavy_fence() noexcept;

  // Sleeps while word == expected, but not much longer than `timeout_ns` if that is not negative;
  // may return early.
  static void park(const std::atomic<uint32_t>& word, uint32_t expected,
                   int64_t timeout_ns = -1) noexcept;
  // Wakes all that sleep on word, which need not exist any more.
  static void unpark(const std::atomic<uint32_t>* word) noexcept;

  static int64_t now_ns() noexcept;

 private:
  static void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
  static void full_fence() noexcept;

  static const bool asymmetric_;
};

// Asks for a cache line that this thread is about to change: as its only owner, so that the change
// does not have to ask again. Compilers make a fetch to read of __builtin_prefetch(address, 1) for
// processors that might lack the other.
inline void fetch_to_write(const void* address) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

}  // namespace davit::mt_topo
