#include "npu_model/parameters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace davit::npu {
namespace {

struct Key {
  std::string_view name;
  std::string_view unit;
  double Parameters::*field;
  double min, max;
  bool whole;  // Counts and element numbers.
};

// Limits keep all arithmetic on these numbers finite, and far from the end of int64_t picoseconds.
constexpr double kRateMax = 1e6;
constexpr double kTimeMaxUs = 1e6;
constexpr Key kKeys[] = {
    {"core.clock", "MHz", &Parameters::clock_mhz, 1, 1e5, false},
    {"core.aic", "count", &Parameters::aic_cores, 1, 4096, true},
    {"core.aiv", "count", &Parameters::aiv_cores, 1, 4096, true},
    {"core.combined", "flag", &Parameters::combined_cores, 0, 1, true},
    {"core.aicpu", "count", &Parameters::aicpu_cores, 1, 256, true},
    {"hbm.capacity", "GiB", &Parameters::hbm_capacity_gib, 1e-6, 65536, false},
    {"hbm.bandwidth", "GB/s", &Parameters::hbm_gbps, 1e-3, 1e9, false},
    {"hbm.efficiency", "ratio", &Parameters::hbm_efficiency, 0.01, 1, false},
    {"l2.capacity", "MiB", &Parameters::l2_capacity_mib, 0.01, 1e6, false},
    {"l2.bandwidth", "GB/s", &Parameters::l2_gbps, 1e-3, 1e9, false},
    {"l2.efficiency", "ratio", &Parameters::l2_efficiency, 0.01, 1, false},
    {"l0c.capacity", "KiB", &Parameters::l0c_capacity_kib, 1, 1e6, false},
    {"cube.k_f16", "elements", &Parameters::cube_k_f16, 1, 4096, true},
    {"cube.k_i8", "elements", &Parameters::cube_k_i8, 1, 4096, true},
    {"cube.k_f32", "elements", &Parameters::cube_k_f32, 1, 4096, true},
    {"cube.fractal", "cycles", &Parameters::cube_fractal_cycles, 0, 1e4, false},
    {"cube.round", "cycles", &Parameters::cube_round_cycles, 0, 1e6, false},
    {"mte1.l0a", "B/cycle", &Parameters::mte1_l0a_rate, 0.01, kRateMax, false},
    {"mte1.l0b", "B/cycle", &Parameters::mte1_l0b_rate, 0.01, kRateMax, false},
    {"mte2.aic", "B/cycle", &Parameters::mte2_aic_rate, 0.01, kRateMax, false},
    {"mte2.burst", "cycles", &Parameters::mte2_burst_cycles, 0, 1e6, false},
    {"fixp.rate", "B/cycle", &Parameters::fixp_rate, 0.01, kRateMax, false},
    {"fixp.start", "cycles", &Parameters::fixp_start_cycles, 0, 1e6, false},
    {"vector.repeat", "bytes", &Parameters::vector_repeat_bytes, 1, 65536, true},
    {"vector.start", "cycles", &Parameters::vector_start_cycles, 0, 1e6, false},
    {"mte2.aiv", "B/cycle", &Parameters::mte2_aiv_rate, 0.01, kRateMax, false},
    {"mte2.aiv_start", "cycles", &Parameters::mte2_aiv_start_cycles, 0, 1e6, false},
    {"mte3.aiv", "B/cycle", &Parameters::mte3_aiv_rate, 0.01, kRateMax, false},
    {"mte3.aiv_start", "cycles", &Parameters::mte3_aiv_start_cycles, 0, 1e6, false},
    {"overlap.second", "ratio", &Parameters::overlap_second, 0, 1, false},
    {"matmul.head", "us", &Parameters::matmul_head_us, 0, kTimeMaxUs, false},
    {"conv.head", "us", &Parameters::conv_head_us, 0, kTimeMaxUs, false},
    {"matmul.split_k", "us", &Parameters::matmul_split_k_us, 0, kTimeMaxUs, false},
    {"attention.head", "us", &Parameters::attention_head_us, 0, kTimeMaxUs, false},
    {"attention.softmax", "cycles", &Parameters::attention_passes, 0, 1e4, false},
    {"mix.head", "us", &Parameters::mix_head_us, 0, kTimeMaxUs, false},
    {"vector.head", "us", &Parameters::vector_head_us, 0, kTimeMaxUs, false},
    {"vector.bandwidth", "GB/s", &Parameters::vector_gbps, 1e-3, 1e9, false},
    {"move.head", "us", &Parameters::move_head_us, 0, kTimeMaxUs, false},
    {"move.bandwidth", "GB/s", &Parameters::move_gbps, 1e-3, 1e9, false},
    {"aicpu.head", "us", &Parameters::aicpu_head_us, 0, kTimeMaxUs, false},
    {"aicpu.bandwidth", "GB/s", &Parameters::aicpu_gbps, 1e-3, 1e9, false},
    {"aicpu.coherent", "flag", &Parameters::aicpu_coherent, 0, 1, true},
    {"pcie.setup", "us", &Parameters::pcie_setup_us, 0, kTimeMaxUs, false},
    {"pcie.bandwidth", "GB/s", &Parameters::pcie_gbps, 1e-3, 1e9, false},
    {"sdma.setup", "us", &Parameters::sdma_setup_us, 0, kTimeMaxUs, false},
    {"sdma.bandwidth", "GB/s", &Parameters::sdma_gbps, 1e-3, 1e9, false},
    {"ts.task_gap", "us", &Parameters::task_gap_us, 0, kTimeMaxUs, false},
    {"ts.active_streams", "count", &Parameters::active_streams, 1, 65536, true},
    {"stream.max", "count", &Parameters::streams_max, 1, 1048576, true},
    {"sq.depth", "count", &Parameters::sq_depth, 1, 1e9, true},
    {"sq.reserved", "count", &Parameters::sq_reserved, 0, 1e9, true},
    {"event.max", "count", &Parameters::events_max, 1, 1048576, true},
    {"event.record", "us", &Parameters::event_record_us, 0, kTimeMaxUs, false},
    {"event.wait", "us", &Parameters::event_wait_us, 0, kTimeMaxUs, false},
    {"notify.max", "count", &Parameters::notifies_max, 1, 1048576, true},
    {"notify.latency", "us", &Parameters::notify_us, 0, kTimeMaxUs, false},
    {"notify.cross_device", "us", &Parameters::notify_cross_us, 0, kTimeMaxUs, false},
    {"model.max", "count", &Parameters::models_max, 1, 1048576, true},
    {"model.execute", "us", &Parameters::model_execute_us, 0, kTimeMaxUs, false},
    {"model.stream_depth", "count", &Parameters::model_stream_depth, 1, 1e9, true},
    {"label.max", "count", &Parameters::labels_max, 1, 1048576, true},
    {"control.latency", "us", &Parameters::control_us, 1e-3, kTimeMaxUs, false},
    {"queue.max", "count", &Parameters::queues_max, 1, 1048576, true},
    {"queue.depth", "count", &Parameters::queue_depth, 1, 1e6, true},
    {"host.callback", "us", &Parameters::callback_us, 0, kTimeMaxUs, false},
    {"host.enqueue", "us", &Parameters::enqueue_us, 0, kTimeMaxUs, false},
    {"host.synchronize", "us", &Parameters::synchronize_us, 0, kTimeMaxUs, false},
    {"host.allocate", "us", &Parameters::allocate_us, 0, kTimeMaxUs, false},
};

Status invalid(std::string message, std::string got = {}, std::string expected = {},
               std::string hint = {}) {
  return Status(ErrorDetail{.code = DVT_INVALID_ARGUMENT,
                            .stage = DVT_STAGE_PARSE,
                            .message = std::move(message),
                            .expected = std::move(expected),
                            .got = std::move(got),
                            .hint = std::move(hint)});
}

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

const Key* find_key(std::string_view name) {
  const auto* it = std::find_if(std::begin(kKeys), std::end(kKeys),
                                [&](const Key& key) { return key.name == name; });
  return it == std::end(kKeys) ? nullptr : it;
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

// "op.Add.head" -> {"Add", "head"}; nothing when it has another form.
std::optional<std::pair<std::string_view, std::string_view>> operator_key(std::string_view key) {
  if (!key.starts_with("op.")) return std::nullopt;
  const auto dot = key.rfind('.');
  if (dot <= 3) return std::nullopt;
  const auto field = key.substr(dot + 1);
  if (field != "head" && field != "bandwidth") return std::nullopt;
  return std::pair{key.substr(3, dot - 3), field};
}

// Stores a value under its key after checking it.
Status store(Parameters& parameters, std::string_view key, std::string_view unit, double value,
             const std::string& where) {
  if (const auto op = operator_key(key)) {
    const bool head = op->second == "head";
    const std::string_view expected = head ? "us" : "GB/s";
    if (unit != expected) {
      return invalid(where + "wrong unit of " + std::string(key), std::string(unit),
                     std::string(expected));
    }
    if (head ? value < 0 || value > kTimeMaxUs : value < 1e-3 || value > 1e9) {
      return invalid(where + "value of " + std::string(key) + " out of range",
                     fmt::format("{}", value));
    }
    auto& entry = parameters.operators[std::string(op->first)];
    (head ? entry.head_us : entry.bandwidth_gbps) = value;
    return {};
  }
  const Key* known = find_key(key);
  if (known == nullptr) {
    return invalid(where + "unknown parameter " + std::string(key), std::string(key), {},
                   "`davit doctor` lists all parameters");
  }
  if (unit != known->unit) {
    return invalid(where + "wrong unit of " + std::string(key), std::string(unit),
                   std::string(known->unit));
  }
  const bool fits = value >= known->min && value <= known->max;
  if (!fits || (known->whole && value != std::floor(value))) {
    return invalid(where + "value of " + std::string(key) + " out of range",
                   fmt::format("{}", value),
                   fmt::format("{} number from {} to {}", known->whole ? "whole" : "any",
                               known->min, known->max));
  }
  parameters.*known->field = value;
  return {};
}

// Splits "key = value unit [E] # source".
Result<Parameter> parse_line(std::string_view line, const std::string& where) {
  Parameter out;
  const auto hash = line.find('#');
  if (hash == std::string_view::npos) return invalid(where + "no source", std::string(line));
  out.source = trim(line.substr(hash + 1));
  line = line.substr(0, hash);
  const auto equals = line.find('=');
  if (equals == std::string_view::npos) return invalid(where + "no '='", std::string(line));
  out.key = trim(line.substr(0, equals));
  std::string_view rest = trim(line.substr(equals + 1));
  const auto open = rest.find('[');
  const bool tagged = open != std::string_view::npos && open + 2 < rest.size() &&
                      rest[open + 2] == ']' && open + 3 == rest.size() &&
                      std::string_view("MCDFA").find(rest[open + 1]) != std::string_view::npos;
  if (!tagged) {
    return invalid(where + "no evidence", std::string(line), "[M], [C], [D], [F] or [A]");
  }
  out.evidence = rest[open + 1];
  rest = trim(rest.substr(0, open));
  const auto space = rest.find_first_of(" \t");
  const auto value = parse_number(rest.substr(0, space));
  if (!value || space == std::string_view::npos) {
    return invalid(where + "no value and unit", std::string(line), "key = value unit [evidence]");
  }
  out.value = *value;
  out.unit = trim(rest.substr(space));
  return out;
}

}  // namespace

int64_t Parameters::cycles_to_ps(uint64_t cycles) const {
  return static_cast<int64_t>(std::ceil(static_cast<double>(cycles) * 1e6 / clock_mhz - 1e-6));
}

Result<Parameters> parse_parameters(std::string_view text, std::string_view name) {
  Parameters out;
  size_t number = 0;
  while (!text.empty()) {
    const auto end = text.find('\n');
    const std::string_view line = trim(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    ++number;
    if (line.empty() || line.front() == '#') continue;
    const std::string where = fmt::format("{}:{}: ", name, number);
    auto parsed = parse_line(line, where);
    if (!parsed.ok()) return std::move(parsed.status());
    const bool repeated = std::any_of(out.lines.begin(), out.lines.end(),
                                      [&](const Parameter& p) { return p.key == parsed->key; });
    if (repeated) return invalid(where + "parameter given twice", parsed->key);
    auto status = store(out, parsed->key, parsed->unit, parsed->value, where);
    if (!status.ok()) return status;
    out.lines.push_back(std::move(*parsed));
  }
  for (const Key& key : kKeys) {
    const bool given = std::any_of(out.lines.begin(), out.lines.end(),
                                   [&](const Parameter& p) { return p.key == key.name; });
    if (!given) return invalid(fmt::format("{}: parameter {} is missing", name, key.name));
  }
  return out;
}

Status override_parameter(Parameters& parameters, std::string_view assignment) {
  const auto equals = assignment.find('=');
  const auto value = equals == std::string_view::npos
                         ? std::nullopt
                         : parse_number(trim(assignment.substr(equals + 1)));
  if (!value) {
    return invalid("malformed override '" + std::string(assignment) + "'", std::string(assignment),
                   "key=number");
  }
  const std::string key(trim(assignment.substr(0, equals)));
  auto line = std::find_if(parameters.lines.begin(), parameters.lines.end(),
                           [&](const Parameter& p) { return p.key == key; });
  const auto op = operator_key(key);
  std::string unit = op && op->second == "head" ? "us" : "GB/s";
  if (line != parameters.lines.end()) {
    unit = line->unit;
  } else if (!op) {
    return invalid("override of an unknown parameter '" + key + "'", key, {},
                   "`davit doctor` lists all parameters");
  }
  Parameters changed = parameters;
  auto status = store(changed, key, unit, *value, "override: ");
  if (!status.ok()) return status;
  if (line == parameters.lines.end()) {
    changed.lines.push_back({key, *value, unit, 'A', true, "override"});
  } else {
    auto& entry = changed.lines[static_cast<size_t>(line - parameters.lines.begin())];
    entry.value = *value;
    entry.overridden = true;
  }
  parameters = std::move(changed);
  return {};
}

Status check_parameters(const Parameters& parameters) {
  if (parameters.sq_reserved < parameters.sq_depth) return {};
  return invalid("sq.reserved leaves no queue entry",
                 fmt::format("{} of {}", parameters.sq_reserved, parameters.sq_depth),
                 "less than sq.depth");
}

}  // namespace davit::npu
