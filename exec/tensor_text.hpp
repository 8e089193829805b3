// tensor_text.hpp: tensors in words, for errors and traces.
#pragma once

#include <string>

#include "davit/types.h"
#include "exec/image.hpp"

namespace davit::exec {

// "[1,3,224,224]"; "[]" for a scalar, "[?,3]" where an extent is open, "[...]" for an open rank.
std::string shape_text(const DvtTensor& tensor);

// "f32[1,3,224,224]"
std::string tensor_text(const DvtTensor& tensor);

// What a port takes: "f32[N=1..8,3,?]".
std::string port_text(const ImageView& view, const PortView& port);

}  // namespace davit::exec
