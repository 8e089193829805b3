#include "cli/model.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/files.hpp"
#include "cli/stage.hpp"
#include "exec/dynamic.h"
#include "exec/runtime.h"
#include "exec/weights.hpp"
#include "schema/layout.h"

namespace davit::cli {
namespace {

Result<compiler::CompiledImage> assemble(const std::string& path,
                                         std::span<const DvtKernelTable> plugin_kernels,
                                         bool takes_external_weights) {
  set_stage("assemble");
  auto text = read_regular_file(path, DVT_STAGE_LOAD);
  if (!text.ok()) return std::move(text.status());
  std::vector<DvtKernelTable> tables = all_kernel_tables();
  tables.insert(tables.end(), plugin_kernels.begin(), plugin_kernels.end());
  auto model = image::assemble_text(
      std::string_view(reinterpret_cast<const char*>(text->data()), text->size()), tables);
  if (!model.ok()) return std::move(model.status());
  model->external_constants = model->external_constants && takes_external_weights;
  set_stage("write");
  auto bytes = image::write_image(*model, plugin_kernels);
  if (!bytes.ok()) return std::move(bytes.status());
  compiler::CompiledImage compiled{.bytes = std::move(*bytes), .report = {}};
  compiler::CompileReport& report = compiled.report;
  for (const image::Graph& graph : model->graphs) {
    report.image_nodes += static_cast<uint32_t>(graph.nodes.size());
  }
  for (const image::KernelRef& kernel : model->kernels) report.kernels.push_back(kernel.name);
  report.arena_bytes = model->arena_bytes;
  report.lower_bound_bytes = model->lower_bound_bytes;
  report.constant_bytes = model->constants.size();
  report.file_bytes = compiled.bytes.size();
  if (model->external_constants) {
    compiled.weights_name = image::weights_file_name(*model);
    compiled.weights = std::move(model->constants);
  }
  return compiled;
}

// After a compilation, and after an image was opened.
void report_unused_plugins(Session& session, const CompileArguments& arguments,
                           const compiler::CompileReport& report) {
  std::vector<std::string> passes;
  for (const auto& [name, changes] : report.pass_changes) passes.push_back(name);
  arguments.plugins().report_unused(session, "model", report.kernels, passes);
}
void report_unused_plugins(Session& session, const CompileArguments& arguments,
                           const DvtImage& image) {
  std::vector<std::string> kernels;
  for (const exec::KernelRefView& kernel : image.view.kernel_refs) kernels.push_back(kernel.name);
  arguments.plugins().report_unused(session, "image", kernels, {});
}

Status only_for_models(const std::vector<std::string>& given, const char* what) {
  if (given.empty()) return {};
  return usage_error(fmt::format("{} would do nothing: {}", fmt::join(given, ", "), what),
                     "leave the option out, or give the ONNX model");
}

// `open` is one of the functions that open an image; `bytes` are what it borrows.
template <class Open>
Result<LoadedModel> open_with(bool preload, std::span<const DvtKernelTable> kernels,
                              AlignedBytes bytes, const Open& open) {
  set_stage("load");
  DvtImageOptions image_options;
  dvt_image_options_init(&image_options);
  image_options.prefault = preload ? 1 : 0;
  image_options.kernel_tables = kernels.data();
  image_options.kernel_table_count = kernels.size();
  LoadedModel model;
  model.bytes = std::move(bytes);
  DvtImage* image = nullptr;
  DvtError error{};
  const double begin = now_ns();
  if (open(&image_options, &image, &error) != DVT_OK) return status_of(error);
  model.open_ns = now_ns() - begin;
  model.image.reset(image);
  model.target = dvt_image_target(image);
  return model;
}

}  // namespace

double now_ns() {
  return static_cast<double>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                 std::chrono::steady_clock::now().time_since_epoch())
                                 .count());
}

Result<ModelKind> model_kind(const std::string& path) {
  auto file = open_regular_file(path, DVT_STAGE_LOAD);
  if (!file.ok()) return std::move(file.status());
  uint64_t magic = 0;
  const ssize_t count = ::pread(file->descriptor.get(), &magic, sizeof magic, 0);
  if (count < 0) {
    return Status(DVT_IO_ERROR, DVT_STAGE_LOAD,
                  fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  }
  if (magic == DVT_IMAGE_MAGIC) return ModelKind::kImage;
  if (path.ends_with(".onnx")) return ModelKind::kOnnx;
  if (path.ends_with(".txt")) return ModelKind::kImageText;
  return ModelKind::kImage;
}

std::vector<DvtKernelTable> all_kernel_tables() {
  return {dvt_cpu_kernels(), dvt_device_kernels(), dvt_dynamic_kernels()};
}

Result<compiler::CompiledImage> compile_model(Session& session, const std::string& path,
                                              const CompileArguments& compile_arguments,
                                              const OptionSet& options) {
  auto kind = model_kind(path);
  if (!kind.ok()) return std::move(kind.status());
  if (*kind == ModelKind::kImageText) {
    Status status = only_for_models(compile_arguments.given(options),
                                    "a text image says its target and shapes itself");
    if (!status.ok()) return status;
    auto assembled = assemble(path, compile_arguments.plugin_kernels(),
                              compile_arguments.takes_external_weights());
    if (assembled.ok()) report_unused_plugins(session, compile_arguments, assembled->report);
    return assembled;
  }
  if (*kind == ModelKind::kImage) {
    return usage_error(
        fmt::format("{} is neither an ONNX model (.onnx) nor a text image (.txt)", path));
  }
  auto compile_options = compile_arguments.parse();
  if (!compile_options.ok()) return std::move(compile_options.status());
  compile_options->on_stage = [&session](std::string_view stage) {
    set_stage(stage);
    session.detail("stage {}\n", stage);
  };
  set_stage("compile");
  auto compiled = compiler::compile_onnx_file(path, *compile_options);
  if (!compiled.ok()) return compiled;
  Status status = session.check_files(options, compiled->report.external_files);
  if (!status.ok()) return status;
  report_unused_plugins(session, compile_arguments, compiled->report);
  return compiled;
}

std::vector<std::string> weights_beside(const std::string& path, std::span<const std::byte> image) {
  DvtImageHeader header;
  std::memcpy(&header, image.data(), sizeof header);
  std::vector<std::string> paths;
  for (uint32_t i = 0; i < header.segment_count; ++i) {
    DvtSegment segment;
    std::memcpy(&segment, image.data() + sizeof header + i * sizeof segment, sizeof segment);
    if ((segment.flags & DVT_SEGMENT_EXTERNAL) == 0) continue;
    paths.push_back(exec::folder_of(path) + "/" + exec::weights_file_name(segment.digest));
  }
  return paths;
}

Result<LoadedModel> open_model(Session& session, const std::string& path,
                               const CompileArguments& compile_arguments,
                               const SignatureArguments& signature, const OptionSet& options,
                               bool preload) {
  auto kind = model_kind(path);
  if (!kind.ok()) return std::move(kind.status());
  if (*kind == ModelKind::kImage) {
    Status status =
        only_for_models(compile_arguments.given(options), "the image was compiled before");
    if (!status.ok()) return status;
    auto model =
        open_with(preload, compile_arguments.plugin_kernels(), {},
                  [&](const DvtImageOptions* image_options, DvtImage** image, DvtError* error) {
                    return signature.open(path, image_options, image, error);
                  });
    if (!model.ok()) return model;
    status = session.check_files(options, weights_beside(path, model->image->mapping.bytes()));
    if (!status.ok()) return status;
    report_unused_plugins(session, compile_arguments, *model->image);
    return model;
  }
  if (signature.required()) {
    return usage_error("--require-signature: only images are signed",
                       "davit compile, then davit sign");
  }
  const double begin = now_ns();
  auto compiled = compile_model(session, path, compile_arguments, options);
  if (!compiled.ok()) return std::move(compiled.status());
  const double compile_ns = now_ns() - begin;
  auto model = open_compiled(std::move(*compiled), preload, compile_arguments.plugin_kernels());
  if (model.ok()) model->compile_ns = compile_ns;
  return model;
}

Result<LoadedModel> open_compiled(compiler::CompiledImage compiled, bool preload,
                                  std::span<const DvtKernelTable> kernels) {
  AlignedBytes bytes(compiled.bytes.size(), DVT_IMAGE_PAGE);
  std::copy(compiled.bytes.begin(), compiled.bytes.end(), bytes.data());
  const std::span<const std::byte> borrowed = bytes.span();
  auto model = open_with(
      preload, kernels, std::move(bytes),
      [borrowed](const DvtImageOptions* image_options, DvtImage** image, DvtError* error) {
        return dvt_image_open_memory(borrowed.data(), borrowed.size(), image_options, image, error);
      });
  if (model.ok()) model->report = std::move(compiled.report);
  return model;
}

}  // namespace davit::cli
