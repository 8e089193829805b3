// futex_calls.hpp: counts the futex calls that go through syscall(2), as those of the scheduler's
// platform (exec/mt_topo/platform.cpp) and of oneTBB do. A program that is linked with it has its
// own syscall(); what glibc itself waits with is not counted.
//
// Threads  Any.
// Memory   One counter.
#pragma once

#include <cstdint>

namespace davit::test {

// So far, by all threads of the process.
uint64_t futex_calls();

}  // namespace davit::test
