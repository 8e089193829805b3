// Tensors of models: every element type and field, sizes, and external data.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "ir/onnx/tensor_io.hpp"
#include "tests/ir/proto_builder.hpp"

using namespace davit::test;
using davit::Result;
using davit::onnx_import::NamedTensor;
using onnx::TensorProto;
namespace fs = std::filesystem;

namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TensorProto tensor(int32_t type, std::initializer_list<int64_t> dims) {
  TensorProto proto;
  proto.set_name("t");
  proto.set_data_type(type);
  for (const int64_t dim : dims) proto.add_dims(dim);
  return proto;
}

Result<NamedTensor> read(const TensorProto& proto) {
  const std::string bytes = proto.SerializeAsString();
  return davit::onnx_import::read_tensor_bytes(std::as_bytes(std::span(bytes)));
}

std::string read_error(const TensorProto& proto) {
  const Result<NamedTensor> result = read(proto);
  return result.ok() ? "ok" : result.status().to_string();
}

// Reads back what `add` put into a typed field.
template <class T, class Add>
std::vector<T> typed(int32_t type, Add add) {
  TensorProto proto = tensor(type, {2});
  add(proto);
  Result<NamedTensor> result = read(proto);
  REQUIRE_MESSAGE(result.ok(), result.status().to_string());
  CHECK(result->name == "t");
  CHECK(result->data.dtype == type);
  const auto elements = result->data.as<T>();
  return {elements.begin(), elements.end()};
}

template <class T>
std::vector<T> from_int32(int32_t type, int32_t a, int32_t b) {
  return typed<T>(type, [&](TensorProto& proto) {
    proto.add_int32_data(a);
    proto.add_int32_data(b);
  });
}

// A folder that is gone at the end.
class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "davit_tensor_XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// A model with one external tensor of `count` u8 elements.
onnx::ModelProto external_model(const std::string& location, const char* offset, const char* length,
                                int64_t count = 4) {
  onnx::ModelProto model = relu_model();
  TensorProto* w = add_initializer(model.mutable_graph(), "w", TensorProto::UINT8, {count});
  w->set_data_location(TensorProto::EXTERNAL);
  const auto entry = [&](const char* key, const std::string& value) {
    onnx::StringStringEntryProto* pair = w->add_external_data();
    pair->set_key(key);
    pair->set_value(value);
  };
  entry("location", location);
  if (offset != nullptr) entry("offset", offset);
  if (length != nullptr) entry("length", length);
  add_output(model.mutable_graph(), "w");
  return model;
}

}  // namespace

TEST_CASE("typed fields of every element type") {
  CHECK(from_int32<int32_t>(TensorProto::INT32, INT32_MIN, 7) ==
        std::vector<int32_t>{INT32_MIN, 7});
  CHECK(from_int32<int16_t>(TensorProto::INT16, -32768, 7) == std::vector<int16_t>{-32768, 7});
  CHECK(from_int32<int8_t>(TensorProto::INT8, -128, 127) == std::vector<int8_t>{-128, 127});
  CHECK(from_int32<uint16_t>(TensorProto::UINT16, 65535, 0) == std::vector<uint16_t>{65535, 0});
  CHECK(from_int32<uint8_t>(TensorProto::UINT8, 255, 0) == std::vector<uint8_t>{255, 0});
  CHECK(from_int32<uint8_t>(TensorProto::BOOL, 2, 0) == std::vector<uint8_t>{1, 0});
  CHECK(from_int32<uint16_t>(TensorProto::FLOAT16, 0x3c00, 1) == std::vector<uint16_t>{0x3c00, 1});
  CHECK(from_int32<uint16_t>(TensorProto::BFLOAT16, 0x3f80, 1) == std::vector<uint16_t>{0x3f80, 1});
  CHECK(typed<float>(TensorProto::FLOAT, [](TensorProto& proto) {
          proto.add_float_data(1.5F);
          proto.add_float_data(-2);
        }) == std::vector<float>{1.5F, -2});
  CHECK(typed<double>(TensorProto::DOUBLE, [](TensorProto& proto) {
          proto.add_double_data(0.1);
          proto.add_double_data(1e300);
        }) == std::vector<double>{0.1, 1e300});
  CHECK(typed<int64_t>(TensorProto::INT64, [](TensorProto& proto) {
          proto.add_int64_data(INT64_MIN);
          proto.add_int64_data(1);
        }) == std::vector<int64_t>{INT64_MIN, 1});
  CHECK(typed<uint64_t>(TensorProto::UINT64, [](TensorProto& proto) {
          proto.add_uint64_data(UINT64_MAX);
          proto.add_uint64_data(1);
        }) == std::vector<uint64_t>{UINT64_MAX, 1});
  CHECK(typed<uint32_t>(TensorProto::UINT32, [](TensorProto& proto) {
          proto.add_uint64_data(UINT32_MAX);
          proto.add_uint64_data(1);
        }) == std::vector<uint32_t>{UINT32_MAX, 1});
}

TEST_CASE("strings are kept and raw data is copied as it is") {
  TensorProto proto = tensor(TensorProto::STRING, {2});
  proto.add_string_data("a");
  proto.add_string_data(std::string("\0b", 2));
  Result<NamedTensor> strings = read(proto);
  REQUIRE(strings.ok());
  CHECK(davit::ir::strings_of(strings->data) ==
        std::vector<std::string>{"a", std::string("\0b", 2)});
  CHECK(strings->data.bytes->size() == 2 * sizeof(DvtString));
  proto.set_string_data(0, std::string(DVT_STRING_MAX, 'x'));
  CHECK(read(proto).ok());
  proto.set_string_data(0, std::string(DVT_STRING_MAX + 1, 'x'));
  CHECK(has(read_error(proto), "a string is too long"));

  proto = tensor(TensorProto::FLOAT, {1, 1});
  proto.set_raw_data(std::string("\x00\x00\x80\x3f", 4));
  Result<NamedTensor> raw = read(proto);
  REQUIRE(raw.ok());
  CHECK(raw->data.as<float>()[0] == 1.0F);
  CHECK(raw->data.dims == std::vector<int64_t>{1, 1});

  CHECK(read(tensor(TensorProto::FLOAT, {0, 5})).ok());
}

TEST_CASE("data that does not fit its dims is refused before memory is taken") {
  CHECK(has(read_error(tensor(TensorProto::FLOAT, {1000000, 1000000})),
            "does not have the size that its dims say; tensor t; expected 4000000000000 bytes; got "
            "0 bytes"));
  CHECK(has(read_error(tensor(TensorProto::DOUBLE, {INT64_MAX})), "does not fit 64 bits"));
  CHECK(has(read_error(tensor(TensorProto::UINT8, {INT64_MAX})), "size that its dims say"));
  CHECK(has(read_error(tensor(TensorProto::UINT8, {INT64_MAX, 3})), "product does not fit"));
  CHECK(has(read_error(tensor(TensorProto::UINT8, {-1})), "negative"));
  TensorProto proto = tensor(TensorProto::FLOAT, {2});
  proto.set_raw_data("1234567");
  CHECK(has(read_error(proto), "expected 8 bytes; got 7 bytes"));
  proto.add_float_data(1);
  CHECK(has(read_error(proto), "raw and typed data"));
  proto = tensor(TensorProto::FLOAT, {1});
  proto.add_int32_data(1);
  CHECK(has(read_error(proto), "another type's field"));
  proto.clear_int32_data();
  proto.add_float_data(1);
  proto.add_float_data(2);
  CHECK(has(read_error(proto), "expected 1 elements; got 2 elements"));
  proto = tensor(TensorProto::INT8, {1});
  proto.add_int32_data(128);
  CHECK(has(read_error(proto), "element 128 does not fit i8"));
  proto = tensor(TensorProto::STRING, {1});
  proto.set_raw_data("abc");
  CHECK(has(read_error(proto), "in another field"));
  proto.clear_raw_data();
  CHECK(has(read_error(proto), "expected 1 strings; got 0 strings"));
  proto = tensor(TensorProto::FLOAT, {0});
  proto.mutable_segment();
  CHECK(has(read_error(proto), "segments"));
  CHECK(has(read_error(tensor(123, {0})), "element type 123 is not one ONNX defines; tensor t"));
}

TEST_CASE("external data below the model's folder is read") {
  const Folder folder;
  fs::create_directory(folder / "weights");
  write_file(folder / "weights/w.bin", "0123456789");
  const std::string root = (folder / "").string();
  for (const char* location : {"weights/w.bin", "./weights//w.bin"}) {
    Result<davit::ir::Module> module = import_proto(external_model(location, "3", "4"), root);
    REQUIRE_MESSAGE(module.ok(), module.status().to_string());
    const auto& data = *module->constant(module->graph_outputs(davit::ir::kMainGraph)[1]);
    CHECK(std::memcmp(data.bytes->data(), "3456", 4) == 0);
  }
  // The digest covers the data.
  const onnx::ModelProto model = external_model("weights/w.bin", nullptr, nullptr);
  const std::string digest = import_proto(model, root)->source_digest;
  write_file(folder / "weights/w.bin", "x123456789");
  CHECK(import_proto(model, root)->source_digest != digest);
  write_file(folder / "model.onnx", model.SerializeAsString());
  Result<davit::ir::Module> from_file =
      davit::onnx_import::import_onnx_file((folder / "model.onnx").string());
  REQUIRE(from_file.ok());
  CHECK(from_file->source_name == "model.onnx");
  CHECK(from_file->source_digest == import_proto(model, root)->source_digest);
}

TEST_CASE("external data outside the model's folder is refused") {
  const Folder outer;
  fs::create_directory(outer / "model");
  fs::create_directory(outer / "elsewhere");
  write_file(outer / "secret.bin", "secret data");
  write_file(outer / "elsewhere/secret.bin", "secret data");
  const std::string root = (outer / "model").string();
  fs::create_symlink(outer / "secret.bin", outer / "model/link.bin");
  fs::create_symlink(outer / "elsewhere", outer / "model/dir");
  fs::create_hard_link(outer / "secret.bin", outer / "model/hard.bin");
  REQUIRE(mkfifo((outer / "model/pipe").c_str(), 0600) == 0);
  fs::create_directory(outer / "model/folder");

  const auto refused = [&](const std::string& location) {
    const std::string error = import_error(external_model(location, nullptr, nullptr), root);
    CHECK_MESSAGE(has(error, "tensor w"), error);
    return error;
  };
  CHECK(has(refused("../secret.bin"), "leaves the model's folder; it was not opened"));
  CHECK(has(refused("folder/../../secret.bin"), "leaves the model's folder"));
  CHECK(has(refused((outer / "secret.bin").string()), "is absolute"));
  CHECK(has(refused("..\\secret.bin"), "backslash"));
  CHECK(has(refused(std::string("w.bin\0/../x", 11)), "NUL"));
  CHECK(has(refused("link.bin"), "is a symbolic link"));
  CHECK(has(refused("dir/secret.bin"), "goes through a symbolic link"));
  CHECK(has(refused("hard.bin"), "is a hard link"));
  CHECK(has(refused("*/_ORT_MEM_ADDR_/*"), "in-memory marker"));
  CHECK(has(refused("pipe"), "is a pipe; it was not opened"));
  CHECK(has(refused("pipe/w.bin"), "Not a directory"));
  CHECK(has(refused("folder"), "is a folder; it was not opened"));
  CHECK(has(refused("folder/"), "names no file"));
  CHECK(has(refused("."), "names no file"));
  CHECK(has(refused(""), "is empty"));
  CHECK(has(refused("missing.bin"), "No such file"));
  CHECK(has(refused("missing/w.bin"), "No such file"));
  CHECK(has(import_error(external_model("w.bin", nullptr, nullptr)), "the model has no folder"));
}

TEST_CASE("ranges of external data are checked without wrapping") {
  const Folder folder;
  write_file(folder / "w.bin", "0123456789");
  const std::string root = (folder / "").string();
  const auto error = [&](const char* offset, const char* length, int64_t count = 4) {
    return import_error(external_model("w.bin", offset, length, count), root);
  };
  CHECK(error("6", "4") == "ok");
  CHECK(has(error("7", "4"), "too short; tensor w; expected 4 bytes at offset 7; got 10 bytes"));
  CHECK(has(error("18446744073709551608", "16", 16), "too short"));  // 2^64 - 8, wraps to 8.
  CHECK(has(error("18446744073709551616", "4"), "is not a number of 64 bits"));
  CHECK(has(error("-8", "4"), "is not a number of 64 bits"));
  CHECK(has(error("4x", "4"), "is not a number of 64 bits"));
  CHECK(has(error("0", "5"), "expected 4 bytes; got 5 bytes"));
  CHECK(has(error("0", nullptr, INT64_MAX), "too short"));

  onnx::ModelProto model = external_model("w.bin", nullptr, nullptr, 10);
  const TensorProto w = model.graph().initializer(0);
  for (int i = 0; i < 4; ++i) {
    CHECK(import_error(model, root) == "ok");
    *model.mutable_graph()->add_initializer() = w;
    model.mutable_graph()->mutable_initializer(i + 1)->set_name("w" + std::to_string(i));
  }
  CHECK(has(import_error(model, root), "overlap too much"));
  // Spellings of one name count as one file.
  const char* const spellings[] = {"w.bin", "./w.bin", ".//w.bin", "././w.bin", ".///w.bin"};
  for (int i = 0; i < 5; ++i) {
    TensorProto* initializer = model.mutable_graph()->mutable_initializer(i);
    initializer->mutable_external_data(0)->set_value(spellings[i]);
  }
  CHECK(has(import_error(model, root), "overlap too much"));
  model = external_model("w.bin", nullptr, nullptr);
  model.mutable_graph()->mutable_initializer(0)->set_raw_data("1234");
  CHECK(has(import_error(model, root), "external and internal data"));
}

TEST_CASE("pipes, devices and folders are neither models nor tensors, and nobody waits for them") {
  const Folder folder;
  const std::string pipe = folder / "pipe.onnx";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const std::pair<std::string, std::string> refused[] = {
      {pipe, "it is a pipe"}, {"/dev/zero", "it is a device"}, {folder / "", "it is a folder"}};
  for (const auto& [path, words] : refused) {
    const auto model = davit::onnx_import::import_onnx_file(path);
    const auto tensor_file = davit::onnx_import::read_tensor_file(path);
    for (const davit::Status* status : {&model.status(), &tensor_file.status()}) {
      CHECK(status->code() == DVT_IO_ERROR);
      CHECK_MESSAGE(has(status->to_string(), path + ": " + words), status->to_string());
    }
  }
}

TEST_CASE("a tensor file is read") {
  const Folder folder;
  TensorProto proto = tensor(TensorProto::UINT8, {3});
  proto.set_raw_data("abc");
  write_file(folder / "input_0.pb", proto.SerializeAsString());
  Result<NamedTensor> read_back =
      davit::onnx_import::read_tensor_file((folder / "input_0.pb").string());
  REQUIRE(read_back.ok());
  CHECK(read_back->data.bytes->size() == 3);
  CHECK(davit::onnx_import::read_tensor_file((folder / "none.pb").string()).status().code() ==
        DVT_IO_ERROR);
  proto.set_data_location(TensorProto::EXTERNAL);
  CHECK_FALSE(read(proto).ok());
}
