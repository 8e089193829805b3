// Range, EyeLike, CumSum and Trilu against their definitions, written out.
#include "ops/kernels/generate.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "tests/ops/harness.hpp"
#include "tests/ops/values.hpp"

using namespace davit;
using namespace davit::test;

namespace {

constexpr DvtDType kRangeTypes[] = {DVT_F32, DVT_F64, DVT_I16, DVT_I32, DVT_I64};

ir::TensorData scalar(DvtDType dtype, double value) {
  return make_data(dtype, {}, {value});
}

ir::TensorData integer(int64_t value) {
  return ir::make_i64_tensor({}, {value});
}

}  // namespace

TEST_CASE("Range: every type, up and down") {
  for (const DvtDType dtype : kRangeTypes) {
    const bool real = dtype == DVT_F32 || dtype == DVT_F64;
    for (const double delta : {1.0, 2.0, 3.0, -1.0, -4.0}) {
      for (const double limit : {-9.0, 0.0, 5.0, 6.0, 7.0}) {
        for (const double shift : {0.0, 0.25}) {
          if (!real && shift != 0.0) continue;
          Values expected;
          for (double at = 5.0 + shift; delta > 0 ? at < limit : at > limit; at += delta) {
            expected.push_back(at);
          }
          OneNode node("Range", 11);
          node.constant(scalar(dtype, 5.0 + shift))
              .constant(scalar(dtype, limit))
              .constant(scalar(dtype, delta));
          const auto y = node.evaluate();
          REQUIRE_MESSAGE(y.ok(), y.status().to_string());
          CHECK((*y)[0].dims == Dims{int64_t(expected.size())});
          CHECK(to_values((*y)[0]) == expected);
        }
      }
    }
  }
}

TEST_CASE("Range: extremes") {
  const auto count = [](int64_t start, int64_t limit, int64_t delta) {
    OneNode node("Range", 11);
    node.constant(integer(start)).constant(integer(limit)).constant(integer(delta));
    return node.shape();
  };
  CHECK(count(INT64_MIN, INT64_MAX, INT64_MAX) == "[3]");
  CHECK(count(INT64_MAX, INT64_MIN, INT64_MIN) == "[2]");
  CHECK(count(INT64_MIN, INT64_MAX, 1).find("too long") != std::string::npos);
  CHECK(count(0, INT64_MAX, 1).find("too many") != std::string::npos);
  CHECK(count(1, 1, 0).find("delta is zero") != std::string::npos);
  const auto reals = [](double start, double limit, double delta) {
    std::vector<Operand> inputs;
    for (const double value : {start, limit, delta}) {
      inputs.emplace_back(DVT_F64, Dims{}, std::vector<double>{value});
    }
    std::vector<Operand> outputs = {Operand(DVT_F64, {0})};
    Call call(*ops::find_kernel("Range.f64"), inputs, outputs, nullptr);
    std::vector<DvtTensor> inferred;
    return call.infer(inferred) == DVT_OK ? inferred[0].dims[0] : -1;
  };
  CHECK(reals(0, 1, 0) == -1);
  CHECK(reals(0, INFINITY, 1) == -1);
  CHECK(reals(0, NAN, 1) == -1);
  CHECK(reals(0, 1e300, 1e-300) == -1);
  CHECK(reals(0, -1e300, 1e-300) == 0);
  CHECK(reals(0, 1, 0.1) == 10);
  CHECK(OneNode("Range", 11).unknown_input().unknown_input().unknown_input().shape() == "[?]");
  OneNode pair("Range", 11);
  pair.input(DVT_I64, Dims{2}).input(DVT_I64, Dims{}).input(DVT_I64, Dims{});
  CHECK(pair.shape().find("have one element") != std::string::npos);
}

TEST_CASE("Range refuses what check() could not see") {
  std::vector<Operand> inputs;
  for (const int64_t value : {0, 5, 1}) {
    inputs.emplace_back(DVT_I64, Dims{}, std::vector<int64_t>{value});
  }
  std::vector<Operand> outputs = {Operand(DVT_I64, {4})};
  Call call(*ops::find_kernel("Range.i64"), inputs, outputs, nullptr);
  CHECK(call.check() == DVT_INVALID_ARGUMENT);
  CHECK(call.run() == DVT_INVALID_ARGUMENT);
  void* const hidden = call.context().cells[1]->data;
  call.context().cells[1]->data = nullptr;
  CHECK(call.check() == DVT_OK);
  call.context().cells[1]->data = hidden;
}

TEST_CASE("EyeLike: diagonals inside and outside, types") {
  for (const DvtDType dtype : {DVT_F32, DVT_F16, DVT_I64, DVT_U8, DVT_BOOL, DVT_BF16}) {
    for (const int64_t k :
         {int64_t{-3}, int64_t{-1}, int64_t{0}, int64_t{2}, int64_t{4}, INT64_MIN, INT64_MAX}) {
      OneNode node("EyeLike", 9);
      node.attribute("dtype", int64_t{dtype})
          .attribute("k", k)
          .constant(make_data(DVT_I32, {3, 4}, Values(12, 7.0)));
      const auto y = node.evaluate();
      REQUIRE_MESSAGE(y.ok(), y.status().to_string());
      CHECK((*y)[0].dtype == dtype);
      Values expected(12, 0.0);
      for (int64_t i = 0; i < 12; ++i) {
        if (k > -9 && k < 9 && i % 4 - i / 4 == k) expected[size_t(i)] = 1.0;
      }
      CHECK(to_values((*y)[0]) == expected);
    }
  }
  OneNode own("EyeLike", 9);
  own.input(DVT_F64, {own.symbol("N"), ir::Dim(2)});
  CHECK(own.shape() == "[N,2]");
  CHECK(own.found[0].dtype == DVT_F64);
  CHECK(OneNode("EyeLike", 9).input(DVT_F64, Dims{2}).shape().find("rank 2") != std::string::npos);
  CHECK(OneNode("EyeLike", 9)
            .attribute("dtype", int64_t{DVT_STRING})
            .input(DVT_F64, Dims{2, 2})
            .shape()
            .find("dtype") != std::string::npos);
}

TEST_CASE("CumSum: every axis, both directions, with and without the element") {
  Source random(91);
  for (int round = 0; round < 120; ++round) {
    const DvtDType dtype = random.pick<DvtDType>(
        {DVT_F32, DVT_F64, DVT_F16, DVT_BF16, DVT_I32, DVT_I64, DVT_U32, DVT_U64});
    Dims dims(size_t(random.between(1, 4)));
    for (int64_t& dim : dims) dim = random.between(random.between(0, 9) == 0 ? 0 : 1, 4);
    const auto rank = int64_t(dims.size());
    const int64_t axis = random.between(-rank, rank - 1);
    const bool exclusive = random.flip();
    const bool reverse = random.flip();
    const auto x = random.tensor(dtype, dims);
    OneNode node("CumSum", 14);
    node.attribute("exclusive", int64_t{exclusive})
        .attribute("reverse", int64_t{reverse})
        .constant(x)
        .constant(random.flip() ? integer(axis) : make_data(DVT_I32, {1}, {double(axis)}));
    const auto y = node.evaluate();
    REQUIRE_MESSAGE(y.ok(), y.status().to_string());
    const Values values = to_values(x);
    Values expected(values.size());
    const auto at = size_t(axis < 0 ? axis + rank : axis);
    int64_t step = 1;
    for (size_t d = at + 1; d < dims.size(); ++d) step *= dims[d];
    for (int64_t i = 0; i < int64_t(values.size()); ++i) {
      const int64_t own = i / step % dims[at];
      for (int64_t j = 0; j < dims[at]; ++j) {
        const bool before = reverse ? j > own : j < own;
        if (before || (j == own && !exclusive)) {
          expected[size_t(i)] += values[size_t(i + (j - own) * step)];
        }
      }
    }
    CHECK(excess_error(expected, to_values((*y)[0]), tolerance(dtype, 4), tolerance(dtype, 4)) <=
          0.0);
  }
  OneNode outside("CumSum", 14);
  outside.input(DVT_F32, Dims{2, 3}).constant(integer(2));
  CHECK(outside.shape().find("axis is out of range") != std::string::npos);
}

TEST_CASE("Trilu: both triangles, any diagonal, batches") {
  Source random(92);
  for (int round = 0; round < 120; ++round) {
    const DvtDType dtype = random.pick<DvtDType>({DVT_F32, DVT_F16, DVT_I64, DVT_U8, DVT_BOOL});
    Dims dims(size_t(random.between(2, 4)));
    for (int64_t& dim : dims) dim = random.between(random.between(0, 9) == 0 ? 0 : 1, 5);
    const bool upper = random.flip();
    const int64_t k = random.pick<int64_t>({-7, -2, -1, 0, 1, 2, 7, INT64_MIN, INT64_MAX});
    Values values(product(dims));
    for (double& value : values) value = double(random.between(0, 1));
    OneNode node("Trilu", 14);
    node.attribute("upper", int64_t{upper}).constant(make_data(dtype, dims, values));
    if (k != 0 || random.flip()) node.constant(integer(k));
    const auto y = node.evaluate();
    REQUIRE_MESSAGE(y.ok(), y.status().to_string());
    const int64_t columns = dims.back();
    const int64_t rows = dims[dims.size() - 2];
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t column = int64_t(i) % columns;
      const int64_t row = int64_t(i) / columns % rows;
      const int64_t distance = column - row;
      if (upper ? distance < k : distance > k) values[i] = 0.0;
    }
    CHECK(to_values((*y)[0]) == values);
  }
  CHECK(OneNode("Trilu", 14).input(DVT_F32, Dims{3}).shape().find("rank 2") != std::string::npos);
}
