// BitShift and the bitwise operators against the same on 64-bit integers.
#include "ops/kernels/bitwise.h"

#include <doctest/doctest.h>

#include <functional>

#include "base/dtype.hpp"
#include "tests/ops/harness.hpp"
#include "tests/ops/values.hpp"

using namespace davit;
using namespace davit::test;

namespace {

const std::vector<DvtDType> kUnsigned = {DVT_U8, DVT_U16, DVT_U32, DVT_U64};
const std::vector<DvtDType> kIntegers = {DVT_U8, DVT_U16, DVT_U32, DVT_U64,
                                         DVT_I8, DVT_I16, DVT_I32, DVT_I64};

ir::TensorData random_bits(Source& source, DvtDType dtype, Dims dims) {
  std::vector<std::byte> bytes(product(dims) * dvt_dtype_size(dtype));
  for (std::byte& byte : bytes) byte = std::byte(source.between(0, 255));
  return ir::make_tensor(dtype, std::move(dims), std::move(bytes));
}

uint64_t element(const ir::TensorData& data, size_t index) {
  const uint32_t size = dvt_dtype_size(data.dtype);
  uint64_t value = 0;
  std::memcpy(&value, data.bytes->data() + index * size, size);
  return value;
}

uint64_t low_bits(uint64_t value, DvtDType dtype) {
  const uint32_t bits = 8 * dvt_dtype_size(dtype);
  return bits == 64 ? value : value & ((uint64_t{1} << bits) - 1);
}

// [rows, columns] with [columns], and what `formula` makes of each pair.
void check_broadcast(const std::string& op, int64_t opset, DvtDType dtype, Source& source,
                     const std::function<uint64_t(uint64_t, uint64_t)>& formula,
                     const std::string& direction = {}) {
  INFO(op, " ", std::string(dtype_name(dtype)));
  const int64_t rows = source.between(1, 4);
  const int64_t columns = source.between(1, 700);
  const auto a = random_bits(source, dtype, {rows, columns});
  auto b = random_bits(source, dtype, {columns});
  if (!direction.empty()) {  // Shifts by more than there are bits, some of them.
    Values shifts(size_t(columns), 0.0);
    for (double& shift : shifts) shift = double(source.between(0, 70));
    b = make_data(dtype, {columns}, shifts);
  }
  OneNode node(op, opset);
  node.constant(a).constant(b);
  if (!direction.empty()) node.attribute("direction", direction);
  const auto outputs = node.evaluate();
  REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
  CHECK((*outputs)[0].dtype == dtype);
  for (size_t i = 0; i < size_t(rows * columns); ++i) {
    const uint64_t expected =
        low_bits(formula(element(a, i), element(b, i % size_t(columns))), dtype);
    REQUIRE(element((*outputs)[0], i) == expected);
  }
}

}  // namespace

TEST_CASE("BitwiseAnd, Or, Xor and Not in every integer type") {
  Source source(1);
  for (const DvtDType dtype : kIntegers) {
    check_broadcast("BitwiseAnd", 18, dtype, source, [](uint64_t a, uint64_t b) { return a & b; });
    check_broadcast("BitwiseOr", 18, dtype, source, [](uint64_t a, uint64_t b) { return a | b; });
    check_broadcast("BitwiseXor", 18, dtype, source, [](uint64_t a, uint64_t b) { return a ^ b; });
    const auto x = random_bits(source, dtype, {3, 5});
    OneNode node("BitwiseNot", 18);
    const auto outputs = node.constant(x).evaluate();
    REQUIRE(outputs.ok());
    for (size_t i = 0; i < 15; ++i) {
      CHECK(element((*outputs)[0], i) == low_bits(~element(x, i), dtype));
    }
  }
}

TEST_CASE("BitShift: all bits gone is 0, not undefined") {
  Source source(2);
  for (const DvtDType dtype : kUnsigned) {
    const uint32_t bits = 8 * dvt_dtype_size(dtype);
    check_broadcast(
        "BitShift", 11, dtype, source,
        [bits](uint64_t a, uint64_t b) { return b < bits ? a << b : 0; }, "LEFT");
    check_broadcast(
        "BitShift", 11, dtype, source,
        [bits](uint64_t a, uint64_t b) { return b < bits ? a >> b : 0; }, "RIGHT");
  }
}

TEST_CASE("bitwise operators: what is refused") {
  const auto message = [](OneNode& node) { return node.infer().to_string(); };
  OneNode no_direction("BitShift", 11);
  no_direction.input(DVT_U8, Dims{2}).input(DVT_U8, Dims{2});
  CHECK(message(no_direction).find("expected LEFT or RIGHT; got none") != std::string::npos);
  OneNode is_signed("BitShift", 11);
  is_signed.input(DVT_I8, Dims{2}).input(DVT_I8, Dims{2});
  is_signed.attribute("direction", std::string("LEFT"));
  CHECK(message(is_signed).find("unsigned") != std::string::npos);
  OneNode floats("BitwiseAnd", 18);
  floats.input(DVT_F32, Dims{2}).input(DVT_F32, Dims{2});
  CHECK(message(floats).find("must be integers") != std::string::npos);
  OneNode mixed("BitwiseAnd", 18);
  mixed.input(DVT_I8, Dims{2}).input(DVT_U8, Dims{2});
  CHECK(message(mixed).find("same element type") != std::string::npos);
  OneNode apart("BitwiseXor", 18);
  apart.input(DVT_I8, Dims{2}).input(DVT_I8, Dims{3});
  CHECK(message(apart).find("does not broadcast") != std::string::npos);

  const Operand u(DVT_U8, {2});
  const Operand i(DVT_I8, {2});
  const Operand f(DVT_F32, {2});
  const DvtBitShiftAttributes record{.right = -7};
  CHECK(refusal("BitShift", {u, u}, {u}, &record).empty());
  CHECK(!refusal("BitShift", {u, u}, {u}).empty());
  CHECK(refusal("BitShift", {i, i}, {i}, &record) ==
        "input 0: expected an unsigned integer, got i8");
  CHECK(refusal("BitwiseNot", {f}, {f}) == "input 0: expected an integer, got f32");
  CHECK(!refusal("BitwiseAnd", {u, i}, {u}).empty());
  CHECK(!refusal("BitwiseAnd", {u, u}, {i}).empty());
  CHECK(!refusal("BitwiseAnd", {u, u}, {Operand(DVT_U8, {3})}).empty());
}
