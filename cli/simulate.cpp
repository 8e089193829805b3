// davit simulate: what Main would take on a host with more or fewer workers, in virtual time.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "cli/command.hpp"
#include "cli/execution_options.hpp"
#include "cli/model.hpp"
#include "cli/node_times.hpp"
#include "cli/numbers.hpp"
#include "cli/recorded_calls.hpp"
#include "cli/report.hpp"
#include "cli/runner.hpp"
#include "cli/simulated_graph.hpp"
#include "cli/stage.hpp"
#include "cli/table.hpp"
#include "exec/gears.hpp"
#include "exec/mt_topo/cpus.hpp"
#include "exec/trace.hpp"
#include "lowering/schedule/planner.hpp"

namespace davit::cli {
namespace {

constexpr uint32_t kWorkersMax = mt_topo::kPartsMax;

// One line of the table.
struct Row {
  uint32_t workers;
  const char* schedule;
  simulation::Prediction prediction;
  std::optional<double> measured_ns;
};

// "1..64", "2,4,8", or both: "1..4,8,16". Empty when it is neither.
std::vector<uint32_t> parse_workers(const std::string& text) {
  std::vector<uint32_t> workers;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const size_t dots = part.find("..");
    const auto first = parse_unsigned(part.substr(0, dots));
    const auto last = dots == std::string::npos ? first : parse_unsigned(part.substr(dots + 2));
    if (!first || !last || *first == 0 || *first > *last || *last > kWorkersMax) return {};
    for (uint64_t n = *first; n <= *last; ++n) workers.push_back(static_cast<uint32_t>(n));
    begin = end + 1;
  }
  std::sort(workers.begin(), workers.end());
  workers.erase(std::unique(workers.begin(), workers.end()), workers.end());
  return workers;
}

// A part of nothing is none.
std::string share_text(double part, double whole) {
  return whole > 0 ? format_percent(part / whole) : "-";
}

class SimulateCommand final : public Command {
 public:
  [[nodiscard]] std::string_view name() const override { return "simulate"; }
  [[nodiscard]] std::string_view summary() const override {
    return "Predict run times on hosts with 1 to 64 workers, in virtual time";
  }

  void add_options(OptionSet& options) override {
    execution_.add_model(options);
    execution_.compile().add_workers(options);
    options.group("Simulate");
    options.add("--host-workers", workers_text_, "Counts of workers: 1..64, or 2,4,8",
                "powers of two");
    options.add("--iterations", iterations_, {.min = 1, .max = 1'000'000},
                "Observed runs that node costs are medians of", "");
    options.add("--transfer-ns", costs_.transfer_ns, {.min = 0, .max = 1e9},
                "Until a worker sees another's result", "two cores of a virtual machine");
    options.add("--hand-over-ns", costs_.hand_over_ns, {.min = 0, .max = 1e9},
                "Until an idle worker runs what another has laid out",
                "two cores of a virtual machine");
    options.add("--node-ns", costs_.loop_node_ns, {.min = 0, .max = 1e9},
                "What the sequential loop takes for a node", "bench/sequential_bench");
    options.add("--planned-node-ns", costs_.planned_node_ns, {.min = 0, .max = 1e9},
                "What the planned mode takes for a node", "bench/scheduler_bench");
    options.add("--dynamic-unit-ns", costs_.dynamic_unit_ns, {.min = 0, .max = 1e9},
                "What the dynamic mode takes for a chain of nodes", "bench/scheduler_bench");
    options.add("--measure", measure_,
                "Also run with as many workers as this process may use, and compare (cpu)", "");
    execution_.add_inputs(options);
    execution_.add_device(options);
    options.group("Report");
    execution_.add_top(options);
    options.add("--trace", trace_, "Write the predicted run with most workers for Perfetto",
                "no file", FileUse::kWritten);
  }

  Status run(Session& session, OptionSet& options) override;

 private:
  Status simulate_cpu(Session& session, const OptionSet& options, const LoadedModel& model);
  Status simulate_device(Session& session, const OptionSet& options, const LoadedModel& model,
                         const DeviceHandle& device);
  void predict(const SimulatedGraph& graph, bool plans);
  Status compare(Session& session, const OptionSet& options, const LoadedModel& model);
  Result<double> measure(DvtImage* image, const Workers& with) const;
  void report(Session& session, const LoadedModel& model, const SimulatedGraph& graph) const;
  void report_path(Session& session, const LoadedModel& model, const Row& row,
                   const SimulatedGraph& graph) const;
  Status write_trace(const LoadedModel& model) const;

  ExecutionArguments execution_;
  simulation::HostCosts costs_;
  std::string workers_text_ = "1,2,4,8,16,32,64", trace_;
  std::vector<uint32_t> workers_;
  std::vector<HostTensor> inputs_;
  std::vector<double> node_costs_ns_;
  std::vector<Row> rows_;
  const exec::GraphView* traced_ = nullptr;  // Whose runs the rows are.
  uint64_t iterations_ = 10;
  bool measure_ = false;
};

Status SimulateCommand::run(Session& session, OptionSet& options) {
  Status status = execution_.check(options);
  if (status.ok()) {
    workers_ = parse_workers(workers_text_);
    if (workers_.empty()) {
      status = usage_error(fmt::format("--host-workers: '{}' is not a list of counts from 1 to {}",
                                       workers_text_, kWorkersMax),
                           "--host-workers 1..8");
    }
  }
  if (status.ok()) status = session.check_files(options);
  session.echo_settings(options);
  if (!status.ok()) return status;
  auto model = execution_.open(session, options);
  if (!model.ok()) return std::move(model.status());
  auto inputs = execution_.inputs(session, input_ports(model->image.get()));
  if (!inputs.ok()) return std::move(inputs.status());
  inputs_ = std::move(*inputs);
  auto device = execution_.open_device(session, options, *model);
  if (!device.ok()) return std::move(device.status());
  status = device->npu == nullptr ? simulate_cpu(session, options, *model)
                                  : simulate_device(session, options, *model, *device);
  if (!status.ok() || trace_.empty()) return status;
  set_stage("write");
  status = write_trace(*model);
  if (status.ok()) session.log("wrote trace to {}; open it at ui.perfetto.dev\n", trace_);
  return status;
}

Status SimulateCommand::simulate_cpu(Session& session, const OptionSet& options,
                                     const LoadedModel& model) {
  set_stage("measure");
  auto runner = Runner::create(model.image.get(), nullptr, /*timeout_us=*/-1, {});
  if (!runner.ok()) return std::move(runner.status());
  if (Status status = runner->bind_inputs(inputs_); !status.ok()) return status;
  DvtImageInfo info{};
  dvt_image_info(model.image.get(), &info);
  auto times = measure_nodes(*runner, info.node_count, iterations_);
  if (!times.ok()) return std::move(times.status());
  node_costs_ns_ = *times;
  session.log("measured {} in {}\n", format_count(info.node_count, "node"),
              format_count(iterations_, "run"));
  if (Status status = runner->unload(); !status.ok()) return status;
  set_stage("simulate");
  const SimulatedGraph graph = simulated_graph(*model.image, std::move(*times));
  predict(graph, graph.may_be_planned);
  traced_ = graph.graph;
  if (measure_) {
    if (Status status = compare(session, options, model); !status.ok()) return status;
  }
  report(session, model, graph);
  return {};
}

Status SimulateCommand::simulate_device(Session& session, const OptionSet& options,
                                        const LoadedModel& model, const DeviceHandle& device) {
  for (const char* option : {"--measure", "--planned-node-ns"}) {
    if (options.given(option)) {
      return usage_error(fmt::format("{} would do nothing: the image is for a device", option));
    }
  }
  set_stage("measure");
  const exec::ImageView& view = model.image->view;
  CallRecorder recorder(device.npu.get());
  auto runner = Runner::create(model.image.get(), &recorder, /*timeout_us=*/-1, {});
  if (!runner.ok()) return std::move(runner.status());
  if (Status status = runner->bind_inputs(inputs_); !status.ok()) return status;
  // The first run also allocates, and takes a gear.
  if (auto first = runner->run(); !first.ok()) return std::move(first.status());
  const uint32_t gear = dvt_executor_gear(runner->executor());
  const uint32_t body = gear == DVT_NO_INDEX ? gear : exec::gears_of(view).bodies()[gear];
  const exec::GraphView& ran = view.graphs[body == DVT_NO_INDEX ? view.main : body];
  recorder.record(body, ran.node_count);
  for (uint64_t i = 0; i < iterations_; ++i) {
    recorder.begin_run();
    auto time_ns = runner->run_observed(&CallRecorder::observe, &recorder);
    if (!time_ns.ok()) return std::move(time_ns.status());
  }
  auto recorded = recorder.finish();
  if (!recorded.ok()) return std::move(recorded.status());
  set_stage("simulate");
  const SimulatedGraph graph = simulated_graph(*model.image, ran, std::move(*recorded));
  predict(graph, /*plans=*/false);
  traced_ = &ran;
  report(session, model, graph);
  return runner->unload();
}

void SimulateCommand::predict(const SimulatedGraph& graph, bool plans) {
  rows_.push_back(
      {1, "sequential", simulation::simulate_sequential(graph.as_compiled(), costs_), {}});
  if (!graph.reason.empty()) return;
  for (const uint32_t workers : workers_) {
    if (workers == 1) continue;
    if (plans) {
      const simulation::HostGraph values = graph.of_values();
      const schedule::Plan plan =
          schedule::make_plan(values.nodes, {.workers = workers,
                                             .transfer_ns = costs_.transfer_ns,
                                             .gain = compiler::CompileOptions().schedule_gain});
      rows_.push_back(
          {workers,
           "planned",
           simulation::simulate_planned(
               values, costs_, {plan.part_offsets, plan.order, plan.wait_offsets, plan.waits}),
           {}});
    }
    rows_.push_back({workers,
                     "dynamic",
                     simulation::simulate_dynamic(graph.as_compiled(), costs_, workers),
                     {}});
  }
}

Result<double> SimulateCommand::measure(DvtImage* image, const Workers& with) const {
  auto runner = Runner::create(image, nullptr, /*timeout_us=*/-1, with);
  if (!runner.ok()) return std::move(runner.status());
  if (Status status = runner->bind_inputs(inputs_); !status.ok()) return status;
  std::vector<double> samples;
  // The dynamic mode learns what units take in some of its first runs.
  const double end = now_ns() + 3e8;
  for (uint64_t i = 0; i < 30 || (now_ns() < end && i < 100'000); ++i) {
    auto time_ns = runner->run();
    if (!time_ns.ok()) return time_ns;
    if (i >= 10) samples.push_back(*time_ns);
  }
  if (Status status = runner->unload(); !status.ok()) return status;
  const double median_rank[] = {50};
  return summarise(std::move(samples), median_rank).median;
}

// Real runs for the rows that this machine can have.
Status SimulateCommand::compare(Session& session, const OptionSet& options,
                                const LoadedModel& model) {
  set_stage("measure");
  const auto kind = model_kind(execution_.model());
  const bool can_compile = kind.ok() && *kind == ModelKind::kOnnx;
  for (Row& row : rows_) {
    if (row.workers > mt_topo::usable_cpus().usable()) continue;
    Workers with;
    PoolPtr pool;
    LoadedModel compiled;
    DvtImage* image = model.image.get();
    if (row.workers > 1) {
      auto made = make_pool(row.workers);
      if (!made.ok()) return std::move(made.status());
      pool = std::move(*made);
      with = {pool.get(), DVT_SCHEDULE_DYNAMIC};
    }
    if (std::string_view(row.schedule) == "planned") {
      if (!can_compile || row.prediction.busy_ns.size() < 2) continue;
      with.schedule = DVT_SCHEDULE_PLANNED;
      execution_.compile().set_workers(row.workers);
      execution_.compile().set_node_costs(node_costs_ns_);
      auto made = open_model(session, execution_.model(), execution_.compile(),
                             execution_.signature(), options,
                             /*preload=*/false);
      if (!made.ok()) return std::move(made.status());
      compiled = std::move(*made);
      image = compiled.image.get();
      if (image->view.graphs[image->view.main].part_count == 0) continue;
    }
    auto measured = measure(image, with);
    if (!measured.ok()) return std::move(measured.status());
    row.measured_ns = *measured;
  }
  return {};
}

void SimulateCommand::report(Session& session, const LoadedModel& model,
                             const SimulatedGraph& graph) const {
  const double alone_ns = rows_.front().prediction.makespan_ns;
  const bool device = !graph.device.call_offsets.empty();
  std::vector<Table::Column> columns = {
      {"workers"}, {"schedule", Table::Align::kLeft}, {"predicted"}, {"speed-up"}, {"busy"}};
  if (device) columns.push_back({"device busy"});
  if (measure_) columns.insert(columns.end(), {{"measured"}, {"error"}});
  Table table(columns);
  Json json = Json::array();
  for (const Row& row : rows_) {
    const simulation::Prediction& run = row.prediction;
    std::vector<std::string> cells = {
        std::to_string(row.workers), row.schedule, format_time(run.makespan_ns),
        run.makespan_ns > 0 ? fmt::format("{:.2f}", alone_ns / run.makespan_ns) : "-",
        format_percent(run.utilisation())};
    Json item = {{"workers", row.workers},
                 {"schedule", row.schedule},
                 {"parts", run.busy_ns.size()},
                 {"predicted_ns", run.makespan_ns},
                 {"utilisation", run.utilisation()}};
    if (device) {
      cells.push_back(share_text(run.device_busy_ns, run.makespan_ns));
      item["device_busy_ns"] = run.device_busy_ns;
    }
    if (measure_) {
      const bool known = row.measured_ns.has_value();
      cells.push_back(known ? format_time(*row.measured_ns) : "-");
      cells.push_back(known ? share_text(run.makespan_ns - *row.measured_ns, *row.measured_ns)
                            : "-");
      if (known) item["measured_ns"] = *row.measured_ns;
    }
    table.add_row(std::move(cells));
    json.push_back(std::move(item));
  }
  session.print("Predicted time of a run, in virtual time\n{}", table.to_text());
  if (!graph.reason.empty()) {
    session.print("  One worker only: {}\n", graph.reason);
    session.result()["reason"] = graph.reason;
  }
  const double least_ns = simulation::least_ns(graph.as_compiled());
  const double values_ns = simulation::least_ns(graph.of_values());
  session.print("  No number of workers takes less than {}\n", format_time(least_ns));
  if (least_ns > 1.05 * values_ns) {
    session.print(
        "  That is because of how values share memory. With a plan for more workers (--workers) it "
        "can come down to {}\n",
        format_time(values_ns));
  }
  session.result()["least_by_values_ns"] = values_ns;
  session.result()["least_ns"] = least_ns;
  session.result()["runs"] = std::move(json);
  const auto fastest = std::min_element(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) {
    return a.prediction.makespan_ns < b.prediction.makespan_ns;
  });
  report_path(session, model, *fastest, graph);
}

// What the time of a run consists of: its path, by operator.
void SimulateCommand::report_path(Session& session, const LoadedModel& model, const Row& row,
                                  const SimulatedGraph& graph) const {
  struct Share {
    double ns = 0;
    uint64_t nodes = 0;
  };
  const exec::ImageView& view = model.image->view;
  std::map<std::string, Share> shares;
  double named_ns = 0;
  for (const simulation::PathLink& link : row.prediction.path) {
    const std::string op = view.strings[graph.graph->op_of(link.node)];
    Share& share = shares[(link.on_device ? "task of " : "") + (op.empty() ? "unnamed" : op)];
    share.ns += link.ns;
    ++share.nodes;
    named_ns += link.ns;
  }
  const double rest_ns = std::max(row.prediction.makespan_ns - named_ns, 0.0);
  shares["(engine and hand-overs)"] = {rest_ns, 0};
  std::vector<std::pair<std::string, Share>> order(shares.begin(), shares.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second.ns > b.second.ns; });
  Table table({{"operator", Table::Align::kLeft}, {"nodes"}, {"time"}, {"%"}});
  Json json = Json::array();
  for (const auto& [op, share] : order) {
    json.push_back({{"operator", op}, {"nodes", share.nodes}, {"ns", share.ns}});
    if (json.size() > execution_.top()) continue;
    table.add_row({printable(op), share.nodes == 0 ? "" : std::to_string(share.nodes),
                   format_time(share.ns), share_text(share.ns, row.prediction.makespan_ns)});
  }
  session.print("Critical path of {} with {}\n{}", row.schedule,
                format_count(row.workers, "worker"), table.to_text());
  session.result()["critical_path"] = {{"workers", row.workers},
                                       {"schedule", row.schedule},
                                       {"links", row.prediction.path.size()},
                                       {"by_operator", std::move(json)}};
}

Status SimulateCommand::write_trace(const LoadedModel& model) const {
  const Row& row = rows_.back();
  const exec::ImageView& view = model.image->view;
  const exec::GraphView& graph = *traced_;
  trace::TraceWriter writer;
  writer.metadata("clock", "virtual time of davit simulate");
  writer.process(
      1, fmt::format("predicted: {}, {}", row.schedule, format_count(row.workers, "worker")), 0);
  for (uint32_t worker = 0; worker < row.prediction.busy_ns.size(); ++worker) {
    writer.row({1, worker}, fmt::format("worker {}", worker), static_cast<int32_t>(worker));
  }
  for (uint32_t node = 0; node < graph.node_count; ++node) {
    const simulation::Span& span = row.prediction.spans[node];
    trace::Args args;
    args.integer("node", node).text("op", view.strings[graph.op_of(node)]);
    const auto begin_ns = static_cast<int64_t>(span.begin_ns);
    writer.slice({1, span.worker}, view.strings[graph.origin_of(node)], "node", begin_ns,
                 static_cast<int64_t>(span.end_ns) - begin_ns, args);
  }
  return writer.write_file(trace_);
}

}  // namespace

std::unique_ptr<Command> make_simulate_command() {
  return std::make_unique<SimulateCommand>();
}

}  // namespace davit::cli
