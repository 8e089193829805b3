// Real models on several workers: sequential, planned and dynamic scheduling give the same bits,
// for images with schedules for two and for three workers.
//
// Prints one line for each check. Exit code 77: the model is not there.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/npy.hpp"
#include "davit/davit.h"
#include "lowering/compile.hpp"
#include "tests/support/run_image.hpp"

namespace {

using davit::NpyArray;
using davit::Status;
using davit::testing::RunOn;
using nlohmann::json;

constexpr int kSkipped = 77;
constexpr int kRuns = 5;

bool report(const std::string& what, const Status& status) {
  std::printf("%-44s %s\n", what.c_str(), status.ok() ? "ok" : status.to_string().c_str());
  return status.ok();
}

struct PoolDestroy {
  void operator()(DvtPool* pool) const { dvt_pool_destroy(pool); }
};
using PoolPtr = std::unique_ptr<DvtPool, PoolDestroy>;

PoolPtr make_pool(uint32_t workers) {
  DvtPoolOptions options;
  dvt_pool_options_init(&options);
  options.workers = workers;
  DvtError error{};
  DvtPool* pool = nullptr;
  if (dvt_pool_create(&options, &pool, &error) != DVT_OK) {
    std::fprintf(stderr, "%s\n", error.message);
    std::exit(1);
  }
  return PoolPtr(pool);
}

struct Case {
  std::string model;
  std::vector<NpyArray> inputs;
  davit::compiler::CompileOptions options;
};

// The inputs of the model's first reference set; their shapes become those of the model.
Case read_case(const std::string& model_path, const std::string& refs, const std::string& name) {
  Case made{.model = model_path, .inputs = {}, .options = {}};
  std::ifstream stream(refs + "/index.json");
  const json index = json::parse(stream);
  for (const json& model : index["models"]) {
    if (model["name"] != name) continue;
    const json& set = model["sets"][0];
    for (const json& input : set["inputs"]) {
      auto array = davit::read_npy(refs + "/" + set["dir"].get<std::string>() + "/" +
                                   input["file"].get<std::string>());
      if (!array.ok()) {
        std::fprintf(stderr, "%s\n", array.status().to_string().c_str());
        std::exit(1);
      }
      made.options.shapes[input["name"].get<std::string>()] = array->dims;
      made.inputs.push_back(std::move(*array));
    }
  }
  return made;
}

Status same(const std::vector<NpyArray>& expected, const std::vector<NpyArray>& got) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i].bytes != got[i].bytes) {
      return {DVT_INTERNAL, DVT_STAGE_RUN, "output " + std::to_string(i) + " has other bits"};
    }
  }
  return {};
}

bool check(const Case& given, uint32_t workers) {
  const std::string name = std::to_string(workers) + " workers: ";
  auto options = given.options;
  options.level = davit::passes::Level::kFuse;  // With operators in pieces, below.
  const auto plain = davit::compiler::compile_onnx_file(given.model, options);
  if (!plain.ok()) return report(name + "compile", Status(plain.status().detail()));
  options.workers = workers;
  options.pieces = workers;
  options.schedule_gain = 1;  // Whatever it promises.
  const auto image = davit::compiler::compile_onnx_file(given.model, options);
  if (!image.ok()) return report(name + "compile", Status(image.status().detail()));
  const auto& made = image->report;
  std::printf("%-44s %u workers %s\n", (name + "schedule").c_str(), made.schedule_workers,
              made.why_no_schedule.c_str());
  const PoolPtr pool = make_pool(workers);
  const auto expected = davit::testing::run_image(plain->bytes, given.inputs);
  if (!expected.ok()) return report(name + "reference", Status(expected.status().detail()));
  bool good = true;
  for (const uint32_t schedule :
       {DVT_SCHEDULE_SEQUENTIAL, DVT_SCHEDULE_DYNAMIC, DVT_SCHEDULE_PLANNED, DVT_SCHEDULE_AUTO}) {
    constexpr const char* kNames[] = {"auto", "sequential", "dynamic", "planned"};
    if (schedule == DVT_SCHEDULE_PLANNED && made.schedule_workers == 0) continue;
    const RunOn on{.runs = schedule == DVT_SCHEDULE_AUTO ? 2 * kRuns : kRuns,
                   .pool = pool.get(),
                   .schedule = schedule};
    const auto got = davit::testing::run_image(image->bytes, given.inputs, on);
    good = report(name + kNames[schedule],
                  got.ok() ? same(*expected, *got) : Status(got.status().detail())) &&
           good;
  }
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  const char* models = std::getenv("DAVIT_MODELS_DIR");
  const char* data = std::getenv("DAVIT_TEST_DATA");
  if (argc != 2 || data == nullptr) {
    std::fprintf(stderr,
                 "usage: DAVIT_MODELS_DIR=... DAVIT_TEST_DATA=... parallel_models_test NAME\n");
    return 2;
  }
  const std::string name = argv[1];
  const std::filesystem::path model =
      std::filesystem::path(models == nullptr ? "" : models) / (name + ".onnx");
  if (!std::filesystem::exists(model)) {
    std::printf("%s is not there\n", model.c_str());
    return kSkipped;
  }
  const Case given = read_case(model.string(), std::string(data) + "/refs", name);
  if (given.inputs.empty()) {
    std::fprintf(stderr, "%s has no reference inputs\n", name.c_str());
    return 1;
  }
  bool good = true;
  for (const uint32_t workers : {2U, 3U}) good = check(given, workers) && good;
  return good ? 0 : 1;
}
