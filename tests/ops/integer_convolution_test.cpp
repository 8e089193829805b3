// ConvInteger and QLinearConv against sums written down naively.
#include "ops/kernels/integer_convolution.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/ops/harness.hpp"
#include "tests/ops/values.hpp"

using namespace davit;
using namespace davit::test;

namespace {

const std::vector<DvtDType> kBytes = {DVT_U8, DVT_I8};

// A convolution with one to three spatial dims whose window fits.
struct Example {
  size_t spatial;
  int64_t batch, group, in_channels, out_channels;  // Channels per group.
  std::vector<int64_t> in, kernel, out, strides, dilations, pads;
  DvtDType x_type, w_type;
  Values x, w;

  explicit Example(Source& source) {
    spatial = size_t(source.between(1, 3));
    batch = source.between(1, 2);
    group = source.between(1, 3);
    in_channels = source.between(1, 3);
    out_channels = source.between(1, 3);
    pads.resize(2 * spatial);
    for (size_t i = 0; i < spatial; ++i) {
      kernel.push_back(source.between(1, 3));
      strides.push_back(source.between(1, 3));
      dilations.push_back(source.between(1, 2));
      pads[i] = source.between(0, 2);
      pads[spatial + i] = source.between(0, 2);
      const int64_t reach = (kernel[i] - 1) * dilations[i] + 1;
      in.push_back(std::max<int64_t>(1, reach - pads[i] - pads[spatial + i]) +
                   source.between(0, spatial == 3 ? 3 : 6));
      // More than one block of columns.
      if (spatial == 1 && source.between(0, 9) == 0) in[0] = source.between(900, 1700);
      out.push_back((in[i] + pads[i] + pads[spatial + i] - reach) / strides[i] + 1);
    }
    x_type = source.pick(kBytes);
    w_type = source.pick(kBytes);
    x = source.bytes(x_type, product(x_dims()));
    w = source.bytes(w_type, product(w_dims()));
  }
  [[nodiscard]] Dims dims(int64_t a, int64_t b, const std::vector<int64_t>& rest) const {
    Dims result = {a, b};
    result.insert(result.end(), rest.begin(), rest.end());
    return result;
  }
  [[nodiscard]] Dims x_dims() const { return dims(batch, group * in_channels, in); }
  [[nodiscard]] Dims w_dims() const { return dims(group * out_channels, in_channels, kernel); }
  [[nodiscard]] Dims y_dims() const { return dims(batch, group * out_channels, out); }

  // One sum; `position` is Y's, w_zero that of its filter.
  [[nodiscard]] double sum(int64_t n, int64_t m, const Dims& position, double x_zero,
                           double w_zero) const {
    double total = 0;
    const int64_t taps = int64_t(product(kernel));
    for (int64_t c = 0; c < in_channels; ++c) {
      for (int64_t tap = 0; tap < taps; ++tap) {
        int64_t rest = tap;
        int64_t at = 0;
        int64_t stride = 1;
        bool inside = true;
        for (size_t i = spatial; i-- > 0;) {
          const int64_t k = rest % kernel[i];
          rest /= kernel[i];
          const int64_t from = position[i] * strides[i] - pads[i] + k * dilations[i];
          inside = inside && from >= 0 && from < in[i];
          at += from * stride;
          stride *= in[i];
        }
        if (!inside) continue;
        const int64_t channel = n * group * in_channels + m / out_channels * in_channels + c;
        total += (x[size_t(channel * stride + at)] - x_zero) *
                 (w[size_t((m * in_channels + c) * taps + tap)] - w_zero);
      }
    }
    return total;
  }

  // Calls fn(filter, sum) in the order of Y's elements.
  template <class Fn>
  void each(double x_zero, const Values& w_zeros, const Fn& fn) const {
    for (int64_t n = 0; n < batch; ++n) {
      for (int64_t m = 0; m < group * out_channels; ++m) {
        for (int64_t o = 0; o < int64_t(product(out)); ++o) {
          Dims position(spatial);
          int64_t rest = o;
          for (size_t i = spatial; i-- > 0;) {
            position[i] = rest % out[i];
            rest /= out[i];
          }
          fn(m, sum(n, m, position, x_zero, w_zeros[w_zeros.size() == 1 ? 0 : size_t(m)]));
        }
      }
    }
  }

  void set_attributes(OneNode& node) const {
    node.attribute("group", group)
        .attribute("strides", strides)
        .attribute("dilations", dilations)
        .attribute("pads", pads);
  }
};

// A parameter of W: one value, or one per filter.
Values filter_values(Source& source, const Example& example, Dims& dims) {
  dims.clear();
  if (source.flip()) dims = {example.group * example.out_channels};
  return Values(product(dims), 0.0);
}

}  // namespace

TEST_CASE("ConvInteger: groups, pads, strides, dilations, zero points, mixed signs") {
  Source source(31);
  for (int round = 0; round < 300; ++round) {
    const Example example(source);
    const bool has_x_zero = source.flip();
    const bool has_w_zero = source.flip();
    const Values x_zero = has_x_zero ? source.bytes(example.x_type, 1) : Values{0};
    Dims w_zero_dims;
    Values w_zeros = filter_values(source, example, w_zero_dims);
    if (has_w_zero) w_zeros = source.bytes(example.w_type, w_zeros.size());
    OneNode node("ConvInteger", 10);
    node.constant(make_data(example.x_type, example.x_dims(), example.x))
        .constant(make_data(example.w_type, example.w_dims(), example.w));
    if (has_x_zero) {
      node.constant(make_data(example.x_type, {}, x_zero));
    } else if (has_w_zero) {
      node.absent_input();
    }
    if (has_w_zero) node.constant(make_data(example.w_type, w_zero_dims, w_zeros));
    example.set_attributes(node);
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    CHECK((*outputs)[0].dtype == DVT_I32);
    CHECK((*outputs)[0].dims == example.y_dims());
    Values expected;
    example.each(x_zero[0], w_zeros, [&](int64_t, double sum) { expected.push_back(sum); });
    CHECK(to_values((*outputs)[0]) == expected);
  }
}

TEST_CASE("QLinearConv: bias, scales and zero points per filter") {
  Source source(32);
  for (int round = 0; round < 300; ++round) {
    const Example example(source);
    const int64_t filters = example.group * example.out_channels;
    const DvtDType y_type = source.pick(kBytes);
    const DvtDType scale_type = source.flip() ? DvtDType{DVT_F32} : DvtDType{DVT_BF16};
    const Values x_zero = source.bytes(example.x_type, 1);
    const Values y_zero = source.bytes(y_type, 1);
    Dims w_zero_dims;
    Dims w_scale_dims;
    Values w_zeros = filter_values(source, example, w_zero_dims);
    w_zeros = source.bytes(example.w_type, w_zeros.size());
    Values w_scales = filter_values(source, example, w_scale_dims);
    for (double& scale : w_scales) scale = double(source.between(1, 30)) / 64;
    const double x_scale = double(source.between(1, 30)) / 64;
    const double y_scale = double(source.between(1, 90));
    const bool has_bias = source.flip();
    Values bias(size_t(filters), 0.0);
    for (double& value : bias) value = has_bias ? double(source.between(-90000, 90000)) : 0;
    OneNode node("QLinearConv", 10);
    node.constant(make_data(example.x_type, example.x_dims(), example.x))
        .constant(make_data(scale_type, {}, {x_scale}))
        .constant(make_data(example.x_type, {}, x_zero))
        .constant(make_data(example.w_type, example.w_dims(), example.w))
        .constant(make_data(scale_type, w_scale_dims, w_scales))
        .constant(make_data(example.w_type, w_zero_dims, w_zeros))
        .constant(make_data(scale_type, {1}, {y_scale}))
        .constant(make_data(y_type, {1}, y_zero));
    if (has_bias) node.constant(make_data(DVT_I32, {filters}, bias));
    example.set_attributes(node);
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    CHECK((*outputs)[0].dtype == y_type);
    const double low = y_type == DVT_U8 ? 0 : -128;
    Values expected;
    example.each(x_zero[0], w_zeros, [&](int64_t m, double sum) {
      const double w_scale = w_scales[w_scales.size() == 1 ? 0 : size_t(m)];
      const double scale = double(float(double(float(x_scale * w_scale)) / y_scale));
      const double value =
          std::nearbyint(double(float(double(float(sum + bias[size_t(m)])) * scale)));
      expected.push_back(std::clamp(value + y_zero[0], low, low + 255));
    });
    CHECK(to_values((*outputs)[0]) == expected);
  }
}

TEST_CASE("quantised convolutions: auto_pad is the kernel's where X is not known") {
  OneNode node("ConvInteger", 10);
  node.input(DVT_U8, ir::Shape{ir::Dim(1), ir::Dim(1), node.symbol("H")})
      .input(DVT_U8, Dims{1, 1, 3})
      .attribute("auto_pad", std::string("SAME_UPPER"));
  const auto recipe = recipe_of(node);
  REQUIRE_MESSAGE(recipe.ok(), recipe.status().to_string());
  std::vector<Operand> inputs = {Operand(DVT_U8, {1, 1, 4}, std::vector<uint8_t>{1, 2, 3, 4}),
                                 Operand(DVT_U8, {1, 1, 3}, std::vector<uint8_t>{1, 10, 100})};
  std::vector<Operand> outputs = {Operand(DVT_I32, {1, 1, 4})};
  Call call(*recipe->kernel, inputs, outputs, recipe->attributes.data());
  std::vector<DvtTensor> inferred;
  std::string reason;
  REQUIRE_MESSAGE(call.infer(inferred, &reason) == DVT_OK, reason);
  CHECK(inferred[0].dims[2] == 4);
  REQUIRE(call.check() == DVT_OK);
  REQUIRE(call.run() == DVT_OK);
  CHECK(outputs[0].as<int32_t>() == std::vector<int32_t>{210, 321, 432, 43});
}

TEST_CASE("quantised convolutions: what is refused and charged") {
  const auto message = [](OneNode& node) { return node.infer().to_string(); };
  OneNode floats("ConvInteger", 10);
  floats.input(DVT_F32, Dims{1, 1, 4}).input(DVT_U8, Dims{1, 1, 3});
  CHECK(message(floats).find("input 0 must be quantised") != std::string::npos);
  OneNode groups("ConvInteger", 10);
  groups.input(DVT_U8, Dims{1, 3, 4}).input(DVT_U8, Dims{2, 2, 3});
  CHECK(message(groups).find("channels do not match") != std::string::npos);
  OneNode bias("QLinearConv", 10);
  bias.input(DVT_U8, Dims{1, 1, 4}).input(DVT_F32, Dims{}).input(DVT_U8, Dims{});
  bias.input(DVT_I8, Dims{2, 1, 3}).input(DVT_F32, Dims{}).input(DVT_I8, Dims{});
  bias.input(DVT_F32, Dims{}).input(DVT_U8, Dims{}).input(DVT_I32, Dims{3});
  CHECK(message(bias).find("B must have one value per output channel") != std::string::npos);

  DvtConvAttributes record{.group = 1, .window = {}};
  for (int i = 0; i < DVT_SPATIAL_MAX; ++i) {
    record.window.strides[i] = 1;
    record.window.dilations[i] = 1;
  }
  const Operand x(DVT_U8, {1, 1, 4});
  const Operand w(DVT_I8, {2, 1, 3});
  const Operand y(DVT_I32, {1, 2, 2});
  const auto refused = [&](Operand x_zero, Operand w_zero) {
    return refusal("ConvInteger.u8", {x, w, std::move(x_zero), std::move(w_zero)}, {y}, &record);
  };
  CHECK(refused(Operand(DVT_U8, {}), Operand(DVT_I8, {2})).empty());
  CHECK(refused(Operand::absent(), Operand(DVT_I8, {3})) ==
        "zero point of W: expected shape [2], got [3]");
  CHECK(refused(Operand(DVT_U8, {2}), Operand::absent()) ==
        "zero point of X: expected shape [], got [2]");
  CHECK(!refused(Operand(DVT_I8, {}), Operand::absent()).empty());
  CHECK(!refusal("ConvInteger.u8", {x, w}, {Operand(DVT_I32, {1, 2, 3})}, &record).empty());
  CHECK(!refusal("ConvInteger.u8", {x, w}, {y}).empty());

  CHECK(!refusal("ConvInteger.u8", {Operand(DVT_U8, {1, 1}), w}, {y}, &record).empty());

  std::vector<Operand> inputs = {x, w};
  std::vector<Operand> outputs = {y};
  const DvtKernel* kernel = ops::find_kernel("ConvInteger.u8");
  Call call(*kernel, inputs, outputs, &record);
  DvtTaskCost cost{};
  kernel->cost(&call.context(), &cost);
  CHECK(cost.kind == DVT_TASK_CONV);
  CHECK(cost.batch == 1);
  CHECK(cost.m == 2);
  CHECK(cost.n == 2);
  CHECK(cost.k == 3);
}

TEST_CASE("quantised convolutions: hostile contexts") {
  Source source(33);
  const std::vector<int64_t> extremes = {INT64_MIN, -1, 0, INT64_MAX, 0x7fffffff, 7, -2};
  int passed = 0;
  for (int round = 0; round < 4000; ++round) {
    const Example example(source);
    const bool linear = source.flip();
    DvtConvAttributes record{.group = example.group, .window = {}};
    for (size_t i = 0; i < example.spatial; ++i) {
      record.window.strides[i] = example.strides[i];
      record.window.dilations[i] = example.dilations[i];
      record.window.pads_begin[i] = example.pads[i];
      record.window.pads_end[i] = example.pads[example.spatial + i];
    }
    auto* slots = reinterpret_cast<int64_t*>(&record);
    if (source.flip()) slots[source.between(0, 13)] = source.pick(extremes);
    Dims x = example.x_dims();
    Dims w = example.w_dims();
    Dims y = example.y_dims();
    for (Dims* dims : {&x, &w, &y}) {
      if (source.between(0, 7) != 0) continue;
      int64_t& dim = (*dims)[size_t(source.between(0, int64_t(dims->size()) - 1))];
      dim = source.between(0, 4);
    }
    const auto parameter = [&](DvtDType dtype) {
      return Operand(dtype, source.between(0, 3) == 0 ? Dims{w[0]} : Dims{});
    };
    std::vector<Operand> inputs;
    if (linear) {
      inputs = {Operand(example.x_type, x), parameter(DVT_F32), parameter(example.x_type),
                Operand(example.w_type, w), parameter(DVT_F16), parameter(example.w_type),
                parameter(DVT_F32),         parameter(DVT_I8)};
      if (source.flip()) inputs.emplace_back(DVT_I32, Dims{w[0]});
    } else {
      inputs = {Operand(example.x_type, x), Operand(example.w_type, w), parameter(example.x_type),
                parameter(example.w_type)};
    }
    for (Operand& input : inputs) {
      for (std::byte& byte : input.bytes) byte = std::byte(source.between(0, 255));
    }
    std::vector<Operand> outputs = {Operand(linear ? DvtDType{DVT_I8} : DvtDType{DVT_I32}, y)};
    const DvtKernel* kernel =
        ops::find_kernel(linear ? "QLinearConv" : "ConvInteger", example.x_type);
    Call call(*kernel, inputs, outputs, &record);
    std::string reason;
    const DvtCode code = call.check(&reason);
    CHECK((code == DVT_OK) == reason.empty());
    std::vector<DvtTensor> inferred;
    const DvtCode shape = call.infer(inferred);
    if (code != DVT_OK) continue;
    CHECK(shape == DVT_OK);
    CHECK(call.run() == DVT_OK);
    ++passed;
  }
  CHECK(passed > 400);
}
