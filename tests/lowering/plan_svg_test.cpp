#include "lowering/memory_plan/plan_svg.hpp"

#include <doctest/doctest.h>

#include <string>

using davit::lowering::plan_svg;
using davit::lowering::PlanPicture;

namespace {

size_t count(const std::string& text, const std::string& word) {
  size_t found = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("boxes lie at their time and address") {
  // The plot is 1070 x 564 pixels, from (110, 600) to the right and upwards.
  const std::string svg = plan_svg({.title = "t",
                                    .boxes = {{"a", 10, 20, 0, 50}, {"b", 15, 20, 50, 50}},
                                    .arena_bytes = 100,
                                    .lower_bound_bytes = 100});
  CHECK(svg.find("x=\"110.00\" y=\"318.00\" width=\"1070.00\" height=\"282.00\"") !=
        std::string::npos);
  CHECK(svg.find("x=\"645.00\" y=\"36.00\" width=\"535.00\" height=\"282.00\"") !=
        std::string::npos);
  CHECK(svg.find("<title>b: 50 bytes at 50, steps 15 to 20</title>") != std::string::npos);
  CHECK(svg.find("lower bound 100 B") != std::string::npos);
}

TEST_CASE("names of any bytes are text in the picture") {
  const std::string svg = plan_svg(
      {.title = "<&>", .boxes = {{"a<b>&\"\x01\xFF\xC3\xA4", 0, 1, 0, 1}}, .arena_bytes = 1});
  CHECK(svg.find(">&lt;&amp;&gt;</text>") != std::string::npos);
  CHECK(svg.find("<title>a&lt;b&gt;&amp;&quot;\xEF\xBF\xBD\xEF\xBF\xBD\xC3\xA4: 1 bytes") !=
        std::string::npos);
}

TEST_CASE("pictures of nothing, of empty values and of the largest ones") {
  CHECK(count(plan_svg({}), "<title>") == 0);
  CHECK(count(plan_svg({.boxes = {{"empty", 0, 1, 0, 0}}}), "<title>") == 0);
  const uint64_t half = uint64_t{1} << 62;
  const std::string svg =
      plan_svg({.boxes = {{"large", 0, UINT64_MAX, half, half}, {"thin", 0, 1, 0, 1}},
                .arena_bytes = 2 * half});
  CHECK(count(svg, "<title>") == 2);
  CHECK(count(svg, "width=\"0.50\" height=\"0.50\"") == 1);
  CHECK(count(svg, "nan") + count(svg, "inf") == 0);
}
