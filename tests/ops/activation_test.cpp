// Celu, Gelu, Mish, Shrink and ThresholdedRelu against their formulas in double.
#include "ops/kernels/activation.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "base/dtype.hpp"
#include "tests/ops/harness.hpp"
#include "tests/ops/values.hpp"

using namespace davit;
using namespace davit::test;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
const std::vector<DvtDType> kFloats = {DVT_F32, DVT_F64, DVT_F16, DVT_BF16};
const std::vector<DvtDType> kIntegers = {DVT_I8, DVT_I16, DVT_I32, DVT_I64,
                                         DVT_U8, DVT_U16, DVT_U32, DVT_U64};

double softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
}

struct Case {
  const char* op;
  int64_t opset;
  std::function<double(double)> formula;
  std::vector<ir::Attribute> attributes;
};

// 0.75 and 0.25 are exact in every type.
const std::vector<Case> kCases = {
    {"Celu",
     12,
     [](double x) { return x >= 0 ? x : 0.75 * std::expm1(x / 0.75); },
     {{"alpha", 0.75F}}},
    {"Celu", 12, [](double x) { return x >= 0 ? x : std::expm1(x); }, {}},
    {"ThresholdedRelu", 10, [](double x) { return x > 0.25 ? x : 0; }, {{"alpha", 0.25F}}},
    {"ThresholdedRelu", 10, [](double x) { return x > 1 ? x : 0; }, {}},
    {"Mish", 18, [](double x) { return x * std::tanh(softplus(x)); }, {}},
    {"Gelu", 20, [](double x) { return x * std::erfc(-x / std::sqrt(2.0)) / 2; }, {}},
    {"Gelu",
     20,
     [](double x) {
       return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
     },
     {{"approximate", std::string("tanh")}}},
    {"Shrink",
     9,
     [](double x) { return x < -0.75  ? x + 0.25
                           : x > 0.75 ? x - 0.25
                                      : 0; },
     {{"lambd", 0.75F}, {"bias", 0.25F}}},
    {"Shrink", 9, [](double x) { return std::fabs(x) > 0.5 ? x : 0; }, {}},
};

OneNode node_of(const Case& test_case, const ir::TensorData& x) {
  OneNode node(test_case.op, test_case.opset);
  node.constant(x);
  for (const ir::Attribute& attribute : test_case.attributes) {
    node.attribute(attribute.name, attribute.value);
  }
  return node;
}

}  // namespace

TEST_CASE("activations follow their formulas in every float type") {
  Source source(3);
  Values values = {0, -0.0, 0.5, -0.5, 1, -1, 0.75, -0.75, 0.25, 8, -8, 20, -20};
  for (int i = 0; i < 1200; ++i) values.push_back(double(source.between(-6000, 6000)) / 1000);
  for (const Case& test_case : kCases) {
    for (const DvtDType dtype : kFloats) {
      INFO(test_case.op, " ", std::string(dtype_name(dtype)));
      const auto x = make_data(dtype, {int64_t(values.size())}, values);
      OneNode node = node_of(test_case, x);
      const auto outputs = node.evaluate();
      REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
      CHECK((*outputs)[0].dtype == dtype);
      Values expected = to_values(x);
      for (double& value : expected) value = test_case.formula(value);
      // Mish and Gelu of tanh lose digits where they are near zero.
      CHECK(excess_error(expected, to_values((*outputs)[0]), tolerance(dtype, 20),
                         dtype == DVT_F64 ? 1e-15 : 2e-6) <= 0.0);
      CHECK(cost_of(node).vector_passes_x100 > 0);
    }
  }
}

TEST_CASE("activations keep NaN, and infinity where it is not damped") {
  for (const Case& test_case : kCases) {
    for (const DvtDType dtype : kFloats) {
      INFO(test_case.op);
      OneNode node = node_of(test_case, make_data(dtype, {2}, {kNan, kInf}));
      const auto outputs = node.evaluate();
      REQUIRE(outputs.ok());
      const Values got = to_values((*outputs)[0]);
      CHECK(std::isnan(got[0]));
      CHECK(got[1] == kInf);
    }
  }
  // By their formulas.
  const auto at_minus_infinity = [](const char* op, int64_t opset) {
    OneNode node(op, opset);
    node.constant(make_data(DVT_F32, {}, {-kInf}));
    return to_values((*node.evaluate())[0])[0];
  };
  CHECK(at_minus_infinity("Celu", 12) == -1);
  CHECK(at_minus_infinity("ThresholdedRelu", 10) == 0);
  CHECK(std::isnan(at_minus_infinity("Mish", 18)));  // -inf * 0
  CHECK(at_minus_infinity("Shrink", 9) == -kInf);
}

TEST_CASE("Shrink of integers cuts towards zero and saturates") {
  const DvtShrinkAttributes record{.lambda = 1.5, .bias = 1.5};
  for (const DvtDType dtype : kIntegers) {
    INFO(std::string(dtype_name(dtype)));
    const std::string name = "Shrink." + std::string(dtype_name(dtype));
    const Values got = to_values(
        call_kernel(name.c_str(), &record, {make_data(dtype, {4}, {0, 1, 2, 100})}, dtype, {4}));
    CHECK(got == Values{0, 0, 0, 98});
  }
  CHECK(to_values(call_kernel("Shrink.i8", &record, {make_data(DVT_I8, {3}, {-2, -100, -128})},
                              DVT_I8, {3})) == Values{0, -98, -126});
  const DvtShrinkAttributes away{.lambda = 0, .bias = -1e300};
  CHECK(to_values(call_kernel("Shrink.i8", &away, {make_data(DVT_I8, {3}, {-1, 0, 1})}, DVT_I8,
                              {3})) == Values{-128, 0, 127});
  const DvtShrinkAttributes nowhere{.lambda = kNan, .bias = kNan};
  CHECK(to_values(call_kernel("Shrink.u64", &nowhere, {make_data(DVT_U64, {1}, {5})}, DVT_U64,
                              {1})) == Values{0});
}

TEST_CASE("activations: what is refused") {
  OneNode gelu("Gelu", 20);
  gelu.input(DVT_F32, Dims{2}).attribute("approximate", std::string("sigmoid"));
  CHECK(gelu.infer().to_string().find("expected none or tanh; got sigmoid") != std::string::npos);
  OneNode celu("Celu", 12);
  celu.input(DVT_I32, Dims{2});
  const auto recipe = recipe_of(celu);
  REQUIRE(!recipe.ok());
  CHECK(recipe.status().to_string().find("no kernel for this element type") != std::string::npos);
  const Operand f(DVT_F32, {2});
  CHECK(refusal("Celu.f32", {f}, {f}) == "the attribute record is absent");
  CHECK(!refusal("Mish.f32", {f}, {Operand(DVT_F32, {3})}).empty());
  CHECK(refusal("Mish.f32", {Operand(DVT_F16, {2})}, {f}) == "x: expected dtype f32, got f16");
  CHECK(!refusal("Mish.f32", {f, f}, {f}).empty());
  OneNode symbolic("Shrink", 9);
  symbolic.input(DVT_F32, ir::Shape{symbolic.symbol("N"), ir::Dim()});
  CHECK(symbolic.shape() == "[N,?]");
}
