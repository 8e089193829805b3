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
    wanted.seed = seed_;
    wanted.rounds = rounds_;
    wanted.seconds = seconds_;
    wanted.workers_max = static_cast<uint32_t>(workers_);
    wanted.nodes_max = static_cast<uint32_t>(nodes_);
    wanted.stall_seconds = stall_s_;
    wanted.on_progress = [&](uint64_t rounds) {
      if (rounds % 1024 == 0) session.log("{} so far\n", format_count(rounds, "round"));
    };
    wanted.on_stall = [&](const Status& stall) { session.finish_now(stall); };
    auto report = stress::run(wanted);
    if (!report.ok()) return std::move(report.status());
    session.print("{} with {} of {}: nothing is wrong\n", format_count(report->rounds, "round"),
                  format_count(report->runs, "run"), format_count(report->nodes, "node"));
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
  uint64_t seed_ = 1, rounds_ = 0, workers_ = 4, nodes_ = 1000;
  double seconds_ = 10, stall_s_ = 10;
};

}  // namespace

std::unique_ptr<Command> make_stress_command() {
  return std::make_unique<StressCommand>();
}

}  // namespace davit::cli
