// table.hpp: aligned plain-text tables and CSV.
//
// Threads  Values; externally synchronised.
// Trust    Cells may hold names from a model: control characters are shown as '?', and CSV cells
//          are quoted.
// Memory   Owns its cells.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace davit::cli {

class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kRight;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // Precondition: one cell per column.
  void add_row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  [[nodiscard]] bool empty() const { return rows_.empty(); }
  // Title line, rule, rows; each line ends with '\n'. `indent` spaces before each.
  [[nodiscard]] std::string to_text(size_t indent = 2) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// One line of RFC 4180 CSV, with '\n'.
std::string csv_line(const std::vector<std::string>& cells);

// Control characters replaced, so that a name from a file cannot move the cursor.
std::string printable(std::string_view text);

// Columns a terminal needs for UTF-8 text (one per code point).
size_t display_width(std::string_view text);

}  // namespace davit::cli
