#include "base/npy.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/checked.hpp"
#include "base/files.hpp"

namespace davit {
namespace {

static_assert(std::endian::native == std::endian::little, "element bytes are copied as they are");

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr std::string_view kBlanks = " \t\r\n";

constexpr std::array<std::pair<std::string_view, DvtDType>, 12> kTypes = {{
    {"f4", DVT_F32},
    {"f8", DVT_F64},
    {"f2", DVT_F16},
    {"b1", DVT_BOOL},
    {"i1", DVT_I8},
    {"i2", DVT_I16},
    {"i4", DVT_I32},
    {"i8", DVT_I64},
    {"u1", DVT_U8},
    {"u2", DVT_U16},
    {"u4", DVT_U32},
    {"u8", DVT_U64},
}};

Status bad_file(const std::string& name, std::string message) {
  return Status(ErrorDetail{.code = DVT_INVALID_ARGUMENT,
                            .stage = DVT_STAGE_PARSE,
                            .message = "npy file '" + name + "': " + std::move(message)});
}

std::optional<DvtDType> parse_descr(std::string_view text) {
  // "<f4": byte order, type.
  if (text.size() != 3) return std::nullopt;
  const char order = text[0];
  if (order != '<' && order != '|' && order != '=') return std::nullopt;
  for (const auto& [name, dtype] : kTypes) {
    if (name == text.substr(1) && (order != '|' || dvt_dtype_size(dtype) == 1)) return dtype;
  }
  return std::nullopt;
}

struct Header {
  DvtDType dtype = DVT_DTYPE_NONE;
  bool fortran_order = false;
  std::vector<int64_t> dims;
};

// Reads a header: a Python dictionary with exactly the entries descr, fortran_order and shape, in
// any order. A comma may follow the last entry.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : text_(text) {}

  // What is wrong, in words; nullopt when `header` has been filled.
  std::optional<std::string> read(Header& header) {
    if (!take('{')) return expected("'{'");
    while (!take('}')) {
      if (auto error = read_entry(header)) return error;
      if (take(',')) continue;
      if (!take('}')) return expected("',' or '}'");
      break;
    }
    skip_blanks();
    if (at_ != text_.size()) return expected("nothing after '}'");
    for (size_t i = 0; i < kKeys.size(); ++i) {
      if (!seen_[i]) return "its header lacks '" + std::string(kKeys[i]) + "'";
    }
    return std::nullopt;
  }

 private:
  static constexpr std::array<std::string_view, 3> kKeys = {"descr", "fortran_order", "shape"};

  std::optional<std::string> read_entry(Header& header) {
    const auto key = take_string();
    if (!key) return expected("a quoted key");
    const auto known = std::find(kKeys.begin(), kKeys.end(), *key);
    if (known == kKeys.end()) return "its header has an unknown key, '" + std::string(*key) + "'";
    bool& seen = seen_[static_cast<size_t>(known - kKeys.begin())];
    if (seen) return "its header has '" + std::string(*key) + "' twice";
    seen = true;
    if (!take(':')) return expected("':'");
    if (*key == "descr") return read_descr(header);
    return *key == "shape" ? read_shape(header) : read_order(header);
  }

  std::optional<std::string> read_descr(Header& header) {
    const auto descr = take_string();
    if (!descr) return "its elements are not plain numbers: " + expected("a quoted type");
    const auto dtype = parse_descr(*descr);
    if (!dtype) {
      return "element type '" + std::string(*descr) + "' is not a little-endian number type";
    }
    header.dtype = *dtype;
    return std::nullopt;
  }

  std::optional<std::string> read_order(Header& header) {
    header.fortran_order = take_word("True");
    if (header.fortran_order || take_word("False")) return std::nullopt;
    return expected("True or False");
  }

  // "()", "(5,)", "(1, 3, 224, 224)": without its comma, (5) would be a number in brackets.
  std::optional<std::string> read_shape(Header& header) {
    if (!take('(')) return expected("'(' of a shape");
    while (!take(')')) {
      const auto dim = take_extent();
      if (!dim) return expected("an extent of the shape");
      header.dims.push_back(*dim);
      if (take(',')) continue;
      if (header.dims.size() == 1 || !take(')')) return expected("',' in the shape");
      break;
    }
    return std::nullopt;
  }

  void skip_blanks() {
    while (at_ < text_.size() && kBlanks.find(text_[at_]) != std::string_view::npos) ++at_;
  }
  bool take(char symbol) {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != symbol) return false;
    ++at_;
    return true;
  }
  bool take_word(std::string_view word) {
    skip_blanks();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  // No key and no type holds an escape.
  std::optional<std::string_view> take_string() {
    skip_blanks();
    if (at_ == text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) return std::nullopt;
    const size_t end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
    if (inside.find('\\') != std::string_view::npos) return std::nullopt;
    at_ = end + 1;
    return inside;
  }
  std::optional<int64_t> take_extent() {
    skip_blanks();
    int64_t extent = -1;
    const char* begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), extent);
    const bool leading_zero = error == std::errc() && *begin == '0' && end - begin > 1;
    if (error != std::errc() || extent < 0 || leading_zero) return std::nullopt;
    at_ += static_cast<size_t>(end - begin);
    return extent;
  }
  [[nodiscard]] std::string expected(const std::string& what) const {
    return "malformed header at byte " + std::to_string(at_) + ": expected " + what;
  }

  std::string_view text_;
  size_t at_ = 0;
  std::array<bool, kKeys.size()> seen_{};
};

// Splits content in header text and data; nullopt when it is not an npy file or cut short.
std::optional<std::pair<std::string_view, std::span<const std::byte>>> split_header(
    std::span<const std::byte> content) {
  const std::string_view text(reinterpret_cast<const char*>(content.data()), content.size());
  if (!text.starts_with(kMagic) || text.size() < 10) return std::nullopt;
  const auto byte = [&](size_t at) { return size_t(uint8_t(text[at])); };
  const size_t major = byte(6);
  size_t begin = 10;
  size_t length = byte(8) | byte(9) << 8;
  if (major == 2 || major == 3) {
    if (text.size() < 12) return std::nullopt;
    begin = 12;
    length |= byte(10) << 16 | byte(11) << 24;
  } else if (major != 1) {
    return std::nullopt;
  }
  if (!in_range(begin, length, text.size())) return std::nullopt;
  return std::pair(text.substr(begin, length), content.subspan(begin + length));
}

}  // namespace

Result<NpyArray> parse_npy(std::span<const std::byte> content, const std::string& name) {
  const auto parts = split_header(content);
  if (!parts) return bad_file(name, "not an npy file, or cut short");
  const auto& [text, data] = *parts;
  Header header;
  if (auto error = HeaderReader(text).read(header)) return bad_file(name, std::move(*error));
  if (header.fortran_order && header.dims.size() > 1) {
    return bad_file(name, "Fortran order; save numpy.ascontiguousarray(x) instead");
  }
  NpyArray array;
  array.dtype = header.dtype;
  array.dims = std::move(header.dims);
  const auto count = checked_elements(array.dims);
  const auto bytes =
      count ? checked_mul(*count, dvt_dtype_size(array.dtype)) : std::optional<uint64_t>();
  if (!bytes || *bytes != data.size()) {
    return bad_file(name, "its shape needs " + (bytes ? std::to_string(*bytes) : "too many") +
                              " bytes of data, but it holds " + std::to_string(data.size()));
  }
  array.bytes.assign(data.begin(), data.end());
  return array;
}

Result<NpyArray> read_npy(const std::string& path) {
  auto content = read_regular_file(path, DVT_STAGE_PARSE);
  if (!content.ok()) return std::move(content.status());
  return parse_npy(*content, path);
}

Result<std::vector<std::byte>> format_npy(DvtDType dtype, std::span<const int64_t> dims,
                                          std::span<const std::byte> bytes) {
  std::string descr;
  for (const auto& [name, candidate] : kTypes) {
    if (candidate == dtype) descr = (dvt_dtype_size(dtype) == 1 ? "|" : "<") + std::string(name);
  }
  if (descr.empty()) {
    return Status(DVT_UNSUPPORTED, DVT_STAGE_WRITE, "the npy format has no such element type");
  }
  std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (";
  for (const int64_t dim : dims) header += std::to_string(dim) + ", ";
  if (dims.size() > 1) header.resize(header.size() - 2);
  if (dims.size() == 1) header.pop_back();
  header += "), }";
  constexpr size_t kPrefix = 10;
  header.append(63 - (kPrefix + header.size()) % 64, ' ');
  header += '\n';
  std::string prefix(kMagic);
  prefix += {'\x01', '\x00', char(header.size() & 0xFF), char(header.size() >> 8)};
  prefix += header;
  std::vector<std::byte> out(prefix.size() + bytes.size());
  std::memcpy(out.data(), prefix.data(), prefix.size());
  if (!bytes.empty()) std::memcpy(out.data() + prefix.size(), bytes.data(), bytes.size());
  return out;
}

}  // namespace davit
