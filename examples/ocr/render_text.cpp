// render_text: writes a line of text to a PNG, for people who have no picture at hand.
//
//   render_text OUT.png FONT.ttf "text"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

#include <ft2build.h>
#include FT_FREETYPE_H

#include "picture.hpp"

namespace {

constexpr uint32_t kHeight = 48, kMargin = 8, kPixelSize = 32;

struct LibraryCloser {
  void operator()(FT_Library library) const { FT_Done_FreeType(library); }
};
struct FaceCloser {
  void operator()(FT_Face face) const { FT_Done_Face(face); }
};

// Draws one glyph, black on white, with its origin at (pen, baseline).
void draw_glyph(ocr::Picture& picture, const FT_GlyphSlot glyph, int64_t pen, int64_t baseline) {
  const FT_Bitmap& bitmap = glyph->bitmap;
  for (uint32_t row = 0; row < bitmap.rows; ++row) {
    for (uint32_t column = 0; column < bitmap.width; ++column) {
      const int64_t x = pen + glyph->bitmap_left + column;
      const int64_t y = baseline - glyph->bitmap_top + row;
      if (x < 0 || y < 0 || x >= picture.width || y >= picture.height) continue;
      const uint8_t ink = bitmap.buffer[row * static_cast<uint32_t>(bitmap.pitch) + column];
      uint8_t* pixel = &picture.rgb[static_cast<size_t>(y * picture.width + x) * 3];
      for (int channel = 0; channel < 3; ++channel) {
        pixel[channel] = std::min<uint8_t>(pixel[channel], 255 - ink);
      }
    }
  }
}

// Width in pixels of the rendered line, without margins.
int64_t line_width(FT_Face face, const std::string& text) {
  int64_t width = 0;
  for (const char c : text) {
    if (FT_Load_Char(face, static_cast<unsigned char>(c), FT_LOAD_DEFAULT) == 0) {
      width += face->glyph->advance.x >> 6;
    }
  }
  return width;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: render_text OUT.png FONT.ttf \"text\"\n");
    return 2;
  }
  FT_Library raw_library = nullptr;
  if (FT_Init_FreeType(&raw_library) != 0) {
    std::fprintf(stderr, "render_text: FreeType did not start\n");
    return 1;
  }
  const std::unique_ptr<FT_LibraryRec_, LibraryCloser> library(raw_library);
  FT_Face raw_face = nullptr;
  if (FT_New_Face(library.get(), argv[2], 0, &raw_face) != 0) {
    std::fprintf(stderr, "render_text: %s is not a font\n", argv[2]);
    return 1;
  }
  const std::unique_ptr<FT_FaceRec_, FaceCloser> face(raw_face);
  FT_Set_Pixel_Sizes(face.get(), 0, kPixelSize);

  const std::string text = argv[3];
  ocr::Picture picture;
  picture.width = static_cast<uint32_t>(line_width(face.get(), text)) + 2 * kMargin;
  picture.height = kHeight;
  picture.rgb.assign(size_t{picture.width} * picture.height * 3, 255);
  int64_t pen = kMargin;
  for (const char c : text) {
    if (FT_Load_Char(face.get(), static_cast<unsigned char>(c), FT_LOAD_RENDER) != 0) continue;
    draw_glyph(picture, face->glyph, pen, kHeight - 14);
    pen += face->glyph->advance.x >> 6;
  }
  std::string error;
  if (!ocr::save_png(argv[1], picture, error)) {
    std::fprintf(stderr, "render_text: %s\n", error.c_str());
    return 1;
  }
  return 0;
}
