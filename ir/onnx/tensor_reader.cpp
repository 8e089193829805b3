#include "ir/onnx/tensor_reader.hpp"

#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/checked.hpp"
#include "base/dtype.hpp"
#include "ir/foreign_types.hpp"

namespace davit::onnx_import {
namespace {

static_assert(std::endian::native == std::endian::little, "raw_data is little-endian");

Status tensor_error(DvtCode code, const std::string& tensor, std::string message) {
  return Status(
      {.code = code, .stage = DVT_STAGE_PARSE, .message = std::move(message), .tensor = tensor});
}

class TensorReader {
 public:
  TensorReader(onnx::TensorProto proto, ExternalData& external)
      : proto_(std::move(proto)), external_(external) {}

  Result<ir::TensorData> read() {
    if (proto_.has_segment()) {
      return error(DVT_UNSUPPORTED, "the tensor is stored in segments");
    }
    Result<DvtDType> dtype = read_dtype(proto_.data_type(), proto_.name());
    if (!dtype.ok()) return std::move(dtype.status());
    data_.dtype = *dtype;
    data_.dims.assign(proto_.dims().begin(), proto_.dims().end());
    const std::optional<uint64_t> elements = checked_elements(data_.dims);
    if (!elements) {
      return error(DVT_INVALID_IMAGE, "dims are negative or their product does not fit 63 bits");
    }
    elements_ = *elements;
    if (data_.dtype == DVT_STRING) return read_strings();
    const std::optional<uint64_t> bytes = checked_mul(elements_, dvt_dtype_size(data_.dtype));
    if (!bytes) return error(DVT_INVALID_IMAGE, "the size in bytes does not fit 64 bits");
    bytes_ = *bytes;

    Status status = fill();
    if (!status.ok()) {
      status.detail().tensor = proto_.name();
      return status;
    }
    return std::move(data_);
  }

 private:
  Status fill() {
    const bool typed = typed_count() != 0;
    if (proto_.data_location() == onnx::TensorProto::EXTERNAL) {
      if (typed || !proto_.raw_data().empty()) {
        return error(DVT_INVALID_IMAGE, "the tensor has external and internal data");
      }
      return fill_external();
    }
    if (typed && !proto_.raw_data().empty()) {
      return error(DVT_INVALID_IMAGE, "the tensor has raw and typed data");
    }
    return typed ? fill_typed() : fill_raw();
  }

  [[nodiscard]] int64_t typed_count() const {
    return int64_t{proto_.float_data_size()} + proto_.int32_data_size() +
           proto_.string_data_size() + proto_.int64_data_size() + proto_.double_data_size() +
           proto_.uint64_data_size();
  }

  [[nodiscard]] Status error(DvtCode code, std::string message) const {
    return tensor_error(code, proto_.name(), std::move(message));
  }

  [[nodiscard]] Status size_error(const char* what, uint64_t expected, uint64_t got) const {
    Status status = error(DVT_INVALID_IMAGE, std::string("the tensor's data does not have the "
                                                         "size that its dims say"));
    status.detail().expected = std::to_string(expected) + what;
    status.detail().got = std::to_string(got) + what;
    return status;
  }

  Result<ir::TensorData> read_strings() {
    if (proto_.data_location() == onnx::TensorProto::EXTERNAL || !proto_.raw_data().empty() ||
        typed_count() != proto_.string_data_size()) {
      return error(DVT_INVALID_IMAGE, "a string tensor has its elements in another field");
    }
    if (uint64_t(proto_.string_data_size()) != elements_) {
      return size_error(" strings", elements_, uint64_t(proto_.string_data_size()));
    }
    const std::vector<std::string> strings(proto_.string_data().begin(),
                                           proto_.string_data().end());
    auto data = ir::make_string_tensor(data_.dims, strings);
    if (data) return std::move(*data);
    Status status = error(DVT_UNSUPPORTED, "a string is too long");
    status.detail().expected = "at most " + std::to_string(DVT_STRING_MAX) + " bytes";
    return status;
  }

  Status fill_raw() {
    const std::string& raw = proto_.raw_data();
    if (raw.size() != bytes_) return size_error(" bytes", bytes_, raw.size());
    std::vector<std::byte> bytes(raw.size());
    if (!raw.empty()) std::memcpy(bytes.data(), raw.data(), raw.size());
    finish(std::move(bytes));
    return {};
  }

  Status fill_external() {
    std::string location;
    uint64_t offset = 0;
    uint64_t length = bytes_;
    for (const onnx::StringStringEntryProto& entry : proto_.external_data()) {
      if (entry.key() == "location") location = entry.value();
      const bool is_offset = entry.key() == "offset";
      if (!is_offset && entry.key() != "length") continue;
      const std::string& text = entry.value();
      uint64_t& number = is_offset ? offset : length;
      const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
      if (code != std::errc() || end != text.data() + text.size()) {
        return error(DVT_INVALID_IMAGE,
                     "external data " + entry.key() + " '" + text + "' is not a number of 64 bits");
      }
    }
    if (length != bytes_) return size_error(" bytes", bytes_, length);
    Result<std::vector<std::byte>> bytes = external_.read(location, offset, bytes_);
    if (!bytes.ok()) return std::move(bytes.status());
    finish(std::move(*bytes));
    return {};
  }

  Status fill_typed() {
    switch (data_.dtype) {
      case DVT_F32:
        return fill_from<float>(proto_.float_data());
      case DVT_F64:
        return fill_from<double>(proto_.double_data());
      case DVT_I64:
        return fill_from<int64_t>(proto_.int64_data());
      case DVT_U64:
        return fill_from<uint64_t>(proto_.uint64_data());
      case DVT_U32:
        return fill_from<uint32_t>(proto_.uint64_data());
      case DVT_I32:
        return fill_from<int32_t>(proto_.int32_data());
      case DVT_I16:
        return fill_from<int16_t>(proto_.int32_data());
      case DVT_I8:
        return fill_from<int8_t>(proto_.int32_data());
      case DVT_U16:
      case DVT_F16:  // The bits of the number.
      case DVT_BF16:
        return fill_from<uint16_t>(proto_.int32_data());
      case DVT_U8:
      case DVT_BOOL:
        return fill_from<uint8_t>(proto_.int32_data());
      default:
        return error(DVT_INTERNAL, "unhandled element type");
    }
  }

  template <class T, class Field>
  Status fill_from(const google::protobuf::RepeatedField<Field>& field) {
    if (field.size() != typed_count()) {
      return error(DVT_INVALID_IMAGE, "a " + std::string(dtype_name(data_.dtype)) +
                                          " tensor has its elements in another type's field");
    }
    if (uint64_t(field.size()) != elements_) {
      return size_error(" elements", elements_, uint64_t(field.size()));
    }
    std::vector<std::byte> bytes(bytes_);
    std::byte* out = bytes.data();
    for (const Field element : field) {
      if constexpr (std::is_integral_v<T>) {
        if (!std::in_range<T>(element)) {
          return error(DVT_INVALID_IMAGE, "element " + std::to_string(element) + " does not fit " +
                                              std::string(dtype_name(data_.dtype)));
        }
      }
      const T value = static_cast<T>(element);
      std::memcpy(out, &value, sizeof(T));
      out += sizeof(T);
    }
    finish(std::move(bytes));
    return {};
  }

  void finish(std::vector<std::byte> bytes) {
    if (data_.dtype == DVT_BOOL) {  // Kernels rely on 0 and 1.
      for (std::byte& element : bytes) element = std::byte(element != std::byte{0});
    }
    data_.bytes = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  }

  onnx::TensorProto proto_;
  ExternalData& external_;
  ir::TensorData data_;
  uint64_t elements_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace

Result<DvtDType> read_dtype(int32_t onnx_type, const std::string& tensor) {
  if (onnx_type >= 0 && dtype_is_valid(uint32_t(onnx_type))) return DvtDType(onnx_type);
  if (const char* name = ir::foreign_type_name(onnx_type)) {
    return tensor_error(DVT_UNSUPPORTED, tensor, std::string("element type ") + name);
  }
  return tensor_error(DVT_INVALID_IMAGE, tensor,
                      "element type " + std::to_string(onnx_type) + " is not one ONNX defines");
}

Result<ir::TensorData> read_tensor(onnx::TensorProto proto, ExternalData& external) {
  return TensorReader(std::move(proto), external).read();
}

}  // namespace davit::onnx_import
