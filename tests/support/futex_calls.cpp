#include "tests/support/futex_calls.hpp"

#include <dlfcn.h>
#include <sys/syscall.h>

#include <atomic>
#include <cstdarg>
#include <cstdlib>

namespace {

std::atomic<uint64_t> calls{0};

using Syscall = long (*)(long, ...);

// Without a guarded static: who waits for one calls this.
Syscall next_syscall() {
  static std::atomic<Syscall> known{nullptr};
  Syscall next = known.load(std::memory_order_relaxed);
  if (next != nullptr) return next;
  next = reinterpret_cast<Syscall>(::dlsym(RTLD_NEXT, "syscall"));
  if (next == nullptr) std::abort();
  known.store(next, std::memory_order_relaxed);
  return next;
}

}  // namespace

// In place of the C library's.
extern "C" long syscall(long number, ...) noexcept {  // NOLINT(cert-dcl50-cpp)
  if (number == SYS_futex) calls.fetch_add(1, std::memory_order_relaxed);
  // As many arguments as any call has; who takes less does not look at the others.
  std::va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  return next_syscall()(number, arguments[0], arguments[1], arguments[2], arguments[3],
                        arguments[4], arguments[5]);
}

namespace davit::test {

uint64_t futex_calls() {
  return calls.load(std::memory_order_relaxed);
}

}  // namespace davit::test
