// dynamic_kernels.hpp: small kernels with shape functions, for tests of dynamic shapes and bodies.
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

}  // namespace davit::test
