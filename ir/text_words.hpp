// text_words.hpp: what printer and parser of the text form agree on.
//
// Threads  Pure.
// Trust    Takes any bytes.
// Memory   None.
#pragma once

#include <algorithm>
#include <string_view>

namespace davit::ir::text {

inline bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
inline bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

// Characters of operators, domains, attribute names and symbols that need no quotes.
inline bool is_word_char(char c) {
  return is_letter(c) || is_digit(c) || c == '.';
}
// Characters of a value's identifier; exporters put slashes and dashes into names.
inline bool is_identifier_char(char c) {
  return is_word_char(c) || c == '/' || c == '-';
}

// "_" alone stands for an absent operand.
inline bool is_word(std::string_view text) {
  return !text.empty() && text != "_" && is_letter(text.front()) &&
         std::all_of(text.begin(), text.end(), is_word_char);
}
// Identifiers that begin with a digit are the printer's own.
inline bool is_identifier(std::string_view text) {
  return !text.empty() && !is_digit(text.front()) &&
         std::all_of(text.begin(), text.end(), is_identifier_char);
}

}  // namespace davit::ir::text
