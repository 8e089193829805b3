// Builds without -Donnxruntime.
#include "cli/reference.hpp"

namespace davit::cli {

Result<std::unique_ptr<Reference>> open_onnxruntime(const std::string& /*model*/,
                                                    const std::string& /*library*/,
                                                    std::span<const HostTensor> /*inputs*/) {
  return Status(ErrorDetail{.code = DVT_UNSUPPORTED,
                            .message = "this build knows nothing of ONNX Runtime",
                            .hint = "meson setup -Donnxruntime=DIR, a folder with "
                                    "onnxruntime_c_api.h and libonnxruntime.so"});
}

}  // namespace davit::cli
