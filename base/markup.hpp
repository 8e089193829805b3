// markup.hpp: text from models in XML and HTML.
#pragma once

#include <string>
#include <string_view>

#include "base/utf8.hpp"

namespace davit {

// Markup characters as references; control characters, U+FFFE, U+FFFF and what is not UTF-8 as
// U+FFFD.
[[nodiscard]] inline std::string markup_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const char c = text.front();
    size_t length = 1;
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (const size_t sequence = utf8_length(text);
               sequence == 0 || static_cast<unsigned char>(c) < 0x20 || c == 0x7F ||
               text.starts_with("\xEF\xBF\xBE") || text.starts_with("\xEF\xBF\xBF")) {
      out += "\xEF\xBF\xBD";
    } else {
      out += text.substr(0, sequence);
      length = sequence;
    }
    text.remove_prefix(length);
  }
  return out;
}

}  // namespace davit
