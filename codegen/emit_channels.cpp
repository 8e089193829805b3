// Convolutions whose vectors lie along the channels of the result: where these fill vectors and the
// positions of a line do not.
//
// A tile is some positions of a line by some vectors of channels: a step loads weights, and
// broadcasts neighbours from a plane of the input (planes.hpp). The sums of a block of lines are
// transposed before the steps, which take many positions of a channel at once.
//
//   weights    panel of 16 channels: input channel 0: tap 0 | tap 1 | ... , channel 1: ...
//   workspace  planes; sums of a block [positions][channels of a tile]; [LANES][positions]
#include <fmt/format.h>

#include <algorithm>

#include "codegen/emit.hpp"
#include "codegen/planes.hpp"

namespace davit::codegen {
namespace {

constexpr int64_t kBlockMax = 256;  // Positions: what is made together stays in the cache.

int64_t taps_of(const Convolution& conv) {
  return dvt_volume(conv.window.kernel);
}

// How positions of the result form lines of neighbours, and lines blocks.
struct Blocks {
  int64_t depth = 0, height = 0, width = 0;  // Of the result, in lines: depth x height lines.
  int64_t depth_step = 0, line_step = 0;     // Between lines, in a plane.
  int64_t lines = 0, piece = 0;              // Of a block: lines, and positions of each.
  int64_t positions = 0;                     // Of a block, filled up to vectors.
  Tile tile;

  Blocks(const Convolution& conv, const Geometry& geometry, const Isa& isa) {
    const auto& out = conv.window.out;
    const int64_t plane = dvt_volume(out);
    if (geometry.is_dense && plane <= kBlockMax) {
      depth = height = 1;
      width = plane;
    } else {
      depth = out[0];
      height = out[1];
      width = out[2];
      depth_step = geometry.extent[1] * geometry.extent[2];
      line_step = geometry.extent[2];
    }
    piece = std::min(width, kBlockMax);
    lines = piece < width ? 1 : std::clamp<int64_t>(kBlockMax / width, 1, height);
    tile = matrix_tile(isa, piece, conv.out_channels);
    positions = (lines * piece + isa.lanes - 1) / isa.lanes * isa.lanes;
  }
  [[nodiscard]] int64_t sums() const { return positions * tile.vectors; }  // In vectors.
};

int64_t planes_floats(const Convolution& conv, const Geometry& geometry) {
  constexpr int64_t kLine = 16;
  if (geometry.is_input) return 0;
  return (conv.in_channels * geometry.channel + kLine - 1) / kLine * kLine;
}

class ChannelsEmitter {
 public:
  ChannelsEmitter(const Convolution& conv, const Isa& isa, const std::string& symbol)
      : conv_(conv),
        isa_(isa),
        symbol_(symbol),
        geometry_(conv.window),
        blocks_(conv, geometry_, isa),
        width_(blocks_.tile.vectors * isa.lanes),
        sums_(conv.in_channels * taps_of(conv)) {}

  std::string run() {
    std::string text = emit_steps(conv_.steps, symbol_) + emit_transpose(isa_, symbol_);
    if (!geometry_.is_input) {
      text += emit_fill(conv_.window, geometry_, conv_.in_channels, symbol_);
    }
    return text + emit_tile() + emit_block() + emit_finish_block() + emit_run();
  }

 private:
  // Sums over input channels and taps, both ascending.
  [[nodiscard]] std::string emit_tile() const {
    const auto taps = int64_t(geometry_.distances.size());
    const int64_t panel_vectors = kPanelColumns / isa_.lanes;
    const Tile& tile = blocks_.tile;
    std::vector<std::string> rows;
    std::vector<std::string> columns;
    for (int64_t r = 0; r < tile.rows; ++r) rows.push_back(fmt::format("at[{}]", r));
    for (int64_t v = 0; v < tile.vectors; ++v) {
      columns.push_back(fmt::format("panel{} + {} * LANES", v / panel_vectors, v % panel_vectors));
    }
    const int64_t panels = tile.vectors / panel_vectors;
    std::string next;
    for (int64_t p = 0; p < panels; ++p) {
      next += fmt::format("{}panel{} += {}", p == 0 ? "" : ", ", p, kPanelColumns);
    }
    std::string text;
    if (taps > 1) {
      text = emit_taps(geometry_, symbol_);
    }
    text += fmt::format(
        "static __attribute__((noinline)) void {}_tile(const float* x, const float* w,\n"
        "    int64_t panels, float* tile) {{\n"
        "  const float* panel0 = w;\n",
        symbol_);
    // Panels that are not there are read as the last one; their results go nowhere.
    for (int64_t p = 1; p < panels; ++p) {
      text += fmt::format("  const float* panel{0} = {0} < panels ? w + {1} : panel{2};\n", p,
                          p * sums_ * kPanelColumns, p - 1);
    }
    text += emit_accumulators(tile);
    if (taps > 1) {
      text += fmt::format(
          "  for (int64_t c = 0; c < {0}; ++c, x += {1})\n"
          "  for (int64_t t = 0; t < {2}; ++t, {3}) {{\n"
          "    const float* at = x + {4}_taps[t];\n",
          conv_.in_channels, geometry_.channel, taps, next, symbol_);
    } else {
      text += fmt::format(
          "  const float* at = x + {0};\n"
          "  for (int64_t c = 0; c < {1}; ++c, at += {2}, {3}) {{\n",
          geometry_.distances[0], conv_.in_channels, geometry_.channel, next);
    }
    return text + emit_multiply_adds(rows, columns) + "  }\n" + emit_store_tile(tile) + "}\n";
  }

  // The sums of some lines. The last tile of a line is moved back to end with it.
  [[nodiscard]] std::string emit_block() const {
    return fmt::format(
        "static void {0}_block(const float* x, const float* w, int64_t panels, int64_t lines,\n"
        "    float* sums) {{\n"
        "  for (int64_t i = 0; i < lines; ++i)\n"
        "  for (int64_t j = 0; j < {1}; j += {2}) {{\n"
        "    const int64_t at = j < {3} ? j : {3};\n"
        "    {0}_tile(x + i * {4} + at, w, panels, sums + (i * {1} + at) * {5});\n"
        "  }}\n}}\n",
        symbol_, blocks_.piece, blocks_.tile.rows, blocks_.piece - blocks_.tile.rows,
        blocks_.line_step, width_);
  }

  // Up to LANES channels from `row` on, at positions from `at` on, through the steps.
  [[nodiscard]] std::string emit_finish_block() const {
    const int64_t whole = blocks_.lines * blocks_.piece;
    return fmt::format(
        "static void {0}_finish_block(const DvtContext* ctx, const float* sums, float* turned,\n"
        "    float* y, int64_t count, int64_t at, int64_t row, int64_t rows) {{\n"
        "  for (int64_t j = 0; j < count; j += LANES) {{\n"
        "    {0}_transpose(sums + j * {1}, {1}, turned + j, {2});\n"
        "  }}\n"
        "  for (int64_t o = 0; o < rows; ++o, at += {3}) {{\n"
        "    if (count == {4}) {{\n"
        "      {0}_finish(ctx, turned + o * {2}, y, {4}, at, row + o, 0);\n"
        "    }} else {{\n"
        "      {0}_finish(ctx, turned + o * {2}, y, count, at, row + o, 0);\n"
        "    }}\n  }}\n}}\n",
        symbol_, width_, blocks_.positions, dvt_volume(conv_.window.out), whole);
  }

  [[nodiscard]] std::string emit_run() const {
    const int64_t panels = (conv_.out_channels + kPanelColumns - 1) / kPanelColumns;
    const int64_t planes = planes_floats(conv_, geometry_);
    std::string text = fmt::format(
        "DvtCode {0}_run(void* context) {{\n"
        "  const DvtContext* ctx = context;\n"
        "  float* y = output_at(ctx, 0);\n"
        "  float* sums = output_at(ctx, 1) + {1};\n"
        "  float* turned = sums + {2};\n"
        "  for (int64_t n = 0; n < {3}; ++n)\n"
        "  for (int64_t g = 0; g < {4}; ++g) {{\n"
        "    const float* x = input_at(ctx, 0) + (n * {4} + g) * {5};\n"
        "    const float* weights = input_at(ctx, 1) + g * {6};\n",
        symbol_, planes, blocks_.sums() * isa_.lanes, conv_.batch, conv_.groups,
        conv_.in_channels * dvt_volume(conv_.window.in), panels * sums_ * kPanelColumns);
    if (!geometry_.is_input) {
      text += fmt::format(
          "    {}_fill(x, output_at(ctx, 1));\n"
          "    x = output_at(ctx, 1);\n",
          symbol_);
    }
    return text + emit_loops(panels) + "  }\n  return DVT_OK;\n}\n";
  }

  [[nodiscard]] std::string emit_loops(int64_t panels) const {
    const Blocks& b = blocks_;
    return fmt::format(
        "    for (int64_t p = 0; p < {0}; p += {1})\n"
        "    for (int64_t z = 0; z < {2}; ++z)\n"
        "    for (int64_t i = 0; i < {3}; i += {4})\n"
        "    for (int64_t j = 0; j < {5}; j += {6}) {{\n"
        "      const int64_t lines = {3} - i < {4} ? {3} - i : {4};\n"
        "      const int64_t left = j < {7} ? j : {7};\n"
        "      {8}_block(x + z * {9} + i * {10} + left, weights + p * {11}, {0} - p, lines, "
        "sums);\n"
        "      for (int64_t o = p * {12}; o < (p + {1}) * {12} && o < {13}; o += LANES) {{\n"
        "        const int64_t row = g * {13} + o;\n"
        "        const int64_t at = ((n * {14} + row) * {2} + z) * {15} + i * {5} + left;\n"
        "        const int64_t rows = {13} - o < LANES ? {13} - o : LANES;\n"
        "        {8}_finish_block(ctx, sums + o - p * {12}, turned, y, lines * {6}, at, row, "
        "rows);\n"
        "      }}\n    }}\n",
        panels, width_ / kPanelColumns, b.depth, b.height, b.lines, b.width, b.piece,
        b.width - b.piece, symbol_, b.depth_step, b.line_step, sums_ * kPanelColumns, kPanelColumns,
        conv_.out_channels, conv_.groups * conv_.out_channels, b.height * b.width);
  }

  const Convolution& conv_;
  const Isa& isa_;
  const std::string& symbol_;
  const Geometry geometry_;
  const Blocks blocks_;
  const int64_t width_;  // Channels of a tile.
  const int64_t sums_;   // Terms of a sum.
};

}  // namespace

// By a rough account of cycles for one result, with the widest vectors: terms of its sum by what
// tiles waste, and the way from the sums through the steps to memory.
bool prefers_channels(const Convolution& conv, std::span<const Isa> isas) {
  constexpr double kTransposed = 0.55;
  constexpr double kDense = 0.3;
  constexpr double kLines = 0.6;
  const Geometry geometry(conv.window);
  const Isa& isa = isas[0];
  const Blocks blocks(conv, geometry, isa);
  const auto terms = double(conv.in_channels * taps_of(conv)) / double(isa.lanes);
  const double channels =
      terms / tile_efficiency(blocks.tile, isa.lanes, blocks.piece, conv.out_channels) +
      kTransposed;
  const int64_t rows = convolution_rows(isas, conv.out_channels, geometry.positions);
  const Tile tile{rows, convolution_vectors(isa, rows, geometry.positions)};
  const double waste = double(geometry.positions) / double(dvt_volume(conv.window.out));
  const double positions =
      terms * waste / tile_efficiency(tile, isa.lanes, conv.out_channels, geometry.positions) +
      (geometry.is_dense ? kDense : kLines * waste);
  return channels < positions;
}

Layout layout_of_channels(const Convolution& conv, std::span<const Isa> isas) {
  const Geometry geometry(conv.window);
  Layout layout{.way = Way::kChannels};
  for (const Isa& isa : isas) {
    const Blocks blocks(conv, geometry, isa);
    layout.workspace_floats =
        std::max(layout.workspace_floats,
                 planes_floats(conv, geometry) + (blocks.sums() + blocks.positions) * isa.lanes);
  }
  layout.weight_dims = {conv.groups, (conv.out_channels + kPanelColumns - 1) / kPanelColumns,
                        conv.in_channels, taps_of(conv), kPanelColumns};
  return layout;
}

std::string emit_channels(const Convolution& conv, const Isa& isa, const std::string& symbol) {
  return ChannelsEmitter(conv, isa, symbol).run();
}

std::vector<float> pack_channels(const Convolution& conv, std::span<const float> weights) {
  const int64_t panels = (conv.out_channels + kPanelColumns - 1) / kPanelColumns;
  const int64_t sums = conv.in_channels * taps_of(conv);
  std::vector<float> packed(size_t(conv.groups * panels * sums * kPanelColumns), 0.0F);
  for (int64_t g = 0; g < conv.groups; ++g) {
    for (int64_t m = 0; m < conv.out_channels; ++m) {
      const int64_t panel = (g * panels + m / kPanelColumns) * sums * kPanelColumns;
      for (int64_t k = 0; k < sums; ++k) {
        packed[size_t(panel + k * kPanelColumns + m % kPanelColumns)] =
            weights[size_t((g * conv.out_channels + m) * sums + k)];
      }
    }
  }
  return packed;
}

}  // namespace davit::codegen
