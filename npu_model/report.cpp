// Results of an NPU as tables: names, operators, op_summary.csv.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <span>

#include "base/files.hpp"
#include "npu_model/npu_handle.hpp"

using davit::ErrorDetail;
using davit::Status;

namespace {

constexpr const char* kTypeNames[] = {
    "AI_CORE",       "AI_VECTOR_CORE", "MIX_AIC",       "AI_CPU",        "MEMCPY_H2D",
    "MEMCPY_D2H",    "MEMCPY_D2D",     "MEMSET",        "EVENT_RECORD",  "EVENT_WAIT",
    "NOTIFY_RECORD", "NOTIFY_WAIT",    "HOST_CALLBACK", "MODEL_EXECUTE", "END_GRAPH",
    "STREAM_ACTIVE", "STREAM_SWITCH",  "LABEL_SET",     "LABEL_GOTO",    "LABEL_SWITCH",
    "QUEUE_ENQUEUE", "QUEUE_DEQUEUE",
};
static_assert(std::size(kTypeNames) == DVT_NPU_QUEUE_DEQUEUE + 1);
constexpr const char* kPipeNames[] = {"MAC", "VEC", "MTE1", "MTE2", "MTE3", "FIXP"};
static_assert(std::size(kPipeNames) == DVT_NPU_PIPE_COUNT);

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\n\r") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

constexpr const char* kHeader =
    "Device_id,Model ID,Task ID,Stream ID,Op Name,OP Type,Task Type,Task Start Time(us),"
    "Task Duration(us),Task Wait Time(us),Block Dim,Mix Block Dim,Input Shapes,Input Data Types,"
    "Input Formats,Output Shapes,Output Data Types,Output Formats,Context ID,aicore_time(us)";
constexpr uint32_t kNoPipe = DVT_NPU_PIPE_COUNT;  // The scalar unit, which is not modelled.
struct PipeColumn {
  const char* name;
  uint32_t pipe;
};
// Where cube and vector cores are apart, as on 910B and A3, and where they are one.
constexpr PipeColumn kCubePipes[] = {{"aic_mac", DVT_NPU_PIPE_MAC},
                                     {"aic_scalar", kNoPipe},
                                     {"aic_mte1", DVT_NPU_PIPE_MTE1},
                                     {"aic_mte2", DVT_NPU_PIPE_MTE2},
                                     {"aic_fixpipe", DVT_NPU_PIPE_FIXP}};
constexpr PipeColumn kVectorPipes[] = {{"aiv_vec", DVT_NPU_PIPE_VEC},
                                       {"aiv_scalar", kNoPipe},
                                       {"aiv_mte2", DVT_NPU_PIPE_MTE2},
                                       {"aiv_mte3", DVT_NPU_PIPE_MTE3}};
constexpr PipeColumn kCombinedPipes[] = {{"vec", DVT_NPU_PIPE_VEC},   {"mac", DVT_NPU_PIPE_MAC},
                                         {"scalar", kNoPipe},         {"mte1", DVT_NPU_PIPE_MTE1},
                                         {"mte2", DVT_NPU_PIPE_MTE2}, {"mte3", DVT_NPU_PIPE_MTE3}};

std::string us(int64_t ps) {
  return fmt::format("{:.3f}", static_cast<double>(ps) / 1e6);
}

std::string pipe_header(std::span<const PipeColumn> pipes) {
  std::string out;
  for (const PipeColumn& column : pipes) {
    out += fmt::format(",{0}_time(us),{0}_ratio", column.name);
  }
  return out;
}

std::string header(bool combined) {
  if (combined) {
    return kHeader + (",total_cycles" + pipe_header(kCombinedPipes)) + ",icache_miss_rate\n";
  }
  return kHeader + (",aic_total_cycles" + pipe_header(kCubePipes)) +
         ",aic_icache_miss_rate,aiv_time(us),aiv_total_cycles" + pipe_header(kVectorPipes) +
         ",aiv_icache_miss_rate\n";
}

// ",time,ratio" of each pipe. The mean core is as busy as the busiest here: tiles are alike.
std::string pipe_columns(const DvtNpuTask& task, std::span<const PipeColumn> pipes,
                         double clock_mhz) {
  std::string out;
  for (const PipeColumn& column : pipes) {
    if (column.pipe == kNoPipe) {
      out += ",N/A,N/A";
      continue;
    }
    const double cycles = static_cast<double>(task.pipe_cycles[column.pipe]);
    const double total = static_cast<double>(std::max<uint64_t>(task.body_cycles, 1));
    out += fmt::format(",{:.3f},{:.4f}", cycles / clock_mhz, cycles / total);
  }
  return out + ",N/A";  // Misses of the instruction cache.
}

std::string not_there(size_t columns) {
  std::string out;
  for (size_t i = 0; i < columns; ++i) out += ",N/A";
  return out;
}

// ",core time,total cycles" of a kernel on so many cores.
std::string core_columns(const DvtNpuTask& task, uint64_t cores, double clock_mhz) {
  return fmt::format(",{:.3f},{}", static_cast<double>(task.body_cycles) / clock_mhz,
                     task.body_cycles * cores);
}

std::string csv_row(const DvtNpuTask& task, const char* operands, int64_t wait_ps, double clock_mhz,
                    bool combined) {
  std::string row =
      fmt::format("0,0,{},{},{},{},{},{},{},{}", task.id, task.stream, csv_field(task.name),
                  csv_field(task.op), dvt_npu_task_type_name(task.type), us(task.start_ps),
                  us(task.end_ps - task.start_ps), us(wait_ps));
  const bool cube = task.type == DVT_NPU_AI_CORE || task.type == DVT_NPU_MIX_AIC;
  const bool vector = task.type == DVT_NPU_AI_VECTOR_CORE || task.type == DVT_NPU_MIX_AIC;
  const uint64_t mix = task.type == DVT_NPU_MIX_AIC ? uint64_t{2} * task.block_dim : 0;
  row += fmt::format(",{},{}", task.block_dim, mix);
  row += (*operands == '\0' ? not_there(6) : operands) + not_there(1);
  if (combined) {
    row += cube ? core_columns(task, task.block_dim, clock_mhz) +
                      pipe_columns(task, kCombinedPipes, clock_mhz)
                : not_there(2 + 2 * std::size(kCombinedPipes) + 1);
    return row + "\n";
  }
  row += cube ? core_columns(task, task.block_dim, clock_mhz) +
                    pipe_columns(task, kCubePipes, clock_mhz)
              : not_there(2 + 2 * std::size(kCubePipes) + 1);
  if (vector) {
    DvtNpuTask own = task;
    if (mix > 0) own.pipe_cycles[DVT_NPU_PIPE_MTE2] = 0;  // The cube core's.
    row += core_columns(task, mix > 0 ? mix : task.block_dim, clock_mhz) +
           pipe_columns(own, kVectorPipes, clock_mhz);
  } else {
    row += not_there(2 + 2 * std::size(kVectorPipes) + 1);
  }
  return row + "\n";
}

DvtCode report(Status status, DvtError* error) {
  status.to_c(error);
  return status.ok() ? DVT_OK : status.code();
}

}  // namespace

extern "C" {

const char* dvt_npu_task_type_name(DvtNpuTaskType type) {
  const auto index = static_cast<size_t>(type);
  return index < std::size(kTypeNames) ? kTypeNames[index] : "UNKNOWN";
}

const char* dvt_npu_pipe_name(uint32_t pipe) {
  return pipe < DVT_NPU_PIPE_COUNT ? kPipeNames[pipe] : "UNKNOWN";
}

uint64_t dvt_npu_operators(const DvtNpu* npu, uint64_t first_task, uint64_t task_count,
                           DvtNpuOperator* out, uint64_t capacity) {
  const davit::npu::Entry entry(npu);
  std::map<std::pair<const char*, DvtNpuTaskType>, DvtNpuOperator> rows;
  const uint64_t recorded = npu->npu.record_count();
  const uint64_t first = std::min(first_task, recorded);
  const uint64_t last = first + std::min(task_count, recorded - first);
  int64_t total = 0;
  for (uint64_t i = first; i < last; ++i) {
    const DvtNpuTask task = npu->npu.record(i);
    const int64_t ps = task.end_ps - task.start_ps;
    // Operator names are interned, so that equal names have equal addresses.
    auto [entry, fresh] = rows.try_emplace({task.op, task.type});
    DvtNpuOperator& row = entry->second;
    if (fresh) row = {.op = task.op, .type = task.type, .min_ps = ps, .max_ps = ps};
    ++row.count;
    row.total_ps += ps;
    row.min_ps = std::min(row.min_ps, ps);
    row.max_ps = std::max(row.max_ps, ps);
    row.read_bytes += task.read_bytes;
    row.write_bytes += task.write_bytes;
    total += ps;
  }
  std::vector<DvtNpuOperator> sorted;
  sorted.reserve(rows.size());
  for (auto& [key, row] : rows) {
    if (total > 0) {
      row.share_ppm = static_cast<uint32_t>(static_cast<double>(row.total_ps) * 1e6 /
                                            static_cast<double>(total));
    }
    sorted.push_back(row);
  }
  std::sort(sorted.begin(), sorted.end(), [](const DvtNpuOperator& a, const DvtNpuOperator& b) {
    if (a.total_ps != b.total_ps) return a.total_ps > b.total_ps;
    const int order = std::strcmp(a.op, b.op);
    return order != 0 ? order < 0 : a.type < b.type;
  });
  const uint64_t shown = std::min<uint64_t>(capacity, sorted.size());
  if (out != nullptr) {
    std::copy(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(shown), out);
  }
  return sorted.size();
}

DvtCode dvt_npu_write_op_summary(const DvtNpu* npu, const char* stated_path, DvtError* error) {
  if (Status status = davit::check_replaceable(stated_path); !status.ok()) {
    return report(std::move(status), error);
  }
  const std::string path = davit::resolve_link(stated_path);
  const std::string temporary = path + ".part";
  std::string text;
  {
    const davit::npu::Entry entry(npu);
    const double clock_mhz = npu->npu.settings().parameters.clock_mhz;
    const bool combined = npu->npu.settings().parameters.combined_cores > 0;
    text = header(combined);
    std::map<uint32_t, int64_t> last_end;  // By stream.
    for (uint64_t i = 0; i < npu->npu.record_count(); ++i) {
      const DvtNpuTask task = npu->npu.record(i);
      const auto previous = last_end.find(task.stream);
      const int64_t wait = previous == last_end.end() ? 0 : task.start_ps - previous->second;
      last_end[task.stream] = task.end_ps;
      text += csv_row(task, npu->npu.operands_of(i), wait, clock_mhz, combined);
    }
  }
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  bool written = file != nullptr;
  if (file != nullptr) {
    written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    written = std::fclose(file) == 0 && written;
  }
  if (written && std::rename(temporary.c_str(), path.c_str()) == 0) return report({}, error);
  const int code = errno;
  if (file != nullptr) std::remove(temporary.c_str());
  return report(Status(ErrorDetail{.code = DVT_IO_ERROR,
                                   .stage = DVT_STAGE_WRITE,
                                   .message = fmt::format("cannot write {}", path),
                                   .got = std::strerror(code)}),
                error);
}

}  // extern "C"
