// QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear against formulas in double.
#include "ops/kernels/quantisation.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/ops/harness.hpp"
#include "tests/ops/values.hpp"

using namespace davit;
using namespace davit::test;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
const std::vector<DvtDType> kQuantised = {DVT_U8, DVT_I8, DVT_U16, DVT_I16};
const std::vector<DvtDType> kScales = {DVT_F32, DVT_F16, DVT_BF16};

struct Range {
  double low, high;
};
Range range_of(DvtDType dtype) {
  switch (dtype) {
    case DVT_U8:
      return {0, 255};
    case DVT_I8:
      return {-128, 127};
    case DVT_U16:
      return {0, 65535};
    default:
      return {-32768, 32767};
  }
}

double naive_quantise(double x, double scale, double zero, Range range) {
  const auto quotient = double(float(double(float(x)) / scale));
  const double rounded = std::isnan(quotient) ? 0.0 : std::nearbyint(quotient);
  return std::clamp(rounded + zero, range.low, range.high);
}

// How scale lies along x: one element, one per index of an axis, or one per block of an axis.
struct Layout {
  Dims x, scale;
  int64_t axis = 0, block = 0;

  // Index of the scale of x's element `at`.
  [[nodiscard]] size_t scale_at(size_t at) const {
    if (product(scale) == 1) return 0;
    Dims index(x.size());
    for (size_t i = x.size(); i-- > 0;) {
      index[i] = int64_t(at) % x[i];
      at /= size_t(x[i]);
    }
    const auto a = size_t(axis < 0 ? axis + int64_t(x.size()) : axis);
    if (block == 0) return size_t(index[a]);
    index[a] /= block;
    size_t result = 0;
    for (size_t i = 0; i < x.size(); ++i) result = result * size_t(scale[i]) + size_t(index[i]);
    return result;
  }
};

Layout random_layout(Source& source) {
  Layout layout;
  layout.x.resize(size_t(source.between(0, 4)));
  for (int64_t& dim : layout.x) dim = source.between(0, 12) == 0 ? 0 : source.between(1, 9);
  if (layout.x.size() == 1 && source.flip()) layout.x[0] = source.between(250, 1200);
  const int64_t kind = layout.x.empty() ? 0 : source.between(0, 2);
  if (kind == 0) {
    if (source.flip()) layout.scale = {1};
    layout.axis = source.between(-3, 9);  // Means nothing.
    return layout;
  }
  const auto rank = int64_t(layout.x.size());
  layout.axis = source.between(-rank, rank - 1);
  const auto a = size_t(layout.axis < 0 ? layout.axis + rank : layout.axis);
  if (kind == 1) {
    layout.scale = {layout.x[a]};
  } else {
    layout.block = source.between(1, 5);
    layout.scale = layout.x;
    layout.scale[a] = (layout.x[a] + layout.block - 1) / layout.block;
  }
  return layout;
}

Values random_values(Source& source, size_t count, double low, double high) {
  Values values(count);
  for (double& value : values) value = double(source.between(int64_t(low), int64_t(high)));
  return values;
}

ir::TensorData random_scale(Source& source, DvtDType dtype, const Dims& dims) {
  Values values(product(dims));
  for (double& value : values) value = double(source.between(1, 64)) / 32.0;
  return make_data(dtype, dims, values);
}

OneNode linear_node(const char* op, const Layout& layout, const ir::TensorData& x,
                    const ir::TensorData& scale) {
  OneNode node(op, 21);
  node.constant(x).constant(scale);
  node.attribute("axis", layout.axis);
  if (layout.block != 0) node.attribute("block_size", layout.block);
  return node;
}

}  // namespace

TEST_CASE("QuantizeLinear: every dtype, scale per tensor, axis and block") {
  Source source(5);
  for (int round = 0; round < 600; ++round) {
    const Layout layout = random_layout(source);
    const DvtDType to = source.pick(kQuantised);
    const DvtDType scale_type = source.pick(kScales);
    const DvtDType from = source.between(0, 3) == 0 ? DvtDType{DVT_I32} : scale_type;
    const Range range = range_of(to);
    const bool has_zero = to != DVT_U8 || source.flip();
    const double reach = source.flip() ? 300 : 70000;
    Values values = random_values(source, product(layout.x), -reach, reach);
    if (from != DVT_I32) {
      for (double& value : values) value /= 32;
    }
    const auto x = make_data(from, layout.x, values);
    const auto scale = random_scale(source, scale_type, layout.scale);
    const auto zero = make_data(
        to, layout.scale, random_values(source, product(layout.scale), range.low, range.high));
    OneNode node = linear_node("QuantizeLinear", layout, x, scale);
    if (has_zero) node.constant(zero);
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    CHECK((*outputs)[0].dtype == to);
    CHECK((*outputs)[0].dims == layout.x);
    const Values given = to_values(x);
    const Values scales = to_values(scale);
    const Values zeros = to_values(zero);
    const Values got = to_values((*outputs)[0]);
    for (size_t i = 0; i < given.size(); ++i) {
      const size_t s = layout.scale_at(i);
      INFO(given[i], " / ", scales[s]);
      REQUIRE(got[i] == naive_quantise(given[i], scales[s], has_zero ? zeros[s] : 0, range));
    }
  }
}

TEST_CASE("DequantizeLinear: every dtype, scale per tensor, axis and block") {
  Source source(6);
  const std::vector<DvtDType> from_types = {DVT_U8, DVT_I8, DVT_U16, DVT_I16, DVT_I32};
  for (int round = 0; round < 600; ++round) {
    const Layout layout = random_layout(source);
    const DvtDType from = source.pick(from_types);
    const DvtDType to = source.pick(kScales);
    const Range range =
        from == DVT_I32 ? Range{double(INT32_MIN), double(INT32_MAX)} : range_of(from);
    const bool has_zero = source.flip();
    const auto x =
        make_data(from, layout.x, random_values(source, product(layout.x), range.low, range.high));
    const auto scale = random_scale(source, to, layout.scale);
    const auto zero = make_data(
        from, layout.scale, random_values(source, product(layout.scale), range.low, range.high));
    OneNode node = linear_node("DequantizeLinear", layout, x, scale);
    if (has_zero) node.constant(zero);
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    const Values given = to_values(x);
    const Values scales = to_values(scale);
    const Values zeros = to_values(zero);
    Values expected(given.size());
    for (size_t i = 0; i < given.size(); ++i) {
      const size_t s = layout.scale_at(i);
      const double difference = given[i] - (has_zero ? zeros[s] : 0);
      expected[i] = double(float(difference)) * scales[s];
    }
    // Rounded to the output's type as make_data() does.
    CHECK(to_values((*outputs)[0]) == to_values(make_data(to, layout.x, expected)));
  }
}

TEST_CASE("quantising: ties to even, saturation, NaN and a scale of zero") {
  const DvtQuantizeAttributes record{.axis = 0, .block_size = 0};
  const Values values = {0.5, 1.5, 2.5, -0.5, -1.5, 1e30, -1e30, kInf, -kInf, kNan, 127.5, -128.5};
  const auto x = make_data(DVT_F32, {12}, values);
  const auto run = [&](double scale, double zero, DvtDType to) {
    return to_values(call_kernel("QuantizeLinear.f32", &record,
                                 {x, make_data(DVT_F32, {}, {scale}), make_data(to, {}, {zero})},
                                 to, {12}));
  };
  CHECK(run(1, 0, DVT_I8) == Values{0, 2, 2, 0, -2, 127, -128, 127, -128, 0, 127, -128});
  // The zero point is added to what was rounded, and is what NaN becomes.
  CHECK(run(1, 7, DVT_U8) == Values{7, 9, 9, 7, 5, 255, 0, 255, 0, 7, 135, 0});
  CHECK(run(0, 3, DVT_I8) == Values{127, 127, 127, -128, -128, 127, -128, 127, -128, 3, 127, -128});
  CHECK(run(kNan, 3, DVT_I16) == Values(12, 3));
  CHECK(run(1, 65535, DVT_U16) ==
        Values{65535, 65535, 65535, 65535, 65533, 65535, 0, 65535, 0, 65535, 65535, 65407});
}

TEST_CASE("DynamicQuantizeLinear covers the range of x and zero") {
  Source source(7);
  for (int round = 0; round < 200; ++round) {
    const int64_t count = source.between(0, 700);
    const double shift = double(source.between(-40, 40));
    Values values(size_t(count), 0.0);
    for (double& value : values) value = double(float(shift + double(source.between(-99, 99)) / 7));
    OneNode node("DynamicQuantizeLinear", 11);
    node.constant(make_data(DVT_F32, {count}, values)).outputs(3);
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    double low = 0;
    double high = 0;
    for (const double value : values) {
      low = std::min(low, value);
      high = std::max(high, value);
    }
    const double scale = double(float(double(float(high - low)) / 255.0));
    const double zero = naive_quantise(-double(float(low / scale)), 1, 0, {0, 255});
    CHECK(to_values((*outputs)[1]) == Values{scale});
    CHECK(to_values((*outputs)[2]) == Values{zero});
    CHECK((*outputs)[1].dims.empty());
    const Values got = to_values((*outputs)[0]);
    for (size_t i = 0; i < values.size(); ++i) {
      REQUIRE(got[i] == naive_quantise(values[i], scale, zero, {0, 255}));
    }
  }
  // A NaN anywhere is a NaN scale, and nothing but zero points.
  std::vector<Operand> outputs = {Operand(DVT_U8, {3}), Operand(DVT_F32, {}), Operand(DVT_U8, {})};
  run_kernel("DynamicQuantizeLinear.f32",
             {Operand(DVT_F32, {3}, std::vector<float>{1, std::nanf(""), -5})}, outputs);
  CHECK(std::isnan(outputs[1].as<float>()[0]));
  CHECK(outputs[0].as<uint8_t>() == std::vector<uint8_t>{0, 0, 0});
}

TEST_CASE("quantisation: what definitions refuse") {
  const auto message = [](OneNode& node) { return node.infer().to_string(); };
  {
    OneNode node("QuantizeLinear", 13);
    node.input(DVT_F32, Dims{2, 3}).input(DVT_F32, Dims{4}).input(DVT_U8, Dims{4});
    CHECK(message(node).find("scale does not fit x; expected [3]; got [4]") != std::string::npos);
  }
  {
    OneNode node("QuantizeLinear", 10);
    node.input(DVT_F32, Dims{2, 3}).input(DVT_F32, Dims{3});
    CHECK(message(node).find("before opset 13") != std::string::npos);
  }
  {
    OneNode node("DequantizeLinear", 13);
    node.input(DVT_U8, Dims{2}).input(DVT_F32, Dims{2});  // axis is 1.
    CHECK(message(node).find("axis is out of range") != std::string::npos);
  }
  {
    OneNode node("QuantizeLinear", 21);
    node.input(DVT_F32, Dims{2, 3}).input(DVT_F32, Dims{2, 2}).attribute("block_size", int64_t{-1});
    CHECK(message(node).find("block_size is out of range") != std::string::npos);
  }
  {
    OneNode node("QuantizeLinear", 21);
    node.input(DVT_F32, Dims{2}).input(DVT_F32, Dims{}).attribute("output_dtype", int64_t{DVT_I32});
    CHECK(message(node).find("has no quantised type") != std::string::npos);
  }
  {
    OneNode node("DequantizeLinear", 10);
    node.input(DVT_U8, Dims{2}).input(DVT_F32, Dims{}).input(DVT_I8, Dims{});
    CHECK(message(node).find("same element type") != std::string::npos);
  }
  OneNode symbolic("QuantizeLinear", 21);
  symbolic.input(DVT_F16, ir::Shape{symbolic.symbol("N"), ir::Dim(8)})
      .input(DVT_F16, Dims{8})
      .attribute("output_dtype", int64_t{DVT_I16});
  CHECK(symbolic.shape() == "[N,8]");
  CHECK(symbolic.found[0].dtype == DVT_I16);
  CHECK(recipe_of(symbolic).ok());
}

TEST_CASE("quantisation kernels: hostile layouts") {
  Source source(9);
  int passed = 0;
  for (int round = 0; round < 4000; ++round) {
    const bool forward = source.flip();
    const DvtDType type = source.pick(kQuantised);
    Layout layout = random_layout(source);
    DvtQuantizeAttributes record{.axis = layout.axis, .block_size = layout.block};
    const auto spoil = [&](auto& value) {
      if (source.between(0, 5) == 0) value = source.pick<int64_t>({INT64_MIN, -1, INT64_MAX, 7, 1});
    };
    spoil(record.axis);
    spoil(record.block_size);
    if (source.between(0, 5) == 0) layout.scale.push_back(source.between(0, 3));
    const DvtDType from = forward ? DvtDType{DVT_F32} : type;
    const DvtDType to = forward ? type : DvtDType{DVT_F16};
    std::vector<Operand> inputs = {Operand(from, layout.x),
                                   Operand(forward ? DvtDType{DVT_BF16} : to, layout.scale)};
    if (source.flip()) inputs.emplace_back(type, layout.scale);
    for (Operand& input : inputs) {
      for (std::byte& byte : input.bytes) byte = std::byte(source.between(0, 255));
    }
    std::vector<Operand> outputs = {Operand(to, layout.x)};
    const DvtKernel* kernel =
        ops::find_kernel(forward ? "QuantizeLinear" : "DequantizeLinear", from);
    REQUIRE(bool(kernel != nullptr));
    Call call(*kernel, inputs, outputs, &record);
    std::string reason;
    const DvtCode code = call.check(&reason);
    CHECK((code == DVT_OK) == reason.empty());
    std::vector<DvtTensor> inferred;
    const DvtCode shape = call.infer(inferred);
    if (code != DVT_OK) continue;
    CHECK(shape == DVT_OK);
    CHECK(inferred[0].bytes == outputs[0].tensor.bytes);
    CHECK(call.run() == DVT_OK);
    ++passed;
  }
  CHECK(passed > 1500);
}
