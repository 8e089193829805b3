// davit tune: compiles a model, measures what its nodes take here, and compiles it again with a
// schedule that goes by that.

#include <fmt/format.h>

#include "cli/command.hpp"
#include "cli/execution_options.hpp"
#include "cli/model.hpp"
#include "cli/node_times.hpp"
#include "cli/report.hpp"
#include "cli/runner.hpp"
#include "cli/stage.hpp"

namespace davit::cli {
namespace {

class TuneCommand final : public Command {
 public:
  [[nodiscard]] std::string_view name() const override { return "tune"; }
  [[nodiscard]] std::string_view summary() const override {
    return "Compile an ONNX model with a schedule by what its nodes take on this machine";
  }

  void add_options(OptionSet& options) override {
    execution_.add_cpu_model(options);
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
    // What is measured has the nodes that are scheduled.
    execution_.compile().set_pieces(workers);
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
    auto kind = model_kind(execution_.model());
    if (!kind.ok()) return std::move(kind.status());
    if (*kind == ModelKind::kOnnx) return {};
    return usage_error(fmt::format("{} is no model: a schedule is laid down when an image is made",
                                   execution_.model()),
                       "davit tune model.onnx -o IMAGE");
  }

  Status count_workers(uint32_t& workers) const {
    const auto pool = make_pool(static_cast<uint32_t>(workers_));
    if (!pool.ok()) return Status(pool.status().detail());
    workers = dvt_pool_workers(pool->get());
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
    DvtImageInfo info{};
    dvt_image_info(model.image.get(), &info);
    auto times = measure_nodes(*runner, info.node_count, iterations_);
    if (!times.ok()) return times;
    status = runner->unload();
    if (!status.ok()) return status;
    session.print("Measured {} in {}\n", format_count(info.node_count, "node"),
                  format_count(iterations_, "run"));
    return times;
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
