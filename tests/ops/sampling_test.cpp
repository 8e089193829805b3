// GridSample, AffineGrid, RoiAlign and MaxRoiPool against slow definitions.
#include "ops/kernels/sampling.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "ops/kernels/regions.h"
#include "tests/ops/harness.hpp"
#include "tests/ops/mutation.hpp"
#include "tests/ops/values.hpp"

using namespace davit;
using namespace davit::test;

namespace {

const std::vector<DvtDType> kTypes = {DVT_F32, DVT_F64, DVT_F16, DVT_BF16};
const std::vector<DvtDType> kRegionTypes = {DVT_F32, DVT_F64, DVT_F16};

// ---- GridSample -------------------------------------------------------------------------------

struct Sample {
  std::string mode, padding;  // Names of opset 20.
  bool align_corners;
};

// Bounces between two mirrors, one bounce at a time.
double bounce(double at, double low, double high) {
  if (high <= low) return low;
  while (at < low || at > high) at = at < low ? 2 * low - at : 2 * high - at;
  return at;
}

// The pixel for any whole place; -1 for a zero.
int64_t pixel(double at, int64_t extent, const Sample& s) {
  if (at >= 0 && at <= double(extent - 1)) return int64_t(at);
  if (s.padding == "zeros") return -1;
  if (s.padding == "border") return at < 0 ? 0 : extent - 1;
  const double edge = s.align_corners ? 0 : 0.5;
  return std::clamp<int64_t>(int64_t(bounce(at, -edge, double(extent - 1) + edge)), 0, extent - 1);
}

double place_of(double coordinate, int64_t extent, const Sample& s) {
  double at = s.align_corners ? (coordinate + 1) / 2 * double(extent - 1)
                              : ((coordinate + 1) * double(extent) - 1) / 2;
  if (s.mode == "nearest") at = std::nearbyint(at);
  const double edge = s.align_corners ? 0 : 0.5;
  if (at >= -edge && at <= double(extent - 1) + edge) return at;
  if (s.padding == "border") return std::clamp(at, 0.0, double(extent - 1));
  return s.padding == "zeros" ? at : bounce(at, -edge, double(extent - 1) + edge);
}

// The convolution kernel of cubic interpolation, a = -0.75.
double cubic(double distance) {
  const double d = std::fabs(distance), a = -0.75;
  if (d <= 1) return (a + 2) * d * d * d - (a + 3) * d * d + 1;
  return d < 2 ? a * d * d * d - 5 * a * d * d + 8 * a * d - 4 * a : 0;
}

double interpolate(const Values& image, const Dims& extents, const std::vector<double>& at,
                   const Sample& s, size_t axis, int64_t offset) {
  if (axis == extents.size()) return image[size_t(offset)];
  const double low = std::floor(at[axis]);
  double sum = 0;
  for (int i = -1; i <= 2; ++i) {
    const double tap = low + i;
    double weight =
        s.mode == "cubic" ? cubic(at[axis] - tap) : std::max(0.0, 1 - std::fabs(at[axis] - tap));
    if (s.mode == "nearest") weight = tap == at[axis] ? 1 : 0;
    const int64_t position = pixel(tap, extents[axis], s);
    if (weight == 0 || position < 0) continue;
    sum += weight * interpolate(image, extents, at, s, axis + 1, offset * extents[axis] + position);
  }
  return sum;
}

}  // namespace

TEST_CASE("GridSample equals its definition: modes, paddings, corners, one to three axes") {
  Source random(121);
  for (int round = 0; round < 400; ++round) {
    const auto dtype = random.pick(kTypes);
    const Sample s = {random.pick<std::string>({"linear", "nearest", "cubic"}),
                      random.pick<std::string>({"zeros", "border", "reflection"}), random.flip()};
    const int64_t spatial = random.between(1, 3);
    Dims extents, out;
    for (int64_t i = 0; i < spatial; ++i) {
      extents.push_back(random.between(1, 5));
      out.push_back(random.between(1, 3));
    }
    Dims x_dims = {2, 2}, grid_dims = {2};
    x_dims.insert(x_dims.end(), extents.begin(), extents.end());
    grid_dims.insert(grid_dims.end(), out.begin(), out.end());
    grid_dims.push_back(spatial);
    const auto x = random.tensor(dtype, x_dims);
    auto grid = random.tensor(random.pick(kTypes), grid_dims);  // In [-4, 4]: also far outside.
    if (random.flip()) {
      Values values = to_values(grid);
      for (double& value : values) value /= 4;
      grid = make_data(grid.dtype, grid_dims, values);
    }
    const bool old = spatial == 2 && random.flip();
    OneNode node("GridSample", old ? 16 : 20);
    std::string mode = s.mode;
    if (old && mode != "nearest") mode = "bi" + mode;
    node.attribute("mode", mode).attribute("padding_mode", s.padding);
    node.attribute("align_corners", int64_t{s.align_corners}).constant(x).constant(grid);
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    const Values values = to_values(x), coordinates = to_values(grid);
    const auto places = int64_t(product(out)), volume = int64_t(product(extents));
    Values expected;
    for (int64_t plane = 0; plane < 4; ++plane) {
      const Values image(values.begin() + plane * volume, values.begin() + (plane + 1) * volume);
      for (int64_t o = 0; o < places; ++o) {
        std::vector<double> at;
        for (int64_t i = 0; i < spatial; ++i) {
          const int64_t from = (plane / 2 * places + o) * spatial + spatial - 1 - i;
          at.push_back(place_of(coordinates[size_t(from)], extents[size_t(i)], s));
        }
        expected.push_back(interpolate(image, extents, at, s, 0, 0));
      }
    }
    INFO(s.mode, " ", s.padding, " ", s.align_corners);
    const double relative = tolerance(dtype, 2);
    CHECK(excess_error(expected, to_values((*outputs)[0]), relative, relative * 4) <= 0.0);
  }
}

TEST_CASE("GridSample: infinite and NaN coordinates") {
  for (const char* padding : {"zeros", "border", "reflection"}) {
    for (const char* mode : {"linear", "nearest", "cubic"}) {
      OneNode node("GridSample", 20);
      node.attribute("padding_mode", std::string(padding)).attribute("mode", std::string(mode));
      node.constant(make_data(DVT_F32, {1, 1, 3}, {1, 2, 4}));
      node.constant(make_data(DVT_F32, {1, 4, 1}, {NAN, INFINITY, -INFINITY, 1e30}));
      const auto outputs = node.evaluate();
      REQUIRE(outputs.ok());
      const Values got = to_values((*outputs)[0]);
      CHECK(std::isnan(got[0]));
      if (std::string(padding) == "zeros") CHECK(got[1] == 0.0);
      if (std::string(padding) == "border") CHECK(got[1] == doctest::Approx(4.0));
      if (std::string(padding) == "border") CHECK(got[2] == doctest::Approx(1.0));
    }
  }
}

TEST_CASE("AffineGrid equals theta times the base grid") {
  Source random(122);
  for (int round = 0; round < 100; ++round) {
    const auto dtype = random.pick(kTypes);
    const int64_t spatial = random.between(2, 3);
    std::vector<int64_t> size = {2, 3};
    for (int64_t i = 0; i < spatial; ++i) size.push_back(random.between(1, 4));
    const bool corners = random.flip();
    const auto theta = random.tensor(dtype, {2, spatial, spatial + 1});
    OneNode node("AffineGrid", 20);
    node.attribute("align_corners", int64_t{corners}).constant(theta).constant_i64(size);
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    const Dims extents(size.begin() + 2, size.end());
    const Values t = to_values(theta);
    Values expected;
    for (int64_t n = 0; n < 2; ++n) {
      for (int64_t o = 0; o < int64_t(product(extents)); ++o) {
        std::vector<double> at(size_t(spatial) + 1, 1.0);  // x, y, z, 1.
        int64_t rest = o;
        for (int64_t i = 0; i < spatial; ++i) {
          const auto extent = double(extents[size_t(spatial - 1 - i)]);
          const auto index = double(rest % int64_t(extent));
          rest /= int64_t(extent);
          at[size_t(i)] = corners ? (extent == 1 ? 0 : -1 + 2 * index / (extent - 1))
                                  : -1 + (2 * index + 1) / extent;
        }
        for (int64_t i = 0; i < spatial; ++i) {
          double sum = 0;
          for (size_t k = 0; k < at.size(); ++k) {
            sum += t[size_t((n * spatial + i) * (spatial + 1)) + k] * at[k];
          }
          expected.push_back(sum);
        }
      }
    }
    const double relative = tolerance(dtype, 1);
    CHECK(excess_error(expected, to_values((*outputs)[0]), relative, relative * 4) <= 0.0);
  }
}

// ---- Regions ----------------------------------------------------------------------------------

namespace {

// One pixel of an image, or a point between them, as RoiAlign sees it.
double point(const Values& image, int64_t height, int64_t width, double y, double x) {
  if (y < -1 || y > double(height) || x < -1 || x > double(width)) return 0;
  y = std::clamp(y, 0.0, double(height - 1));
  x = std::clamp(x, 0.0, double(width - 1));
  double sum = 0;
  for (int64_t i = 0; i < height; ++i) {
    for (int64_t j = 0; j < width; ++j) {
      const double weight =
          std::max(0.0, 1 - std::fabs(y - double(i))) * std::max(0.0, 1 - std::fabs(x - double(j)));
      sum += weight * image[size_t(i * width + j)];
    }
  }
  return sum;
}

}  // namespace

TEST_CASE("RoiAlign equals its definition") {
  Source random(123);
  for (int round = 0; round < 200; ++round) {
    const auto dtype = random.pick(kRegionTypes);
    const int64_t height = random.between(1, 6), width = random.between(1, 6);
    const int64_t channels = random.between(1, 20), regions = random.between(0, 3);
    const int64_t out_height = random.between(1, 3), out_width = random.between(1, 3);
    const int64_t ratio = random.between(0, 3);
    const bool maximum = random.flip();
    const int64_t opset = random.pick<int64_t>({10, 16});
    const bool half_pixel = opset == 16 && random.flip();
    const auto x = random.tensor(dtype, {2, channels, height, width});
    Values corners, batch;
    for (int64_t r = 0; r < regions; ++r) {
      for (int i = 0; i < 4; ++i) corners.push_back(double(random.between(-8, 40)) / 4);
      batch.push_back(double(random.between(0, 1)));
    }
    OneNode node("RoiAlign", opset);
    if (opset == 16) {
      node.attribute("coordinate_transformation_mode",
                     std::string(half_pixel ? "half_pixel" : "output_half_pixel"));
    }
    node.attribute("mode", std::string(maximum ? "max" : "avg")).attribute("sampling_ratio", ratio);
    node.attribute("output_height", out_height).attribute("output_width", out_width);
    node.attribute("spatial_scale", 0.75F).constant(x);
    node.constant(make_data(dtype, {regions, 4}, corners));
    node.constant(make_data(DVT_I64, {regions}, batch));
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    const Values values = to_values(x);
    Values expected;
    for (int64_t r = 0; r < regions; ++r) {
      const double* roi = corners.data() + 4 * r;
      const double shift = half_pixel ? 0.5 : 0;
      const double y0 = roi[1] * 0.75 - shift, x0 = roi[0] * 0.75 - shift;
      double h = (roi[3] - roi[1]) * 0.75, w = (roi[2] - roi[0]) * 0.75;
      if (!half_pixel) h = std::max(h, 1.0);
      if (!half_pixel) w = std::max(w, 1.0);
      h /= double(out_height);
      w /= double(out_width);
      const auto rows = int64_t(ratio > 0 ? double(ratio) : std::max(0.0, std::ceil(h)));
      const auto columns = int64_t(ratio > 0 ? double(ratio) : std::max(0.0, std::ceil(w)));
      for (int64_t c = 0; c < channels; ++c) {
        const auto begin =
            values.begin() + (int64_t(batch[size_t(r)]) * channels + c) * height * width;
        const Values image(begin, begin + height * width);
        for (int64_t bin = 0; bin < out_height * out_width; ++bin) {
          Values seen;
          for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = 0; j < columns; ++j) {
              const double py =
                  y0 + double(bin / out_width) * h + (double(i) + 0.5) * h / double(rows);
              const double px =
                  x0 + double(bin % out_width) * w + (double(j) + 0.5) * w / double(columns);
              seen.push_back(point(image, height, width, py, px));
            }
          }
          double result = 0;
          for (const double value : seen) result += value / double(seen.size());
          if (maximum && !seen.empty()) result = *std::max_element(seen.begin(), seen.end());
          expected.push_back(result);
        }
      }
    }
    const double relative = tolerance(dtype, 4);
    CHECK(excess_error(expected, to_values((*outputs)[0]), relative, relative * 8) <= 0.0);
  }
}

TEST_CASE("MaxRoiPool equals its definition") {
  Source random(124);
  for (int round = 0; round < 150; ++round) {
    const auto dtype = random.pick(kRegionTypes);
    const int64_t height = random.between(1, 6), width = random.between(1, 6);
    const auto x = random.tensor(dtype, {2, 2, height, width});
    const int64_t out_height = random.between(1, 3), out_width = random.between(1, 3);
    Values rois;
    for (int64_t r = 0; r < 2; ++r) {
      rois.push_back(double(random.between(0, 1)));
      for (int i = 0; i < 4; ++i) rois.push_back(double(random.between(-4, 14)));
    }
    OneNode node("MaxRoiPool", 1);
    node.attribute("pooled_shape", Dims{out_height, out_width}).attribute("spatial_scale", 0.5F);
    node.constant(x).constant(make_data(dtype, {2, 5}, rois));
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    const Values values = to_values(x);
    Values expected;
    for (int64_t r = 0; r < 2; ++r) {
      const double* roi = rois.data() + 5 * r;
      const double x1 = std::round(roi[1] * 0.5), y1 = std::round(roi[2] * 0.5);
      const double w = std::max(std::round(roi[3] * 0.5) - x1 + 1, 1.0) / double(out_width);
      const double h = std::max(std::round(roi[4] * 0.5) - y1 + 1, 1.0) / double(out_height);
      for (int64_t c = 0; c < 2; ++c) {
        for (int64_t i = 0; i < out_height; ++i) {
          for (int64_t j = 0; j < out_width; ++j) {
            double best = -INFINITY;
            for (int64_t v = 0; v < height; ++v) {
              for (int64_t u = 0; u < width; ++u) {
                const bool inside = double(v) >= y1 + std::floor(double(i) * h) &&
                                    double(v) < y1 + std::ceil(double(i + 1) * h) &&
                                    double(u) >= x1 + std::floor(double(j) * w) &&
                                    double(u) < x1 + std::ceil(double(j + 1) * w);
                const auto at = size_t(((int64_t(roi[0]) * 2 + c) * height + v) * width + u);
                if (inside) best = std::max(best, values[at]);
              }
            }
            expected.push_back(best == -INFINITY ? 0 : best);
          }
        }
      }
    }
    CHECK(to_values((*outputs)[0]) == expected);
  }
}

TEST_CASE("regions of nonsense stop the run, and huge ones do not hang it") {
  const auto align = [](const Values& roi, double image) {
    OneNode node("RoiAlign", 16);
    node.constant(make_data(DVT_F32, {1, 1, 2, 2}, {1, 2, 3, 4}));
    node.constant(make_data(DVT_F32, {1, 4}, roi)).constant(make_data(DVT_I64, {1}, {image}));
    return node.evaluate();
  };
  CHECK_FALSE(align({0, 0, 1, 1}, 1).ok());
  CHECK_FALSE(align({0, 0, 1, 1}, -1).ok());
  CHECK_FALSE(align({0, NAN, 1, 1}, 0).ok());
  CHECK_FALSE(align({0, 0, 1e30, 1}, 0).ok());
  const auto huge = align({-1e8, -1e8, 1e8, 1e8}, 0);
  REQUIRE(huge.ok());
  CHECK(to_values((*huge)[0])[0] == doctest::Approx(0.0));
  OneNode pool("MaxRoiPool", 1);
  pool.attribute("pooled_shape", Dims{1, 1}).constant(make_data(DVT_F32, {1, 1, 1, 1}, {1}));
  pool.constant(make_data(DVT_F32, {1, 5}, {0.5, 0, 0, 1, 1}));
  CHECK_FALSE(pool.evaluate().ok());
}

TEST_CASE("nodes that break the rules are refused") {
  Source random(125);
  const auto sample = [&random](const char* name, const char* value, const Dims& grid) {
    OneNode node("GridSample", 20);
    node.attribute(name, std::string(value)).constant(random.tensor(DVT_F32, {1, 1, 4, 4}));
    node.constant(random.tensor(DVT_F32, grid));
    return node.infer().ok();
  };
  CHECK(sample("mode", "linear", {1, 2, 2, 2}));
  CHECK_FALSE(sample("mode", "bilinear", {1, 2, 2, 2}));
  CHECK_FALSE(sample("padding_mode", "mirror", {1, 2, 2, 2}));
  CHECK_FALSE(sample("mode", "linear", {2, 2, 2, 2}));
  CHECK_FALSE(sample("mode", "linear", {1, 2, 2, 3}));
  CHECK_FALSE(sample("mode", "linear", {1, 2, 2}));
  const auto affine = [&random](const Dims& theta, const std::vector<int64_t>& size) {
    OneNode node("AffineGrid", 20);
    node.constant(random.tensor(DVT_F32, theta)).constant_i64(size);
    return node.infer().ok();
  };
  CHECK(affine({1, 2, 3}, {1, 1, 2, 2}));
  CHECK_FALSE(affine({1, 2, 4}, {1, 1, 2, 2}));
  CHECK_FALSE(affine({1, 2, 3}, {1, 1, 2, 2, 2}));
  CHECK_FALSE(affine({1, 2, 3}, {1, 1, 2, -2}));
}

TEST_CASE("contexts of a crafted image") {
  Source random(126);
  for (int round = 0; round < 10; ++round) {
    const auto dtype = random.pick(kRegionTypes);
    OneNode sample("GridSample", 16);
    sample.constant(random.tensor(dtype, {1, 2, 4, 3}));
    sample.constant(random.tensor(DVT_F32, {1, 2, 3, 2}));
    mutate(sample, random, 300);
    OneNode affine("AffineGrid", 20);
    affine.constant(random.tensor(dtype, {2, 2, 3})).constant_i64({2, 1, 3, 2});
    mutate(affine, random, 300, 2);
    OneNode align("RoiAlign", 16);
    align.attribute("output_height", int64_t{2}).constant(random.tensor(dtype, {2, 2, 4, 3}));
    align.constant(random.tensor(dtype, {3, 4})).constant(make_data(DVT_I64, {3}, {0, 1, 1}));
    mutate(align, random, 300);
    OneNode pool("MaxRoiPool", 1);
    pool.attribute("pooled_shape", Dims{2, 2}).constant(random.tensor(dtype, {2, 2, 4, 3}));
    pool.constant(make_data(dtype, {2, 5}, {0, 0, 0, 2, 2, 1, 1, 1, 3, 2}));
    mutate(pool, random, 300);
  }
}
