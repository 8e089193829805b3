// picture.hpp: 8-bit RGB pictures in PNG files.
//
// Threads  Values and pure functions.
// Trust    Files are untrusted: load_png() refuses what libpng refuses, and pictures above 64 MiB.
// Memory   A Picture owns its pixels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ocr {

struct Picture {
  uint32_t width = 0, height = 0;
  std::vector<uint8_t> rgb;  // [height][width][3]
};

// On failure the reason is in `error`.
std::optional<Picture> load_png(const std::string& path, std::string& error);
bool save_png(const std::string& path, const Picture& picture, std::string& error);

}  // namespace ocr
