// Attention: some rows of Q at a time. Their scores lie in the workspace, where they are scaled,
// masked and become weights; their product with V goes to the result.
//
//   Q [rows][inner]  x  K [inner][columns]  ->  scores [tile rows][columns]
//   scores                 x  V [columns][width]   ->  Y [rows][width]
//
// Both products read their second operand as it lies, in vectors along its rows; sums run over the
// inner dimension in ascending order. Where columns are no multiple of a vector, the last one is
// moved back and computes some results twice.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/emit.hpp"
#include "ops/kernels/attention.h"

namespace davit::codegen {
namespace {

// So many vectors of columns from `begin` on; 0: what is less than a vector.
struct Strip {
  int64_t begin = 0, vectors = 0;
};

// Disjoint but for the last one.
std::vector<Strip> strips_of(int64_t columns, int64_t vectors, int64_t lanes) {
  if (columns < lanes) return {{0, 0}};
  std::vector<Strip> strips;
  int64_t begin = 0;
  for (; begin + vectors * lanes <= columns; begin += vectors * lanes) {
    strips.push_back({begin, vectors});
  }
  if (const int64_t whole = (columns - begin) / lanes; whole > 0) {
    strips.push_back({begin, whole});
    begin += whole * lanes;
  }
  if (begin < columns) strips.push_back({columns - lanes, 1});
  return strips;
}

struct Blocking {
  int64_t rows = 0, score_vectors = 0, value_vectors = 0;
};

// The rows that suit both products, by how many multiply-adds each has.
Blocking blocking_of(const Attention& attention, const Isa& isa) {
  constexpr int64_t kRowsMax = 12;
  Blocking best;
  double least = 0;
  for (int64_t rows = 1; rows <= std::min(kRowsMax, attention.rows); ++rows) {
    const Blocking now{rows, convolution_vectors(isa, rows, attention.columns),
                       convolution_vectors(isa, rows, attention.width)};
    const double scores =
        tile_efficiency({rows, now.score_vectors}, isa.lanes, attention.rows, attention.columns);
    const double values =
        tile_efficiency({rows, now.value_vectors}, isa.lanes, attention.rows, attention.width);
    const double time = double(attention.inner) * double(attention.columns) / scores +
                        double(attention.columns) * double(attention.width) / values;
    const bool fits = rows * (std::max(now.score_vectors, now.value_vectors) + 1) < isa.registers;
    if (!fits || (best.rows != 0 && time >= least)) continue;
    best = now;
    least = time;
  }
  return best;
}

// One of the two products: a[rows][inner] by b[inner][columns].
struct Operands {
  const char* name;
  int64_t inner, columns, vectors;
};

class AttentionEmitter {
 public:
  AttentionEmitter(const Attention& attention, const Isa& isa, const std::string& symbol)
      : attention_(attention),
        symbol_(symbol),
        lanes_(isa.lanes),
        blocking_(blocking_of(attention, isa)),
        scores_{"scores", attention.inner, attention.columns, blocking_.score_vectors},
        values_{"values", attention.columns, attention.width, blocking_.value_vectors} {}

  std::string run() {
    const Attention& a = attention_;
    const int64_t last = a.rows % blocking_.rows;
    std::string text = emit_table("q", a.q_at) + emit_table("k", a.k_at) + emit_table("v", a.v_at);
    if (!a.mask_at.empty()) text += emit_table("mask", a.mask_at);
    for (const int64_t rows : {blocking_.rows, last}) {
      if (rows > 0) text += emit_tiles(scores_, rows) + emit_tiles(values_, rows);
    }
    text += emit_weights();
    text += fmt::format(
        "DvtCode {0}_run(void* context) {{\n"
        "  const DvtContext* ctx = context;\n"
        "  float* y = output_at(ctx, 0);\n"
        "  float* scores = output_at(ctx, 1);\n"
        "  for (int64_t b = 0; b < {1}; ++b, y += {2}) {{\n"
        "    const float* q = input_at(ctx, 0) + {0}_q[b] * {3};\n"
        "    const float* k = input_at(ctx, 1) + {0}_k[b] * {4};\n"
        "    const float* v = input_at(ctx, 2) + {0}_v[b] * {5};\n",
        symbol_, a.q_at.size(), a.rows * a.width, a.rows * a.inner, a.inner * a.columns,
        a.columns * a.width);
    if (!a.mask_at.empty()) {
      text += fmt::format("    const float* mask = input_at(ctx, 3) + {0}_mask[b] * {1};\n",
                          symbol_, a.mask_rows * a.mask_columns);
    }
    const int64_t whole = a.rows - last;
    if (whole > 0) {
      text += fmt::format("    for (int64_t m = 0; m < {}; m += {}) {{\n{}    }}\n", whole,
                          blocking_.rows, emit_block("m", blocking_.rows));
    }
    if (last > 0) text += "    {\n" + emit_block(std::to_string(whole), last) + "    }\n";
    return text + "  }\n  return DVT_OK;\n}\n";
  }

 private:
  [[nodiscard]] std::string emit_table(const char* name, const std::vector<int64_t>& at) const {
    return fmt::format("static const int32_t {}_{}[] = {{{}}};\n", symbol_, name,
                       fmt::join(at, ", "));
  }

  [[nodiscard]] std::string tile_name(const Operands& of, int64_t rows, int64_t vectors) const {
    return fmt::format("{}_{}_{}x{}", symbol_, of.name, rows, vectors);
  }

  // A function for each width of strip.
  [[nodiscard]] std::string emit_tiles(const Operands& of, int64_t rows) const {
    std::vector<int64_t> widths;
    for (const Strip& strip : strips_of(of.columns, of.vectors, lanes_)) {
      if (std::find(widths.begin(), widths.end(), strip.vectors) == widths.end()) {
        widths.push_back(strip.vectors);
      }
    }
    std::string text;
    for (const int64_t vectors : widths) {
      text += fmt::format(
          "static __attribute__((noinline)) void {}(const float* a, const float* b, float* to) "
          "{{\n",
          tile_name(of, rows, vectors));
      text += vectors == 0 ? emit_narrow(of, rows) : emit_tile(of, {rows, vectors});
      text += "}\n";
    }
    return text;
  }

  [[nodiscard]] static std::string emit_tile(const Operands& of, const Tile& tile) {
    std::vector<std::string> rows;
    std::vector<std::string> columns;
    for (int64_t r = 0; r < tile.rows; ++r) rows.push_back(fmt::format("a[{} + k]", r * of.inner));
    for (int64_t v = 0; v < tile.vectors; ++v) {
      columns.push_back(fmt::format("b + k * {} + {} * LANES", of.columns, v));
    }
    std::string text = emit_accumulators(tile) +
                       fmt::format("  for (int64_t k = 0; k < {}; ++k) {{\n", of.inner) +
                       emit_multiply_adds(rows, columns) + "  }\n";
    for (int64_t r = 0; r < tile.rows; ++r) {
      for (int64_t v = 0; v < tile.vectors; ++v) {
        text += fmt::format("  store(to + {} + {} * LANES, a{}_{});\n", r * of.columns, v, r, v);
      }
    }
    return text;
  }

  // Less than a vector.
  [[nodiscard]] static std::string emit_narrow(const Operands& of, int64_t rows) {
    return fmt::format(
        "  for (int64_t r = 0; r < {0}; ++r)\n"
        "  for (int64_t j = 0; j < {1}; ++j) {{\n"
        "    float sum = 0.0f;\n"
        "    for (int64_t k = 0; k < {2}; ++k) sum += a[r * {2} + k] * b[k * {1} + j];\n"
        "    to[r * {1} + j] = sum;\n  }}\n",
        rows, of.columns, of.inner);
  }

  // Scales, masks and weighs a row.
  [[nodiscard]] std::string emit_weights() const {
    const Attention& a = attention_;
    std::string score = "row[j]";
    if (a.scaling != DVT_ATTENTION_PLAIN) {
      score += fmt::format(" {} {}", a.scaling == DVT_ATTENTION_DIVIDE ? '/' : '*',
                           float_literal(a.scale));
    }
    if (!a.mask_at.empty()) score += a.mask_columns == 1 ? " + mask[0]" : " + mask[j]";
    const std::string loop =
        fmt::format("#pragma GCC ivdep\n  for (int64_t j = 0; j < {}; ++j) row[j] ", a.columns);
    return fmt::format(
        "static inline void {0}_weigh(float* row{1}) {{\n"
        "{2}= {3};\n"
        "  const float most = row_max(row, {4});\n"
        "{2}= step_exp(row[j] - most);\n"
        "  const float sum = row_sum(row, {4});\n"
        "{2}/= sum;\n}}\n",
        symbol_, a.mask_at.empty() ? "" : ", const float* mask", loop, score, a.columns);
  }

  // The rows from `row` on, whose scores lie in the workspace.
  [[nodiscard]] std::string emit_block(const std::string& row, int64_t rows) const {
    const Attention& a = attention_;
    const std::string mask = a.mask_at.empty() ? ""
                             : a.mask_rows == 1
                                 ? ", mask"
                                 : fmt::format(", mask + ({} + r) * {}", row, a.mask_columns);
    return emit_strips(scores_, rows, fmt::format("q + {} * {}", row, a.inner), "k", "scores") +
           fmt::format("      for (int64_t r = 0; r < {}; ++r) {}_weigh(scores + r * {}{});\n",
                       rows, symbol_, a.columns, mask) +
           emit_strips(values_, rows, "scores", "v", fmt::format("y + {} * {}", row, a.width));
  }

  // Strips of the same width side by side are a loop.
  [[nodiscard]] std::string emit_strips(const Operands& of, int64_t rows, const std::string& a,
                                        const std::string& b, const std::string& to) const {
    const std::vector<Strip> strips = strips_of(of.columns, of.vectors, lanes_);
    // The last one may be as wide, but lies over its neighbour.
    const int64_t count = of.columns / (of.vectors * lanes_);
    const auto call = [&](int64_t vectors, const std::string& begin) {
      return fmt::format("      {0}({1}, {2} + {4}, {3} + {4});\n", tile_name(of, rows, vectors), a,
                         b, to, begin);
    };
    std::string text;
    if (count > 0) {
      text += fmt::format("      for (int64_t j = 0; j < {}; j += {})\n  {}",
                          count * of.vectors * lanes_, of.vectors * lanes_, call(of.vectors, "j"));
    }
    for (auto strip = strips.begin() + count; strip != strips.end(); ++strip) {
      text += call(strip->vectors, std::to_string(strip->begin));
    }
    return text;
  }

  const Attention& attention_;
  const std::string& symbol_;
  const int64_t lanes_;
  const Blocking blocking_;
  const Operands scores_, values_;
};

}  // namespace

Layout layout_of_attention(const Attention& attention, std::span<const Isa> isas) {
  int64_t rows = 0;
  for (const Isa& isa : isas) rows = std::max(rows, blocking_of(attention, isa).rows);
  return {.workspace_floats = rows * attention.columns};
}

std::string emit_attention(const Attention& attention, const Isa& isa, const std::string& symbol) {
  return AttentionEmitter(attention, isa, symbol).run();
}

}  // namespace davit::codegen
