#include "codegen/tiles.hpp"

#include <algorithm>
#include <array>

namespace davit::codegen {
namespace {

constexpr std::array kIsas = {
    Isa{"avx512", "-mavx512f -mavx2 -mfma -mprefer-vector-width=512", 16, 32},
    Isa{"avx2", "-mavx2 -mfma", 8, 16},
    Isa{"baseline", "", 4, 16},
};
// In the order of preference where they are equally good.
constexpr std::array<int64_t, 4> kConvolutionRows = {8, 12, 6, 4};

// With one row every weight is read once, from far away: the prefetchers of the processor keep up
// with so many places at a time.
constexpr int64_t kPanelsOfOneRow = 4;

int64_t blocks(int64_t extent, int64_t size) {
  return (extent + size - 1) / size;
}

// Accumulators, one operand's vectors, and a broadcast.
bool fits(const Isa& isa, const Tile& tile) {
  return tile.rows * tile.vectors + tile.vectors + 1 <= isa.registers;
}

}  // namespace

double tile_efficiency(const Tile& tile, int64_t lanes, int64_t rows, int64_t columns) {
  const auto used = double(rows) * double(columns);
  const int64_t width = tile.vectors * lanes;
  const auto computed =
      double(blocks(rows, tile.rows) * tile.rows) * double(blocks(columns, width) * width);
  const auto products = double(tile.rows * tile.vectors);
  // Measured on Zen 4 and Skylake-X: a load costs about an eighth of a multiply-add.
  const double loads = double(tile.rows + tile.vectors) / 8;
  // The adds of one step have to hide the latency of the step before: four cycles, two a cycle.
  const double latency = std::min(1.0, products / 8);
  return used / computed * products / (products + loads) * latency;
}

Result<Isa> isa_named(std::string_view name) {
  const auto* at =
      std::find_if(kIsas.begin(), kIsas.end(), [&](const Isa& isa) { return isa.name == name; });
  if (at != kIsas.end()) return *at;
  Status status(DVT_INVALID_ARGUMENT, DVT_STAGE_NONE,
                "there is no instruction set '" + std::string(name) + "'");
  status.detail().expected = "baseline, avx2 or avx512";
  return status;
}

int64_t convolution_vectors(const Isa& isa, int64_t tile_rows, int64_t columns) {
  Tile best{.rows = tile_rows, .vectors = 1};
  for (int64_t vectors = 2; fits(isa, {tile_rows, vectors}); ++vectors) {
    const Tile tile{tile_rows, vectors};
    if (tile_efficiency(tile, isa.lanes, tile_rows, columns) >
        tile_efficiency(best, isa.lanes, tile_rows, columns)) {
      best = tile;
    }
  }
  return best.vectors;
}

int64_t convolution_rows(std::span<const Isa> isas, int64_t rows, int64_t columns) {
  int64_t best = 0;
  double best_efficiency = -1;
  for (const int64_t candidate : kConvolutionRows) {
    double worst = 1;
    for (const Isa& isa : isas) {
      const Tile tile{candidate, convolution_vectors(isa, candidate, columns)};
      worst =
          std::min(worst, fits(isa, tile) ? tile_efficiency(tile, isa.lanes, rows, columns) : 0);
    }
    if (worst > best_efficiency) {
      best = candidate;
      best_efficiency = worst;
    }
  }
  return best;
}

Tile matrix_tile(const Isa& isa, int64_t rows, int64_t columns) {
  const int64_t panel = std::max<int64_t>(kPanelColumns / isa.lanes, 1);
  const int64_t panels = blocks(columns, kPanelColumns);
  const int64_t widest = std::min(panels, rows == 1 ? kPanelsOfOneRow : panels) * panel;
  Tile best{.rows = 1, .vectors = panel};
  for (int64_t vectors = panel; vectors <= widest; vectors += panel) {
    for (int64_t tile_rows = 1; tile_rows <= rows && fits(isa, {tile_rows, vectors}); ++tile_rows) {
      const Tile tile{tile_rows, vectors};
      if (tile_efficiency(tile, isa.lanes, rows, columns) >
          tile_efficiency(best, isa.lanes, rows, columns)) {
        best = tile;
      }
    }
  }
  return best;
}

}  // namespace davit::codegen
