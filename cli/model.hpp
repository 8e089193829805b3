// model.hpp: opens what a positional argument names: an image, its text form, or an ONNX model that
// is compiled in memory first.
//
// Threads  One thread; the image may then be shared.
// Trust    Files are untrusted; the libraries judge them.
// Memory   A LoadedModel owns the image and, when it was made in memory, its bytes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "cli/compile_options.hpp"
#include "cli/session.hpp"
#include "cli/signed_image.hpp"
#include "cli/tensors.hpp"
#include "davit/davit.h"
#include "lowering/compile.hpp"
#include "lowering/image/image_model.hpp"

namespace davit::cli {

enum class ModelKind { kImage, kImageText, kOnnx };

// By content for images (their magic), else by the end of the name: .onnx is a model, .txt a text
// form, anything else is taken for an image, so that a damaged one is reported as such.
Result<ModelKind> model_kind(const std::string& path);

struct ImageClose {
  void operator()(DvtImage* image) const { dvt_image_close(image); }
};
using ImagePtr = std::unique_ptr<DvtImage, ImageClose>;

struct LoadedModel {
  AlignedBytes bytes;  // Empty when the file is mapped. Declared first: the image borrows it.
  ImagePtr image;
  std::string target;     // "cpu" or "ascend:910B2"
  double open_ns = 0;     // Map, verify, bind kernel names.
  double compile_ns = 0;  // 0 for an image.
  std::optional<compiler::CompileReport> report;
};

// The files with weights of an image at `path` that the verifier has accepted.
std::vector<std::string> weights_beside(const std::string& path, std::span<const std::byte> image);

// Precondition: `compile_arguments` belongs to `options`. With an image, compile options that were
// given are a usage error: they could do nothing.
Result<LoadedModel> open_model(Session& session, const std::string& path,
                               const CompileArguments& compile_arguments,
                               const SignatureArguments& signature, const OptionSet& options,
                               bool preload);

// Opens what was compiled in memory. `kernels` are those of plug-ins.
Result<LoadedModel> open_compiled(compiler::CompiledImage compiled, bool preload,
                                  std::span<const DvtKernelTable> kernels);

// Compiles `path` (ONNX) or assembles it (text), with progress in the session's log.
Result<compiler::CompiledImage> compile_model(Session& session, const std::string& path,
                                              const CompileArguments& compile_arguments,
                                              const OptionSet& options);

// Every kernel table of Davit: for the names in text forms.
std::vector<DvtKernelTable> all_kernel_tables();

// Monotonic time.
double now_ns();

}  // namespace davit::cli
