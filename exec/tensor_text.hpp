// tensor_text.hpp: tensors in words, for errors and traces.
#pragma once

#include <string>

#include "davit/types.h"

namespace davit::exec {

// "[1,3,224,224]"; "[]" for a scalar.
std::string shape_text(const DvtTensor& tensor);

// "f32[1,3,224,224]"
std::string tensor_text(const DvtTensor& tensor);

}  // namespace davit::exec
