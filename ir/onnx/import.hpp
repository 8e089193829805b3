// import.hpp: ONNX models become modules.
//
// Reads IR versions 3 to 10 and opsets 1 to 21 of ai.onnx; other domains at any version. Subgraphs
// are kept as nested graphs. Constant nodes, initializers, and inputs that have an initializer
// become constants. Nodes may come in any order; the module is sorted and verified.
//
// Threads  Functions share nothing; call them from any thread.
// Trust    Models are untrusted. Every size is checked against the bytes that are there before
//          memory is taken for it, and external data is opened only inside the model's folder,
//          never through a link. Errors name tensor, node path and cause.
// Memory   The result owns copies of everything. The peak is the model's size plus its largest
//          tensor.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "ir/module.hpp"

namespace davit::onnx_import {

inline constexpr int64_t kIrVersionMin = 3, kIrVersionMax = 10;
inline constexpr int64_t kOpsetMin = 1, kOpsetMax = 21;

// External data is looked for in the folder of `path`. Module::source_digest covers the file and
// the external data read.
// Errors: DVT_IO_ERROR (cannot read), DVT_INVALID_IMAGE (breaks a rule of ONNX), DVT_UNSUPPORTED
// (valid ONNX beyond the above: newer versions, sparse tensors, model-local functions, types other
// than dense tensors), DVT_OUT_OF_MEMORY.
// `external_files`, if not null, gets the paths of the external data that was read.
Result<ir::Module> import_onnx_file(const std::string& path,
                                    std::vector<std::string>* external_files = nullptr);

// The same from memory. Without a folder, external data is an error.
Result<ir::Module> import_onnx_bytes(std::span<const std::byte> bytes,
                                     const std::optional<std::string>& folder = std::nullopt);

}  // namespace davit::onnx_import
