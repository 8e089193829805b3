// BatchNormalization and the softmaxes against their formulas in double.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "ops/kernels/normalisation.h"
#include "tests/ops/harness.hpp"
#include "tests/ops/values.hpp"

using namespace davit;
using namespace davit::test;

namespace {

const std::vector<DvtDType> kTypes = {DVT_F32, DVT_F64, DVT_F16, DVT_BF16};

// x as [outer, axis, inner].
Values naive_softmax(const Values& x, int64_t outer, int64_t axis, int64_t inner, bool log) {
  Values y(x.size());
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      const auto at = [&](int64_t a) { return size_t((o * axis + a) * inner + i); };
      double largest = -std::numeric_limits<double>::infinity();
      for (int64_t a = 0; a < axis; ++a) largest = std::fmax(largest, x[at(a)]);
      double sum = 0;
      for (int64_t a = 0; a < axis; ++a) sum += std::exp(x[at(a)] - largest);
      for (int64_t a = 0; a < axis; ++a) {
        const double shifted = x[at(a)] - largest;
        y[at(a)] = log ? shifted - std::log(sum) : std::exp(shifted) / sum;
      }
    }
  }
  return y;
}

}  // namespace

TEST_CASE("softmaxes: flattened before opset 13, along one axis since") {
  Source random(31);
  for (int round = 0; round < 200; ++round) {
    const DvtDType dtype = random.pick(kTypes);
    Dims dims(size_t(random.between(1, 4)));
    for (int64_t& dim : dims) dim = random.between(1, 5);
    const auto rank = int64_t(dims.size());
    const int64_t axis = random.between(0, rank - 1);
    const bool flattens = random.flip();
    const bool log = random.flip();
    const auto x = random.tensor(dtype, dims);
    OneNode node(log ? "LogSoftmax" : "Softmax", flattens ? 11 : 13);
    node.attribute("axis", random.flip() ? axis : axis - rank).constant(x);
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    const Dims head(dims.begin(), dims.begin() + axis);
    const Dims tail(dims.begin() + axis + (flattens ? 0 : 1), dims.end());
    const Values expected =
        flattens
            ? naive_softmax(to_values(x), product(head), product(tail), 1, log)
            : naive_softmax(to_values(x), product(head), dims[size_t(axis)], product(tail), log);
    const double relative = tolerance(dtype, 1);
    CHECK(excess_error(expected, to_values((*outputs)[0]), relative, 1e-7) <= 0.0);
  }
}

TEST_CASE("softmax: default axes, large numbers, infinities, empty tensors") {
  Source random(32);
  for (const int64_t opset : {11, 13}) {
    OneNode node("Softmax", opset);
    node.constant(make_data(DVT_F32, {1, 2, 2}, {0, 0, 0, 0}));
    const auto outputs = node.evaluate();
    REQUIRE(outputs.ok());
    CHECK(to_values((*outputs)[0])[0] == (opset == 11 ? 0.25 : 0.5));
  }
  OneNode large("Softmax", 13);
  large.constant(make_data(DVT_F32, {2}, {10000, 10000}));
  CHECK(to_values((*large.evaluate())[0]) == Values{0.5, 0.5});
  OneNode infinite("Softmax", 13);
  infinite.constant(make_data(DVT_F32, {2}, {-std::numeric_limits<double>::infinity(), 1}));
  CHECK(to_values((*infinite.evaluate())[0]) == Values{0.0, 1.0});
  OneNode empty("Softmax", 13);
  empty.constant(random.tensor(DVT_F32, {2, 0}));
  CHECK((*empty.evaluate())[0].bytes->empty());
  OneNode bad("Softmax", 13);
  bad.attribute("axis", int64_t{2}).constant(random.tensor(DVT_F32, {2, 2}));
  CHECK_FALSE(bad.infer().ok());
}

TEST_CASE("BatchNormalization equals its formula, with parameters of other float types") {
  Source random(33);
  for (int round = 0; round < 100; ++round) {
    const DvtDType dtype = random.pick(kTypes);
    Dims dims = {random.between(0, 2), random.between(1, 4)};
    for (int64_t i = random.between(0, 2); i > 0; --i) dims.push_back(random.between(1, 4));
    const bool spatial = random.between(0, 3) != 0;
    const Dims parameters = spatial ? Dims{dims[1]} : Dims(dims.begin() + 1, dims.end());
    const auto x = random.tensor(dtype, dims);
    const DvtDType other = spatial ? random.pick(kTypes) : dtype;
    Values values[4];
    OneNode node("BatchNormalization", spatial ? 15 : 7);
    node.attribute("epsilon", 0.125F).constant(x);
    if (!spatial) node.attribute("spatial", int64_t{0});
    for (size_t i = 0; i < 4; ++i) {
      auto parameter = random.tensor(other, parameters);
      values[i] = to_values(parameter);
      if (i == 3) {
        for (double& value : values[i]) value = std::fabs(value);
        parameter = make_data(other, parameters, values[i]);
      }
      node.constant(parameter);
    }
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    const int64_t count = product(parameters);
    const int64_t repeat = dims[0] == 0 ? 1 : product(dims) / dims[0] / count;
    Values expected = to_values(x);
    for (size_t i = 0; i < expected.size(); ++i) {
      const size_t p = size_t(int64_t(i) / repeat % count);
      expected[i] = (expected[i] - values[2][p]) * values[0][p] / std::sqrt(values[3][p] + 0.125) +
                    values[1][p];
    }
    const double relative = tolerance(dtype, 1);
    CHECK(excess_error(expected, to_values((*outputs)[0]), relative, 1e-12) <= 0.0);
  }
}

TEST_CASE("BatchNormalization: wrong shapes are refused") {
  Source random(34);
  const auto infer = [&random](int64_t opset, size_t outputs, int64_t training, int64_t channels) {
    OneNode node("BatchNormalization", opset);
    if (training != 0) node.attribute("training_mode", training);
    node.constant(random.tensor(DVT_F32, {1, 3, 2})).outputs(outputs);
    for (int i = 0; i < 4; ++i) node.constant(random.tensor(DVT_F32, {channels}));
    return node.infer();
  };
  CHECK(infer(15, 1, 0, 3).ok());
  CHECK(infer(15, 3, 1, 3).ok());
  CHECK(infer(9, 5, 0, 3).ok());
  CHECK_FALSE(infer(15, 3, 1, 4).ok());
  CHECK_FALSE(infer(15, 1, 0, 4).ok());
}
