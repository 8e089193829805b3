// plan_svg.hpp: a memory plan as a picture: time to the right, addresses upwards, a box per value.
//
// Threads  Pure function.
// Trust    Names may be any bytes; they are escaped.
// Memory   Returns owned text, some 200 bytes a value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace davit::lowering {

struct PlanPicture {
  struct Box {
    std::string_view name;
    uint64_t lower, upper;  // Lives in [lower, upper).
    uint64_t offset, size;
  };
  std::string_view title;
  std::vector<Box> boxes;
  uint64_t arena_bytes = 0;
  uint64_t lower_bound_bytes = 0;  // Drawn as a dashed line; 0 for none.
};

// An SVG document. Each box says its name, bytes, offset and steps when pointed at.
std::string plan_svg(const PlanPicture& picture);

}  // namespace davit::lowering
