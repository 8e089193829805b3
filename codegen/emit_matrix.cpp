// Products with a constant matrix: A row by row, B in panels of kPanelColumns columns.
//
//   packed B   panel 0: row 0 | row 1 | ... , panel 1: ...     columns behind the last are 0
//
// A tile is some rows by some panels; its sum runs over the inner dimension in ascending order.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/emit.hpp"

namespace davit::codegen {
namespace {

class MatrixEmitter {
 public:
  MatrixEmitter(const Matrix& matrix, const Isa& isa, const std::string& symbol)
      : matrix_(matrix),
        symbol_(symbol),
        tile_(matrix_tile(isa, matrix.rows, matrix.columns)),
        panel_vectors_(kPanelColumns / isa.lanes),
        panels_((matrix.columns + kPanelColumns - 1) / kPanelColumns),
        tile_panels_(tile_.vectors / panel_vectors_) {}

  std::string run() {
    const int64_t last_rows = matrix_.rows % tile_.rows;
    const int64_t last_panels = panels_ % tile_panels_;
    std::string text = emit_steps(matrix_.steps, symbol_);
    for (const int64_t panels : {tile_panels_, last_panels}) {
      for (const int64_t rows : {tile_.rows, last_rows}) {
        if (panels > 0 && rows > 0) text += emit_tile(rows, panels);
      }
    }
    text += fmt::format(
        "DvtCode {0}_run(void* context) {{\n"
        "  const DvtContext* ctx = context;\n"
        "  const float* a = input_at(ctx, 0);\n"
        "  const float* b = input_at(ctx, 1);\n"
        "  float* y = output_at(ctx, 0);\n",
        symbol_);
    text += emit_panels(0, panels_ - last_panels, tile_panels_);
    if (last_panels > 0) text += emit_panels(panels_ - last_panels, panels_, last_panels);
    return text + "  return DVT_OK;\n}\n";
  }

 private:
  [[nodiscard]] std::string tile_name(int64_t rows, int64_t panels) const {
    return fmt::format("{}_tile_{}x{}", symbol_, rows, panels);
  }

  [[nodiscard]] std::string emit_tile(int64_t rows, int64_t panels) const {
    const Tile tile{rows, panels * panel_vectors_};
    std::vector<std::string> row_texts;
    std::vector<std::string> column_texts;
    for (int64_t r = 0; r < rows; ++r)
      row_texts.push_back(fmt::format("a[{} + k]", r * matrix_.inner));
    for (int64_t v = 0; v < tile.vectors; ++v) {
      const int64_t panel = v / panel_vectors_;
      column_texts.push_back(fmt::format("b + {} + k * {} + {} * LANES",
                                         panel * matrix_.inner * kPanelColumns, kPanelColumns,
                                         v % panel_vectors_));
    }
    return fmt::format(
               "static __attribute__((noinline)) void {}(const float* a, const float* b, float* "
               "tile) "
               "{{\n",
               tile_name(rows, panels)) +
           emit_accumulators(tile) +
           fmt::format("  for (int64_t k = 0; k < {}; ++k) {{\n", matrix_.inner) +
           emit_multiply_adds(row_texts, column_texts) + "  }\n" + emit_store_tile(tile) + "}\n";
  }

  // All rows of the panels [begin, end), `panels` at a time.
  [[nodiscard]] std::string emit_panels(int64_t begin, int64_t end, int64_t panels) const {
    if (begin == end) return "";
    const int64_t width = panels * kPanelColumns;
    const int64_t whole = matrix_.rows / tile_.rows * tile_.rows;
    std::string text =
        fmt::format("  for (int64_t p = {}; p < {}; p += {}) {{\n", begin, end, panels);
    text += fmt::format(
        "    const float* panel = b + p * {};\n"
        "    const int64_t column = p * {};\n"
        "    const int64_t count = {} - column < {} ? {} - column : {};\n"
        "    _Alignas(64) float tile[{}];\n",
        matrix_.inner * kPanelColumns, kPanelColumns, matrix_.columns, width, matrix_.columns,
        width, tile_.rows * width);
    const auto rows_text = [&](const std::string& row, int64_t rows) {
      return fmt::format(
          "      {0}(a + ({1}) * {2}, panel, tile);\n"
          "      for (int64_t r = 0; r < {3}; ++r) {{\n"
          "        const int64_t at = ({1} + r) * {4} + column;\n"
          "        if (count == {5}) {{\n"
          "          {6}_finish(ctx, tile + r * {5}, y, {5}, at, {1} + r, column);\n"
          "        }} else {{\n"
          "          {6}_finish(ctx, tile + r * {5}, y, count, at, {1} + r, column);\n"
          "        }}\n      }}\n",
          tile_name(rows, panels), row, matrix_.inner, rows, matrix_.columns, width, symbol_);
    };
    if (whole > 0) {
      text += fmt::format("    for (int64_t m = 0; m < {}; m += {}) {{\n", whole, tile_.rows) +
              rows_text("m", tile_.rows) + "    }\n";
    }
    if (whole < matrix_.rows) {
      text += "    {\n" + rows_text(std::to_string(whole), matrix_.rows - whole) + "    }\n";
    }
    return text + "  }\n";
  }

  const Matrix& matrix_;
  const std::string& symbol_;
  const Tile tile_;
  const int64_t panel_vectors_, panels_, tile_panels_;
};

}  // namespace

std::string emit_matrix(const Matrix& matrix, const Isa& isa, const std::string& symbol) {
  return MatrixEmitter(matrix, isa, symbol).run();
}

std::vector<float> pack_matrix(const Product& product, const Matrix& matrix,
                               std::span<const float> weights) {
  const int64_t panels = (matrix.columns + kPanelColumns - 1) / kPanelColumns;
  std::vector<float> packed(size_t(panels * matrix.inner * kPanelColumns), 0.0F);
  const auto scale = static_cast<float>(product.scale);
  for (int64_t k = 0; k < matrix.inner; ++k) {
    for (int64_t n = 0; n < matrix.columns; ++n) {
      const int64_t from =
          product.transpose_weights ? n * matrix.inner + k : k * matrix.columns + n;
      const int64_t to = (n / kPanelColumns * matrix.inner + k) * kPanelColumns + n % kPanelColumns;
      packed[size_t(to)] = scale * weights[size_t(from)];
    }
  }
  return packed;
}

}  // namespace davit::codegen
