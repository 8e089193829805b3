#include "cli/execution_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "cli/numbers.hpp"
#include "cli/runner.hpp"
#include "cli/stage.hpp"
#include "exec/image.hpp"
#include "exec/layout.hpp"
#include "exec/mt_topo/cpus.hpp"

namespace davit::cli {

namespace {

std::optional<uint32_t> schedule_of(const std::string& name) {
  if (name == "auto") return DVT_SCHEDULE_AUTO;
  if (name == "sequential") return DVT_SCHEDULE_SEQUENTIAL;
  if (name == "planned") return DVT_SCHEDULE_PLANNED;
  if (name == "dynamic") return DVT_SCHEDULE_DYNAMIC;
  return std::nullopt;
}

std::optional<uint32_t> huge_pages_of(const std::string& name) {
  if (name == "auto") return DVT_HUGE_PAGES_AUTO;
  if (name == "none") return DVT_HUGE_PAGES_NONE;
  if (name == "reserved") return DVT_HUGE_PAGES_RESERVED;
  return std::nullopt;
}

}  // namespace

void ToleranceArguments::add(OptionSet& options) {
  constexpr Bounds<double> kTolerance{.min = 0, .max = std::numeric_limits<double>::infinity()};
  options.add("--atol", atol_, kTolerance, "Absolute tolerance of a comparison", "");
  options.add("--rtol", rtol_, kTolerance, "Tolerance relative to each expected element", "");
  options.add("--rtol-max", rtol_max_, kTolerance,
              "Tolerance relative to the largest expected element", "");
}

Tolerance ToleranceArguments::resolve(OptionSet& options) const {
  Tolerance tolerance{.atol = atol_, .rtol = rtol_, .rtol_max = rtol_max_};
  if ((options.given("--atol") || options.given("--rtol")) && !options.given("--rtol-max")) {
    tolerance.rtol_max = 0;
    options.resolve("--rtol-max", "0", "--atol or --rtol is given");
  }
  return tolerance;
}

std::string ToleranceArguments::given(const OptionSet& options) {
  for (const char* name : {"--atol", "--rtol", "--rtol-max"}) {
    if (options.given(name)) return name;
  }
  return {};
}

void ExecutionArguments::add_model(OptionSet& options) {
  options.group("Model");
  options.add("model,-m,--model", model_,
              "An image; or model.onnx or a text image (.txt), compiled in memory first", "",
              FileUse::kRead);
  signature_.add_options(options);
  compile_.add_options(options);
}

void ExecutionArguments::add_cpu_model(OptionSet& options) {
  options.group("Model");
  options.add("model,-m,--model", model_, "model.onnx", "", FileUse::kRead);
  compile_.add_options(options, CompileArguments::Targets::kCpu);
}

void ExecutionArguments::add_inputs(OptionSet& options) {
  options.add(
      "--input", inputs_,
      "[NAME=]FORM; FORM: @FILE.npy, @FILE.pb, TYPE=VALUES (1x4xf32=0,1,2,3), random, "
      "zeros, or with the shape of an input that has open dimensions random:2x4, zeros:2x4; "
      "repeatable",
      "random", FileUse::kRead);
  options.add("--seed", seed_, {.min = 0, .max = UINT64_MAX}, "Seed of random inputs",
              "so that runs repeat");
}

void ExecutionArguments::add_run(OptionSet& options) {
  options.add("--percentiles", percentiles_, "Percentiles of latency to report", "");
  options.add("--timeout", timeout_seconds_, {.min = 0.001, .max = 1e9},
              "Seconds after which to give up with exit code 6", "0: no limit");
  options.add("--workers", workers_, {.min = 0, .max = 64},
              "Threads that run Main, the caller's included; 0: as many as this process may use",
              "");
  options.add("--schedule", schedule_, "auto, sequential, planned or dynamic",
              "the fastest, by trial");
  options.add("--memory-max", memory_max_, {.min = 0, .max = UINT64_MAX},
              "Most bytes of values whose size is known at run time only", "0: no limit");
  options.add("--huge-pages", huge_pages_, "Memory of planned values: auto, none or reserved",
              "from 2 MiB on, as the system can");
  options.add("--output-shape", output_shapes_,
              "NAME:DIMS: what the shape of an output has to turn out to be; repeatable",
              "outputs have the shapes that follow");
  options.add("--trust-output-shapes", trust_output_shapes_,
              "Take the shapes of --output-shape without inferring them", "they are checked");
  options.add("--preload", preload_, "Touch all pages of the image at load",
              "pages are read when first used");
}

void ExecutionArguments::add_device(OptionSet& options) {
  options.group("Device");
  options.add("--device", device_, "cpu, or npu-sim[:SOC] for ascend images", "the image's target");
  options.add("--device-memory", device_memory_,
              "cached: results of nodes use memory again; direct: the device allocates each", "");
  options.add("--device-mode", device_settings_.mode,
              "When tasks of npu-sim take effect: prompt, lazy or adversarial[:SEED]", "");
  options.add("--soc-override", device_settings_.overrides,
              "KEY=VALUE: another value of a parameter of npu-sim; repeatable", "none");
}

void ExecutionArguments::add_report(OptionSet& options) {
  options.group("Report");
  add_top(options);
  options.add("--op-summary", op_summary_,
              "Write the predicted device tasks as CSV, msprof's columns (ascend images)",
              "no file", FileUse::kWritten);
}

void ExecutionArguments::add_top(OptionSet& options) {
  options.add("--top", top_, {.min = 1, .max = 1'000'000}, "Rows of a table", "");
}

Status ExecutionArguments::check(OptionSet& options) {
  if (model_.empty()) return usage_error("a model or an image is needed");
  Status status = signature_.check();
  if (status.ok()) status = compile_.check();
  if (status.ok()) status = compile_.load_plugins();
  if (!status.ok()) return status;
  // An image was compiled before: these settings do not exist for it.
  auto kind = model_kind(model_);
  if (kind.ok() && *kind != ModelKind::kOnnx) options.hide("Compile");
  if (!schedule_of(schedule_)) {
    return usage_error(
        fmt::format("--schedule: '{}' is not auto, sequential, planned or dynamic", schedule_));
  }
  if (Status memory = check_memory(); !memory.ok()) return memory;
  if (trust_output_shapes_ && output_shapes_.empty()) {
    return usage_error("--trust-output-shapes would do nothing without --output-shape");
  }
  if ((schedule_ == "dynamic" || schedule_ == "planned") && workers_ == 1) {
    return usage_error(fmt::format("--schedule {} would do nothing with one worker", schedule_),
                       "--workers 2");
  }
  const auto ranks = parse_reals(percentiles_);
  const bool in_range = ranks && std::all_of(ranks->begin(), ranks->end(),
                                             [](double rank) { return rank >= 0 && rank <= 100; });
  if (!in_range) {
    return usage_error(
        fmt::format("--percentiles: '{}' is not a list of numbers from 0 to 100", percentiles_),
        "--percentiles 50,90,99");
  }
  percentile_ranks_ = *ranks;
  return {};
}

Status ExecutionArguments::check_memory() const {
  if (device_memory_ != "cached" && device_memory_ != "direct") {
    return usage_error(
        fmt::format("--device-memory: '{}' is not cached or direct", device_memory_));
  }
  if (device_memory_ == "direct" && memory_max_ != 0) {
    return usage_error(
        "--memory-max limits what an executor keeps: with --device-memory direct "
        "the device allocates each value",
        "--device-memory cached");
  }
  if (!huge_pages_of(huge_pages_)) {
    return usage_error(
        fmt::format("--huge-pages: '{}' is not auto, none or reserved", huge_pages_));
  }
  return {};
}

// Options that the image cannot heed.
Status ExecutionArguments::check_target(const OptionSet& options, const LoadedModel& model) const {
  if (model.target != "cpu") return {};
  constexpr const char* kOther = "compile with --target ascend";
  if (!op_summary_.empty()) {
    return usage_error("--op-summary would do nothing: the image is for the cpu", kOther);
  }
  if (options.given("--device-memory")) {
    return usage_error("--device-memory would do nothing: the image is for the cpu", kOther);
  }
  const auto layout = exec::lay_out(model.image->view);
  if (memory_max_ != 0 && layout.ok() && !layout->uses_heap) {
    return usage_error(
        "--memory-max would do nothing: the image is for the cpu, and all its values are planned");
  }
  return {};
}

Result<Workers> ExecutionArguments::workers(Session& session) {
  Workers workers;
  workers.schedule = *schedule_of(schedule_);
  workers.pool = pool_.get();
  if (workers_ == 1 || pool_ != nullptr) return workers;
  if (workers.schedule == DVT_SCHEDULE_SEQUENTIAL) {
    session.warn("--schedule sequential runs on one worker: --workers is for compiling alone");
  }
  auto pool = make_pool(static_cast<uint32_t>(workers_));
  if (!pool.ok()) return std::move(pool.status());
  pool_ = std::move(*pool);
  workers.pool = pool_.get();
  session.log("{}{}\n", format_count(dvt_pool_workers(workers.pool), "worker"),
              workers_ == 0 ? " (" + mt_topo::usable_cpus().why() + ")" : "");
  return workers;
}

ExecutorSettings ExecutionArguments::executor_settings() const {
  return {.bytes_max = memory_max_,
          .device_memory = device_memory_ == "direct" ? uint32_t{DVT_DEVICE_MEMORY_DIRECT}
                                                      : uint32_t{DVT_DEVICE_MEMORY_CACHED},
          .huge_pages = *huge_pages_of(huge_pages_),
          .trust_output_shapes = trust_output_shapes_};
}

int64_t ExecutionArguments::synchronize_timeout_us() const {
  return timeout_seconds_ > 0 ? static_cast<int64_t>(timeout_seconds_ * 1e6) : -1;
}

Result<LoadedModel> ExecutionArguments::open(Session& session, const OptionSet& options) {
  const auto with = workers(session);
  if (!with.ok()) return Status(with.status().detail());
  if (with->pool != nullptr) compile_.set_workers(dvt_pool_workers(with->pool));
  return open_model(session, model_, compile_, signature_, options, preload_);
}

Result<LoadedModel> ExecutionArguments::open_unoptimised() {
  auto options = compile_.parse();
  if (!options.ok()) return std::move(options.status());
  options->target = DVT_TARGET_CPU;
  options->level = passes::Level::kRequired;
  options->disabled_passes.clear();
  options->enabled_passes.clear();
  options->only_passes.clear();
  options->codegen.isas.clear();
  options->on_pass = nullptr;
  auto compiled = compiler::compile_onnx_file(model_, *options);
  if (!compiled.ok()) return std::move(compiled.status());
  return open_compiled(std::move(*compiled), /*preload=*/false, compile_.plugin_kernels());
}

Result<DeviceHandle> ExecutionArguments::open_device(Session& session, OptionSet& options,
                                                     const LoadedModel& model) {
  set_stage("device");
  if (Status status = check_target(options, model); !status.ok()) return status;
  std::string resolved;
  auto device = cli::open_device(device_, model.target, device_settings_, resolved);
  if (!device.ok()) return device;
  if (device->npu != nullptr) {
    const Status status = compile_.plugins().describe_kernels(device->npu.get());
    if (!status.ok()) return Status(status.detail());
  }
  options.resolve("--device", resolved, "the image's target");
  session.record_settings(options);
  session.log("device {}: the image's target is {}\n", resolved, model.target);
  return device;
}

Result<std::vector<HostTensor>> ExecutionArguments::inputs(Session& session,
                                                           std::span<const PortType> ports) {
  std::vector<InputSource> sources;
  std::string open, example;  // Inputs whose open dimensions nobody gave.
  auto inputs = make_inputs(ports, inputs_, seed_, sources);
  if (!inputs.ok()) return inputs;
  Json json = Json::array();
  for (size_t i = 0; i < ports.size(); ++i) {
    const std::string& name = ports[i].name;
    session.log("input {}: {}, {}\n", name, ports[i].type_text(), sources[i].text);
    json.push_back({{"name", name}, {"type", ports[i].type_text()}, {"source", sources[i].text}});
    if (!sources[i].open_dims_are_one) continue;
    open += fmt::format("{}{} {}", open.empty() ? "" : ", ", name, ports[i].type_text());
    if (example.empty())
      example = fmt::format("--input {0}=random:DIMS or compile --shapes {0}:DIMS", name);
  }
  if (!open.empty()) {
    session.set_node_hint(fmt::format(
        "open dimensions were taken as 1 ({}), which may be too small: {}", open, example));
  }
  session.result()["inputs"] = std::move(json);
  return inputs;
}

Status ExecutionArguments::write_op_summary(Session& session, const DvtNpu* npu) {
  if (op_summary_.empty()) return {};
  Status status = cli::write_op_summary(npu, op_summary_);
  if (status.ok()) session.log("wrote op summary to {}\n", op_summary_);
  return status;
}

}  // namespace davit::cli
