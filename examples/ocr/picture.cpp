#include "picture.hpp"

#include <png.h>

namespace ocr {

std::optional<Picture> load_png(const std::string& path, std::string& error) {
  constexpr uint64_t kBytesMax = 64U << 20U;
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  if (png_image_begin_read_from_file(&image, path.c_str()) == 0) {
    error = path + ": " + image.message;
    return std::nullopt;
  }
  image.format = PNG_FORMAT_RGB;
  if (uint64_t{image.width} * image.height * 3 > kBytesMax) {
    png_image_free(&image);
    error = path + ": larger than 64 MiB";
    return std::nullopt;
  }
  Picture picture{image.width, image.height, std::vector<uint8_t>(PNG_IMAGE_SIZE(image))};
  // Transparent pixels become white paper.
  const png_color white{255, 255, 255};
  if (png_image_finish_read(&image, &white, picture.rgb.data(), 0, nullptr) == 0) {
    error = path + ": " + image.message;
    return std::nullopt;
  }
  return picture;
}

bool save_png(const std::string& path, const Picture& picture, std::string& error) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = picture.width;
  image.height = picture.height;
  image.format = PNG_FORMAT_RGB;
  if (png_image_write_to_file(&image, path.c_str(), 0, picture.rgb.data(), 0, nullptr) == 0) {
    error = path + ": " + image.message;
    return false;
  }
  return true;
}

}  // namespace ocr
