// device_memory.hpp: what the graphs of an image allocate on a device, as far as it is known before
// they run.
//
// Threads  Pure functions.
// Trust    The image is verified. Its sizes are the file's, so that sums are checked.
// Memory   A word for each value, while a function runs.
#pragma once

#include <cstdint>

#include "base/status.hpp"
#include "davit/davit.h"
#include "exec/image.hpp"

namespace davit::exec {

// Most bytes that Main, or a gear in its place, holds at once, each block rounded up to 64; 0 when
// there is no such sum.
uint64_t peak_device_bytes(const ImageView& image);

// What dvt_image_device_memory() tells. DVT_OUT_OF_MEMORY when no memory can be that large.
Result<DvtDeviceMemoryNeeds> device_memory_needs(const ImageView& image);

}  // namespace davit::exec
