// text_assemble_constants.cpp: the data of constants in the text form.
#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/checked.hpp"
#include "base/dtype.hpp"
#include "lowering/image/text_assembler.hpp"

namespace davit::image {
namespace {

// Bytes of constants that a text may claim without stating them (fill, gaps).
constexpr uint64_t kUnstatedBytesMax = 256U << 20U;

}  // namespace

Status Assembler::reserve_constants(const Token& at, uint64_t end) {
  if (end > kUnstatedBytesMax + lexer_.text_bytes()) {
    return lexer_.error(at,
                        "the text is too short for constants of " + std::to_string(end) + " bytes");
  }
  if (model_.constants.size() < end) model_.constants.resize(end);
  return {};
}

// hex { 00ff... }, after "hex".
Status Assembler::parse_hex(std::vector<std::byte>& bytes) {
  int high = -1;
  while (lexer_.peek().kind == TokenKind::kNumber || lexer_.peek().kind == TokenKind::kName ||
         lexer_.peek().kind == TokenKind::kNewline) {
    const Token token = lexer_.take();
    if (token.kind == TokenKind::kNewline) continue;
    for (const char c : token.text) {
      int digit = 0;
      if (std::from_chars(&c, &c + 1, digit, 16).ec != std::errc()) {
        return lexer_.error(token, "'" + std::string(1, c) + "' is not a hexadecimal digit");
      }
      if (high < 0) {
        high = digit;
      } else {
        bytes.push_back(static_cast<std::byte>(high * 16 + digit));
        high = -1;
      }
    }
  }
  if (high >= 0) return lexer_.error(lexer_.peek(), "an odd number of hexadecimal digits");
  return {};
}

Status Assembler::parse_list(const Value& value, std::span<std::byte> out) {
  const size_t size = dvt_dtype_size(value.tensor.dtype);
  size_t at = 0;
  lexer_.skip_newlines();
  while (!lexer_.at("}")) {
    if (at == out.size()) return lexer_.error(lexer_.peek(), "more elements than the tensor has");
    if (!element_from_text(value.tensor.dtype, lexer_.peek().text, out.data() + at)) {
      return lexer_.expected("an element of type " + std::string(dtype_name(value.tensor.dtype)));
    }
    lexer_.take();
    at += size;
    lexer_.skip_newlines();
    if (!lexer_.take_if(",")) break;
    lexer_.skip_newlines();
  }
  if (at != out.size()) {
    return lexer_.error(lexer_.peek(), std::to_string(at / size) + " elements, the tensor has " +
                                           std::to_string(out.size() / size));
  }
  return expect("}");
}

// { 1, 2 } or fill 1 or hex { 0000803f }
Status Assembler::parse_initialiser(const Value& value) {
  const Token token = lexer_.peek();
  const auto out = std::span(model_.constants).subspan(value.offset, value.tensor.bytes);
  if (lexer_.take_if("{")) return parse_list(value, out);
  if (lexer_.take_if("hex")) {
    std::vector<std::byte> bytes;
    if (Status s = expect("{"); !s.ok()) return s;
    if (Status s = parse_hex(bytes); !s.ok()) return s;
    if (bytes.size() != out.size()) {
      return lexer_.error(token, std::to_string(bytes.size()) + " bytes, the tensor has " +
                                     std::to_string(out.size()));
    }
    std::copy(bytes.begin(), bytes.end(), out.begin());
    return expect("}");
  }
  if (lexer_.take_if("fill")) {
    std::byte element[8] = {};
    if (!element_from_text(value.tensor.dtype, lexer_.peek().text, element)) {
      return lexer_.expected("an element of type " + std::string(dtype_name(value.tensor.dtype)));
    }
    lexer_.take();
    const size_t size = dvt_dtype_size(value.tensor.dtype);
    for (size_t at = 0; at < out.size(); at += size) std::memcpy(out.data() + at, element, size);
    return {};
  }
  if (lexer_.at("...")) return lexer_.error(token, "the constant was left out of this text");
  return lexer_.expected("'{', 'hex' or 'fill'");
}

// After the type: [@ offset] [= initialiser]
Status Assembler::parse_constant(Value& value) {
  const Token at = lexer_.peek();
  value.offset = next_constant_;
  if (lexer_.take_if("@")) {
    if (Status s = parse_unsigned(INT64_MAX, value.offset); !s.ok()) return s;
  }
  const auto end = checked_add(value.offset, value.tensor.bytes);
  if (!end) return lexer_.error(at, "the constant reaches beyond 2^64");
  if (value.tensor.bytes != 0 || value.offset <= model_.constants.size()) {
    if (Status s = reserve_constants(at, *end); !s.ok()) return s;
  }
  next_constant_ = std::max(next_constant_, checked_align(*end, kConstantAlignment).value_or(*end));
  if (dvt_dtype_size(value.tensor.dtype) == 0) {
    return lexer_.error(at, "constants of this type have no bytes");
  }
  return lexer_.take_if("=") ? parse_initialiser(value) : Status();
}

// After "data": @ offset = hex { ... }: bytes that no constant covers.
Status Assembler::parse_data() {
  const Token at = lexer_.peek();
  uint64_t offset = 0;
  std::vector<std::byte> bytes;
  if (Status s = expect("@"); !s.ok()) return s;
  if (Status s = parse_unsigned(INT64_MAX, offset); !s.ok()) return s;
  if (Status s = expect("="); !s.ok()) return s;
  if (Status s = expect("hex"); !s.ok()) return s;
  if (Status s = expect("{"); !s.ok()) return s;
  if (Status s = parse_hex(bytes); !s.ok()) return s;
  if (Status s = expect("}"); !s.ok()) return s;
  if (Status s = reserve_constants(at, offset + bytes.size()); !s.ok()) return s;
  std::copy(bytes.begin(), bytes.end(), model_.constants.begin() + static_cast<ptrdiff_t>(offset));
  return {};
}

}  // namespace davit::image
