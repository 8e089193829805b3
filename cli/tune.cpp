// davit tune: compiles a model, measures what its nodes take here, and compiles it again with a
// schedule that goes by that.

#include <fmt/format.h>

#include <algorithm>

#include "cli/command.hpp"
#include "cli/execution_options.hpp"
#include "cli/model.hpp"
#include "cli/report.hpp"
#include "cli/runner.hpp"
#include "cli/stage.hpp"

namespace davit::cli {
namespace {

// What each node of Main takes, run by run.
struct NodeTimes {
  std::vector<std::vector<double>> of_node;

  // A DvtNodeObserver.
  static void observe(void* user, const DvtNodeEvent* event) {
    auto& times = *static_cast<NodeTimes*>(user);
    if (event->body != DVT_NO_INDEX || event->node >= times.of_node.size()) return;
    times.of_node[event->node].push_back(static_cast<double>(event->end_ns - event->begin_ns));
  }

  [[nodiscard]] std::vector<double> medians() const {
    std::vector<double> medians;
    for (std::vector<double> samples : of_node) {
      const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
      std::nth_element(samples.begin(), middle, samples.end());
      medians.push_back(*middle);
    }
    return medians;
  }
};

class TuneCommand final : public Command {
 public:
  [[nodiscard]] std::string_view name() const override { return "tune"; }
  [[nodiscard]] std::string_view summary() const override {
    return "Compile an ONNX model with a schedule by what its nodes take on this machine";
  }

  void add_options(OptionSet& options) override {
    execution_.add_model(options);
    options.add("-o,--output", output_, "Image file to write", "", FileUse::kWritten);
    options.group("Tune");
    options.add("--workers", workers_, {.min = 0, .max = 64},
                "Workers to schedule for; 0: as many as this process may use", "");
    options.add("--iterations", iterations_, {.min = 1, .max = 1'000'000},
                "Observed runs; medians count", "");
    execution_.add_inputs(options);
  }

  Status run(Session& session, OptionSet& options) override {
    Status status = check(options);
    session.echo_settings(options);
    if (!status.ok()) return status;
    uint32_t workers = 0;
    status = count_workers(workers);
    if (!status.ok()) return status;
    auto plain = execution_.open(session, options);
    if (!plain.ok()) return std::move(plain.status());
    auto costs = measure(session, *plain);
    if (!costs.ok()) return std::move(costs.status());
    execution_.compile().set_workers(workers);
    execution_.compile().set_node_costs(std::move(*costs));
    const double begin = now_ns();
    auto compiled = compile_model(session, execution_.model(), execution_.compile(), options);
    if (!compiled.ok()) return std::move(compiled.status());
    set_stage("write");
    status = write_bytes(output_, compiled->bytes);
    if (!status.ok()) return status;
    report_compilation(session, compiled->report, (now_ns() - begin) / 1e9);
    session.print("Wrote {}\n", output_);
    session.result()["output"] = output_;
    return {};
  }

 private:
  Status check(OptionSet& options) {
    Status status = execution_.check(options);
    if (!status.ok()) return status;
    if (output_.empty()) return usage_error("-o/--output is needed", "davit tune MODEL -o IMAGE");
    if (execution_.target() != "cpu") {
      return usage_error("tune measures this machine: --target must be cpu");
    }
    auto kind = model_kind(execution_.model());
    if (!kind.ok()) return std::move(kind.status());
    if (*kind == ModelKind::kOnnx) return {};
    return usage_error(fmt::format("{} is no model: a schedule is laid down when an image is made",
                                   execution_.model()),
                       "davit tune model.onnx -o IMAGE");
  }

  Status count_workers(uint32_t& workers) const {
    DvtPoolOptions pool_options;
    dvt_pool_options_init(&pool_options);
    pool_options.workers = static_cast<uint32_t>(workers_);
    DvtPool* pool = nullptr;
    DvtError error{};
    if (dvt_pool_create(&pool_options, &pool, &error) != DVT_OK) return status_of(error);
    workers = dvt_pool_workers(pool);
    dvt_pool_destroy(pool);
    if (workers > 1) return {};
    return usage_error("there is nothing to schedule for one worker", "--workers 2");
  }

  Result<std::vector<double>> measure(Session& session, const LoadedModel& model) {
    set_stage("load");
    auto runner = Runner::create(model.image.get(), nullptr, /*timeout_us=*/-1, {});
    if (!runner.ok()) return std::move(runner.status());
    auto inputs = execution_.inputs(session, input_ports(model.image.get()));
    if (!inputs.ok()) return std::move(inputs.status());
    Status status = runner->bind_inputs(*inputs);
    if (!status.ok()) return status;
    set_stage("measure");
    auto first = runner->run();  // Touches all pages.
    if (!first.ok()) return std::move(first.status());
    DvtImageInfo info{};
    dvt_image_info(model.image.get(), &info);
    NodeTimes times{.of_node = std::vector<std::vector<double>>(info.node_count)};
    for (uint64_t i = 0; i < iterations_; ++i) {
      auto time_ns = runner->run_observed(&NodeTimes::observe, &times);
      if (!time_ns.ok()) return std::move(time_ns.status());
    }
    status = runner->unload();
    if (!status.ok()) return status;
    // Nodes that depend on shapes alone run once: such a graph has no schedule anyway.
    for (auto& samples : times.of_node) {
      if (samples.empty()) samples.push_back(0);
    }
    session.print("Measured {} in {}\n", format_count(info.node_count, "node"),
                  format_count(iterations_, "run"));
    return times.medians();
  }

  ExecutionArguments execution_;
  std::string output_;
  uint64_t workers_ = 0, iterations_ = 10;
};

}  // namespace

std::unique_ptr<Command> make_tune_command() {
  return std::make_unique<TuneCommand>();
}

}  // namespace davit::cli
