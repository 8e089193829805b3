// Random kernels: their distributions, that they depend on the seed alone, and Dropout.
#include "ops/kernels/random.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/ops/harness.hpp"
#include "tests/ops/mutation.hpp"
#include "tests/ops/values.hpp"

using namespace davit;
using namespace davit::test;

namespace {

constexpr int64_t kMany = 40000;

struct Moments {
  double mean = 0, variance = 0;
};
Moments moments(const Values& x) {
  Moments of;
  for (const double value : x) of.mean += value / double(x.size());
  for (const double value : x) of.variance += std::pow(value - of.mean, 2) / double(x.size());
  return of;
}

Values draw(const char* op, float seed, DvtDType dtype, float a, float b, int64_t count = kMany) {
  OneNode node(op, 7);
  const bool normal = std::string(op).starts_with("RandomNormal");
  node.attribute("seed", seed).attribute("dtype", int64_t{dtype});
  node.attribute(normal ? "mean" : "low", a).attribute(normal ? "scale" : "high", b);
  if (std::string(op).ends_with("Like")) {
    node.constant(make_data(DVT_U8, {count}, Values(size_t(count))));
  } else {
    node.attribute("shape", Dims{count});
  }
  const auto outputs = node.evaluate();
  REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
  CHECK((*outputs)[0].dtype == dtype);
  CHECK((*outputs)[0].dims == Dims{count});
  return to_values((*outputs)[0]);
}

}  // namespace

TEST_CASE("uniform numbers fill their range evenly") {
  for (const char* op : {"RandomUniform", "RandomUniformLike"}) {
    for (const DvtDType dtype : {DVT_F32, DVT_F64, DVT_F16}) {
      const Values got = draw(op, 7, dtype, -1, 3);
      CHECK(*std::min_element(got.begin(), got.end()) >= -1);
      CHECK(*std::max_element(got.begin(), got.end()) <= 3);
      const Moments of = moments(got);
      CHECK(std::fabs(of.mean - 1) < 0.03);  // Four deviations of the mean.
      CHECK(std::fabs(of.variance - 16.0 / 12) < 0.04);
      Values buckets(8, 0.0);
      for (const double value : got) buckets[std::min<size_t>(size_t((value + 1) * 2), 7)] += 1;
      for (const double count : buckets) CHECK(std::fabs(count - kMany / 8.0) < 300);
    }
  }
}

TEST_CASE("normal numbers have their mean, deviation and tails") {
  for (const char* op : {"RandomNormal", "RandomNormalLike"}) {
    const Values got = draw(op, 9, DVT_F64, 2, 3);
    const Moments of = moments(got);
    CHECK(std::fabs(of.mean - 2) < 0.06);
    CHECK(std::fabs(of.variance - 9) < 0.3);
    const auto beyond = [&got](double deviations) {
      return double(std::ranges::count_if(
                 got, [&](double x) { return std::fabs(x - 2) > 3 * deviations; })) /
             double(got.size());
    };
    CHECK(std::fabs(beyond(1) - 0.3173) < 0.012);
    CHECK(std::fabs(beyond(2) - 0.0455) < 0.005);
  }
}

TEST_CASE("the seed decides, and nothing else; another seed or node gives other numbers") {
  CHECK(draw("RandomNormal", 1, DVT_F32, 0, 1, 100) == draw("RandomNormal", 1, DVT_F32, 0, 1, 100));
  CHECK(draw("RandomNormal", 1, DVT_F32, 0, 1, 100) != draw("RandomNormal", 2, DVT_F32, 0, 1, 100));
  // The beginning does not depend on how many follow.
  const Values few = draw("RandomUniform", 1, DVT_F32, 0, 1, 10);
  const Values many = draw("RandomUniform", 1, DVT_F32, 0, 1, 100);
  CHECK(std::equal(few.begin(), few.end(), many.begin()));
  CHECK_FALSE(moments(draw("RandomUniform", 0, DVT_F64, 0, 1, 1000)).variance == 0.0);
}

TEST_CASE("Bernoulli draws one with its probability") {
  Values probabilities(size_t(kMany), 0.25);
  probabilities[0] = 0;
  probabilities[1] = 1;
  probabilities[2] = NAN;
  for (const DvtDType dtype : {DVT_F32, DVT_I32, DVT_BOOL}) {
    OneNode node("Bernoulli", 15);
    node.attribute("seed", 5.0F).attribute("dtype", int64_t{dtype});
    node.constant(make_data(DVT_F64, {kMany}, probabilities));
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    const Values got = to_values((*outputs)[0]);
    CHECK(got[0] == 0);
    CHECK(got[1] == 1);
    CHECK(got[2] == 0);
    CHECK(std::fabs(moments(got).mean - 0.25) < 0.01);
    CHECK(std::ranges::all_of(got, [](double x) { return x == 0 || x == 1; }));
  }
}

TEST_CASE("Multinomial draws classes by their log probabilities") {
  OneNode node("Multinomial", 7);
  node.attribute("seed", 3.0F).attribute("sample_size", kMany).attribute("dtype", int64_t{DVT_I64});
  // Up to a factor: 1, 2, impossible, 5; and one that is certain.
  const double never = -std::numeric_limits<double>::infinity();
  node.constant(
      make_data(DVT_F64, {2, 4},
                {0 + 700, std::log(2) + 700, never, std::log(5) + 700, never, never, 3, never}));
  const auto outputs = node.evaluate();
  REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
  CHECK((*outputs)[0].dims == Dims{2, kMany});
  const auto got = (*outputs)[0].as<int64_t>();
  Values shares(4, 0.0);
  for (int64_t i = 0; i < kMany; ++i) shares.at(size_t(got[size_t(i)])) += 1.0 / kMany;
  CHECK(std::fabs(shares[0] - 0.125) < 0.01);
  CHECK(std::fabs(shares[1] - 0.25) < 0.01);
  CHECK(shares[2] == 0);
  CHECK(std::fabs(shares[3] - 0.625) < 0.01);
  CHECK(std::all_of(got.begin() + kMany, got.end(), [](int64_t x) { return x == 2; }));
}

TEST_CASE("Dropout in training keeps and scales, and says what it kept") {
  const Values ones(size_t(kMany), 1.0);
  for (const DvtDType dtype : {DVT_F32, DVT_F64, DVT_F16, DVT_BF16}) {
    OneNode node("Dropout", 13);
    node.attribute("seed", int64_t{4}).constant(make_data(dtype, {kMany}, ones));
    node.constant(make_data(DVT_F32, {}, {0.75})).constant(make_data(DVT_BOOL, {}, {1}));
    node.outputs(2);
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    const Values got = to_values((*outputs)[0]), mask = to_values((*outputs)[1]);
    for (size_t i = 0; i < got.size(); ++i) REQUIRE(got[i] == 4 * mask[i]);
    CHECK(std::fabs(moments(mask).mean - 0.25) < 0.01);
  }
}

TEST_CASE("Dropout for inference is the identity, with a mask of ones") {
  Source random(161);
  const auto x = random.tensor(DVT_F32, {3, 4});
  for (const int64_t opset : {7, 10, 13}) {
    OneNode node("Dropout", opset);
    node.constant(x).outputs(2);
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    CHECK(to_values((*outputs)[0]) == to_values(x));
    CHECK((*outputs)[1].dtype == (opset < 10 ? DVT_F32 : DVT_BOOL));
    CHECK(to_values((*outputs)[1]) == Values(12, 1.0));
  }
  OneNode training("Dropout", 13);  // A ratio of 0 drops nothing.
  training.constant(x).constant(make_data(DVT_F32, {}, {0})).constant(make_data(DVT_BOOL, {}, {1}));
  CHECK(to_values((*training.evaluate())[0]) == to_values(x));
  for (const double ratio : {1.0, -0.5, double(NAN)}) {
    OneNode bad("Dropout", 13);
    bad.constant(x)
        .constant(make_data(DVT_F32, {}, {ratio}))
        .constant(make_data(DVT_BOOL, {}, {1}));
    CHECK_FALSE(bad.evaluate().ok());
  }
}

TEST_CASE("nodes that break the rules are refused") {
  OneNode shape("RandomNormal", 7);
  shape.attribute("shape", Dims{2, -1});
  CHECK_FALSE(shape.infer().ok());
  OneNode dtype("RandomUniform", 7);
  dtype.attribute("shape", Dims{2}).attribute("dtype", int64_t{DVT_I32});
  CHECK_FALSE(dtype.infer().ok());
  OneNode samples("Multinomial", 7);
  samples.attribute("sample_size", int64_t{0}).constant(make_data(DVT_F32, {1, 1}, {0}));
  CHECK_FALSE(samples.infer().ok());
}

TEST_CASE("contexts of a crafted image") {
  Source random(162);
  for (int round = 0; round < 8; ++round) {
    OneNode uniform("RandomUniform", 7);
    uniform.attribute("shape", Dims{3, 2});
    mutate(uniform, random, 200);
    OneNode normal("RandomNormalLike", 7);
    normal.constant(random.tensor(DVT_F32, {3, 2}));
    mutate(normal, random, 200);
    OneNode bernoulli("Bernoulli", 15);
    bernoulli.constant(random.tensor(DVT_F32, {3, 2}));
    mutate(bernoulli, random, 200);
    OneNode multinomial("Multinomial", 7);
    multinomial.attribute("sample_size", int64_t{3}).constant(random.tensor(DVT_F32, {3, 2}));
    mutate(multinomial, random, 200);
    OneNode dropout("Dropout", 13);
    dropout.constant(random.tensor(DVT_F32, {3, 2})).constant(make_data(DVT_F32, {}, {0.5}));
    dropout.constant(make_data(DVT_BOOL, {}, {1})).outputs(uint32_t(random.between(1, 2)));
    mutate(dropout, random, 300, 4);
  }
}
