#include "base/npy.hpp"

#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/checked.hpp"

namespace davit {
namespace {

static_assert(std::endian::native == std::endian::little, "element bytes are copied as they are");

constexpr std::string_view kMagic("\x93NUMPY", 6);

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

// The text after "'key':" in the header's dictionary, leading blanks removed.
std::optional<std::string_view> dictionary_entry(std::string_view header, std::string_view key) {
  for (const char quote : {'\'', '"'}) {
    const std::string quoted = quote + std::string(key) + quote;
    const size_t at = header.find(quoted);
    if (at == std::string_view::npos) continue;
    std::string_view rest = header.substr(at + quoted.size());
    const size_t colon = rest.find_first_not_of(' ');
    if (colon == std::string_view::npos || rest[colon] != ':') return std::nullopt;
    rest.remove_prefix(colon + 1);
    const size_t begin = rest.find_first_not_of(' ');
    if (begin == std::string_view::npos) return std::nullopt;
    return rest.substr(begin);
  }
  return std::nullopt;
}

std::optional<DvtDType> parse_descr(std::string_view text) {
  // "'<f4'": quote, byte order, type, quote.
  if (text.size() < 5 || (text[0] != '\'' && text[0] != '"') || text[4] != text[0]) {
    return std::nullopt;
  }
  const char order = text[1];
  const std::string_view type = text.substr(2, 2);
  if (order != '<' && order != '|' && order != '=') return std::nullopt;
  for (const auto& [name, dtype] : kTypes) {
    if (name == type && (order != '|' || dvt_dtype_size(dtype) == 1)) return dtype;
  }
  return std::nullopt;
}

// "(1, 3, 224, 224)", "(5,)", "()".
std::optional<std::vector<int64_t>> parse_shape(std::string_view text) {
  if (text.empty() || text[0] != '(') return std::nullopt;
  const size_t end = text.find(')');
  if (end == std::string_view::npos) return std::nullopt;
  std::string_view rest = text.substr(1, end - 1);
  std::vector<int64_t> dims;
  while (true) {
    const size_t begin = rest.find_first_not_of(' ');
    if (begin == std::string_view::npos) return dims;
    rest.remove_prefix(begin);
    int64_t dim = -1;
    const auto [after, error] = std::from_chars(rest.data(), rest.data() + rest.size(), dim);
    if (error != std::errc() || dim < 0) return std::nullopt;
    dims.push_back(dim);
    rest.remove_prefix(size_t(after - rest.data()));
    const size_t comma = rest.find_first_not_of(' ');
    if (comma == std::string_view::npos) return dims;
    if (rest[comma] != ',') return std::nullopt;
    rest.remove_prefix(comma + 1);
  }
}

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
  const auto& [header, data] = *parts;
  const auto descr = dictionary_entry(header, "descr");
  const auto order = dictionary_entry(header, "fortran_order");
  const auto shape = dictionary_entry(header, "shape");
  if (!descr || !order || !shape) {
    return bad_file(name, "its header lacks descr, fortran_order or shape");
  }
  NpyArray array;
  const auto dtype = parse_descr(*descr);
  if (!dtype) {
    return bad_file(name, "element type " + std::string(descr->substr(0, descr->find(','))) +
                              " is not a little-endian number type");
  }
  array.dtype = *dtype;
  auto dims = parse_shape(*shape);
  if (!dims) return bad_file(name, "malformed shape");
  array.dims = std::move(*dims);
  if (order->starts_with("True") && array.dims.size() > 1) {
    return bad_file(name, "Fortran order; save numpy.ascontiguousarray(x) instead");
  }
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
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);  // An error for folders.
  std::ifstream file;
  if (!error) file.open(path, std::ios::binary);
  if (error || !file) {
    return Status(DVT_IO_ERROR, DVT_STAGE_PARSE,
                  "cannot open '" + path + "': " + (error ? error.message() : "no permission"));
  }
  std::vector<std::byte> content(size);
  if (size > 0 && !file.read(reinterpret_cast<char*>(content.data()), std::streamsize(size))) {
    return Status(DVT_IO_ERROR, DVT_STAGE_PARSE, "cannot read '" + path + "'");
  }
  return parse_npy(content, path);
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

Status write_npy(const std::string& path, DvtDType dtype, std::span<const int64_t> dims,
                 std::span<const std::byte> bytes) {
  auto content = format_npy(dtype, dims, bytes);
  if (!content.ok()) return std::move(content.status());
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(content->data()), std::streamsize(content->size()));
  file.close();
  if (!file) return Status(DVT_IO_ERROR, DVT_STAGE_WRITE, "cannot write '" + path + "'");
  return {};
}

}  // namespace davit
