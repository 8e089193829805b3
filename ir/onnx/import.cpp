#include "ir/onnx/import.hpp"

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <onnx/onnx-data_pb.h>
#include <onnx/onnx_pb.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <new>

#include "base/files.hpp"
#include "ir/onnx/digest.hpp"
#include "ir/onnx/external_data.hpp"
#include "ir/onnx/graph_reader.hpp"
#include "ir/onnx/tensor_io.hpp"
#include "ir/onnx/tensor_reader.hpp"
#include "ir/verify.hpp"

namespace davit::onnx_import {
namespace {

// Reads a file once, front to back, and digests what passes.
class DigestedFile final : public google::protobuf::io::CopyingInputStream {
 public:
  explicit DigestedFile(Digest& digest) : digest_(digest) {}
  DigestedFile(const DigestedFile&) = delete;
  DigestedFile& operator=(const DigestedFile&) = delete;
  ~DigestedFile() override = default;

  Status open_path(const std::string& path) {
    auto file = open_regular_file(path, DVT_STAGE_PARSE);
    if (!file.ok()) return std::move(file.status());
    if (file->bytes > INT_MAX) {
      return Status({.code = DVT_INVALID_IMAGE,
                     .stage = DVT_STAGE_PARSE,
                     .message = path + ": a protobuf file cannot exceed 2 GiB",
                     .got = std::to_string(file->bytes) + " bytes",
                     .hint = "keep the weights as external data"});
    }
    file_ = std::move(file->descriptor);
    return {};
  }

  int Read(void* buffer, int size) override {
    ssize_t count = 0;
    do {
      count = ::read(file_.get(), buffer, size_t(size));
    } while (count < 0 && errno == EINTR);
    if (count < 0) error_ = errno;
    if (count > 0) digest_.update(buffer, size_t(count));
    return int(count);
  }

  // Whether reading, as against parsing, failed.
  [[nodiscard]] Status read_status(const std::string& path) const {
    if (error_ == 0) return {};
    return {DVT_IO_ERROR, DVT_STAGE_PARSE, "cannot read " + path + ": " + std::strerror(error_)};
  }

 private:
  Digest& digest_;
  FileDescriptor file_;
  int error_ = 0;
};

Status not_protobuf(const std::string& what) {
  return {DVT_INVALID_IMAGE, DVT_STAGE_PARSE,
          what +
              " is not readable: corrupt, cut short, not ONNX, or nested more than 100 messages "
              "deep"};
}

template <class Proto>
Status parse_file(const std::string& path, Digest& digest, Proto& proto) {
  DigestedFile file(digest);
  if (Status status = file.open_path(path); !status.ok()) return status;
  google::protobuf::io::CopyingInputStreamAdaptor stream(&file, 1 << 20);
  const bool parsed = proto.ParseFromZeroCopyStream(&stream);
  if (Status status = file.read_status(path); !status.ok()) return status;
  return parsed ? Status() : not_protobuf(path);
}

template <class Proto>
Status parse_bytes(std::span<const std::byte> bytes, const std::string& what, Proto& proto) {
  if (bytes.size() > INT_MAX || !proto.ParseFromArray(bytes.data(), int(bytes.size()))) {
    return not_protobuf(what);
  }
  return {};
}

Status check_version(const char* what, int64_t version, int64_t min, int64_t max) {
  if (version >= min && version <= max) return {};
  return Status({.code = version > 0 ? DVT_UNSUPPORTED : DVT_INVALID_IMAGE,
                 .stage = DVT_STAGE_PARSE,
                 .message = std::string("the model's ") + what + " is outside what Davit reads",
                 .expected = std::to_string(min) + " to " + std::to_string(max),
                 .got = std::to_string(version)});
}

Status read_versions(const onnx::ModelProto& proto, ir::Module& module) {
  if (!proto.has_ir_version() || !proto.has_graph()) {
    return {DVT_INVALID_IMAGE, DVT_STAGE_PARSE,
            "the file is not an ONNX model: it has no IR version or no graph"};
  }
  Status status = check_version("IR version", proto.ir_version(), kIrVersionMin, kIrVersionMax);
  for (const onnx::OperatorSetIdProto& import : proto.opset_import()) {
    const std::string domain = import.domain() == "ai.onnx" ? "" : import.domain();
    const auto [entry, added] = module.opset_imports.emplace(domain, import.version());
    if (!added && entry->second != import.version()) {
      return {DVT_INVALID_IMAGE, DVT_STAGE_PARSE,
              "the model imports domain '" + import.domain() + "' at two versions"};
    }
    if (!domain.empty()) continue;
    Status opset = check_version("opset of ai.onnx", import.version(), kOpsetMin, kOpsetMax);
    if (!opset.ok() && !status.ok())
      opset.detail().message += "; so is its IR version " + std::to_string(proto.ir_version());
    if (!opset.ok()) status = std::move(opset);
  }
  return status;
}

Result<ir::Module> read_model(onnx::ModelProto& proto, ExternalData& external) {
  ir::Module module;
  if (Status status = read_versions(proto, module); !status.ok()) return status;
  Functions functions;
  for (const onnx::FunctionProto& function : proto.functions()) {
    if (Status status = functions.add(function); !status.ok()) return status;
  }
  GraphReader reader(module, functions, external);
  if (Status status = reader.read_main(*proto.mutable_graph()); !status.ok()) return status;
  if (Status status = ir::verify(module); !status.ok()) return status;
  if (Status status = module.sort(); !status.ok()) return status;
  return module;
}

Status out_of_memory() {
  return {DVT_OUT_OF_MEMORY, DVT_STAGE_PARSE, "not enough memory for the model"};
}

}  // namespace

Result<ir::Module> import_onnx_file(const std::string& path,
                                    std::vector<std::string>* external_files) try {
  Digest digest;
  onnx::ModelProto proto;
  if (Status status = parse_file(path, digest, proto); !status.ok()) return status;
  const std::filesystem::path file(path);
  ExternalData external(file.has_parent_path() ? file.parent_path().string() : ".", digest);
  Result<ir::Module> module = read_model(proto, external);
  if (!module.ok()) return module;
  if (external_files != nullptr) *external_files = external.files();
  module->source_name = file.filename().string();
  module->source_digest = digest.hex();
  return module;
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Result<ir::Module> import_onnx_bytes(std::span<const std::byte> bytes,
                                     const std::optional<std::string>& folder) try {
  Digest digest;
  digest.update(bytes.data(), bytes.size());
  onnx::ModelProto proto;
  if (Status status = parse_bytes(bytes, "the model", proto); !status.ok()) return status;
  ExternalData external(folder, digest);
  Result<ir::Module> module = read_model(proto, external);
  if (module.ok()) module->source_digest = digest.hex();
  return module;
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

namespace {

Result<NamedTensor> named_tensor(onnx::TensorProto proto, Digest& digest) {
  ExternalData none(std::nullopt, digest);
  std::string name = proto.name();
  Result<ir::TensorData> data = read_tensor(std::move(proto), none);
  if (!data.ok()) return std::move(data.status());
  return NamedTensor{std::move(name), std::move(*data)};
}

}  // namespace

Result<NamedTensor> read_tensor_file(const std::string& path) try {
  Digest digest;
  onnx::TensorProto proto;
  if (Status status = parse_file(path, digest, proto); !status.ok()) return status;
  return named_tensor(std::move(proto), digest);
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Result<NamedTensor> read_tensor_bytes(std::span<const std::byte> bytes) try {
  Digest digest;
  onnx::TensorProto proto;
  if (Status status = parse_bytes(bytes, "the tensor", proto); !status.ok()) return status;
  return named_tensor(std::move(proto), digest);
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

namespace {

Status read_tensor_value(onnx::TensorProto proto, Digest& digest, NamedValue& value) {
  Result<NamedTensor> tensor = named_tensor(std::move(proto), digest);
  if (!tensor.ok()) return std::move(tensor.status());
  if (value.name.empty()) value.name = std::move(tensor->name);
  value.tensors.push_back(std::move(tensor->data));
  return {};
}

Status read_sequence_value(const onnx::SequenceProto& proto, Digest& digest, NamedValue& value) {
  if (proto.elem_type() != onnx::SequenceProto::TENSOR && proto.tensor_values_size() == 0 &&
      proto.elem_type() != onnx::SequenceProto::UNDEFINED) {
    return {DVT_UNSUPPORTED, DVT_STAGE_PARSE, "a sequence of something else than tensors"};
  }
  if (value.name.empty()) value.name = proto.name();
  for (const onnx::TensorProto& tensor : proto.tensor_values()) {
    if (Status status = read_tensor_value(tensor, digest, value); !status.ok()) return status;
  }
  return {};
}

Status read_optional_value(const onnx::OptionalProto& proto, Digest& digest, NamedValue& value) {
  value.name = proto.name();
  if (proto.has_sequence_value()) return read_sequence_value(proto.sequence_value(), digest, value);
  if (proto.has_tensor_value()) return read_tensor_value(proto.tensor_value(), digest, value);
  value.is_present = false;
  return {};
}

}  // namespace

Result<NamedValue> read_value_file(const std::string& path, const ir::ContainerType* type) try {
  Digest digest;
  NamedValue value;
  Status status;
  if (type == nullptr) {
    onnx::TensorProto proto;
    status = parse_file(path, digest, proto);
    if (status.ok()) status = read_tensor_value(std::move(proto), digest, value);
  } else if (type->is_optional) {
    onnx::OptionalProto proto;
    status = parse_file(path, digest, proto);
    if (status.ok()) status = read_optional_value(proto, digest, value);
  } else {
    onnx::SequenceProto proto;
    status = parse_file(path, digest, proto);
    if (status.ok()) status = read_sequence_value(proto, digest, value);
  }
  if (!status.ok()) return status;
  return value;
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

}  // namespace davit::onnx_import
