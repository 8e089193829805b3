// Pools, sums and means, softmax, resizing: a plane or row at a time, in order.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/emit.hpp"

namespace davit::codegen {
namespace {

std::string head(const std::string& symbol) {
  return fmt::format(
      "DvtCode {0}_run(void* context) {{\n"
      "  const DvtContext* ctx = context;\n"
      "  const float* x = input_at(ctx, 0);\n"
      "  float* y = output_at(ctx, 0);\n",
      symbol);
}

template <class Values>
std::string table(const std::string& type, const std::string& name, const Values& values) {
  return fmt::format("static const {} {}[] = {{{}}};\n", type, name, fmt::join(values, ", "));
}

// ---- Pools -------------------------------------------------------------------------------------

class PoolEmitter {
 public:
  PoolEmitter(const Pool& pool, int64_t lanes, const std::string& symbol)
      : pool_(pool),
        window_(pool.window),
        symbol_(symbol),
        lanes_(lanes),
        stride_(window_.stride[2]),
        short_(window_.out[2] < lanes && window_.kernel[2] <= window_.stride[2]),
        phase_(phase_of(window_, lanes)) {}

  // The lines under the window become one, with its pads; then its columns. With a stride of s,
  // every s-th element goes to a line of its own first.
  std::string run() {
    const DvtWindow& w = window_;
    std::string text;
    if (!pool_.is_max) {
      text += table("float", symbol_ + "_high", counts(1)) +
              table("float", symbol_ + "_wide", counts(2));
    }
    text += head(symbol_);
    text += fmt::format(
        "  float line[{0} + LANES];\n"
        "  for (int64_t i = 0; i < {0} + LANES; ++i) line[i] = {1};\n"
        "  for (int64_t p = 0; p < {2}; ++p, x += {3})\n"
        "  for (int64_t i = 0; i < {4}; ++i, y += {5}) {{\n"
        "    const int64_t first = i * {6} - {7};\n"
        "    float* at = line + {8};\n",
        phase_ * stride_, identity(), pool_.planes, w.in[1] * w.in[2], w.out[1], w.out[2],
        w.stride[1], w.pad[1], w.pad[2]);
    text += emit_lines() + emit_phases() + emit_columns();
    return text + "  }\n  return DVT_OK;\n}\n";
  }

 private:
  // Elements of a line that are a stride apart: all that lie under a window, or in the input.
  static int64_t phase_of(const DvtWindow& w, int64_t lanes) {
    const int64_t reach = (w.out[2] - 1) * w.stride[2] + (w.kernel[2] - 1) * w.dilation[2] + 1;
    const int64_t line = std::max(reach, w.pad[2] + w.in[2]);
    const int64_t step = w.stride[2] * lanes;
    return (line + step - 1) / step * lanes;
  }
  [[nodiscard]] const char* identity() const { return pool_.is_max ? "-__builtin_inff()" : "0.0f"; }
  [[nodiscard]] std::string join(const std::string& a, const std::string& b,
                                 bool in_vectors) const {
    if (!pool_.is_max) return fmt::format("{} + {}", a, b);
    return fmt::format("pool_max{}({}, {})", in_vectors ? "_vector" : "", a, b);
  }

  // to[j] for each j < count: what is at the terms + j, joined, by `divisor` + j if there is one.
  // In whole vectors where there are any: the last one is moved back. What is shorter is one
  // vector, if there is something to read behind the terms.
  [[nodiscard]] std::string emit_join(int64_t count, const std::string& to,
                                      std::span<const std::string> terms,
                                      const std::string& divisor, bool may_overrun) const {
    const bool in_vectors = count >= lanes_ || may_overrun;
    const auto one = [&](const std::string& term) {
      return fmt::format(fmt::runtime(in_vectors ? "load({} + j)" : "({})[j]"), term);
    };
    std::string all = one(terms[0]);
    for (const std::string& term : terms.subspan(1)) all = join(all, one(term), in_vectors);
    if (!divisor.empty()) all = fmt::format("({}) / ({}_high[i] * {})", all, symbol_, one(divisor));
    if (!in_vectors) {
      return fmt::format("      for (int64_t j = 0; j < {}; ++j) ({})[j] = {};\n", count, to, all);
    }
    if (count < lanes_) {
      return fmt::format(
          "      const int64_t j = 0;\n"
          "      float vector[LANES];\n"
          "      store(vector, {});\n"
          "      memcpy({}, vector, {} * sizeof(float));\n",
          all, to, count);
    }
    return fmt::format(
        "      for (int64_t next = 0; next < {0}; next += LANES) {{\n"
        "        const int64_t j = next < {1} ? next : {1};\n"
        "        store({2} + j, {3});\n"
        "      }}\n",
        count, count - lanes_, to, all);
  }

  // Elements under the window along an axis, for each position; 1 where there are none: 0 / 1.
  [[nodiscard]] std::vector<std::string> counts(int axis) const {
    const DvtWindow& w = window_;
    const int64_t low = pool_.counts_pads ? -w.pad[axis] : 0;
    const int64_t high = w.in[axis] + (pool_.counts_pads ? w.pad_end[axis] : 0);
    std::vector<std::string> result;
    for (int64_t o = 0; o < w.out[axis]; ++o) {
      int64_t count = 0;
      for (int64_t k = 0; k < w.kernel[axis]; ++k) {
        const int64_t at = o * w.stride[axis] - w.pad[axis] + k * w.dilation[axis];
        if (at >= low && at < high) ++count;
      }
      result.push_back(fmt::format("{}.0f", std::max<int64_t>(count, 1)));
    }
    while (int64_t(result.size()) < lanes_) result.emplace_back("1.0f");
    return result;
  }

  [[nodiscard]] std::string emit_lines() const {
    const DvtWindow& w = window_;
    std::vector<std::string> terms;
    for (int64_t k = 0; k < w.kernel[1]; ++k) {
      terms.push_back(fmt::format("from + {}", k * w.dilation[1] * w.in[2]));
    }
    return fmt::format(
        "    if (first >= 0 && first + {0} < {1}) {{\n"
        "      const float* from = x + first * {2};\n{3}"
        "    }} else {{\n"
        "      for (int64_t j = 0; j < {2}; ++j) at[j] = {4};\n"
        "      for (int64_t k = first; k <= first + {0}; k += {5}) {{\n"
        "        if (k < 0 || k >= {1}) continue;\n"
        "        const float* from = x + k * {2};\n"
        "        for (int64_t j = 0; j < {2}; ++j) at[j] = {6};\n"
        "      }}\n    }}\n",
        (w.kernel[1] - 1) * w.dilation[1], w.in[1], w.in[2],
        emit_join(w.in[2], "at", terms, "", /*may_overrun=*/false), identity(), w.dilation[1],
        join("at[j]", "from[j]", false));
  }

  [[nodiscard]] std::string emit_phases() const {
    if (stride_ == 1 || short_) return "";
    std::string text;
    for (int64_t p = 0; p < stride_; ++p)
      text += fmt::format("    float phase{}[{} + LANES];\n", p, phase_);
    text += fmt::format("    for (int64_t j = 0; j < {}; ++j) {{\n", phase_);
    for (int64_t p = 0; p < stride_; ++p) {
      text += fmt::format("      phase{0}[j] = line[j * {1} + {0}];\n", p, stride_);
    }
    return text + "    }\n";
  }

  [[nodiscard]] std::string emit_columns() const {
    const DvtWindow& w = window_;
    if (short_) return emit_short_columns();
    std::vector<std::string> terms;
    for (int64_t k = 0; k < w.kernel[2]; ++k) {
      const int64_t at = k * w.dilation[2];
      terms.push_back(stride_ == 1 ? fmt::format("line + {}", at)
                                   : fmt::format("phase{} + {}", at % stride_, at / stride_));
    }
    return emit_join(w.out[2], "y", terms, pool_.is_max ? "" : symbol_ + "_wide",
                     /*may_overrun=*/true);
  }

  // Less than a vector, of windows that do not overlap: compilers know best.
  [[nodiscard]] std::string emit_short_columns() const {
    std::string all = fmt::format("line[j * {}]", stride_);
    for (int64_t k = 1; k < window_.kernel[2]; ++k) {
      all = join(all, fmt::format("line[j * {} + {}]", stride_, k * window_.dilation[2]), false);
    }
    if (!pool_.is_max) all = fmt::format("({0}) / ({1}_high[i] * {1}_wide[j])", all, symbol_);
    return fmt::format(
        "#pragma GCC ivdep\n"
        "    for (int64_t j = 0; j < {}; ++j) y[j] = {};\n",
        window_.out[2], all);
  }

  const Pool& pool_;
  const DvtWindow& window_;
  const std::string& symbol_;
  const int64_t lanes_, stride_;
  const bool short_;
  const int64_t phase_;  // Elements of a line that are a stride apart, filled up to vectors.
};

// ---- Rows --------------------------------------------------------------------------------------

std::string emit_reduction(const Reduction& reduction, const std::string& symbol) {
  return head(symbol) +
         fmt::format(
             "  for (int64_t r = 0; r < {0}; ++r, x += {1}) y[r] = row_sum(x, {1}){2};\n"
             "  return DVT_OK;\n}}\n",
             reduction.rows, reduction.count,
             reduction.is_mean ? fmt::format(" / {}.0f", reduction.count) : "");
}

std::string emit_softmax(const Softmax& softmax, const std::string& symbol) {
  return head(symbol) + fmt::format(
                            "  for (int64_t r = 0; r < {0}; ++r, x += {1}, y += {1}) {{\n"
                            "    const float most = row_max(x, {1});\n"
                            "#pragma GCC ivdep\n"
                            "    for (int64_t i = 0; i < {1}; ++i) y[i] = step_exp(x[i] - most);\n"
                            "    const float sum = row_sum(y, {1});\n"
                            "    for (int64_t i = 0; i < {1}; ++i) y[i] /= sum;\n"
                            "  }}\n  return DVT_OK;\n}}\n",
                            softmax.rows, softmax.count);
}

// ---- Resizing ----------------------------------------------------------------------------------

// Tap by tap: all outputs' first ones, then all second ones.
std::string emit_axis(const Resize::Axis& axis, const std::string& name) {
  std::vector<int64_t> index;
  std::vector<std::string> weight;
  for (int64_t t = 0; t < axis.taps; ++t) {
    for (int64_t o = 0; o < axis.out; ++o) {
      index.push_back(axis.index[size_t(o * axis.taps + t)]);
      weight.push_back(fmt::format("{:a}f", axis.weight[size_t(o * axis.taps + t)]));
    }
  }
  return table("int32_t", name + "_at", index) + table("float", name + "_weight", weight);
}

// Lines are mixed first, where neighbours lie side by side, then columns.
std::string emit_resize(const Resize& resize, const std::string& symbol) {
  std::string text = emit_axis(resize.lines, symbol + "_high") +
                     emit_axis(resize.columns, symbol + "_wide") + head(symbol);
  const int64_t in = resize.columns.in;
  const int64_t out = resize.columns.out;
  std::string lines;
  for (int64_t t = 0; t < resize.lines.taps; ++t) {
    text += fmt::format("  const float* from{};\n  float weight{};\n", t, t);
    lines += fmt::format("{}weight{} * from{}[j]", t == 0 ? "" : " + ", t, t);
  }
  text += fmt::format(
      "  float line[{0}];\n"
      "  for (int64_t p = 0; p < {1}; ++p, x += {2})\n"
      "  for (int64_t i = 0; i < {3}; ++i, y += {4}) {{\n",
      in, resize.planes, resize.lines.in * in, resize.lines.out, out);
  for (int64_t t = 0; t < resize.lines.taps; ++t) {
    text += fmt::format(
        "    from{0} = x + {1}_high_at[{2} + i] * {3};\n"
        "    weight{0} = {1}_high_weight[{2} + i];\n",
        t, symbol, t * resize.lines.out, in);
  }
  std::string columns;
  for (int64_t t = 0; t < resize.columns.taps; ++t) {
    columns += fmt::format("{0}{1}_wide_weight[{2} + j] * line[{1}_wide_at[{2} + j]]",
                           t == 0 ? "" : " + ", symbol, t * out);
  }
  return text + fmt::format(
                    "    for (int64_t j = 0; j < {0}; ++j) line[j] = {1};\n"
                    "#pragma GCC ivdep\n"
                    "    for (int64_t j = 0; j < {2}; ++j) y[j] = {3};\n"
                    "  }}\n  return DVT_OK;\n}}\n",
                    in, lines, out, columns);
}

}  // namespace

std::string emit_planewise(const Product& product, const Isa& isa, const std::string& symbol) {
  if (const auto* pool = std::get_if<Pool>(&product.what)) {
    return PoolEmitter(*pool, isa.lanes, symbol).run();
  }
  if (const auto* resize = std::get_if<Resize>(&product.what)) return emit_resize(*resize, symbol);
  if (const auto* softmax = std::get_if<Softmax>(&product.what)) {
    return emit_softmax(*softmax, symbol);
  }
  return emit_reduction(std::get<Reduction>(product.what), symbol);
}

}  // namespace davit::codegen
