// dtype.hpp: names of element types.
#pragma once

#include <optional>
#include <string_view>

#include "davit/types.h"

namespace davit {

// "f32", "i64", "bool", ...; "?" for a value outside the enumeration.
std::string_view dtype_name(DvtDType dtype);

// The inverse of dtype_name. Also takes numpy's and ONNX's words ("float32", "float", "int64").
std::optional<DvtDType> dtype_from_name(std::string_view name);

// True for a member of the enumeration other than DVT_DTYPE_NONE. Use before trusting a file.
bool dtype_is_valid(uint32_t value);

}  // namespace davit
