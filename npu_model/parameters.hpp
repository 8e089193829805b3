// parameters.hpp: the numbers of one SoC, read from a parameter file.
//
//   key = value unit [evidence] # source
//
// Threads  A Parameters is a value, constant once an NPU has it.
// Trust    Files and overrides come from users: unknown keys, wrong units and values out of range
//          are errors that name the line.
// Memory   Built-in files are constant text in the library.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"

namespace davit::npu {

struct BuiltinSoc {
  std::string_view name;
  std::string_view text;
};
// Sorted by name. Generated from soc/*.params.
std::span<const BuiltinSoc> builtin_socs();

// One line of a file, for reports.
struct Parameter {
  std::string key;
  double value = 0;
  std::string unit;
  char evidence = 'A';
  bool overridden = false;
  std::string source;
};

// Replaces the head or bandwidth of one operator type.
struct OperatorParameters {
  std::optional<double> head_us;
  std::optional<double> bandwidth_gbps;
};

// Every value in the unit of its file key; the field comments are the keys.
struct Parameters {
  double clock_mhz = 0;              // core.clock
  double aic_cores = 0;              // core.aic
  double aiv_cores = 0;              // core.aiv
  double combined_cores = 0;         // core.combined: 1: cube cores do the vector work, too
  double aicpu_cores = 0;            // core.aicpu
  double aicpu_coherent = 0;         // aicpu.coherent: 0: caches do not see copies from the host
  double hbm_capacity_gib = 0;       // hbm.capacity
  double hbm_gbps = 0;               // hbm.bandwidth
  double hbm_efficiency = 0;         // hbm.efficiency
  double l2_capacity_mib = 0;        // l2.capacity
  double l2_gbps = 0;                // l2.bandwidth
  double l2_efficiency = 0;          // l2.efficiency
  double l0c_capacity_kib = 0;       // l0c.capacity
  double cube_k_f16 = 0;             // cube.k_f16
  double cube_k_i8 = 0;              // cube.k_i8
  double cube_k_f32 = 0;             // cube.k_f32
  double cube_fractal_cycles = 0;    // cube.fractal
  double cube_round_cycles = 0;      // cube.round
  double mte1_l0a_rate = 0;          // mte1.l0a
  double mte1_l0b_rate = 0;          // mte1.l0b
  double mte2_aic_rate = 0;          // mte2.aic
  double mte2_burst_cycles = 0;      // mte2.burst
  double fixp_rate = 0;              // fixp.rate
  double fixp_start_cycles = 0;      // fixp.start
  double vector_repeat_bytes = 0;    // vector.repeat
  double vector_start_cycles = 0;    // vector.start
  double mte2_aiv_rate = 0;          // mte2.aiv
  double mte2_aiv_start_cycles = 0;  // mte2.aiv_start
  double mte3_aiv_rate = 0;          // mte3.aiv
  double mte3_aiv_start_cycles = 0;  // mte3.aiv_start
  double overlap_second = 0;         // overlap.second
  double matmul_head_us = 0;         // matmul.head
  double conv_head_us = 0;           // conv.head
  double matmul_split_k_us = 0;      // matmul.split_k
  double attention_head_us = 0;      // attention.head
  double attention_passes = 0;       // attention.softmax
  double mix_head_us = 0;            // mix.head
  double vector_head_us = 0;         // vector.head
  double vector_gbps = 0;            // vector.bandwidth
  double move_head_us = 0;           // move.head
  double move_gbps = 0;              // move.bandwidth
  double aicpu_head_us = 0;          // aicpu.head
  double aicpu_gbps = 0;             // aicpu.bandwidth
  double pcie_setup_us = 0;          // pcie.setup
  double pcie_gbps = 0;              // pcie.bandwidth
  double sdma_setup_us = 0;          // sdma.setup
  double sdma_gbps = 0;              // sdma.bandwidth
  double task_gap_us = 0;            // ts.task_gap
  double active_streams = 0;         // ts.active_streams
  double streams_max = 0;            // stream.max
  double sq_depth = 0;               // sq.depth
  double sq_reserved = 0;            // sq.reserved
  double events_max = 0;             // event.max
  double event_record_us = 0;        // event.record
  double event_wait_us = 0;          // event.wait
  double notifies_max = 0;           // notify.max
  double notify_us = 0;              // notify.latency
  double notify_cross_us = 0;        // notify.cross_device
  double models_max = 0;             // model.max
  double model_execute_us = 0;       // model.execute
  double model_stream_depth = 0;     // model.stream_depth
  double labels_max = 0;             // label.max
  double control_us = 0;             // control.latency; > 0: an endless loop takes time
  double queues_max = 0;             // queue.max
  double queue_depth = 0;            // queue.depth
  double callback_us = 0;            // host.callback
  double enqueue_us = 0;             // host.enqueue
  double synchronize_us = 0;         // host.synchronize
  double allocate_us = 0;            // host.allocate

  std::map<std::string, OperatorParameters, std::less<>> operators;  // op.<type>.*
  std::vector<Parameter> lines;                                      // In file order.

  // From cube cycles to picoseconds, rounded up.
  [[nodiscard]] int64_t cycles_to_ps(uint64_t cycles) const;
};

// Parses a whole file: every key must be there once. `name` names the file in errors.
Result<Parameters> parse_parameters(std::string_view text, std::string_view name);

// Applies "key=value". The key may also be a new op.<type>.head or op.<type>.bandwidth.
Status override_parameter(Parameters& parameters, std::string_view assignment);

// Rules between values. Call it when the last override is in.
Status check_parameters(const Parameters& parameters);

}  // namespace davit::npu
