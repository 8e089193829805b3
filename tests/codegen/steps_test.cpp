// The functions that generated kernels take their sums through, against those of libm.
#include <doctest/doctest.h>
#include <math.h>
#include <string.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>

#include "davit/kernel.h"

#define LANES 4
namespace {
#include "codegen/prelude.h"

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The largest error of f on [low, high], as a multiple of the spacing of floats near the result,
// not below that near `smallest`.
template <class F, class Exact>
double worst(F f, Exact exact, double low, double high, double smallest) {
  double result = 0;
  constexpr int kSteps = 200'000;
  for (int i = 0; i <= kSteps; ++i) {
    const auto x = float(low + (high - low) * i / kSteps);
    const double want = exact(double(x));
    const double spacing =
        std::max(std::fabs(want), smallest) * double(std::numeric_limits<float>::epsilon());
    result = std::max(result, std::fabs(double(f(x)) - want) / spacing);
  }
  return result;
}

}  // namespace

TEST_CASE("functions of steps are within a few units of the last place") {
  CHECK(worst(
            step_exp, [](double x) { return std::exp(x); }, -87, 88.7, 0) < 3);
  CHECK(worst(
            step_sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, -80, 80, 1e-30) < 4);
  CHECK(worst(
            step_tanh, [](double x) { return std::tanh(x); }, -12, 12, 1e-3) < 6);
  CHECK(worst(
            step_erf, [](double x) { return std::erf(x); }, -6, 6, 1e-3) < 6);
  // 1 + erf cancels where x is negative.
  CHECK(worst(
            step_gelu, [](double x) { return x * 0.5 * (1 + std::erf(x * M_SQRT1_2)); }, -4, 8,
            0.5) < 16);
}

TEST_CASE("NaN stays NaN, and infinities go where they should") {
  for (const auto f :
       {step_exp, step_sigmoid, step_tanh, step_erf, step_gelu, step_gelu_tanh, step_hard_swish}) {
    CHECK(std::isnan(f(kNan)));
  }
  CHECK(std::isnan(step_min(kNan, 1)));
  CHECK(std::isnan(step_max(1, kNan)));
  CHECK(std::isnan(step_clip(kNan, 0, 1)));
  CHECK(step_sigmoid(kInfinity) == 1.0F);
  CHECK(step_sigmoid(-kInfinity) == 0.0F);
  CHECK(step_exp(kInfinity) == kInfinity);
  CHECK(step_exp(-kInfinity) == 0.0F);
  CHECK(step_tanh(kInfinity) == doctest::Approx(1));
  CHECK(step_tanh(-kInfinity) == doctest::Approx(-1));
  CHECK(step_erf(kInfinity) == doctest::Approx(1));
  CHECK(step_clip(kInfinity, -1, 6) == 6.0F);
}
