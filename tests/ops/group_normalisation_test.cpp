// Normalisations with statistics of their own against their formulas in double.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "ops/kernels/group_normalisation.h"
#include "tests/ops/harness.hpp"
#include "tests/ops/mutation.hpp"
#include "tests/ops/values.hpp"

using namespace davit;
using namespace davit::test;

namespace {

const std::vector<DvtDType> kTypes = {DVT_F32, DVT_F64, DVT_F16, DVT_BF16};

struct Moments {
  double mean = 0, variance = 0;
};

Moments moments(const Values& x) {
  Moments of;
  for (const double value : x) of.mean += value;
  of.mean /= double(x.size());
  for (const double value : x) of.variance += (value - of.mean) * (value - of.mean);
  of.variance /= double(x.size());
  return of;
}

Dims random_dims(Source& random, int64_t rank_min, int64_t rank_max) {
  Dims dims(size_t(random.between(rank_min, rank_max)));
  for (int64_t& dim : dims) dim = random.between(1, dims.size() > 3 ? 3 : 11);
  return dims;
}

// The element of a tensor of `dims` that broadcasts to the element `at` of one of `x_dims`.
size_t broadcast_at(const Dims& dims, const Dims& x_dims, int64_t at) {
  int64_t offset = 0, stride = 1;
  for (size_t i = 0; i < x_dims.size(); ++i) {
    const int64_t x_dim = x_dims[x_dims.size() - 1 - i];
    if (i < dims.size()) {
      const int64_t dim = dims[dims.size() - 1 - i];
      offset += (dim == 1 ? 0 : at % x_dim) * stride;
      stride *= dim;
    }
    at /= x_dim;
  }
  return size_t(offset);
}

}  // namespace

TEST_CASE("LayerNormalization equals its formula: every axis, broadcast parameters, statistics") {
  Source random(81);
  for (int round = 0; round < 300; ++round) {
    const auto dtype = random.pick(kTypes);
    const Dims dims = random_dims(random, 1, 5);
    const auto rank = int64_t(dims.size());
    const int64_t axis = random.between(0, rank - 1);
    Dims parameter(dims.begin() + axis, dims.end());
    const auto reshape = [&random, &dims](Dims from) {
      if (random.between(0, 2) == 0) from = dims;
      for (int64_t& dim : from) dim = random.between(0, 3) == 0 ? 1 : dim;
      while (!from.empty() && from[0] == 1 && random.flip()) from.erase(from.begin());
      return from;
    };
    const bool odd = random.between(0, 2) == 0;
    const Dims scale_dims = odd ? reshape(parameter) : parameter;
    const Dims bias_dims = odd ? reshape(parameter) : parameter;
    const auto x = random.tensor(dtype, dims);
    const auto scale = random.tensor(dtype, scale_dims);
    const auto bias = random.tensor(dtype, bias_dims);
    const bool with_bias = random.flip();
    OneNode node("LayerNormalization", 17);
    node.attribute("axis", random.flip() ? axis : axis - rank).attribute("epsilon", 0.125F);
    node.constant(x).constant(scale).outputs(3);
    if (with_bias) node.constant(bias);
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    const int64_t count = product(parameter);
    const Values values = to_values(x), scales = to_values(scale), biases = to_values(bias);
    Values expected, means, factors;
    for (int64_t row = 0; row < int64_t(product(dims)) / count; ++row) {
      const Values part(values.begin() + row * count, values.begin() + (row + 1) * count);
      const Moments of = moments(part);
      means.push_back(of.mean);
      factors.push_back(1 / std::sqrt(of.variance + 0.125));
      for (int64_t i = 0; i < count; ++i) {
        const int64_t at = row * count + i;
        const double scaled = (part[size_t(i)] - of.mean) * factors.back() *
                              scales[broadcast_at(scale_dims, dims, at)];
        expected.push_back(scaled + (with_bias ? biases[broadcast_at(bias_dims, dims, at)] : 0.0));
      }
    }
    const double relative = tolerance(dtype, 1);
    CHECK(excess_error(expected, to_values((*outputs)[0]), relative, relative * 16) <= 0.0);
    CHECK((*outputs)[1].dtype == DVT_F32);
    CHECK(excess_error(means, to_values((*outputs)[1]), 1e-6, 1e-6) <= 0.0);
    CHECK(excess_error(factors, to_values((*outputs)[2]), 1e-6, 1e-6) <= 0.0);
  }
}

TEST_CASE("Group- and InstanceNormalization equal their formula in every opset") {
  Source random(82);
  for (int round = 0; round < 200; ++round) {
    const auto dtype = random.pick(kTypes);
    const bool instance = random.flip();
    const int64_t opset = instance ? random.pick<int64_t>({6, 21}) : random.pick<int64_t>({18, 21});
    const int64_t groups = random.between(1, 3);
    const int64_t channels = groups * random.between(1, 3);
    Dims dims = random_dims(random, 2, 5);
    dims[1] = channels;
    const auto x = random.tensor(dtype, dims);
    const bool per_group = !instance && opset == 18;
    const Dims parameter = {per_group ? groups : channels};
    const auto scale = random.tensor(dtype, parameter);
    const auto bias = random.tensor(dtype, parameter);
    OneNode node(instance ? "InstanceNormalization" : "GroupNormalization", opset);
    if (!instance) node.attribute("num_groups", groups);
    node.attribute("epsilon", 0.25F).constant(x).constant(scale).constant(bias);
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    const int64_t parts = instance ? channels : groups;
    const int64_t count = int64_t(product(dims)) / dims[0] / parts;
    const int64_t volume = int64_t(product(dims)) / dims[0] / channels;
    const Values values = to_values(x), scales = to_values(scale), biases = to_values(bias);
    Values expected;
    for (int64_t row = 0; row < dims[0] * parts; ++row) {
      const Values part(values.begin() + row * count, values.begin() + (row + 1) * count);
      const Moments of = moments(part);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t channel = (row * count + i) / volume % channels;
        const auto p = size_t(per_group ? row % groups : channel);
        expected.push_back((part[size_t(i)] - of.mean) / std::sqrt(of.variance + 0.25) * scales[p] +
                           biases[p]);
      }
    }
    const double relative = tolerance(dtype, 1);
    CHECK(excess_error(expected, to_values((*outputs)[0]), relative, relative * 16) <= 0.0);
  }
}

TEST_CASE("MeanVarianceNormalization equals its formula over any axes") {
  Source random(83);
  for (int round = 0; round < 200; ++round) {
    const auto dtype = random.pick(kTypes);
    const Dims dims = random_dims(random, 1, 5);
    const auto rank = int64_t(dims.size());
    Dims axes;
    uint32_t mask = 0;
    for (int64_t i = 0; i < rank; ++i) {
      if (random.flip()) continue;
      axes.push_back(random.flip() ? i : i - rank);
      mask |= 1U << i;
    }
    const auto x = random.tensor(dtype, dims);
    const Values values = to_values(x);
    // Elements of one row agree in their kept coordinates.
    const auto row_of = [&](size_t at) {
      int64_t row = 0, rest = int64_t(at), stride = 1;
      for (int64_t i = rank - 1; i >= 0; --i) {
        if ((mask >> i & 1U) == 0) row += rest % dims[size_t(i)] * stride;
        if ((mask >> i & 1U) == 0) stride *= dims[size_t(i)];
        rest /= dims[size_t(i)];
      }
      return row;
    };
    Values expected(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      Values row;
      for (size_t k = 0; k < values.size(); ++k) {
        if (row_of(k) == row_of(i)) row.push_back(values[k]);
      }
      const Moments of = moments(row);
      expected[i] = (values[i] - of.mean) / (std::sqrt(of.variance) + 1e-9);
    }
    OneNode node("MeanVarianceNormalization", 13);
    node.attribute("axes", axes).constant(x);
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    const double relative = tolerance(dtype, 4);
    CHECK(excess_error(expected, to_values((*outputs)[0]), relative, 1e-6) <= 0.0);
  }
}

TEST_CASE("statistics that nobody asked for, empty tensors, symbols") {
  Source random(84);
  OneNode node("LayerNormalization", 17);
  node.constant(random.tensor(DVT_F32, {3, 4})).constant(random.tensor(DVT_F32, {4}));
  node.outputs(3).absent_output(1);
  const auto outputs = node.evaluate();
  REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
  CHECK((*outputs)[2].dims == Dims{3, 1});
  OneNode empty("LayerNormalization", 17);
  empty.constant(random.tensor(DVT_F32, {2, 0})).constant(random.tensor(DVT_F32, {0})).outputs(3);
  const auto nothing = empty.evaluate();
  REQUIRE_MESSAGE(nothing.ok(), nothing.status().to_string());
  CHECK(std::isnan(to_values((*nothing)[1])[1]));
  OneNode symbols("LayerNormalization", 17);
  const ir::Dim n = symbols.symbol("N");
  symbols.input(DVT_F16, ir::Shape{n, ir::Dim(4)}).unknown_input().outputs(2);
  REQUIRE(symbols.infer().ok());
  CHECK(*symbols.found[0].shape == ir::Shape{n, ir::Dim(4)});
  CHECK(*symbols.found[1].shape == ir::Shape{n, ir::Dim(1)});
}

TEST_CASE("nodes that break the rules are refused") {
  Source random(85);
  const auto layer = [&random](int64_t axis, const Dims& scale) {
    OneNode node("LayerNormalization", 17);
    node.attribute("axis", axis).constant(random.tensor(DVT_F32, {3, 4}));
    node.constant(random.tensor(DVT_F32, scale));
    return node.infer().ok();
  };
  CHECK(layer(-1, {4}));
  CHECK_FALSE(layer(2, {4}));
  CHECK_FALSE(layer(-1, {3}));
  CHECK_FALSE(layer(-1, {1, 3, 4}));
  const auto group = [&random](int64_t groups, int64_t parameters) {
    OneNode node("GroupNormalization", 21);
    node.attribute("num_groups", groups).constant(random.tensor(DVT_F32, {1, 4, 2}));
    node.constant(random.tensor(DVT_F32, {parameters}));
    node.constant(random.tensor(DVT_F32, {4}));
    return node.infer().ok();
  };
  CHECK(group(2, 4));
  CHECK_FALSE(group(3, 4));
  CHECK_FALSE(group(0, 4));
  CHECK_FALSE(group(-2, 4));
  CHECK_FALSE(group(2, 2));
  const auto mean_variance = [&random](const Dims& axes) {
    OneNode node("MeanVarianceNormalization", 13);
    node.attribute("axes", axes).constant(random.tensor(DVT_F32, {1, 4, 2}));
    return node.infer().ok();
  };
  CHECK(mean_variance({0, -1}));
  CHECK_FALSE(mean_variance({0, 3}));
  CHECK_FALSE(mean_variance({2, -1}));
}

TEST_CASE("contexts of a crafted image") {
  Source random(86);
  for (int round = 0; round < 12; ++round) {
    const auto dtype = random.pick(kTypes);
    OneNode layer("LayerNormalization", 17);
    layer.attribute("axis", random.between(-2, 1)).constant(random.tensor(dtype, {3, 4}));
    layer.constant(random.tensor(dtype, {4})).constant(random.tensor(dtype, {1, 4}));
    layer.outputs(uint32_t(random.between(1, 3)));
    mutate(layer, random, 300);
    OneNode group("GroupNormalization", 21);
    group.attribute("num_groups", int64_t{2}).constant(random.tensor(dtype, {2, 4, 3}));
    group.constant(random.tensor(dtype, {4})).constant(random.tensor(dtype, {4}));
    mutate(group, random, 300);
    OneNode mean_variance("MeanVarianceNormalization", 13);
    mean_variance.constant(random.tensor(dtype, {2, 4, 3, 2}));
    mutate(mean_variance, random, 300);
  }
}
