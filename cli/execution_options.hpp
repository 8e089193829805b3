// execution_options.hpp: the options that run and bench share.
//
// Threads  One thread.
// Memory   Owns the option variables.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/compile_options.hpp"
#include "cli/device.hpp"
#include "cli/model.hpp"
#include "cli/options.hpp"
#include "cli/runner.hpp"
#include "cli/session.hpp"
#include "cli/tensors.hpp"

namespace davit::cli {

// Times are kept: 8 bytes for each run.
inline constexpr Bounds<uint64_t> kIterations{.min = 1, .max = 1'000'000'000};

// The options of a command that compares tensors: --atol, --rtol, --rtol-max.
class ToleranceArguments {
 public:
  void add(OptionSet& options);
  // After parsing: --atol or --rtol alone say that nothing else is tolerated.
  Tolerance resolve(OptionSet& options) const;
  // One of them that was given, or "".
  [[nodiscard]] static std::string given(const OptionSet& options);

 private:
  double atol_ = 1e-6, rtol_ = 1e-5, rtol_max_ = 1e-5;
};

class ExecutionArguments {
 public:
  // Each adds the options of one concern to the group that is current, or to its own.
  void add_model(OptionSet& options);      // Groups Model and Compile.
  void add_cpu_model(OptionSet& options);  // The same for an ONNX model, and the cpu.
  void add_inputs(OptionSet& options);     // Group Run, like the next.
  void add_run(OptionSet& options);
  void add_device(OptionSet& options);  // Group Device.
  void add_report(OptionSet& options);  // Group Report.
  void add_top(OptionSet& options);     // Part of it.

  // After parsing: what cannot be judged option by option. Hides settings that do not apply.
  Status check(OptionSet& options);

  // Makes the pool first: a model is compiled for its workers.
  Result<LoadedModel> open(Session& session, const OptionSet& options);
  // The model once more, as its source has it: no rewrites, for the cpu. Precondition: open() has
  // accepted an ONNX model.
  Result<LoadedModel> open_unoptimised();
  // Also notes in the settings what --device came to mean.
  Result<DeviceHandle> open_device(Session& session, OptionSet& options, const LoadedModel& model);
  // Also makes the pool of --workers, once, which lives as long as this.
  Result<Workers> workers(Session& session);
  // The inputs, their sources in the log and in JSON.
  Result<std::vector<HostTensor>> inputs(Session& session, std::span<const PortType> ports);
  // When --op-summary was given.
  Status write_op_summary(Session& session, const DvtNpu* npu);

  [[nodiscard]] ExecutorSettings executor_settings() const;
  // Of --output-shape.
  [[nodiscard]] std::span<const std::string> output_shapes() const { return output_shapes_; }
  [[nodiscard]] const std::string& model() const { return model_; }
  [[nodiscard]] const std::string& target() const { return compile_.target(); }
  [[nodiscard]] const SignatureArguments& signature() const { return signature_; }
  [[nodiscard]] CompileArguments& compile() { return compile_; }
  [[nodiscard]] bool has_inputs() const { return !inputs_.empty(); }
  [[nodiscard]] double timeout_seconds() const { return timeout_seconds_; }
  // As CompileArguments::set_cancelled().
  void set_cancelled(std::function<bool()> is_cancelled) {
    compile_.set_cancelled(std::move(is_cancelled));
  }
  // The same limit for waits on a device; -1 without one.
  [[nodiscard]] int64_t synchronize_timeout_us() const;
  [[nodiscard]] const std::vector<double>& percentiles() const { return percentile_ranks_; }
  [[nodiscard]] size_t top() const { return top_; }
  [[nodiscard]] bool preload() const { return preload_; }

 private:
  [[nodiscard]] Status check_memory() const;
  [[nodiscard]] Status check_target(const OptionSet& options, const LoadedModel& model) const;

  std::string model_, device_, op_summary_;
  DeviceSettings device_settings_;
  CompileArguments compile_;
  SignatureArguments signature_;
  std::vector<std::string> inputs_;
  uint64_t seed_ = 0;
  double timeout_seconds_ = 0;
  bool preload_ = false;
  uint64_t workers_ = 1;
  std::string schedule_ = "auto";
  uint64_t memory_max_ = 0;
  std::string device_memory_ = "cached";
  std::string huge_pages_ = "auto";
  std::vector<std::string> output_shapes_;
  bool trust_output_shapes_ = false;
  PoolPtr pool_;
  std::string percentiles_ = "50,90,95,99,99.9";
  std::vector<double> percentile_ranks_;
  uint64_t top_ = 20;
};

}  // namespace davit::cli
