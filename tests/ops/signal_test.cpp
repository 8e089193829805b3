// DFT, STFT, MelWeightMatrix and the windows against their formulas.
#include "ops/kernels/signal.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

#include "ops/kernels/fft.h"
#include "tests/ops/harness.hpp"
#include "tests/ops/mutation.hpp"
#include "tests/ops/values.hpp"

using namespace davit;
using namespace davit::test;

namespace {

const std::vector<DvtDType> kTypes = {DVT_F32, DVT_F64, DVT_F16, DVT_BF16};
using Complex = std::complex<double>;

// The definition, one root at a time.
std::vector<Complex> naive_dft(const std::vector<Complex>& x, bool inverse) {
  const auto n = int64_t(x.size());
  std::vector<Complex> y(x.size());
  for (int64_t k = 0; k < n; ++k) {
    for (int64_t i = 0; i < n; ++i) {
      const double angle = 2 * std::numbers::pi * double(i * k % n) / double(n);
      y[size_t(k)] += x[size_t(i)] * std::polar(1.0, inverse ? angle : -angle);
    }
    if (inverse) y[size_t(k)] /= double(n);
  }
  return y;
}

ir::TensorData scalar_i64(int64_t value) {
  return ir::make_i64_tensor({}, {value});
}

}  // namespace

TEST_CASE("transforms of every length equal the definition") {
  Source random(141);
  std::vector<int64_t> lengths = {128, 240, 257, 512, 1000};
  for (int64_t n = 1; n <= 40; ++n) lengths.push_back(n);
  for (const int64_t n : lengths) {
    std::vector<double> workspace(size_t(dvt_fft_workspace_doubles(n)));
    const DvtFft fft = dvt_fft_prepare(n, workspace.data());
    for (const bool inverse : {false, true}) {
      const Values values = to_values(random.tensor(DVT_F64, {n, 2}));
      std::vector<Complex> x;
      for (size_t i = 0; i < values.size(); i += 2) x.emplace_back(values[i], values[i + 1]);
      std::vector<double> data = values;
      dvt_fft_run(&fft, data.data(), inverse);
      const auto expected = naive_dft(x, inverse);
      double worst = 0;
      for (size_t k = 0; k < x.size(); ++k) {
        const Complex got = Complex(data[2 * k], data[2 * k + 1]) / (inverse ? double(n) : 1.0);
        worst = std::max(worst, std::abs(got - expected[k]));
      }
      INFO("length ", n);
      CHECK(worst < 1e-12 * double(n));
    }
  }
}

TEST_CASE("DFT along every axis: lengths, parts, directions, opsets") {
  Source random(142);
  for (int round = 0; round < 200; ++round) {
    const auto dtype = random.pick(kTypes);
    const auto rank = size_t(random.between(2, 4));
    Dims dims(rank);
    for (int64_t& dim : dims) dim = random.between(1, 7);
    const int64_t parts = random.between(1, 2);
    dims.back() = parts;
    const int64_t axis = random.between(0, int64_t(rank) - 2);
    const bool inverse = random.flip();
    const bool onesided = !inverse && parts == 1 && random.flip();
    const bool with_length = random.flip();
    const int64_t n = with_length ? random.between(1, 9) : dims[size_t(axis)];
    const auto x = random.tensor(dtype, dims);
    const bool old = random.flip();
    const int64_t stated = random.flip() ? axis : axis - int64_t(rank);
    OneNode node("DFT", old ? 17 : 20);
    node.attribute("inverse", int64_t{inverse}).attribute("onesided", int64_t{onesided});
    node.constant(x);
    if (with_length) node.constant(scalar_i64(n));
    if (old) {
      node.attribute("axis", stated);
    } else if (stated != -2 || random.flip()) {
      if (!with_length) node.absent_input();
      node.constant(scalar_i64(stated));
    }
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    const Values values = to_values(x);
    const int64_t bins = onesided ? n / 2 + 1 : n, extent = dims[size_t(axis)];
    const auto inner = int64_t(product(Dims(dims.begin() + axis + 1, dims.end() - 1)));
    const auto outer = int64_t(product(Dims(dims.begin(), dims.begin() + axis)));
    Values expected(size_t(outer * bins * inner * 2));
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < inner; ++i) {
        std::vector<Complex> frame(static_cast<size_t>(n));
        for (int64_t k = 0; k < std::min(n, extent); ++k) {
          const auto at = size_t(((o * extent + k) * inner + i) * parts);
          frame[size_t(k)] = {values[at], parts == 2 ? values[at + 1] : 0};
        }
        const auto spectrum = naive_dft(frame, inverse);
        for (int64_t k = 0; k < bins; ++k) {
          const auto at = size_t(((o * bins + k) * inner + i) * 2);
          expected[at] = spectrum[size_t(k)].real();
          expected[at + 1] = spectrum[size_t(k)].imag();
        }
      }
    }
    CHECK(excess_error(expected, to_values((*outputs)[0]), tolerance(dtype, 1), 1e-5) <= 0.0);
  }
}

TEST_CASE("STFT equals the transforms of its frames") {
  Source random(143);
  for (int round = 0; round < 150; ++round) {
    const auto dtype = random.pick(kTypes);
    const int64_t parts = random.between(1, 2), batch = random.between(1, 2);
    const int64_t n = random.between(1, 8), step = random.between(1, 4);
    const int64_t length = n + random.between(0, 12);
    const bool onesided = parts == 1 && random.flip();
    const bool with_window = random.flip(), with_length = !with_window || random.flip();
    const auto x = random.tensor(dtype, {batch, length, parts});
    const auto window = random.tensor(dtype, {n});
    OneNode node("STFT", 17);
    node.attribute("onesided", int64_t{onesided}).constant(x).constant(scalar_i64(step));
    if (with_window) {
      node.constant(window);
    } else {
      node.absent_input();
    }
    if (with_length) node.constant(scalar_i64(n));
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    const Values values = to_values(x), weights = to_values(window);
    const int64_t frames = (length - n) / step + 1, bins = onesided ? n / 2 + 1 : n;
    CHECK((*outputs)[0].dims == Dims{batch, frames, bins, 2});
    Values expected;
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t f = 0; f < frames; ++f) {
        std::vector<Complex> frame;
        for (int64_t i = 0; i < n; ++i) {
          const auto at = size_t((b * length + f * step + i) * parts);
          const double factor = with_window ? weights[size_t(i)] : 1;
          frame.emplace_back(values[at] * factor, parts == 2 ? values[at + 1] * factor : 0);
        }
        const auto spectrum = naive_dft(frame, false);
        for (int64_t k = 0; k < bins; ++k) {
          expected.push_back(spectrum[size_t(k)].real());
          expected.push_back(spectrum[size_t(k)].imag());
        }
      }
    }
    CHECK(excess_error(expected, to_values((*outputs)[0]), tolerance(dtype, 1), 1e-5) <= 0.0);
  }
}

TEST_CASE("windows, periodic and symmetric, of every type") {
  for (const char* op : {"HannWindow", "HammingWindow", "BlackmanWindow"}) {
    for (const int64_t size : {0, 1, 2, 7, 16}) {
      for (const int64_t periodic : {0, 1}) {
        for (const DvtDType dtype : {DVT_F32, DVT_F64, DVT_F16, DVT_I32}) {
          INFO(op, " ", size);
          OneNode node(op, 17);
          node.attribute("periodic", periodic).attribute("output_datatype", int64_t{dtype});
          node.constant(scalar_i64(size));
          const auto outputs = node.evaluate();
          REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
          Values expected;
          for (int64_t k = 0; k < size; ++k) {
            const double x = std::numbers::pi * double(k) / double(periodic != 0 ? size : size - 1);
            double value = std::pow(std::sin(x), 2);
            if (std::string(op) == "HammingWindow") {
              value = 25.0 / 46 - 21.0 / 46 * std::cos(2 * x);
            } else if (std::string(op) == "BlackmanWindow") {
              value = 0.42 - 0.5 * std::cos(2 * x) + 0.08 * std::cos(4 * x);
            }
            if (size == 1 && periodic == 0) value = 1;
            // Rounding must not decide at whole numbers.
            expected.push_back(dtype == DVT_I32 ? std::trunc(value + 1e-12) : value);
          }
          Values got = to_values((*outputs)[0]);
          if (dtype == DVT_I32) {
            for (size_t i = 0; i < got.size(); ++i) CHECK(std::fabs(got[i] - expected[i]) <= 1.0);
            continue;
          }
          CHECK(excess_error(expected, got, tolerance(dtype, 2), 1e-7) <= 0.0);
        }
      }
    }
  }
}

TEST_CASE("MelWeightMatrix: triangles on the mel scale") {
  const int64_t bins = 5, length = 64, rate = 8000;
  OneNode node("MelWeightMatrix", 17);
  node.constant(scalar_i64(bins)).constant(scalar_i64(length)).constant(scalar_i64(rate));
  node.constant(make_data(DVT_F32, {}, {100})).constant(make_data(DVT_F32, {}, {4000}));
  const auto outputs = node.evaluate();
  REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
  REQUIRE((*outputs)[0].dims == Dims{length / 2 + 1, bins});
  const Values got = to_values((*outputs)[0]);
  const auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  std::vector<int64_t> edges;
  for (int64_t i = 0; i < bins + 2; ++i) {
    const double at = mel(100) + double(i) * (mel(4000) - mel(100)) / double(bins + 2);
    const double hertz = 700 * (std::pow(10, at / 2595) - 1);
    edges.push_back(int64_t(std::floor(double(length + 1) * hertz / double(rate))));
  }
  Values expected(got.size(), 0.0);
  for (int64_t i = 0; i < bins; ++i) {
    const int64_t low = edges[size_t(i)], centre = edges[size_t(i) + 1],
                  high = edges[size_t(i) + 2];
    for (int64_t j = low; j <= centre; ++j) {
      expected[size_t(j * bins + i)] = low == centre ? 1 : double(j - low) / double(centre - low);
    }
    for (int64_t j = centre; j < high; ++j) {
      expected[size_t(j * bins + i)] = double(high - j) / double(high - centre);
    }
  }
  CHECK(excess_error(expected, got, 1e-6, 1e-6) <= 0.0);
}

TEST_CASE("nodes that break the rules are refused") {
  Source random(144);
  const auto dft = [&random](const Dims& dims, const char* name, int64_t value) {
    OneNode node("DFT", 17);
    node.attribute(name, value).constant(random.tensor(DVT_F32, dims));
    return node.infer().ok();
  };
  CHECK(dft({2, 3, 1}, "onesided", 1));
  CHECK_FALSE(dft({2, 3, 2}, "onesided", 1));
  CHECK_FALSE(dft({2, 3, 3}, "inverse", 0));
  CHECK_FALSE(dft({2, 3, 1}, "axis", 2));
  CHECK_FALSE(dft({2, 3, 1}, "axis", 3));
  CHECK_FALSE(dft({3}, "inverse", 0));
  const auto stft = [&random](int64_t step, int64_t length) {
    OneNode node("STFT", 17);
    node.constant(random.tensor(DVT_F32, {1, 8, 1})).constant(scalar_i64(step));
    node.absent_input().constant(scalar_i64(length));
    return node.infer().ok();
  };
  CHECK(stft(2, 8));
  CHECK_FALSE(stft(0, 8));
  CHECK_FALSE(stft(2, 9));
  CHECK_FALSE(stft(2, 0));
  OneNode neither("STFT", 17);
  neither.constant(random.tensor(DVT_F32, {1, 8, 1})).constant(scalar_i64(2));
  CHECK_FALSE(neither.infer().ok());
  OneNode negative("HannWindow", 17);
  negative.constant(scalar_i64(-1));
  CHECK_FALSE(negative.infer().ok());
  OneNode text("HannWindow", 17);
  text.attribute("output_datatype", int64_t{DVT_STRING}).constant(scalar_i64(4));
  CHECK_FALSE(text.infer().ok());
}

TEST_CASE("contexts of a crafted image") {
  Source random(145);
  for (int round = 0; round < 10; ++round) {
    const auto dtype = random.pick(kTypes);
    OneNode dft("DFT", 17);
    dft.constant(random.tensor(dtype, {2, 6, 3, 1})).constant(scalar_i64(5));
    mutate(dft, random, 300, 2);
    OneNode stft("STFT", 17);
    stft.constant(random.tensor(dtype, {2, 20, 1})).constant(scalar_i64(3));
    stft.constant(random.tensor(dtype, {6}));
    mutate(stft, random, 300, 2);
    OneNode window("HammingWindow", 17);
    window.constant(scalar_i64(9));
    mutate(window, random, 200, 1);
    OneNode mel("MelWeightMatrix", 17);
    mel.constant(scalar_i64(4)).constant(scalar_i64(16)).constant(scalar_i64(8000));
    mel.constant(make_data(DVT_F32, {}, {0})).constant(make_data(DVT_F32, {}, {4000}));
    mutate(mel, random, 300, 31);
  }
}
