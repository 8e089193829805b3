// report.hpp: what the benchmarks share: a table for people, JSON for machines, and a fair clock.
//
// Method: every contender runs in the same process. After a warm-up of each, samples are taken in
// turn (a, b, b, a, a, ...), so that a change of the machine's clock or load meets all of them, and
// the median of each contender's samples counts.
//
// Threads  One.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "exec/trace.hpp"

namespace davit::bench {

struct Measurement {
  std::string metric;
  double value = 0;
  std::string unit;
  std::string peer;                    // What it is compared with; empty for nothing.
  std::optional<double> peer_value;    // In the same unit.
  std::optional<double> paired_ratio;  // From Contest; better than that of the medians.

  // Ours to the peer's, when there is one.
  [[nodiscard]] std::optional<double> ratio() const {
    if (paired_ratio) return paired_ratio;
    if (!peer_value || *peer_value == 0) return std::nullopt;
    return value / *peer_value;
  }
};

// Whether `--only TEXT` can choose among the parts of a benchmark, which then asks wants() for
// each.
enum class Parts { kNamed, kWhole };

// Collects measurements; finish() prints them, writes `--json FILE` and gives the exit code.
class Report {
 public:
  // Takes `--json FILE` or `--json=FILE`, and `--only TEXT` where there are parts. Anything else:
  // usage, exit code 2.
  Report(const char* name, int argc, char** argv, Parts parts = Parts::kNamed) : name_(name) {
    for (int i = 1; i < argc; ++i) {
      if (std::strncmp(argv[i], "--json=", 7) == 0) {
        json_path_ = argv[i] + 7;
      } else if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
        json_path_ = argv[++i];
      } else if (parts == Parts::kNamed && std::strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
        only_ = argv[++i];
      } else {
        std::fprintf(stderr, "usage: %s [--json FILE]%s\n", name,
                     parts == Parts::kNamed ? " [--only TEXT]" : "; it has no parts for --only");
        std::exit(2);  // NOLINT(concurrency-mt-unsafe)
      }
    }
  }

  // For benchmarks with many parts: whether `--only` asks for this one.
  [[nodiscard]] bool wants(const std::string& part) {
    const bool wanted = part.find(only_) != std::string::npos;
    found_ = found_ || wanted;
    parts_.push_back(part);
    return wanted;
  }

  // A limit on the ratio, or on the value when there is no peer: breaking it fails the benchmark.
  void add(Measurement measurement, std::optional<double> limit = std::nullopt) {
    const double judged = measurement.ratio().value_or(measurement.value);
    const bool broken = limit && judged > *limit;
    failed_ = failed_ || broken;
    rows_.push_back({std::move(measurement), limit, broken});
  }

  // 0; 1 when a limit is exceeded or the file cannot be written; 2 when `--only` meets no part.
  [[nodiscard]] int finish() const {
    if (!only_.empty() && !found_) {
      std::fprintf(stderr, "%s: no part has '%s' in its name; there are:", name_.c_str(),
                   only_.c_str());
      for (const std::string& part : parts_) std::fprintf(stderr, " '%s'", part.c_str());
      std::fprintf(stderr, "\n");
      return 2;
    }
    print();
    if (!json_path_.empty() && !write_json()) return 1;
    std::printf("%s\n", failed_ ? "FAILED: a limit is exceeded" : "PASSED");
    return failed_ ? 1 : 0;
  }

 private:
  struct Line {
    Measurement measurement;
    std::optional<double> limit;
    bool broken;
  };

  void print() const {
    std::printf("%-52s %12s %-8s %-28s %12s %8s %10s\n", name_.c_str(), "value", "unit", "peer",
                "peer value", "ratio", "limit");
    for (const Line& row : rows_) {
      const Measurement& m = row.measurement;
      std::printf("%-52s %12.4g %-8s %-28s", m.metric.c_str(), m.value, m.unit.c_str(),
                  m.peer.empty() ? "-" : m.peer.c_str());
      print_optional(12, m.peer_value);
      print_optional(8, m.ratio());
      print_optional(10, row.limit);
      std::printf("%s\n", row.broken ? "  EXCEEDED" : "");
    }
  }

  static void print_optional(int width, const std::optional<double>& value) {
    if (value) {
      std::printf(" %*.4g", width, *value);
    } else {
      std::printf(" %*s", width, "-");
    }
  }

  [[nodiscard]] bool write_json() const {
    std::string text = "[";
    for (const Line& row : rows_) {
      const Measurement& m = row.measurement;
      trace::Args object;
      object.text("benchmark", name_)
          .text("metric", m.metric)
          .real("value", m.value)
          .text("unit", m.unit);
      object.text("peer", m.peer).real("peer_value", m.peer_value.value_or(0.0 / 0.0));
      object.real("ratio", m.ratio().value_or(0.0 / 0.0))
          .real("limit", row.limit.value_or(0.0 / 0.0));
      object.integer("exceeded", row.broken ? 1 : 0);
      text += (text.size() > 1 ? ",\n " : "\n ") + object.json();
    }
    text += "\n]\n";
    std::FILE* file = std::fopen(json_path_.c_str(), "wbe");
    const bool written =
        file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
    const bool closed = file != nullptr && std::fclose(file) == 0;
    if (written && closed) return true;
    std::fprintf(stderr, "%s: cannot write %s\n", name_.c_str(), json_path_.c_str());
    return false;
  }

  std::string name_;
  std::string json_path_;
  std::string only_;
  std::vector<std::string> parts_;  // That wants() was asked for.
  bool found_ = false;              // One of them has only_ in its name.
  std::vector<Line> rows_;
  bool failed_ = false;
};

enum class Clock : clockid_t { kThreadCpu = CLOCK_THREAD_CPUTIME_ID, kWall = CLOCK_MONOTONIC };

inline double now_ns(Clock clock) {
  timespec now{};
  ::clock_gettime(static_cast<clockid_t>(clock), &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

inline double median(std::vector<double> samples) {
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

struct Timing {
  Clock clock = Clock::kThreadCpu;
  int samples = 201;
  double sample_ns = 3e5;   // Calls are repeated up to this: short samples are rarely interrupted.
  double warm_up_ns = 3e7;  // And at least three calls.
  // Before each sample, with a call after it that does not count: threads of the contender before,
  // which spin for a while after its last call, go to sleep.
  double rest_ns = 0;
};

struct Contest {
  std::vector<double> median_ns;  // Of one call of each contender.
  std::vector<double> best_ns;    // Likewise: its least disturbed sample.
  std::vector<double> ratio;      // Of each to the last contender, as described above.
};

inline void rest(double ns) {
  const timespec time{.tv_sec = static_cast<time_t>(ns / 1e9),
                      .tv_nsec = static_cast<long>(std::fmod(ns, 1e9))};
  ::nanosleep(&time, nullptr);
}

inline Contest measure(const std::vector<std::function<void()>>& contenders,
                       const Timing& timing = {}) {
  std::vector<int> repeats(contenders.size(), 1);
  std::vector<std::vector<double>> samples(contenders.size());
  for (size_t i = 0; i < contenders.size(); ++i) {
    if (timing.rest_ns > 0) rest(timing.rest_ns);
    const double start = now_ns(timing.clock);
    int calls = 0;
    while (calls < 3 || now_ns(timing.clock) - start < timing.warm_up_ns) {
      contenders[i]();
      ++calls;
    }
    const double call_ns = (now_ns(timing.clock) - start) / calls;
    repeats[i] = std::max(1, static_cast<int>(timing.sample_ns / call_ns));
  }
  for (int round = 0; round < timing.samples; ++round) {
    for (size_t turn = 0; turn < contenders.size(); ++turn) {
      // Back and forth, so that nobody always follows the same neighbour.
      const size_t i = round % 2 == 0 ? turn : contenders.size() - 1 - turn;
      if (timing.rest_ns > 0) {
        rest(timing.rest_ns);
        contenders[i]();
      }
      const double start = now_ns(timing.clock);
      for (int call = 0; call < repeats[i]; ++call) contenders[i]();
      samples[i].push_back((now_ns(timing.clock) - start) / repeats[i]);
    }
  }
  Contest contest;
  for (const std::vector<double>& of_one : samples) {
    std::vector<double> ratios;
    for (size_t round = 0; round < of_one.size(); ++round) {
      ratios.push_back(of_one[round] / samples.back()[round]);
    }
    contest.median_ns.push_back(median(of_one));
    contest.best_ns.push_back(*std::min_element(of_one.begin(), of_one.end()));
    contest.ratio.push_back(median(std::move(ratios)));
  }
  return contest;
}

}  // namespace davit::bench
