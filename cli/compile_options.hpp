// compile_options.hpp: the options that shape a compilation, for compile, and for run and bench
// when they are given a model.
//
// Threads  One thread.
// Memory   Owns the option variables.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cli/options.hpp"
#include "cli/plugins.hpp"
#include "lowering/compile.hpp"

namespace davit::cli {

// Of --plan-budget-ms: up to an hour.
inline constexpr Bounds<uint64_t> kPlanBudgetMs{.min = 0, .max = 3'600'000};

// As given; empty: not at all.
struct GearArguments {
  std::string batch, image_size, dims;
  std::string input_format = "NCHW";

  [[nodiscard]] bool empty() const { return batch.empty() && image_size.empty() && dims.empty(); }
};

class CompileArguments {
 public:
  enum class Targets { kAll, kCpu };
  // Adds --plugin to the current group, and the group Compile; --target where there is a choice.
  void add_options(OptionSet& options, Targets targets = Targets::kAll);
  // --workers, where it has no other meaning.
  void add_workers(OptionSet& options);
  // --external-weights, where files are written.
  void add_external_weights(OptionSet& options);
  [[nodiscard]] bool takes_external_weights() const { return takes_external_weights_; }
  // For how many workers to lay down a schedule.
  void set_workers(uint32_t workers) { workers_ = workers; }
  // As many pieces of large operators, also where there is no schedule.
  void set_pieces(uint32_t pieces) { pieces_ = pieces; }
  // What nodes take, as in compiler::CompileOptions.
  void set_node_costs(std::vector<double> nanoseconds) { node_costs_ns_ = std::move(nanoseconds); }
  // Asked while code is compiled: true stops it.
  void set_cancelled(std::function<bool()> is_cancelled) {
    is_cancelled_ = std::move(is_cancelled);
  }
  // What can be judged before any file is opened.
  [[nodiscard]] Status check() const;
  // Loads the plug-ins; before parse(), and before an image is opened.
  Status load_plugins() { return plugins_.load(); }
  [[nodiscard]] const PluginArguments& plugins() const { return plugins_; }
  [[nodiscard]] const std::vector<DvtKernelTable>& plugin_kernels() const {
    return plugins_.kernel_tables();
  }
  // Reads the files that --freeze names, creates the folder of --save-passes.
  [[nodiscard]] Result<compiler::CompileOptions> parse() const;
  // Names of those given on the command line: they would do nothing to a compiled image.
  [[nodiscard]] std::vector<std::string> given(const OptionSet& options) const;
  // "cpu" or "ascend[:SOC]", as given.
  [[nodiscard]] const std::string& target() const { return target_; }
  [[nodiscard]] const GearArguments& gears() const { return gears_; }

 private:
  void add_gears(OptionSet& options);

  std::string target_ = "cpu";
  std::vector<std::string> shapes_, dims_, elements_, freezes_, disabled_passes_, enabled_passes_,
      only_passes_;
  GearArguments gears_;
  PluginArguments plugins_;
  std::string isas_ = "none";
  bool no_cache_ = false;
  bool plain_sums_ = false;
  std::string save_passes_;
  uint64_t level_ = 2;
  uint64_t workers_ = 1, pieces_ = 1, streams_ = 1;
  double stream_gain_ = compiler::CompileOptions().stream_gain;
  bool takes_workers_ = false;
  bool external_weights_ = false;
  bool takes_external_weights_ = false;
  uint64_t plan_budget_ms_ = 1000;
  std::vector<double> node_costs_ns_;
  std::function<bool()> is_cancelled_;
};

// "ascend:910B2" for the options, as an image names it.
std::string target_name(const compiler::CompileOptions& options);

}  // namespace davit::cli
