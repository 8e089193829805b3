// docs/numerics.md, rule by rule, for every pointwise kernel and element type at once.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "tests/ops/harness.hpp"
#include "tests/ops/values.hpp"

using namespace davit;
using namespace davit::test;

namespace {

const std::vector<DvtDType> kFloats = {DVT_F32, DVT_F64, DVT_F16, DVT_BF16};
const std::vector<DvtDType> kSigned = {DVT_I8, DVT_I16, DVT_I32, DVT_I64};
const std::vector<DvtDType> kUnsigned = {DVT_U8, DVT_U16, DVT_U32, DVT_U64};
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
// Vectors with and without tails, and more than the block of the broadcasting kernels.
const std::vector<int64_t> kLengths = {1, 3, 7, 8, 16, 33, 515, 1030};

struct Unary {
  const char* op;
  int64_t opset;
};
const std::vector<Unary> kUnary = {{"Abs", 13},       {"Acos", 13},
                                   {"Acosh", 13},     {"Asin", 13},
                                   {"Asinh", 13},     {"Atan", 13},
                                   {"Atanh", 13},     {"Ceil", 13},
                                   {"Celu", 13},      {"Clip", 13},
                                   {"Cos", 13},       {"Cosh", 13},
                                   {"Elu", 13},       {"Erf", 13},
                                   {"Exp", 13},       {"Floor", 13},
                                   {"Gelu", 20},      {"HardSigmoid", 13},
                                   {"HardSwish", 14}, {"LeakyRelu", 13},
                                   {"Log", 13},       {"Mish", 18},
                                   {"Neg", 13},       {"Reciprocal", 13},
                                   {"Relu", 14},      {"Round", 13},
                                   {"Selu", 13},      {"Shrink", 13},
                                   {"Sigmoid", 13},   {"Sign", 13},
                                   {"Sin", 13},       {"Sinh", 13},
                                   {"Softplus", 13},  {"Softsign", 13},
                                   {"Sqrt", 13},      {"Tan", 13},
                                   {"Tanh", 13},      {"ThresholdedRelu", 13},
                                   {"Mean", 13},      {"Sum", 13},
                                   {"Max", 13},       {"Min", 13}};
const std::vector<const char*> kBinary = {"Add", "Sub", "Mul", "Div", "Min", "Max", "Sum", "Mean"};

Values run(const char* op, int64_t opset, const std::vector<ir::TensorData>& inputs,
           int64_t fmod = 0) {
  OneNode node(op, opset);
  for (const ir::TensorData& input : inputs) node.constant(input);
  if (fmod != 0) node.attribute("fmod", fmod);
  const auto outputs = node.evaluate();
  REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
  return to_values((*outputs)[0]);
}

// Ones, with NaN at every third place.
ir::TensorData with_nan(DvtDType dtype, int64_t length) {
  Values values(size_t(length), 1.0);
  for (size_t i = 0; i < values.size(); i += 3) values[i] = kNan;
  return make_data(dtype, {length}, values);
}

bool nan_at_every_third(const Values& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i]) != (i % 3 == 0)) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("NaN propagates through every pointwise operator in every float type (D4)") {
  for (const DvtDType dtype : kFloats) {
    INFO(std::string(dtype_name(dtype)));
    for (const int64_t length : kLengths) {
      const ir::TensorData x = with_nan(dtype, length);
      const ir::TensorData one = make_data(dtype, {}, {1.0});
      const ir::TensorData ones = make_data(dtype, {length}, Values(size_t(length), 1.0));
      for (const Unary& unary : kUnary) {
        INFO(unary.op, " ", length);
        CHECK(nan_at_every_third(run(unary.op, unary.opset, {x})));
      }
      for (const char* op : kBinary) {
        INFO(op, " ", length);
        CHECK(nan_at_every_third(run(op, 13, {x, one})));
        CHECK(nan_at_every_third(run(op, 13, {one, x})));
        CHECK(nan_at_every_third(run(op, 13, {x, ones})));
        CHECK(nan_at_every_third(run(op, 13, {ones, x})));
      }
      CHECK(nan_at_every_third(run("Mod", 13, {x, one}, 1)));
      CHECK(nan_at_every_third(run("PRelu", 16, {x, one})));
      CHECK(nan_at_every_third(run("Pow", 15, {x, make_data(dtype, {}, {3.0})})));
      CHECK(nan_at_every_third(run("Clip", 13, {x, one, one})));
      CHECK(nan_at_every_third(run("Clip", 13, {x, make_data(dtype, {}, {-2.0})})));
    }
    const ir::TensorData nan = make_data(dtype, {}, {kNan});
    const ir::TensorData two = make_data(dtype, {3}, {-2, 0, 2});
    for (const double value : run("Clip", 13, {two, nan})) CHECK(std::isnan(value));
  }
}

TEST_CASE("comparisons with NaN are false; as bool it is true, as an integer 0") {
  for (const DvtDType dtype : kFloats) {
    const ir::TensorData x = make_data(dtype, {2}, {kNan, 1});
    const ir::TensorData y = make_data(dtype, {2}, {kNan, kNan});
    for (const char* op : {"Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"}) {
      INFO(op);
      CHECK(run(op, 16, {x, y}) == Values{0, 0});
      CHECK(run(op, 16, {y, x}) == Values{0, 0});
    }
    OneNode to_bool("Cast", 13);
    to_bool.constant(x).attribute("to", int64_t{DVT_BOOL});
    CHECK(to_values((*to_bool.evaluate())[0]) == Values{1, 1});
    OneNode to_int("Cast", 13);
    to_int.constant(x).attribute("to", int64_t{DVT_I32});
    CHECK(to_values((*to_int.evaluate())[0]) == Values{0, 1});
  }
}

TEST_CASE("integer division by 0 and of the lowest number by -1, vectors and tails (D5)") {
  for (const std::vector<DvtDType>* kind : {&kSigned, &kUnsigned}) {
    for (const DvtDType dtype : *kind) {
      INFO(std::string(dtype_name(dtype)));
      const bool is_signed = kind == &kSigned;
      const double lowest = is_signed ? -std::ldexp(1.0, int(8 * dvt_dtype_size(dtype)) - 1) : 0.0;
      for (const int64_t length : kLengths) {
        const ir::TensorData x = make_data(dtype, {length}, Values(size_t(length), lowest));
        const ir::TensorData seven = make_data(dtype, {length}, Values(size_t(length), 7.0));
        const Values zeros(size_t(length), 0.0);
        for (const bool scalar : {false, true}) {
          const auto divisor = [&](double value) {
            return scalar ? make_data(dtype, {}, {value})
                          : make_data(dtype, {length}, Values(size_t(length), value));
          };
          CHECK(run("Div", 14, {seven, divisor(0)}) == zeros);
          CHECK(run("Mod", 13, {seven, divisor(0)}) == zeros);
          CHECK(run("Mod", 13, {seven, divisor(0)}, 1) == zeros);
          if (!is_signed) continue;
          CHECK(run("Div", 14, {x, divisor(-1)}) == Values(size_t(length), lowest));
          CHECK(run("Mod", 13, {x, divisor(-1)}) == zeros);
          CHECK(run("Mod", 13, {x, divisor(-1)}, 1) == zeros);
          CHECK(run("Mod", 13, {seven, divisor(-2)}) == Values(size_t(length), -1.0));
          CHECK(run("Mod", 13, {seven, divisor(-2)}, 1) == Values(size_t(length), 1.0));
        }
        if (!is_signed) continue;
        CHECK(run("Neg", 13, {x}) == Values(size_t(length), lowest));
        CHECK(run("Abs", 13, {x}) == Values(size_t(length), lowest));
        CHECK(run("Add", 14, {x, x}) == zeros);
        CHECK(run("Sub", 14, {make_data(dtype, {length}, zeros), x}) ==
              Values(size_t(length), lowest));
      }
    }
  }
}

TEST_CASE("rounding is to nearest, ties to even; casts of floats cut towards zero") {
  const Values ties = {-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5};
  for (const DvtDType dtype : kFloats) {
    const ir::TensorData x = make_data(dtype, {7}, ties);
    CHECK(run("Round", 11, {x}) == Values{-2, -2, 0, 0, 2, 2, 4});
    OneNode cast("Cast", 13);
    cast.constant(x).attribute("to", int64_t{DVT_I8});
    CHECK(to_values((*cast.evaluate())[0]) == Values{-2, -1, 0, 0, 1, 2, 3});
  }
  OneNode saturating("Cast", 13);
  saturating.constant(make_data(DVT_F32, {4}, {1e30, -1e30, 300, -300}))
      .attribute("to", int64_t{DVT_I8});
  CHECK(to_values((*saturating.evaluate())[0]) == Values{127, -128, 127, -128});
  OneNode wrapping("Cast", 13);
  wrapping.constant(make_data(DVT_I32, {3}, {300, -300, 128})).attribute("to", int64_t{DVT_I8});
  CHECK(to_values((*wrapping.evaluate())[0]) == Values{44, -44, -128});
}

TEST_CASE("types that Davit does not cast to are refused by name") {
  for (const auto& [type, name] : std::vector<std::pair<int64_t, std::string>>{
           {17, "float8e4m3fn"}, {19, "float8e5m2"}, {22, "int4"}, {14, "complex64"}, {99, "99"}}) {
    OneNode cast("Cast", 21);
    cast.input(DVT_F32, Dims{2}).attribute("to", type);
    CHECK(cast.infer().to_string().find("got " + name) != std::string::npos);
  }
}
