#include "recognise.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>

namespace ocr {
namespace {

// Bilinear sample of one channel at (x, y) in pixel coordinates, clamped at the border.
float sample(const Picture& picture, float x, float y, uint32_t channel) {
  const auto clamp = [](float v, uint32_t limit) {
    return std::clamp(v, 0.0F, static_cast<float>(limit - 1));
  };
  x = clamp(x, picture.width);
  y = clamp(y, picture.height);
  const auto x0 = static_cast<uint32_t>(x), y0 = static_cast<uint32_t>(y);
  const uint32_t x1 = std::min(x0 + 1, picture.width - 1);
  const uint32_t y1 = std::min(y0 + 1, picture.height - 1);
  const float fx = x - static_cast<float>(x0), fy = y - static_cast<float>(y0);
  const auto at = [&](uint32_t column, uint32_t row) {
    return static_cast<float>(picture.rgb[(size_t{row} * picture.width + column) * 3 + channel]);
  };
  const float top = at(x0, y0) * (1 - fx) + at(x1, y0) * fx;
  const float bottom = at(x0, y1) * (1 - fx) + at(x1, y1) * fx;
  return top * (1 - fy) + bottom * fy;
}

}  // namespace

std::vector<float> picture_to_tensor(const Picture& picture, int64_t height, int64_t width) {
  std::vector<float> tensor(static_cast<size_t>(3 * height * width), 0.0F);
  if (picture.width == 0 || picture.height == 0) return tensor;
  const float scale = static_cast<float>(picture.height) / static_cast<float>(height);
  const auto scaled_width =
      static_cast<int64_t>(std::ceil(static_cast<float>(picture.width) / scale));
  const int64_t columns = std::min(width, scaled_width);
  for (int64_t plane = 0; plane < 3; ++plane) {
    const auto channel = static_cast<uint32_t>(2 - plane);  // Blue first.
    for (int64_t row = 0; row < height; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        const float value = sample(picture, (static_cast<float>(column) + 0.5F) * scale - 0.5F,
                                   (static_cast<float>(row) + 0.5F) * scale - 0.5F, channel);
        tensor[static_cast<size_t>((plane * height + row) * width + column)] =
            value / 127.5F - 1.0F;
      }
    }
  }
  return tensor;
}

std::optional<std::vector<std::string>> load_dictionary(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::vector<std::string> dictionary{""};  // CTC's blank.
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    dictionary.push_back(line);
  }
  dictionary.emplace_back(" ");
  return dictionary;
}

std::string decode(std::span<const float> probabilities, int64_t steps, int64_t classes,
                   const std::vector<std::string>& dictionary) {
  std::string text;
  int64_t previous = 0;
  for (int64_t step = 0; step < steps; ++step) {
    const auto row =
        probabilities.subspan(static_cast<size_t>(step * classes), static_cast<size_t>(classes));
    const int64_t best = std::max_element(row.begin(), row.end()) - row.begin();
    if (best != 0 && best != previous && best < std::ssize(dictionary)) {
      text += dictionary[static_cast<size_t>(best)];
    }
    previous = best;
  }
  return text;
}

}  // namespace ocr
