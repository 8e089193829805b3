#include "bench/traces.hpp"

#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace davit::bench {
namespace {

// Adds the frees that leave nothing live, and finds the peak.
void finish(AllocationTrace* trace) {
  std::vector<uint32_t> sizes(trace->slots);
  uint64_t live = 0;
  for (const TraceStep& step : trace->steps) {
    if (step.bytes != 0) {
      sizes[step.slot] = step.bytes;
      live += step.bytes;
    } else {
      live -= sizes[step.slot];
      sizes[step.slot] = 0;
    }
    trace->peak_live_bytes = std::max(trace->peak_live_bytes, live);
  }
  for (uint32_t slot = 0; slot < trace->slots; ++slot) {
    if (sizes[slot] != 0) trace->steps.push_back({slot, 0});
  }
}

struct Interval {
  uint32_t lower, upper, bytes;
};

std::vector<Interval> read_intervals(const std::string& path) {
  std::vector<Interval> intervals;
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) {
    std::fprintf(stderr, "cannot read %s\n", path.c_str());
    std::exit(2);  // NOLINT(concurrency-mt-unsafe)
  }
  char line[128];
  while (std::fgets(line, sizeof line, file) != nullptr) {
    Interval one{};
    if (std::sscanf(line, "%*u,%" SCNu32 ",%" SCNu32 ",%" SCNu32, &one.lower, &one.upper,
                    &one.bytes) == 3) {
      intervals.push_back(one);
    }
  }
  std::fclose(file);
  return intervals;
}

}  // namespace

AllocationTrace pair_trace() {
  AllocationTrace trace{.name = "pair", .steps = {}, .slots = 1};
  for (int i = 0; i < 1000; ++i) {
    trace.steps.push_back({0, 1 << 20});
    trace.steps.push_back({0, 0});
  }
  finish(&trace);
  return trace;
}

AllocationTrace mixed_trace(uint32_t live, size_t steps, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> exponent(std::log(512.0), std::log(64.0 * (1 << 20)));
  const auto size = [&] {
    return (static_cast<uint32_t>(std::exp(exponent(random))) + 511) / 512 * 512;
  };
  AllocationTrace trace{.name = "mixed", .steps = {}, .slots = live};
  for (uint32_t slot = 0; slot < live; ++slot) trace.steps.push_back({slot, size()});
  while (trace.steps.size() < steps) {
    const auto slot = static_cast<uint32_t>(random() % live);
    trace.steps.push_back({slot, 0});
    trace.steps.push_back({slot, size()});
  }
  finish(&trace);
  return trace;
}

AllocationTrace model_trace(const std::string& folder, const std::string& name) {
  const std::vector<Interval> intervals = read_intervals(folder + "/" + name + ".csv");
  struct Event {
    uint32_t time;
    bool is_allocation;
    uint32_t slot;
  };
  std::vector<Event> events;
  for (uint32_t slot = 0; slot < intervals.size(); ++slot) {
    events.push_back({intervals[slot].lower, true, slot});
    events.push_back({intervals[slot].upper, false, slot});
  }
  std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.time != b.time ? a.time < b.time : a.is_allocation < b.is_allocation;
  });
  AllocationTrace trace{
      .name = name, .steps = {}, .slots = static_cast<uint32_t>(intervals.size())};
  for (const Event& event : events) {
    const uint32_t bytes = event.is_allocation ? intervals[event.slot].bytes : 0;
    trace.steps.push_back({event.slot, bytes});
  }
  finish(&trace);
  return trace;
}

std::vector<AllocationTrace> model_traces(const std::string& folder) {
  std::vector<AllocationTrace> traces;
  for (const char* name : {"ch_PP-OCRv4_det", "minilm_l6_static", "mlsd_320_tiny", "mobilenet_v2",
                           "resnet18", "squeezenet1_1"}) {
    traces.push_back(model_trace(folder, name));
  }
  return traces;
}

AllocationTrace interleaved_trace(const std::vector<AllocationTrace>& models, size_t steps,
                                  uint32_t seed) {
  AllocationTrace trace{.name = "interleaved", .steps = {}, .slots = 0};
  std::vector<uint32_t> first_slot;
  for (const AllocationTrace& model : models) {
    first_slot.push_back(trace.slots);
    trace.slots += model.slots;
  }
  std::mt19937 random(seed);
  std::vector<size_t> next(models.size());
  while (trace.steps.size() < steps) {
    const size_t turn = seed == 0 ? trace.steps.size() : random();
    const size_t which = turn % models.size();
    TraceStep step = models[which].steps[next[which]];
    step.slot += first_slot[which];
    next[which] = (next[which] + 1) % models[which].steps.size();
    trace.steps.push_back(step);
  }
  finish(&trace);
  return trace;
}

}  // namespace davit::bench
