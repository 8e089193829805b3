// Predicted against published kernel times, family by family. The table is the result; the limits
// only notice when the model gets worse.
//
// Points that measure something else than one library kernel on warm, idle hardware are listed with
// the reason instead of being modelled.
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "harness.hpp"

using namespace davit::testing;  // NOLINT(google-build-using-namespace)

namespace {

struct Point {
  std::string id, soc, op, dtype, shape, source, note;
  double us = 0;
};

// One line of the file: commas inside double quotes do not separate.
std::vector<std::string> split(const std::string& line, char separator) {
  std::vector<std::string> out(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == separator && !quoted) {
      out.emplace_back();
    } else if (c != '\r') {
      out.back() += c;
    }
  }
  return out;
}

std::vector<Point> read_points() {
  const char* folder = std::getenv("DAVIT_TEST_DATA");
  REQUIRE_MESSAGE(folder != nullptr, "DAVIT_TEST_DATA is not set");
  std::ifstream file(std::string(folder) + "/ascend_points.csv");
  REQUIRE(file.is_open());
  std::vector<Point> out;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    const auto f = split(line, ',');
    REQUIRE(f.size() == 8);
    out.push_back({f[0], f[1], f[2], f[3], f[4], f[6], f[7], std::stod(f[5])});
  }
  return out;
}

std::vector<uint64_t> numbers(const std::string& shape) {
  std::vector<uint64_t> out;
  for (const auto& part : split(shape, ',')) out.push_back(std::stoull(part));
  return out;
}

DvtDType dtype_of(const std::string& name) {
  if (name == "int8") return DVT_I8;
  return name == "fp32" ? DVT_F32 : DVT_F16;
}

struct Case {
  std::string family;  // Empty: `why_not` says why it is not predicted.
  std::string why_not;
  DvtTaskCost cost{};
  std::string op;
  bool cold = false;  // Measured with the cold start of a single kernel: 20 us [D].
};

Case product(const Point& point) {
  Case out;
  const auto mkn = numbers(point.shape);
  out.cost = matmul_cost(mkn[0], mkn[1], mkn[2], dtype_of(point.dtype));
  out.op = "MatMul";
  out.family = point.dtype == "int8" ? "GEMM int8" : "GEMM fp16/bf16/fp32";
  out.cold = point.source == "S14";
  if (point.note == "fp32 accumulate/out") out.cost.write_bytes = mkn[0] * mkn[2] * 4;
  if (point.note == "poor tiling") return {.why_not = "a first, untuned kernel of a tutorial"};
  if (point.op == "QuantBatchMatmul") {
    // Scales per row and column: vector cores turn i32 into bf16 (convert, two products, convert;
    // 4 bytes an element).
    out.cost.vector_elements = mkn[0] * mkn[2];
    out.cost.vector_passes_x100 = 4 * 600;
  }
  return out;
}

// X = N,C1,H,W,16 and a kernel of C1*9 x Co1 fractals, padding 1.
Case convolution(const Point& point) {
  const auto halves = split(point.shape, ';');
  const auto x = numbers(halves[0].substr(2));
  const auto k = numbers(halves[1].substr(2));
  Case out{.family = "Conv fp16", .op = "Conv"};
  out.cost = matmul_cost(x[0] * x[2] * x[3], k[0] * 16, k[1] * 16);
  out.cost.kind = DVT_TASK_CONV;
  out.cost.read_bytes = (x[0] * x[1] * x[2] * x[3] * 16 + k[0] * 16 * k[1] * 16) * 2;
  out.cost.write_bytes = out.cost.m * out.cost.n * 2;
  return out;
}

// `reads` and `writes` tensors of `elements` in 2 bytes; vector work in f32.
Case memory_bound(const std::string& op, uint64_t elements, double reads, double writes,
                  uint64_t passes_x100) {
  Case out{.family = "memory-bound", .op = op};
  out.cost.kind = op == "TensorMove" ? DVT_TASK_MOVE : DVT_TASK_VECTOR;
  out.cost.dtype = DVT_F32;
  out.cost.vector_elements = elements;
  out.cost.vector_passes_x100 = passes_x100;
  out.cost.read_bytes = static_cast<uint64_t>(static_cast<double>(elements) * 2 * reads);
  out.cost.write_bytes = static_cast<uint64_t>(static_cast<double>(elements) * 2 * writes);
  return out;
}

Case case_of(const Point& point) {
  if (point.op == "MatMul" || point.op == "QuantBatchMatmul") return product(point);
  if (point.op == "Conv2D3x3") return convolution(point);
  if (point.op == "GroupedMatMul") {  // 8192 rows over eight groups, scaled in the fixpipe.
    Case out{.family = "GEMM int8", .op = "GroupedMatMul"};
    out.cost = matmul_cost(1024, 1024, 8192, DVT_I8);
    out.cost.batch = 8;
    return out;
  }
  if (point.op == "FlashAttention") {  // S=length;D=extent, one head
    const auto halves = split(point.shape, ';');
    const uint64_t length = numbers(halves[0].substr(2))[0];
    const uint64_t extent = numbers(halves[1].substr(2))[0];
    Case out{.family = "attention", .op = point.op};
    out.cost = matmul_cost(length, 2 * extent, length);
    out.cost.read_bytes = 3 * length * extent * 2;
    out.cost.write_bytes = length * extent * 2;
    return out;
  }
  if (point.op == "FusedInferAttention") {
    return {.why_not = "the lengths of its sequences are not published"};
  }
  if (point.soc == "910B1") return {.why_not = "a step of a hand-written tutorial kernel"};
  const bool flat = point.shape.find(',') == std::string::npos;
  if (point.op == "TensorMove") return memory_bound(point.op, numbers(point.shape)[0], 1, 1, 0);
  if (flat || point.shape.find(';') != std::string::npos) {
    return {.why_not = "sort and top-k are not modelled yet"};
  }
  const auto shape = numbers(point.shape);
  const uint64_t elements = shape[0] * shape[1];
  // Passes: cycles per repeat of the operations that the operator needs, by the published table.
  if (point.op == "SwiGlu") return memory_bound(point.op, elements, 1, 0.5, 700);
  if (point.op == "AddRmsNormBias") return memory_bound(point.op, elements, 2, 2, 1100);
  if (point.op == "Add") return memory_bound(point.op, elements, 2, 1, 500);
  if (point.op == "Div") return memory_bound(point.op, elements, 2, 1, 700);
  if (point.op == "Softmax") {
    Case out = memory_bound(point.op, elements, 1, 1, 2000);
    out.cost.block_dim = static_cast<uint32_t>(shape[0]);  // A row is one core's.
    return out;
  }
  return {.why_not = "sort and top-k are not modelled yet"};
}

}  // namespace

TEST_CASE("published points by family") {
  auto warm = make_npu();
  auto warm_b1 = make_npu({.overrides = {"core.clock=1850"}});
  auto cold_b1 = make_npu({.overrides = {"core.clock=1850", "matmul.head=20"}});
  struct Family {
    double sum = 0, worst = 0;
    int count = 0;
  };
  std::map<std::string, Family> families;
  for (const Point& point : read_points()) {
    const Case c = case_of(point);
    const std::string title = fmt::format("{:>3} {:6} {:19} {:5} {:28}", point.id, point.soc,
                                          point.op, point.dtype, point.shape);
    if (c.family.empty()) {
      fmt::print("{} {:9.1f} us   not predicted: {}\n", title, point.us, c.why_not);
      continue;
    }
    DvtNpu* npu = point.soc != "910B1" ? warm.get() : c.cold ? cold_b1.get() : warm_b1.get();
    DvtNpuTask task{};
    REQUIRE(dvt_npu_estimate(npu, &c.cost, c.op.c_str(), &task) == DVT_OK);
    const double us = static_cast<double>(task.end_ps) / 1e6;
    const double error = us / point.us - 1;
    fmt::print("{} {:9.1f} us {:9.1f} us {:+6.1f} %  {}{}\n", title, point.us, us, 100 * error,
               c.family, c.cold ? " (cold)" : "");
    Family& family = families[c.family];
    family.sum += std::abs(error);
    family.worst = std::max(family.worst, std::abs(error));
    ++family.count;
  }
  std::map<std::string, double> mape;
  for (const auto& [name, family] : families) {
    mape[name] = 100 * family.sum / family.count;
    fmt::print("MAPE {:20} {:5.1f} % over {} points, worst {:.1f} %\n", name, mape[name],
               family.count, 100 * family.worst);
  }
  CHECK(mape["GEMM fp16/bf16/fp32"] < 10);
  CHECK(mape["GEMM int8"] < 13);
  CHECK(mape["attention"] < 8);
  CHECK(mape["Conv fp16"] < 15);
  CHECK(mape["memory-bound"] < 10);
}

// How well the points of one source are predicted by parameters that were fitted to the others: for
// every family with points of several sources, the same grid as for the built-in values.
namespace {

struct Grid {
  std::string family;
  std::vector<std::pair<const char*, std::vector<double>>> axes;
};

const Grid kGrids[] = {
    {"GEMM fp16/bf16/fp32",
     {{"matmul.head", {4, 5, 6, 7, 8}},
      {"hbm.efficiency", {0.65, 0.7, 0.75, 0.8}},
      {"overlap.second", {0, 0.05, 0.1, 0.15}},
      {"matmul.split_k", {1, 3, 5}}}},
    {"GEMM int8", {{"mix.head", {2, 3, 4, 5, 6}}, {"mte2.burst", {3.5, 4, 4.5, 5, 5.5, 6}}}},
};

struct Sample {
  Point point;
  Case c;
};

double error_of(const Sample& sample, std::vector<std::string> overrides) {
  if (sample.point.soc == "910B1") overrides.emplace_back("core.clock=1850");
  if (sample.c.cold) overrides.emplace_back("matmul.head=20");
  std::vector<const char*> texts;
  for (const auto& text : overrides) texts.push_back(text.c_str());
  auto npu = make_npu({.timing_only = true, .overrides = texts});
  DvtNpuTask task{};
  if (dvt_npu_estimate(npu.get(), &sample.c.cost, sample.c.op.c_str(), &task) != DVT_OK) return 1;
  return std::abs(static_cast<double>(task.end_ps) / 1e6 / sample.point.us - 1);
}

// All combinations of a grid's values.
std::vector<std::vector<std::string>> settings_of(const Grid& grid) {
  std::vector<std::vector<std::string>> out(1);
  for (const auto& [key, values] : grid.axes) {
    std::vector<std::vector<std::string>> longer;
    for (const auto& setting : out) {
      for (const double value : values) {
        longer.push_back(setting);
        longer.back().push_back(fmt::format("{}={}", key, value));
      }
    }
    out = std::move(longer);
  }
  return out;
}

}  // namespace

TEST_CASE("leave one source out") {
  const std::map<std::string, double> limit = {{"GEMM fp16/bf16/fp32", 10}, {"GEMM int8", 13}};
  for (const Grid& grid : kGrids) {
    std::vector<Sample> samples;
    std::map<std::string, int> sources;
    for (const Point& point : read_points()) {
      Case c = case_of(point);
      if (c.family != grid.family) continue;
      ++sources[point.source];
      samples.push_back({point, std::move(c)});
    }
    const auto settings = settings_of(grid);
    std::vector<std::vector<double>> errors;  // By setting and sample.
    for (const auto& setting : settings) {
      auto& row = errors.emplace_back();
      for (const Sample& sample : samples) row.push_back(error_of(sample, setting));
    }
    double held_out = 0;
    for (const auto& [name, count] : sources) {
      const std::string& source = name;
      // Sums over the samples that are of the source, or are not.
      const auto sum = [&](size_t setting, bool of_source) {
        double total = 0;
        for (size_t i = 0; i < samples.size(); ++i) {
          if ((samples[i].point.source == source) == of_source) total += errors[setting][i];
        }
        return total;
      };
      size_t best = 0;
      for (size_t k = 1; k < settings.size(); ++k) {
        if (sum(k, false) < sum(best, false)) best = k;
      }
      fmt::print("{:20} without {:4}: MAPE of its {:2} points {:5.1f} %, fitted {}\n", grid.family,
                 source, count, 100 * sum(best, true) / count, fmt::join(settings[best], " "));
      held_out += sum(best, true);
    }
    const double mape = 100 * held_out / static_cast<double>(samples.size());
    fmt::print("{:20} leave one source out: {:.1f} %\n", grid.family, mape);
    CHECK(mape < limit.at(grid.family));
  }
}
