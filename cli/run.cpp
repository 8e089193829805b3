// davit run: runs an image once or a few times, checks and saves its outputs, shows where the time
// goes.

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "cli/command.hpp"
#include "cli/device.hpp"
#include "cli/device_report.hpp"
#include "cli/execution_options.hpp"
#include "cli/image_views.hpp"
#include "cli/memory_profile.hpp"
#include "cli/model.hpp"
#include "cli/node_values.hpp"
#include "cli/output_report.hpp"
#include "cli/profile.hpp"
#include "cli/report.hpp"
#include "cli/runner.hpp"
#include "cli/stage.hpp"
#include "cli/table.hpp"
#include "cli/tensors.hpp"
#include "cli/test_data.hpp"
#include "cli/watchdog.hpp"
#include "exec/execution_trace.hpp"
#include "npu_model/trace.hpp"

namespace davit::cli {
namespace {

class RunCommand final : public Command {
 public:
  [[nodiscard]] std::string_view name() const override { return "run"; }
  [[nodiscard]] std::string_view summary() const override {
    return "Run an image (or a model, compiled in memory), check and save outputs, profile";
  }
  void add_options(OptionSet& options) override;
  Status run(Session& session, OptionSet& options) override;

 private:
  Status check_options(OptionSet& options);
  // When it is the time of --timeout that is up, says so in the words of the watchdog.
  [[nodiscard]] Status watched(Status status) const {
    const bool ours = execution_.timeout_seconds() > 0 && watchdog_->seconds_left() <= 0 &&
                      (status.code() == DVT_TIMEOUT || status.code() == DVT_CANCELLED);
    if (!ours) return status;
    watchdog_->say_waits();
    return watchdog_->failure();
  }
  // Of --timeout; negative without.
  [[nodiscard]] double seconds_left() const {
    return execution_.timeout_seconds() > 0 ? watchdog_->seconds_left() : -1;
  }
  Status run_and_report(Session& session, Runner& runner);
  // Runs `iterations_` times on `inputs`; the first run's time apart.
  Status execute(Session& session, Runner& runner, std::span<const HostTensor> inputs);
  Status run_test_sets(Session& session, Runner& runner);
  Status check_and_save(Session& session, const Runner& runner);
  // Compares and reports; a difference is recorded in the session.
  void compare_output(Session& session, const HostTensor& actual, const HostTensor& expected,
                      const std::string& source);
  Status observe(Session& session, Runner& runner);
  Status observe_memory(Session& session, Runner& runner);
  Status write_html(Session& session);
  // The image once more, as the text form has it.
  Result<image::ImageModel> image_model();
  Status report_device(Session& session);
  // Writes the inputs, and the values of the nodes that --dump-nodes matches, to --dump-dir.
  Status dump_nodes(Session& session, Runner& runner, std::span<const HostTensor> inputs);
  Status record_trace(Runner& runner);
  Status write_trace();

  ExecutionArguments execution_;
  std::vector<std::string> save_, expect_, variables_;
  std::string test_data_;
  ToleranceArguments tolerances_;
  uint64_t iterations_ = 1;
  bool watch_ = false;
  bool profile_ = false;
  std::string profile_csv_, trace_, memory_csv_, html_;
  bool memory_ = false;
  std::string dump_nodes_, dump_folder_;
  std::optional<NodeRegex> dump_regex_;

  // State of one run.
  Watchdog* watchdog_ = nullptr;  // Null without --timeout and --watch.
  std::vector<PortType> inputs_, outputs_;
  LoadedModel model_;
  DeviceHandle device_;
  std::optional<exec::ExecutionTrace> execution_trace_;
  std::optional<Profiler> profiler_;
  std::vector<uint64_t> live_bytes_;  // For --report.
  uint64_t compared_ = 0;
  Tolerance tolerance_;
};

void RunCommand::add_options(OptionSet& options) {
  execution_.add_model(options);
  options.group("Run");
  execution_.add_inputs(options);
  options.add("--variable", variables_,
              "INPUT=OUTPUT: what a run leaves in the output, the next one finds in the input; "
              "--input is for the first; repeatable",
              "each run has the same inputs");
  options.add("--output-data", save_, "Save an output, [NAME=]@FILE.npy; repeatable",
              "nothing is saved", FileUse::kWritten);
  options.add("--expect", expect_, "Compare an output, [NAME=]@FILE.npy; repeatable",
              "nothing is compared", FileUse::kRead);
  options.add("--test-data", test_data_, "Folder with test_data_set_K/{input,output}_I.pb", "",
              FileUse::kReadFolder);
  tolerances_.add(options);
  options.add("--iterations", iterations_, kIterations, "Times to run", "once");
  execution_.add_run(options);
  options.add("--watch", watch_, "On SIGUSR1, say who waits for whom (runs are observed)", "");
  execution_.add_device(options);
  options.group("Report");
  options.add("--profile", profile_, "Tables of time by node and by operator (separate runs)", "");
  options.add("--profile-csv", profile_csv_, "Write the profile of every node to this file",
              "no file", FileUse::kWritten);
  options.add("--memory", memory_, "Tables of memory, and of who holds it (a separate run)", "");
  options.add("--memory-csv", memory_csv_, "Write the live bytes at every node to this file",
              "no file", FileUse::kWritten);
  options.add("--trace", trace_, "Write a trace for Perfetto to this file", "no file",
              FileUse::kWritten);
  options.add("--report", html_,
              "Write the predicted run as an HTML page: what bounds it, timeline, roofline, memory "
              "(ascend images)",
              "no file", FileUse::kWritten);
  options.add("--dump-nodes", dump_nodes_,
              "Save the results of nodes whose path has a match of this regular expression",
              "none");
  options.add("--dump-dir", dump_folder_, "Folder for them, with an index: values.json", "",
              FileUse::kWrittenFolder);
  execution_.add_report(options);
}

Status RunCommand::check_options(OptionSet& options) {
  Status status = execution_.check(options);
  if (!status.ok()) return status;
  if (!test_data_.empty() && (!expect_.empty() || execution_.has_inputs())) {
    return usage_error("--test-data brings its own inputs and outputs",
                       "leave out --input and --expect");
  }
  if (dump_nodes_.empty() != dump_folder_.empty()) {
    return usage_error("--dump-nodes and --dump-dir need each other");
  }
  if (!dump_nodes_.empty()) {
    auto regex = NodeRegex::parse(dump_nodes_);
    if (!regex.ok()) return std::move(regex.status());
    dump_regex_.emplace(std::move(*regex));
    if (status = ValueFolderWriter::check_new(dump_folder_); !status.ok()) return status;
  }
  if (iterations_ == 1 && options.given("--percentiles")) {
    return usage_error("--percentiles would do nothing with one iteration", "--iterations 100");
  }
  const bool compares = !test_data_.empty() || !expect_.empty();
  if (const std::string name = ToleranceArguments::given(options); !compares && !name.empty()) {
    return usage_error(fmt::format("{} would do nothing without --expect or --test-data", name));
  }
  tolerance_ = tolerances_.resolve(options);
  return {};
}

void RunCommand::compare_output(Session& session, const HostTensor& actual,
                                const HostTensor& expected, const std::string& source) {
  ++compared_;
  if (actual.dims != expected.dims) {
    session.print("MISMATCH {}: {}: expected {}, got {}\n", actual.name, source,
                  expected.type_text(), actual.type_text());
    session.set_mismatch(fmt::format("output {}: expected {}, got {}", actual.name,
                                     expected.type_text(), actual.type_text()));
    return;
  }
  const Comparison result = compare(actual, expected, tolerance_);
  const bool equal = result.mismatches == 0;
  session.print("{} {}: {}: max difference {:.3g}, max |expected| {:.3g}, {} of {} differ\n",
                equal ? "match   " : "MISMATCH", actual.name, source, result.max_difference,
                result.max_expected, result.mismatches, result.elements);
  session.result()["comparisons"].push_back({{"output", actual.name},
                                             {"expected", source},
                                             {"match", equal},
                                             {"elements", result.elements},
                                             {"mismatches", result.mismatches},
                                             {"max_difference", result.max_difference},
                                             {"max_expected", result.max_expected}});
  if (equal) return;
  session.set_mismatch(fmt::format(
      "output {}: {} of {} elements differ from {}; first at {}: got {}, expected {}", actual.name,
      result.mismatches, result.elements, source, index_text(result.first_mismatch, actual.dims),
      result.first_actual, result.first_expected));
}

Status RunCommand::execute(Session& session, Runner& runner, std::span<const HostTensor> inputs) {
  set_stage("bind");
  Status status = runner.bind_inputs(inputs);
  if (!status.ok()) return status;
  set_stage("run");
  std::vector<double> times_ns;
  for (uint64_t i = 0; i < iterations_; ++i) {
    auto time_ns = watchdog_ == nullptr
                       ? runner.run()
                       : runner.run_limited(seconds_left(), &Watchdog::observe, watchdog_);
    if (!time_ns.ok()) return watched(std::move(time_ns.status()));
    times_ns.push_back(*time_ns);
  }
  report_schedule(session, runner.schedule());
  if (const uint32_t gear = dvt_executor_gear(runner.executor()); gear != DVT_NO_INDEX) {
    session.detail("gear {}\n", gear);
    session.result()["gear"] = gear;
  }
  session.print("First run {}\n", format_time(times_ns.front()));
  session.result()["first_run_ns"] = times_ns.front();
  if (times_ns.size() == 1) return {};
  times_ns.erase(times_ns.begin());
  const Statistics statistics = summarise(std::move(times_ns), execution_.percentiles());
  session.print("Latency of {}: {}\n", format_count(statistics.count, "later run"),
                to_line(statistics));
  session.result()["latency"] = to_json(statistics);
  return {};
}

Status RunCommand::run_test_sets(Session& session, Runner& runner) {
  auto folders = find_test_sets(test_data_);
  if (!folders.ok()) return std::move(folders.status());
  for (const std::string& folder : *folders) {
    set_stage("load");
    auto set = read_test_set(folder, inputs_, outputs_);
    if (!set.ok()) return std::move(set.status());
    Status status = execute(session, runner, set->inputs);
    if (!status.ok()) return status;
    set_stage("compare");
    for (size_t i = 0; i < outputs_.size(); ++i) {
      compare_output(session, runner.outputs()[i], set->outputs[i], folder);
    }
    if (folder != folders->back()) continue;
    // What follows (dump, profile, trace) runs on the last set, before its inputs go away.
    status = dump_nodes(session, runner, set->inputs);
    if (status.ok()) status = observe(session, runner);
    if (!status.ok()) return status;
  }
  return {};
}

// "[NAME=]@FILE" options, resolved to output index and path.
Result<std::vector<std::pair<uint32_t, std::string>>> output_files(
    const std::vector<std::string>& texts, const char* option, std::span<const PortType> ports) {
  std::vector<std::pair<uint32_t, std::string>> files;
  for (const std::string& text : texts) {
    auto assignment = split_assignment(text, ports, static_cast<uint32_t>(files.size()));
    if (!assignment.ok()) return std::move(assignment.status());
    if (!assignment->rest.starts_with("@") || assignment->rest.size() == 1) {
      return usage_error(fmt::format("{}: '{}' is not [NAME=]@FILE", option, text));
    }
    files.emplace_back(assignment->port, assignment->rest.substr(1));
  }
  return files;
}

Status RunCommand::check_and_save(Session& session, const Runner& runner) {
  set_stage("compare");
  auto expected = output_files(expect_, "--expect", outputs_);
  if (!expected.ok()) return std::move(expected.status());
  for (const auto& [port, path] : *expected) {
    auto tensor = read_tensor_file(path);
    if (!tensor.ok()) return std::move(tensor.status());
    Status status = check_type(*tensor, outputs_[port]);
    if (!status.ok()) return status;
    compare_output(session, runner.outputs()[port], *tensor, path);
  }
  set_stage("save");
  auto saved = output_files(save_, "--output-data", outputs_);
  if (!saved.ok()) return std::move(saved.status());
  for (const auto& [port, path] : *saved) {
    Status status = save_npy(path, runner.outputs()[port]);
    if (!status.ok()) return status;
    session.log("wrote {} to {}\n", outputs_[port].name, path);
  }
  return {};
}

Result<image::ImageModel> RunCommand::image_model() {
  return model_.bytes.size() > 0 ? image::read_image_model(model_.bytes.span())
                                 : read_image(execution_.model());
}

Status RunCommand::dump_nodes(Session& session, Runner& runner,
                              std::span<const HostTensor> inputs) {
  if (dump_nodes_.empty()) return {};
  set_stage("dump");
  if (model_.target != "cpu") {
    return usage_error(
        "--dump-nodes would save memory of a device: the image is for " + model_.target,
        "compile with --target cpu: the values are the same, bit for bit");
  }
  auto model = image_model();
  if (!model.ok()) return std::move(model.status());
  auto writer = ValueFolderWriter::create(dump_folder_);
  if (!writer.ok()) return std::move(writer.status());
  Status status;
  for (size_t i = 0; status.ok() && i < inputs.size(); ++i) status = writer->add_input(inputs[i]);
  if (!status.ok()) return status;
  auto time = NodeValues(*model).run(runner, [&](const NodeValue& value) {
    if (status.ok() && dump_regex_->matches(value.origin)) status = writer->add_value(value);
  });
  if (!time.ok()) return std::move(time.status());
  if (status.ok()) status = writer->finish();
  if (!status.ok()) return status;
  session.print("wrote {} to {}\n", format_count(writer->value_count(), "value"), dump_folder_);
  return {};
}

Status RunCommand::observe_memory(Session& session, Runner& runner) {
  if (!memory_ && memory_csv_.empty() && html_.empty()) return {};
  set_stage("profile");
  auto model = image_model();
  if (!model.ok()) return std::move(model.status());
  MemoryProfiler profiler(runner.executor(), *model, watchdog_);
  auto time_ns = runner.run_observed(&MemoryProfiler::observe, &profiler);
  if (!time_ns.ok()) return std::move(time_ns.status());
  live_bytes_ = profiler.live_bytes();
  if (memory_) profiler.report(session, model_.image.get(), execution_.top());
  if (memory_csv_.empty()) return {};
  Status status = profiler.write_csv(memory_csv_);
  if (!status.ok()) return status;
  session.log("wrote live bytes to {}\n", memory_csv_);
  if (profiler.dropped() > 0) {
    session.warn("{} has the first {} nodes; {} more ran", memory_csv_, MemoryProfiler::kEventsMax,
                 profiler.dropped());
  }
  return {};
}

Status RunCommand::observe(Session& session, Runner& runner) {
  if (Status status = observe_memory(session, runner); !status.ok()) return status;
  if (!profile_ && profile_csv_.empty() && trace_.empty()) return {};
  set_stage("profile");
  if (profile_ || !profile_csv_.empty()) {
    profiler_.emplace(device_.npu != nullptr, watchdog_);
    for (uint64_t i = 0; i < iterations_; ++i) {
      auto time_ns = runner.run_observed(&Profiler::observe, &*profiler_);
      if (!time_ns.ok()) return std::move(time_ns.status());
      profiler_->end_run();
    }
  }
  if (profile_) profiler_->report(session, execution_.top());
  if (!profile_csv_.empty()) {
    Status status = profiler_->write_csv(profile_csv_);
    if (!status.ok()) return status;
    session.log("wrote profile to {}\n", profile_csv_);
  }
  if (trace_.empty()) return {};
  Status status = record_trace(runner);
  if (status.ok()) status = write_trace();
  if (status.ok()) session.log("wrote trace to {}; open it at ui.perfetto.dev\n", trace_);
  return status;
}

// As scheduled: the observer is called by all workers, each of whom has a row.
Status RunCommand::record_trace(Runner& runner) {
  execution_trace_.emplace(*model_.image, /*executor_id=*/1, runner.schedule().workers);
  for (uint64_t i = 0; i < iterations_; ++i) {
    execution_trace_->begin_run();
    auto time_ns =
        runner.run_limited(seconds_left(), &exec::ExecutionTrace::observe, &*execution_trace_);
    execution_trace_->end_run(time_ns.status().code(), runner.schedule());
    if (!time_ns.ok()) return watched(std::move(time_ns.status()));
  }
  return {};
}

Status RunCommand::write_trace() {
  set_stage("trace");
  trace::TraceWriter writer;
  execution_trace_->describe(writer);
  writer.process(1, "davit host (CLOCK_MONOTONIC)", 0);
  execution_trace_->append_to(writer, 1);
  if (device_.npu) npu::add_trace(writer, device_.npu.get(), 2);
  return writer.write_file(trace_);
}

Status RunCommand::write_html(Session& session) {
  if (html_.empty()) return {};
  set_stage("report");
  const std::string page =
      device_report_html({.title = fmt::format("{} on {}", execution_.model(), model_.target),
                          .npu = device_.npu.get(),
                          .image = &model_.image->view,
                          .live_bytes = live_bytes_,
                          .top = execution_.top()});
  Status status = write_text(html_, page);
  if (status.ok()) session.log("wrote report to {}\n", html_);
  return status;
}

Status RunCommand::report_device(Session& session) {
  if (!device_.npu) return {};
  report_npu(session, device_.npu.get(), execution_.top());
  if (Status status = write_html(session); !status.ok()) return status;
  return execution_.write_op_summary(session, device_.npu.get());
}

Status RunCommand::run(Session& session, OptionSet& options) {
  Status status = check_options(options);
  session.echo_settings(options);
  if (!status.ok()) return status;
  Watchdog watchdog(session, execution_.timeout_seconds());
  if (execution_.timeout_seconds() > 0 || watch_) watchdog_ = &watchdog;
  if (execution_.timeout_seconds() > 0) {
    session.log("runs look at the clock and are observed because of --timeout\n");
    execution_.set_cancelled([&watchdog] { return watchdog.seconds_left() <= 0; });
  }
  std::optional<WaitsOnSignal> waits_on_signal;
  if (watch_) waits_on_signal.emplace(watchdog);
  auto model = execution_.open(session, options);
  if (!model.ok()) return watched(std::move(model.status()));
  model_ = std::move(*model);
  auto device = execution_.open_device(session, options, model_);
  if (!device.ok()) return std::move(device.status());
  device_ = std::move(*device);
  if (!html_.empty() && device_.npu == nullptr) {
    return usage_error("--report would do nothing: the image is for the cpu",
                       "compile with --target ascend");
  }
  inputs_ = input_ports(model_.image.get());
  outputs_ = output_ports(model_.image.get());

  set_stage("load");
  const auto workers = execution_.workers(session);
  if (!workers.ok()) return Status(workers.status().detail());
  auto runner =
      Runner::create(model_.image.get(), device_.device(), execution_.synchronize_timeout_us(),
                     *workers, execution_.executor_settings());
  if (!runner.ok()) return std::move(runner.status());
  status = runner->bind_variables(inputs_, variables_);
  if (status.ok()) status = runner->expect_shapes(execution_.output_shapes());
  if (!status.ok()) return status;
  watchdog.ask([&] { return runner->describe_waits(); });
  status = run_and_report(session, *runner);
  watchdog.ask({});
  return status;
}

Status RunCommand::run_and_report(Session& session, Runner& runner) {
  report_model(session, execution_.model(), model_, runner.create_ns());
  Status status;
  if (!test_data_.empty()) {
    status = run_test_sets(session, runner);
  } else {
    set_stage("input");
    auto inputs = execution_.inputs(session, inputs_);
    if (!inputs.ok()) return std::move(inputs.status());
    status = execute(session, runner, *inputs);
    if (status.ok()) report_outputs(session, runner.outputs());
    if (status.ok()) status = check_and_save(session, runner);
    if (status.ok()) status = dump_nodes(session, runner, *inputs);
    if (status.ok()) status = observe(session, runner);
  }
  if (!status.ok()) return status;
  status = report_device(session);
  if (!status.ok()) return status;
  set_stage("unload");
  status = runner.unload();
  if (compared_ > 0) set_stage("compare");  // What a mismatch is reported under.
  return status;
}

}  // namespace

std::unique_ptr<Command> make_run_command() {
  return std::make_unique<RunCommand>();
}

}  // namespace davit::cli
