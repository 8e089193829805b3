// ArgMax, ArgMin, TopK and OneHot against sorting and counting, written out.
#include "ops/kernels/selection.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "tests/ops/harness.hpp"
#include "tests/ops/values.hpp"

using namespace davit;
using namespace davit::test;

namespace {

// x as lines along an axis.
struct Lines {
  int64_t outer = 1, length = 1, step = 1;
  Lines(const Dims& dims, size_t axis) : length(dims[axis]) {
    for (size_t d = 0; d < axis; ++d) outer *= dims[d];
    for (size_t d = axis + 1; d < dims.size(); ++d) step *= dims[d];
  }
  [[nodiscard]] size_t at(int64_t line, int64_t i, int64_t extent) const {
    return size_t((line / step * extent + i) * step + line % step);
  }
};

// NaN above everything.
bool above(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && !std::isnan(b);
  return a > b;
}

constexpr DvtDType kTypes[] = {DVT_F32, DVT_F64, DVT_F16, DVT_BF16, DVT_I8,  DVT_U8,
                               DVT_I16, DVT_I32, DVT_U32, DVT_I64,  DVT_U64, DVT_BOOL};

ir::TensorData ranked_tensor(Source& random, DvtDType dtype, const Dims& dims) {
  Values values(product(dims));
  const bool real = dtype == DVT_F32 || dtype == DVT_F64 || dtype == DVT_F16 || dtype == DVT_BF16;
  const bool negative =
      real || dtype == DVT_I8 || dtype == DVT_I16 || dtype == DVT_I32 || dtype == DVT_I64;
  for (double& value : values) {
    value = double(random.between(negative ? -3 : 0, dtype == DVT_BOOL ? 1 : 3));
    if (real && random.between(0, 9) == 0) value = NAN;
    if (real && random.between(0, 9) == 0) value = random.flip() ? INFINITY : -INFINITY;
  }
  return make_data(dtype, dims, values);
}

Dims random_dims(Source& random) {
  Dims dims(size_t(random.between(1, 4)));
  for (int64_t& dim : dims) dim = random.between(1, 5);
  return dims;
}

}  // namespace

TEST_CASE("ArgMax and ArgMin: every axis, ties, NaN, every type") {
  Source random(101);
  for (int round = 0; round < 300; ++round) {
    const DvtDType dtype = kTypes[random.between(0, 11)];
    const Dims dims = random_dims(random);
    const auto rank = int64_t(dims.size());
    const int64_t axis = random.between(-rank, rank - 1);
    const auto along = size_t(axis < 0 ? axis + rank : axis);
    const bool keep = random.flip();
    const bool last = random.flip();
    const bool max = random.flip();
    const auto x = ranked_tensor(random, dtype, dims);
    OneNode node(max ? "ArgMax" : "ArgMin", 13);
    node.attribute("axis", axis)
        .attribute("keepdims", int64_t{keep})
        .attribute("select_last_index", int64_t{last})
        .constant(x);
    const auto y = node.evaluate();
    REQUIRE_MESSAGE(y.ok(), y.status().to_string());
    Dims out = dims;
    if (keep) {
      out[along] = 1;
    } else {
      out.erase(out.begin() + int64_t(along));
    }
    CHECK((*y)[0].dims == out);
    const Lines lines(dims, along);
    const Values values = to_values(x);
    Values expected;
    for (int64_t line = 0; line < lines.outer * lines.step; ++line) {
      int64_t best = 0;
      const auto value = [&](int64_t i) { return values[lines.at(line, i, lines.length)]; };
      for (int64_t i = 1; i < lines.length; ++i) {
        const bool nan_wins = std::isnan(value(i)) && !std::isnan(value(best));
        const bool nan_held = std::isnan(value(best));
        const bool better =
            nan_wins || (!nan_held && (max ? value(i) > value(best) : value(i) < value(best)));
        const bool same = value(i) == value(best) || (std::isnan(value(i)) && nan_held);
        if (better || (same && last)) best = i;
      }
      expected.push_back(double(best));
    }
    CHECK(to_values((*y)[0]) == expected);
  }
  CHECK(OneNode("ArgMax", 13)
            .input(DVT_F32, Dims{2, 0})
            .attribute("axis", int64_t{1})
            .shape()
            .find("no elements") != std::string::npos);
  OneNode none("ArgMin", 13);
  none.input(DVT_F32, Dims{0, 0});
  CHECK(none.shape() == "[1,0]");
  OneNode wide("ArgMax", 13);
  wide.constant(ir::make_i64_tensor({3}, {INT64_MAX - 1, INT64_MAX, INT64_MAX - 2}));
  CHECK(to_values((*wide.evaluate())[0]) == Values{1});
}

TEST_CASE("TopK: every axis, both ends, ties by index, NaN, every type") {
  Source random(102);
  for (int round = 0; round < 300; ++round) {
    const DvtDType dtype = kTypes[random.between(0, 11)];
    const Dims dims = random_dims(random);
    const auto rank = int64_t(dims.size());
    const int64_t axis = random.between(-rank, rank - 1);
    const auto along = size_t(axis < 0 ? axis + rank : axis);
    const int64_t k = random.between(0, dims[along]);
    const bool largest = random.flip();
    const auto x = ranked_tensor(random, dtype, dims);
    OneNode node("TopK", 11);
    node.attribute("axis", axis)
        .attribute("largest", int64_t{largest})
        .constant(x)
        .constant_i64({k})
        .outputs(2);
    const auto y = node.evaluate();
    REQUIRE_MESSAGE(y.ok(), y.status().to_string());
    Dims out = dims;
    out[along] = k;
    REQUIRE((*y)[0].dims == out);
    REQUIRE((*y)[1].dims == out);
    const Lines lines(dims, along);
    const Values values = to_values(x);
    const Values top = to_values((*y)[0]);
    const Values indices = to_values((*y)[1]);
    for (int64_t line = 0; line < lines.outer * lines.step; ++line) {
      std::vector<int64_t> order(static_cast<size_t>(lines.length));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        const double x_a = values[lines.at(line, a, lines.length)];
        const double x_b = values[lines.at(line, b, lines.length)];
        return largest ? above(x_a, x_b) : above(x_b, x_a);
      });
      for (int64_t i = 0; i < k; ++i) {
        const size_t at = lines.at(line, i, k);
        CHECK(indices[at] == double(order[size_t(i)]));
        const double expected = values[lines.at(line, order[size_t(i)], lines.length)];
        CHECK((top[at] == expected || (std::isnan(top[at]) && std::isnan(expected))));
      }
    }
  }
  OneNode old("TopK", 9);
  old.attribute("k", int64_t{2}).input(DVT_F32, {old.symbol("N"), ir::Dim(5)}).outputs(2);
  CHECK(old.shape() == "[N,2]");
  CHECK(OneNode("TopK", 11)
            .input(DVT_F32, Dims{3})
            .constant_i64({4})
            .outputs(2)
            .shape()
            .find("k is out of range") != std::string::npos);
  CHECK(OneNode("TopK", 11)
            .input(DVT_F32, Dims{3})
            .constant_i64({-1})
            .outputs(2)
            .shape()
            .find("k is out of range") != std::string::npos);
  OneNode open("TopK", 11);
  CHECK(open.input(DVT_F32, Dims{3, 4}).input(DVT_I64, Dims{1}).outputs(2).shape() == "[3,?]");
}

TEST_CASE("TopK writes only what was asked for") {
  const DvtTopKAttributes record{.axis = 0, .k = 2, .k_is_input = 0, .largest = 1};
  for (const bool values : {true, false}) {
    std::vector<Operand> inputs = {Operand(DVT_F32, {3}, std::vector<float>{1, 3, 2})};
    std::vector<Operand> outputs = {Operand(DVT_F32, {2}), Operand(DVT_I64, {2}),
                                    Operand(DVT_U8, {24})};
    outputs[values ? 1 : 0].present = false;
    Call call(*ops::find_kernel("TopK"), inputs, outputs, &record);
    std::string reason;
    REQUIRE_MESSAGE(call.check(&reason) == DVT_OK, reason);
    REQUIRE(call.run() == DVT_OK);
    if (values) CHECK(outputs[0].as<float>() == std::vector<float>{3, 2});
    if (!values) CHECK(outputs[1].as<int64_t>() == std::vector<int64_t>{1, 2});
  }
  using V = std::vector<Operand>;
  const Operand x(DVT_F32, {3});
  const Operand y(DVT_F32, {2});
  const Operand i(DVT_I64, {2});
  CHECK(refusal("TopK", V{x}, V{y, i, Operand(DVT_U8, {23})}, &record) ==
        "workspace: expected 24 bytes, got 23");
  CHECK(refusal("TopK", V{x}, V{y, i}, &record) == "no workspace");
  CHECK(!refusal("TopK", V{x}, V{x, i, Operand(DVT_U8, {24})}, &record).empty());
}

TEST_CASE("OneHot: axes, negative and outside indices, types of everything") {
  Source random(103);
  for (int round = 0; round < 200; ++round) {
    const DvtDType index_type = random.pick<DvtDType>({DVT_I64, DVT_I32, DVT_F32, DVT_I8});
    const DvtDType depth_type = random.pick<DvtDType>({DVT_I64, DVT_I32, DVT_F32, DVT_U8});
    const DvtDType value_type = kTypes[random.between(0, 11)];
    const Dims dims = random.flip() ? random_dims(random) : Dims{};
    const auto rank = int64_t(dims.size());
    const int64_t axis = random.between(-rank - 1, rank);
    const auto along = size_t(axis < 0 ? axis + rank + 1 : axis);
    const int64_t depth = random.between(1, 4);
    Values indices(product(dims));
    for (double& index : indices) index = double(random.between(-6, 6));
    OneNode node("OneHot", 11);
    node.attribute("axis", axis)
        .constant(make_data(index_type, dims, indices))
        .constant(make_data(depth_type, random.flip() ? Dims{} : Dims{1}, {double(depth)}))
        .constant(make_data(value_type, {2}, {0, 1}));
    const auto y = node.evaluate();
    REQUIRE_MESSAGE(y.ok(), y.status().to_string());
    Dims out = dims;
    out.insert(out.begin() + int64_t(along), depth);
    REQUIRE((*y)[0].dims == out);
    Values expected(product(out), 0.0);
    const Lines lines(out, along);
    for (int64_t line = 0; line < lines.outer * lines.step; ++line) {
      double index = indices[size_t(line)];
      if (index < 0) index += double(depth);
      if (index >= 0 && index < double(depth)) {
        expected[lines.at(line, int64_t(index), depth)] = 1.0;
      }
    }
    CHECK(to_values((*y)[0]) == expected);
  }
  CHECK(OneNode("OneHot", 11)
            .input(DVT_I64, Dims{2})
            .constant(ir::make_i64_tensor({}, {-1}))
            .input(DVT_F32, Dims{2})
            .shape()
            .find("negative") != std::string::npos);
  CHECK(OneNode("OneHot", 11)
            .input(DVT_I64, Dims{2})
            .constant(ir::make_i64_tensor({}, {3}))
            .input(DVT_F32, Dims{3})
            .shape()
            .find("off and on") != std::string::npos);
}
