// tensor_io.hpp: one tensor, sequence or optional from a .pb file, as in ONNX's test_data_set_<k>
// folders.
//
// Threads  Functions share nothing.
// Trust    Files are untrusted; see import.hpp. External data is refused.
// Memory   The result owns its bytes.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "ir/module.hpp"

namespace davit::onnx_import {

struct NamedTensor {
  std::string name;  // Often that of the model's input or output; may be empty.
  ir::TensorData data;
};

Result<NamedTensor> read_tensor_file(const std::string& path);
Result<NamedTensor> read_tensor_bytes(std::span<const std::byte> bytes);

struct NamedValue {
  std::string name;
  bool is_present = true;               // False for an optional that is not there.
  std::vector<ir::TensorData> tensors;  // One, or those of a sequence.
};

// A value of the declared type: a SequenceProto, an OptionalProto, or a tensor's when there is
// none.
Result<NamedValue> read_value_file(const std::string& path, const ir::ContainerType* type);

}  // namespace davit::onnx_import
