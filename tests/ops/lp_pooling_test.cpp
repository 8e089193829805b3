// LpPool, GlobalLpPool and MaxUnpool against naive computations.
#include "ops/kernels/lp_pooling.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/ops/harness.hpp"
#include "tests/ops/mutation.hpp"
#include "tests/ops/values.hpp"

using namespace davit;
using namespace davit::test;

namespace {

const std::vector<DvtDType> kTypes = {DVT_F32, DVT_F64, DVT_F16, DVT_BF16};

// Coordinates of a flat row-major place.
Dims unflatten(int64_t at, const Dims& dims) {
  Dims index(dims.size());
  for (size_t i = dims.size(); i-- > 0;) {
    index[i] = at % dims[i];
    at /= dims[i];
  }
  return index;
}

}  // namespace

TEST_CASE("LpPool equals the norm of each window: pads, dilations, ceil mode, every p") {
  Source random(101);
  for (int round = 0; round < 250; ++round) {
    const auto dtype = random.pick(kTypes);
    const int64_t spatial = random.between(1, 3);
    Dims in, kernel, strides, dilations, begin, end, out;
    const bool ceil_mode = random.flip();
    for (int64_t i = 0; i < spatial; ++i) {
      kernel.push_back(random.between(1, 3));
      strides.push_back(random.between(1, 3));
      dilations.push_back(random.between(1, 2));
      begin.push_back(random.between(0, 2));
      end.push_back(random.between(0, 2));
      const int64_t reach = (kernel.back() - 1) * dilations.back() + 1;
      in.push_back(reach + random.between(0, 4));
      const int64_t padded = in.back() + begin.back() + end.back();
      int64_t count = (padded - reach) / strides.back() + 1;
      if (ceil_mode && (padded - reach) % strides.back() != 0) ++count;
      if (ceil_mode && (count - 1) * strides.back() >= in.back() + begin.back()) --count;
      out.push_back(count);
    }
    const int64_t p = random.between(1, 4);
    Dims x_dims = {2, 2};
    x_dims.insert(x_dims.end(), in.begin(), in.end());
    const auto x = random.tensor(dtype, x_dims);
    const Values values = to_values(x);
    Values expected;
    for (int64_t plane = 0; plane < 4; ++plane) {
      for (int64_t o = 0; o < int64_t(product(out)); ++o) {
        const Dims at = unflatten(o, out);
        double sum = 0;
        for (int64_t k = 0; k < int64_t(product(kernel)); ++k) {
          const Dims tap = unflatten(k, kernel);
          int64_t place = plane;
          bool inside = true;
          for (size_t i = 0; i < in.size(); ++i) {
            const int64_t position = at[i] * strides[i] - begin[i] + tap[i] * dilations[i];
            inside = inside && position >= 0 && position < in[i];
            place = place * in[i] + position;
          }
          if (inside) sum += std::pow(std::fabs(values[size_t(place)]), double(p));
        }
        expected.push_back(std::pow(sum, 1 / double(p)));
      }
    }
    Dims pads = begin;
    pads.insert(pads.end(), end.begin(), end.end());
    OneNode node("LpPool", 18);
    node.attribute("kernel_shape", kernel).attribute("strides", strides).attribute("pads", pads);
    node.attribute("dilations", dilations).attribute("ceil_mode", int64_t{ceil_mode});
    node.attribute("p", p).constant(x);
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    CHECK(excess_error(expected, to_values((*outputs)[0]), tolerance(dtype, 4), 1e-12) <= 0.0);
  }
}

TEST_CASE("GlobalLpPool, and p as a float in the first opset") {
  const auto x = make_data(DVT_F32, {1, 2, 2, 1}, {3, -4, 1, -1});
  for (const int64_t p : {1, 2}) {
    OneNode node("GlobalLpPool", 2);
    node.attribute("p", p).constant(x);
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    CHECK((*outputs)[0].dims == Dims{1, 2, 1, 1});
    const Values expected = p == 1 ? Values{7, 2} : Values{5, std::sqrt(2.0)};
    CHECK(excess_error(expected, to_values((*outputs)[0]), 1e-6, 0) <= 0.0);
  }
  OneNode first("GlobalLpPool", 1);
  first.attribute("p", 3.0F).constant(x);
  const auto outputs = first.evaluate();
  REQUIRE(outputs.ok());
  CHECK(to_values((*outputs)[0])[0] == doctest::Approx(std::cbrt(27.0 + 64.0)));
}

TEST_CASE("MaxUnpool undoes MaxPool") {
  Source random(102);
  for (int round = 0; round < 60; ++round) {
    const auto dtype = random.pick(kTypes);
    const int64_t size = random.between(2, 3);
    const Dims dims = {2, 2, size * random.between(1, 3), size * random.between(1, 3)};
    Values values(product(dims));  // All different, so that maxima are where they are put.
    for (size_t i = 0; i < values.size(); ++i) values[i] = double(i % 200) + 1;
    std::shuffle(values.begin(), values.end(), std::mt19937(uint32_t(round)));
    OneNode pool("MaxPool", 12);
    pool.attribute("kernel_shape", Dims{size, size}).attribute("strides", Dims{size, size});
    pool.constant(make_data(dtype, dims, values)).outputs(2);
    const auto pooled = pool.evaluate();
    REQUIRE(pooled.ok());
    OneNode node("MaxUnpool", 11);
    node.attribute("kernel_shape", Dims{size, size}).attribute("strides", Dims{size, size});
    node.constant((*pooled)[0]).constant((*pooled)[1]);
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    CHECK((*outputs)[0].dims == dims);
    const Values maxima = to_values((*pooled)[0]);
    const auto places = (*pooled)[1].as<int64_t>();
    Values expected(values.size(), 0.0);
    for (size_t i = 0; i < maxima.size(); ++i) expected[size_t(places[i])] = maxima[i];
    CHECK(to_values((*outputs)[0]) == expected);
  }
}

TEST_CASE("MaxUnpool into a larger shape, and with indices that do not fit") {
  const auto unpool = [](const Values& places, const std::vector<int64_t>& shape) {
    OneNode node("MaxUnpool", 11);
    node.attribute("kernel_shape", Dims{2, 2}).attribute("strides", Dims{2, 2});
    node.constant(make_data(DVT_F32, {1, 1, 2, 2}, {5, 6, 7, 8}));
    node.constant(make_data(DVT_I64, {1, 1, 2, 2}, places));
    if (!shape.empty()) node.constant_i64(shape);
    return node.evaluate();
  };
  const auto outputs = unpool({5, 7, 13, 15}, {1, 1, 5, 5});
  REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
  Values expected(25, 0.0);
  expected[6] = 5;
  expected[8] = 6;
  expected[16] = 7;
  expected[18] = 8;
  CHECK(to_values((*outputs)[0]) == expected);
  CHECK_FALSE(unpool({5, 7, 13, 16}, {}).ok());
  CHECK_FALSE(unpool({-1, 7, 13, 15}, {}).ok());
  CHECK_FALSE(unpool({5, 7, 13, 15}, {1, 1, 3, 3}).ok());
  CHECK_FALSE(unpool({5, 7, 13, 15}, {1, 1, 5}).ok());
  CHECK_FALSE(unpool({5, 7, 13, 15}, {1, 1, 5, -5}).ok());
}

TEST_CASE("nodes that break the rules are refused") {
  Source random(103);
  const auto refused = [&random](const char* op, const char* name, ir::AttributeValue value) {
    OneNode node(op, 18);
    if (std::string(op) == "LpPool") node.attribute("kernel_shape", Dims{2, 2});
    node.attribute(name, std::move(value)).constant(random.tensor(DVT_F32, {1, 1, 4, 4}));
    return !node.infer().ok();
  };
  CHECK(refused("LpPool", "p", int64_t{0}));
  CHECK(refused("LpPool", "p", int64_t{-2}));
  CHECK(refused("LpPool", "strides", Dims{0, 1}));
  CHECK(refused("GlobalLpPool", "p", int64_t{0}));
}

TEST_CASE("contexts of a crafted image") {
  Source random(104);
  for (int round = 0; round < 10; ++round) {
    const auto dtype = random.pick(kTypes);
    OneNode pool("LpPool", 18);
    pool.attribute("kernel_shape", Dims{2, 3}).attribute("pads", Dims{1, 0, 0, 1});
    pool.attribute("strides", Dims{2, 1}).constant(random.tensor(dtype, {2, 1, 5, 6}));
    mutate(pool, random, 400);
    OneNode global("GlobalLpPool", 2);
    global.constant(random.tensor(dtype, {2, 3, 4, 2}));
    mutate(global, random, 200);
    OneNode unpool("MaxUnpool", 11);
    unpool.attribute("kernel_shape", Dims{2}).attribute("strides", Dims{2});
    unpool.constant(random.tensor(dtype, {2, 1, 3}));
    unpool.constant(make_data(DVT_I64, {2, 1, 3}, {0, 2, 5, 6, 9, 11}));
    if (random.flip()) unpool.constant_i64({2, 1, 7});
    mutate(unpool, random, 400, 4);
  }
}
