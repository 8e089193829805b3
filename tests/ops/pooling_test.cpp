// MaxPool, AveragePool and the global pools against an explicitly padded input.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/kernels/pooling.h"
#include "tests/ops/harness.hpp"
#include "tests/ops/values.hpp"

using namespace davit;
using namespace davit::test;

namespace {

struct Config {
  Dims in, kernel, strides, dilations, pads_begin, pads_end;
  bool ceil_mode, count_include_pad, column_major;

  [[nodiscard]] size_t spatial() const { return in.size(); }
  [[nodiscard]] Dims pads() const {
    Dims all = pads_begin;
    all.insert(all.end(), pads_end.begin(), pads_end.end());
    return all;
  }
};

Config random_config(Source& random) {
  Config c{.ceil_mode = random.flip(),
           .count_include_pad = random.flip(),
           .column_major = random.flip()};
  const int64_t spatial = random.between(1, 3);
  for (int64_t i = 0; i < spatial; ++i) {
    c.kernel.push_back(random.between(1, 4));
    c.strides.push_back(random.between(1, 4));
    c.dilations.push_back(random.between(1, 3));
    c.pads_begin.push_back(random.between(0, random.flip() ? 6 : 1));
    c.pads_end.push_back(random.between(0, random.flip() ? 6 : 1));
    const int64_t reach = (c.kernel.back() - 1) * c.dilations.back() + 1;
    c.in.push_back(std::max<int64_t>(reach - c.pads_begin.back() - c.pads_end.back(), 1) +
                   random.between(0, 6));
  }
  return c;
}

// One output extent, by stepping the window over the padded row.
int64_t naive_extent(const Config& c, size_t i) {
  const int64_t reach = (c.kernel[i] - 1) * c.dilations[i] + 1;
  const int64_t padded = c.in[i] + c.pads_begin[i] + c.pads_end[i];
  int64_t count = 0;
  for (int64_t at = 0; at + reach <= padded; at += c.strides[i]) ++count;
  if (!c.ceil_mode) return count;
  const bool partial = (padded - reach) % c.strides[i] != 0;
  if (partial) ++count;
  // The last window must not begin in the end pad; the standard drops at most one.
  return (count - 1) * c.strides[i] >= c.in[i] + c.pads_begin[i] ? count - 1 : count;
}

struct Expected {
  Values max, average;
  std::vector<int64_t> indices;
};

// What one window sees.
struct Seen {
  double maximum = -std::numeric_limits<double>::infinity();
  double sum = 0;
  int64_t inside = 0, counted = 0, best = -1;
};

// `rank` nested loops over the taps of one window, in row-major order.
void look(const Config& c, const Values& x, int64_t base, const Dims& output, size_t dim,
          Dims& position, bool counts, Seen& seen) {
  if (dim < c.spatial()) {
    for (int64_t tap = 0; tap < c.kernel[dim]; ++tap) {
      position[dim] = output[dim] * c.strides[dim] - c.pads_begin[dim] + tap * c.dilations[dim];
      look(c, x, base, output, dim + 1, position,
           counts && position[dim] < c.in[dim] + c.pads_end[dim], seen);
    }
    return;
  }
  seen.counted += counts ? 1 : 0;
  int64_t at = 0;
  for (size_t i = 0; i < c.spatial(); ++i) {
    if (position[i] < 0 || position[i] >= c.in[i]) return;
    at = at * c.in[i] + position[i];
  }
  const double value = x[size_t(base + at)];
  ++seen.inside;
  seen.sum += value;
  if (seen.best >= 0 && value <= seen.maximum) return;
  seen.maximum = value;
  int64_t column = 0;
  for (size_t i = c.spatial(); i-- > 0;) column = column * c.in[i] + position[i];
  seen.best = base + (c.column_major ? column : at);
}

Expected naive_pool(const Config& c, int64_t planes, const Dims& out, const Values& x) {
  Expected expected;
  Dims position(c.spatial());
  for (int64_t plane = 0; plane < planes; ++plane) {
    Dims output(c.spatial(), 0);
    for (int64_t n = product(out); n > 0; --n) {
      Seen seen;
      look(c, x, plane * product(c.in), output, 0, position, true, seen);
      expected.max.push_back(seen.maximum);
      expected.indices.push_back(std::max<int64_t>(seen.best, 0));
      const int64_t count = c.count_include_pad ? seen.counted : seen.inside;
      expected.average.push_back(count == 0 ? 0.0 : seen.sum / double(count));
      for (size_t i = c.spatial(); i-- > 0;) {
        if (++output[i] < out[i]) break;
        output[i] = 0;
      }
    }
  }
  return expected;
}

OneNode pool_node(const char* op, const Config& c) {
  OneNode node(op, 19);
  node.attribute("kernel_shape", c.kernel)
      .attribute("strides", c.strides)
      .attribute("dilations", c.dilations)
      .attribute("pads", c.pads())
      .attribute("ceil_mode", int64_t{c.ceil_mode});
  return node;
}

}  // namespace

TEST_CASE("pools equal the naive ones: pads, ceil mode, dilations, every dtype") {
  Source random(21);
  for (int round = 0; round < 600; ++round) {
    const Config c = random_config(random);
    Dims out;
    for (size_t i = 0; i < c.spatial(); ++i) out.push_back(naive_extent(c, i));
    Dims x_dims = {2, random.between(1, 2)};
    x_dims.insert(x_dims.end(), c.in.begin(), c.in.end());
    const DvtDType dtype =
        random.pick<DvtDType>({DVT_F32, DVT_F64, DVT_F16, DVT_BF16, DVT_U8, DVT_I8});
    const auto x = random.tensor(dtype, x_dims);
    const Expected expected = naive_pool(c, x_dims[0] * x_dims[1], out, to_values(x));
    OneNode max = pool_node("MaxPool", c);
    max.attribute("storage_order", int64_t{c.column_major}).constant(x).outputs(2);
    const auto maxima = max.evaluate();
    REQUIRE_MESSAGE(maxima.ok(), maxima.status().to_string());
    const double lowest = dtype == DVT_U8   ? 0.0
                          : dtype == DVT_I8 ? -128.0
                                            : -std::numeric_limits<double>::infinity();
    Values max_values = expected.max;
    for (double& value : max_values) value = std::max(value, lowest);
    REQUIRE(excess_error(max_values, to_values((*maxima)[0]), 0.0, 0.0) <= 0.0);
    const auto indices = (*maxima)[1].as<int64_t>();
    REQUIRE(std::equal(indices.begin(), indices.end(), expected.indices.begin(),
                       expected.indices.end()));
    if (dtype == DVT_U8 || dtype == DVT_I8) continue;
    OneNode average = pool_node("AveragePool", c);
    average.attribute("count_include_pad", int64_t{c.count_include_pad}).constant(x);
    const auto averages = average.evaluate();
    REQUIRE_MESSAGE(averages.ok(), averages.status().to_string());
    const double relative = tolerance(dtype, product(c.kernel));
    REQUIRE(excess_error(expected.average, to_values((*averages)[0]), relative, relative * 4.0) <=
            0.0);
  }
}

TEST_CASE("AveragePool counts the pad at the end of each dim, not that of another") {
  // [[1,1],[1,1]] padded below and right only.
  OneNode node("AveragePool", 19);
  node.attribute("kernel_shape", Dims{2, 2})
      .attribute("pads", Dims{0, 0, 1, 1})
      .attribute("count_include_pad", int64_t{1})
      .constant(make_data(DVT_F32, {1, 1, 2, 2}, {1, 1, 1, 1}));
  const auto outputs = node.evaluate();
  REQUIRE(outputs.ok());
  CHECK(to_values((*outputs)[0]) == Values{1.0, 0.5, 0.5, 0.25});
}

TEST_CASE("AveragePool in ceil mode divides by what lies within input and pads") {
  // 9 elements, pads of 3, windows of 7 at steps of 3: the last window hangs over by two.
  const Values x = {2.0903, 4.6493, 1.6320, -3.2051, 4.6975, 4.7296, 3.3653, -1.5815, -2.3832};
  OneNode node("AveragePool", 19);
  node.attribute("kernel_shape", Dims{7})
      .attribute("strides", Dims{3})
      .attribute("pads", Dims{3, 3})
      .attribute("ceil_mode", int64_t{1})
      .attribute("count_include_pad", int64_t{1})
      .constant(make_data(DVT_F64, {1, 1, 9}, x));
  const auto outputs = node.evaluate();
  REQUIRE(outputs.ok());
  const Values got = to_values((*outputs)[0]);
  REQUIRE(got.size() == 4);
  CHECK(got[3] == doctest::Approx((x[6] + x[7] + x[8]) / 6.0));
}

TEST_CASE("MaxPool: NaN is the maximum, and a window of pads is the lowest value") {
  OneNode node("MaxPool", 12);
  node.attribute("kernel_shape", Dims{2}).constant(make_data(DVT_F32, {1, 1, 4}, {1, NAN, 3, 4}));
  const auto outputs = node.evaluate();
  REQUIRE(outputs.ok());
  const Values got = to_values((*outputs)[0]);
  CHECK(std::isnan(got[0]));
  CHECK(std::isnan(got[1]));
  CHECK(got[2] == 4.0);
  OneNode pads("MaxPool", 12);
  pads.attribute("kernel_shape", Dims{1})
      .attribute("pads", Dims{1, 0})
      .constant(make_data(DVT_F32, {1, 1, 1}, {5}))
      .outputs(2);
  const auto padded = pads.evaluate();
  REQUIRE(padded.ok());
  CHECK(to_values((*padded)[0]) == Values{-std::numeric_limits<double>::infinity(), 5.0});
}

TEST_CASE("auto_pad") {
  Source random(22);
  for (const char* auto_pad : {"SAME_UPPER", "SAME_LOWER", "VALID"}) {
    INFO(auto_pad);
    const auto x = random.tensor(DVT_F32, {1, 1, 6, 5});
    OneNode node("MaxPool", 12);
    node.attribute("auto_pad", std::string(auto_pad))
        .attribute("kernel_shape", Dims{3, 2})
        .attribute("strides", Dims{2, 2})
        .constant(x);
    const auto y = node.evaluate();
    REQUIRE_MESSAGE(y.ok(), y.status().to_string());
    const bool valid = std::string(auto_pad) == "VALID";
    CHECK(*node.found[0].shape ==
          (valid ? ir::Shape{ir::Dim(1), ir::Dim(1), ir::Dim(2), ir::Dim(2)}
                 : ir::Shape{ir::Dim(1), ir::Dim(1), ir::Dim(3), ir::Dim(3)}));
    // Of 6 rows and 5 columns one row and one column are missing.
    const bool lower = std::string(auto_pad) == "SAME_LOWER";
    const int64_t begin = !valid && lower ? 1 : 0;
    const int64_t end = !valid && !lower ? 1 : 0;
    OneNode stated("MaxPool", 12);
    stated.attribute("pads", Dims{begin, begin, end, end})
        .attribute("kernel_shape", Dims{3, 2})
        .attribute("strides", Dims{2, 2})
        .constant(x);
    CHECK(*(*stated.evaluate())[0].bytes == *(*y)[0].bytes);
  }
}

TEST_CASE("global pools") {
  const auto x = make_data(DVT_F32, {1, 2, 2, 2}, {1, 2, 3, 6, -1, -2, -3, -8});
  OneNode average("GlobalAveragePool", 13);
  average.constant(x);
  const auto mean = average.evaluate();
  REQUIRE_MESSAGE(mean.ok(), mean.status().to_string());
  CHECK((*mean)[0].dims == Dims{1, 2, 1, 1});
  CHECK(to_values((*mean)[0]) == Values{3.0, -3.5});
  OneNode max("GlobalMaxPool", 13);
  max.constant(x);
  const auto maximum = max.evaluate();
  REQUIRE(maximum.ok());
  CHECK(to_values((*maximum)[0]) == Values{6.0, -1.0});
}

TEST_CASE("empty batches, unknown dims, costs") {
  Source random(23);
  OneNode empty("MaxPool", 12);
  empty.attribute("kernel_shape", Dims{2}).constant(random.tensor(DVT_F32, {0, 3, 4}));
  const auto outputs = empty.evaluate();
  REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
  CHECK((*outputs)[0].dims == Dims{0, 3, 3});
  OneNode partial("AveragePool", 19);
  const ir::Dim n = partial.symbol("N");
  partial.attribute("kernel_shape", Dims{3, 3})
      .input(DVT_F32, {n, ir::Dim(2), ir::Dim(), ir::Dim(9)});
  REQUIRE(partial.infer().ok());
  CHECK((*partial.found[0].shape)[0] == n);
  CHECK_FALSE((*partial.found[0].shape)[2].is_known());
  CHECK((*partial.found[0].shape)[3] == ir::Dim(7));
  OneNode fixed("MaxPool", 12);
  fixed.attribute("kernel_shape", Dims{2}).input(DVT_F32, {ir::Dim(1), ir::Dim(1), ir::Dim(5)});
  REQUIRE(fixed.infer().ok());
  CHECK(cost_of(fixed).kind == DVT_TASK_VECTOR);
  CHECK(cost_of(fixed).vector_elements == 8);
}

TEST_CASE("nodes that break the rules are refused") {
  Source random(24);
  const auto refused = [&random](const char* name, ir::AttributeValue value, bool with_kernel) {
    OneNode node("MaxPool", 12);
    if (with_kernel) node.attribute("kernel_shape", Dims{2, 2});
    node.attribute(name, std::move(value)).constant(random.tensor(DVT_F32, {1, 1, 4, 4}));
    return !node.infer().ok();
  };
  CHECK(refused("pads", Dims{0, 0, 0, 0}, false));  // No kernel_shape.
  CHECK(refused("kernel_shape", Dims{2}, false));
  CHECK(refused("kernel_shape", Dims{0, 2}, false));
  CHECK(refused("kernel_shape", Dims{5, 2}, false));
  CHECK(refused("strides", Dims{0, 1}, true));
  CHECK(refused("pads", Dims{0, 0, 0}, true));
  CHECK(refused("pads", Dims{0, 0, 0, -1}, true));
  CHECK(refused("auto_pad", std::string("UPPER"), true));
}
