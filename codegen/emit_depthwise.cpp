// Depthwise convolutions: a channel at a time, its planes in the cache. Some lines of the result
// are made together, a vector of each in registers: what one of them reads, its neighbours read
// too. They lie one after the other before the steps, which take them all at once.
//
// Lines much shorter than a vector would leave its lanes empty. Then vectors run over the positions
// of the planes, from the first to the last, pads between them too, and results are picked out of
// them.
//
//   weights  as the model has them: a channel's taps one after the other
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "codegen/emit.hpp"
#include "codegen/planes.hpp"

namespace davit::codegen {
namespace {

constexpr int64_t kWidthMax = 1024;  // Of a line that is made at once.
constexpr int64_t kTextMax = 400;    // Multiply-adds that are written down.

// A load, and the multiply-adds that use it: pairs of row and tap.
struct Use {
  int64_t distance = 0;
  std::vector<std::pair<int64_t, int64_t>> rows_and_taps;
};

// In the order of the lines that are read, so that a row meets its taps in ascending order.
std::vector<Use> uses_of(const DvtWindow& window, const Geometry& geometry, int64_t rows) {
  std::map<std::tuple<int64_t, int64_t, int64_t>, Use> uses;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t t = 0; t < int64_t(geometry.distances.size()); ++t) {
      const int64_t line = t / window.kernel[2];
      const int64_t y = row * window.stride[1] + line % window.kernel[1] * window.dilation[1];
      Use& use = uses[{line / window.kernel[1], y, t % window.kernel[2]}];
      use.distance = geometry.distances[size_t(t)] + row * geometry.extent[2];
      use.rows_and_taps.emplace_back(row, t);
    }
  }
  std::vector<Use> ordered;
  for (auto& [at, use] : uses) ordered.push_back(std::move(use));
  return ordered;
}

// Lines that are made together: least multiply-adds and loads.
int64_t rows_of(const DvtWindow& window, const Geometry& geometry, const Isa& isa) {
  const auto taps = int64_t(geometry.distances.size());
  if (window.out[2] > kWidthMax || taps > kTextMax) return 1;
  const int64_t most =
      std::clamp<int64_t>(std::min(isa.registers / 4, kTextMax / taps), 1, window.out[1]);
  int64_t best = 1;
  double best_cost = 0;
  for (int64_t rows = 1; rows <= most; ++rows) {
    const auto blocks = double((window.out[1] + rows - 1) / rows);
    const double cost =
        blocks * (double(rows * taps) + double(uses_of(window, geometry, rows).size()));
    if (rows == 1 || cost < best_cost) {
      best = rows;
      best_cost = cost;
    }
  }
  return best;
}

// Whether vectors run over all positions: fewer multiply-adds and loads, those of four to one since
// most can be part of a multiply-add.
bool is_flat(const DvtWindow& window, const Geometry& geometry, const Isa& isa) {
  const auto taps = int64_t(geometry.distances.size());
  const int64_t vectors = (geometry.positions + isa.lanes - 1) / isa.lanes;
  if (window.out[2] >= isa.lanes || window.out[0] != 1 || taps > kTextMax) return false;
  if (vectors > isa.registers / 2) return false;
  const double flat = double(vectors * taps) * 1.25 + double(window.out[1]);
  const int64_t rows = rows_of(window, geometry, isa);
  const auto blocks = double((window.out[1] + rows - 1) / rows);
  const double lines =
      blocks * (double(rows * taps) + double(uses_of(window, geometry, rows).size()) / 4);
  return flat < lines;
}

// Of one channel's planes, and what is written behind them.
int64_t copy_floats(const Geometry& geometry, int64_t lanes) {
  return geometry.channel + lanes;
}

// Planes that are made at a time. Two: while those of one channel are read, the next one's are
// written, and no load meets a store that is on its way. That is worth less than the room in the
// first-level cache where planes are large.
int64_t copies_at_a_time(const Geometry& geometry, int64_t lanes) {
  constexpr int64_t kSmallFloats = 2048;
  return copy_floats(geometry, lanes) <= kSmallFloats ? 2 : 1;
}

class DepthwiseEmitter {
 public:
  DepthwiseEmitter(const Convolution& conv, const Isa& isa, const std::string& symbol)
      : conv_(conv),
        window_(conv.window),
        symbol_(symbol),
        geometry_(conv.window),
        lanes_(isa.lanes),
        flat_(is_flat(conv.window, geometry_, isa)),
        rows_(flat_ ? window_.out[1] : rows_of(conv.window, geometry_, isa)),
        width_(std::min(window_.out[2], kWidthMax)),
        copies_(!geometry_.is_input || window_.out[2] < isa.lanes) {}

  std::string run() {
    std::string text = emit_steps(conv_.steps, symbol_);
    if (copies_) text += emit_fill(window_, geometry_, 1, symbol_);
    if (copies_ && has_vector_fill(window_)) {
      text += emit_vector_fill(window_, geometry_, lanes_, symbol_);
    }
    return text + (flat_ ? emit_flat() : emit_rows()) + emit_run();
  }

 private:
  // `rows_` lines of `width_` sums each. A line that is shorter than a vector hangs over into the
  // next, which is written after it.
  [[nodiscard]] std::string emit_rows() const {
    const auto taps = int64_t(geometry_.distances.size());
    std::string text;
    const bool in_table = taps > kTextMax;
    if (in_table) {
      text = emit_taps(geometry_, symbol_);
    }
    text += fmt::format(
        "static inline void {0}_rows(const float* x, const float* w, float* sums) {{\n"
        "  for (int64_t i = 0; i < {1}; i += LANES) {{\n"
        "    const int64_t at = i < {2} ? i : {2};\n",
        symbol_, width_, std::max<int64_t>(width_ - lanes_, 0));
    text += emit_accumulators({rows_, 1});
    if (in_table) {
      text += fmt::format(
          "    for (int64_t t = 0; t < {0}; ++t) a0_0 += w[t] * load(x + at + {1}_taps[t]);\n",
          taps, symbol_);
    } else {
      for (const Use& use : uses_of(window_, geometry_, rows_)) {
        text += fmt::format("    {{ const Vector b = load(x + at + {});", use.distance);
        for (const auto& [row, tap] : use.rows_and_taps) {
          text += fmt::format(" a{}_0 += w[{}] * b;", row, tap);
        }
        text += " }\n";
      }
    }
    for (int64_t row = 0; row < rows_; ++row) {
      text += fmt::format("    store(sums + {} + at, a{}_0);\n", row * width_, row);
    }
    return text + "  }\n}\n";
  }

  // All positions, in registers; the result's are picked out of them.
  [[nodiscard]] std::string emit_flat() const {
    const int64_t vectors = (geometry_.positions + lanes_ - 1) / lanes_;
    std::string text = fmt::format(
        "static inline void {0}_rows(const float* x, const float* w, float* sums) {{\n", symbol_);
    text += emit_accumulators({1, vectors});
    for (size_t t = 0; t < geometry_.distances.size(); ++t) {
      text += fmt::format("  {{ const float one = w[{}];", t);
      for (int64_t v = 0; v < vectors; ++v) {
        text +=
            fmt::format(" a0_{} += one * load(x + {});", v, geometry_.distances[t] + v * lanes_);
      }
      text += " }\n";
    }
    const int64_t count = window_.out[1] * window_.out[2];
    for (int64_t first = 0; first < count; first += lanes_) {
      text += fmt::format("  store(sums + {}, {});\n", first, emit_pick(first, count));
    }
    return text + "}\n";
  }

  // The results [first, first + lanes) out of the vectors of positions that they lie in.
  [[nodiscard]] std::string emit_pick(int64_t first, int64_t count) const {
    const auto position = [&](int64_t i) {
      const int64_t at = std::min(first + i, count - 1);
      return at / window_.out[2] * geometry_.extent[2] + at % window_.out[2];
    };
    const int64_t begin = position(0) / lanes_;
    const int64_t end = position(lanes_ - 1) / lanes_;
    std::string text = fmt::format("a0_{}", begin);
    // One vector after the other joins: lanes that have their result keep it.
    for (int64_t v = begin == end ? begin : begin + 1; v <= end; ++v) {
      std::vector<int64_t> lanes;
      for (int64_t i = 0; i < lanes_; ++i) {
        const int64_t from = position(i) / lanes_;
        const int64_t lane = position(i) % lanes_;
        if (from == v) {
          lanes.push_back(lane + (begin == end ? 0 : lanes_));
        } else {
          lanes.push_back(v == begin + 1 ? lane : i);
        }
      }
      text = fmt::format("__builtin_shufflevector({}, a0_{}, {})", text, v, fmt::join(lanes, ", "));
    }
    return text;
  }

  // The planes of a channel, by vectors where enough follows in the input that they may read.
  [[nodiscard]] std::string emit_next_copy() const {
    const std::string plain = fmt::format("{}_fill(next, to);\n", symbol_);
    std::string text = "      " + plain;
    if (has_vector_fill(window_)) {
      const int64_t plane = dvt_volume(window_.in);
      const int64_t last = (2 * lanes_ + plane - 1) / plane;
      text = fmt::format(
          "      if (ahead < {}) {{\n        {}_fill_vectors(next, to);\n"
          "      }} else {{\n        {}      }}\n",
          std::max<int64_t>(conv_.batch * conv_.groups - last, 0), symbol_, plain);
    }
    return text;
  }
  [[nodiscard]] std::string emit_run() const {
    const auto& out = window_.out;
    const int64_t channels = conv_.batch * conv_.groups;
    std::string text = fmt::format(
        "DvtCode {0}_run(void* context) {{\n"
        "  const DvtContext* ctx = context;\n"
        "  float* y = output_at(ctx, 0);\n"
        "  _Alignas(64) float sums[{1} + LANES];\n",
        symbol_, rows_ * width_);
    if (copies_) {
      const int64_t copies = copies_at_a_time(geometry_, lanes_);
      const int64_t floats = copy_floats(geometry_, lanes_);
      text += fmt::format(
          "  float* planes = output_at(ctx, 1);\n"
          "  memset(planes, 0, {0} * sizeof(float));\n"
          "  for (int64_t ahead = 0; ahead < {1} + {2}; ++ahead) {{\n"
          "    if (ahead < {1}) {{\n"
          "      const float* next = input_at(ctx, 0) + ahead * {3};\n"
          "      float* to = planes + ahead % {4} * {5};\n{6}    }}\n"
          "    if (ahead < {2}) continue;\n"
          "    const int64_t channel = ahead - {2};\n"
          "    const float* x = planes + channel % {4} * {5};\n",
          copies * floats, channels, copies - 1, dvt_volume(window_.in), copies, floats,
          emit_next_copy());
    } else {
      text += fmt::format(
          "  for (int64_t channel = 0; channel < {}; ++channel) {{\n"
          "    const float* x = input_at(ctx, 0) + channel * {};\n",
          channels, dvt_volume(window_.in));
    }
    text += fmt::format(
        "    const int64_t g = channel % {};\n"
        "    const float* w = input_at(ctx, 1) + g * {};\n",
        conv_.groups, geometry_.distances.size());
    return text + fmt::format(
                      "    for (int64_t z = 0; z < {0}; ++z)\n"
                      "    for (int64_t begin = 0; begin < {1}; begin += {2})\n"
                      "    for (int64_t left = 0; left < {3}; left += {4}) {{\n"
                      "      const int64_t row = begin < {5} ? begin : {5};\n"
                      "      const int64_t column = left < {6} ? left : {6};\n"
                      "      {7}_rows(x + (z * {8} + row) * {9} + column, w, sums);\n"
                      "      const int64_t at = ((channel * {0} + z) * {1} + row) * {3} + column;\n"
                      "      {7}_finish(ctx, sums, y, {10}, at, g, 0);\n"
                      "    }}\n  }}\n  return DVT_OK;\n}}\n",
                      out[0], out[1], rows_, out[2], width_, out[1] - rows_, out[2] - width_,
                      symbol_, geometry_.extent[1], geometry_.extent[2], rows_ * width_);
  }

  const Convolution& conv_;
  const DvtWindow& window_;
  const std::string& symbol_;
  const Geometry geometry_;
  const int64_t lanes_;
  const bool flat_;
  const int64_t rows_, width_;
  const bool copies_;  // Planes are made in the workspace.
};

}  // namespace

Layout layout_of_depthwise(const Convolution& conv, std::span<const Isa> isas) {
  const Geometry geometry(conv.window);
  Layout layout;
  for (const Isa& isa : isas) {
    if (geometry.is_input && conv.window.out[2] >= isa.lanes) continue;
    layout.workspace_floats =
        std::max(layout.workspace_floats,
                 copies_at_a_time(geometry, isa.lanes) * copy_floats(geometry, isa.lanes));
  }
  layout.weight_dims = {conv.groups, int64_t(geometry.distances.size())};
  return layout;
}

std::string emit_depthwise(const Convolution& conv, const Isa& isa, const std::string& symbol) {
  return DepthwiseEmitter(conv, isa, symbol).run();
}

}  // namespace davit::codegen
