#include "codegen/code_source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include "exec/generated_code.h"

namespace davit::codegen {
namespace {

constexpr uint64_t kMagic = 0x3143525354564144;  // "DAVTSRC1"
constexpr size_t kTrailerBytes = 2 * sizeof(uint64_t);
constexpr std::string_view kMark = "@@ ";

Status broken(const std::string& what) {
  return {DVT_INVALID_IMAGE, DVT_STAGE_CHECK, "the source of the image's code: " + what};
}

// Words between single spaces.
std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const size_t end = std::min(line.find(' '), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return words;
}

bool is_identifier(std::string_view word) {
  const auto is_letter = [](char c) {
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  return !word.empty() && is_letter(word[0]) && std::all_of(word.begin(), word.end(), [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9');
  });
}

Result<KernelSource> parse_kernel(const std::vector<std::string_view>& words,
                                  std::string_view text) {
  KernelSource kernel;
  if (words.size() != 5) return broken("a kernel's line has another number of words");
  kernel.name = words[1];
  kernel.isa = words[2];
  kernel.symbol = words[3];
  kernel.text = text;
  const std::string_view lanes = words[4];
  const auto parsed = std::from_chars(lanes.data(), lanes.data() + lanes.size(), kernel.lanes);
  const bool counts = parsed.ec == std::errc() && parsed.ptr == lanes.data() + lanes.size();
  if (!counts || kernel.lanes < 1 || kernel.lanes > 64 || !is_identifier(kernel.symbol) ||
      !isa_named(kernel.isa).ok()) {
    return broken("a kernel's line says what cannot be");
  }
  return kernel;
}

}  // namespace

void append_source(std::vector<std::byte>& code, std::span<const Kernel> kernels,
                   std::span<const Isa> isas) {
  std::string text = fmt::format("{}prelude {}\n{}", kMark, kPreludeNames, kPrelude);
  for (const Isa& isa : isas) {
    for (const Kernel& kernel : kernels) {
      const std::string symbol = symbol_of(kernel, isa);
      text +=
          fmt::format("{}kernel {} {} {} {}\n", kMark, kernel.name, isa.name, symbol, isa.lanes);
      text += kernel_text(kernel, isa, symbol);
    }
  }
  const std::array<uint64_t, 2> trailer = {text.size(), kMagic};
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  code.insert(code.end(), bytes, bytes + text.size());
  bytes = reinterpret_cast<const std::byte*>(trailer.data());
  code.insert(code.end(), bytes, bytes + kTrailerBytes);
}

Result<CodeSource> parse_source(std::span<const std::byte> code) {
  std::array<uint64_t, 2> trailer{};
  if (code.size() >= kTrailerBytes) {
    std::memcpy(trailer.data(), code.data() + code.size() - kTrailerBytes, kTrailerBytes);
  }
  if (trailer[1] != kMagic) {
    return Status(DVT_UNSUPPORTED, DVT_STAGE_CHECK,
                  "the image has machine code, but not the C that it was made of");
  }
  if (trailer[0] > code.size() - kTrailerBytes) return broken("it is longer than the code segment");
  std::string_view rest(
      reinterpret_cast<const char*>(code.data()) + code.size() - kTrailerBytes - trailer[0],
      trailer[0]);
  CodeSource source;
  while (!rest.empty()) {
    if (!rest.starts_with(kMark)) return broken("a part does not begin with '@@'");
    const size_t line_end = std::min(rest.find('\n'), rest.size());
    const auto words = words_of(rest.substr(kMark.size(), line_end - kMark.size()));
    rest.remove_prefix(std::min(line_end + 1, rest.size()));
    const size_t mark = rest.starts_with(kMark) ? 0 : rest.find("\n@@ ");
    const size_t end = mark == std::string_view::npos ? rest.size() : mark == 0 ? 0 : mark + 1;
    const std::string_view text = rest.substr(0, end);
    rest.remove_prefix(end);
    if (!words.empty() && words[0] == "prelude") {
      source.prelude = text;
      source.prelude_names.assign(words.begin() + 1, words.end());
      if (std::all_of(source.prelude_names.begin(), source.prelude_names.end(), is_identifier))
        continue;
      return broken("the prelude defines what is no name");
    }
    if (words.empty() || words[0] != "kernel")
      return broken("a part is neither prelude nor kernel");
    auto kernel = parse_kernel(words, text);
    if (!kernel.ok()) return std::move(kernel.status());
    source.kernels.push_back(*kernel);
  }
  return source;
}

}  // namespace davit::codegen
