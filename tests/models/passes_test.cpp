// passes_models_test NAME: a real model at every optimisation level, and with each pass alone,
// against its reference outputs; and tests/data/golden_passes.json, which holds what the levels
// leave of it: nodes that are left, nodes folded, values, and how many of them have a static shape;
// for a model with free dimensions also at -O3 while these stay open. A pass that silently stops
// working shows there. At last with generated kernels for this processor.
//
// DAVIT_FULL=1: also with each pass left out, on the Ascend model, with all reference sets, and as
// one image for all of them.
//
// DAVIT_MODELS_DIR holds NAME.onnx; without it the test is skipped (exit code 77). DAVIT_TEST_DATA
// holds refs/index.json. DAVIT_UPDATE_GOLDEN=1 rewrites the model's numbers.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "davit/npu.h"
#include "exec/code_segment.hpp"
#include "ir/passes/passes.hpp"
#include "lowering/compile.hpp"
#include "tests/models/references.hpp"
#include "tests/support/run_image.hpp"

namespace {

using davit::NpyArray;
using davit::Result;
using davit::Status;
using davit::compiler::CompiledImage;
using davit::compiler::CompileOptions;
using davit::passes::Level;
using davit::testing::kSkipped;
using davit::testing::read_arrays;
using nlohmann::json;

struct ReferenceSet {
  std::string name;
  std::map<std::string, std::vector<int64_t>> shapes;
  std::vector<NpyArray> inputs, expected;
};

// Models that a datum steers between branches for inputs of different shapes: with shapes that fit
// the one, the other is wrong, so they stay open.
constexpr std::string_view kFreeOnly[] = {"silero_vad_v6"};

// Sets that miss the tolerance when a pass rounds elsewhere, and what they keep. Of this one, whose
// network enlarges any rounding, the reference is 0.65e-5 of the largest output away from the same
// network in f64, -O0 1.25e-5, with two BatchNormalizations folded 2.06e-5.
struct Excess {
  std::string_view set, pass;
  double tolerance_of_max;
};
constexpr Excess kExcesses[] = {{"ch_PP-OCRv4_det_infer/set1", "fold_batch_norms", 2e-5}};

struct Sample {
  std::string path;
  bool is_free_only = false;
  std::vector<ReferenceSet> sets;
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
  std::printf("%-44s %s\n", what.c_str(), status.ok() ? "ok" : status.to_string().c_str());
  return status.ok();
}

struct DestroyNpu {
  void operator()(DvtNpu* npu) const { dvt_npu_destroy(npu); }
};

// On the Ascend model where the image is for that.
Result<std::vector<NpyArray>> run(const CompiledImage& image, DvtTarget target,
                                  const std::vector<NpyArray>& inputs) {
  if (target == DVT_TARGET_CPU) return davit::testing::run_image(image.bytes, inputs, nullptr, 1);
  DvtNpuOptions options;
  dvt_npu_options_init(&options);
  options.check_order = 1;
  DvtNpu* npu = nullptr;
  DvtError error{};
  if (dvt_npu_create(&options, &npu, &error) != DVT_OK) return davit::exec::status_of(error);
  const std::unique_ptr<DvtNpu, DestroyNpu> owner(npu);
  return davit::testing::run_image(image.bytes, inputs, dvt_npu_device(npu), 1);
}

class Checker {
 public:
  explicit Checker(const Sample& sample) : sample_(sample) {}

  // Compiles for a set, or for all where `set` is null; runs and compares. Returns what the passes
  // did; null where something fails.
  json check(const std::string& what, CompileOptions options, const ReferenceSet* set) {
    std::string name = what;
    if (options.target == DVT_TARGET_ASCEND) name += ", ascend";
    name += set == nullptr ? ", free" : set == sample_.sets.data() ? "" : ", " + set->name;
    if (set != nullptr) options.shapes = set->shapes;
    json numbers;
    options.on_pass = [&](std::string_view, const davit::ir::Module& module) {
      numbers = counts(module);
      return Status();
    };
    const auto image = davit::compiler::compile_onnx_file(sample_.path, options);
    if (!image.ok()) {
      note(report(name + " compile", image.status()));
      return {};
    }
    numbers["folded_nodes"] = image->report.folded_nodes;
    numbers["image_nodes"] = image->report.image_nodes;
    changes_ = image->report.pass_changes;
    bool good = true;
    for (const ReferenceSet& one : sample_.sets) {
      if (set == nullptr || &one == set)
        good = check_run(name, *image, options.target, one) && good;
    }
    return good ? numbers : json();
  }

  // Whether the pass had something to do when check() compiled last.
  [[nodiscard]] bool changed(std::string_view pass) const {
    return std::any_of(changes_.begin(), changes_.end(), [&](const auto& change) {
      return change.first == pass && change.second > 0;
    });
  }

  [[nodiscard]] bool good() const { return good_; }
  void note(bool good) { good_ = good && good_; }

 private:
  bool check_run(const std::string& name, const CompiledImage& image, DvtTarget target,
                 const ReferenceSet& set) {
    const auto outputs = run(image, target, set.inputs);
    bool good = outputs.ok() && outputs->size() == set.expected.size();
    if (!good) {
      report(name + " run", outputs.ok() ? Status(DVT_INTERNAL, DVT_STAGE_RUN, "other outputs")
                                         : Status(outputs.status().detail()));
    }
    double tolerance_of_max = sample_.tolerance_of_max;
    for (const Excess& excess : kExcesses) {
      if (excess.set == set.name && changed(excess.pass))
        tolerance_of_max = excess.tolerance_of_max;
    }
    for (size_t i = 0; good && i < set.expected.size(); ++i) {
      good = report(name + " output " + std::to_string(i),
                    davit::testing::compare(
                        set.expected[i], (*outputs)[i],
                        {.relative_to_max = tolerance_of_max, .absolute = 1e-6})) &&
             good;
    }
    note(good);
    return good;
  }

  const Sample& sample_;
  std::vector<std::pair<std::string, uint32_t>> changes_;
  bool good_ = true;
};

struct NamedPass {
  std::string name;
  bool in_lowering;
};

std::vector<NamedPass> optional_passes() {
  std::vector<NamedPass> passes;
  for (const davit::passes::Pass& pass : davit::passes::all_passes()) {
    if (pass.level != Level::kRequired) passes.push_back({std::string(pass.name), false});
  }
  for (const davit::passes::LoweringPass& pass : davit::passes::lowering_passes()) {
    passes.push_back({std::string(pass.name), true});
  }
  return passes;
}

std::string level_name(uint8_t level) {
  return "O" + std::to_string(level);
}

// Every set, on both targets, at each level and without each pass; `set` null: as one image.
void check_all(Checker& checker, DvtTarget target, const ReferenceSet* set) {
  for (uint8_t level = 0; level <= 3; ++level) {
    checker.check(level_name(level), {.target = target, .level = Level(level)}, set);
  }
  std::vector<NamedPass> busy = optional_passes();
  std::erase_if(busy, [&](const NamedPass& pass) {
    return !pass.in_lowering && !checker.changed(pass.name);  // Nothing to leave out.
  });
  for (const NamedPass& pass : optional_passes()) {
    checker.check("only " + pass.name, {.target = target, .only_passes = {pass.name}}, set);
  }
  for (const NamedPass& pass : busy) {
    checker.check("O3 without " + pass.name,
                  {.target = target, .level = Level(3), .disabled_passes = {pass.name}}, set);
  }
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

// The sample of a model in refs/index.json; nothing when it is not there.
std::optional<Sample> read_sample(const std::string& name, const std::string& models,
                                  const std::string& refs) {
  const json index = json::parse(std::ifstream(refs + "/index.json"));
  const auto model = std::ranges::find_if(
      index["models"], [&](const json& candidate) { return candidate["name"] == name; });
  if (model == index["models"].end()) return std::nullopt;
  Sample sample;
  sample.path = models + "/" + name + ".onnx";
  sample.is_free_only = std::ranges::find(kFreeOnly, name) != std::end(kFreeOnly);
  sample.tolerance_of_max = (*model)["tolerance_of_max"].get<double>();
  if (!std::filesystem::exists(sample.path)) return sample;
  for (const json& entry : (*model)["sets"]) {
    ReferenceSet& set = sample.sets.emplace_back();
    set.name = entry["dir"].get<std::string>();
    set.inputs = read_arrays(refs + "/" + set.name, entry["inputs"]);
    set.expected = read_arrays(refs + "/" + set.name, entry["outputs"]);
    for (const json& input : entry["inputs"]) {
      set.shapes[input["name"].get<std::string>()] = input["shape"].get<std::vector<int64_t>>();
    }
  }
  return sample;
}

bool check_sample(const std::string& name, const Sample& sample, const std::string& data) {
  Checker checker(sample);
  const ReferenceSet* first = sample.is_free_only ? nullptr : sample.sets.data();
  json numbers;
  for (uint8_t level = 0; level <= 3; ++level) {
    numbers[level_name(level)] = checker.check(level_name(level), {.level = Level(level)}, first);
  }
  const bool is_free = sample.sets.size() > 1;
  if (is_free && !sample.is_free_only)
    numbers["O3 free"] = checker.check("O3", {.level = Level(3)}, nullptr);
  for (const NamedPass& pass : optional_passes()) {
    checker.check("only " + pass.name, {.only_passes = {pass.name}}, first);
  }
  CompileOptions generated{.level = Level(3)};
  generated.codegen.isas = {std::string(davit::exec::best_isa())};
  generated.codegen.toolchain.jobs = 2;
  checker.check("O3 with generated kernels", std::move(generated), first);
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing else runs.
  if (std::getenv("DAVIT_FULL") != nullptr) {
    for (const DvtTarget target : {DVT_TARGET_CPU, DVT_TARGET_ASCEND}) {
      for (const ReferenceSet& set : sample.sets) {
        if (!sample.is_free_only) check_all(checker, target, &set);
      }
      if (is_free) check_all(checker, target, nullptr);
    }
  }
  checker.note(check_golden(data + "/golden_passes.json", name, numbers));
  return checker.good();
}

}  // namespace

int main(int argc, char** argv) {
  // NOLINTBEGIN(concurrency-mt-unsafe): nothing else runs yet.
  const char* models = std::getenv("DAVIT_MODELS_DIR");
  const char* data = std::getenv("DAVIT_TEST_DATA");
  // NOLINTEND(concurrency-mt-unsafe)
  if (argc != 2 || data == nullptr) {
    std::fprintf(stderr,
                 "usage: DAVIT_MODELS_DIR=... DAVIT_TEST_DATA=... passes_models_test NAME\n");
    return 2;
  }
  const std::string name = argv[1];
  const auto sample =
      read_sample(name, models != nullptr ? models : ".", std::string(data) + "/refs");
  if (!sample) {
    std::fprintf(stderr, "no reference data for '%s'\n", name.c_str());
    return 2;
  }
  if (sample->sets.empty()) {
    std::printf("skipped: there is no %s; ./dev models fetches it\n", sample->path.c_str());
    return kSkipped;
  }
  return check_sample(name, *sample, data) ? 0 : 1;
}
