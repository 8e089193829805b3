#include "cli/compile_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "cli/numbers.hpp"
#include "cli/session.hpp"
#include "cli/tensors.hpp"
#include "davit/npu.h"
#include "exec/code_segment.hpp"
#include "exec/mt_topo/cpus.hpp"
#include "ir/text.hpp"

namespace davit::cli {
namespace {

constexpr const char* kNames[] = {"--target",       "--shapes",         "--dim",
                                  "--elements",     "--freeze",         "--optimize",
                                  "--disable-pass", "--enable-pass",    "--only-pass",
                                  "--save-passes",  "--plan-budget-ms", "--isa",
                                  "--no-cache",     "--dynamic-batch",  "--dynamic-image-size",
                                  "--dynamic-dims", "--input-format",   "--streams",
                                  "--stream-gain"};

// "in0:1x3x224x224,in1=1x4". A name may hold ':' itself ("input:0:1x4"): the last one splits.
Status parse_shapes(const std::string& text, compiler::CompileOptions& options) {
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    const std::string entry = text.substr(begin, comma - begin);
    const size_t split = entry.find_last_of(":=");
    const auto dims =
        split == std::string::npos ? std::nullopt : parse_dims(entry.substr(split + 1));
    if (!dims || split == 0) {
      return usage_error(fmt::format("--shapes: '{}' is not NAME:DIMS", entry),
                         "--shapes=in0:1x3x224x224,in1:1x4");
    }
    if (!options.shapes.emplace(entry.substr(0, split), *dims).second) {
      return usage_error(fmt::format("--shapes names '{}' twice", entry.substr(0, split)));
    }
    begin = comma + 1;
  }
  return {};
}

Status parse_dim(const std::string& text, compiler::CompileOptions& options) {
  const size_t split = text.rfind('=');
  const auto extent =
      split == std::string::npos ? std::nullopt : parse_integer(text.substr(split + 1));
  if (!extent || *extent < 0 || split == 0) {
    return usage_error(fmt::format("--dim: '{}' is not SYMBOL=EXTENT", text), "--dim N=8");
  }
  options.symbols[text.substr(0, split)] = *extent;
  return {};
}

Status parse_elements(const std::string& text, compiler::CompileOptions& options) {
  const size_t split = text.rfind('=');
  const std::string count = split == std::string::npos ? "" : text.substr(split + 1);
  const auto number = count == "none" ? std::optional(passes::kAbsent) : parse_integer(count);
  if (!number || (*number < 0 && count != "none") || split == 0) {
    return usage_error(fmt::format("--elements: '{}' is not NAME=COUNT or NAME=none", text),
                       "--elements images=3");
  }
  options.elements[text.substr(0, split)] = *number;
  return {};
}

Status parse_freeze(const std::string& text, compiler::CompileOptions& options) {
  const size_t split = text.find('=');
  if (split == std::string::npos || split == 0) {
    return usage_error(fmt::format("--freeze: '{}' is not NAME=@FILE or NAME=TYPE=VALUES", text),
                       "--freeze shape=@shape.npy or --freeze shape=2xi64=1,-1");
  }
  const std::string name = text.substr(0, split);
  auto tensor = parse_tensor(text.substr(split + 1), "--freeze", name);
  if (!tensor.ok()) return std::move(tensor.status());
  const auto bytes = tensor->bytes.span();
  options.frozen_inputs[name] =
      ir::make_tensor(tensor->dtype, tensor->dims, {bytes.begin(), bytes.end()});
  return {};
}

// Rows of extents, "1,128;8,64".
std::optional<std::vector<std::vector<int64_t>>> parse_rows(const std::string& text) {
  std::vector<std::vector<int64_t>> rows;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(';', begin), text.size());
    auto row = parse_integers(std::string_view(text).substr(begin, end - begin));
    if (!row || std::any_of(row->begin(), row->end(), [](int64_t n) { return n < 1; })) {
      return std::nullopt;
    }
    rows.push_back(std::move(*row));
    begin = end + 1;
  }
  return rows;
}

Status parse_gears(const GearArguments& given, compiler::CompileOptions& options) {
  const int count =
      int(!given.batch.empty()) + int(!given.image_size.empty()) + int(!given.dims.empty());
  if (count > 1) {
    return usage_error(
        "--dynamic-batch, --dynamic-image-size and --dynamic-dims exclude each other");
  }
  const bool channels_last = given.input_format == "NHWC";
  if (!channels_last && given.input_format != "NCHW") {
    return usage_error(fmt::format("--input-format: '{}' is not NCHW or NHWC", given.input_format));
  }
  if (channels_last && given.image_size.empty()) {
    return usage_error("--input-format: without --dynamic-image-size it would do nothing");
  }
  lowering::GearRequest& gears = options.gears;
  gears.channels_last = channels_last;
  if (!given.batch.empty()) {
    auto rows = parse_rows(given.batch);
    if (!rows || rows->size() != 1) {
      return usage_error(fmt::format("--dynamic-batch: '{}' is not N,N,...", given.batch),
                         "--dynamic-batch 1,2,4");
    }
    gears.batches = std::move(rows->front());
  }
  if (!given.image_size.empty()) {
    const auto rows = parse_rows(given.image_size);
    const bool pairs = rows && std::all_of(rows->begin(), rows->end(),
                                           [](const auto& row) { return row.size() == 2; });
    if (!pairs) {
      return usage_error(
          fmt::format("--dynamic-image-size: '{}' is not HEIGHT,WIDTH;...", given.image_size),
          "--dynamic-image-size '224,224;448,448'");
    }
    for (const auto& row : *rows) gears.image_sizes.push_back({row[0], row[1]});
  }
  if (!given.dims.empty()) {
    auto rows = parse_rows(given.dims);
    if (!rows) {
      return usage_error(fmt::format("--dynamic-dims: '{}' is not N,N;N,N...", given.dims),
                         "--dynamic-dims '1,128;8,64'");
    }
    gears.dims = std::move(*rows);
  }
  return {};
}

std::vector<std::string> soc_names() {
  std::vector<std::string> names;
  for (uint32_t i = 0; i < dvt_npu_soc_count(); ++i) names.emplace_back(dvt_npu_soc_name(i));
  return names;
}

Status parse_target(const std::string& text, compiler::CompileOptions& options) {
  const size_t colon = text.find(':');
  const std::string device = text.substr(0, colon);
  if (device == "cpu" && colon == std::string::npos) return {};
  if (device == "ascend") {
    options.target = DVT_TARGET_ASCEND;
    if (colon == std::string::npos) return {};
    options.soc = text.substr(colon + 1);
    const std::vector<std::string> socs = soc_names();
    if (std::find(socs.begin(), socs.end(), options.soc) != socs.end()) return {};
    const std::string near = nearest(options.soc, socs);
    return usage_error(
        fmt::format("--target: '{}' is not a SoC that Davit has ({}){}", options.soc,
                    fmt::join(socs, ", "), near.empty() ? "" : "; did you mean " + near + "?"),
        "davit doctor lists the targets");
  }
  const std::string near = nearest(device, {"cpu", "ascend"});
  return usage_error(
      fmt::format("--target: '{}' is not cpu or ascend[:SOC]{}", text,
                  near.empty() || near == device ? "" : "; did you mean " + near + "?"),
      "davit doctor lists the targets");
}

// "none", or names of instruction sets separated by commas.
Status parse_isas(const std::string& text, compiler::CompileOptions& options) {
  options.codegen.isas.clear();
  if (text == "none") return {};
  if (options.target != DVT_TARGET_CPU) {
    return usage_error("--isa: code is generated for the cpu", "leave it out, or --target cpu");
  }
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string name = text.substr(begin, end - begin);
    if (name == "native") name = exec::best_isa();
    auto isa = codegen::isa_named(name);
    if (!isa.ok()) {
      return usage_error(fmt::format("--isa: {}; expected none, native, {}",
                                     isa.status().detail().message,
                                     isa.status().detail().expected));
    }
    std::vector<std::string>& isas = options.codegen.isas;
    if (std::find(isas.begin(), isas.end(), name) == isas.end()) isas.push_back(std::move(name));
    begin = end + 1;
  }
  return {};
}

// Nothing to complain about when there is nothing yet.
Status check_folder(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status there = std::filesystem::status(path, error);
  if (!std::filesystem::exists(there) || std::filesystem::is_directory(there)) return {};
  return usage_error(fmt::format("--save-passes: {} is not a folder", path));
}

// Writes the graph after each pass to `folder`, which it creates.
Status save_passes(const std::string& folder, compiler::CompileOptions& options) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return Status(DVT_IO_ERROR, DVT_STAGE_WRITE,
                  fmt::format("cannot create the folder {}: {}", folder, error.message()));
  }
  options.on_pass = [folder, count = 0](std::string_view pass, const ir::Module& module) mutable {
    const std::string name = fmt::format("{:02}_{}.txt", count++, pass);
    return write_text((std::filesystem::path(folder) / name).string(), ir::print_text(module));
  };
  return {};
}

}  // namespace

void CompileArguments::add_options(OptionSet& options, Targets targets) {
  plugins_.add_options(options);
  options.group("Compile");
  if (targets == Targets::kAll) {
    options.add("--target", target_, "cpu or ascend[:SOC]", "runs on this machine");
  }
  options.add("--shapes", shapes_,
              "Extents of inputs, NAME:DIMS[,NAME:DIMS...]; repeatable (in0:1x3x224x224)",
              "as in the model");
  options.add("--dim", dims_, "Extent of a named dimension, SYMBOL=EXTENT; repeatable",
              "as in the model");
  if (targets == Targets::kAll) add_gears(options);
  options.add("--elements", elements_,
              "Tensors in an input that is a sequence or optional, NAME=COUNT or NAME=none; "
              "repeatable",
              "must be given for such inputs");
  options.add("--freeze", freezes_,
              "Make an input a constant, NAME=@FILE or NAME=TYPE=VALUES; repeatable",
              "inputs stay inputs", FileUse::kRead);
  options.add(
      "-O,--optimize", level_, {.min = 0, .max = 3},
      "0: only what lowering needs; 1: folding; 2: eliminations; 3: fusions, folded weights",
      "shorter programs that every kernel table can run");
  options.add("--disable-pass", disabled_passes_, "Leave an optimisation pass out; repeatable",
              "all passes of the level run");
  options.add("--enable-pass", enabled_passes_, "Run a pass of a higher level too; repeatable",
              "none");
  options.add("--only-pass", only_passes_,
              "Run these passes in place of those of the level; repeatable", "all of the level");
  options.add("--isa", isas_,
              "Generate kernels for baseline, avx2, avx512 or native, separated by commas, and put "
              "them into the image; none: reference kernels",
              "runs anywhere, without trust in code");
  options.add("--no-cache", no_cache_, "Compile all generated code anew",
              "what was compiled before is taken from the cache");
  if (targets == Targets::kAll) {
    options.add("--streams", streams_, {.min = 1, .max = lowering::kStreamsMax},
                "Streams of a static ascend image, at most; events order their tasks", "");
    options.add(
        "--stream-gain", stream_gain_, {.min = 0, .max = 1e9},
        "The part of the modelled time on one stream that several have to promise; more than "
        "1 takes them anyway",
        "for less they are not worth it");
  }
  options.add("--plain-sums", plain_sums_,
              "Generate convolutions as sums of their products: no Winograd",
              "3x3 windows go by Winograd where that is faster");
  options.add("--plan-budget-ms", plan_budget_ms_, kPlanBudgetMs,
              "Search for a smaller arena where heuristics miss the lower bound, in nominal ms",
              "counted in steps of work: the same image on every machine");
  options.add("--save-passes", save_passes_,
              "Write the graph as text after each pass to this folder", "no files",
              FileUse::kWrittenFolder);
}

void CompileArguments::add_gears(OptionSet& options) {
  options.add(
      "--dynamic-batch", gears_.batch,
      "Gears: what the free first dimensions of inputs may be (1,2,4); each has a static plan",
      "shapes are free");
  options.add("--dynamic-image-size", gears_.image_size,
              "Gears: what free heights and widths of images may be ('224,224;448,448')",
              "shapes are free");
  options.add("--dynamic-dims", gears_.dims,
              "Gears: what all free dimensions may be, in the order of the inputs ('1,128;8,64')",
              "shapes are free");
  options.add("--input-format", gears_.input_format,
              "Where --dynamic-image-size finds height and width: NCHW or NHWC", "as in ONNX");
}

void CompileArguments::add_workers(OptionSet& options) {
  takes_workers_ = true;
  options.add("--workers", workers_, {.min = 1, .max = 64},
              "Put a schedule for so many workers into the image, if it pays", "no schedule");
}

void CompileArguments::add_external_weights(OptionSet& options) {
  takes_external_weights_ = true;
  options.add("--external-weights", external_weights_,
              "Put the weights into a file of their own beside the image, named by their digest",
              "in the image");
}

std::vector<std::string> CompileArguments::given(const OptionSet& options) const {
  std::vector<std::string> names;
  for (const char* name : kNames) {
    if (options.given(name)) names.emplace_back(name);
  }
  if (takes_workers_ && options.given("--workers")) names.emplace_back("--workers");
  if (external_weights_) names.emplace_back("--external-weights");
  return names;
}

Status CompileArguments::check() const {
  compiler::CompileOptions unused;
  Status status = parse_target(target_, unused);
  if (status.ok()) status = parse_isas(isas_, unused);
  if (status.ok() && no_cache_ && unused.codegen.isas.empty()) {
    status = usage_error("--no-cache: without --isa no code is generated");
  }
  if (status.ok() && plain_sums_ && unused.codegen.isas.empty()) {
    status = usage_error("--plain-sums: without --isa no code is generated");
  }
  if (status.ok()) status = parse_gears(gears_, unused);
  if (status.ok() && streams_ > 1 && unused.target == DVT_TARGET_CPU) {
    status = usage_error("--streams would do nothing without --target ascend", "--target ascend");
  }
  const bool gains = stream_gain_ != compiler::CompileOptions().stream_gain;
  if (status.ok() && streams_ < 2 && gains) {
    status = usage_error("--stream-gain would do nothing: one stream was asked for", "--streams 4");
  }
  if (status.ok() && !save_passes_.empty()) status = check_folder(save_passes_);
  return status;
}

Result<compiler::CompileOptions> CompileArguments::parse() const {
  compiler::CompileOptions options;
  Status status = parse_target(target_, options);
  for (size_t i = 0; status.ok() && i < shapes_.size(); ++i) {
    status = parse_shapes(shapes_[i], options);
  }
  for (size_t i = 0; status.ok() && i < dims_.size(); ++i) status = parse_dim(dims_[i], options);
  for (size_t i = 0; status.ok() && i < elements_.size(); ++i) {
    status = parse_elements(elements_[i], options);
  }
  for (size_t i = 0; status.ok() && i < freezes_.size(); ++i) {
    status = parse_freeze(freezes_[i], options);
  }
  if (status.ok() && !save_passes_.empty()) status = save_passes(save_passes_, options);
  if (status.ok()) status = parse_isas(isas_, options);
  if (status.ok()) status = parse_gears(gears_, options);
  if (!status.ok()) return status;
  options.codegen.plain_sums = plain_sums_;
  options.codegen.toolchain.cache_folder = no_cache_ ? "" : codegen::default_cache_folder();
  options.codegen.toolchain.is_cancelled = is_cancelled_;
  options.codegen.toolchain.jobs = mt_topo::usable_cpus().threads();
  options.level = static_cast<passes::Level>(level_);
  options.plan_budget_ms = plan_budget_ms_;
  options.plugins = plugins_.plugins();
  options.disabled_passes = disabled_passes_;
  options.enabled_passes = enabled_passes_;
  options.only_passes = only_passes_;
  options.workers = static_cast<uint32_t>(workers_);
  options.pieces = static_cast<uint32_t>(std::max(pieces_, workers_));
  options.streams = static_cast<uint32_t>(streams_);
  options.stream_gain = stream_gain_;
  options.node_costs_ns = node_costs_ns_;
  options.external_weights = external_weights_;
  return options;
}

std::string target_name(const compiler::CompileOptions& options) {
  return options.target == DVT_TARGET_CPU ? "cpu" : "ascend:" + options.soc;
}

}  // namespace davit::cli
