#include "exec/tensor_text.hpp"

#include "base/dtype.hpp"

namespace davit::exec {

std::string shape_text(const DvtTensor& tensor) {
  std::string text = "[";
  for (uint32_t i = 0; i < tensor.rank && i < DVT_MAX_RANK; ++i) {
    if (i > 0) text += ',';
    text += std::to_string(tensor.dims[i]);
  }
  return text + ']';
}

std::string tensor_text(const DvtTensor& tensor) {
  return std::string(dtype_name(tensor.dtype)) + shape_text(tensor);
}

}  // namespace davit::exec
