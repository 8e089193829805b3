// gears.hpp: one image for several sets of input shapes, each with a static plan of its own.
//
//   Main    SelectGear(inputs) -> outputs       exec/dynamic.h
//   body 0  the graph as it is for the first set of shapes, body 1 for the second, ...
//
// Weights are stored once, whatever the number of gears; all gears share one arena. Of a device,
// Init and DeInit are those of all gears together: as many streams and events as the gear with most
// needs, and each weight, and what is computed of weights alone, once.
//
// Threads  Pure functions.
// Trust    The module has passed ir/verify; requests come from users. Errors name the input.
// Memory   Results own their data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "ir/module.hpp"
#include "lowering/image/image_model.hpp"

namespace davit::lowering {

inline constexpr size_t kGearsMax = 100;

// What the free dimensions of the inputs may be; one of the three, or none.
struct GearRequest {
  std::vector<int64_t> batches;                     // Of every first dimension.
  std::vector<std::array<int64_t, 2>> image_sizes;  // Height and width of inputs of rank 4.
  bool channels_last = false;                       // Of those: NHWC, else NCHW.
  // Of each free dimension, in the order of the inputs; or of each that has not been named before.
  std::vector<std::vector<int64_t>> dims;

  [[nodiscard]] bool empty() const {
    return batches.empty() && image_sizes.empty() && dims.empty();
  }
};

// Extents of the inputs that have free dimensions, by name.
using GearShapes = std::map<std::string, std::vector<int64_t>>;

// One for each gear. Errors: free dimensions that the request does not set, or sets without need;
// two gears with the same shapes; more than kGearsMax.
Result<std::vector<GearShapes>> resolve_gears(const ir::Module& module, const GearRequest& request);

// "x:4x3x224x224", for errors and options.
std::string gear_text(const GearShapes& gear);

// `gears`: static models of one source and target, with places for their values. `source`: the
// module before it was bound to any of them; names of dimensions come from there.
Result<image::ImageModel> merge_gears(const ir::Module& source,
                                      std::vector<image::ImageModel> gears);

}  // namespace davit::lowering
