// tensor_reader.hpp: TensorProto to TensorData.
//
// Threads  Functions share nothing but `external`.
// Trust    Protos are untrusted: element type, dims and the size of the data are checked against
//          each other before memory is taken.
// Memory   The proto is consumed; at most one copy of the data exists beside it.
#pragma once

#include <onnx/onnx_pb.h>

#include "base/status.hpp"
#include "ir/module.hpp"
#include "ir/onnx/external_data.hpp"

namespace davit::onnx_import {

// An ONNX element type. Errors: DVT_UNSUPPORTED for those ONNX defines and Davit does not take,
// DVT_INVALID_IMAGE for others; the detail names `tensor`.
Result<DvtDType> read_dtype(int32_t onnx_type, const std::string& tensor);

// Errors name the tensor.
Result<ir::TensorData> read_tensor(onnx::TensorProto proto, ExternalData& external);

}  // namespace davit::onnx_import
