#include "cli/runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "cli/numbers.hpp"
#include "cli/report.hpp"
#include "cli/stage.hpp"

namespace davit::cli {

Result<PoolPtr> make_pool(uint32_t workers) {
  DvtPoolOptions options;
  dvt_pool_options_init(&options);
  options.workers = workers;
  DvtPool* pool = nullptr;
  DvtError error{};
  if (dvt_pool_create(&options, &pool, &error) != DVT_OK) return status_of(error);
  return PoolPtr(pool);
}

Result<Runner> Runner::create(DvtImage* image, DvtDevice* device, int64_t timeout_us,
                              const Workers& workers, const ExecutorSettings& settings) {
  DvtExecutorOptions options;
  dvt_executor_options_init(&options);
  options.device = device;
  options.synchronize_timeout_us = timeout_us;
  options.pool = workers.pool;
  options.schedule = workers.schedule;
  options.heap_bytes_max = settings.bytes_max;
  options.device_memory = settings.device_memory;
  options.huge_pages = settings.huge_pages;
  options.trust_output_shapes = settings.trust_output_shapes ? 1 : 0;
  const bool cached = settings.device_memory == DVT_DEVICE_MEMORY_CACHED;
  options.device_bytes_max = cached ? settings.bytes_max : 0;
  Runner runner;
  DvtExecutor* executor = nullptr;
  DvtError error{};
  const double begin = now_ns();
  if (dvt_executor_create(image, &options, &executor, &error) != DVT_OK) return status_of(error);
  runner.create_ns_ = now_ns() - begin;
  runner.executor_.reset(executor);
  for (const PortType& port : output_ports(image)) {
    runner.outputs_.push_back({.name = port.name,
                               .dtype = port.dtype,
                               .dims = port.dims,
                               .bytes = AlignedBytes(port.byte_size)});
    AlignedBytes& bytes = runner.outputs_.back().bytes;
    const auto index = static_cast<uint32_t>(runner.outputs_.size() - 1);
    // What has no size yet stays in memory of the executor, and is fetched after each run.
    runner.fetched_.push_back(port.is_dynamic);
    if (port.is_dynamic) continue;
    if (dvt_executor_bind_output(executor, index, bytes.data(), bytes.size(), &error) != DVT_OK) {
      return status_of(error);
    }
  }
  return runner;
}

Status Runner::bind_variables(std::span<const PortType> inputs,
                              std::span<const std::string> forms) {
  variable_.assign(inputs.size(), false);
  for (const std::string& form : forms) {
    if (form.find('=') == std::string::npos) {
      return usage_error(fmt::format("--variable: '{}' is not INPUT=OUTPUT", form));
    }
    const auto split = split_assignment(form, inputs, static_cast<uint32_t>(inputs.size()));
    if (!split.ok()) return Status(split.status().detail());
    const auto output =
        std::find_if(outputs_.begin(), outputs_.end(),
                     [&](const HostTensor& tensor) { return tensor.name == split->rest; });
    if (output == outputs_.end()) {
      std::vector<std::string> names;
      for (const HostTensor& tensor : outputs_) names.push_back(tensor.name);
      return usage_error(fmt::format("--variable: no output is named '{}'", split->rest),
                         "outputs: " + fmt::format("{}", fmt::join(names, ", ")));
    }
    const auto index = static_cast<uint32_t>(output - outputs_.begin());
    if (variable_[split->port] || variable_outputs_.contains(index)) {
      return usage_error(fmt::format("--variable: '{}' shares a port with one before it", form));
    }
    DvtError error{};
    if (dvt_executor_bind_variable(executor_.get(), split->port, index, nullptr, 0, &error) !=
        DVT_OK) {
      return status_of(error);
    }
    variable_[split->port] = true;
    variable_outputs_.insert(index);
    fetched_[index] = true;
  }
  return {};
}

Status Runner::bind_inputs(std::span<const HostTensor> inputs) {
  DvtError error{};
  for (uint32_t i = 0; i < inputs.size(); ++i) {
    DvtTensor tensor{};
    tensor.dtype = inputs[i].dtype;
    tensor.rank = static_cast<uint8_t>(std::min<size_t>(inputs[i].dims.size(), DVT_RANK_UNKNOWN));
    std::copy_n(inputs[i].dims.begin(), std::min<size_t>(inputs[i].dims.size(), DVT_MAX_RANK),
                tensor.dims);
    const bool variable = i < variable_.size() && variable_[i];
    const auto bind = variable ? dvt_executor_set_variable : dvt_executor_bind_input_tensor;
    if (bind(executor_.get(), i, &tensor, inputs[i].bytes.data(), &error) != DVT_OK) {
      return status_of(error);
    }
  }
  return {};
}

Status Runner::expect_shapes(std::span<const std::string> forms) {
  for (const std::string& form : forms) {
    const size_t split = form.find_last_of(":=");
    const auto dims =
        split == std::string::npos ? std::nullopt : parse_dims(form.substr(split + 1));
    if (!dims || split == 0) {
      return usage_error(fmt::format("--output-shape: '{}' is not NAME:DIMS", form),
                         "--output-shape scores:8x1000");
    }
    const std::string name = form.substr(0, split);
    const auto output = std::find_if(outputs_.begin(), outputs_.end(),
                                     [&](const HostTensor& tensor) { return tensor.name == name; });
    if (output == outputs_.end()) {
      return usage_error(fmt::format("--output-shape: no output is named '{}'", name));
    }
    const auto index = static_cast<uint32_t>(output - outputs_.begin());
    if (variable_outputs_.contains(index)) {
      return usage_error(fmt::format("--output-shape: '{}' is the output of a --variable", name));
    }
    DvtTensor tensor{};
    tensor.dtype = output->dtype;
    tensor.rank = static_cast<uint8_t>(dims->size());
    std::copy(dims->begin(), dims->end(), tensor.dims);
    DvtError error{};
    void* data = fetched_[index] ? nullptr : output->bytes.data();
    const size_t bytes = fetched_[index] ? 0 : output->bytes.size();
    if (dvt_executor_bind_output_tensor(executor_.get(), index, &tensor, data, bytes, &error) !=
        DVT_OK) {
      return status_of(error);
    }
  }
  return {};
}

Result<double> Runner::run() {
  DvtError error{};
  const double begin = now_ns();
  const DvtCode code = dvt_executor_run(executor_.get(), &error);
  const double end = now_ns();
  if (code != DVT_OK) return status_of(error);
  if (Status status = fetch_outputs(); !status.ok()) return status;
  return end - begin;
}

Result<double> Runner::run_observed(DvtNodeObserver observer, void* user) {
  DvtError error{};
  const double begin = now_ns();
  const DvtCode code = dvt_executor_run_observed(executor_.get(), observer, user, &error);
  const double end = now_ns();
  if (code != DVT_OK) return status_of(error);
  if (Status status = fetch_outputs(); !status.ok()) return status;
  return end - begin;
}

Result<double> Runner::run_limited(double seconds, DvtNodeObserver observer, void* user) {
  DvtRunOptions options;
  dvt_run_options_init(&options);
  options.flags = DVT_RUN_WATCHED;
  options.timeout_us = seconds < 0 ? -1 : static_cast<int64_t>(seconds * 1e6);
  options.observer = observer;
  options.observer_user = user;
  DvtError error{};
  const double begin = now_ns();
  const DvtCode code = dvt_executor_run_with(executor_.get(), &options, &error);
  const double end = now_ns();
  if (code != DVT_OK) return status_of(error);
  if (Status status = fetch_outputs(); !status.ok()) return status;
  return end - begin;
}

std::string Runner::describe_waits() const {
  std::string text(64 * 1024, '\0');
  const size_t needed = dvt_executor_describe_waits(executor_.get(), text.data(), text.size());
  text.resize(std::min(needed, text.size() - 1));
  return text;
}

Status Runner::fetch_outputs() {
  DvtError error{};
  for (uint32_t i = 0; i < outputs_.size(); ++i) {
    if (!fetched_[i]) continue;
    DvtTensor tensor;
    const void* data = nullptr;
    if (dvt_executor_output_tensor(executor_.get(), i, &tensor, &data, &error) != DVT_OK) {
      return status_of(error);
    }
    outputs_[i].dims.assign(tensor.dims, tensor.dims + tensor.rank);
    if (outputs_[i].bytes.size() != tensor.bytes) outputs_[i].bytes = AlignedBytes(tensor.bytes);
    if (tensor.bytes > 0) std::memcpy(outputs_[i].bytes.data(), data, tensor.bytes);
  }
  return {};
}

DvtScheduleInfo Runner::schedule() const {
  DvtScheduleInfo info;
  dvt_executor_schedule(executor_.get(), &info);
  return info;
}

Status Runner::unload() {
  DvtError error{};
  if (dvt_executor_unload(executor_.get(), &error) != DVT_OK) return status_of(error);
  return {};
}

Result<std::vector<HostTensor>> make_inputs(std::span<const PortType> ports,
                                            const std::vector<std::string>& forms, uint64_t seed,
                                            std::vector<InputSource>& sources) {
  std::vector<std::string> chosen(ports.size());
  uint32_t next_unnamed = 0;
  for (const std::string& form : forms) {
    while (next_unnamed < ports.size() && !chosen[next_unnamed].empty()) ++next_unnamed;
    auto assignment = split_assignment(form, ports, next_unnamed);
    if (!assignment.ok()) return std::move(assignment.status());
    std::string& slot = chosen[assignment->port];
    if (!slot.empty()) {
      return usage_error(fmt::format("--input gives '{}' twice", ports[assignment->port].name));
    }
    if (assignment->rest.empty()) {
      return usage_error(fmt::format("--input {}= needs a value", ports[assignment->port].name));
    }
    slot = assignment->rest;
  }
  std::vector<HostTensor> inputs;
  for (size_t i = 0; i < ports.size(); ++i) {
    const std::string form = chosen[i].empty() ? "random" : chosen[i];
    auto input = make_input(ports[i], form, seed + i);
    if (!input.ok()) return std::move(input.status());
    InputSource source{
        .text = form.starts_with("random") ? fmt::format("{}, seed {}", form, seed + i) : form,
        .open_dims_are_one = ports[i].is_dynamic && ports[i].usual_dims.empty() &&
                             (form == "random" || form == "zeros")};
    if (ports[i].is_dynamic) source.text += ", " + input->type_text();
    sources.push_back(std::move(source));
    inputs.push_back(std::move(*input));
  }
  return inputs;
}

namespace {

// "arena 287 kB (1.000 x the lower bound of 287 kB), "; nothing where nothing was planned.
std::string planned_arena(const compiler::CompileReport& report) {
  if (report.arena_bytes == 0) return "";
  std::string text = "arena " + format_bytes(report.arena_bytes);
  if (report.lower_bound_bytes > 0) {
    text += fmt::format(
        " ({:.3f} x the lower bound of {})",
        static_cast<double>(report.arena_bytes) / static_cast<double>(report.lower_bound_bytes),
        format_bytes(report.lower_bound_bytes));
  }
  return text + ", ";
}

}  // namespace

void report_schedule(Session& session, const DvtScheduleInfo& info) {
  const char* name = info.schedule == DVT_SCHEDULE_PLANNED   ? "planned"
                     : info.schedule == DVT_SCHEDULE_DYNAMIC ? "dynamic"
                                                             : "sequential";
  session.detail("schedule: {}, {}: {}\n", name, format_count(info.workers, "worker"), info.reason);
  session.result()["schedule"] = {
      {"kind", name}, {"workers", info.workers}, {"reason", info.reason}};
}

namespace {

// What code was generated; null when none was asked for.
Json report_generation(Session& session, const compiler::CompileReport& report) {
  const bool asked = std::any_of(report.stages.begin(), report.stages.end(),
                                 [](const auto& stage) { return stage.name == "generate code"; });
  if (!asked) return nullptr;
  Json refusals = Json::array();
  for (const auto& [node, reason] : report.generation_refusals) {
    refusals.push_back({{"node", node}, {"reason", reason}});
    session.detail("  no kernel is generated for {}: {}\n", node, reason);
  }
  session.print("  generated {} for {}, {} of code; {} of {} from the cache\n",
                format_count(report.generated_kernels, "kernel"),
                format_count(report.generated_nodes, "node"), format_bytes(report.code_bytes),
                report.cached_code_files, format_count(report.code_files, "file"));
  if (!report.cache_problem.empty()) {
    session.log("warning: compiled code is not kept for the next time: {}\n", report.cache_problem);
  }
  return {{"nodes", report.generated_nodes},          {"kernels", report.generated_kernels},
          {"refusals", std::move(refusals)},          {"files", report.code_files},
          {"cached_files", report.cached_code_files}, {"code_bytes", report.code_bytes}};
}

}  // namespace

void report_compilation(Session& session, const compiler::CompileReport& report,
                        double total_seconds) {
  Json stages = Json::array();
  for (const auto& stage : report.stages) {
    stages.push_back({{"name", stage.name}, {"seconds", stage.seconds}});
    session.detail("  {:<15} {}\n", stage.name, format_time(stage.seconds * 1e9));
  }
  Json pass_changes = Json::object();
  for (const auto& [name, changes] : report.pass_changes) {
    pass_changes[std::string(name)] = changes;
    session.detail("  pass {:<24} {}\n", name, format_count(changes, "change"));
  }
  Json refusals = Json::array();
  for (const passes::Refusal& refusal : report.refusals) {
    refusals.push_back(
        {{"pass", refusal.pass}, {"node", refusal.node}, {"reason", refusal.reason}});
    session.detail("  {} leaves {} alone: {}\n", refusal.pass, refusal.node, refusal.reason);
  }
  if (!report.plan_method.empty()) {
    session.detail("  memory plan by {}\n", report.plan_method);
  }
  session.print("Compiled in {}: {}, {} folded, {} dead, {} aliased, {} joined, {} in the image\n",
                format_time(total_seconds * 1e9), format_count(report.source_nodes, "source node"),
                report.folded_nodes, report.dead_nodes, report.aliased_nodes, report.joined_nodes,
                report.image_nodes);
  if (report.split_nodes > 0) {
    session.print("  {} in pieces, for workers to share\n",
                  format_count(report.split_nodes, "operator"));
  }
  session.print("  {}constants {}, file {}\n", planned_arena(report),
                format_bytes(report.constant_bytes), format_bytes(report.file_bytes));
  for (const std::string& gear : report.gears) session.print("  gear {}\n", gear);
  Json generation = report_generation(session, report);
  if (report.schedule_workers > 0) {
    session.print("  schedule for {} workers: promises {} instead of {}\n", report.schedule_workers,
                  format_time(report.schedule_ns), format_time(report.sequential_ns));
  } else if (!report.why_no_schedule.empty()) {
    session.print("  no schedule: {}\n", report.why_no_schedule);
  }
  if (report.streams.count > 1) {
    session.print(
        "  {} streams, {} between them; {} of {} edges need none of their own; promises {} instead "
        "of "
        "{}\n",
        report.streams.count, format_count(report.streams.events, "event"),
        report.streams.implied_edges, report.streams.crossing_edges,
        format_time(report.streams.promised_ns), format_time(report.streams.one_stream_ns));
  } else if (!report.why_one_stream.empty()) {
    session.print("  one stream: {}\n", report.why_one_stream);
  }
  if (report.launch_edges_removed + report.launch_edges_kept > 0) {
    session.detail("  Frees may run before launches: {} became relations, {} kept{}{}\n",
                   format_count(report.launch_edges_removed, "edge"), report.launch_edges_kept,
                   report.why_edges_kept.empty() ? "" : ": ", report.why_edges_kept);
  }
  session.result()["compile"] = {{"seconds", total_seconds},
                                 {"stages", std::move(stages)},
                                 {"passes", std::move(pass_changes)},
                                 {"refusals", std::move(refusals)},
                                 {"generated_code", std::move(generation)},
                                 {"source_nodes", report.source_nodes},
                                 {"folded_nodes", report.folded_nodes},
                                 {"dead_nodes", report.dead_nodes},
                                 {"aliased_nodes", report.aliased_nodes},
                                 {"split_nodes", report.split_nodes},
                                 {"joined_nodes", report.joined_nodes},
                                 {"image_nodes", report.image_nodes},
                                 {"arena_bytes", report.arena_bytes},
                                 {"arena_lower_bound_bytes", report.lower_bound_bytes},
                                 {"plan_method", report.plan_method},
                                 {"constant_bytes", report.constant_bytes},
                                 {"file_bytes", report.file_bytes},
                                 {"gears", report.gears},
                                 {"schedule_workers", report.schedule_workers},
                                 {"schedule_ns", report.schedule_ns},
                                 {"sequential_ns", report.sequential_ns},
                                 {"why_no_schedule", report.why_no_schedule},
                                 {"streams", report.streams.count},
                                 {"events", report.streams.events},
                                 {"crossing_edges", report.streams.crossing_edges},
                                 {"implied_edges", report.streams.implied_edges},
                                 {"why_one_stream", report.why_one_stream},
                                 {"launch_edges_removed", report.launch_edges_removed},
                                 {"launch_edges_kept", report.launch_edges_kept},
                                 {"why_edges_kept", report.why_edges_kept}};
}

void report_model(Session& session, const std::string& path, const LoadedModel& model,
                  double create_ns) {
  if (model.report) report_compilation(session, *model.report, model.compile_ns / 1e9);
  DvtImageInfo info{};
  dvt_image_info(model.image.get(), &info);
  session.print("Model {}: target {}, {}, {}\n", path, model.target,
                format_count(info.node_count, "node"), format_count(info.edge_count, "edge"));
  session.print("  load {} (open and verify {}, create executor {})\n",
                format_time(model.open_ns + create_ns), format_time(model.open_ns),
                format_time(create_ns));
  const std::string arena =
      info.arena_bytes == 0
          ? ""
          : fmt::format("arena {} (lower bound {}), ", format_bytes(info.arena_bytes),
                        format_bytes(info.arena_lower_bound_bytes));
  session.print("  file {}, constants {}, {}executor {}\n", format_bytes(info.file_bytes),
                format_bytes(info.constant_bytes), arena, format_bytes(info.executor_bytes));
  session.result()["model"] = {{"path", path},
                               {"target", model.target},
                               {"producer", info.producer},
                               {"source_name", info.source_name},
                               {"source_digest", info.source_digest},
                               {"nodes", info.node_count},
                               {"edges", info.edge_count},
                               {"values", info.value_count},
                               {"file_bytes", info.file_bytes},
                               {"constant_bytes", info.constant_bytes},
                               {"arena_bytes", info.arena_bytes},
                               {"arena_lower_bound_bytes", info.arena_lower_bound_bytes},
                               {"executor_bytes", info.executor_bytes}};
  session.result()["load"] = {{"open_ns", model.open_ns}, {"create_ns", create_ns}};
}

}  // namespace davit::cli
