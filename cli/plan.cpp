// davit plan: plans memory for values given as a table, without a model.

#include <fmt/format.h>

#include <algorithm>

#include "base/files.hpp"
#include "cli/command.hpp"
#include "cli/compile_options.hpp"
#include "cli/model.hpp"
#include "cli/report.hpp"
#include "cli/stage.hpp"
#include "lowering/memory_plan/interval_csv.hpp"
#include "lowering/memory_plan/plan_svg.hpp"
#include "lowering/memory_plan/planner.hpp"

namespace davit::cli {
namespace {

class PlanCommand final : public Command {
 public:
  [[nodiscard]] std::string_view name() const override { return "plan"; }
  [[nodiscard]] std::string_view summary() const override {
    return "Plan memory for values given as CSV: id,lower,upper,size";
  }

  void add_options(OptionSet& options) override {
    options.group("Model");
    options.add(
        "intervals,-m,--model", path_,
        "CSV file with columns id,lower,upper,size and, where wanted, offset (fixes a value) "
        "and alignment",
        "", FileUse::kRead);
    options.group("Compile");
    options.add("--capacity", capacity_, {.min = 1, .max = INT64_MAX},
                "Bytes that the plan has to fit; it need not be smaller",
                "as small as the budget allows");
    options.add("--alignment", alignment_, {.min = 1, .max = uint64_t{1} << 30},
                "Of offsets, in bytes; a power of two", "sizes as they are");
    options.add("--plan-budget-ms", budget_ms_, kPlanBudgetMs,
                "Search for a smaller plan where heuristics miss the lower bound, in nominal ms",
                "counted in steps of work: the same plan on every machine");
    options.group("Report");
    options.add("-o,--output", output_, "CSV file to write: the table with a column of offsets",
                "no file", FileUse::kWritten);
    options.add("--svg", svg_, "Picture to write: address over time", "no file", FileUse::kWritten);
  }

  Status run(Session& session, OptionSet& options) override {
    session.echo_settings(options);
    if (path_.empty()) return usage_error("a table of intervals is needed", "davit plan FILE.csv");
    if ((alignment_ & (alignment_ - 1)) != 0) {
      return usage_error(fmt::format("--alignment: {} is not a power of two", alignment_));
    }
    set_stage("load");
    auto bytes = read_regular_file(path_, DVT_STAGE_LOAD);
    if (!bytes.ok()) return std::move(bytes.status());
    auto table = lowering::parse_intervals(
        std::string_view(reinterpret_cast<const char*>(bytes->data()), bytes->size()));
    if (!table.ok()) return std::move(table.status());
    set_stage("plan");
    const double begin = now_ns();
    table->constraints.names = table->ids;
    auto plan = lowering::plan_memory(table->intervals, table->constraints,
                                      {.alignment = alignment_,
                                       .search_steps = budget_ms_ * lowering::kSearchStepsPerMs,
                                       .capacity = capacity_,
                                       .on_better = [&](uint64_t arena_bytes) {
                                         session.log("{}: {} bytes\n",
                                                     format_time(now_ns() - begin), arena_bytes);
                                       }});
    if (!plan.ok()) {
      ErrorDetail& detail = plan.status().detail();
      // What contradicts itself is the table.
      if (detail.code == DVT_INVALID_ARGUMENT) detail.code = DVT_INVALID_IMAGE;
      return std::move(plan.status());
    }
    report(session, *table, *plan, now_ns() - begin);
    if (Status status = check_capacity(*plan); !status.ok()) return status;
    return write_files(session, *table, *plan);
  }

 private:
  void report(Session& session, const lowering::IntervalTable& table, const lowering::Plan& plan,
              double elapsed_ns) const {
    const double ratio =
        plan.lower_bound_bytes == 0 ? 1 : double(plan.arena_bytes) / double(plan.lower_bound_bytes);
    session.print("Planned {} in {}, by {}\n", format_count(table.intervals.size(), "value"),
                  format_time(elapsed_ns), plan.method);
    session.print("  arena {} bytes, {:.4f} x the lower bound of {} bytes{}\n", plan.arena_bytes,
                  ratio, plan.lower_bound_bytes,
                  plan.arena_bytes == plan.proven_bound_bytes ? "; no plan is smaller" : "");
    session.result() = {{"path", path_},
                        {"values", table.intervals.size()},
                        {"arena_bytes", plan.arena_bytes},
                        {"lower_bound_bytes", plan.lower_bound_bytes},
                        {"proven_bound_bytes", plan.proven_bound_bytes},
                        {"plan_method", plan.method},
                        {"plan_ns", elapsed_ns}};
  }

  [[nodiscard]] Status check_capacity(const lowering::Plan& plan) const {
    if (capacity_ == 0 || plan.arena_bytes <= capacity_) return {};
    ErrorDetail detail{.code = DVT_OUT_OF_MEMORY,
                       .stage = DVT_STAGE_PLAN,
                       .message = "the plan does not fit --capacity",
                       .expected = fmt::format("at most {} bytes", capacity_),
                       .got = fmt::format("{} bytes", plan.arena_bytes)};
    detail.hint =
        plan.proven_bound_bytes > capacity_
            ? fmt::format("no plan fits: all need at least {} bytes", plan.proven_bound_bytes)
            : std::string("a larger --plan-budget-ms may find one that fits");
    return Status(std::move(detail));
  }

  Status write_files(Session& session, const lowering::IntervalTable& table,
                     const lowering::Plan& plan) const {
    set_stage("write");
    if (!output_.empty()) {
      Status status = write_text(output_, lowering::print_offsets(table, plan.offsets));
      if (!status.ok()) return status;
      session.result()["output"] = output_;
    }
    if (svg_.empty()) return {};
    const std::string title = fmt::format("{}: {} bytes", path_, plan.arena_bytes);
    lowering::PlanPicture picture{.title = title,
                                  .arena_bytes = plan.arena_bytes,
                                  .lower_bound_bytes = plan.lower_bound_bytes};
    for (size_t i = 0; i < table.intervals.size(); ++i) {
      const lowering::Interval& interval = table.intervals[i];
      picture.boxes.push_back(
          {table.ids[i], interval.lower, interval.upper, plan.offsets[i], interval.size});
    }
    session.result()["svg"] = svg_;
    return write_text(svg_, lowering::plan_svg(picture));
  }

  std::string path_, output_, svg_;
  uint64_t capacity_ = 0, alignment_ = 1, budget_ms_ = 1000;
};

}  // namespace

std::unique_ptr<Command> make_plan_command() {
  return std::make_unique<PlanCommand>();
}

}  // namespace davit::cli
