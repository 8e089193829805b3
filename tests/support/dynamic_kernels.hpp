// dynamic_kernels.hpp: small kernels with shape functions, for tests of dynamic shapes and bodies,
// and images made of them.
//
//   dyn.Double  (a) -> b            f32, b = 2 a, same shape; pure
//   dyn.Add     (a, b) -> c         f32, one shape; pure
//   dyn.Shape   (a) -> i64[rank]    the dims of a; reads no data; pure
//   dyn.Take    (a, n) -> b         f32; the first n elements of a, n an i64 read on the host; pure
//   dyn.Keep    (a) -> b, i         f32, i64; the positive elements and where they were: the shapes
//                                   depend on data
//   dyn.Flat    (a) -> b            alias: a as one dimension
//   dyn.Halves  (a) -> b, c         f32; the first half of the elements, and the rest; pure
//   dyn.Less    (a, b) -> bool[]    first elements, f32 or i64; pure
//
// Threads  What they share is of the thread that runs them.
#pragma once

#include <atomic>
#include <cstdint>

#include "davit/kernel.h"

namespace davit::test {

DvtKernelTable dynamic_kernels();

// What the kernels do on this thread, and have done. Assign {} to start afresh.
struct DynamicControl {
  static constexpr uint32_t kNever = UINT32_MAX;
  uint32_t fail_run = kNever;    // Which call of a run() fails, from 0 ...
  uint32_t fail_infer = kNever;  // ... and of an infer().
  uint32_t runs_max = kNever;    // Ends loops of broken images.
  uint32_t runs = 0, infers = 0;
};
extern thread_local DynamicControl dynamic_control;

// Told by every run() before it computes, on any thread; what is not DVT_OK is the kernel's code.
// May throw. Null: nothing.
extern std::atomic<DvtCode (*)(const DvtContext* context)> dynamic_hook;

// Images of these kernels as text (docs/image.md).
//
// Dynamic shapes: shape nodes, heap values, a reference, outputs whose shapes depend on data.
//   y = 4 x, kept = the positive ones of the first `count` elements of 2 x, where = their indices,
//   dims = those of x
extern const char* const kDynamicSample;
// Branches and loops with dynamic values, nested, with captures.
//   state = go or deep ? 2 x : 4 x
//   for i in 0..trip, while more: sum = state + x; rows[i] = 2 sum; state = 4 sum; more = i < 2
//   y = 2 state, all = 2 rows
extern const char* const kFlowSample;

}  // namespace davit::test
