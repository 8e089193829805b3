#include "cli/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace davit::cli {
namespace {

struct Unit {
  const char* name;
  double size;
};

constexpr std::array<Unit, 4> kTimeUnits = {{{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}};
constexpr std::array<Unit, 5> kByteUnits = {
    {{"B", 1}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}}};

// The largest unit not above the value, so that a number in [1, 1000) remains. 999.7 ns would print
// as "1000 ns": the limit lets it move up.
template <size_t N>
const Unit& unit_for(const std::array<Unit, N>& units, double value) {
  size_t index = 0;
  while (index + 1 < N && std::abs(value) >= units[index + 1].size * 0.9995) ++index;
  return units[index];
}

// Three significant figures without an exponent.
std::string three_figures(double value) {
  const double size = std::abs(value);
  if (size >= 99.95 || size == 0) return fmt::format("{:.0f}", value);
  if (size >= 9.995) return fmt::format("{:.1f}", value);
  return fmt::format("{:.2f}", value);
}

}  // namespace

std::string format_time(double nanoseconds) {
  const Unit& unit = unit_for(kTimeUnits, nanoseconds);
  return three_figures(nanoseconds / unit.size) + " " + unit.name;
}

std::string format_bytes(uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  const Unit& unit = unit_for(kByteUnits, value);
  if (unit.size == 1) return fmt::format("{} B", bytes);
  return three_figures(value / unit.size) + " " + unit.name;
}

std::string format_percent(double fraction) {
  return fmt::format("{:.1f} %", fraction * 100);
}

std::string format_count(uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string format_dims(std::span<const int64_t> dims) {
  if (dims.empty()) return "scalar";
  return fmt::format("{}", fmt::join(dims.begin(), dims.end(), "x"));
}

Statistics summarise(std::vector<double> samples, std::span<const double> ranks) {
  std::sort(samples.begin(), samples.end());
  const size_t count = samples.size();
  Statistics out;
  out.count = count;
  out.min = samples.front();
  out.max = samples.back();
  double sum = 0;
  for (const double sample : samples) sum += sample;
  out.mean = sum / static_cast<double>(count);
  out.median =
      count % 2 == 1 ? samples[count / 2] : (samples[count / 2 - 1] + samples[count / 2]) / 2;
  if (count > 1) {
    double squares = 0;
    for (const double sample : samples) squares += (sample - out.mean) * (sample - out.mean);
    out.standard_deviation = std::sqrt(squares / static_cast<double>(count - 1));
  }
  for (const double rank : ranks) {
    // Nearest rank: the smallest sample that at least rank % of all are not above.
    const auto position =
        static_cast<size_t>(std::ceil(rank / 100 * static_cast<double>(count) - 1e-9));
    out.percentiles.push_back({rank, samples[std::clamp<size_t>(position, 1, count) - 1]});
  }
  return out;
}

Json to_json(const Statistics& statistics) {
  Json percentiles = Json::object();
  for (const auto& [rank, value] : statistics.percentiles) {
    percentiles[fmt::format("p{}", rank)] = value;
  }
  return Json{{"count", statistics.count},
              {"min_ns", statistics.min},
              {"mean_ns", statistics.mean},
              {"median_ns", statistics.median},
              {"max_ns", statistics.max},
              {"standard_deviation_ns", statistics.standard_deviation},
              {"coefficient_of_variation", statistics.variation()},
              {"percentiles_ns", std::move(percentiles)}};
}

std::string to_line(const Statistics& statistics) {
  const Unit& unit = unit_for(kTimeUnits, statistics.median);
  const auto value = [&unit](double nanoseconds) { return three_figures(nanoseconds / unit.size); };
  std::string line =
      fmt::format("min {}  mean {}  median {}  max {}", value(statistics.min),
                  value(statistics.mean), value(statistics.median), value(statistics.max));
  for (const auto& percentile : statistics.percentiles) {
    line += fmt::format("  P{} {}", percentile.rank, value(percentile.value));
  }
  return line + "  " + unit.name;
}

}  // namespace davit::cli
