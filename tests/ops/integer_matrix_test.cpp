// MatMulInteger and QLinearMatMul against sums written down naively.
#include "ops/kernels/integer_matrix.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/ops/harness.hpp"
#include "tests/ops/values.hpp"

using namespace davit;
using namespace davit::test;

namespace {

const std::vector<DvtDType> kBytes = {DVT_U8, DVT_I8};

// An operand of a product: batch dims, rows, columns.
struct Matrix {
  Dims dims;
  DvtDType dtype;
  Values values;

  [[nodiscard]] ir::TensorData data() const { return make_data(dtype, dims, values); }
  // Index of the matrix that meets matrix `index` of a batch.
  [[nodiscard]] int64_t matrix(const Dims& batch, int64_t index) const {
    const size_t own = dims.size() - 2;
    int64_t result = 0;
    int64_t step = 1;
    for (size_t i = 0; i < batch.size(); ++i) {
      const int64_t coordinate = index % batch[batch.size() - 1 - i];
      index /= batch[batch.size() - 1 - i];
      if (i >= own) continue;
      const int64_t dim = dims[own - 1 - i];
      result += dim == 1 ? 0 : coordinate * step;
      step *= dim;
    }
    return result;
  }
};

// One value, one per row (or column), or one per row of each matrix.
struct Parameter {
  Dims dims;
  Values values;
  bool per_index = false, per_matrix = false;

  static Parameter of(Source& source, const Dims& matrix, bool rows, bool absent) {
    Parameter parameter;
    const size_t kept = matrix.size() - (rows ? 2 : 1);
    const size_t dropped = matrix.size() - (rows ? 1 : 2);
    const int64_t kind = absent ? 0 : source.between(0, 3);
    if (kind == 1) parameter.dims = {1};
    if (kind == 2) parameter.dims = {matrix[kept]};
    if (kind == 3) {
      parameter.dims = matrix;
      parameter.dims[dropped] = 1;
    }
    parameter.per_index = kind >= 2;
    parameter.per_matrix = kind == 3;
    parameter.values.assign(product(parameter.dims), 0.0);
    return parameter;
  }
  [[nodiscard]] double at(int64_t matrix, int64_t extent, int64_t index) const {
    if (values.size() == 1) return values[0];
    return values[size_t((per_matrix ? matrix * extent : 0) + (per_index ? index : 0))];
  }
  Parameter& scales(Source& source) {
    for (double& value : values) value = double(source.between(1, 40)) / 64;
    return *this;
  }
  Parameter& zeros(Source& source, DvtDType dtype) {
    values = source.bytes(dtype, values.size());
    return *this;
  }
};

// Random operands whose batch dims broadcast.
struct Example {
  Matrix a, b;
  Dims batch;
  int64_t m, n, k;

  explicit Example(Source& source) {
    m = source.between(1, 5);
    n = source.between(0, 9) == 0 ? source.between(500, 1100) : source.between(1, 9);
    k = source.between(0, 12);
    batch.resize(size_t(source.between(0, 2)));
    for (int64_t& dim : batch) dim = source.between(1, 3);
    const auto operand = [&](int64_t rows, int64_t columns) {
      Matrix matrix{.dims = batch, .dtype = source.pick(kBytes), .values = {}};
      for (int64_t& dim : matrix.dims) dim = source.between(0, 3) == 0 ? 1 : dim;
      if (source.between(0, 3) == 0) matrix.dims.clear();
      matrix.dims.push_back(rows);
      matrix.dims.push_back(columns);
      matrix.values = source.bytes(matrix.dtype, product(matrix.dims));
      return matrix;
    };
    a = operand(m, k);
    b = operand(k, n);
    const size_t rank = std::max(a.dims.size(), b.dims.size()) - 2;
    batch.assign(rank, 1);
    for (const Matrix* matrix : {&a, &b}) {
      for (size_t i = 0; i + 2 < matrix->dims.size(); ++i) {
        int64_t& dim = batch[rank + 2 - matrix->dims.size() + i];
        dim = std::max(dim, matrix->dims[i]);
      }
    }
  }
  [[nodiscard]] Dims y_dims() const {
    Dims dims = batch;
    dims.push_back(m);
    dims.push_back(n);
    return dims;
  }
  // Calls fn(matrix of A, of B, of Y, row, column, sum) in the order of Y's elements.
  template <class Fn>
  void each(const Parameter& a_zero, const Parameter& b_zero, const Fn& fn) const {
    for (int64_t p = 0; p < int64_t(product(batch)); ++p) {
      const int64_t pa = a.matrix(batch, p);
      const int64_t pb = b.matrix(batch, p);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (int64_t x = 0; x < k; ++x) {
            sum += (a.values[size_t((pa * m + i) * k + x)] - a_zero.at(pa, m, i)) *
                   (b.values[size_t((pb * k + x) * n + j)] - b_zero.at(pb, n, j));
          }
          fn(pa, pb, p, i, j, sum);
        }
      }
    }
  }
};

}  // namespace

TEST_CASE("MatMulInteger: batches, zero points of every layout, mixed signs") {
  Source source(21);
  for (int round = 0; round < 400; ++round) {
    const Example example(source);
    const bool a_absent = source.flip();
    const bool b_absent = source.flip();
    Parameter a_zero = Parameter::of(source, example.a.dims, true, a_absent);
    Parameter b_zero = Parameter::of(source, example.b.dims, false, b_absent);
    OneNode node("MatMulInteger", 10);
    node.constant(example.a.data()).constant(example.b.data());
    if (a_absent && !b_absent) node.absent_input();
    if (!a_absent) {
      a_zero.zeros(source, example.a.dtype);
      node.constant(make_data(example.a.dtype, a_zero.dims, a_zero.values));
    }
    if (!b_absent) {
      b_zero.zeros(source, example.b.dtype);
      node.constant(make_data(example.b.dtype, b_zero.dims, b_zero.values));
    }
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    CHECK((*outputs)[0].dtype == DVT_I32);
    CHECK((*outputs)[0].dims == example.y_dims());
    Values expected;
    example.each(a_zero, b_zero, [&](int64_t, int64_t, int64_t, int64_t, int64_t, double sum) {
      expected.push_back(sum);
    });
    CHECK(to_values((*outputs)[0]) == expected);
  }
}

TEST_CASE("QLinearMatMul: scales and zero points of every layout") {
  Source source(22);
  for (int round = 0; round < 400; ++round) {
    const Example example(source);
    const DvtDType y_type = source.pick(kBytes);
    Dims y_dims = example.y_dims();
    Parameter a_scale = Parameter::of(source, example.a.dims, true, false).scales(source);
    Parameter b_scale = Parameter::of(source, example.b.dims, false, false).scales(source);
    Parameter y_scale = Parameter::of(source, y_dims, true, false).scales(source);
    for (double& value : y_scale.values) value *= 64;
    Parameter a_zero =
        Parameter::of(source, example.a.dims, true, false).zeros(source, example.a.dtype);
    Parameter b_zero =
        Parameter::of(source, example.b.dims, false, false).zeros(source, example.b.dtype);
    Parameter y_zero = Parameter::of(source, y_dims, true, false).zeros(source, y_type);
    const DvtDType scale_type = source.flip() ? DvtDType{DVT_F32} : DvtDType{DVT_F16};
    OneNode node("QLinearMatMul", 21);
    node.constant(example.a.data())
        .constant(make_data(scale_type, a_scale.dims, a_scale.values))
        .constant(make_data(example.a.dtype, a_zero.dims, a_zero.values))
        .constant(example.b.data())
        .constant(make_data(scale_type, b_scale.dims, b_scale.values))
        .constant(make_data(example.b.dtype, b_zero.dims, b_zero.values))
        .constant(make_data(scale_type, y_scale.dims, y_scale.values))
        .constant(make_data(y_type, y_zero.dims, y_zero.values));
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    CHECK((*outputs)[0].dtype == y_type);
    CHECK((*outputs)[0].dims == y_dims);
    const double low = y_type == DVT_U8 ? 0 : -128;
    Values expected;
    example.each(
        a_zero, b_zero, [&](int64_t pa, int64_t pb, int64_t p, int64_t i, int64_t j, double sum) {
          const double scale = double(
              float(double(float(a_scale.at(pa, example.m, i) * b_scale.at(pb, example.n, j))) /
                    y_scale.at(p, example.m, i)));
          const double value = std::nearbyint(double(float(double(float(sum)) * scale)));
          expected.push_back(std::clamp(value + y_zero.at(p, example.m, i), low, low + 255));
        });
    CHECK(to_values((*outputs)[0]) == expected);
  }
}

TEST_CASE("integer products: vectors, and sums that wrap") {
  OneNode row("MatMulInteger", 10);
  row.constant(make_data(DVT_U8, {3}, {1, 2, 3})).constant(make_data(DVT_I8, {3}, {-1, 5, 2}));
  const auto scalar = row.evaluate();
  REQUIRE_MESSAGE(scalar.ok(), scalar.status().to_string());
  CHECK((*scalar)[0].dims.empty());
  CHECK(to_values((*scalar)[0]) == Values{15});
  const int64_t k = 40000;  // 255 * 255 * 40000 is above 2^31.
  OneNode long_row("MatMulInteger", 10);
  long_row.constant(make_data(DVT_U8, {1, k}, Values(size_t(k), 255)))
      .constant(make_data(DVT_U8, {k, 1}, Values(size_t(k), 255)));
  const auto wrapped = long_row.evaluate();
  REQUIRE(wrapped.ok());
  CHECK(to_values((*wrapped)[0]) == Values{255.0 * 255 * 40000 - 4294967296.0});
}

TEST_CASE("integer products: what is refused, inferred and charged") {
  const auto message = [](OneNode& node) { return node.infer().to_string(); };
  OneNode floats("MatMulInteger", 10);
  floats.input(DVT_F32, Dims{2, 3}).input(DVT_U8, Dims{3, 2});
  CHECK(message(floats).find("input 0 must be quantised; expected u8 or i8; got f32") !=
        std::string::npos);
  OneNode zero("MatMulInteger", 10);
  zero.input(DVT_U8, Dims{2, 3}).input(DVT_U8, Dims{3, 2}).input(DVT_I8, Dims{});
  CHECK(message(zero).find("same element type") != std::string::npos);
  OneNode apart("MatMulInteger", 10);
  apart.input(DVT_U8, Dims{2, 3}).input(DVT_U8, Dims{4, 2});
  CHECK(message(apart).find("columns of A and the rows of B") != std::string::npos);
  OneNode symbolic("MatMulInteger", 10);
  symbolic.input(DVT_U8, ir::Shape{symbolic.symbol("N"), ir::Dim(3)}).input(DVT_I8, Dims{3, 7});
  CHECK(symbolic.shape() == "[N,7]");
  CHECK(recipe_of(symbolic).ok());

  const Operand a(DVT_U8, {4, 2, 3});
  const Operand b(DVT_I8, {3, 5});
  const Operand y(DVT_I32, {4, 2, 5});
  const auto refused = [&](Operand a_zero, Operand b_zero) {
    return refusal("MatMulInteger.u8", {a, b, std::move(a_zero), std::move(b_zero)}, {y});
  };
  CHECK(refused(Operand(DVT_U8, {4, 2, 1}), Operand(DVT_I8, {1, 5})).empty());
  CHECK(refused(Operand::absent(), Operand(DVT_I8, {5})).empty());
  CHECK(refused(Operand(DVT_U8, {3}), Operand::absent()) ==
        "zero point of A: expected shape [4,2,1], got [3]");
  CHECK(refused(Operand::absent(), Operand(DVT_I8, {5, 1})) ==
        "zero point of B: expected shape [1,5], got [5,1]");
  CHECK(!refused(Operand(DVT_I8, {}), Operand::absent()).empty());
  CHECK(!refused(Operand(DVT_U8, {0}), Operand::absent()).empty());
  CHECK(!refusal("MatMulInteger.u8", {Operand(DVT_U8, {3}), b, Operand(DVT_U8, {3})},
                 {Operand(DVT_I32, {5})})
             .empty());

  std::vector<Operand> inputs = {a, b};
  std::vector<Operand> outputs = {y};
  const DvtKernel* kernel = ops::find_kernel("MatMulInteger.u8");
  Call call(*kernel, inputs, outputs, nullptr);
  DvtTaskCost cost{};
  kernel->cost(&call.context(), &cost);
  CHECK(cost.kind == DVT_TASK_MATMUL);
  CHECK(cost.batch == 4);
  CHECK(cost.m == 2);
  CHECK(cost.n == 5);
  CHECK(cost.k == 3);
  CHECK(cost.read_bytes == 24 + 15);
  CHECK(cost.write_bytes == 160);
  OneNode fixed("MatMulInteger", 10);
  fixed.input(DVT_U8, Dims{4, 2, 3}).input(DVT_I8, Dims{3, 5});
  const DvtTaskCost stated = cost_of(fixed);
  CHECK(std::memcmp(&stated, &cost, sizeof cost) == 0);
}

TEST_CASE("integer products: hostile contexts") {
  Source source(23);
  int passed = 0;
  for (int round = 0; round < 6000; ++round) {
    const bool linear = source.flip();
    const DvtDType a_type = source.pick(kBytes);
    const auto dims = [&](size_t least) {
      Dims result(least + size_t(source.between(0, 2)));
      for (int64_t& dim : result) dim = source.between(0, 14) == 0 ? 0 : source.between(1, 3);
      return result;
    };
    const Dims a = dims(source.between(0, 9) == 0 ? 0 : 1);
    Dims b = dims(1);
    if (b.size() > 1 && !a.empty()) b[b.size() - 2] = a.back();
    const auto parameter = [&](DvtDType dtype, const Dims& of) {
      Dims shape = of;
      const int64_t kind = source.between(0, 4);
      if (kind == 0 && !shape.empty()) shape.back() = 1;
      if (kind == 1 && shape.size() > 1) shape[shape.size() - 2] = 1;
      if (kind == 2) shape = {1};
      if (kind > 2) shape = {};
      return Operand(dtype, shape);
    };
    std::vector<Operand> inputs;
    Dims y = a;
    if (y.size() > 1 && b.size() > 1) y.back() = b.back();
    std::vector<Operand> outputs = {Operand(linear ? DvtDType{DVT_I8} : DvtDType{DVT_I32}, y)};
    if (linear) {
      inputs = {Operand(a_type, a),     parameter(DVT_F32, a), parameter(a_type, a),
                Operand(DVT_U8, b),     parameter(DVT_F16, b), parameter(DVT_U8, b),
                parameter(DVT_BF16, y), parameter(DVT_I8, y)};
    } else {
      inputs = {Operand(a_type, a), Operand(DVT_U8, b), parameter(a_type, a), parameter(DVT_U8, b)};
    }
    for (Operand& input : inputs) {
      for (std::byte& byte : input.bytes) byte = std::byte(source.between(0, 255));
    }
    const DvtKernel* kernel = ops::find_kernel(linear ? "QLinearMatMul" : "MatMulInteger", a_type);
    Call call(*kernel, inputs, outputs, nullptr);
    std::string reason;
    const DvtCode code = call.check(&reason);
    CHECK((code == DVT_OK) == reason.empty());
    std::vector<DvtTensor> inferred;
    const DvtCode shape = call.infer(inferred);
    if (code != DVT_OK) continue;
    CHECK(shape == DVT_OK);
    CHECK(call.run() == DVT_OK);
    ++passed;
  }
  CHECK(passed > 500);
}
