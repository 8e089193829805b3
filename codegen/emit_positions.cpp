// Convolutions as products of the weights with shifted planes of the input (planes.hpp).
//
// Position p of a plane is position p of the result, in rows that are as long as the plane's: where
// these are longer than the result's, tiles compute positions that are not stored. The last tile is
// moved back to end with the result. Some tiles side by side go through all channels of the result
// before the next ones: their input stays in the cache, and a line of the result is written on.
//
//   weights  block of tile_rows channels: input channel 0: tap 0 | tap 1 | ... , channel 1: ...
#include <fmt/format.h>

#include <algorithm>

#include "codegen/emit.hpp"
#include "codegen/planes.hpp"

namespace davit::codegen {
namespace {

int64_t taps_of(const Convolution& conv) {
  return dvt_volume(conv.window.kernel);
}

Tile tile_of(const Layout& layout, const Isa& isa, int64_t positions) {
  return {layout.tile_rows, convolution_vectors(isa, layout.tile_rows, positions)};
}

class PositionsEmitter {
 public:
  PositionsEmitter(const Convolution& conv, const Layout& layout, const Isa& isa,
                   const std::string& symbol)
      : conv_(conv),
        symbol_(symbol),
        geometry_(conv.window),
        tile_(tile_of(layout, isa, geometry_.positions)),
        width_(tile_.vectors * isa.lanes),
        copies_(!geometry_.is_input || geometry_.positions < width_) {}

  std::string run() {
    return emit_steps(conv_.steps, symbol_) +
           (copies_ ? emit_fill(conv_.window, geometry_, conv_.in_channels, symbol_) : "") +
           emit_tile() + emit_finish_tile() + emit_run();
  }

 private:
  // Sums over input channels and taps, both ascending.
  [[nodiscard]] std::string emit_tile() const {
    const auto taps = int64_t(geometry_.distances.size());
    std::vector<std::string> rows;
    std::vector<std::string> columns;
    for (int64_t r = 0; r < tile_.rows; ++r) rows.push_back(fmt::format("w[{}]", r));
    for (int64_t v = 0; v < tile_.vectors; ++v)
      columns.push_back(fmt::format("at + {} * LANES", v));
    std::string text;
    if (taps > 1) {
      text += emit_taps(geometry_, symbol_);
    }
    text += fmt::format(
        "static __attribute__((noinline)) void {}_tile(const float* x, const float* w, float* "
        "tile) "
        "{{\n",
        symbol_);
    text += emit_accumulators(tile_);
    text += fmt::format("  for (int64_t c = 0; c < {}; ++c, x += {}) {{\n", conv_.in_channels,
                        geometry_.channel);
    if (taps > 1) {
      text += fmt::format(
          "  for (int64_t t = 0; t < {0}; ++t, w += {1}) {{\n"
          "    const float* at = x + {2}_taps[t];\n",
          taps, tile_.rows, symbol_);
      text += emit_multiply_adds(rows, columns) + "  }\n  }\n";
    } else {
      text += fmt::format("    const float* at = x + {};\n", geometry_.distances[0]);
      text += emit_multiply_adds(rows, columns);
      text += fmt::format("    w += {};\n  }}\n", tile_.rows);
    }
    return text + emit_store_tile(tile_) + "}\n";
  }

  // Stores positions [begin, end) of the tile that starts at `first`, rows of the result apart.
  [[nodiscard]] std::string emit_finish_tile() const {
    const DvtWindow& w = conv_.window;
    std::string text = fmt::format(
        "static inline void {}_finish_tile(const DvtContext* ctx, const float* tile, float* y, "
        "int64_t image,\n    int64_t row, int64_t rows, int64_t first, int64_t begin, int64_t end) "
        "{{\n",
        symbol_);
    const int64_t plane = dvt_volume(w.out);
    if (geometry_.is_dense) {
      return text + fmt::format(
                        "  for (int64_t r = 0; r < rows; ++r) {{\n"
                        "    const int64_t at = (image + row + r) * {0} + begin;\n"
                        "    const float* sums = tile + r * {1} + (begin - first);\n"
                        "    if (end - begin == {1}) {{\n"
                        "      {2}_finish(ctx, sums, y, {1}, at, row + r, 0);\n"
                        "    }} else {{\n"
                        "      {2}_finish(ctx, sums, y, end - begin, at, row + r, 0);\n"
                        "    }}\n  }}\n}}\n",
                        plane, width_, symbol_);
    }
    return text +
           fmt::format(
               "  int64_t line = begin / {0};\n"
               "  int64_t x = begin % {0};\n"
               "  for (int64_t p = begin; p < end; p += {0} - x, x = 0, ++line) {{\n"
               "    const int64_t z = line / {1};\n"
               "    const int64_t from_y = line % {1};\n"
               "    if (x >= {2} || from_y >= {3}) continue;\n"
               "    const int64_t left = end - p;\n"
               "    const int64_t count = {2} - x < left ? {2} - x : left;\n"
               "    for (int64_t r = 0; r < rows; ++r) {{\n"
               "      const int64_t at = (image + row + r) * {4} + (z * {3} + from_y) * {2} + x;\n"
               "      {5}_finish(ctx, tile + r * {6} + (p - first), y, count, at, row + r, 0);\n"
               "    }}\n  }}\n}}\n",
               geometry_.extent[2], geometry_.extent[1], w.out[2], w.out[1], plane, symbol_,
               width_);
  }

  // `image` counts channels of the result that images before this one have.
  [[nodiscard]] std::string emit_run() const {
    const int64_t in = dvt_volume(conv_.window.in);
    const int64_t taps = taps_of(conv_);
    const int64_t blocks = (conv_.out_channels + tile_.rows - 1) / tile_.rows;
    const int64_t group_weights = blocks * tile_.rows * conv_.in_channels * taps;
    std::string text = fmt::format(
        "DvtCode {0}_run(void* context) {{\n"
        "  const DvtContext* ctx = context;\n"
        "  const float* input = input_at(ctx, 0);\n"
        "  float* y = output_at(ctx, 0);\n"
        "  for (int64_t n = 0; n < {1}; ++n)\n"
        "  for (int64_t g = 0; g < {2}; ++g) {{\n"
        "    const float* x = input + (n * {2} + g) * {3};\n"
        "    const float* w = input_at(ctx, 1) + g * {4};\n"
        "    const int64_t image = n * {5};\n"
        "    const int64_t channel = g * {6};\n",
        symbol_, conv_.batch, conv_.groups, conv_.in_channels * in, group_weights,
        conv_.groups * conv_.out_channels, conv_.out_channels);
    if (copies_) {
      text += fmt::format(
          "    float* planes = output_at(ctx, 1);\n"
          "    {}_fill(x, planes);\n"
          "    x = planes;\n",
          symbol_);
    }
    const int64_t last = std::max<int64_t>(geometry_.positions - width_, 0);
    return text + fmt::format(
                      "    for (int64_t block = 0; block < {0}; block += {8})\n"
                      "    for (int64_t m = 0; m < {3}; m += {4}) {{\n"
                      "      const int64_t behind = block + {8} < {0} ? block + {8} : {0};\n"
                      "      for (int64_t begin = block; begin < behind; begin += {1}) {{\n"
                      "        const int64_t first = begin < {2} ? begin : {2};\n"
                      "        const int64_t end = begin + {1} < {0} ? begin + {1} : {0};\n"
                      "        _Alignas(64) float tile[{5}];\n"
                      "        {6}_tile(x + first, w + m * {7}, tile);\n"
                      "        const int64_t rows = {3} - m < {4} ? {3} - m : {4};\n"
                      "        {6}_finish_tile(ctx, tile, y, image, channel + m, rows, first, "
                      "begin, end);\n"
                      "      }}\n    }}\n  }}\n  return DVT_OK;\n}}\n",
                      geometry_.positions, width_, last, conv_.out_channels, tile_.rows,
                      tile_.rows * width_, symbol_, conv_.in_channels * taps, block_positions());
  }

  // Whole tiles whose input fits half of a second-level cache, and a line of the result a page.
  [[nodiscard]] int64_t block_positions() const {
    constexpr int64_t kInputFloats = 32768;
    constexpr int64_t kPageFloats = 1024;
    const int64_t fitting = std::min(kInputFloats / conv_.in_channels, kPageFloats);
    return std::max<int64_t>(fitting / width_, 1) * width_;
  }

  const Convolution& conv_;
  const std::string& symbol_;
  const Geometry geometry_;
  const Tile tile_;
  const int64_t width_;  // Positions of a tile.
  const bool copies_;    // Planes are made in the workspace.
};

}  // namespace

Layout layout_of_positions(const Convolution& conv, std::span<const Isa> isas) {
  const Geometry geometry(conv.window);
  Layout layout{.way = Way::kPositions};
  layout.tile_rows = convolution_rows(isas, conv.out_channels, geometry.positions);
  int64_t width_max = 0;
  bool copies = false;
  for (const Isa& isa : isas) {
    const Tile tile = tile_of(layout, isa, geometry.positions);
    const int64_t width = tile.vectors * isa.lanes;
    width_max = std::max(width_max, width);
    copies = copies || !geometry.is_input || geometry.positions < width;
  }
  if (copies) layout.workspace_floats = conv.in_channels * geometry.channel + width_max;
  const int64_t blocks = (conv.out_channels + layout.tile_rows - 1) / layout.tile_rows;
  layout.weight_dims = {conv.groups, blocks, conv.in_channels, taps_of(conv), layout.tile_rows};
  return layout;
}

std::vector<float> pack_positions(const Convolution& conv, const Layout& layout,
                                  std::span<const float> weights) {
  const int64_t blocks = layout.weight_dims[1];
  const int64_t sums = conv.in_channels * taps_of(conv);
  std::vector<float> packed(size_t(conv.groups * blocks * sums * layout.tile_rows), 0.0F);
  for (int64_t g = 0; g < conv.groups; ++g) {
    for (int64_t m = 0; m < conv.out_channels; ++m) {
      const int64_t block = (g * blocks + m / layout.tile_rows) * sums * layout.tile_rows;
      for (int64_t k = 0; k < sums; ++k) {
        packed[size_t(block + k * layout.tile_rows + m % layout.tile_rows)] =
            weights[size_t((g * conv.out_channels + m) * sums + k)];
      }
    }
  }
  return packed;
}

std::string emit_positions(const Convolution& conv, const Layout& layout, const Isa& isa,
                           const std::string& symbol) {
  return PositionsEmitter(conv, layout, isa, symbol).run();
}

}  // namespace davit::codegen
