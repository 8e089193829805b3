#include "cli/output_report.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "cli/numbers.hpp"
#include "cli/report.hpp"
#include "cli/table.hpp"

namespace davit::cli {
namespace {

// XXH3-128 of the bytes, hexadecimal: equal outputs have equal digests.
std::string digest_of(const AlignedBytes& bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

void report_outputs(Session& session, std::span<const HostTensor> outputs) {
  using Align = Table::Align;
  Table table({{"output", Align::kLeft},
               {"type", Align::kLeft},
               {"min"},
               {"max"},
               {"mean"},
               {"not finite"},
               {"digest (XXH3-128)", Align::kLeft}});
  Json json = Json::array();
  for (const HostTensor& output : outputs) {
    const uint32_t size = dvt_dtype_size(output.dtype);
    const uint64_t count = output.dtype == DVT_STRING ? 0 : output.element_count();
    double low = INFINITY, high = -INFINITY, sum = 0;
    uint64_t odd = 0;
    for (uint64_t i = 0; i < count; ++i) {
      const double value = load_element(output.dtype, output.bytes.data() + i * size);
      if (!std::isfinite(value)) {
        ++odd;
        continue;
      }
      low = std::min(low, value);
      high = std::max(high, value);
      sum += value;
    }
    const uint64_t finite = count - odd;
    const double mean = finite > 0 ? sum / static_cast<double>(finite) : 0;
    const std::string digest = digest_of(output.bytes);
    const auto number = [&](double value) {
      return finite > 0 ? fmt::format("{:.6g}", value) : "-";
    };
    table.add_row({output.name, output.type_text(), number(low), number(high), number(mean),
                   fmt::format("{}", odd), digest});
    Json row = {{"name", output.name},
                {"type", output.type_text()},
                {"digest", digest},
                {"not_finite", odd}};
    row["min"] = finite > 0 ? Json(low) : Json(nullptr);
    row["max"] = finite > 0 ? Json(high) : Json(nullptr);
    row["mean"] = finite > 0 ? Json(mean) : Json(nullptr);
    json.push_back(std::move(row));
  }
  session.print("{}", table.to_text());
  session.result()["outputs"] = std::move(json);
}

}  // namespace davit::cli
