// davit stress: random graphs against the scheduler, until something is wrong or the time is up.

#include <fmt/format.h>

#include "cli/command.hpp"
#include "cli/numbers.hpp"
#include "cli/report.hpp"
#include "cli/stage.hpp"
#include "stress/stress.hpp"

namespace davit::cli {
namespace {

class StressCommand final : public Command {
 public:
  [[nodiscard]] std::string_view name() const override { return "stress"; }
  [[nodiscard]] std::string_view summary() const override {
    return "Run the scheduler on random graphs with failures, and look that all is right";
  }

  void add_options(OptionSet& options) override {
    options.group("Stress");
    options.add("--duration", seconds_, {.min = 0, .max = 1e7}, "Seconds to go on; 0: no limit",
                "");
    options.add("--rounds", rounds_, {.min = 0, .max = UINT64_MAX},
                "Rounds after which to stop, if that is sooner", "0: no limit");
    options.add("--seed", seed_, {.min = 0, .max = UINT64_MAX},
                "Seed of the first round; the next has the next", "so that runs repeat");
    options.add("--workers", workers_, {.min = 1, .max = 64}, "Most workers of a round", "");
    options.add("--workers-min", workers_min_, {.min = 1, .max = 64}, "Least workers of a round",
                "");
    options.add("--schedule", schedule_, "auto, sequential, planned or dynamic", "any");
    options.add("--suspend", suspend_,
                "always or never: allocations wait for launches (dynamic schedule only)",
                "by chance");
    options.add("--nodes", nodes_, {.min = 1, .max = 1'000'000}, "Most nodes of a graph", "");
    options.add("--stall", stall_s_, {.min = 0.1, .max = 1e6},
                "Seconds without the end of any node after which to give up", "");
  }

  Status run(Session& session, OptionSet& options) override {
    session.echo_settings(options);
    if (rounds_ == 0 && seconds_ == 0) {
      return usage_error("--rounds or --duration must give an end", "--rounds 1000");
    }
    set_stage("stress");
    stress::StressOptions wanted;
    if (Status status = choose(wanted); !status.ok()) return status;
    wanted.seed = seed_;
    wanted.rounds = rounds_;
    wanted.seconds = seconds_;
    wanted.workers_min = static_cast<uint32_t>(workers_min_);
    wanted.workers_max = static_cast<uint32_t>(workers_);
    wanted.nodes_max = static_cast<uint32_t>(nodes_);
    wanted.stall_seconds = stall_s_;
    wanted.on_progress = [&](uint64_t rounds) {
      if (rounds % 1024 == 0) session.log("{} so far\n", format_count(rounds, "round"));
    };
    wanted.on_stall = [&](const Status& stall) { session.finish_now(stall); };
    auto report = stress::run(wanted);
    if (!report.ok()) return std::move(report.status());
    session.print(
        "{} with {} of {}: results as in order, no stall, no memory used again too early, "
        "all of it returned\n",
        format_count(report->rounds, "round"), format_count(report->runs, "run"),
        format_count(report->nodes, "node"));
    if (report->suspensions > 0) {
      session.print("  {} suspended and went on\n",
                    format_count(report->suspensions, "allocation"));
    }
    session.result()["suspensions"] = report->suspensions;
    Json scenarios = Json::object();
    for (const auto& [scenario, times] : report->scenarios) {
      session.print("  {:<28} {}\n", scenario, times);
      scenarios[scenario] = times;
    }
    session.result()["rounds"] = report->rounds;
    session.result()["runs"] = report->runs;
    session.result()["nodes"] = report->nodes;
    session.result()["scenarios"] = std::move(scenarios);
    return {};
  }

 private:
  Status choose(stress::StressOptions& wanted) const {
    using mt_topo::Mode;
    for (const Mode mode : {Mode::kAutomatic, Mode::kSequential, Mode::kPlanned, Mode::kDynamic}) {
      if (schedule_ == mt_topo::mode_name(mode)) wanted.schedule = mode;
    }
    if (!schedule_.empty() && !wanted.schedule) {
      return usage_error("--schedule: '" + schedule_ + "' is none",
                         "auto, sequential, planned or dynamic");
    }
    if (suspend_ == "always" || suspend_ == "never") wanted.suspend = suspend_ == "always";
    if (!suspend_.empty() && !wanted.suspend) {
      return usage_error("--suspend: '" + suspend_ + "' is neither always nor never");
    }
    if (wanted.suspend == true && wanted.schedule && wanted.schedule != Mode::kDynamic) {
      return usage_error("--suspend always: only the dynamic schedule can", "--schedule dynamic");
    }
    if (workers_min_ > workers_) return usage_error("--workers-min is above --workers");
    return {};
  }

  std::string schedule_, suspend_;
  uint64_t seed_ = 1, rounds_ = 0, workers_ = 4, workers_min_ = 1, nodes_ = 1000;
  double seconds_ = 10, stall_s_ = 10;
};

}  // namespace

std::unique_ptr<Command> make_stress_command() {
  return std::make_unique<StressCommand>();
}

}  // namespace davit::cli
