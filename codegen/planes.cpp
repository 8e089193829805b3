#include "codegen/planes.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace davit::codegen {

int64_t volume(const Axes& axes) {
  return axes[0] * axes[1] * axes[2];
}

Geometry::Geometry(const DvtWindow& window) {
  Axes tap{};
  bool no_pads = true;
  for (int a = 0; a < DVT_SPATIAL_MAX; ++a) {
    extent[a] = window.out[a] + (window.kernel[a] - 1) * window.dilation[a] / window.stride[a];
    no_pads = no_pads && extent[a] == window.in[a] && window.stride[a] == 1 && window.pad[a] == 0;
  }
  is_input = no_pads;
  is_dense = extent[1] == window.out[1] && extent[2] == window.out[2];
  for (tap[0] = 0; tap[0] < window.kernel[0]; ++tap[0]) {
    for (tap[1] = 0; tap[1] < window.kernel[1]; ++tap[1]) {
      for (tap[2] = 0; tap[2] < window.kernel[2]; ++tap[2]) add_tap(window, tap);
    }
  }
  channel = int64_t(phases.size()) * volume(extent);
  positions = ((window.out[0] - 1) * extent[1] + window.out[1] - 1) * extent[2] + window.out[2];
}

void Geometry::add_tap(const DvtWindow& window, const Axes& tap) {
  Axes phase{};
  int64_t distance = 0;
  for (int a = 0; a < DVT_SPATIAL_MAX; ++a) {
    const int64_t at = tap[a] * window.dilation[a];
    phase[a] = at % window.stride[a];
    distance = distance * extent[a] + at / window.stride[a];
  }
  const auto found = std::find(phases.begin(), phases.end(), phase);
  distance += (found - phases.begin()) * volume(extent);
  if (found == phases.end()) phases.push_back(phase);
  distances.push_back(distance);
}

std::string emit_taps(const Geometry& geometry, const std::string& symbol) {
  return fmt::format("static const int32_t {}_taps[] = {{{}}};\n", symbol,
                     fmt::join(geometry.distances, ", "));
}

namespace {

// Of a phase's lines: elements [begin, end) come from the input, the first from `from`.
struct Span {
  int64_t begin = 0, end = 0, from = 0;
};

Span span_of(int64_t in, int64_t extent, int64_t stride, int64_t pad, int64_t phase) {
  const int64_t shift = phase - pad;  // Input position of element 0.
  const int64_t begin = std::min(shift < 0 ? (-shift + stride - 1) / stride : int64_t{0}, extent);
  const int64_t behind = std::max<int64_t>(in - shift + stride - 1, 0) / stride;
  return {begin, std::clamp(behind, begin, extent), begin * stride + shift};
}

}  // namespace

std::string emit_fill(const DvtWindow& window, const Geometry& geometry, int64_t channels,
                      const std::string& symbol) {
  const Axes& extent = geometry.extent;
  std::string text = fmt::format(
      "static void {}_fill(const float* x, float* to) {{\n"
      "  for (int64_t c = 0; c < {}; ++c, x += {}) {{\n",
      symbol, channels, dvt_volume(window.in));
  for (const Axes& phase : geometry.phases) {
    const int64_t stride = window.stride[2];
    const Span span = span_of(window.in[2], extent[2], stride, window.pad[2], phase[2]);
    text += fmt::format(
        "    for (int64_t z = 0; z < {0}; ++z)\n"
        "    for (int64_t y = 0; y < {1}; ++y, to += {2}) {{\n"
        "      const int64_t from_z = z * {3} + {4};\n"
        "      const int64_t from_y = y * {5} + {6};\n"
        "      if (from_z < 0 || from_z >= {7} || from_y < 0 || from_y >= {8}) {{\n"
        "        memset(to, 0, {2} * sizeof(float));\n"
        "        continue;\n      }}\n"
        "      fill_line(x + (from_z * {8} + from_y) * {9} + {10}, to, {11}, {12}, {2}, {13});\n"
        "    }}\n",
        extent[0], extent[1], extent[2], window.stride[0], phase[0] - window.pad[0],
        window.stride[1], phase[1] - window.pad[1], window.in[0], window.in[1], window.in[2],
        span.from, span.begin, span.end, stride);
  }
  return text + "  }\n}\n";
}

bool has_vector_fill(const DvtWindow& window) {
  return window.stride[2] <= 2 && window.in[0] == 1 && window.out[0] == 1 &&
         window.kernel[0] == 1 && window.pad[0] == 0;
}

namespace {

// A line of `count` elements from `from` to `at`; behind them zeros up to a whole vector.
std::string emit_vector_line(int64_t count, int64_t stride, int64_t lanes) {
  std::string text;
  std::vector<int64_t> evens;
  for (int64_t i = 0; i < lanes; ++i) evens.push_back(2 * i);
  for (int64_t j = 0; j < count; j += lanes) {
    const int64_t left = std::min(count - j, lanes);
    std::string vector = fmt::format("load(from + {})", j * stride);
    if (stride == 2) {
      // What lies in one vector needs no second.
      const int64_t second = 2 * left - 1 > lanes ? lanes : 0;
      vector = fmt::format("__builtin_shufflevector({}, load(from + {}), {})", vector,
                           2 * j + second, fmt::join(evens, ", "));
    }
    if (left < lanes) {
      std::vector<int> mask;
      for (int64_t i = 0; i < lanes; ++i) mask.push_back(i < left ? -1 : 0);
      vector = fmt::format("(Vector)((Mask){} & (Mask){{{}}})", vector, fmt::join(mask, ", "));
    }
    text += fmt::format("      store(at + {}, {});\n", j, vector);
  }
  return text;
}

}  // namespace

// What a line writes behind its end is zeros: pads, and lines that are written after it.
std::string emit_vector_fill(const DvtWindow& window, const Geometry& geometry, int64_t lanes,
                             const std::string& symbol) {
  const Axes& extent = geometry.extent;
  std::string text =
      fmt::format("static void {}_fill_vectors(const float* x, float* to) {{\n", symbol);
  int64_t plane = 0;
  for (const Axes& phase : geometry.phases) {
    const Span lines = span_of(window.in[1], extent[1], window.stride[1], window.pad[1], phase[1]);
    const Span columns =
        span_of(window.in[2], extent[2], window.stride[2], window.pad[2], phase[2]);
    if (columns.begin < columns.end) {
      text += fmt::format(
          "    for (int64_t i = 0; i < {}; ++i) {{\n"
          "      const float* from = x + i * {} + {};\n"
          "      float* at = to + i * {} + {};\n{}    }}\n",
          lines.end - lines.begin, window.stride[1] * window.in[2],
          lines.from * window.in[2] + columns.from, extent[2],
          plane + lines.begin * extent[2] + columns.begin,
          emit_vector_line(columns.end - columns.begin, window.stride[2], lanes));
    }
    plane += volume(extent);
  }
  return text + "}\n";
}

}  // namespace davit::codegen
