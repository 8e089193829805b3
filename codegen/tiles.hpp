// tiles.hpp: instruction sets, and the register tile that suits a product.
//
// A tile is `rows` rows of `vectors` vectors of the result, held in registers while the sum runs
// over the inner dimension. Each step loads the vectors of one operand, and broadcasts one element
// of the other to each row: rows * vectors multiply-adds for rows + vectors loads.
//
// Threads  Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"

namespace davit::codegen {

struct Isa {
  std::string_view name;   // As in exec/generated_code.h.
  std::string_view flags;  // Of the compiler, separated by blanks.
  int64_t lanes = 0;       // f32 in a vector.
  int64_t registers = 0;   // Vectors there are room for.
};

// Of "baseline", "avx2", "avx512". DVT_INVALID_ARGUMENT for another name, with those there are.
Result<Isa> isa_named(std::string_view name);

struct Tile {
  int64_t rows = 0, vectors = 0;
};

// The share of the machine's multiply-adds that a tile can use for a result of so many rows and
// columns: what is left when the last tiles hang over the edge, and when loads take slots of their
// own.
double tile_efficiency(const Tile& tile, int64_t lanes, int64_t rows, int64_t columns);

// The rows of tiles of a convolution, for all instruction sets, since weights are packed by them.
// `rows` and `columns` are the extents of the result.
int64_t convolution_rows(std::span<const Isa> isas, int64_t rows, int64_t columns);
// Vectors for a tile of so many rows.
int64_t convolution_vectors(const Isa& isa, int64_t tile_rows, int64_t columns);

// Constant matrices are packed in panels of so many columns, whatever the instruction set.
inline constexpr int64_t kPanelColumns = 16;
// Vectors are a multiple of those of a panel.
Tile matrix_tile(const Isa& isa, int64_t rows, int64_t columns);

}  // namespace davit::codegen
