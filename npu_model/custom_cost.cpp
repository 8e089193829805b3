#include "npu_model/custom_cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "npu_model/cost_parts.hpp"

namespace davit::npu {
namespace {

using Pipes = std::array<double, DVT_NPU_PIPE_COUNT>;  // Busy cycles.

Status wrong(const char* op, std::string what, DvtCode code = DVT_INVALID_ARGUMENT) {
  return Status(ErrorDetail{.code = code,
                            .stage = DVT_STAGE_RUN,
                            .message = fmt::format("the cost of {}: {}", op, std::move(what)),
                            .op = op});
}

Status check_nest(const char* op, const DvtLoopNest& nest) {
  if (nest.cores > DVT_CORES_MIX) return wrong(op, fmt::format("cores are {}", nest.cores));
  if (nest.blocks == 0) return wrong(op, "the nest has no blocks");
  if (nest.loop_count > DVT_NEST_LOOPS_MAX) {
    return wrong(op, fmt::format("{} loops, of at most {}", nest.loop_count,
                                 static_cast<int>(DVT_NEST_LOOPS_MAX)));
  }
  if (nest.step_count > DVT_NEST_STEPS_MAX) {
    return wrong(op, fmt::format("{} steps, of at most {}", nest.step_count,
                                 static_cast<int>(DVT_NEST_STEPS_MAX)));
  }
  for (uint32_t i = 0; i < nest.step_count; ++i) {
    const DvtNestStep& step = nest.steps[i];
    const bool cube = step.kind >= DVT_NEST_LOAD_LEFT && step.kind <= DVT_NEST_CUBE;
    if (step.kind > DVT_NEST_VECTOR) return wrong(op, fmt::format("step {} is of no kind", i));
    if (step.depth > nest.loop_count) {
      return wrong(op,
                   fmt::format("step {} stands in {} loops of {}", i, step.depth, nest.loop_count));
    }
    if (cube && nest.cores == DVT_CORES_VECTOR) {
      return wrong(op, fmt::format("step {} needs a cube core", i));
    }
    if (step.kind == DVT_NEST_VECTOR && nest.cores == DVT_CORES_CUBE) {
      return wrong(op, fmt::format("step {} needs a vector core", i));
    }
  }
  return {};
}

// Adds what one step takes, each time, to the pipe that does it.
void add_step(const Parameters& p, const DvtLoopNest& nest, const DvtNestStep& step, double times,
              Pipes& pipes) {
  const auto amount = static_cast<double>(step.amount);
  const bool vector = nest.cores == DVT_CORES_VECTOR;
  const auto add = [&](uint32_t pipe, double cycles) { pipes[pipe] += times * std::ceil(cycles); };
  switch (step.kind) {
    case DVT_NEST_LOAD:
      add(DVT_NPU_PIPE_MTE2,
          vector ? p.mte2_aiv_start_cycles + amount / p.mte2_aiv_rate : amount / p.mte2_aic_rate);
      break;
    case DVT_NEST_STORE:
      if (vector) {
        add(DVT_NPU_PIPE_MTE3, p.mte3_aiv_start_cycles + amount / p.mte3_aiv_rate);
      } else {
        add(DVT_NPU_PIPE_FIXP, p.fixp_start_cycles + amount / p.fixp_rate);
      }
      break;
    case DVT_NEST_LOAD_LEFT:
      add(DVT_NPU_PIPE_MTE1, amount / p.mte1_l0a_rate);
      break;
    case DVT_NEST_LOAD_RIGHT:
      add(DVT_NPU_PIPE_MTE1, amount / p.mte1_l0b_rate);
      break;
    case DVT_NEST_CUBE:
      add(DVT_NPU_PIPE_MAC,
          cube_fractals(p, step.m, step.n, step.k, step.dtype) * p.cube_fractal_cycles +
              p.cube_round_cycles);
      break;
    default: {
      const double units = nest.cores == DVT_CORES_MIX ? vector_units(p) : 1;
      const double repeats =
          std::ceil(amount / units * dtype_bytes(step.dtype) / p.vector_repeat_bytes);
      add(DVT_NPU_PIPE_VEC,
          p.vector_start_cycles + repeats * static_cast<double>(step.passes_x100) / 100);
      break;
    }
  }
}

double head_us(const Parameters& p, uint32_t cores, uint64_t stated_ns) {
  if (stated_ns > 0) return static_cast<double>(std::min<uint64_t>(stated_ns, 1'000'000'000)) / 1e3;
  if (cores == DVT_CORES_VECTOR) return p.vector_head_us;
  return p.matmul_head_us + (cores == DVT_CORES_MIX ? p.mix_head_us : 0);
}

// From busy cycles and traffic to a timing, as for the model's own operators. The chip's bandwidth
// keeps MTE2 busy for as long as the traffic takes.
TaskTiming timing_of(const Parameters& p, const DvtKernelPipes& k, Pipes pipes) {
  TaskTiming out;
  const bool vector = k.cores == DVT_CORES_VECTOR;
  const double most = vector ? p.aiv_cores : p.aic_cores;
  const double cores = std::clamp(static_cast<double>(k.block_dim), 1.0, most);
  out.type = vector                     ? DVT_NPU_AI_VECTOR_CORE
             : k.cores == DVT_CORES_MIX ? DVT_NPU_MIX_AIC
                                        : DVT_NPU_AI_CORE;
  (vector ? out.aiv : out.aic) = static_cast<uint16_t>(cores);
  if (k.cores == DVT_CORES_MIX) {
    out.aiv = static_cast<uint16_t>(std::min(p.aiv_cores, vector_units(p) * cores));
  }
  out.head_ps = us_to_ps(head_us(p, k.cores, k.head_ns));
  out.hbm_bytes = round_up(static_cast<double>(k.hbm_bytes));
  out.l2_bytes = round_up(static_cast<double>(k.l2_bytes));
  const double core_cycles = *std::max_element(pipes.begin(), pipes.end());
  const double memory =
      std::max(rate_cycles(p, static_cast<double>(k.hbm_bytes), p.hbm_gbps * p.hbm_efficiency),
               rate_cycles(p, static_cast<double>(k.l2_bytes), p.l2_gbps * p.l2_efficiency));
  pipes[DVT_NPU_PIPE_MTE2] = std::max(pipes[DVT_NPU_PIPE_MTE2], memory);
  for (uint32_t i = 0; i < DVT_NPU_PIPE_COUNT; ++i) out.pipe_cycles[i] = round_up(pipes[i]);
  double body = 0;
  if (k.single_buffer != 0) {
    for (const double cycles : pipes) body += std::ceil(cycles);
  } else {
    std::sort(pipes.begin(), pipes.end(), std::greater<>());
    body = std::ceil(pipes[0] + p.overlap_second * pipes[1]);
  }
  finish_timing(p, out, k.single_buffer != 0 ? body : core_cycles, body);
  return out;
}

double soc_value(const void* soc, const char* key) {
  const auto& p = *static_cast<const Parameters*>(soc);
  if (key == nullptr) return -1;
  for (const Parameter& line : p.lines) {
    if (line.key == key) return line.value;
  }
  return -1;
}

Result<TaskTiming> nest_timing(const Parameters& p, const DvtKernelTime& kernel,
                               const DvtTaskCost& cost) {
  DvtLoopNest nest{};
  const DvtCode code = kernel.nest(kernel.data, &cost, &nest);
  if (code != DVT_OK) return wrong(kernel.op, "its nest() failed", code);
  if (Status status = check_nest(kernel.op, nest); !status.ok()) return status;
  Pipes pipes{};
  double block_bytes = 0;
  for (uint32_t i = 0; i < nest.step_count; ++i) {
    const DvtNestStep& step = nest.steps[i];
    double times = 1;
    for (uint32_t loop = 0; loop < step.depth; ++loop) {
      times *= static_cast<double>(nest.extents[loop]);
    }
    add_step(p, nest, step, times, pipes);
    if (step.kind <= DVT_NEST_STORE) block_bytes += times * static_cast<double>(step.amount);
  }
  const double most = nest.cores == DVT_CORES_VECTOR ? p.aiv_cores : p.aic_cores;
  const double blocks = static_cast<double>(nest.blocks);
  const double rounds = std::ceil(blocks / most);
  for (double& cycles : pipes) cycles *= rounds;
  DvtKernelPipes k{};
  k.cores = nest.cores;
  k.block_dim = static_cast<uint32_t>(std::min(blocks, most));
  k.l2_bytes = round_up(blocks * block_bytes);
  k.hbm_bytes = nest.unique_bytes > 0 ? nest.unique_bytes : k.l2_bytes;
  k.single_buffer = nest.single_buffer;
  k.head_ns = nest.head_ns;
  return timing_of(p, k, pipes);
}

}  // namespace

Result<TaskTiming> described_timing(const Parameters& parameters, const DvtKernelTime& kernel,
                                    const DvtTaskCost* stated) {
  const DvtTaskCost cost = stated == nullptr ? DvtTaskCost{} : *stated;
  Result<TaskTiming> out = TaskTiming{};
  if (kernel.nest != nullptr) {
    out = nest_timing(parameters, kernel, cost);
  } else {
    DvtKernelPipes k{};
    const DvtCode code = kernel.pipes(kernel.data, &cost, &parameters, soc_value, &k);
    if (code != DVT_OK) return wrong(kernel.op, "its pipes() failed", code);
    if (k.cores > DVT_CORES_MIX) return wrong(kernel.op, fmt::format("cores are {}", k.cores));
    if (k.block_dim == 0) return wrong(kernel.op, "block_dim is 0");
    Pipes pipes{};
    pipes[DVT_NPU_PIPE_MAC] = static_cast<double>(k.mac);
    pipes[DVT_NPU_PIPE_VEC] = static_cast<double>(k.vec);
    pipes[DVT_NPU_PIPE_MTE1] = static_cast<double>(k.mte1);
    pipes[DVT_NPU_PIPE_MTE2] = static_cast<double>(k.mte2);
    pipes[DVT_NPU_PIPE_MTE3] = static_cast<double>(k.mte3);
    pipes[DVT_NPU_PIPE_FIXP] = static_cast<double>(k.fixp);
    out = timing_of(parameters, k, pipes);
  }
  if (!out.ok()) return out;
  out->read_bytes = cost.read_bytes;
  out->write_bytes = cost.write_bytes;
  combine_cores(parameters, *out);
  return out;
}

}  // namespace davit::npu
