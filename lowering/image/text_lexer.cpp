#include "lowering/image/text_lexer.hpp"

#include <algorithm>
#include <cstdio>

namespace davit::image {
namespace {

// Locale-independent, unlike <cctype>.
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_word(char c) {
  return is_letter(c) || is_digit(c);
}

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

size_t name_end(std::string_view text, size_t at) {
  while (at < text.size()) {
    const bool inner_dot = text[at] == '.' && at + 1 < text.size() && is_word(text[at + 1]);
    if (!is_word(text[at]) && !inner_dot) break;
    ++at;
  }
  return at;
}

}  // namespace

Lexer::Lexer(std::string_view text) : text_(text) {
  token_ = scan();
  next_ = scan();
}

Token Lexer::take() {
  const Token taken = token_;
  token_ = next_;
  next_ = scan();
  return taken;
}

bool Lexer::at(std::string_view text) const {
  return token_.text == text && token_.kind != TokenKind::kString;
}

bool Lexer::take_if(std::string_view text) {
  if (!at(text)) return false;
  take();
  return true;
}

void Lexer::skip_newlines() {
  while (token_.kind == TokenKind::kNewline) take();
}

Token Lexer::make(TokenKind kind, size_t begin) const {
  return {kind, text_.substr(begin, position_ - begin), begin};
}

void Lexer::skip_blanks() {
  while (position_ < text_.size()) {
    const char c = text_[position_];
    if (c == '#') {
      position_ = std::min(text_.find('\n', position_), text_.size());
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++position_;
    } else {
      return;
    }
  }
}

// Digits with fraction and exponent, 0x digits, or inf and nan; a minus first, perhaps. Returns the
// end, or `begin` when there is no number. "1..8" ends after the 1.
size_t Lexer::scan_number(size_t begin) const {
  const auto char_at = [&](size_t i) { return i < text_.size() ? text_[i] : '\0'; };
  size_t at = begin;
  if (char_at(at) == '-') ++at;
  for (const std::string_view word : {"inf", "nan"}) {
    if (text_.substr(at, 3) == word && !is_word(char_at(at + 3))) return at + 3;
  }
  if (!is_digit(char_at(at))) return begin;
  if (char_at(at) == '0' && char_at(at + 1) == 'x') {
    at += 2;
    while (hex_digit(char_at(at)) >= 0) ++at;
    return at;
  }
  while (is_digit(char_at(at))) ++at;
  if (char_at(at) == '.' && is_digit(char_at(at + 1))) {
    ++at;
    while (is_digit(char_at(at))) ++at;
  }
  if (char_at(at) == 'e' || char_at(at) == 'E') {
    size_t digits = at + 1;
    if (char_at(digits) == '+' || char_at(digits) == '-') ++digits;
    if (is_digit(char_at(digits))) {
      at = digits;
      while (is_digit(char_at(at))) ++at;
    }
  }
  return at;
}

Token Lexer::scan() {
  skip_blanks();
  const size_t begin = position_;
  if (begin == text_.size()) return make(TokenKind::kEnd, begin);
  const char c = text_[begin];
  if (c == '\n') {
    ++position_;
    return make(TokenKind::kNewline, begin);
  }
  if (const size_t end = scan_number(begin); end != begin) {
    position_ = end;
    return make(TokenKind::kNumber, begin);
  }
  if (is_letter(c)) {
    position_ = name_end(text_, begin);
    return make(TokenKind::kName, begin);
  }
  if (c == '%') {
    position_ = name_end(text_, begin + 1);
    return make(TokenKind::kHandle, begin);
  }
  if (c == '"') {
    size_t at = begin + 1;
    while (at < text_.size() && text_[at] != '"' && text_[at] != '\n')
      at += text_[at] == '\\' ? 2 : 1;
    position_ = std::min(at + 1, text_.size());
    return make(TokenKind::kString, begin);
  }
  size_t dots = 0;
  while (dots < 3 && begin + dots < text_.size() && text_[begin + dots] == '.') ++dots;
  position_ = begin + std::max<size_t>(dots, 1);
  return make(TokenKind::kSymbol, begin);
}

Status Lexer::error(const Token& token, const std::string& message) const {
  const std::string_view before = text_.substr(0, token.offset);
  const size_t line = static_cast<size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
  const size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0.
  return {DVT_INVALID_IMAGE, DVT_STAGE_PARSE,
          "line " + std::to_string(line) + ", column " +
              std::to_string(token.offset - line_begin + 1) + ": " + message};
}

Status Lexer::expected(const std::string& what) const {
  std::string got = "'" + std::string(token_.text.substr(0, 40)) + "'";
  if (token_.kind == TokenKind::kEnd) got = "the end of the text";
  if (token_.kind == TokenKind::kNewline) got = "the end of the line";
  return error(token_, "expected " + what + ", got " + got);
}

std::optional<std::string> unquote(std::string_view token) {
  if (token.size() < 2 || token.front() != '"' || token.back() != '"') return std::nullopt;
  token = token.substr(1, token.size() - 2);
  std::string out;
  for (size_t i = 0; i < token.size(); ++i) {
    char c = token[i];
    if (c == '\\') {
      if (++i == token.size()) return std::nullopt;
      switch (token[i]) {
        case 'n':
          c = '\n';
          break;
        case 't':
          c = '\t';
          break;
        case '\\':
        case '"':
          c = token[i];
          break;
        case 'x': {
          if (i + 2 >= token.size()) return std::nullopt;
          const int high = hex_digit(token[i + 1]);
          const int low = hex_digit(token[i + 2]);
          if (high < 0 || low < 0) return std::nullopt;
          c = static_cast<char>(high * 16 + low);
          i += 2;
          break;
        }
        default:
          return std::nullopt;
      }
    }
    if (c == '\0') return std::nullopt;
    out += c;
  }
  return out;
}

std::string quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned>(c) & 0xFFU);
      out += escape;
    } else {
      out += c;
    }
  }
  return out += '"';
}

bool is_plain_name(std::string_view text) {
  if (text.empty() || text == "_" || text == "inf" || text == "nan" || !is_letter(text[0])) {
    return false;
  }
  return name_end(text, 0) == text.size();
}

}  // namespace davit::image
