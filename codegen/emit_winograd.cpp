// Convolutions of 3x3 windows with stride 1 by Winograd's F(4, 3) (prelude.h: winograd_input).
//
// A tile of 4x4 results needs 6x6 inputs. Both are taken to a space where the convolution is a
// product element by element: 36 multiplications for 16 results of 9 taps. Over all channels these
// are 36 products of matrices, tiles x channels by channels x results.
//
//   weights    panel of 16 results: place 0: channel 0 | channel 1 | ... , place 1: ...
//   workspace  lines    6 lines of the input, LANES channels side by side
//              inputs   [36][tiles][channels], of a block of rows of tiles
//              sums     [36][tiles][results], of the results of one matrix tile
//              lanes    4 lines of results, LANES channels side by side
//              results  4 lines of each of LANES channels
//
// What is not finite spreads over its tile. Such a tile's results are not finite, all of them are
// looked at, and their lines are made anew from the weights as the model has them.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "codegen/emit.hpp"

namespace davit::codegen {
namespace {

constexpr int64_t kTile = 4;   // Results along an axis.
constexpr int64_t kReach = 6;  // Inputs along it.
constexpr int64_t kPlaces = kReach * kReach;
constexpr int64_t kInputFloats = 160'000;  // Of a block: half of a second-level cache.

// Points of the interpolation; errors are near those of plain sums (measured: within 1.2 times).
constexpr double kNear = 0.625;
constexpr double kFar = 1.5;

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Floats of a plane, so that planes do not meet in the same sets of a cache.
int64_t plane_floats(int64_t floats) {
  constexpr int64_t kLine = 16;
  return (round_up(floats, kLine) / kLine | 1) * kLine;
}

struct Sizes {
  int64_t tiles_x = 0, tiles_y = 0;
  int64_t block_rows = 0;   // Rows of tiles that are worked on together.
  Tile tile;                // Of the products: tiles by results.
  int64_t block_tiles = 0;  // Tiles of a block, whole rows of `tile`.
  int64_t width = 0;        // Results of `tile`.
  int64_t channels = 0, panels = 0;
  int64_t line = 0, result_line = 0;  // Positions of a line of inputs; of results.
  int64_t lines = 0, inputs = 0, sums = 0, lanes = 0, results = 0;  // Offsets in the workspace.
  int64_t input_plane = 0, sum_plane = 0, total = 0;

  Sizes(const Convolution& conv, const Isa& isa) {
    const DvtWindow& w = conv.window;
    tiles_y = (w.out[1] + kTile - 1) / kTile;
    tiles_x = (w.out[2] + kTile - 1) / kTile;
    channels = round_up(conv.in_channels, kPanelColumns);
    panels = round_up(conv.out_channels, kPanelColumns) / kPanelColumns;
    const int64_t fit =
        std::clamp<int64_t>(kInputFloats / (kPlaces * channels * tiles_x), 1, tiles_y);
    const int64_t blocks = (tiles_y + fit - 1) / fit;
    block_rows = (tiles_y + blocks - 1) / blocks;
    tile = matrix_tile(isa, block_rows * tiles_x, conv.out_channels);
    width = tile.vectors * isa.lanes;
    block_tiles = round_up(block_rows * tiles_x, tile.rows);
    input_plane = plane_floats(block_tiles * channels);
    sum_plane = plane_floats(block_tiles * width);
    line = round_up(tiles_x * kTile + 2, isa.lanes) + isa.lanes;
    result_line = round_up(tiles_x * kTile, isa.lanes);
    inputs = lines + round_up(kReach * line * isa.lanes, kPanelColumns);
    sums = inputs + kPlaces * input_plane;
    lanes = sums + kPlaces * sum_plane;
    results = lanes + round_up(kTile * result_line * isa.lanes, kPanelColumns);
    total = results + kTile * result_line * isa.lanes;
  }
};

class WinogradEmitter {
 public:
  WinogradEmitter(const Convolution& conv, const Layout& layout, const Isa& isa,
                  const std::string& symbol)
      : conv_(conv), layout_(layout), isa_(isa), symbol_(symbol), sizes_(conv, isa) {}

  std::string run() {
    return emit_steps(conv_.steps, symbol_) + emit_transpose(isa_, symbol_) + emit_lines() +
           emit_inputs() + emit_product() + emit_plain() + emit_results() + emit_run();
  }

 private:
  // Six lines of LANES channels, side by side; what the pads are stays 0 from call to call.
  [[nodiscard]] std::string emit_lines() const {
    const DvtWindow& w = conv_.window;
    const int64_t plane = w.in[1] * w.in[2];
    const int64_t chunk = std::min(w.in[2], isa_.lanes);
    const int64_t channels = std::min(conv_.in_channels, isa_.lanes);
    std::string text = fmt::format(
        "static void {0}_lines(const float* x, int64_t channels, int64_t first, float* lines) {{\n"
        "  for (int64_t i = 0; i < {1}; ++i) {{\n"
        "    const int64_t y = first + i;\n"
        "    float* to = lines + i * {2} + {3};\n"
        "    if (y < 0 || y >= {4}) {{\n"
        "      memset(to, 0, {5} * sizeof(float));\n"
        "      continue;\n    }}\n"
        "    for (int64_t at = 0; at < {6}; at += LANES) {{\n"
        "      const int64_t begin = at < {7} ? at : {7};\n"
        "      const float* from = x + y * {6} + begin;\n",
        symbol_, kReach, sizes_.line * isa_.lanes, w.pad[2] * isa_.lanes, w.in[1],
        w.in[2] * isa_.lanes, w.in[2], std::max<int64_t>(w.in[2] - isa_.lanes, 0));
    if (chunk == isa_.lanes && channels == isa_.lanes) {
      text += fmt::format(
          "      if (channels == LANES) {{\n"
          "        {0}_transpose(from, {1}, to + begin * LANES, LANES);\n"
          "        continue;\n      }}\n",
          symbol_, plane);
    }
    text += fmt::format(
        "      _Alignas(64) float square[LANES * LANES];\n"
        "      memset(square, 0, sizeof square);\n"
        "      for (int64_t c = 0; c < channels; ++c) {{\n"
        "        memcpy(square + c * LANES, from + c * {0}, {1} * sizeof(float));\n"
        "      }}\n",
        plane, chunk);
    // Narrower than a vector: what is behind the line is its pad, hence 0 too.
    return text + fmt::format(
                      "      {}_transpose(square, LANES, to + begin * LANES, LANES);\n"
                      "    }}\n  }}\n}}\n",
                      symbol_);
  }

  [[nodiscard]] std::string emit_inputs() const {
    return fmt::format(
        "static void {0}_inputs(const float* lines, float* inputs) {{\n"
        "  for (int64_t t = 0; t < {1}; ++t) {{\n"
        "    winograd_input(lines + t * {2} * LANES, {3}, inputs + t * {4}, {5});\n"
        "  }}\n}}\n",
        symbol_, sizes_.tiles_x, kTile, sizes_.line * isa_.lanes, sizes_.channels,
        sizes_.input_plane);
  }

  // One tile of one of the 36 products. Sums over channels, ascending.
  [[nodiscard]] std::string emit_product() const {
    const int64_t panel_vectors = kPanelColumns / isa_.lanes;
    std::vector<std::string> rows;
    std::vector<std::string> columns;
    for (int64_t r = 0; r < sizes_.tile.rows; ++r) {
      rows.push_back(fmt::format("a[{} + k]", r * sizes_.channels));
    }
    for (int64_t v = 0; v < sizes_.tile.vectors; ++v) {
      columns.push_back(fmt::format("panel{} + k * {} + {} * LANES", v / panel_vectors,
                                    kPanelColumns, v % panel_vectors));
    }
    std::string text = fmt::format(
        "static __attribute__((noinline)) void {}_product(const float* a, const float* b,\n"
        "    int64_t panels, float* tile) {{\n",
        symbol_);
    // Panels that are not there are read as the last one; their results go nowhere.
    text += "  const float* panel0 = b;\n";
    for (int64_t p = 1; p < sizes_.tile.vectors / panel_vectors; ++p) {
      text += fmt::format("  const float* panel{0} = {0} < panels ? panel{1} + {2} : panel{1};\n",
                          p, p - 1, kPlaces * conv_.in_channels * kPanelColumns);
    }
    return text + emit_accumulators(sizes_.tile) +
           fmt::format("  for (int64_t k = 0; k < {}; ++k) {{\n", conv_.in_channels) +
           emit_multiply_adds(rows, columns) + "  }\n" + emit_store_tile(sizes_.tile) + "}\n";
  }

  // Four lines of LANES results without any transformation.
  [[nodiscard]] std::string emit_plain() const {
    const DvtWindow& w = conv_.window;
    return fmt::format(
        "static __attribute__((noinline, cold)) void {0}_plain(const float* x, const float* w,\n"
        "    int64_t count, int64_t first, float* results) {{\n"
        "  for (int64_t o = 0; o < count; ++o)\n"
        "  for (int64_t i = 0; i < {1} && first + i < {2}; ++i)\n"
        "  for (int64_t j = 0; j < {3}; ++j) {{\n"
        "    float sum = 0.0f;\n"
        "    for (int64_t c = 0; c < {4}; ++c)\n"
        "    for (int64_t t = 0; t < 9; ++t) {{\n"
        "      const int64_t from_y = first + i + t / 3 - {5};\n"
        "      const int64_t from_x = j + t % 3 - {6};\n"
        "      if (from_y < 0 || from_y >= {7} || from_x < 0 || from_x >= {8}) continue;\n"
        "      sum += w[(o * {4} + c) * 9 + t] * x[(c * {7} + from_y) * {8} + from_x];\n"
        "    }}\n"
        "    results[(o * {1} + i) * {9} + j] = sum;\n"
        "  }}\n}}\n",
        symbol_, kTile, w.out[1], w.out[2], conv_.in_channels, w.pad[1], w.pad[2], w.in[1], w.in[2],
        sizes_.result_line);
  }

  // From sums of one row of tiles to four lines of up to LANES results, through the steps.
  [[nodiscard]] std::string emit_results() const {
    const DvtWindow& w = conv_.window;
    return fmt::format(
        "static void {0}_results(const DvtContext* ctx, const float* x, const float* sums,\n"
        "    float* lanes, float* results, float* y, int64_t image, int64_t row, int64_t first)\n"
        "{{\n"
        "  const int64_t count = {1} - row < LANES ? {1} - row : LANES;\n"
        "  Vector check = {{0}};\n"
        "  for (int64_t t = 0; t < {2}; ++t) {{\n"
        "    check += winograd_output(sums + t * {3}, {4}, lanes + t * {5} * LANES, {6});\n"
        "  }}\n"
        "  if (is_zero(check)) {{\n"
        "    for (int64_t i = 0; i < {5}; ++i)\n"
        "    for (int64_t j = 0; j < {7}; j += LANES) {{\n"
        "      {0}_transpose(lanes + i * {6} + j * LANES, LANES, results + i * {7} + j, {8});\n"
        "    }}\n"
        "  }} else {{\n"
        "    {0}_plain(x, input_at(ctx, {9}) + row * {10}, count, first, results);\n"
        "  }}\n"
        "  for (int64_t o = 0; o < count; ++o)\n"
        "  for (int64_t i = 0; i < {5} && first + i < {11}; ++i) {{\n"
        "    const int64_t at = ((image + row + o) * {11} + first + i) * {12};\n"
        "    {0}_finish(ctx, results + (o * {5} + i) * {7}, y, {12}, at, row + o, 0);\n"
        "  }}\n}}\n",
        symbol_, conv_.out_channels, sizes_.tiles_x, sizes_.width, sizes_.sum_plane, kTile,
        sizes_.result_line * isa_.lanes, sizes_.result_line, kTile * sizes_.result_line,
        layout_.weights_operand, conv_.in_channels * 9, w.out[1], w.out[2]);
  }

  [[nodiscard]] std::string emit_run() const {
    const DvtWindow& w = conv_.window;
    const Sizes& s = sizes_;
    const int64_t used = s.block_rows * s.tiles_x * s.channels;
    return fmt::format(
               "DvtCode {0}_run(void* context) {{\n"
               "  const DvtContext* ctx = context;\n"
               "  float* y = output_at(ctx, 0);\n"
               "  float* lines = output_at(ctx, 1);\n"
               "  float* inputs = lines + {1};\n"
               "  memset(lines, 0, {1} * sizeof(float));\n"
               "  for (int64_t place = 0; place < {12}; ++place) {{\n"
               "    memset(inputs + place * {13} + {2}, 0, {14} * sizeof(float));\n  }}\n"
               "  for (int64_t n = 0; n < {3}; ++n) {{\n"
               "  const float* x = input_at(ctx, 0) + n * {4};\n"
               "  for (int64_t block = 0; block < {5}; block += {6}) {{\n"
               "    const int64_t rows = {5} - block < {6} ? {5} - block : {6};\n"
               "    for (int64_t i = 0; i < rows; ++i)\n"
               "    for (int64_t c = 0; c < {7}; c += LANES) {{\n"
               "      const int64_t channels = {7} - c < LANES ? {7} - c : LANES;\n"
               "      {0}_lines(x + c * {8}, channels, (block + i) * {9} - {10}, lines);\n"
               "      {0}_inputs(lines, inputs + i * {11} + c);\n"
               "    }}\n",
               symbol_, s.inputs, used, conv_.batch, conv_.in_channels * w.in[1] * w.in[2],
               s.tiles_y, s.block_rows, conv_.in_channels, w.in[1] * w.in[2], kTile, w.pad[1],
               s.tiles_x * s.channels, kPlaces, s.input_plane, s.block_tiles * s.channels - used) +
           emit_block() + "  }\n  }\n  return DVT_OK;\n}\n";
  }

  // All results of the tiles whose inputs are there.
  [[nodiscard]] std::string emit_block() const {
    const Sizes& s = sizes_;
    const int64_t tile_panels = s.width / kPanelColumns;
    return fmt::format(
        "    for (int64_t p = 0; p < {0}; p += {1}) {{\n"
        "      const float* weights = input_at(ctx, 1) + p * {2};\n"
        "      float* sums = lines + {3};\n"
        "      for (int64_t place = 0; place < {4}; ++place)\n"
        "      for (int64_t t = 0; t < rows * {5}; t += {6}) {{\n"
        "        {7}_product(inputs + place * {8} + t * {9}, weights + place * {10}, {0} - p,\n"
        "                    sums + place * {11} + t * {12});\n"
        "      }}\n"
        "      for (int64_t i = 0; i < rows; ++i)\n"
        "      for (int64_t o = 0; o < {12} && p * {13} + o < {14}; o += LANES) {{\n"
        "        {7}_results(ctx, x, sums + i * {5} * {12} + o, lines + {15}, lines + {16}, y,\n"
        "                    n * {14}, p * {13} + o, (block + i) * {17});\n"
        "      }}\n    }}\n",
        s.panels, tile_panels, kPlaces * conv_.in_channels * kPanelColumns, s.sums, kPlaces,
        s.tiles_x, s.tile.rows, symbol_, s.input_plane, s.channels,
        conv_.in_channels * kPanelColumns, s.sum_plane, s.width, kPanelColumns, conv_.out_channels,
        s.lanes, s.results, kTile);
  }

  const Convolution& conv_;
  const Layout& layout_;
  const Isa& isa_;
  const std::string& symbol_;
  const Sizes sizes_;
};

}  // namespace

// Whether it takes clearly fewer cycles, by a rough account for vectors of 16: products; transforms
// of each tile; weights, of which there are four times as many, from memory.
bool prefers_winograd(const Convolution& conv) {
  if (conv.plain_sums) return false;
  const DvtWindow& w = conv.window;
  for (int a = 1; a < DVT_SPATIAL_MAX; ++a) {
    if (w.kernel[a] != 3 || w.stride[a] != 1 || w.dilation[a] != 1) return false;
  }
  if (w.kernel[0] != 1 || w.in[0] != 1 || w.out[0] != 1 || conv.groups != 1) return false;
  const auto in = double(conv.in_channels);
  const auto out = double(conv.out_channels);
  const auto tiles = double((w.out[1] + kTile - 1) / kTile * ((w.out[2] + kTile - 1) / kTile));
  const double plain = 9 * in * out * double(w.out[1] * w.out[2]) / 16;
  const double transforms = tiles * 350 * (in + out + 16) / 16;
  const double products = kPlaces * in * out * (tiles / 16 + 0.5);
  return products + transforms < 0.8 * plain;
}

Layout layout_of_winograd(const Convolution& conv, std::span<const Isa> isas) {
  Layout layout{.way = Way::kWinograd};
  for (const Isa& isa : isas) {
    layout.workspace_floats = std::max(layout.workspace_floats, Sizes(conv, isa).total);
  }
  layout.weight_dims = {Sizes(conv, isas[0]).panels, kPlaces, conv.in_channels, kPanelColumns};
  return layout;
}

std::string emit_winograd(const Convolution& conv, const Layout& layout, const Isa& isa,
                          const std::string& symbol) {
  return WinogradEmitter(conv, layout, isa, symbol).run();
}

// Place (i, j) of a window g is the sum of G[i][a] g[a][b] G[j][b].
std::vector<float> pack_winograd(const Convolution& conv, std::span<const float> weights) {
  constexpr std::array<double, 5> kPoints = {0, kNear, -kNear, kFar, -kFar};
  std::array<std::array<double, 3>, kReach> to_place{};
  for (size_t i = 0; i < kPoints.size(); ++i) {
    double divisor = 1;
    for (size_t j = 0; j < kPoints.size(); ++j) {
      if (j != i) divisor *= kPoints[i] - kPoints[j];
    }
    to_place[i] = {1 / divisor, kPoints[i] / divisor, kPoints[i] * kPoints[i] / divisor};
  }
  to_place[kReach - 1] = {0, 0, 1};
  const int64_t panels = round_up(conv.out_channels, kPanelColumns) / kPanelColumns;
  std::vector<float> packed(size_t(panels * kPlaces * conv.in_channels * kPanelColumns), 0.0F);
  for (int64_t o = 0; o < conv.out_channels; ++o) {
    for (int64_t c = 0; c < conv.in_channels; ++c) {
      const float* window = weights.data() + (o * conv.in_channels + c) * 9;
      for (int64_t place = 0; place < kPlaces; ++place) {
        double sum = 0;
        for (size_t t = 0; t < 9; ++t) {
          sum += to_place[size_t(place / kReach)][t / 3] * to_place[size_t(place % kReach)][t % 3] *
                 double(window[t]);
        }
        const int64_t panel = o / kPanelColumns * kPlaces + place;
        packed[size_t((panel * conv.in_channels + c) * kPanelColumns + o % kPanelColumns)] =
            float(sum);
      }
    }
  }
  return packed;
}

}  // namespace davit::codegen
