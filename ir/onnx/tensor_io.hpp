// tensor_io.hpp: one tensor from a .pb file, as in ONNX's test_data_set_<k> folders.
//
// Threads  Functions share nothing.
// Trust    Files are untrusted; see import.hpp. External data is refused.
// Memory   The result owns its bytes.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/status.hpp"
#include "ir/module.hpp"

namespace davit::onnx_import {

struct NamedTensor {
  std::string name;  // Often that of the model's input or output; may be empty.
  ir::TensorData data;
};

Result<NamedTensor> read_tensor_file(const std::string& path);
Result<NamedTensor> read_tensor_bytes(std::span<const std::byte> bytes);

}  // namespace davit::onnx_import
