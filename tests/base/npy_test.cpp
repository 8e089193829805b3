#include "base/npy.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <string>

using davit::format_npy;
using davit::parse_npy;

namespace {

std::vector<std::byte> bytes_of(const std::string& text) {
  std::vector<std::byte> out(text.size());
  std::memcpy(out.data(), text.data(), text.size());
  return out;
}

std::vector<std::byte> file_of(const std::string& dictionary, size_t data_bytes) {
  std::string text("\x93NUMPY\x01\x00", 8);
  text += char(dictionary.size());
  text += '\0';
  return bytes_of(text + dictionary + std::string(data_bytes, 'x'));
}

}  // namespace

TEST_CASE("arrays of every number type and rank round-trip") {
  for (const DvtDType dtype : {DVT_F32, DVT_U8, DVT_I8, DVT_U16, DVT_I16, DVT_I32, DVT_I64,
                               DVT_BOOL, DVT_F16, DVT_F64, DVT_U32, DVT_U64}) {
    for (const std::vector<int64_t>& dims :
         {std::vector<int64_t>{}, {3}, {2, 3}, {0, 4}, {1, 2, 1, 2}}) {
      size_t bytes = dvt_dtype_size(dtype);
      for (const int64_t dim : dims) bytes *= size_t(dim);
      std::vector<std::byte> data(bytes);
      for (size_t i = 0; i < bytes; ++i) data[i] = std::byte(i * 7);
      const auto file = format_npy(dtype, dims, data);
      REQUIRE(file.ok());
      CHECK((file->size() - bytes) % 64 == 0);
      const auto array = parse_npy(*file, "x.npy");
      REQUIRE(array.ok());
      CHECK(array->dtype == dtype);
      CHECK(array->dims == dims);
      CHECK(array->bytes == data);
    }
  }
}

TEST_CASE("every truncation of a good file is refused") {
  const std::vector<int64_t> dims = {2, 3};
  const std::vector<std::byte> data(24);
  const auto file = format_npy(DVT_F32, dims, data);
  REQUIRE(file.ok());
  for (size_t size = 0; size < file->size(); ++size) {
    CHECK(!parse_npy(std::span(*file).first(size), "x.npy").ok());
  }
}

TEST_CASE("malformed headers are refused with the file's name") {
  const char* const bad[] = {
      "{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }",
      "{'descr': '<f3', 'fortran_order': False, 'shape': (1,), }",
      "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1 1), }",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1",
      "{'descr': '<f2', 'fortran_order': True, 'shape': (2, 1), }",
      "{'descr': '<f4', 'fortran_order': False}",
      "{'descr'",
  };
  for (const char* header : bad) {
    const auto array = parse_npy(file_of(header, 4), "some.npy");
    CHECK_MESSAGE(!array.ok(), header);
    if (!array.ok()) CHECK(array.status().to_string().find("some.npy") != std::string::npos);
  }
  CHECK(parse_npy(file_of("{'descr': '<f4', 'fortran_order': True, 'shape': (1,), }", 4), "").ok());
}
