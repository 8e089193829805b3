// Conv and ConvTranspose against sums written down naively, in double.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "ops/kernels/convolution.h"
#include "ops/kernels/gemm.h"
#include "tests/ops/harness.hpp"
#include "tests/ops/values.hpp"

using namespace davit;
using namespace davit::test;

namespace {

// A random convolution. Spatial lists have one entry per dim.
struct Config {
  int64_t batch, group, in_channels, out_channels;  // Channels per group.
  Dims in, kernel, strides, dilations, pads_begin, pads_end;
  bool bias;

  [[nodiscard]] size_t spatial() const { return in.size(); }
  [[nodiscard]] Dims x_dims() const { return joined(batch, group * in_channels, in); }
  [[nodiscard]] Dims pads() const {
    Dims all = pads_begin;
    all.insert(all.end(), pads_end.begin(), pads_end.end());
    return all;
  }
  static Dims joined(int64_t a, int64_t b, const Dims& tail) {
    Dims dims = {a, b};
    dims.insert(dims.end(), tail.begin(), tail.end());
    return dims;
  }
  [[nodiscard]] int64_t reach(size_t i) const { return (kernel[i] - 1) * dilations[i] + 1; }
};

Config random_config(Source& random, size_t spatial, bool big) {
  Config c{.batch = random.between(1, 2),
           .group = random.between(1, 3),
           .in_channels = random.between(1, big ? 9 : 3),
           .out_channels = random.between(1, big ? 15 : 4),
           .bias = random.flip()};
  for (size_t i = 0; i < spatial; ++i) {
    c.kernel.push_back(random.between(1, 4));
    c.strides.push_back(random.between(1, 3));
    c.dilations.push_back(random.between(1, 3));
    c.pads_begin.push_back(random.between(0, random.flip() ? 7 : 1));
    c.pads_end.push_back(random.between(0, random.flip() ? 7 : 1));
    const int64_t least = c.reach(i) - c.pads_begin[i] - c.pads_end[i];
    c.in.push_back(std::max<int64_t>(least, 1) +
                   random.between(0, big && i + 1 == spatial ? 40 : 5));
  }
  return c;
}

// Walks all indices below `dims`, row-major.
template <class Body>
void for_each(const Dims& dims, Body body) {
  Dims index(dims.size(), 0);
  for (int64_t n = product(dims); n > 0; --n) {
    body(index);
    for (size_t i = dims.size(); i-- > 0;) {
      if (++index[i] < dims[i]) break;
      index[i] = 0;
    }
  }
}

int64_t offset_of(const Dims& dims, const Dims& index) {
  int64_t offset = 0;
  for (size_t i = 0; i < dims.size(); ++i) offset = offset * dims[i] + index[i];
  return offset;
}

Dims conv_output(const Config& c) {
  Dims out;
  for (size_t i = 0; i < c.spatial(); ++i) {
    out.push_back((c.in[i] + c.pads_begin[i] + c.pads_end[i] - c.reach(i)) / c.strides[i] + 1);
  }
  return Config::joined(c.batch, c.group * c.out_channels, out);
}

// Returns the sums and, in `scale`, the sums of absolute values that bound rounding errors.
Values naive_conv(const Config& c, const Values& x, const Values& w, const Values& b,
                  Values& scale) {
  const Dims x_dims = c.x_dims();
  const Dims w_dims = Config::joined(c.group * c.out_channels, c.in_channels, c.kernel);
  const Dims taps = Config::joined(1, c.in_channels, c.kernel);
  Values y;
  for_each(conv_output(c), [&](const Dims& o) {
    double sum = 0;
    double absolute = 0;
    for_each(taps, [&](const Dims& t) {
      Dims x_index = {o[0], o[1] / c.out_channels * c.in_channels + t[1]};
      Dims w_index = {o[1], t[1]};
      bool inside = true;
      for (size_t i = 0; i < c.spatial(); ++i) {
        const int64_t at = o[i + 2] * c.strides[i] - c.pads_begin[i] + t[i + 2] * c.dilations[i];
        inside = inside && at >= 0 && at < c.in[i];
        x_index.push_back(at);
        w_index.push_back(t[i + 2]);
      }
      if (!inside) return;
      const double term =
          x[size_t(offset_of(x_dims, x_index))] * w[size_t(offset_of(w_dims, w_index))];
      sum += term;
      absolute += std::fabs(term);
    });
    if (c.bias) sum += b[size_t(o[1])];
    if (c.bias) absolute += std::fabs(b[size_t(o[1])]);
    y.push_back(sum);
    scale.push_back(absolute);
  });
  return y;
}

// Scatters, where the kernel gathers.
Values naive_transpose(const Config& c, const Dims& y_dims, const Values& x, const Values& w,
                       const Values& b) {
  const Dims w_dims = Config::joined(c.group * c.in_channels, c.out_channels, c.kernel);
  const Dims taps = Config::joined(1, c.out_channels, c.kernel);
  const Dims x_dims = c.x_dims();
  Values y(size_t(product(y_dims)), 0.0);
  for_each(x_dims, [&](const Dims& p) {
    const double value = x[size_t(offset_of(x_dims, p))];
    for_each(taps, [&](const Dims& t) {
      Dims y_index = {p[0], p[1] / c.in_channels * c.out_channels + t[1]};
      Dims w_index = {p[1], t[1]};
      bool inside = true;
      for (size_t i = 0; i < c.spatial(); ++i) {
        const int64_t at = p[i + 2] * c.strides[i] - c.pads_begin[i] + t[i + 2] * c.dilations[i];
        inside = inside && at >= 0 && at < y_dims[i + 2];
        y_index.push_back(at);
        w_index.push_back(t[i + 2]);
      }
      if (inside) {
        y[size_t(offset_of(y_dims, y_index))] += value * w[size_t(offset_of(w_dims, w_index))];
      }
    });
  });
  if (c.bias) {
    for_each(y_dims, [&](const Dims& o) { y[size_t(offset_of(y_dims, o))] += b[size_t(o[1])]; });
  }
  return y;
}

OneNode conv_node(const char* op, int64_t opset, const Config& c) {
  OneNode node(op, opset);
  node.attribute("kernel_shape", c.kernel)
      .attribute("strides", c.strides)
      .attribute("dilations", c.dilations)
      .attribute("pads", c.pads())
      .attribute("group", c.group);
  return node;
}

DvtConvAttributes record_of(const Config& c) {
  DvtConvAttributes record{};
  record.group = c.group;
  for (size_t i = 0; i < c.spatial(); ++i) {
    record.window.strides[i] = c.strides[i];
    record.window.dilations[i] = c.dilations[i];
    record.window.pads_begin[i] = c.pads_begin[i];
    record.window.pads_end[i] = c.pads_end[i];
  }
  return record;
}

DvtConvTransposeAttributes transpose_record_of(const Config& c, const Dims& extra) {
  const DvtConvAttributes conv = record_of(c);
  DvtConvTransposeAttributes record{
      .group = conv.group, .window = conv.window, .output_padding = {}, .output_shape = {}};
  std::copy(extra.begin(), extra.end(), record.output_padding);
  return record;
}

bool same_bits(const ir::TensorData& a, const ir::TensorData& b) {
  return a.dims == b.dims && *a.bytes == *b.bytes;
}

}  // namespace

TEST_CASE("Conv equals the naive sum, for every dtype and rank") {
  Source random(1);
  for (int round = 0; round < 300; ++round) {
    const DvtDType dtype = random.pick<DvtDType>({DVT_F32, DVT_F64, DVT_F16, DVT_BF16});
    const Config c = random_config(random, size_t(random.between(1, 3)), false);
    const auto x = random.tensor(dtype, c.x_dims());
    const auto w =
        random.tensor(dtype, Config::joined(c.group * c.out_channels, c.in_channels, c.kernel));
    const auto b = random.tensor(dtype, {c.group * c.out_channels});
    OneNode node = conv_node("Conv", 11, c);
    node.constant(x).constant(w);
    if (c.bias) node.constant(b);
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    CHECK((*outputs)[0].dims == conv_output(c));
    Values scale;
    const Values expected = naive_conv(c, to_values(x), to_values(w), to_values(b), scale);
    const Values got = to_values((*outputs)[0]);
    const double steps = tolerance(dtype, product(c.kernel) * c.in_channels);
    REQUIRE(expected.size() == got.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      REQUIRE(std::fabs(expected[i] - got[i]) <= steps * scale[i]);
    }
  }
}

TEST_CASE("Conv f32: the blocked and the simple path give the same bits") {
  Source random(2);
  for (int round = 0; round < 150; ++round) {
    Config c = random_config(random, size_t(random.between(1, 3)), true);
    if (round % 3 == 0) {  // Pointwise, more k than one block, more columns than one.
      c.in_channels = random.between(250, 600);
      for (size_t i = 0; i < c.spatial(); ++i) {
        c.kernel[i] = c.dilations[i] = 1;
        c.strides[i] = random.between(1, 2);
        c.pads_begin[i] = c.pads_end[i] = random.between(0, 1);
        c.in[i] = i + 1 == c.spatial() ? random.between(200, 600) : 1;
      }
      c.group = 1;
    }
    const auto x = random.rough_tensor(c.x_dims());
    const auto w =
        random.rough_tensor(Config::joined(c.group * c.out_channels, c.in_channels, c.kernel));
    const auto b = random.rough_tensor({c.group * c.out_channels});
    std::vector<ir::TensorData> inputs = {x, w};
    if (c.bias) inputs.push_back(b);
    const DvtConvAttributes record = record_of(c);
    const Dims y = conv_output(c);
    CHECK(same_bits(
        call_kernel("Conv.f32", &record, inputs, DVT_F32, y),
        call_kernel("Conv.f32", &record, inputs, DVT_F32, y, dvt_conv_workspace_bytes())));
  }
}

TEST_CASE("a pad is a zero that is multiplied, on both paths") {
  const float inf = std::numeric_limits<float>::infinity();
  for (const int64_t channels : {1, 2}) {  // Direct and blocked.
    for (const bool blocked : {false, true}) {
      DvtConvAttributes record{
          .group = 1, .window = {{1, 1, 1}, {1, 1, 1}, {1, 0, 0}, {1, 0, 0}, DVT_PADS_STATED}};
      const Values ones(size_t(2 * channels), 1.0);
      const Values infinities(size_t(2 * channels), inf);
      const auto y = call_kernel("Conv.f32", &record,
                                 {make_data(DVT_F32, {1, channels, 2}, ones),
                                  make_data(DVT_F32, {1, channels, 2}, infinities)},
                                 DVT_F32, {1, 1, 3}, blocked ? dvt_conv_workspace_bytes() : 0);
      const Values got = to_values(y);
      CHECK(std::isnan(got[0]));
      CHECK(got[1] == inf);
      CHECK(std::isnan(got[2]));
    }
  }
}

TEST_CASE("every vector width of the matrix product gives the same bits") {
  Source random(3);
  std::vector<DvtGemmBlockFn> blocks = {dvt_gemm_block_generic};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) blocks.push_back(dvt_gemm_block_avx2);
  if (__builtin_cpu_supports("avx512f")) blocks.push_back(dvt_gemm_block_avx512);
#endif
  for (int round = 0; round < 60; ++round) {
    const int64_t m = random.between(1, 20);
    const int64_t rows = random.between(1, 40);
    const int64_t columns = random.between(1, 50);
    const int64_t panels = (columns + DVT_GEMM_PANEL - 1) / DVT_GEMM_PANEL;
    const auto a = random.rough_tensor({m, 2 * rows});
    const auto b = random.rough_tensor({panels * rows * DVT_GEMM_PANEL});
    const auto bias = random.rough_tensor({m});
    std::vector<std::vector<float>> results;
    for (const DvtGemmBlockFn block : blocks) {
      std::vector<float> c(size_t(m * columns), 7.0F);
      DvtGemm gemm{};
      gemm.m = m;
      gemm.n = columns;
      gemm.k = 2 * rows;
      gemm.a = a.as<float>().data();
      gemm.a_row = 2 * rows;
      gemm.a_column = 1;
      gemm.bias = bias.as<float>().data();
      gemm.c = c.data();
      gemm.c_row = columns;
      block(&gemm, 0, rows, 0, columns, b.as<float>().data());
      block(&gemm, rows, rows, 0, columns, b.as<float>().data());
      results.push_back(c);
    }
    for (const auto& result : results) {
      CHECK(std::memcmp(result.data(), results[0].data(), result.size() * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("Conv: auto_pad") {
  struct Case {
    const char* auto_pad;
    int64_t in, kernel, stride, dilation, out, begin;
  };
  const Case cases[] = {
      {"VALID", 7, 3, 2, 1, 3, 0},      {"SAME_UPPER", 7, 3, 2, 1, 4, 1},
      {"SAME_UPPER", 6, 3, 2, 1, 3, 0}, {"SAME_LOWER", 6, 3, 2, 1, 3, 1},
      {"SAME_UPPER", 5, 2, 1, 2, 5, 1}, {"SAME_LOWER", 6, 1, 4, 1, 2, 0},
  };
  Source random(4);
  for (const Case& k : cases) {
    INFO(k.auto_pad);
    const auto x = random.tensor(DVT_F32, {1, 1, k.in});
    const auto w = random.tensor(DVT_F32, {1, 1, k.kernel});
    const auto run = [&](const char* name, const ir::AttributeValue& value) {
      OneNode node("Conv", 11);
      node.attribute(name, value)
          .attribute("strides", Dims{k.stride})
          .attribute("dilations", Dims{k.dilation})
          .constant(x)
          .constant(w);
      auto outputs = node.evaluate();
      REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
      return (*outputs)[0];
    };
    const auto y = run("auto_pad", std::string(k.auto_pad));
    CHECK(y.dims[2] == k.out);
    const int64_t needed = (k.out - 1) * k.stride + (k.kernel - 1) * k.dilation + 1 - k.in;
    const int64_t total = std::max<int64_t>(needed, 0);
    CHECK(same_bits(y, run("pads", Dims{k.begin, std::max<int64_t>(total - k.begin, 0)})));
  }
}

TEST_CASE("ConvTranspose equals the naive scatter, on both paths") {
  Source random(5);
  for (int round = 0; round < 200; ++round) {
    const DvtDType dtype = random.pick<DvtDType>({DVT_F32, DVT_F32, DVT_F64, DVT_F16, DVT_BF16});
    Config c = random_config(random, size_t(random.between(1, 3)), false);
    Dims extra, y_spatial;
    for (size_t i = 0; i < c.spatial(); ++i) {
      extra.push_back(random.between(0, 2));
      const int64_t full = c.strides[i] * (c.in[i] - 1) + extra[i] + c.reach(i);
      c.pads_begin[i] = std::min(c.pads_begin[i], full / 2);
      c.pads_end[i] = std::min(c.pads_end[i], (full - 1) / 2);
      y_spatial.push_back(full - c.pads_begin[i] - c.pads_end[i]);
    }
    const Dims y_dims = Config::joined(c.batch, c.group * c.out_channels, y_spatial);
    const auto x = random.tensor(dtype, c.x_dims());
    const auto w =
        random.tensor(dtype, Config::joined(c.group * c.in_channels, c.out_channels, c.kernel));
    const auto b = random.tensor(dtype, {c.group * c.out_channels});
    OneNode node = conv_node("ConvTranspose", 11, c);
    node.attribute("output_padding", extra).constant(x).constant(w);
    if (c.bias) node.constant(b);
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    REQUIRE((*outputs)[0].dims == y_dims);
    const Values expected = naive_transpose(c, y_dims, to_values(x), to_values(w), to_values(b));
    const double steps = tolerance(dtype, product(c.kernel) * c.in_channels);
    CHECK(excess_error(expected, to_values((*outputs)[0]), steps, steps * 64.0) <= 0.0);
    if (dtype != DVT_F32) continue;
    std::vector<ir::TensorData> inputs = {x, w};
    if (c.bias) inputs.push_back(b);
    const DvtConvTransposeAttributes record = transpose_record_of(c, extra);
    CHECK(same_bits(call_kernel("ConvTranspose.f32", &record, inputs, DVT_F32, y_dims),
                    (*outputs)[0]));
  }
}

TEST_CASE("ConvTranspose f32: the paths agree in every bit beyond one block") {
  Source random(6);
  for (const int64_t width : {255, 300, 513}) {
    const Config c{.batch = 1,
                   .group = 2,
                   .in_channels = 5,
                   .out_channels = 3,
                   .in = {2, width},
                   .kernel = {2, 3},
                   .strides = {1, 2},
                   .dilations = {1, 2},
                   .pads_begin = {0, 1},
                   .pads_end = {0, 1},
                   .bias = true};
    const Dims y_dims = {1, 6, 3, 2 * (width - 1) + 5 - 2};
    const std::vector<ir::TensorData> inputs = {random.rough_tensor(c.x_dims()),
                                                random.rough_tensor({10, 3, 2, 3}),
                                                random.rough_tensor({6})};
    const DvtConvTransposeAttributes record = transpose_record_of(c, {0, 0});
    const uint64_t workspace = dvt_conv_transpose_workspace_bytes(3 * 6);
    CHECK(same_bits(call_kernel("ConvTranspose.f32", &record, inputs, DVT_F32, y_dims),
                    call_kernel("ConvTranspose.f32", &record, inputs, DVT_F32, y_dims, workspace)));
  }
}

TEST_CASE("ConvTranspose: output_shape and auto_pad choose the pads") {
  Source random(7);
  const auto x = random.tensor(DVT_F32, {1, 1, 4});
  const auto w = random.tensor(DVT_F32, {1, 1, 3});
  const auto run = [&](const char* auto_pad, const Dims& output_shape, int64_t begin, int64_t out) {
    OneNode node("ConvTranspose", 11);
    node.attribute("auto_pad", std::string(auto_pad)).attribute("strides", Dims{2});
    if (!output_shape.empty()) node.attribute("output_shape", output_shape);
    node.constant(x).constant(w);
    const auto y = node.evaluate();
    REQUIRE_MESSAGE(y.ok(), y.status().to_string());
    CHECK((*y)[0].dims[2] == out);
    // The same part of the full output, and zeros where no window reaches.
    OneNode all("ConvTranspose", 11);
    all.attribute("strides", Dims{2}).constant(x).constant(w);
    const auto full = all.evaluate();
    REQUIRE(full.ok());
    Values expected = to_values((*full)[0]);
    expected.erase(expected.begin(), expected.begin() + begin);
    expected.resize(size_t(out), 0.0);
    CHECK(to_values((*y)[0]) == expected);
  };
  run("NOTSET", {}, 0, 9);
  run("NOTSET", {8}, 1, 8);
  run("SAME_UPPER", {8}, 0, 8);
  run("SAME_UPPER", {}, 0, 8);
  run("SAME_LOWER", {}, 1, 8);
  run("NOTSET", {12}, 0, 12);  // Wider than the windows reach: the rest is bias.
}

TEST_CASE("empty tensors") {
  Source random(8);
  for (const char* op : {"Conv", "ConvTranspose"}) {
    INFO(op);
    OneNode no_batch(op, 11);
    no_batch.constant(random.tensor(DVT_F32, {0, 2, 5}))
        .constant(random.tensor(DVT_F32, {2, 2, 3}));
    const auto none = no_batch.evaluate();
    REQUIRE_MESSAGE(none.ok(), none.status().to_string());
    CHECK((*none)[0].bytes->empty());
    OneNode no_channels(op, 11);
    const bool transpose = std::string(op) == "ConvTranspose";
    no_channels.constant(random.tensor(DVT_F32, {1, 0, 5}))
        .constant(random.tensor(DVT_F32, transpose ? Dims{0, 2, 3} : Dims{2, 0, 3}))
        .constant(make_data(DVT_F32, {2}, {1.0, -2.0}));
    const auto bias = no_channels.evaluate();
    REQUIRE_MESSAGE(bias.ok(), bias.status().to_string());
    const Values values = to_values((*bias)[0]);
    CHECK(values.front() == 1.0);
    CHECK(values.back() == -2.0);
  }
}

TEST_CASE("padding is zeros that are multiplied, also around nothing") {
  for (const DvtDType dtype : {DVT_F32, DVT_F64, DVT_F16}) {
    for (const int64_t extent : {0, 1}) {
      for (const int64_t channels : {1, 2}) {
        CAPTURE(extent);
        CAPTURE(channels);
        OneNode node("Conv", 11);
        Values weights(size_t(channels) * 3, 0.0);
        weights[0] = std::numeric_limits<double>::infinity();
        node.attribute("pads", Dims{2, 2})
            .constant(
                make_data(dtype, {1, channels, extent}, Values(size_t(channels * extent), 1.0)))
            .constant(make_data(dtype, {1, channels, 3}, weights))
            .constant(make_data(dtype, {1}, {1.0}));
        const auto y = node.evaluate();
        REQUIRE_MESSAGE(y.ok(), y.status().to_string());
        const Values values = to_values((*y)[0]);
        REQUIRE(values.size() == size_t(2 + extent));
        // Where the infinite weight meets padding there is no number.
        for (size_t i = 0; i < values.size(); ++i) {
          CHECK(std::isnan(values[i]) == !(extent == 1 && i == 2));
        }
      }
    }
  }
}

TEST_CASE("Conv: shapes with unknown dims") {
  OneNode node("Conv", 11);
  const ir::Dim n = node.symbol("N");
  const ir::Dim h = node.symbol("H");
  node.attribute("pads", Dims{1, 0, 1, 0})
      .input(DVT_F32, {n, ir::Dim(3), h, ir::Dim(10)})
      .input(DVT_F32, {ir::Dim(8), ir::Dim(3), ir::Dim(3), ir::Dim(3)});
  REQUIRE(node.infer().ok());
  const auto shape = *node.found[0].shape;
  CHECK(shape[0] == n);
  CHECK(shape[1] == ir::Dim(8));
  CHECK(shape[2] == h);  // Padded to keep its extent.
  CHECK(shape[3] == ir::Dim(8));
  OneNode unknown("Conv", 11);
  unknown.unknown_input().unknown_input();
  REQUIRE(unknown.infer().ok());
  CHECK(!unknown.found[0].shape.has_value());
}

TEST_CASE("Conv and ConvTranspose: nodes that break the rules are refused") {
  Source random(9);
  const auto refuse = [&](const char* op, Dims x, Dims w, const char* name,
                          ir::AttributeValue value) {
    OneNode node(op, 11);
    node.attribute(name, std::move(value))
        .constant(random.tensor(DVT_F32, std::move(x)))
        .constant(random.tensor(DVT_F32, std::move(w)));
    const Status status = node.infer();
    CHECK_FALSE(status.ok());
    CHECK(!status.to_string().empty());
  };
  for (const char* op : {"Conv", "ConvTranspose"}) {
    refuse(op, {1, 2, 5}, {2, 2, 3}, "group", int64_t{0});
    refuse(op, {1, 2, 5}, {2, 2, 3}, "group", int64_t{3});
    refuse(op, {1, 3, 5}, {2, 2, 3}, "group", int64_t{1});
    refuse(op, {1, 2, 5}, {2, 2, 3}, "strides", Dims{0});
    refuse(op, {1, 2, 5}, {2, 2, 3}, "strides", Dims{1, 1});
    refuse(op, {1, 2, 5}, {2, 2, 3}, "dilations", Dims{-1});
    refuse(op, {1, 2, 5}, {2, 2, 3}, "pads", Dims{-1, 0});
    refuse(op, {1, 2, 5}, {2, 2, 3}, "kernel_shape", Dims{4});
    refuse(op, {1, 2, 5}, {2, 2, 3}, "auto_pad", std::string("SAME"));
    refuse(op, {1, 2}, {2, 2}, "group", int64_t{1});
    refuse(op, {1, 2, 5, 5}, {2, 2, 3}, "group", int64_t{1});
    refuse(op, {1, 2, 1, 1, 1, 1}, {2, 2, 1, 1, 1, 1}, "group", int64_t{1});
  }
  refuse("Conv", {1, 2, 2}, {2, 2, 3}, "group", int64_t{1});  // The window does not fit.
  refuse("ConvTranspose", {1, 2, 2}, {2, 2, 1}, "pads", Dims{9, 9});
}

TEST_CASE("Conv: cost counts the implicit product") {
  OneNode node("Conv", 11);
  node.attribute("group", int64_t{2})
      .input(DVT_F32, {ir::Dim(3), ir::Dim(8), ir::Dim(10), ir::Dim(12)})
      .input(DVT_F32, {ir::Dim(6), ir::Dim(4), ir::Dim(3), ir::Dim(3)});
  REQUIRE(node.infer().ok());
  const DvtTaskCost cost = cost_of(node);
  CHECK(cost.kind == DVT_TASK_CONV);
  CHECK(cost.batch == 2);
  CHECK(cost.m == 3 * 8 * 10);
  CHECK(cost.n == 3);
  CHECK(cost.k == 4 * 9);
  CHECK(cost.read_bytes == 4 * (3 * 8 * 120 + 6 * 4 * 9));
  CHECK(cost.write_bytes == 4 * 3 * 6 * 80);
}
