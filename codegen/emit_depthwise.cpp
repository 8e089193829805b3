// Depthwise convolutions: a channel at a time, its planes in the cache. Some lines of the result
// are made together, a vector of each in registers: what one of them reads, its neighbours read
// too. They lie one after the other before the steps, which take them all at once.
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

class DepthwiseEmitter {
 public:
  DepthwiseEmitter(const Convolution& conv, const Isa& isa, const std::string& symbol)
      : conv_(conv),
        window_(conv.window),
        symbol_(symbol),
        geometry_(conv.window),
        lanes_(isa.lanes),
        rows_(rows_of(conv.window, geometry_, isa)),
        width_(std::min(window_.out[2], kWidthMax)),
        copies_(!geometry_.is_input || window_.out[2] < isa.lanes) {}

  std::string run() {
    return emit_steps(conv_.steps, symbol_) +
           (copies_ ? emit_fill(window_, geometry_, 1, symbol_) : "") + emit_rows() + emit_run();
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

  [[nodiscard]] std::string emit_run() const {
    const auto& out = window_.out;
    std::string text = fmt::format(
        "DvtCode {0}_run(void* context) {{\n"
        "  const DvtContext* ctx = context;\n"
        "  float* y = output_at(ctx, 0);\n"
        "  _Alignas(64) float sums[{1} + LANES];\n"
        "  for (int64_t n = 0; n < {2}; ++n)\n"
        "  for (int64_t g = 0; g < {3}; ++g) {{\n"
        "    const int64_t channel = n * {3} + g;\n"
        "    const float* x = input_at(ctx, 0) + channel * {4};\n"
        "    const float* w = input_at(ctx, 1) + g * {5};\n",
        symbol_, rows_ * width_, conv_.batch, conv_.groups, dvt_volume(window_.in),
        geometry_.distances.size());
    if (copies_) {
      text += fmt::format(
          "    {}_fill(x, output_at(ctx, 1));\n"
          "    x = output_at(ctx, 1);\n",
          symbol_);
    }
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
  const int64_t lanes_, rows_, width_;
  const bool copies_;  // Planes are made in the workspace.
};

}  // namespace

Layout layout_of_depthwise(const Convolution& conv, std::span<const Isa> isas) {
  const Geometry geometry(conv.window);
  Layout layout;
  for (const Isa& isa : isas) {
    if (geometry.is_input && conv.window.out[2] >= isa.lanes) continue;
    layout.workspace_floats = std::max(layout.workspace_floats, geometry.channel + isa.lanes);
  }
  layout.weight_dims = {conv.groups, int64_t(geometry.distances.size())};
  return layout;
}

std::string emit_depthwise(const Convolution& conv, const Isa& isa, const std::string& symbol) {
  return DepthwiseEmitter(conv, isa, symbol).run();
}

}  // namespace davit::codegen
