// Adagrad, Adam and Momentum against the standard's formulas, and Dropout.
#include "ops/kernels/training.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tests/ops/harness.hpp"
#include "tests/ops/mutation.hpp"
#include "tests/ops/values.hpp"

using namespace davit;
using namespace davit::test;

namespace {

constexpr const char* kDomain = "ai.onnx.preview.training";

struct Setup {
  std::string op;
  std::string mode = "standard";
  size_t tensors;
  int64_t updates;
  DvtDType dtype;

  [[nodiscard]] size_t groups() const { return op == "Adam" ? 4 : 3; }
};

OneNode node_of(const Setup& s, const std::vector<ir::TensorData>& data) {
  OneNode node(s.op, 1, kDomain);
  node.attribute("norm_coefficient", 0.125F);
  if (s.op == "Adagrad") node.attribute("decay_factor", 0.25F).attribute("epsilon", 0.5F);
  if (s.op == "Adam") {
    node.attribute("epsilon", 0.5F).attribute("alpha", 0.75F).attribute("beta", 0.875F);
    node.attribute("norm_coefficient_post", 0.0625F);
  }
  if (s.op == "Momentum") {
    node.attribute("alpha", 0.75F).attribute("beta", 0.5F).attribute("mode", s.mode);
  }
  node.constant(make_data(DVT_F32, {}, {0.25}));
  node.constant(ir::make_i64_tensor({}, {s.updates}));
  for (const auto& tensor : data) node.constant(tensor);
  node.outputs(uint32_t((s.groups() - 1) * s.tensors));
  return node;
}

// New X, then the new states.
std::vector<double> naive(const Setup& s, double x, double g, double s0, double s1) {
  const double rate = 0.25, t = double(s.updates);
  const double gradient = 0.125 * x + g;
  if (s.op == "Adagrad") {
    const double h = s0 + gradient * gradient;
    return {x - rate / (1 + t * 0.25) * gradient / (std::sqrt(h) + 0.5), h};
  }
  if (s.op == "Momentum") {
    const double v = 0.75 * s0 + (t > 0 ? 0.5 : 1.0) * gradient;
    return {x - rate * (s.mode == "nesterov" ? gradient + 0.75 * v : v), v};
  }
  const double v = 0.75 * s0 + 0.25 * gradient;
  const double h = 0.875 * s1 + 0.125 * gradient * gradient;
  const double corrected =
      t > 0 ? rate * std::sqrt(1 - std::pow(0.875, t)) / (1 - std::pow(0.75, t)) : rate;
  return {(1 - 0.0625) * (x - corrected * v / (std::sqrt(h) + 0.5)), v, h};
}

std::vector<ir::TensorData> make_operands(Source& random, const Setup& s) {
  std::vector<ir::TensorData> data;
  for (size_t group = 0; group < s.groups(); ++group) {
    for (size_t i = 0; i < s.tensors; ++i) {
      Values values = to_values(random.tensor(DVT_F64, {2, int64_t(i) + 1}));
      // The last state is a sum of squares.
      if (group + 1 == s.groups() && s.op != "Momentum") {
        for (double& value : values) value = std::fabs(value);
      }
      data.push_back(make_data(s.dtype, {2, int64_t(i) + 1}, values));
    }
  }
  return data;
}

}  // namespace

TEST_CASE("optimisers equal their formulas, for any number of tensors") {
  Source random(151);
  for (int round = 0; round < 200; ++round) {
    const Setup s = {.op = random.pick<std::string>({"Adagrad", "Adam", "Momentum"}),
                     .mode = random.pick<std::string>({"standard", "nesterov"}),
                     .tensors = size_t(random.between(1, 5)),
                     .updates = random.between(0, 3),
                     .dtype = random.pick<DvtDType>({DVT_F32, DVT_F64})};
    const auto data = make_operands(random, s);
    OneNode node = node_of(s, data);
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    for (size_t i = 0; i < s.tensors; ++i) {
      std::vector<Values> in;
      for (size_t group = 0; group < s.groups(); ++group) {
        in.push_back(to_values(data[group * s.tensors + i]));
      }
      std::vector<Values> expected(s.groups() - 1);
      for (size_t k = 0; k < in[0].size(); ++k) {
        const auto results = naive(s, in[0][k], in[1][k], in[2][k], in.back()[k]);
        for (size_t o = 0; o < expected.size(); ++o) expected[o].push_back(results[o]);
      }
      for (size_t o = 0; o < expected.size(); ++o) {
        const Values got = to_values((*outputs)[o * s.tensors + i]);
        CHECK(excess_error(expected[o], got, tolerance(s.dtype, 4), 1e-7) <= 0.0);
      }
    }
  }
}

TEST_CASE("groups that are not whole, and shapes that differ, are refused") {
  Source random(152);
  Setup s = {.op = "Adam", .tensors = 2, .updates = 0, .dtype = DVT_F32};
  auto data = make_operands(random, s);
  CHECK(node_of(s, data).infer().ok());
  data.pop_back();
  CHECK_FALSE(node_of(s, data).infer().ok());
  data = make_operands(random, s);
  data[3] = random.tensor(DVT_F32, {2, 3});
  CHECK_FALSE(node_of(s, data).infer().ok());
  data = make_operands(random, s);
  data[3] = random.tensor(DVT_F64, data[3].dims);
  CHECK_FALSE(node_of(s, data).infer().ok());
  s.op = "Momentum";
  s.mode = "heavy";
  data.resize(6, data[0]);
  OneNode node = node_of(s, make_operands(random, s));
  CHECK_FALSE(recipe_of(node).ok());
}

TEST_CASE("contexts of a crafted image") {
  Source random(153);
  for (int round = 0; round < 20; ++round) {
    const Setup s = {.op = random.pick<std::string>({"Adagrad", "Adam", "Momentum"}),
                     .tensors = size_t(random.between(1, 2)),
                     .updates = 1,
                     .dtype = random.pick<DvtDType>({DVT_F32, DVT_F64})};
    OneNode node = node_of(s, make_operands(random, s));
    mutate(node, random, 300);
  }
}
