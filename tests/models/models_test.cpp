// models_test NAME: compiles a real model for both targets, runs it on the reference inputs, and
// compares with the reference outputs. cpu and ascend must agree bit for bit, with an NPU that runs
// tasks as early and as late as it may. Images must be the same bytes wherever they are made: two
// processes with other folders, locales, time zones and heap contents compile the model again.
//
// models_test NAME --emit MODEL OUT: what those processes run; writes OUT.cpu and OUT.ascend.
//
// DAVIT_MODELS_DIR holds NAME.onnx; without it the test is skipped (exit code 77).
// DAVIT_TEST_DATA holds refs/index.json.
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "davit/npu.h"
#include "lowering/compile.hpp"
#include "tests/models/references.hpp"
#include "tests/support/run_image.hpp"

namespace {

using davit::NpyArray;
using davit::Status;
using davit::testing::kSkipped;
using davit::testing::read_arrays;
using nlohmann::json;

struct DestroyNpu {
  void operator()(DvtNpu* npu) const { dvt_npu_destroy(npu); }
};

davit::Result<std::vector<NpyArray>> run_on_npu(std::span<const std::byte> image,
                                                std::span<const NpyArray> inputs, DvtNpuMode mode) {
  DvtNpuOptions options;
  dvt_npu_options_init(&options);
  options.mode = mode;
  options.check_order = 1;
  DvtNpu* npu = nullptr;
  DvtError error{};
  if (dvt_npu_create(&options, &npu, &error) != DVT_OK) return davit::exec::status_of(error);
  const std::unique_ptr<DvtNpu, DestroyNpu> owner(npu);
  auto outputs = davit::testing::run_image(
      image, inputs,
      // Late tasks, and a device that sees the life of every value.
      {.device = dvt_npu_device(npu),
       .runs = 2,
       .device_memory =
           uint32_t{mode == DVT_NPU_LAZY ? DVT_DEVICE_MEMORY_DIRECT : DVT_DEVICE_MEMORY_CACHED}});
  if (!outputs.ok()) return outputs;
  DvtNpuMemory memory;
  dvt_npu_memory(npu, &memory);
  if (memory.live_bytes != 0) {
    return Status(DVT_INTERNAL, DVT_STAGE_UNLOAD,
                  std::to_string(memory.live_bytes) + " bytes of device memory are left");
  }
  return outputs;
}

bool report(const std::string& what, const Status& status) {
  std::printf("%-32s %s\n", what.c_str(), status.ok() ? "ok" : status.to_string().c_str());
  return status.ok();
}

davit::compiler::CompileOptions options_for(const json& set, DvtTarget target) {
  davit::compiler::CompileOptions options;
  options.target = target;
  for (const json& input : set["inputs"]) {
    options.shapes[input["name"].get<std::string>()] = input["shape"].get<std::vector<int64_t>>();
  }
  return options;
}

// Runs one reference set. True when everything agrees.
bool check_set(const std::string& model_path, const std::string& refs, const json& set,
               double tolerance_of_max) {
  const auto dir = set["dir"].get<std::string>();
  const auto inputs = read_arrays(refs + "/" + dir, set["inputs"]);
  const auto expected = read_arrays(refs + "/" + dir, set["outputs"]);
  const auto image =
      davit::compiler::compile_onnx_file(model_path, options_for(set, DVT_TARGET_CPU));
  if (!image.ok()) return report(dir + " compile cpu", image.status());
  const auto& plan = image->report;
  std::printf("%s: %u nodes, arena %llu bytes, lower bound %llu\n", dir.c_str(), plan.image_nodes,
              static_cast<unsigned long long>(plan.arena_bytes),
              static_cast<unsigned long long>(plan.lower_bound_bytes));
  const auto cpu = davit::testing::run_image(image->bytes, inputs, nullptr, 2);
  bool good = report(dir + " run cpu", cpu.status());
  if (!good) return false;
  for (size_t i = 0; i < expected.size(); ++i) {
    const Status status =
        i < cpu->size()
            ? davit::testing::compare(expected[i], (*cpu)[i],
                                      {.relative_to_max = tolerance_of_max, .absolute = 1e-6})
            : Status(DVT_INTERNAL, DVT_STAGE_RUN, "the image has no such output");
    good = report(dir + " cpu output " + std::to_string(i), status) && good;
  }

  const auto device_image =
      davit::compiler::compile_onnx_file(model_path, options_for(set, DVT_TARGET_ASCEND));
  if (!device_image.ok()) return report(dir + " compile ascend", device_image.status());
  constexpr const char* kModes[] = {"prompt", "lazy", "adversarial"};
  for (const DvtNpuMode mode : {DVT_NPU_PROMPT, DVT_NPU_LAZY, DVT_NPU_ADVERSARIAL}) {
    const std::string name = dir + " ascend, " + kModes[mode];
    const auto npu = run_on_npu(device_image->bytes, inputs, mode);
    good = report(name + " run", npu.status()) && good;
    if (!npu.ok()) continue;
    for (size_t i = 0; i < cpu->size(); ++i) {
      const bool same = (*npu)[i].dims == (*cpu)[i].dims && (*npu)[i].bytes == (*cpu)[i].bytes;
      const Status status =
          same ? Status() : Status(DVT_INTERNAL, DVT_STAGE_RUN, "other bits than on the cpu");
      good = report(name + " = cpu, output " + std::to_string(i), status) && good;
    }
  }
  return good;
}

int emit(const std::string& model_path, const json& set, const std::string& out) {
  for (const DvtTarget target : {DVT_TARGET_CPU, DVT_TARGET_ASCEND}) {
    const auto image = davit::compiler::compile_onnx_file(model_path, options_for(set, target));
    if (!image.ok()) {
      std::fprintf(stderr, "%s\n", image.status().to_string().c_str());
      return 1;
    }
    std::ofstream file(out + (target == DVT_TARGET_CPU ? ".cpu" : ".ascend"), std::ios::binary);
    file.write(reinterpret_cast<const char*>(image->bytes.data()),
               std::streamsize(image->bytes.size()));
  }
  return 0;
}

// Runs this program with --emit under `environment`. True on success.
bool emit_in_process(const std::string& name, const std::string& model_path, const std::string& out,
                     std::vector<std::string> environment) {
  environment.push_back(std::string("DAVIT_TEST_DATA=") + std::getenv("DAVIT_TEST_DATA"));
  std::vector<std::string> words = {"models_test", name, "--emit", model_path, out};
  const auto pointers = [](std::vector<std::string>& strings) {
    std::vector<char*> list;
    for (std::string& text : strings) list.push_back(text.data());
    list.push_back(nullptr);
    return list;
  };
  pid_t child = 0;
  int status = 0;
  return posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, pointers(words).data(),
                     pointers(environment).data()) == 0 &&
         waitpid(child, &status, 0) == child && status == 0;
}

std::string read_all(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool check_same_bytes(const std::string& name, const std::string& model_path) {
  namespace fs = std::filesystem;
  std::string pattern = (fs::temp_directory_path() / "davit_models_XXXXXX").string();
  const char* made = mkdtemp(pattern.data());
  if (made == nullptr) return report(name, Status(DVT_IO_ERROR, DVT_STAGE_NONE, "no folder"));
  const fs::path folder = made;
  const fs::path other = folder / "another folder";
  fs::create_directory(other);
  fs::copy_file(model_path, other / (name + ".onnx"));
  bool good = emit_in_process(name, model_path, (folder / "a").string(),
                              {"TZ=UTC", "LC_ALL=C", "MALLOC_PERTURB_=1", "SEED=1"}) &&
              emit_in_process(name, (other / (name + ".onnx")).string(), (other / "b").string(),
                              {"TZ=Asia/Tokyo", "LC_ALL=C.UTF-8", "MALLOC_PERTURB_=254",
                               "MALLOC_ARENA_MAX=1", "PYTHONHASHSEED=7"});
  for (const char* target : {".cpu", ".ascend"}) {
    const std::string a = read_all(folder / (std::string("a") + target));
    good = good && !a.empty() && a == read_all(other / (std::string("b") + target));
  }
  fs::remove_all(folder);
  return report(name + " same bytes elsewhere",
                good ? Status() : Status(DVT_INTERNAL, DVT_STAGE_WRITE, "images differ"));
}

}  // namespace

int main(int argc, char** argv) {
  const char* models = std::getenv("DAVIT_MODELS_DIR");
  const char* data = std::getenv("DAVIT_TEST_DATA");
  const bool emits = argc == 5 && std::string(argv[2]) == "--emit";
  if ((argc != 2 && !emits) || data == nullptr) {
    std::fprintf(stderr, "usage: DAVIT_MODELS_DIR=... DAVIT_TEST_DATA=... models_test NAME\n");
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
  if (emits) return emit(argv[3], (*model)["sets"][0], argv[4]);

  const std::string path = std::string(models != nullptr ? models : ".") + "/" + name + ".onnx";
  if (!std::filesystem::exists(path)) {
    std::printf("skipped: there is no %s; ./dev models fetches it\n", path.c_str());
    return kSkipped;
  }
  bool good = true;
  for (const json& set : (*model)["sets"]) {
    good = check_set(path, refs, set, (*model)["tolerance_of_max"].get<double>()) && good;
  }
  good = check_same_bytes(name, path) && good;
  return good ? 0 : 1;
}
