// foreign_types.hpp: element types that the standard defines and Davit does not take.
//
// Threads  Pure function.
#pragma once

#include <cstdint>

namespace davit::ir {

// The standard's name of a foreign type (ONNX 1.16, TensorProto.DataType); nullptr for others.
inline const char* foreign_type_name(int64_t onnx_type) {
  switch (onnx_type) {
    case 14:
      return "complex64";
    case 15:
      return "complex128";
    case 17:
      return "float8e4m3fn";
    case 18:
      return "float8e4m3fnuz";
    case 19:
      return "float8e5m2";
    case 20:
      return "float8e5m2fnuz";
    case 21:
      return "uint4";
    case 22:
      return "int4";
    default:
      return nullptr;
  }
}

}  // namespace davit::ir
