// text_lexer.hpp: tokens of the text form of images (docs/image.md).
//
// Threads  A value.
// Trust    Any bytes. Every token is a piece of the text, so memory is linear in its length.
// Memory   Tokens point into the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.hpp"

namespace davit::image {

enum class TokenKind : uint8_t {
  kEnd,
  kNewline,
  kName,    // Letters, digits, '_' and inner '.': Relu.f32
  kHandle,  // %7
  kString,  // "..."; text holds the quotes and escapes
  kNumber,  // -1.5e3, 12, 0xff, inf, -inf, nan
  kSymbol   // One of ( ) { } [ ] < > , : = @ and the words .. and ...
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view text;
  size_t offset = 0;  // In the whole text; errors turn it into line and column.
};

class Lexer {
 public:
  explicit Lexer(std::string_view text);

  // The current token.
  [[nodiscard]] const Token& peek() const { return token_; }
  [[nodiscard]] const Token& peek_next() const { return next_; }
  Token take();
  // Takes the current token if it is this symbol or name.
  bool take_if(std::string_view text);
  [[nodiscard]] bool at(std::string_view text) const;
  void skip_newlines();

  // DVT_INVALID_IMAGE at stage parse: "line 3, column 7: <message>".
  [[nodiscard]] Status error(const Token& token, const std::string& message) const;
  // The same at the current token: "expected <what>, got '...'".
  [[nodiscard]] Status expected(const std::string& what) const;

  [[nodiscard]] size_t text_bytes() const { return text_.size(); }

 private:
  Token scan();
  Token make(TokenKind kind, size_t begin) const;
  void skip_blanks();
  size_t scan_number(size_t begin) const;

  std::string_view text_;
  size_t position_ = 0;
  Token token_;
  Token next_;
};

// The content of a kString token; nullopt for a bad escape or a NUL.
std::optional<std::string> unquote(std::string_view token);
// The inverse, for any string without NUL.
std::string quote(std::string_view text);
// True when `text` is a whole kName token, and not "_".
bool is_plain_name(std::string_view text);

}  // namespace davit::image
