#include "exec/tensor_text.hpp"

#include "base/dtype.hpp"

namespace davit::exec {

std::string shape_text(const DvtTensor& tensor) {
  if (tensor.rank == DVT_RANK_UNKNOWN) return "[...]";
  std::string text = "[";
  for (uint32_t i = 0; i < tensor.rank && i < DVT_MAX_RANK; ++i) {
    if (i > 0) text += ',';
    text += tensor.dims[i] < 0 ? "?" : std::to_string(tensor.dims[i]);
  }
  return text + ']';
}

std::string tensor_text(const DvtTensor& tensor) {
  return std::string(dtype_name(tensor.dtype)) + shape_text(tensor);
}

std::string port_text(const ImageView& view, const PortView& port) {
  const DvtTensor& tensor = view.descs[port.desc];
  if (port.dims == nullptr || tensor.rank == DVT_RANK_UNKNOWN) return tensor_text(tensor);
  std::string text = std::string(dtype_name(tensor.dtype)) + "[";
  for (uint32_t d = 0; d < tensor.rank; ++d) {
    const DimRangeView& range = port.dims[d];
    if (d > 0) text += ',';
    if (range.symbol != kNone) text.append(view.strings[range.symbol]).append("=");
    if (range.min == range.max) {
      text += std::to_string(range.min);
    } else if (range.max == INT64_MAX) {
      text += range.min == 0 ? "?" : std::to_string(range.min) + "..";
    } else {
      text += std::to_string(range.min) + ".." + std::to_string(range.max);
    }
  }
  return text + ']';
}

}  // namespace davit::exec
