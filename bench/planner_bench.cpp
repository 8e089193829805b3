// planner_bench: how small the static memory plan is, and how long that takes on one core; for
// large problems on all cores, too. The peer is what many engines do: the largest value first, each
// as low as it fits.
//
//   minimalloc   the challenging instances of google/minimalloc (tests/data/minimalloc), which have
//                to fit a capacity; and D and J, made as small as the default budget allows
//   model        activations of real models (tests/data/intervals), and those of all models in the
//                folder DAVIT_MODELS_DIR that have static shapes, as davit compile plans them
//   large        100,000 values with lives like those of networks, of transformers, and at random
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "bench/report.hpp"
#include "lowering/compile.hpp"
#include "lowering/memory_plan/interval_csv.hpp"
#include "lowering/memory_plan/planner.hpp"

namespace {

using davit::bench::Report;
using davit::lowering::Interval;
using davit::lowering::kSearchStepsPerMs;
using davit::lowering::Plan;
using davit::lowering::plan_memory;
using davit::lowering::PlanOptions;

constexpr uint64_t kCapacity = 1'048'576;
constexpr const char* kPeer = "largest first, first fit";

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "planner_bench: %s\n", why.c_str());
  std::_Exit(1);
}

std::vector<Interval> read_csv(const std::filesystem::path& path) {
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  auto table = davit::lowering::parse_intervals(text);
  if (!table.ok()) give_up(path.string() + ": " + table.status().to_string());
  return std::move(table->intervals);
}

std::vector<std::filesystem::path> files_in(const std::string& folder, const char* extension) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == extension) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// The peer, written down here: it shares no code with the planner.
uint64_t largest_first_bytes(std::vector<Interval> intervals) {
  std::stable_sort(intervals.begin(), intervals.end(),
                   [](const Interval& a, const Interval& b) { return a.size > b.size; });
  std::vector<std::pair<Interval, uint64_t>> placed;  // By offset.
  uint64_t arena = 0;
  for (Interval interval : intervals) {
    interval.size = (interval.size + 63) / 64 * 64;
    uint64_t offset = 0;
    for (const auto& [other, at] : placed) {
      if (interval.lower >= other.upper || other.lower >= interval.upper) continue;
      if (at >= offset + interval.size) break;
      offset = std::max(offset, at + other.size);
    }
    const auto by_offset = [](uint64_t a, const auto& b) { return a < b.second; };
    placed.emplace(std::upper_bound(placed.begin(), placed.end(), offset, by_offset), interval,
                   offset);
    arena = std::max(arena, offset + interval.size);
  }
  return arena;
}

struct Timed {
  Plan plan;
  double ns;
};

using davit::bench::Clock;

Timed timed_plan(const std::vector<Interval>& intervals, PlanOptions options, uint32_t threads = 1,
                 Clock clock = Clock::kThreadCpu) {
  options.threads = threads;
  const double start = davit::bench::now_ns(clock);
  auto plan = plan_memory(intervals, options);
  const double ns = davit::bench::now_ns(clock) - start;
  if (!plan.ok()) give_up(plan.status().to_string());
  return {std::move(*plan), ns};
}

void add_bytes(Report& report, const std::string& name, const Plan& plan, uint64_t peer_bytes,
               double bytes_max) {
  // The limit is on our bytes, whatever the peer needs.
  report.add({.metric = name + ": arena",
              .value = double(plan.arena_bytes),
              .unit = "bytes",
              .peer = kPeer,
              .peer_value = double(peer_bytes)},
             bytes_max / double(peer_bytes));
}

void measure_minimalloc(Report& report) {
  double total_ns = 0;
  for (const auto& path : files_in(DAVIT_TEST_DATA "/minimalloc", ".csv")) {
    const std::vector<Interval> intervals = read_csv(path);
    const std::string name = "minimalloc " + path.filename().string().substr(0, 1);
    const uint64_t peer = largest_first_bytes(intervals);
    const Timed fit =
        timed_plan(intervals, {.search_steps = 25'000 * kSearchStepsPerMs, .capacity = kCapacity});
    add_bytes(report, name, fit.plan, peer, double(kCapacity));
    report.add({.metric = name + ": time", .value = fit.ns / 1e6, .unit = "ms"});
    total_ns += fit.ns;
  }
  report.add({.metric = "minimalloc, all: time", .value = total_ns / 1e9, .unit = "s"}, 12.5);
  for (const auto& [letter, best_known] : {std::pair("D", 1'025'024.0), {"J", 1'038'336.0}}) {
    const std::vector<Interval> intervals =
        read_csv(std::string(DAVIT_TEST_DATA "/minimalloc/") + letter + ".1048576.csv");
    const Timed least = timed_plan(intervals, {});
    const std::string name = std::string("minimalloc ") + letter + ", smallest";
    add_bytes(report, name, least.plan, largest_first_bytes(intervals), best_known - 1);
    report.add({.metric = name + ": time", .value = least.ns / 1e9, .unit = "s"});
  }
}

void measure_models(Report& report) {
  for (const auto& path : files_in(DAVIT_TEST_DATA "/intervals", ".csv")) {
    const std::vector<Interval> intervals = read_csv(path);
    const std::string name = "model " + path.stem().string();
    const Timed timed = timed_plan(intervals, {});
    add_bytes(report, name, timed.plan, largest_first_bytes(intervals),
              double(timed.plan.lower_bound_bytes));
    report.add({.metric = name + ": time", .value = timed.ns / 1e6, .unit = "ms"}, 50.0);
  }
  const char* folder = std::getenv("DAVIT_MODELS_DIR");
  if (folder == nullptr) return;
  for (const auto& path : files_in(folder, ".onnx")) {
    auto compiled = davit::compiler::compile_onnx_file(path.string(), {});
    if (!compiled.ok() || compiled->report.arena_bytes == 0) continue;
    double plan_seconds = 0;
    for (const auto& stage : compiled->report.stages) {
      if (stage.name == "plan memory") plan_seconds += stage.seconds;
    }
    const std::string name = "compiled " + path.stem().string();
    report.add(
        {.metric = name + ": arena over bound",
         .value = double(compiled->report.arena_bytes) / double(compiled->report.lower_bound_bytes),
         .unit = "x"},
        1.0);
    report.add({.metric = name + ": time", .value = plan_seconds * 1e3, .unit = "ms"}, 50.0);
  }
}

// SplitMix64: the same numbers everywhere.
class Random {
 public:
  uint64_t below(uint64_t limit) {
    uint64_t x = state_ += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return (x ^ (x >> 31)) % limit;
  }

 private:
  uint64_t state_ = 1;
};

// Most lives are short, every sixteenth is long.
Interval network_value(Random& random, uint64_t i) {
  const uint64_t life = random.below(16) == 0 ? 1 + random.below(200) : 1 + random.below(4);
  return {i, i + 1 + life, 1 + random.below(1'000'000)};
}

// Layers of 12 steps with the sizes of a transformer, and its residuals.
Interval transformer_value(Random& /*random*/, uint64_t i) {
  constexpr uint64_t kUnits[] = {1, 1, 3, 1, 4, 4, 1, 1, 1, 4, 4, 1};
  const uint64_t step = i % 12;
  const uint64_t extra = step == 1 ? 6 : step == 3 ? 2 : step == 7 ? 5 : 0;
  return {i, i + 2 + extra, kUnits[step] * 1'048'576};
}

Interval random_value(Random& random, uint64_t /*i*/) {
  const uint64_t birth = random.below(100'000);
  return {birth, birth + 1 + random.below(2'000), 1 + random.below(1'000'000)};
}

void measure_large(Report& report) {
  using Make = Interval (*)(Random&, uint64_t);
  constexpr std::pair<const char*, Make> kKinds[] = {
      {"network", network_value}, {"transformer", transformer_value}, {"random", random_value}};
  for (const auto& [kind, make] : kKinds) {
    Random random;
    std::vector<Interval> intervals;
    for (uint64_t i = 0; i < 100'000; ++i) intervals.push_back(make(random, i));
    const Timed timed = timed_plan(intervals, {});
    const std::string name = std::string("100,000 values, ") + kind;
    report.add({.metric = name + ": arena over bound",
                .value = double(timed.plan.arena_bytes) / double(timed.plan.lower_bound_bytes),
                .unit = "x"},
               1.05);
    report.add({.metric = name + ": time", .value = timed.ns / 1e9, .unit = "s"}, 2.0);
    const Timed alone = timed_plan(intervals, {}, /*threads=*/1, Clock::kWall);
    const Timed shared = timed_plan(intervals, {}, /*threads=*/0, Clock::kWall);
    if (shared.plan.offsets != alone.plan.offsets) give_up(name + ": threads change the plan");
    report.add({.metric = name + ": time on all CPUs",
                .value = shared.ns / 1e9,
                .unit = "s",
                .peer = "on one",
                .peer_value = alone.ns / 1e9});
  }
}

}  // namespace

int main(int argc, char** argv) {
  Report report("planner_bench", argc, argv);
  if (report.wants("minimalloc")) measure_minimalloc(report);
  if (report.wants("model")) measure_models(report);
  if (report.wants("large")) measure_large(report);
  return report.finish();
}
