// run_image.hpp: runs an image once through the public C API, for tests.
//
// Threads  Functions share nothing.
// Memory   Results own their data.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "base/npy.hpp"
#include "base/status.hpp"
#include "davit/davit.h"
#include "exec/api_error.hpp"

namespace davit::testing {

// A copy of `bytes` at an address that dvt_image_open_memory() can use in place.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::span<const std::byte> bytes);
  [[nodiscard]] const void* data() const { return data_.get(); }
  [[nodiscard]] size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(void* data) const { std::free(data); }
  };
  std::unique_ptr<void, Free> data_;
  size_t size_;
};

// What runs an image, and how often.
struct RunOn {
  DvtDevice* device = nullptr;  // Null: the target's default.
  int runs = 1;
  DvtPool* pool = nullptr;                   // Null: in order.
  uint32_t schedule = DVT_SCHEDULE_DYNAMIC;  // With a pool.
  uint32_t device_memory = DVT_DEVICE_MEMORY_CACHED;
};

// Opens the image, makes an executor, and runs it on the inputs, one per port. Output buffers are
// filled with 0xAB before each run. Returns the outputs of the last run; an error when an earlier
// run gave other bits, or when another schedule ran than was asked for.
Result<std::vector<NpyArray>> run_image(std::span<const std::byte> image,
                                        std::span<const NpyArray> inputs, const RunOn& on);
inline Result<std::vector<NpyArray>> run_image(std::span<const std::byte> image,
                                               std::span<const NpyArray> inputs,
                                               DvtDevice* device = nullptr, int runs = 1) {
  return run_image(image, inputs, RunOn{.device = device, .runs = runs});
}

struct Tolerance {
  double relative = 0;         // Of the expected element.
  double relative_to_max = 0;  // Of the largest finite |expected|.
  double absolute = 0;
};

// Dtype, dims and elements: integers and bools exactly, floats within the sum of the tolerances,
// NaN equals NaN. The error gives the worst element.
Status compare(const NpyArray& expected, const NpyArray& got, const Tolerance& tolerance);

}  // namespace davit::testing
