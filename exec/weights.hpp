// weights.hpp: weights in a file beside the image, under a name that is their digest.
//
// Threads  Pure but for the file system.
// Trust    The file is untrusted: its size, and unless digests are skipped its content, must be
// what
//          the image says. Its name has no folders, so it cannot lie anywhere else.
// Memory   A mapping; several images and processes share its pages.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/status.hpp"
#include "exec/image.hpp"
#include "schema/layout.h"

namespace davit::exec {

// "0123456789abcdef0123456789abcdef.weights"
std::string weights_file_name(const uint8_t (&digest)[16]);
std::string weights_file_name(std::span<const std::byte> weights);

// Where the weights of an image at `path` are looked for: "." for a bare name.
std::string folder_of(const std::string& path);

// The content of a segment with DVT_SEGMENT_EXTERNAL: options.weights, or the file, which `image`
// then keeps mapped. Errors name the file: DVT_IO_ERROR when it is not there, DVT_INVALID_IMAGE
// when it is another one, DVT_INVALID_ARGUMENT when there is no folder to look in, or when the
// caller's weights are others.
Result<std::span<const std::byte>> open_weights(const DvtSegment& segment,
                                                const OpenOptions& options, DvtImage& image);

}  // namespace davit::exec
