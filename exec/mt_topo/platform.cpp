#include "exec/mt_topo/platform.hpp"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace davit::mt_topo {
namespace {

bool register_membarrier() noexcept {
#if defined(__SANITIZE_THREAD__)
  return false;  // ThreadSanitizer does not know membarrier().
#else
  return ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
#endif
}

}  // namespace

const bool RealThreads::asymmetric_ = register_membarrier();

void RealThreads::full_fence() noexcept {
#if defined(__SANITIZE_THREAD__)
  // ThreadSanitizer does not know fences, and gcc refuses them. A locked operation is one on x86.
  static std::atomic<uint32_t> word{0};
  word.fetch_add(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

void RealThreads::heavy_fence() noexcept {
  if (asymmetric_) {
    ::syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
  } else {
    full_fence();
  }
}

void RealThreads::park(const std::atomic<uint32_t>& word, uint32_t expected,
                       int64_t timeout_ns) noexcept {
  const timespec timeout{static_cast<time_t>(timeout_ns / 1'000'000'000),
                         static_cast<long>(timeout_ns % 1'000'000'000)};
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, timeout_ns < 0 ? nullptr : &timeout,
            nullptr, 0);
}

void RealThreads::unpark(const std::atomic<uint32_t>* word) noexcept {
  ::syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

int64_t RealThreads::now_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace davit::mt_topo
