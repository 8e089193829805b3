#include "lowering/memory_plan/interval_csv.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/utf8.hpp"

namespace davit::lowering {
namespace {

enum Column : uint8_t { kId, kLower, kUpper, kSize, kOffset, kAlignment, kColumnCount };
constexpr std::array<std::string_view, kColumnCount> kNames = {"id",   "lower",  "upper",
                                                               "size", "offset", "alignment"};
constexpr size_t kNeeded = 4;     // The others may be missing.
constexpr size_t kShownMax = 40;  // Bytes of a bad cell that an error shows.

// For messages: cut, and with '?' for what is not text.
std::string quoted(std::string_view text) {
  std::string out = "'";
  std::string_view rest = text;
  while (!rest.empty() && out.size() < kShownMax) {
    const size_t length = utf8_length(rest);
    const bool is_control = static_cast<unsigned char>(rest.front()) < 0x20;
    out += length == 0 || is_control ? std::string_view("?") : rest.substr(0, length);
    rest.remove_prefix(std::max<size_t>(length, 1));
  }
  return out + (rest.empty() ? "'" : "...'");
}

class Parser {
 public:
  explicit Parser(std::string_view text) : rest_(text) {
    if (rest_.starts_with("\xEF\xBB\xBF")) rest_.remove_prefix(3);  // A byte order mark.
  }

  Result<IntervalTable> run() {
    Status status = read_header();
    while (status.ok() && next_line()) status = read_row();
    if (!status.ok()) return status;
    return std::move(table_);
  }

 private:
  // The next line that is not empty, split at commas, blanks around cells removed.
  bool next_line() {
    while (!rest_.empty()) {
      const size_t end = std::min(rest_.find('\n'), rest_.size());
      std::string_view line = rest_.substr(0, end);
      rest_.remove_prefix(std::min(end + 1, rest_.size()));
      ++line_;
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      cells_.clear();
      while (true) {
        const size_t comma = std::min(line.find(','), line.size());
        cells_.push_back(trimmed(line.substr(0, comma)));
        if (comma == line.size()) return true;
        line.remove_prefix(comma + 1);
      }
    }
    return false;
  }

  static std::string_view trimmed(std::string_view cell) {
    const size_t begin = cell.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) return {};
    return cell.substr(begin, cell.find_last_not_of(" \t\r") - begin + 1);
  }

  [[nodiscard]] Status bad(const std::string& what) const {
    return Status(ErrorDetail{.code = DVT_INVALID_IMAGE,
                              .stage = DVT_STAGE_PARSE,
                              .message = "line " + std::to_string(line_) + ": " + what,
                              .hint = "the first line names the columns id,lower,upper,size"});
  }

  Status read_header() {
    if (!next_line()) return bad("there is no header");
    where_.fill(cells_.size());
    for (size_t i = 0; i < cells_.size(); ++i) {
      const auto name = std::find(kNames.begin(), kNames.end(), cells_[i]);
      if (name == kNames.end()) return bad("unknown column " + quoted(cells_[i]));
      size_t& where = where_[size_t(name - kNames.begin())];
      if (where != cells_.size()) return bad("two columns " + quoted(cells_[i]));
      where = i;
    }
    column_count_ = cells_.size();
    for (size_t i = 0; i < kNeeded; ++i) {
      if (where_[i] == cells_.size()) return bad("no column " + quoted(kNames[i]));
    }
    return {};
  }

  // Whether the row says anything in a column. What is needed always counts as said.
  [[nodiscard]] bool has(Column column) const {
    return column < kNeeded || (where_[column] < column_count_ && !cells_[where_[column]].empty());
  }

  Status read_row() {
    if (cells_.size() != column_count_) {
      return bad(std::to_string(cells_.size()) + " cells where the header has " +
                 std::to_string(column_count_));
    }
    std::array<uint64_t, kColumnCount> numbers{};
    for (const Column column : {kLower, kUpper, kSize, kOffset, kAlignment}) {
      if (!has(column)) continue;
      const std::string_view cell = cells_[where_[column]];
      const auto [end, error] =
          std::from_chars(cell.data(), cell.data() + cell.size(), numbers[column]);
      if (error != std::errc() || end != cell.data() + cell.size()) {
        return bad(std::string(kNames[column]) + " is " + quoted(cell) +
                   ", not a number from 0 to 2^64 - 1");
      }
    }
    if (numbers[kLower] >= numbers[kUpper]) {
      return bad("lower is " + std::to_string(numbers[kLower]) + ", upper is " +
                 std::to_string(numbers[kUpper]) + ": the value dies before it is born");
    }
    const std::string id(cells_[where_[kId]]);
    if (id.empty()) return bad("the id is empty");
    const auto [known, is_new] = lines_.emplace(id, line_);
    if (!is_new) {
      return bad("id " + quoted(id) + " is that of line " + std::to_string(known->second));
    }
    const auto value = uint32_t(table_.ids.size());
    if (has(kOffset)) table_.constraints.fixed.push_back({value, numbers[kOffset]});
    if (has(kAlignment)) table_.constraints.alignments.push_back({value, numbers[kAlignment]});
    table_.ids.push_back(id);
    table_.intervals.push_back({numbers[kLower], numbers[kUpper], numbers[kSize]});
    return {};
  }

  std::string_view rest_;
  uint64_t line_ = 0;
  std::vector<std::string_view> cells_;
  size_t column_count_ = 0;
  std::array<size_t, kColumnCount> where_{};         // Of a column among the cells.
  std::unordered_map<std::string, uint64_t> lines_;  // By id.
  IntervalTable table_;
};

}  // namespace

Result<IntervalTable> parse_intervals(std::string_view text) {
  return Parser(text).run();
}

std::string print_offsets(const IntervalTable& table, std::span<const uint64_t> offsets) {
  std::vector<std::string> alignments;  // By value; empty cells for those without.
  for (const auto& alignment : table.constraints.alignments) {
    alignments.resize(table.intervals.size());
    alignments[alignment.value] = std::to_string(alignment.bytes);
  }
  std::string out = "id,lower,upper,size,offset";
  out += alignments.empty() ? "\n" : ",alignment\n";
  for (size_t i = 0; i < table.intervals.size(); ++i) {
    const Interval& interval = table.intervals[i];
    out += table.ids[i];
    for (const uint64_t number : {interval.lower, interval.upper, interval.size, offsets[i]}) {
      out += ',' + std::to_string(number);
    }
    if (!alignments.empty()) out += ',' + alignments[i];
    out += '\n';
  }
  return out;
}

}  // namespace davit::lowering
