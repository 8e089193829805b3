// reference.hpp: what compare holds a model's values against.
//
// Threads  One thread.
// Memory   References own what they hand out; read() returns copies.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/status.hpp"
#include "cli/tensors.hpp"

namespace davit::cli {

using Tensors = std::map<std::string, HostTensor, std::less<>>;

class Reference {
 public:
  virtual ~Reference() = default;
  // Names and sizes of what there is, in its own order.
  struct Item {
    std::string name;
    uint64_t bytes;
  };
  virtual Result<std::vector<Item>> items() = 0;
  virtual Result<Tensors> read(const std::unordered_set<std::string>& names) = 0;
};

// ONNX Runtime on the model file, unoptimised, with every value of the main graph as an output.
// `library`: a path for dlopen(), or empty: libonnxruntime.so as the system finds it, then where
// the build found its header (meson -Donnxruntime). In builds without: DVT_UNSUPPORTED. `inputs`
// must outlive it.
Result<std::unique_ptr<Reference>> open_onnxruntime(const std::string& model,
                                                    const std::string& library,
                                                    std::span<const HostTensor> inputs);

}  // namespace davit::cli
