// planes.hpp: the input of a convolution, with its pads, as planes in which each tap of the window
// is at a constant distance: position p of the result reads plane[p + distance]. With a stride of s
// along an axis, positions that are equal modulo s form a plane of their own (a phase).
//
//   stride 2, pad 1:   row  . a b c d e .   ->   phase 0: . b d .   phase 1: a c e .
//
// Threads  Pure functions.
// Memory   A geometry owns its tables.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ops/kernels/window.h"

namespace davit::codegen {

using Axes = std::array<int64_t, DVT_SPATIAL_MAX>;

int64_t volume(const Axes& axes);

struct Geometry {
  Axes extent{};                   // Of a plane.
  std::vector<Axes> phases;        // Those that taps read.
  std::vector<int64_t> distances;  // Of each tap, from a channel's first plane.
  int64_t channel = 0;             // Floats of a channel's planes.
  int64_t positions = 0;           // From the first of the result to the last.
  bool is_input = false;           // The planes are the input itself.
  bool is_dense = false;           // Positions of planes and result are the same.

  explicit Geometry(const DvtWindow& window);

 private:
  void add_tap(const DvtWindow& window, const Axes& tap);
};

// `<symbol>_taps`: a table of the distances.
std::string emit_taps(const Geometry& geometry, const std::string& symbol);

// `<symbol>_fill(x, to)`: the planes of so many channels, one after the other.
std::string emit_fill(const DvtWindow& window, const Geometry& geometry, int64_t channels,
                      const std::string& symbol);

// Whether there is a fill by vectors: strides of 1 and 2, up to two spatial dims.
bool has_vector_fill(const DvtWindow& window);
// `<symbol>_fill_vectors(x, to)`: the planes of one channel in memory that was all zeros, or has
// been filled for another channel before. Reads up to `2 * lanes` floats behind the channel, and
// writes up to `lanes` behind the planes.
std::string emit_vector_fill(const DvtWindow& window, const Geometry& geometry, int64_t lanes,
                             const std::string& symbol);

}  // namespace davit::codegen
