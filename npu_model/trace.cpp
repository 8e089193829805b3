#include "npu_model/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace davit::npu {
namespace {

constexpr int64_t kPsPerNs = 1000;

// Rows of one pool. Overlapping slices go to different lanes, lowest free lane first.
struct Pool {
  const char* name;
  uint32_t first_row;  // Lane k uses kRowsPerLane rows from first_row + k * kRowsPerLane.
  std::vector<int64_t> busy_until_ps;

  uint32_t lane(int64_t start_ps, int64_t end_ps) {
    for (uint32_t i = 0; i < busy_until_ps.size(); ++i) {
      if (busy_until_ps[i] > start_ps) continue;
      busy_until_ps[i] = end_ps;
      return i;
    }
    busy_until_ps.push_back(end_ps);
    return static_cast<uint32_t>(busy_until_ps.size() - 1);
  }
};
constexpr uint32_t kRowsPerLane = 8;  // The pool's own row and its pipes.
static_assert(kRowsPerLane > DVT_NPU_PIPE_COUNT);
constexpr uint32_t kRowsPerPool = 1U << 20;
enum PoolIndex : uint8_t { kAic, kAiv, kAicpu, kPcieIn, kPcieOut, kSdma, kPoolCount };

// Pools that a task occupies.
std::vector<PoolIndex> pools_of(DvtNpuTaskType type) {
  switch (type) {
    case DVT_NPU_AI_CORE:
      return {kAic};
    case DVT_NPU_AI_VECTOR_CORE:
      return {kAiv};
    case DVT_NPU_MIX_AIC:
      return {kAic, kAiv};
    case DVT_NPU_AI_CPU:
      return {kAicpu};
    case DVT_NPU_COPY_H2D:
      return {kPcieIn};
    case DVT_NPU_COPY_D2H:
      return {kPcieOut};
    case DVT_NPU_COPY_D2D:
    case DVT_NPU_MEMSET:
      return {kSdma};
    default:
      return {};
  }
}

bool pipe_belongs(PoolIndex pool, DvtNpuTaskType type, uint32_t pipe) {
  if (pool == kAic) return pipe != DVT_NPU_PIPE_VEC && pipe != DVT_NPU_PIPE_MTE3;
  if (pool != kAiv) return false;
  return type == DVT_NPU_MIX_AIC ? pipe == DVT_NPU_PIPE_VEC : pipe != DVT_NPU_PIPE_MAC;
}

class TraceRows {
 public:
  TraceRows(trace::TraceWriter& writer, uint32_t pid, double clock_mhz)
      : writer_(writer), pid_(pid), clock_mhz_(clock_mhz) {}

  void add(const DvtNpuTask& task) {
    const trace::Row row{pid_, stream_row(task.stream)};
    const std::string name = *task.name == '\0' ? task.op : task.name;
    writer_.slice(row, name, dvt_npu_task_type_name(task.type), task.start_ps / kPsPerNs,
                  (task.end_ps - task.start_ps) / kPsPerNs, args_of(task));
    if (task.type == DVT_NPU_EVENT_RECORD || task.type == DVT_NPU_NOTIFY_RECORD) {
      records_[task.id] = {row, task.end_ps};
    } else if (task.released_by != UINT64_MAX) {
      if (const auto by = records_.find(task.released_by); by != records_.end()) {
        writer_.flow(by->second.row, by->second.end_ps / kPsPerNs, row, task.start_ps / kPsPerNs);
      }
    }
    if (task.end_ps == task.start_ps) return;
    for (const PoolIndex pool : pools_of(task.type)) add_to_pool(pool, task, name);
  }

 private:
  struct RecordEnd {
    trace::Row row;
    int64_t end_ps;
  };

  static trace::Args args_of(const DvtNpuTask& task) {
    trace::Args args;
    args.text("op", task.op)
        .integer("task_id", static_cast<int64_t>(task.id))
        .integer("queue_ns", (task.ready_ps - task.submit_ps) / kPsPerNs)
        .integer("wait_ns", (task.start_ps - task.ready_ps) / kPsPerNs)
        .integer("head_ns", task.head_ps / kPsPerNs)
        .integer("body_ns", task.body_ps / kPsPerNs)
        .integer("stall_ns", task.stall_ps / kPsPerNs)
        .integer("block_dim", task.block_dim)
        .integer("read_bytes", static_cast<int64_t>(task.read_bytes))
        .integer("write_bytes", static_cast<int64_t>(task.write_bytes))
        .integer("hbm_bytes", static_cast<int64_t>(task.hbm_bytes))
        .integer("l2_bytes", static_cast<int64_t>(task.l2_bytes));
    if (task.tile[0] > 0) {
      args.text("tile", fmt::format("{}x{} split {}", task.tile[0], task.tile[1], task.tile[2]));
    }
    return args;
  }

  uint32_t stream_row(uint32_t stream) {
    if (streams_.insert(stream).second) {
      writer_.row({pid_, stream}, fmt::format("stream {}", stream), static_cast<int32_t>(stream));
    }
    return stream;
  }

  void add_to_pool(PoolIndex index, const DvtNpuTask& task, const std::string& name) {
    Pool& pool = pools_[index];
    const uint32_t lane = pool.lane(task.start_ps, task.end_ps);
    const uint32_t base = pool.first_row + lane * kRowsPerLane;
    const std::string title = lane == 0 && index >= kPcieIn ? std::string(pool.name)
                                                            : fmt::format("{} {}", pool.name, lane);
    name_row(base, title);
    writer_.slice({pid_, base}, name, dvt_npu_task_type_name(task.type), task.start_ps / kPsPerNs,
                  (task.end_ps - task.start_ps) / kPsPerNs);
    const int64_t begin_ps = task.start_ps + task.head_ps;
    for (uint32_t pipe = 0; pipe < DVT_NPU_PIPE_COUNT; ++pipe) {
      if (task.pipe_cycles[pipe] == 0 || !pipe_belongs(index, task.type, pipe)) continue;
      name_row(base + 1 + pipe, fmt::format("{} {}", title, dvt_npu_pipe_name(pipe)));
      const auto busy_ps =
          static_cast<int64_t>(static_cast<double>(task.pipe_cycles[pipe]) * 1e6 / clock_mhz_);
      writer_.slice({pid_, base + 1 + pipe}, name, dvt_npu_pipe_name(pipe), begin_ps / kPsPerNs,
                    std::min(busy_ps, task.end_ps - begin_ps) / kPsPerNs);
    }
  }

  void name_row(uint32_t row, const std::string& name) {
    if (named_.insert(row).second) {
      writer_.row({pid_, row}, name, static_cast<int32_t>(row));
    }
  }

  trace::TraceWriter& writer_;
  uint32_t pid_;
  double clock_mhz_;
  Pool pools_[kPoolCount] = {
      {"AIC", 1 * kRowsPerPool, {}},      {"AIV", 2 * kRowsPerPool, {}},
      {"AICPU", 3 * kRowsPerPool, {}},    {"PCIe in", 4 * kRowsPerPool, {}},
      {"PCIe out", 5 * kRowsPerPool, {}}, {"SDMA", 6 * kRowsPerPool, {}},
  };
  std::set<uint32_t> streams_;
  std::set<uint32_t> named_;
  std::unordered_map<uint64_t, RecordEnd> records_;
};

}  // namespace

void add_trace(trace::TraceWriter& writer, const DvtNpu* npu, uint32_t pid) {
  double clock_mhz = 1;
  for (uint32_t i = 0; i < dvt_npu_parameter_count(npu); ++i) {
    DvtNpuParameter parameter{};
    if (dvt_npu_parameter(npu, i, &parameter) == DVT_OK &&
        std::string_view(parameter.key) == "core.clock") {
      clock_mhz = parameter.value;
    }
  }
  writer.process(pid, fmt::format("Ascend model (virtual time, {} MHz)", clock_mhz),
                 static_cast<int32_t>(pid));
  TraceRows rows(writer, pid, clock_mhz);
  // Records come in order of completion; lanes are filled in order of start.
  std::vector<DvtNpuTask> tasks(dvt_npu_task_count(npu));
  for (uint64_t i = 0; i < tasks.size(); ++i) {
    if (dvt_npu_task(npu, i, &tasks[i]) != DVT_OK) tasks[i] = {};
  }
  std::stable_sort(tasks.begin(), tasks.end(), [](const DvtNpuTask& a, const DvtNpuTask& b) {
    return a.start_ps != b.start_ps ? a.start_ps < b.start_ps : a.id < b.id;
  });
  for (const DvtNpuTask& task : tasks) rows.add(task);
}

}  // namespace davit::npu
