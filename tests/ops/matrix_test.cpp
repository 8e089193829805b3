// MatMul and Gemm against sums written down naively, in double.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "ops/kernels/matrix.h"
#include "tests/ops/harness.hpp"
#include "tests/ops/values.hpp"

using namespace davit;
using namespace davit::test;

namespace {

const std::vector<DvtDType> kTypes = {DVT_F32, DVT_F64, DVT_F16, DVT_BF16,
                                      DVT_I32, DVT_I64, DVT_U32, DVT_U64};

bool is_real(DvtDType dtype) {
  return dtype == DVT_F32 || dtype == DVT_F64 || dtype == DVT_F16 || dtype == DVT_BF16;
}

// The matrix at batch `index` of an operand whose batch dims broadcast to `batch`.
int64_t batch_offset(const Dims& operand, const Dims& batch, int64_t index) {
  const size_t own = operand.size() - 2;
  int64_t offset = 0;
  int64_t stride = operand[own] * operand[own + 1];
  int64_t rest = index;
  for (size_t i = 0; i < batch.size(); ++i) {
    const int64_t coordinate = rest % batch[batch.size() - 1 - i];
    rest /= batch[batch.size() - 1 - i];
    if (i >= own) continue;
    const int64_t dim = operand[own - 1 - i];
    offset += dim == 1 ? 0 : coordinate * stride;
    stride *= dim;
  }
  return offset;
}

Values naive_matmul(const Dims& a_dims, const Values& a, const Dims& b_dims, const Values& b,
                    const Dims& batch) {
  const int64_t m = a_dims[a_dims.size() - 2];
  const int64_t k = a_dims.back();
  const int64_t n = b_dims.back();
  Values y;
  for (int64_t p = 0; p < int64_t(product(batch)); ++p) {
    const int64_t a0 = batch_offset(a_dims, batch, p);
    const int64_t b0 = batch_offset(b_dims, batch, p);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t x = 0; x < k; ++x) {
          sum += a[size_t(a0 + i * k + x)] * b[size_t(b0 + x * n + j)];
        }
        y.push_back(sum);
      }
    }
  }
  return y;
}

// Drops or adds the dims of one that make a vector a matrix.
Dims without_unit_dim(Dims dims, bool drop, size_t from_back) {
  if (drop) dims.erase(dims.end() - static_cast<std::ptrdiff_t>(from_back));
  return dims;
}

}  // namespace

TEST_CASE("MatMul equals the naive sum: batches, broadcasting, vectors, every dtype") {
  Source random(11);
  for (int round = 0; round < 300; ++round) {
    const DvtDType dtype = random.pick(kTypes);
    const int64_t m = random.between(1, 8);
    const int64_t n = random.between(1, 20);
    const int64_t k = random.between(0, 12);
    Dims batch(size_t(random.between(0, 3)));
    for (int64_t& dim : batch) dim = random.between(1, 3);
    const auto operand = [&](int64_t rows, int64_t columns) {
      Dims dims(batch.end() - random.between(0, int64_t(batch.size())), batch.end());
      for (int64_t& dim : dims) dim = random.between(0, 3) == 0 ? 1 : dim;
      dims.push_back(rows);
      dims.push_back(columns);
      return dims;
    };
    const Dims a_dims = operand(m, k);
    const Dims b_dims = operand(k, n);
    const bool a_vector = a_dims.size() == 2 && m == 1 && random.flip();
    const bool b_vector = b_dims.size() == 2 && n == 1 && random.flip();
    // The batch dims that are left when both operands have ones.
    const size_t rank = std::max(a_dims.size(), b_dims.size()) - 2;
    Dims joined(rank, 1);
    for (const Dims& dims : {a_dims, b_dims}) {
      for (size_t i = 0; i + 2 < dims.size(); ++i) {
        int64_t& dim = joined[rank + 2 - dims.size() + i];
        dim = std::max(dim, dims[i]);
      }
    }
    const auto a = random.tensor(dtype, a_dims);
    const auto b = random.tensor(dtype, b_dims);
    auto a_given = a;
    auto b_given = b;
    a_given.dims = without_unit_dim(a_dims, a_vector, 2);
    b_given.dims = without_unit_dim(b_dims, b_vector, 1);
    OneNode node("MatMul", 13);
    node.constant(a_given).constant(b_given);
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    Dims y_dims = joined;
    if (!a_vector) y_dims.push_back(m);
    if (!b_vector) y_dims.push_back(n);
    CHECK((*outputs)[0].dims == y_dims);
    const Values expected = naive_matmul(a_dims, to_values(a), b_dims, to_values(b), joined);
    const double relative = is_real(dtype) ? tolerance(dtype, k) : 0.0;
    CHECK(excess_error(expected, to_values((*outputs)[0]), relative, relative * 16.0 * 12.0) <=
          0.0);
  }
}

TEST_CASE("integer products wrap") {
  OneNode node("MatMul", 13);
  node.constant(make_data(DVT_I32, {1, 2}, {65536.0, 2147483647.0}))
      .constant(make_data(DVT_I32, {2, 1}, {65536.0, 2.0}));
  const auto outputs = node.evaluate();
  REQUIRE(outputs.ok());
  CHECK((*outputs)[0].as<int32_t>()[0] == -2);
}

TEST_CASE("f32: the blocked and the simple path give the same bits") {
  Source random(12);
  for (int round = 0; round < 80; ++round) {
    const bool large = round % 8 == 0;
    const int64_t m = random.between(1, 20);
    const int64_t n = random.between(1, large ? 600 : 40);
    const int64_t k = random.between(0, large ? 600 : 40);
    const auto a = random.rough_tensor({m, k});
    const auto b = random.rough_tensor({k, n});
    const auto c = random.rough_tensor({random.flip() ? m : 1, random.flip() ? n : 1});
    const bool ta = random.flip();
    const bool tb = random.flip();
    auto a_given = a;  // The same numbers under other dims: all that matters is that both agree.
    auto b_given = b;
    if (ta) a_given.dims = {k, m};
    if (tb) b_given.dims = {n, k};
    const DvtGemmAttributes record{.alpha = random.flip() ? 1.0 : 0.3F,
                                   .beta = random.flip() ? 1.0 : -1.7F,
                                   .transpose_a = ta,
                                   .transpose_b = tb};
    const uint64_t workspace = dvt_matrix_workspace_bytes();
    CHECK(*call_kernel("MatMul.f32", nullptr, {a, b}, DVT_F32, {m, n}).bytes ==
          *call_kernel("MatMul.f32", nullptr, {a, b}, DVT_F32, {m, n}, workspace).bytes);
    const std::vector<ir::TensorData> inputs = {a_given, b_given, c};
    CHECK(*call_kernel("Gemm.f32", &record, inputs, DVT_F32, {m, n}).bytes ==
          *call_kernel("Gemm.f32", &record, inputs, DVT_F32, {m, n}, workspace).bytes);
  }
}

TEST_CASE("Gemm equals the naive sum: transposes, alpha, beta, C broadcast, every dtype") {
  Source random(13);
  for (int round = 0; round < 300; ++round) {
    const DvtDType dtype = random.pick(kTypes);
    const int64_t m = random.between(1, 8);
    const int64_t n = random.between(1, 20);
    const int64_t k = random.between(0, 12);
    const bool ta = random.flip();
    const bool tb = random.flip();
    const auto a = random.tensor(dtype, ta ? Dims{k, m} : Dims{m, k});
    const auto b = random.tensor(dtype, tb ? Dims{n, k} : Dims{k, n});
    const Dims c_dims = random.pick<Dims>({{}, {1}, {n}, {m, 1}, {1, n}, {m, n}, {1, 1}});
    const auto c = random.tensor(dtype, c_dims);
    const bool with_c = random.between(0, 3) != 0;
    const double alpha = is_real(dtype) ? random.pick<double>({1.0, 0.5, -2.0}) : 3.0;
    const double beta = is_real(dtype) ? random.pick<double>({1.0, 0.25, 0.0}) : 2.0;
    OneNode node("Gemm", 13);
    node.attribute("transA", int64_t{ta})
        .attribute("transB", int64_t{tb})
        .attribute("alpha", float(alpha))
        .attribute("beta", float(beta))
        .constant(a)
        .constant(b);
    if (with_c) node.constant(c);
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    CHECK((*outputs)[0].dims == Dims{m, n});
    const Values av = to_values(a);
    const Values bv = to_values(b);
    const Values cv = to_values(c);
    const int64_t c_columns = c_dims.empty() ? 1 : c_dims.back();
    const int64_t c_rows = c_dims.size() < 2 ? 1 : c_dims[0];
    Values expected;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t x = 0; x < k; ++x) {
          sum += av[size_t(ta ? x * m + i : i * k + x)] * bv[size_t(tb ? j * k + x : x * n + j)];
        }
        const int64_t at = (c_rows == 1 ? 0 : i) * c_columns + (c_columns == 1 ? 0 : j);
        expected.push_back(alpha * sum + (with_c ? beta * cv[size_t(at)] : 0.0));
      }
    }
    if (dtype == DVT_U32) {
      for (double& value : expected) value = double(uint32_t(int64_t(value)));
    }
    const double relative = is_real(dtype) ? tolerance(dtype, k) : 0.0;
    CHECK(excess_error(expected, to_values((*outputs)[0]), relative, relative * 16.0 * 26.0) <=
          0.0);
  }
}

TEST_CASE("Gemm before opset 7 broadcasts C only when told to") {
  Source random(14);
  for (const int64_t broadcast : {0, 1}) {
    OneNode node("Gemm", 6);
    node.attribute("broadcast", broadcast)
        .constant(random.tensor(DVT_F32, {2, 3}))
        .constant(random.tensor(DVT_F32, {3, 4}))
        .constant(random.tensor(DVT_F32, {4}));
    CHECK(node.infer().ok() == (broadcast == 1));
  }
}

TEST_CASE("shapes with unknown dims") {
  OneNode node("MatMul", 13);
  const ir::Dim n = node.symbol("N");
  const ir::Dim k = node.symbol("K");
  node.input(DVT_F32, {n, ir::Dim(1), ir::Dim(2), k}).input(DVT_F32, {ir::Dim(5), k, ir::Dim(7)});
  REQUIRE(node.infer().ok());
  CHECK(*node.found[0].shape == ir::Shape{n, ir::Dim(5), ir::Dim(2), ir::Dim(7)});
  OneNode gemm("Gemm", 13);
  gemm.unknown_input().input(DVT_F16, {ir::Dim(2), ir::Dim(3)});
  REQUIRE(gemm.infer().ok());
  CHECK(gemm.found[0].dtype == DVT_F16);
  CHECK(!gemm.found[0].shape.has_value());
}

TEST_CASE("nodes that break the rules are refused") {
  Source random(15);
  const auto refused = [&random](const char* op, Dims a, Dims b, Dims c) {
    OneNode node(op, 13);
    node.constant(random.tensor(DVT_F32, std::move(a)))
        .constant(random.tensor(DVT_F32, std::move(b)));
    if (!c.empty()) node.constant(random.tensor(DVT_F32, std::move(c)));
    return !node.infer().ok();
  };
  CHECK(refused("MatMul", {2, 3}, {2, 3}, {}));
  CHECK(refused("MatMul", {}, {2, 3}, {}));
  CHECK(refused("MatMul", {2, 4, 3}, {3, 3, 4}, {}));
  CHECK(refused("Gemm", {2, 3}, {2, 3}, {}));
  CHECK(refused("Gemm", {2, 3, 1}, {3, 3}, {}));
  CHECK(refused("Gemm", {2, 3}, {3, 4}, {3}));
  CHECK(refused("Gemm", {2, 3}, {3, 4}, {2, 2, 4}));
  CHECK(refused("Gemm", {2, 3}, {3, 4}, {1, 2, 4}));
  OneNode mixed("MatMul", 13);
  mixed.constant(random.tensor(DVT_F32, {2, 2})).constant(random.tensor(DVT_F64, {2, 2}));
  CHECK_FALSE(mixed.infer().ok());
  OneNode fraction("Gemm", 13);
  fraction.attribute("alpha", 0.5F)
      .constant(random.tensor(DVT_I32, {2, 2}))
      .constant(random.tensor(DVT_I32, {2, 2}));
  CHECK_FALSE(fraction.infer().ok());
}

TEST_CASE("cost counts products") {
  OneNode node("MatMul", 13);
  node.input(DVT_F32, {ir::Dim(2), ir::Dim(5), ir::Dim(4), ir::Dim(3)})
      .input(DVT_F32, {ir::Dim(3), ir::Dim(7)});
  REQUIRE(node.infer().ok());
  const DvtTaskCost cost = cost_of(node);
  CHECK(cost.kind == DVT_TASK_MATMUL);
  CHECK(cost.batch == 10);
  CHECK(cost.m == 4);
  CHECK(cost.n == 7);
  CHECK(cost.k == 3);
  CHECK(cost.read_bytes == 4 * (2 * 5 * 12 + 21));
  CHECK(cost.write_bytes == 4 * 10 * 28);
}
