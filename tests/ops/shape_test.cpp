// What infer() functions share: ops/kernels/shape.h.
#include "ops/kernels/shape.h"

#include <doctest/doctest.h>

#include <array>
#include <string>

#include "tests/ops/harness.hpp"

using namespace davit;
using namespace davit::test;

namespace {

// A kernel that is nothing but its infer(); check() compares, one scratch output behind output 0.
DvtCode infer_with_scratch(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  const DvtCode code = dvt_infer_broadcast(ctx, outputs, reason, size);
  return code == DVT_OK ? dvt_infer_scratch(&outputs[1], 100, reason, size) : code;
}
DvtCode check_with_scratch(const DvtContext* ctx, char* reason, size_t size) {
  return dvt_check_inferred(ctx, infer_with_scratch, 1, reason, size);
}
DvtCode run_nothing(void* /*ctx*/) {
  return DVT_OK;
}

DvtKernel kernel_of(DvtKernelInferFn infer) {
  DvtKernel kernel{};
  kernel.name = "test.kernel";
  kernel.run = run_nothing;
  kernel.check = check_with_scratch;
  kernel.infer = infer;
  return kernel;
}

std::string infer_text(DvtKernelInferFn infer, std::vector<Operand> inputs,
                       std::vector<Operand> outputs) {
  const DvtKernel kernel = kernel_of(infer);
  Call call(kernel, inputs, outputs, nullptr);
  std::vector<DvtTensor> tensors;
  std::string text;
  if (call.infer(tensors, &text) != DVT_OK) return text;
  for (const DvtTensor& tensor : tensors) {
    char shape[DVT_SHAPE_TEXT];
    text += std::string(dvt_shape_text(&tensor, shape)) + " " + std::to_string(tensor.bytes) + ";";
  }
  return text;
}

std::string check_text(std::vector<Operand> inputs, std::vector<Operand> outputs) {
  const DvtKernel kernel = kernel_of(infer_with_scratch);
  Call call(kernel, inputs, outputs, nullptr);
  std::string text;
  const DvtCode code = call.check(&text);
  CHECK((code == DVT_OK) == text.empty());
  return text;
}

}  // namespace

TEST_CASE("outputs like input 0") {
  const std::vector<Operand> two = {Operand(DVT_F32, {0}), Operand(DVT_U8, {0})};
  CHECK(infer_text(dvt_infer_same, {Operand(DVT_F32, {2, 3})}, two) == "[2,3] 24;[2,3] 6;");
  CHECK(infer_text(dvt_infer_same, {Operand(DVT_F32, {})}, {two[0]}) == "[] 4;");
  CHECK(infer_text(dvt_infer_same, {Operand::absent()}, {two[0]}) == "input 0 is absent");
  CHECK(infer_text(dvt_infer_same, {}, {two[0]}).find("got 0") != std::string::npos);
  // What a large dtype makes of many small elements.
  Operand large(DVT_U8, {0});
  large.tensor.dims[0] = INT64_MAX / 4;
  large.tensor.bytes = INT64_MAX / 4;
  CHECK(infer_text(dvt_infer_same, {large}, {two[1]}).find("[2305843009213693951]") == 0);
  CHECK(infer_text(dvt_infer_same, {large}, {Operand(DVT_F64, {0})}).find("is not the shape") !=
        std::string::npos);
}

TEST_CASE("outputs that broadcast") {
  const std::vector<Operand> one = {Operand(DVT_F32, {0})};
  const auto text = [&](const std::vector<Dims>& shapes) {
    std::vector<Operand> inputs;
    for (const Dims& dims : shapes) inputs.emplace_back(DVT_F32, dims);
    return infer_text(dvt_infer_broadcast, inputs, one);
  };
  CHECK(text({{2, 1}, {3}}) == "[2,3] 24;");
  CHECK(text({{}, {0, 1}, {4}}) == "[0,4] 0;");
  CHECK(text({{1, 1, 1, 1, 1, 1, 1, 1}, {}}) == "[1,1,1,1,1,1,1,1] 4;");
  CHECK(text({{2, 3}, {2, 1}, {2, 2}}) == "input 2: shape [2,2] does not broadcast with [2,3]");
  CHECK(text({{0}, {2}}) == "input 1: shape [2] does not broadcast with [0]");
  CHECK(infer_text(dvt_infer_broadcast, {Operand(DVT_F32, {2}), Operand::absent()}, one) ==
        "input 1 is absent");
}

TEST_CASE("the broadcast of dims") {
  uint32_t rank = 0;
  int64_t dims[DVT_MAX_RANK] = {0};
  const std::array<int64_t, 2> first = {5, 1};
  const std::array<int64_t, 3> second = {4, 1, 7};
  CHECK(dvt_broadcast_dims(&rank, dims, 2, first.data()));
  CHECK(dvt_broadcast_dims(&rank, dims, 3, second.data()));
  CHECK(rank == 3);
  CHECK((dims[0] == 4 && dims[1] == 5 && dims[2] == 7));
  const std::array<int64_t, DVT_MAX_RANK + 1> nine = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  CHECK_FALSE(dvt_broadcast_dims(&rank, dims, DVT_MAX_RANK + 1, nine.data()));
  CHECK_FALSE(dvt_broadcast_dims(&rank, dims, 1, std::array<int64_t, 1>{6}.data()));
  CHECK((rank == 3 && dims[2] == 7));
}

TEST_CASE("axes") {
  char reason[256];
  uint32_t normal = 0;
  CHECK(dvt_normalise_axis(-3, 3, &normal, reason, sizeof reason) == DVT_OK);
  CHECK(normal == 0);
  CHECK(dvt_normalise_axis(2, 3, &normal, reason, sizeof reason) == DVT_OK);
  CHECK(normal == 2);
  for (const int64_t bad : {int64_t{3}, int64_t{-4}, INT64_MIN, INT64_MAX}) {
    CHECK(dvt_normalise_axis(bad, 3, &normal, reason, sizeof reason) == DVT_INVALID_ARGUMENT);
  }
  CHECK(dvt_normalise_axis(0, 0, &normal, nullptr, 0) == DVT_INVALID_ARGUMENT);
  uint32_t mask = 0;
  CHECK(dvt_axes_mask(std::array<int64_t, 2>{-1, 0}.data(), 2, 4, &mask, reason, sizeof reason) ==
        DVT_OK);
  CHECK(mask == 0b1001);
  CHECK(dvt_axes_mask(std::array<int64_t, 2>{-1, 3}.data(), 2, 4, &mask, reason, sizeof reason) ==
        DVT_INVALID_ARGUMENT);
  CHECK(std::string(reason) == "axis 3 is named twice");
}

TEST_CASE("parameters") {
  const DvtKernel kernel = kernel_of(nullptr);
  const auto read = [&](std::vector<Operand> inputs, bool with_data = true) {
    std::vector<Operand> outputs;
    Call call(kernel, inputs, outputs, nullptr);
    if (!with_data) call.context().cells[0]->data = nullptr;
    int64_t values[3] = {};
    uint32_t count = 0;
    char reason[256] = "";
    if (dvt_read_integers(&call.context(), 0, "axes", values, 3, &count, reason, sizeof reason) !=
        DVT_OK) {
      return std::string(reason);
    }
    std::string text;
    for (uint32_t i = 0; i < count; ++i) text += std::to_string(values[i]) + " ";
    return text;
  };
  const Operand wide(DVT_I64, {2}, std::vector<int64_t>{-1, INT64_MAX});
  CHECK(read({wide}) == "-1 9223372036854775807 ");
  CHECK(read({Operand(DVT_I32, {3}, std::vector<int32_t>{-1, 0, 7})}) == "-1 0 7 ");
  CHECK(read({Operand(DVT_I32, {}, std::vector<int32_t>{5})}) == "5 ");
  CHECK(read({Operand(DVT_I64, {0})}) == "");
  CHECK(read({Operand(DVT_I64, {0})}, false) == "");
  CHECK(read({wide}, false) == "axes: the values are not known");
  CHECK(read({Operand(DVT_F32, {1})}) == "axes: expected dtype i32 or i64, got f32");
  CHECK(read({Operand(DVT_I64, {1, 1})}).find("got shape [1,1]") != std::string::npos);
  CHECK(read({Operand(DVT_I64, {4})}).find("at most 3") != std::string::npos);
  CHECK(read({Operand::absent()}) == "axes: input is absent");
  CHECK(read({}) == "axes: input is absent");
}

TEST_CASE("check() by infer()") {
  const std::vector<Operand> inputs = {Operand(DVT_F32, {2, 1}), Operand(DVT_F32, {3})};
  const auto check = [&](const Dims& y, int64_t scratch) {
    return check_text(inputs, {Operand(DVT_F32, y), Operand(DVT_U8, {scratch})});
  };
  CHECK(check({2, 3}, 100) == "");
  CHECK(check({2, 3}, 101) == "");
  CHECK(check({2, 3}, 99) == "workspace: expected 100 bytes, got 99");
  CHECK(check({3, 2}, 100) == "output 0: expected shape [2,3], got [3,2]");
  CHECK(check_text(inputs, {Operand::absent(), Operand(DVT_U8, {100})}) == "");
  const std::vector<Operand> many(DVT_INFERRED_MAX + 1, Operand(DVT_F32, {2, 3}));
  CHECK(check_text(inputs, many).find("at most 8 outputs") != std::string::npos);
}
