// LRN, LpNormalization, Hardmax and BatchNormalization's training mode against their formulas.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "ops/kernels/channel_normalisation.h"
#include "tests/ops/harness.hpp"
#include "tests/ops/mutation.hpp"
#include "tests/ops/values.hpp"

using namespace davit;
using namespace davit::test;

namespace {

const std::vector<DvtDType> kTypes = {DVT_F32, DVT_F64, DVT_F16, DVT_BF16};

Dims random_dims(Source& random, int64_t rank_min, int64_t rank_max) {
  Dims dims(size_t(random.between(rank_min, rank_max)));
  for (int64_t& dim : dims) dim = random.between(1, 5);
  return dims;
}

// Calls row(indices) for each row of elements that differ in the axes [axis, axis_end) only.
template <class Row>
void for_each_row(const Dims& dims, size_t axis, size_t axis_end, Row&& row) {
  const int64_t outer = product(Dims(dims.begin(), dims.begin() + axis));
  const int64_t count = product(Dims(dims.begin() + axis, dims.begin() + axis_end));
  const int64_t inner = product(Dims(dims.begin() + axis_end, dims.end()));
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      std::vector<size_t> at;
      for (int64_t k = 0; k < count; ++k) at.push_back(size_t((o * count + k) * inner + i));
      row(at);
    }
  }
}

}  // namespace

TEST_CASE("LRN equals its formula") {
  Source random(91);
  for (int round = 0; round < 150; ++round) {
    const auto dtype = random.pick(kTypes);
    const Dims dims = random_dims(random, 2, 5);
    const int64_t size = random.between(1, 6);
    const auto x = random.tensor(dtype, dims);
    OneNode node("LRN", 13);
    node.attribute("size", size).attribute("alpha", 0.5F).attribute("beta", 0.625F);
    node.attribute("bias", 1.5F).constant(x);
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    const Values values = to_values(x);
    Values expected(values.size());
    for_each_row(dims, 1, 2, [&](const std::vector<size_t>& at) {
      for (int64_t c = 0; c < int64_t(at.size()); ++c) {
        double sum = 0;
        // floor((size - 1) / 2) channels before, ceil((size - 1) / 2) after.
        for (int64_t k = c - (size - 1) / 2; k <= c + size / 2; ++k) {
          if (k >= 0 && k < int64_t(at.size())) sum += std::pow(values[at[size_t(k)]], 2);
        }
        expected[at[size_t(c)]] =
            values[at[size_t(c)]] / std::pow(1.5 + 0.5 / double(size) * sum, 0.625);
      }
    });
    CHECK(excess_error(expected, to_values((*outputs)[0]), tolerance(dtype, 1), 1e-7) <= 0.0);
  }
}

TEST_CASE("LpNormalization equals its formula; a norm of 0 gives 0") {
  Source random(92);
  for (int round = 0; round < 150; ++round) {
    const auto dtype = random.pick(kTypes);
    const Dims dims = random_dims(random, 1, 5);
    const int64_t axis = random.between(0, int64_t(dims.size()) - 1);
    const int64_t p = random.between(1, 2);
    auto x = random.tensor(dtype, dims);
    if (random.between(0, 4) == 0) x = make_data(dtype, dims, Values(product(dims), 0.0));
    OneNode node("LpNormalization", 1);
    node.attribute("axis", random.flip() ? axis : axis - int64_t(dims.size()));
    node.attribute("p", p).constant(x);
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    const Values values = to_values(x);
    Values expected(values.size());
    for_each_row(dims, size_t(axis), size_t(axis) + 1, [&](const std::vector<size_t>& at) {
      double norm = 0;
      for (const size_t i : at) norm += std::pow(std::fabs(values[i]), double(p));
      norm = std::pow(norm, 1 / double(p));
      for (const size_t i : at) expected[i] = norm == 0 ? 0 : values[i] / norm;
    });
    CHECK(excess_error(expected, to_values((*outputs)[0]), tolerance(dtype, 1), 1e-12) <= 0.0);
  }
}

TEST_CASE("Hardmax marks the first of the largest") {
  Source random(93);
  for (int round = 0; round < 150; ++round) {
    const auto dtype = random.pick(kTypes);
    const Dims dims = random_dims(random, 2, 5);
    const bool flattens = random.flip();
    const int64_t axis = random.between(0, int64_t(dims.size()) - 1);
    Values values(product(dims));
    for (double& value : values) value = double(random.between(-1, 2));  // Many ties.
    OneNode node("Hardmax", flattens ? 11 : 13);
    node.attribute("axis", axis).constant(make_data(dtype, dims, values));
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    Values expected(values.size(), 0.0);
    const size_t end = flattens ? dims.size() : size_t(axis) + 1;
    for_each_row(dims, size_t(axis), end, [&](const std::vector<size_t>& at) {
      size_t best = at[0];
      for (const size_t i : at) best = values[i] > values[best] ? i : best;
      expected[best] = 1;
    });
    CHECK(to_values((*outputs)[0]) == expected);
  }
  OneNode node("Hardmax", 13);
  node.constant(make_data(DVT_F32, {4}, {1, NAN, 3, NAN}));
  CHECK(to_values((*node.evaluate())[0]) == Values{0, 1, 0, 0});
}

TEST_CASE("BatchNormalization in training: batch and running statistics") {
  Source random(94);
  for (int round = 0; round < 100; ++round) {
    const auto dtype = random.pick(kTypes);
    Dims dims = random_dims(random, 2, 4);
    const bool spatial = random.between(0, 2) != 0;
    const bool old = !spatial || random.flip();  // Training shows in five outputs.
    const Dims parameter = spatial ? Dims{dims[1]} : Dims(dims.begin() + 1, dims.end());
    const auto other = old ? dtype : random.pick(kTypes);
    const auto x = random.tensor(dtype, dims);
    OneNode node("BatchNormalization", old ? (spatial ? 9 : 7) : 15);
    node.attribute("epsilon", 0.125F).attribute("momentum", 0.75F).constant(x);
    if (!spatial) node.attribute("spatial", int64_t{0});
    if (!old) node.attribute("training_mode", int64_t{1});
    Values of[4];
    for (Values& values : of) {
      const auto tensor = random.tensor(other, parameter);
      values = to_values(tensor);
      node.constant(tensor);
    }
    node.outputs(old ? 5 : 3);
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    const Values values = to_values(x);
    const auto count = int64_t(product(parameter));
    const int64_t repeat = int64_t(product(dims)) / dims[0] / count;
    Values expected(values.size()), mean, variance, batch_mean, batch_variance;
    for (int64_t p = 0; p < count; ++p) {
      std::vector<size_t> at;
      for (size_t i = 0; i < values.size(); ++i) {
        if (int64_t(i) / repeat % count == p) at.push_back(i);
      }
      double m = 0, v = 0;
      for (const size_t i : at) m += values[i] / double(at.size());
      for (const size_t i : at) v += (values[i] - m) * (values[i] - m) / double(at.size());
      for (const size_t i : at) {
        expected[i] = (values[i] - m) / std::sqrt(v + 0.125) * of[0][size_t(p)] + of[1][size_t(p)];
      }
      batch_mean.push_back(m);
      batch_variance.push_back(v);
      mean.push_back(of[2][size_t(p)] * 0.75 + m * 0.25);
      variance.push_back(of[3][size_t(p)] * 0.75 + v * 0.25);
    }
    const double relative = tolerance(dtype, 4);
    CHECK(excess_error(expected, to_values((*outputs)[0]), relative, relative * 16) <= 0.0);
    const double loose = tolerance(other, 4);
    CHECK(excess_error(mean, to_values((*outputs)[1]), loose, loose) <= 0.0);
    CHECK(excess_error(variance, to_values((*outputs)[2]), loose, loose) <= 0.0);
    if (!old) continue;
    CHECK(excess_error(batch_mean, to_values((*outputs)[3]), loose, loose) <= 0.0);
    CHECK(excess_error(batch_variance, to_values((*outputs)[4]), loose, loose) <= 0.0);
  }
}

TEST_CASE("nodes that break the rules are refused") {
  Source random(95);
  const auto refused = [&random](const char* op, const char* name, ir::AttributeValue value) {
    OneNode node(op, 13);
    node.attribute(name, std::move(value)).constant(random.tensor(DVT_F32, {2, 3}));
    return !node.infer().ok();
  };
  CHECK(refused("LRN", "alpha", 1.0F));  // No size.
  CHECK(refused("LRN", "size", int64_t{0}));
  CHECK(refused("LRN", "size", int64_t{1} << 40));
  CHECK(refused("LpNormalization", "p", int64_t{3}));
  CHECK(refused("LpNormalization", "axis", int64_t{2}));
  CHECK(refused("Hardmax", "axis", int64_t{-3}));
}

TEST_CASE("contexts of a crafted image") {
  Source random(96);
  for (int round = 0; round < 10; ++round) {
    const auto dtype = random.pick(kTypes);
    for (const char* op : {"LRN", "LpNormalization", "Hardmax"}) {
      OneNode node(op, 13);
      if (std::string(op) == "LRN") node.attribute("size", int64_t{3});
      node.constant(random.tensor(dtype, {2, 5, 3}));
      mutate(node, random, 300);
    }
    OneNode batch("BatchNormalization", 15);
    batch.attribute("training_mode", int64_t{1}).constant(random.tensor(dtype, {2, 3, 2}));
    for (int i = 0; i < 4; ++i) batch.constant(random.tensor(DVT_F32, {3}));
    batch.outputs(3);
    mutate(batch, random, 300);
  }
}
