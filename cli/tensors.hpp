// tensors.hpp: tensors on the host: parsed from the forms of --input, filled, compared, saved.
//
// Threads  Values; externally synchronised.
// Trust    Files and specifications are untrusted: sizes are checked against the port before
//          anything is allocated.
// Memory   A HostTensor owns its bytes, aligned to 64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "davit/davit.h"

namespace davit::cli {

// Bytes aligned to a cache line; zeroed.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  // Throws std::bad_alloc.
  explicit AlignedBytes(size_t size, size_t alignment = 64);
  [[nodiscard]] std::byte* data() { return data_.get(); }
  [[nodiscard]] const std::byte* data() const { return data_.get(); }
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] std::span<std::byte> span() { return {data(), size_}; }
  [[nodiscard]] std::span<const std::byte> span() const { return {data(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* pointer) const { std::free(pointer); }
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
};

struct HostTensor {
  std::string name;
  DvtDType dtype = DVT_DTYPE_NONE;
  std::vector<int64_t> dims;
  AlignedBytes bytes;

  // "1x3x224x224xf32"
  [[nodiscard]] std::string type_text() const;
  // 0 for strings, which have no fixed size.
  [[nodiscard]] uint64_t element_count() const;
};

// An input or output of an image.
struct PortType {
  std::string name;
  DvtDType dtype;
  std::vector<int64_t> dims;  // -1: set at run time.
  uint64_t byte_size;
  bool is_dynamic = false;
  bool is_rank_known = true;
  std::vector<int64_t> usual_dims = {};  // In the first gear, where there are gears; else empty.

  [[nodiscard]] std::string type_text() const;
};
std::vector<PortType> input_ports(const DvtImage* image);
std::vector<PortType> output_ports(const DvtImage* image);

// "NAME=REST" or "REST" by position.
struct Assignment {
  uint32_t port;
  std::string rest;
};
// Splits `text` at the '=' that follows a port's name; a text without one belongs to
// `next_unnamed`, the first port that has nothing yet. An unknown name is an error that gives the
// nearest.
Result<Assignment> split_assignment(const std::string& text, std::span<const PortType> ports,
                                    uint32_t next_unnamed);

// Reads a .npy or (ONNX TensorProto) .pb file.
Result<HostTensor> read_tensor_file(const std::string& path);

// A tensor that says its own type: "@file" or "1x4xf32=0,1,2,3" (one value fills all elements).
// `option` and `name` are for errors.
Result<HostTensor> parse_tensor(const std::string& form, std::string_view option,
                                const std::string& name);

// A tensor for `port`: as parse_tensor(), of the port's type, or "random" or "zeros". With ":DIMS"
// ("random:1x128") these two set the shape of a dynamic input; without, its open dims are 1.
Result<HostTensor> make_input(const PortType& port, const std::string& form, uint64_t seed);

// OK when the tensor has the port's type; else an error with both.
Status check_type(const HostTensor& tensor, const PortType& port);

// Uniform in [-1, 1) for floating point, 0 or 1 for everything else; the same on every machine.
void fill_random(HostTensor& tensor, uint64_t seed);

// |actual - expected| <= atol + rtol * |expected| + rtol_max * max|expected|. NaN equals NaN,
// infinities must be equal. Integers: |actual - expected| <= atol.
struct Tolerance {
  double atol = 0, rtol = 0, rtol_max = 0;
};
struct Comparison {
  uint64_t elements = 0;
  uint64_t mismatches = 0;
  uint64_t first_mismatch = 0;  // Index in row-major order.
  double first_actual = 0, first_expected = 0;
  double max_difference = 0;  // Over elements that are numbers on both sides.
  double max_expected = 0;    // Largest |expected|.
};
// Precondition: same dtype and dims.
Comparison compare(const HostTensor& actual, const HostTensor& expected,
                   const Tolerance& tolerance);

// "[1, 3, 0]" for a row-major index.
std::string index_text(uint64_t index, std::span<const int64_t> dims);

// Complete or not at all. bf16 has no .npy form: an error.
Status save_npy(const std::string& path, const HostTensor& tensor);

}  // namespace davit::cli
