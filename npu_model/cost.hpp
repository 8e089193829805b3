// cost.hpp: how long one task takes alone on the device, pipe by pipe.
//
//   t = head + longest pipe + overlap.second * second longest pipe
//
// Threads  Pure functions.
// Trust    Costs come from images: products are formed in double, times are clamped to kBodyMaxPs.
// Memory   Nothing is allocated.
// Units    Whole cycles of the core clock and whole picoseconds, each rounded up once, so that the
//          same cost gives the same numbers on any host.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "davit/npu.h"
#include "npu_model/parameters.hpp"

namespace davit::npu {

// 100 s. Keeps remaining work in Q16 fixed point (event_core.cpp) inside int64_t.
inline constexpr int64_t kBodyMaxPs = 100'000'000'000'000;

// What a task needs, alone on the device. Demands are those of the body at full speed.
struct TaskTiming {
  DvtNpuTaskType type = DVT_NPU_AI_VECTOR_CORE;
  uint16_t aic = 0, aiv = 0;  // Cores it can use.
  int64_t head_ps = 0, body_ps = 0;
  uint64_t body_cycles = 0;
  std::array<uint64_t, DVT_NPU_PIPE_COUNT> pipe_cycles{};
  uint64_t hbm_bytes = 0, l2_bytes = 0;      // Traffic.
  uint64_t read_bytes = 0, write_bytes = 0;  // Unique bytes.
  uint32_t core_need_q16 = 0;                // Core-bound share of the body, 0..65536.
  uint32_t hbm_need_mbps = 0, l2_need_mbps = 0;
  std::array<uint32_t, 3> tile{};  // Cube: m, n, splits of k.
};

// A kernel. `op` may be "ai.onnx::Conv(11)", "Conv.f32" or "Conv"; NULL and all-zero costs are
// free.
TaskTiming kernel_timing(const Parameters& parameters, const DvtTaskCost* cost,
                         std::string_view op);

// "ai.onnx::Conv(11)" and "Conv.f32" -> "Conv".
std::string_view operator_type(std::string_view op);

// A copy (or a fill, as a device copy that reads nothing), or a queue task.
TaskTiming copy_timing(const Parameters& parameters, DvtNpuTaskType type, uint64_t bytes);

}  // namespace davit::npu
