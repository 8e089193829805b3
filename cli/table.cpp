#include "cli/table.hpp"

#include <algorithm>

namespace davit::cli {
namespace {

void append_cell(std::string& line, const std::string& cell, size_t width, bool right, bool last) {
  const size_t padding = width - std::min(width, display_width(cell));
  if (right) line.append(padding, ' ');
  line += cell;
  if (!right && !last) line.append(padding, ' ');
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) c = '?';
  }
  return out;
}

size_t display_width(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;  // Not a continuation byte.
  }));
}

std::string Table::to_text(size_t indent) const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t width = display_width(columns_[c].title);
    for (const auto& row : rows_) width = std::max(width, display_width(row[c]));
    widths.push_back(width);
  }
  std::string text;
  const auto add_line = [&](const auto& cell_at) {
    std::string line(indent, ' ');
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (c > 0) line += "  ";
      append_cell(line, cell_at(c), widths[c], columns_[c].align == Align::kRight,
                  c + 1 == columns_.size());
    }
    text += line + '\n';
  };
  add_line([&](size_t c) { return columns_[c].title; });
  add_line([&](size_t c) { return std::string(widths[c], '-'); });
  for (const auto& row : rows_) add_line([&](size_t c) { return printable(row[c]); });
  return text;
}

std::string csv_line(const std::vector<std::string>& cells) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) line += ',';
    if (cells[i].find_first_of(",\"\r\n") == std::string::npos) {
      line += cells[i];
      continue;
    }
    line += '"';
    for (const char c : cells[i]) {
      if (c == '"') line += '"';
      line += c;
    }
    line += '"';
  }
  return line + '\n';
}

}  // namespace davit::cli
