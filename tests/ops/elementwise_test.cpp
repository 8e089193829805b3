// Pointwise kernels against naive arithmetic, over dtypes, shapes and hard values.
#include "ops/kernels/elementwise.h"

#include <doctest/doctest.h>

#include <cfloat>
#include <functional>
#include <map>
#include <utility>

#include "tests/ops/half.hpp"
#include "tests/ops/harness.hpp"

using namespace davit;
using namespace davit::test;

namespace {

const DvtBinaryAttributes kLastAxes{.axis = -1};

// Shapes that broadcast to `output`: axes dropped from the front, some set to 1.
Dims broadcast_operand(Random& random, const Dims& output) {
  const auto drop = random.chance(0.3) ? random.integer(0, int64_t(output.size())) : 0;
  Dims dims(output.begin() + drop, output.end());
  for (int64_t& dim : dims) {
    if (random.chance(0.25)) dim = 1;
  }
  return dims;
}

// The output shape that both operands broadcast to exactly.
Dims joined(const Dims& a, const Dims& b) {
  Dims out(std::max(a.size(), b.size()), 1);
  for (const Dims* dims : {&a, &b}) {
    for (size_t i = 0; i < dims->size(); ++i) {
      const int64_t dim = (*dims)[i];
      if (dim != 1) out[out.size() - dims->size() + i] = dim;
    }
  }
  return out;
}

// Index into an operand of `dims` for the output's flat index; input axes end `trailing` axes
// before the output's.
size_t operand_index(size_t flat, const Dims& output, const Dims& dims, size_t trailing = 0) {
  size_t index = 0;
  size_t stride = 1;
  for (size_t back = 0; back < output.size(); ++back) {
    const auto extent = static_cast<size_t>(output[output.size() - 1 - back]);
    const size_t at = flat % extent;
    flat /= extent;
    if (back < trailing || back - trailing >= dims.size()) continue;
    const auto own = static_cast<size_t>(dims[dims.size() - 1 - (back - trailing)]);
    index += (own == 1 ? 0 : at) * stride;
    stride *= own;
  }
  return index;
}

template <class T>
std::vector<T> random_values(Random& random, uint64_t count) {
  std::vector<T> values(count);
  for (T& value : values) {
    if constexpr (std::is_floating_point_v<T>) {
      value = static_cast<T>(random.real(-8, 8));
      if (random.chance(0.05)) value = std::numeric_limits<T>::quiet_NaN();
      if (random.chance(0.05)) value = std::numeric_limits<T>::infinity();
      if (random.chance(0.05)) value = T(-0.0);
    } else {
      value = random.chance(0.5) ? static_cast<T>(random.integer(-3, 3))
                                 : static_cast<T>(random.engine()());
      if (random.chance(0.1)) value = std::numeric_limits<T>::min();
      if (random.chance(0.1)) value = std::numeric_limits<T>::max();
    }
  }
  return values;
}

template <class T>
bool same_value(T a, T b) {
  return a == b || (a != a && b != b);
}

// One binary kernel on random broadcasting operands against `expected`, element by element.
template <class T, class Out>
void check_binary(const char* op, DvtDType dtype, DvtDType output_dtype,
                  const std::function<Out(T, T)>& expected) {
  const std::string name = std::string(op) + "." + std::string(dtype_name(dtype));
  INFO(name);
  Random random(static_cast<uint32_t>(dtype) * 131 + static_cast<uint32_t>(op[0]));
  for (int round = 0; round < 60; ++round) {
    const Dims shape = random.dims();
    const bool one_way = std::string(op) == "PRelu";  // The slope broadcasts to x.
    const Dims a_dims = one_way ? shape : broadcast_operand(random, shape);
    const Dims b_dims = broadcast_operand(random, shape);
    const Dims out_dims = joined(a_dims, b_dims);
    const auto a = random_values<T>(random, product(a_dims));
    const auto b = random_values<T>(random, product(b_dims));
    std::vector<Operand> outputs = {Operand(output_dtype, out_dims)};
    run_kernel(name, {Operand(dtype, a_dims, a), Operand(dtype, b_dims, b)}, outputs, &kLastAxes);
    const auto got = outputs[0].as<Out>();
    for (size_t i = 0; i < got.size(); ++i) {
      const T x = a[operand_index(i, out_dims, a_dims)];
      const T y = b[operand_index(i, out_dims, b_dims)];
      REQUIRE_MESSAGE(same_value(got[i], expected(x, y)), +x, " ", +y, " gives ", +got[i]);
    }
  }
}

template <class T>
T wrapped(__int128 value) {
  return static_cast<T>(value);
}

template <class T>
T product_of(T x, T y) {
  return static_cast<T>(static_cast<unsigned __int128>(x) * static_cast<unsigned __int128>(y));
}

template <class T>
T modulo(T x, T y) {
  if (y == 0) return 0;
  const __int128 rest = static_cast<__int128>(x) % y;
  return static_cast<T>(rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest);
}

template <class T>
void check_comparisons(DvtDType dtype) {
  using Compare = std::function<uint8_t(T, T)>;
  check_binary<T, uint8_t>("Equal", dtype, DVT_BOOL, Compare([](T x, T y) { return x == y; }));
  check_binary<T, uint8_t>("Greater", dtype, DVT_BOOL, Compare([](T x, T y) { return x > y; }));
  check_binary<T, uint8_t>("Less", dtype, DVT_BOOL, Compare([](T x, T y) { return x < y; }));
  check_binary<T, uint8_t>("GreaterOrEqual", dtype, DVT_BOOL,
                           Compare([](T x, T y) { return x >= y; }));
  check_binary<T, uint8_t>("LessOrEqual", dtype, DVT_BOOL,
                           Compare([](T x, T y) { return x <= y; }));
}

template <class T>
T int_power(T x, T y) {
  if (y < 0) return static_cast<T>(x == 1 ? 1 : x == T(-1) ? (y % 2 != 0 ? -1 : 1) : 0);
  uint64_t result = 1;
  for (uint64_t bit = 63; bit < 64; --bit) {
    result *= result;
    if ((static_cast<uint64_t>(y) >> bit & 1) != 0) result *= static_cast<uint64_t>(x);
  }
  return static_cast<T>(result);
}

template <class T>
void check_integers(DvtDType dtype) {
  using Fn = std::function<T(T, T)>;
  using Wide = __int128;
  check_binary<T, T>("Add", dtype, dtype, Fn([](T x, T y) { return wrapped<T>(Wide(x) + y); }));
  check_binary<T, T>("Sub", dtype, dtype, Fn([](T x, T y) { return wrapped<T>(Wide(x) - y); }));
  check_binary<T, T>("Mul", dtype, dtype, Fn([](T x, T y) { return product_of(x, y); }));
  check_binary<T, T>("Div", dtype, dtype,
                     Fn([](T x, T y) { return y == 0 ? T(0) : wrapped<T>(Wide(x) / y); }));
  check_binary<T, T>("Mod", dtype, dtype, Fn([](T x, T y) { return modulo(x, y); }));
  check_binary<T, T>("FMod", dtype, dtype,
                     Fn([](T x, T y) { return y == 0 ? T(0) : wrapped<T>(Wide(x) % y); }));
  check_binary<T, T>("Pow", dtype, dtype, Fn([](T x, T y) { return int_power(x, y); }));
  check_binary<T, T>("Min", dtype, dtype, Fn([](T x, T y) { return std::min(x, y); }));
  check_binary<T, T>("Max", dtype, dtype, Fn([](T x, T y) { return std::max(x, y); }));
  check_binary<T, T>("PRelu", dtype, dtype,
                     Fn([](T x, T y) { return x < 0 ? product_of(x, y) : x; }));
  check_comparisons<T>(dtype);
}

template <class T>
void check_floats(DvtDType dtype) {
  using Fn = std::function<T(T, T)>;
  check_binary<T, T>("Add", dtype, dtype, Fn([](T x, T y) { return x + y; }));
  check_binary<T, T>("Sub", dtype, dtype, Fn([](T x, T y) { return x - y; }));
  check_binary<T, T>("Mul", dtype, dtype, Fn([](T x, T y) { return x * y; }));
  check_binary<T, T>("Div", dtype, dtype, Fn([](T x, T y) { return x / y; }));
  check_binary<T, T>("FMod", dtype, dtype, Fn([](T x, T y) { return std::fmod(x, y); }));
  check_binary<T, T>("Pow", dtype, dtype,
                     Fn([](T x, T y) { return static_cast<T>(std::pow(double(x), double(y))); }));
  // NaN from either side stays.
  check_binary<T, T>("Min", dtype, dtype, Fn([](T x, T y) { return x != x ? x : x < y ? x : y; }));
  check_binary<T, T>("Max", dtype, dtype, Fn([](T x, T y) { return x != x ? x : x > y ? x : y; }));
  check_binary<T, T>("PRelu", dtype, dtype, Fn([](T x, T y) { return x < 0 ? x * y : x; }));
  check_comparisons<T>(dtype);
}

void check_half(const char* op, DvtDType dtype,
                const std::function<double(double, double)>& exact) {
  const Nearest nearest(dtype);
  Random random(7);
  for (int round = 0; round < 20; ++round) {
    const Dims dims = round == 0 ? Dims{3000} : random.dims(0, 3);
    std::vector<uint16_t> a(product(dims));
    for (uint16_t& bits : a) bits = uint16_t(random.engine()());
    std::vector<uint16_t> b = {uint16_t(random.engine()())};
    std::vector<Operand> outputs = {Operand(dtype, dims)};
    run_kernel(std::string(op) + "." + std::string(dtype_name(dtype)),
               {Operand(dtype, dims, a), Operand(dtype, {}, b)}, outputs, &kLastAxes);
    const auto got = outputs[0].as<uint16_t>();
    for (size_t i = 0; i < got.size(); ++i) {
      const double x = half_value(dtype, a[i]);
      const double y = half_value(dtype, b[0]);
      const double expected = nearest(exact(x, y));
      REQUIRE_MESSAGE(same_value(half_value(dtype, got[i]), expected), op, " ", x, " ", y);
    }
  }
}

template <class T>
std::vector<T> run_unary(const std::string& name, DvtDType dtype, const std::vector<T>& x,
                         const void* attributes = nullptr) {
  const Dims dims = {int64_t(x.size())};
  std::vector<Operand> outputs = {Operand(dtype, dims)};
  run_kernel(name, {Operand(dtype, dims, x)}, outputs, attributes);
  return outputs[0].as<T>();
}

}  // namespace

TEST_CASE("binary kernels: integers, broadcasting, division by zero and overflow (D5)") {
  check_integers<int8_t>(DVT_I8);
  check_integers<int16_t>(DVT_I16);
  check_integers<int32_t>(DVT_I32);
  check_integers<int64_t>(DVT_I64);
  check_integers<uint8_t>(DVT_U8);
  check_integers<uint16_t>(DVT_U16);
  check_integers<uint32_t>(DVT_U32);
  check_integers<uint64_t>(DVT_U64);
}

TEST_CASE("binary kernels: floats") {
  check_floats<float>(DVT_F32);
  check_floats<double>(DVT_F64);
}

TEST_CASE("binary kernels: 16-bit floats round the exact result once") {
  for (const DvtDType dtype : {DvtDType(DVT_F16), DvtDType(DVT_BF16)}) {
    check_half("Add", dtype, [](double x, double y) { return x + y; });
    check_half("Sub", dtype, [](double x, double y) { return x - y; });
    check_half("Mul", dtype, [](double x, double y) { return x * y; });
    check_half("Div", dtype, [](double x, double y) { return x / y; });
  }
}

TEST_CASE("binary kernels: booleans") {
  using Fn = std::function<uint8_t(uint8_t, uint8_t)>;
  const std::vector<uint8_t> x = {0, 0, 1, 1};
  const std::vector<uint8_t> y = {0, 1, 0, 1};
  const std::map<std::string, Fn> ops = {{"And", [](uint8_t a, uint8_t b) { return a & b; }},
                                         {"Or", [](uint8_t a, uint8_t b) { return a | b; }},
                                         {"Xor", [](uint8_t a, uint8_t b) { return a ^ b; }},
                                         {"Equal", [](uint8_t a, uint8_t b) { return a == b; }}};
  for (const auto& [op, fn] : ops) {
    std::vector<Operand> outputs = {Operand(DVT_BOOL, {4})};
    run_kernel(op + ".bool", {Operand(DVT_BOOL, {4}, x), Operand(DVT_BOOL, {4}, y)}, outputs,
               &kLastAxes);
    const auto got = outputs[0].as<uint8_t>();
    for (size_t i = 0; i < 4; ++i) CHECK(got[i] == fn(x[i], y[i]));
  }
  CHECK(run_unary<uint8_t>("Not.bool", DVT_BOOL, {0, 1}) == std::vector<uint8_t>{1, 0});
}

TEST_CASE("opset 6 places input 1 at an axis") {
  Random random(5);
  for (int round = 0; round < 50; ++round) {
    const Dims a_dims = random.dims(1);
    const auto rank = int64_t(a_dims.size());
    const int64_t axis = random.integer(0, rank - 1);
    const int64_t end = random.integer(axis, rank);
    const Dims b_dims(a_dims.begin() + axis, a_dims.begin() + end);
    const auto a = random_values<int32_t>(random, product(a_dims));
    const auto b = random_values<int32_t>(random, product(b_dims));
    const DvtBinaryAttributes attributes{.axis = axis};
    std::vector<Operand> outputs = {Operand(DVT_I32, a_dims)};
    run_kernel("Add.i32", {Operand(DVT_I32, a_dims, a), Operand(DVT_I32, b_dims, b)}, outputs,
               &attributes);
    const auto got = outputs[0].as<int32_t>();
    for (size_t i = 0; i < got.size(); ++i) {
      const size_t at = operand_index(i, a_dims, b_dims, size_t(rank - end));
      REQUIRE(got[i] == wrapped<int32_t>(__int128(a[i]) + b[at]));
    }
  }
}

TEST_CASE("Pow takes exponents of another type") {
  const auto pow = [](DvtDType base, Operand x, Operand y) {
    std::vector<Operand> outputs = {Operand(base, {3})};
    run_kernel("Pow." + std::string(dtype_name(base)), {std::move(x), std::move(y)}, outputs,
               &kLastAxes);
    return outputs[0];
  };
  CHECK(pow(DVT_F32, Operand(DVT_F32, {3}, std::vector<float>{1, 2, 3}),
            Operand(DVT_I64, {3}, std::vector<int64_t>{4, -1, 2}))
            .as<float>() == std::vector<float>{1, 0.5F, 9});
  CHECK(pow(DVT_I32, Operand(DVT_I32, {3}, std::vector<int32_t>{1, 2, -3}),
            Operand(DVT_F32, {}, std::vector<float>{3}))
            .as<int32_t>() == std::vector<int32_t>{1, 8, -27});
  CHECK(pow(DVT_I64, Operand(DVT_I64, {3}, std::vector<int64_t>{2, -1, 7}),
            Operand(DVT_U64, {}, std::vector<uint64_t>{UINT64_MAX}))
            .as<int64_t>() ==
        std::vector<int64_t>{0, -1, int64_t(int_power<uint64_t>(7, UINT64_MAX))});
  CHECK(pow(DVT_I8, Operand(DVT_I8, {3}, std::vector<int8_t>{100, -100, 3}),
            Operand(DVT_F64, {}, std::vector<double>{1.5}))
            .as<int8_t>() == std::vector<int8_t>{127, 0, 5});  // Saturates; NaN gives 0.
  CHECK(!refusal("Pow.f32", {Operand(DVT_F32, {1}), Operand(DVT_BOOL, {1})},
                 {Operand(DVT_F32, {1})}, &kLastAxes)
             .empty());
}

TEST_CASE("unary kernels on floats follow libm and keep NaN") {
  const DvtActivationAttributes activation{.alpha = 0.3, .beta = 0.4};
  const double a = 0.3F;
  const double b = 0.4F;
  using Fn = std::function<double(double)>;
  const std::map<std::string, Fn> ops = {
      {"Sqrt", [](double x) { return std::sqrt(x); }},
      {"Exp", [](double x) { return std::exp(x); }},
      {"Log", [](double x) { return std::log(x); }},
      {"Sin", [](double x) { return std::sin(x); }},
      {"Cos", [](double x) { return std::cos(x); }},
      {"Tan", [](double x) { return std::tan(x); }},
      {"Asin", [](double x) { return std::asin(x); }},
      {"Acos", [](double x) { return std::acos(x); }},
      {"Atan", [](double x) { return std::atan(x); }},
      {"Sinh", [](double x) { return std::sinh(x); }},
      {"Cosh", [](double x) { return std::cosh(x); }},
      {"Tanh", [](double x) { return std::tanh(x); }},
      {"Asinh", [](double x) { return std::asinh(x); }},
      {"Acosh", [](double x) { return std::acosh(x); }},
      {"Atanh", [](double x) { return std::atanh(x); }},
      {"Erf", [](double x) { return std::erf(x); }},
      {"Sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
      {"Softplus", [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }},
      {"Softsign", [](double x) { return x / (1 + std::fabs(x)); }},
      {"HardSwish", [](double x) { return x * std::fmax(0, std::fmin(1, x / 6 + 0.5)); }},
      {"Reciprocal", [](double x) { return 1 / x; }},
      {"Floor", [](double x) { return std::floor(x); }},
      {"Ceil", [](double x) { return std::ceil(x); }},
      {"Round", [](double x) { return std::nearbyint(x); }},
      {"Neg", [](double x) { return -x; }},
      {"Abs", [](double x) { return std::fabs(x); }},
      {"Sign", [](double x) { return double((x > 0) - (x < 0)); }},
      {"Relu", [](double x) { return std::fmax(x, 0); }},
      {"HardSigmoid", [=](double x) { return std::fmax(0, std::fmin(1, a * x + b)); }},
      {"LeakyRelu", [=](double x) { return x < 0 ? a * x : x; }},
      {"Elu", [=](double x) { return x < 0 ? a * std::expm1(x) : x; }},
      {"Selu", [=](double x) { return b * (x < 0 ? a * std::expm1(x) : x); }},
  };
  Random random(3);
  std::vector<float> x = {0, -0.0F, 1, -1, 0.5F, 2.5F, 3.5F, -2.5F, 88, -88, 1e-30F};
  x.push_back(std::numeric_limits<float>::infinity());
  x.push_back(-std::numeric_limits<float>::infinity());
  x.push_back(std::numeric_limits<float>::quiet_NaN());
  for (int i = 0; i < 1500; ++i) x.push_back(float(random.real(-5, 5)));
  std::vector<double> wide(x.begin(), x.end());
  std::vector<uint16_t> half;
  for (int i = 0; i < 2000; ++i) half.push_back(uint16_t(random.engine()()));
  for (const auto& [name, fn] : ops) {
    const std::string op = name;  // clang 14 captures no structured bindings.
    INFO(op);
    const auto f32 = run_unary(op + ".f32", DVT_F32, x, &activation);
    const auto f64 = run_unary(op + ".f64", DVT_F64, wide, &activation);
    for (size_t i = 0; i < x.size(); ++i) {
      INFO(x[i]);
      const double expected = x[i] != x[i] ? double(x[i]) : fn(x[i]);
      if (expected != expected) {
        REQUIRE(f32[i] != f32[i]);
        REQUIRE(f64[i] != f64[i]);
      } else if (!std::isfinite(float(expected))) {
        REQUIRE(f32[i] == float(expected));
      } else {
        REQUIRE(f32[i] == doctest::Approx(expected).epsilon(2e-6));
        REQUIRE(f64[i] == doctest::Approx(expected).epsilon(1e-6));  // alpha is 0.3, not 0.3f.
      }
    }
    for (const DvtDType dtype : {DvtDType(DVT_F16), DvtDType(DVT_BF16)}) {
      const auto got =
          run_unary(op + "." + std::string(dtype_name(dtype)), dtype, half, &activation);
      const double epsilon = dtype == DVT_F16 ? 0.0006 : 0.005;
      for (size_t i = 0; i < half.size(); ++i) {
        const double in = half_value(dtype, half[i]);
        const double out = half_value(dtype, got[i]);
        const double expected = in != in ? in : fn(in);
        INFO(in);
        if (expected != expected) REQUIRE(out != out);
        if (std::fabs(expected) < 60000 && std::fabs(expected) > 1e-4 && std::fabs(in) < 100) {
          REQUIRE(out == doctest::Approx(expected).epsilon(epsilon));
        }
      }
    }
  }
}

TEST_CASE("unary kernels on integers") {
  CHECK(run_unary<int8_t>("Relu.i8", DVT_I8, {-128, -1, 0, 127}) ==
        std::vector<int8_t>{0, 0, 0, 127});
  CHECK(run_unary<int8_t>("Neg.i8", DVT_I8, {-128, -1, 0, 127}) ==
        std::vector<int8_t>{-128, 1, 0, -127});
  CHECK(run_unary<int64_t>("Abs.i64", DVT_I64, {INT64_MIN, -5, 5}) ==
        std::vector<int64_t>{INT64_MIN, 5, 5});
  CHECK(run_unary<uint32_t>("Sign.u32", DVT_U32, {0, 7, UINT32_MAX}) ==
        std::vector<uint32_t>{0, 1, 1});
  CHECK(run_unary<int16_t>("Sign.i16", DVT_I16, {-300, 0, 300}) == std::vector<int16_t>{-1, 0, 1});
}

TEST_CASE("Relu, Clip, Min, Max and Sign return NaN for NaN in every float type (D4)") {
  const DvtClipAttributes bounds{.min = -1, .max = 1};
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const char* op : {"Relu", "Sign"}) {
    CHECK(std::isnan(run_unary<float>(std::string(op) + ".f32", DVT_F32, {nan})[0]));
    CHECK(std::isnan(run_unary<double>(std::string(op) + ".f64", DVT_F64, {double(nan)})[0]));
    CHECK(run_unary<uint16_t>(std::string(op) + ".f16", DVT_F16, {0x7e01})[0] == 0x7e01);
    CHECK(run_unary<uint16_t>(std::string(op) + ".bf16", DVT_BF16, {0x7fc1})[0] == 0x7fc1);
  }
  CHECK(std::isnan(run_unary<float>("Clip.f32", DVT_F32, {nan}, &bounds)[0]));
  CHECK(run_unary<uint16_t>("Clip.f16", DVT_F16, {0xfe01}, &bounds)[0] == 0xfe01);
  for (const char* op : {"Min.f16", "Max.f16"}) {
    for (const bool first : {false, true}) {
      std::vector<Operand> outputs = {Operand(DVT_F16, {1})};
      const std::vector<uint16_t> not_a_number = {0x7e00};
      const std::vector<uint16_t> one = {0x3c00};
      run_kernel(op,
                 {Operand(DVT_F16, {1}, first ? not_a_number : one),
                  Operand(DVT_F16, {1}, first ? one : not_a_number)},
                 outputs);
      CHECK(std::isnan(half_value(DVT_F16, outputs[0].as<uint16_t>()[0])));
    }
  }
}

TEST_CASE("Clip: bounds from inputs, attributes and types") {
  const DvtClipAttributes open{.min = -DBL_MAX, .max = DBL_MAX};
  const auto clip = [&](DvtDType dtype, Operand x, Operand low, Operand high) {
    std::vector<Operand> outputs = {Operand(dtype, {3})};
    run_kernel("Clip." + std::string(dtype_name(dtype)),
               {std::move(x), std::move(low), std::move(high)}, outputs, &open);
    return outputs[0];
  };
  const Operand x(DVT_I8, {3}, std::vector<int8_t>{-100, 0, 100});
  CHECK(clip(DVT_I8, x, Operand(DVT_I8, {}, std::vector<int8_t>{-3}), Operand::absent())
            .as<int8_t>() == std::vector<int8_t>{-3, 0, 100});
  CHECK(clip(DVT_I8, x, Operand::absent(), Operand(DVT_I8, {}, std::vector<int8_t>{3}))
            .as<int8_t>() == std::vector<int8_t>{-100, 0, 3});
  // min above max: all become max.
  CHECK(clip(DVT_I8, x, Operand(DVT_I8, {}, std::vector<int8_t>{5}),
             Operand(DVT_I8, {}, std::vector<int8_t>{-5}))
            .as<int8_t>() == std::vector<int8_t>{-5, -5, -5});
  const Operand h(DVT_F16, {3}, std::vector<uint16_t>{0xbc00, 0x0000, 0x4000});
  CHECK(clip(DVT_F16, h, Operand(DVT_F16, {}, std::vector<uint16_t>{0x0000}),
             Operand(DVT_F16, {}, std::vector<uint16_t>{0x3c00}))
            .as<uint16_t>() == std::vector<uint16_t>{0x0000, 0x0000, 0x3c00});
  CHECK(run_unary<uint64_t>("Clip.u64", DVT_U64, {0, UINT64_MAX}, &open) ==
        std::vector<uint64_t>{0, UINT64_MAX});
}

TEST_CASE("variadic kernels fold their inputs from the left") {
  const std::vector<float> a = {1, 2, 3};
  const std::vector<float> b = {10};
  const std::vector<float> c = {-4, 5, -6, 7, -8, 9};
  const auto run = [&](const char* name) {
    std::vector<Operand> outputs = {Operand(DVT_F32, {2, 3})};
    run_kernel(name,
               {Operand(DVT_F32, {3}, a), Operand(DVT_F32, {}, b), Operand(DVT_F32, {2, 3}, c)},
               outputs);
    return outputs[0].as<float>();
  };
  CHECK(run("Sum.f32") == std::vector<float>{7, 17, 7, 18, 4, 22});
  CHECK(run("Max.f32") == std::vector<float>{10, 10, 10, 10, 10, 10});
  CHECK(run("Min.f32") == std::vector<float>{-4, 2, -6, 1, -8, 3});
  CHECK(run("Mean.f32")[1] == 17.0F / 3);
  CHECK(run_unary("Mean.f32", DVT_F32, a) == a);
  CHECK(run_unary("Max.f32", DVT_F32, a) == a);
}

TEST_CASE("Where picks by condition for elements of every size") {
  for (const DvtDType dtype :
       {DvtDType(DVT_U8), DvtDType(DVT_BF16), DvtDType(DVT_I32), DvtDType(DVT_F64)}) {
    const size_t size = dvt_dtype_size(dtype);
    Operand yes(dtype, {2, 3});
    Operand no(dtype, {3});
    for (size_t i = 0; i < yes.bytes.size(); ++i) yes.bytes[i] = std::byte(i);
    for (size_t i = 0; i < no.bytes.size(); ++i) no.bytes[i] = std::byte(200 + i);
    std::vector<Operand> outputs = {Operand(dtype, {2, 3})};
    run_kernel("Where", {Operand(DVT_BOOL, {2, 1}, std::vector<uint8_t>{1, 0}), yes, no}, outputs);
    CHECK(std::equal(yes.bytes.begin(), yes.bytes.begin() + long(3 * size),
                     outputs[0].bytes.begin()));
    CHECK(std::equal(no.bytes.begin(), no.bytes.end(), outputs[0].bytes.begin() + long(3 * size)));
  }
}

TEST_CASE("IsNaN and IsInf") {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {0, inf, -inf, std::numeric_limits<float>::quiet_NaN()};
  const auto run = [&](const char* name, const void* attributes) {
    std::vector<Operand> outputs = {Operand(DVT_BOOL, {4})};
    run_kernel(name, {Operand(DVT_F32, {4}, x)}, outputs, attributes);
    return outputs[0].as<uint8_t>();
  };
  const DvtIsInfAttributes both{1, 1};
  const DvtIsInfAttributes negative{1, 0};
  CHECK(run("IsNaN.f32", nullptr) == std::vector<uint8_t>{0, 0, 0, 1});
  CHECK(run("IsInf.f32", &both) == std::vector<uint8_t>{0, 1, 1, 0});
  CHECK(run("IsInf.f32", &negative) == std::vector<uint8_t>{0, 0, 1, 0});
}

TEST_CASE("kernels flagged in-place give the same result in place") {
  // Two blocks and a rest, so that whole rows, blocks and tails are all met.
  Random random(11);
  const Dims dims = {2, 617};
  const DvtBinaryAttributes axis{.axis = -1};
  const DvtClipAttributes clip{.min = -2, .max = 2};
  const DvtActivationAttributes activation{.alpha = 0.3, .beta = 0.4};
  int tried = 0;
  for (const DvtDType dtype :
       {DvtDType(DVT_F32), DvtDType(DVT_F64), DvtDType(DVT_F16), DvtDType(DVT_I8),
        DvtDType(DVT_I32), DvtDType(DVT_U64), DvtDType(DVT_BOOL)}) {
    for (const char* op : {"Add", "Div", "Pow", "Max", "Relu", "Abs", "Exp", "Sigmoid", "Clip",
                           "LeakyRelu", "And", "Not", "Mod", "Mean"}) {
      const DvtKernel* kernel = ops::find_kernel(op, dtype);
      if (kernel == nullptr) continue;
      INFO(kernel->name);
      REQUIRE((kernel->flags & DVT_KERNEL_IN_PLACE) != 0);
      const void* attributes = kernel->attribute_bytes == 8 ? static_cast<const void*>(&axis)
                               : std::string(op) == "Clip"  ? static_cast<const void*>(&clip)
                                                            : &activation;
      for (const bool broadcast_second : {false, true}) {
        std::vector<Operand> inputs = {Operand(dtype, dims)};
        if (kernel->input_min == 2 || std::string(op) == "Max" || std::string(op) == "Mean") {
          inputs.emplace_back(dtype, broadcast_second ? Dims{2, 1} : dims);
        }
        for (Operand& input : inputs) {
          for (std::byte& byte : input.bytes) byte = std::byte(random.engine()());
        }
        std::vector<Operand> outputs = {Operand(dtype, dims)};
        Call apart(*kernel, inputs, outputs, attributes);
        REQUIRE(apart.check() == DVT_OK);
        REQUIRE(apart.run() == DVT_OK);
        Call in_place(*kernel, inputs, outputs, attributes, true);
        REQUIRE(in_place.run() == DVT_OK);
        CHECK(inputs[0].bytes == outputs[0].bytes);
        ++tried;
      }
    }
  }
  CHECK(tried > 80);
}

TEST_CASE("pointwise checks name what they refuse") {
  const Operand f(DVT_F32, {2, 3});
  const Operand i(DVT_I32, {2, 3});
  const Operand row(DVT_F32, {4});
  const Operand big(DVT_F32, {1, 2, 3});
  using V = std::vector<Operand>;
  CHECK(refusal("Add.f32", V{f, i}, V{f}, &kLastAxes) == "input 1: expected dtype f32, got i32");
  CHECK(refusal("Add.f32", V{i, i}, V{i}, &kLastAxes) == "input 0: expected dtype f32, got i32");
  CHECK(refusal("Add.f32", V{f}, V{f}, &kLastAxes) == "expected 2 to 2 inputs, got 1");
  CHECK(refusal("Add.f32", V{f, f}, V{f, f}, &kLastAxes) == "expected 1 to 1 outputs, got 2");
  CHECK(refusal("Add.f32", V{f, row}, V{f}, &kLastAxes) ==
        "input 1: shape [4] does not broadcast with [2,3]");
  CHECK(refusal("PRelu.f32", V{f, big}, V{f}, &kLastAxes) ==
        "x and slope together: expected shape [2,3], got [1,2,3]");
  CHECK(!refusal("Add.f32", V{f, f}, V{big}, &kLastAxes).empty());
  CHECK(!refusal("Add.f32", V{big, f}, V{f}, &kLastAxes).empty());
  CHECK(!refusal("Add.f32", V{f, Operand::absent()}, V{f}, &kLastAxes).empty());
  CHECK(refusal("Add.f32", V{f, f}, V{f}, nullptr) == "the attribute record is absent");
  for (const int64_t axis : {int64_t(-2), int64_t(1), int64_t(9), INT64_MAX, INT64_MIN}) {
    const DvtBinaryAttributes attributes{.axis = axis};
    CHECK(!refusal("Add.f32", V{f, f}, V{f}, &attributes).empty());
  }
  // An output larger than what the inputs broadcast to would stay partly unwritten.
  CHECK(!refusal("Add.f32", V{row, row}, V{Operand(DVT_F32, {2, 4})}, &kLastAxes).empty());
  CHECK(!refusal("Relu.f32", V{f}, V{Operand(DVT_F32, {6})}).empty());
  CHECK(!refusal("Equal.f32", V{f, f}, V{f}, &kLastAxes).empty());  // Must be bool.
  const DvtClipAttributes clip{.min = 0, .max = 1};
  CHECK(refusal("Clip.f32", V{f, row}, V{f}, &clip) == "input 1: expected one element, got 4");
  CHECK(refusal("Clip.f32", V{f, Operand(DVT_F32, {0})}, V{f}, &clip) ==
        "input 1: expected one element, got 0");
  CHECK(!refusal("Where", V{f, f, f}, V{f}).empty());
  CHECK(!refusal("Cast", V{f}, V{Operand(DVT_I8, {3, 2})}).empty());
  CHECK(!refusal("Cast", V{f}, V{Operand(DVT_STRING, {2, 3})}).empty());
}
