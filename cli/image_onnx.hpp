// image_onnx.hpp: an image in the form of an ONNX model, for viewers such as Netron.
//
// A node is a kernel call: its operator is the kernel in the domain "davit"; attributes say lane,
// priority, stream and place in the stored order, and have the kernel's own. Init and DeInit hang
// on a node of their name, bodies of branches and loops on the node that runs them. No runtime
// executes such a model.
//
// Threads  Pure functions.
// Trust    Models come from verified images.
// Memory   Returns owned bytes.
#pragma once

#include <cstddef>
#include <vector>

#include "base/status.hpp"
#include "lowering/image/image_model.hpp"

namespace davit::cli {

// Constants are in it when they are at most 1 GB together, which is what viewers can open;
// otherwise their types alone.
Result<std::vector<std::byte>> onnx_view(const image::ImageModel& model);

}  // namespace davit::cli
