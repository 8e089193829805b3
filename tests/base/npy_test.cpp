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
  // What is wrong, and the words that say so. All but the last few hold a good shape of four bytes.
  const struct {
    const char* header;
    const char* words;
  } bad[] = {
      {"{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", "type '>f4' is not"},
      {"{'descr': '<f3', 'fortran_order': False, 'shape': (1,), }", "type '<f3' is not"},
      {"{'descr': '|f4', 'fortran_order': False, 'shape': (1,), }", "type '|f4' is not"},
      {"{'descr': '<f44', 'fortran_order': False, 'shape': (1,), }", "type '<f44' is not"},
      {"{'descr': '', 'fortran_order': False, 'shape': (1,), }", "type '' is not"},
      {"{'descr': '<f4\", 'fortran_order': False, 'shape': (1,), }", "type"},
      {"{'descr': '<\\x664', 'fortran_order': False, 'shape': (1,), }", "a quoted type"},
      {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "not plain numbers"},
      {"{'descr': <f4, 'fortran_order': False, 'shape': (1,), }", "a quoted type"},
      // Order.
      {"{'descr': '<f4', 'fortran_order': Falsehood, 'shape': (1,), }", "',' or '}'"},
      {"{'descr': '<f4', 'fortran_order': Trueish, 'shape': (1,), }", "',' or '}'"},
      {"{'descr': '<f4', 'fortran_order': false, 'shape': (1,), }", "True or False"},
      {"{'descr': '<f4', 'fortran_order': 'False', 'shape': (1,), }", "True or False"},
      {"{'descr': '<f4', 'fortran_order': 0, 'shape': (1,), }", "True or False"},
      {"{'descr': '<f4', 'fortran_order': , 'shape': (1,), }", "True or False"},
      {"{'descr': '<f2', 'fortran_order': True, 'shape': (2, 1), }", "Fortran order"},
      // Shape.
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "an extent"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1), }", "',' in the shape"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (,), }", "an extent"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (,1), }", "an extent"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,,1), }", "an extent"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1 1), }", "',' in the shape"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1 1), }", "',' in the shape"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (01,), }", "an extent"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1.0,), }", "',' in the shape"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (0x1,), }", "',' in the shape"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': ('1',), }", "an extent"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': [1], }", "'(' of a shape"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': 1, }", "'(' of a shape"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551617,), }", "an extent"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }",
       "needs too many bytes"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1", "',' in the shape"},
      // The dictionary.
      {"{'descr': '<f4', 'fortran_order': False}", "lacks 'shape'"},
      {"{'fortran_order': False, 'shape': (1,)}", "lacks 'descr'"},
      {"{'descr': '<f4', 'shape': (1,)}", "lacks 'fortran_order'"},
      {"{}", "lacks 'descr'"},
      {"", "expected '{'"},
      {"'descr': '<f4', 'fortran_order': False, 'shape': (1,)", "expected '{'"},
      {"{'descr'", "':'"},
      {"{'descr' '<f4', 'fortran_order': False, 'shape': (1,)}", "':'"},
      {"{, 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", "a quoted key"},
      {"{'descr': '<f4',, 'fortran_order': False, 'shape': (1,)}", "a quoted key"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,),, }", "a quoted key"},
      {"{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}", "',' or '}'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)", "',' or '}'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", "nothing after"},
      {"{descr: '<f4', 'fortran_order': False, 'shape': (1,)}", "a quoted key"},
      // What looks like an entry inside a string is none.
      {"{\"'descr': '<f4', \": 1, 'fortran_order': False, 'shape': (1,)}", "an unknown key"},
      {"{'descr': '<f4', 'x': 1, 'fortran_order': False, 'shape': (1,)}", "an unknown key, 'x'"},
      {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", "twice"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'shape': (1,)}", "'shape' twice"},
  };
  for (const auto& [bad_header, bad_words] : bad) {
    const auto& header = bad_header;  // clang 14 captures no structured bindings.
    const auto& words = bad_words;
    const auto array = parse_npy(file_of(header, 4), "some.npy");
    REQUIRE_MESSAGE(!array.ok(), header);
    const std::string error = array.status().to_string();
    CHECK_MESSAGE(error.find("some.npy") != std::string::npos, error);
    CHECK_MESSAGE(error.find(words) != std::string::npos, header, " gave ", error);
  }
}

TEST_CASE("headers that Python would read are read") {
  const char* const good[] = {
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }          \n",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
      "{\"descr\": \"<f4\", \"fortran_order\": False, \"shape\": (1,)}",
      "{'shape': (1,), 'fortran_order': False, 'descr': '<f4'}",
      "{'descr':'<f4','fortran_order':False,'shape':(1,1)}",
      "{ 'descr' : '<f4' , 'fortran_order' : False ,\n 'shape' : ( 1 , 1 , ) , }\n",
      "{'descr': '=f4', 'fortran_order': True, 'shape': (1,), }",
      "{'descr': '<f4', 'fortran_order': True, 'shape': (), }",
  };
  for (const char* header : good) {
    const auto array = parse_npy(file_of(header, 4), "some.npy");
    CHECK_MESSAGE(array.ok(), header, " gave ", array.status().to_string());
  }
  // Every byte of a good header matters: whatever replaces it, nothing is read beyond the data.
  const std::string header = good[0];
  for (size_t i = 0; i < header.size(); ++i) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string changed = header;
      changed[i] = char(byte);
      const auto array = parse_npy(file_of(changed, 4), "");
      if (array.ok()) CHECK(array->bytes.size() == 4);
    }
  }
}
