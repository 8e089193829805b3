#include "cli/run_shares.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace davit::cli {
namespace {

enum Part : size_t {
  kCube,
  kVector,
  kTraffic,
  kCopies,
  kHeads,
  kStalls,
  kAicpu,
  kOrder,
  kGaps,
  kHost,
  kPartCount,
};

constexpr std::array<const char*, kPartCount> kNames = {"cube",
                                                        "vector",
                                                        "moving operands",
                                                        "copies to and from the host",
                                                        "heads of kernels",
                                                        "cores or bandwidth shared",
                                                        "AICPU",
                                                        "events, notifies and control",
                                                        "gaps between tasks",
                                                        "waiting for the host"};
constexpr std::array<const char*, kPartCount> kAdvice = {
    "smaller types (fp16, int8), or fewer multiplications",
    "fewer passes over the elements: fuse pointwise operators",
    "fusion, so that values stay on the chip; fewer transposes and copies",
    "keep inputs and outputs on the device between runs; smaller types",
    "fewer, larger kernels: fuse small operators",
    "kernels that compete on several streams",
    "operators that run on cores instead",
    "fewer synchronisations between streams",
    "fewer tasks: fuse small operators",
    "fewer submissions, sink mode, or host work beside the device's"};

Part body_part(const DvtNpuTask& task) {
  switch (task.type) {
    case DVT_NPU_COPY_H2D:
    case DVT_NPU_COPY_D2H:
      return kCopies;
    case DVT_NPU_COPY_D2D:
    case DVT_NPU_MEMSET:
      return kTraffic;
    case DVT_NPU_AI_CPU:
      return kAicpu;
    case DVT_NPU_AI_CORE:
    case DVT_NPU_AI_VECTOR_CORE:
    case DVT_NPU_MIX_AIC:
      break;
    default:
      return kOrder;
  }
  const auto* longest = std::max_element(task.pipe_cycles, task.pipe_cycles + DVT_NPU_PIPE_COUNT);
  switch (longest - task.pipe_cycles) {
    case DVT_NPU_PIPE_MAC:
      return kCube;
    case DVT_NPU_PIPE_VEC:
      return kVector;
    default:
      return kTraffic;
  }
}

// Adds the parts of a task that lie behind `from_ps`.
void add_task(const DvtNpuTask& task, int64_t from_ps, std::array<int64_t, kPartCount>& parts) {
  int64_t at_ps = task.start_ps;
  const auto add = [&](Part part, int64_t length_ps) {
    const int64_t begin_ps = std::max(at_ps, from_ps);
    at_ps += length_ps;
    if (at_ps > begin_ps) parts[part] += at_ps - begin_ps;
  };
  add(kHeads, task.head_ps);
  add(body_part(task), task.body_ps);
  add(kStalls, task.end_ps - at_ps);
}

}  // namespace

std::vector<DvtNpuTask> tasks_of(const DvtNpu* npu, const DvtNpuRun& run) {
  std::vector<DvtNpuTask> tasks;
  for (uint64_t i = 0; i < run.task_count; ++i) {
    DvtNpuTask task{};
    if (dvt_npu_task(npu, run.first_task + i, &task) == DVT_OK) tasks.push_back(task);
  }
  std::stable_sort(tasks.begin(), tasks.end(), [](const DvtNpuTask& a, const DvtNpuTask& b) {
    return a.start_ps < b.start_ps;
  });
  return tasks;
}

std::vector<Share> shares_of(const std::vector<DvtNpuTask>& tasks, const DvtNpuRun& run,
                             int64_t gap_ps) {
  std::array<int64_t, kPartCount> parts{};
  int64_t reached_ps = run.begin_ps;
  bool after_task = false;
  for (const DvtNpuTask& task : tasks) {
    if (task.end_ps <= reached_ps) continue;
    if (task.start_ps > reached_ps) {
      const int64_t idle_ps = task.start_ps - reached_ps;
      const int64_t between_ps = after_task ? std::min(idle_ps, gap_ps) : 0;
      parts[kGaps] += between_ps;
      parts[kHost] += idle_ps - between_ps;
      reached_ps = task.start_ps;
    }
    add_task(task, reached_ps, parts);
    reached_ps = task.end_ps;
    after_task = true;
  }
  parts[kHost] += std::max<int64_t>(run.end_ps - reached_ps, 0);
  std::vector<Share> shares;
  for (size_t part = 0; part < kPartCount; ++part) {
    if (parts[part] > 0) shares.push_back({kNames[part], kAdvice[part], parts[part]});
  }
  std::stable_sort(shares.begin(), shares.end(),
                   [](const Share& a, const Share& b) { return a.ps > b.ps; });
  return shares;
}

double npu_parameter(const DvtNpu* npu, const char* key) {
  DvtNpuParameter parameter{};
  for (uint32_t i = 0; i < dvt_npu_parameter_count(npu); ++i) {
    if (dvt_npu_parameter(npu, i, &parameter) != DVT_OK) continue;
    if (std::strcmp(parameter.key, key) == 0) return parameter.value;
  }
  return 0;
}

int64_t task_gap_ps(const DvtNpu* npu) {
  return static_cast<int64_t>(npu_parameter(npu, "ts.task_gap") * 1e6);
}

}  // namespace davit::cli
