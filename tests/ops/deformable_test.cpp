// DeformConv against its definition: taps that move, one at a time.
#include "ops/kernels/deformable.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tests/ops/harness.hpp"
#include "tests/ops/mutation.hpp"
#include "tests/ops/values.hpp"

using namespace davit;
using namespace davit::test;

namespace {

// The image at a place between pixels, linear along each axis, zeros outside.
double between(const Values& image, const Dims& dims, const std::vector<double>& at, size_t axis,
               int64_t offset) {
  if (axis == dims.size()) return image[size_t(offset)];
  const double low = std::floor(at[axis]);
  double sum = 0;
  for (int i = 0; i < 2; ++i) {
    const auto position = int64_t(low) + i;
    const double weight = i == 0 ? 1 - (at[axis] - low) : at[axis] - low;
    if (position < 0 || position >= dims[axis] || weight == 0) continue;
    sum += weight * between(image, dims, at, axis + 1, offset * dims[axis] + position);
  }
  return sum;
}

Dims unflatten(int64_t at, const Dims& dims) {
  Dims index(dims.size());
  for (size_t i = dims.size(); i-- > 0;) {
    index[i] = at % dims[i];
    at /= dims[i];
  }
  return index;
}

struct Setup {
  Dims in, kernel, strides, dilations, pads_begin, pads_end, out;
  int64_t batch, group, offset_group, channels, filters;
};

Setup random_setup(Source& random) {
  Setup s;
  const int64_t spatial = random.between(1, 3);
  for (int64_t i = 0; i < spatial; ++i) {
    s.kernel.push_back(random.between(1, 3));
    s.strides.push_back(random.between(1, 2));
    s.dilations.push_back(random.between(1, 2));
    s.pads_begin.push_back(random.between(0, 2));
    s.pads_end.push_back(random.between(0, 1));
    const int64_t reach = (s.kernel.back() - 1) * s.dilations.back() + 1;
    s.in.push_back(reach + random.between(0, 2));
    s.out.push_back(
        (s.in.back() + s.pads_begin.back() + s.pads_end.back() - reach) / s.strides.back() + 1);
  }
  s.batch = random.between(1, 2);
  s.group = random.between(1, 2);
  s.offset_group = random.between(1, 2);
  s.channels = 2 * random.between(1, 2);
  s.filters = 2 * random.between(1, 2);
  return s;
}

Dims shape(int64_t a, int64_t b, const Dims& rest) {
  Dims dims = {a, b};
  dims.insert(dims.end(), rest.begin(), rest.end());
  return dims;
}

struct Data {
  ir::TensorData x, w, offset, bias, mask;
};

Data make_operands(Source& random, const Setup& s, DvtDType dtype) {
  const auto taps = int64_t(product(s.kernel));
  return {random.tensor(dtype, shape(s.batch, s.channels, s.in)),
          random.tensor(dtype, shape(s.filters, s.channels / s.group, s.kernel)),
          random.tensor(dtype, shape(s.batch, s.offset_group * taps * int64_t(s.in.size()), s.out)),
          random.tensor(dtype, {s.filters}),
          random.tensor(dtype, shape(s.batch, s.offset_group * taps, s.out))};
}

OneNode node_of(const Setup& s, const Data& data, bool with_bias, bool with_mask) {
  OneNode node("DeformConv", 19);
  Dims pads = s.pads_begin;
  pads.insert(pads.end(), s.pads_end.begin(), s.pads_end.end());
  node.attribute("kernel_shape", s.kernel).attribute("strides", s.strides).attribute("pads", pads);
  node.attribute("dilations", s.dilations).attribute("group", s.group);
  node.attribute("offset_group", s.offset_group);
  node.constant(data.x).constant(data.w).constant(data.offset);
  if (with_bias) node.constant(data.bias);
  if (!with_bias && with_mask) node.absent_input();
  if (with_mask) node.constant(data.mask);
  return node;
}

Values naive(const Setup& s, const Data& data, bool with_bias, bool with_mask) {
  const Values x = to_values(data.x), w = to_values(data.w), offset = to_values(data.offset);
  const Values bias = to_values(data.bias), mask = to_values(data.mask);
  const auto taps = int64_t(product(s.kernel)), places = int64_t(product(s.out));
  const auto volume = int64_t(product(s.in)), spatial = int64_t(s.in.size());
  Values y;
  for (int64_t n = 0; n < s.batch; ++n) {
    for (int64_t m = 0; m < s.filters; ++m) {
      for (int64_t o = 0; o < places; ++o) {
        double sum = with_bias ? bias[size_t(m)] : 0;
        for (int64_t c = 0; c < s.channels / s.group; ++c) {
          const int64_t channel = m / (s.filters / s.group) * (s.channels / s.group) + c;
          const int64_t og = channel / (s.channels / s.offset_group);
          const auto begin = x.begin() + (n * s.channels + channel) * volume;
          const Values image(begin, begin + volume);
          for (int64_t k = 0; k < taps; ++k) {
            const Dims place = unflatten(o, s.out), tap = unflatten(k, s.kernel);
            std::vector<double> at;
            for (int64_t i = 0; i < spatial; ++i) {
              const auto a = size_t(i);
              const int64_t move = ((n * s.offset_group + og) * taps + k) * spatial + i;
              at.push_back(
                  double(place[a] * s.strides[a] - s.pads_begin[a] + tap[a] * s.dilations[a]) +
                  offset[size_t(move * places + o)]);
            }
            double seen = between(image, s.in, at, 0, 0);
            const int64_t factor = ((n * s.offset_group + og) * taps + k) * places + o;
            if (with_mask) seen *= mask[size_t(factor)];
            sum += seen * w[size_t((m * (s.channels / s.group) + c) * taps + k)];
          }
        }
        y.push_back(sum);
      }
    }
  }
  return y;
}

}  // namespace

TEST_CASE("DeformConv equals its definition: groups, masks, one to three axes") {
  Source random(111);
  for (int round = 0; round < 150; ++round) {
    const auto dtype = random.pick<DvtDType>({DVT_F32, DVT_F64, DVT_F16, DVT_BF16});
    const Setup s = random_setup(random);
    const Data data = make_operands(random, s, dtype);
    const bool with_bias = random.flip(), with_mask = random.flip();
    OneNode node = node_of(s, data, with_bias, with_mask);
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    const Values expected = naive(s, data, with_bias, with_mask);
    const double relative = tolerance(dtype, 2);
    CHECK(excess_error(expected, to_values((*outputs)[0]), relative, relative) <= 0.0);
  }
}

TEST_CASE("without offsets DeformConv is Conv") {
  Source random(112);
  Setup s = random_setup(random);
  s.offset_group = 1;
  Data data = make_operands(random, s, DVT_F64);
  data.offset = make_data(DVT_F64, data.offset.dims, Values(product(data.offset.dims), 0.0));
  OneNode conv("Conv", 11);
  Dims pads = s.pads_begin;
  pads.insert(pads.end(), s.pads_end.begin(), s.pads_end.end());
  conv.attribute("strides", s.strides).attribute("pads", pads).attribute("group", s.group);
  conv.attribute("dilations", s.dilations).constant(data.x).constant(data.w);
  OneNode deform = node_of(s, data, false, false);
  const auto expected = conv.evaluate();
  const auto got = deform.evaluate();
  REQUIRE(expected.ok());
  REQUIRE(got.ok());
  CHECK(excess_error(to_values((*expected)[0]), to_values((*got)[0]), 1e-12, 1e-12) <= 0.0);
}

TEST_CASE("nodes that break the rules are refused") {
  Source random(113);
  const auto evaluate = [&random](int64_t offsets, int64_t group, int64_t offset_group) {
    OneNode node("DeformConv", 19);
    node.attribute("group", group).attribute("offset_group", offset_group);
    node.constant(random.tensor(DVT_F32, {1, 2, 4, 4}));
    node.constant(random.tensor(DVT_F32, {2, 2, 2, 2}));
    node.constant(random.tensor(DVT_F32, {1, offsets, 3, 3}));
    return node.evaluate().ok();
  };
  CHECK(evaluate(8, 1, 1));
  CHECK_FALSE(evaluate(7, 1, 1));
  CHECK_FALSE(evaluate(8, 0, 1));
  CHECK_FALSE(evaluate(8, 3, 1));
  CHECK_FALSE(evaluate(8, 1, 3));
}

TEST_CASE("contexts of a crafted image") {
  Source random(114);
  for (int round = 0; round < 20; ++round) {
    const Setup s = random_setup(random);
    const Data data = make_operands(random, s, random.pick<DvtDType>({DVT_F32, DVT_F16}));
    OneNode node = node_of(s, data, random.flip(), random.flip());
    mutate(node, random, 300);
  }
}
