// Models with free dimensions: one image for all shape sets, in turn, again and again: every run
// gives the first result of its set, bit for bit, and neither the heap nor the process grows; so
// with two workers. DAVIT_MODEL_RUNS: how many runs; ./dev test --full makes 1,000.
//
// Prints one line for each check. Exit code 77: the model is not there.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/npy.hpp"
#include "davit/davit.hpp"
#include "davit/npu.h"
#include "lowering/compile.hpp"
#include "tests/models/references.hpp"
#include "tests/support/run_image.hpp"

namespace {

using davit::NpyArray;
using davit::Status;
using davit::exec::status_of;
using davit::testing::kSkipped;
using davit::testing::read_arrays;
using nlohmann::json;

constexpr int kRuns = 20;
// What a process may grow once it has settled: the C library's and the test's own odds and ends.
constexpr uint64_t kGrowthBytesMax = uint64_t{2} << 20;

// Of this process, in memory.
uint64_t resident_bytes() {
  uint64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

struct ReferenceSet {
  std::string name;
  std::vector<NpyArray> inputs, expected, first;
};

bool report(const std::string& what, const Status& status) {
  std::printf("%-40s %s\n", what.c_str(), status.ok() ? "ok" : status.to_string().c_str());
  return status.ok();
}

Status run_once(DvtExecutor* executor, const ReferenceSet& set, std::vector<NpyArray>& outputs) {
  DvtError error{};
  for (uint32_t i = 0; i < set.inputs.size(); ++i) {
    DvtTensor tensor{};
    tensor.dtype = set.inputs[i].dtype;
    tensor.rank = uint8_t(set.inputs[i].dims.size());
    std::ranges::copy(set.inputs[i].dims, tensor.dims);
    if (dvt_executor_bind_input_tensor(executor, i, &tensor, set.inputs[i].bytes.data(), &error) !=
        DVT_OK) {
      return status_of(error);
    }
  }
  if (dvt_executor_run(executor, &error) != DVT_OK) return status_of(error);
  for (uint32_t i = 0; i < outputs.size(); ++i) {
    DvtTensor tensor;
    const void* data = nullptr;
    if (dvt_executor_output_tensor(executor, i, &tensor, &data, &error) != DVT_OK) {
      return status_of(error);
    }
    outputs[i].dtype = tensor.dtype;
    outputs[i].dims.assign(tensor.dims, tensor.dims + tensor.rank);
    outputs[i].bytes.resize(tensor.bytes);
    if (tensor.bytes > 0) std::memcpy(outputs[i].bytes.data(), data, tensor.bytes);
  }
  return {};
}

bool check_first(ReferenceSet& set, double tolerance_of_max) {
  bool good = true;
  for (size_t i = 0; i < set.expected.size(); ++i) {
    good =
        report(set.name + " output " + std::to_string(i),
               davit::testing::compare(set.expected[i], set.first[i],
                                       {.relative_to_max = tolerance_of_max, .absolute = 1e-6})) &&
        good;
  }
  return good;
}

// With a pool, nodes run as they become ready, and the heap is as large as that makes it.
bool check(const std::string& path, std::vector<ReferenceSet>& sets, double tolerance_of_max,
           int runs, DvtPool* pool) {
  const auto image = davit::compiler::compile_onnx_file(path, {});
  if (!image.ok()) return report("compile", image.status());
  const davit::testing::AlignedBytes memory(image->bytes);
  DvtError error{};
  auto opened =
      davit::Image::borrow(std::span(static_cast<const std::byte*>(memory.data()), memory.size()));
  if (!opened) return report("open", Status(DVT_INTERNAL, DVT_STAGE_LOAD, opened.error().text()));
  DvtExecutorOptions options;
  dvt_executor_options_init(&options);
  options.pool = pool;
  if (pool != nullptr) options.schedule = DVT_SCHEDULE_DYNAMIC;
  DvtExecutor* executor = nullptr;
  if (dvt_executor_create(opened->get(), &options, &executor, &error) != DVT_OK) {
    return report("create", status_of(error));
  }
  bool good = true;
  DvtExecutorStatistics settled{};
  uint64_t settled_bytes = UINT64_MAX;
  std::vector<NpyArray> outputs(dvt_image_output_count(opened->get()));
  for (int run = 0; run < runs && good; ++run) {
    ReferenceSet& set = sets[size_t(run) % sets.size()];
    const Status status = run_once(executor, set, outputs);
    if (!status.ok()) good = report(set.name + " run " + std::to_string(run), status);
    if (good && set.first.empty()) {
      set.first = outputs;
      good = check_first(set, tolerance_of_max);
    }
    for (size_t i = 0; good && i < outputs.size(); ++i) {
      if (outputs[i].bytes == set.first[i].bytes && outputs[i].dims == set.first[i].dims) continue;
      good = report(set.name + " run " + std::to_string(run),
                    Status(DVT_INTERNAL, DVT_STAGE_RUN, "other bits than before"));
    }
    // Four rounds settle what is cached: each return of cached memory doubles what may be kept.
    if (run + 1 != int(4 * sets.size())) continue;
    dvt_executor_statistics(executor, &settled);
    settled_bytes = resident_bytes();
  }
  DvtExecutorStatistics statistics;
  dvt_executor_statistics(executor, &statistics);
  if (good && pool == nullptr && statistics.heap_peak_bytes > settled.heap_peak_bytes) {
    good = report("heap", Status(DVT_INTERNAL, DVT_STAGE_RUN, "the heap grows from run to run"));
  }
  const uint64_t left_bytes = resident_bytes();
  const uint64_t grown = left_bytes - std::min(left_bytes, settled_bytes);
  if (good && pool == nullptr && grown > kGrowthBytesMax) {
    good = report("resident memory", Status(DVT_INTERNAL, DVT_STAGE_RUN,
                                            "grew by " + std::to_string(grown) + " bytes"));
  }
  DvtScheduleInfo schedule;
  dvt_executor_schedule(executor, &schedule);
  std::printf("%u workers (%s), ", schedule.workers, schedule.reason);
  std::printf("%d runs, grown by %llu bytes, ", runs, static_cast<unsigned long long>(grown));
  std::printf("heap peak %llu bytes, %llu allocations of which %llu from the system\n",
              static_cast<unsigned long long>(statistics.heap_peak_bytes),
              static_cast<unsigned long long>(statistics.heap_allocations),
              static_cast<unsigned long long>(statistics.heap_system_allocations));
  dvt_executor_destroy(executor);
  return good;
}

struct DestroyNpu {
  void operator()(DvtNpu* npu) const { dvt_npu_destroy(npu); }
};

// One image for the device; each set gives the bits of the cpu, whenever tasks run.
bool check_on_device(const std::string& path, const std::vector<ReferenceSet>& sets) {
  davit::compiler::CompileOptions options;
  options.target = DVT_TARGET_ASCEND;
  const auto image = davit::compiler::compile_onnx_file(path, options);
  if (!image.ok()) return report("compile for ascend", image.status());
  bool good = true;
  constexpr const char* kModes[] = {"prompt", "lazy", "adversarial"};
  for (const DvtNpuMode mode : {DVT_NPU_PROMPT, DVT_NPU_LAZY, DVT_NPU_ADVERSARIAL}) {
    for (const ReferenceSet& set : sets) {
      const std::string what = set.name + " ascend, " + kModes[mode];
      DvtNpuOptions npu_options;
      dvt_npu_options_init(&npu_options);
      npu_options.mode = mode;
      npu_options.check_order = 1;
      DvtNpu* npu = nullptr;
      DvtError error{};
      if (dvt_npu_create(&npu_options, &npu, &error) != DVT_OK) {
        return report(what, status_of(error));
      }
      const std::unique_ptr<DvtNpu, DestroyNpu> owner(npu);
      const auto outputs = davit::testing::run_image(
          image->bytes, set.inputs,
          // Late tasks, and a device that sees the life of every value.
          {.device = dvt_npu_device(npu),
           .runs = 2,
           .device_memory = uint32_t{mode == DVT_NPU_LAZY ? DVT_DEVICE_MEMORY_DIRECT
                                                          : DVT_DEVICE_MEMORY_CACHED}});
      if (!outputs.ok()) {
        good = report(what, outputs.status());
        continue;
      }
      bool same = outputs->size() == set.first.size();
      for (size_t i = 0; same && i < outputs->size(); ++i) {
        same = (*outputs)[i].dims == set.first[i].dims && (*outputs)[i].bytes == set.first[i].bytes;
      }
      good = report(what + " = cpu",
                    same ? Status()
                         : Status(DVT_INTERNAL, DVT_STAGE_RUN, "other bits than on the cpu")) &&
             good;
      DvtNpuMemory memory;
      dvt_npu_memory(npu, &memory);
      if (memory.live_bytes != 0) {
        good = report(what, Status(DVT_INTERNAL, DVT_STAGE_UNLOAD, "device memory is left"));
      }
    }
  }
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  const char* models = std::getenv("DAVIT_MODELS_DIR");
  const char* data = std::getenv("DAVIT_TEST_DATA");
  const char* runs = std::getenv("DAVIT_MODEL_RUNS");
  if (argc != 2 || data == nullptr) {
    std::fprintf(stderr,
                 "usage: DAVIT_MODELS_DIR=... DAVIT_TEST_DATA=... dynamic_models_test NAME\n");
    return 2;
  }
  const std::string name = argv[1];
  const std::string refs = std::string(data) + "/refs";
  const json index = json::parse(std::ifstream(refs + "/index.json"));
  const auto model = std::ranges::find_if(
      index["models"], [&](const json& candidate) { return candidate["name"] == name; });
  if (model == index["models"].end()) return 2;
  const std::string path = std::string(models != nullptr ? models : ".") + "/" + name + ".onnx";
  if (!std::filesystem::exists(path)) {
    std::printf("skipped: there is no %s; ./dev models fetches it\n", path.c_str());
    return kSkipped;
  }
  std::vector<ReferenceSet> sets;
  for (const json& set : (*model)["sets"]) {
    const auto dir = set["dir"].get<std::string>();
    sets.push_back({.name = dir,
                    .inputs = read_arrays(refs + "/" + dir, set["inputs"]),
                    .expected = read_arrays(refs + "/" + dir, set["outputs"]),
                    .first = {}});
  }
  const int count = std::max(runs != nullptr ? std::atoi(runs) : kRuns, int(4 * sets.size()));
  auto pool = davit::Pool::create(2);
  if (!pool) return 1;
  const auto tolerance = (*model)["tolerance_of_max"].get<double>();
  const bool good = check(path, sets, tolerance, count, nullptr) &&
                    check(path, sets, tolerance, count, pool->get());
  return good && check_on_device(path, sets) ? 0 : 1;
}
