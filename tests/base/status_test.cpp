#include "base/status.hpp"

#include <doctest/doctest.h>

#include <string>

#include "base/checked.hpp"
#include "base/dtype.hpp"

using davit::ErrorDetail;
using davit::Status;

TEST_CASE("a status carries every part and prints them in order") {
  const Status status(ErrorDetail{.code = DVT_INVALID_ARGUMENT,
                                  .stage = DVT_STAGE_BIND,
                                  .message = "wrong size",
                                  .node = "Conv_3",
                                  .op = "ai.onnx::Conv(11)",
                                  .tensor = "x",
                                  .expected = "16 bytes",
                                  .got = "4 bytes",
                                  .hint = "pass the whole tensor"});
  CHECK(status.to_string() ==
        "bind: Conv_3 (ai.onnx::Conv(11)): wrong size; tensor x; expected 16 bytes; got 4 bytes; "
        "hint: pass the whole tensor");
  CHECK(Status().to_string() == "ok");
}

TEST_CASE("the C record cuts long strings on a UTF-8 boundary") {
  std::string name(126, 'a');
  name += "\u00e9\u00e9";  // The first é straddles the last byte of tensor[128].
  const Status status(ErrorDetail{.code = DVT_INVALID_IMAGE, .tensor = name});
  DvtError error;
  status.to_c(&error);
  CHECK(std::string(error.tensor) == std::string(126, 'a'));
  CHECK(error.code == DVT_INVALID_IMAGE);
  CHECK(std::string(error.message) == "invalid model or image");
}

TEST_CASE("checked arithmetic reports overflow") {
  CHECK(!davit::checked_add(UINT64_MAX, 1));
  CHECK(!davit::checked_mul(UINT64_MAX / 2, 3));
  CHECK(!davit::checked_align(UINT64_MAX - 1, 64));
  CHECK(*davit::checked_align(65, 64) == 128);
  CHECK(!davit::in_range(UINT64_MAX - 7, 16, 100));
  CHECK(davit::in_range(84, 16, 100));
  const int64_t huge[] = {INT64_MAX, 2};
  CHECK(!davit::checked_elements(huge));
  const int64_t empty[] = {INT64_MAX, INT64_MAX, 0};
  CHECK(*davit::checked_elements(empty) == 0);
  const int64_t negative[] = {0, -1};
  CHECK(!davit::checked_elements(negative));
}

TEST_CASE("dtype names round-trip and unknown values are not valid") {
  for (uint32_t value = 0; value < 256; ++value) {
    if (!davit::dtype_is_valid(value)) {
      CHECK(davit::dtype_name(DvtDType(value)) == "?");
      continue;
    }
    CHECK(davit::dtype_from_name(davit::dtype_name(DvtDType(value))) == DvtDType(value));
  }
  CHECK(davit::dtype_from_name("float32") == DVT_F32);
  CHECK(!davit::dtype_is_valid(0));
  CHECK(!davit::dtype_is_valid(255));
}
