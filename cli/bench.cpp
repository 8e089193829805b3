// davit bench: measures an image: load, first run, latency and throughput.

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <thread>

#include "cli/command.hpp"
#include "cli/device.hpp"
#include "cli/execution_options.hpp"
#include "cli/report.hpp"
#include "cli/runner.hpp"
#include "cli/stage.hpp"
#include "cli/watchdog.hpp"
#include "exec/mt_topo/cpus.hpp"

namespace davit::cli {
namespace {

// What one client thread measured.
struct Client {
  std::vector<double> times_ns;
  double begin_ns = 0, end_ns = 0;
  Status status;
};

uint64_t peak_host_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

class BenchCommand final : public Command {
 public:
  [[nodiscard]] std::string_view name() const override { return "bench"; }
  [[nodiscard]] std::string_view summary() const override {
    return "Measure load, latency and throughput of an image (or of a model, compiled in memory)";
  }
  void add_options(OptionSet& options) override;
  Status run(Session& session, OptionSet& options) override;

 private:
  Status create_runners(Session& session);
  Status warm_up(Session& session);
  // All clients, from a common start until each has both --iterations and --duration.
  Status measure(std::vector<Client>& clients);
  void measure_client(Runner& runner, Client& client);
  void report(Session& session, const std::vector<Client>& clients);
  void advise(Session& session, const Statistics& statistics);

  ExecutionArguments execution_;
  double warmup_ms_ = 200, duration_s_ = 3;
  uint64_t iterations_ = 10;
  uint64_t concurrency_ = 1;

  // State of one run. The device outlives the runners.
  LoadedModel model_;
  DeviceHandle device_;
  std::vector<HostTensor> inputs_;
  std::vector<Runner> runners_;
  double first_run_ns_ = 0;
  uint64_t warmup_runs_ = 0;
};

void BenchCommand::add_options(OptionSet& options) {
  execution_.add_model(options);
  options.group("Run");
  execution_.add_inputs(options);
  options.add("--warmup-ms", warmup_ms_, {.min = 0, .max = 1e9},
              "Milliseconds to run before measuring", "");
  options.add("--duration", duration_s_, {.min = 0, .max = 1e6}, "Seconds to measure, at least",
              "");
  options.add("--iterations", iterations_, kIterations, "Runs of each client to measure, at least",
              "");
  options.add("--concurrency", concurrency_, {.min = 1, .max = 1024},
              "Clients: threads, each with an executor of its own", "one");
  execution_.add_run(options);
  execution_.add_device(options);
  execution_.add_report(options);
}

Status BenchCommand::create_runners(Session& session) {
  set_stage("load");
  const auto workers = execution_.workers(session);
  if (!workers.ok()) return Status(workers.status().detail());
  for (uint64_t i = 0; i < concurrency_; ++i) {
    auto runner =
        Runner::create(model_.image.get(), device_.device(), execution_.synchronize_timeout_us(),
                       *workers, execution_.executor_settings());
    if (!runner.ok()) return std::move(runner.status());
    Status status = runner->expect_shapes(execution_.output_shapes());
    if (status.ok()) status = runner->bind_inputs(inputs_);
    if (!status.ok()) return status;
    runners_.push_back(std::move(*runner));
  }
  report_model(session, execution_.model(), model_, runners_.front().create_ns());
  return {};
}

Status BenchCommand::warm_up(Session& session) {
  set_stage("warm-up");
  const double begin = now_ns();
  for (size_t i = 0; i < runners_.size(); ++i) {
    auto time_ns = runners_[i].run();
    if (!time_ns.ok()) return std::move(time_ns.status());
    if (i == 0) first_run_ns_ = *time_ns;
    ++warmup_runs_;
  }
  while (now_ns() - begin < warmup_ms_ * 1e6) {
    for (Runner& runner : runners_) {
      auto time_ns = runner.run();
      if (!time_ns.ok()) return std::move(time_ns.status());
      ++warmup_runs_;
    }
  }
  session.log("warm-up: {} in {}\n", format_count(warmup_runs_, "run"),
              format_time(now_ns() - begin));
  return {};
}

void BenchCommand::measure_client(Runner& runner, Client& client) {
  client.begin_ns = now_ns();
  const double end_ns = client.begin_ns + duration_s_ * 1e9;
  double now = client.begin_ns;
  while (client.times_ns.size() < iterations_ || now < end_ns) {
    auto time_ns = runner.run();
    if (!time_ns.ok()) {
      client.status = std::move(time_ns.status());
      return;
    }
    client.times_ns.push_back(*time_ns);
    now = now_ns();
  }
  client.end_ns = now;
}

Status BenchCommand::measure(std::vector<Client>& clients) {
  set_stage("measure");
  // Enough room that a fast model rarely makes the vector grow while measuring.
  for (Client& client : clients) client.times_ns.reserve(size_t{1} << 16);
  std::barrier start(static_cast<std::ptrdiff_t>(clients.size()));
  std::vector<std::jthread> threads;
  for (size_t i = 1; i < clients.size(); ++i) {
    threads.emplace_back([this, &start, &clients, i] {
      start.arrive_and_wait();
      measure_client(runners_[i], clients[i]);
    });
  }
  start.arrive_and_wait();
  measure_client(runners_[0], clients[0]);
  threads.clear();  // Joins.
  for (Client& client : clients) {
    if (!client.status.ok()) return std::move(client.status);
  }
  return {};
}

void BenchCommand::report(Session& session, const std::vector<Client>& clients) {
  std::vector<double> times_ns;
  double begin_ns = clients.front().begin_ns, end_ns = clients.front().end_ns;
  for (const Client& client : clients) {
    times_ns.insert(times_ns.end(), client.times_ns.begin(), client.times_ns.end());
    begin_ns = std::min(begin_ns, client.begin_ns);
    end_ns = std::max(end_ns, client.end_ns);
  }
  const double wall_ns = end_ns - begin_ns;
  const double per_second = static_cast<double>(times_ns.size()) / wall_ns * 1e9;
  const Statistics statistics = summarise(std::move(times_ns), execution_.percentiles());
  DvtImageInfo info{};
  dvt_image_info(model_.image.get(), &info);
  const uint64_t peak = peak_host_bytes();
  const double ratio = statistics.median > 0 ? first_run_ns_ / statistics.median : 0;
  session.print(
      "Summary (CLOCK_MONOTONIC around dvt_executor_run; inputs and outputs bound, not copied{})\n"
      "  load          {}\n"
      "  first run     {} ({:.2f} x the median)\n"
      "  warm-up       {}\n"
      "  measured      {} of {} in {}, 0 failed\n"
      "  throughput    {:.6g} runs/s\n"
      "  latency       {}\n"
      "  host memory   peak {} (process), arena {} an executor, {} in all an executor\n",
      device_.npu ? "; wall time of the device model" : "",
      format_time(model_.open_ns + runners_.front().create_ns()), format_time(first_run_ns_), ratio,
      format_count(warmup_runs_, "run"), format_count(statistics.count, "run"),
      format_count(clients.size(), "client"), format_time(wall_ns), per_second, to_line(statistics),
      format_bytes(peak), format_bytes(info.arena_bytes), format_bytes(info.executor_bytes));
  Json& json = session.result();
  json["first_run_ns"] = first_run_ns_;
  json["first_run_ratio"] = ratio;
  json["warmup_runs"] = warmup_runs_;
  json["clients"] = clients.size();
  json["measured_ns"] = wall_ns;
  json["throughput_per_second"] = per_second;
  json["latency"] = to_json(statistics);
  json["peak_host_bytes"] = peak;
  json["failed_runs"] = 0;
  json["clock"] = "CLOCK_MONOTONIC";
  json["inputs_copied"] = false;
  advise(session, statistics);
}

// Each line rests on a number of this run.
void BenchCommand::advise(Session& session, const Statistics& statistics) {
  Json advice = Json::array();
  const auto say = [&](const std::string& text) {
    session.print("advice: {}\n", text);
    advice.push_back(text);
  };
  constexpr double kNoisy = 0.10;
  if (statistics.count >= 2 && statistics.variation() > kNoisy) {
    say(
        fmt::format("latency is noisy (coefficient of variation {}): use a longer --duration, an "
                    "idle machine, or compare medians",
                    format_percent(statistics.variation())));
  }
  const mt_topo::Cpus cpus = mt_topo::usable_cpus();
  if (static_cast<double>(concurrency_) > cpus.usable()) {
    say(fmt::format("oversubscribed: {} clients on {:g} usable CPUs ({})", concurrency_,
                    cpus.usable(), cpus.why()));
  }
  constexpr double kSlowFirst = 2;
  if (statistics.median > 0 && first_run_ns_ / statistics.median > kSlowFirst &&
      !execution_.preload()) {
    say(fmt::format("the first run took {:.1f} x the median: --preload reads the image at load",
                    first_run_ns_ / statistics.median));
  }
  session.result()["advice"] = std::move(advice);
}

Status BenchCommand::run(Session& session, OptionSet& options) {
  Status status = execution_.check(options);
  session.echo_settings(options);
  if (!status.ok()) return status;
  const Watchdog watchdog(session, execution_.timeout_seconds());
  auto model = execution_.open(session, options);
  if (!model.ok()) return std::move(model.status());
  model_ = std::move(*model);
  auto device = execution_.open_device(session, options, model_);
  if (!device.ok()) return std::move(device.status());
  device_ = std::move(*device);
  set_stage("input");
  auto inputs = execution_.inputs(session, input_ports(model_.image.get()));
  if (!inputs.ok()) return std::move(inputs.status());
  inputs_ = std::move(*inputs);
  status = create_runners(session);
  if (status.ok()) status = warm_up(session);
  std::vector<Client> clients(concurrency_);
  if (status.ok()) status = measure(clients);
  if (!status.ok()) return status;
  set_stage("report");
  report(session, clients);
  if (device_.npu) {
    report_npu(session, device_.npu.get(), execution_.top());
    status = execution_.write_op_summary(session, device_.npu.get());
    if (!status.ok()) return status;
  }
  set_stage("unload");
  report_schedule(session, runners_.front().schedule());
  for (Runner& runner : runners_) {
    status = runner.unload();
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace

std::unique_ptr<Command> make_bench_command() {
  return std::make_unique<BenchCommand>();
}

}  // namespace davit::cli
