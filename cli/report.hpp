// report.hpp: numbers as people read them, and summaries of measurements.
//
// Threads  Pure functions.
// Memory   Returns owned strings and values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json.hpp"

namespace davit::cli {

using Json = nlohmann::ordered_json;

// A time with the SI unit that keeps three significant figures: "812 ns", "3.21 us", "1.50 s".
std::string format_time(double nanoseconds);
// "512 B", "4.75 MB": powers of 1000.
std::string format_bytes(uint64_t bytes);
// "12.3 %".
std::string format_percent(double fraction);
// "1 node", "2 nodes"; the plural of `noun` takes an s.
std::string format_count(uint64_t count, std::string_view noun);
// "1x3x224x224"; "scalar" for rank 0.
std::string format_dims(std::span<const int64_t> dims);

// Latencies of a measured loop, in nanoseconds.
struct Statistics {
  size_t count = 0;
  double min = 0, mean = 0, median = 0, max = 0, standard_deviation = 0;
  struct Percentile {
    double rank;  // 99.9
    double value;
  };
  std::vector<Percentile> percentiles;

  // Standard deviation over mean; 0 for fewer than two samples.
  [[nodiscard]] double variation() const { return mean > 0 ? standard_deviation / mean : 0; }
};

// Percentiles by nearest rank. Precondition: `samples` is not empty, ranks are in [0, 100].
Statistics summarise(std::vector<double> samples, std::span<const double> ranks);

// Every field in nanoseconds, percentiles as an object keyed "p99.9".
Json to_json(const Statistics& statistics);
// "latency  min 1.02 ms  mean 1.05 ms ..." in one unit, chosen by the median.
std::string to_line(const Statistics& statistics);

}  // namespace davit::cli
