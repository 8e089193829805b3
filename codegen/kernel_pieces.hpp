// kernel_pieces.hpp: the reference kernels as text, in pieces that can be put together to one C
// file. The tables are made by codegen/amalgamate.py.
//
// Threads  Constant data.
// Memory   Static.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "davit/kernel.h"

namespace davit::codegen {

// A header, or a C file with what it includes several times. Everything in it has internal linkage,
// and all pieces may stand in one file, those that a piece uses among the headers before it.
struct KernelPiece {
  std::string_view name;    // "ops/kernels/shape.h", "gather"
  std::string_view target;  // The instruction set that it is compiled for; "" for the file's.
  std::vector<std::string_view> system_headers;  // "<math.h>"
  std::vector<size_t> uses;                      // Indices of pieces.
  std::string_view text;
};

// `DvtKernelTable dvt_kernels_<name>(void)` in its piece is the table of this program, too.
struct KernelFamily {
  std::string_view name;
  DvtKernelTable (*table)();
  size_t piece;
};

// Headers first, each after those that it includes.
const std::vector<KernelPiece>& kernel_pieces();
const std::vector<KernelFamily>& kernel_families();

}  // namespace davit::codegen
