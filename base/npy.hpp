// npy.hpp: NumPy's .npy files, versions 1 to 3: tensors on disk for people and tests.
//
// Threads  Functions are pure but for files.
// Trust    Files are untrusted: every extent is checked against the bytes that are there, so that
//          no header makes a reader allocate more than the file holds.
// Memory   Arrays own their bytes, aligned for any element type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "davit/types.h"

namespace davit {

// A dense row-major tensor. Invariant: bytes.size() == product(dims) * element size.
struct NpyArray {
  DvtDType dtype = DVT_DTYPE_NONE;
  std::vector<int64_t> dims;  // Empty for a scalar.
  std::vector<std::byte> bytes;
};

// Parses the content of a file. Refuses big-endian, structured, object and (above rank 1)
// Fortran-ordered arrays; bfloat16 is not part of the format. `name` stands for the file in errors.
Result<NpyArray> parse_npy(std::span<const std::byte> content, const std::string& name);
Result<NpyArray> read_npy(const std::string& path);

// The inverse: version 1.0, data at a multiple of 64. bfloat16 and strings are refused.
Result<std::vector<std::byte>> format_npy(DvtDType dtype, std::span<const int64_t> dims,
                                          std::span<const std::byte> bytes);

}  // namespace davit
