#include "lowering/memory_plan/plan_svg.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "base/markup.hpp"

namespace davit::lowering {
namespace {

// Pixels.
constexpr double kWidth = 1200, kHeight = 640;
constexpr double kLeft = 110, kRight = 20, kTop = 36, kBottom = 40;
constexpr double kThinnest = 0.5;  // Of a box, so that it can be seen.

class Drawing {
 public:
  explicit Drawing(const PlanPicture& picture) : picture_(picture) {
    for (const PlanPicture::Box& box : picture.boxes) {
      first_ = std::min(first_, box.lower);
      last_ = std::max(last_, box.upper);
    }
    if (first_ >= last_) {  // Nothing to draw.
      first_ = 0;
      last_ = 1;
    }
    top_ = std::max<uint64_t>(1, std::max(picture.arena_bytes, picture.lower_bound_bytes));
  }

  std::string run() {
    char text[256];
    std::snprintf(text, sizeof text,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
                  "font-family=\"sans-serif\" font-size=\"12\">\n",
                  kWidth, kHeight);
    out_ += text;
    out_ += "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
    label(kLeft, 20, "start", markup_text(picture_.title));
    for (size_t i = 0; i < picture_.boxes.size(); ++i) draw(picture_.boxes[i], i);
    draw_axes();
    return out_ + "</svg>\n";
  }

 private:
  [[nodiscard]] double x(uint64_t time) const {
    return kLeft + (kWidth - kLeft - kRight) * double(time - first_) / double(last_ - first_);
  }
  [[nodiscard]] double y(uint64_t address) const {
    return kHeight - kBottom - (kHeight - kTop - kBottom) * double(address) / double(top_);
  }

  void draw(const PlanPicture::Box& box, size_t index) {
    if (box.size == 0) return;
    // Steps of the golden angle: neighbours differ.
    const unsigned hue = unsigned(index * 137 % 360);
    char text[256];
    std::snprintf(text, sizeof text,
                  "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" "
                  "fill=\"hsl(%u,60%%,75%%)\" stroke=\"#555\" stroke-width=\"0.3\"><title>",
                  x(box.lower), y(box.offset + box.size),
                  std::max(kThinnest, x(box.upper) - x(box.lower)),
                  std::max(kThinnest, y(box.offset) - y(box.offset + box.size)), hue);
    out_ += text + markup_text(box.name);
    std::snprintf(text, sizeof text,
                  ": %" PRIu64 " bytes at %" PRIu64 ", steps %" PRIu64 " to %" PRIu64
                  "</title></rect>\n",
                  box.size, box.offset, box.lower, box.upper);
    out_ += text;
  }

  void draw_axes() {
    line(kLeft, y(0), kWidth - kRight, y(0), "");
    line(kLeft, y(0), kLeft, y(top_), "");
    label(kLeft - 6, y(0), "end", "0");
    label(kLeft - 6, y(picture_.arena_bytes) + 4, "end",
          std::to_string(picture_.arena_bytes) + " B");
    label(kLeft, kHeight - kBottom + 18, "start", "step " + std::to_string(first_));
    label(kWidth - kRight, kHeight - kBottom + 18, "end", "step " + std::to_string(last_));
    if (picture_.lower_bound_bytes == 0) return;
    const double bound = y(picture_.lower_bound_bytes);
    line(kLeft, bound, kWidth - kRight, bound, " stroke-dasharray=\"6 4\"");
    label(kWidth - kRight, bound - 4, "end",
          "lower bound " + std::to_string(picture_.lower_bound_bytes) + " B");
  }

  void line(double x1, double y1, double x2, double y2, const char* style) {
    char text[256];
    std::snprintf(text, sizeof text,
                  "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\" stroke=\"black\"%s/>\n",
                  x1, y1, x2, y2, style);
    out_ += text;
  }

  void label(double x, double y, const char* anchor, const std::string& words) {
    char text[128];
    std::snprintf(text, sizeof text, "<text x=\"%.2f\" y=\"%.2f\" text-anchor=\"%s\">", x, y,
                  anchor);
    out_ += text + words + "</text>\n";
  }

  const PlanPicture& picture_;
  uint64_t first_ = UINT64_MAX, last_ = 0;  // Of time.
  uint64_t top_ = 1;                        // The highest address shown.
  std::string out_;
};

}  // namespace

std::string plan_svg(const PlanPicture& picture) {
  return Drawing(picture).run();
}

}  // namespace davit::lowering
