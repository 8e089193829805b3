// passes_test NAME: a real model at every optimisation level and with each pass alone: outputs
// agree with the reference, and what the passes did is what tests/data/golden_passes.json says:
// nodes that are left, nodes folded, values, and how many of them have a static shape. A pass that
// silently stops working shows there. At last with generated kernels for this processor.
//
// DAVIT_MODELS_DIR holds NAME.onnx; without it the test is skipped (exit code 77). DAVIT_TEST_DATA
// holds refs/index.json. DAVIT_UPDATE_GOLDEN=1 rewrites the model's numbers.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "exec/code_segment.hpp"
#include "ir/passes/passes.hpp"
#include "lowering/compile.hpp"
#include "tests/models/references.hpp"
#include "tests/support/run_image.hpp"

namespace {

using davit::NpyArray;
using davit::Status;
using davit::compiler::CompileOptions;
using davit::passes::Level;
using davit::testing::kSkipped;
using davit::testing::read_arrays;
using nlohmann::json;

struct Sample {
  std::string path;
  std::map<std::string, std::vector<int64_t>> shapes;
  std::vector<NpyArray> inputs, expected;
  double tolerance_of_max = 0;
};

// What is left of a graph.
json counts(const davit::ir::Module& module) {
  uint32_t nodes = 0, values = 0, static_values = 0;
  for (uint32_t n = 0; n < module.node_count(); ++n) {
    nodes += uint32_t(module.node_alive(davit::ir::NodeId{n}));
  }
  for (uint32_t v = 0; v < module.value_count(); ++v) {
    const davit::ir::ValueId value{v};
    if (!module.value_alive(value)) continue;
    ++values;
    const davit::ir::Shape* shape = module.shape(value);
    static_values += uint32_t(shape != nullptr && davit::ir::static_extents(*shape).has_value());
  }
  return {{"nodes", nodes}, {"values", values}, {"static_values", static_values}};
}

bool report(const std::string& what, const Status& status) {
  std::printf("%-36s %s\n", what.c_str(), status.ok() ? "ok" : status.to_string().c_str());
  return status.ok();
}

// Compiles, runs and compares. `numbers` gets the counts.
bool check(const Sample& sample, const std::string& what, CompileOptions options, json* numbers) {
  options.shapes = sample.shapes;
  json last;
  options.on_pass = [&](std::string_view, const davit::ir::Module& module) {
    last = counts(module);
    return Status();
  };
  const auto image = davit::compiler::compile_onnx_file(sample.path, options);
  if (!image.ok()) return report(what + " compile", image.status());
  last["folded_nodes"] = image->report.folded_nodes;
  last["image_nodes"] = image->report.image_nodes;
  if (numbers != nullptr) *numbers = last;
  const auto outputs = davit::testing::run_image(image->bytes, sample.inputs, nullptr, 1);
  if (!outputs.ok()) return report(what + " run", outputs.status());
  bool good = outputs->size() == sample.expected.size();
  for (size_t i = 0; good && i < sample.expected.size(); ++i) {
    good = report(
        what + " output " + std::to_string(i),
        davit::testing::compare(sample.expected[i], (*outputs)[i],
                                {.relative_to_max = sample.tolerance_of_max, .absolute = 1e-6}));
  }
  return good;
}

bool check_golden(const std::string& path, const std::string& name, const json& numbers) {
  json golden = json::object();
  if (std::ifstream file(path); file) golden = json::parse(file);
  if (std::getenv("DAVIT_UPDATE_GOLDEN") != nullptr) {
    golden[name] = numbers;
    std::ofstream(path) << golden.dump(1) << "\n";
  }
  if (golden.contains(name) && golden[name] == numbers) return true;
  std::printf("golden numbers differ:\n%s\ninstead of\n%s\n", numbers.dump(1).c_str(),
              golden.contains(name) ? golden[name].dump(1).c_str() : "none");
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  const char* models = std::getenv("DAVIT_MODELS_DIR");
  const char* data = std::getenv("DAVIT_TEST_DATA");
  if (argc != 2 || data == nullptr) {
    std::fprintf(stderr, "usage: DAVIT_MODELS_DIR=... DAVIT_TEST_DATA=... passes_test NAME\n");
    return 2;
  }
  const std::string name = argv[1];
  const std::string refs = std::string(data) + "/refs";
  const json index = json::parse(std::ifstream(refs + "/index.json"));
  const auto model = std::ranges::find_if(
      index["models"], [&](const json& candidate) { return candidate["name"] == name; });
  if (model == index["models"].end()) {
    std::fprintf(stderr, "no reference data for '%s'\n", name.c_str());
    return 2;
  }
  Sample sample;
  sample.path = std::string(models != nullptr ? models : ".") + "/" + name + ".onnx";
  if (!std::filesystem::exists(sample.path)) {
    std::printf("skipped: there is no %s; ./dev models fetches it\n", sample.path.c_str());
    return kSkipped;
  }
  const json& set = (*model)["sets"][0];
  const std::string folder = refs + "/" + set["dir"].get<std::string>();
  sample.inputs = read_arrays(folder, set["inputs"]);
  sample.expected = read_arrays(folder, set["outputs"]);
  sample.tolerance_of_max = (*model)["tolerance_of_max"].get<double>();
  for (const json& input : set["inputs"]) {
    sample.shapes[input["name"].get<std::string>()] = input["shape"].get<std::vector<int64_t>>();
  }
  bool good = true;
  json numbers;
  for (uint8_t level = 0; level <= 3; ++level) {
    const std::string what = "O" + std::to_string(level);
    good = check(sample, what, {.level = Level(level)}, &numbers[what]) && good;
  }
  for (const davit::passes::Pass& pass : davit::passes::all_passes()) {
    if (pass.level == Level::kRequired) continue;
    good = check(sample, "only " + std::string(pass.name),
                 {.only_passes = {std::string(pass.name)}}, nullptr) &&
           good;
  }
  for (const davit::passes::LoweringPass& pass : davit::passes::lowering_passes()) {
    good = check(sample, "only " + std::string(pass.name),
                 {.only_passes = {std::string(pass.name)}}, nullptr) &&
           good;
  }
  CompileOptions generated{.level = Level(3)};
  generated.codegen.isas = {std::string(davit::exec::best_isa())};
  generated.codegen.toolchain.jobs = 2;
  good = check(sample, "O3 with generated kernels", std::move(generated), nullptr) && good;
  good = check_golden(std::string(data) + "/golden_passes.json", name, numbers) && good;
  return good ? 0 : 1;
}
