#include "npu_model/cost.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "npu_model/cost_parts.hpp"

namespace davit::npu {
namespace {

// A product that is whole on paper must not round up to the next cycle.
constexpr double kSlack = 1e-6;
constexpr double kCountMax = 9e15;  // Cycles and bytes stay exact in double.

double ceil_div(double a, double b) {
  return std::ceil(a / b);
}

double cube_k(const Parameters& p, uint32_t element_bytes) {
  if (element_bytes == 1) return p.cube_k_i8;
  return element_bytes == 2 ? p.cube_k_f16 : p.cube_k_f32;
}

}  // namespace

uint64_t round_up(double value) {
  if (!(value > 0)) return 0;
  return static_cast<uint64_t>(std::ceil(std::min(value, kCountMax) - kSlack));
}

int64_t us_to_ps(double us) {
  return static_cast<int64_t>(std::llround(us * 1e6));
}

double rate_cycles(const Parameters& p, double bytes, double gbps) {
  return bytes / (gbps * 1e9) * p.clock_mhz * 1e6;
}

uint32_t dtype_bytes(DvtDType dtype) {
  const uint32_t size = dvt_dtype_size(dtype);
  return size == 0 ? 1 : size;
}

double vector_units(const Parameters& p) {
  return p.combined_cores > 0 ? 1 : 2;
}

double cube_fractals(const Parameters& p, double m, double n, double k, DvtDType dtype) {
  return ceil_div(m, 16) * ceil_div(n, 16) * ceil_div(k, cube_k(p, dtype_bytes(dtype)));
}

void finish_timing(const Parameters& p, TaskTiming& timing, double core_cycles,
                   double body_cycles) {
  timing.body_cycles = round_up(body_cycles);
  timing.body_ps = p.cycles_to_ps(timing.body_cycles);
  if (timing.body_ps > kBodyMaxPs) timing.body_ps = kBodyMaxPs;
  if (timing.body_ps == 0) return;
  const double body = static_cast<double>(timing.body_cycles);
  timing.core_need_q16 = static_cast<uint32_t>(std::clamp(core_cycles / body, 0.0, 1.0) * 65536);
  const double body_us = static_cast<double>(timing.body_ps) / 1e6;
  const auto demand = [&](uint64_t bytes) {
    return static_cast<uint32_t>(std::min(static_cast<double>(bytes) / body_us, 4e9));
  };
  timing.hbm_need_mbps = demand(timing.hbm_bytes);
  timing.l2_need_mbps = demand(timing.l2_bytes);
}

void combine_cores(const Parameters& p, TaskTiming& timing) {
  if (p.combined_cores == 0 || timing.aiv == 0) return;
  timing.aic = std::max(timing.aic, timing.aiv);
  timing.aiv = 0;
  timing.type = DVT_NPU_AI_CORE;
}

namespace {

// A cube product: batch times m x k by k x n, as sizes in double.
struct Product {
  double batch, m, n, k;
  double element;      // Bytes of an input element.
  double fractal_k;    // Elements of k in a fractal.
  double a_bytes;      // Unique bytes of the left operand, all batches.
  double b_bytes;      // Of the right operand.
  double c_bytes;      // Of the result.
  double a_expansion;  // Read by L1 as bytes / a_expansion: im2col happens behind L1.
  double vector_elements, vector_cycles;  // Of a fused vector part; 0: none.
};

// One way to cut a product.
struct Tiling {
  uint32_t bm = 0, bn = 0, splits = 0;
  double cores = 0, rounds = 0;
  double mac = 0, mte1 = 0, mte2 = 0, fixp = 0, vec = 0;  // Cycles of the busiest core.
  double core_cycles = 0;  // Longest pipe that more cores would shorten.
  double hbm = 0, l2 = 0;  // Bytes.
  double body = 0;         // Cycles.
};

// HBM reads: one operand once, in stripes of half L2, and the other once per stripe. What fits L2
// together is read once: the smaller one is a single stripe.
double operand_reads(const Parameters& p, const Product& x) {
  const double stripe = p.l2_capacity_mib * 1048576 / 2;
  return std::min(x.a_bytes + x.b_bytes * std::max(1.0, ceil_div(x.a_bytes, stripe)),
                  x.b_bytes + x.a_bytes * std::max(1.0, ceil_div(x.b_bytes, stripe)));
}

Tiling evaluate(const Parameters& p, const Product& x, double cores, uint32_t bm, uint32_t bn,
                uint32_t splits) {
  Tiling t{.bm = bm, .bn = bn, .splits = splits};
  const double tiles_m = ceil_div(x.m, bm);
  const double tiles_n = ceil_div(x.n, bn);
  const double k = ceil_div(x.k, splits);
  const double units = x.batch * tiles_m * tiles_n * splits;
  t.cores = std::min(units, cores);
  t.rounds = ceil_div(units, cores);

  // Padding counts for the cube, not for the traffic.
  const double rows = std::min<double>(bm, x.m);
  const double columns = std::min<double>(bn, x.n);
  const double fractals = ceil_div(bm, 16) * ceil_div(bn, 16) * ceil_div(k, x.fractal_k);
  const double mac_round =
      std::ceil(fractals * p.cube_fractal_cycles + p.cube_round_cycles - kSlack);
  const double fixp_round = std::ceil(p.fixp_start_cycles + rows * columns * 4 / p.fixp_rate);
  t.mac = t.rounds * mac_round;
  t.fixp = t.rounds * fixp_round;
  t.mte1 = t.rounds * std::ceil(rows * k * x.element / p.mte1_l0a_rate +
                                columns * k * x.element / p.mte1_l0b_rate);

  const double a_round = rows * k * x.element / x.a_expansion;
  const double b_round = columns * k * x.element;
  const double partial_sums = splits > 1 ? 8 * x.batch * x.m * x.n * splits : 0;
  const double exchange = x.vector_elements * 8;  // Cube to vector: f32 or i32 out, and in again.
  t.l2 = tiles_n * x.a_bytes + tiles_m * x.b_bytes + x.c_bytes + partial_sums + exchange;
  t.hbm = operand_reads(p, x) + x.c_bytes;
  // A right operand of bytes lies in rows of n: a tile takes one burst from each of its rows. Wider
  // ones lie in fractals.
  const double bursts = x.element == 1 ? k : 0;
  const double b_cycles = std::max(b_round / p.mte2_aic_rate, bursts * p.mte2_burst_cycles);
  const double mte2_core = t.rounds * std::ceil(a_round / p.mte2_aic_rate + b_cycles);
  t.mte2 = std::max({mte2_core, rate_cycles(p, t.hbm, p.hbm_gbps * p.hbm_efficiency),
                     rate_cycles(p, t.l2, p.l2_gbps * p.l2_efficiency)});
  if (x.vector_elements > 0) {
    const double vector_cores = std::min(p.aiv_cores, vector_units(p) * t.cores);
    t.vec = std::ceil(x.vector_cycles / vector_cores) + p.vector_start_cycles;
  }

  // A tile that fills more than half of L0C leaves no room for the next one: the cube waits until
  // the fixpipe has emptied it.
  const bool serial = static_cast<double>(bm) * bn * 4 > p.l0c_capacity_kib * 1024 / 2;
  const double cube = serial ? t.mac + t.fixp : t.mac;
  t.core_cycles = std::max({cube, t.mte1, mte2_core, t.fixp, t.vec});
  std::array<double, 5> pipes = {cube, t.mte1, t.mte2, serial ? 0 : t.fixp, t.vec};
  std::sort(pipes.begin(), pipes.end(), std::greater<>());
  t.body = std::ceil(pipes[0] + p.overlap_second * pipes[1]);
  if (splits > 1) t.body += std::ceil(p.matmul_split_k_us * p.clock_mhz);
  return t;
}

// The fastest tiling; the first of equals, so the order of candidates breaks ties.
Tiling best_tiling(const Parameters& p, const Product& x, double cores) {
  static constexpr uint32_t kTileM[] = {256, 192, 160, 128, 112, 96, 80, 64, 32, 16};
  static constexpr uint32_t kTileN[] = {512, 384, 320, 256, 192, 160, 128, 96, 64, 32, 16};
  const double l0c_elements = p.l0c_capacity_kib * 1024 / 4;
  Tiling best;
  for (const uint32_t bm : kTileM) {
    if (bm > 16 && bm >= x.m + 16) continue;
    for (const uint32_t bn : kTileN) {
      if ((bn > 16 && bn >= x.n + 16)) continue;
      if (static_cast<double>(bm) * bn > std::max(l0c_elements, 256.0)) continue;
      const double tiles = x.batch * ceil_div(x.m, bm) * ceil_div(x.n, bn);
      const double idle_factor = std::floor(cores / tiles);
      // A slice of k below 512 elements does not pay for its reduction.
      const double splits_max = std::clamp(std::min(idle_factor, std::floor(x.k / 512)), 1.0, 64.0);
      for (uint32_t splits = 1; splits <= static_cast<uint32_t>(splits_max); ++splits) {
        const Tiling t = evaluate(p, x, cores, bm, bn, splits);
        if (best.splits == 0 || t.body < best.body) best = t;
      }
    }
  }
  return best;
}

// Vector cycles over all cores: repeats times passes.
double vector_work(const Parameters& p, const DvtTaskCost& cost) {
  const double bytes = static_cast<double>(cost.vector_elements) * dtype_bytes(cost.dtype);
  return std::ceil(bytes / p.vector_repeat_bytes) * static_cast<double>(cost.vector_passes_x100) /
         100;
}

Product product_of(const Parameters& p, const DvtTaskCost& cost) {
  const uint32_t element = dtype_bytes(cost.dtype);
  Product x{};
  x.batch = static_cast<double>(std::max<uint64_t>(cost.batch, 1));
  x.m = static_cast<double>(std::max<uint64_t>(cost.m, 1));
  x.n = static_cast<double>(std::max<uint64_t>(cost.n, 1));
  x.k = static_cast<double>(std::max<uint64_t>(cost.k, 1));
  x.element = element;
  x.fractal_k = cube_k(p, element);
  x.a_bytes = x.batch * x.m * x.k * element;
  x.b_bytes = x.batch * x.k * x.n * element;
  x.c_bytes = x.batch * x.m * x.n * (element == 1 ? 2 : element);
  x.a_expansion = 1;
  if (cost.write_bytes > 0) x.c_bytes = static_cast<double>(cost.write_bytes);
  const double unique_reads = static_cast<double>(cost.read_bytes);
  if (unique_reads > 0 && unique_reads < x.a_bytes + x.b_bytes) {
    // Operands are shared between batches (broadcast), or a convolution's windows overlap. The
    // weights of a convolution are one operand; what else is read is the image.
    const double b_share = unique_reads * x.b_bytes / (x.a_bytes + x.b_bytes);
    const double b_unique =
        cost.kind == DVT_TASK_CONV ? std::min(x.b_bytes, unique_reads) : b_share;
    const double a_unique = std::max(unique_reads - b_unique, unique_reads / 16);
    if (cost.kind == DVT_TASK_CONV) x.a_expansion = std::max(1.0, x.a_bytes / a_unique);
    x.a_bytes = std::min(x.a_bytes, a_unique);
    x.b_bytes = b_unique;
  }
  x.vector_elements = static_cast<double>(cost.vector_elements);
  x.vector_cycles = vector_work(p, cost);
  return x;
}

TaskTiming cube_timing(const Parameters& p, const DvtTaskCost& cost,
                       const OperatorParameters& own) {
  const Product x = product_of(p, cost);
  const double cores =
      cost.block_dim == 0 ? p.aic_cores : std::min<double>(p.aic_cores, cost.block_dim);
  const Tiling t = best_tiling(p, x, cores);
  TaskTiming out;
  const bool mix = x.vector_elements > 0;
  const double family_head = cost.kind == DVT_TASK_CONV ? p.conv_head_us : p.matmul_head_us;
  out.type = mix ? DVT_NPU_MIX_AIC : DVT_NPU_AI_CORE;
  out.aic = static_cast<uint16_t>(t.cores);
  out.aiv = mix ? static_cast<uint16_t>(std::min(p.aiv_cores, vector_units(p) * t.cores)) : 0;
  out.head_ps = us_to_ps(own.head_us.value_or(family_head) + (mix ? p.mix_head_us : 0));
  out.pipe_cycles[DVT_NPU_PIPE_MAC] = round_up(t.mac);
  out.pipe_cycles[DVT_NPU_PIPE_MTE1] = round_up(t.mte1);
  out.pipe_cycles[DVT_NPU_PIPE_MTE2] = round_up(t.mte2);
  out.pipe_cycles[DVT_NPU_PIPE_FIXP] = round_up(t.fixp);
  out.pipe_cycles[DVT_NPU_PIPE_VEC] = round_up(t.vec);
  out.hbm_bytes = round_up(t.hbm);
  out.l2_bytes = round_up(t.l2);
  out.tile = {t.bm, t.bn, t.splits};
  finish_timing(p, out, t.core_cycles, t.body);
  return out;
}

TaskTiming vector_timing(const Parameters& p, const DvtTaskCost& cost,
                         const OperatorParameters& own) {
  const bool move = cost.kind == DVT_TASK_MOVE;
  TaskTiming out;
  out.type = DVT_NPU_AI_VECTOR_CORE;
  const double reads = static_cast<double>(cost.read_bytes);
  const double writes = static_cast<double>(cost.write_bytes);
  // A core takes at least one repeat of elements, and at least 512 bytes (one L2 line).
  const double repeats = std::ceil(static_cast<double>(cost.vector_elements) *
                                   dtype_bytes(cost.dtype) / p.vector_repeat_bytes);
  const double parts = std::max({1.0, repeats, ceil_div(reads + writes, 512)});
  const double wanted = cost.block_dim == 0 ? p.aiv_cores : cost.block_dim;
  const double cores = std::min({p.aiv_cores, wanted, parts});
  out.aiv = static_cast<uint16_t>(cores);

  const double vec =
      repeats == 0 ? 0 : p.vector_start_cycles + std::ceil(vector_work(p, cost) / cores);
  const double mte2 =
      reads == 0 ? 0 : p.mte2_aiv_start_cycles + std::ceil(reads / cores / p.mte2_aiv_rate);
  const double mte3 =
      writes == 0 ? 0 : p.mte3_aiv_start_cycles + std::ceil(writes / cores / p.mte3_aiv_rate);
  out.hbm_bytes = round_up(reads + writes);
  out.l2_bytes = out.hbm_bytes;
  double memory = rate_cycles(p, reads + writes,
                              own.bandwidth_gbps.value_or(move ? p.move_gbps : p.vector_gbps));
  if (move && reads + writes > p.l2_capacity_mib * 1048576) {
    memory = rate_cycles(p, reads + writes, p.hbm_gbps * p.hbm_efficiency);
  } else if (move) {
    out.hbm_bytes = 0;  // Both sides stay in L2.
  }
  out.head_ps = us_to_ps(own.head_us.value_or(move ? p.move_head_us : p.vector_head_us));
  const double core_cycles = std::max({vec, mte2, mte3});
  // The chip-wide limit holds loads and stores alike: it lengthens both pipes in proportion.
  const double bytes = std::max(reads + writes, 1.0);
  const double mte2_busy = std::max(mte2, std::ceil(memory * reads / bytes));
  const double mte3_busy = std::max(mte3, std::ceil(memory * writes / bytes));
  std::array<double, 3> pipes = {vec, std::max({memory, mte2, mte3}), 0};
  std::sort(pipes.begin(), pipes.end(), std::greater<>());
  out.pipe_cycles[DVT_NPU_PIPE_VEC] = round_up(vec);
  out.pipe_cycles[DVT_NPU_PIPE_MTE2] = round_up(mte2_busy);
  out.pipe_cycles[DVT_NPU_PIPE_MTE3] = round_up(mte3_busy);
  finish_timing(p, out, core_cycles, std::ceil(pipes[0] + p.overlap_second * pipes[1]));
  return out;
}

bool is_attention(std::string_view op) {
  return op.find("Attention") != std::string_view::npos;
}

// Fused attention: batch heads of m queries by n keys; k: the extents of a key and of a value
// together. A cube core takes 128 queries and goes through all keys: both products there, softmax
// on its vector units meanwhile. Scores pass through L2: f32 out and in, probabilities in 16 bits
// out and in. L2 has channels of their own for reads and writes, so that the reads count: they are
// more.
TaskTiming attention_timing(const Parameters& p, const DvtTaskCost& cost,
                            const OperatorParameters& own) {
  constexpr double kRows = 128;
  const Product x = product_of(p, cost);
  const double wanted = cost.block_dim == 0 ? p.aic_cores : cost.block_dim;
  const double tiles = x.batch * ceil_div(x.m, kRows);
  const double cores = std::min({p.aic_cores, wanted, tiles});
  const double rounds = ceil_div(tiles, cores);
  const double rows = std::min(kRows, x.m);

  const double fractals = ceil_div(rows, 16) * ceil_div(x.n, 16) * ceil_div(x.k, x.fractal_k);
  const double mac = rounds * std::ceil(fractals * p.cube_fractal_cycles + p.cube_round_cycles);
  const double repeats = ceil_div(rows * x.n * 4, p.vector_repeat_bytes);
  const double vec =
      rounds * std::ceil(repeats * p.attention_passes / vector_units(p) + p.vector_start_cycles);
  const double keys_bytes = x.n * x.k * x.element;
  const double mte2_core = rounds * std::ceil(keys_bytes / p.mte2_aic_rate);
  const double mte1 = rounds * std::ceil(keys_bytes / p.mte1_l0b_rate);
  TaskTiming out;
  out.hbm_bytes =
      round_up(static_cast<double>(cost.read_bytes) + static_cast<double>(cost.write_bytes));
  out.l2_bytes = round_up(tiles * keys_bytes + x.batch * x.m * x.n * (4 + 2));
  const double mte2 = std::max(
      {mte2_core, rate_cycles(p, static_cast<double>(out.hbm_bytes), p.hbm_gbps * p.hbm_efficiency),
       rate_cycles(p, static_cast<double>(out.l2_bytes), p.l2_gbps * p.l2_efficiency)});
  out.type = DVT_NPU_MIX_AIC;
  out.aic = static_cast<uint16_t>(cores);
  out.aiv = static_cast<uint16_t>(std::min(p.aiv_cores, vector_units(p) * cores));
  out.head_ps = us_to_ps(own.head_us.value_or(p.attention_head_us));
  out.pipe_cycles[DVT_NPU_PIPE_MAC] = round_up(mac);
  out.pipe_cycles[DVT_NPU_PIPE_VEC] = round_up(vec);
  out.pipe_cycles[DVT_NPU_PIPE_MTE1] = round_up(mte1);
  out.pipe_cycles[DVT_NPU_PIPE_MTE2] = round_up(mte2);
  out.tile = {static_cast<uint32_t>(kRows), static_cast<uint32_t>(std::min(x.n, 4e9)), 1};
  std::array<double, 4> pipes = {mac, vec, mte1, mte2};
  std::sort(pipes.begin(), pipes.end(), std::greater<>());
  finish_timing(p, out, std::max({mac, vec, mte1, mte2_core}),
                std::ceil(pipes[0] + p.overlap_second * pipes[1]));
  return out;
}

TaskTiming aicpu_timing(const Parameters& p, const DvtTaskCost& cost,
                        const OperatorParameters& own) {
  TaskTiming out;
  out.type = DVT_NPU_AI_CPU;
  out.head_ps = us_to_ps(own.head_us.value_or(p.aicpu_head_us));
  out.hbm_bytes =
      round_up(static_cast<double>(cost.read_bytes) + static_cast<double>(cost.write_bytes));
  out.l2_bytes = out.hbm_bytes;
  const double cycles =
      rate_cycles(p, static_cast<double>(out.hbm_bytes), own.bandwidth_gbps.value_or(p.aicpu_gbps));
  finish_timing(p, out, cycles, std::ceil(cycles));
  return out;
}

}  // namespace

std::string_view operator_type(std::string_view op) {
  if (const auto colons = op.rfind("::"); colons != std::string_view::npos) {
    op = op.substr(colons + 2);
  }
  return op.substr(0, op.find_first_of("(."));
}

TaskTiming kernel_timing(const Parameters& parameters, const DvtTaskCost* cost,
                         std::string_view op) {
  TaskTiming out;
  if (cost == nullptr || cost->kind == DVT_TASK_NONE) return out;
  const auto special = parameters.operators.find(operator_type(op));
  const OperatorParameters own =
      special == parameters.operators.end() ? OperatorParameters{} : special->second;
  switch (cost->kind) {
    case DVT_TASK_MATMUL:
    case DVT_TASK_CONV:
      out = cost->kind == DVT_TASK_MATMUL && is_attention(operator_type(op))
                ? attention_timing(parameters, *cost, own)
                : cube_timing(parameters, *cost, own);
      break;
    case DVT_TASK_AICPU:
      out = aicpu_timing(parameters, *cost, own);
      break;
    default:
      out = vector_timing(parameters, *cost, own);
      break;
  }
  out.read_bytes = cost->read_bytes;
  out.write_bytes = cost->write_bytes;
  combine_cores(parameters, out);
  return out;
}

TaskTiming copy_timing(const Parameters& parameters, DvtNpuTaskType type, uint64_t bytes) {
  TaskTiming out;
  out.type = type;
  if (type >= DVT_NPU_QUEUE_ENQUEUE) {  // An item is handed over in the time of an AICPU task.
    out.head_ps = us_to_ps(parameters.aicpu_head_us);
    return out;
  }
  const bool pcie = type == DVT_NPU_COPY_H2D || type == DVT_NPU_COPY_D2H;
  const double gbps = pcie ? parameters.pcie_gbps : parameters.sdma_gbps;
  const double setup = pcie ? parameters.pcie_setup_us : parameters.sdma_setup_us;
  out.head_ps = us_to_ps(setup);
  const double ps = std::ceil(static_cast<double>(bytes) * 1e3 / gbps - kSlack);
  out.body_ps =
      ps > static_cast<double>(kBodyMaxPs) ? kBodyMaxPs : static_cast<int64_t>(std::max(ps, 0.0));
  const bool reads = type != DVT_NPU_COPY_H2D && type != DVT_NPU_MEMSET;
  const bool writes = type != DVT_NPU_COPY_D2H;
  out.read_bytes = type == DVT_NPU_MEMSET ? 0 : bytes;
  out.write_bytes = bytes;
  const uint64_t capped = std::min<uint64_t>(bytes, uint64_t{1} << 52);
  out.hbm_bytes = capped * ((reads ? 1U : 0U) + (writes ? 1U : 0U));
  out.l2_bytes = out.hbm_bytes;
  if (out.body_ps > 0) {
    const double body_us = static_cast<double>(out.body_ps) / 1e6;
    out.hbm_need_mbps =
        static_cast<uint32_t>(std::min(static_cast<double>(out.hbm_bytes) / body_us, 4e9));
    out.l2_need_mbps = out.hbm_need_mbps;
  }
  return out;
}

}  // namespace davit::npu
