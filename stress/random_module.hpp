// random_module.hpp: random models of matrices of one shape, with branches and loops if wanted.
//
//   inputs   a, b    f32[rows, columns]
//            go      bool[]     what branches ask, and loops
//            trip    i64[]      how often loops run
//            index   i64[1]     of a row that some nodes take: one out of range fails them
//   output   f32[rows, columns]
//
// Bodies use values of the graphs around them and of their own, hand on what they are given, or
// hold branches and loops themselves. Some loops collect what nobody reads.
//
// Threads  Any, each with a Random of its own.
// Memory   Returns an owned module.
#pragma once

#include <cstdint>

#include "ir/module.hpp"
#include "stress/program.hpp"

namespace davit::stress {

// In this order.
enum class ModelInput : uint32_t { kA, kB, kGo, kTrip, kIndex };

struct ModelOptions {
  int64_t rows = -1;  // Less than 0: known at run time only.
  int64_t columns = 6;
  uint32_t flows = 0;           // Branches and loops, those in bodies not counted.
  bool takes_by_index = false;  // Whether nodes ask for `index`.
};

ir::Module random_module(Random& random, const ModelOptions& options);

}  // namespace davit::stress
