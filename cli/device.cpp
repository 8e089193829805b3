#include "cli/device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include "cli/report.hpp"
#include "cli/run_shares.hpp"
#include "cli/table.hpp"

namespace davit::cli {
namespace {

constexpr double kPicosecondsPerNanosecond = 1000;

double to_ns(int64_t picoseconds) {
  return static_cast<double>(picoseconds) / kPicosecondsPerNanosecond;
}

std::string time_text(int64_t picoseconds) {
  return format_time(to_ns(picoseconds));
}

// Busy time of a run's tasks by task type, and the span they cover.
struct Utilisation {
  struct Row {
    std::string type;
    uint64_t tasks = 0;
    int64_t busy_ps = 0;
  };
  std::vector<Row> rows;
  std::array<double, DVT_NPU_PIPE_COUNT> pipe_share{};  // Busy cycles over body cycles, weighted.
  int64_t first_start_ps = 0, last_end_ps = 0;
  int64_t covered_ps = 0;  // While at least one task ran.
};

// Length of the union of [start, end) intervals.
int64_t covered(std::vector<std::pair<int64_t, int64_t>> intervals) {
  std::sort(intervals.begin(), intervals.end());
  int64_t total = 0, reached = INT64_MIN;
  for (const auto& [start, end] : intervals) {
    const int64_t from = std::max(start, reached);
    if (end <= from) continue;
    total += end - from;
    reached = end;
  }
  return total;
}

Utilisation utilisation_of(const DvtNpu* npu, const DvtNpuRun& run) {
  Utilisation out;
  std::array<double, DVT_NPU_PIPE_COUNT> pipe_cycles{};
  std::vector<std::pair<int64_t, int64_t>> intervals;
  double body_cycles = 0;
  for (uint64_t i = 0; i < run.task_count; ++i) {
    DvtNpuTask task{};
    if (dvt_npu_task(npu, run.first_task + i, &task) != DVT_OK) continue;
    const std::string type = dvt_npu_task_type_name(task.type);
    auto row = std::find_if(out.rows.begin(), out.rows.end(),
                            [&](const Utilisation::Row& r) { return r.type == type; });
    if (row == out.rows.end()) row = out.rows.insert(out.rows.end(), {.type = type});
    ++row->tasks;
    row->busy_ps += task.end_ps - task.start_ps;
    const bool first = intervals.empty();
    out.first_start_ps = first ? task.start_ps : std::min(out.first_start_ps, task.start_ps);
    out.last_end_ps = first ? task.end_ps : std::max(out.last_end_ps, task.end_ps);
    intervals.emplace_back(task.start_ps, task.end_ps);
    if (task.block_dim == 0) continue;
    const auto cores = static_cast<double>(task.block_dim);
    body_cycles += cores * static_cast<double>(task.body_cycles);
    for (uint32_t pipe = 0; pipe < DVT_NPU_PIPE_COUNT; ++pipe) {
      pipe_cycles[pipe] += cores * static_cast<double>(task.pipe_cycles[pipe]);
    }
  }
  for (uint32_t pipe = 0; pipe < DVT_NPU_PIPE_COUNT; ++pipe) {
    out.pipe_share[pipe] = body_cycles > 0 ? pipe_cycles[pipe] / body_cycles : 0;
  }
  out.covered_ps = covered(std::move(intervals));
  return out;
}

void report_shares(Session& session, const DvtNpu* npu, const DvtNpuRun& run, Json& json) {
  const std::vector<Share> shares = shares_of(tasks_of(npu, run), run, task_gap_ps(npu));
  const auto elapsed_ps = static_cast<double>(std::max<int64_t>(run.end_ps - run.begin_ps, 1));
  std::string text;
  Json list = Json::array();
  for (const Share& share : shares) {
    const double part = static_cast<double>(share.ps) / elapsed_ps;
    text += fmt::format("{} {} {}", text.empty() ? "" : ",", share.name, format_percent(part));
    list.push_back({{"share", share.name}, {"ps", share.ps}});
  }
  session.print("  the run is{}\n", text);
  json["shares"] = std::move(list);
}

void report_operators(Session& session, const DvtNpu* npu, const DvtNpuRun& run, size_t top,
                      Json& json) {
  std::vector<DvtNpuOperator> rows(
      dvt_npu_operators(npu, run.first_task, run.task_count, nullptr, 0));
  rows.resize(std::min<uint64_t>(rows.size(), dvt_npu_operators(npu, run.first_task, run.task_count,
                                                                rows.data(), rows.size())));
  using Align = Table::Align;
  Table table({{"operator", Align::kLeft},
               {"task type", Align::kLeft},
               {"tasks"},
               {"total"},
               {"min"},
               {"max"},
               {"%"},
               {"cumulative %"}});
  Json list = Json::array();
  double cumulative = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const DvtNpuOperator& row = rows[i];
    const double share = row.share_ppm / 1e6;
    cumulative += share;
    const std::string type = dvt_npu_task_type_name(row.type);
    list.push_back({{"op", row.op},
                    {"task_type", type},
                    {"tasks", row.count},
                    {"total_ps", row.total_ps},
                    {"min_ps", row.min_ps},
                    {"max_ps", row.max_ps},
                    {"share", share},
                    {"read_bytes", row.read_bytes},
                    {"write_bytes", row.write_bytes}});
    if (i >= top) continue;
    table.add_row({row.op, type, fmt::format("{}", row.count), time_text(row.total_ps),
                   time_text(row.min_ps), time_text(row.max_ps), format_percent(share),
                   format_percent(cumulative)});
  }
  json["operators"] = std::move(list);
  if (!table.empty()) session.print("Predicted device time by operator\n{}", table.to_text());
  if (rows.size() > top) session.print("  ... {} more (--top)\n", rows.size() - top);
}

void report_utilisation(Session& session, const Utilisation& use, int64_t elapsed_ps, Json& json) {
  using Align = Table::Align;
  Table table({{"task type", Align::kLeft}, {"tasks"}, {"busy"}, {"of the run"}});
  Json list = Json::array();
  for (const Utilisation::Row& row : use.rows) {
    const double share =
        elapsed_ps > 0 ? static_cast<double>(row.busy_ps) / static_cast<double>(elapsed_ps) : 0;
    table.add_row(
        {row.type, fmt::format("{}", row.tasks), time_text(row.busy_ps), format_percent(share)});
    list.push_back({{"task_type", row.type},
                    {"tasks", row.tasks},
                    {"busy_ps", row.busy_ps},
                    {"share_of_run", share}});
  }
  json["utilisation"] = std::move(list);
  if (table.empty()) return;
  session.print("Predicted device use (busy: sum over tasks, overlaps counted twice)\n{}",
                table.to_text());
  std::string pipes;
  Json pipe_json = Json::object();
  for (uint32_t pipe = 0; pipe < DVT_NPU_PIPE_COUNT; ++pipe) {
    pipes += fmt::format("  {} {}", dvt_npu_pipe_name(pipe), format_percent(use.pipe_share[pipe]));
    pipe_json[dvt_npu_pipe_name(pipe)] = use.pipe_share[pipe];
  }
  json["pipe_share"] = std::move(pipe_json);
  session.print("  pipes, of core cycles:{}\n", pipes);
}

// Reads --device-mode into `options`.
Status parse_mode(const std::string& mode, DvtNpuOptions& options) {
  const std::string kind = mode.substr(0, mode.find(':'));
  if (mode == "prompt") {
    options.mode = DVT_NPU_PROMPT;
  } else if (mode == "lazy") {
    options.mode = DVT_NPU_LAZY;
  } else if (kind == "adversarial") {
    options.mode = DVT_NPU_ADVERSARIAL;
    if (kind.size() == mode.size()) return {};
    const char* begin = mode.data() + kind.size() + 1;
    const char* end = mode.data() + mode.size();
    const auto [rest, error] = std::from_chars(begin, end, options.seed);
    if (error != std::errc() || rest != end) {
      return usage_error(fmt::format("--device-mode: '{}' is not a seed", begin),
                         "--device-mode adversarial:7");
    }
  } else {
    return usage_error(
        fmt::format("--device-mode: '{}' is not prompt, lazy or adversarial[:SEED]", mode));
  }
  return {};
}

}  // namespace

Result<DeviceHandle> open_device(const std::string& requested, const std::string& target,
                                 const DeviceSettings& settings, std::string& resolved) {
  const std::string wanted = target == "cpu"                 ? "cpu"
                             : target.starts_with("ascend:") ? "npu-sim:" + target.substr(7)
                                                             : "npu-sim";
  const bool agrees =
      requested.empty() || requested == wanted || (requested == "npu-sim" && target != "cpu");
  if (!agrees) {
    return usage_error(fmt::format("--device {} cannot run an image for {}", requested, target),
                       fmt::format("--device {}, or compile the model for another target", wanted));
  }
  resolved = wanted;
  DeviceHandle handle;
  DvtNpuOptions options;
  dvt_npu_options_init(&options);
  Status status = parse_mode(settings.mode, options);
  if (!status.ok()) return status;
  if (wanted == "cpu") {
    if (options.mode == DVT_NPU_PROMPT && settings.overrides.empty()) return handle;
    return usage_error(fmt::format("{} would do nothing: the image is for the cpu",
                                   settings.overrides.empty() ? "--device-mode" : "--soc-override"),
                       "compile with --target ascend");
  }
  std::vector<const char*> overrides;
  overrides.reserve(settings.overrides.size());
  for (const std::string& assignment : settings.overrides) overrides.push_back(assignment.c_str());
  options.override = overrides.data();
  options.override_count = overrides.size();
  const std::string soc = wanted.size() > 8 ? wanted.substr(8) : std::string(options.soc);
  options.soc = soc.c_str();
  DvtNpu* npu = nullptr;
  DvtError error{};
  if (dvt_npu_create(&options, &npu, &error) != DVT_OK) return status_of(error);
  handle.npu.reset(npu);
  return handle;
}

void report_npu(Session& session, const DvtNpu* npu, size_t top) {
  const uint64_t run_count = dvt_npu_run_count(npu);
  DvtNpuRun run{};
  if (run_count == 0 || dvt_npu_run(npu, run_count - 1, &run) != DVT_OK) return;
  const int64_t elapsed_ps = run.end_ps - run.begin_ps;
  const Utilisation use = utilisation_of(npu, run);
  const int64_t device_ps = use.last_end_ps - use.first_start_ps;
  DvtNpuMemory memory{};
  dvt_npu_memory(npu, &memory);
  const double busy =
      elapsed_ps > 0 ? static_cast<double>(use.covered_ps) / static_cast<double>(elapsed_ps) : 0;
  Json json = {{"run_ps", elapsed_ps},
               {"device_span_ps", device_ps},
               {"device_busy_ps", use.covered_ps},
               {"device_busy_share", busy},
               {"tasks", run.task_count},
               {"device_memory_peak_bytes", memory.peak_bytes},
               {"device_memory_capacity_bytes", memory.capacity_bytes}};
  session.print(
      "Predicted for the Ascend device (virtual time, last run): {}, {}, device busy {} of the "
      "run, peak device memory {}\n",
      time_text(elapsed_ps), format_count(run.task_count, "task"), format_percent(busy),
      format_bytes(memory.peak_bytes));
  report_shares(session, npu, run, json);
  report_operators(session, npu, run, top, json);
  report_utilisation(session, use, elapsed_ps, json);
  constexpr double kHostBound = 0.5;
  if (run.task_count > 0 && busy < kHostBound) {
    session.print(
        "advice: predicted to be host-bound: the device is idle {} of the run, waiting for "
        "submissions\n",
        format_percent(1 - busy));
  }
  session.result()["predicted"] = std::move(json);
}

Status write_op_summary(const DvtNpu* npu, const std::string& path) {
  DvtError error{};
  if (dvt_npu_write_op_summary(npu, path.c_str(), &error) != DVT_OK) return status_of(error);
  return {};
}

}  // namespace davit::cli
