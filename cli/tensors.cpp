#include "cli/tensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <new>
#include <optional>

#include "base/checked.hpp"
#include "base/dtype.hpp"
#include "base/npy.hpp"
#include "cli/numbers.hpp"
#include "cli/options.hpp"
#include "cli/report.hpp"
#include "cli/session.hpp"
#include "ir/onnx/tensor_io.hpp"

namespace davit::cli {
namespace {

std::string type_text_of(DvtDType dtype, std::span<const int64_t> dims) {
  if (dims.empty()) return std::string(dtype_name(dtype));
  std::string text;
  for (const int64_t dim : dims) text += (dim < 0 ? "?" : std::to_string(dim)) + "x";
  return text + std::string(dtype_name(dtype));
}

PortType port_type(const DvtPortInfo& info) {
  const DvtTensor& tensor = info.tensor;
  const bool rank_known = tensor.rank != DVT_RANK_UNKNOWN;
  return {.name = info.name,
          .dtype = tensor.dtype,
          .dims = {tensor.dims, tensor.dims + (rank_known ? tensor.rank : 0)},
          .byte_size = tensor.bytes,
          .is_dynamic = (tensor.flags & DVT_TENSOR_DYNAMIC) != 0,
          .is_rank_known = rank_known};
}

bool fits(std::span<const int64_t> dims, const PortType& port) {
  if (!port.is_rank_known) return true;
  return std::equal(dims.begin(), dims.end(), port.dims.begin(), port.dims.end(),
                    [](int64_t dim, int64_t known) { return dim == known || known < 0; });
}

// Zeros. `dims` is what follows the ':' of "random:1x128"; empty: those of the first gear, or open
// dims are 1.
Result<HostTensor> empty_tensor(const PortType& port, std::string_view dims_text) {
  HostTensor tensor{.name = port.name, .dtype = port.dtype, .dims = port.dims, .bytes = {}};
  if (!port.usual_dims.empty()) tensor.dims = port.usual_dims;
  for (int64_t& dim : tensor.dims) dim = dim < 0 ? 1 : dim;
  if (!dims_text.empty()) {
    const auto dims = parse_dims(dims_text);
    if (!dims || !fits(*dims, port)) {
      return usage_error(fmt::format("--input {}: '{}' is not a shape of {}", port.name, dims_text,
                                     port.type_text()));
    }
    tensor.dims = *dims;
  }
  const auto elements = checked_elements(tensor.dims);
  const auto bytes = elements ? checked_mul(*elements, dvt_dtype_size(port.dtype)) : std::nullopt;
  constexpr uint64_t kBytesMax = uint64_t{1} << 36;
  if (!bytes || *bytes > kBytesMax) {
    return usage_error(fmt::format("--input {}: {} is too large", port.name, tensor.type_text()));
  }
  tensor.bytes = AlignedBytes(*bytes);
  return tensor;
}

// "1x4xf32" as a type.
struct TypeForm {
  std::vector<int64_t> dims;
  DvtDType dtype;
};
std::optional<TypeForm> parse_type(std::string_view text) {
  const size_t last = text.rfind('x');
  const std::string_view word = last == std::string_view::npos ? text : text.substr(last + 1);
  const auto dtype = dtype_from_name(word);
  if (!dtype) return std::nullopt;
  TypeForm type{.dims = {}, .dtype = *dtype};
  if (last == std::string_view::npos) return type;
  const auto dims = parse_dims(text.substr(0, last));
  if (!dims) return std::nullopt;
  type.dims = *dims;
  return type;
}

// Elements of "0,1,2,3"; one element fills the whole tensor, as a splat.
Status fill_from_text(HostTensor& tensor, std::string_view text, std::string_view option) {
  const uint32_t size = dvt_dtype_size(tensor.dtype);
  const uint64_t count = tensor.element_count();
  const auto wrong_count = [&] {
    return usage_error(
        fmt::format("{} {}: the number of values is not that of the {} elements of {}", option,
                    tensor.name, count, tensor.type_text()));
  };
  uint64_t index = 0;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    const std::string_view word = text.substr(begin, comma - begin);
    if (index == count) return wrong_count();
    if (!parse_element(word, tensor.dtype, tensor.bytes.data() + index * size)) {
      return usage_error(fmt::format("{} {}: '{}' is not a value of type {}", option, tensor.name,
                                     word, dtype_name(tensor.dtype)));
    }
    ++index;
    begin = comma + 1;
  }
  if (index != 1 && index != count) return wrong_count();
  for (uint64_t i = index; i < count; ++i) {
    std::memcpy(tensor.bytes.data() + i * size, tensor.bytes.data(), size);
  }
  return {};
}

std::vector<PortType> ports_of(const DvtImage* image, uint32_t count,
                               DvtCode (*info)(const DvtImage*, uint32_t, DvtPortInfo*,
                                               DvtError*)) {
  std::vector<PortType> ports;
  for (uint32_t i = 0; i < count; ++i) {
    DvtPortInfo port{};
    // Cannot fail: i is below the count that the same image gave.
    if (info(image, i, &port, nullptr) == DVT_OK) ports.push_back(port_type(port));
  }
  return ports;
}

}  // namespace

AlignedBytes::AlignedBytes(size_t size, size_t alignment) : size_(size) {
  const auto rounded = checked_align(std::max<size_t>(size, 1), alignment);
  if (rounded) data_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, *rounded)));
  if (data_ == nullptr) throw std::bad_alloc();
  std::memset(data_.get(), 0, size);
}

std::string HostTensor::type_text() const {
  return type_text_of(dtype, dims);
}
uint64_t HostTensor::element_count() const {
  const uint32_t size = dvt_dtype_size(dtype);
  return size == 0 ? 0 : bytes.size() / size;
}

std::string PortType::type_text() const {
  return type_text_of(dtype, dims);
}

std::vector<PortType> input_ports(const DvtImage* image) {
  auto ports = ports_of(image, dvt_image_input_count(image), dvt_image_input_info);
  for (uint32_t i = 0; i < ports.size() && dvt_image_gear_count(image) > 0; ++i) {
    DvtTensor tensor;
    const bool known = dvt_image_gear_input(image, 0, i, &tensor, nullptr) == DVT_OK;
    if (known) ports[i].usual_dims.assign(tensor.dims, tensor.dims + tensor.rank);
  }
  return ports;
}

std::vector<PortType> output_ports(const DvtImage* image) {
  return ports_of(image, dvt_image_output_count(image), dvt_image_output_info);
}

Result<Assignment> split_assignment(const std::string& text, std::span<const PortType> ports,
                                    uint32_t next_unnamed) {
  // The longest name wins: names may hold '=' themselves.
  std::optional<Assignment> best;
  size_t best_length = 0;
  std::vector<std::string> names;
  for (uint32_t i = 0; i < ports.size(); ++i) {
    const std::string& name = ports[i].name;
    names.push_back(name);
    if (text.size() > name.size() && text.starts_with(name) && text[name.size()] == '=' &&
        (!best || name.size() > best_length)) {
      best = Assignment{i, text.substr(name.size() + 1)};
      best_length = name.size();
    }
  }
  if (best) return *best;
  const std::string first = text.substr(0, text.find('='));
  const bool unnamed = text.starts_with("@") || text.starts_with("random") ||
                       text.starts_with("zeros") || parse_type(first).has_value();
  if (!unnamed) {
    const std::string near = nearest(first, names);
    return usage_error(fmt::format("no input or output is named '{}'{}", first,
                                   near.empty() ? "" : "; did you mean " + near + "?"),
                       fmt::format("names: {}", fmt::join(names, ", ")));
  }
  if (next_unnamed >= ports.size()) {
    return usage_error(fmt::format("'{}': the model has only {}", text, ports.size()));
  }
  return Assignment{next_unnamed, text};
}

Result<HostTensor> read_tensor_file(const std::string& path) {
  HostTensor tensor;
  if (path.ends_with(".pb")) {
    auto named = onnx_import::read_tensor_file(path);
    if (!named.ok()) return std::move(named.status());
    tensor.name = named->name;
    tensor.dtype = named->data.dtype;
    tensor.dims = named->data.dims;
    if (named->data.bytes == nullptr) {
      return Status(DVT_UNSUPPORTED, DVT_STAGE_PARSE, fmt::format("{}: string tensor", path));
    }
    tensor.bytes = AlignedBytes(named->data.bytes->size());
    std::copy(named->data.bytes->begin(), named->data.bytes->end(), tensor.bytes.data());
    return tensor;
  }
  auto array = read_npy(path);
  if (!array.ok()) return std::move(array.status());
  tensor.dtype = array->dtype;
  tensor.dims = array->dims;
  tensor.bytes = AlignedBytes(array->bytes.size());
  std::copy(array->bytes.begin(), array->bytes.end(), tensor.bytes.data());
  return tensor;
}

Status check_type(const HostTensor& tensor, const PortType& port) {
  if (tensor.dtype == port.dtype && fits(tensor.dims, port)) return {};
  return Status(ErrorDetail{.code = DVT_INVALID_ARGUMENT,
                            .stage = DVT_STAGE_BIND,
                            .message = fmt::format("the data for '{}' has another type", port.name),
                            .tensor = port.name,
                            .expected = port.type_text(),
                            .got = tensor.type_text()});
}

Result<HostTensor> parse_tensor(const std::string& form, std::string_view option,
                                const std::string& name) {
  if (form.starts_with("@")) {
    auto tensor = read_tensor_file(form.substr(1));
    if (tensor.ok()) tensor->name = name;
    return tensor;
  }
  const size_t equals = form.find('=');
  const auto type = parse_type(form.substr(0, equals));
  if (!type || equals == std::string::npos) {
    return usage_error(fmt::format("{} {}: '{}' is not understood", option, name, form),
                       "a file (@x.npy, @x.pb), or a type and values (1x4xf32=0,1,2,3)");
  }
  const auto elements = checked_elements(type->dims);
  const auto bytes = elements ? checked_mul(*elements, dvt_dtype_size(type->dtype)) : std::nullopt;
  // Values are typed by hand, or one fills all: a limit stops a slip from taking all memory.
  constexpr uint64_t kBytesMax = uint64_t{1} << 30;
  if (!bytes || *bytes > kBytesMax || dvt_dtype_size(type->dtype) == 0) {
    return usage_error(fmt::format("{} {}: '{}' is too large, or of no element type", option, name,
                                   form.substr(0, equals)));
  }
  HostTensor tensor{
      .name = name, .dtype = type->dtype, .dims = type->dims, .bytes = AlignedBytes(*bytes)};
  Status status = fill_from_text(tensor, std::string_view(form).substr(equals + 1), option);
  if (!status.ok()) return status;
  return tensor;
}

Result<HostTensor> make_input(const PortType& port, const std::string& form, uint64_t seed) {
  const std::string word = form.substr(0, form.find(':'));
  if (word == "zeros" || word == "random") {
    const std::string_view dims =
        std::string_view(form).substr(std::min(word.size() + 1, form.size()));
    auto tensor = empty_tensor(port, dims);
    if (tensor.ok() && word == "random" && tensor->dtype == DVT_STRING) {
      return usage_error(fmt::format("--input {}: there are no random strings", port.name),
                         "4xstring=one,two,three,four");
    }
    if (tensor.ok() && word == "random") fill_random(*tensor, seed);
    return tensor;
  }
  auto tensor = parse_tensor(form, "--input", port.name);
  if (!tensor.ok()) return tensor;
  Status status = check_type(*tensor, port);
  if (!status.ok()) return status;
  return tensor;
}

void fill_random(HostTensor& tensor, uint64_t seed) {
  // SplitMix64: small, and unlike std:: distributions the same everywhere.
  uint64_t state = seed;
  const auto next = [&state] {
    state += 0x9E3779B97F4A7C15ULL;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  };
  const uint32_t size = dvt_dtype_size(tensor.dtype);
  const bool real = is_floating(tensor.dtype);
  for (uint64_t i = 0; i < tensor.element_count(); ++i) {
    const uint64_t bits = next();
    const double unit = static_cast<double>(bits >> 11) * 0x1p-53;  // [0, 1)
    const double value = real ? unit * 2 - 1 : static_cast<double>(bits >> 63);
    store_element(value, tensor.dtype, tensor.bytes.data() + i * size);
  }
}

Comparison compare(const HostTensor& actual, const HostTensor& expected,
                   const Tolerance& tolerance) {
  const uint32_t size = dvt_dtype_size(actual.dtype);
  Comparison out;
  out.elements = expected.element_count();
  for (uint64_t i = 0; i < out.elements; ++i) {
    const double want = load_element(expected.dtype, expected.bytes.data() + i * size);
    if (std::isfinite(want)) out.max_expected = std::max(out.max_expected, std::abs(want));
  }
  const bool real = is_floating(actual.dtype);
  const double base = tolerance.atol + (real ? tolerance.rtol_max * out.max_expected : 0);
  for (uint64_t i = 0; i < out.elements; ++i) {
    const std::byte* left = actual.bytes.data() + i * size;
    const std::byte* right = expected.bytes.data() + i * size;
    if (std::memcmp(left, right, size) == 0) continue;
    const double got = load_element(actual.dtype, left);
    const double want = load_element(expected.dtype, right);
    if (std::isnan(got) && std::isnan(want)) continue;
    const double difference = actual.dtype == DVT_STRING ? INFINITY
                              : real                     ? std::abs(got - want)
                                     : integer_difference(actual.dtype, left, right);
    if (std::isfinite(difference)) out.max_difference = std::max(out.max_difference, difference);
    const double limit = base + (real ? tolerance.rtol * std::abs(want) : 0);
    // Written so that NaN and infinity on one side fail.
    if (std::isfinite(difference) && difference <= limit) continue;
    if (out.mismatches++ == 0) {
      out.first_mismatch = i;
      out.first_actual = got;
      out.first_expected = want;
    }
  }
  return out;
}

std::string index_text(uint64_t index, std::span<const int64_t> dims) {
  std::vector<uint64_t> position(dims.size());
  for (size_t i = dims.size(); i-- > 0;) {
    const auto extent = static_cast<uint64_t>(std::max<int64_t>(dims[i], 1));
    position[i] = index % extent;
    index /= extent;
  }
  return fmt::format("[{}]", fmt::join(position, ", "));
}

Status save_npy(const std::string& path, const HostTensor& tensor) {
  auto content = format_npy(tensor.dtype, tensor.dims, tensor.bytes.span());
  if (!content.ok()) return std::move(content.status());
  return write_bytes(path, *content);
}

}  // namespace davit::cli
